-- Indexes on vectors: merged scans, joins, cursors, prepared statements,
-- stored forms of values, and what Jaccard's distance is not defined for.
CREATE SCHEMA index_vectors_scans;
SET search_path = index_vectors_scans, public;
CREATE FUNCTION plans(by_index bool) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('enable_' || kind, CASE WHEN by_index THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind $$;
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan;
END $$;
-- All rows in the order of their distances and tids, the first ones, and those
-- of a condition, by the index against a scan and a sort
CREATE FUNCTION same(tab text, distance text, condition text DEFAULT 'true', limits text DEFAULT '{1,8,33,NULL}', in_order bool DEFAULT true, shape text DEFAULT '"Order By"') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	wanted int[];
	distances float8[];
	query text := format('SELECT id, %s AS d FROM %s WHERE %s ORDER BY %1$s', distance, tab, condition);
	got int[];
	found float8[];
	k int;
BEGIN
	PERFORM plans(false);
	EXECUTE format('SELECT array_agg(id ORDER BY d, tableoid, ctid), array_agg(d ORDER BY d) FROM (SELECT id, tableoid, ctid, (%s) + 0 AS d FROM %s WHERE (%s)::int > 0 OFFSET 0) x', distance, tab, condition) INTO wanted, distances;
	PERFORM plans(true);
	IF plan_of(query) NOT LIKE '%' || shape || '%' THEN RETURN 'another plan: ' || plan_of(query); END IF;
	FOREACH k IN ARRAY limits::int[] LOOP
		EXECUTE format('SELECT array_agg(id), array_agg(d) FROM (%s LIMIT %s) x', query, coalesce(k::text, 'ALL')) INTO got, found;
		IF found::text IS DISTINCT FROM distances[:coalesce(k, cardinality(distances))]::text THEN RETURN format('other distances of %s rows', k); END IF;
		IF in_order AND got IS DISTINCT FROM wanted[:coalesce(k, cardinality(wanted))] THEN RETURN format('another order of %s rows: %s, not %s', k, got[:50], wanted[:50]); END IF;
		IF k IS NULL AND ARRAY(SELECT unnest(got) ORDER BY 1) IS DISTINCT FROM ARRAY(SELECT unnest(wanted) ORDER BY 1) THEN RETURN 'other rows'; END IF;
	END LOOP;
	PERFORM plans(false);
	RETURN format('same, of %s rows', coalesce(cardinality(wanted), 0));
END $$;
CREATE FUNCTION chance(i int8, j int8, below int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS $$SELECT (hashint8extended(i * 1000 + j, 20261129) & 9007199254740991) % below$$;
-- counts and floats, many with common ids, some of which are wide; every third
-- row has values of both signs if these are asked for
CREATE FUNCTION vector_of(r int, signed bool) RETURNS idvec IMMUTABLE LANGUAGE sql AS $$
	SELECT CASE WHEN r % 41 = 0 THEN NULL WHEN r % 37 = 0 THEN '{}' ELSE idvec_agg(CASE WHEN k % 5 = 4 THEN k * 100000007::int8 ELSE k END, CASE WHEN r % 2 = 0 THEN 1 + chance(r, k + 500, 9) ELSE (1 + chance(r, k + 500, 10000)) / 1024.0 END * CASE WHEN signed AND chance(r, k + 700, 3) = 0 THEN -1 ELSE 1 END) END
	FROM generate_series(0, 39) k WHERE chance(r, k, 100) < 60 / (1 + k / 6) OR k = r % 40 $$;
CREATE TABLE queries (q int PRIMARY KEY, v idvec);
INSERT INTO queries VALUES (1, '{0:2,1:1,7:0.5,400000028:3}'), (2, '{0:1,1:-2,5:0.5,6:-1.5,3900000273:4}'), (3, '{2:-1,3:-2}'), (4, '{}'), (5, '{39:1}'), (6, '{77777:1}'), (7, vector_of(38, true)), (8, vector_of(61, false));
CREATE TABLE docs (id int PRIMARY KEY, v idvec, c idvec, tenant int, n int DEFAULT 0) WITH (fillfactor = 70);
INSERT INTO docs SELECT r, vector_of(r, true), vector_of(r, false), r % 40 FROM generate_series(1, 1000) r;
CREATE INDEX docs_v ON docs USING gpuvec (v, tenant);
CREATE INDEX docs_c ON docs USING gpuvec (c, tenant);
VACUUM ANALYZE docs;
-- a distance from a query: by Jaccard the column without negative values, and
-- the query's values without their signs
CREATE FUNCTION distance(op text, query int) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s %s %L::idvec', CASE WHEN op = '<%>' THEN 'c' ELSE 'v' END, op, CASE WHEN op = '<%>' THEN (SELECT coalesce(idvec_agg(id, abs(value)), '{}') FROM idvec_each(v)) ELSE v END) FROM queries WHERE q = query $$;
CREATE TABLE ops AS SELECT unnest('{<#>,<=>,<%>}'::text[]) AS op;
SELECT op, string_agg(DISTINCT same('docs', distance(op, q)), ';') AS all_rows, string_agg(DISTINCT same('docs', distance(op, q), 'tenant = 7'), ';') AS some FROM ops, queries GROUP BY op ORDER BY op;

-- partitions, whose scans are merged
CREATE TABLE parts (LIKE docs) PARTITION BY RANGE (tenant);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1);
CREATE TABLE parts_2 (n int, gone int, tenant int, c idvec, id int NOT NULL, v idvec);
ALTER TABLE parts_2 DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (1) TO (20);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (20) TO (38);
CREATE TABLE parts_4 PARTITION OF parts FOR VALUES FROM (38) TO (50);
INSERT INTO parts SELECT * FROM docs;
CREATE INDEX ON parts USING gpuvec (v);
CREATE INDEX ON parts USING gpuvec (c);
VACUUM ANALYZE parts;
SELECT op, string_agg(DISTINCT same('parts', distance(op, q), shape => 'gpuvec merge'), ';') AS all_rows, string_agg(DISTINCT same('parts', distance(op, q), 'tenant > 10', shape => 'gpuvec merge'), ';') AS some FROM ops, queries GROUP BY op ORDER BY op;
-- behind rows that were written just now
UPDATE parts SET n = n + 1 WHERE id % 5 = 0;
UPDATE parts SET c = '{0:1,7:1}', v = '{0:1,7:1}' WHERE id % 53 = 0;
INSERT INTO parts SELECT id + 10000, v, c, tenant FROM docs WHERE id % 50 = 7;
DELETE FROM parts WHERE id % 7 = 0;
SELECT op, string_agg(DISTINCT same('parts', distance(op, q), in_order => false, shape => 'gpuvec merge'), ';') AS changed FROM ops, queries GROUP BY op ORDER BY op;

-- lateral joins, whose queries are asked for together
CREATE FUNCTION joined(sorted bool, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM plans(NOT sorted), set_config('enable_material', sorted::text, true), set_config('enable_indexscan', (NOT sorted)::text, true);
	EXECUTE 'SELECT count(*) || '' rows, '' || md5(string_agg(x::text, '';'' ORDER BY x)) FROM (' || query || ') x' INTO result;
	IF NOT sorted AND plan_of(query) NOT LIKE '%"Order By"%' THEN RETURN 'another plan: ' || plan_of(query); END IF;
	PERFORM plans(false), set_config('enable_material', 'on', true), set_config('enable_indexscan', 'on', true);
	RETURN result;
END $$;
SELECT n, split_part(joined(false, query), ',', 1), joined(false, query) = joined(true, query) AS same FROM (VALUES
	(1, $$SELECT q, d FROM queries q, LATERAL (SELECT docs.v <#> q.v AS d FROM docs ORDER BY docs.v <#> q.v LIMIT 40) x$$),
	(2, $$SELECT q, i, d FROM queries q, generate_series(0, 41) i, LATERAL (SELECT docs.v <=> q.v AS d FROM docs WHERE tenant = i ORDER BY docs.v <=> q.v LIMIT 5) x$$),
	(3, $$SELECT q, i, d FROM queries q, generate_series(-1, 1) i, LATERAL (SELECT docs.v <#> q.v * i::float8 AS d FROM docs ORDER BY docs.v <#> q.v * i::float8 LIMIT 3) x$$),
	(4, $$SELECT o.id, e, d FROM docs o, LATERAL (SELECT c <%> o.c AS d FROM docs WHERE tenant = o.tenant ORDER BY c <%> o.c LIMIT 2) x, LATERAL (SELECT v <#> o.v AS e FROM docs ORDER BY v <#> o.v LIMIT 2) y WHERE o.tenant = 7$$),
	(5, $$SELECT q, (SELECT docs.v <=> q.v FROM docs ORDER BY docs.v <=> q.v LIMIT 1) FROM queries q$$),
	(6, $$SELECT o.id, d FROM docs o LEFT JOIN LATERAL (SELECT c <%> o.c AS d FROM docs WHERE id <> o.id ORDER BY c <%> o.c LIMIT 1) x ON true WHERE o.id % 20 = 1$$)) j (n, query) ORDER BY n;

-- parameters
SET enable_seqscan = off;
SET enable_sort = off;
PREPARE asked(idvec, int) AS SELECT array_agg(id) AS ids, array_agg(d::numeric(12, 6)) AS ds FROM (SELECT id, v <=> $1 AS d FROM docs ORDER BY v <=> $1 LIMIT $2) x;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE asked('{7:1}', 1);
EXECUTE asked('{7:1,1:-2}', 4);
EXECUTE asked('{38:1,400000028:0.25}', 3);
EXECUTE asked('{}', 2);
SET plan_cache_mode = force_custom_plan;
EXECUTE asked('{7:1,1:-2}', 4);
EXECUTE asked('{38:1,400000028:0.25}', 3);
RESET plan_cache_mode;
DEALLOCATE asked;
PREPARE unlimited(idvec) AS SELECT v <#> $1 IS NULL AS no_distance, count(*) FROM (SELECT v FROM docs ORDER BY v <#> $1) x GROUP BY 1 ORDER BY 1;
SET plan_cache_mode = force_generic_plan;
SELECT plan_of($$EXECUTE unlimited('{1:1}')$$) ~ '"Order By"' AS by_index;
EXECUTE unlimited('{1:1}');
EXECUTE unlimited(NULL);
DEALLOCATE unlimited;
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_sort;

-- cursors that go back, and one that goes on while rows are written
CREATE FUNCTION fetched(by_index bool, query int, op text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	r record;
	result text := '';
BEGIN
	PERFORM plans(by_index);
	OPEN c SCROLL FOR EXECUTE format('SELECT id, %s AS d FROM docs ORDER BY %1$s', distance(op, query));
	FOR i IN 1..6 LOOP FETCH c INTO r; result := concat(result, r.d, ' '); END LOOP;
	FOR i IN 1..3 LOOP FETCH BACKWARD FROM c INTO r; result := concat(result, r.d, ' '); END LOOP;
	MOVE ABSOLUTE 0 FROM c;
	FOR i IN 1..40 LOOP FETCH c INTO r; result := concat(result, r.d, ' '); END LOOP;
	FETCH ABSOLUTE 3 FROM c INTO r; result := concat(result, r.d, ' ');
	FETCH LAST FROM c INTO r; result := concat(result, r.d, ' ');
	FETCH RELATIVE -50 FROM c INTO r; result := concat(result, r.d, ' ');
	MOVE FIRST FROM c; FETCH NEXT FROM c INTO r; result := concat(result, r.d);
	PERFORM plans(false);
	RETURN result;
END $$;
SELECT op, bool_and(fetched(true, q, op) = fetched(false, q, op)) AS same, count(DISTINCT fetched(true, q, op)) > 3 AS differ FROM ops, queries GROUP BY op ORDER BY op;
CREATE TEMP TABLE got (id int, d float8, i serial);
CREATE TEMP TABLE before AS SELECT id, v <#> '{0:1,1:-2,5:0.5}' AS d FROM docs;
CREATE FUNCTION take(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
	r record;
BEGIN
	FOR i IN 1..n LOOP
		FETCH c INTO r;
		IF NOT FOUND THEN RETURN i - 1; END IF;
		INSERT INTO got VALUES (r.id, r.d);
	END LOOP;
	RETURN n;
END $$;
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
EXPLAIN (COSTS OFF) DECLARE c CURSOR FOR SELECT id, v <#> '{0:1,1:-2,5:0.5}' AS d FROM docs ORDER BY v <#> '{0:1,1:-2,5:0.5}';
DECLARE c CURSOR FOR SELECT id, v <#> '{0:1,1:-2,5:0.5}' AS d FROM docs ORDER BY v <#> '{0:1,1:-2,5:0.5}';
SELECT take(100);
DELETE FROM docs WHERE id % 5 = 0;
UPDATE docs SET v = '{0:9}' WHERE id % 9 = 0;
UPDATE docs SET n = n + 1 WHERE id % 4 = 0;
INSERT INTO docs SELECT id + 20000, v, c FROM docs WHERE id < 500;
SELECT take(100000);
SELECT count(*) = 1000 AS all_rows, count(DISTINCT got.id) = 1000 AS once, bool_and(got.d IS NOT DISTINCT FROM before.d) AS distances FROM got LEFT JOIN before USING (id);
SELECT bool_and(d >= b OR d IS NULL) AS ascending FROM (SELECT d, lag(d) OVER (ORDER BY i) AS b FROM got) x;
ROLLBACK;

-- stored forms of values: short, compressed (floats can be, one-byte values
-- hardly), out of line; and rows of each that come when there is an index
CREATE TABLE stored (id serial, form text, v idvec, shift "char" DEFAULT 'x', s idvec);
CREATE FUNCTION store(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR form IN 0..3 LOOP
		EXECUTE format('ALTER TABLE stored ALTER v SET STORAGE %s, ALTER s SET STORAGE %1$s', (ARRAY['PLAIN', 'EXTERNAL', 'EXTENDED', 'MAIN'])[form + 1]);
		INSERT INTO stored (form, v, s) SELECT form, idvec_agg(k * step + above, value / 4.0 + 0.25 * k % variety), idvec_agg(k * step + above, 1 + k % variety) FROM unnest('{1,2,3,19,20,21,22,23,39,40,41,42,60,63,64,300,339,340,341,512,679,680,681,682,1200,4000}'::int[]) length, generate_series(1, length) k,
			LATERAL (SELECT CASE WHEN (length + n) % 3 = 0 THEN 70001::int8 ELSE 1 END AS step, CASE WHEN (length + n) % 3 = 1 THEN 65536 ELSE 0 END AS above, (length + n) % 7 + 1 AS value, CASE WHEN length % 2 = 0 THEN 1 ELSE 200 END AS variety) x WHERE form > 0 OR length < 600 GROUP BY length;
	END LOOP;
END $$;
SELECT store(1);
SELECT pg_relation_size(reltoastrelid) > 30000 AS out_of_line FROM pg_class WHERE oid = 'stored'::regclass;
CREATE INDEX stored_v ON stored USING gpuvec (v);
CREATE INDEX stored_s ON stored USING gpuvec (s);
CREATE FUNCTION stored_same(moved bool) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(DISTINCT same('stored', format('%s %s %L::idvec', c, op, q), in_order => NOT moved), '; ') FROM ops, unnest('{v,s}'::text[]) c, unnest(ARRAY['{1:1,3:2,21:1,340:0.5,680:7}', '{70001:3,1400020:1.5}', '{4000:1,681:1}', '{1:0.25,65540:2,65577:0.5,66200:1}']) q $$;
SELECT stored_same(false);
SELECT store(2);
SELECT form, count(*) FILTER (WHERE pg_column_size(v) < 127) AS short, count(*) FILTER (WHERE pg_column_size(v) < pg_column_size(v * 1) - 10) > 0 AS compressed, count(*) FILTER (WHERE pg_column_size(v) > 2000) AS long FROM stored GROUP BY form ORDER BY form;
SELECT stored_same(false);
UPDATE stored SET v = s, s = s * 0.5 WHERE id % 5 = 0;
UPDATE stored SET shift = 'y' WHERE id % 7 = 0;
SELECT stored_same(true);

-- Jaccard's distance is not defined for negative values: an error as by a scan,
-- however few rows are asked for
CREATE FUNCTION outcome(query text, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	PERFORM plans(by_index);
	IF by_index AND plan_of(query) NOT LIKE '%"Order By"%' THEN RETURN 'another plan: ' || plan_of(query); END IF;
	EXECUTE 'SELECT count(*) FROM (' || query || ') x' INTO n;
	RETURN n || ' rows';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE TABLE counted (id int, v idvec, tenant int);
INSERT INTO counted SELECT id, c, 1 + id % 3 FROM docs WHERE id <= 150;
CREATE INDEX counted_v ON counted USING gpuvec (v, tenant);
CREATE TABLE outcomes (at int, condition text, k text, by_scan text, by_index text);
CREATE FUNCTION note(at int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO outcomes SELECT at, condition, k, outcome(query, false), outcome(query, true) FROM unnest('{true,tenant = 1,tenant = 2,v IS NULL,id < 100,tenant = 1 AND id % 2 = 1}'::text[]) condition, unnest('{0,1,100,ALL}'::text[]) k,
		LATERAL (SELECT format('SELECT id FROM counted WHERE %s ORDER BY v <%%> ''{0:1,1:2}'' LIMIT %s', condition, k) AS query) x $$;
CREATE PROCEDURE try(bad text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'INSERT INTO counted (id, tenant, v) SELECT 1000, 1, ' || bad;
	PERFORM note(1);
	COMMIT;
	PERFORM note(2);
	DELETE FROM counted WHERE id = 1000;
	COMMIT;
	PERFORM note(3);
END $$;
CALL try($$'{1:-1}'$$);
CALL try($$'{1:5,2:-1}'$$);
CALL try($$'{1:1,2:-1}'$$);
CALL try($$'{1:-1,2:0.5}'$$);
CALL try($$'{4000000000:-1}'$$);
CALL try($$'{5:-1e-45}'$$);
CALL try($$'{0:-3.4e38,1:3.4e38}'$$);
CALL try('idvec_agg(k, CASE WHEN k = 65535 THEN -0.5 ELSE 0.5 END) FROM generate_series(0, 65535) k');
CALL try('idvec_agg(k, CASE WHEN k = 0 THEN -0.5 ELSE 0.5 END) FROM generate_series(0, 400) k');
SELECT (ARRAY['of this transaction', 'committed', 'deleted'])[at] AS at, condition, count(*) FILTER (WHERE by_scan LIKE '22023: Jaccard%') AS errors, count(*) FILTER (WHERE by_scan LIKE '% rows') AS answers, count(*) FILTER (WHERE by_index = by_scan) AS same, min(by_index) FILTER (WHERE by_index <> by_scan) AS by_index FROM outcomes GROUP BY outcomes.at, condition ORDER BY outcomes.at, condition;
-- also with an index that is built when there is one
INSERT INTO counted VALUES (1000, '{2:1,3:-1}', 1);
REINDEX INDEX counted_v;
TRUNCATE outcomes;
SELECT note(2);
SELECT condition, by_scan, by_index FROM outcomes WHERE by_scan <> by_index OR k = '1' ORDER BY condition;
-- other measures rank it
SELECT op, same('counted', format('v %s %L::idvec', op, '{0:1,1:2,3:1}')) FROM unnest('{<#>,<=>}'::text[]) op ORDER BY op;
-- in the query: as by a scan, where no row has a vector, too
CREATE TABLE nothing (id int, v idvec, tenant int);
CREATE INDEX nothing_v ON nothing USING gpuvec (v, tenant);
CREATE TABLE nulls (id int, v idvec, tenant int);
INSERT INTO nulls SELECT i, NULL, 1 FROM generate_series(1, 10) i;
CREATE INDEX nulls_v ON nulls USING gpuvec (v, tenant);
CREATE TABLE empties (id int, v idvec, tenant int);
INSERT INTO empties SELECT i, '{}', 1 FROM generate_series(1, 10) i;
CREATE INDEX empties_v ON empties USING gpuvec (v, tenant);
DELETE FROM counted WHERE id = 1000;
VACUUM counted;
SELECT tab, condition, k, outcome(query, false) AS by_scan, CASE outcome(query, true) WHEN outcome(query, false) THEN 'the same' ELSE outcome(query, true) END AS by_index FROM unnest('{counted,nothing,nulls,empties}'::text[]) tab, unnest('{true,tenant = 1,tenant = 9}'::text[]) condition, unnest('{1,ALL}'::text[]) k,
	LATERAL (SELECT format('SELECT id FROM %s WHERE %s ORDER BY v <%%> ''{0:1,1:-2}'' LIMIT %s', tab, condition, k) AS query) x ORDER BY tab, condition, k;
-- in a partition that has no row of the answer, and in one that is left out
CREATE TABLE counted_parts (id int, v idvec, tenant int) PARTITION BY LIST (tenant);
CREATE TABLE counted_1 PARTITION OF counted_parts FOR VALUES IN (1);
CREATE TABLE counted_2 PARTITION OF counted_parts FOR VALUES IN (2);
CREATE INDEX ON counted_parts USING gpuvec (v);
INSERT INTO counted_parts SELECT id, c, 1 FROM docs WHERE id <= 100;
INSERT INTO counted_parts VALUES (1000, '{70000:-1}', 2), (1001, '{70000:1}', 2);
SELECT condition, k, outcome(query, false) AS by_scan, CASE outcome(query, true) WHEN outcome(query, false) THEN 'the same' ELSE outcome(query, true) END AS by_index FROM unnest('{true,tenant = 1,tenant = 2}'::text[]) condition, unnest('{1,ALL}'::text[]) k,
	LATERAL (SELECT format('SELECT id FROM counted_parts WHERE %s ORDER BY v <%%> ''{0:1,1:2}'' LIMIT %s', condition, k) AS query) x ORDER BY condition, k;
SET client_min_messages = warning;
DROP SCHEMA index_vectors_scans CASCADE;
