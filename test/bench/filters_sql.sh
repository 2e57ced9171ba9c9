#!/bin/bash
# Index scans with conditions on filter columns, through SQL.
#
# Called by "make bench-filters-sql" (bench.mk lists the variables).  Starts a private server, makes a table of ROWS rows of
# mode B in random order, with the columns tenant (10,000 values, Zipf), bucket (0 to 99,999, uniform) and created, and an
# index on (tokens, tenant, bucket, created).  Then, in one run:
#
# - the time of ORDER BY ... LIMIT 10 for a random set, one client, without a condition and with conditions that keep fewer
#   and fewer rows, each for MEASURE_SECONDS; rows of one set are compared with those of a sequential scan;
# - statements a second of CLIENTS clients, each with a tenant of its own;
# - a lateral join of QUERIES queries, each with its tenant; also with each of JOIN_ROWS as gpuvec.join_rows.
#
# Prints a table.  Exit status 1 if rows differ or a goal is missed.
set -uo pipefail

: "${ROWS:=1000000}" "${QUERIES:=2000}" "${CLIENTS:=64}" "${MEASURE_SECONDS:=2}" "${THREADS:=0}" "${ENGINE:=auto}" "${GOAL:=1.5}"
: "${CLIENTS_GOAL:=40000}" "${LATERAL_GOAL:=0.1}" "${JOIN_ROWS:=}"
: "${BENCH_BIN:?run this with \"make bench-filters-sql\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE docs (id bigint, tokens idset, tenant int DEFAULT floor(power(10000, random())),
			bucket int DEFAULT floor(random() * 100000), created timestamptz DEFAULT '2026-01-01'::timestamptz + random() * interval '300 days');
		CREATE TABLE queries (n bigint PRIMARY KEY, tokens idset, tenant int DEFAULT floor(power(10000, random())));
		COPY docs (id, tokens) FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $ROWS' (FORMAT binary);
		COPY queries (n, tokens) FROM PROGRAM '$work/bench_gen queries --mode B --n-docs $ROWS --n-queries $QUERIES' (FORMAT binary);
		SET max_parallel_maintenance_workers = 4;
		CREATE INDEX docs_idx ON docs USING gpuvec (tokens, tenant, bucket, created);
		VACUUM (ANALYZE, FREEZE) docs, queries;
	SQL
	progress "loading the copy"
	psql_ -c 'SELECT id FROM docs ORDER BY tokens <-> (SELECT tokens FROM queries LIMIT 1) LIMIT 1' >/dev/null || die "no index scan"
}

# run_bench SCRIPT CLIENTS: what pgbench says of prepared statements
run_bench() {
	"$bindir/pgbench" -n -M prepared -c "$2" -j "$(($2 < $(nproc) ? $2 : $(nproc)))" -T "$MEASURE_SECONDS" -f "$1" 2>/dev/null
}

# compare CONDITION: the rows of an index scan and of a sequential scan and a sort
compare() {
	local ask="SELECT string_agg(d || ' ' || id, ',' ORDER BY d, id) FROM (SELECT tokens <-> q.tokens AS d, id FROM docs WHERE $1
		ORDER BY tokens <-> q.tokens FETCH FIRST 10 ROWS WITH TIES) x" q="(SELECT tokens FROM queries WHERE n = 7) q"
	local index scan
	index=$(psql_ -c "SET enable_seqscan = off; SELECT ($ask) FROM $q")
	scan=$(psql_ -c "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT ($ask) FROM $q")
	[ "$index" = "$scan" ] || fail "rows differ: $1"
}

# condition LABEL CONDITION
condition() {
	local ms
	progress "$1"
	printf '\\set n random(0, %d)\nSELECT id FROM docs WHERE %s ORDER BY tokens <-> (SELECT tokens FROM queries WHERE n = :n) LIMIT 10;\n' \
		$((QUERIES - 1)) "$2" >"$work/script"
	ms=$(run_bench "$work/script" 1 | sed -n 's/^latency average = \([0-9.]*\) ms$/\1/p')
	compare "$2"
	if [ "$1" = none ]; then none=$ms; figure 'without a condition: ms' "$ms"; return; fi
	figure "condition keeps $1: ms" "$ms"
	goal " times as long as without" "$(calc "$ms / $none")" '<=' "$GOAL"
}

bench_server "shared_buffers = 8GB
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
condition none true
condition '100 %' 'bucket >= 0'
condition '50 %' 'bucket < 50000'
condition '10 %' 'bucket < 10000'
condition '1 %' 'bucket < 1000'
condition '0.1 %' 'bucket < 100'
condition '0.01 %' 'bucket < 10'
condition 'about one row in 850,000' "bucket = 11 AND created < '2026-02-05'"
condition 'no row' 'bucket = -1'
condition 'a tenant of about 1,000 rows in a million' 'tenant = 100'
progress "$CLIENTS clients"
printf '\\set n random(0, %d)\n\\set t random_zipfian(1, 10000, 1.01)\nSELECT id FROM docs WHERE tenant = :t ORDER BY tokens <-> (SELECT tokens FROM queries WHERE n = :n) LIMIT 10;\n' \
	$((QUERIES - 1)) >"$work/script"
tps=$(run_bench "$work/script" "$CLIENTS" | sed -n 's/^tps = \([0-9.]*\) .*$/\1/p')
goal "$CLIENTS clients, each with a tenant: statements a second" "$(calc "$tps" 0)" '>=' "$CLIENTS_GOAL"
progress "lateral join"
ask="SELECT count(*) FROM queries q, LATERAL (SELECT id FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 10) x"
# lateral SETTINGS: the median of three runs, in seconds
lateral() {
	printf '%s;\n\\timing on\n%s;\n%s;\n%s;\n' "$1" "$ask" "$ask" "$ask" | psql_ | times | sort -g | sed -n 2p | awk '{ printf "%.4f", $1 / 1000 }'
}
for rows in $JOIN_ROWS; do
	figure " with gpuvec.join_rows = $rows, seconds" "$(lateral "SET gpuvec.join_rows = $rows")"
done
seconds=$(lateral '')
goal "lateral join of $QUERIES queries, seconds" "$seconds" '<=' "$LATERAL_GOAL"
print_goals 'index scans with conditions'
[ "$failures" = 0 ] || exit 1
