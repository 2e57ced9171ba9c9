#!/bin/bash
# Sparse vectors by sequential scans and by an index, through SQL.
#
# Called by "make bench-sparse" (bench.mk lists the variables).  Starts a
# private server, makes ROWS rows of mode S of sparsegen.h, and asks for the 10
# nearest rows of QUERIES queries, and for the 1,000 nearest of more skewed
# ones.  Answers are compared with the reference (bench_sparse.cpp), if there
# is one for these numbers.  Then, in one process, ROUNDS times in turn, the
# milliseconds of a query:
#
#	gpuvec		idvec, by inner product and by cosine
#	pgvector	sparsevec of the same vectors, if the extension is there; its
#				best score must be the same but for rounding
#
# The same queries by an index: the reference's answers, the milliseconds of
# each query, once more with a filter column that 1 % and 0.01 % of the rows
# pass, and what the engine's copy takes.
#
# Prints medians.  Exit status 1 if answers are wrong.
set -uo pipefail

: "${ROWS:=200000}" "${QUERIES:=200}" "${ROUNDS:=10}" "${ENGINE:=auto}"
: "${BENCH_BIN:?run this with \"make bench-sparse\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making $ROWS rows"
	cp "$BENCH_BIN/bench_sparse" "$work/bench_sparse" && chmod 755 "$work/bench_sparse" || exit 2
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE rows (id bigint, terms idvec);
		COPY rows FROM PROGRAM '$work/bench_sparse rows $ROWS' (FORMAT binary);
		CREATE TABLE queries (id bigint, terms idvec);
		COPY queries FROM PROGRAM '$work/bench_sparse queries $QUERIES 0.6' (FORMAT binary);
		CREATE TABLE skewed (id bigint, terms idvec);
		COPY skewed FROM PROGRAM '$work/bench_sparse queries $QUERIES 0.8' (FORMAT binary);
		VACUUM (ANALYZE, FREEZE) rows, queries, skewed;
	SQL
}

# check_answers QUERIES K ZQ [SETTINGS]: of all queries of a table
check_answers() {
	local sums order=', r.id'
	# by an index, rows of equal distance come in the order of their tids
	[ -z "${4:-}" ] || order=
	progress "$2 rows for each query of $1"
	sums=$(psql_ -F ' ' <<-SQL | "$work/bench_sparse" checksum "$ROWS" "$QUERIES" "$2" "$3"
		SET extra_float_digits = 1;
		${4:-}
		SELECT x.id, x.score FROM $1 q, LATERAL
			(SELECT r.id, idvec_inner_product(r.terms, q.terms) AS score FROM rows r
				ORDER BY r.terms <#> q.terms$order LIMIT $2) x
		ORDER BY q.id, x.score DESC, x.id;
	SQL
	)
	[ $? = 0 ] || fail "$1: other rows than the reference"
	figure "index_sum, score_sum, index_fnv of $1, k = $2" "$sums"
}

# nearest TABLE COLUMN OPERATOR CAST: the best row of some queries
nearest() {
	local n
	echo "SET max_parallel_workers_per_gather = 0; SET extra_float_digits = 1;"
	echo "\\timing on"
	for n in 3 7 11; do
		echo "SELECT $2 $3 (SELECT terms$4 FROM queries WHERE id = $n) FROM $1 ORDER BY 1 LIMIT 10;"
	done
}

# beside OPERATOR: both types, in turn
beside() {
	local round ours theirs
	rm -f "$work"/ours* "$work"/theirs*
	for ((round = 0; round <= ROUNDS; round++)); do
		nearest rows terms "$1" '' | psql_ >"$work/ours"
		times <"$work/ours" >>"$work/ours.ms"
		[ -z "$peer" ] || nearest vectors v "$1" '::sparsevec(30523)' | psql_ >"$work/theirs"
		[ -z "$peer" ] || times <"$work/theirs" >>"$work/theirs.ms"
		# the first round warms up
		[ $round -gt 0 ] || rm -f "$work"/*.ms
	done
	ours=$(median <"$work/ours.ms")
	figure "idvec $1: ms" "$ours"
	[ -n "$peer" ] || return
	theirs=$(median <"$work/theirs.ms")
	figure "sparsevec $1: ms" "$theirs"
	figure " times" "$(calc "$theirs / $ours")"
	# pgvector adds up in float4
	paste <(grep -v Time "$work/ours") <(grep -v Time "$work/theirs") |
		awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * ($1 < 0 ? -$1 : $1) + 1e-6) exit 1 }' ||
		fail "$1: other distances than pgvector's"
}

# by_index LABEL CONDITION: milliseconds of a query, each asked once
by_index() {
	{
		echo "SET enable_seqscan = off; SET enable_sort = off; SET plan_cache_mode = force_generic_plan;"
		echo "PREPARE q AS SELECT id FROM rows $2 ORDER BY terms <#> \$1 LIMIT 10;"
		printf '\\o /dev/null\n'
		echo "EXECUTE q('{1:1}');"
		printf '\\timing on\n'
		psql_ -c "SELECT format('EXECUTE q(%L);', terms) FROM queries ORDER BY id"
	} | psql_ | times >"$work/index.ms"
	figure "idvec by index, $1: ms" "$(median <"$work/index.ms")"
}

index_figures() {
	local settings="SET enable_seqscan = off; SET enable_sort = off;"
	progress "an index, and its copy"
	psql_ <<-SQL >/dev/null || die "could not make the index"
		CREATE TABLE indexed AS SELECT id, terms, (id * 7919 % 10000)::int AS part FROM rows ORDER BY id;
		DROP TABLE rows;
		ALTER TABLE indexed RENAME TO rows;
		VACUUM (ANALYZE, FREEZE) rows;
		CREATE INDEX ON rows USING gpuvec (terms, part);
	SQL
	check_answers queries 10 0.6 "$settings"
	check_answers skewed 1000 0.8 "$settings"
	figure "bytes of the copy a pair" "$(psql_ -c "SELECT round((bytes + device_bytes) / ids::numeric, 2) FROM gpuvec_mirrors WHERE relation = 'rows'::regclass")"
	by_index 'all rows' ''
	by_index '1 % of the rows' 'WHERE part < 100'
	by_index '0.01 % of the rows' 'WHERE part = 7'
}

bench_server "shared_buffers = 4GB
gpuvec.engine = $ENGINE"
make_tables
check_answers queries 10 0.6
check_answers skewed 1000 0.8
peer=
if has_extension vector; then
	progress "the same vectors as sparsevec"
	psql_ -c "CREATE EXTENSION vector" -c "SELECT gpuvec_sparsevec_casts()" \
		-c "CREATE TABLE vectors AS SELECT id, terms::sparsevec(30523) AS v FROM rows" -c "VACUUM (ANALYZE, FREEZE) vectors" >/dev/null ||
		die "could not make vectors"
	peer=yes
fi
progress "timing"
beside '<#>'
beside '<=>'
index_figures
print_goals "$ROWS sparse vectors, sequential scans in one process, and an index"
[ "$failures" = 0 ] || exit 1
