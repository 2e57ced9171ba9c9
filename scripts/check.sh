#!/bin/bash
# Runs all suites against private servers; called by "make check".
#
#   SUITES="unit regress isolation tap stress"   which ones
#   TESTS="a b"                           only these of the regress, isolation and tap suites
#   ENGINE=auto|cpu|cuda                  what the engine runs on
#   PRELOAD=both|no|yes                   with shared_preload_libraries or not (regress)
#   VERIFY=on|off                         gpuvec.verify
#   METHOD=auto|bitset|inverted            gpuvec.method
#   SANITIZE=yes                          the engine with address and undefined sanitizers
#   SUITE_SECONDS=900                     time limit of each suite
#   STRESS_SECONDS=40 SEED=1 LENIENT=no   of the stress suite, see scripts/stress.sh
#   KEEP=yes                              keep the scratch folder
#
# Ends with "N passed, N failed"; the exit status is 1 if any failed.  A suite that
# ran nothing, crashed, ran out of time, or left an engine behind counts as a failure.
set -uo pipefail

: "${SUITES:=unit regress isolation tap stress}" "${ENGINE:=auto}" "${PRELOAD:=both}" "${VERIFY:=on}" "${METHOD:=auto}" "${TESTS:=}" "${KEEP:=no}"
: "${SUITE_SECONDS:=900}" "${STRESS_SECONDS:=40}" "${SEED:=1}" "${LENIENT:=no}"
export HOOKS=yes LC_ALL=C
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE PGDATA PGPASSWORD PGSSLMODE MAKEFLAGS MFLAGS MAKELEVEL
. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"

passed=0 failed=0 skipped=0 failed_suites=
testdir=$(dirname "$("$PG_CONFIG" --pgxs)")/../test

# what a log shows of crashes and of the sanitizers
trouble='PANIC:|TRAP:|was terminated by signal|ERROR: (Address|Leak)Sanitizer|runtime error:'

finish() {
	local status=$? file
	trap - EXIT
	# whatever still runs: servers of this script, and of TAP tests out of time
	find "$work"/data-* "$work/tap" "$work/stress" -name postmaster.pid 2>/dev/null | while read -r file; do
		as_user "$bindir/pg_ctl" -D "${file%/*}" -m immediate -w -s stop
	done >/dev/null 2>&1
	rm -rf "$sockets" "$work/pid"
	[ "$KEEP" = yes ] || [ "$failed" != 0 ] || rm -rf "$work"
	exit $status
}

say() { printf '== %s\n' "$*"; }

# lines_like FILE PATTERN: how many
lines_like() { grep -cE "$2" "$1" || true; }

# count NAME PASSED FAILED SKIPPED LOG: add up a suite and show why it failed
count() {
	local name=$1 ok=${2:-0} bad=${3:-0} skip=${4:-0} log=$5
	if [ $((ok + bad + skip)) = 0 ]; then
		echo "nothing was run" >>"$log"
		bad=1
	fi
	say "$name: $ok passed, $bad failed$([ "$skip" = 0 ] || echo ", $skip skipped")"
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
	if [ "$bad" != 0 ]; then
		failed_suites+=" $name"
		tail -n 100 "$log"
	fi
}

# limited COMMAND...: as the user, with a time limit; says so if it is over
limited() {
	as_user timeout -k 10 "$SUITE_SECONDS" "$@"
	local status=$?
	[ $status -lt 124 ] || echo "stopped with status $status (124: out of time)"
	return $status
}

# Waits for the end of all engines: none may outlive its server
no_engine_left() {
	local round
	for ((round = 0; round < 50; round++)); do
		[ -n "$(gpuvec_engines)" ] || return 0
		sleep 0.2
	done
	echo "engines are left:" $(gpuvec_engines)
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

# tests_in FOLDER SUFFIX EXPECTED: names of tests that have expected results; those
# that test/schedule names come in its order, the others after them
tests_in() {
	local file schedule
	schedule=$(sed 's/#.*//' "$work/src/test/schedule" 2>/dev/null)
	{
		for file in $schedule; do
			[ -e "$1/$file.$2" ] && echo "$file"
		done
		for file in "$1"/*."$2"; do
			file=${file##*/}
			file=${file%."$2"}
			[[ " $(echo $schedule) " == *" $file "* ]] || echo "$file"
		done
	} | while read -r file; do
		[ -e "$3/$file.out" ] && echo "$file"
	done
}

# run_regress NAME PROGRAM INPUTDIR CONF TEST...: one server, one database, all tests
run_regress() {
	local name=$1 program=$2 input=$3 conf=$4 log=$work/$1.log ok bad status
	shift 4
	say "$name: $*"
	if ! gpuvec_start "data-$name" "$conf" >"$log" 2>&1; then
		count "$name" 0 $# 0 "$log"
		return
	fi
	as_user mkdir -p "$work/$name"
	limited "$program" --inputdir="$input" --outputdir="$work/$name" --bindir="$bindir" \
		--host="$sockets" --user=postgres --dbname="regress_$name" --dlpath="$stage$pkglibdir" \
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
	no_engine_left >>"$log" || bad=$((bad + 1))
	if [ -e "$work/data-$name/pg_stat_tmp/gpuvec.sock" ]; then
		echo "the engine's socket is left" >>"$log"
		bad=$((bad + 1))
	fi
	if grep -E "$trouble" "$work/data-$name/log" >>"$log"; then
		bad=$((bad + 1))
	fi
	count "$name" "$ok" "$bad" 0 "$log"
}

suite_regress() {
	local preload tests
	tests=$(wanted "$(tests_in "$work/src/sql" sql "$work/src/expected")")
	[ -n "$tests" ] || [ -z "$TESTS" ] || return
	for preload in no yes; do
		[ "$PRELOAD" = both ] || [ "$PRELOAD" = "$preload" ] || continue
		run_regress "regress_preload_$preload" "$testdir/regress/pg_regress" "$work/src" \
			"$common_conf
$([ $preload = no ] || echo "shared_preload_libraries = 'gpuvec'")" $tests
	done
}

suite_isolation() {
	local tests specs=$work/src/test/isolation/specs expected=$work/src/test/isolation/expected
	# the same interleavings, but changes are found out in another way
	sed 's/gpuvec.freshness = sweep/gpuvec.freshness = wal/' "$specs/interleavings.spec" >"$specs/interleavings_wal.spec"
	cp "$expected/interleavings.out" "$expected/interleavings_wal.out"
	tests=$(wanted "$(tests_in "$specs" spec "$expected")")
	[ -n "$tests" ] || [ -z "$TESTS" ] || return
	run_regress isolation "$testdir/isolation/pg_isolation_regress" "$work/src/test/isolation" "$common_conf" $tests
}

suite_tap() {
	local log=$work/tap.log names ok bad skip status
	names=$(wanted "$(cd "$work/src/test/t" && for name in *.pl; do echo "${name%.pl}"; done)")
	[ -n "$names" ] || [ -z "$TESTS" ] || return
	say "tap:" $names
	{ gpuvec_settings; printf '%s\n' "$common_conf"; } >"$work/tap.conf"
	chmod a+r "$work/tap.conf"
	as_user mkdir -p "$work/tap"
	# a test finds its server programs and settings in its environment
	limited env -C "$work/src/test/t" PATH="$bindir:$PATH" PG_REGRESS="$testdir/regress/pg_regress" \
		PERL5LIB="$testdir/perl:$work/src/test/perl" TESTDATADIR="$work/tap" TESTLOGDIR="$work/tap" \
		TESTDIR="$work/tap" top_builddir="$work/tap" PGPORT=65432 GPUVEC_CONF="$work/tap.conf" \
		GPUVEC_ENGINE_PROGRAM="$stage$bindir/gpuvec-engine" \
		prove -v --failures --timer $(for name in $names; do echo "$name.pl"; done) >"$log" 2>&1
	status=$?
	skip=$(lines_like "$log" '^ *ok [0-9]+ .*# (skip|SKIP)')
	ok=$(($(lines_like "$log" '^ *ok [0-9]') - skip))
	bad=$(lines_like "$log" '^ *not ok [0-9]')
	# a test that died, stopped early or skipped everything
	bad=$((bad + $(lines_like "$log" '^Bailout called|Parse errors:|No plan found|^[^ ]*\.pl .*skipped: ')))
	[ $status = 0 ] || [ "$bad" != 0 ] || bad=1
	no_engine_left >>"$log" || bad=$((bad + 1))
	if grep -rhE 'PANIC:|TRAP:|ERROR: AddressSanitizer: [a-z]+-|runtime error:' "$work/tap" --include='*.log' >>"$log"; then
		bad=$((bad + 1))
	fi
	# first what failed
	if [ "$bad" != 0 ]; then
		{ cat "$log"; echo; echo "These failed:"; grep -E -B 2 -A 12 '^ *not ok [0-9]|^#   Failed|Parse errors' "$log" | cut -c 1-300 | head -n 80; } >"$log.new"
		mv "$log.new" "$log"
	fi
	count tap "$ok" "$bad" "$skip" "$log"
}

# Engine tests: each makefile builds and runs, and each program ends with
# "N passed, N failed"
suite_unit() {
	local mk name log status goal bad totals
	for mk in "$work"/src/test/unit/*.mk; do
		name=$(basename "$mk" .mk) goal=check
		[ "$name" != cuda ] || [ "$ENGINE" = cuda ] || continue
		[ "$name-$SANITIZE" != server-yes ] || goal=check-asan
		log=$work/unit-$name.log
		say "unit-$name"
		limited "$MAKE" -C "$work/src" -f "test/unit/$name.mk" PG_CONFIG="$PG_CONFIG" WITH_CUDA="$WITH_CUDA" \
			SANITIZE="$SANITIZE" $goal >"$log" 2>&1
		status=$?
		totals=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$log" | awk '{ok += $1; bad += $2} END {print ok + 0, bad + 0}')
		bad=${totals#* }
		[ $status = 0 ] || [ "$bad" != 0 ] || bad=1
		count "unit-$name" "${totals% *}" "$bad" "$(grep -c '(no CUDA toolkit)$' "$log")" "$log"
	done
}

# A short run of the randomised tester; the totals are numbers of comparisons
suite_stress() {
	local log=$work/stress.log total
	[ -z "$TESTS" ] || return
	say "stress: seed $SEED"
	gpuvec_stress "$STRESS_SECONDS" "$SEED" --engine "$ENGINE" $([ "$LENIENT" = no ] || echo --lenient) >"$log" 2>&1
	total=$(tail -n 1 "$log" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
	total=${total:-0 1}
	count stress "${total% *}" "${total#* }" 0 "$log"
}

# The build itself: it works, without warnings, and exports no name too many
build() {
	local log=$work/build.log bad
	say "building in $work"
	if ! { gpuvec_can_stage && gpuvec_build && gpuvec_stage; } >"$log" 2>&1; then
		count build 0 1 0 "$log"
		return 1
	fi
	bad=$(lines_like "$log" 'warning:')
	bash "$work/src/scripts/exported.sh" "$work/src/gpuvec.so" >>"$log" 2>&1 || bad=$((bad + 1))
	count build "$([ "$bad" != 0 ] || echo 1)" "$([ "$bad" = 0 ] || echo 1)" 0 "$log"
}

for suite in $SUITES; do
	case $suite in
		unit | regress | isolation | tap | stress) ;;
		*) echo "unknown suite $suite; known are: unit regress isolation tap stress" >&2; exit 2 ;;
	esac
done
gpuvec_workdir tmp_check
trap finish EXIT
trap 'exit 130' INT TERM
common_conf="gpuvec.engine = '$ENGINE'
gpuvec.verify = $VERIFY
gpuvec.method = $METHOD"
if build; then
	for suite in $SUITES; do
		"suite_$suite"
	done
fi

[ "$skipped" = 0 ] || echo "skipped: $skipped"
[ -z "$failed_suites" ] || echo "failed:$failed_suites (logs are in $work)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
