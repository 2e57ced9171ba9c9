#!/bin/bash
# Embedding tables through SQL: an aggregate against plain SQL, and what a statement adds to the engine's time.
#
# Called by "make bench-embedding-sql" (bench.mk lists the variables).  Starts a private server, makes
# a table of ITEMS vectors, one of ROWS, and CLICKS clicks of USERS users, and in one run
#
# - pools each user's clicks in plain SQL (unnest, join, sum), and with gpuvec_pool_agg where the
#   planner hashes and where it sorts, and with as many trips to the engine as groups; sums are
#   compared;
# - pools BAGS bags of HOTNESS keys in one statement, and subtracts the time in the engine.
#
# Prints a table with the goals.  Exit status 1 if one was missed, or sums differ.
set -uo pipefail

: "${ROWS:=1000000}" "${ITEMS:=10000}" "${USERS:=100000}" "${CLICKS:=1000000}" "${BAGS:=65536}" "${HOTNESS:=16}"
: "${WIDTH:=128}" "${THREADS:=0}" "${ENGINE:=auto}" "${REPEATS:=5}" "${BENCH_BIN:?run this with \"make bench-embedding-sql\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ITEMS and $ROWS vectors, $CLICKS clicks"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		SELECT setseed(0.5);
		CREATE TABLE items AS SELECT i AS id, gpuvec_initial_vector(i, $WIDTH, 'uniform', 1, 1) AS embedding FROM generate_series(1, $ITEMS) i;
		CREATE TABLE rows AS SELECT i AS id, gpuvec_initial_vector(i, $WIDTH, 'uniform', 1, 1) AS embedding FROM generate_series(1, $ROWS) i;
		ALTER TABLE items ADD PRIMARY KEY (id);
		CREATE TABLE clicks AS SELECT 1 + (random() * ($USERS - 1))::int AS user_id, 1 + (random() * ($ITEMS - 1))::int AS item_id,
			1 + (random() * ($ROWS - 1))::int AS row_id, random() AS weight FROM generate_series(1, $CLICKS);
		VACUUM ANALYZE items;
		VACUUM ANALYZE rows;
		VACUUM ANALYZE clicks;
		SELECT gpuvec_prewarm('items', 'id', 'embedding'), gpuvec_prewarm('rows', 'id', 'embedding');
		CREATE VIEW plain AS SELECT user_id, array_agg(s ORDER BY i)::real[] AS p FROM (
			SELECT user_id, i, sum(x * weight) AS s FROM clicks JOIN items ON id = item_id, unnest(embedding) WITH ORDINALITY u (x, i) GROUP BY user_id, i) s GROUP BY user_id;
		CREATE VIEW pooled AS SELECT user_id, gpuvec_weighted_sum_agg('items', 'id', 'embedding', item_id, weight) AS p FROM clicks GROUP BY user_id;
		CREATE VIEW pooled_rows AS SELECT user_id, gpuvec_weighted_sum_agg('rows', 'id', 'embedding', row_id, weight) AS p FROM clicks GROUP BY user_id;
	SQL
}

# ms SETTINGS STATEMENT [REPEATS]: median of the statement, after it ran once if there are repeats
ms() {
	{
		printf "SET max_parallel_workers_per_gather = 0;\n%s\n" "$1"
		[ "${3:-1}" = 1 ] || printf '%s;\n' "$2"
		printf '\\timing on\n'
		for ((i = 0; i < ${3:-1}; i++)); do printf '%s;\n' "$2"; done
	} | psql_ | times | median
}

# wrong: elements of some users' sums that are not the same but for rounding
wrong() {
	psql_ -c "WITH a AS MATERIALIZED (SELECT * FROM pooled), b AS MATERIALIZED (SELECT user_id, array_agg(s ORDER BY i) AS p FROM (
			SELECT user_id, i, sum(x * weight) AS s FROM clicks JOIN items ON id = item_id, unnest(embedding) WITH ORDINALITY u (x, i) WHERE user_id % 100 = 0 GROUP BY user_id, i) s GROUP BY user_id)
		SELECT count(*) FILTER (WHERE x IS NULL OR y IS NULL OR abs(x - y) > 1e-5) + CASE WHEN count(*) = 0 THEN 1 ELSE 0 END FROM b LEFT JOIN a USING (user_id), unnest(a.p, b.p) u (x, y)"
}

measure_aggregate() {
	local plain hashed sorted trips count='SELECT count(p) FROM'
	progress "plain SQL"
	plain=$(ms "" "$count plain p")
	progress "gpuvec_pool_agg"
	hashed=$(ms "SET enable_sort = off;" "$count pooled p" "$REPEATS")
	sorted=$(ms "SET enable_hashagg = off;" "$count pooled p" "$REPEATS")
	trips=$(ms "SET enable_hashagg = off;" "$count pooled_rows p" "$REPEATS")
	figure "plain SQL: $CLICKS clicks of $USERS users, $ITEMS items, width $WIDTH, ms" "$plain"
	figure 'gpuvec_pool_agg, hashed, ms' "$hashed"
	figure 'the same, sorted, ms' "$sorted"
	figure "the same, sorted, $ROWS items, ms" "$trips"
	goal 'faster than plain SQL, hashed, times' "$(calc "$plain / $hashed" 1)" '>=' 20
	goal 'the same, sorted' "$(calc "$plain / $sorted" 1)" '>=' 20
	goal "the same, sorted, $ROWS items (plain SQL: $ITEMS)" "$(calc "$plain / $trips" 1)" '>=' 20
	goal "elements that differ, of the users whose number 100 divides" "$(wrong)" '<=' 0
}

# A statement's own time and the engine's come from the same call
measure_batch() {
	local statement first total engine
	progress "$BAGS bags of $HOTNESS keys"
	statement="SELECT count(embedding) FROM keys, gpuvec_pool_batch('rows', 'id', 'embedding', keys, hotness => $HOTNESS)"
	# not compressed, as keys that a client sends would not be
	psql_ -c "CREATE TABLE keys (keys int8[])" -c "ALTER TABLE keys ALTER keys SET STORAGE EXTERNAL" \
		-c "INSERT INTO keys SELECT array_agg((1 + random() * ($ROWS - 1))::int8) FROM generate_series(1, $BAGS * $HOTNESS)" >/dev/null
	{
		printf '\\timing on\n%s;\n' "$statement"
		printf "SET client_min_messages = debug1;\n"
		for ((i = 0; i < REPEATS; i++)); do printf '%s;\n' "$statement"; done
	} | psql_ >"$work/batch" 2>&1
	first=$(times <"$work/batch" | head -n 1)
	total=$(times <"$work/batch" | tail -n "$REPEATS" | median)
	engine=$(sed -n 's/^.*time in the gpuvec engine: \([0-9]*\) us.*$/\1/p' "$work/batch" | median)
	figure "$BAGS bags of $HOTNESS keys of $ROWS rows in one statement, ms" "$total"
	figure 'the first such statement (a GPU makes its hash table of keys), ms' "$first"
	figure 'of this in the engine, ms' "$(calc "$engine / 1000" 3)"
	goal 'what the statement adds, ms' "$(calc "$total - $engine / 1000" 1)" '<=' 150
}

bench_server "shared_buffers = 2GB
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
measure_aggregate
measure_batch
print_goals 'embedding tables through SQL'
[ "$failures" = 0 ] || exit 1
