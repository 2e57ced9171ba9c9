#!/bin/bash
# Breaks the rules of exactness one by one, and sees whether a test notices.
#
#   scripts/mutations.sh [NAME...]      names of test/mutations, without .patch; all by default
#
# Each file of test/mutations says which rule it breaks, and which tests must fail
# then; the rest of it is the patch.  Works on copies in build/mutations.  Ends with
# "N noticed, N not noticed"; the exit status is 1 if a rule can be broken unnoticed, or
# if a patch does not fit the sources any more.
set -uo pipefail

cd "$(dirname "$0")/.."
work=$PWD/build/mutations
noticed=0 unnoticed=0

# field NAME FILE
field() { sed -n "s/^$1: //p;/^\$/q" "$2"; }

fail() {
	printf '%-28s %s\n' "$1" "$2"
	unnoticed=$((unnoticed + 1))
}

if [ $# -gt 0 ]; then
	patches=("${@/%/.patch}")
	patches=("${patches[@]/#/test/mutations/}")
else
	patches=(test/mutations/*.patch)
fi
mkdir -p "$work"
[ "$(id -u)" != 0 ] || chmod a+rx "$work"
for patch in "${patches[@]}"; do
	name=$(basename "$patch" .patch)
	tree=$work/$name
	log=$work/$name.log
	rm -rf "$tree"
	mkdir -p "$tree"
	git ls-files -co --exclude-standard -z | xargs -0 cp --parents -pt "$tree"
	if ! sed '1,/^$/d' "$patch" | (cd "$tree" && GIT_CEILING_DIRECTORIES=$work git apply -) 2>"$log"; then
		fail "$name" "does not fit the sources: $log"
		continue
	fi
	if make -s -C "$tree" check WITH_CUDA=no PRELOAD=no \
		SUITES="$(field Suite "$patch")" TESTS="$(field Tests "$patch")" >"$log" 2>&1; then
		fail "$name" "NOT NOTICED: $(field Rule "$patch")"
	elif ! grep -qE '^[0-9]+ passed, [1-9][0-9]* failed' "$log" || grep -q 'cannot build\|Error 1.*\.o\]' "$log"; then
		fail "$name" "did not get as far as the tests: $log"
	else
		printf '%-28s noticed: %s\n' "$name" "$(field Rule "$patch")"
		noticed=$((noticed + 1))
		rm -rf "$tree"
	fi
done
echo "$noticed noticed, $unnoticed not noticed"
[ "$unnoticed" = 0 ]
