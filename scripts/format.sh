#!/bin/bash
# Formats the sources, as the tools that are there can.
#
#   scripts/format.sh             in place
#   scripts/format.sh --check     shows what is not formatted; exit status 1 then
#
# src/      PostgreSQL's own pgindent (src/tools/pgindent, with pg_bsd_indent beside it in
#           src/tools since version 16), and the types in scripts/typedefs.list
# kernels/  clang-format 14, as kernels/.clang-format says: other versions break some
#           lines elsewhere
#
# PGINDENT and CLANG_FORMAT name the programs.  What has no tool is left as it is, and
# the script says so.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
: "${PGINDENT:=pgindent}" "${CLANG_FORMAT:=clang-format}"
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
	if ! (cd "$work" && "$PGINDENT" --typedefs="$OLDPWD/scripts/typedefs.list" "${files[@]}") >"$work/log" 2>&1; then
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

if command -v "$PGINDENT" >/dev/null && command -v pg_bsd_indent >/dev/null; then
	format_c
else
	echo "src/: no pgindent, not looked at"
fi
case $("$CLANG_FORMAT" --version 2>/dev/null) in
	*'version 14.'*) format_kernels ;;
	*) echo "kernels/: no clang-format 14, not looked at" ;;
esac
[ $different = 0 ]
