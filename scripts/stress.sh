#!/bin/bash
# The randomised tester (test/stress) against private servers; called by "make stress".
#
#   MINUTES=1              how long, or SECONDS_LONG for less than one
#   SEED=n                 what threads do next; by default another one each time
#   ENGINE=auto|cpu|cuda   what the engine runs on
#   DEVICES=0,1            gpuvec.devices; 0,0 makes two devices of one GPU
#   CPU_PARTS=2            the CPU stands for 2 devices; needs HOOKS=yes
#   SANITIZE=yes           the engine with address and undefined sanitizers
#   CLIENTS=6              sessions that read and write, beside one that alters tables
#   ROWS=1000              rows of a table, about
#   PATIENCE=120           seconds that a statement may take
#   STANDBY=no             no standby, and wal_level = minimal
#   FORMS=yes              only rare forms of statements, many tables, requests that are batched
#                          (test/stress/forms.c): on a server that is left in peace, by 12 clients
#   LENIENT=yes            searches may fail for want of an engine
#   KEEP=yes               keep the scratch folder
#
# The library that sets the clock of servers and engines
# (test/stress/shim/clock.c) is built and preloaded by itself.
#
# Ends with "N passed, N failed", which counts comparisons; the exit status is 1 if any
# failed.  Then the folder with the servers' data and logs stays.
set -uo pipefail

: "${MINUTES:=1}" "${SEED:=$((RANDOM * 32768 + RANDOM))}" "${ENGINE:=auto}" "${FORMS:=no}" "${ROWS:=1000}" "${PATIENCE:=120}"
[ "$FORMS" = no ] || : "${CLIENTS:=12}" "${STANDBY:=no}" "${HOOKS:=yes}"
: "${CLIENTS:=6}" "${STANDBY:=yes}" "${LENIENT:=no}" "${KEEP:=no}" "${SECONDS_LONG:=$(awk "BEGIN { print int($MINUTES * 60) }")}"
export LC_ALL=C
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE PGDATA PGPASSWORD PGSSLMODE MAKEFLAGS MFLAGS MAKELEVEL
. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"

good=no

finish() {
	local file
	trap - EXIT
	# whatever still runs, if the tester was stopped
	for file in "$work"/stress/node_*/postmaster.pid; do
		[ ! -e "$file" ] || as_user "$bindir/pg_ctl" -D "${file%/*}" -m immediate -w -s stop
	done >/dev/null 2>&1
	rm -rf "$sockets" "$work/pid"
	if [ "$KEEP" = yes ] || [ $good = no ]; then
		echo "servers and logs are in $work/stress" >&2
	else
		rm -rf "$work"
	fi
}
gpuvec_workdir tmp_stress
trap finish EXIT
trap 'exit 130' INT TERM
if ! { gpuvec_can_stage && gpuvec_build && gpuvec_stage; } >"$work/build.log" 2>&1; then
	tail -n 30 "$work/build.log"
	echo "0 passed, 1 failed"
	exit 1
fi
arguments=(--engine "$ENGINE" --clients "$CLIENTS" --rows "$ROWS" --patience "$PATIENCE")
[ "$STANDBY" = yes ] || arguments+=(--no-standby)
[ "$FORMS" = no ] || arguments+=(--forms)
[ "$LENIENT" = no ] || arguments+=(--lenient)
! gpuvec_stress stress "$SECONDS_LONG" "$SEED" "${arguments[@]}" || good=yes
[ $good = yes ]
