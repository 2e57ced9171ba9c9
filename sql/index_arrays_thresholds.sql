-- Indexes on columns of arrays: thresholds of distances, and counts by them
CREATE SCHEMA index_arrays_thresholds;
SET search_path = index_arrays_thresholds, public;
SET client_min_messages = error;
CREATE FUNCTION message(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION index_of(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE line text; name text = 'none';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		name = coalesce(substring(line, 'docs_\w+'), name);
	END LOOP;
	RETURN name;
END $$;
-- servers from 18 on say what is disabled
CREATE FUNCTION plan_lines(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE query LOOP
		IF line NOT LIKE '% Disabled: true' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
-- the operator is that of the sets
SELECT bool_and((a <<~>> idset_threshold(idset_of_array(b), s, m)) = (idset_of_array(a) <<->> idset_threshold(idset_of_array(b), s, m))) AS defined, count(*)
	FROM (SELECT ARRAY(SELECT i * j % 11 - 3 FROM generate_series(1, i) j) a, ARRAY(SELECT i * j % 7 FROM generate_series(1, 9 - i) j) b FROM generate_series(1, 8) i) t, unnest('{0,0.3,-3,1}'::float8[]) s, unnest('{jaccard,cosine,hamming,intersection,"tversky(0.5, 0.1)"}'::text[]) m;
SELECT '{a,b}'::text[] <<~>> idset_threshold(idset_of_array('{b,a,NULL,b}'::text[]), 1, 'jaccard') AS same, '{a}'::text[] <<~>> idset_threshold(NULL, 1) AS of_null, NULL::text[] <<~>> idset_threshold('{}', 1) AS null_of, '{}'::text[] <<~>> idset_threshold('{}', 0) AS empty, '{3,3,4}'::int[] <<~>> ('{3,4}', 1, NULL) AS a_row;
SELECT message($$SELECT '{a}'::text[] <<~>> idset_threshold('{}', 1, 'nearness')$$), message($$SELECT '{a}'::text[] <<~>> idset_threshold('{}', 'NaN')$$), message($$SELECT '{a}'::text[] <<~>> '{a}'::text[]$$), message($$SELECT '{3}' <<~>> idset_threshold('{3}', 1)$$), message($$SELECT '{3}' <<->> idset_threshold('{3}', 1)$$) AS set, message($$SELECT '{"(1,2)"}'::point[] <<~>> idset_threshold('{}', 1)$$);
SELECT idset_array_within('{7,9,NULL}'::int[], 0.5, 'jaccard'), idset_array_within('{7}'::int[], -2, 'intersection') AS common, idset_array_within('{7}'::int[], 'NaN', 'hamming') AS nan, idset_array_within(NULL::int[], 1, 'hamming') AS of_null, idset_array_within((SELECT array_agg(i) FROM generate_series(1, 65537) i), 0.5, 'jaccard') AS too_large;
-- rows: nulls, duplicates, empty arrays, different elements with one id
CREATE TABLE docs (id int, tags text[], ints int[], smalls int2[], bigs int8[], words varchar[], uuids uuid[], price int) WITH (autovacuum_enabled = off);
CREATE FUNCTION chance(i int, j int, kind int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT (hashint4extended(i * 100 + j, kind) & 1048575) / 1048576::float8 $$;
CREATE TABLE same AS SELECT min(i) AS a, max(i) AS b FROM generate_series(1, 200000) i GROUP BY hashint8extended(i, 0) & 4294967295 HAVING count(*) > 1;
INSERT INTO docs SELECT i, CASE WHEN i % 41 > 0 THEN t END, ARRAY(SELECT hashtext(x) % 1000 FROM unnest(t) x), ARRAY(SELECT (hashtext(x) % 30)::int2 FROM unnest(t) x), ARRAY(SELECT (hashtext(x) % 20)::int8 FROM unnest(t) x) || CASE i % 6 WHEN 0 THEN (SELECT a FROM same LIMIT 1) WHEN 1 THEN (SELECT b FROM same LIMIT 1) END::int8, t, ARRAY(SELECT md5(x)::uuid FROM unnest(t) x), i % 100
	FROM (SELECT i, ARRAY(SELECT CASE WHEN chance(i, j, 1) < 0.03 THEN NULL ELSE 'tag ' || (chance(i, j, 2) ^ 3 * 60)::int END FROM generate_series(1, (i * 7919 % 23) / 3) j WHERE i > 0) t FROM generate_series(1, 6000) i) s;
CREATE INDEX docs_tags ON docs USING gpuvec (tags, price);
CREATE INDEX docs_ints ON docs USING gpuvec (ints);
CREATE INDEX docs_smalls ON docs USING gpuvec (smalls);
CREATE INDEX docs_bigs ON docs USING gpuvec (bigs);
CREATE INDEX docs_words ON docs USING gpuvec (words);
CREATE INDEX docs_uuids ON docs USING gpuvec (uuids);
INSERT INTO docs SELECT -id, tags[2:] || 'new'::text, ints || 7, smalls, bigs, words, uuids, price FROM docs WHERE id % 5 = 0;
UPDATE docs SET tags = tags || 'tag 3'::text WHERE id % 11 = 0;
UPDATE docs SET price = price + 1 WHERE id % 13 = 0;
DELETE FROM docs WHERE id % 17 = 0;
ANALYZE docs;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'array_ops' AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuvec');

-- the planner takes the index by itself
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tags <%> '{"tag 3","tag 40"}' <= 0.5;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE 3 > ints <~> '{7,9}' AND ints <#> '{7,9}' <= -1;
SELECT index_of($$SELECT id FROM docs WHERE words <-> '{"tag 3","tag 40"}' < 0.3 OR 1 - (words <%> '{"tag 5"}') > 0.9$$);
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE array_jaccard_distance(tags, '{"tag 3","tag 40"}') < 0.3 ORDER BY tags <-> '{"tag 3"}' LIMIT 3;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY 1 - (tags <%> '{"tag 3"}') DESC NULLS LAST LIMIT 3;
SET plan_cache_mode = force_generic_plan;
PREPARE near (text[], float8) AS SELECT count(*), min(id), max(id) FROM docs WHERE tags <%> $1 <= $2;
EXPLAIN (COSTS OFF) EXECUTE near('{"tag 3","tag 40"}', 0.5);
EXECUTE near('{"tag 3","tag 40"}', 0.5);
EXECUTE near('{"tag 3",NULL,"tag 3"}', 0);
EXECUTE near('{}', 1);
EXECUTE near('{}', 0.99);
EXECUTE near(NULL, 0.5);
EXECUTE near('{"tag 3"}', NULL);
EXECUTE near('{"tag 3"}', 'NaN');
EXECUTE near('{"tag 3"}', '-inf');
RESET plan_cache_mode;
-- not where it cannot help, or has other sets
SELECT c, index_of('SELECT id FROM docs WHERE ' || c) FROM unnest(ARRAY['tags <%> ''{"tag 3"}'' >= 0.5', 'NOT tags <%> ''{"tag 3"}'' <= 0.5', 'tags <%> tags <= 0.5', 'tags <%> ''{"tag 3"}'' <= id', 'tags <%> ''{"tag 3"}'' <= random()', '(tags COLLATE "C") <%> ''{"tag 3"}'' <= 0.5', 'tags <%> (''{"tag 3"}'' COLLATE "C") <= 0.5', 'words::text[] <%> ''{"tag 3"}'' <= 0.5', 'tags <<~>> idset_threshold(''{3}'', 0.5) IS NOT true', 'tags <%> ''{"tag 3"}'' <= 0.5', 'tags <<~>> idset_threshold(''{3}'', 0.5)']) c;
RESET enable_seqscan;

-- the same rows by the index, by a bitmap and without
CREATE FUNCTION found(condition text, parts text, planned text, relation text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT count(*) || %L || coalesce(string_agg(id::text, %1$L ORDER BY id), %L) FROM %s WHERE %s', ' ', '', relation, condition);
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', (parts = 'seq')::text, true), set_config('enable_bitmapscan', (parts = 'bitmap')::text, true),
			set_config('enable_indexscan', (parts = 'index')::text, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF plan NOT LIKE planned THEN RAISE 'not by %: %', parts, plan; END IF;
	EXECUTE query INTO result;
	RETURN result;
END $$;
CREATE FUNCTION same(condition text, relation text DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_scan text := found(condition, 'seq', '%"Seq Scan"%', relation);
	by_bitmap text := found(condition, 'bitmap', '%Bitmap Index Scan%docs_%', relation);
	by_index text := found(condition, 'index', '%"Index Scan"%docs_%', relation);
BEGIN
	RETURN CASE WHEN by_scan = by_bitmap AND by_scan = by_index THEN 'same: ' || split_part(by_scan, ' ', 1) ELSE format('by scan %s by bitmap %s by index %s', by_scan, by_bitmap, by_index) END;
END $$;
CREATE TABLE queries AS SELECT row_number() OVER () AS n, col, q FROM (VALUES ('tags', '{"tag 3","tag 40"}'), ('tags', '{}'), ('tags', '{NULL}'), ('tags', '{"tag 1",NULL}'), ('tags', '{"tag 1","tag 1","tag 2"}'), ('ints', '{-5,7,300}'), ('ints', '{7}'), ('smalls', '{-3,5,9}'), ('bigs', '{5,6,7}'), ('bigs', (SELECT format('{%s}', a) FROM same LIMIT 1)), ('bigs', (SELECT format('{%s,1}', b) FROM same LIMIT 1)), ('words', '{"tag 3","tag 40"}'), ('uuids', (SELECT uuids::text FROM docs WHERE cardinality(uuids) = 3 ORDER BY id LIMIT 1))) v(col, q);
SELECT n, col, op, string_agg(same(format('%s %s %L %s %s', col, op, q, comparison, d)), ', ' ORDER BY comparison, d) AS rows
	FROM queries, (VALUES ('<%>', 0.5), ('<%>', 0.75), ('<->', 0.6), ('<#>', -2), ('<~>', 3), ('<~>', 0)) v(op, d), unnest('{<,<=,=}'::text[]) comparison GROUP BY 1, 2, 3 ORDER BY 1, 3;
SELECT n, col, m, string_agg(same(format('%s <<~>> idset_threshold(idset_of_array(%L::%s), %s, %L)', col, q, format_type(atttypid, NULL), s, m)), ', ' ORDER BY s) AS rows
	FROM queries JOIN pg_attribute ON attrelid = 'docs'::regclass AND attname = col, (VALUES ('jaccard', 0.3), ('jaccard', 1), ('cosine', 0.6), ('intersection', 2), ('hamming', -3), ('containment', 1), ('tversky(0.2, 0.7)', 0.5)) v(m, s) GROUP BY 1, 2, 3 ORDER BY 1, 3;
SELECT c, same(c) FROM unnest(ARRAY['1 - (tags <%> ''{"tag 3","tag 4"}'') >= 0.4 AND price < 50', 'coalesce(tags <%> ''{"tag 3","tag 4"}'', 1) <= 0.5', '100 * (ints <%> ''{7,-5}'')::numeric < 60', 'tags <-> ''{"tag 3"}'' < 0.9', 'tags <%> (SELECT tags FROM docs WHERE id = 601) <= 0.6', 'tags <<~>> ANY (ARRAY[idset_threshold(idset_of_array(''{"tag 3"}''::text[]), 0.5, ''jaccard''), idset_threshold(idset_of_array(''{"tag 4","tag 5"}''::text[]), 2, ''intersection''), NULL])', 'tags && ''{"tag 3"}'' AND tags <%> ''{"tag 3","tag 9"}'' <= 0.7', '''{"tag 3","tag 9"}'' <%> tags <= 0.7']) c;
SELECT same('tags <%> ''{"tag 3"}'' <= ''NaN'''), same('ints <~> ''{7}'' <= ''inf''');

-- an index makes no statement fail: an array that is too large for a set
CREATE TABLE large AS SELECT (SELECT array_agg(i) FROM generate_series(1, 70000) i) AS q;
CREATE TABLE none (id int, ints int[], price int);
CREATE INDEX docs_none ON none USING gpuvec (ints, price);
SET enable_seqscan = off;
SELECT c, message('SELECT count(*) FROM ' || c) FROM unnest(ARRAY['none WHERE ints <%> (SELECT q FROM large) <= 0.5', 'none, large WHERE ints <%> q <= 0.5', 'none WHERE ints <%> (SELECT array_agg(i) FROM generate_series(1, 70000) i) <= 0.5 AND price = 1', 'docs WHERE id < -100000 AND ints <%> (SELECT q FROM large) <= 0.5',
	'docs WHERE ints <%> (SELECT q FROM large) <= 0.5', 'docs, large WHERE ints <%> q <= 0.5']) c;
SELECT format('SELECT count(*) FROM none WHERE ints <%%> %L <= 0.5', q) AS constant FROM large \gset
:constant;
RESET enable_seqscan;
-- nor an order by the distance from it, whatever the rows come from
CREATE TABLE halves (id int, ints int[], price int) PARTITION BY RANGE (id);
CREATE TABLE docs_h1 PARTITION OF halves FOR VALUES FROM (MINVALUE) TO (3000);
CREATE TABLE docs_h2 PARTITION OF halves FOR VALUES FROM (3000) TO (MAXVALUE);
INSERT INTO halves SELECT id, ints, price FROM docs WHERE id % 10 = 0;
CREATE INDEX docs_halves ON halves USING gpuvec (ints, price);
ANALYZE halves;
CREATE TABLE ordered AS SELECT c FROM unnest(ARRAY['none ORDER BY ints <%> (SELECT q FROM large)', 'docs WHERE ints && ''{123456}'' ORDER BY ints <%> (SELECT q FROM large)', 'halves WHERE price = -1 ORDER BY ints <#> (SELECT q FROM large)', 'large, LATERAL (SELECT id FROM none ORDER BY ints <~> q LIMIT 3) x', 'large, LATERAL (SELECT id FROM halves WHERE price = -1 ORDER BY ints <~> q LIMIT 3) x',
	'docs ORDER BY ints <%> (SELECT q FROM large)', 'docs WHERE ints && ''{7}'' ORDER BY ints <%> (SELECT q FROM large)', 'halves WHERE price < 50 ORDER BY ints <#> (SELECT q FROM large)', 'large, LATERAL (SELECT id FROM halves WHERE price < 50 ORDER BY ints <~> q LIMIT 3) x', 'large, LATERAL (SELECT id FROM docs ORDER BY ints <~> q LIMIT 3) x']) c;
SET enable_sort = off;
SELECT c, index_of('SELECT id FROM ' || c || ' LIMIT 2') <> 'none' AS by_index, message('SELECT id FROM ' || c || ' LIMIT 2') FROM ordered;
SET enable_indexscan = off; SET enable_bitmapscan = off;
SELECT c, message('SELECT id FROM ' || c || ' LIMIT 2') FROM ordered;
RESET enable_sort; RESET enable_indexscan; RESET enable_bitmapscan;
-- one that has more elements, but few different ones, is none
CREATE TABLE few (id int, ints int[]);
INSERT INTO few VALUES (1, '{1}'), (2, '{300}'), (3, '{7,-5,NULL}'), (4, '{7,-5,300}'), (5, NULL);
CREATE INDEX docs_few ON few USING gpuvec (ints);
SET enable_seqscan = off;
SELECT id, ints FROM few WHERE ints <%> (SELECT array_agg(CASE i % 3 WHEN 0 THEN 7 WHEN 1 THEN -5 ELSE 300 END) FROM generate_series(1, 70000) i) <= 0.5 ORDER BY id;
SELECT id, ints FROM few ORDER BY ints <%> (SELECT array_agg(CASE i % 3 WHEN 0 THEN 7 WHEN 1 THEN -5 ELSE 300 END) FROM generate_series(1, 140000) i) LIMIT 3;
SELECT index_of('SELECT id FROM few ORDER BY ints <%> (SELECT q FROM large) LIMIT 3'), index_of('SELECT id FROM few WHERE ints <%> (SELECT q FROM large) <= 0.5');
RESET enable_seqscan;

-- joins
SET enable_seqscan = off;
SELECT plan_lines($$EXPLAIN (COSTS OFF) SELECT a.id, b.id FROM docs a JOIN docs b ON a.words <%> b.words <= 0.1 WHERE a.id IN (5, 6)$$);
SELECT count(*), sum(b.id) FROM docs a JOIN docs b ON a.words <%> b.words <= 0.3 AND b.id % 2 = 0 WHERE a.id BETWEEN 1 AND 60;
SELECT count(*), sum(b.id) FROM docs a LEFT JOIN docs b ON a.tags <%> b.tags <= 0.3 AND b.price < a.price WHERE a.id BETWEEN 1 AND 60;
SET enable_indexscan = off; SET enable_bitmapscan = off;
SELECT count(*), sum(b.id) FROM docs a JOIN docs b ON a.words <%> b.words <= 0.3 AND b.id % 2 = 0 WHERE a.id BETWEEN 1 AND 60;
SELECT count(*), sum(b.id) FROM docs a LEFT JOIN docs b ON a.tags <%> b.tags <= 0.3 AND b.price < a.price WHERE a.id BETWEEN 1 AND 60;
RESET enable_seqscan; RESET enable_indexscan; RESET enable_bitmapscan;

CREATE FUNCTION counted(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = on AS $$
DECLARE
	line text;
	plan text = '';
	result text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		plan = plan || line || E'\n';
	END LOOP;
	EXECUTE query INTO result;
	RETURN coalesce(result, 'no row') || CASE WHEN plan !~ 'gpuvec count' THEN ' no node' WHEN plan ~ 'Scans Run' THEN ' by scan' ELSE ' by index' END;
END $$;
CREATE FUNCTION sequential(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = on SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN coalesce(result, 'no row');
END $$;
CREATE FUNCTION compare(condition text, relation text DEFAULT 'docs', what text DEFAULT 'count(*)') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text = format('SELECT %s FROM %s WHERE %s', what, relation, condition);
	node text = counted(query);
	seq text = sequential(query);
BEGIN
	RETURN CASE WHEN node LIKE seq || ' %' THEN node ELSE format('%s, but %s by a sequential scan', node, seq) END;
END $$;

-- collations: an index has the sets of its own
CREATE TABLE cased (id int, tags text[]);
INSERT INTO cased SELECT i, ARRAY[CASE WHEN i % 2 = 0 THEN 'Tag ' ELSE 'tag ' END || i % 7, 'x'] FROM generate_series(1, 700) i;
SELECT count(*) > 0 AS icu FROM pg_collation WHERE collprovider = 'i' \gset
\if :icu
CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
\else
CREATE COLLATION any_case FROM "C";
\endif
CREATE INDEX docs_cased ON cased USING gpuvec (tags);
VACUUM ANALYZE cased;
CREATE TABLE conditions AS SELECT c FROM unnest(ARRAY['tags <%> ''{"tag 3"}'' <= 0.5', 'tags COLLATE any_case <%> ''{"tag 3"}'' <= 0.5', 'tags <%> (''{"tag 3"}'' COLLATE any_case) <= 0.5', '(tags COLLATE "C") <%> ''{"tag 3"}'' <= 0.5']) c;
SELECT c.c, index_of('SELECT id FROM cased WHERE ' || c.c) FROM conditions c;
-- (by the other index one would not find half of the rows)
SELECT same('tags <%> ''{"tag 3",x}'' <= 0.4', 'cased'), sequential('SELECT count(*) FROM cased WHERE tags COLLATE any_case <%> ''{"TAG 3",x}'' <= 0.4') = split_part(counted('SELECT count(*) FROM cased WHERE tags COLLATE any_case <%> ''{"TAG 3",x}'' <= 0.4'), ' ', 1) AS no_index;
CREATE INDEX docs_any_case ON cased USING gpuvec (tags COLLATE any_case);
SELECT c.c, index_of('SELECT id FROM cased WHERE ' || c.c) FROM conditions c;
SELECT same('tags COLLATE any_case <%> ''{"TAG 3",x}'' <= 0.4', 'cased') = CASE WHEN :'icu' THEN 'same: 100' ELSE 'same: 0' END AS any_case, same('tags <%> ''{"tag 3",x}'' <= 0.4', 'cased');
SELECT compare('tags COLLATE any_case <<~>> idset_threshold(idset_of_array(''{"TAG 3",x}''::text[] COLLATE any_case), 1)', 'cased') = CASE WHEN :'icu' THEN '100 by index' ELSE '0 by index' END AS any_case, compare('tags <<~>> idset_threshold(idset_of_array(''{"tag 3",x}''::text[]), 1)', 'cased');

-- row-level security: no row that a policy hides has its set made
CREATE TABLE hidden (id int, owner name DEFAULT 'nobody', tags text[]);
INSERT INTO hidden SELECT i, CASE WHEN i % 2 = 0 THEN 'nobody' ELSE 'regress_gpuvec_arrays' END, ARRAY['tag ' || i % 50] FROM generate_series(1, 2000) i;
CREATE INDEX docs_hidden ON hidden USING gpuvec (tags);
ANALYZE hidden;
CREATE ROLE regress_gpuvec_arrays;
GRANT USAGE ON SCHEMA index_arrays_thresholds TO regress_gpuvec_arrays;
GRANT SELECT ON hidden TO regress_gpuvec_arrays;
ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON hidden USING (owner = current_user);
SET ROLE regress_gpuvec_arrays;
SET enable_seqscan = off;
SELECT plan_lines($$EXPLAIN (COSTS OFF) SELECT count(*) FROM hidden WHERE tags <%> '{"tag 3"}' <= 0.5$$);
SELECT plan_lines($$EXPLAIN (COSTS OFF) SELECT count(*) FROM hidden WHERE tags <<~>> ('{3}', 0.5, 'jaccard')$$);
SELECT count(*) FROM hidden WHERE tags <%> '{"tag 3"}' <= 0.5;
RESET enable_seqscan;
RESET ROLE;

-- what a reader has made is not taken for ours
CREATE FUNCTION array_jaccard_distance(text[], text[]) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS 'SELECT 0.1::float8';
CREATE FUNCTION idset_array_within(text[], float8, text) RETURNS idset_threshold LANGUAGE sql IMMUTABLE STRICT AS $$SELECT public.idset_threshold('{1}', 1, 'jaccard')$$;
CREATE OPERATOR <%> (LEFTARG = text[], RIGHTARG = text[], FUNCTION = array_jaccard_distance);
SET enable_seqscan = off;
SELECT plan_lines($$EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tags <%> '{"tag 3"}'::text[] <= 0.5$$);
SELECT plan_lines($$EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tags OPERATOR(public.<%>) '{"tag 3"}'::text[] <= 0.5$$);
RESET enable_seqscan;
DROP OPERATOR <%> (text[], text[]);
DROP FUNCTION array_jaccard_distance(text[], text[]), idset_array_within(text[], float8, text);

-- counts without looking at rows: by thresholds, which sets of arrays decide
VACUUM docs;
CREATE FUNCTION reaching(words text[], score float8, measure text) RETURNS idset_threshold LANGUAGE sql IMMUTABLE AS 'SELECT public.idset_threshold(public.idset_of_array(words), score, measure)';
CREATE TABLE counts AS SELECT n, c FROM unnest(ARRAY['tags <<~>> reaching(''{"tag 3","tag 40"}'', 0.3, ''jaccard'')', 'tags <<~>> reaching(''{"tag 3"}'', -2, ''hamming'')', 'tags <<~>> reaching(''{}'', -1, ''hamming'')', 'tags <<~>> reaching(''{}'', 1, ''jaccard'')', 'tags <<~>> reaching(''{NULL}'', 0, ''jaccard'')', 'tags <<~>> reaching(NULL, 0, ''jaccard'')', 'tags <<~>> reaching(''{"tag 3","tag 40"}'', 0.3, ''jaccard'') AND price < 50',
	'bigs <<~>> idset_threshold(idset_of_array(ARRAY[(SELECT a FROM same LIMIT 1)]::int8[]), 1, ''containment'')', 'smalls <<~>> (''{3,5}'', 1, ''intersection'')', 'tags <<~>> reaching(''{"tag 3"}'', 0.3, ''jaccard'') AND tags <<~>> reaching(''{"tag 4"}'', 0.3, ''jaccard'')', 'tags <<~>> reaching(''{"tag 3"}'', 0.3, ''jaccard'') AND tags && ''{"tag 3"}''', 'tags <<~>> ANY (ARRAY[reaching(''{"tag 3"}'', 0.3, ''jaccard'')])', 'tags && ''{"tag 3"}''', 'tags @> ''{"tag 3"}''', 'tags <%> ''{"tag 3","tag 40"}'' <= 0.7', '100 * (ints <%> ''{7,-5}'')::numeric < 60 OR ints <~> ''{300}'' < 2']) WITH ORDINALITY u(c, n);
SELECT c, compare(c) FROM counts ORDER BY n;
SELECT what, compare('tags <<~>> reaching(''{"tag 3","tag 40"}'', 0.3, ''jaccard'') AND price < 50', 'docs', what) FROM unnest(ARRAY['count(*)', 'min(price) || '' '' || max(price)', 'count(id)']) what;
SELECT compare('true', format('(SELECT price, count(*) AS n FROM docs WHERE tags <<~>> reaching(%L, 0.3, %L) GROUP BY price) g', '{"tag 3"}', 'jaccard'), 'sum(n * price)');
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
PREPARE counted (text[], float8) AS SELECT count(*) FROM docs WHERE tags <<~>> idset_threshold(idset_of_array($1), $2, 'jaccard');
EXPLAIN (COSTS OFF) EXECUTE counted('{"tag 3","tag 40"}', 0.3);
EXECUTE counted('{"tag 3","tag 40"}', 0.3);
EXECUTE counted('{"tag 3","tag 3"}', 0.5);
EXECUTE counted('{}', 0);
EXECUTE counted(NULL, 0);
RESET plan_cache_mode;
SELECT q, (SELECT count(*) FROM docs WHERE words <<~>> idset_threshold(idset_of_array(q), 0.5, 'jaccard')) FROM (SELECT ARRAY['tag 1', 'tag ' || i] AS q FROM generate_series(3, 5) i) s;
RESET enable_seqscan;
-- rows of pages that are not all-visible, with own changes; and of other rows
BEGIN;
UPDATE docs SET tags = '{"tag 3"}' WHERE id BETWEEN 100 AND 110;
DELETE FROM docs WHERE id BETWEEN 200 AND 300;
INSERT INTO docs (id, tags, price) SELECT 9000 + i, CASE WHEN i % 2 = 0 THEN '{"tag 3",NULL,"tag 40"}'::text[] END, 7 FROM generate_series(1, 20) i;
SELECT c, compare(c) FROM counts WHERE n IN (1, 2, 3, 7, 8) ORDER BY n;
ROLLBACK;
SELECT c, compare(c) FROM counts WHERE n IN (1, 2, 3, 7, 8) ORDER BY n;
-- partitions
CREATE TABLE parted (id int, tags text[], price int) PARTITION BY RANGE (id);
CREATE TABLE docs_p1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (3000);
CREATE TABLE docs_p2 PARTITION OF parted FOR VALUES FROM (3000) TO (MAXVALUE);
INSERT INTO parted SELECT id, tags, price FROM docs;
CREATE INDEX docs_parted ON parted USING gpuvec (tags, price);
VACUUM ANALYZE parted;
SELECT c, compare(c, 'parted') FROM counts WHERE n IN (1, 2, 3, 7, 10, 13, 15) ORDER BY n;
SELECT same('tags <%> ''{"tag 3","tag 40"}'' <= 0.7', 'parted');
DROP SCHEMA index_arrays_thresholds CASCADE;
DROP ROLE regress_gpuvec_arrays;
