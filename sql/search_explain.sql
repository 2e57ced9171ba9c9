-- EXPLAIN (ANALYZE) says what the engine did: of functions in FROM, and from PostgreSQL 18 on of index scans
CREATE SCHEMA search_explain;
SET search_path = search_explain, public;
CREATE TABLE docs AS SELECT i AS id, ARRAY[i % 100, 1000 + i % 7]::idset AS tokens FROM generate_series(1, 2000) i;
CREATE TABLE items AS SELECT i::int8 AS id, ARRAY[i, i + 1]::real[] AS embedding FROM generate_series(1, 2000) i;
ANALYZE;
CREATE FUNCTION engine_lines(query text, options text DEFAULT 'TIMING OFF') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF, %s) %s', options, query) LOOP
		IF line ~ 'Engine|Ranked|Methods|Filter|Loaded|Waits|Function: ' AND (line !~ 'Methods' OR current_setting('gpuvec.method') <> 'auto') THEN RETURN NEXT regexp_replace(btrim(line), '[0-9]+\.[0-9]+', 'N'); END IF;
	END LOOP;
END $$;
-- the first search loads the copy
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''docs'', ''tokens'', ''{3,1002}'', 5)');
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''docs'', ''tokens'', ''{3,1002}'', 5)');
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk_batch(''docs'', ''tokens'', ''{"{3,1002}","{4}","{5}"}''::idset[], 5)');
-- once for each call
SELECT * FROM engine_lines('SELECT * FROM generate_series(1, 4) i, LATERAL gpuvec_topk(''docs'', ''tokens'', ARRAY[i]::idset, 5)');
SELECT * FROM engine_lines('SELECT * FROM gpuvec_gather(''items'', ''id'', ''embedding'', ''{3,4,5}'')') line WHERE line !~ 'Requests';
-- time, and what the engine runs on
SELECT regexp_replace(line, 'Engine: .*, .*', 'Engine: N, N') FROM engine_lines('SELECT * FROM gpuvec_topk(''docs'', ''tokens'', ''{3,1002}'', 5)', 'TIMING ON') line;
-- how it was searched
SET gpuvec.method = 'bitset';
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''docs'', ''tokens'', ''{3,1002}'', 5)');
SELECT * FROM engine_lines('SELECT * FROM generate_series(1, 4) i, LATERAL gpuvec_topk(''docs'', ''tokens'', ARRAY[i]::idset, 5)');
RESET gpuvec.method;
-- not executed, and without the engine
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_topk('docs', 'tokens', '{3,1002}', 5);
EXPLAIN (COSTS OFF, VERBOSE) SELECT * FROM gpuvec_topk('docs', 'tokens', '{3,1002}', 5);
CREATE TEMP TABLE few AS SELECT * FROM docs LIMIT 10;
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''few'', ''tokens'', ''{3,1002}'', 5)');
-- one row
CREATE TABLE lone AS SELECT 1 AS id, '{3}'::idset AS tokens;
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''lone'', ''tokens'', ''{3,1002}'', 5)');
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''lone'', ''tokens'', ''{3,1002}'', 5)');
-- index scans
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
SET enable_seqscan = off; SET enable_sort = off;
SELECT (current_setting('server_version_num')::int >= 180000) = EXISTS (SELECT FROM engine_lines('SELECT * FROM docs ORDER BY tokens <-> ''{3,1002}'' LIMIT 5') line WHERE line = 'Rows Ranked: 2000') AS ordered,
	   (current_setting('server_version_num')::int >= 180000) = EXISTS (SELECT FROM engine_lines('SELECT * FROM docs WHERE tokens && ''{3,1002}''') line WHERE line = 'Engine Requests: 1') AS found;
-- filters that few rows pass; whatever the method, these rows are gathered
SET gpuvec.method = 'bitset';
CREATE INDEX docs_filtered ON docs USING gpuvec (tokens, id);
DROP INDEX docs_tokens;
SELECT cond, count(*) FILTER (WHERE line IN ('Rows Ranked: ' || passed, 'Rows Passing Filter: ' || passed, 'Methods: gathering 1')) = CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 3 ELSE 0 END AS told
	FROM (VALUES ('id <= 20', 20), ('id BETWEEN 30 AND 32', 3)) c (cond, passed) LEFT JOIN LATERAL
	engine_lines('SELECT * FROM docs WHERE ' || cond || ' ORDER BY tokens <-> ''{3,1002}'' LIMIT 5') line ON true GROUP BY cond ORDER BY cond;
-- a search without a filter says nothing of those before it
RESET gpuvec.method;
SELECT * FROM engine_lines('SELECT * FROM gpuvec_topk(''docs'', ''tokens'', ''{3,1002}'', 5)');
-- rows of a transaction under way are looked at
CREATE FUNCTION not_proven(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF, TIMING OFF) ' || query LOOP
		IF line ~ 'Not Proven' THEN RETURN NEXT btrim(line); END IF;
	END LOOP;
END $$;
BEGIN;
INSERT INTO items SELECT i, ARRAY[i, 1] FROM generate_series(5001, 5003) i;
SELECT * FROM not_proven('SELECT * FROM gpuvec_gather(''items'', ''id'', ''embedding'', ''{5001,5002,5003}'')');
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA search_explain CASCADE;
