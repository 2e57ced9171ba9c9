-- ORDER BY tags <#> vector: sets by sums of weights, by the index on the sets.
-- The oracle has arrays only.  All sums are of float8, from the least id on.
CREATE SCHEMA index_weights;
SET search_path = index_weights, public;
CREATE FUNCTION product(xi int8[], yi int8[], yv real[]) RETURNS float8 IMMUTABLE LANGUAGE sql AS $$
	SELECT CASE WHEN xi IS NOT NULL AND yi IS NOT NULL THEN coalesce((SELECT sum(v::float8 ORDER BY i) FROM unnest(yi, yv) u(i, v) WHERE i = ANY (xi)), 0) END $$;
CREATE FUNCTION ids_of(i int) RETURNS int8[] IMMUTABLE LANGUAGE sql AS $$
	SELECT CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}'
		WHEN i % 11 = 3 THEN ARRAY[i % 7, 31, 100000 + i % 5, 4000000000 + i % 3]
		ELSE (SELECT array_agg(DISTINCT (i::int8 * 7919 * j + j * j * 31 + i / 7) % (20 * j)) FROM generate_series(1, 5 + i % 12) j) END $$;
CREATE TABLE docs (id int PRIMARY KEY, ids int8[], tags idset, tenant int, n int DEFAULT 0) WITH (fillfactor = 70);
INSERT INTO docs SELECT i, ids_of(i), ids_of(i)::idset, i % 40 FROM generate_series(1, 3000) i;
-- weights that are positive, of both signs, negative, whose sums are often 0,
-- rounded otherwise in another order, huge, next to nothing, of ids that few
-- rows or none have
CREATE TABLE queries (q int, what text, yi int8[], yv real[], v idvec);
INSERT INTO queries VALUES
	(1, 'positive', '{7,31,62,93}', '{0.5,2,0.25,1}'), (2, 'both signs', '{7,31,62,93,150}', '{1,-2,0.5,-0.75,3}'), (3, 'negative', '{7,31}', '{-1,-0.5}'),
	(4, 'cancels', '{7,8,31,62}', '{1,-1,1,-1}'), (5, 'order', '{}', '{}'), (6, 'huge', '{3,7,31}', '{3e38,1e-45,-3e38}'), (7, 'denormal', '{7,31}', '{1e-45,3e-45}'),
	(8, 'of no row', '{64000,64001}', '{1,2}'), (9, 'nothing', '{}', '{}'), (10, 'one id', '{7}', '{2}'), (11, 'wide', '{7,100003,4000000000}', '{1,2,-0.5}'),
	(12, 'long', '{}', '{}'), (13, 'ones', '{7,31,62,93}', '{1,1,1,1}'), (14, 'null', NULL, NULL), (15, 'all alike', '{31}', '{-7.5}');
UPDATE queries SET yi = x.yi, yv = x.yv FROM (SELECT array_agg(i::int8 ORDER BY i) AS yi, array_agg((CASE i % 3 WHEN 0 THEN -1 ELSE 1 END * 2 ^ (i % 40 - 20) / 3)::real ORDER BY i) AS yv FROM generate_series(0, 60) i) x WHERE q = 5;
UPDATE queries SET yi = x.yi, yv = x.yv FROM (SELECT array_agg(i * 2::int8 ORDER BY i) AS yi, array_agg(((i % 19) - 8.5)::real ORDER BY i) AS yv FROM generate_series(0, 2000) i) x WHERE q = 12;
UPDATE queries SET v = idvec(yi, yv) WHERE yi IS NOT NULL;
SELECT q, what, cardinality(v) FROM queries ORDER BY q;
CREATE TABLE truth (q int, id int, d float8, PRIMARY KEY (q, id));
CREATE FUNCTION find_truth() RETURNS void LANGUAGE sql AS $$
	TRUNCATE truth;
	INSERT INTO truth SELECT q, id, -product(ids, yi, yv) FROM queries, docs $$;
SELECT find_truth();
SELECT q, count(*) FILTER (WHERE d < 0) AS ranked, count(*) FILTER (WHERE d = 0) AS zero, count(*) FILTER (WHERE d > 0) AS negative, count(*) FILTER (WHERE d IS NULL) AS nulls FROM truth GROUP BY q ORDER BY q;
-- the operator itself has the oracle's bits, whichever side comes first
SELECT count(*) FROM truth JOIN docs USING (id) JOIN queries USING (q) WHERE float8send(d + 0) <> float8send((tags <#> v) + 0) OR d <> v <#> tags;
CREATE INDEX docs_tags ON docs USING gpuvec (tags);
VACUUM ANALYZE docs;

-- What the index gives for numbers of rows around each border, against the
-- oracle.  Rows that tie come by tid, while no row has moved.
CREATE FUNCTION compare(asked int, condition text DEFAULT 'true', source text DEFAULT 'docs', in_order bool DEFAULT true, operand text DEFAULT 'tags <#> %s', shape text DEFAULT '"Index Scan"') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT id FROM %s WHERE %s ORDER BY %s', source, condition, format(operand, (SELECT quote_nullable(v) || '::idvec' FROM queries WHERE q = asked)));
	wanted int[];
	distances float8[];
	plan text;
	got int[];
	found float8[];
	borders int[];
	k int;
BEGIN
	EXECUTE format('SELECT array_agg(id ORDER BY d, tableoid, ctid), array_agg(d ORDER BY d), ARRAY[2, 128, count(*) FILTER (WHERE d < 0), count(*) FILTER (WHERE d <= 0), count(d), count(*)]
		FROM (SELECT id, d, s.tableoid, s.ctid FROM truth JOIN %s s USING (id) WHERE q = %s AND (%s)) x', source, asked, condition) INTO wanted, distances, borders;
	PERFORM set_config('enable_' || kind, 'off', true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind;
	FOR k IN SELECT DISTINCT b + i FROM unnest(borders) b, generate_series(-1, 1) i WHERE b + i >= 0 ORDER BY 1 LOOP
		EXECUTE format('EXPLAIN (FORMAT JSON) %s LIMIT %s', query, k) INTO plan;
		IF k > 0 AND plan NOT LIKE '%' || shape || '%' THEN RETURN 'another plan: ' || plan; END IF;
		EXECUTE format('SELECT coalesce(array_agg(id), ''{}'') FROM (%s LIMIT %s) x', query, k) INTO got;
		SELECT array_agg(d ORDER BY n) INTO found FROM unnest(got) WITH ORDINALITY u(id, n) LEFT JOIN truth t ON t.id = u.id AND t.q = asked;
		IF in_order AND got IS DISTINCT FROM coalesce(wanted[:k], '{}') OR coalesce(found, '{}') IS DISTINCT FROM coalesce(distances[:k], '{}') OR (SELECT count(DISTINCT x) FROM unnest(got) x) <> cardinality(got) THEN
			RETURN format('LIMIT %s differs: %s rows of %s, the first one that differs is %s', k, cardinality(got), cardinality(wanted),
				(SELECT min(n) FROM unnest(got, wanted[:k], found, distances[:k]) WITH ORDINALITY u(a, b, c, d, n) WHERE a IS DISTINCT FROM b OR c IS DISTINCT FROM d));
		END IF;
	END LOOP;
	PERFORM set_config('enable_' || kind, 'on', true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind;
	RETURN format('same, of %s rows', coalesce(cardinality(wanted), 0));
END $$;
SELECT q, compare(q) FROM queries WHERE q <> 14 ORDER BY q;
-- the query on the left; other parameters of a generic plan, among them null
SELECT q, compare(q, operand => '%s <#> tags') FROM queries WHERE q IN (2, 4);
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_sort = off;
PREPARE asked(idvec) AS SELECT id, tags <#> $1 AS d FROM docs ORDER BY tags <#> $1 LIMIT 3;
EXPLAIN (COSTS OFF) EXECUTE asked('{7:1}');
EXECUTE asked('{7:1,31:-2}');
EXECUTE asked(NULL);
EXECUTE asked('{}');
-- two operators of one strategy: the right one is taken for each
EXPLAIN (COSTS OFF) SELECT id, tags <#> '{7,31,62}'::idset AS d FROM docs ORDER BY tags <#> '{7,31,62}'::idset LIMIT 4;
SELECT id, tags <#> '{7,31,62}'::idset AS d FROM docs ORDER BY tags <#> '{7,31,62}'::idset LIMIT 4;
SELECT id, tags <#> '{7:1,31:0.5,62:0.25}'::idvec AS d FROM docs ORDER BY tags <#> '{7:1,31:0.5,62:0.25}'::idvec LIMIT 4;
CREATE FUNCTION plan_lines(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	-- servers from 18 on say what is disabled
	FOR line IN EXECUTE query LOOP
		IF line NOT LIKE '% Disabled: true' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
SELECT plan_lines($$EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY intersection_count(tags, '{7,31,62}') DESC NULLS LAST LIMIT 4$$);
DEALLOCATE asked;
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_sort;

-- conditions of other columns, few rows or many of which satisfy them, of the
-- set, and of both
DROP INDEX docs_tags;
CREATE INDEX docs_filtered ON docs USING gpuvec (tags, tenant, n);
CREATE TABLE conditions (n int, condition text);
INSERT INTO conditions VALUES (1, 'tenant = 3'), (2, 'tenant < 20'), (3, 'tenant IN (1, 2, 39) AND tags IS NOT NULL'), (4, 'tags IS NULL'), (5, 'tags IS NULL AND tenant < 20'), (6, 'tenant = 999'),
	(7, $$tags @> '{7}'$$), (8, $$tags && '{7,31}' AND tenant < 20$$), (9, $$tags = '{}'$$), (10, $$tags <@ '{7,8,31,62,93}' AND tenant < 30$$), (11, 'tenant = 3 AND id % 2 = 0');
SELECT n, condition, q, compare(q, condition) FROM conditions, queries WHERE q IN (2, 3, 4, 6, 9, 10) ORDER BY n, q;
DROP INDEX docs_filtered;
-- rows of a predicate, and of an expression
CREATE INDEX docs_partial ON docs USING gpuvec (tags) WHERE tenant < 20;
SELECT q, compare(q, 'tenant < 20') FROM queries WHERE q <> 14 ORDER BY q;
DROP INDEX docs_partial;
CREATE INDEX docs_expression ON docs USING gpuvec ((ids::idset), tenant);
SELECT q, compare(q, operand => 'ids::idset <#> %s'), compare(q, 'tenant = 3', operand => 'ids::idset <#> %s') FROM queries WHERE q <> 14 ORDER BY q;
DROP INDEX docs_expression;

-- partitions, whose scans are merged
CREATE TABLE parts (LIKE docs) PARTITION BY RANGE (tenant);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1) TO (20);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (20) TO (38);
CREATE TABLE parts_4 PARTITION OF parts FOR VALUES FROM (38) TO (50);
INSERT INTO parts SELECT * FROM docs;
CREATE INDEX ON parts USING gpuvec (tags);
VACUUM ANALYZE parts;
SELECT q, compare(q, source => 'parts', shape => 'gpuvec merge') FROM queries WHERE q <> 14 ORDER BY q;
-- behind rows that were written just now
UPDATE parts SET n = n + 1 WHERE id % 5 = 0;
INSERT INTO parts SELECT id + 10000, ids, tags, tenant FROM docs WHERE id % 50 = 7;
INSERT INTO truth SELECT q, id + 10000, d FROM truth WHERE id % 50 = 7;
SELECT q, compare(q, source => 'parts', in_order => false, shape => 'gpuvec merge') FROM queries WHERE q IN (2, 3, 4, 5, 10, 12) ORDER BY q;
DELETE FROM parts WHERE id % 3 = 0;
SELECT q, compare(q, source => 'parts', in_order => false, shape => 'gpuvec merge') FROM queries WHERE q IN (1, 2, 3, 4, 12) ORDER BY q;
SELECT find_truth();

-- lateral joins, whose queries are asked for together
CREATE INDEX docs_tags ON docs USING gpuvec (tags, tenant);
CREATE FUNCTION joined(sorted bool, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM set_config('enable_' || kind, CASE WHEN sorted THEN 'on' ELSE 'off' END, true) FROM unnest('{seqscan,sort,bitmapscan,material}'::text[]) kind;
	PERFORM set_config('enable_indexscan', CASE WHEN sorted THEN 'off' ELSE 'on' END, true);
	EXECUTE 'SELECT count(*) || '' rows, '' || md5(string_agg(x::text, '';'' ORDER BY x)) FROM (' || query || ') x' INTO result;
	PERFORM set_config('enable_' || kind, 'on', true) FROM unnest('{seqscan,sort,bitmapscan,material,indexscan}'::text[]) kind;
	RETURN result;
END $$;
SELECT split_part(joined(false, query), ',', 1), joined(false, query) = joined(true, query) AS same FROM (VALUES
	(1, $$SELECT q, d FROM queries, LATERAL (SELECT tags <#> v AS d FROM docs ORDER BY tags <#> v LIMIT 40) x$$),
	(2, $$SELECT q, i, d FROM queries, generate_series(0, 41) i, LATERAL (SELECT tags <#> v AS d FROM docs WHERE tenant = i ORDER BY tags <#> v LIMIT 5) x$$),
	(3, $$SELECT q, i, d FROM queries, generate_series(-1, 1) i, LATERAL (SELECT tags <#> v * i::float8 AS d FROM docs ORDER BY tags <#> v * i::float8 LIMIT 3) x$$),
	(4, $$SELECT id, e, d FROM docs o, LATERAL (SELECT tags <#> idvec(o.ids, o.ids::real[]) AS d FROM docs WHERE tenant = o.tenant ORDER BY tags <#> idvec(o.ids, o.ids::real[]) LIMIT 2) x,
		LATERAL (SELECT tags <#> o.tags AS e FROM docs ORDER BY tags <#> o.tags LIMIT 2) y WHERE o.tenant = 7 AND NOT 0 = ANY (o.ids)$$)) j (n, query) ORDER BY n;

-- a cursor goes on with its snapshot's rows, whatever is written meanwhile
CREATE TEMP TABLE got (id int, d float8, i serial);
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
DECLARE c CURSOR FOR SELECT id, tags <#> v AS d FROM docs, (SELECT v FROM queries WHERE q = 2 OFFSET 0) x ORDER BY tags <#> '{7:1,31:-2,62:0.5,93:-0.75,150:3}'::idvec;
SELECT take(200);
DELETE FROM docs WHERE id % 5 = 0;
UPDATE docs SET tags = '{7}' WHERE id % 9 = 0;
UPDATE docs SET n = n + 1 WHERE id % 4 = 0;
INSERT INTO docs SELECT id + 20000, ids, tags FROM docs WHERE id < 500;
SELECT take(100000);
SELECT count(*) = 3000 AS all_rows, count(DISTINCT got.id) = 3000 AS once, bool_and(got.d IS NOT DISTINCT FROM truth.d) AS scores FROM got LEFT JOIN truth ON truth.id = got.id AND q = 2;
SELECT bool_and(d >= before OR d IS NULL) FROM (SELECT d, lag(d) OVER (ORDER BY i) AS before FROM got) x;
ROLLBACK;

-- versions, holes and new rows: what was written just now is laid over
UPDATE docs SET n = n + 1 WHERE id % 2 = 0;
UPDATE docs SET ids = ids || 7::int8, tags = tags | 7 WHERE id % 13 = 0 AND NOT 7 = ANY (ids);
DELETE FROM docs WHERE id % 7 = 0;
INSERT INTO docs SELECT id + 30000, ids, tags, tenant FROM docs WHERE id % 17 = 0;
SELECT find_truth();
SELECT q, compare(q, in_order => false), compare(q, 'tenant = 3', in_order => false), compare(q, 'tenant < 20', in_order => false) FROM queries WHERE q IN (2, 3, 4, 5, 10, 12) ORDER BY q;
CREATE FUNCTION written(i int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	-- its best row, one that ties with many, one without anything, one
	-- below all others, and one that goes
	INSERT INTO docs SELECT 40000 + i * 10 + x, a, a::idset, (ARRAY[3, 39])[1 + i % 2] FROM (VALUES (1, '{3,7,8,62,93,150}'::int8[]), (2, '{7}'), (3, '{}'), (4, '{31,93}'), (5, NULL)) r (x, a);
	DELETE FROM docs WHERE id = 40000 + (i - 1) * 10 + 1 OR id = (SELECT min(id) FROM docs);
	INSERT INTO truth SELECT q, id, -product(ids, yi, yv) FROM queries, docs WHERE id >= 40000 + i * 10;
	SELECT string_agg(DISTINCT compare(q, condition, in_order => false), '; ') INTO result FROM queries, unnest(ARRAY['true', 'tenant = 3', 'tenant > 2', 'tenant IN (3, 39) AND tags IS NOT NULL']) condition WHERE q IN (2, 3, 4, 6, 10);
	RETURN CASE WHEN result NOT LIKE '%differs%' AND result NOT LIKE '%plan%' THEN 'same' ELSE result END;
END $$;
SELECT i, written(i) FROM generate_series(1, 4) i;
-- by weights all ids are scanned
CREATE FUNCTION begins(query text) RETURNS float8 LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM docs ORDER BY ' || query INTO plan;
	RETURN plan->0->'Plan'->>'Startup Cost';
END $$;
SELECT begins($$tags <#> '{7:1}'::idvec$$) > begins($$tags <#> '{7}'::idset$$) AS costs_more, begins($$'{7:1}'::idvec <#> tags$$) = begins($$tags <#> '{7:1}'::idvec$$) AS costs_the_same;
-- what is planned without any settings
VACUUM ANALYZE docs;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tags <#> '{7:1,31:-2}'::idvec LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant < 20 ORDER BY tags <#> '{7:1,31:-2}'::idvec LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tags <#> '{7:1,31:-2}'::idvec;

-- members that scans do not understand
CREATE OPERATOR FAMILY odd USING gpuvec;
CREATE OPERATOR CLASS odd_ops FOR TYPE idset USING gpuvec FAMILY odd AS OPERATOR 4 <#> (idset, idset) FOR ORDER BY float_ops;
ALTER OPERATOR FAMILY odd USING gpuvec ADD OPERATOR 4 <#> (idset, idvec) FOR ORDER BY float_ops;
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcname IN ('odd_ops', 'idset_ops') ORDER BY opcname;
ALTER OPERATOR FAMILY odd USING gpuvec DROP OPERATOR 4 (idset, idvec);
ALTER OPERATOR FAMILY odd USING gpuvec ADD OPERATOR 3 <#> (idset, idvec) FOR ORDER BY float_ops;
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcname = 'odd_ops';
ALTER OPERATOR FAMILY odd USING gpuvec DROP OPERATOR 3 (idset, idvec);
CREATE FUNCTION other(idset, text) RETURNS float8 IMMUTABLE LANGUAGE sql AS 'SELECT 1.0::float8';
CREATE OPERATOR <#> (LEFTARG = idset, RIGHTARG = text, FUNCTION = other);
ALTER OPERATOR FAMILY odd USING gpuvec ADD OPERATOR 4 <#> (idset, text) FOR ORDER BY float_ops;
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcname = 'odd_ops';
SET client_min_messages = warning;
DROP SCHEMA index_weights CASCADE;
