#!/bin/bash
# The newest rows that have an id, through SQL.
#
# Called by "make bench-newest" (bench.mk lists the variables).  Starts a
# private server, makes a table of ROWS rows of mode B in random order, each
# with a time of its own, and an index on (tokens, created).  A tenth of the
# rows, the oldest ones, also have the id 65000.  With PEERS=yes the same ids
# are in an array with a GIN index, an index of RUM (if that is installed) with
# the times attached, and a B-tree on the times.  Then, in one run, for ids of
# more and more rows, the time of
#
#	SELECT id, created FROM docs WHERE tokens && '{...}'
#	ORDER BY created DESC LIMIT 100
#
# by one client, with prepared statements, for MEASURE_SECONDS: by the index,
# by its scans and a sort (enable_incremental_sort = off), and by the peers.
# Then pages far behind the first one, rows with a condition on another column,
# and a table that has grown by a tenth since it was analyzed.
#
# Each answer is compared with that of a sequential scan.  Prints a table.
# Exit status 1 if one differs or a goal is missed.
set -uo pipefail

: "${ROWS:=1000000}" "${MEASURE_SECONDS:=2}" "${THREADS:=0}" "${ENGINE:=auto}" "${GOAL:=1}" "${PEERS:=yes}"
: "${BENCH_BIN:?run this with \"make bench-newest\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE made (id bigint, tokens idset);
		COPY made FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $ROWS' (FORMAT binary);
		SELECT setseed(0.5);
		-- times that differ, in another order than the rows
		CREATE TABLE docs AS SELECT id, CASE WHEN place <= $ROWS / 10 THEN (tokens::int[] || 65000)::idset ELSE tokens END AS tokens,
			timestamptz '2020-01-01' + place * interval '1 minute' AS created, (place % 97)::int AS shop
			FROM (SELECT *, row_number() OVER (ORDER BY random()) AS place FROM made) m ORDER BY id;
		DROP TABLE made;
		ALTER TABLE docs ALTER created SET NOT NULL;
		SET max_parallel_maintenance_workers = 4;
		CREATE INDEX docs_idx ON docs USING gpuvec (tokens, created);
		VACUUM (ANALYZE, FREEZE) docs;
	SQL
	# 65000 is the id of the oldest rows
	WITHOUT=65000 make_shares docs 0.0001 0.001 0.01 0.1 0.5
	[ "$PEERS" = yes ] || return 0
	progress "making the peers' indexes"
	psql_ <<-SQL >/dev/null || die "could not make the peers' indexes"
		CREATE TABLE arrays AS SELECT id, tokens::int[] AS ids, created::timestamp AS created, shop FROM docs;
		SET maintenance_work_mem = '2GB';
		CREATE INDEX arrays_gin ON arrays USING gin (ids);
		CREATE INDEX arrays_created ON arrays (created);
		VACUUM (ANALYZE, FREEZE) arrays;
	SQL
	has_extension rum || return 0
	psql_ <<-SQL >/dev/null || die "could not make an index of RUM"
		CREATE EXTENSION rum;
		CREATE TABLE rums AS SELECT * FROM arrays;
		SET maintenance_work_mem = '2GB';
		CREATE INDEX rums_rum ON rums USING rum (ids rum_anyarray_addon_ops, created) WITH (attach = 'created', to = 'ids');
		VACUUM (ANALYZE, FREEZE) rums;
	SQL
}

# newest LABEL CONDITION [ID]: the newest rows; with an ID, by the peers too
newest() {
	local ask="SELECT id, created FROM docs WHERE $2 ORDER BY created DESC LIMIT 100" theirs
	progress "$1"
	[ "$(psql_ -c 'SET enable_seqscan = off' -c "$ask")" = "$(psql_ -c 'SET enable_indexscan = off; SET enable_bitmapscan = off' -c "$ask")" ] ||
		fail "rows differ: $1"
	goal "$1: ms" "$(milliseconds '-c enable_seqscan=off' "$ask")" '<=' "$GOAL"
	figure " by a scan and a sort" "$(milliseconds '-c enable_seqscan=off -c enable_incremental_sort=off' "$ask")"
	[ -n "${3:-}" ] && [ "$PEERS" = yes ] || return 0
	theirs="SELECT id, created FROM arrays WHERE ids && '{$3}' ORDER BY created DESC LIMIT 100"
	figure " by GIN and a sort" "$(milliseconds '-c enable_seqscan=off -c enable_indexscan=off' "$theirs")"
	figure " by a B-tree and a filter" "$(milliseconds '-c enable_seqscan=off -c enable_bitmapscan=off' "$theirs")"
	has_extension rum || return 0
	figure " by RUM" "$(milliseconds '-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off' \
		"SELECT id, created FROM rums WHERE ids && '{$3}' ORDER BY created <=| timestamp 'infinity' LIMIT 100")"
}

id_of() { psql_ -c "SELECT id FROM shares WHERE share = $1"; }

all() {
	local share id
	while IFS='|' read -r share id; do
		newest "id of $share of the rows" "tokens && '{$id}'" "$id"
	done < <(psql_ -c 'SELECT share, id FROM shares ORDER BY share')
	newest 'id of the oldest tenth' "tokens && '{65000}'" 65000
	newest 'id of 0.1, page behind half of the rows' "tokens && '{$(id_of 0.1)}' AND (created, id) < (timestamptz '2020-01-01' + $ROWS / 2 * interval '1 minute', 0)"
	newest 'id of 0.1, a shop of 97, which is not in the index' "tokens && '{$(id_of 0.1)}' AND shop = 7"
	progress "making new rows"
	psql_ -c "INSERT INTO docs SELECT id + $ROWS, tokens, created + $ROWS * interval '1 minute', shop FROM docs WHERE created < timestamptz '2020-01-01' + $ROWS / 10 * interval '1 minute'"
	newest 'id of 0.1, a tenth more rows' "tokens && '{$(id_of 0.1)}'"
}

bench_server "shared_buffers = 8GB
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
milliseconds '-c enable_seqscan=off' "SELECT id FROM docs WHERE tokens && '{$(id_of 0.01)}' ORDER BY created DESC LIMIT 100" >/dev/null
all
print_goals 'the newest rows'
[ "$failures" = 0 ] || exit 1
