-- Rows by the ids of their sets, counted by an index without looking at most
-- rows; groups with the most rows
CREATE SCHEMA index_facets_ids;
SET search_path = index_facets_ids, public;
-- all is compared here, so only a few statements verify what they count
SET gpuvec.verify = off;
CREATE TABLE docs (gone text, number int NOT NULL, rank int, amount numeric, tag text, other idset, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 30);
ALTER TABLE docs DROP gone;
-- more rows than a segment has; ids that all rows have, or few, the least and
-- the greatest; sets that are null, empty and long
INSERT INTO docs SELECT i, nullif(i / 9 % 6, 0), CASE WHEN i % 3 = 0 THEN 10 ELSE i % 20 END, 't' || i % 3, ARRAY[i % 7]::idset,
	CASE WHEN i % 1000 = 0 THEN NULL WHEN i % 1000 = 1 THEN '{}' WHEN i % 1000 = 2 THEN (SELECT array_agg(j * (i % 7)) FROM generate_series(1, 300) j)::idset ELSE ARRAY[0, i % 5, 10 + i % 97, 1000 + i * 7919 % 30011, CASE WHEN i / 6 % 3 = 0 THEN 65534 ELSE 65535 END]::idset END FROM generate_series(1, 66000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, rank, amount);
VACUUM ANALYZE docs;

/*
 * Compares the rows of a statement with those of a sequential scan, and says
 * how many there are, and how they came about: by the index, or by a scan that
 * the node has run; or that there is no node
 */
CREATE FUNCTION rows_of(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	result text[];
BEGIN
	EXECUTE format('SELECT array_agg(x::text) FROM (%s) x', query) INTO result;
	RETURN coalesce(result, '{}');
END $$;
CREATE FUNCTION by_index(query text) RETURNS text[] LANGUAGE sql SET enable_seqscan = off AS 'SELECT index_facets_ids.rows_of(query)';
CREATE FUNCTION by_scan(query text) RETURNS text[] LANGUAGE sql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS 'SELECT index_facets_ids.rows_of(query)';
CREATE FUNCTION plan_of(query text, options text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	line text;
	plan text = '';
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
		plan = plan || line || E'\n';
	END LOOP;
	RETURN plan;
END $$;
CREATE FUNCTION compare(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	node text[];
	seq text[];
	plan text;
BEGIN
	IF plan_of(query, 'COSTS OFF') !~ 'gpuvec count' THEN
		RETURN 'no node';
	END IF;
	plan = plan_of(query, 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF');
	node = by_index(query);
	seq = by_scan(query);
	RETURN CASE WHEN node = seq THEN cardinality(seq)::text ELSE format('%s, but %s by a sequential scan', left(node::text, 500), left(seq::text, 500)) END ||
		coalesce(' of ' || substring(plan FROM 'Groups Wanted: (\d+)'), '') ||
		CASE WHEN plan ~ 'Scans Run' THEN ' by scan' WHEN plan ~ 'Rows Not Fetched: [1-9]' THEN ' by index' ELSE ' by index, all fetched' END;
END $$;
-- the facets of rows: all, and the first ones
CREATE FUNCTION facets(condition text) RETURNS text LANGUAGE sql AS $$SELECT index_facets_ids.compare(format('SELECT unnest(tokens) AS id, count(*) FROM docs WHERE %s GROUP BY 1 ORDER BY 1', condition))$$;
CREATE FUNCTION first_facets(condition text, n int DEFAULT 5) RETURNS text LANGUAGE sql AS $$SELECT index_facets_ids.compare(format('SELECT id, count(*) FROM docs, unnest(tokens) id WHERE %s GROUP BY id ORDER BY count(*) DESC, id LIMIT %s', condition, n))$$;

-- as people write it
SELECT unnest(tokens) AS id, count(*) FROM docs WHERE tokens && '{3,12}' AND rank < 3 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 8;
SELECT id, count(*) FROM docs, unnest(tokens) id WHERE tokens && '{3,12}' AND rank < 3 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 8;
EXPLAIN (VERBOSE, COSTS OFF) SELECT unnest(tokens) AS id, count(*) FROM docs WHERE tokens && '{3,12}' AND rank < 3 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 8;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, count(*) FROM docs CROSS JOIN LATERAL unnest(tokens) AS t (id) WHERE tokens && '{3,12}' GROUP BY id HAVING count(*) > 100;

-- conditions of the set, of filter columns, and of both
SELECT condition, facets(condition), first_facets(condition) FROM unnest(ARRAY['tokens && ''{3,12}''', 'tokens && ''{0}''', 'tokens && ''{65535}''', 'tokens && ''{7000000}''', 'tokens && ''{}''', 'tokens && NULL', 'tokens @> ''{3,65534}''', 'tokens @> ''{}''', 'tokens = ''{}''', 'tokens <@ ''{0,1,2,3,4,5,6,65534}''', 'tokens <<->> idset_threshold(''{0,3,12,65534}'', 0.5, ''jaccard'')', 'tokens && ''{3}'' AND tokens && ''{12}''', 'tokens @@ ''3 & 12''', 'tokens @@ ''3 | (12 | !!4)''', 'tokens @@ ''3 & (12 | 13)''', 'tokens @@ ''3 | (12 & !4)''', 'tokens @@ ''!3''',
	'tokens IS NULL', 'tokens IS NOT NULL', 'tokens IS NULL AND rank < 4', 'rank < 4', 'rank IS NULL', 'rank = ANY (''{2,4}'')', 'amount < 10', 'amount <= 10', 'amount BETWEEN 10 AND 10', 'tokens && ''{3}'' AND amount BETWEEN 3 AND 10', 'amount = 10', 'tokens && ''{3}'' AND number > 100', 'tokens && ''{3}'' OR rank = 3', 'false', 'true']) condition;
SELECT n, first_facets('tokens && ''{3,12}''', n), first_facets('rank = 3', n) FROM unnest('{0,1,2,96,97,98,5000,100000,2000000}'::int[]) n;
SELECT n, compare(format('SELECT unnest(tokens), count(*) FROM docs WHERE rank = 3 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10 OFFSET %s', n)) FROM unnest('{0,5,1048566,1048567,9223372036854775807}'::int8[]) n;

-- what may be asked for, and what may not
SELECT q, compare(q) FROM (SELECT replace(q, '@', 'FROM docs WHERE tokens && ''{3,12}'' AND rank < 4') AS q FROM unnest(ARRAY['SELECT unnest(tokens), count(1) @ GROUP BY 1 ORDER BY 1', 'SELECT count(*) @ GROUP BY unnest(tokens) ORDER BY 1', 'SELECT unnest(tokens) AS id, count(*), count(*) * 2 @ GROUP BY 1 HAVING count(*) > 700 ORDER BY 1', 'SELECT unnest(tokens) AS id @ GROUP BY 1 ORDER BY 1', 'SELECT unnest(tokens) AS id, rank, count(*) @ GROUP BY 1, 2 ORDER BY 1, 2',
	'SELECT unnest(tokens) AS id, max(rank) @ GROUP BY 1 ORDER BY 1', 'SELECT unnest(other) AS id, count(*) @ GROUP BY 1 ORDER BY 1', 'SELECT unnest(tokens), unnest(tokens), count(*) @ GROUP BY 1, 2 ORDER BY 1', 'SELECT unnest(tokens) + 1, count(*) @ GROUP BY 1 ORDER BY 1', 'SELECT unnest(tokens - 3), count(*) @ GROUP BY 1 ORDER BY 1', 'SELECT unnest(ARRAY[rank]), count(*) @ GROUP BY 1 ORDER BY 1', 'SELECT unnest(tokens), count(*) @ GROUP BY ROLLUP (1) ORDER BY 1', 'SELECT DISTINCT count(*) @ GROUP BY unnest(tokens) ORDER BY 1',
	'SELECT unnest(tokens), count(*), rank() OVER (ORDER BY count(*) DESC) @ GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 9', 'SELECT unnest(tokens), count(*), generate_series(1, 2) @ GROUP BY 1 ORDER BY 2 DESC, 1, 3 LIMIT 9', 'SELECT unnest(tokens), generate_series(1, 2), count(*) @ GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 9', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 HAVING count(*) < 900 ORDER BY 2 DESC, 1 LIMIT 9', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2, 1 LIMIT 9', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 1 LIMIT 9', 'SELECT unnest(tokens) AS id, count(*) @ GROUP BY 1 ORDER BY -count(*), id LIMIT 9',
	'SELECT DISTINCT ON (count(*)) count(*), unnest(tokens) AS id @ GROUP BY 2 ORDER BY count(*) DESC, id LIMIT 9', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 9 OFFSET 3', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 0', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT NULL', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2 DESC, 1 OFFSET 5', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 1 LIMIT 3', 'SELECT unnest(tokens), count(*) @ GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT (SELECT 4)',
	'SELECT (SELECT count(*) FROM (SELECT count(*) AS n @ GROUP BY unnest(tokens) ORDER BY 1 DESC FETCH FIRST 9 ROWS WITH TIES) x)']) q) x;
SELECT q, compare(q) FROM unnest(ARRAY['SELECT id, count(*) FROM docs d CROSS JOIN LATERAL unnest(d.tokens) AS t (id) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs JOIN unnest(tokens) t (id) ON true WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs LEFT JOIN unnest(tokens) t (id) ON true WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs JOIN unnest(tokens) t (id) ON t.id > rank WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1',
	'SELECT t.id, count(*) FROM docs, unnest(tokens) t (id) WHERE tokens && ''{3}'' AND t.id <> 3 GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs, unnest(tokens) t (id) WHERE tokens && ''{3}'' AND t.id = 3 GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs, unnest(tokens) t (id) WHERE tokens && ''{3}'' AND t.id = rank GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs, unnest(tokens) WITH ORDINALITY t (id, n) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT rank, count(*) FROM docs, unnest(tokens) t (id) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1',
	'SELECT count(*) FROM docs, unnest(tokens) t (id) WHERE tokens && ''{3}''', 'SELECT t.id, count(*) FROM docs, unnest(other) t (id) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs, unnest(''{1,2}''::idset) t (id) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs, ROWS FROM (unnest(tokens), unnest(tokens)) t (id, b) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1', 'SELECT t.id, count(*) FROM docs, unnest(tokens) t (id), unnest(other) o (id) WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1',
	'SELECT t, count(*) FROM docs, unnest(tokens) t (id) WHERE tokens && ''{3}'' GROUP BY t ORDER BY 1', 'SELECT id, count(*) FROM (SELECT unnest(tokens) AS id FROM docs WHERE tokens && ''{3}'') x GROUP BY 1 ORDER BY 1', 'SELECT id, n FROM (SELECT unnest(tokens) AS id, count(*) AS n FROM docs WHERE tokens && ''{3}'' GROUP BY 1) x WHERE id BETWEEN 3 AND 20 ORDER BY 1']) q;

-- groups of columns with the most rows
SELECT q, compare('SELECT ' || q) FROM unnest(ARRAY['rank, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2', 'rank, count(*) FROM docs WHERE tokens IS NULL OR rank < 4 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2', 'rank, count(*) FROM docs WHERE rank > 1 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2', 'rank, count(*) FROM docs WHERE tokens && ''{3}'' AND amount <= 10 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2', 'rank, max(rank), count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 1 OFFSET 1']) q;

-- rows that are looked at: not vacuumed, of this transaction, at limits of
-- rounded keys; groups that have the most rows only with these
BEGIN;
UPDATE docs SET tokens = '{3,77777,5}' WHERE number % 50 = 3;
DELETE FROM docs WHERE number % 50 = 8;
INSERT INTO docs (number, rank, tokens) SELECT -i, 2, '{3,88888}' FROM generate_series(1, 200) i;
SELECT facets('tokens && ''{3,12}'''), first_facets('tokens && ''{3}'''), first_facets('rank = 2', 40), first_facets('amount <= 10'), first_facets('tokens && ''{77777,88888}''', 1);
SELECT id, count(*) FROM docs, unnest(tokens) id WHERE tokens && '{77777,88888}' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 4;
ROLLBACK;
BEGIN;
DECLARE before CURSOR FOR SELECT id, count(*) FROM docs, unnest(tokens) id WHERE tokens && '{3}' AND rank = 2 GROUP BY id ORDER BY count(*) DESC, id LIMIT 5;
DELETE FROM docs WHERE tokens && '{3}' AND number % 2 = 0;
FETCH ALL FROM before;
SELECT first_facets('tokens && ''{3}'' AND rank = 2');
ROLLBACK;
SELECT facets('tokens && ''{3,12}'''), first_facets('tokens && ''{3,12}''');
SET work_mem = '64kB';
SELECT facets('tokens && ''{3,12}'''), first_facets('amount <= 10');
VACUUM docs;
SELECT facets('tokens && ''{3,12}'''), first_facets('amount <= 10');
RESET work_mem;
SET gpuvec.verify = on;
SELECT facets('tokens && ''{3,12}'''), first_facets('rank < 4'), facets('amount <= 10'), facets('tokens IS NULL');
SET gpuvec.verify = off;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT facets('tokens && ''{3,12}''');
COMMIT;
SET enable_hashagg = off;
SELECT facets('tokens && ''{3,12}'''), first_facets('tokens && ''{3,12}''');
RESET enable_hashagg;
SET enable_indexonlyscan = off;
SELECT facets('tokens && ''{3,12}''');
RESET enable_indexonlyscan;

-- parameters, and limits that are known only when a statement is run
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE facets_of (idset, int) AS SELECT unnest(tokens) AS id, count(*) FROM docs WHERE tokens && $1 AND rank = 2 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT $2;
EXECUTE facets_of ('{3}', 3);
EXECUTE facets_of ('{4}', 2);
EXECUTE facets_of (NULL, 2);
SET plan_cache_mode = force_custom_plan;
EXECUTE facets_of ('{3}', 3);
RESET plan_cache_mode;
RESET enable_seqscan;
SELECT compare('SELECT p, x.* FROM generate_series(0, 6) p, LATERAL (SELECT id, count(*) FROM docs, unnest(tokens) id WHERE tokens && ARRAY[p]::idset AND rank >= p % 4 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3) x ORDER BY 1, 3 DESC, 2');

-- ids that have numbers in the index, more than fit 16 bits, and more than are
-- counted; numbers of ids that came later
CREATE TABLE wide (a int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO wide SELECT i % 7, ARRAY[i % 5, 100000 + i * 60013::int8 % 70001, 4294967295 - i % 3, 300000 + i % 300]::idset FROM generate_series(1, 70000) i;
CREATE INDEX ON wide USING gpuvec (tokens, a);
VACUUM ANALYZE wide;
CREATE FUNCTION of_wide(condition text) RETURNS text LANGUAGE sql AS $$SELECT index_facets_ids.compare(format('SELECT count(*), sum(n), sum(id * n) FROM (SELECT unnest(tokens) AS id, count(*) AS n FROM wide WHERE %s GROUP BY 1) x', condition)) || ', ' || index_facets_ids.compare(format('SELECT id, count(*) FROM wide, unnest(tokens) id WHERE %s GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10', condition))$$;
SELECT condition, of_wide(condition) FROM unnest(ARRAY['tokens && ''{3}''', 'a < 5', 'tokens && ''{100013,300017,4294967295}'' AND a = 2', 'tokens && ''{160013}''', 'a = 100']) condition;
INSERT INTO wide SELECT 2, ARRAY[3, 900000 + i, 4000000]::idset FROM generate_series(1, 3000) i;
VACUUM wide;
SELECT condition, of_wide(condition) FROM unnest(ARRAY['tokens && ''{3}''', 'a = 2', 'tokens && ''{4000000}''']) condition;
DROP TABLE wide;
CREATE TABLE narrow (tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO narrow SELECT ARRAY[i % 5, 65535 - i % 300]::idset FROM generate_series(1, 3000) i;
CREATE INDEX ON narrow USING gpuvec (tokens);
VACUUM ANALYZE narrow;
SELECT compare('SELECT unnest(tokens), count(*) FROM narrow WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1');
INSERT INTO narrow SELECT ARRAY[i % 5, 65536 + i % 300]::idset FROM generate_series(1, 3000) i;
VACUUM narrow;
SELECT compare('SELECT unnest(tokens), count(*) FROM narrow WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1'), compare('SELECT unnest(tokens), count(*) FROM narrow WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 9');
DROP TABLE narrow;

-- more ids than are counted
CREATE TABLE most (a int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO most SELECT i, (SELECT array_agg(i * 65536 + j) FROM generate_series(0, 65535) j)::idset FROM generate_series(1, 17) i;
CREATE INDEX ON most USING gpuvec (tokens, a);
VACUUM ANALYZE most;
SELECT condition, compare(format('SELECT count(*), sum(n), max(id) FROM (SELECT unnest(tokens) AS id, count(*) AS n FROM most WHERE %s GROUP BY 1) x', condition)) FROM unnest(ARRAY['a <= 15', 'a <= 17']) condition;
DROP TABLE most;

-- the group with the most rows is it with rows that the engine does not count:
-- of null sets, at a limit, that are not proven, and of another partition
CREATE TABLE close (number int, a int, b int, amount numeric, tokens idset) WITH (autovacuum_enabled = off);
CREATE FUNCTION of_close(condition text) RETURNS text LANGUAGE sql AS $$SELECT index_facets_ids.compare(format('SELECT a, count(*) FROM close WHERE %s GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1', condition)) || ', ' || index_facets_ids.compare(format('SELECT id, count(*) FROM close, unnest(tokens) id WHERE %s GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1', condition))$$;
INSERT INTO close SELECT i, 1 + i % 2, 1, 5, ARRAY[7 + i % 2]::idset FROM generate_series(1, 1000) i WHERE i % 10 <> 1;
INSERT INTO close SELECT i, 2, 1, 5, NULL FROM generate_series(2001, 2150) i;
INSERT INTO close SELECT i, 2, 2, 10, '{8}' FROM generate_series(3001, 3150) i;
INSERT INTO close SELECT i, 2, 3, 5, '{8}' FROM generate_series(4001, 4150) i;
CREATE INDEX ON close USING gpuvec (tokens, a, b, amount);
VACUUM ANALYZE close;
UPDATE close SET b = 3 WHERE b = 3;
SELECT condition, of_close(condition) FROM unnest(ARRAY['tokens IS NOT NULL AND b = 1', 'b = 1', 'tokens && ''{7,8}'' AND b < 3', 'amount <= 10 AND b <> 3', 'b < 3 AND amount <= 10', 'tokens && ''{7,8}'' AND b = ANY (''{1,3}'')', 'tokens && ''{7,8}'' AND amount <= 10']) condition;
SELECT a, count(*) FROM close WHERE b = 1 GROUP BY 1 ORDER BY 2 DESC LIMIT 1;
SELECT a, count(*) FROM close WHERE tokens && '{7,8}' AND amount <= 10 AND b < 3 GROUP BY 1 ORDER BY 2 DESC LIMIT 1;
SELECT id, count(*) FROM close, unnest(tokens) id WHERE tokens && '{7,8}' AND b = ANY ('{1,3}') GROUP BY 1 ORDER BY 2 DESC LIMIT 1;
DROP TABLE close;
CREATE TABLE close (a int, tokens idset) PARTITION BY LIST (a);
CREATE TABLE close_1 PARTITION OF close FOR VALUES IN (1);
CREATE TABLE close_2 PARTITION OF close FOR VALUES IN (2);
INSERT INTO close SELECT 1, ARRAY[7 + (i % 20) / 11]::idset FROM generate_series(1, 1000) i;
INSERT INTO close SELECT 2, ARRAY[8 + (i % 20) / 11]::idset FROM generate_series(1, 1000) i;
CREATE INDEX ON close USING gpuvec (tokens, a);
VACUUM ANALYZE close;
SELECT compare('SELECT id, count(*) FROM close, unnest(tokens) id WHERE tokens && ''{7,8,9}'' GROUP BY 1 ORDER BY 2 DESC LIMIT 1');

-- partitions, with other orders of columns: their groups are added up
CREATE TABLE parts (number int, day int, tokens idset) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 (tokens idset, dropped text, number int, day int);
ALTER TABLE parts_2 DROP dropped;
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
INSERT INTO parts SELECT i, i % 20, CASE WHEN i % 50 > 0 THEN ARRAY[i % 5, 10 + i % 97, 200 + i % 20]::idset END FROM generate_series(1, 16000) i;
CREATE INDEX ON parts USING gpuvec (tokens, day);
VACUUM ANALYZE parts;
SELECT condition, compare(format('SELECT unnest(tokens), count(*) FROM parts WHERE %s GROUP BY 1 ORDER BY 1', condition)), compare(format('SELECT id, count(*) FROM parts p, unnest(p.tokens) id WHERE %s GROUP BY id ORDER BY 2 DESC, 1 LIMIT 7', condition)) FROM unnest(ARRAY['tokens && ''{3}''', 'tokens && ''{3}'' AND day < 8', 'day >= 15', 'tokens && ''{3}'' AND day = (SELECT 13)', 'tokens && ''{3}'' AND day = 100', 'tokens && ''{3}'' AND number > 5']) condition;
SET enable_partitionwise_aggregate = on;
SELECT compare('SELECT unnest(tokens), count(*) FROM parts WHERE tokens && ''{3}'' GROUP BY 1 ORDER BY 1'), compare('SELECT x, count(*) FROM parts, unnest(tokens) x WHERE tokens && ''{3}'' GROUP BY x ORDER BY 2 DESC, 1 LIMIT 7');
RESET enable_partitionwise_aggregate;

-- rights: of rows, and of the function
CREATE ROLE regress_gpuvec_facets_ids;
GRANT USAGE ON SCHEMA index_facets_ids TO regress_gpuvec_facets_ids;
GRANT SELECT ON docs TO regress_gpuvec_facets_ids;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY low ON docs FOR SELECT USING (rank < 3);
SET ROLE regress_gpuvec_facets_ids;
SELECT facets('tokens && ''{3,12}'''), first_facets('tokens && ''{3,12}''');
RESET ROLE;
BEGIN;
REVOKE EXECUTE ON FUNCTION unnest(idset) FROM public;
SET LOCAL ROLE regress_gpuvec_facets_ids;
SET LOCAL enable_seqscan = off;
SELECT id, count(*) FROM docs, unnest(tokens) id WHERE tokens && '{3}' GROUP BY id;
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA index_facets_ids CASCADE;
DROP ROLE regress_gpuvec_facets_ids;
