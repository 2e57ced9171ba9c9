-- SELECT count(*) by an index, without looking at most rows
CREATE SCHEMA index_counts;
SET search_path = index_counts, public;
CREATE TYPE size AS ENUM ('small', 'medium', 'large');
CREATE TABLE docs (id int NOT NULL, price int, day date, f float8, size size, tag text, amount numeric, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 90);
-- more rows than a segment has; null sets and empty ones; nulls in each column
INSERT INTO docs SELECT i, CASE WHEN i % 13 > 0 THEN i % 100 END, CASE WHEN i % 17 > 0 THEN date '2020-01-01' + i % 365 END,
	i % 10 * 0.5, (ARRAY['small', 'medium', 'large'])[1 + i % 3]::size, 'tag' || i % 7, i % 50,
	CASE WHEN i % 1000 = 0 THEN NULL WHEN i % 1000 = 1 THEN '{}' ELSE ARRAY[i % 5, 10 + i % 97, 200 + i % 2003, CASE WHEN i % 3 = 0 THEN 60000 ELSE 60001 END]::idset END FROM generate_series(1, 70000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, price, day, f, size, tag, amount);
VACUUM ANALYZE docs;

/*
 * A count by the node, and how it came about: by the index, by a scan that the
 * node has run, or without a node
 */
CREATE FUNCTION counted(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
CREATE FUNCTION compare(condition text, relation text DEFAULT 'docs', what text DEFAULT 'count(*)') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text = format('SELECT %s FROM %s WHERE %s', what, relation, condition);
	node text = counted(query);
	seq text = sequential(query);
BEGIN
	RETURN CASE WHEN node LIKE seq || ' %' THEN node ELSE format('%s, but %s by a sequential scan', node, seq) END;
END $$;

-- conditions of the set, of filter columns, and of both
CREATE TABLE conditions (n int, condition text);
INSERT INTO conditions SELECT ordinality, c FROM unnest(ARRAY['tokens && ''{3,12}''', 'tokens && ''{60000,60001}''', 'tokens && ''{7000}''', 'tokens && ''{}''', 'tokens @> ''{3,60000}''', 'tokens @> 60001', 'tokens @> ''{}''', 'tokens = ''{3,10,300,60001}''', 'tokens = ''{}''',
	'tokens <@ ''{0,1,2,3,4,10,11,12,200,201,60000,60001}''', 'tokens <@ ''{}''', 'tokens <<->> idset_threshold(''{3,12,300}'', 0.25, ''jaccard'')', 'tokens <<->> idset_threshold(''{3,12,300}'', -4, ''hamming'')', 'jaccard_similarity(tokens, ''{3,12,300}'') >= 0.25',
	'tokens && NULL', 'tokens IS NULL', 'tokens IS NOT NULL', 'tokens @@ ''3 & 12''', 'tokens @@ ''3 | (12 | !!4)''', 'tokens @@ ''3 & (12 | 13)''', 'tokens @@ ''3 | (12 & !4)''', 'tokens @@ ''!3''', 'tokens && ANY (ARRAY[''{3}'', ''{12}'']::idset[])', 'tokens && ''{3}'' AND tokens && ''{12}''',
	'price < 10', 'price = ANY (''{1,2,3}'')', 'price IS NULL', 'price IS NOT NULL AND day >= ''2020-06-01''', 'f > 3.0::float4', 'size = ''medium''', 'size > ''small''', 'tag = ''tag3''', 'amount < 3',
	'tokens && ''{3,12}'' AND price < 10', 'tokens && ''{3,12}'' AND price BETWEEN 20 AND 70 AND day < ''2020-09-01''', 'tokens @> ''{60000}'' AND size = ''medium''', 'tokens && ''{3}'' AND tag = ''tag3''', 'tokens IS NULL AND price < 50', 'tokens && ''{3}'' AND f = 1.5',
	'tokens && ''{3}'' AND id > 100', 'tokens && ''{3}'' AND random() < 2', 'tokens && ''{3}'' OR price = 7', 'price = 101', 'price < NULL', 'tokens <<->> idset_threshold(''{3}'', NULL, ''jaccard'')', 'false', 'tokens && ''{3}'' AND now() > ''2020-01-01''']) WITH ORDINALITY u(c, ordinality);
INSERT INTO conditions VALUES (100, 'tokens && ''{3}'' AND price = ANY ((SELECT array_agg(i) FROM generate_series(0, 70000) i)::int[])');
SELECT condition, compare(condition) FROM conditions ORDER BY n;
-- what else may be counted, and what may not
SELECT what, compare('tokens && ''{3,12}'' AND price < 50', 'docs', what) FROM unnest(ARRAY['count(1)', 'count(NULL::int)', 'count(*) + 1', 'count(*) || '' of '' || count(1)', 'count(price)', 'count(DISTINCT price)', 'count(*) FILTER (WHERE price > 3)', 'sum(price)', 'count(*) + sum(price)', 'count(*) - count(*)', '1']) what;
SELECT counted(q), sequential(q) FROM unnest(ARRAY['SELECT count(*) FROM docs WHERE tokens && ''{3}'' HAVING count(*) > 14000', 'SELECT count(*) FROM docs WHERE tokens && ''{3}'' HAVING count(*) > 3 AND count(*) < (SELECT max(price) FROM docs) * 1000', 'SELECT 5 FROM docs WHERE tokens && ''{3}'' HAVING count(*) > 3',
	'SELECT generate_series(1, count(*)) FROM docs WHERE tokens && ''{3}'' OFFSET 5 LIMIT 1', 'SELECT count(*) FROM docs WHERE tokens && ''{3}'' LIMIT 0', 'SELECT count(*) OVER () FROM docs WHERE tokens && ''{3}'' GROUP BY ()', 'SELECT price, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY price ORDER BY 2 DESC, 1 LIMIT 1',
	'SELECT count(*) FROM docs TABLESAMPLE system (100) WHERE tokens && ''{3}''', 'SELECT count(*) FROM docs a, docs b WHERE a.tokens && ''{777}'' AND b.tokens && ''{1777}''', 'SELECT sum(n) FROM (SELECT count(*) AS n FROM docs WHERE tokens && ''{3}'' UNION ALL SELECT count(*) FROM docs WHERE price < 10) u',
	'SELECT count(*) FROM (SELECT FROM docs WHERE tokens && ''{3}'' OFFSET 0) u', 'SELECT count(*) FROM (SELECT * FROM docs WHERE tokens && ''{3}'') u WHERE price < 10']) q;
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*), count(*) * 2 AS twice FROM docs WHERE tokens && '{3,12}' AND price < 10 HAVING count(*) > 5;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM docs WHERE tokens && '{3,12}' AND price < 10;
RESET enable_indexonlyscan;

-- parameters: of prepared statements, and of outer rows, each scan of which
-- begins anew
SET plan_cache_mode = force_generic_plan;
PREPARE of_price (int, idset) AS SELECT count(*) FROM docs WHERE tokens && $2 AND price < $1;
EXPLAIN (COSTS OFF) EXECUTE of_price (10, '{3}');
EXECUTE of_price (10, '{3}');
EXECUTE of_price (20, '{4,5}');
EXECUTE of_price (NULL, '{4,5}');
DEALLOCATE of_price;
RESET plan_cache_mode;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT p, n FROM generate_series(0, 4) p, LATERAL (SELECT count(*) AS n FROM docs WHERE price = p) x;
SELECT p, (SELECT count(*) FROM docs WHERE price = p), n FROM generate_series(0, 4) p, LATERAL (SELECT count(*) AS n FROM docs WHERE tokens && ARRAY[p, 100 - p]::idset AND price >= p) x;
RESET enable_seqscan;

-- own changes: rows on pages that are not all-visible are looked at, also
-- those of a cursor's older snapshot
CREATE FUNCTION not_fetched(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line ~ 'Rows Not Fetched: [1-9]' THEN RETURN 'some rows are not fetched'; END IF;
	END LOOP;
	RETURN 'all rows are fetched';
END $$;
SELECT not_fetched('SELECT count(*) FROM docs WHERE tokens && ''{3}''');
BEGIN;
DECLARE before CURSOR FOR SELECT count(*) FROM docs WHERE tokens && '{3}';
DELETE FROM docs WHERE id <= 1000 AND id % 10 = 3;
UPDATE docs SET tokens = '{3}' WHERE id BETWEEN 2000 AND 2010;
UPDATE docs SET id = -id WHERE id BETWEEN 3000 AND 3100;
INSERT INTO docs (id, price, tokens) SELECT 100000 + i, 5, '{3}' FROM generate_series(1, 50) i;
SELECT compare('tokens && ''{3}'''), not_fetched('SELECT count(*) FROM docs WHERE tokens && ''{3}''');
FETCH before;
SAVEPOINT s;
DELETE FROM docs WHERE price < 5;
SELECT compare('tokens && ''{3}'''), compare('price < 10');
ROLLBACK TO s;
SELECT compare('tokens && ''{3}'''), compare('price < 10');
ROLLBACK;
SELECT compare('tokens && ''{3}'''), compare('price < 10');
DELETE FROM docs WHERE id <= 1000 AND id % 10 = 3;
UPDATE docs SET tokens = '{3}' WHERE id BETWEEN 2000 AND 2010;
UPDATE docs SET id = -id WHERE id BETWEEN 3000 AND 3100;
INSERT INTO docs (id, price, tokens) SELECT 100000 + i, 5, '{3}' FROM generate_series(1, 50) i;
SELECT condition, compare(condition) FROM conditions WHERE n IN (1, 2, 5, 8, 9, 10, 12, 16, 21, 30) ORDER BY n;
VACUUM docs;
SELECT condition, compare(condition) FROM conditions WHERE n IN (1, 2, 5, 8, 9, 10, 12, 16, 21, 30) ORDER BY n;
SELECT not_fetched('SELECT count(*) FROM docs WHERE tokens && ''{3}''');
-- under SERIALIZABLE rows are looked at
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT compare('tokens && ''{3}''');
COMMIT;
SET gpuvec.verify = on;
SELECT compare('tokens && ''{3}'''), compare('price < 10'), compare('tokens && ''{3}'' AND tag = ''tag3''');
RESET gpuvec.verify;

-- indexes with an expression, with a predicate, of vectors, and of one column
CREATE TABLE texts (id int, body text, price int, terms idvec) WITH (autovacuum_enabled = off);
INSERT INTO texts SELECT i, i % 10 || ' ' || i % 97, i % 50, format('{%s:1,%s:0.5}', i % 10, 10 + i % 97)::idvec FROM generate_series(1, 3000) i;
CREATE FUNCTION numbers(body text) RETURNS idset IMMUTABLE LANGUAGE sql AS $$SELECT string_to_array(body, ' ')::int[]::public.idset$$;
CREATE INDEX ON texts USING gpuvec (numbers(body)) WHERE price < 40;
CREATE INDEX ON texts USING gpuvec (terms, price);
VACUUM ANALYZE texts;
SELECT condition, compare(condition, 'texts') FROM unnest(ARRAY['numbers(body) && ''{3}'' AND price < 40', 'numbers(body) && ''{3}'' AND price < 20', 'numbers(body) @> ''{3,33}'' AND price < 40', 'numbers(body) && ''{3}'' AND price < 41', 'terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'')', 'terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'') AND price < 9',
	'terms <<->> idvec_threshold(''{3:1}'', 0.5, ''jaccard'')', 'price = 7']) condition;
UPDATE texts SET price = 45 WHERE id % 100 = 3;
UPDATE texts SET body = '3 3' WHERE id % 100 = 4;
DELETE FROM texts WHERE id % 100 = 13;
SELECT compare('numbers(body) && ''{3}'' AND price < 40', 'texts'), compare('terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'')', 'texts');
VACUUM texts;
SELECT compare('numbers(body) && ''{3}'' AND price < 40', 'texts'), compare('terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'')', 'texts');

-- partitions: all that pruning leaves, when a statement is planned and when it
-- begins; one without the index, and inheritance
CREATE TABLE parts (id int, day int, price int, tokens idset) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 (price int, tokens idset, id int, day int);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (20) TO (40) PARTITION BY LIST (price);
CREATE TABLE parts_3_1 PARTITION OF parts_3 FOR VALUES IN (0, 1, 2);
CREATE TABLE parts_3_2 PARTITION OF parts_3 DEFAULT;
INSERT INTO parts SELECT i, i % 40, i % 7, ARRAY[i % 5, 10 + i % 97]::idset FROM generate_series(1, 8000) i;
CREATE INDEX ON parts USING gpuvec (tokens, day, price);
VACUUM ANALYZE parts;
SELECT condition, compare(condition, 'parts') FROM unnest(ARRAY['tokens && ''{3}''', 'tokens && ''{3}'' AND day < 15', 'tokens && ''{3}'' AND day >= 20 AND price = 1', 'price < 3', 'tokens && ''{3}'' AND day = (SELECT 13)', 'tokens && ''{3}'' AND day = 100', 'tokens && ''{3}'' AND id > 5']) condition;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM parts WHERE tokens && '{3}' AND day >= 10;
SET plan_cache_mode = force_generic_plan;
PREPARE of_day (int) AS SELECT count(*) FROM parts WHERE tokens && '{3}' AND day < $1;
EXECUTE of_day (5);
EXECUTE of_day (15);
EXECUTE of_day (100);
EXECUTE of_day (-1);
DEALLOCATE of_day;
RESET plan_cache_mode;
SELECT d, (SELECT count(*) FROM parts WHERE tokens && '{3}' AND day < d) FROM unnest('{5,15,25,-1}'::int[]) d;
SELECT sum((tokens && '{3}')::int) FILTER (WHERE day < 5) AS "5", sum((tokens && '{3}')::int) FILTER (WHERE day < 15) AS "15", sum((tokens && '{3}')::int) FILTER (WHERE day < 25) AS "25" FROM parts;
SET enable_partitionwise_aggregate = on;
SELECT compare('tokens && ''{3}''', 'parts');
RESET enable_partitionwise_aggregate;
RESET enable_seqscan;
CREATE TABLE parts_4 PARTITION OF parts FOR VALUES FROM (40) TO (50);
INSERT INTO parts VALUES (1, 45, 1, '{3}');
DROP INDEX parts_tokens_day_price_idx;
CREATE INDEX ON parts_1 USING gpuvec (tokens);
SELECT compare('tokens && ''{3}''', 'parts'), compare('tokens && ''{3}''', 'parts_1');
CREATE TABLE children () INHERITS (texts);
INSERT INTO children SELECT * FROM texts WHERE id < 100;
CREATE INDEX ON children USING gpuvec (terms, price);
VACUUM ANALYZE children;
SELECT compare('price = 7', 'texts'), compare('price = 7', 'ONLY texts'), compare('price = 7', 'children');

-- security barriers: a policy's condition is a search key, too, or there is no
-- node
CREATE ROLE regress_gpuvec_counter;
GRANT USAGE ON SCHEMA index_counts TO regress_gpuvec_counter;
GRANT SELECT ON docs, parts TO regress_gpuvec_counter;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY cheap ON docs FOR SELECT USING (price < 30);
CREATE FUNCTION leaks(int) RETURNS bool IMMUTABLE LANGUAGE plpgsql COST 0.0001 AS $$BEGIN IF $1 >= 30 THEN RAISE EXCEPTION 'seen: %', $1; END IF; RETURN true; END$$;
SET ROLE regress_gpuvec_counter;
SELECT compare('tokens && ''{3}'''), compare('day > ''2020-06-01'''), compare('true');
SELECT compare('tokens && ''{3}'' AND leaks(price) AND price > 20');
RESET ROLE;
DROP POLICY cheap ON docs;
CREATE POLICY named ON docs FOR SELECT USING (tag = 'tag3');
SET ROLE regress_gpuvec_counter;
SELECT compare('tokens && ''{3}'''), compare('day > ''2020-06-01''');
RESET ROLE;
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM docs WHERE price < 30;
SELECT compare('tokens && ''{3}''', 'barrier');

-- columns whose keys are rounded: rows at the limits are looked at
CREATE TABLE rounded (id int NOT NULL, price numeric, big numeric, u uuid, word text COLLATE "C", padded char(12) COLLATE "C", stock int, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 90);
-- values that differ and have one key: numerics of one float8, uuids and texts
-- that begin alike
INSERT INTO rounded SELECT i, CASE WHEN i % 13 > 0 THEN i % 1000 * 0.05 END, CASE i % 501 WHEN 0 THEN numeric 'NaN' WHEN 1 THEN NULL ELSE 9007199254740992 + i % 7 END, ('00000000-0000-000' || i % 3 || '-0000-' || lpad((i % 10)::text, 12, '0'))::uuid,
	CASE WHEN i % 17 > 0 THEN (ARRAY['', 'abc', 'abcd', 'abcde', 'abcdf', 'b', 'abcd' || i % 10])[1 + i % 7] END, (ARRAY['', 'abc', 'abcd', 'abcde', 'abcdf', 'b', 'abcd' || i % 10])[1 + i % 7], i % 50,
	CASE WHEN i % 1000 = 0 THEN NULL ELSE ARRAY[i % 5, 10 + i % 97]::idset END FROM generate_series(1, 30000) i;
CREATE INDEX rounded_tokens ON rounded USING gpuvec (tokens, price, big, u, word, padded, stock);
VACUUM ANALYZE rounded;

CREATE TABLE limits (n int, condition text);
INSERT INTO limits SELECT ordinality, c FROM unnest(ARRAY['price < 10', 'price <= 10', 'price > 10', 'price >= 10', '10 > price', 'price < 10.01', 'price BETWEEN 10 AND 20', 'price > 10 AND price < 20', 'price >= 10 AND price <= 10', 'price > 10 AND price < 10', 'price < 10 AND price < 20', 'price < 20 AND price < 10 AND price < 15', 'price >= ''NaN''', 'price < ''NaN''', 'price > -1', 'price < -1', 'price < NULL',
	'big < 9007199254740993', 'big <= 9007199254740993', 'big > 9007199254740993', 'big >= 9007199254740996', 'big > 9007199254740992 AND big < 9007199254740998', 'big >= ''NaN''', 'big > ''NaN''', 'big < ''NaN''', 'u < ''00000000-0000-0001-0000-000000000004''', 'u >= ''00000000-0000-0001-0000-000000000004''', 'u > ''ffffffff-ffff-ffff-ffff-ffffffffffff''', 'u < ''00000000-0000-0000-0000-000000000000''', 'u BETWEEN ''00000000-0000-0000-0000-000000000004'' AND ''00000000-0000-0002-0000-000000000004''',
	'word < ''abcde''', 'word <= ''abcde''', 'word > ''abcd''', 'word >= ''abcd5''', 'word > ''''', 'word < ''''', 'word >= ''''', 'word BETWEEN ''abcd'' AND ''abcdf''', 'word > ''abcd3'' AND word < ''b''', 'padded < ''abcde''', 'padded >= ''abcd''', 'price = 10', 'price = ANY (''{10,20}'')', 'price < ANY (''{10,20}'')', 'word = ''abcd''', 'price < 10 AND word < ''b''', 'price < 10 AND stock < 20', 'price IS NOT NULL', 'price < 10 AND price IS NOT NULL',
	'tokens && ''{3}'' AND price < 10', 'tokens && ''{3,12}'' AND price BETWEEN 10 AND 20 AND stock = ANY (''{1,2,3}'')', 'tokens @> ''{3,12}'' AND word > ''abcd''', 'tokens && ''{7000}'' AND price < 10', 'tokens IS NULL AND price < 40', 'tokens && ''{3}'' AND price < 10 AND id > 5', 'tokens <@ ''{3,12}'' AND price < 10']) WITH ORDINALITY u(c, ordinality);
SELECT condition, compare(condition, 'rounded') FROM limits ORDER BY n;
SET gpuvec.verify = on;
SELECT condition, compare(condition, 'rounded') FROM limits WHERE n IN (1, 7, 20, 33, 51) ORDER BY n;
RESET gpuvec.verify;
EXPLAIN (COSTS OFF) SELECT count(*) FROM rounded WHERE tokens && '{3}' AND price BETWEEN 10 AND 20;

-- parameters, each time others
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE priced (numeric, numeric) AS SELECT count(*) FROM rounded WHERE tokens && '{3,12}' AND price >= $1 AND price < $2;
EXPLAIN (COSTS OFF) EXECUTE priced (1, 2);
EXECUTE priced (1, 2);
EXECUTE priced (1, 1000);
EXECUTE priced (2, 1);
EXECUTE priced (NULL, 1);
DEALLOCATE priced;
RESET plan_cache_mode;
CREATE VIEW by_node AS SELECT p, n FROM generate_series(0, 55) p, LATERAL (SELECT count(*) AS n FROM rounded WHERE tokens && ARRAY[p % 7]::idset AND price > p * 0.9 AND price <= p * 0.9 + p % 5) x;
CREATE VIEW by_words AS SELECT p, n FROM generate_series(0, 20) p, LATERAL (SELECT count(*) AS n FROM rounded WHERE word >= 'abcd' || nullif(p, 7)) x;
EXPLAIN (COSTS OFF) SELECT * FROM by_node;
SELECT (SELECT array_agg(v ORDER BY p) FROM by_node v)::text = sequential('SELECT array_agg(v ORDER BY p) FROM index_counts.by_node v'), (SELECT array_agg(v ORDER BY p) FROM by_words v)::text = sequential('SELECT array_agg(v ORDER BY p) FROM index_counts.by_words v');
RESET enable_seqscan;

-- own changes, and others that VACUUM has not seen
BEGIN;
UPDATE rounded SET price = 10 WHERE id % 11 = 0;
DELETE FROM rounded WHERE id % 13 = 1;
INSERT INTO rounded (id, price, tokens) SELECT 100000 + i, 9.99 + i % 3 * 0.01, '{3}' FROM generate_series(1, 90) i;
SELECT compare('tokens && ''{3}'' AND price < 10', 'rounded'), compare('price <= 10', 'rounded'), compare('price > 9.99 AND price < 10.01', 'rounded');
SAVEPOINT s;
DELETE FROM rounded WHERE price = 10;
SELECT compare('tokens && ''{3}'' AND price < 10', 'rounded'), compare('price <= 10', 'rounded'), compare('price > 9.99 AND price < 10.01', 'rounded');
ROLLBACK TO s;
COMMIT;
SELECT compare('tokens && ''{3}'' AND price < 10', 'rounded'), compare('price <= 10', 'rounded'), compare('price > 9.99 AND price < 10.01', 'rounded');
VACUUM rounded;
SELECT compare('tokens && ''{3}'' AND price < 10', 'rounded'), compare('price <= 10', 'rounded'), compare('price > 9.99 AND price < 10.01', 'rounded');
SET client_min_messages = warning;
DROP SCHEMA index_counts CASCADE;
DROP ROLE regress_gpuvec_counter;
