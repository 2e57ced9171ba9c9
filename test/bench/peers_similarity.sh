# Contenders of bench-peers for text and fingerprints.  To be sourced after peers_lib.sh.
#
#	measure_text			gpuvec's sets of trigrams beside pg_trgm, by the same similarity: KNN (its GiST
#							index) and threshold (its GIN index), on descriptions of Debian's packages
#							(test/data) and on SIZE strings of their words.  Thresholds are asked for
#							one query a statement, and for BATCH queries in one: gpuvec by its batch
#							function, pg_trgm by a join with a table of queries
#	measure_fingerprints	gpuvec beside RDKit's cartridge on fingerprints of 2,048 bits (setgen.h, mode F),
#							both with the same bits and by Tanimoto's similarity: threshold (its GiST index)
#							and KNN, for each number of rows of FINGERPRINTS
#	measure_counts			KNN of COUNTS count fingerprints, as vectors
#
# All text is ASCII, for which both kinds of trigrams are the same.  In RDKit 2022.09 the GiST index gives
# wrong nearest neighbours: it is shown with its recall, and KNN is compared with RDKit's sequential sort.
# The thresholds are the defaults of pg_trgm (SIMILARITY, 0.3) and of RDKit (TANIMOTO, 0.5).
# Quotients are of the contender's time and gpuvec's.  GOAL_KNN is that wanted of pg_trgm's KNN, GOAL_THRESHOLD of its thresholds in
# one statement: a lone query of a small table is mostly parsed and planned.

: "${SIZE:=1000000}" "${FINGERPRINTS:=100000 1000000}" "${COUNTS:=100000}" "${NEAREST:=10}" "${BATCH:=100}" "${SIMILARITY:=0.3}" "${TANIMOTO:=0.5}"
GOAL_KNN=30 GOAL_THRESHOLD=100
goals=()						# lines of their table, made by faster

# scan_of INDEX: how a plan names a scan of it, of whichever kind
scan_of() { echo "Index\( Only\)\? Scan \(using\|on\) $1"; }

# faster LABEL GPUVEC_MS OTHER_MS [GOAL]
faster() {
	local table=("${lines[@]}") quotient
	quotient=$(calc "$3 / $2" 1)
	lines=("${goals[@]}")
	if [ -n "${4:-}" ]; then goal "$1" "$quotient" '>=' "$4"; else figure "$1" "$quotient"; fi
	goals=("${lines[@]}")
	lines=("${table[@]}")
}

# ---- text ----

# The packages, and their words in the order of frequency; both are there once
load_packages() {
	psql_ -v data="$here/../data" -f "$here/../data/load.sql" >/dev/null || die "could not load the packages; is xz there?"
	psql_ <<-SQL || die "could not make the packages' table"
		CREATE TABLE docs_packages AS SELECT row_number() OVER (ORDER BY name) AS id, description AS t FROM packages
			WHERE description ~ '^[ -~]*$';
		CREATE TABLE vocabulary AS SELECT row_number() OVER (ORDER BY id) AS id, word FROM words WHERE word ~ '^[a-z]+$';
	SQL
}

# Strings of 3 to 8 words, frequent ones first of all
make_strings() {
	psql_ <<-SQL || die "could not make strings"
		CREATE TABLE docs_strings AS SELECT i AS id, string_agg(word, ' ' ORDER BY j) AS t
			FROM (SELECT i, j, floor(power((SELECT count(*) FROM vocabulary), (hashint8extended(i * 16 + j, 17) & 1048575) / 1048576.0))::bigint AS word_id
				FROM generate_series(1, $1) i, generate_series(1, 8) j WHERE j <= 3 + (hashint8extended(i, 18) & 1048575) % 6) w
			JOIN vocabulary v ON v.id = word_id GROUP BY i;
	SQL
}

# Texts of the table with a letter changed in the middle
make_text_queries() {
	psql_ <<-SQL || die "could not make queries"
		CREATE TABLE queries_$1 AS SELECT n, overlay(t PLACING 'q' FROM 1 + length(t) / 2 FOR 1) AS q
			FROM (SELECT t, row_number() OVER (ORDER BY hashint8extended(id, 19), id) AS n FROM docs_$1 WHERE t ~ '^[A-Za-z0-9 ,.-]{12,}$') x
			WHERE n <= greatest($QUERIES, $BATCH);
		VACUUM ANALYZE queries_$1;
	SQL
	psql_ -c "SELECT q FROM queries_$1 WHERE n <= $QUERIES ORDER BY n" >"$work/queries_$1"
	# a statement with all queries
	echo all >"$work/queries_batch_$1"
}

# compare_text_batch TABLE: BATCH thresholds in one statement
compare_text_batch() {
	local table=$1 batch=batch_$1 queries ours theirs ms
	table_rows[$batch]=${table_rows[$table]}
	queries="(SELECT array_agg(idset_trigrams(q) ORDER BY n) FROM queries_$table WHERE n <= $BATCH)"
	ours="gpuvec_topk_batch_rows(NULL::docs_$table, 'tr', $queries, NULL, 'jaccard', $SIMILARITY)"
	theirs="queries_$table JOIN docs_$table ON t % q WHERE n <= $BATCH"
	WANTED=any contender "gpuvec, $BATCH queries, at least $SIMILARITY" "$batch" "" "SELECT query, (item).id FROM $ours ORDER BY 1, 2" \
		'Function: gpuvec_topk_batch_rows' reference "gpuvec, $table"
	ms=$last_ms
	contender "pg_trgm, $BATCH queries, at least $SIMILARITY (GIN)" "$batch" "SET pg_trgm.similarity_threshold = $SIMILARITY; SET enable_seqscan = off" \
		"SELECT n, id FROM $theirs ORDER BY 1, 2" "$(scan_of "docs_${table}_gin")" exact "GIN, $table"
	faster "pg_trgm / gpuvec, $BATCH thresholds in one statement, ${table_rows[$table]} $table" "$ms" "$last_ms" "$GOAL_THRESHOLD"
}

# compare_text TABLE: both ways of asking
compare_text() {
	local table=$1 knn threshold trigrams="idset_trigrams(:q)"
	table_rows[$table]=$(psql_ -c "SELECT count(*) FROM docs_$table")
	psql_ -c "ALTER TABLE docs_$table ADD COLUMN tr idset GENERATED ALWAYS AS (idset_trigrams(t)) STORED" -c "VACUUM ANALYZE docs_$table" ||
		die "could not make trigrams"
	make_text_queries "$table"
	index "gpuvec, $table" "CREATE INDEX docs_${table}_gpuvec ON docs_$table USING gpuvec (tr)" "docs_${table}_gpuvec"
	index "GiST, $table" "CREATE INDEX docs_${table}_gist ON docs_$table USING gist (t gist_trgm_ops)" "docs_${table}_gist"
	index "GIN, $table" "CREATE INDEX docs_${table}_gin ON docs_$table USING gin (t gin_trgm_ops)" "docs_${table}_gin"
	warm_up "$table" tr
	contender 'gpuvec, KNN' "$table" "" "SELECT jaccard_similarity(tr, $trigrams)::real FROM docs_$table ORDER BY tr <%> $trigrams LIMIT $K" \
		"$(scan_of "docs_${table}_gpuvec")" reference "gpuvec, $table"
	knn=$last_ms
	contender 'pg_trgm, KNN (GiST)' "$table" "SET enable_seqscan = off" "SELECT similarity(t, :q) FROM docs_$table ORDER BY t <-> :q LIMIT $K" \
		"$(scan_of "docs_${table}_gist")" exact "GiST, $table"
	faster "pg_trgm / gpuvec, KNN, ${table_rows[$table]} $table" "$knn" "$last_ms" "$GOAL_KNN"
	# both of pg_trgm's indexes serve a threshold
	psql_ -c "DROP INDEX docs_${table}_gist"
	WANTED=any contender "gpuvec, at least $SIMILARITY" "$table" "" "SELECT id FROM docs_$table WHERE tr <<->> ($trigrams, $SIMILARITY, 'jaccard') ORDER BY id" \
		"$(scan_of "docs_${table}_gpuvec")" reference "gpuvec, $table"
	threshold=$last_ms
	contender "pg_trgm, at least $SIMILARITY (GIN)" "$table" "SET pg_trgm.similarity_threshold = $SIMILARITY; SET enable_seqscan = off" \
		"SELECT id FROM docs_$table WHERE t % :q ORDER BY id" "$(scan_of "docs_${table}_gin")" exact "GIN, $table"
	faster "pg_trgm / gpuvec, threshold, ${table_rows[$table]} $table" "$threshold" "$last_ms"
	compare_text_batch "$table"
}

measure_text() {
	local K=$NEAREST
	has_extension pg_trgm || { missing 'pg_trgm' packages; return; }
	psql_ -c "SET client_min_messages = error; CREATE EXTENSION pg_trgm" || die "could not create pg_trgm"
	load_packages
	compare_text packages
	make_strings "$SIZE"
	compare_text strings
	psql_ -c "DROP TABLE docs_packages, docs_strings, queries_packages, queries_strings, packages, words, vocabulary"
}

# ---- fingerprints ----

# fingerprints TABLE ROWS: the bits as a set, and as RDKit has them
make_fingerprints() {
	psql_ <<-SQL || die "could not make fingerprints"
		CREATE TABLE docs_$1 (id bigint NOT NULL, tokens idset NOT NULL);
		COPY docs_$1 FROM PROGRAM '$work/bench_gen docs --mode F --order random --n-docs $2' (FORMAT binary);
		CREATE TABLE rdkit_$1 AS SELECT id, bfp_from_binary_text(idset_to_bytea(tokens, 256)) AS f FROM docs_$1;
		VACUUM ANALYZE docs_$1;
		VACUUM ANALYZE rdkit_$1;
	SQL
	as_user "$work/bench_gen" literals --mode F --n-docs "$2" --n-queries "$QUERIES" >"$work/queries_$1"
	table_rows[$1]=$2
}

# Servers of the latest minor releases refuse the script of RDKit 2022.09, whose operator @= names
# another operator's commutator and negator.  Then a copy without these is put into the staging folder.
create_rdkit() {
	local create="SET client_min_messages = error; CREATE EXTENSION rdkit" script
	psql_ -c "$create" 2>/dev/null && return
	for script in "$sharedir"/extension/rdkit--*.sql; do
		sed '/CREATE OPERATOR @= (/,/);/ { /COMMUTATOR/d; /NEGATOR/d }' "$script" >"$stage$sharedir/extension/${script##*/}" || return
	done
	cp "$sharedir/extension/rdkit.control" "$stage$sharedir/extension/" && chmod a+r "$stage$sharedir"/extension/rdkit* || return
	psql_ -c "$create" && progress "RDKit: its script does not fit this server; took a copy without the wrong clauses of operator @="
}

# compare_fingerprints ROWS
compare_fingerprints() {
	local table=fp_$1 knn threshold q="bfp_from_binary_text(idset_to_bytea(:q::idset, 256))" nearest
	make_fingerprints "$table" "$1"
	nearest="SELECT tanimoto_sml(f, $q) FROM rdkit_$table ORDER BY f <%> $q LIMIT $K"
	index "gpuvec, $table" "CREATE INDEX docs_${table}_gpuvec ON docs_$table USING gpuvec (tokens)" "docs_${table}_gpuvec"
	warm_up "$table"
	WANTED=any contender "gpuvec, fingerprints, at least $TANIMOTO" "$table" "" "SELECT id FROM docs_$table WHERE tokens <<->> (:q, $TANIMOTO, 'jaccard') ORDER BY id" \
		"$(scan_of "docs_${table}_gpuvec")" reference "gpuvec, $table"
	threshold=$last_ms
	index "RDKit, $table" "CREATE INDEX rdkit_${table}_gist ON rdkit_$table USING gist (f)" "rdkit_${table}_gist"
	contender "RDKit, at least $TANIMOTO (GiST)" "$table" "SET rdkit.tanimoto_threshold = $TANIMOTO; SET enable_seqscan = off" \
		"SELECT id FROM rdkit_$table WHERE f % $q ORDER BY id" "$(scan_of "rdkit_${table}_gist")" exact "RDKit, $table"
	faster "RDKit / gpuvec, threshold, $1 fingerprints" "$threshold" "$last_ms"
	contender 'gpuvec, fingerprints, KNN' "$table" "" "SELECT jaccard_similarity(tokens, :q) FROM docs_$table ORDER BY tokens <%> :q LIMIT $K" \
		"$(scan_of "docs_${table}_gpuvec")" reference "gpuvec, $table"
	knn=$last_ms
	contender 'RDKit, KNN: sequential scan and sort, one process' "$table" "$no_index; $one_process" "$nearest" "Seq Scan on rdkit_$table" exact
	faster "RDKit / gpuvec, KNN by a sequential scan in one process, $1 fingerprints" "$knn" "$last_ms"
	contender 'RDKit, KNN (GiST), which is wrong' "$table" "SET enable_seqscan = off" "$nearest" \
		"$(scan_of "rdkit_${table}_gist")" similarities "RDKit, $table"
	psql_ -c "DROP TABLE docs_$table, rdkit_$table"
}

measure_fingerprints() {
	local K=$NEAREST rows
	if ! has_extension rdkit || ! create_rdkit; then
		missing "RDKit's cartridge" fingerprints
		return
	fi
	for rows in $FINGERPRINTS; do compare_fingerprints "$rows"; done
}

# ---- count fingerprints ----

# make_counts ROWS: molecules of a chain, a ring, a link, a ring and an end.
# Their Morgan fingerprints say how often each environment is there: as RDKit
# has them, and as vectors of the same ids and counts.  RDKit writes four
# integers, the last of which is the number of pairs, and the pairs, in
# little-endian.
make_counts() {
	psql_ <<-SQL || die "could not make count fingerprints"
		CREATE FUNCTION int_at(b bytea, at int) RETURNS int8 IMMUTABLE LANGUAGE sql AS
			\$\$ SELECT get_byte(b, at) + (get_byte(b, at + 1) << 8) + (get_byte(b, at + 2) << 16) + (get_byte(b, at + 3)::int8 << 24) \$\$;
		CREATE FUNCTION counts_of(b bytea) RETURNS idvec IMMUTABLE LANGUAGE sql AS
			\$\$ SELECT idvec_agg(int_at(b, 16 + 8 * i), int_at(b, 20 + 8 * i)) FROM generate_series(0, int_at(b, 12)::int - 1) i \$\$;
		CREATE FUNCTION piece(i int, place int, pieces text[]) RETURNS text IMMUTABLE LANGUAGE sql AS
			\$\$ SELECT pieces[1 + (hashint8extended(i * 8::int8 + place, 20261129) & 1048575) % cardinality(pieces)] \$\$;
		CREATE TABLE rdkit_counts AS SELECT i AS id, morgan_fp(mol_from_smiles((piece(i, 1, '{C,CC,CCC,CC(C),OC,NC,FC,ClC,BrC,CSC,CNC,COC}') ||
				piece(i, 2, '{c1ccc(cc1),C1CCC(CC1),c1ncc(cn1),N1CCN(CC1),c1csc(c1),c1cc(ccc1),C1CC(C1),c1oc(cc1)}') ||
				piece(i, 3, '{C,CC,C(=O),C(=O)N,CO,CN,S(=O)(=O),CC(O),C(N),CCO,COC,C=C}') ||
				piece(i, 4, '{c1ccc(cc1),C1CCC(CC1),c1ncc(cn1),c1csc(c1),c1cc(ccc1),C1CC(C1),c1oc(cc1),c1ccnc(c1)}') ||
				piece(i, 5, '{C,O,N,F,Cl,Br,C#N,C(=O)O,C(F)(F)F,OC,N(C)C,S(=O)(=O)N}'))::cstring), 2) AS f
			FROM generate_series(1, $1) i;
		CREATE TABLE docs_counts AS SELECT id, counts_of(f::text::bytea) AS terms FROM rdkit_counts WHERE f IS NOT NULL;
		DELETE FROM rdkit_counts WHERE f IS NULL;
		ALTER TABLE rdkit_counts ADD PRIMARY KEY (id);
		ALTER TABLE docs_counts ADD PRIMARY KEY (id);
		VACUUM ANALYZE rdkit_counts;
		VACUUM ANALYZE docs_counts;
	SQL
	psql_ -c "SELECT id FROM docs_counts ORDER BY hashint8extended(id, 5) LIMIT $QUERIES" >"$work/queries_counts"
	table_rows[counts]=$(psql_ -c "SELECT count(*) FROM docs_counts")
}

# nearest_counts TABLE QUERY: by Tanimoto's similarity of counts
nearest_counts() { echo "SELECT idvec_jaccard_similarity(terms, $2) FROM $1 ORDER BY terms <%> $2 LIMIT $NEAREST"; }

measure_counts() {
	local K=$NEAREST knn ours="(SELECT terms FROM docs_counts WHERE id = :q)" theirs="(SELECT f FROM rdkit_counts WHERE id = :q)"
	if ! has_extension rdkit || ! create_rdkit; then
		missing "RDKit's cartridge" counts
		return
	fi
	make_counts "$COUNTS"
	index 'gpuvec, counts' "CREATE INDEX docs_counts_gpuvec ON docs_counts USING gpuvec (terms)" docs_counts_gpuvec
	warm_up counts terms
	contender 'gpuvec, counts, KNN' counts "" "$(nearest_counts docs_counts "$ours")" "$(scan_of docs_counts_gpuvec)" reference 'gpuvec, counts'
	knn=$last_ms
	contender 'gpuvec, counts: sequential scan and sort, one process' counts "$one_process" \
		"$(nearest_counts '(SELECT * FROM docs_counts OFFSET 0) d' "$ours")" "Seq Scan on docs_counts" exact
	contender 'RDKit, counts: sequential scan and sort, one process' counts "$one_process" \
		"SELECT tanimoto_sml(f, $theirs) FROM rdkit_counts ORDER BY tanimoto_sml(f, $theirs) DESC LIMIT $K" "Seq Scan on rdkit_counts" exact
	faster "RDKit / gpuvec, KNN of counts, RDKit by a sequential scan in one process" "$knn" "$last_ms"
	psql_ -c "DROP TABLE docs_counts, rdkit_counts"
}
