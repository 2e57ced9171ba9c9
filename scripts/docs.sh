#!/bin/bash
# Checks that the documentation names what there is; exit status 1 if not.
#
#	- files of this repository, in all of its *.md and in comments of the sources
#	- "`function` in `file`"
#	- in tables of tests ("regress: a, b; TAP: c"), the tests
#	- behind "Broken by" in doc/exactness-*.md, all patches of test/mutations,
#	  and no other
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

# paragraphs and items of the pages, a line each, as "PAGE<tab>TEXT"
paragraphs() {
	awk 'function end() { if (text != "") print page "\t" text; text = "" }
		FNR == 1 || /^[ \t]*$/ || /^[ \t]*(```|[|#]|[-*] |[0-9]+\. )/ { end() }
		{ page = FILENAME; sub(/^[ \t]+/, ""); text = text (text == "" ? "" : " ") $0 }
		END { end() }' $docs
}

# what matches in lines "PAGE<tab>TEXT", as "PAGE<tab>MATCH"
matches() {
	awk -v re="$1" '{ at = index($0, "\t"); page = substr($0, 1, at); text = substr($0, at + 1)
		while (match(text, re)) {
			print page substr(text, RSTART, RLENGTH)
			text = substr(text, RSTART + RLENGTH)
		} }'
}

# "`a`, `b` in `file`", as "FILE NAME PAGE"
named() {
	paragraphs | matches '`[A-Za-z0-9_]+`((,| and) `[A-Za-z0-9_]+`)* in `(src|kernels|test)/[^`]*`' |
		sed -E 's/(.*) in `([^`]*)`$/\1\t\2/' | tr -d '`' |
		awk -F '\t' '{ n = split($2, names, /, | and /); for (i = 1; i <= n; i++) print $3, names[i], $1 }' | sort -u
}

# known_files NAMED: files of such lines that are there; others were told above
known_files() {
	cut -d ' ' -f 1 <<<"$1" | uniq | while read -r path; do
		[ ! -f "$path" ] || echo "$path"
	done
}

# strangers NAMED: names of such lines that are no words of their files, as
# "NAME FILE PAGE..."; each file is read once
strangers() {
	awk 'FILENAME == "-" { pages[$1, $2] = pages[$1, $2] " " $3; next }
		{
			n = split($0, words, /[^A-Za-z0-9_]+/)
			for (i = 1; i <= n; i++) delete pages[FILENAME, words[i]]
			read[FILENAME] = 1
		}
		END {
			for (key in pages) {
				split(key, at, SUBSEP)
				if (at[1] in read) print at[2], at[1], pages[key]
			}
		}' - $(known_files "$1") <<<"$1" | sort
}

while read -r name path pages; do
	fault "there is no $name in $path, but in: $pages"
done < <(strangers "$(named)")

# test_exists KIND NAME
test_exists() {
	case $1 in
		regress) [ -e "sql/$2.sql" ] ;;
		isolation) [ -e "test/isolation/specs/${2%_wal}.spec" ] ;;
		TAP) [ -e "test/tap/$2.pl" ] ;;
		unit) compgen -G "test/unit/$2*" >/dev/null || grep -qw "$2" test/unit/*.mk ;;
	esac
}

# "regress: a, b c", as "PAGE KIND a" and "PAGE KIND b"
tests_named() {
	paragraphs | sed -E 's/\([^()]*\)//g' | matches '(regress|isolation|TAP|unit): [a-z0-9_, ]+' |
		awk -F '\t|: ' '{
			n = split($3, names, ",")
			for (i = 1; i <= n; i++)
				if (split(names[i], words, " ")) print $1, $2, words[1]
		}' | sort -u
}

while read -r file kind name; do
	test_exists "$kind" "$name" || fault "$file: there is no test $kind: $name"
done < <(tests_named)

# the mutants that the rules of exactness name
mutants() {
	paragraphs | sed -nE 's,^doc/exactness-[^\t]*\t- Broken by: ,,p' | grep -oE '`[a-z0-9_]+`' | tr -d '`' | sort -u
}

while read -r name; do
	fault "no page doc/exactness-*.md names the mutant $name"
done < <(comm -23 <(cd test/mutations && printf '%s\n' *.patch | sed 's/\.patch$//' | sort) <(mutants))
while read -r name; do
	[ -e "test/mutations/$name.patch" ] || fault "doc/exactness-*.md: there is no mutant $name"
done < <(mutants)

while read -r path function _; do
	grep -qs "^${function%:}(" "$path" || fault "test/mutations/harmless: there is no $function in $path"
done < <(grep -v '^#' test/mutations/harmless)

echo "docs: $faults faults"
[ "$faults" = 0 ]
