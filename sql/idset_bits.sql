-- Sets from and to bits, bytea, JSON and arrays of two dimensions.
-- bit strings: bit i from the left is id i
SELECT B'1010'::idset, B'0'::idset, B''::idset, '{0,2}'::idset::varbit, '{}'::idset::varbit, '{0,2}'::idset::bit(6), '{}'::idset::bit(3), '{7}'::idset::varbit(8);
SELECT B'0110'::bit(4)::idset, '00000001'::varbit::idset, '{3,17}'::idset::varbit::idset;
SELECT '{0,8}'::idset::bit(8);
SELECT '{3}'::idset::bit;
SELECT '{0,8}'::idset::varbit(8);
SELECT idset_to_bit('{0,8}', 9), idset_to_bit('{0,8}', 12), idset_to_bit('{}', 0) = B'' AS empty;
SELECT idset_to_bit('{0,8}', 8);
SELECT idset_to_bit('{0,8}', -1);
SELECT '{4294967295}'::idset::varbit;
-- only where it is written
CREATE TABLE bits (b bit(4), v varbit, s idset);
INSERT INTO bits (s) VALUES (B'1010');
INSERT INTO bits (v) VALUES ('{1}'::idset);
-- bytea, as of RDKit's bfp_to_binary_text, chemfp and get_bit()
SELECT idset_from_bytea('\x01'), idset_from_bytea('\x80'), idset_from_bytea('\x0001'), idset_from_bytea('\x'), idset_from_bytea('\xff00000081');
SELECT idset_to_bytea('{0,7,8,31}', 4), idset_to_bytea('{0}', 1), idset_to_bytea('{}', 0) = '\x' AS empty, idset_to_bytea('{}', 2);
SELECT idset_to_bytea('{0,8}', 1);
SELECT idset_to_bytea('{0,8}', -1);
SELECT idset_to_bytea('{0}', 2147483647);
-- random sets, bit by bit
SELECT setseed(0.5);
CREATE TABLE random_bits AS SELECT i, ARRAY(SELECT x FROM generate_series(0, n - 1) x WHERE random() < p) AS a, n
FROM (SELECT i, (ARRAY[1, 7, 8, 9, 64, 166, 2048, 70001])[1 + i % 8] AS n, (i % 5) / 4.0 AS p FROM generate_series(0, 39) i) g WHERE n < 70001 OR p < 0.9;
SELECT count(*), count(*) FILTER (WHERE idset_to_bit(a::idset, n)::text <> (SELECT string_agg((x = ANY (a))::int::text, '' ORDER BY x) FROM generate_series(0, n - 1) x)) AS to_bit,
	   count(*) FILTER (WHERE idset_to_bit(a::idset, n)::idset <> a::idset OR (a::idset)::varbit::idset <> a::idset OR idset_to_bit(a::idset, n + 5)::idset <> a::idset) AS bits,
	   count(*) FILTER (WHERE length(a::idset::varbit) <> coalesce(a[cardinality(a)] + 1, 0)) AS shortest
FROM random_bits WHERE n < 3000;
SELECT count(*), count(*) FILTER (WHERE ARRAY(SELECT x FROM generate_series(0, n - 1) x WHERE get_bit(b, x) = 1) <> a) AS get_bit,
	   count(*) FILTER (WHERE idset_from_bytea(idset_to_bytea(a::idset, (n + 7) / 8)) <> a::idset OR idset_from_bytea(idset_to_bytea(a::idset, n)) <> a::idset) AS back,
	   count(*) FILTER (WHERE idset_to_bit(a::idset, n)::idset <> a::idset) AS bits, bool_or(65535 < ANY (a)) AS wide
FROM (SELECT *, idset_to_bytea(a::idset, (n + 7) / 8) AS b FROM random_bits OFFSET 0) r;
SELECT cardinality(idset_from_bytea(decode(repeat('ff', 8192), 'hex'))), cardinality(repeat('1', 65536)::varbit::idset);
SELECT idset_from_bytea(decode(repeat('ff', 8192) || '01', 'hex'));
SELECT repeat('1', 65537)::varbit::idset;
SELECT length(idset_to_bytea('{100000000}', 12500001)), idset_from_bytea(idset_to_bytea('{100000000}', 12500001));
-- JSON
SELECT '[3,17,3]'::jsonb::idset, '[3,17]'::json::idset, '[]'::jsonb::idset, '[]'::json::idset, '[3.0, 4e0, 4294967295]'::jsonb::idset, '[1.70e1]'::json::idset;
SELECT '{3,17,4294967295}'::idset::jsonb, '{}'::idset::jsonb, '{3,17}'::idset::json, pg_typeof('{3}'::idset::jsonb);
SELECT count(*) FILTER (WHERE to_jsonb(a)::idset <> a::idset OR to_json(a)::idset <> a::idset OR a::idset::jsonb <> to_jsonb(a)) AS json FROM random_bits;
SELECT '[3,"17"]'::jsonb::idset;
SELECT '[3,null]'::jsonb::idset;
SELECT '[true]'::json::idset;
SELECT '[[1]]'::jsonb::idset;
SELECT '[{}]'::jsonb::idset;
SELECT '{"a":1}'::jsonb::idset;
SELECT '3'::jsonb::idset;
SELECT 'null'::json::idset;
SELECT '[1.5]'::jsonb::idset;
SELECT '[1,'::json::idset;
SELECT '[-1]'::jsonb::idset;
SELECT '[4294967296]'::jsonb::idset;
SELECT '[1e30]'::json::idset;
INSERT INTO bits (s) VALUES ('[1,2]'::jsonb), ('[3]'::json);  -- by assignment
SELECT s FROM bits;
-- what drivers send as elements of arrays, and arrays of sets
SELECT '{"1","70000"}'::idset, ' { "2" , 1 } '::idset;
SELECT '{"{1,2}","{}","[3,70000]",NULL}'::idset[];
SELECT ARRAY['{1,2}', '{3}']::idset[], ARRAY['{1,2}', NULL]::text[]::idset[], ARRAY[ARRAY[1,2]::idset, ARRAY[3]::idset];
SELECT '{{1,2},{3,3}}'::int[]::idset[], '{{1,4294967295}}'::int8[]::idset[], '{}'::int[]::idset[], ARRAY[ARRAY[5,4], ARRAY[3,2]]::int[]::idset[];
SELECT '{1,2}'::int[]::idset[];
SELECT '{{{1}}}'::int8[]::idset[];
SELECT '{{1,NULL}}'::int[]::idset[];
SELECT '{{1,-2}}'::int[]::idset[];
SELECT t.query, t.common FROM gpuvec_topk_batch('bits', 's', '{{1,2},{3,3}}'::int[]::idset[], 1) t;
DROP TABLE bits, random_bits;
