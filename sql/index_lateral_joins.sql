-- CREATE INDEX ... USING gpuvec: lateral joins, whose queries are asked for together
CREATE SCHEMA index_lateral;
SET search_path = index_lateral, public;
CREATE TABLE docs (id int, tokens idset, tenant int, price int);
INSERT INTO docs SELECT i, (SELECT idset_agg((i::int8 * 7919 * j + j * j * 31 + i / 7) % (50 * j)) FROM generate_series(1, 5 + i % 12) j), i % 37, i % 101
	FROM generate_series(1, 6000) i;
INSERT INTO docs SELECT 10000 + i, CASE i % 2 WHEN 0 THEN '{}'::idset END, i % 3, i FROM generate_series(1, 8) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, tenant, price);
CREATE TABLE queries (n int, tokens idset, tenant int, price int, tenants int[]);
INSERT INTO queries SELECT i, CASE WHEN i % 50 = 3 THEN NULL WHEN i % 50 = 4 THEN '{}' WHEN i % 50 IN (5, 6) THEN '{7,31}' ELSE
		(SELECT idset_agg((i::int8 * 31 * j + j) % (40 * j)) FROM generate_series(1, 3 + i % 9) j) END::idset,
	CASE WHEN i % 40 = 7 THEN NULL WHEN i % 40 = 8 THEN -1 ELSE i % 37 END, i % 90, ARRAY[i % 37, i % 11]
	FROM generate_series(1, 700) i;
ALTER TABLE queries ADD COLUMN shift int DEFAULT 3;
VACUUM ANALYZE docs, queries;
-- the engine runs, and has the rows
SET enable_seqscan = off;
SELECT id FROM docs WHERE tenant = 1 ORDER BY tokens <-> '{7,31}' LIMIT 1;
RESET enable_seqscan;

-- The rows of a join with index scans that ask for many queries at once, with ones that ask for each alone, and with
-- sorts; and how many requests the first take
CREATE FUNCTION rows_of(query text, loops bool, at_once int, OUT got text, OUT requests numeric) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_' || kind, CASE WHEN loops THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan,memoize,material}'::text[]) kind
		WHERE EXISTS (SELECT FROM pg_settings WHERE name = 'enable_' || kind);
	PERFORM set_config('enable_indexscan', CASE WHEN loops THEN 'on' ELSE 'off' END, true), set_config('gpuvec.join_rows', at_once::text, true);
	SELECT e.requests INTO requests FROM gpuvec_engine e;
	EXECUTE 'SELECT count(*) || '' rows, '' || md5(coalesce(string_agg(x::text, '';'' ORDER BY x), '''')) FROM (' || query || ') x' INTO got;
	SELECT e.requests - rows_of.requests INTO requests FROM gpuvec_engine e;
END $$;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	together record;
	alone record;
	sorted record;
	cut record;
BEGIN
	together := rows_of(query, true, 256);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	alone := rows_of(query, true, 1);
	cut := rows_of(query, true, 3);
	sorted := rows_of(query, false, 256);
	IF plan NOT LIKE '%"Order By"%' THEN RETURN 'not by the index'; END IF;
	IF together.got <> sorted.got OR alone.got <> sorted.got OR cut.got <> sorted.got THEN
		RETURN format('differs: %s, %s, %s, %s', together.got, alone.got, cut.got, sorted.got);
	END IF;
	RETURN format('same %s, %s', split_part(sorted.got, ',', 1),
		CASE WHEN together.requests * 1.5 < alone.requests THEN 'fewer requests' ELSE 'as many requests' END);
END $$;
-- ties are left out: which of them are among the first rows is not defined
CREATE VIEW joins AS SELECT * FROM (VALUES
	(1, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 10) x$$),
	(2, $$SELECT n, d FROM queries q LEFT JOIN LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant AND d.price < q.price ORDER BY d.tokens <-> q.tokens LIMIT 3) x ON true$$),
	(3, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <=> q.tokens AS d FROM docs d WHERE d.tenant = ANY (q.tenants) ORDER BY d.tokens <=> q.tokens LIMIT 5) x$$),
	(4, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d ORDER BY d.tokens <-> q.tokens LIMIT 200) x WHERE n < 40$$),
	(5, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <#> q.tokens AS d FROM docs d WHERE d.tenant = 5 ORDER BY d.tokens <#> q.tokens LIMIT 4) x$$),
	(6, $$SELECT n, d FROM generate_series(1, 300) n, LATERAL (SELECT d.tokens <-> ARRAY[n, n + 1, 7]::idset AS d FROM docs d WHERE d.tenant = n % 37 ORDER BY d.tokens <-> ARRAY[n, n + 1, 7]::idset LIMIT 2) x$$),
	(7, $$SELECT n, d FROM (SELECT n, tokens, tenant FROM queries WHERE n % 2 = 0 ORDER BY n DESC LIMIT 120) q, LATERAL (SELECT d.tokens <~> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <~> q.tokens LIMIT 5) x$$),
	(8, $$SELECT n, (SELECT sum(d) FROM (VALUES (q.n), (q.n + 1)) v (m), LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = v.m % 37 ORDER BY d.tokens <-> q.tokens LIMIT 2) x) FROM queries q WHERE n < 60$$),
	(9, $$SELECT n, d FROM (SELECT n, tokens, tenant + floor(random())::int AS tenant FROM queries) q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 10) x$$),
	(10, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant AND q.n % 3 = 0 ORDER BY d.tokens <-> q.tokens LIMIT 10) x$$),
	(11, $$SELECT n, d FROM (SELECT * FROM queries WHERE n < 300 UNION ALL SELECT * FROM queries WHERE n > 400) q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 6) x$$),
	(12, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant AND d.tokens @> '{7}' ORDER BY d.tokens <-> q.tokens LIMIT 8) x$$),
	(13, $$SELECT m, n, d FROM generate_series(8, 12) m, LATERAL (SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 1) x WHERE n > m LIMIT 8) y$$),
	(14, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.shift ORDER BY d.tokens <-> q.tokens LIMIT 3) x$$),
	(15, $$SELECT n, d FROM (SELECT id AS n, tokens, tenant FROM docs WHERE id % 30 = 0 ORDER BY tokens <-> '{7,31,62}' LIMIT 300) q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 3) x$$),
	(16, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <#> q.tokens::idvec * (0.5 + q.n % 3) AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <#> q.tokens::idvec * (0.5 + q.n % 3) LIMIT 10) x$$),
	(17, $$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <#> q.tokens::idvec AS d FROM docs d ORDER BY d.tokens <#> q.tokens::idvec LIMIT 200) x WHERE n < 40$$),
	(18, $$SELECT m, n, d FROM generate_series(8, 12) m, LATERAL (SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 1) x WHERE n > m AND n < 40 OFFSET 0) y$$)
	) j (number, query);
-- 8 is in a subquery of an expression, and 9 has a volatile function:
-- there each query is asked alone
SELECT number, same(query) FROM joins ORDER BY number;
-- rows that come, go and change their columns in the same transaction
BEGIN;
UPDATE docs SET tenant = tenant + 1 WHERE id % 9 = 0;
DELETE FROM docs WHERE id % 17 = 0;
INSERT INTO docs SELECT 20000 + i, ('{7,31,' || i || '}')::idset, i % 37, i FROM generate_series(1, 60) i;
SELECT number, same(query) FROM joins WHERE number IN (1, 2, 3) ORDER BY number;
ROLLBACK;
-- a cursor that stops, goes on and goes back; each row has its own query's rows
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
BEGIN;
CREATE TABLE wanted AS SELECT n, array_agg(d ORDER BY d) AS ds FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 2) x WHERE n <= 20 GROUP BY n;
CREATE FUNCTION fetched(cursor refcursor, how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	got record;
	good int := 0;
BEGIN
	FOR got IN EXECUTE format('FETCH %s %I', how, cursor) LOOP
		good := good + (SELECT count(*) FROM wanted w WHERE w.n = got.n AND got.d = ANY (w.ds));
	END LOOP;
	RETURN good;
END $$;
DECLARE forwards NO SCROLL CURSOR FOR SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 2) x WHERE n <= 20;
DECLARE backwards SCROLL CURSOR FOR SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 2) x WHERE n <= 20;
SELECT fetched('forwards', '5'), fetched('forwards', '7'), fetched('backwards', '9'), fetched('backwards', 'BACKWARD 4'), fetched('backwards', 'ALL'), fetched('forwards', 'ALL'), fetched('forwards', '1');
ROLLBACK;
-- the node that reads ahead is between the loop and its outer side
CREATE FUNCTION plan_lines(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	-- servers from 18 on say what is disabled
	FOR line IN EXECUTE query LOOP
		IF line NOT LIKE '% Disabled: true' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
SELECT plan_lines($$EXPLAIN (VERBOSE, COSTS OFF) SELECT n + 1, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.n ORDER BY d.tokens <-> q.tokens LIMIT 3) x$$);
-- few rows of a join do not read far ahead: 5 rows of queries are 3 requests at most
SELECT requests <= 5 FROM rows_of($$SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 1) x WHERE n > 8 LIMIT 5$$, true, 256);
-- nor are rows read ahead whose functions have effects
CREATE SEQUENCE calls;
CREATE FUNCTION called() RETURNS int8 LANGUAGE plpgsql LEAKPROOF AS $$ BEGIN RETURN nextval('calls'); END $$;
SELECT split_part(got, ',', 1), nextval('calls') FROM rows_of($$SELECT n, d FROM (SELECT n, tokens, tenant, called() FROM queries WHERE n > 8) q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 1) x LIMIT 12$$, true, 256);
-- Rows that are never reached raise no error, in the keys of the scan or in the outer side: below a LIMIT, behind a
-- condition, and where a row wants no rows
SELECT n FROM queries q, LATERAL (SELECT FROM docs d WHERE d.tenant = 1 + 1 / (q.n - 3) ORDER BY d.tokens <-> q.tokens LIMIT 1) x LIMIT 2;
SELECT n FROM (SELECT * FROM queries WHERE 1 / (n - 4) < 5) q, LATERAL (SELECT FROM docs d WHERE d.price <> q.n AND d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 1) x LIMIT 2;
SELECT n, got FROM queries q LEFT JOIN LATERAL (SELECT true AS got FROM docs d WHERE q.n < 3 AND d.tenant = 1 + 1 / (q.n - 3) ORDER BY d.tokens <-> q.tokens LIMIT 1) x ON true WHERE n < 5;
SELECT n, got FROM queries q LEFT JOIN LATERAL (SELECT true AS got FROM docs d WHERE d.tenant = 1 + 1 / (q.n - 3) ORDER BY d.tokens <-> q.tokens LIMIT CASE WHEN q.n < 3 THEN 1 ELSE 0 END) x ON true WHERE n < 5;
-- an error of a row to come is an error of the join, and the session goes on
SELECT n, d FROM queries q, LATERAL (SELECT d.tokens <-> q.tokens AS d FROM docs d WHERE d.tenant = 1 / (q.n - 30) ORDER BY d.tokens <-> q.tokens LIMIT 1) x;
SELECT same(query) FROM joins WHERE number = 1;
-- The same below all that may want few rows: none of these forms reaches the row of the error (but for windows in older servers, which want all rows).
-- Each fails or gives rows as it does without rows read ahead.
CREATE UNIQUE INDEX queries_n ON queries (n);
ANALYZE queries;
CREATE VIEW failing AS SELECT n FROM queries q, LATERAL (SELECT FROM docs d WHERE d.tenant = 1 + 1 / (q.n - 5) ORDER BY d.tokens <-> q.tokens LIMIT 1) x;
CREATE VIEW failing_outer AS SELECT n FROM (SELECT *, 1 / (n - 5) AS i FROM queries WHERE 1 / (n - 5) < 5) q, LATERAL (SELECT FROM docs d WHERE d.tenant = q.tenant AND d.price <> q.n ORDER BY d.tokens <-> q.tokens LIMIT 1) x;
-- two rows at once are read ahead, one is not
CREATE FUNCTION reads_ahead(at_once int) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	PERFORM set_config('gpuvec.join_rows', at_once::text, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT * FROM failing' INTO plan;
	RETURN plan LIKE '%gpuvec read-ahead%';
END $$;
SELECT at_once, reads_ahead(at_once) FROM generate_series(1, 3) at_once;
CREATE FUNCTION outcome(query text, at_once int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	rows text;
BEGIN
	PERFORM set_config('gpuvec.join_rows', at_once::text, true);
	EXECUTE 'SELECT string_agg(x::text, '' '') FROM (' || query || ') x' INTO rows;
	RETURN rows;
EXCEPTION WHEN division_by_zero THEN
	RETURN SQLERRM;
END $$;
CREATE FUNCTION outcomes(form text, OUT ahead text, OUT same bool, OUT planned bool) LANGUAGE plpgsql AS $$
DECLARE
	query text;
	plan text;
BEGIN
	same := true;
	planned := true;
	FOREACH query IN ARRAY ARRAY[format(form, 'failing'), format(form, 'failing_outer')] LOOP
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
		planned := planned AND plan LIKE '%"Order By"%' AND plan NOT LIKE '%"Node Type": "Sort"%';
		ahead := outcome(query, 256);
		same := same AND ahead IS NOT DISTINCT FROM outcome(query, 1) AND ahead IS NOT DISTINCT FROM outcome(query, 3);
	END LOOP;
END $$;
SET enable_hashagg = off;
SET enable_material = off;
SELECT number, o.same, o.planned, CASE WHEN form NOT LIKE '%OVER%' AND form NOT LIKE '%ROLLUP%' THEN o.ahead END AS rows FROM (VALUES
	(1, 'SELECT n FROM %s LIMIT 2'),
	(2, 'SELECT n, count(*) FROM %s GROUP BY n ORDER BY n LIMIT 2'),
	(3, 'SELECT n FROM %s GROUP BY n ORDER BY n LIMIT 2'),
	(4, 'SELECT n, sum(n) FROM %s GROUP BY n HAVING count(*) > 0 ORDER BY n LIMIT 2 OFFSET 1'),
	(5, 'SELECT n, count(*) FROM %s GROUP BY ROLLUP (n) LIMIT 2'),
	(6, 'SELECT DISTINCT n FROM %s ORDER BY n LIMIT 2'),
	(7, 'SELECT DISTINCT ON (n) n, n + 1 AS m FROM %s ORDER BY n LIMIT 2'),
	(8, 'SELECT n, row_number() OVER (ORDER BY n) FROM %s LIMIT 2'),
	(9, 'SELECT n, lead(n) OVER (ORDER BY n) FROM %s LIMIT 2'),
	(10, 'SELECT n, sum(n) OVER (ORDER BY n ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) FROM %s LIMIT 2'),
	(11, 'SELECT * FROM (SELECT n, row_number() OVER (ORDER BY n) AS r FROM %s) x WHERE r <= 2'),
	(12, 'SELECT n, sum(count(*)) OVER (ORDER BY n) FROM %s GROUP BY n LIMIT 2'),
	(13, 'SELECT count(*) FROM (SELECT n FROM %s ORDER BY n LIMIT 2) x'),
	(14, 'SELECT count(*) FROM (SELECT n, count(*) FROM %1$s GROUP BY n ORDER BY n LIMIT 2) x'),
	(15, 'SELECT n FROM (SELECT n FROM %1$s UNION ALL SELECT n FROM %1$s) x LIMIT 2'),
	(16, 'SELECT n FROM %s ORDER BY n, n + 1 LIMIT 2'),
	(17, 'SELECT n, generate_series(1, 2) FROM %s LIMIT 3'),
	(18, 'SELECT n FROM (SELECT n FROM %s ORDER BY n FETCH FIRST 2 ROWS WITH TIES) x'),
	(19, 'SELECT count(*) FROM %s')
	) f (number, form), outcomes(form) o ORDER BY number;
RESET enable_hashagg;
RESET enable_material;
DROP SCHEMA index_lateral CASCADE;
