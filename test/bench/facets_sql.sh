#!/bin/bash
# Facets: groups of the rows that a search finds, counted by an index.
#
# Called by "make bench-facets" (bench.mk lists the variables).  Starts a
# private server, makes a table of ROWS rows of mode B in random order with the
# columns brand (500 values, few of which have most rows), color (12), day
# (3,650), seller (100,000) and price (1 to 10,000, uniform), and an index on
# all of them.  Then, in one run:
#
# - the time of a facet, one client, prepared statements, for MEASURE_SECONDS:
#   of the rows that have an id, or a price; by the index, by its scans without
#   the node that counts (enable_indexonlyscan = off), and by a sequential scan
#   with parallel workers;
# - the time in the engine, as EXPLAIN says (the median of 15);
# - the ids of the sets of these rows, the 10 that most of them have, and all;
# - four facets in one statement, of 61 % of the rows; the first 10 rows by
#   rank, the same four facets, and both in one statement;
# - the same when 1 and 10 % of the pages are not all-visible.
#
# The groups of each facet are compared with those of a sequential scan.
# Prints a table.  Exit status 1 if some differ or a goal is missed.
set -uo pipefail

: "${ROWS:=1000000}" "${MEASURE_SECONDS:=2}" "${THREADS:=0}" "${ENGINE:=auto}" "${GOAL:=6}" "${SCANS:=yes}" "${UNPROVEN:=yes}"
: "${BENCH_BIN:?run this with \"make bench-facets\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE shop (number bigint, tokens idset, brand int2 DEFAULT floor(500 * random() ^ 3), color int2 DEFAULT floor(random() * 12),
			day date DEFAULT date '2016-01-01' + (random() * 3649)::int, seller int DEFAULT floor(random() * 100000),
			price int DEFAULT 1 + floor(random() * 10000));
		COPY shop (number, tokens) FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $ROWS' (FORMAT binary);
		SET max_parallel_maintenance_workers = 4;
		CREATE INDEX shop_idx ON shop USING gpuvec (tokens, brand, color, day, seller, price);
		VACUUM (ANALYZE, FREEZE) shop;
	SQL
	make_shares shop 0.01 0.1 0.5
}

by_index='-c enable_seqscan=off'
by_bitmap='-c enable_seqscan=off -c enable_indexonlyscan=off'
by_scan='-c enable_indexscan=off -c enable_bitmapscan=off -c enable_indexonlyscan=off -c max_parallel_workers_per_gather=4'

# facet LABEL STATEMENT GOAL: sorted rows are compared
facet() {
	local ms
	progress "$1"
	PGOPTIONS="$by_scan" psql_ -c "$2" | sort >"$work/expected"
	PGOPTIONS="$by_index" psql_ -c "$2" | sort | cmp -s - "$work/expected" || fail "groups differ: $1"
	ms=$(milliseconds "$by_index" "$2")
	goal "$1: ms" "$ms" '<=' "$3"
	figure " in the engine" "$(in_engine "$2")"
	[ "$SCANS" = yes ] || return 0
	figure " by a bitmap scan" "$(milliseconds "$by_bitmap" "$2")"
	figure " by a sequential scan" "$(milliseconds "$by_scan" "$2")"
}

# four CONDITION: four facets in one statement
four() {
	printf "SELECT 'brand' AS facet, brand::int AS value, count(*) FROM shop WHERE %s GROUP BY brand UNION ALL SELECT 'color', color, count(*) FROM shop WHERE %s GROUP BY color UNION ALL SELECT 'year', day - date '2016-01-01', count(*) FROM shop WHERE %s GROUP BY day UNION ALL SELECT 'price', NULL, count(*) FROM shop WHERE %s AND price < 1000" "$1" "$1" "$1" "$1"
}

facets() {
	local share id most='price <= 6100' ranked
	while IFS='|' read -r share id; do
		facet "brands of an id of $share of the rows$1" "SELECT brand, count(*) FROM shop WHERE tokens && '{$id}' GROUP BY brand" "$GOAL"
	done < <(psql_ -c 'SELECT share, id FROM shares ORDER BY share')
	while IFS='|' read -r share id; do
		facet "10 ids of an id of $share$1" "SELECT id, count(*) FROM shop, unnest(tokens) AS t (id) WHERE tokens && '{$id}' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10" "$(calc "$GOAL * 5")"
	done < <(psql_ -c 'SELECT share, id FROM shares ORDER BY share')
	id=$(psql_ -c 'SELECT id FROM shares WHERE share = 0.5')
	facet "all ids, of 0.5$1" "SELECT id, count(*) FROM shop, unnest(tokens) AS t (id) WHERE tokens && '{$id}' GROUP BY 1" "$(calc "$GOAL * 20")"
	facet "prices of brands, of 0.5$1" "SELECT brand, count(*), min(price), max(price) FROM shop WHERE tokens && '{$id}' GROUP BY brand" "$GOAL"
	facet "days of 61 %$1" "SELECT day, count(*) FROM shop WHERE $most GROUP BY day" "$GOAL"
	facet "sellers of 61 %$1" "SELECT seller, count(*) FROM shop WHERE $most GROUP BY seller" "$(calc "$GOAL * 20")"
	facet "four facets of 61 %$1" "$(four "$most")" "$GOAL"
	ranked="SELECT 'rank', number::int, 0 FROM shop ORDER BY tokens <-> '$(psql_ -c 'SELECT tokens FROM shop WHERE number = 7')' LIMIT 10"
	progress "with a ranking$1"
	figure "first 10 by rank$1" "$(milliseconds "$by_index" "$ranked")"
	figure "four facets of 0.5$1" "$(milliseconds "$by_index" "$(four "tokens && '{$id}'")")"
	figure "both in one statement$1" "$(milliseconds "$by_index" "($ranked) UNION ALL $(four "tokens && '{$id}'")")"
}

bench_server "shared_buffers = 8GB
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
facets ''
if [ "$UNPROVEN" = yes ]; then
	unsee shop 100
	facets ', 1 % of pages unproven'
	unsee shop 10
	facets ', 10 % unproven'
fi
print_goals 'facets by an index'
[ "$failures" = 0 ] || exit 1
