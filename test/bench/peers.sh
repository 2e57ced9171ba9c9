#!/bin/bash
# Compares an ordered index scan with what else PostgreSQL can do, end to end through SQL.
#
# Called by "make bench-peers" (bench.mk lists the variables).  Starts a private server,
# makes the data of setgen.h, mode B, asks each contender the same queries for the 100
# nearest rows, and prints one table.  The contenders:
#
#	gpuvec					ORDER BY tokens <-> q, an index scan
#	sequential scan			the same statement without index scans, in one process and with the
#							default number of workers
#	intarray				int4[], a sequential scan, the distance computed from icount()
#	GIN with intarray		the same over the rows that && finds
#	RUM						KNN over int4[], by Jaccard, if the extension is there
#	pgvector				sparsevec with HNSW, by cosine, if the extension is there
#
#	pg_trgm					beside sets of trigrams, on text: peers_similarity.sh
#	RDKit					beside sets of bits, on fingerprints, if the extension is there
#
# PARTS are sets, text, fingerprints and counts.  RUM and pgvector get
# SMALL_ROWS rows (their indexes take long to build, and RUM is slow), and are
# compared with gpuvec on the same rows.
#
# Each query runs once, and its scores are compared with gpuvec's, byte by byte; then once more for
# the time, or seven times if that takes less than 50 ms.  The plans must be what the names say.  Exit status 1 if an exact contender
# gives other scores, or a plan is another, or a goal is missed.  HNSW is not exact: its recall is shown.
set -uo pipefail

: "${ROWS:=1000000}" "${SMALL_ROWS:=100000}" "${QUERIES:=15}" "${THREADS:=0}" "${PEERS_ROOT:=}" "${PARTS:=sets text fingerprints counts}"
: "${BENCH_BIN:?run this with \"make bench-peers\"}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
K=100
. "$here/peers_lib.sh"
. "$here/peers_similarity.sh"

# ---- data ----

# fill NAME ROWS: tables docs_NAME (idset) and ints_NAME (int4[]) with the same rows
fill() {
	local name=$1 rows=$2 generate
	progress "$rows rows"
	generate="$work/bench_gen docs --mode B --order random --n-docs $rows"
	psql_ <<-SQL || die "could not load the tables"
		CREATE TABLE docs_$name (id bigint NOT NULL, tokens idset NOT NULL);
		COPY docs_$name FROM PROGRAM '$generate' (FORMAT binary);
		CREATE TABLE ints_$name (id bigint NOT NULL, tokens int4[] NOT NULL);
		COPY ints_$name FROM PROGRAM '$generate --ids int4' (FORMAT binary);
		VACUUM ANALYZE docs_$name;
		VACUUM ANALYZE ints_$name;
	SQL
	as_user "$work/bench_gen" literals --mode B --n-docs "$rows" --n-queries "$QUERIES" >"$work/queries_$name"
}

# ---- contenders ----

# distance A B COMMON: the Braun-Blanquet distance in SQL, as <-> computes it
distance() { echo "(greatest($1, $2) - $3)::float8 / greatest($1, $2)"; }

gpuvec_sql() { echo "SELECT tokens <-> ${2:-:q} AS d FROM docs_$1 ORDER BY tokens <-> :q LIMIT $K"; }
intarray_sql() {
	echo "SELECT $(distance 'icount(tokens)' "icount(:q::int4[])" "icount(tokens & :q::int4[])") AS d FROM ints_$1 ${2:-} ORDER BY d LIMIT $K"
}

one_process="SET max_parallel_workers_per_gather = 0"
no_index="SET enable_indexscan = off; SET enable_bitmapscan = off"
intarray="SET search_path = public, intarray"

# the rows of the table, in a mirror, with its lists ready
warm_up() { # TABLE [COLUMN]
	psql_ -c "SELECT gpuvec_prewarm('docs_$1', '${2:-tokens}')" >/dev/null
	sleep 5
}

measure_large() {
	index gpuvec "CREATE INDEX docs_large_gpuvec ON docs_large USING gpuvec (tokens)" docs_large_gpuvec
	warm_up large
	contender gpuvec large "" "$(gpuvec_sql large)" 'Index Scan using docs_large_gpuvec' reference
	contender 'sequential scan, one process' large "$no_index; $one_process" "$(gpuvec_sql large)" 'Seq Scan on docs_large' exact
	contender 'sequential scan, default workers' large "$no_index" "$(gpuvec_sql large)" 'Seq Scan on docs_large' exact
	has_extension intarray || { missing 'intarray: sequential scan' large; missing 'GIN with intarray' large; return; }
	psql_ -c "CREATE SCHEMA intarray; CREATE EXTENSION intarray SCHEMA intarray"
	contender 'intarray: sequential scan, one process' large "$intarray; $one_process" "$(intarray_sql large)" 'Seq Scan on ints_large' exact
	contender 'intarray: sequential scan, default workers' large "$intarray" "$(intarray_sql large)" 'Seq Scan on ints_large' exact
	index GIN "CREATE INDEX ints_large_gin ON ints_large USING gin (tokens intarray.gin__int_ops)" ints_large_gin
	contender 'GIN with intarray, and a sort' large "$intarray; SET enable_seqscan = off" \
		"$(intarray_sql large 'WHERE tokens && :q::int4[]')" 'Bitmap Index Scan on ints_large_gin' exact GIN
}

# RUM's distance is 1 / similarity; what is compared is the similarity of the rows it gives
measure_rum() {
	local nearest="SELECT tokens FROM ints_small WHERE tokens && :q::int4[] ORDER BY tokens <=> :q::int4[] LIMIT $K"
	has_extension rum || { missing "RUM's KNN (Jaccard)" small; return; }
	psql_ -c "CREATE EXTENSION rum"
	index RUM "CREATE INDEX ints_small_rum ON ints_small USING rum (tokens rum_anyarray_ops)" ints_small_rum
	contender 'gpuvec, Jaccard' small "" "SELECT tokens <%> :q AS d FROM docs_small ORDER BY tokens <%> :q LIMIT $K" \
		'Index Scan using docs_small_gpuvec' reference
	contender "RUM's KNN (Jaccard)" small "SET rum.array_similarity_function = 'jaccard'; SET enable_seqscan = off" \
		"SELECT tokens::idset <%> :q AS d FROM ($nearest) x" 'Index Scan using ints_small_rum' exact RUM
}

# A set is a vector of ones; dimensions count from 1
measure_pgvector() {
	local vector="(SELECT ('{' || string_agg(i + 1 || ':1', ',') || '}/65536')::sparsevec FROM unnest(%s) i)"
	has_extension vector || { missing 'pgvector: sparsevec, HNSW (cosine)' small; return; }
	psql_ <<-SQL || die "could not make vectors"
		CREATE EXTENSION vector;
		CREATE TABLE vectors_small AS SELECT id, tokens, $(printf "$vector" d.tokens) AS v FROM docs_small d;
		VACUUM ANALYZE vectors_small;
	SQL
	index pgvector "SET maintenance_work_mem = '2GB'; CREATE INDEX vectors_small_hnsw ON vectors_small USING hnsw (v sparsevec_cosine_ops)" vectors_small_hnsw
	contender 'gpuvec, cosine' small "" "SELECT tokens <=> :q AS d FROM docs_small ORDER BY tokens <=> :q LIMIT $K" \
		'Index Scan using docs_small_gpuvec' reference
	contender 'pgvector: sparsevec, HNSW (cosine)' small "SET hnsw.ef_search = $K; SET enable_seqscan = off" \
		"SELECT tokens OPERATOR(public.<=>) :q AS d FROM (SELECT tokens FROM vectors_small ORDER BY v <=> $(printf "$vector" ':q::idset') LIMIT $K) x" \
		'Index Scan using vectors_small_hnsw' approximate pgvector
}

measure_small() {
	index gpuvec-small "CREATE INDEX docs_small_gpuvec ON docs_small USING gpuvec (tokens)" docs_small_gpuvec
	warm_up small
	contender gpuvec small "" "$(gpuvec_sql small)" 'Index Scan using docs_small_gpuvec' reference gpuvec-small
	contender 'sequential scan, one process' small "$no_index; $one_process" "$(gpuvec_sql small)" 'Seq Scan on docs_small' exact
	measure_rum
	measure_pgvector
}

bench_server "shared_buffers = 4GB
gpuvec.engine = cpu
gpuvec.cpu_threads = $THREADS"
if [[ " $PARTS " = *" sets "* ]]; then
	fill large "$ROWS"
	measure_large
	fill small "$SMALL_ROWS"
	measure_small
	psql_ -c "DROP TABLE docs_large, ints_large, docs_small, ints_small CASCADE"
	print_table "LIMIT $K, mode B"
	lines=()
fi
if [[ " $PARTS " = *" text "* ]]; then measure_text; fi
if [[ " $PARTS " = *" fingerprints "* ]]; then measure_fingerprints; fi
if [[ " $PARTS " = *" counts "* ]]; then measure_counts; fi
if [ "${#lines[@]}" -gt 0 ]; then
	print_table "LIMIT $NEAREST, text and fingerprints"
	lines=("${goals[@]}")
	print_goals "times that gpuvec is faster"
fi
progress "done; $failures failures"
[ "$failures" = 0 ]
