-- Type idvec: input and output, casts, forms, limits, comparison, arithmetic,
-- functions, statistics, the aggregate.
CREATE FUNCTION try(statement text, OUT state text, OUT result text, OUT detail text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement INTO result;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, result = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	result := left(result, 80);
	detail := left(detail, 100);
END$$;
CREATE FUNCTION try_text(input text, OUT state text, OUT result text, OUT detail text) LANGUAGE sql AS
	$$SELECT * FROM try(format('SELECT %L::idvec', input))$$;
-- text
SELECT '{3:0.5,17:2}'::idvec, '{17:2,3:0.5}'::idvec, '{}'::idvec, ' { 1 : 2 , 3 : 4 } '::idvec, '{+7:+2}'::idvec, '{007:02.50}'::idvec, '{-0:1}'::idvec,
	   '{1:1e2,2:1E-2,3:.5,4:5.,5:-1}'::idvec, E'\t{\n1:\r2\f}'::idvec;
-- a value of 0 says that the id is not there
SELECT '{1:0}'::idvec, '{1:0,2:3,4:-0,5:0e99,6:0.000}'::idvec, '{70000:0,2:3}'::idvec, '{1:0.0,2:7}/5'::idvec;
-- as pgvector writes it
SELECT '{1:0.5,3:2}/5'::idvec, '{}/3'::idvec, '{}/0'::idvec, ' { 3:2 } / 3 '::idvec, '{4294967295:2}/4294967295'::idvec;
SELECT input, t.* FROM unnest(ARRAY['{0:1}/5', '{6:1}/5', '{5:1,0:0}/5', '{1:1}/0', '{1:1}/', '{1:1}/-1', '{1:1}/5x', '{1:1}/5/5', '{1:1}/4294967296', '{1:1}/1.5', '/5'])
	WITH ORDINALITY u(input, n), try_text(input) t ORDER BY n;
-- what is not a vector
SELECT left(input, 20) AS input, t.* FROM unnest(ARRAY['', ' ', '{', '}', '[]', '[1:2]', '{1}', '{1:}', '{:1}', '{1:2', '{1:2,', '{1:2,}', '{,1:2}', '{1:2,,3:4}', '{1:2;3:4}', '{1:2 3:4}', '{1 2}', '{1:2}x',
	'{1:2}}', '{{1:2}}', '{"1":2}', '{1:"2"}', '{a:1}', '{1:a}', '{1:NaN}', '{1:inf}', '{1:-Infinity}', '{1:0x10}', '{1:1e}', '{1:1e+}', '{1:--1}', '{1:1.2.3}', '{1:1e1e1}', '{1:.}', '{1:-}', '{1:e5}',
	'{1.5:1}', '{--1:1}', '{- 1:1}', '{1e3:1}', '{0x10:1}', '{1:null}', '{NULL}', 'null', '1:2', '{1:2} {3:4}', '{é:1}', '{1:é}', '{1:' || repeat('1', 200) || '}'])
	WITH ORDINALITY u(input, n), try_text(input) t ORDER BY n;
-- ids and values that are out of range; no number wraps around
SELECT left(input, 50) AS input, t.* FROM unnest(ARRAY['{-1:1}', '{4294967296:1}', '{4294967297:1}', '{18446744073709551617:1}', '{340282366920938463463374607431768211457:1}', '{1:3.4028236e38}', '{1:-1e39}', '{1:1e999}',
	'{1:7e-46}', '{1:-1e-50}', '{1:1e-99999}', '{1:340282356779733661637539395458142568448}'])
	WITH ORDINALITY u(input, n), try_text(input) t ORDER BY n;
-- an id has one value
SELECT input, t.* FROM unnest(ARRAY['{1:2,1:2}', '{1:2,3:4,1:5}', '{1:2,1:0}', '{1:0,1:0}', '{70000:1,5:1,70000:-1}', '{1:1,01:1}', '{1:1,1:1}/5']) WITH ORDINALITY u(input, n), try_text(input) t ORDER BY n;
-- limits of ids and values
SELECT '{0:1,65535:1}'::idvec, '{65536:1,4294967295:1}'::idvec, '{1:1e-45,2:3.4028235e38,3:-3.4028235e38,4:-1e-45,5:1.1754944e-38}'::idvec,
	   '{1:255}'::idvec, '{1:256}'::idvec, '{1:0.1,2:0.30000000000000004,3:16777217,4:123456789}'::idvec;
-- forms: 8 bytes, then two or four for each id, and one or four for each value
SELECT v, pg_column_size(v::idvec) AS bytes FROM unnest(ARRAY['{}', '{1:0}', '{0:1}', '{65535:255}', '{65536:255}', '{1:256}', '{1:0.5}', '{1:-1}', '{1:1.5}', '{65536:0.5}', '{1:1,65535:2,3:255}', '{1:1,65536:2,3:255}',
	'{1:1,2:256}', '{1:1,65536:0.5}', '{65536:0,3:1}', '{1:0,3:0.5}', '{4:254.99998}', '{4:1e-45}', '{4:3e38}']) WITH ORDINALITY u(v, n) ORDER BY n;
-- 65,536 ids and no more, but zeros do not count
CREATE FUNCTION many(first int8, n int, value text) RETURNS text LANGUAGE sql AS
	$$SELECT '{' || string_agg(i || ':' || value, ',' ORDER BY i) || '}' FROM generate_series(first, first + n - 1) i$$;
SELECT cardinality(v), pg_column_size(v), v::text = many(f, 65536, x) AS same FROM (VALUES (0, '1'), (0, '0.5'), (1, '1'), (1, '0.5')) w(f, x), LATERAL (SELECT many(f, 65536, x)::idvec AS v) v;
SELECT state, result, detail FROM try_text(many(0, 65537, '1'));
SELECT state, result, detail FROM try_text(many(0, 100000, '0.5'));
SELECT state, left(result, 20) FROM try_text(many(0, 65537, '0'));
SELECT cardinality((rtrim(many(0, 65536, '1'), '}') || ',70000:0,80000:-0}')::idvec);
-- binary; COPY reads what a shell prints
SELECT v, idvec_send(v::idvec) FROM unnest(ARRAY['{}', '{1:2}', '{1:0.5}', '{1:-1,258:255}', '{65536:1}', '{5:1,4294967295:0.5}', '{1:1e-45,2:3.4028235e38}']) WITH ORDINALITY u(v, n) ORDER BY n;
CREATE TABLE received (v idvec);
CREATE FUNCTION try_binary(value bytea, OUT state text, OUT result text, OUT detail text) LANGUAGE plpgsql AS $$
DECLARE
	file bytea := '\x5047434f50590aff0d0a0000000000000000000001'::bytea || int4send(length(value)) || value || '\xffff'::bytea;
	octal text := (SELECT string_agg('\' || lpad((get_byte(file, i) / 64)::text || (get_byte(file, i) / 8 % 8) || (get_byte(file, i) % 8), 3, '0'), '' ORDER BY i)
				   FROM generate_series(0, length(file) - 1) i);
BEGIN
	TRUNCATE received;
	EXECUTE format('COPY received FROM PROGRAM %L (FORMAT binary)', format('printf ''%s''', octal));
	result := CASE WHEN idvec_send(v::text::idvec) = idvec_send(v) AND v::text::idvec = v THEN v::text ELSE 'not canonical: ' || v END FROM received;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, result = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
END$$;
SELECT value, t.* FROM unnest(ARRAY['\x', '\x00', '\x00000000', '\x0000000000', '\x0000000001', '\x0000000002', '\x0000000003', '\x0000000004', '\x00000000ff', '\x000000000000',
	-- forms that a client may send, which are not canonical
	'\x0000000102000507', '\x000000010300000005' || '07', '\x0000000100000540e00000', '\x01000000' || '05', '\x00000001010000000540e00000', '\x0000000102' || '000500', '\x00000001000005' || '00000000',
	'\x00000001000005' || '80000000', '\x000000010000053f000000', '\x00000001000005bf800000', '\x0000000100000500000001', '\x000000010000057f7fffff', '\x000000010000057f800000', '\x00000001000005ff800000',
	'\x000000010000057fc00000', '\x000000010000057f800001', '\x0000000101ffffffff43800000', '\x00000001000005437f0000', '\x0000000100000543800000',
	-- order, length, number, flags
	'\x000000020200050006' || '0708', '\x000000020200060005' || '0708', '\x000000020200050005' || '0708', '\x00000002030000000500010000' || '0708', '\x00000002030001000000000005' || '0708',
	'\x0000000202000500' || '0607', '\x000000020200050006' || '07', '\x000000020200050006' || '070809', '\x0000000200000500' || '0607', '\x0000000108000507', '\x0000000182000507', '\xffffffff02', '\x8000000002',
	'\x7fffffff02', '\x0001000102', '\x0001000002', '\x2000000001', '\x1999999a00']::bytea[]) WITH ORDINALITY u(value, n), try_binary(value) t ORDER BY n;
DROP TABLE received;
-- a file of COPY has every form
CREATE TABLE forms (id int, v idvec);
INSERT INTO forms VALUES (1, '{}'), (2, '{0:1}'), (3, '{65535:255,0:1}'), (4, '{65536:255,0:1}'), (5, '{1:-0.5}'), (6, '{4294967295:1e-45,3:3.4028235e38}'), (7, NULL), (8, many(0, 65536, '7')::idvec), (9, many(1, 65536, '0.1')::idvec);
SELECT id, length(idvec_send(v)) FROM forms ORDER BY id;
-- JSON
SELECT '{"3":0.5,"17":2}'::json::idvec, '{"17":2,"3":0.5}'::jsonb::idvec, '{}'::json::idvec, '{}'::jsonb::idvec, '{"1":0,"2":0.0}'::jsonb::idvec, '{"1":1e2,"4294967295":-0.25}'::json::idvec,
	   '{"1":1,"1":2}'::json::idvec AS last, '{"007":1}'::json::idvec;
SELECT v::idvec::json AS json, v::idvec::jsonb AS jsonb FROM unnest(ARRAY['{}', '{3:0.5,17:2}', '{0:-1,4294967295:255,10:0.1,9:1e-45,8:3.4028235e38}']) WITH ORDINALITY u(v, n) ORDER BY n;
SELECT id FROM forms WHERE v::json::idvec IS DISTINCT FROM v OR v::jsonb::idvec IS DISTINCT FROM v OR v::text::idvec IS DISTINCT FROM v;
SELECT input, j.state, j.result, j.detail, (j.state, j.result, j.detail) IS NOT DISTINCT FROM (b.state, b.result, b.detail) AS jsonb_alike
FROM unnest(ARRAY['1', 'null', '"x"', 'true', '[]', '[1]', '[{"1":2}]', '{"a":1}', '{"":1}', '{"-1":1}', '{"+1":1}', '{" 1":1}', '{"1.5":1}', '{"1":"2"}', '{"1":null}', '{"1":true}', '{"1":[2]}', '{"1":{"2":3}}', '{"4294967296":1}',
	'{"99999999999999999999999":1}', '{"1":1e39}', '{"1":1e-50}', '{"1":1e400}', '{"1":1,"01":1}', '{"00000000000000000000000000001":1}']) WITH ORDINALITY u(input, n),
	try(format('SELECT %L::json::idvec', input)) j, try(format('SELECT %L::jsonb::idvec', input)) b ORDER BY n;
-- arrays
SELECT idvec('{17,3}', '{2,0.5}'), idvec('{}', '{}'), idvec('{1,2}', '{0,3}'), idvec(ARRAY[4294967295, 0], ARRAY[1, 1e-45]::real[]), idvec('[5:6]={1,2}', '[0:1]={3,4}'), idvec(NULL, '{}') IS NULL AS "null",
	   idvec('{1}', '{2}');
SELECT statement, t.* FROM unnest(ARRAY[$$idvec('{1}', '{1,2}')$$, $$idvec('{1,2}', '{}')$$, $$idvec('{1,1}', '{1,2}')$$, $$idvec('{1,NULL}', '{1,2}')$$, $$idvec('{1,2}', '{1,NULL}')$$, $$idvec('{{1,2}}', '{1,2}')$$,
	$$idvec('{1,2}', '{{1,2}}')$$, $$idvec('{-1}', '{1}')$$, $$idvec('{4294967296}', '{1}')$$, $$idvec('{1}', '{NaN}')$$, $$idvec('{1}', '{Infinity}')$$, $$idvec('{1}', '{-Infinity}')$$])
	WITH ORDINALITY u(statement, n), try('SELECT ' || statement) t ORDER BY n;
SELECT state, result, detail FROM try($$SELECT idvec(array_agg(i), array_agg(1.0::real)) FROM generate_series(1, 65537) i$$);
SELECT idvec_values('{17:2,3:0.5}'), idvec_values('{}'), idvec_values('{70000:255,3:1}'), idvec_values('{1:1e-45,70000:-3}');
SELECT * FROM idvec_each('{17:2,3:0.5,4294967295:-1}');
SELECT count(*) FROM idvec_each('{}');
SELECT f.id, count(*), sum(e.id), min(value), max(value) FROM forms f, idvec_each(v) e(id, value) GROUP BY f.id ORDER BY f.id;
SELECT f.id FROM forms f WHERE idvec(ARRAY(SELECT e.id FROM idvec_each(v) e ORDER BY e.id DESC), ARRAY(SELECT value FROM idvec_each(v) e ORDER BY e.id DESC)) <> v OR
	idvec_values(v) <> ARRAY(SELECT value FROM idvec_each(v) e ORDER BY e.id);
-- sets
SELECT '{1,70000}'::idset::idvec, '{}'::idset::idvec, '{17:2,3:0.5}'::idvec::idset, '{}'::idvec::idset, '{70000:-1}'::idvec::idset, idset('{5:7}'::idvec), idvec('{5}'::idset);
INSERT INTO forms VALUES (10, '{3,1}'::idset);	-- by assignment
SELECT v FROM forms WHERE id = 10;
SELECT * FROM try($$INSERT INTO forms VALUES (11, '{3,1}'::int[])$$);
CREATE TEMP TABLE sets (s idset);
SELECT * FROM try($$INSERT INTO sets VALUES ('{3:1}'::idvec)$$);	-- what loses values is explicit
-- equal vectors have equal bytes, however they were made
WITH made(v) AS (VALUES ('{1:1,3:1}'::idvec), ('{3:1.0,1:10e-1,70000:0}'), ('{1:1,3:1}/3'), ('{"1":1,"3":1}'::json::idvec), ('{"3":1,"1":1}'::jsonb::idvec), (idvec('{3,1}', '{1,1}')), ('{1,3}'::idset::idvec),
	('{1:0.5,3:0.5}'::idvec * 2), ('{1:0.5}'::idvec + '{1:0.5,3:1}'), ('{1:300,3:2,70000:1}'::idvec - '{1:299,3:1,70000:1}'), ('{1:1,3:1,70000:0.5}'::idvec & '{1,2,3}'), ('{1:1,3:1,70000:0.5}'::idvec - '{70000}'::idset),
	((SELECT idvec_agg(i, x) FROM (VALUES (3, 0.25), (1, 0.5), (3, 0.75), (1, 0.5), (70000, 7), (70000, -7)) w(i, x))), (-1 * '{1:-1,3:-1}'::idvec))
SELECT count(*), count(DISTINCT idvec_send(v)), count(DISTINCT v), count(DISTINCT hash_idvec(v)), count(DISTINCT hash_idvec_extended(v, 7)), array_agg(DISTINCT v) FROM made;
-- comparison: by the first pair in which vectors differ
SELECT v FROM unnest(ARRAY['{1:1,2:1}', '{2:-1}', '{}', '{1:2}', '{1:-1}', '{70000:1}', '{1:0.5}', '{1:1,70000:0.5}', '{1:256}', '{1:1}', '{0:1}', '{4294967295:1}', '{1:255}', '{1:1e-45}', NULL, '{1:1,2:0.5}', '{1:-3e38}']::idvec[]) v ORDER BY v;
WITH v AS (SELECT v, n FROM unnest(ARRAY['{}', '{0:1}', '{1:-3e38}', '{1:-1}', '{1:1e-45}', '{1:1}', '{1:1,2:0.5}', '{1:1,70000:0.5}', '{1:256}', '{70000:1}']::idvec[]) WITH ORDINALITY u(v, n))
SELECT count(*), count(*) FILTER (WHERE (a.v < b.v) <> (a.n < b.n) OR (a.v <= b.v) <> (a.n <= b.n) OR (a.v = b.v) <> (a.n = b.n) OR (a.v <> b.v) <> (a.n <> b.n) OR (a.v >= b.v) <> (a.n >= b.n)
	OR (a.v > b.v) <> (a.n > b.n) OR idvec_cmp(a.v, b.v) <> sign(a.n - b.n)) AS wrong FROM v a, v b;
SELECT DISTINCT v FROM (VALUES ('{1:2}'::idvec), ('{1:2.0}'), ('{}'), ('{5:0}'), (NULL), (NULL), ('{1:1}')) w(v) ORDER BY v;
SELECT v, count(*) FROM (VALUES ('{1:2}'::idvec), ('{1:2.0}'), ('{}'), ('{5:0}'), (NULL), ('{1:1}')) w(v) GROUP BY v ORDER BY v DESC;
SELECT count(*), count(*) FILTER (WHERE (hash_idvec_extended(v, 0) & 4294967295) <> (hash_idvec(v)::int8 & 4294967295)) AS wrong, count(DISTINCT hash_idvec_extended(v, 1)) AS seeded FROM forms;
CREATE TEMP TABLE uniq (v idvec UNIQUE);
INSERT INTO uniq VALUES ('{1:2,3:4}'), ('{}'), ('{1:2,3:4.5}');
INSERT INTO uniq VALUES ('{3:4,1:2}');
CREATE INDEX ON uniq USING hash (v);
SET enable_seqscan = off;
SET enable_indexonlyscan = off;
SELECT v FROM uniq WHERE v = '{3:4.0,1:2}';
SELECT v FROM uniq WHERE v > '{1:2}' ORDER BY v;
RESET enable_seqscan;
RESET enable_indexonlyscan;
SET enable_hashjoin = off;
SELECT count(*) FROM forms a JOIN forms b USING (v);
SET enable_mergejoin = off;
SELECT count(*) FROM forms a JOIN forms b USING (v);
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT count(*) FROM (SELECT v FROM forms UNION SELECT v FROM forms) u;
-- arithmetic
SELECT '{1:1,2:2}'::idvec + '{2:3,70000:0.5}', '{1:1,2:2}'::idvec - '{2:3,70000:0.5}'::idvec, '{}'::idvec + '{}', '{1:1}'::idvec + '{}', '{}'::idvec - '{1:1}'::idvec, '{1:0.1}'::idvec + '{1:0.2}';
SELECT '{1:1,2:2}'::idvec - '{1:1,2:2}'::idvec AS cancelled, '{1:1,2:-0.5,3:7}'::idvec + '{1:-1,2:0.5}' AS partly, '{1:1e-45}'::idvec - '{1:1e-45}'::idvec AS tiny, '{1:255}'::idvec + '{1:1}' AS beyond_a_byte, '{1:1e-45}'::idvec + '{1:1e-45}' AS denormal,
	   '{1:16777216}'::idvec + '{1:1}' AS rounded;
SELECT '{1:1,2:2}'::idvec * 2.5, 2.5 * '{1:1,2:2}'::idvec, '{1:1}'::idvec * 3, '{1:1}'::idvec * 0, '{1:-5}'::idvec * -0.0::float8, '{1:1,2:3}'::idvec * 1e-45::float8, '{}'::idvec * 5, '{1:0.1}'::idvec * 3, '{1:1}'::idvec * 255;
SELECT statement, t.* FROM unnest(ARRAY[$$'{1:3e38}'::idvec + '{1:3e38}'$$, $$'{1:-3e38}'::idvec - '{1:3e38}'::idvec$$, $$'{1:3e38}'::idvec * 2$$, $$'{1:1}'::idvec * 1e300::float8$$, $$'{1:3e38}'::idvec * -1e300::float8$$, $$'{1:1e-45}'::idvec * 0.5$$,
	$$'{1:1}'::idvec * -1e-46::float8$$, $$'{1:1,2:1e-45}'::idvec * 0.1$$, $$'{1:1}'::idvec * 'NaN'::float8$$, $$'{1:1}'::idvec * 'inf'::float8$$, $$'{}'::idvec * '-inf'::float8$$, $$'{1:1,2:0.5}'::idvec * 1e-45::float8$$,
	$$'{1:3.4028235e38}'::idvec + '{1:1e30}'$$, $$'{1:1}'::idvec * '{1:1}'$$]) WITH ORDINALITY u(statement, n), try('SELECT ' || statement) t ORDER BY n;
SELECT result IS NOT NULL AS near_zero, state FROM try($$SELECT '{1:1e-45}'::idvec * 1e-310::float8$$);
-- more than 65,536 ids of two vectors
SELECT state, result, detail FROM try($$SELECT many(0, 40000, '1')::idvec + many(30000, 40000, '1')::idvec$$);
SELECT cardinality(many(0, 40000, '1')::idvec + many(25536, 40000, '2')::idvec), cardinality(many(0, 65536, '1')::idvec + many(0, 65536, '-1')::idvec), cardinality(many(0, 65536, '1')::idvec - many(1, 65536, '1')::idvec);
-- sets choose pairs
SELECT '{1:1,2:2,70000:0.5}'::idvec & '{2,3,70000}', '{1:1,2:2,70000:0.5}'::idvec - '{2,3,70000}'::idset, '{1:1}'::idvec & '{}', '{1:1}'::idvec - '{}'::idset, '{}'::idvec & '{1}', '{}'::idvec - '{1}'::idset, '{1:1}'::idvec & '{0,2}',
	   '{1:0.5,300:7}'::idvec & '{300}', '{1:1}'::idvec & '{1,4294967295}', '{4294967295:1}'::idvec - '{4294967295}'::idset;
SELECT * FROM try($$SELECT '{1:1}'::idvec - '{1}'$$);	-- a literal beside a vector is a vector
-- functions
SELECT v, cardinality(v), idvec_norm(v), idvec_sum(v), idvec_value(v, 0) AS v0, idvec_value(v, 2) AS v2, idvec_value(v, 65535) AS v65535, idvec_value(v, 65536) AS v65536, idvec_value(v, 4294967295) AS greatest, idvec_value(v, -1) AS below, idvec_value(v, 4294967296) AS beyond,
	   idvec_value(v, 4294967298) AS wrapped, idvec_value(v, -9223372036854775808) AS least
FROM unnest(ARRAY['{}', '{0:3,2:4}', '{0:-3,2:4,65535:1}', '{2:0.5,65536:7}', '{2:-1,4294967295:-2}', '{1:3e38,2:3e38}', '{2:1e-45}']::idvec[]) WITH ORDINALITY u(v, n) ORDER BY n;
SELECT count(*) FILTER (WHERE idvec_value(v, i) IS DISTINCT FROM coalesce(value, 0)) AS wrong, count(value) AS present, count(*) AS asked FROM
	(SELECT idvec(array_agg(i * i * 3), array_agg((i - 9.5)::real)) AS v FROM generate_series(0, 300) i) v, generate_series(0, 270000, 3) i LEFT JOIN (SELECT i * i * 3 AS i, (i - 9.5)::real AS value FROM generate_series(0, 300) i) w USING (i);
-- all are strict
SELECT NULL::idvec + '{}' IS NULL AND '{}'::idvec - NULL::idvec IS NULL AND NULL::idvec * 2 IS NULL AND 2 * NULL::idvec IS NULL AND NULL::idvec & '{}' IS NULL AND cardinality(NULL::idvec) IS NULL AND idvec_norm(NULL) IS NULL AND
	   idvec_sum(NULL) IS NULL AND idvec_value(NULL, 1) IS NULL AND idvec_value('{}', NULL) IS NULL AND idvec_values(NULL) IS NULL AND NULL::idvec::idset IS NULL AND NULL::idset::idvec IS NULL AND NULL::idvec::json IS NULL AND NULL::json::idvec IS NULL AND
	   NULL::idvec::jsonb IS NULL AND NULL::jsonb::idvec IS NULL AND (NULL::idvec <#> '{}') IS NULL AND ('{}' <=> NULL::idvec) IS NULL AND (NULL::idvec <%> '{}') IS NULL AND (NULL::idset <#> '{}'::idvec) IS NULL AND
	   (NULL::idvec <#> '{}'::idset) IS NULL AND (NULL::idvec = '{}') IS NULL AS strict;
SELECT count(*) FROM idvec_each(NULL);
-- values with a header of one byte, out of line, and compressed
CREATE TABLE stored (id int PRIMARY KEY, v idvec);
INSERT INTO stored SELECT 1, '{1:2}';
INSERT INTO stored SELECT 2, idvec(array_agg(i), array_agg(0.25::real)) FROM generate_series(1, 20000) i;
ALTER TABLE stored ALTER v SET STORAGE main;
INSERT INTO stored SELECT 3, v FROM stored WHERE id = 1;
INSERT INTO stored SELECT 4, idvec(array_agg(i), array_agg(0.25::real)) FROM generate_series(1, 20000) i;
INSERT INTO stored SELECT 5, idvec(array_agg(i * 65536), array_agg(1)) FROM generate_series(0, 1999) i;
ALTER TABLE stored ALTER v SET STORAGE plain;
INSERT INTO stored SELECT 6, idvec(array_agg(i), array_agg(-0.25::real)) FROM generate_series(1, 1000) i;
ALTER TABLE stored ALTER v SET STORAGE extended;
INSERT INTO stored SELECT 7, idvec(array_agg(i), array_agg(-0.25::real)) FROM generate_series(1, 1000) i;
SELECT id, cardinality(v), pg_column_size(v) < pg_column_size((v::text)::idvec) AS smaller, v = v::text::idvec AS same, hash_idvec(v) = hash_idvec(v::text::idvec) AS hash, idvec_sum(v), idvec_value(v, 131072), cardinality(v & '{1,2,3}'),
	   v <#> '{1:1,131072:2}'::idvec AS product, '{1,131072}'::idset <#> v AS with_set, idvec_send(v) = idvec_send(v::text::idvec) AS sent, v::jsonb::idvec = v AS json, cardinality(v::idset), (SELECT sum(value) FROM idvec_each(v)) AS each
FROM stored ORDER BY id;
SELECT a.id, b.id FROM stored a JOIN stored b ON a.v = b.v AND a.id < b.id ORDER BY 1, 2;
SELECT a.id, b.id FROM stored a, stored b WHERE (a.v <=> b.v) IS DISTINCT FROM (a.v::text::idvec <=> b.v::text::idvec) OR (a.v + b.v) <> (a.v::text::idvec + b.v::text::idvec) OR (a.v < b.v) <> (a.v::text::idvec < b.v::text::idvec);
CREATE INDEX ON stored USING hash (v);
SET enable_seqscan = off;
SELECT id FROM stored WHERE v = (SELECT v FROM stored WHERE id = 4) ORDER BY id;
RESET enable_seqscan;
-- statistics: those that the sets would have
CREATE TABLE analyzed (v idvec, s idset);
INSERT INTO analyzed SELECT v, v::idset FROM (SELECT idvec(ARRAY[i % 3, 100 + i % 50, CASE WHEN i % 2 = 0 THEN 4294967295 ELSE 70000 END], ARRAY[1, i % 7 + 0.5, 0.5]::real[]) AS v FROM generate_series(1, 3000) i) v;
INSERT INTO analyzed SELECT idvec(ARRAY[i % 3], '{7}'), ARRAY[i % 3]::idset FROM generate_series(1, 1000) i;
INSERT INTO analyzed SELECT NULL, NULL FROM generate_series(1, 1000);
INSERT INTO analyzed VALUES ('{}', '{}');
ANALYZE analyzed;
SELECT v.null_frac, v.most_common_elems::text::int8[], v.most_common_elem_freqs = s.most_common_elem_freqs AS freqs, v.elem_count_histogram = s.elem_count_histogram AS lengths, v.most_common_elems::text = s.most_common_elems::text AS ids, v.n_distinct > s.n_distinct OR v.n_distinct < 0 AS more_distinct
FROM pg_stats v, pg_stats s WHERE v.tablename = 'analyzed' AND v.attname = 'v' AND s.tablename = 'analyzed' AND s.attname = 's';
TRUNCATE analyzed;
INSERT INTO analyzed SELECT idvec(ARRAY[1, 2], ARRAY[i, 1]::real[]) FROM generate_series(1, 100) i;
ANALYZE analyzed;
SELECT most_common_elems::text, most_common_elem_freqs[1:2] FROM pg_stats WHERE tablename = 'analyzed' AND attname = 'v';
TRUNCATE analyzed;
INSERT INTO analyzed SELECT '{}' FROM generate_series(1, 100) i;
ANALYZE analyzed;
SELECT most_common_vals::text, most_common_elems FROM pg_stats WHERE tablename = 'analyzed' AND attname = 'v';
-- the aggregate
SELECT idvec_agg(i, x) FROM (VALUES (3, 1.5), (1, 2), (NULL, 5), (7, NULL), (3, 0.5), (4294967295, 1), (5, 0)) w(i, x);
SELECT idvec_agg(i, x) FROM (VALUES (3, 1.5)) w(i, x) WHERE false;
SELECT idvec_agg(NULL, 1), idvec_agg(1, NULL), idvec_agg(NULL, NULL), idvec_agg(1, 0), idvec_agg(i, 1) FILTER (WHERE false) FROM generate_series(1, 3) i;
-- sums are of float8, in the order of the rows, and may pass what real can
-- hold
SELECT idvec_agg(1, x ORDER BY n) AS lost, idvec_agg(1, x ORDER BY n DESC) AS kept FROM (VALUES (1, 1.0::float8), (2, 1e20), (3, -1e20)) w(n, x);
SELECT idvec_agg(1, x ORDER BY n) AS beyond FROM (VALUES (1, 1e300::float8), (2, -1e300), (3, 2.5)) w(n, x);
SELECT idvec_agg(1, 0.1) AS tenth, (SELECT sum(0.1::float8)::real FROM generate_series(1, 10)) AS by_sum FROM generate_series(1, 10);
SELECT i, idvec_agg(i % 3, i) OVER (ORDER BY i) AS growing, idvec_agg(i % 3, i) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two, idvec_agg(i, 1) OVER (PARTITION BY i % 2) AS part FROM generate_series(1, 5) i ORDER BY i;
SELECT g, idvec_agg(i % 4, 0.5) FROM generate_series(1, 20) i, LATERAL (SELECT i % 3 AS g) g GROUP BY g ORDER BY g;
SELECT statement, t.* FROM unnest(ARRAY['idvec_agg(-1, 1)', 'idvec_agg(4294967296, 1)', $$idvec_agg(1, 'NaN')$$, $$idvec_agg(1, '-inf')$$, 'idvec_agg(1, 1e39)', 'idvec_agg(1, 1e-50)', 'idvec_agg(1, 3e38) FROM generate_series(1, 2)', $$idvec_agg(NULL, 'NaN')$$,
	'idvec_agg(1, 1e308) FROM generate_series(1, 2)', 'idvec_agg(i, 1) FROM generate_series(1, 65537) i', 'idvec_agg(i, 0) FROM generate_series(1, 65537) i']) WITH ORDINALITY u(statement, n), try('SELECT ' || statement) t ORDER BY n;
SELECT cardinality(idvec_agg(i, 1)), cardinality(idvec_agg(i, 0)) FROM generate_series(0, 65535) i, generate_series(1, 2);
-- in parallel; sums of halves have no last bits to lose
CREATE TABLE agg_src AS SELECT i % 100 AS g, (i * 7919::int8) % 60000 AS x, i % 7 / 2.0 - 0.5 AS y, i FROM generate_series(1, 100000) i;
INSERT INTO agg_src VALUES (0, NULL, 1, 1), (0, 1, NULL, 1);
ANALYZE agg_src;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT idvec_agg(x, y) FROM agg_src;
CREATE TEMP TABLE parallel AS SELECT idvec_agg(x, y) AS v FROM agg_src;
CREATE TEMP TABLE parallel_groups AS SELECT g, idvec_agg(x, y) AS v FROM agg_src GROUP BY g;
SELECT * FROM try('SELECT idvec_agg(i, 1) FROM agg_src');
SELECT idvec_agg(x, y) FROM agg_src WHERE x IS NULL OR y IS NULL;
SELECT idvec_agg(x, y) FROM agg_src WHERE g = 1000;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
SELECT cardinality(v) > 50000 AS many, (SELECT count(*) FROM idvec_each(v) e FULL JOIN (SELECT x, sum(y)::real AS y FROM agg_src WHERE x IS NOT NULL AND y IS NOT NULL GROUP BY x HAVING sum(y) <> 0) s ON e.id = s.x WHERE value IS DISTINCT FROM y) AS wrong FROM parallel;
SELECT count(*), count(*) FILTER (WHERE v IS DISTINCT FROM (SELECT idvec(array_agg(x), array_agg(y)) FROM (SELECT x, sum(y)::real AS y FROM agg_src a WHERE a.g = p.g AND x IS NOT NULL AND y IS NOT NULL GROUP BY x HAVING sum(y) <> 0) s)) AS wrong FROM parallel_groups p;
-- soft errors, from 16 on
CREATE FUNCTION valid(input text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	result boolean;
BEGIN
	IF current_setting('server_version_num')::int >= 160000 THEN
		EXECUTE 'SELECT pg_input_is_valid($1, ''idvec'')' INTO result USING input;
		RETURN result;
	END IF;
	PERFORM input::idvec;
	RETURN true;
EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range OR program_limit_exceeded THEN
	-- none of these is raised where errors are soft
	RETURN CASE WHEN current_setting('server_version_num')::int < 160000 THEN false END;
END$$;
SELECT left(input, 20) AS input, valid(input) FROM unnest(ARRAY['{1:2}', '{}', '{', 'x', '{1}', '{1:x}', '{1:1e39}', '{1:1e-60}', '{-1:1}', '{4294967296:1}', '{1:1,1:1}', '{2:1}/1', '{2:1}/x', '{1:2}x', '{1:1..2}', '{1:' || repeat('0', 127) || '}', '{1:' || repeat('0', 128) || '}']) WITH ORDINALITY u(input, n) ORDER BY n;
SELECT valid(many(1, 65536, '1')), valid(many(1, 65537, '1'));
DROP TABLE forms, sets, uniq, stored, analyzed, agg_src, parallel, parallel_groups;
DROP FUNCTION try, try_text, try_binary, many, valid;
