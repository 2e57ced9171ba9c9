#!/bin/bash
# A partitioned table beside a flat one with the same rows, through SQL.
#
# Called by "make bench-partitions" (bench.mk lists the variables).  Starts a
# private server, makes a table of ROWS rows of mode MODE in random order and
# one with PARTITIONS hash partitions, both with an index.  Then, in one run,
# ROUNDS times in turn:
#
# - one client, prepared statements, each for MEASURE_SECONDS: gpuvec_topk and
#   ORDER BY ... LIMIT, for 10 and for 100 rows;
# - gpuvec_topk_batch with QUERIES queries in a statement, for 10 and for 100
#   rows.
#
# Scores must be the same in both tables.  Prints the medians of the rounds and
# of their quotients.  Exit status 1 if scores differ or a goal is missed.
set -uo pipefail

: "${ROWS:=1000000}" "${MODE:=B}" "${PARTITIONS:=64}" "${QUERIES:=2000}" "${MEASURE_SECONDS:=2}" "${ROUNDS:=5}" "${THREADS:=0}" "${ENGINE:=auto}"
: "${LONE_GOAL:=1.5}" "${ORDER_GOAL:=3}" "${BATCH_GOAL:=1.1}"
: "${BENCH_BIN:?run this with \"make bench-partitions\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE flat (id bigint, tokens idset);
		COPY flat FROM PROGRAM '$work/bench_gen docs --mode $MODE --order random --n-docs $ROWS' (FORMAT binary);
		CREATE TABLE parts (id bigint, tokens idset) PARTITION BY HASH (id);
		SELECT format('CREATE TABLE part%s PARTITION OF parts FOR VALUES WITH (MODULUS $PARTITIONS, REMAINDER %s)', n, n)
			FROM generate_series(0, $PARTITIONS - 1) n \\gexec
		INSERT INTO parts SELECT * FROM flat;
		CREATE TABLE queries (n bigint PRIMARY KEY, tokens idset);
		COPY queries FROM PROGRAM '$work/bench_gen queries --mode $MODE --n-docs $ROWS --n-queries $QUERIES' (FORMAT binary);
		SET max_parallel_maintenance_workers = 4;
		CREATE INDEX ON flat USING gpuvec (tokens);
		CREATE INDEX ON parts USING gpuvec (tokens);
		VACUUM (ANALYZE, FREEZE) flat, parts, queries;
	SQL
	progress "loading the copies"
	# the engine makes lists in the background, unless they are asked for
	psql_ <<-SQL >/dev/null || die "no copies"
		SET gpuvec.method = 'inverted';
		SELECT gpuvec_prewarm(t, 'tokens') FROM unnest('{flat,parts}'::regclass[]) t;
		SELECT count(*) FROM gpuvec_topk('flat', 'tokens', '{1}', 1);
		SELECT count(*) FROM gpuvec_topk('parts', 'tokens', '{1}', 1);
	SQL
}

query="(SELECT tokens FROM queries WHERE n = :n)"

# What is asked of a table; scores are in the order of the answer
topk() { echo "SELECT score FROM gpuvec_topk('$1', 'tokens', $query, $2)"; }
order() { echo "SELECT tokens <-> $query FROM $1 ORDER BY tokens <-> $query LIMIT $2"; }
batch() { echo "gpuvec_topk_batch('$1', 'tokens', ARRAY(SELECT tokens FROM queries ORDER BY n), $2)"; }

# lone KIND TABLE K: milliseconds of a statement of one client
lone() {
	printf '\\set n random(0, %d)\n%s;\n' $((QUERIES - 1)) "$("$1" "$2" "$3")" >"$work/script"
	"$bindir/pgbench" -n -M prepared -T "$MEASURE_SECONDS" -f "$work/script" 2>/dev/null |
		sed -n 's/^latency average = \([0-9.]*\) ms$/\1/p'
}

# many IGNORED TABLE K: milliseconds of a session's second batch: the first one
# finds out what the partitions are
many() {
	local batch
	batch="SELECT count(*) FROM $(batch "$2" "$3");"
	printf '%s\n\\timing on\n%s\n' "$batch" "$batch" | psql_ | times
}

# scores KIND TABLE K: of some queries
scores() {
	if [ "$1" = many ]; then
		psql_ -c "SELECT query, rank, score FROM $(batch "$2" "$3") ORDER BY 1, 2" | md5sum
		return
	fi
	local n
	for n in 3 7 11; do psql_ -v n=$n <<<"$("$1" "$2" "$3")"; done
}

# beside LABEL HOW KIND K GOAL
beside() {
	local round
	progress "$1"
	[ "$(scores "$3" flat "$4")" = "$(scores "$3" parts "$4")" ] || fail "$1: other scores"
	rm -f "$work/flat" "$work/parts"
	# the first round warms up
	for ((round = 0; round <= ROUNDS; round++)); do
		"$2" "$3" flat "$4" >>"$work/flat"
		"$2" "$3" parts "$4" >>"$work/parts"
		[ $round -gt 0 ] || rm "$work/flat" "$work/parts"
	done
	figure "$1: ms in one table" "$(median <"$work/flat")"
	figure " in $PARTITIONS partitions" "$(median <"$work/parts")"
	goal " times" "$(calc "$(quotient parts flat)")" '<=' "$5"
}

bench_server "shared_buffers = 4GB
max_locks_per_transaction = 512
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
for k in 10 100; do
	beside "gpuvec_topk, k = $k" lone topk $k "$LONE_GOAL"
	beside "ORDER BY ... LIMIT $k" lone order $k "$ORDER_GOAL"
	beside "$QUERIES queries, k = $k" many many $k "$BATCH_GOAL"
done
print_goals "$ROWS rows of mode $MODE in one table and in $PARTITIONS partitions"
[ "$failures" = 0 ] || exit 1
