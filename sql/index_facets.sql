-- Groups of rows by an index, with their least and greatest values, without
-- looking at most rows
CREATE SCHEMA index_facets;
SET search_path = index_facets, public;
-- all is compared here, so only a few statements verify what they count
SET gpuvec.verify = off;
CREATE TYPE size AS ENUM ('large', 'small');
CREATE DOMAIN rank AS int CHECK (VALUE >= 0);
CREATE TABLE docs (gone text, id int NOT NULL, i2 int2, i4 int, lost int, i8 int8, day date, at timestamp, atz timestamptz, flag bool, f4 float4, f8 float8, size size, rank rank, nothing int, amount numeric, tag text, u uuid, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 30);
ALTER TABLE docs DROP gone;
-- more rows than a segment has; extreme values and nulls in each column; a
-- third of the rows have the amount 10
INSERT INTO docs SELECT i, (ARRAY[-32768, 32767, 0, NULL, i % 11])[1 + i / 5 % 5], (ARRAY[-2147483648, 2147483647, NULL, i % 13])[1 + i / 7 % 4], NULL, (ARRAY[-9223372036854775808, 9223372036854775807, NULL, i % 7])[1 + i / 11 % 4],
	(ARRAY['infinity', '-infinity', '4713-01-01 BC', '5874897-12-31', NULL, '2000-01-01', '2024-02-29'])[1 + i % 7]::date, (ARRAY['infinity', '-infinity', '4713-01-01 BC', '294276-12-31 23:59:59.999999', NULL, '2000-01-01'])[1 + i / 10 % 6]::timestamp,
	(ARRAY['infinity', '-infinity', '4713-01-02 BC', NULL, '2000-01-01'])[1 + i / 8 % 5]::timestamptz, (ARRAY[true, false, NULL])[1 + i / 4 % 3], (ARRAY['NaN', 'infinity', '-infinity', '0', '1e-45', '-3.4e38', NULL])[1 + i / 3 % 7]::float4,
	(ARRAY['NaN', 'infinity', '-infinity', '0', '-0', '5e-324', '-1.7e308', '0.1', NULL])[1 + i % 9]::float8, (ARRAY['small', 'large', NULL])[1 + i / 2 % 3]::size, nullif(i / 9 % 6, 0), NULL, CASE WHEN i % 3 = 0 THEN 10 ELSE i % 20 END,
	't' || i % 3, ('00000000-0000-0000-0000-00000000000' || i % 7)::uuid, CASE WHEN i % 1000 = 0 THEN NULL WHEN i % 1000 = 1 THEN '{}' ELSE ARRAY[i % 5, 10 + i % 97, CASE WHEN i / 6 % 3 = 0 THEN 60000 ELSE 60001 END]::idset END FROM generate_series(1, 66000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, i2, i4, i8, day, at, atz, flag, f4, f8, size, rank, nothing, amount);
ALTER TABLE docs DROP lost;
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
	-- -0 is 0 to the index
	EXECUTE format('SELECT array_agg(r ORDER BY r) FROM (SELECT regexp_replace(x::text, ''([(,])-0(?=[,)])'', ''\10'', ''g'') AS r FROM (%s) x) y', query) INTO result;
	RETURN coalesce(result, '{}');
END $$;
CREATE FUNCTION by_index(query text) RETURNS text[] LANGUAGE sql SET enable_seqscan = off AS 'SELECT index_facets.rows_of(query)';
CREATE FUNCTION by_scan(query text) RETURNS text[] LANGUAGE sql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS 'SELECT index_facets.rows_of(query)';
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
		CASE WHEN plan ~ 'Scans Run' THEN ' by scan' WHEN plan ~ 'Rows Not Fetched: [1-9]' THEN ' by index' ELSE ' by index, all fetched' END;
END $$;

-- columns of all types to group by, and to have the least and the greatest
-- value of
SELECT c, compare(format('SELECT %I, count(*) FROM docs WHERE tokens && ''{3,12}'' GROUP BY 1', c)) AS groups, compare(format('SELECT flag, min(%1$I), max(%1$I) FROM docs WHERE tokens && ''{3,12}'' GROUP BY 1', c)) AS values,
	compare(format('SELECT count(*), min(%1$I), max(%1$I) FROM docs WHERE tokens && ''{3,12}''', c)) AS all
FROM unnest('{i2,i4,i8,day,at,atz,f4,f8,size,rank,nothing,amount,tag,id}'::text[]) c;
SELECT c, compare(format('SELECT %I, count(*) FROM docs WHERE tokens && ''{3,12}'' GROUP BY 1', c)) FROM unnest('{flag,u}'::text[]) c;
SELECT flag, size, rank, count(*), min(i8), max(i8), min(day), max(day), max(at), min(f8), max(f8), max(nothing) FROM docs WHERE tokens && '{3,12}' AND rank < 3 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- what may be asked for, and what may not
CREATE FUNCTION facets(what text, rest text DEFAULT 'GROUP BY flag') RETURNS text LANGUAGE sql AS $$SELECT index_facets.compare(format('SELECT %s FROM docs WHERE tokens && ''{3,12}'' AND rank < 4 %s', what, rest))$$;
SELECT what, facets(what) FROM unnest(ARRAY['count(*)', 'flag, count(1)', 'flag, count(*), count(*), max(i4), max(i4)', 'flag, min(i4), max(i4), min(i2), count(*) - max(i2), min(i4) + 1', 'count(*) || '' of '' || coalesce(flag::text, ''none'')', 'bool_and(flag), bool_or(flag), every(flag)',
	'flag, flag AS again, count(*) n', 'flag, count(*), sum(count(*)) OVER (ORDER BY flag), rank() OVER (ORDER BY count(*) DESC)', 'flag, generate_series(1, count(*) / 1000)', 'flag, (SELECT count(*) FROM docs o WHERE o.tokens && ''{4}'' AND o.flag = docs.flag)',
	'flag, (SELECT sum(max(docs.i2) + o.rank) FROM docs o WHERE o.tokens && ''{4}'' AND o.i2 = 5)', 'DISTINCT min(day)', 'DISTINCT ON (count(*) > 2000) count(*) > 2000', 'flag', 'flag, sum(i4)', 'flag, avg(i4)', 'flag, count(i4)', 'count(DISTINCT i4)', 'max(DISTINCT i4)', 'count(*) FILTER (WHERE i4 > 3)', 'max(i4) FILTER (WHERE i4 > 3)',
	'max(i4 ORDER BY i2)', 'array_agg(i4 ORDER BY i4)', 'max(i4 + 1)', 'max(i4::int8)', 'max(-i4)', 'min(size)', 'min(tag)', 'min(amount)', 'GROUPING(flag), count(*)', 'count(*), max(tableoid)']) what;
SELECT rest, facets('count(*), max(i4)', rest) FROM unnest(ARRAY['', 'HAVING count(*) > 3', 'HAVING count(*) < 3', 'HAVING min(i2) < 0 AND max(f8) > 5', 'GROUP BY rank HAVING rank < 3', 'GROUP BY flag HAVING flag OR max(i2) > 5', 'GROUP BY flag HAVING count(i4) > 5', 'GROUP BY flag, size, rank, i2', 'GROUP BY flag, i2, flag', 'GROUP BY nothing', 'GROUP BY size ORDER BY count(*) DESC, size LIMIT 1',
	'GROUP BY size ORDER BY size DESC NULLS LAST', 'GROUP BY i2, size ORDER BY max(i4), i2, size OFFSET 3 LIMIT 5', 'GROUP BY not flag', 'GROUP BY i2 + 1', 'GROUP BY flag, tag', 'GROUP BY flag, amount', 'GROUP BY tokens', 'GROUP BY flag, ''x''::text', 'GROUP BY ROLLUP (flag, size)', 'GROUP BY CUBE (flag)', 'GROUP BY GROUPING SETS ((flag), (size))', 'GROUP BY GROUPING SETS ((flag))', 'GROUP BY ()', 'GROUP BY flag LIMIT 0', 'GROUP BY tableoid', 'GROUP BY docs']) rest;
SELECT compare(q) FROM unnest(ARRAY['SELECT i2, i4, i8, day, at, atz, flag, f4, f8, size, rank, nothing, count(*), max(rank) FROM docs WHERE tokens && ''{3}'' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12',
	'SELECT i2, i4, i8, day, at, atz, flag, f4, f8, size, rank, count(*), min(f4), max(i2), max(flag::int) FROM docs WHERE tokens && ''{3}'' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11', 'SELECT i2, i4, i8, day, at, atz, flag, f4, f8, size, rank, count(*), min(f4), max(i2), max(i4), min(i8) FROM docs WHERE tokens && ''{3}'' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11',
	'SELECT s.flag, count(*) FROM (SELECT * FROM docs WHERE tokens && ''{3}'') s WHERE rank < 3 GROUP BY 1', 'SELECT flag, count(*) FROM docs TABLESAMPLE system (100) WHERE tokens && ''{3}'' GROUP BY 1', 'SELECT flag, count(*) FROM docs WHERE tokens && ''{3}'' AND EXISTS (SELECT FROM docs o WHERE o.id = docs.id) GROUP BY 1',
	'SELECT size, n FROM (SELECT size, count(*) AS n FROM docs WHERE tokens && ''{3}'' GROUP BY 1 UNION ALL SELECT size, count(*) FROM docs WHERE rank < 2 GROUP BY 1) u', 'SELECT * FROM (SELECT i2, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1) a FULL JOIN (SELECT i2, max(i4) FROM docs WHERE rank = 3 GROUP BY 1) b USING (i2)',
	'SELECT * FROM (SELECT flag, size, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1, 2) x WHERE size = ''small''']) q;
-- most columns: more combinations of their values than there are bins
SELECT compare('SELECT i2, i4, i8, day, at, atz, flag, f4, f8, size, rank, nothing, count(*), min(f4), max(i2) FROM docs WHERE tokens && ''{3}'' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12') AS most_columns;
EXPLAIN (VERBOSE, COSTS OFF) SELECT size, count(*) AS n, max(f8) - min(f8) AS width FROM docs WHERE tokens && '{3,12}' AND rank < 4 GROUP BY size HAVING min(day) < '2001-01-01' ORDER BY n DESC LIMIT 3;
EXPLAIN (COSTS OFF) SELECT max(f8), count(*) FROM docs WHERE tokens && '{3,12}';

-- conditions of the set, of filter columns, and of both
SELECT condition, compare('SELECT size, count(*), min(i4), max(i4) FROM docs WHERE ' || condition || ' GROUP BY 1') FROM unnest(ARRAY['tokens && ''{7000}''', 'tokens && ''{}''', 'tokens && NULL', 'tokens @> ''{3,60000}''', 'tokens @> ''{}''', 'tokens = ''{}''', 'tokens = ''{3,10,60001}''', 'tokens <@ ''{3,4,10,11,12,60000,60001}''', 'tokens <<->> idset_threshold(''{3,12,60000}'', 0.25, ''jaccard'')', 'tokens && ''{3}'' AND tokens && ''{12}''', 'tokens @@ ''3 & 12''', 'tokens @@ ''3 | (12 | !!4)''', 'tokens @@ ''3 & (12 | 13)''', 'tokens @@ ''3 | (12 & !4)''', 'tokens @@ ''!3''',
	'tokens IS NULL', 'tokens IS NOT NULL', 'tokens IS NULL AND rank < 4', 'rank < 4', 'rank IS NULL', 'f8 = 0', 'f8 = ''NaN''', 'f8 > 5', 'i2 = ANY (''{5,7,-32768}'')', 'size = ''small''', 'size = ''small'' AND rank = 2', 'day = ''infinity''', 'nothing IS NULL AND flag IS NULL', 'amount < 10', 'amount <= 10', 'amount >= 10 AND amount <= 10', 'amount > 9 AND amount < 10', 'tokens && ''{3}'' AND amount BETWEEN 3 AND 10', 'tokens IS NULL AND amount >= 10',
	'amount = 10', 'amount < NULL', 'tokens && ''{3}'' AND id > 100', 'tokens && ''{3}'' OR rank = 3', 'tokens && ''{3}'' AND tag = ''t1''', 'false', 'tokens && ''{3}'' AND now() > ''2020-01-01''', 'true', 'ctid < ''(100,1)''']) condition;
SELECT condition, compare('SELECT min(i4), max(day), count(*) FROM docs WHERE ' || condition) FROM unnest(ARRAY['tokens && ''{7000}''', 'tokens && NULL', 'amount <= 10', 'amount < -1', 'tokens IS NULL AND amount >= 10']) condition;

-- columns that have one value each, and groups in order
SET enable_hashagg = off;
SELECT compare('SELECT size, rank, count(*) FROM docs WHERE tokens && ''{3}'' AND rank = 2 GROUP BY 1, 2'), compare('SELECT i2, count(*) FROM docs WHERE tokens && ''{3}'' AND i2 = 7 GROUP BY 1'), compare('SELECT i2, count(*) FROM docs WHERE tokens && ''{3}'' AND i2 = 12 GROUP BY 1'), facets('i2, i4, count(*)', 'GROUP BY 1, 2'), facets('flag, flag AS again, max(i4)', 'GROUP BY 1, 2');
RESET enable_hashagg;
SET enable_sort = off;
SELECT facets('i2, i4, count(*)', 'GROUP BY 1, 2'), facets('flag, flag AS again, max(i4)', 'GROUP BY 1, 2');
RESET enable_sort;
SET enable_indexonlyscan = off;
SELECT facets('flag, count(*)');
RESET enable_indexonlyscan;
SET gpuvec.verify = on;
SELECT facets('i2, f8, count(*), min(nothing), min(f4), max(f4)', 'GROUP BY 1, 2'), facets('max(atz)', 'HAVING true'), compare('SELECT size, count(*), min(i4), max(i4) FROM docs WHERE amount <= 10 GROUP BY 1'), compare('SELECT size, max(f8) FROM docs WHERE tokens IS NULL AND amount <= 10 GROUP BY 1');
SET gpuvec.verify = off;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT facets('flag, count(*)'), compare('SELECT max(i4), count(*) FROM docs WHERE amount <= 10');
COMMIT;

-- parameters: of prepared statements, and of outer rows
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE of_rank (int, idset) AS SELECT size, count(*), min(i2), max(i2) FROM docs WHERE tokens && $2 AND rank < $1 GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) EXECUTE of_rank (2, '{3}');
EXECUTE of_rank (2, '{3}');
EXECUTE of_rank (3, '{4,12}');
EXECUTE of_rank (NULL, '{4,12}');
EXECUTE of_rank (3, NULL);
SELECT size, count(*), min(i2), max(i2) FROM docs WHERE tokens && '{3}' AND rank < 2 AND id > 0 GROUP BY 1 ORDER BY 1;
SELECT size, count(*), min(i2), max(i2) FROM docs WHERE tokens && '{4,12}' AND rank < 3 AND id > 0 GROUP BY 1 ORDER BY 1;
PREPARE of_amount (numeric, numeric) AS SELECT flag, count(*), max(i4) FROM docs WHERE tokens && '{3,12}' AND amount >= $1 AND amount < $2 GROUP BY 1 ORDER BY 1;
EXECUTE of_amount (9, 10);
EXECUTE of_amount (10, 11);
EXECUTE of_amount (11, 10);
EXECUTE of_amount (NULL, 10);
SELECT amount >= 10 AS of_10, flag, count(*), max(i4) FROM docs WHERE tokens && '{3,12}' AND amount >= 9 AND amount < 11 AND id > 0 GROUP BY 1, 2 ORDER BY 1, 2;
DEALLOCATE of_amount;
RESET plan_cache_mode;
RESET enable_seqscan;
SELECT compare(q) FROM unnest(ARRAY['SELECT p, x.* FROM generate_series(0, 6) p, LATERAL (SELECT size, count(*), min(f4) FROM docs WHERE tokens && ARRAY[p, 100 - p]::idset AND rank >= p % 4 GROUP BY 1) x', 'SELECT p, x.* FROM generate_series(0, 11) p, LATERAL (SELECT i2, count(*), min(f4) FROM docs WHERE tokens && ARRAY[p % 7]::idset AND amount >= p AND amount <= p + p % 3 GROUP BY 1 ORDER BY 1 LIMIT 2) x',
	'SELECT p, (SELECT array_agg(n ORDER BY n) FROM (SELECT count(*) AS n FROM docs WHERE rank = p GROUP BY day) y) FROM generate_series(0, 6) p', 'SELECT p, (SELECT max(i2) FROM docs WHERE amount = ANY (ARRAY[p]) AND tokens && ''{3}''), EXISTS (SELECT size, count(*) FROM docs WHERE rank = p GROUP BY 1 HAVING count(*) > 100) FROM generate_series(0, 6) p']) q;

-- own changes, of which the snapshot of a cursor knows nothing; rows that come
-- and go; VACUUM
BEGIN;
DECLARE before SCROLL CURSOR FOR SELECT size, flag, count(*), max(i2) FROM docs WHERE tokens && '{3}' GROUP BY 1, 2 ORDER BY 1, 2;
DECLARE after CURSOR WITH HOLD FOR SELECT size, count(*), max(i2) FROM docs WHERE tokens && '{3}' GROUP BY 1 ORDER BY 1;
FETCH 1 FROM before;
DELETE FROM docs WHERE id % 10 = 3 AND id < 1000;
UPDATE docs SET tokens = '{3}', i2 = 99 WHERE id BETWEEN 2000 AND 2010;
UPDATE docs SET tag = 'hot' WHERE id BETWEEN 3000 AND 3100;
UPDATE docs SET amount = 10 WHERE id BETWEEN 4000 AND 4100;
INSERT INTO docs (id, rank, amount, size, tokens) SELECT 100000 + i, 1, 9 + i % 3, 'large', '{3}' FROM generate_series(1, 50) i;
FETCH ALL FROM before;
FETCH FIRST FROM before;
SELECT facets('flag, count(*), max(i2)'), compare('SELECT size, count(*), max(i2) FROM docs WHERE amount <= 10 GROUP BY 1'), compare('SELECT count(*), max(i2) FROM docs WHERE tokens && ''{3}''');
SAVEPOINT s;
DELETE FROM docs WHERE rank < 3;
SELECT facets('flag, count(*), max(i2)'), compare('SELECT size, count(*), max(i2) FROM docs WHERE amount <= 10 GROUP BY 1');
ROLLBACK TO s;
SELECT facets('flag, count(*), max(i2)'), compare('SELECT size, count(*), max(i2) FROM docs WHERE amount <= 10 GROUP BY 1');
COMMIT;
FETCH ALL FROM after;
CLOSE after;
SELECT facets('flag, count(*), max(i2)'), compare('SELECT size, count(*), max(i2) FROM docs WHERE amount <= 10 GROUP BY 1');
VACUUM docs;
SELECT facets('flag, count(*), max(i2)'), compare('SELECT size, count(*), max(i2) FROM docs WHERE amount <= 10 GROUP BY 1');

-- little work_mem: many rows at a limit, and many pages that are not proven,
-- are looked at piece by piece
SET work_mem = '64kB';
SELECT count(DISTINCT (ctid::text::point)[0]) > 2000 AS many_pages FROM docs WHERE amount = 10;
SELECT condition, compare('SELECT size, count(*), min(i4), max(i4) FROM docs WHERE ' || condition || ' GROUP BY 1'), compare('SELECT count(*), max(f8) FROM docs WHERE ' || condition) FROM unnest(ARRAY['amount <= 10', 'amount < 10', 'amount >= 10', 'amount BETWEEN 8 AND 10', 'amount <= 10 AND rank < 4', 'tokens && ''{60000}'' AND amount <= 10']) condition;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT compare('SELECT size, count(*) FROM docs WHERE tokens @@ ''3 | 12'' GROUP BY 1');
COMMIT;
BEGIN;
UPDATE docs SET tag = 'x' WHERE id % 7 = 1;
SELECT condition, compare('SELECT size, count(*), min(i4), max(i4) FROM docs WHERE ' || condition || ' GROUP BY 1'), compare('SELECT count(*), max(f8) FROM docs WHERE ' || condition) FROM unnest(ARRAY['amount <= 10', 'tokens && ''{60000,60001}''', 'tokens && ''{60000}'' AND amount <= 10', 'rank < 4']) condition;
ROLLBACK;
VACUUM docs;
RESET work_mem;

-- more groups than the engine makes, and than the planner has thought: also of
-- null sets alone; two columns with many values each
CREATE TABLE many (a int, b int, c int, tokens idset) WITH (autovacuum_enabled = off);
ALTER TABLE many ALTER a SET (n_distinct = 5), ALTER b SET (n_distinct = 5);
INSERT INTO many SELECT i, i * 7919 % 3001, i % 2003, CASE WHEN i <= 30000 THEN ARRAY[i % 5]::idset END FROM generate_series(1, 131000) i;
CREATE INDEX ON many USING gpuvec (tokens, a, b, c);
VACUUM ANALYZE many;
CREATE VIEW sums AS SELECT 'tokens && ''{1,3}''' AS condition UNION ALL SELECT 'c >= 0' UNION ALL SELECT 'a <= 100000' UNION ALL SELECT 'a BETWEEN 31000 AND 131000' UNION ALL SELECT 'a > 31000';
SELECT condition, compare(format('SELECT count(*), sum(n), sum(a::int8 * b) FROM (SELECT a, count(*) AS n, max(b) AS b FROM many WHERE %s GROUP BY a) x', condition)), compare(format('SELECT count(*), sum(n), sum(a::int8 * b * c) FROM (SELECT b, c, count(*) AS n, max(a) AS a FROM many WHERE %s GROUP BY b, c) x', condition)) AS two FROM sums;
ALTER TABLE many ALTER a RESET (n_distinct), ALTER b RESET (n_distinct);
ANALYZE many;
SELECT compare('SELECT count(*), sum(n) FROM (SELECT a, count(*) AS n FROM many WHERE c >= 0 GROUP BY a) x'), compare('SELECT c, count(*), max(b) FROM many WHERE a < 70000 GROUP BY c');
DROP TABLE many CASCADE;

-- more ids than a mirror has bits for: rows are counted by rare ones, too
CREATE TABLE wide (a int, b int, amount numeric, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO wide SELECT i % 7, i % 11, i % 20, ARRAY[i % 5, 100000 + i, 300000 + i % 30000]::idset FROM generate_series(1, 70000) i;
CREATE INDEX ON wide USING gpuvec (tokens, a, b, amount);
VACUUM ANALYZE wide;
SELECT condition, compare(format('SELECT a, count(*), min(b), max(b) FROM wide WHERE %s GROUP BY a', condition)) FROM unnest(ARRAY['tokens && ''{3,100013,100017,300005}''', 'tokens && ''{100013,300017,300005,300006,300007}''', 'tokens @> ''{3,300008}''', 'tokens && ''{100013,300017,300005,300006,300007}'' AND a < 3', 'tokens && ''{3,300017,300005}'' AND amount <= 10', 'tokens <<->> idset_threshold(''{3,100013,300013}'', 0.2, ''jaccard'')']) condition;
DROP TABLE wide;

-- tables and types change, between executions of a prepared statement too
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE sizes AS SELECT size, count(*), max(i2) FROM docs WHERE tokens && '{3}' GROUP BY 1 ORDER BY 1;
EXECUTE sizes;
ALTER TYPE size ADD VALUE 'middling' BEFORE 'small';
UPDATE docs SET size = 'middling' WHERE id BETWEEN 5000 AND 5100;
EXECUTE sizes;
SELECT facets('size, count(*), min(f8)', 'GROUP BY size');
ALTER TYPE size RENAME VALUE 'middling' TO 'tall';
ALTER TABLE docs RENAME size TO extent;
ALTER TABLE docs RENAME extent TO size;
EXECUTE sizes;
ALTER TABLE docs ALTER i2 TYPE int8;
EXECUTE of_rank (2, '{3}');
DEALLOCATE of_rank;
DEALLOCATE sizes;
PREPARE sizes AS SELECT size, count(*), max(i2) FROM docs WHERE tokens && '{3}' GROUP BY 1 ORDER BY 1;
EXECUTE sizes;
VACUUM docs;
SELECT facets('i2, count(*), max(i2), min(i2)', 'GROUP BY 1');
REINDEX INDEX docs_tokens;
EXECUTE sizes;
ALTER TABLE docs ADD more int DEFAULT 5;
SELECT facets('more, count(*)', 'GROUP BY 1');
DROP INDEX docs_tokens;
EXECUTE sizes;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, size, i2, more, rank, flag, amount);
EXECUTE sizes;
SELECT facets('more, size, count(*), max(more)', 'GROUP BY 1, 2'), facets('size, max(i4)', 'GROUP BY 1');
BEGIN;
TRUNCATE docs;
EXECUTE sizes;
ROLLBACK;
EXECUTE sizes;
DEALLOCATE sizes;
RESET plan_cache_mode;
RESET enable_seqscan;

-- statements that write what they count, and functions that change the table
-- while it is read
CREATE FUNCTION writes(int8) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO docs (id, size, rank, tokens) VALUES (200000, 'small', 1, '{3}');
	RETURN $1;
END $$;
BEGIN;
CREATE TABLE was AS SELECT size, count(*) AS n FROM docs WHERE tokens && '{3}' AND id > 0 GROUP BY 1;
INSERT INTO docs (id, size, rank, tokens) SELECT -count(*), size, 2, '{3}' FROM docs WHERE tokens && '{3}' GROUP BY size;
SELECT compare('SELECT size, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1');
SELECT d.size, d.n - was.n AS more FROM (SELECT size, count(*) AS n FROM docs WHERE tokens && '{3}' GROUP BY 1) d JOIN was ON d.size IS NOT DISTINCT FROM was.size ORDER BY 1;
SELECT d.size, d.n - was.n AS more FROM (SELECT size, writes(count(*)) AS n FROM docs WHERE tokens && '{3}' GROUP BY 1 OFFSET 0) d JOIN was ON d.size IS NOT DISTINCT FROM was.size ORDER BY 1;
SELECT d.size, d.n - was.n AS more FROM (SELECT size, count(*) AS n FROM docs WHERE tokens && '{3}' GROUP BY 1) d JOIN was ON d.size IS NOT DISTINCT FROM was.size ORDER BY 1;
WITH x AS (DELETE FROM docs WHERE id = 200000 RETURNING 1) SELECT (SELECT count(*) FROM x), d.size, d.n - was.n AS more FROM (SELECT size, count(*) AS n FROM docs WHERE tokens && '{3}' GROUP BY 1) d JOIN was ON d.size IS NOT DISTINCT FROM was.size ORDER BY 2;
UPDATE was SET n = d.n FROM (SELECT size, count(*) AS n FROM docs WHERE tokens && '{3}' GROUP BY 1) d WHERE d.size = was.size;
SELECT d.size, d.n - was.n AS more FROM (SELECT size, count(*) AS n FROM docs WHERE tokens && '{3}' GROUP BY 1) d JOIN was ON d.size = was.size ORDER BY 1;
SELECT size FROM was WHERE n = (SELECT max(n) FROM (SELECT count(*) AS n FROM docs WHERE tokens && '{3}' GROUP BY size) x) FOR UPDATE;
ROLLBACK;

-- partitions: all that pruning leaves, when a statement is planned and when it
-- begins, with other orders of columns; inheritance
CREATE TABLE parts (id int, day int, price int, f float8, tokens idset) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 (f float8, dropped text, price int, tokens idset, id int, day int);
ALTER TABLE parts_2 DROP dropped;
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (20) TO (40) PARTITION BY LIST (price);
CREATE TABLE parts_3_1 PARTITION OF parts_3 FOR VALUES IN (0, 1, 2);
CREATE TABLE parts_3_2 (tokens idset, price int, day int, id int, f float8);
ALTER TABLE parts_3 ATTACH PARTITION parts_3_2 DEFAULT;
INSERT INTO parts SELECT i, i % 40, i % 7, i % 11 * 0.5, CASE WHEN i % 50 > 0 THEN ARRAY[i % 5, 10 + i % 97]::idset END FROM generate_series(1, 16000) i;
CREATE INDEX ON parts USING gpuvec (tokens, day, price, f);
VACUUM ANALYZE parts;
CREATE FUNCTION of_parts(condition text, what text DEFAULT 'price, count(*), min(day), max(f)', groups text DEFAULT 'GROUP BY price') RETURNS text LANGUAGE sql AS $$SELECT index_facets.compare(format('SELECT %s FROM parts WHERE %s %s', what, condition, groups))$$;
SELECT condition, of_parts(condition), of_parts(condition, 'day, price, count(*), max(day)', 'GROUP BY 1, 2'), of_parts(condition, 'max(day), min(f), count(*)', '') FROM unnest(ARRAY['tokens && ''{3}''', 'tokens && ''{3}'' AND day < 15', 'tokens && ''{3}'' AND day >= 20 AND price = 1', 'price < 3', 'tokens && ''{3}'' AND day = (SELECT 13)', 'tokens && ''{3}'' AND day = 100', 'tokens && ''{3}'' AND id > 5', 'tokens IS NULL', 'tokens && ''{3}'' AND day BETWEEN 11 AND 13']) condition;
SELECT compare(q) FROM unnest(ARRAY['SELECT d, x.* FROM unnest(''{5,15,25,-1}''::int[]) d, LATERAL (SELECT price, count(*), min(day) FROM parts WHERE tokens && ''{3}'' AND day < d GROUP BY 1) x', 'SELECT tableoid, count(*) FROM parts WHERE tokens && ''{3}'' GROUP BY 1']) q;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT price, count(*) FROM parts WHERE tokens && '{3}' AND day >= 10 GROUP BY 1;
SET enable_partitionwise_aggregate = on;
SELECT of_parts('tokens && ''{3}'''), of_parts('tokens && ''{3}''', 'day, count(*)', 'GROUP BY 1'), of_parts('tokens && ''{3}'' AND day < 8', 'day, count(*)', 'GROUP BY 1');
RESET enable_partitionwise_aggregate;
RESET enable_seqscan;
UPDATE parts SET id = -id WHERE id % 100 = 3;
UPDATE parts SET day = 39 - day WHERE id % 100 = 8;
DELETE FROM parts WHERE id % 100 = 13;
SELECT of_parts('tokens && ''{3}'''), of_parts('price < 3', 'max(day), min(f), count(*)', '');
SET gpuvec.verify = on;
SELECT of_parts('tokens && ''{3}'''), of_parts('price < 3', 'max(day), min(f), count(*)', '');
SET gpuvec.verify = off;
DROP INDEX parts_tokens_day_price_f_idx;
CREATE INDEX ON parts_1 USING gpuvec (tokens, price, day);
CREATE INDEX ON parts_2 USING gpuvec (tokens, day, price);
VACUUM ANALYZE parts;
SELECT of_parts('tokens && ''{3}''', 'price, count(*), max(day)'), of_parts('tokens && ''{3}'' AND day < 20', 'price, count(*), max(day)'), of_parts('tokens && ''{3}'' AND day < 20', 'price, max(f)');
CREATE TABLE parent (a int, tokens idset);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent SELECT i % 3, ARRAY[i % 5]::idset FROM generate_series(1, 500) i;
INSERT INTO child SELECT i % 4, ARRAY[i % 5]::idset FROM generate_series(1, 500) i;
CREATE INDEX ON parent USING gpuvec (tokens, a);
CREATE INDEX ON child USING gpuvec (tokens, a);
VACUUM ANALYZE parent, child;
SELECT table_name, compare(format('SELECT a, count(*) FROM %s WHERE tokens && ''{3}'' GROUP BY 1', table_name)) FROM unnest(ARRAY['parent', 'ONLY parent', 'child']) table_name;

-- security barriers: a policy's condition is a search key, too, or there is no
-- node
CREATE ROLE regress_gpuvec_facets;
GRANT USAGE ON SCHEMA index_facets TO regress_gpuvec_facets;
GRANT SELECT ON docs TO regress_gpuvec_facets;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY low ON docs FOR SELECT USING (rank < 3);
CREATE FUNCTION leaks(int8) RETURNS bool IMMUTABLE LANGUAGE plpgsql COST 0.0001 AS $$BEGIN IF $1 > 3 THEN RAISE EXCEPTION 'seen: %', $1; END IF; RETURN true; END$$;
SET ROLE regress_gpuvec_facets;
SELECT compare('SELECT rank, count(*), max(i2) FROM docs WHERE tokens && ''{3}'' GROUP BY 1'), compare('SELECT rank, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1 HAVING leaks(max(rank))'), compare('SELECT rank, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY 1 HAVING leaks(rank)'), compare('SELECT rank, count(*) FROM docs WHERE leaks(rank) GROUP BY 1');
RESET ROLE;
DROP POLICY low ON docs;
CREATE POLICY named ON docs FOR SELECT USING (tag = 't1');
SET ROLE regress_gpuvec_facets;
SELECT compare('SELECT rank, count(*), max(i2) FROM docs WHERE tokens && ''{3}'' GROUP BY 1');
RESET ROLE;
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM docs WHERE rank < 3;
SELECT compare('SELECT rank, count(*), max(i2) FROM barrier WHERE tokens && ''{3}'' GROUP BY 1'), compare('SELECT rank, count(*) FROM barrier WHERE tokens && ''{3}'' AND leaks(rank) GROUP BY 1');

-- indexes of vectors, of an expression and with a predicate; temporary and
-- unlogged tables; generated columns
CREATE TABLE texts (id int, body text, price int, twice int GENERATED ALWAYS AS (price * 2) STORED, terms idvec) WITH (autovacuum_enabled = off);
INSERT INTO texts (id, body, price, terms) SELECT i, i % 10 || ' ' || i % 97, i % 50, format('{%s:1,%s:0.5}', i % 10, 10 + i % 97)::idvec FROM generate_series(1, 3000) i;
CREATE FUNCTION numbers(body text) RETURNS idset IMMUTABLE LANGUAGE sql AS $$SELECT string_to_array(body, ' ')::int[]::public.idset$$;
CREATE INDEX ON texts USING gpuvec (numbers(body), price, twice) WHERE price < 40;
CREATE INDEX ON texts USING gpuvec (terms, price, twice);
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM texts;
CREATE INDEX ON unlogged USING gpuvec (terms, price, twice);
CREATE TEMPORARY TABLE temporary AS SELECT * FROM texts;
CREATE INDEX ON temporary USING gpuvec (terms, price, twice);
VACUUM ANALYZE texts, unlogged, temporary;
SELECT condition, compare(format('SELECT price, count(*), max(twice) FROM texts WHERE %s GROUP BY 1', condition)) FROM unnest(ARRAY['numbers(body) && ''{3}'' AND price < 40', 'numbers(body) && ''{3}'' AND price < 20', 'numbers(body) && ''{3}''', 'terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'')', 'price = ANY (''{7,8}'')']) condition;
SELECT compare('SELECT price, count(*), max(twice) FROM unlogged WHERE terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'') GROUP BY 1'), compare('SELECT price, count(*), max(twice) FROM temporary WHERE terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'') GROUP BY 1');
SET client_min_messages = warning;
DROP SCHEMA index_facets CASCADE;
DROP ROLE regress_gpuvec_facets;
