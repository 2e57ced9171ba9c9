#!/bin/bash
# Runs all suites against private servers; called by "make check".
#
#   SUITES="unit regress isolation tap"   which ones
#   ENGINE=auto|cpu|cuda                  what the engine runs on
#   PRELOAD=both|no|yes                   with shared_preload_libraries or not (regress)
#   VERIFY=on|off                         gpuvec.verify
#   SANITIZE=yes                          the engine with address and undefined sanitizers
#   TESTS="a b"                           only these of the regress, isolation and tap suites
#   KEEP=yes                              keep the scratch folder
#
# Ends with "N passed, N failed"; the exit status is 1 if any failed.
set -uo pipefail

: "${SUITES:=unit regress isolation tap}" "${ENGINE:=auto}" "${PRELOAD:=both}" "${VERIFY:=on}" "${TESTS:=}" "${KEEP:=no}"
export HOOKS=yes LC_ALL=C
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE MAKEFLAGS MAKELEVEL
. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"

passed=0 failed=0
testdir=$(dirname "$("$PG_CONFIG" --pgxs)")/../test

finish() {
	local status=$?
	trap - EXIT
	for data in "$work"/data-*; do
		[ -d "$data" ] && gpuvec_stop "${data##*/}" immediate
	done 2>/dev/null
	rm -rf "$sockets"
	[ "$KEEP" = yes ] || [ "$failed" != 0 ] || rm -rf "$work"
	exit $status
}

say() { printf '== %s\n' "$*"; }

# count NAME PASSED FAILED OUTPUT: add up a suite; one that ran nothing has failed
count() {
	local ok=$2 bad=$3
	[ $((ok + bad)) -gt 0 ] || bad=1
	say "$1: $ok passed, $bad failed"
	passed=$((passed + ok)) failed=$((failed + bad))
	if [ "$bad" != 0 ]; then
		FAILED_SUITES+=" $1"
		tail -n 60 "$4"
	fi
}

# lines_like FILE PATTERN
lines_like() { grep -cE "$2" "$1" || true; }

# wanted NAMES: those of them that TESTS asks for
wanted() {
	local name
	for name in $1; do
		[ -z "$TESTS" ] || [[ " $TESTS " == *" $name "* ]] || continue
		echo "$name"
	done
}

# Names of tests whose expected output exists
tests_in() {
	local file
	for file in "$1"/*."$2"; do
		file=${file##*/}
		file=${file%."$2"}
		[ -e "$3/$file.out" ] && echo "$file"
	done
}

# run_regress NAME PROGRAM INPUTDIR CONF TEST...
run_regress() {
	local name=$1 program=$2 input=$3 conf=$4 out=$work/$1.log
	shift 4
	say "$name: $*"
	if ! gpuvec_start "data-$name" "$conf" >"$out" 2>&1; then
		count "$name" 0 1 "$out"
		return
	fi
	as_user mkdir -p "$work/$name"
	as_user "$program" --inputdir="$input" --outputdir="$work/$name" --bindir="$bindir" \
		--host="$sockets" --user=postgres --dbname="regress_$name" --dlpath="$stage$pkglibdir" "$@" >"$out" 2>&1
	gpuvec_stop "data-$name" >>"$out" 2>&1
	check_clean "data-$name" >>"$out" 2>&1 || echo "not ok - leftovers" >>"$out"
	[ ! -e "$work/$name/regression.diffs" ] || head -n 200 "$work/$name/regression.diffs" >>"$out"
	count "$name" "$(lines_like "$out" '(\.\.\. ok|^ok )')" \
		"$(lines_like "$out" '(\.\.\. FAILED|^not ok |could not|: fatal)')" "$out"
	grep -hE 'PANIC|TRAP|terminated by signal|AddressSanitizer|runtime error' "$work/data-$name/log" | head -n 5
}

# A stopped server must leave no engine and no socket
check_clean() {
	if [ -e "$work/$1/pg_stat_tmp/gpuvec.sock" ]; then
		echo "the engine's socket is left"
		return 1
	fi
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		pgrep -f "$stage$bindir/gpuvec-engine" >/dev/null || return 0
		sleep 0.3
	done
	echo "an engine is left"
	return 1
}

suite_regress() {
	local preload tests
	tests=$(wanted "$(tests_in "$work/src/sql" sql "$work/src/expected")")
	[ -n "$tests" ] || { [ -n "$TESTS" ] && return; }
	for preload in no yes; do
		[ "$PRELOAD" = both ] || [ "$PRELOAD" = "$preload" ] || continue
		run_regress "regress_preload_$preload" "$testdir/regress/pg_regress" "$work/src" \
			"$common_conf
$([ $preload = no ] || echo "shared_preload_libraries = 'gpuvec'")" --load-extension=gpuvec $tests
	done
}

suite_isolation() {
	local tests
	tests=$(wanted "$(tests_in "$work/src/test/isolation/specs" spec "$work/src/test/isolation/expected")")
	[ -n "$tests" ] || { [ -n "$TESTS" ] && return; }
	run_regress isolation "$testdir/isolation/pg_isolation_regress" "$work/src/test/isolation" \
		"$common_conf" --load-extension=gpuvec $tests
}

suite_tap() {
	local out=$work/tap.log files= name
	for name in "$work"/src/test/t/*.pl; do
		[ -z "$TESTS" ] || [[ " $TESTS " == *" $(basename "$name" .pl) "* ]] || continue
		files+=" $name"
	done
	[ -n "$files" ] || { [ -n "$TESTS" ] && return; }
	say "tap"
	gpuvec_settings >"$work/tap.conf"
	printf '%s\n' "$common_conf" >>"$work/tap.conf"
	chmod a+r "$work/tap.conf"
	as_user mkdir -p "$work/tap"
	# a test finds its server programs and settings in its environment
	as_user env PATH="$bindir:$PATH" PG_REGRESS="$testdir/regress/pg_regress" \
		PERL5LIB="$testdir/perl:$work/src/test/perl" TESTDATADIR="$work/tap" TESTLOGDIR="$work/tap" \
		TESTDIR="$work/tap" top_builddir="$work/tap" PGPORT=65432 GPUVEC_CONF="$work/tap.conf" \
		GPUVEC_ENGINE_PROGRAM="$stage$bindir/gpuvec-engine" \
		prove -v --failures --timer $files >"$out" 2>&1
	count tap "$(lines_like "$out" '^[[:space:]]*ok [0-9]')" \
		"$(lines_like "$out" '^[[:space:]]*not ok [0-9]|Bailout|Dubious|^Parse errors|No plan found')" "$out"
}

# Engine tests: each makefile builds and runs, and ends with "N passed, N failed"
suite_unit() {
	local mk out line
	for mk in "$work"/src/test/unit/*.mk; do
		[ "${mk##*/}" != cuda.mk ] || [ "$ENGINE" = cuda ] || continue
		out=$work/unit-$(basename "$mk" .mk).log
		say "unit: ${mk##*/}"
		(cd "$work/src" && as_user "$MAKE" -C "$work/src" -f "$mk" PG_CONFIG="$PG_CONFIG" WITH_CUDA="$WITH_CUDA" check) >"$out" 2>&1
		line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$out" | tail -n 1)
		count "unit-$(basename "$mk" .mk)" "$(echo "$line" | sed -n 's/^\([0-9]*\) passed.*/\1/p')" \
			"$(echo "$line" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')" "$out"
	done
}

FAILED_SUITES=
gpuvec_workdir tmp_check
trap finish EXIT
trap 'exit 130' INT TERM
say "building in $work"
if ! { gpuvec_build && gpuvec_stage; } >"$work/build.log" 2>&1; then
	tail -n 40 "$work/build.log"
	echo "0 passed, 1 failed"
	failed=1
	exit 1
fi
count warnings "$([ "$(lines_like "$work/build.log" 'warning:')" = 0 ] && echo 1 || echo 0)" \
	"$([ "$(lines_like "$work/build.log" 'warning:')" = 0 ] && echo 0 || echo 1)" "$work/build.log"
common_conf="gpuvec.engine = '$ENGINE'
gpuvec.verify = $VERIFY"
for suite in $SUITES; do
	"suite_$suite"
done

[ -z "$FAILED_SUITES" ] || echo "failed:$FAILED_SUITES (logs are in $work)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
