-- CREATE INDEX ... USING gpuvec: conditions of other columns, for which as many rows are asked for as they are expected to take
CREATE SCHEMA index_expected;
SET search_path = index_expected, public;
CREATE TABLE docs (id int, tokens idset, kind int, part int, weight int);
INSERT INTO docs SELECT i, (SELECT idset_agg((i::int8 * 7919 * j + j * j * 31 + i / 7) % (50 * j)) FROM generate_series(1, 5 + i % 12) j), (i::int8 * 2654435761 >> 7) % 300, i % 4, i
	FROM generate_series(1, 15000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, part);
VACUUM ANALYZE docs;
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
SELECT id FROM docs WHERE part = 1 ORDER BY tokens <-> '{7,31}' LIMIT 1;
-- Distances of a query, beside those of a sort; and how many requests it takes
CREATE FUNCTION asked(query text, OUT distances text, OUT few bool) LANGUAGE plpgsql AS $$
DECLARE
	before numeric;
	wanted text;
BEGIN
	SELECT requests INTO before FROM gpuvec_engine;
	EXECUTE 'SELECT string_agg(x::text, '','') FROM (' || query || ') x' INTO distances;
	SELECT requests - before <= 1 INTO few FROM gpuvec_engine;
	SET LOCAL enable_indexscan = off;
	EXECUTE 'SELECT string_agg(x::text, '','') FROM (' || query || ') x' INTO wanted;
	SET LOCAL enable_indexscan = on;
	distances := CASE WHEN distances = wanted THEN 'same' ELSE 'differs: ' || distances || ' / ' || wanted END;
END $$;
SELECT * FROM asked($$SELECT tokens <-> '{7,31,62}' FROM docs ORDER BY tokens <-> '{7,31,62}' LIMIT 10$$);
SELECT * FROM asked($$SELECT tokens <-> '{7,31,62}' FROM docs WHERE kind = 17 ORDER BY tokens <-> '{7,31,62}' LIMIT 10$$);
SELECT * FROM asked($$SELECT tokens <-> '{7,31,62}' FROM docs WHERE kind < 20 ORDER BY tokens <-> '{7,31,62}' LIMIT 50$$);
SELECT * FROM asked($$SELECT tokens <-> '{7,31,62}' FROM docs WHERE kind < 30 AND part = 2 ORDER BY tokens <-> '{7,31,62}' LIMIT 40$$);
SELECT * FROM asked($$SELECT tokens <-> '{7,31,62}' FROM docs ORDER BY tokens <-> '{7,31,62}' LIMIT 900$$);
-- a plan that is kept
SET plan_cache_mode = force_generic_plan;
CREATE FUNCTION kept(q idset) RETURNS SETOF float8 LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT tokens <-> q FROM docs WHERE kind = 17 ORDER BY tokens <-> q LIMIT 10; END';
SELECT count(*) FROM kept('{7,31,62}');
SELECT * FROM asked($$SELECT * FROM kept('{7,31,62}')$$);
SELECT * FROM asked($$SELECT * FROM kept('{31,62,93}')$$);
-- statistics that are wrong cost requests, and nothing else
UPDATE docs SET kind = 17 WHERE id % 3 = 0;
UPDATE docs SET kind = 400 WHERE kind = 18;
SELECT distances FROM asked($$SELECT tokens <-> '{7,31,62}' FROM docs WHERE kind = 17 ORDER BY tokens <-> '{7,31,62}' LIMIT 10$$);
SELECT count(*) FROM (SELECT FROM docs WHERE kind = 18 ORDER BY tokens <-> '{7,31,62}' LIMIT 10) x;
DROP SCHEMA index_expected CASCADE;
