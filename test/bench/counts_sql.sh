#!/bin/bash
# Counts of rows by an index, through SQL.
#
# Called by "make bench-counts" (bench.mk lists the variables).  Starts a
# private server, makes a table of ROWS rows of mode B in random order with the
# column bucket (0 to 99,999, uniform), an index on (tokens, bucket), and with
# GIN=yes a GIN index on the same ids as an array.  Then, in one run, for counts
# of more and more rows, by ids and by bucket:
#
# - the time of SELECT count(*), one client, prepared statements, for
#   MEASURE_SECONDS; by the index, by its scans without the node that counts
#   (enable_indexonlyscan = off), and by GIN;
# - the time in the engine, as EXPLAIN says (the median of 15);
# - the same when 1 and 10 % of the pages are not all-visible.
#
# Each count is compared with that of a sequential scan.  Prints a table.  Exit
# status 1 if one differs or a goal is missed.
set -uo pipefail

: "${ROWS:=1000000}" "${MEASURE_SECONDS:=2}" "${THREADS:=0}" "${ENGINE:=auto}" "${GOAL:=1}" "${GIN:=yes}"
: "${BENCH_BIN:?run this with \"make bench-counts\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE docs (id bigint, tokens idset, bucket int DEFAULT floor(random() * 100000));
		COPY docs (id, tokens) FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $ROWS' (FORMAT binary);
		SET max_parallel_maintenance_workers = 4;
		CREATE INDEX docs_idx ON docs USING gpuvec (tokens, bucket);
		VACUUM (ANALYZE, FREEZE) docs;
	SQL
	make_shares docs 0.0001 0.001 0.01 0.1 0.5
	[ "$GIN" = yes ] || return 0
	progress "making a GIN index"
	psql_ <<-SQL >/dev/null || die "could not make a GIN index"
		CREATE TABLE arrays AS SELECT id, tokens::int[] AS ids FROM docs;
		SET maintenance_work_mem = '2GB';
		CREATE INDEX arrays_idx ON arrays USING gin (ids);
		VACUUM (ANALYZE, FREEZE) arrays;
	SQL
}

# count LABEL CONDITION [CONDITION FOR GIN]
count() {
	local ask="SELECT count(*) FROM docs WHERE $2" rows ms
	progress "$1"
	rows=$(psql_ -c "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off" -c "$ask")
	[ "$rows" = "$(psql_ -c 'SET enable_seqscan = off' -c "$ask")" ] || fail "counts differ: $1"
	ms=$(milliseconds '-c enable_seqscan=off' "$ask")
	goal "$1, $rows rows: ms" "$ms" '<=' "$GOAL"
	figure " in the engine" "$(in_engine "$ask")"
	figure " by a bitmap scan" "$(milliseconds '-c enable_seqscan=off -c enable_indexonlyscan=off' "$ask")"
	[ -z "${3:-}" ] || [ "$GIN" != yes ] || figure " by GIN" "$(milliseconds '-c enable_seqscan=off' "SELECT count(*) FROM arrays WHERE $3")"
}

counts() {
	local share id
	while IFS='|' read -r share id; do
		count "id of $share of the rows$1" "tokens && '{$id}'" "ids && '{$id}'"
	done < <(psql_ -c 'SELECT share, id FROM shares ORDER BY share')
	count "two ids$1" "tokens && '$(psql_ -c "SELECT array_agg(id) FROM shares WHERE share IN (0.1, 0.01)")'" \
		"ids && '$(psql_ -c "SELECT array_agg(id) FROM shares WHERE share IN (0.1, 0.01)")'"
	count "0.1 and (0.01 or not 0.5)$1" \
		"tokens @@ '$(psql_ -c "SELECT format('%s & (%s | !%s)', max(id) FILTER (WHERE share = 0.1), max(id) FILTER (WHERE share = 0.01), max(id) FILTER (WHERE share = 0.5)) FROM shares")'"
	count "bucket: 10 % of the rows$1" 'bucket < 10000'
	count "id of 0.5, bucket: 1 %$1" "tokens && '{$(psql_ -c 'SELECT id FROM shares WHERE share = 0.5')}' AND bucket < 1000"
}

bench_server "shared_buffers = 8GB
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
counts ''
unsee docs 100
counts ', 1 % of pages unproven'
unsee docs 10
counts ', 10 % unproven'
print_goals 'counts by an index'
[ "$failures" = 0 ] || exit 1
