-- gpuvec_overlaps: how many rows match two sets both, against a join
CREATE SCHEMA search_overlaps;
SET search_path = search_overlaps, public;
CREATE TABLE docs (id int NOT NULL, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 90);
-- more rows than a segment has; null sets and empty ones
INSERT INTO docs SELECT i, CASE WHEN i % 1000 = 0 THEN NULL WHEN i % 1000 = 1 THEN '{}' ELSE ARRAY[i % 5, 10 + i % 97, 200 + i % 2003, CASE WHEN i % 3 = 0 THEN 60000 ELSE 60001 END]::idset END FROM generate_series(1, 70000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM ANALYZE docs;

CREATE FUNCTION joined(relation regclass, sets idset[]) RETURNS TABLE (a int, b int, "rows" int8) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('WITH s AS MATERIALIZED (SELECT ordinality::int AS n, s FROM unnest($1) WITH ORDINALITY u(s)), d AS MATERIALIZED (SELECT row_number() OVER () AS r, tokens FROM %s),
		m AS MATERIALIZED (SELECT r, n FROM d, s WHERE tokens && s)
		SELECT x.n, y.n, coalesce(c, 0) FROM s x JOIN s y ON x.n <= y.n LEFT JOIN (SELECT v.n AS vn, w.n AS wn, count(*) AS c FROM m v JOIN m w ON v.r = w.r AND v.n <= w.n GROUP BY 1, 2) p ON vn = x.n AND wn = y.n', relation) USING sets;
END $$;
/* Is the answer right, its pairs, how it came, and were rows fetched */
CREATE FUNCTION compare(sets idset[], relation regclass DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text = '';
	wrong int8;
	pairs int8;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM gpuvec_overlaps(%L, ''tokens'', %L)', relation, sets) LOOP
		plan = plan || line || E'\n';
	END LOOP;
	SELECT count(*) INTO wrong FROM gpuvec_overlaps(relation, 'tokens', sets) o FULL JOIN joined(relation, sets) j USING (a, b) WHERE o."rows" IS DISTINCT FROM j."rows";
	SELECT count(*) INTO pairs FROM gpuvec_overlaps(relation, 'tokens', sets);
	RETURN format('%s pairs, %s wrong, %s%s', pairs, wrong, CASE WHEN plan ~ 'Engine Requests: [1-9]' THEN 'by the engine' ELSE 'by a scan' END, CASE WHEN plan ~ 'Rows Not Proven' THEN ', some rows fetched' ELSE '' END);
END $$;

SELECT * FROM gpuvec_overlaps('docs', 'tokens', ARRAY['{3}', '{60000}', '{3,12,300}', NULL, '{}', '{7000}', '{3}']::idset[]);
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}', NULL, '{}', '{7000}', '{3}']::idset[]);
SELECT compare(ARRAY['{0,1,2,3,4}', '{10,11,12,2000}']::idset[]);
-- one set, none that match, none at all
SELECT compare(ARRAY['{3,60000}']::idset[]);
SELECT compare(ARRAY['{3,60000}', NULL]::idset[]);
SELECT compare(ARRAY['{7000}', '{7001,7002}', '{4000000000}']::idset[]);
SELECT compare(ARRAY[NULL, '{}']::idset[]);
SELECT count(*) FROM gpuvec_overlaps('docs', 'tokens', '{}');
SELECT count(*) FROM gpuvec_overlaps('docs', 'tokens', NULL);
-- many sets, more than are counted at a time
SELECT n, compare((SELECT array_agg(ARRAY[i % 5, 10 + i, 200 + i * 17]::idset - (i % 5) ORDER BY i) FROM generate_series(1, n) i)) FROM unnest(ARRAY[31, 32, 33, 70]) n;
-- a bare call, and one in a join
SELECT count(*), sum((o)."rows") FROM (SELECT gpuvec_overlaps('docs', 'tokens', ARRAY['{3}', '{60000}']::idset[]) AS o) x;
SELECT i, sum("rows") FROM generate_series(0, 2) i, LATERAL gpuvec_overlaps('docs', 'tokens', ARRAY[ARRAY[i]::idset, ARRAY[10 + i]::idset]) GROUP BY i ORDER BY i;
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_overlaps('docs', 'tokens', ARRAY['{3}', '{60000}']::idset[]);

-- rows that were changed, and not vacuumed; changes of this transaction
DELETE FROM docs WHERE id % 50 = 3;
UPDATE docs SET tokens = tokens | 3 WHERE id BETWEEN 100 AND 200;
UPDATE docs SET id = -id WHERE id BETWEEN 30000 AND 30100;
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}', '{4,60001}']::idset[]);
BEGIN;
DELETE FROM docs WHERE id BETWEEN 40000 AND 41000;
INSERT INTO docs SELECT i, ARRAY[3, 60000, i] FROM generate_series(1, 500) i;
SAVEPOINT s;
UPDATE docs SET tokens = '{3,12}' WHERE id = 45000;
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}', '{4,60001}']::idset[]), compare(ARRAY['{3}']::idset[]);
ROLLBACK TO s;
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}', '{4,60001}']::idset[]), compare(ARRAY['{3}']::idset[]);
DECLARE c CURSOR FOR SELECT * FROM gpuvec_overlaps('docs', 'tokens', ARRAY['{3}', '{60000}']::idset[]);
DELETE FROM docs WHERE tokens && '{60000}';
FETCH ALL FROM c;
ROLLBACK;
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}', '{4,60001}']::idset[]);
VACUUM docs;
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}', '{4,60001}']::idset[]);
-- a serializable transaction
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT compare(ARRAY['{3}', '{60000}']::idset[]);
COMMIT;

-- wide ids
CREATE TABLE wide AS SELECT i AS id, ARRAY[i % 7, 100000 + i % 11, 4000000000 + i % 1300, i * 37::int8 % 4294967296]::idset AS tokens FROM generate_series(1, 3000) i;
CREATE INDEX ON wide USING gpuvec (tokens, id);
SELECT compare(ARRAY['{3}', '{100003,4000000000}', '{4000000007,5}', '{37}', '{999999999}']::idset[], 'wide');
VACUUM wide;
SELECT compare(ARRAY['{3}', '{100003,4000000000}', '{4000000007,5}', '{37}', '{999999999}']::idset[], 'wide');
-- no index; temporary; partitions, with an index and without
CREATE TABLE plain AS SELECT * FROM docs LIMIT 2000;
CREATE TEMP TABLE temporary AS SELECT * FROM docs LIMIT 200;
CREATE TABLE parts (id int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (10000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10000) TO (20000) PARTITION BY RANGE (id);
CREATE TABLE parts_3 PARTITION OF parts_2 FOR VALUES FROM (10000) TO (15000);
CREATE TABLE parts_4 PARTITION OF parts_2 FOR VALUES FROM (15000) TO (20000);
INSERT INTO parts SELECT * FROM docs WHERE id < 20000;
SELECT relation, compare(ARRAY['{3}', '{60000}', '{3,12,300}']::idset[], relation) FROM unnest(ARRAY['plain', 'temporary', 'parts']::regclass[]) relation;
CREATE INDEX ON parts_1 USING gpuvec (tokens);
CREATE INDEX ON parts_2 USING gpuvec (tokens);
VACUUM parts;
SELECT compare(ARRAY['{3}', '{60000}', '{3,12,300}']::idset[], 'parts'), compare(ARRAY['{3}']::idset[], 'parts');

-- what is refused
SELECT count(*) FROM gpuvec_overlaps('docs', 'tokens', array_fill(NULL::idset, ARRAY[4096]));
SELECT count(*) FROM gpuvec_overlaps('docs', 'tokens', array_fill('{1}'::idset, ARRAY[4097]));
\echo :SQLSTATE
SELECT * FROM gpuvec_overlaps('docs', 'tokens', ARRAY[ARRAY['{3}'], ARRAY['{4}']]::idset[]);
SELECT * FROM gpuvec_overlaps(NULL, 'tokens', '{}');
SELECT * FROM gpuvec_overlaps('docs', NULL, '{}');
SELECT * FROM gpuvec_overlaps('docs', 'id', '{}');
SELECT * FROM gpuvec_overlaps('docs', 'none', '{}');
SELECT * FROM gpuvec_overlaps('docs_tokens', 'tokens', '{}');
CREATE ROLE regress_overlaps;
GRANT USAGE ON SCHEMA search_overlaps TO regress_overlaps;
GRANT SELECT (id) ON docs TO regress_overlaps;
SET ROLE regress_overlaps;
SELECT * FROM gpuvec_overlaps('docs', 'tokens', '{}');
RESET ROLE;
GRANT SELECT (tokens) ON docs TO regress_overlaps;
ALTER TABLE wide ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON wide TO regress_overlaps;
SET ROLE regress_overlaps;
SELECT count(*) FROM gpuvec_overlaps('docs', 'tokens', ARRAY['{3}']::idset[]);
SELECT * FROM gpuvec_overlaps('wide', 'tokens', '{}');
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA search_overlaps CASCADE;
DROP ROLE regress_overlaps;
