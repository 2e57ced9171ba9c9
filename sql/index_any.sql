-- CREATE INDEX ... USING gpuvec: the set compared with the values of an array
CREATE SCHEMA index_any;
SET search_path = index_any, public;
CREATE TABLE docs (id int, price int, tag text, tags idset, tokens idset) WITH (autovacuum_enabled = off);
-- id 1000 is in more rows than the first answer to several queries has, 1001 in as many, and 1002 in one less
INSERT INTO docs SELECT i, i % 20, 'tag' || i % 7, ARRAY[i % 5, 10 + i % 3]::idset,
	array_remove(ARRAY[i % 97, 100 + i % 89, CASE WHEN i <= 3000 THEN 1000 END, CASE WHEN i <= 1024 THEN 1001 END, CASE WHEN i <= 1023 THEN 1002 END, CASE WHEN i % 1000 = 7 THEN 100000 END], NULL)::idset FROM generate_series(1, 6000) i;
INSERT INTO docs SELECT 10000 + i, 1, 'tag1', '{}', '{}' FROM generate_series(1, 3) i;
INSERT INTO docs SELECT 20000 + i, 1, 'tag1', NULL, NULL FROM generate_series(1, 3) i;
INSERT INTO docs SELECT 30000 + i, 1, 'tag1', '{3}', '{0,4294967295}' FROM generate_series(1, 3) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM ANALYZE docs;
UPDATE docs SET id = id + 0 WHERE id % 30 = 0;
DELETE FROM docs WHERE id % 50 = 1;
CREATE TABLE wanted (n int, tokens idset);
INSERT INTO wanted SELECT id, tokens FROM docs WHERE id % 400 = 3 OR id > 6000;

/*
 * What a condition finds by a plan of some kind: its rows, and by a bitmap, or
 * an index scan, whether rows of it were removed as they were checked again
 */
CREATE FUNCTION found(condition text, kind text, relation text DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	line text;
	plan text = '';
BEGIN
	PERFORM set_config('enable_seqscan', (kind = 'Seq Scan')::text, true), set_config('enable_bitmapscan', (kind = 'Bitmap Index Scan')::text, true),
		set_config('enable_indexscan', (kind = 'Index Scan')::text, true), set_config('enable_indexonlyscan', 'off', true);
	FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM %s WHERE %s', relation, condition) LOOP
		plan = plan || line || E'\n';
	END LOOP;
	IF plan !~ (kind || '( using [^ ]+)? on ') THEN RETURN 'not by ' || kind || ': ' || plan; END IF;
	EXECUTE format('SELECT count(*) || '' '' || md5(coalesce(string_agg(t.tableoid || '' '' || t.ctid::text, '' '' ORDER BY t.tableoid, t.ctid), '''')) FROM %s t WHERE %s', relation, condition) INTO result;
	IF kind <> 'Seq Scan' AND plan ~ 'Rows Removed by Index Recheck|lossy' THEN result = result || ' rechecked'; END IF;
	RETURN result;
END $$;
CREATE FUNCTION compare(condition text, relation text DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	seq text = found(condition, 'Seq Scan', relation);
	bitmap text = found(condition, 'Bitmap Index Scan', relation);
	index text = found(condition, 'Index Scan', relation);
BEGIN
	RETURN split_part(seq, ' ', 1) || CASE WHEN seq = regexp_replace(bitmap, ' rechecked$', '') AND seq = regexp_replace(index, ' rechecked$', '')
		THEN CASE WHEN bitmap ~ ' rechecked' THEN ' same, rechecked' ELSE ' same, exact' END ELSE format(' DIFFERS: %s, %s', bitmap, index) END;
END $$;

-- each operator with arrays of sets: rows of none, one, several values, duplicates, nulls, empty sets, and more rows than one answer has
CREATE TABLE arrays AS SELECT * FROM unnest(ARRAY['{"{5,105}","{6,106}"}', '{"{5,105}"}', '{"{5,105}",NULL,"{6,106}","{5,105}"}', '{NULL,"{7,107}"}', '{"{7,107}",NULL}', '{NULL,NULL}', '{}', '{"{60000}","{60001}"}', '{"{5,105}","{}"}', '{"{}"}',
	'{"{1000}","{3}"}', '{"{1001}","{5,105}","{1000}","{1002}"}', '{"{1001}","{1002}"}', '{"{0,4294967295}","{100000}"}', '[5:6]={"{5,105}","{6,106}"}', '{{"{5,105}","{6,106}"},{"{5,105}","{7}"}}', '{"{3,173}",NULL,"{4,174}","{3,173}","{}"}']) WITH ORDINALITY a(value, n);
CREATE TABLE forms AS SELECT n, operator, format('tokens %s ANY (%L::idset[])', operator, value) AS condition,
	coalesce((SELECT string_agg(format('tokens %s %L', operator, v), ' OR ') FROM unnest(value::idset[]) v WHERE v IS NOT NULL), 'false') AS by_or
	FROM unnest('{&&,@>,=,<@}'::text[]) operator, arrays;
SELECT operator, string_agg(compare(condition), '; ' ORDER BY n) AS compared FROM forms GROUP BY operator ORDER BY operator;
SELECT condition, by_or FROM forms WHERE by_or <> 'false' AND split_part(found(condition, 'Bitmap Index Scan'), ' ', 2) <> split_part(found(by_or, 'Seq Scan'), ' ', 2);
-- thresholds: of one measure and score, of several, without a common id, and null
CREATE FUNCTION thresholds(VARIADIC idset_threshold[]) RETURNS idset_threshold[] LANGUAGE sql IMMUTABLE AS 'SELECT $1';
SELECT t, compare('tokens <<->> ANY (thresholds(' || t || '))') FROM unnest(ARRAY['(''{3,173}'', 0.6, ''jaccard''), (''{6,106}'', 0.6, ''jaccard'')', '(''{3,173}'', 0.6, ''jaccard''), (''{4,174}'', 0.3, ''jaccard''), (''{6,106}'', 0.9, ''jaccard'')',
	'(''{3,173}'', 0.6, ''jaccard''), (''{6,106}'', 0.6, ''cosine''), (''{7,107}'', -1, ''hamming''), (''{1000}'', 1, ''containment'')', '(''{5,105,8}'', 0.9, ''tversky(1, 0)''), (''{5,105,8}'', 0.9, ''tversky(0, 1)''), (''{5,105,8}'', 0.9, ''tversky(1, 1)'')',
	'(''{3,173}'', 0.9, ''jaccard''), (''{3,173}'', 0.2, ''jaccard'')', 'NULL, (NULL, 0.5, ''jaccard''), (''{5}'', NULL, ''dice'')', 'NULL, (''{3,173}'', 0.6, NULL)', '(''{5}'', 0.4, ''dice''), (''{5}'', 0, ''dice'')', '(''{}'', 0, ''hamming''), (''{5,105}'', 0, ''hamming'')', '(''{}'', 0.1, ''jaccard''), (''{5}'', 1, ''jaccard'')']) t;
-- weights that are told apart by their power of ten alone
SELECT compare('tokens <<->> ANY (thresholds((''{3,173}'', 0.2, ''tversky(5, 2)''), (''{3,173}'', 0.2, ''tversky(0.5, 0.2)'')))');
-- equal thresholds are searched once, those of a measure in one request,
-- wherever they are in the array
CREATE FUNCTION requests_of(condition text) RETURNS numeric LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	before numeric = (SELECT requests FROM gpuvec_engine);
BEGIN
	EXECUTE 'SELECT count(*) FROM docs WHERE ' || condition;
	RETURN (SELECT requests FROM gpuvec_engine) - before;
END $$;
SELECT measure, requests_of(format('tokens <<->> ANY (array_fill((%L, 0.6, %L)::idset_threshold, ARRAY[9000]))', '{3,173}', measure)) AS requests
	FROM unnest('{jaccard,"tversky(0.5, 0.25)",hamming}'::text[]) measure;
SELECT requests_of(format('tokens <<->> ANY (%L::idset_threshold[])', array_agg((ARRAY[n, n + 1]::idset, 0.4, (ARRAY['jaccard', 'tversky(0.5, 0.25)', 'tversky(0.5, 1)'])[1 + n % 3])::idset_threshold))) AS requests
	FROM generate_series(1, 300) n;
-- an invalid one: the executor reports it, if it comes to it
SET enable_seqscan = off;
SELECT count(*) FROM docs WHERE tokens <<->> ANY (thresholds(('{5,105}', 0.6, 'jaccard'), ('{5}', 1, 'none')));
SELECT count(*) FROM docs WHERE tokens <<->> ANY (thresholds(('{5}', 0, 'dice'), ('{5}', 1, 'none')));
RESET enable_seqscan;
-- numbers
SELECT a, compare(format('tokens @> ANY (%L::int8[])', a)) FROM unnest(ARRAY['{5,6}', '{5,NULL,1000}', '{-1,4294967296}', '{-1,4294967295,5}', '{NULL}', '{}']) a;
-- IN, null arrays, and what is left to the executor
SELECT c, compare(c) FROM unnest(ARRAY['tokens IN (''{3,173}'', ''{1,1000}'', ''{}'', NULL)', 'tokens = ANY (SELECT tokens FROM wanted) AND tokens @> ANY (ARRAY[5, 6, 7]::int8[])', 'tokens = ANY (ARRAY(SELECT tokens FROM wanted))', 'tokens @> ANY (ARRAY(SELECT tokens FROM wanted WHERE n < 0))',
	'tokens @> ANY ((SELECT array_agg(tokens) FROM wanted WHERE n < 0)::idset[])', 'tokens && ANY (''{"{5}","{6}"}'') AND tokens @> ''{105}''', 'tokens && ANY (''{"{5}","{6}"}'') AND tokens @> ANY (''{"{105}","{106}"}'')', 'tokens = ANY (ARRAY(SELECT tokens FROM wanted)) AND tokens && ''{3,5}''',
	'tokens @> ANY (''{"{5,105}"}'') AND tokens <> ALL (''{"{5,105}"}'')', 'tokens @> ANY (''{"{5,105}","{6}"}'') AND NOT tokens @> ANY (''{"{106}",NULL}'')', 'tokens @> ANY (''{"{5,105}","{6}"}'') AND price < 10 AND tag = ANY (''{tag1,tag2}'')']) c;
-- more values than go into one request, and sets that are long
CREATE TABLE many AS SELECT array_agg(CASE WHEN i % 500 = 0 THEN '{}' WHEN i % 501 = 0 THEN NULL ELSE ARRAY[i % 97, 100 + (i * 7) % 89]::idset END) AS sets, array_agg(ARRAY[70000 + i]::idset) || '{5,105}'::idset || '{6,106}'::idset AS others FROM generate_series(1, 3000) i;
SELECT compare('tokens @> ANY ((SELECT sets FROM many)::idset[])'), compare('tokens = ANY ((SELECT sets FROM many)::idset[])'), compare('tokens <@ ANY ((SELECT sets FROM many)::idset[])'), compare('tokens @> ANY ((SELECT others FROM many)::idset[])'),
	compare('tokens && ANY ((SELECT others || ''{1000}''::idset FROM many)::idset[])'), compare('tokens <@ ANY (ARRAY(SELECT array_agg(x)::idset FROM generate_series(0, 3) i, generate_series(i, 60000) x GROUP BY i))');
-- parameters: custom and generic plans, of each kind
PREPARE by_array(idset[]) AS SELECT count(*), sum(id) FROM docs WHERE tokens @> ANY ($1);
PREPARE by_list(idset, idset, idset) AS SELECT count(*), sum(id) FROM docs WHERE tokens IN ($1, $2, $3);
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE by_array('{}');
EXECUTE by_array('{"{5,105}",NULL,"{3,173}"}');
EXECUTE by_array('{}');
EXECUTE by_array(NULL);
EXECUTE by_list('{3,173}', '{}', NULL);
SET plan_cache_mode = force_custom_plan;
EXECUTE by_array('{"{5,105}",NULL,"{3,173}"}');
EXECUTE by_array(NULL);
EXECUTE by_list('{3,173}', '{}', NULL);
RESET plan_cache_mode;
-- scans that begin again, by bitmap and by index
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
CREATE TABLE lists AS SELECT n, array_agg(tokens ORDER BY id) AS sets FROM (SELECT id, id % 9 AS n, tokens FROM docs WHERE id % 700 < 9 AND id < 3000) x GROUP BY n;
INSERT INTO lists VALUES (10, '{}'), (11, NULL), (12, '{NULL}');
CREATE FUNCTION joined() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(n || ':' || c, ' ' ORDER BY n) FROM (SELECT l.n, count(d.id) AS c FROM lists l LEFT JOIN docs d ON d.tokens @> ANY (l.sets) GROUP BY l.n) x $$;
SET enable_seqscan = on; SET enable_bitmapscan = off; SET enable_indexscan = off;
SELECT joined() AS plain \gset
SET enable_indexscan = on; SET enable_seqscan = off;
SELECT joined() = :'plain' AS same;
SET enable_bitmapscan = on; SET enable_indexscan = off;
SELECT joined() = :'plain' AS same, :'plain';
RESET enable_indexscan; RESET enable_bitmapscan; RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material;
-- in order of a distance, by the ranking and by the rows of the keys; rows of equal distance may come in any order without an index
CREATE FUNCTION ordered(condition text, query text, n int, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	PERFORM set_config('enable_seqscan', (NOT by_index)::text, true), set_config('enable_indexscan', by_index::text, true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', (NOT by_index)::text, true);
	EXECUTE format('SELECT string_agg(d || '''', '' '' ORDER BY o) || coalesce(md5(string_agg(id || '''', '' '' ORDER BY d, id) FILTER (WHERE %3$s >= 100000)), '''') FROM (SELECT id, d, row_number() OVER () AS o FROM (SELECT id, tokens <-> %1$L AS d FROM docs WHERE %2$s ORDER BY tokens <-> %1$L LIMIT %3$s) x) y', query, condition, n) INTO result;
	RETURN result;
END $$;
SELECT c, bool_and(ordered(c, q, n, true) IS NOT DISTINCT FROM ordered(c, q, n, false)) AS same FROM unnest(ARRAY['tokens @> ANY (''{"{5}","{6,106}"}'')', 'tokens && ANY (''{"{1000}","{5}"}'')', 'tokens = ANY (''{"{}","{6,106,1000}",NULL}'')', 'tokens <@ ANY (''{"{5,105,1000,1001,1002}"}'')', 'tokens = ANY (ARRAY(SELECT tokens FROM wanted))', 'tokens @> ANY (''{}''::idset[])']) c,
	unnest('{"{5,105}","{1000,1001}","{}"}'::text[]) q, unnest('{3,1500,100000}'::int[]) n GROUP BY c ORDER BY c;
SET enable_seqscan = off; SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens @> ANY ('{"{5}","{6,106}"}') ORDER BY tokens <-> '{5,105}' LIMIT 3;
RESET enable_seqscan; RESET enable_bitmapscan;
-- with filter columns, as conditions
CREATE INDEX docs_filters ON docs USING gpuvec (tokens, price, tag, tags);
SELECT c, compare(c) FROM unnest(ARRAY['tokens @> ANY (''{"{5}","{6,106}",NULL}'') AND price < 10', 'tokens @> ANY (''{"{5}","{6,106}"}'') AND price = ANY (''{1,2,NULL}'')', 'tokens && ANY (''{"{5}","{1000}"}'') AND price < 10 AND tag = ANY (''{tag1,tag2}'')', 'tokens = ANY (ARRAY(SELECT tokens FROM wanted)) AND price >= 3', 'tokens <@ ANY (''{"{}","{5,105}"}'') AND price >= 0',
	'tokens @> ANY ((SELECT others FROM many)::idset[]) AND price IN (5, 6)', 'tokens @> ANY (''{"{5}","{6,106}"}'') AND price = ANY (''{}'')']) c;
-- further sets: their arrays are conditions, and checked
SELECT c, compare(c) FROM unnest(ARRAY['tags @> ANY (''{"{1,10}","{2,11}",NULL}'')', 'tags && ANY (''{"{1}","{2}"}'')', 'tags <@ ANY (''{"{1,10}","{}"}'')', 'tags = ANY (''{"{1,10}","{}",NULL}'')', 'tags @> ANY (''{}''::idset[])', 'tags @> 3', 'tags @> ANY (ARRAY[3, 10]::int8[])', 'tags @> 4294967296', 'tags @> -1',
	'tokens @> ANY (''{"{5}","{6}"}'') AND tags && ANY (''{"{1}","{2}"}'')']) c;
DROP INDEX docs_filters;
-- rows of this transaction, and no engine
BEGIN;
INSERT INTO docs VALUES (50000, 1, 'tag1', '{}', '{5,105}'), (50001, 1, 'tag1', '{}', '{60001}');
DELETE FROM docs WHERE tokens = '{6,106,1000}';
SELECT string_agg(compare(condition), ', ' ORDER BY operator, n) FROM forms WHERE n IN (1, 3, 8, 12, 17);
ROLLBACK;
CREATE TEMP TABLE own AS SELECT * FROM docs;
CREATE INDEX ON own USING gpuvec (tokens);
ANALYZE own;
SELECT compare('tokens @> ANY (''{"{5,105}","{6,106}",NULL}'')', 'own'), compare('tokens = ANY (''{}''::idset[])', 'own');
-- what all values find again and again takes no memory
CREATE FUNCTION held() RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	bytes int8;
BEGIN
	EXECUTE 'SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = ''gpuvec index scan''' INTO bytes;
	RETURN bytes;
-- before version 14
EXCEPTION WHEN undefined_table THEN RETURN 0;
END $$;
SET enable_seqscan = off; SET enable_bitmapscan = off;
BEGIN;
DECLARE c CURSOR FOR SELECT count(*) OVER () > 5000 AS most FROM docs WHERE tokens && ANY (ARRAY(SELECT (SELECT idset_agg(i) FROM generate_series(0, 96) i) | ARRAY[2000 + j]::idset FROM generate_series(1, 40) j));
FETCH 1 FROM c;
SELECT CASE WHEN held() < 2000000 THEN 'as much as once' ELSE held()::text END AS roots;
COMMIT;
RESET enable_seqscan; RESET enable_bitmapscan;
-- partitions, expressions, predicates
CREATE TABLE parts (LIKE docs) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT * FROM docs;
CREATE INDEX ON parts USING gpuvec (tokens);
VACUUM ANALYZE parts;
SELECT string_agg(compare(condition, 'parts'), ', ' ORDER BY operator, n) FROM forms WHERE n IN (1, 3, 5, 12, 17);
DROP INDEX docs_tokens;
CREATE INDEX docs_expression ON docs USING gpuvec ((tokens | '{7}')) WHERE price < 15;
ANALYZE docs;
SELECT c, compare(c) FROM unnest(ARRAY['(tokens | ''{7}'') @> ANY (''{"{5,105}","{6,106}",NULL}'') AND price < 15', '(tokens | ''{7}'') = ANY (''{"{5,7,105}","{6,7,106,1000}"}'') AND price < 10', '(tokens | ''{7}'') && ANY (''{"{1000}","{1002}"}'') AND price < 15', '(tokens | ''{7}'') <@ ANY (''{"{7}","{5,7,105}"}'') AND price < 15']) c;
SET client_min_messages = warning;
DROP SCHEMA index_any CASCADE;
DROP TABLE own;
