#!/bin/bash
# Formats the sources, as the tools that are there can.
#
#   scripts/format.sh             in place
#   scripts/format.sh --check     shows what is not formatted; exit status 1 then
#
# src/      pgindent of PostgreSQL 19, whose pg_bsd_indent is version 2.1.3, and the types in
#           scripts/typedefs.list: those of 18 and before format initializers otherwise
# kernels/  clang-format 14, as kernels/.clang-format says: other versions break some
#           lines elsewhere
#
# PGINDENT, PG_BSD_INDENT and CLANG_FORMAT name the programs.  What has no tool is left as it is, and
# the script says so.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
: "${PGINDENT:=pgindent}" "${PG_BSD_INDENT:=pg_bsd_indent}" "${CLANG_FORMAT:=clang-format}"
check=no different=0
case ${1:-} in
	--check) check=yes ;;
	'') ;;
	*) sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# those of the tree's files whose names end with one of these
sources() {
	local folder=$1 pattern
	shift
	for pattern; do
		find "$folder" -name "*.$pattern"
	done | sort
}

# Take the formatted copies over, or show how they differ
finish() {
	local file
	for file; do
		cmp -s "$file" "$work/$file" && continue
		if [ $check = yes ]; then
			diff -u "$file" "$work/$file" | head -n 40
			different=$((different + 1))
		else
			cat "$work/$file" >"$file"
		fi
	done
}

format_c() {
	local files
	mapfile -t files < <(sources src c h)
	cp --parents "${files[@]}" "$work"
	if ! (cd "$work" && "$PGINDENT" --indent="$PG_BSD_INDENT" --typedefs="$OLDPWD/scripts/typedefs.list" "${files[@]}") >"$work/log" 2>&1; then
		cat "$work/log"
		different=$((different + 1))
		return
	fi
	finish "${files[@]}"
}

format_kernels() {
	local files
	mapfile -t files < <(sources kernels cu cuh h)
	cp --parents "${files[@]}" kernels/.clang-format "$work"
	(cd "$work" && "$CLANG_FORMAT" -i --style=file "${files[@]}") || different=$((different + 1))
	finish "${files[@]}"
}

indent=$(command -v "$PGINDENT" >/dev/null && "$PG_BSD_INDENT" --version 2>/dev/null)
case $indent in
	'') echo "src/: no pgindent, not looked at" ;;
	*' 2.1.3 '*) format_c ;;
	*) echo "src/: $indent is not that of PostgreSQL 19, version 2.1.3: not looked at" ;;
esac
case $("$CLANG_FORMAT" --version 2>/dev/null) in
	*'version 14.'*) format_kernels ;;
	*) echo "kernels/: no clang-format 14, not looked at" ;;
esac
[ $different = 0 ]
