#!/bin/bash
# Runs all suites against private servers; called by "make check".
#
#   SUITES="house unit regress isolation tap clients stress"   which ones
#   TESTS="a b"                           only these of the regress, isolation, tap and clients suites
#   ENGINE=auto|cpu|cuda                  what the engine runs on
#   QUICK=yes                             only a few of each, that touch every folder: "make check-quick"
#   PRELOAD=both|no|yes                   with shared_preload_libraries or not (regress)
#   VERIFY=on|off                         gpuvec.verify
#   METHOD=auto|bitset|inverted            gpuvec.method
#   CPU_PARTS=0|N                         the engine on the CPU pretends to be N devices
#   DEVICES=0,1                           gpuvec.devices; 0,0 makes two devices of one GPU
#   SANITIZE=yes                          the engine with address and undefined sanitizers
#   COVERAGE=yes                          counts which lines each job runs, for scripts/mutate.sh
#   CUDA_ARCHS="80 90"                    by default those of the GPUs here, else the oldest
#   JOBS=3                                how many jobs run at a time
#   JOB_SECONDS=900                       time limit of each job, at least: longer where the build is slow
#   EMULATION=yes                         kernels are tested by emulation,
#                                         whatever WITH_CUDA says
#   FIRST_FAILURE=yes                     begin with jobs that are short, and end with the first that fails
#   STRESS_SECONDS=40 FORMS_SECONDS=8 SEED=1 LENIENT=no   of the stress suite, see scripts/stress.sh
#   PYTHON=/usr/bin/python3               what runs the tests of the Python package
#   PG_TESTS=/usr/lib/.../pgxs/src/test   pg_regress, isolation tester and Perl modules, if not the server's own
#   OLD_PG_CONFIG=/usr/lib/.../pg_config  another server, with which the test "upgrade" begins (pg_upgrade)
#   KEEP=yes                              keep the scratch folder
#
# A suite is cut up into jobs: each TAP file is one, and each program of the unit tests;
# regression tests are dealt out to servers of their own.  Those that take longest, by
# test/seconds, begin first.  Each job prints its seconds.
#
# Ends with "N passed, N failed"; the exit status is 1 if any failed.  A job that
# ran nothing, crashed, or left an engine behind counts as a failure.  Of one that ran
# out of time only what had failed by then is a failure, for the rest was not seen; it is
# told apart, and the exit status is 1 as well.
set -uo pipefail

# Jobs wait now and then, so there are more than cores.  With a GPU there are fewer: its
# driver stalls engines for seconds when many of them start and end beside each other.
default_jobs() {
	if [ "${ENGINE:-auto}" = cuda ]; then
		echo $((($(nproc) * 5 + 7) / 8))
	else
		echo $((($(nproc) * 3 + 1) / 2))
	fi
}

: "${QUICK:=no}"
if [ "$QUICK" = yes ]; then
	: "${SUITES:=house unit regress isolation tap}" "${PRELOAD:=no}"
	# kernels take longer to compile than all else, and none would run
	[ "${ENGINE:-auto}" = cuda ] || : "${WITH_CUDA:=no}"
	: "${TESTS:=method filter shard_vectors als idset_type idset_input index_set_operators index_filtered_order search_errors
		search_plan_node security_rights embedding_pool als_explain mirror_freshness
		index_feed index_entries_writers engine_programs}"
	TESTS=$(xargs <<<"$TESTS")
fi
: "${SUITES:=house unit regress isolation tap clients stress}" "${ENGINE:=auto}" "${PRELOAD:=both}" "${VERIFY:=on}" "${METHOD:=auto}" "${CPU_PARTS:=0}" "${DEVICES:=}" "${TESTS:=}" "${KEEP:=no}"
: "${JOBS:=$(default_jobs)}" "${JOB_SECONDS:=900}" "${FIRST_FAILURE:=no}" "${EMULATION:=no}" "${STRESS_SECONDS:=40}" "${FORMS_SECONDS:=8}" "${SEED:=1}" "${LENIENT:=no}"
# modules of packages are those of the system's Python
: "${PYTHON:=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}"
export HOOKS=yes LC_ALL=C
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE PGDATA PGPASSWORD PGSSLMODE MAKEFLAGS MFLAGS MAKELEVEL
. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"

failed=0 late=0
testdir=${PG_TESTS:-$(dirname "$("$PG_CONFIG" --pgxs)")/../test}

# what a log shows of crashes and of the sanitizers
trouble='PANIC:|TRAP:|was terminated by signal|ERROR: (Address|Leak)Sanitizer|runtime error:'

# end_children PID: end all processes below this one, but no servers: those have left
end_children() {
	local child
	for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		end_children "$child"
		kill "$child" 2>/dev/null
	done
}

finish() {
	local status=$? file
	trap - EXIT
	end_children $$
	# whatever still runs: servers of this script, and of TAP tests out of time
	find "$work"/data-* "$work/tap" "$work/stress" "$work/forms" -name postmaster.pid 2>/dev/null | while read -r file; do
		as_user "$bindir/pg_ctl" -D "${file%/*}" -m immediate -w -s stop
	done >/dev/null 2>&1
	rm -rf "$sockets" "$work/pid"
	[ "$KEEP" = yes ] || [ "$failed$late" != 00 ] || rm -rf "$work"
	exit $status
}

say() { printf '== %s\n' "$*"; }

# lines_like FILE PATTERN: how many
lines_like() { grep -cE "$2" "$1" || true; }

# ---- jobs ----
#
# A job is a function and its arguments.  It writes $log, and says what came of it by
# calling "count".  It runs in a shell of its own, so nothing else is handed on.

job_names=() job_weights=() job_needs=() job_commands=() begun=() ended=()

# plan SUITE NAME SECONDS NEEDS COMMAND...: NEEDS is a job that has to end before, or -.
# Its results count for SUITE.
plan() {
	job_names+=("$1${2:+/$2}") job_weights+=("$3") job_needs+=("$4")
	shift 4
	job_commands+=("$*")
}

# count PASSED FAILED [SKIPPED]: what a job has found.  If its time was over, what its log
# does not show to have failed has not.
count() {
	local ok=${1:-0} bad=${2:-0} skip=${3:-0}
	if [ -n "$late" ]; then
		bad=$(lines_like "$log" '^ *not ok |^test .* FAILED|^FAILED |^(FAIL|ERROR): ')
		touch "$result.late"
	elif [ $((ok + bad + skip)) = 0 ]; then
		echo "nothing was run" >>"$log"
		bad=1
	fi
	echo "$ok $bad $skip" >"$result"
}

# run_job NUMBER: what a job's shell does
run_job() {
	local name=${job_names[$1]} start=$SECONDS log result late=
	log=$work/${name//\//-}.log result=$work/jobs/$1
	[ "$COVERAGE" != yes ] || gpuvec_coverage "$name"
	${job_commands[$1]}
	[ -s "$result" ] || echo "0 1 0" >"$result"
	echo $((SECONDS - start)) >"$result.seconds"
}

# report NUMBER: print what came of a job, and why it failed
report() {
	local name=${job_names[$1]} ok bad skip
	read -r ok bad skip <"$work/jobs/$1"
	say "$name: $ok passed, $bad failed$([ "$skip" = 0 ] || echo ", $skip skipped"), $(cat "$work/jobs/$1.seconds") s$([ ! -e "$work/jobs/$1.late" ] || echo ", OUT OF TIME")"
	if [ "$bad" != 0 ] || [ -e "$work/jobs/$1.late" ]; then
		tail -n 100 "$work/${name//\//-}.log"
	fi
}

# next_job: the heaviest that has not begun and waits for nothing, in $job
next_job() {
	local i need ready
	for i in $order; do
		[ -z "${begun[i]:-}" ] || continue
		ready=yes
		for need in "${!job_names[@]}"; do
			[ "${job_names[need]}" != "${job_needs[i]}" ] || [ -n "${ended[need]:-}" ] || ready=no
		done
		[ $ready = no ] || { job=$i; return 0; }
	done
	return 1
}

# fails_first NUMBER: has a job failed, and is that all that is asked for?
fails_first() {
	[ "$FIRST_FAILURE" = yes ] && [ "$(cut -d ' ' -f 2 "$work/jobs/$1")" != 0 ]
}

# Run all that is planned, and has not run yet
run_jobs() {
	local order job running=0 i left=$((${#job_names[@]} - ${#ended[@]}))
	local direction=nr
	[ "$FIRST_FAILURE" != yes ] || direction=n
	order=$(for i in "${!job_names[@]}"; do echo "${job_weights[i]} $i"; done | sort -k1,1$direction -k2,2n | sed 's/.* //')
	while [ "$left" -gt 0 ]; do
		while [ $running -lt "$JOBS" ] && next_job; do
			begun[job]=yes running=$((running + 1))
			run_job "$job" &
		done
		wait -n
		for i in "${!begun[@]}"; do
			if [ -z "${ended[i]:-}" ] && [ -s "$work/jobs/$i.seconds" ]; then
				ended[i]=yes running=$((running - 1)) left=$((left - 1))
				report "$i"
				! fails_first "$i" || return 0
			fi
		done
	done
}

# sums [SUITE]: passed, failed, skipped and seconds of all its jobs, or of all
sums() {
	local i
	for i in "${!job_names[@]}"; do
		[ "${job_names[i]%%/*}" != "${1:-${job_names[i]%%/*}}" ] || [ -z "${ended[i]:-}" ] || cat "$work/jobs/$i" "$work/jobs/$i.seconds" | xargs
	done | awk '{ ok += $1; bad += $2; skip += $3; seconds += $4 } END { print ok + 0, bad + 0, skip + 0, seconds + 0 }'
}

# seconds_of KIND/NAME: how long a test takes, roughly
seconds_of() {
	local seconds
	seconds=$(awk -v name="$1" '$1 == name { print $2 }' "$work/src/test/seconds" 2>/dev/null)
	echo "${seconds:-10}"
}

# The time limit of a job: JOB_SECONDS where the build, which is job 0, took no more than
# BUILD_SECONDS.  Where it took longer, machines are slow or busy, and so much longer are
# jobs, up to four times.
BUILD_SECONDS=90
job_limit() {
	local build
	build=$(cat "$work/jobs/0.seconds" 2>/dev/null)
	[ "${build:-0}" -gt $BUILD_SECONDS ] || build=$BUILD_SECONDS
	[ "$build" -lt $((4 * BUILD_SECONDS)) ] || build=$((4 * BUILD_SECONDS))
	echo $((JOB_SECONDS * build / BUILD_SECONDS))
}

# limited COMMAND...: as the user, with the time limit; says so, and sets $late, if it is over
limited() {
	local status limit began=$SECONDS
	limit=$(job_limit)
	as_user timeout -k 10 "$limit" "$@"
	status=$?
	if [ $status -ge 124 ] && [ $((SECONDS - began)) -ge "$limit" ]; then
		late=yes
		echo "ran out of time: $limit s"
	elif [ $status -ge 124 ]; then
		echo "stopped with status $status"
	fi
	return $status
}

# no_engine_left [FOLDER]: waits for the end of all engines, or of those of the servers
# with their data there.  None may outlive its server.
no_engine_left() {
	local round
	for ((round = 0; round < 50; round++)); do
		[ -n "$(gpuvec_engines "$@")" ] || return 0
		sleep 0.2
	done
	echo "engines are left: $(gpuvec_engines "$@" | xargs)"
	return 1
}

# wanted NAMES: those of them that TESTS asks for
wanted() {
	local name
	for name in $1; do
		[ -z "$TESTS" ] || [[ " $TESTS " == *" $name "* ]] || continue
		echo "$name"
	done
}

# tests_in FOLDER SUFFIX EXPECTED: names of tests that have expected results
tests_in() {
	local file
	for file in "$1"/*."$2"; do
		file=${file##*/}
		file=${file%."$2"}
		[ ! -e "$3/$file.out" ] || echo "$file"
	done
}

# deal HANDS KIND TEST...: deal tests out so that all hands take about as long; a line each
deal() {
	local hands=$1 kind=$2 name
	shift 2
	for name; do
		echo "$(seconds_of "$kind/$name") $name"
	done | sort -k1,1nr -k2 | awk -v hands="$hands" '
		{
			least = 1
			for (i = 2; i <= hands; i++)
				if (sum[i] < sum[least])
					least = i
			sum[least] += $1
			names[least] = names[least] " " $2
		}
		END { for (i = 1; i <= hands; i++) if (names[i] != "") print sum[i] names[i] }'
}

# ---- suites: each plans its jobs ----

# job_regress PROGRAM INPUTDIR PRELOAD NAME TEST...: one server, one database, these tests
job_regress() {
	local program=$1 input=$2 preload=$3 name=$4 ok bad status
	shift 4
	# Steps of isolation tests must not depend on when the feeder comes.  Nor
	# must the pages that VACUUM marks depend on a snapshot of autovacuum.
	if ! gpuvec_start "data-$name" "$common_conf
$patient_conf
autovacuum = off
$([[ $name != isolation-* ]] || echo "gpuvec.feeder = off")
$([ "$preload" = no ] || echo "shared_preload_libraries = 'gpuvec'")" >"$log" 2>&1; then
		count 0 $#
		return
	fi
	as_user mkdir -p "$work/$name"
	limited "$program" --inputdir="$input" --outputdir="$work/$name" --bindir="$bindir" \
		--host="$PGHOST" --user=postgres --dbname=regression --dlpath="$stage$pkglibdir" \
		--load-extension=gpuvec "$@" >"$log" 2>&1
	status=$?
	ok=$(lines_like "$log" '^(test .*\.\.\. ok|ok )')
	# what was not seen to pass has failed
	bad=$(($# - ok))
	[ $status = 0 ] || [ $bad != 0 ] || bad=1
	[ ! -s "$work/$name/regression.diffs" ] || head -n 300 "$work/$name/regression.diffs" >>"$log"
	if ! gpuvec_stop "data-$name" >>"$log" 2>&1; then
		echo "the server could not be stopped" >>"$log"
		bad=$((bad + 1))
	fi
	no_engine_left "$work/data-$name" >>"$log" || bad=$((bad + 1))
	if [ -e "$work/data-$name/pg_stat_tmp/gpuvec.sock" ]; then
		echo "the engine's socket is left" >>"$log"
		bad=$((bad + 1))
	fi
	if grep -E "$trouble" "$work/data-$name/log" >>"$log"; then
		bad=$((bad + 1))
	fi
	count "$ok" "$bad"
}

# plan_regress SUITE NAME PROGRAM INPUTDIR PRELOAD HANDS TEST...
plan_regress() {
	local suite=$1 name=$2 program=$3 input=$4 preload=$5 hands=$6 seconds tests number=0
	shift 6
	while read -r seconds tests; do
		# counts are kept by the name of the test
		[ "$COVERAGE" = yes ] && number=$tests || number=$((number + 1))
		plan "$suite" "$name-$number" "$seconds" - job_regress "$program" "$input" "$preload" "$suite-$name-$number" $tests
	done < <(deal "$hands" "$suite" "$@")
}

suite_regress() {
	local preload tests
	tests=$(wanted "$(tests_in "$work/src/sql" sql "$work/src/expected")")
	for preload in no yes; do
		[ "$PRELOAD" = both ] || [ "$PRELOAD" = "$preload" ] || continue
		[ -z "$tests" ] || plan_regress regress "preload-$preload" "$testdir/regress/pg_regress" "$work/src" $preload "$hands" $tests
	done
}

suite_isolation() {
	local tests specs=$work/src/test/isolation/specs expected=$work/src/test/isolation/expected
	local spec
	# the same interleavings, but changes are found out in another way
	for spec in search_interleavings all_visible; do
		sed 's/gpuvec.freshness = sweep/gpuvec.freshness = wal/' "$specs/$spec.spec" >"$specs/${spec}_wal.spec"
		cp "$expected/$spec.out" "$expected/${spec}_wal.out"
	done
	tests=$(wanted "$(tests_in "$specs" spec "$expected")")
	[ -z "$tests" ] || plan_regress isolation specs "$testdir/isolation/pg_isolation_regress" "$work/src/test/isolation" no "$hands" $tests
}

# job_tap NAME: one file of test/tap
job_tap() {
	local ok bad skip status
	# a test finds its server programs and settings in its environment
	limited env -C "$work/src/test/tap" $(initdb_settings) PATH="$work/src/test/initdb:$bindir:$PATH" PG_REGRESS="$testdir/regress/pg_regress" \
		PERL5LIB="$testdir/perl:$work/src/test/perl" TESTDATADIR="$work/tap" TESTLOGDIR="$work/tap" \
		TESTDIR="$work/tap" top_builddir="$work/tap" PGPORT=65432 GPUVEC_CONF="$work/tap.conf" \
		OLD_PG_CONFIG="${OLD_PG_CONFIG:-}" OLD_GPUVEC_CONF="$work/old/tap.conf" \
		GPUVEC_ENGINE_PROGRAM="$stage$bindir/gpuvec-engine" \
		prove -v --failures --timer "$1.pl" >"$log" 2>&1
	status=$?
	skip=$(lines_like "$log" '^ *ok [0-9]+ .*# (skip|SKIP)')
	ok=$(($(lines_like "$log" '^ *ok [0-9]') - skip))
	bad=$(lines_like "$log" '^ *not ok [0-9]')
	# a test that died, stopped early or skipped everything
	bad=$((bad + $(lines_like "$log" '^Bailout called|Parse errors:|No plan found|^[^ ]*\.pl .*skipped: ')))
	[ $status = 0 ] || [ "$bad" != 0 ] || bad=1
	no_engine_left "$work/tap/t_$1_" >>"$log" || bad=$((bad + 1))
	if grep -hE 'PANIC:|TRAP:|ERROR: AddressSanitizer: [a-z]+-|runtime error:' "$work/tap/$1"_*.log >>"$log" 2>/dev/null; then
		bad=$((bad + 1))
	fi
	# first what failed
	if [ "$bad" != 0 ]; then
		{ cat "$log"; echo; echo "These failed:"; grep -E -B 2 -A 12 '^ *not ok [0-9]|^#   Failed|Parse errors' "$log" | cut -c 1-300 | head -n 80; } >"$log.new"
		mv "$log.new" "$log"
	fi
	count "$ok" "$bad" "$skip"
}

# job_old: the extension for the server of OLD_PG_CONFIG, and settings by which that finds it
job_old() {
	if BUILT_SOURCES='' OLD="$work/old" CONF="$common_conf" PG_CONFIG="$OLD_PG_CONFIG" bash -c '
		. "$0/scripts/pgenv.sh"
		work=$OLD
		mkdir -p "$work"
		gpuvec_can_stage && gpuvec_build && gpuvec_stage || exit
		{ gpuvec_settings; printf "%s\n" "$CONF"; } >"$work/tap.conf"
		chmod a+r "$work/tap.conf"' "$top" >"$log" 2>&1; then
		count 1 0
	else
		count 0 1
	fi
}

suite_tap() {
	local name
	[ -z "${OLD_PG_CONFIG:-}" ] || plan tap old 10000 - job_old
	{ gpuvec_settings; printf '%s\n' "$common_conf" "$patient_conf"; } >"$work/tap.conf"
	chmod a+r "$work/tap.conf"
	as_user mkdir -p "$work/tap"
	for name in $(wanted "$(cd "$work/src/test/tap" && for file in *.pl; do echo "${file%.pl}"; done)"); do
		plan tap "$name" "$(seconds_of "tap/$name")" "$([ "$name:${OLD_PG_CONFIG:+old}" = upgrade:old ] && echo tap/old || echo -)" job_tap "$name"
	done
}

# client_number WORD: failures, errors or skipped, of what Python's unittest has written
client_number() {
	local number
	number=$(grep -E '^(OK|FAILED)' "$log" | grep -oE "\b$1=[0-9]+" | cut -d = -f 2)
	echo "${number:-0}"
}

# client_count STATUS MORE: what came of a run of unittest, and more failures
client_count() {
	local ran skipped bad
	ran=$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
	skipped=$(client_number skipped)
	bad=$(($(client_number failures) + $(client_number errors)))
	local ok=$((${ran:-0} - skipped - bad))
	bad=$((bad + $2))
	[ "$1" = 0 ] || [ $bad != 0 ] || bad=1
	count $((ok > 0 ? ok : 0)) $bad "$skipped"
}

# client_missing NAME: say which modules were missing
client_missing() {
	local modules
	modules=$(sed -nE "s/.*skipped [\"']these modules are missing: (.*)[\"']$/\1/p" "$log" | tr ' ' '\n' | sort -u | paste -sd ' ')
	[ -z "$modules" ] || say "clients/$1: Python has no $modules, so tests of it are skipped"
}

# job_client NAME: one file of the Python package's tests, against a server of its own
job_client() {
	local status more=0
	if ! gpuvec_start "data-client-$1" "$common_conf" >"$log" 2>&1; then
		count 0 1
		return
	fi
	limited env -C "$work/src/clients/python" PGHOST="$PGHOST" PGUSER=postgres PGDATABASE=postgres \
		PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -W ignore -m unittest -v "tests.$1" >>"$log" 2>&1
	status=$?
	gpuvec_stop "data-client-$1" >>"$log" 2>&1 || more=$((more + 1))
	no_engine_left "$work/data-client-$1" >>"$log" || more=$((more + 1))
	client_count $status $more
	client_missing "$1"
}

suite_clients() {
	local name
	if ! command -v "$PYTHON" >/dev/null; then
		say "clients: there is no $PYTHON, so nothing of the Python package is tested"
		return
	fi
	for name in $(wanted "$(cd "$work/src/clients/python/tests" && for file in test_*.py; do echo "${file%.py}"; done)"); do
		plan clients "$name" "$(seconds_of "clients/$name")" - job_client "$name"
	done
}

# unit_make MAKEFILE GOAL [ARGUMENT...]: as the user, with what "build" has compiled
unit_make() {
	local mk=$1 with_cuda=$WITH_CUDA
	shift
	[[ $EMULATION != yes || " search neighbors embedding als " != *" $mk "* ]] || with_cuda=auto
	limited "$MAKE" -C "$work/src" -f "test/unit/$mk.mk" PG_CONFIG="$PG_CONFIG" WITH_CUDA="$with_cuda" CUDA_ARCHS="$CUDA_ARCHS" \
		SANITIZE="$SANITIZE" BUILT=yes "${unit_settings[@]}" "$@"
}

# job_programs MAKEFILE...: compile all programs of the unit tests
job_programs() {
	local mk bad=0
	for mk; do
		unit_make "$mk" -s -j"$(nproc)" programs || { bad=1; break; }
	done >"$log" 2>&1
	[ "$(lines_like "$log" 'warning:')" = 0 ] || bad=1
	count $((1 - bad)) $bad
}

# job_unit MAKEFILE GOAL [ARGUMENT...]: programs that end with "N passed, N failed"
job_unit() {
	local status bad totals
	unit_make "$@" >"$log" 2>&1
	status=$?
	totals=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$log" | awk '{ok += $1; bad += $2} END {print ok + 0, bad + 0}')
	bad=${totals#* }
	[ $status = 0 ] || [ "$bad" != 0 ] || bad=1
	count "${totals% *}" "$bad" "$(lines_like "$log" '\(no CUDA toolkit\)$')"
}

# Engine tests: "make tests" of each makefile names them, and each is a goal "check-NAME"
suite_unit() {
	local mk mks='' name
	for mk in unit feed server search neighbors embedding als cuda; do
		[ $mk != cuda ] || [ "$ENGINE" = cuda ] || continue
		for name in $(wanted "$(unit_make $mk -s tests)"); do
			[[ " $mks " == *" $mk "* ]] || mks+=" $mk"
			plan unit "$name" "$(seconds_of "unit/$name")" unit/programs job_unit $mk "check-$name"
		done
	done
	[ -z "$mks" ] || plan unit programs 10000 - job_programs $mks
}

# job_stress NAME SECONDS [OPTION...]: a short run of the randomised tester; the totals are
# numbers of comparisons
job_stress() {
	local total name=$1 seconds=$2
	shift 2
	[ "$LENIENT" = no ] || set -- "$@" --lenient
	gpuvec_stress "$name" "$seconds" "$SEED" --engine "$ENGINE" "$@" >"$log" 2>&1
	total=$(tail -n 1 "$log" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
	count ${total:-0 1}
}

suite_stress() {
	[ -z "$TESTS" ] || return 0
	plan stress "seed-$SEED" $((STRESS_SECONDS + 20)) - job_stress stress "$STRESS_SECONDS"
	plan stress "forms-$SEED" $((FORMS_SECONDS + 20)) "stress/seed-$SEED" job_stress forms "$FORMS_SECONDS" --forms --no-standby --clients 8
}

# job_house SCRIPT...: rules that the sources keep, as far as their checkers are here
job_house() {
	echo "== $*" >"$log"
	if (cd "$top" && "$@") >>"$log" 2>&1; then count 1 0; else count 0 1; fi
}

suite_house() {
	[ -z "$TESTS" ] || [ "$QUICK" = yes ] || return 0
	plan house format 5 - job_house scripts/format.sh --check
	plan house floors 5 - job_house scripts/floors.sh
	plan house release 5 - job_house scripts/release.sh
	plan house measures 5 - job_house scripts/house.sh
	plan house clocks 5 - job_house scripts/clocks.sh
	plan house documents 5 - job_house scripts/docs.sh
	plan house pages 5 - job_house scripts/documents.pl check
	plan house charts 5 - job_house scripts/charts.pl --check
}

# well_built: what was built calls down only, and exports no name too many
well_built() {
	local bad=0
	if [ "$COVERAGE" != yes ]; then
		bash "$work/src/scripts/exported.sh" "$work/src/gpuvec.so" "$bindir/postgres" || bad=1
	fi
	bash "$work/src/scripts/calls.sh" || bad=1
	if ! gpuvec_make -n -B PG_CFLAGS=-O2 src/link/stream.o | grep -q -- '-fvisibility=hidden'; then
		echo "PG_CFLAGS of the command line let all symbols be exported"
		bad=1
	fi
	[ $bad = 0 ] && touch "$work/src/.well-built"
}

# newly_built: was anything compiled, or a script changed, since then?
newly_built() {
	[ ! -e "$work/src/.well-built" ] ||
		[ -n "$(cd "$work/src" && find ./*.mk Makefile gpuvec.so src build/src build/kernels scripts \
			-newer .well-built 2>/dev/null)" ]
}

# The build itself: it works, without warnings, and well
job_build() {
	local bad
	if ! { gpuvec_can_stage && gpuvec_build && gpuvec_stage; } >"$log" 2>&1; then
		count 0 1
		return
	fi
	bad=$(lines_like "$log" 'warning:')
	! newly_built || well_built >>"$log" 2>&1 || bad=1
	[ "$bad" = 0 ] || bad=1
	# warnings show only when a file is compiled
	[ "$bad" = 0 ] || forget_build
	count $((1 - bad)) "$bad"
}

for suite in $SUITES; do
	case $suite in
		house | unit | regress | isolation | tap | clients | stress) ;;
		*) echo "unknown suite $suite; known are: house unit regress isolation tap clients stress" >&2; exit 2 ;;
	esac
done
gpuvec_workdir tmp_check
stage=$work/stage
mkdir -p "$work/jobs"
trap finish EXIT
trap 'exit 130' INT TERM
# how many servers share the regression tests
hands=$((JOBS >= 12 ? 3 : 1))
[ "$FIRST_FAILURE" != yes ] || hands=$(($(wc -w <<<"$TESTS") / 8 + 1))
unit_settings=()
if [ "$COVERAGE" = yes ]; then
	hands=1000
	unit_settings=(SANITIZER=--coverage ENGINE_EXTRA_CFLAGS=--coverage)
fi
common_conf="gpuvec.engine = '$ENGINE'
gpuvec.verify = $VERIFY
gpuvec.method = $METHOD
gpuvec.cpu_parts = $CPU_PARTS
${DEVICES:+gpuvec.devices = '$DEVICES'}"
# sessions that a test stops are not overtaken, however slow the machine is
patient_conf="gpuvec.load_patience = '1h'"
# many segments, so that each device has some
if [ "$CPU_PARTS" != 0 ] || [ -n "$DEVICES" ]; then
	export GPUVEC_ENGINE_FAULT=${GPUVEC_ENGINE_FAULT:-full-segment:96}
fi
began=$SECONDS
# all but the house need the build, which is the first job
if [ "$SUITES" != house ]; then
	say "building in $work"
	plan build "" 10000 - job_build
fi
case " $SUITES " in *" house "*) suite_house ;; esac
run_jobs
if [ "$(sums build | cut -d ' ' -f 1)" = 1 ]; then
	for suite in $SUITES; do
		[ "$suite" = house ] || "suite_$suite"
	done
	run_jobs
fi

echo "suite         passed failed skipped seconds"
for suite in $([ "$SUITES" = house ] || echo build) $SUITES; do
	read -r passed failed skipped seconds < <(sums "$suite")
	printf '%-12s %7d %6d %7d %7d\n' "$suite" "$passed" "$failed" "$skipped" "$seconds"
done
read -r passed failed skipped seconds < <(sums)
echo "$seconds s of work in $((SECONDS - began)) s"
late=$(find "$work/jobs" -name '*.late' | wc -l)
# servers of TAP tests out of time, and of jobs that were broken off, still run
if [ "$late" = 0 ] && ! { [ "$FIRST_FAILURE" = yes ] && [ "$failed" != 0 ]; } && ! no_engine_left; then
	failed=$((failed + 1))
fi
[ "$failed$late" = 00 ] || echo "logs are in $work"
[ "$late" = 0 ] || echo "$late jobs ran out of time"
echo "$passed passed, $failed failed"
[ "$failed$late" = 00 ]
