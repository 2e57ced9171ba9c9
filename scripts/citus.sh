#!/bin/bash
# Checks gpuvec with Citus: builds both, starts a coordinator and two workers
# in a scratch folder, and compares answers with those of plain tables that
# have the same rows.
#
#   scripts/citus.sh CITUS_SOURCE_FOLDER
#
# The folder is a checkout of github.com/citusdata/citus, of a release that
# knows the version of PostgreSQL that PG_CONFIG names: 13.2 is the last one
# for 15.  It stays as it is.
#
#   FOLDER=/var/tmp/gpuvec-citus   where Citus is compiled, and kept
#   ROWS=20000   rows of the distributed table
#   MOVES=2      how often each shard of a worker is moved away and back, by
#                each mode of transfer, while sessions search
#   CLIENTS=2    these sessions
#   KEEP=yes     keep the scratch folder with the servers' data and logs
#   PG_CONFIG, WITH_CUDA, CUDA_ARCHS, BUILT_SOURCES, GPUVEC_USER: see pgenv.sh
#
# Needs what Citus needs: flex, and the headers that PostgreSQL was built with.
# Ends with "N passed, N failed"; the exit status is 1 if any failed.
set -uo pipefail

: "${FOLDER:=/var/tmp/gpuvec-citus}" "${ROWS:=20000}" "${MOVES:=2}" "${CLIENTS:=2}" "${KEEP:=no}"
export LC_ALL=C
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE PGDATA PGPASSWORD PGSSLMODE MAKEFLAGS MFLAGS MAKELEVEL
[ -e "${1:-}/src/backend/distributed/citus.control" ] || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
citus=$(cd "$1" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"

nodes=(coordinator worker_1 worker_2)
passed=0 failed=0

finish() {
	local node
	trap - EXIT
	rm -f "$work/searching"
	wait
	for node in "${nodes[@]}"; do gpuvec_stop "$node" immediate; done >/dev/null 2>&1
	rm -rf "$sockets" "$work/pid"
	if [ "$KEEP" = yes ] || [ $failed != 0 ]; then
		echo "servers and logs are in $work" >&2
	else
		rm -rf "$work"
	fi
}

# ---- Building ----

# Compile a copy of Citus, without what is not needed here
citus_build() {
	local key
	key="$citus $(grep -m 1 AC_INIT "$citus/configure.ac") $("$PG_CONFIG" --version)"
	[ "$(cat "$FOLDER/built" 2>/dev/null)" != "$key" ] || return 0
	rm -rf "$FOLDER"
	mkdir -p "$FOLDER" || return
	(cd "$citus" && tar -cf - --exclude=./.git --exclude='*.o' --exclude='*.a' --exclude='*.so' --exclude='*.bc' .) |
		tar -xf - --no-same-owner -C "$FOLDER" || return
	# later minor releases of PostgreSQL 15 have this function themselves
	if grep -q have_createdb_privilege "$("$PG_CONFIG" --includedir-server)/commands/dbcommands.h"; then
		sed -i 's/^have_createdb_privilege(void)$/citus_&/' "$FOLDER/src/include/pg_version_compat.h"
	fi
	(cd "$FOLDER" && ./configure "PG_CONFIG=$(command -v "$PG_CONFIG")" --without-libcurl --without-lz4 --without-zstd) || return
	"$MAKE" -s -C "$FOLDER" -j"$(nproc)" with_llvm=no || return
	echo "$key" >"$FOLDER/built"
}

build() {
	gpuvec_can_stage && gpuvec_build && gpuvec_stage && citus_build &&
		"$MAKE" -s -C "$FOLDER" install-extension DESTDIR="$stage" with_llvm=no
}

# ---- Servers ----

# sql NODE [ARGUMENT...]
sql() {
	local node=$1
	shift
	PGOPTIONS='-c client_min_messages=warning' "$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$sockets/$node" -U postgres -d postgres "$@" 2>&1
}

start_cluster() {
	local node
	for node in "${nodes[@]}"; do
		# A folder of sockets serves as the name of a host.  Citus looks for
		# itself among available extensions, where a staged one may not be
		# listed.
		gpuvec_start "$node" "shared_preload_libraries = 'citus, gpuvec'
			citus.local_hostname = '$sockets/$node'
			citus.enable_version_checks = off
			columnar.enable_version_checks = off
			citus.enable_statistics_collection = off
			citus.shard_count = 8
			wal_level = logical
			gpuvec.verify = on" || return
		sql "$node" -c 'CREATE EXTENSION citus' || return
	done
	sql coordinator <<-SQL
		CREATE EXTENSION gpuvec;
		SELECT citus_set_coordinator_host('$sockets/coordinator');
		SELECT citus_add_node('$sockets/worker_1', 5432);
		SELECT citus_add_node('$sockets/worker_2', 5432);
	SQL
}

# The same rows twice: in the schema plain of the coordinator alone, and in
# public, where docs, marks and clicks are distributed, queries, kinds and
# items are reference tables, and notes is a local table that Citus knows
make_tables() {
	sql coordinator <<-SQL
		SET citus.enable_ddl_propagation = off;
		CREATE SCHEMA plain;
		CREATE FUNCTION plain.tokens(i bigint) RETURNS idset IMMUTABLE LANGUAGE sql AS \$\$
			SELECT CASE WHEN i % 1000 = 999 THEN NULL WHEN i % 1000 = 998 THEN '{}'
				ELSE ARRAY[i % 97, i % 89 + 100, i % 83 + 200, i % 79 + 300, (i % 7) * (i % 3) + 400, (i % 5) * (i % 11) + 450]::idset END \$\$;
		SET search_path = plain, public;
		CREATE TABLE docs AS SELECT i AS id, (i % 10)::int AS tenant, tokens(i) AS tokens, 'title ' || i AS title FROM generate_series(1, $ROWS) AS i;
		CREATE TABLE marks AS SELECT i AS id, (i % 7)::int AS mark FROM generate_series(1, $ROWS, 3) AS i;
		CREATE TABLE notes AS SELECT i AS id, tokens(i * 3) AS tokens FROM generate_series(1, 500) AS i;
		CREATE TABLE queries AS SELECT i AS id, tokens(i * 37) AS tokens FROM generate_series(1, 40) AS i;
		CREATE TABLE kinds AS SELECT i AS tenant, 'kind ' || i % 4 AS name, tokens(i) & '{1,2,3,101,102,203,204,400,402,450,455}' AS tokens FROM generate_series(0, 9) AS i;
		CREATE TABLE items AS SELECT i AS id, ARRAY[i % 8, i % 5 - 2, (i % 3) / 4.0, i % 16 / 8.0]::real[] AS embedding FROM generate_series(1, 200) AS i;
		CREATE TABLE clicks AS SELECT u AS user_id, (u * 7 + n * 13) % 210 + 1 AS item_id, (n % 4 + 1) / 4.0::float8 AS weight
			FROM generate_series(1, 300) AS u, generate_series(1, 8) AS n;
		RESET search_path;
		RESET citus.enable_ddl_propagation;
		CREATE TABLE docs (id bigint PRIMARY KEY, tenant int, tokens idset, title text);
		CREATE TABLE marks (id bigint PRIMARY KEY, mark int);
		CREATE TABLE notes (id bigint PRIMARY KEY, tokens idset);
		CREATE TABLE queries (id bigint PRIMARY KEY, tokens idset);
		CREATE TABLE kinds (tenant int PRIMARY KEY, name text, tokens idset);
		CREATE TABLE items (id bigint PRIMARY KEY, embedding real[]);
		CREATE TABLE clicks (user_id bigint, item_id bigint, weight float8, PRIMARY KEY (user_id, item_id));
		-- a row of the day of distribution, which is in no shard later
		INSERT INTO docs VALUES (1, 1, '{1,101,201}', 'before');
		SELECT create_distributed_table('docs', 'id');
		SELECT create_distributed_table('marks', 'id', colocate_with => 'docs');
		SELECT create_distributed_table('clicks', 'user_id', colocate_with => 'none');
		SELECT create_reference_table('queries'), create_reference_table('kinds'), create_reference_table('items');
		SELECT citus_add_local_table_to_metadata('notes');
		DELETE FROM docs;
		CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
		INSERT INTO docs SELECT * FROM plain.docs;
		INSERT INTO marks SELECT * FROM plain.marks;
		INSERT INTO notes SELECT * FROM plain.notes;
		INSERT INTO queries SELECT * FROM plain.queries;
		INSERT INTO kinds SELECT * FROM plain.kinds;
		INSERT INTO items SELECT * FROM plain.items;
		INSERT INTO clicks SELECT * FROM plain.clicks;
		CREATE INDEX notes_tokens ON notes USING gpuvec (tokens);
		CREATE INDEX queries_tokens ON queries USING gpuvec (tokens);
		VACUUM ANALYZE docs, marks, notes, queries, kinds, items, clicks;
	SQL
}

# ---- Checks ----

# is NAME GOT WANTED
is() {
	if [ "$2" = "$3" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'FAILED: %s\n' "$1"
		diff <(printf '%s\n' "$2") <(printf '%s\n' "$3") | head -n 12
	fi
}

# like NAME GOT EXPRESSION
like() {
	if [[ $2 =~ $3 ]]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'FAILED: %s\n%s\nis not like: %s\n' "$1" "$2" "$3"
	fi
}

# Sets that are searched for: those of some rows, more, and one that is in no
# row
sets=("'{1,101,201,301,401,450}'" "'{14,121,217,309,400,458}'" "'{3,103,203,402}'" "'{90,455}'"
	"'{5,6,7,8,105,106,107,205,206,305,306,400,402,404}'" "'{400}'" "'{9000}'")

# each SQL: the statement for each of these sets
each() {
	local set
	for set in "${sets[@]}"; do printf '%s;\n' "${1//QUERY/$set::idset}"; done
}

# same NAME SQL: Citus' tables answer as the plain ones do, and they do answer
same() {
	local plain spread
	plain=$(each "$2" | sql coordinator -c 'SET search_path = plain, public' -f -)
	spread=$(each "$2" | sql coordinator -f -)
	is "$1: there are rows" "$(grep -c 'ERROR: ' <<<"$plain") $(grep -c -m 1 '[0-9a-z]' <<<"$plain")" '0 1'
	is "$1" "$spread" "$plain"
}

# Kinds of queries of distributed tables, each for all sets
check_queries() {
	local op
	for op in '<->' '<%>' '<=>' '<#>' '<~>'; do
		same "ORDER BY $op" "SELECT tokens $op QUERY FROM docs ORDER BY tokens $op QUERY LIMIT 10"
	done
	same "WITH TIES" "SELECT id, d FROM (SELECT id, tokens <-> QUERY AS d FROM docs ORDER BY d FETCH FIRST 10 ROWS WITH TIES) x ORDER BY d, id LIMIT 10"
	same "a second key" "SELECT id, tokens FROM docs ORDER BY tokens <-> QUERY, id LIMIT 20 OFFSET 5"
	same "a filter beside" "SELECT tokens <-> QUERY FROM docs WHERE tenant = 3 AND id % 4 = 1 ORDER BY tokens <-> QUERY LIMIT 10"
	same "one shard" "SELECT id, tokens <-> QUERY FROM docs WHERE id = 77 ORDER BY tokens <-> QUERY LIMIT 3"
	same "two conditions of sets" "SELECT tokens <%> QUERY FROM docs WHERE tokens && QUERY AND tokens @> 101 ORDER BY tokens <%> QUERY LIMIT 10"
	same "&&" "SELECT id FROM docs WHERE tokens && QUERY ORDER BY id"
	same "@>" "SELECT id FROM docs WHERE tokens @> (QUERY & '{3,103,203,400,401,450}') AND tenant < 4 ORDER BY id"
	same "@> id" "SELECT id FROM docs WHERE tokens @> 14 OR tokens @> 455 ORDER BY id"
	same "<@" "SELECT id FROM docs WHERE tokens <@ (QUERY | (SELECT tokens FROM queries WHERE id = 3)) ORDER BY id"
	same "=" "SELECT id FROM docs WHERE tokens = QUERY OR tokens = (SELECT tokens FROM queries WHERE id = 2) ORDER BY id"
	same "@@" "SELECT id FROM docs WHERE tokens @@ '3 & (103 | 402) & !203' ORDER BY id"
	same "<<->>" "SELECT id, braun_blanquet_similarity(tokens, QUERY) FROM docs WHERE tokens <<->> idset_threshold(QUERY, 0.3) ORDER BY id"
	for op in jaccard cosine dice overlap braun_blanquet; do
		same "$op at least" "SELECT id, ${op}_similarity(tokens, QUERY) FROM docs WHERE ${op}_similarity(tokens, QUERY) >= 0.4 ORDER BY id"
	done
	same "a colocated join" "SELECT d.id, m.mark FROM docs d JOIN marks m USING (id) WHERE d.tokens && QUERY ORDER BY d.tokens <-> QUERY, d.id LIMIT 20"
	same "a join with a reference table" "SELECT k.name, count(*), min(d.tokens <-> QUERY) FROM docs d JOIN kinds k USING (tenant) WHERE d.tokens && QUERY AND d.tokens && k.tokens GROUP BY k.name ORDER BY 1"
	same "a join of sets" "SELECT q.id, count(*) FROM queries q JOIN docs d ON d.tokens <<->> idset_threshold(q.tokens, 0.5) GROUP BY q.id ORDER BY q.id"
	same "aggregates" "SELECT count(*), count(tokens), avg(tokens <~> QUERY)::numeric(12,6), max(cardinality(tokens & QUERY)) FROM docs WHERE tokens && QUERY"
	same "GROUP BY" "SELECT tenant, count(*), sum(cardinality(tokens & QUERY)) FROM docs GROUP BY tenant HAVING count(*) > 1 ORDER BY tenant"
	same "GROUP BY a set" "SELECT tokens & QUERY AS common, count(*) FROM docs WHERE tokens && QUERY GROUP BY 1 ORDER BY 1"
	same "idset_union" "SELECT tenant, idset_union(tokens & QUERY), idset_intersection(tokens), idset_agg(id % 50) FROM docs WHERE tokens && QUERY GROUP BY tenant ORDER BY tenant"
	same "idset_union of all" "SELECT idset_union(tokens), idset_symmetric_difference(tokens) FROM docs WHERE tokens && QUERY"
	same "DISTINCT" "SELECT DISTINCT tokens & QUERY FROM docs ORDER BY 1"
	same "a CTE" "WITH near AS MATERIALIZED (SELECT id, tokens <-> QUERY AS d FROM docs ORDER BY d FETCH FIRST 5 ROWS WITH TIES) SELECT n.d, count(*), count(m.mark) FROM near n LEFT JOIN marks m USING (id) GROUP BY n.d ORDER BY n.d"
	same "a subquery" "SELECT count(*) FROM docs WHERE id IN (SELECT id FROM docs WHERE tokens && QUERY) AND EXISTS (SELECT FROM marks m WHERE m.id = docs.id AND mark > 2)"
	same "a set of a reference table" "SELECT tokens <-> (SELECT tokens FROM queries WHERE id = 7) FROM docs ORDER BY tokens <-> (SELECT tokens FROM queries WHERE id = 7) LIMIT 10"
	same "UNION ALL" "(SELECT 'a', tokens <-> QUERY FROM docs WHERE tenant = 1 ORDER BY 2 LIMIT 4) UNION ALL (SELECT 'b', tokens <%> QUERY FROM docs WHERE tenant = 2 ORDER BY 2 LIMIT 4) ORDER BY 1, 2"
	same "a window" "SELECT id, r FROM (SELECT id, rank() OVER (PARTITION BY tenant ORDER BY tokens <-> QUERY, id) AS r FROM docs WHERE tokens && QUERY) x WHERE r <= 2 ORDER BY id"
	same "a prepared statement" "PREPARE near(idset) AS SELECT tokens <-> \$1 FROM docs ORDER BY tokens <-> \$1 LIMIT 5; PREPARE over(idset) AS SELECT count(*) FROM docs WHERE tokens && \$1 $(
		for op in 1 2 3 4 5 6 7; do printf '; EXECUTE near(QUERY); EXECUTE over(QUERY)'; done); DEALLOCATE ALL"
	same "a cursor" "BEGIN; DECLARE c CURSOR FOR SELECT tokens <-> QUERY FROM docs ORDER BY tokens <-> QUERY LIMIT 30; FETCH 7 FROM c; FETCH 20 FROM c; COMMIT"
	same "a local table that Citus knows" "SELECT tokens <-> QUERY FROM notes ORDER BY tokens <-> QUERY LIMIT 10; SELECT count(*) FROM notes n JOIN docs d USING (id) WHERE n.tokens && QUERY"
	same "a reference table" "SELECT tokens <%> QUERY FROM queries ORDER BY tokens <%> QUERY LIMIT 10; SELECT id FROM queries WHERE tokens && QUERY ORDER BY id"
	same "writes" "BEGIN; UPDATE docs SET tokens = tokens | 9000 WHERE tokens && QUERY AND tenant = 2; DELETE FROM docs WHERE tokens @> 9000 AND id % 3 = 0; INSERT INTO docs VALUES (-1, 2, QUERY, 'new');
		SELECT count(*) FROM docs WHERE tokens @> 9000; SELECT tokens <-> QUERY FROM docs ORDER BY tokens <-> QUERY LIMIT 10; ROLLBACK"
}

check_plans() {
	local plan
	plan=$(sql coordinator -c "SET citus.explain_all_tasks = on" -c "EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM docs ORDER BY tokens <-> '{3,103}' LIMIT 10")
	like "the limit is sent" "$plan" "ORDER BY \(tokens OPERATOR\(public\.<->\) '\{3,103\}'::public\.idset\) LIMIT '10'::bigint"
	is "each shard's index ranks" "$(grep -c 'Order By: (docs.tokens <-> ' <<<"$plan")" 8
	plan=$(sql coordinator -c "BEGIN" -c "SET LOCAL citus.propagate_set_commands = 'local'" -c "SET LOCAL enable_seqscan = off" -c "SET citus.explain_all_tasks = on" \
		-c "EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens <<->> idset_threshold('{3,103}', 0.9)" -c COMMIT)
	is "each shard's index filters" "$(grep -cE '(on|using) docs_tokens_[0-9]+' <<<"$plan")" 8
}

# Any node may be asked
check_nodes() {
	local node statement="SELECT id, d FROM (SELECT id, tokens <-> QUERY AS d FROM docs ORDER BY d FETCH FIRST 10 ROWS WITH TIES) x ORDER BY d, id LIMIT 10"
	for node in worker_1 worker_2; do
		is "asked on $node" "$(each "$statement" | sql $node -f -)" "$(each "$statement" | sql coordinator -c 'SET search_path = plain, public' -f -)"
	done
}

# refused NAME NODE SQL ERROR: exactly this, by detail and hint
refused() {
	local got
	got=$(sql "$2" -c "$3" | sed '/^\(CONTEXT\|LINE\|LOCATION\|while\| *^\)/d')
	is "$1" "$got" "$4"
}

# functions TABLE: statements that call the functions on sets
functions() {
	cat <<-SQL
		SELECT count(*) FROM gpuvec_topk('$1', 'tokens', '{3}', 10)
		SELECT count(*) FROM gpuvec_topk_batch('$1', 'tokens', ARRAY['{3}']::idset[], 10)
		SELECT d.id FROM gpuvec_topk('$1', 'tokens', '{3}', 10) t JOIN $1 d ON d.ctid = t.tid
		SELECT count(*) FROM gpuvec_topk_rows(NULL::$1, 'tokens', '{3}', 10)
		SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::$1, 'tokens', ARRAY['{3}']::idset[], 10)
		SELECT gpuvec_prewarm('$1', 'tokens')
	SQL
}

# vectors TABLE KEY COLUMN: statements that call those on vectors
vectors() {
	cat <<-SQL
		SELECT count(*) FROM gpuvec_gather('$1', '$2', '$3', '{1,2}')
		SELECT gpuvec_pool('$1', '$2', '$3', '{1,2}')
		SELECT count(*) FROM gpuvec_pool_batch('$1', '$2', '$3', '{1,2}', hotness => 1)
		SELECT gpuvec_pool_agg('$1', '$2', '$3', k, 1, 'sum', 'zero') FROM generate_series(1, 2) k
		SELECT count(*) FROM gpuvec_nearest('$1', '$2', '$3', '{1,1,1,1}')
		SELECT gpuvec_prewarm('$1', '$2', '$3')
	SQL
}

check_refusals() {
	local statement detail shard
	detail='DETAIL:  It is distributed by Citus, and its rows are in its shards.'
	while read -r statement; do
		refused "$statement" coordinator "$statement" "ERROR:  cannot search relation \"docs\"
$detail
HINT:  ORDER BY with a distance operator and LIMIT searches all shards; run_command_on_shards calls a function on each."
		refused "on a worker: $statement" worker_1 "$statement" "ERROR:  cannot search relation \"docs\"
$detail
HINT:  ORDER BY with a distance operator and LIMIT searches all shards; run_command_on_shards calls a function on each."
	done < <(functions docs)
	sql coordinator -c 'CREATE TABLE vectors (id bigint PRIMARY KEY, v real[])' -c "SELECT create_distributed_table('vectors', 'id')" >/dev/null
	while read -r statement; do
		refused "$statement" coordinator "$statement" "ERROR:  cannot search relation \"vectors\"
$detail
HINT:  run_command_on_shards calls a function on each shard."
	done < <(vectors vectors id v; echo "SELECT gpuvec_ensure_keys('vectors', 'id', 'v', '{7}', 2)"; echo "SELECT gpuvec_apply_grad('vectors', 'id', 'v', '{1}', '{1,1}')")
	# functions that return tids, of tables with one shard, and all functions
	# of a local table
	detail='DETAIL:  It is a table of Citus, and its rows are in a shard.'
	while read -r statement; do
		shard=$(shard_of queries)
		refused "$statement" coordinator "$statement" "ERROR:  cannot search relation \"queries\"
$detail
HINT:  Name the shard instead: public.$shard, on each node that has it."
	done < <(functions queries | grep -E 'gpuvec_topk(_batch)?\(')
	shard=$(shard_of notes)
	while read -r statement; do
		refused "$statement" coordinator "$statement" "ERROR:  cannot search relation \"notes\"
$detail
HINT:  Name the shard instead: public.$shard, on each node that has it."
	done < <(functions notes)
	is "that shard" "$(sql coordinator -c "SELECT rank, score, (item).tokens FROM gpuvec_topk_rows(NULL::$shard, 'tokens', '{3,103,203,400}', 10)")" \
		"$(sql coordinator -c "SELECT rank, score, (item).tokens FROM gpuvec_topk_rows(NULL::plain.notes, 'tokens', '{3,103,203,400}', 10)")"
}

shard_of() { sql coordinator -c "SELECT '$1_' || shardid FROM pg_dist_shard WHERE logicalrelid = '$1'::regclass"; }

check_reference_tables() {
	local node statement shard
	# all rows that have a common id, so ties do not matter
	statement="SELECT (t.item).id, t.score, t.common FROM gpuvec_topk_rows(NULL::queries, 'tokens', QUERY, 40, min_score => 0.01) t ORDER BY t.score DESC, 1"
	same "gpuvec_topk_rows" "$statement"
	same "gpuvec_topk_batch_rows" "SELECT t.query, (t.item).id, t.score FROM gpuvec_topk_batch_rows(NULL::queries, 'tokens', ARRAY[QUERY, '{3,103}', '{}'], 40, min_score => 0.01) t ORDER BY 1, 3 DESC, 2"
	for node in worker_1 worker_2; do
		is "gpuvec_topk_rows on $node" "$(each "$statement" | sql $node -f -)" "$(each "$statement" | sql coordinator -f -)"
		is "gpuvec_prewarm on $node" "$(sql $node -c "SELECT gpuvec_prewarm('queries', 'tokens'), gpuvec_prewarm('items', 'id', 'embedding')")" "39|200"
	done
	same "gpuvec_gather" "SELECT key, found, embedding FROM gpuvec_gather('items', 'id', 'embedding', '{3,500,7,7}') ORDER BY ordinality"
	same "gpuvec_pool" "SELECT gpuvec_pool('items', 'id', 'embedding', '{3,7,500}', 'mean', '{1,0.5,1}', 'skip')"
	same "gpuvec_nearest" "SELECT score FROM gpuvec_nearest('items', 'id', 'embedding', '{1,2,0.5,0.25}', 10, 'l2') ORDER BY rank"
	# writes are seen on all nodes as soon as they are committed
	sql coordinator -c "INSERT INTO queries VALUES (100, '{7000,7001}')" -c "UPDATE items SET embedding = '{9,9,9,9}' WHERE id = 1" -c "DELETE FROM items WHERE id = 2"
	for node in "${nodes[@]}"; do
		is "a new row on $node" "$(sql "$node" -c "SELECT (item).id FROM gpuvec_topk_rows(NULL::queries, 'tokens', '{7001}', 1)")" 100
		is "changed vectors on $node" "$(sql "$node" -c "SELECT gpuvec_pool('items', 'id', 'embedding', '{1,2}')")" "{9,9,9,9}"
	done
	sql coordinator -c "DELETE FROM queries WHERE id = 100" -c 'DELETE FROM items WHERE id = 1' -c 'INSERT INTO items SELECT * FROM plain.items WHERE id < 3'
	shard=$(shard_of queries)
	is "gpuvec_evict needs the shard" "$(sql worker_1 -c "SELECT gpuvec_prewarm('queries', 'tokens'), gpuvec_evict('queries'), gpuvec_evict('$shard')")" "39|0|1"
	# a table of another owner is no shard
	sql worker_1 -c 'SET citus.enable_ddl_propagation = off' -c 'CREATE ROLE somebody' -c 'SET citus.enable_manual_changes_to_shards = on' -c "ALTER TABLE $shard OWNER TO somebody" >/dev/null
	like "a shard of another owner" "$(sql worker_1 -c "SELECT count(*) FROM gpuvec_topk_rows(NULL::queries, 'tokens', '{3}', 10)")" "It is a table of Citus, and its rows are in a shard"
	sql worker_1 -c 'SET citus.enable_ddl_propagation = off' -c 'SET citus.enable_manual_changes_to_shards = on' -c "ALTER TABLE $shard OWNER TO postgres" -c 'DROP ROLE somebody' >/dev/null
}

# The statement of doc/servers.md, with its table of queries
batch_statement() { sed -n '/^## Citus/,$p' "$top/doc/servers.md" | awk '/^```/ { if (inside) exit; inside = 1; next } inside'; }

batch_plain() {
	echo "SELECT query, id, score FROM (SELECT q.n AS query, d.id, braun_blanquet_similarity(d.tokens, q.tokens) AS score,
			row_number() OVER (PARTITION BY q.n ORDER BY braun_blanquet_similarity(d.tokens, q.tokens) DESC, d.id) AS rank
		FROM (SELECT row_number() OVER (ORDER BY id) AS n, tokens FROM plain.queries) q JOIN plain.docs d ON d.tokens && q.tokens) x WHERE rank <= 10"
}

check_batches() {
	local statement rows
	statement=$(batch_statement)
	like "the statement of the page" "$statement" 'run_command_on_shards'
	# of equally good rows the page's statement has any
	rows="SELECT query, score, count(*) FROM (%s) b GROUP BY 1, 2 ORDER BY 1, 2 DESC"
	statement=${statement%;*}
	# shellcheck disable=SC2059
	is "the batch of the page" "$(sql coordinator -c "$(printf "$rows" "$statement")")" "$(sql coordinator -c "$(printf "$rows" "$(batch_plain)")")"
	is "its rows have these scores" "$(sql coordinator -c "SELECT count(*), count(*) FILTER (WHERE braun_blanquet_similarity(d.tokens, q.tokens) = b.score) = count(*) FROM ($statement) b JOIN plain.docs d USING (id) JOIN plain.queries q ON q.id = b.query")" "390|t"
	is "shards without an answer" "$(sql coordinator -c "UPDATE queries SET tokens = '{9000}'" -c "SELECT count(*) FROM ($statement) b")" 0
	sql coordinator -c 'DELETE FROM queries' -c 'INSERT INTO queries SELECT * FROM plain.queries'
	is "gpuvec_prewarm on shards" "$(sql coordinator -c "SELECT count(*), bool_and(success), sum(result::int) FROM run_command_on_shards('docs', \$\$SELECT gpuvec_prewarm('%s', 'tokens')\$\$)")" \
		"8|t|$(sql coordinator -c 'SELECT count(tokens) FROM plain.docs')"
}

# ---- Clicks and embeddings ----

check_clicks() {
	local plan pool="gpuvec_pool_agg('items', 'id', 'embedding', item_id, weight"
	for mode in sum mean; do
		same "gpuvec_pool_agg, $mode" "SELECT user_id, $pool, '$mode', 'skip') FROM clicks GROUP BY user_id ORDER BY user_id"
	done
	same "gpuvec_weighted_sum_agg" "SELECT user_id, gpuvec_weighted_sum_agg('items', 'id', 'embedding', item_id, weight), gpuvec_sum_agg('items', 'id', 'embedding', item_id) FROM clicks GROUP BY user_id ORDER BY user_id"
	same "gpuvec_pool of arrays" "SELECT user_id, gpuvec_pool('items', 'id', 'embedding', array_agg(item_id), 'sum', array_agg(weight)) FROM clicks GROUP BY user_id ORDER BY user_id"
	same "weighted sums by SQL" "SELECT user_id, sum(weight * embedding[1]), sum(weight * embedding[3]) FROM clicks JOIN items ON items.id = item_id GROUP BY user_id ORDER BY user_id"
	same "a prepared statement with the table's name" "PREPARE pool(regclass) AS SELECT user_id, gpuvec_sum_agg(\$1, 'id', 'embedding', item_id) FROM clicks GROUP BY user_id ORDER BY user_id $(
		for mode in 1 2 3 4 5 6 7; do printf "; EXECUTE pool('items')"; done); DEALLOCATE ALL"
	for node in worker_1 worker_2; do
		is "asked on $node" "$(sql $node -c "SELECT user_id, $pool, 'sum', 'zero') FROM clicks GROUP BY user_id ORDER BY user_id")" \
			"$(sql coordinator -c 'SET search_path = plain, public' -c "SELECT user_id, $pool, 'sum', 'zero') FROM clicks GROUP BY user_id ORDER BY user_id")"
	done
	same "one user" "SELECT $pool, 'sum', 'zero') FROM clicks WHERE user_id = 17"
	# Of groups over several shards Citus sends the arguments, and so oids, to
	# the coordinator
	rows="(SELECT user_id, item_id, weight FROM clicks OFFSET 0) c"
	same "another grouping" "SELECT user_id % 5, $pool, 'sum', 'zero') FROM $rows GROUP BY 1 ORDER BY 1"
	same "one group of all" "SELECT $pool, 'sum', 'zero') FROM $rows"
	same "another grouping, gpuvec_pool" "SELECT user_id % 5, gpuvec_pool('items', 'id', 'embedding', array_agg(item_id), 'sum', array_agg(weight)) FROM clicks GROUP BY 1 ORDER BY 1"
	for statement in "SELECT user_id % 5, $pool, 'sum', 'zero') FROM clicks GROUP BY 1" "SELECT gpuvec_sum_agg('items', 'id', 'embedding', item_id) FROM clicks"; do
		refused "another table's oid: $statement" coordinator "$statement" "ERROR:  relation must not come from rows in a database with Citus
DETAIL:  They may be rows of another node, where tables have other oids.
HINT:  Group by the column that the rows are distributed by, or select them in a subquery with OFFSET 0."
	done
	same "items near what a user clicked" "SELECT user_id, n.score FROM (SELECT user_id, $pool, 'mean', 'skip') AS v FROM clicks WHERE user_id < 20 GROUP BY user_id) u, LATERAL gpuvec_nearest('items', 'id', 'embedding', u.v::float8[], 3) n ORDER BY 1, n.rank"
	plan=$(sql coordinator -c "SET citus.explain_all_tasks = on" -c "EXPLAIN (VERBOSE, COSTS OFF) SELECT user_id, $pool, 'sum', 'zero') FROM clicks GROUP BY user_id")
	like "the workers pool" "$plan" 'Query: SELECT user_id, public.gpuvec_pool_agg\('
	# vectors of a table in another schema than the default one
	sql coordinator -c 'CREATE SCHEMA "Other one"' -c 'CREATE TABLE "Other one".items (LIKE items INCLUDING ALL)' -c "SELECT create_reference_table('\"Other one\".items')" \
		-c 'INSERT INTO "Other one".items SELECT id + 1, embedding FROM items' >/dev/null
	is "vectors of another schema" "$(sql coordinator -c "SELECT user_id, gpuvec_pool_agg('\"Other one\".items', 'id', 'embedding', item_id, weight, 'sum', 'zero') FROM clicks GROUP BY user_id ORDER BY user_id")" \
		"$(sql coordinator -c "SELECT user_id, gpuvec_pool_agg('plain.items', 'id', 'embedding', item_id - 1, weight, 'sum', 'zero') FROM plain.clicks GROUP BY user_id ORDER BY user_id")"
}

# ---- Rebalancing ----

# What sessions ask while shards move
searches() {
	each "SELECT tokens <-> QUERY FROM docs ORDER BY tokens <-> QUERY LIMIT 10"
	each "SELECT id FROM docs WHERE tokens <<->> idset_threshold(QUERY, 0.4) ORDER BY id"
	each "SELECT count(*), sum(mark) FROM docs JOIN marks USING (id) WHERE tokens && QUERY"
	echo "SELECT user_id, gpuvec_pool_agg('items', 'id', 'embedding', item_id, weight, 'sum', 'zero') FROM clicks GROUP BY user_id ORDER BY user_id;"
}

# search_on N WANTED: ask until the file is gone; a line for each round
search_on() {
	while [ -e "$work/searching" ]; do
		if [ "$(searches | sql coordinator -f -)" = "$2" ]; then echo same; else echo different; fi
	done >"$work/rounds_$1"
}

# Rows come and go meanwhile that no search asks for
write_on() {
	local i=0
	while [ -e "$work/searching" ]; do
		i=$((i + 1))
		sql coordinator -c "INSERT INTO docs SELECT -$i * 10 - n, n, '{8000,8001}', 'new' FROM generate_series(1, 8) n" \
			-c "UPDATE docs SET tokens = tokens | 8002 WHERE id BETWEEN -$i * 10 - 4 AND -$i * 10" || echo failed
		sleep 0.1
	done >"$work/writes"
	echo "$i" >"$work/written"
}

# all_to NODE MODE: move all shards of docs, and what is colocated, there, each
# in a transaction of its own, as logical replication wants it
all_to() {
	sql coordinator <<-SQL
		SELECT format('SELECT citus_move_shard_placement(%s, %L, %s, %L, 5432, shard_transfer_mode => %L)', shardid, nodename, nodeport, '$sockets/$1', '$2')
			FROM citus_shards WHERE table_name = 'docs'::regclass AND nodename <> '$sockets/$1'
		\gexec
	SQL
}

shards_of() { sql coordinator -c "SELECT count(*) FROM citus_shards WHERE table_name = 'docs'::regclass AND nodename = '$sockets/$1'"; }

check_moves() {
	local wanted mode i output
	wanted=$(searches | sql coordinator -c 'SET search_path = plain, public' -f -)
	touch "$work/searching"
	for ((i = 1; i <= CLIENTS; i++)); do search_on "$i" "$wanted" & done
	write_on &
	for mode in force_logical block_writes; do
		for ((i = 1; i <= MOVES; i++)); do
			output=$(all_to worker_1 $mode)
			is "all shards to one worker, $mode" "$(shards_of worker_1)" 8
			[ "$(shards_of worker_1)" = 8 ] || echo "$output"
			output=$(sql coordinator -c "SELECT rebalance_table_shards('docs', shard_transfer_mode => '$mode')")
			is "rebalanced, $mode" "$(shards_of worker_1) $(shards_of worker_2)" "4 4"
			[ "$(shards_of worker_2)" = 4 ] || echo "$output"
		done
	done
	sql coordinator -c 'CALL citus_cleanup_orphaned_resources()' >/dev/null
	sleep 1
	rm -f "$work/searching"
	wait
	for ((i = 1; i <= CLIENTS; i++)); do
		is "answers of session $i while shards moved" "$(sort -u "$work/rounds_$i")" same
		echo "session $i: $(wc -l <"$work/rounds_$i") rounds of $(searches | grep -c ';$') searches while shards moved"
	done
	# A write that meets the end of a move may fail in Citus.  What counts is
	# that a search finds what a scan without the index finds.
	echo "$(cat "$work/written") rounds of writes, $(grep -c failed "$work/writes") failed; $(sql coordinator -c 'SELECT count(*) FROM docs WHERE id < 0') rows"
	is "rows that were written meanwhile" "$(sql coordinator -c "SELECT id, tokens FROM docs WHERE tokens @> 8000 ORDER BY id")" \
		"$(sql coordinator -c "SELECT id, tokens FROM docs WHERE id < 0 ORDER BY id")"
	is "the same by distance" "$(sql coordinator -c "SELECT tokens <-> '{8000,8001}' FROM docs ORDER BY tokens <-> '{8000,8001}' LIMIT 300")" \
		"$(sql coordinator -c "SELECT tokens <-> '{8000,8001}' AS d FROM docs WHERE id < 0 ORDER BY d LIMIT 300")"
	sql coordinator -c 'DELETE FROM docs WHERE id < 0'
	is "answers afterwards" "$(searches | sql coordinator -f -)" "$wanted"
}

# ---- All of it ----

gpuvec_workdir tmp_citus
trap finish EXIT
trap 'exit 130' INT TERM
if ! build >"$work/build.log" 2>&1 || ! start_cluster >"$work/start.log" 2>&1 || ! make_tables >"$work/tables.log" 2>&1; then
	tail -n 20 "$work"/{build,start,tables}.log 2>/dev/null
	failed=1
	echo "0 passed, 1 failed"
	exit 1
fi
sql coordinator -c "SELECT citus_version(), gpuvec_library_version()"
check_queries
check_nodes
check_plans
check_refusals
check_reference_tables
check_batches
check_clicks
check_moves
check_batches
for node in "${nodes[@]}"; do
	is "no crash of $node" "$(grep -E 'PANIC:|TRAP:|terminated by signal' "$work/$node/log")" ""
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
