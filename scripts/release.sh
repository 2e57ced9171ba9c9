#!/bin/bash
# Checks that a release could be made of the tree as it is: all files that name the version or
# the day of the release say the same as the Makefile and CHANGELOG.md, and each script that
# creates or updates objects first asks for a library of its version.
#
#   scripts/release.sh        prints what does not agree; exit status 1 then
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export LC_ALL=C

# else the last command of a pipe counts for itself
shopt -s lastpipe
faults=0
fault() {
	echo "$*"
	faults=$((faults + 1))
}

# expect FILE WHAT WANTED: stdin is what the file says
expect() {
	local found
	found=$(cat)
	[ "$found" = "$3" ] || fault "$1: $2 is ${found:-missing}, not $3"
}

# day WORDS...: as 2026-11-26
day() { date -u -d "$*" +%F 2>/dev/null; }

# asks SCRIPT VERSION: its first statement that calls something is the question
asks() {
	grep -v '^ALTER EXTENSION\|^CREATE FUNCTION gpuvec_library_version' "$1" | grep -m 1 -oE '^(SELECT|CREATE|ALTER|DROP) .*' |
		expect "$1" "the first statement" "SELECT gpuvec_library_version('$2'::text);"
}

version=$(sed -n 's/^EXTVERSION = //p' Makefile)
next=$(sed -n 's/^NEXTVERSION = //p' Makefile)
released=$(sed -n 's/^## .* (\(.*\))$/\1/p' CHANGELOG.md | head -n 1)

[ "$(day "$released")" = "$released" ] || fault "CHANGELOG.md: the first version has no date"
sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1 | expect CHANGELOG.md "the first version" "$version"
sed -n "s/^default_version = '\(.*\)'/\1/p" gpuvec.control | expect gpuvec.control default_version "$version"
perl -MJSON::PP -0ne 'my $m = decode_json($_); my $p = $m->{provides}{gpuvec}; print "$m->{version} $p->{version} $p->{file}"' META.json |
	expect META.json "version, and version and file of what it provides" "$version $version sql/gpuvec--$version.sql"
sed -n '1s/^gpuvec (\(.*\)-[^-]*) .*/\1/p' debian/changelog | expect debian/changelog "the first version" "$version"
day "$(sed -n 's/^ -- .*>  //p' debian/changelog | head -n 1)" | expect debian/changelog "the day" "$released"
sed -n 's/^Version: *//p' packaging/gpuvec.spec | expect packaging/gpuvec.spec Version "$version"
sed -n 's/^\* .* - \(.*\)-[0-9]*$/\1/p' packaging/gpuvec.spec | head -n 1 | expect packaging/gpuvec.spec "the first version of the changes" "$version"
day "$(sed -n 's/^\* \(... ... .. ....\) .*/\1/p' packaging/gpuvec.spec | head -n 1)" | expect packaging/gpuvec.spec "the day" "$released"
sed -n 's/^version = "\(.*\)"/\1/p' clients/python/pyproject.toml | expect clients/python/pyproject.toml version "$version"
sed -n 's/^__version__ = "\(.*\)"/\1/p' clients/python/gpuvec/__init__.py | expect clients/python/gpuvec/__init__.py __version__ "$version"

[ "$(printf '%s\n' "$version" "$next" | sort -V | tail -n 1)" != "$version" ] || fault "Makefile: NEXTVERSION is not above EXTVERSION"
for script in "sql/gpuvec--$version.sql" "sql/gpuvec--$version--$next.sql"; do
	[ -e "$script" ] || fault "there is no $script"
done
for script in sql/gpuvec--*.sql; do
	file=${script%.sql}
	asks "$script" "${file##*--}"
done
echo "release: version $version of $released, $faults faults"
[ $faults = 0 ]
