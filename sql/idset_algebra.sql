-- Set algebra beside the operators of arrays: merges of long sets, counts, ranks, ranges, shifts. All against arrays of int8.
SELECT setseed(0.4);
-- lengths 0 to 65536 in several densities, so that sets are merged in step, by blocks, by bitmaps and by search; narrow, wide, and across the border
CREATE TABLE long AS
SELECT i, ARRAY(SELECT x FROM generate_series(0, n - 1) j, LATERAL (SELECT base + j * step + floor(random() * step)::int8 AS x) y WHERE random() < p ORDER BY 1) AS a
FROM (VALUES (1, 0::int8, 1::int8, 0, 1::float8), (2, 0, 1, 65536, 1), (3, 0, 6, 10900, 1), (4, 1, 6, 10900, 0.9), (5, 0, 1, 65536, 0.15), (6, 0, 1, 65536, 0.5),
	(7, 300, 1, 700, 0.5), (8, 0, 90, 700, 1), (9, 30000, 1, 40, 1), (10, 0, 1800, 36, 1), (11, 0, 65535, 2, 1), (12, 65500, 1, 5000, 0.7), (13, 60000, 7, 6000, 1),
	(14, 0, 65537, 65535, 0.1), (15, 0, 65537, 3000, 1), (16, 4294960000, 1, 7296, 0.5), (17, 0, 13, 9000, 1), (18, 100, 1, 8, 1), (19, 0, 4000, 17, 1)) v(i, base, step, n, p);
UPDATE long SET a = array_append(a, 4294967295) WHERE i = 16 AND a[cardinality(a)] <> 4294967295;
ALTER TABLE long ADD COLUMN s idset;
UPDATE long SET s = a::idset;
SELECT min(cardinality(a)), max(cardinality(a)), bool_or(65535 < ALL (a) AND a <> '{}') AS wide, bool_and(s::int8[] = a) AS same FROM long;
CREATE TABLE merged AS SELECT x.i, y.i AS j, cardinality(x.a) AS na, cardinality(y.a) AS nb, x.s AS sa, y.s AS sb,
	ARRAY(SELECT unnest(x.a) INTERSECT SELECT unnest(y.a) ORDER BY 1) AS common,
	ARRAY(SELECT unnest(x.a) EXCEPT SELECT unnest(y.a) ORDER BY 1) AS only_a FROM long x, long y WHERE (x.i + y.i) % 3 = 0 OR x.i = y.i OR x.i IN (9, 11, 14) OR y.i IN (9, 11, 14);
SELECT count(*) AS pairs, count(*) FILTER (WHERE (sa & sb)::int8[] <> common) AS intersection, count(*) FILTER (WHERE (sa - sb)::int8[] <> only_a) AS difference,
	   count(*) FILTER (WHERE intersection_count(sa, sb) <> cardinality(common)) AS intersection_count,
	   count(*) FILTER (WHERE difference_count(sa, sb) <> cardinality(only_a)) AS difference_count,
	   count(*) FILTER (WHERE union_count(sa, sb) <> na + nb - cardinality(common)) AS union_count,
	   count(*) FILTER (WHERE hamming_distance(sa, sb) <> na + nb - 2 * cardinality(common)) AS hamming_distance,
	   count(*) FILTER (WHERE (sa @> sb) <> (cardinality(common) = nb) OR (sa <@ sb) <> (cardinality(common) = na) OR (sa && sb) <> (common <> '{}')) AS search
FROM merged;
-- union and symmetric difference, where a set can have so many ids
SELECT count(*) > 100 AS many, count(*) FILTER (WHERE (m.sa | m.sb)::int8[] <> ARRAY(SELECT unnest(m.sa) UNION SELECT unnest(m.sb) ORDER BY 1)) AS "union",
	   count(*) FILTER (WHERE (m.sa # m.sb)::int8[] <> ARRAY(SELECT x FROM (SELECT unnest(m.only_a) UNION ALL SELECT unnest(o.only_a)) u(x) ORDER BY 1)) AS symmetric_difference,
	   count(*) FILTER (WHERE m.sa # m.sb <> m.sb # m.sa OR (m.sa # m.sb) <> (m.sa | m.sb) - (m.sa & m.sb)) AS laws
FROM merged m JOIN merged o ON o.i = m.j AND o.j = m.i WHERE m.na + m.nb - cardinality(m.common) <= 65536;
SELECT s | '{65536}' FROM long WHERE i = 2;
SELECT s # '{65536}' FROM long WHERE i = 2;
SELECT '{1,2,70000}'::idset # '{2,3,70000}', '{}'::idset # '{}', '{1}'::idset # '{}';
-- an id on the left
SELECT 2 | '{1,3}'::idset, 4294967295 | '{1}'::idset, 3 | '{3}'::idset, '{4}'::idset | 2 = 2 | '{4}'::idset AS commutes;
SELECT (-1) | '{1}'::idset;
-- least, greatest, n-th id
SELECT i, idset_min(s) IS NOT DISTINCT FROM a[1] AS min, idset_max(s) IS NOT DISTINCT FROM a[cardinality(a)] AS max FROM long WHERE
	idset_min(s) IS DISTINCT FROM a[1] OR idset_max(s) IS DISTINCT FROM a[cardinality(a)] OR cardinality(a) = 0;
SELECT count(*), count(*) FILTER (WHERE idset_nth(s, n) IS DISTINCT FROM CASE WHEN n BETWEEN 1 AND cardinality(a) THEN a[n::int] END) AS nth
FROM long, unnest('{-9223372036854775808,-1,0,1,2,9,700,1000,65536,65537,9223372036854775807}'::int8[]) n;
SELECT pg_typeof(idset_min('{1}')), idset_max('{5,4294967295}'), idset_min('{}') IS NULL AS no_min, idset_max('{}') IS NULL AS no_max, idset_nth('{5,7}', 2), idset_nth('{5,7}', 3) IS NULL AS no_third;
-- values in a row, short and long, in line and out of line, compressed and not
CREATE TABLE kept (i int, main idset, ext idset);
ALTER TABLE kept ALTER COLUMN main SET STORAGE main;
INSERT INTO kept SELECT i, s, s FROM long;
SELECT count(*) FILTER (WHERE idset_min(main) IS DISTINCT FROM idset_min(s) OR idset_max(main) IS DISTINCT FROM idset_max(s) OR idset_nth(main, 500) IS DISTINCT FROM a[500]) AS main,
	   count(*) FILTER (WHERE idset_min(ext) IS DISTINCT FROM idset_min(s) OR idset_max(ext) IS DISTINCT FROM idset_max(s) OR idset_nth(ext, 500) IS DISTINCT FROM a[500]) AS external
FROM kept JOIN long USING (i);
-- rank, range and its count
CREATE TABLE numbers AS SELECT unnest('{-9223372036854775808,-1,0,1,300,30020,65534,65535,65536,65537,131072,2147483647,2147483648,4294967294,4294967295,4294967296,9223372036854775807}'::int8[]) AS x;
SELECT count(*), count(*) FILTER (WHERE idset_rank(s, x) <> (SELECT count(*) FROM unnest(a) e WHERE e <= x)) AS rank FROM long, numbers WHERE cardinality(a) < 12000;
SELECT count(*), count(*) FILTER (WHERE idset_range(s, n.x, m.x)::int8[] <> e) AS range, count(*) FILTER (WHERE idset_range_count(s, n.x, m.x) <> cardinality(e)) AS range_count
FROM (SELECT * FROM long WHERE cardinality(a) < 1000 OR i = 15) l, numbers n, numbers m, LATERAL (SELECT ARRAY(SELECT e FROM unnest(a) e WHERE e >= n.x AND e < m.x ORDER BY 1)) r(e);
SELECT idset_range('{1,3,5}', 1, 5), idset_range('{1,3,5}', 5, 1), idset_range('{1,70000}', 0, 65536), pg_column_size(idset_range('{1,70000}', 0, 65536)) = pg_column_size('{1}'::idset) AS narrow,
	   idset_rank('{1,3,5}', 3), idset_nth('{1,3,5}', idset_rank('{1,3,5}', 3)), idset_range_count('{1,3,5}', 2, 6);
-- shift: what leaves the ids is dropped
SELECT count(*), count(*) FILTER (WHERE idset_shift(s, y)::int8[] <> ARRAY(SELECT e + y FROM unnest(a) e WHERE e + y BETWEEN 0 AND 4294967295 ORDER BY 1)) AS shift
FROM long, unnest('{0,1,-1,5,-300,65535,65536,-65536,4294967295,-4294967295,4294967296,-4294967296,2147483648}'::int8[]) y;
SELECT idset_shift('{1,65535}', 1), idset_shift('{0,65536}', -1), idset_shift('{1,4294967295}', 1), idset_shift('{1}', 9223372036854775807), idset_shift('{1}', -9223372036854775808),
	   pg_column_size(idset_shift('{65536}', -1)) = pg_column_size('{1}'::idset) AS narrow;
-- aggregates
SELECT idset_symmetric_difference(s)::int8[] = ARRAY(SELECT x FROM long, unnest(a) x WHERE i IN (3, 4, 7, 12, 13, 15) GROUP BY x HAVING count(*) % 2 = 1 ORDER BY 1) AS odd FROM long WHERE i IN (3, 4, 7, 12, 13, 15);
SELECT idset_symmetric_difference(s) FROM (VALUES ('{1,2}'::idset), (NULL), ('{2,3}'), ('{3,4}')) v(s);
SELECT idset_symmetric_difference(s) FROM (SELECT '{1}'::idset AS s WHERE false) v;
SELECT idset_intersection(s) FROM (VALUES ('{1,2}'::idset), ('{3}'), ('{1,2}'), (NULL), ('{4,70000}')) v(s);
SELECT idset_intersection(s)::int8[] = ARRAY(SELECT x FROM long, unnest(a) x WHERE i IN (2, 3, 5, 6, 17) GROUP BY x HAVING count(*) = 5 ORDER BY 1) AS common FROM long WHERE i IN (2, 3, 5, 6, 17);
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
CREATE TABLE many AS SELECT i, ARRAY[i % 977, i % 31 + 65530, i % 7]::idset AS s FROM generate_series(1, 20000) i;
ANALYZE many;
EXPLAIN (COSTS OFF) SELECT idset_symmetric_difference(s) FROM many;
SELECT idset_symmetric_difference(s)::int8[] = ARRAY(SELECT x FROM many, unnest(s) x GROUP BY x HAVING count(*) % 2 = 1 ORDER BY 1) AS parallel FROM many;
-- int2[]
SELECT '{1,32767}'::idset::int2[], '{}'::idset::int2[], s::int2[]::idset = s AS back FROM (VALUES ('{3,1,2}'::idset)) v(s);
SELECT '{1,32768}'::idset::int2[];
DROP TABLE long, merged, kept, numbers, many;
