#!/bin/bash
# Tables on several devices, through SQL.
#
# Called by "make bench-devices" (bench.mk lists the variables).  Starts a
# private server, makes a table of ROWS rows of mode B in random order, with an
# index.  Then, in one run:
#
# - loads with each of WORKERS as max_parallel_workers_per_gather;
# - for each of LAYOUTS as gpuvec.devices, with rows spread and with copies: a
#   lone query, QUERIES queries in a statement, and single queries by as many
#   clients as each of CLIENTS says, with the part of the time that the
#   processors were idle;
# - with memory on the device for half of what the table takes, and the rest in
#   the host's memory: the same queries, beside an engine on the CPU that has
#   half of the rows.
#
# Answers of all but the last must be equal.  Prints a table.  Exit status 1 if
# they differ.
set -uo pipefail

: "${ROWS:=1000000}" "${QUERIES:=2000}" "${CLIENTS:=64}" "${MEASURE_SECONDS:=4}" "${THREADS:=0}" "${ENGINE:=auto}" "${REPEATS:=5}"
: "${LAYOUTS:=0}" "${WORKERS:=0 2 4 8}" "${TIER:=yes}"
: "${BENCH_BIN:?run this with \"make bench-devices\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		BEGIN;
		CREATE TABLE docs (id bigint, tokens idset);
		COPY docs FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $ROWS' (FORMAT binary, FREEZE);
		COMMIT;
		CREATE TABLE queries (n bigint PRIMARY KEY, tokens idset);
		COPY queries FROM PROGRAM '$work/bench_gen queries --mode B --n-docs $ROWS --n-queries $QUERIES' (FORMAT binary);
		SET max_parallel_maintenance_workers = 4;
		CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
		VACUUM (ANALYZE) docs, queries;
	SQL
	printf '\\set n random(0, %d)\nSELECT count(*) FROM gpuvec_topk(%s, %s, (SELECT tokens FROM queries WHERE n = :n), 10);\n' \
		$((QUERIES - 1)) "'docs'" "'tokens'" >"$work/script"
}

# settings NAME VALUE...: restart with them
settings() {
	while [ $# -gt 0 ]; do
		psql_ -c "LOAD 'gpuvec'" -c "ALTER SYSTEM SET $1 = '$2'" || die "cannot set $1"
		shift 2
	done
	gpuvec_stop data && as_user "$bindir/pg_ctl" -D "$work/data" -l "$work/data/log" -w -s start || die "no restart"
	# an engine's start is not part of a load
	psql_ -c "SELECT * FROM gpuvec_topk('queries', 'tokens', '{1}', 1)" >/dev/null
}

# load [WORKERS]: milliseconds
load() {
	printf "SELECT gpuvec_evict('docs');\nSET max_parallel_workers_per_gather = %d;\n\\\\timing on\nSELECT gpuvec_prewarm('docs', 'tokens');\n" "${1:-8}" |
		psql_ | times | tail -n 1
}

# whole: how many devices have all rows
whole() {
	psql_ -c "SELECT count(*) FROM gpuvec_mirror_devices WHERE relation = 'docs'::regclass AND rows = $ROWS" || die "no view"
}

# place PLACEMENT DEVICES: load with it, and wait until so many devices have
# all rows
place() {
	local i
	psql_ -c "ALTER INDEX docs_tokens SET (placement = $1)" || die "no placement"
	load >/dev/null
	for ((i = 0; i < 100; i++)); do
		[ "$(whole)" != "$2" ] || return 0
		sleep 0.1
	done
	fail "placement $1: $(whole) devices have all rows, not $2"
}

# statement_median STATEMENT [REPEATS]
statement_median() {
	local i
	{
		printf '%s;\n%s;\n\\timing on\n' "$1" "$1"
		for ((i = 0; i < ${2:-REPEATS}; i++)); do printf '%s;\n' "$1"; done
	} | psql_ | times | median
}

# one TABLE: milliseconds of a query
one() { statement_median "SELECT count(*) FROM gpuvec_topk('$1', 'tokens', (SELECT tokens FROM queries WHERE n = 7), 100)" 200; }

batch() { echo "gpuvec_topk_batch('docs', 'tokens', ARRAY(SELECT tokens FROM queries ORDER BY n), 100)"; }

# the answers, which have to be the same each time
compare() {
	local sum
	sum=$(psql_ -c "SELECT md5(string_agg(b::text, ',' ORDER BY b::text)) FROM $(batch) b")
	: "${answers:=$sum}"
	[ "$sum" = "$answers" ] || fail "$1: other answers"
}

# idle: parts of the processors' time, as the kernel counts it
processors() { awk '/^cpu / { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat; }

# measure LABEL
measure() {
	local clients
	compare "$1"
	figure "$1: a query, ms" "$(one docs)"
	figure "$1: $QUERIES queries, ms" "$(statement_median "SELECT count(*) FROM $(batch)")"
	for clients in $CLIENTS; do
		measure_clients "$1" "$clients"
	done
}

# measure_clients LABEL CLIENTS
measure_clients() {
	local before after tps
	before=$(processors)
	tps=$("$bindir/pgbench" -n -M prepared -c "$2" -j "$(nproc)" -T "$MEASURE_SECONDS" -f "$work/script" 2>/dev/null |
		sed -n 's/^tps = \([0-9.]*\) .*$/\1/p')
	after=$(processors)
	figure "$1: $2 clients, statements a second" "$(calc "$tps" 0)"
	figure " processors idle, %" "$(echo "$before $after" | awk '{ printf "%.0f", 100 * ($3 - $1) / ($4 - $2) }')"
}

bench_server "shared_buffers = 16GB
max_connections = $(($(printf '%s\n' $CLIENTS | sort -n | tail -n 1) + 20))
max_worker_processes = 24
max_parallel_workers = 24
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
progress "loading"
settings gpuvec.devices "${LAYOUTS%% *}"
load >/dev/null
for workers in $WORKERS; do
	figure "load, $workers workers, ms" "$(for _ in 1 2 3; do load "$workers"; done | median)"
	figure " sum(cardinality), $workers workers, ms" "$(printf 'SET max_parallel_workers_per_gather = %d;\n\\timing on\nSELECT sum(cardinality(tokens)) FROM docs;\nSELECT sum(cardinality(tokens)) FROM docs;\nSELECT sum(cardinality(tokens)) FROM docs;\n' "$workers" | psql_ | times | median)"
done
for layout in $LAYOUTS; do
	progress "devices $layout"
	settings gpuvec.devices "$layout"
	commas=${layout//[^,]/}
	place spread $((${#commas} == 0))
	measure "devices $layout, spread"
	if [ -n "$commas" ]; then
		place replicate $((${#commas} + 1))
		measure "devices $layout, copies"
	fi
done
if [ "$TIER" = yes ]; then
	CLIENTS=
	layout=${LAYOUTS%% *}
	settings gpuvec.devices "$layout"
	place spread 1
	bytes=$(psql_ -c "SELECT bytes FROM gpuvec_mirrors WHERE relation = 'docs'::regclass")
	progress "half of the rows in the host's memory"
	settings gpuvec.device_memory "$((bytes / 2 / 1048576))MB" gpuvec.host_memory "$((2 * bytes / 1048576))MB"
	place spread 0
	figure "in the host's memory: rows" "$(psql_ -c "SELECT string_agg(device || ': ' || rows, ', ') FROM gpuvec_mirror_devices WHERE relation = 'docs'::regclass")"
	measure "half of the rows in the host's memory"
	settings gpuvec.host_memory 0 gpuvec.device_memory 0 gpuvec.engine cpu
	psql_ -c "CREATE TABLE half AS SELECT * FROM docs TABLESAMPLE SYSTEM (50) REPEATABLE (1)"
	psql_ -c "SELECT gpuvec_prewarm('half', 'tokens')" >/dev/null
	figure "an engine on the CPU, rows" "$(psql_ -c 'SELECT count(*) FROM half')"
	figure ' a query, ms' "$(one half)"
	batch=$(batch)
	figure " $QUERIES queries, ms" "$(statement_median "SELECT count(*) FROM ${batch/docs/half}")"
	settings gpuvec.engine "$ENGINE"
fi
print_goals 'tables on several devices'
[ "$failures" = 0 ] || exit 1
