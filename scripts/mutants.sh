# shellcheck shell=bash
# What scripts/mutations.sh and scripts/mutate.sh share: copies of the sources in $work,
# each with one fault.  To be sourced in the root of the repository.
#
#   field NAME FILE             what the head of a patch says
#   copy NAME                   a copy of the sources, $work/NAME
#   break_it NAME PATCH         apply a patch to it
#   run_tests NAME SUITES TESTS [SETTING...]   make check there; its log is $work/NAME.log
#   verdict NAME WORD TEXT      what came of it
#   try_all PATCH...            "try NAME PATCH" of each, JOBS at a time
#   verdicts WORD               how many came out like that

# an even number
# shellcheck disable=SC2017
: "${work:?}" "${JOBS:=$((($(nproc) + 3) / 4 * 2))}"

# field NAME FILE
field() { sed -n "s/^$1: //p;/^\$/q" "$2"; }

# verdict NAME WORD TEXT
verdict() {
	printf '%-28s %4d s  %s\n' "$1" "$SECONDS" "$3"
	echo "$2" >"$work/$1.verdict"
}

# copy NAME: a copy of the sources
copy() {
	rm -rf "${work:?}/$1"
	mkdir -p "$work/$1"
	git ls-files -co --exclude-standard -z | xargs -0 cp --parents -pt "$work/$1"
}

# break_it NAME PATCH: a patch behind its head
break_it() {
	sed '1,/^$/d' "$2" | (cd "$work/$1" && GIT_CEILING_DIRECTORIES=$work git apply -)
}

# run_tests NAME SUITES TESTS [SETTING...]
run_tests() {
	local name=$1 suites=$2 tests=$3
	shift 3
	make -s -C "$work/$name" check WITH_CUDA=no PRELOAD=no SUITES="$suites" TESTS="$tests" "$@" >"$work/$name.log" 2>&1
}

# try_all PATCH...: beside each other
try_all() {
	local patch running=0
	rm -f "$work"/*.verdict
	for patch; do
		if [ $running -ge "$JOBS" ]; then
			wait -n
			running=$((running - 1))
		fi
		try "$(basename "$patch" .patch)" "$patch" &
		running=$((running + 1))
	done
	wait
}

# verdicts WORD
verdicts() { cat "$work"/*.verdict | grep -cx "$1"; }
