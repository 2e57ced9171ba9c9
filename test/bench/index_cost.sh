#!/bin/bash
# What a gpuvec index costs: COPY into an indexed table, its size, and searches of a table that grows.
#
# Called by "make bench-index" (bench.mk lists the variables).  Starts a private server,
# makes the data of setgen.h, mode B, and in one run
#
# - copies all rows into a new table without an index, and into one with an index, in turn, from
#   a file; median of REPEATS;
# - looks at the index's size on disk;
# - in each round searches for the 100 nearest rows, inserts 1,000 rows and commits, and
#   searches for the same again: the first after none, the other just after 1,000 inserted
#   rows.  It does so for ROUNDS rounds, and once more for as many as there were at the
#   beginning (QUERIES).  All that is done TIMES times, each with a new table; what is shown are
#   medians of the medians of the first and of the last QUERIES rounds.
#
# Every query's scores are compared with those of a sequential scan at the end.
#
# Prints a table with the goals.  Exit status 1 if one was missed, or scores differ.
set -uo pipefail

: "${ROWS:=1000000}" "${QUERIES:=25}" "${THREADS:=0}" "${REPEATS:=5}" "${ROUNDS:=100}" "${TIMES:=3}"
: "${BENCH_BIN:?run this with \"make bench-index\"}"
K=100
INSERTED=1000
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

# make_files: the rows, and those that are inserted later
make_files() {
	local total=$((ROWS + INSERTED * (ROUNDS + QUERIES)))
	progress "making $total rows"
	psql_ <<-SQL || die "could not make the rows"
		CREATE TABLE source (id bigint NOT NULL, tokens idset NOT NULL);
		COPY source FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $total' (FORMAT binary);
		COPY (SELECT * FROM source LIMIT $ROWS) TO '$work/rows' (FORMAT binary);
		CREATE TABLE later AS SELECT row_number() OVER () - 1 AS n, * FROM (SELECT * FROM source OFFSET $ROWS) s;
		CREATE INDEX ON later (n);
		DROP TABLE source;
		VACUUM ANALYZE later;
	SQL
	as_user "$work/bench_gen" literals --mode B --n-docs "$total" --n-queries "$QUERIES" >"$work/queries"
}

# copy INDEX: milliseconds of COPY into a new table docs; INDEX is the statement for the index, if any
copy() {
	psql_ <<-SQL | times
		DROP TABLE IF EXISTS docs;
		CREATE TABLE docs (id bigint NOT NULL, tokens idset NOT NULL);
		$1;
		CHECKPOINT;
		\\timing on
		COPY docs FROM '$work/rows' (FORMAT binary);
	SQL
}

measure_copy() {
	local i without with
	: >"$work/without"
	: >"$work/with"
	for ((i = 0; i < REPEATS; i++)); do
		copy "" >>"$work/without"
		copy "CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)" >>"$work/with"
		progress "COPY without an index $(tail -n 1 "$work/without") ms, with it $(tail -n 1 "$work/with") ms"
	done
	without=$(median <"$work/without")
	with=$(median <"$work/with")
	figure "COPY of $ROWS rows without an index, ms" "$without"
	figure 'the same with an index, ms' "$with"
	goal 'with / without' "$(calc "$with / $without" 3)" '<=' 1.15
	goal 'size of the index, pages' "$(psql_ -c "SELECT pg_relation_size('docs_tokens') / current_setting('block_size')::int")" '<=' 1
}

search_sql() { echo "SELECT tokens <-> '$1' AS d FROM docs ORDER BY tokens <-> '$1' LIMIT $K"; }

# The searches and insertions of rounds $1 to $2, one session; "search after none" and "just after" are
# the first and the second of three times
rounds() {
	local i q queries
	mapfile -t queries <"$work/queries"
	echo '\o /dev/null'
	# the session's own first search
	search_sql "${queries[0]}"
	echo ';'
	for ((i = $1; i < $2; i++)); do
		q=${queries[i % QUERIES]}
		printf '%s;\n\\timing on\n%s;\n\\timing off\n' "$(search_sql "$q")" "$(search_sql "$q")"
		echo "INSERT INTO docs SELECT id, tokens FROM later WHERE n >= $((i * INSERTED)) AND n < $(((i + 1) * INSERTED));"
		printf '\\timing on\n%s;\n\\timing off\n' "$(search_sql "$q")"
	done
}

# timed_rounds FIRST END NAME: medians of these rounds, added to what NAME.none and NAME.after have
timed_rounds() {
	progress "rounds $1 to $(($2 - 1))"
	rounds "$1" "$2" | psql_ | times >"$work/times"
	[ "$(grep -c . "$work/times")" = $((2 * ($2 - $1))) ] || die "a search is missing"
	[ -n "${3:-}" ] || return 0
	awk 'NR % 2 == 1' "$work/times" | median >>"$work/$3.none"
	awk 'NR % 2 == 0' "$work/times" | median >>"$work/$3.after"
}

# All rounds, on a table that is made anew
measure_rounds() {
	copy "CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)" >/dev/null
	psql_ -c "VACUUM ANALYZE docs" -c "SELECT gpuvec_prewarm('docs', 'tokens')" >/dev/null
	sleep 5
	timed_rounds 0 "$QUERIES" first
	[ "$ROUNDS" -le "$QUERIES" ] || timed_rounds "$QUERIES" "$ROUNDS"
	timed_rounds "$ROUNDS" $((ROUNDS + QUERIES)) last
}

print_rounds() {
	figure "$2: search after nothing was inserted, ms" "$(median <"$work/$1.none")"
	figure "$2: search just after $INSERTED rows, ms" "$(median <"$work/$1.after")"
	goal "$2: just after / after nothing" "$(quotient "$1.after" "$1.none")" '<=' 1.5
}

check_answers() {
	local q
	progress "checking the answers"
	while read -r q; do echo "$(search_sql "$q");"; done <"$work/queries" >"$work/statements"
	{ echo "EXPLAIN $(head -n 1 "$work/statements")"; } | psql_ | grep -q 'Index Scan using docs_tokens' || fail "the index is not used"
	psql_ -f "$work/statements" >"$work/answers"
	{ echo 'SET enable_indexscan = off;'; cat "$work/statements"; } | psql_ >"$work/reference"
	[ "$(grep -c . "$work/answers")" = $((QUERIES * K)) ] && cmp -s "$work/answers" "$work/reference" ||
		fail "the index gives other scores than a sequential scan"
}

bench_server "shared_buffers = 4GB
gpuvec.engine = cpu
gpuvec.cpu_threads = $THREADS"
make_files
measure_copy
rm -f "$work"/{first,last}.{none,after}
for ((i = 0; i < TIMES; i++)); do measure_rounds; done
print_rounds first 'first rounds'
print_rounds last "after $ROUNDS rounds"
figure "search just after $INSERTED rows: after $ROUNDS rounds / first rounds" "$(quotient last.after first.after)"
figure "search after nothing was inserted: after $ROUNDS rounds / first rounds" "$(quotient last.none first.none)"
check_answers
print_goals "$ROWS rows, mode B, LIMIT $K"
progress "done; $failures failures"
[ "$failures" = 0 ]
