-- SELECT count(*) by an index of columns whose keys are rounded: rows on the boundary are looked at
CREATE SCHEMA index_counts_rounded;
SET search_path = index_counts_rounded, public;
CREATE TABLE docs (id int NOT NULL, price numeric, big numeric, u uuid, word text COLLATE "C", padded char(12) COLLATE "C", stock int, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 90);
-- values that differ and have one key: numerics of one float8, uuids and texts that begin alike
INSERT INTO docs SELECT i, CASE WHEN i % 13 > 0 THEN i % 1000 * 0.05 END, CASE i % 501 WHEN 0 THEN numeric 'NaN' WHEN 1 THEN NULL ELSE 9007199254740992 + i % 7 END, ('00000000-0000-000' || i % 3 || '-0000-' || lpad((i % 10)::text, 12, '0'))::uuid,
	CASE WHEN i % 17 > 0 THEN (ARRAY['', 'abc', 'abcd', 'abcde', 'abcdf', 'b', 'abcd' || i % 10])[1 + i % 7] END, (ARRAY['', 'abc', 'abcd', 'abcde', 'abcdf', 'b', 'abcd' || i % 10])[1 + i % 7], i % 50,
	CASE WHEN i % 1000 = 0 THEN NULL ELSE ARRAY[i % 5, 10 + i % 97]::idset END FROM generate_series(1, 30000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, price, big, u, word, padded, stock);
VACUUM ANALYZE docs;

-- how many rows a query has by the node, and by what; and by a sequential scan
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
	RETURN coalesce(result, 'no row') || CASE WHEN plan !~ 'gpuvec count' THEN ' no node' WHEN plan ~ 'Scans Run' THEN ' by scan' WHEN plan ~ 'Rows Not Fetched: [1-9]' THEN ' by index' ELSE ' by index, all fetched' END;
END $$;
CREATE FUNCTION sequential(query text) RETURNS text LANGUAGE plpgsql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN coalesce(result, 'no row');
END $$;
CREATE FUNCTION compare(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text = format('SELECT count(*) FROM docs WHERE %s', condition);
	node text = counted(query);
	seq text = sequential(query);
BEGIN
	RETURN CASE WHEN node LIKE seq || ' %' THEN node ELSE format('%s, but %s by a sequential scan', node, seq) END;
END $$;
CREATE TABLE conditions (n int, condition text);
INSERT INTO conditions SELECT ordinality, c FROM unnest(ARRAY['price < 10', 'price <= 10', 'price > 10', 'price >= 10', '10 > price', 'price < 10.01', 'price BETWEEN 10 AND 20', 'price > 10 AND price < 20', 'price >= 10 AND price <= 10', 'price > 10 AND price < 10', 'price < 10 AND price < 20', 'price < 20 AND price < 10 AND price < 15', 'price >= ''NaN''', 'price < ''NaN''', 'price > -1', 'price < -1', 'price < NULL',
	'big < 9007199254740993', 'big <= 9007199254740993', 'big > 9007199254740993', 'big >= 9007199254740996', 'big > 9007199254740992 AND big < 9007199254740998', 'big >= ''NaN''', 'big > ''NaN''', 'big < ''NaN''', 'u < ''00000000-0000-0001-0000-000000000004''', 'u >= ''00000000-0000-0001-0000-000000000004''', 'u > ''ffffffff-ffff-ffff-ffff-ffffffffffff''', 'u < ''00000000-0000-0000-0000-000000000000''', 'u BETWEEN ''00000000-0000-0000-0000-000000000004'' AND ''00000000-0000-0002-0000-000000000004''',
	'word < ''abcde''', 'word <= ''abcde''', 'word > ''abcd''', 'word >= ''abcd5''', 'word > ''''', 'word < ''''', 'word >= ''''', 'word BETWEEN ''abcd'' AND ''abcdf''', 'word > ''abcd3'' AND word < ''b''', 'padded < ''abcde''', 'padded >= ''abcd''', 'price = 10', 'price = ANY (''{10,20}'')', 'price < ANY (''{10,20}'')', 'word = ''abcd''', 'price < 10 AND word < ''b''', 'price < 10 AND stock < 20', 'price IS NOT NULL', 'price < 10 AND price IS NOT NULL',
	'tokens && ''{3}'' AND price < 10', 'tokens && ''{3,12}'' AND price BETWEEN 10 AND 20 AND stock = ANY (''{1,2,3}'')', 'tokens @> ''{3,12}'' AND word > ''abcd''', 'tokens && ''{7000}'' AND price < 10', 'tokens IS NULL AND price < 40', 'tokens && ''{3}'' AND price < 10 AND id > 5', 'tokens <@ ''{3,12}'' AND price < 10']) WITH ORDINALITY u(c, ordinality);
SELECT condition, compare(condition) FROM conditions ORDER BY n;
SET gpuvec.verify = on;
SELECT condition, compare(condition) FROM conditions WHERE n IN (1, 7, 20, 33, 51) ORDER BY n;
RESET gpuvec.verify;
EXPLAIN (COSTS OFF) SELECT count(*) FROM docs WHERE tokens && '{3}' AND price BETWEEN 10 AND 20;

-- parameters, each time others
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE priced (numeric, numeric) AS SELECT count(*) FROM docs WHERE tokens && '{3,12}' AND price >= $1 AND price < $2;
EXPLAIN (COSTS OFF) EXECUTE priced (1, 2);
EXECUTE priced (1, 2);
EXECUTE priced (1, 1000);
EXECUTE priced (2, 1);
EXECUTE priced (NULL, 1);
DEALLOCATE priced;
RESET plan_cache_mode;
CREATE VIEW by_node AS SELECT p, n FROM generate_series(0, 55) p, LATERAL (SELECT count(*) AS n FROM docs WHERE tokens && ARRAY[p % 7]::idset AND price > p * 0.9 AND price <= p * 0.9 + p % 5) x;
CREATE VIEW by_words AS SELECT p, n FROM generate_series(0, 20) p, LATERAL (SELECT count(*) AS n FROM docs WHERE word >= 'abcd' || nullif(p, 7)) x;
EXPLAIN (COSTS OFF) SELECT * FROM by_node;
SELECT (SELECT array_agg(v ORDER BY p) FROM by_node v)::text = sequential('SELECT array_agg(v ORDER BY p) FROM index_counts_rounded.by_node v'), (SELECT array_agg(v ORDER BY p) FROM by_words v)::text = sequential('SELECT array_agg(v ORDER BY p) FROM index_counts_rounded.by_words v');
RESET enable_seqscan;

-- own changes, and others that VACUUM has not seen
BEGIN;
UPDATE docs SET price = 10 WHERE id % 11 = 0;
DELETE FROM docs WHERE id % 13 = 1;
INSERT INTO docs (id, price, tokens) SELECT 100000 + i, 9.99 + i % 3 * 0.01, '{3}' FROM generate_series(1, 90) i;
SELECT compare('tokens && ''{3}'' AND price < 10'), compare('price <= 10'), compare('price > 9.99 AND price < 10.01');
SAVEPOINT s;
DELETE FROM docs WHERE price = 10;
SELECT compare('tokens && ''{3}'' AND price < 10'), compare('price <= 10'), compare('price > 9.99 AND price < 10.01');
ROLLBACK TO s;
COMMIT;
SELECT compare('tokens && ''{3}'' AND price < 10'), compare('price <= 10'), compare('price > 9.99 AND price < 10.01');
VACUUM docs;
SELECT compare('tokens && ''{3}'' AND price < 10'), compare('price <= 10'), compare('price > 9.99 AND price < 10.01');
SET client_min_messages = warning;
DROP SCHEMA index_counts_rounded CASCADE;
