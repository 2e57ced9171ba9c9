-- SELECT count(*) of boolean queries, and of other conditions on a set that
-- are not one search key, without looking at most rows
CREATE SCHEMA index_counts_boolean;
SET search_path = index_counts_boolean, public;
CREATE TABLE docs (id int NOT NULL, price int, day date, tag text, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 90);
-- more rows than a segment has; null sets and empty ones, large ids, rows
-- that are alike but for one id
INSERT INTO docs SELECT i, CASE WHEN i % 13 > 0 THEN i % 100 END, date '2020-01-01' + i % 365, 'tag' || i % 7,
	CASE WHEN i % 100 = 0 THEN NULL WHEN i % 50 = 1 THEN '{}' WHEN i % 20 = 3 THEN ARRAY[3] WHEN i % 20 = 4 THEN ARRAY[3, 4]
	ELSE ARRAY[i % 5, 5 + i % 7, 12 + i % 17, 100000 + i % 11, CASE WHEN i % 3 = 0 THEN 4294967295 ELSE 200 + i % 2003 END] END::bigint[]::idset FROM generate_series(1, 70000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, price, day, tag);
VACUUM ANALYZE docs;

/*
 * The rows of a query, and how they came about: by the index, by a scan that
 * the node has run, or without a node
 */
CREATE FUNCTION counted(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET enable_indexscan = off SET enable_bitmapscan = off AS $$
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
CREATE FUNCTION sequential(query text) RETURNS text LANGUAGE plpgsql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN coalesce(result, 'no row');
END $$;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	node text = counted(query);
	seq text = sequential(query);
BEGIN
	RETURN CASE WHEN node LIKE seq || ' %' THEN node ELSE format('%s, but %s by a sequential scan', node, seq) END;
END $$;
CREATE FUNCTION compare(condition text, relation text DEFAULT 'docs') RETURNS text LANGUAGE sql AS $$SELECT same(format('SELECT count(*) FROM %s WHERE %s', relation, condition))$$;
-- many rows as one, in order; only whether they are the same is told
CREATE FUNCTION facets(what text, condition text) RETURNS text LANGUAGE sql AS
$$SELECT regexp_replace(same(format('SELECT md5(string_agg(r::text, '','' ORDER BY r::text)) FROM (SELECT %s, count(*) FROM docs WHERE %s GROUP BY 1) r', what, condition)), '^[0-9a-f]{32}', 'groups')$$;

CREATE TABLE conditions (n int, condition text);
INSERT INTO conditions SELECT ordinality, c FROM unnest(ARRAY['tokens @@ ''3 & (12 | 13)''', 'tokens @@ ''3 & !7''', 'tokens @@ ''3 & (5 | !6)''', 'tokens @@ ''!4 & 3''', 'tokens @@ ''(1 | 2) & !(12 & 6)''', 'tokens @@ ''(1 & 6) | (2 & !7)''', 'tokens @@ ''3 & 4294967295''', 'tokens @@ ''100003 & (!4294967295 | 1)''',
	'''3 & !7''::idset_query ~~ tokens', 'tokens @@ ''3 & !!7''', 'tokens @@ ''3 & (3 | 4) & !(4 & 3)''', 'tokens @@ ''3 & (999999 | 6)''', 'tokens @@ ''3 & !999999''', 'tokens @@ ''999999 & !3''', 'tokens @@ ''3 & !3''', 'tokens @@ ''3 | (12 & !4)''', 'tokens @@ ''!3''', 'tokens @@ ''1 | !2''', 'tokens @@ NULL', 'NOT tokens @@ ''3 & !7''',
	'tokens @> ANY (ARRAY[''{3,12}'', ''{4,100003}'', ''{7}'']::idset[])', 'tokens @> ANY (ARRAY[''{3,12}'', NULL, ''{3}'']::idset[])', 'tokens @> ANY (ARRAY[''{3,12}'', ''{}'']::idset[])', 'tokens @> ANY (ARRAY[NULL]::idset[])', 'tokens @> ANY (''{}''::idset[])', 'tokens @> ANY (''{3,4,-1,99999999999}''::bigint[])', 'tokens @> ANY (''{-1}''::bigint[])', 'tokens @> ALL (ARRAY[''{3}'', ''{12}'']::idset[])',
	'tokens && ANY (ARRAY[''{3}'', ''{12,4294967295}'', ''{}'', NULL]::idset[])', 'tokens && ANY (ARRAY[''{}'', NULL]::idset[])', 'tokens = ANY (ARRAY[''{3}'', ''{3,4}'', ''{}'']::idset[])',
	'tokens <@ ''{3,4,12}''', 'tokens <@ ''{3}''', 'tokens <@ ''{}''', 'tokens <@ ''{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,100000,100001,100002,4294967295}''', 'tokens <@ ANY (ARRAY[''{3,4}'']::idset[])', 'tokens <@ ANY (ARRAY[''{3}'', ''{3,4}'']::idset[])', 'tokens <@ ''{3,4}'' AND tokens && ''{3}''',
	'tokens && ''{3}'' AND tokens && ''{12,13}''', 'tokens @> ''{3}'' AND tokens @@ ''5 | !6''', 'tokens @> 3 AND tokens @@ ''3 & !7'' AND tokens && ''{12,13}''', 'tokens && ''{3}'' AND tokens @> ''{}''', 'tokens && ''{3}'' AND tokens = ''{3,4}''', 'tokens @@ ''3 & !7'' AND tokens IS NOT NULL', 'tokens @@ ''3 & !7'' AND tokens IS NULL',
	'tokens @@ ''3 & !7'' AND price < 10', 'tokens @@ ''3 & !7'' AND price IS NULL', 'tokens @@ ''3 & !7'' AND price BETWEEN 10 AND 60 AND day < ''2020-06-01''', 'tokens @@ ''3 & !7'' AND tag = ''tag3''', 'tokens @@ ''3 & !7'' AND id > 100', 'tokens @> ANY (ARRAY[''{3,12}'', ''{4,100003}'']::idset[]) AND price = ANY (''{1,2,3}'')',
	'tokens @@ ''3 & !7'' AND random() < 2', 'tokens @@ ''3 & !7'' OR price = 7', 'tokens @@ (SELECT ''3 & !7''::idset_query)', '(tokens @@ ''3 & !7'') IS TRUE', 'tokens <@ ''{3}'' AND tokens @@ ''3 | !4''', 'tokens && ''{3}'' AND tokens @> ANY (ARRAY[''{5}'', ''{}'']::idset[])', 'tokens @@ ''!3'' AND price < 10', 'tokens @@ ''1 | !2'' AND price IS NULL']) WITH ORDINALITY u(c, ordinality);
SELECT condition, compare(condition) FROM conditions ORDER BY n;
EXPLAIN (COSTS OFF) SELECT count(*) FROM docs WHERE tokens @@ '3 & (5 | !6)' AND price < 10;
EXPLAIN (COSTS OFF) SELECT price, count(*) FROM docs WHERE tokens @> ANY (ARRAY['{3,12}', '{4,100003}']::idset[]) GROUP BY price;

-- limits: 64 ids, 64 values at a time, 1024 steps
CREATE FUNCTION or_of(first int, last int) RETURNS text LANGUAGE sql AS $$SELECT string_agg(i::text, ' | ') FROM generate_series(first, last) i$$;
CREATE FUNCTION deep(n int) RETURNS text LANGUAGE sql AS $$SELECT string_agg(i % 60 || ' & (!' || i % 40 || ' | ', '') || '5' || repeat(')', n) FROM generate_series(1, n) i$$;
SELECT n, compare(format('tokens @@ ''3 & (%s)''', or_of(10, 8 + n))), compare(format('tokens @@ ''3 & !(%s)''', or_of(300, 298 + n))), compare(format('tokens <@ ''{%s}''', replace(or_of(1, n), '|', ','))) FROM unnest(ARRAY[63, 64, 65, 70]) n;
SELECT n, compare(format('tokens @@ ''%s''', deep(n))) FROM unnest(ARRAY[1, 2, 21, 22, 31, 32, 63, 64, 65]) n;
SELECT n, compare(format('tokens @@ ''3 & (%s)''', (SELECT string_agg(format('(%s & !%s)', i % 30, 3 + i % 20), ' | ') FROM generate_series(1, n) i))) FROM unnest(ARRAY[10, 204, 205, 300]) n;
SELECT n, compare(format('tokens && ANY (ARRAY[%s]::idset[])', (SELECT string_agg(format('''{%s,%s}''', 3 * i, 300 + 7 * i), ',') FROM generate_series(1, n) i))), compare(format('tokens @> ANY (ARRAY[%s]::idset[])', (SELECT string_agg(format('''{%s,%s}''', i % 20, 3 + i % 7), ',') FROM generate_series(1, n) i))) FROM unnest(ARRAY[2, 60, 200, 400]) n;

-- random queries: in how many ways, and whether any count is wrong
CREATE FUNCTION draw(seed int, n int) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT ('x' || substr(md5(seed::text), 1, 7))::bit(28)::int % n$$;
CREATE FUNCTION random_query(seed int, levels int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN levels = 0 OR draw(seed, 10) < 3 THEN (ARRAY[0, 1, 2, 3, 4, 5, 6, 12, 13, 20, 100003, 100007, 4294967295, 300, 999999])[1 + draw(seed + 500000000, 15)]::text
	WHEN draw(seed, 10) < 5 THEN '!' || random_query(seed * 5 + 1, levels - 1)
	WHEN draw(seed, 10) < 8 THEN format('(%s & %s)', random_query(seed * 5 + 2, levels - 1), random_query(seed * 5 + 3, levels - 1))
	ELSE format('(%s | %s | %s)', random_query(seed * 5 + 2, levels - 1), random_query(seed * 5 + 3, levels - 1), random_query(seed * 5 + 4, levels - 1)) END$$;
CREATE TABLE queries AS SELECT i, random_query(i, 4)::idset_query AS q, (ARRAY['', ' AND price < 30', ' AND day >= ''2020-03-01'' AND price IS NOT NULL', ' AND tokens && ''{3,12}'''])[1 + draw(i + 700000000, 4)] AS others FROM generate_series(1, 80) i;
CREATE FUNCTION compare_random(relation text DEFAULT 'docs') RETURNS TABLE (how text, queries bigint, wrong bigint) LANGUAGE sql AS $$
	SELECT substring(result FROM '(no node|by scan|by index)'), count(*), count(*) FILTER (WHERE result ~ 'but') FROM (SELECT compare(format('tokens @@ %L%s', q, others), relation) AS result FROM queries) r GROUP BY 1 ORDER BY 1$$;
SELECT * FROM compare_random();
SET gpuvec.verify = off;
SELECT * FROM compare_random();
RESET gpuvec.verify;

-- groups
SELECT what, condition, facets(what, condition) FROM unnest(ARRAY['price', 'day', 'unnest(tokens)']) what, conditions WHERE n IN (1, 3, 6, 8, 21, 29, 33, 46) ORDER BY n, what;
SELECT id, count(*) FROM (SELECT price, tokens FROM docs) d, unnest(tokens) id WHERE tokens @@ '3 & (5 | !6)' AND price < 90 GROUP BY id ORDER BY count(*) DESC, id LIMIT 5;

-- parameters: of the array, of filter columns, of a query that is not known
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
PREPARE any_of (idset[], int) AS SELECT count(*) FROM docs WHERE tokens @> ANY ($1) AND price < $2;
CREATE FUNCTION plan_lines(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	-- servers from 18 on say what is disabled
	FOR line IN EXECUTE query LOOP
		IF line NOT LIKE '% Disabled: true' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
SELECT plan_lines('EXPLAIN (COSTS OFF) EXECUTE any_of (ARRAY[''{3,12}'']::idset[], 50)');
EXECUTE any_of (ARRAY['{3,12}', '{4}']::idset[], 50);
EXECUTE any_of (ARRAY['{4,12}', NULL]::idset[], 100);
EXECUTE any_of (NULL, 100);
PREPARE within (idset, int) AS SELECT count(*) FROM docs WHERE tokens <@ $1 AND price < $2;
EXECUTE within ('{3,4}', 50);
EXECUTE within ('{}', 50);
PREPARE matching (int) AS SELECT count(*) FROM docs WHERE tokens @@ '3 & (5 | !6)' AND price < $1;
EXECUTE matching (50);
EXECUTE matching (10);
RESET enable_indexscan;
RESET enable_bitmapscan;
PREPARE query_of (idset_query) AS SELECT count(*) FROM docs WHERE tokens @@ $1 AND tokens @> 3;
EXPLAIN (COSTS OFF) EXECUTE query_of ('3 & (5 | !6)');
EXECUTE query_of ('3 & (5 | !6)');
SET plan_cache_mode = force_custom_plan;
EXPLAIN (COSTS OFF) EXECUTE query_of ('3 & (5 | !6)');
EXECUTE query_of ('3 & (5 | !6)');
RESET plan_cache_mode;
SELECT sum((price < 50 AND (tokens @> '{3,12}' OR tokens @> 4))::int) AS any_1, sum((tokens @> '{4,12}')::int) FILTER (WHERE price < 100) AS any_2, sum((tokens <@ '{3,4}')::int) FILTER (WHERE price < 50) AS within_1, sum((tokens <@ '{}')::int) FILTER (WHERE price < 50) AS within_2,
	sum((tokens @@ '3 & (5 | !6)')::int) FILTER (WHERE price < 50) AS matching_1, sum((tokens @@ '3 & (5 | !6)')::int) FILTER (WHERE price < 10) AS matching_2, sum((tokens @@ '3 & (5 | !6)')::int) AS query_of FROM docs;
SELECT p, (SELECT count(*) FROM docs WHERE tokens @@ '3 & (5 | !6)' AND price = p) AS a, (SELECT count(*) FROM docs WHERE tokens @> ANY (ARRAY[ARRAY[p, 12]::idset, '{4,6}']) AND price > 3) AS b FROM generate_series(1, 2) p;
RESET enable_seqscan;

-- own changes, and others that VACUUM has not seen: rows are looked at
BEGIN;
DELETE FROM docs WHERE id <= 2000 AND id % 10 = 3;
UPDATE docs SET tokens = '{3,5}' WHERE id BETWEEN 2000 AND 2050;
UPDATE docs SET tokens = '{}' WHERE id BETWEEN 2100 AND 2150;
UPDATE docs SET tokens = NULL WHERE id BETWEEN 2200 AND 2250;
UPDATE docs SET id = -id WHERE id BETWEEN 3000 AND 3100;
INSERT INTO docs (id, price, tokens) SELECT 100000 + i, 5, (ARRAY['{3}', '{3,6}', '{3,7}', '{3,5,6}', '{}', NULL, '{3,555555}'])[1 + i % 7]::idset FROM generate_series(1, 70) i;
SELECT condition, compare(condition) FROM conditions WHERE n IN (1, 2, 3, 6, 21, 29, 32, 34, 40, 46) ORDER BY n;
SELECT * FROM compare_random();
SAVEPOINT s;
DELETE FROM docs WHERE price < 5;
SELECT * FROM compare_random();
ROLLBACK TO s;
ROLLBACK;
SELECT * FROM compare_random();
DELETE FROM docs WHERE id <= 2000 AND id % 10 = 3;
UPDATE docs SET tokens = '{3,5}' WHERE id BETWEEN 2000 AND 2050;
UPDATE docs SET tokens = NULL WHERE id BETWEEN 2200 AND 2250;
INSERT INTO docs (id, price, tokens) SELECT 100000 + i, 5, (ARRAY['{3}', '{3,6}', '{3,7}', '{3,5,6}', '{}', NULL, '{3,555555}'])[1 + i % 7]::idset FROM generate_series(1, 70) i;
SELECT * FROM compare_random();
SELECT what, facets(what, condition) FROM unnest(ARRAY['price', 'unnest(tokens)']) what, conditions WHERE n IN (3, 46);
VACUUM docs;
SELECT * FROM compare_random();
SELECT condition, compare(condition) FROM conditions WHERE n IN (1, 2, 3, 6, 21, 29, 32, 34, 40, 46) ORDER BY n;
-- without an index on filter columns: null sets are in no mirror
DROP INDEX docs_tokens;
CREATE INDEX ON docs USING gpuvec (tokens);
UPDATE queries SET others = '' WHERE others ~ 'price';
SELECT * FROM compare_random();
SELECT condition, compare(condition) FROM conditions WHERE n IN (1, 2, 3, 6, 21, 29, 32, 34, 40, 44) ORDER BY n;

-- ids of 16 bits only, a predicate, an expression, vectors
CREATE TABLE narrow (id int, price int, body text, tokens idset, terms idvec) WITH (autovacuum_enabled = off);
INSERT INTO narrow SELECT i, i % 50, i % 10 || ' ' || i % 97, ARRAY[i % 5, 5 + i % 7, 12 + i % 17]::idset, format('{%s:1}', i % 10)::idvec FROM generate_series(1, 5000) i;
CREATE FUNCTION numbers(body text) RETURNS idset IMMUTABLE LANGUAGE sql AS $$SELECT string_to_array(body, ' ')::int[]::public.idset$$;
CREATE INDEX ON narrow USING gpuvec (tokens) WHERE price < 40;
CREATE INDEX ON narrow USING gpuvec (numbers(body));
CREATE INDEX ON narrow USING gpuvec (terms);
VACUUM ANALYZE narrow;
SELECT condition, compare(condition, 'narrow') FROM unnest(ARRAY['tokens @@ ''3 & !7'' AND price < 40', 'tokens @@ ''3 & (100003 | !6)'' AND price < 40', 'tokens @@ ''3 & !70000'' AND price < 40', 'tokens @@ ''3 & !7''', 'numbers(body) @@ ''3 & !7''', 'numbers(body) @> ANY (ARRAY[''{3,13}'', ''{4,14}'']::idset[])', 'terms <<->> ANY (ARRAY[idvec_threshold(''{3:1}'', 0.5, ''inner_product'')])']) condition;
DROP TABLE narrow;

-- partitions, and a policy
CREATE TABLE parts (id int, day int, price int, tokens idset) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 (price int, tokens idset, id int, day int);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
CREATE TABLE parts_3 PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT i, i % 40, i % 7, CASE WHEN i % 50 > 0 THEN ARRAY[i % 5, 5 + i % 7, 12 + i % 17]::idset END FROM generate_series(1, 8000) i;
CREATE INDEX ON parts USING gpuvec (tokens, day, price);
VACUUM ANALYZE parts;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM parts WHERE tokens @@ '3 & (5 | !6)' AND day >= 10;
RESET enable_seqscan;
SELECT condition, compare(condition, 'parts') FROM unnest(ARRAY['tokens @@ ''3 & (5 | !6)''', 'tokens @@ ''3 & (5 | !6)'' AND day < 15', 'tokens @> ANY (ARRAY[''{3,12}'', ''{4,6}'']::idset[]) AND day < 15', 'tokens <@ ''{3,5,12,13,14,15,16,17}''', 'tokens @@ ''3 & (5 | !6)'' AND id > 5', 'tokens @@ ''!3'' AND day < 15', 'tokens @@ ''!3''']) condition;
CREATE ROLE regress_gpuvec_boolean;
GRANT USAGE ON SCHEMA index_counts_boolean TO regress_gpuvec_boolean;
GRANT SELECT ON docs TO regress_gpuvec_boolean;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY matching ON docs FOR SELECT USING (tokens @@ '3 & (5 | !6)');
SET ROLE regress_gpuvec_boolean;
SELECT compare('true'), compare('tokens && ''{12}'''), compare('tokens @@ ''12 | (13 & !7)'''), compare('price < 10');
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA index_counts_boolean CASCADE;
DROP ROLE regress_gpuvec_boolean;
