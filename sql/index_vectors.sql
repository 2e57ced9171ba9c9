-- ORDER BY terms <%>, <=> or <#> vector, by an index on vectors, against a
-- scan and a sort.  The oracle has pairs of ids and values only.  All sums are
-- of float8, from the least id on.
CREATE SCHEMA index_vectors;
SET search_path = index_vectors, public;
-- chance that is the same each time
CREATE FUNCTION chance(i int8, j int8, below int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS $$SELECT (hashint8extended(i * 1000 + j, 20261129) & 9007199254740991) % below$$;
-- The id and the value of a row's pair.  Kinds: 0 one-byte values, 1 the same
-- of wide ids, 2 floats, 3 floats of wide ids, 4 huge, 5 next to nothing, 6 of
-- all sizes, 7 empty, 8 one pair, 9 ones, 10 next to another row, 11 few
-- values.
CREATE FUNCTION id_of(i int8, k int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS $$
	SELECT CASE WHEN i % 12 IN (1, 3, 6) AND k % 3 > 0 THEN k * 14316557 ELSE k END$$;
CREATE FUNCTION value_of(i int8, k int8) RETURNS real IMMUTABLE LANGUAGE sql AS $$
	SELECT (CASE i % 12 WHEN 0 THEN 1 + chance(i, k + 500, 255) WHEN 1 THEN 1 + chance(i, k + 500, 9) * chance(i, k, 20)
		WHEN 4 THEN 3.4028234663852886e38::float8 * (1 - chance(i, k + 500, 1000) / 4096.0::float8) WHEN 5 THEN (1 + chance(i, k + 500, 1000)) * 2 ^ (-149::float8)
		WHEN 6 THEN 2 ^ (chance(i, k + 500, 276) - 149)::float8 WHEN 9 THEN 1 WHEN 11 THEN 0.1::real + chance(i, k + 500, 3)
		ELSE (1 + chance(i, k + 500, 16777215)) / 65536.0::float8 * 2 ^ (chance(i, k + 300, 24) - 12) END
		* CASE WHEN i % 12 IN (0, 1, 7, 9) OR i / 12 % 2 = 0 OR chance(i, k + 700, 2) = 0 THEN 1 ELSE -1 END)::real$$;
CREATE TABLE pairs (id int, i int8, x real);
INSERT INTO pairs SELECT r, id_of(r, k), value_of(r, k) FROM generate_series(1, 900) r, generate_series(0, 79) k
WHERE r % 97 > 0 AND CASE r % 12 WHEN 7 THEN false WHEN 8 THEN k = r / 12 WHEN 10 THEN false ELSE chance(r, k, 200) < (ARRAY[20, 40, 80, 140, 200])[1 + chance(r, 999, 5)] / (1 + k / 8) END;
-- the row before with one value that is the next float, or with none
INSERT INTO pairs SELECT id + 8, i, (x * CASE WHEN id % 24 = 2 AND row_number() OVER (PARTITION BY id ORDER BY i) = 1 THEN 1 + 2 ^ (-23::float8) ELSE 1 END)::real FROM pairs WHERE id % 12 = 2 AND id % 97 > 0 AND (id + 8) % 97 > 0;
-- as long as they may be, of both widths and kinds of values
INSERT INTO pairs SELECT 901, k, ((k * 7919 % 1000) - 300.5)::real FROM generate_series(0, 65535) k UNION ALL SELECT 902, k * 65537, 1 + k % 255 FROM generate_series(0::int8, 65535) k UNION ALL SELECT 903, k * 3, 1 + k % 7 FROM generate_series(0, 20000) k
	UNION ALL SELECT 904, 4294967295 - k * 2::int8, 0.5 + k FROM generate_series(0, 5000) k UNION ALL SELECT 905, 4294967295, 2 UNION ALL SELECT 906, 0, 255 UNION ALL SELECT 907, 0, 256;
CREATE INDEX ON pairs (id);
CREATE TABLE docs (id int PRIMARY KEY, terms idvec, counts idvec, tenant int, n int DEFAULT 0) WITH (fillfactor = 70);
INSERT INTO docs SELECT r, v.signed, v.absolute, CASE WHEN r % 50 = 7 THEN NULL ELSE r % 40 END
FROM generate_series(1, 907) r LEFT JOIN LATERAL (SELECT idvec(coalesce(array_agg(i), '{}'), coalesce(array_agg(x), '{}')) AS signed, idvec(coalesce(array_agg(i), '{}'), coalesce(array_agg(abs(x)), '{}')) AS absolute FROM pairs WHERE id = r) v ON r % 97 > 0;
SELECT count(*) FILTER (WHERE terms IS NULL) AS nulls, count(*) FILTER (WHERE terms = '{}') AS empty, max(cardinality(terms)) AS longest, count(*) FILTER (WHERE get_byte(idvec_send(terms), 4) & 3 = 0) > 100 AS floats,
	count(*) FILTER (WHERE get_byte(idvec_send(terms), 4) & 3 = 1) > 100 AS wide, count(*) FILTER (WHERE get_byte(idvec_send(terms), 4) & 3 = 2) > 100 AS small, count(*) FILTER (WHERE get_byte(idvec_send(terms), 4) & 3 = 3) > 30 AS both,
	count(*) FILTER (WHERE 0 > ANY (idvec_values(terms))) > 100 AS negative FROM docs;
CREATE TABLE queries (q int PRIMARY KEY, what text, v idvec, c idvec);
INSERT INTO queries (q, what, v) VALUES (1, 'small', '{0:3,1:1,2:7,5:255}'), (2, 'both signs', '{0:1,1:-2.5,2:0.3,3:-0.75,14316557:3,8:-1}'), (3, 'negative', '{0:-1,1:-0.5,3:-3}'), (4, 'cancels', '{0:1,1:-1,2:1,3:-1,14316557:-1}'),
	(5, 'huge', '{0:3.4028235e38,1:-3e38,2:1e-45,4:3e38}'), (6, 'next to nothing', '{0:1e-45,2:3e-45,5:-1e-44,14316557:1e-40}'), (7, 'of no row', '{64000001:1,4000000001:2}'), (8, 'nothing', '{}'), (9, 'one id', '{0:2}'),
	(10, 'greatest id', '{4294967295:0.5,4294967293:1,0:0.001}'), (13, 'as a set', '{0:1,1:1,2:1,3:1}'), (14, 'null', NULL), (15, 'rare', '{75:1,77:2,79:0.5}');
INSERT INTO queries SELECT 11, 'long', idvec(array_agg(k * 2), array_agg(((k % 19) - 8.5)::real)) FROM generate_series(0::int8, 3000) k;
INSERT INTO queries SELECT 12, 'longest', idvec(array_agg(k * 65536), array_agg((1 + k % 300)::real)) FROM generate_series(0::int8, 65535) k;
INSERT INTO queries SELECT 100 + id, 'row ' || id % 12, terms FROM docs WHERE id IN (24, 37, 122, 135, 304, 329, 342, 420, 431, 903);
UPDATE queries SET c = idvec((v::idset)::int8[], ARRAY(SELECT abs(x) FROM unnest(idvec_values(v)) WITH ORDINALITY u(x, n) ORDER BY n)) WHERE v IS NOT NULL;
CREATE TABLE truth (op text, q int, id int, d float8, PRIMARY KEY (op, q, id));
-- s s / (a b), which rounds to 0 where the server has an error
CREATE FUNCTION ratio(s float8, a float8, b float8) RETURNS float8 IMMUTABLE LANGUAGE sql AS $$SELECT CASE WHEN s = 0 OR 2 * ln(abs(s)) - ln(a) - ln(b) < -745.5 THEN 0 ELSE s * s / (a * b) END$$;
CREATE FUNCTION find_truth() RETURNS void LANGUAGE sql SET work_mem = '64MB' AS $$
	TRUNCATE truth;
	INSERT INTO truth
	WITH y AS MATERIALIZED (SELECT q, e.id AS i, e.value AS y FROM queries, idvec_each(v) e),
		shared AS (SELECT q, id, sum(x::float8 * y::float8 ORDER BY i) AS s, sum(least(abs(x), abs(y))::float8 ORDER BY i) AS m FROM pairs JOIN y USING (i) GROUP BY q, id),
		own AS MATERIALIZED (SELECT id, sum(x::float8 * x::float8 ORDER BY i) AS a, sum(abs(x)::float8 ORDER BY i) AS a1 FROM pairs GROUP BY id),
		asked AS MATERIALIZED (SELECT q, sum(y::float8 * y::float8 ORDER BY i) AS b, sum(abs(y)::float8 ORDER BY i) AS b1 FROM y GROUP BY q),
		scores AS (SELECT q, d.id, coalesce(s, 0) AS s, CASE WHEN s < 0 THEN -1 ELSE 1 END * sqrt(least(ratio(coalesce(s, 0), a, b), 1)) AS c, CASE WHEN a1 + b1 > 0 THEN coalesce(m, 0) / (a1 + b1 - coalesce(m, 0)) ELSE 0 END AS j,
			d.terms IS NULL OR queries.v IS NULL AS missing FROM docs d CROSS JOIN queries LEFT JOIN own USING (id) LEFT JOIN asked USING (q) LEFT JOIN shared USING (q, id))
	SELECT o.op, q, id, CASE WHEN NOT missing THEN o.d END FROM scores, LATERAL (VALUES ('<#>', 0 - s), ('<=>', 1 - coalesce(c, 0)), ('<%>', 1 - coalesce(j, 0))) o(op, d) $$;
SELECT find_truth();
-- what there is to be ranked: the operators have the oracle's bits, and some
-- distances tie, and some only just not
SELECT t.op, count(*) FILTER (WHERE d < CASE t.op WHEN '<#>' THEN 0 ELSE 1 END) > 2000 AS ranked, count(*) FILTER (WHERE d > CASE t.op WHEN '<#>' THEN 0 ELSE 1 END) > 500 AS behind_others,
	count(*) FILTER (WHERE d IS DISTINCT FROM CASE t.op WHEN '<#>' THEN terms <#> v WHEN '<=>' THEN terms <=> v ELSE counts <%> c END) AS wrong FROM truth t JOIN docs USING (id) JOIN queries USING (q) GROUP BY t.op ORDER BY t.op;
CREATE INDEX docs_terms ON docs USING gpuvec (terms, tenant);
CREATE INDEX docs_counts ON docs USING gpuvec (counts, tenant);
VACUUM ANALYZE docs;

-- What the index gives for numbers of rows around each border, against the
-- oracle.  Rows that tie come by tid, while no row has moved.
CREATE FUNCTION plans(by_index bool) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('enable_' || kind, CASE WHEN by_index THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind $$;
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan;
END $$;
CREATE FUNCTION compare(op text, asked int, condition text DEFAULT 'true', source text DEFAULT 'docs', operand text DEFAULT NULL, shape text DEFAULT '"Order By"') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	-- a constant, or if that is long a parameter
	literal text := (SELECT CASE WHEN cardinality(v) > 1000 THEN format('(SELECT %s * 1 FROM queries WHERE q = %s)', CASE WHEN op = '<%>' THEN 'c' ELSE 'v' END, q) ELSE format('%L::idvec', CASE WHEN op = '<%>' THEN c ELSE v END) END FROM queries WHERE q = asked);
	distance text := format(coalesce(operand, CASE WHEN op = '<%>' THEN 'counts %s %s' ELSE 'terms %s %s' END), op, literal);
	query text := format('SELECT id, %s AS d FROM %s WHERE %s ORDER BY %1$s', distance, source, condition);
	is_long bool := (SELECT cardinality(v) > 10000 FROM queries WHERE q = asked);
	disjoint int := CASE WHEN op = '<#>' THEN 0 ELSE 1 END;
	wanted int[];
	distances float8[];
	plan text;
	got int[];
	found float8[];
	borders int[];
	k int;
BEGIN
	EXECUTE format('SELECT array_agg(id ORDER BY d, tableoid, ctid), array_agg(d ORDER BY d), ARRAY[count(*) FILTER (WHERE d < %s), count(*) FILTER (WHERE d <= %1$s), count(d), count(*)]
		FROM (SELECT id, d, s.tableoid, s.ctid FROM truth t JOIN %s s USING (id) WHERE t.op = %L AND q = %s AND (%s)) x', disjoint, source, op, asked, condition) INTO wanted, distances, borders;
	PERFORM plans(true);
	FOR k IN SELECT n FROM (SELECT unnest('{0,1,2,7,8,9,31,32,33}'::int[]) AS n UNION SELECT b + i FROM unnest(borders) b, generate_series(-1, 1) i) x WHERE n >= 0 AND (NOT is_long OR n IN (1, 8, borders[1], borders[4])) ORDER BY n LOOP
		IF k > 0 AND k IN (1, borders[4]) THEN
			plan := plan_of(query || ' LIMIT ' || k);
			IF plan NOT LIKE '%' || shape || '%' THEN RETURN 'another plan: ' || plan; END IF;
		END IF;
		EXECUTE format('SELECT coalesce(array_agg(id), ''{}''), coalesce(array_agg(d), ''{}'') FROM (%s LIMIT %s) x', query, k) INTO got, found;
		IF found::text IS DISTINCT FROM coalesce(distances[:k], '{}')::text OR got IS DISTINCT FROM coalesce(wanted[:k], '{}') THEN
			RETURN format('LIMIT %s differs: %s rows of %s, the first one that differs is %s', k, cardinality(got), cardinality(wanted),
				(SELECT min(n) FROM unnest(got, wanted[:k], found, distances[:k]) WITH ORDINALITY u(a, b, c, d, n) WHERE a IS DISTINCT FROM b OR c IS DISTINCT FROM d));
		END IF;
	END LOOP;
	PERFORM plans(false);
	RETURN 'same';
END $$;
-- all operators for all queries: how many are right, and what is wrong
CREATE FUNCTION compare_all(condition text DEFAULT 'true', source text DEFAULT 'docs', operand text DEFAULT NULL, shape text DEFAULT '"Order By"', ops text[] DEFAULT '{<#>,<=>,<%>}', asked text DEFAULT 'true', OUT op text, OUT same int, OUT wrong text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT op, count(*) FILTER (WHERE r = ''same'')::int, string_agg(q || '' '' || r, ''; '' ORDER BY q) FILTER (WHERE r <> ''same'')
		FROM (SELECT op, q, compare(op, q, $1, $2, $3, $4) AS r FROM unnest($5) op, queries WHERE %s AND v IS NOT NULL OFFSET 0) x GROUP BY op ORDER BY op', asked) USING condition, source, operand, shape, ops;
END $$;
SELECT * FROM compare_all();
-- the query on the left
SELECT * FROM compare_all(operand => '%2$s %1$s counts', ops => '{<%>}', asked => 'q IN (1, 5, 9)');
SELECT * FROM compare_all(operand => '%2$s %1$s terms', ops => '{<#>,<=>}', asked => 'q IN (2, 5, 9)');

-- conditions of a filter column, few rows or many of which satisfy them, of
-- the vector, and of other columns
CREATE TABLE conditions (n int, condition text);
INSERT INTO conditions VALUES (1, 'tenant = 3'), (2, 'tenant < 20'), (3, 'tenant IN (1, 2, 39) AND terms IS NOT NULL'), (4, 'terms IS NULL'), (5, 'counts IS NULL AND tenant < 20'), (6, 'tenant = 999'), (7, 'tenant IS NULL'), (8, 'tenant = 5 AND id % 9 = 0'), (9, 'tenant > 2'), (10, 'terms IS NOT NULL');
SELECT n, condition, (SELECT string_agg(concat_ws(' ', op, same, wrong), ', ' ORDER BY op) FROM compare_all(condition, asked => 'q IN (2, 4, 8, 222)')) AS same FROM conditions ORDER BY n;
DROP INDEX docs_terms, docs_counts;
-- rows of a predicate
CREATE INDEX docs_terms ON docs USING gpuvec (terms) WHERE tenant < 20;
CREATE INDEX docs_counts ON docs USING gpuvec (counts) WHERE tenant < 20;
SELECT * FROM compare_all('tenant < 20', asked => 'q < 12');
DROP INDEX docs_terms, docs_counts;

-- What an index gives, against a scan and a sort: all rows in the order of
-- their distances and tids, the first ones, and those of some conditions
CREATE FUNCTION same(tab text, distance text, condition text DEFAULT 'true', limits text DEFAULT '{1,8,33,NULL}', shape text DEFAULT '"Order By"') RETURNS text LANGUAGE plpgsql AS $$
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
		IF got IS DISTINCT FROM wanted[:coalesce(k, cardinality(wanted))] THEN RETURN format('another order of %s rows: %s, not %s', k, got[:50], wanted[:50]); END IF;
	END LOOP;
	PERFORM plans(false);
	RETURN format('same, of %s rows', coalesce(cardinality(wanted), 0));
END $$;
-- expressions: of a text, and of another column
ALTER TABLE docs ADD COLUMN body text, ADD COLUMN tags idset;
UPDATE docs SET body = (SELECT string_agg(repeat('w' || i % 20 || ' ', abs(x)::int), ' ') FROM pairs WHERE pairs.id = docs.id AND abs(x) BETWEEN 1 AND 9), tags = ARRAY[id % 7, id % 3 + 10, 70000 + id % 11]::idset;
VACUUM (FULL, ANALYZE) docs;
CREATE INDEX docs_words ON docs USING gpuvec (idvec_words('simple', body), tenant);
CREATE INDEX docs_twice ON docs USING gpuvec ((terms * 2), tenant) WHERE id < 900 AND id % 12 <> 4;
SELECT q, op, same('docs', format($$idvec_words('simple', body) %s idvec_words('simple', %L)$$, op, q)), same('docs', format($$idvec_words('simple', body) %s idvec_words('simple', %L)$$, op, q), 'tenant < 5') FROM unnest('{<#>,<=>,<%>}'::text[]) op, unnest('{w1 w2,w1 w1 w1 w7,none}'::text[]) q ORDER BY q, op;
SELECT q, op, same('docs', format('terms * 2 %s %L::idvec', op, v), 'id < 900 AND id % 12 <> 4'), same('docs', format('terms * 2 %s %L::idvec', op, v), 'id < 900 AND id % 12 <> 4 AND tenant = 3') FROM unnest('{<#>,<=>}'::text[]) op, queries WHERE q IN (1, 2, 4) ORDER BY q, op;
DROP INDEX docs_words, docs_twice;
-- a set as a filter column
CREATE INDEX docs_tags ON docs USING gpuvec (terms, tags, tenant);
SELECT condition, op, string_agg(DISTINCT same('docs', format('terms %s %L::idvec', op, v), condition), '; ') AS same FROM unnest('{<#>,<=>}'::text[]) op, queries,
	unnest(ARRAY[$$tags && '{3,5}'$$, $$tags @> '{70003}'$$, $$tags @> '{2,12}' AND tenant > 10$$, $$tags <@ '{0,1,2,3,4,5,10,11,70000,70001,70002,70003}'$$, $$tags = '{1,11,70001}'$$, $$tags IS NULL$$]) condition WHERE q IN (2, 3, 222) GROUP BY condition, op ORDER BY condition, op;
DROP INDEX docs_tags;

-- what no index can be made of: vectors are no filter columns
CREATE FUNCTION failure(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	-- from 19 on indexes are made with another search path
	RETURN SQLSTATE || ': ' || replace(SQLERRM, 'public.', '');
END $$;
SELECT failure('CREATE INDEX ON docs USING gpuvec (terms, counts)') AS other, failure('CREATE INDEX ON docs USING gpuvec (terms, terms)') AS itself, failure('CREATE INDEX ON docs USING gpuvec (tags, terms)') AS of_sets, failure('CREATE INDEX ON docs USING gpuvec (terms, body, tags, tenant)') AS suitable;
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcintype = 'idvec'::regtype AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuvec');
SELECT amopstrategy, amopopr::regoperator FROM pg_amop JOIN pg_opfamily f ON f.oid = amopfamily WHERE amopmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuvec') AND amoplefttype = 'idvec'::regtype AND amoppurpose = 'o' ORDER BY 1, amopopr::regoperator::text;

-- distances that are 1 - score tie where scores do not, and then tids decide;
-- scores up to 2^-54 have the distance of no common id
CREATE TABLE near (id int, v idvec);
INSERT INTO near SELECT i, idvec('{1,5}', ARRAY[0.001, 1e7 + 60 - i]) FROM generate_series(1, 60) i;
INSERT INTO near SELECT 100 + i * 4 + n, idvec(ids, vals) FROM generate_series(1, 12) i, LATERAL (VALUES (0, '{1,5}', ARRAY[2 ^ (i - 60), 1]::real[]), (1, '{7}'::int8[], '{1}'::real[]), (2, '{1,5}', ARRAY[(1 + 2 ^ (-20)) * 2 ^ (i - 60), 1]::real[]), (3, '{}', '{}')) x(n, ids, vals);
INSERT INTO near SELECT 200 + i, idvec('{1,5}', ARRAY[2 ^ (i - 90), 1]::real[]) FROM generate_series(1, 40) i;
CREATE INDEX near_v ON near USING gpuvec (v);
SELECT op, count(*) - count(DISTINCT d) > 50 AS tie, count(DISTINCT s) > count(DISTINCT d) + 50 AS scores_differ, count(*) FILTER (WHERE d = 1 AND s > 0) > 10 AS with_score FROM near,
	LATERAL (VALUES ('<=>', v <=> '{1:1}', idvec_cosine_similarity(v, '{1:1}')), ('<%>', v <%> '{1:1}', idvec_jaccard_similarity(v, '{1:1}'))) x(op, d, s) GROUP BY op ORDER BY op;
SELECT op, same('near', format('v %s %L::idvec', op, '{1:1}'), limits => '{1,2,3,5,10,11,12,20,29,59,60,61,62,63,64,65,70,80,100,NULL}') FROM unnest('{<=>,<%>,<#>}'::text[]) op ORDER BY op;
INSERT INTO near SELECT 300 + i, idvec('{1,5}', ARRAY[-2 ^ (i - 60), 1]::real[]) FROM generate_series(1, 12) i;
INSERT INTO near SELECT 400 + i, '{7:1}' FROM generate_series(1, 3) i;
SELECT op, same('near', format('v %s %L::idvec', op, '{1:1}'), limits => '{1,60,61,62,63,64,65,70,80,100,NULL}') FROM unnest('{<=>,<#>}'::text[]) op ORDER BY op;
DROP TABLE near;

-- what is planned without any settings, and what engines have
CREATE INDEX docs_terms ON docs USING gpuvec (terms, tenant);
ANALYZE docs;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY terms <#> '{7:1,31:-2}' LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant < 20 AND terms IS NOT NULL ORDER BY terms <=> '{7:1,31:-2}' LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY '{7:1,31:-2}' <%> terms LIMIT 5;
SELECT count(*) FROM (SELECT id FROM docs ORDER BY terms <#> '{1:1}' LIMIT 5) x;
SELECT DISTINCT columns, index, kind, private, state, rows, ids = (SELECT sum(cardinality(terms)) FROM docs) AS all_ids FROM gpuvec_mirrors WHERE relation = 'docs'::regclass AND columns = '{terms}';
SET client_min_messages = warning;
DROP SCHEMA index_vectors CASCADE;
