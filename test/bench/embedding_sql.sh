#!/bin/bash
# Embedding tables through SQL: an aggregate against plain SQL, and what a statement adds to the engine's time.
#
# Called by "make bench-embedding-sql" (bench.mk lists the variables).  Starts a private server, makes
# a table of ITEMS vectors, one of ROWS, and CLICKS clicks of USERS users, and in one run
#
# - pools each user's clicks in plain SQL (unnest, join, sum), and with gpuvec_pool_agg where the
#   planner hashes and where it sorts, and with as many trips to the engine as groups; sums are
#   compared;
# - pools BAGS bags of HOTNESS keys in one statement, and subtracts the time in the engine;
# - finds the nearest rows of NEAREST keys, pools all keys, and searches NEAREST sets in a table of
#   UNVACUUMED rows: before VACUUM, after it, and beside an older transaction that does not see them.
#
# Prints a table with the goals.  Exit status 1 if one was missed, or sums differ.
set -uo pipefail

: "${ROWS:=1000000}" "${ITEMS:=10000}" "${USERS:=100000}" "${CLICKS:=1000000}" "${BAGS:=65536}" "${HOTNESS:=16}" "${UNVACUUMED:=200000}" "${NEAREST:=1000}"
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

# unvacuumed TABLE: searches of vectors and sets, each of them REPEATS times; sets nearest, pooled, found
unvacuumed() {
	nearest=$(ms "" "SELECT count(*) FROM gpuvec_nearest_keys('$1', 'id', 'embedding', ARRAY(SELECT generate_series(1, $NEAREST))::int8[], 10)" "$REPEATS")
	pooled=$(ms "" "SELECT gpuvec_pool('$1', 'id', 'embedding', ARRAY(SELECT generate_series(1, $UNVACUUMED))::int8[])" "$REPEATS")
	found=$(ms "" "SELECT count(*) FROM gpuvec_topk_batch('$1', 'tokens', ARRAY(SELECT tokens FROM $1 WHERE id <= $NEAREST), 100)" "$REPEATS")
}

# made TABLE: a table that VACUUM has not come to
made() {
	psql_ >/dev/null <<-SQL
		CREATE TABLE $1 (id int, embedding real[], tokens idset) WITH (autovacuum_enabled = off);
		INSERT INTO $1 SELECT i, gpuvec_initial_vector(i, $WIDTH, 'uniform', 1, 1),
			ARRAY[i % 977, i % 997 + 1000, i % 991 + 2000, i % 983 + 3000, i % 971 + 4000]::idset FROM generate_series(1, $UNVACUUMED) i;
		ANALYZE $1;
	SQL
}

measure_unvacuumed() {
	local nearest pooled found before
	progress "$UNVACUUMED rows, before VACUUM and after it"
	made fresh
	unvacuumed fresh
	before=("$nearest" "$pooled" "$found")
	psql_ -c 'VACUUM fresh' >/dev/null
	unvacuumed fresh
	figure "nearest rows of $NEAREST keys of $UNVACUUMED rows, after VACUUM, ms" "$nearest"
	figure "all of them pooled, after VACUUM, ms" "$pooled"
	figure "100 most similar sets of $NEAREST queries, after VACUUM, ms" "$found"
	goal 'nearest rows before VACUUM, times as long' "$(calc "${before[0]} / $nearest" 2)" '<=' 1.2
	goal 'pooled before VACUUM' "$(calc "${before[1]} / $pooled" 2)" '<=' 1.2
	goal 'sets before VACUUM' "$(calc "${before[2]} / $found" 2)" '<=' 1.2
	before=("$nearest" "$pooled" "$found")
	progress "beside an older transaction"
	psql_ -c 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM items; SELECT pg_sleep(3600)' >/dev/null 2>&1 &
	until [ "$(psql_ -c "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")" = 1 ]; do sleep 0.1; done
	made later
	unvacuumed later
	psql_ -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'" >/dev/null
	wait $!
	figure 'the same beside an older transaction: sets, ms' "$found"
	goal 'nearest rows beside an older transaction, more microseconds a row' "$(calc "($nearest - ${before[0]}) * 1000 / $UNVACUUMED" 3)" '<=' 0.3
	goal 'pooled beside an older transaction, more microseconds a row' "$(calc "($pooled - ${before[1]}) * 1000 / $UNVACUUMED" 3)" '<=' 0.3
}

bench_server "shared_buffers = 2GB
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
measure_aggregate
measure_batch
measure_unvacuumed
print_goals 'embedding tables through SQL'
[ "$failures" = 0 ] || exit 1
