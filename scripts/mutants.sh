# shellcheck shell=bash
# What scripts/mutations.sh and scripts/mutate.sh share: copies of the sources in $work,
# each with one fault.  To be sourced in the root of the repository.
#
#   field NAME FILE             what the head of a patch says
#   copy NAME                   a copy of the sources, $work/NAME
#   break_it NAME PATCH         apply a patch to it
#   run_tests NAME SUITES TESTS [SETTING...]   make check there; its log is $work/NAME.log
#   verdict NAME WORD TEXT      what came of it, in $verdicts_in/NAME.verdict
#   try_all PATCH...            "try NAME PATCH" of each, JOBS at a time; none
#                               begins or runs on when "seconds_left" is 0
#   verdicts WORD               how many came out like that

# an even number
# shellcheck disable=SC2017
: "${work:?}" "${verdicts_in:=$work}" "${MINUTES:=0}" "${JOBS:=$((($(nproc) + 3) / 4 * 2))}"

# field NAME FILE
field() { sed -n "s/^$1: //p;/^\$/q" "$2"; }

# verdict NAME WORD TEXT
verdict() {
	printf '%-28s %4d s  %s\n' "$1" "$SECONDS" "$3"
	printf '%s\n%s\n' "$2" "$3" >"$verdicts_in/$1.verdict"
}

# seconds_left: of MINUTES; 0 minutes are no limit
began_at=$(date +%s)
seconds_left() {
	local left=$((began_at + MINUTES * 60 - $(date +%s)))
	[ "$MINUTES" != 0 ] || left=1000000
	echo $((left > 0 ? left : 0))
}

# sources: names of all files of the sources, also where no repository is
sources() {
	git ls-files -co --exclude-standard -z 2>/dev/null ||
		find . \( -path ./.git -o -path ./.gpu -o -path ./build -o -path './tmp_*' -o -path ./shared -o -name bin -o -name '*.egg-info' \) -prune -o \
			-type f ! -name '*.o' ! -name '*.so' ! -name '*.bc' ! -name '*.d' ! -name gpuvec-engine -printf '%P\0'
}

# copy NAME: a copy of the sources
copy() {
	rm -rf "${work:?}/$1"
	mkdir -p "$work/$1"
	sources | xargs -0 cp --parents -pt "$work/$1"
}

# break_it NAME PATCH: a patch behind its head
break_it() {
	sed '1,/^$/d' "$2" | (cd "$work/$1" && GIT_CEILING_DIRECTORIES=$work git apply -)
}

# run_tests NAME SUITES TESTS [SETTING...]
run_tests() {
	local name=$1 suites=$2 tests=$3
	shift 3
	# check.sh ends its servers when it is stopped
	timeout -k 20 "$(seconds_left)" make -s -C "$work/$name" check WITH_CUDA=no PRELOAD=no SUITES="$suites" TESTS="$tests" "$@" >"$work/$name.log" 2>&1
}

# try_all PATCH...: beside each other
try_all() {
	local patch running=0
	for patch; do
		[ "$(seconds_left)" -gt 0 ] || break
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
verdicts() { cat "$verdicts_in"/*.verdict 2>/dev/null | grep -cx "$1"; }
