#!/bin/bash
# Breaks the rules of exactness one by one, and sees whether a test notices.
#
#   scripts/mutations.sh [NAME...]      names of test/mutations, without .patch; all by default
#
#   JOBS=4          how many are tried at a time, by default half as many as there are cores
#
# Each file of test/mutations says which rule it breaks (Rule), which tests must fail
# then (Suite, Tests), and in which way: Shows is an extended regular expression for a
# line of their logs, so that a test that fails for another reason proves nothing.  A
# rule that several tests have to notice has a line Shows for each.  The rest of the
# file is the patch.  Kernels run by their emulation, which needs the headers
# of the CUDA toolkit.  First the sources as they are have to pass all these tests; what
# was built then is built upon.  Works on copies in build/mutations.  Ends with
# "N noticed, N not noticed"; the exit status is 1 if a rule can be broken unnoticed, or
# if a patch does not fit the sources any more.
set -uo pipefail

cd "$(dirname "$0")/.." || exit
work=$PWD/build/mutations
. scripts/mutants.sh

# shows NAME PATTERN: is there such a line in the tests' logs?
shows() {
	find "$work/$1/tmp_check" \( -name src -o -name stage -o -name pgdata -o -name 'data-*' \) -prune -o \
		\( -name '*.log' -o -name 'regress_log_*' -o -name regression.diffs \) -print0 2>/dev/null |
		xargs -0r cat | grep -cE -e "$2" >/dev/null
}

# shows_all NAME PATCH: has each of the patch's lines Shows such a line?
shows_all() {
	local pattern
	while read -r pattern; do
		shows "$1" "$pattern" || return 1
	done < <(field Shows "$2")
}

# try NAME PATCH: break a rule, in a shell of its own
try() {
	local name=$1 patch=$2 log=$work/$1.log
	SECONDS=0
	copy "$name"
	if ! break_it "$name" "$patch" 2>"$log"; then
		verdict "$name" unnoticed "does not fit the sources: $log"
	elif run_tests "$name" "$(field Suite "$patch")" "$(field Tests "$patch")" EMULATION=yes JOBS=2 BUILT_SOURCES="$work/unbroken/tmp_check/src"; then
		verdict "$name" unnoticed "NOT NOTICED: $(field Rule "$patch")"
	elif ! grep -q '^== build: 1 passed, 0 failed' "$log"; then
		verdict "$name" unnoticed "cannot be built: $log"
	elif ! shows_all "$name" "$patch"; then
		verdict "$name" unnoticed "fails in another way than expected: $log"
	else
		verdict "$name" noticed "noticed: $(field Rule "$patch")"
		rm -rf "${work:?}/$name"
	fi
}

if [ $# -gt 0 ]; then
	patches=("${@/%/.patch}")
	patches=("${patches[@]/#/test/mutations/}")
else
	patches=(test/mutations/*.patch)
fi
mkdir -p "$work"
[ "$(id -u)" != 0 ] || chmod a+rx "$work"

suites='' tests=''
for patch in "${patches[@]}"; do
	if [ -z "$(field Rule "$patch")" ] || [ -z "$(field Suite "$patch")" ] || [ -z "$(field Shows "$patch")" ]; then
		echo "$patch does not say what it is" >&2
		exit 1
	fi
	suites+=$(field Suite "$patch")$'\n'
	tests+=$(field Tests "$patch" | tr ' ' '\n')$'\n'
done
copy unbroken
if ! run_tests unbroken "$(tr ' ' '\n' <<<"$suites" | sort -u | xargs)" "$(sort -u <<<"$tests" | xargs)" EMULATION=yes KEEP=yes; then
	echo "the tests fail without any rule broken: $work/unbroken.log" >&2
	exit 1
fi
echo "unbroken: $SECONDS s"

rm -f "$work"/*.verdict
try_all "${patches[@]}"
noticed=$(verdicts noticed)
unnoticed=$((${#patches[@]} - noticed))
rm -rf "$work/unbroken"
echo "$SECONDS s"
echo "$noticed noticed, $unnoticed not noticed"
[ "$unnoticed" = 0 ]
