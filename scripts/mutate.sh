#!/bin/bash
# Draws random slips from the sources, and says which of them no test notices.
#
#   scripts/mutate.sh [FILE...] [N]
#                   N slips, 20 by default, in these files and folders, src by
#                   default.  Those of kernels are tried by the emulation
#   scripts/mutate.sh --map [SETTING...]   first: counts which lines each job of "make check" runs.  Settings
#                                          are its own: SUITES, TESTS.  Jobs are added to those that are known.
#   scripts/mutate.sh --draw N FOLDER [FILE...]
#                   only draws: FOLDER/001.patch and so on
#   scripts/mutate.sh --try FOLDER
#                   tries those of a folder that have no verdict there yet
#
#   MUTATE_MAP=build/mutate/map.json.gz
#                   the map.  It may come from another machine and compiler
#   MINUTES=0       end after this number of minutes, 0: when all is done;
#                   --try goes on from there
#   SEED=n          the same slips again, of the same sources
#   BUDGET=300      seconds of jobs (by test/seconds) that a slip is worth
#   JOBS=4          how many are tried at a time
#   JOB_SECONDS=300 time limit of each job: a slip may make a loop endless
#
# A slip is a comparison, a value that is off by one, swapped arguments, a statement or a
# reset that is missing, a negated condition, a missing operand, another operator,
# constant or field (scripts/mutate.py).  Those that make no difference to the compiler,
# or that it warns of, do not count.  The jobs that run the line try it, those
# that are short first, until one fails.  The map of lines and jobs may be
# older than the sources, for lines are counted from the beginning of their
# function.
#
# A job that runs out of time notices nothing by that: the machine may be
# busy.  Such a slip counts as not noticed, until its verdict is removed and it
# is tried with more JOB_SECONDS; or somebody sees that it makes a loop
# endless.
#
# A slip that no test notices is answered by a test, or stands in test/mutations/harmless
# with a sentence why it does no harm.  Patches and logs of those that were not noticed
# stay in build/mutate.  Ends with "N noticed, N not noticed, N harmless"; the exit status
# is 1 if some were not.  Drawing needs python3-clang, and the map gcov; --try
# needs neither.
set -uo pipefail

cd "$(dirname "$0")/.." || exit
work=$PWD/build/mutate
. scripts/mutants.sh
: "${SEED:=$((RANDOM * 32768 + RANDOM))}" "${BUDGET:=300}" "${JOB_SECONDS:=300}" "${PYTHON:=/usr/bin/python3}"
: "${MUTATE_MAP:=$work/map.json.gz}"
export BUDGET JOBS MUTATE_MAP MUTATE_TREE=$work/built
export MUTATE_MAKE="with_llvm=no WITH_CUDA=no GPUVEC_CPPFLAGS=-DGPUVEC_TEST_HOOKS ENGINE_EXTRA_CFLAGS=-DGPUVEC_TEST_HOOKS PG_CONFIG=${PG_CONFIG:-pg_config}"

# built NAME: its folder, if it has been built
built() { [ ! -d "$work/$1" ] || echo "$work/$1"; }

# keep_built NAME FOLDER: what was built in a copy
keep_built() {
	rm -rf "${work:?}/$2"
	mv "$work/$1/tmp_check/src" "$work/$2"
}

# make_map [SETTING...]: failures do not matter, for jobs that fail are not in the map
make_map() {
	copy counting
	run_tests counting "unit regress isolation tap" "" COVERAGE=yes KEEP=yes JOBS="$JOBS" BUILT_SOURCES="$(built counted)" "$@"
	"$PYTHON" scripts/mutate.py map "$work/counting.log" "$work/counting/tmp_check/coverage" \
		"$work/counting/tmp_check/src" "$MUTATE_MAP" && keep_built counting counted && rm -rf "$work/counting"
}

# of_kernels MAKEFILE: those of kernels compile their emulation
of_kernels() { case $1 in search | neighbors | embedding | als) echo auto ;; *) echo no ;; esac; }

# build: the sources as they are, with all programs of the unit tests
build() {
	local mk
	copy unbroken
	if ! run_tests unbroken unit measure KEEP=yes BUILT_SOURCES="$(built built)"; then
		echo "the sources cannot be built, or unit/measure fails: $work/unbroken.log" >&2
		exit 1
	fi
	keep_built unbroken built
	for mk in unit feed server search neighbors embedding als; do
		# a list
		# shellcheck disable=SC2086
		make -s -j"$(nproc)" -C "$work/built" -f test/unit/$mk.mk $MUTATE_MAKE BUILT=yes WITH_CUDA="$(of_kernels $mk)" programs
	done >>"$work/unbroken.log" 2>&1
}

# harmless PATCH: is it known to be?
harmless() { grep -qF "$(field What "$1"): " test/mutations/harmless; }

# noticed_by LOG: the job that failed
noticed_by() { sed -nE 's/^== ([^:]*): [0-9]+ passed, [1-9].*/\1/p' "$1" | head -n 1; }

# try NAME PATCH: try a slip, in a shell of its own
try() {
	local name=$1 patch=$2 log=$work/$1.log status
	SECONDS=0
	if harmless "$patch"; then
		verdict "$name" harmless "harmless: $(field What "$patch")"
		return
	elif [ -z "$(field Tests "$patch")" ]; then
		verdict "$name" unreached "NO TEST COMES HERE: $(field Line "$patch"), $(field What "$patch")"
		return
	fi
	copy "$name"
	if ! break_it "$name" "$patch" >"$log" 2>&1; then
		verdict "$name" failed "does not fit the sources: $log"
	else
		run_tests "$name" "$(field Suite "$patch")" "$(field Tests "$patch")" EMULATION=yes JOBS=2 FIRST_FAILURE=yes JOB_SECONDS="$JOB_SECONDS" BUILT_SOURCES="$work/built"
		status=$?
		if [ "$(seconds_left)" = 0 ]; then
			echo "$name: time is over"
		elif [ $status = 0 ]; then
			verdict "$name" survived "NOT NOTICED by $(field Jobs "$patch") jobs: $(field Line "$patch"), $(field What "$patch")"
		elif [ -z "$(noticed_by "$log")" ]; then
			verdict "$name" late "RAN OUT OF TIME, and nothing failed: $(field Line "$patch"), $(field What "$patch")"
		else
			verdict "$name" noticed "noticed by $(noticed_by "$log"): $(field Line "$patch"), $(field What "$patch")"
		fi
	fi
	rm -rf "${work:?}/$name"
}

# word_of PATCH: its verdict, or nothing
word_of() { head -qn 1 "$verdicts_in/$(basename "$1" .patch).verdict" 2>/dev/null; }

# by_area PATCH...: how many slips of each folder were noticed
by_area() {
	local patch
	for patch; do
		echo "$(field What "$patch" | sed -E 's,/[^/]*$,,;s,/[^/ ]* .*,,') $(word_of "$patch")"
	done | awk '{ n[$1]++; noticed[$1] += $2 == "noticed"; harmless[$1] += $2 == "harmless"; open[$1] += $2 == "" }
		END { for (area in n) printf "%-24s %3d of %3d noticed, %d harmless, %d not tried\n", area, noticed[area], n[area], harmless[area], open[area] }' | sort
}

# show PATCH...: those that nobody noticed
show() {
	local patch
	for patch; do
		case $(word_of "$patch") in
			noticed | harmless | "") rm -f "$work/$(basename "$patch" .patch).log" ;;
			*) printf '\n%s\n' "$patch"; cat "$patch" ;;
		esac
	done
}

# draw N FOLDER [FILE...]
draw() {
	local number=$1 folder=$2
	shift 2
	# of kernels no map knows anything
	if [ ! -e "$MUTATE_MAP" ] && printf '%s\n' "${@:-src}" | grep -qv '^kernels/'; then
		echo "which jobs run which lines is not known: scripts/mutate.sh --map" >&2
		exit 1
	fi
	mkdir -p "$folder"
	rm -f "$folder"/*.patch "$folder"/*.verdict
	echo "seed $SEED"
	"$PYTHON" scripts/mutate.py draw "$number" "$SEED" "$folder" "$@" || exit
	echo "drawn in $SECONDS s"
}

# try_folder FOLDER: those that have no verdict; then what came of all
try_folder() {
	local patch todo=() patches=("$1"/*.patch) noticed harmless unnoticed
	verdicts_in=$1
	for patch in "${patches[@]}"; do
		[ -n "$(word_of "$patch")" ] || todo+=("$patch")
	done
	try_all "${todo[@]}"
	show "${patches[@]}"
	by_area "${patches[@]}"
	noticed=$(verdicts noticed) harmless=$(verdicts harmless)
	unnoticed=$((${#patches[@]} - noticed - harmless))
	echo "$SECONDS s"
	echo "$noticed noticed, $unnoticed not noticed, $harmless harmless"
	[ "$unnoticed" = 0 ]
}

mkdir -p "$work"
[ "$(id -u)" != 0 ] || chmod a+rx "$work"
case ${1:-} in
	--map)
		shift
		make_map "$@"
		;;
	--draw)
		shift
		build
		draw "$@"
		;;
	--try)
		build
		echo "built in $SECONDS s"
		try_folder "$2"
		;;
	*)
		number=20
		[[ ! ${!#} =~ ^[0-9]+$ ]] || { number=${!#}; set -- "${@:1:$#-1}"; }
		build
		draw "$number" "$work/drawn" "$@"
		try_folder "$work/drawn"
		;;
esac
