#!/bin/bash
# Checks that the documentation names what there is; exit status 1 if not.
#
#	- files of this repository, in all of its *.md and in comments of the sources
#	- "`function` in `file`"
#	- in tables of tests ("regress: a, b; TAP: c"), the tests
#	- in doc/exactness.md, all patches of test/mutations, and no other
#	- in test/mutations/harmless, files and functions
set -uo pipefail
cd "$(dirname "$0")/.." || exit
faults=0

fault() {
	echo "$*"
	faults=$((faults + 1))
}

docs=$(find . -name '*.md' -not -path './build/*' -not -path './tmp_*' -not -path './.git/*' | sed 's,^\./,,' | sort)

sources=$(find src kernels test scripts sql -type f -not -path '*/bin/*' \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \
	-o -name '*.cpp' -o -name '*.sh' -o -name '*.mk' -o -name '*.sql' -o -name '*.pl' -o -name '*.spec' \))

# what looks like a file of ours, as "FILE PATH"
paths() {
	grep -oE '(^|[^A-Za-z0-9_./-]|srcdir[)]/)(src|kernels|test|scripts|sql|doc)/[A-Za-z0-9_./-]*[A-Za-z0-9_]\.(csv|cuh|cu|cpp|c|h|inc|sh|sql|spec|pl|md|mk|py|patch)' \
		$docs $sources | sed -E 's,srcdir\)/,,;s,^([^:]*):[^A-Za-z]?,\1 ,' | sort -u
}

while read -r file path; do
	case $path in */bin/* | */NAME.*) continue ;; esac
	[ -e "$path" ] || fault "$file: there is no $path"
done < <(paths)

# "`a`, `b` in `file`", as "FILE NAME PAGE"
named() {
	grep -oE '`[A-Za-z0-9_]+`((,| and) `[A-Za-z0-9_]+`)* in `(src|kernels|test)/[^`]*`' $docs |
		sed -E 's/^([^:]*):(.*) in `([^`]*)`$/\1\t\2\t\3/' | tr -d '`' |
		awk -F '\t' '{ n = split($2, names, /, | and /); for (i = 1; i <= n; i++) print $3, names[i], $1 }' | sort -u
}

# each file is read once, with all words in it that are looked for
while read -r path names; do
	[ -f "$path" ] || continue
	missing=$(comm -23 <(tr ' ' '\n' <<<"$names" | sort -u) <(grep -owF -f <(tr ' ' '\n' <<<"$names") "$path" | sort -u))
	for name in $missing; do
		fault "there is no $name in $path, but in: $(named | awk -v p="$path" -v n="$name" '$1 == p && $2 == n { print $3 }' | xargs)"
	done
done < <(named | awk '{ names[$1] = names[$1] " " $2 } END { for (path in names) print path names[path] }')

# test_exists KIND NAME
test_exists() {
	case $1 in
		regress) [ -e "sql/$2.sql" ] ;;
		isolation) [ -e "test/isolation/specs/${2%_wal}.spec" ] ;;
		TAP) [ -e "test/tap/$2.pl" ] ;;
		unit) compgen -G "test/unit/$2*" >/dev/null ;;
	esac
}

while IFS=$'\t' read -r file kind names; do
	for name in $(sed -E 's/\([^)]*\)?//g' <<<"$names" | grep -oE '(^|,) *[a-z0-9_]+ *' | tr -d ', '); do
		test_exists "$kind" "$name" || fault "$file: there is no test $kind: $name"
	done
done < <(for file in $docs; do
	sed -E 's/\([^()]*\)//g' "$file" | grep -oE '(regress|isolation|TAP|unit): [a-z0-9_, ]+' | sed -E "s,^([A-Za-z]+): (.*),$file\t\1\t\2,"
done | sort -u)

while read -r name; do
	fault "doc/exactness.md does not name the mutant $name"
done < <(comm -23 <(cd test/mutations && printf '%s\n' *.patch | sed 's/\.patch$//' | sort) \
	<(grep -oE '`[a-z0-9_]+`' doc/exactness.md | tr -d '`' | sort -u))
while read -r name; do
	[ -e "test/mutations/$name.patch" ] || fault "doc/exactness.md: there is no mutant $name"
done < <(awk -F ' *\\| *' 'NF > 5 { print $4 }' doc/exactness.md | grep -oE '`[a-z0-9_]+`' | tr -d '`' | sort -u)

while read -r path function _; do
	grep -qs "^${function%:}(" "$path" || fault "test/mutations/harmless: there is no $function in $path"
done < <(grep -v '^#' test/mutations/harmless)

echo "docs: $faults faults"
[ "$faults" = 0 ]
