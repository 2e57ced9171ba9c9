-- Indexes on columns of jsonb: arrays of strings and numbers, distances of the
-- sets of their elements, and the server's own operators, which are checked on
-- the rows.
CREATE SCHEMA index_jsonb;
SET search_path = index_jsonb, public;
SET client_min_messages = error;
CREATE FUNCTION message(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; hint text; context text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, nullif(concat_ws(' ', nullif(detail, ''), nullif(hint, '')), ''), substring(context, 'making a set for index "\w+"'));
END $$;
-- what a set has: hashes of strings and numbers, no nulls
SELECT idset_of_jsonb('["a","b"]') = idset_of_array('{a,b}'::text[]) AS strings, idset_of_jsonb('[1,5000000000,0.5,-0,1e200]') = idset_of_array('{1,5000000000,0.5,0,1e200}'::numeric[]) AS numbers, idset_of_jsonb('[1]') = idset_of_jsonb('[1.0]') AND idset_of_jsonb('[1e0]') = idset_of_jsonb('[1.000]') AS one, idset_of_jsonb('["1"]') <> idset_of_jsonb('[1]') AS other, idset_of_jsonb('["é日",""]') = idset_of_array('{é日,""}'::text[]) AS unicode,
	idset_of_jsonb('["a",null,"a","b"]') = idset_of_jsonb('["b","a"]') AS same, idset_of_jsonb('[]') AS empty, idset_of_jsonb('[null]') AS nulls, idset_of_jsonb(NULL) IS NULL AS nothing;
SELECT j, message(format('SELECT idset_of_jsonb(%L)', j)) FROM unnest('{"{\"a\": 1}","{}","\"a\"","3","null","true","[\"a\",true]","[null,1,[\"b\"],false]","[{\"a\": 1}]"}'::text[]) j;
SELECT message('SELECT idset_of_jsonb(to_jsonb(array_agg(i))) FROM generate_series(1, 70000) i'), idset_of_jsonb(to_jsonb(array_agg(i % 3))) = idset_of_jsonb('[0,1,2]') AS few FROM generate_series(1, 140000) i;
SELECT a <-> b AS bb, a <%> b AS jaccard, a <#> b AS common, a <~> b AS differ FROM (VALUES ('["red","blue","red",1]'::jsonb, '["blue","green",null,1.0]'::jsonb), ('[]', '[]'), ('[]', '["a"]'), ('["a"]', NULL)) v(a, b);
SELECT count(*), bool_and((a <%> b) = (idset_of_jsonb(a) <%> idset_of_jsonb(b)) AND (a <-> b) = (idset_of_jsonb(a) <-> idset_of_jsonb(b)) AND (a <#> b) = (idset_of_jsonb(a) <#> idset_of_jsonb(b)) AND (a <~> b) = (idset_of_jsonb(a) <~> idset_of_jsonb(b))) AS defined, bool_and((a <<~>> idset_threshold(idset_of_jsonb(b), 0.3, m)) = (idset_of_jsonb(a) <<->> idset_threshold(idset_of_jsonb(b), 0.3, m))) AS thresholds
	FROM (SELECT to_jsonb(ARRAY(SELECT i * j % 11 - 3 FROM generate_series(1, i) j)) a, to_jsonb(ARRAY(SELECT i * j % 7 FROM generate_series(1, 9 - i) j)) b FROM generate_series(1, 8) i) s, unnest('{jaccard,cosine,hamming,intersection,"tversky(0.5, 0.1)"}'::text[]) m;
SELECT idset_jsonb_within('["a",null]', 0.5, 'jaccard') = idset_array_within('{a}'::text[], 0.5, 'jaccard') AS as_arrays, q, idset_jsonb_within(q, 0.5, 'jaccard') AS without_set FROM (VALUES ('{"a": 1}'::jsonb), ('"a"'), ('["a",true]'), (NULL)) v(q);
SELECT message(s) FROM unnest(ARRAY[$$SELECT '["a"]'::jsonb <%> '"a"'$$, $$SELECT '[[]]' <#> '["a"]'::jsonb$$, $$SELECT '{}'::jsonb <<~>> idset_threshold('{}', 1)$$, $$SELECT '[]'::jsonb <<~>> idset_threshold('{}', 1, 'nearness')$$]) s;
-- the set of a constant or parameter is kept, but a parameter may change
CREATE FUNCTION in_turn() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text = '';
	q jsonb;
BEGIN
	FOR i IN 1..3 LOOP
		q = jsonb_build_array(i, 5);
		said = concat_ws(' ', said, '[1,5]'::jsonb <%> q, q <~> '[2,5]'::jsonb);
	END LOOP;
	RETURN said;
END $$;
SELECT in_turn();
-- Values without a type: two of them as before, one is taken for jsonb beside
-- a jsonb only.  Types are not mixed.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	EXECUTE 'SELECT round((' || statement || ')::numeric, 3)' INTO result;
	RETURN coalesce(result, 'null');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;
SELECT a, op, b, try(format('%s %s %s', a, op, b)), try(format('%s %s %s', b, op, a)) AS turned
	FROM (VALUES (1, $$'{1,2}'$$, $$'{2,3}'$$), (2, $$'[1,2]'$$, $$'[2,3]'$$), (3, $$'(1,2)'$$, $$'(2,3)'$$), (4, 'NULL', 'NULL'), (5, $$'{1,2}'::idset$$, $$'[2,3]'$$), (6, $$'{1,2}'::int[]$$, $$'{2,3}'$$), (7, $$'{1,2}'::text[]$$, $$'{2,3}'$$), (8, $$'[1,2]'::jsonb$$, $$'[2,3]'$$), (9, $$'[1,2]'::jsonb$$, 'NULL'), (10, $$'(1,2)'::point$$, $$'(2,3)'$$), (11, $$'{1:2}'::idvec$$, $$'{2:3}'$$), (12, $$'[1,2]'::jsonb$$, $$'{2,3}'::idset$$), (13, $$'[1,2]'::jsonb$$, $$'{2,3}'::int[]$$), (14, $$'[1,2]'::json$$, $$'[2,3]'$$), (15, $$'[1,2]'::text$$, $$'[2,3]'::jsonb$$)) v(n, a, b), unnest('{<->,<%>,<#>,<~>}'::text[]) WITH ORDINALITY o(op, m) ORDER BY n, m;
SELECT split_part(message(s), ' | ', 2) AS message FROM unnest(ARRAY[$$SELECT '[3]' <<~>> idset_threshold('{3}', 1)$$, $$SELECT '["a"]'::jsonb <<~>> '["a"]'::jsonb$$]) s;

-- rows: nulls, duplicates, forms of numbers, empty arrays, different elements
-- with one id
CREATE TABLE docs (id int, tags jsonb, price int) WITH (autovacuum_enabled = off);
CREATE FUNCTION chance(i int, j int, kind int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT (hashint4extended(i * 100 + j, kind) & 1048575) / 1048576::float8 $$;
CREATE TABLE same AS SELECT to_jsonb(min(i)) AS a, to_jsonb(max(i)) AS b FROM generate_series(1, 200000) i GROUP BY hash_numeric_extended(i, 0) & 4294967295 HAVING count(*) > 1 ORDER BY 1 LIMIT 2;
INSERT INTO same SELECT to_jsonb(min('w' || i)), to_jsonb(max('w' || i)) FROM generate_series(1, 200000) i GROUP BY hashtextextended('w' || i, 0) & 4294967295 HAVING count(*) > 1 ORDER BY 1 LIMIT 2;
SELECT jsonb_typeof(a), count(*) > 0 AS collisions, bool_and(a <> b AND jsonb_build_array(a) <%> jsonb_build_array(b) = 0) AS one_id FROM same GROUP BY 1 ORDER BY 1;
CREATE FUNCTION array_of(i int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT coalesce(jsonb_agg(CASE WHEN chance(i, j, 1) < 0.03 THEN NULL WHEN chance(i, j, 3) < 0.3 THEN to_jsonb(round((chance(i, j, 2) ^ 3 * 30)::numeric, 0) * (CASE j % 3 WHEN 0 THEN 1 WHEN 1 THEN 1.0 ELSE 1.00 END)) ELSE to_jsonb(CASE WHEN chance(i, j, 4) < 0.1 THEN 'é日 ' WHEN chance(i, j, 4) < 0.15 THEN '' ELSE 'tag ' END || (chance(i, j, 2) ^ 3 * 40)::int) END), '[]')
	FROM generate_series(1, (i * 7919 % 23) / 3) j $$;
INSERT INTO docs SELECT i, CASE WHEN i % 41 > 0 THEN array_of(i) || CASE i % 14 WHEN 0 THEN (SELECT jsonb_agg(a) FROM same) WHEN 1 THEN (SELECT jsonb_agg(b) FROM same) ELSE '[]' END END, i % 100 FROM generate_series(1, 3000) i;
CREATE INDEX docs_tags ON docs USING gpuvec (tags, price);
INSERT INTO docs SELECT -id, tags || '["new"]', price FROM docs WHERE id % 5 = 0;
UPDATE docs SET tags = tags || '["tag 3",7.0]' WHERE id % 11 = 0;
UPDATE docs SET price = price + 1 WHERE id % 13 = 0;
DELETE FROM docs WHERE id % 17 = 0;
ANALYZE docs;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'jsonb_ops' AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuvec');
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
	by_bitmap text := found(condition, 'bitmap', '%Bitmap Index Scan%docs\_%', relation);
	by_index text := found(condition, 'index', '%"Index Scan"%docs\_%', relation);
BEGIN
	RETURN CASE WHEN by_scan = by_bitmap AND by_scan = by_index THEN 'same: ' || split_part(by_scan, ' ', 1) ELSE format('by scan %s by bitmap %s by index %s', by_scan, by_bitmap, by_index) END;
END $$;
CREATE TABLE queries AS SELECT n, q, name FROM (SELECT n, q, q::text AS name FROM unnest('{"[\"tag 3\"]","[\"tag 3\",\"tag 4\"]","[\"tag 3\",\"tag 3\",7,\"tag 4\"]","[7]","[7.0]","[\"7\"]","[\"é日 3\"]","[\"tag 3\",null]","[null]","[]","[[]]","[{}]","[\"tag 3\",[\"tag 4\"]]","[[\"tag 3\"]]","[\"tag 3\",true]","[false,7]","[\"tag 3\",{\"a\": 1}]","{}","{\"tag 3\": 1}","\"tag 3\"","7","7.00","null","true"}'::jsonb[]) WITH ORDINALITY u(q, n)
	UNION ALL SELECT 50 + row_number() OVER (ORDER BY a), jsonb_build_array(a, 'tag 3'), 'a of ' || jsonb_typeof(a) FROM same UNION ALL SELECT 60 + row_number() OVER (ORDER BY a), b, 'b of ' || jsonb_typeof(b) FROM same UNION ALL SELECT 70 + row_number() OVER (ORDER BY id), tags, 'row' FROM docs WHERE id IN (14, 28, 29, 43, 600, 602)
	UNION ALL SELECT 80, (SELECT jsonb_agg('tag ' || i) || jsonb_agg(i) || '["", null]' FROM generate_series(0, 30) i), 'most' UNION ALL SELECT 81, (SELECT jsonb_agg('tag ' || i) || '[[1],{}]' FROM generate_series(0, 30) i), 'most and others') s;
SELECT n, name, same(format('tags @> %L', q)) AS contains, same(format('tags <@ %L', q)) AS contained, same(format('tags = %L', q)) AS equal FROM queries ORDER BY n;
-- more elements than a set has ids
CREATE TABLE few AS SELECT * FROM docs WHERE id BETWEEN -100 AND 100;
CREATE INDEX docs_few ON few USING gpuvec (tags);
CREATE TABLE large AS SELECT jsonb_agg('tag ' || i) || jsonb_agg(i) AS q FROM generate_series(0, 33000) i;
SELECT op, same(format('tags %s (SELECT q FROM large)', op), 'few') FROM unnest('{@>,<@,=}'::text[]) op;
SELECT k, same(format('tags ? %L', k)) AS has FROM unnest('{tag 3,7,"é日 3","",none}'::text[]) k;
SELECT jsonb_typeof(a) AS type, same(format('tags ? %L', a #>> '{}')) AS a, same(format('tags ? %L', b #>> '{}')) AS b FROM same ORDER BY a::text;
SELECT k, same(format('tags ?| %L', k)) AS any, same(format('tags ?& %L', k)) AS all FROM unnest(ARRAY['{tag 3,tag 4}', '{tag 3,NULL,tag 3}', '{7,none}', '{é日 3,é日 4}', '{}', '{NULL}', '{{tag 3,tag 4},{tag 5,NULL}}', (SELECT array_agg(a #>> '{}')::text FROM (SELECT a FROM same WHERE jsonb_typeof(a) = 'string' ORDER BY a LIMIT 1) s)]) WITH ORDINALITY u(k, n) ORDER BY n;
SELECT op, same(format('tags %s (SELECT array_agg(%L || i) FROM generate_series(0, 70000) i)', op, 'tag ')) FROM unnest('{?|,?&}'::text[]) op;
SELECT c, same(c) FROM unnest(ARRAY['''["tag 3",7]'' <@ tags', '''["tag 3"]'' @> tags', 'tags ? ANY (''{tag 3,tag 4,NULL}'')', 'tags ? ANY (''{}'')', 'tags @> ANY (ARRAY[''["tag 3",7]'', ''"tag 4"'', NULL]::jsonb[])', 'tags @> ANY (ARRAY[''["tag 3",7]'', ''[true]'']::jsonb[])', 'tags <@ ANY (ARRAY[''["tag 3","tag 4"]'', ''{"a": 1}'', ''[]'']::jsonb[])', 'tags ? ''tag 3'' AND tags ?| ''{tag 4,tag 5}'' AND NOT tags ? ''tag 6''', 'tags ? ''tag 3'' AND price < 50', 'tags ? (SELECT tags ->> 0 FROM docs WHERE id = 602)', 'tags @> (SELECT tags FROM docs WHERE id = 602)', 'tags IS NULL', 'tags ?& (ARRAY[''tag 5'', ''tag 3'']::varchar[])::text[]']) c;
SELECT found(c, 'seq', '%"Seq Scan"%', 'docs') = found(c, 'bitmap', '%BitmapOr%', 'docs') AS same FROM unnest(ARRAY['tags ? ''tag 3'' OR tags @> ''[9]''']) c;
-- every row is found by its own value, among those that are equal
SELECT bool_and(same(format('tags = %L', tags)) LIKE 'same%') AS equal FROM docs WHERE id % 300 = 1;

-- distances: orders and thresholds
CREATE FUNCTION rows_of(query text, off text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan text; result text;
BEGIN
	PERFORM set_config(n, (n <> off)::text, true) FROM unnest('{enable_indexscan,enable_bitmapscan,enable_seqscan,enable_sort}'::text[]) n;
	IF off = 'enable_seqscan' THEN SET LOCAL enable_sort = off; ELSE SET LOCAL enable_bitmapscan = off; END IF;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF (plan LIKE '%"Index Scan"%') <> (off = 'enable_seqscan') THEN RAISE 'without %: %', off, plan; END IF;
	EXECUTE format('SELECT string_agg(r::text, %L) FROM (%s) r', '; ', query) INTO result;
	RETURN result;
END $$;
CREATE FUNCTION ordered(query text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN rows_of(query, 'enable_seqscan') IS DISTINCT FROM rows_of(query, 'enable_indexscan') THEN 'differ' ELSE 'same' END $$;
SELECT op, count(*), string_agg(DISTINCT ordered(format('SELECT tags %s %L AS d, count(*) FROM (SELECT * FROM docs ORDER BY tags %1$s %2$L LIMIT 300) x GROUP BY 1 ORDER BY 1', op, q)), ', ') AS rows
	FROM queries, unnest('{<->,<%>,<#>,<~>}'::text[]) op WHERE (n < 11 OR n BETWEEN 50 AND 59 OR n BETWEEN 70 AND 80) GROUP BY 1 ORDER BY 1;
SELECT ordered(q) FROM unnest(ARRAY['SELECT 1 - (tags <%> ''["tag 3",7]'') AS s FROM docs ORDER BY 1 - (tags <%> ''["tag 3",7]'') DESC NULLS LAST LIMIT 50', 'SELECT tags <#> ''["tag 3",7]'' AS s FROM docs WHERE tags ? ''tag 3'' AND price < 50 ORDER BY tags <#> ''["tag 3",7]'' LIMIT 50']) q;
SELECT n, name, op, string_agg(same(format('tags %s %L %s %s', op, q, comparison, d)), ', ' ORDER BY comparison, d) AS rows
	FROM queries, (VALUES ('<%>', 0.5), ('<%>', 0.75), ('<->', 0.6), ('<#>', -2), ('<~>', 3)) v(op, d), unnest('{<,<=}'::text[]) comparison WHERE n IN (3, 5, 8, 10, 51, 72) GROUP BY 1, 2, 3 ORDER BY 1, 3;
SELECT m, same(format('tags <<~>> idset_threshold(idset_of_jsonb(%L), %s, %L)', '["tag 3",7.0,null]', s, m)) FROM (VALUES ('jaccard', 0.3), ('cosine', 0.6), ('intersection', 2), ('hamming', -3), ('containment', 1), ('tversky(0.2, 0.7)', 0.5)) v(m, s) ORDER BY 1;
SELECT c, same(c) FROM unnest(ARRAY['1 - (tags <%> ''["tag 3","tag 4"]'') >= 0.4 AND price < 50', '''["tag 3","tag 9"]'' <%> tags <= 0.7', 'tags <%> (SELECT tags FROM docs WHERE id = 602) <= 0.6', 'jsonb_jaccard_distance(tags, ''["tag 3"]'') < 0.4', 'tags ? ''tag 3'' AND tags <%> ''["tag 3","tag 9"]'' <= 0.7']) c;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tags <%> '["tag 3",7]' <= 0.5 ORDER BY tags <-> '["tag 3",7]' LIMIT 5;
CREATE FUNCTION plan_has(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan text;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN concat_ws(', ', substring(plan, 'gpuvec count'), substring(plan, 'docs_tags'));
END $$;
-- counts: thresholds are decided by the sets, other conditions by the rows
VACUUM docs;
SELECT c, plan_has('SELECT count(*) FROM docs WHERE ' || c) FROM unnest(ARRAY['tags <<~>> idset_threshold(idset_of_jsonb(''["tag 3",7]''), 0.5, ''jaccard'')', 'tags ? ''tag 3''', 'tags @> ''["tag 3"]''']) c;
SELECT count(*) FROM docs WHERE tags <<~>> idset_threshold(idset_of_jsonb('["tag 3",7]'), 0.5, 'jaccard');
SELECT count(*), count(*) FILTER (WHERE tags <<~>> idset_threshold(idset_of_jsonb('["tag 3",7]'), 0.5, 'jaccard')) AS threshold FROM docs WHERE coalesce(tags) ? 'tag 3' OR true;
-- generic plans
SET plan_cache_mode = force_generic_plan;
PREPARE has (text) AS SELECT count(*) FROM docs WHERE tags ? $1;
SELECT plan_has('EXECUTE has(''tag 3'')');
EXECUTE has('tag 3');
EXECUTE has(NULL);
PREPARE several (text[], jsonb, jsonb) AS SELECT count(*) FROM docs WHERE tags ?| $1 AND tags @> $2 AND tags <@ $3;
EXECUTE several('{tag 3,tag 4}', '"tag 3"', '["tag 1","tag 2",[],"tag 3",null,"tag 4","tag 5",0,1,2]');
EXECUTE several('{tag 3,tag 4}', '[["tag 3"]]', '{"a": 1}');
EXECUTE several('{tag 3}', NULL, '[]');
PREPARE near (jsonb, float8) AS SELECT count(*), min(id) FROM docs WHERE tags <%> $1 <= $2;
EXECUTE near('["tag 3",7]', 0.5);
EXECUTE near('["tag 3",7.0,null,"tag 3"]', 0.5);
EXECUTE near(NULL, 0.5);
PREPARE nearest (jsonb) AS SELECT count(*), min(d), max(d) FROM (SELECT tags <%> $1 AS d FROM docs ORDER BY tags <%> $1 LIMIT 20) x;
EXECUTE nearest('["tag 3",7]');
EXECUTE nearest('[]');
RESET plan_cache_mode;
-- joins, search functions
SELECT count(*), sum(b.id) FROM docs a JOIN docs b ON b.tags @> a.tags WHERE a.id BETWEEN 600 AND 640;
SELECT count(*), count(DISTINCT a) FROM (SELECT a.id AS a FROM docs a, LATERAL (SELECT b.id FROM docs b ORDER BY b.tags <-> a.tags LIMIT 2) n WHERE a.id BETWEEN 1 AND 100) x;
SET enable_indexscan = off; SET enable_bitmapscan = off;
SELECT count(*), sum(b.id) FROM docs a JOIN docs b ON b.tags @> a.tags WHERE a.id BETWEEN 600 AND 640;
RESET enable_indexscan; RESET enable_bitmapscan; RESET enable_seqscan;
SELECT count(*), bool_and(t.score = jaccard_similarity(idset_of_jsonb(d.tags), idset_of_jsonb('["tag 3",7]'))) AS scored FROM gpuvec_topk('docs', 'tags', idset_of_jsonb('["tag 3",7]'), 20, 'jaccard') t JOIN docs d ON d.ctid = t.tid;

-- a query that no set is made of makes no error where no row is reached
CREATE TABLE none (id int, tags jsonb);
CREATE INDEX docs_none ON none USING gpuvec (tags);
CREATE TABLE failing AS SELECT c FROM unnest(ARRAY['WHERE tags <%> (SELECT ''{"a": 1}''::jsonb) <= 0.5', 'WHERE tags <%> ''["a",true]'' <= 0.5', 'WHERE tags <~> ''"a"'' < 3', 'ORDER BY tags <%> ''["a",{}]'' LIMIT 2', 'ORDER BY tags <#> (SELECT ''7''::jsonb) LIMIT 2', 'ORDER BY tags <~> (SELECT q FROM large) LIMIT 2']) c;
SET enable_seqscan = off; SET enable_sort = off;
SELECT c, message('SELECT * FROM none ' || c), message('SELECT * FROM docs ' || c) FROM failing;
RESET enable_seqscan; RESET enable_sort;
-- rows that are refused
CREATE TABLE refused (id int, tags jsonb);
CREATE INDEX refused_tags ON refused USING gpuvec (tags);
SELECT v, message(format('INSERT INTO refused VALUES (1, %L)', v)) FROM unnest('{"{\"a\": 1}","\"a\"","3","null","true","[\"a\",true]","[1,[2]]","[{\"a\": 1}]"}'::text[]) v;
INSERT INTO refused VALUES (2, '["a",1,null]'), (3, '[]'), (4, NULL);
SELECT message($$UPDATE refused SET tags = '{}' WHERE id = 2$$), message($$INSERT INTO refused SELECT 5, to_jsonb(array_agg(i)) FROM generate_series(1, 70000) i$$);
DROP INDEX refused_tags;
INSERT INTO refused VALUES (6, '{"a": 1}');
SELECT message('CREATE INDEX refused_tags ON refused USING gpuvec (tags)');
CREATE INDEX refused_arrays ON refused USING gpuvec (tags) WHERE jsonb_typeof(tags) = 'array';
SET enable_seqscan = off;
SELECT id FROM refused WHERE tags @> '[1.0]' AND jsonb_typeof(tags) = 'array';
SELECT id FROM refused WHERE tags = '{"a": 1}';
SELECT message('CREATE INDEX ON refused USING gpuvec (id)'), message('CREATE INDEX ON refused USING gpuvec ((to_json(tags)))');
-- expressions, domains, partitions
CREATE DOMAIN labels AS jsonb CHECK (jsonb_typeof(VALUE) = 'array');
CREATE TABLE parted (id int, tags labels, body jsonb) PARTITION BY RANGE (id);
CREATE TABLE docs_p1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE docs_p2 PARTITION OF parted FOR VALUES FROM (1000) TO (MAXVALUE);
INSERT INTO parted SELECT id, tags, jsonb_build_object('tags', tags) FROM docs;
CREATE INDEX docs_parted ON parted USING gpuvec (tags);
CREATE INDEX docs_body ON parted USING gpuvec ((body -> 'tags')) WHERE jsonb_typeof(body -> 'tags') = 'array';
ANALYZE parted;
SELECT same('tags ? ''tag 3''', 'parted'), same('tags <%> ''["tag 3",7]'' <= 0.5', 'parted'), same('body -> ''tags'' @> ''["tag 3"]'' AND jsonb_typeof(body -> ''tags'') = ''array''', 'parted');
SELECT ordered('SELECT tags <%> ''["tag 3",7]'' AS d FROM parted ORDER BY tags <%> ''["tag 3",7]'' LIMIT 50');
SET enable_sort = off;
SELECT message('SELECT id FROM parted ORDER BY tags <%> ''["tag 3",{}]'' LIMIT 2'), message('SELECT count(*) FROM (SELECT id FROM parted ORDER BY tags <%> ''["tag 3",true]'' LIMIT 2) x'), message('SELECT id FROM (SELECT id, row_number() OVER (ORDER BY tags <%> ''"tag 3"'') AS n FROM docs) x WHERE n < 3');
RESET enable_sort;
-- a GIN index beside it has its own class, and the operators are still its
RESET enable_seqscan;
SELECT string_agg(id::text, ' ' ORDER BY id) AS rows FROM docs WHERE tags @> '["tag 3",7]' AND tags ? 'tag 4' \gset
CREATE INDEX gin_tags ON docs USING gin (tags);
SET enable_seqscan = off;
SELECT string_agg(id::text, ' ' ORDER BY id) = :'rows' AS same FROM docs WHERE tags @> '["tag 3",7]' AND tags ? 'tag 4';
DROP INDEX docs_tags;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tags @> '["tag 3",7]';
SELECT string_agg(id::text, ' ' ORDER BY id) = :'rows' AS same FROM docs WHERE tags @> '["tag 3",7]' AND tags ? 'tag 4';
DROP SCHEMA index_jsonb CASCADE;
