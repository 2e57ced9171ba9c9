-- Type idset: input and output, casts, operators, aggregates.
-- input and output
SELECT '{50000,3,17,3}'::idset, '[3,17]'::idset, '{}'::idset, '[]'::idset, ' { 1 , 2 } '::idset, '{0,65535}'::idset, '{+7}'::idset;
SELECT '{'::idset;
SELECT ''::idset;
SELECT '{1,2'::idset;
SELECT '{1,2]'::idset;
SELECT '{1,,2}'::idset;
SELECT '{1,2,}'::idset;
SELECT '{1 2}'::idset;
SELECT '{1.5}'::idset;
SELECT '{a}'::idset;
SELECT '{NULL}'::idset;
SELECT '{{1}}'::idset;
SELECT '{1} x'::idset;
SELECT '1,2'::idset;
SELECT '{-1}'::idset;
SELECT '{4294967296}'::idset;
SELECT '{99999999999999999999999999}'::idset;
-- binary format
CREATE TEMP TABLE io (id int, s idset);
INSERT INTO io VALUES (1, '{}'), (2, '{0}'), (3, '{65535}'), (4, '{0,1,65535}'), (5, NULL);
INSERT INTO io SELECT 6, idset_agg(i) FROM generate_series(0, 65535) i;
INSERT INTO io SELECT 7, idset_agg(i * 2) FROM generate_series(0, 1500) i;
SELECT idset_send('{1,258}');
SELECT id, cardinality(s), length(idset_send(s)) FROM io ORDER BY id;
SELECT (SELECT s FROM io WHERE id = 6) = '{0}'::idset, cardinality((SELECT s FROM io WHERE id = 6) - 5) AS without_one;
-- toasted values come back whole
SELECT s = (SELECT idset_agg(i * 2) FROM generate_series(0, 1500) i) FROM io WHERE id = 7;
-- casts
SELECT ARRAY[3,1,2,1]::idset, ARRAY[3,1]::int2[]::idset, ARRAY[3,1]::int8[]::idset, ARRAY[]::int[]::idset;
SELECT '{3,1}'::idset::int4[], '{3,1}'::idset::int8[], '{}'::idset::int4[], '{3,1}'::idset::json;
SELECT ARRAY[1,NULL]::int4[]::idset;
SELECT ARRAY[-1]::int2[]::idset;
SELECT ARRAY[65536]::idset, ARRAY[4294967295]::idset, '{65536,2147483647}'::idset::int4[], '{2147483648}'::idset::int8[], '{4294967295,1}'::idset::json;
SELECT '{1,2147483648}'::idset::int4[];
SELECT ARRAY[9000000000]::idset;
SELECT ARRAY[[1,2],[3,4]]::idset;
INSERT INTO io VALUES (8, ARRAY[9,8]);  -- by assignment
SELECT s FROM io WHERE id = 8;
-- comparison, sorting, grouping, hashing
SELECT '{1,2}'::idset = '{2,1}', '{1}'::idset <> '{1}', '{1}'::idset < '{1,2}', '{1,2}'::idset < '{2}', '{2}'::idset >= '{1,9}',
	   '{}'::idset <= '{}', '{}'::idset > '{}';
SELECT DISTINCT s FROM (VALUES ('{1,2}'::idset), ('{2,1}'), ('{}'), ('{}'), (NULL), ('{1}')) v(s) ORDER BY s;
SELECT s, count(*) FROM (VALUES ('{1,2}'::idset), ('{2,1}'), ('{}'), ('{1}')) v(s) GROUP BY s ORDER BY s;
SELECT count(*) FROM (SELECT s FROM io UNION SELECT s FROM io) u;
CREATE TEMP TABLE uniq (s idset UNIQUE);
INSERT INTO uniq VALUES ('{1,2}');
INSERT INTO uniq VALUES ('{2,1}');
-- operators
SELECT '{1,2}'::idset && '{2,3}', '{1}'::idset && '{2}', '{}'::idset && '{}', '{1,2,3}'::idset @> '{1,3}', '{1}'::idset @> '{1,2}',
	   '{}'::idset <@ '{1}', '{1,2}'::idset & '{2,3}', '{1,2}'::idset | '{2,3}', '{1,2}'::idset - '{2,3}'::idset;
SELECT '{1,3}'::idset | 2, '{1,3}'::idset | 3, '{}'::idset | 65535, '{1,3}'::idset - 3, '{1,3}'::idset - 2, '{1,3}'::idset - 70000,
	   '{1,3}'::idset @> 3, '{1,3}'::idset @> 2, '{1,3}'::idset @> (-1), 3 <@ '{1,3}'::idset;
SELECT '{1}'::idset | 4294967296;
SELECT cardinality('{}'::idset), cardinality('{5,6,7}'::idset), ARRAY(SELECT unnest('{7,5}'::idset));
-- against arrays
CREATE TEMP TABLE pairs AS
SELECT i, a, b, a::idset AS sa, b::idset AS sb
FROM (SELECT i, ARRAY(SELECT DISTINCT (i * 31 + j * j * (1 + i % 7)) % 50 FROM generate_series(1, i % 23) j) AS a,
			 ARRAY(SELECT DISTINCT (i * 17 + j * (3 + i % 5)) % 50 FROM generate_series(1, (i * 7) % 40) j) AS b
	  FROM generate_series(1, 500) i) s;
SELECT count(*) FILTER (WHERE (sa && sb) <> (a && b)) AS overlaps,
	   count(*) FILTER (WHERE (sa @> sb) <> (a @> b)) AS contains,
	   count(*) FILTER (WHERE (sa <@ sb) <> (a <@ b)) AS contained,
	   count(*) FILTER (WHERE (sa & sb)::int[] <> ARRAY(SELECT unnest(a) INTERSECT SELECT unnest(b) ORDER BY 1)) AS intersect,
	   count(*) FILTER (WHERE (sa | sb)::int[] <> ARRAY(SELECT unnest(a) UNION SELECT unnest(b) ORDER BY 1)) AS unite,
	   count(*) FILTER (WHERE (sa - sb)::int[] <> ARRAY(SELECT unnest(a) EXCEPT SELECT unnest(b) ORDER BY 1)) AS subtract,
	   count(*) FILTER (WHERE (sa = sb) <> (ARRAY(SELECT unnest(a) ORDER BY 1) = ARRAY(SELECT unnest(b) ORDER BY 1))) AS equal,
	   count(*) FILTER (WHERE (sa < sb) <> (ARRAY(SELECT unnest(a) ORDER BY 1) < ARRAY(SELECT unnest(b) ORDER BY 1))) AS less,
	   count(*) AS pairs
FROM pairs;
-- measures, by their formulas
SELECT count(*) FILTER (WHERE braun_blanquet_similarity(sa, sb) IS DISTINCT FROM CASE WHEN greatest(x, y) = 0 THEN 0 ELSE n::float8 / greatest(x, y) END) AS bb,
	   count(*) FILTER (WHERE jaccard_similarity(sa, sb) IS DISTINCT FROM CASE WHEN x + y = 0 THEN 0 ELSE n::float8 / (x + y - n) END) AS jaccard,
	   count(*) FILTER (WHERE cosine_similarity(sa, sb) IS DISTINCT FROM CASE WHEN x * y = 0 THEN 0 ELSE sqrt(n::float8 * n / (x * y)) END) AS cosine,
	   count(*) FILTER (WHERE dice_similarity(sa, sb) IS DISTINCT FROM CASE WHEN x + y = 0 THEN 0 ELSE 2 * n::float8 / (x + y) END) AS dice,
	   count(*) FILTER (WHERE overlap_similarity(sa, sb) IS DISTINCT FROM CASE WHEN least(x, y) = 0 THEN 0 ELSE n::float8 / least(x, y) END) AS overlap,
	   count(*) FILTER (WHERE containment_similarity(sa, sb) IS DISTINCT FROM CASE WHEN x = 0 THEN 0 ELSE n::float8 / x END) AS containment,
	   count(*) FILTER (WHERE intersection_count(sa, sb) <> n) AS intersection,
	   count(*) FILTER (WHERE hamming_distance(sa, sb) <> x + y - 2 * n) AS hamming,
	   count(*) FILTER (WHERE (sa <-> sb) IS DISTINCT FROM CASE WHEN greatest(x, y) = 0 THEN 1 ELSE (greatest(x, y) - n)::float8 / greatest(x, y) END) AS bb_distance,
	   count(*) FILTER (WHERE (sa <%> sb) IS DISTINCT FROM CASE WHEN x + y = 0 THEN 1 ELSE (x + y - 2 * n)::float8 / (x + y - n) END) AS jaccard_distance,
	   count(*) FILTER (WHERE (sa <=> sb) IS DISTINCT FROM 1 - cosine_similarity(sa, sb)) AS cosine_distance,
	   count(*) FILTER (WHERE (sa <#> sb) IS DISTINCT FROM (-n)::float8) AS negative_intersection,
	   count(*) FILTER (WHERE (sa <~> sb) IS DISTINCT FROM (x + y - 2 * n)::float8) AS hamming_operator
FROM (SELECT sa, sb, cardinality(a) AS x, cardinality(b) AS y, cardinality(ARRAY(SELECT unnest(a) INTERSECT SELECT unnest(b))) AS n FROM pairs) p;
SELECT '{1,2,3}'::idset <#> '{9}', '{1}'::idset <~> '{1}', '{}'::idset <-> '{}', '{}'::idset <%> '{}', '{}'::idset <=> '{}';
SELECT '{1,2,3,4,5,6,7,8,9,10}'::idset <-> '{1,2,3,4,5,6,7}' <= 0.3;
-- aggregates
SELECT idset_agg(x) FROM (VALUES (3), (1), (NULL), (3)) v(x);
SELECT idset_agg(x) FROM (SELECT 1 AS x WHERE false) v;
SELECT idset_agg(x) FROM (VALUES (NULL::int), (NULL)) v(x);
SELECT idset_agg(x) FROM (VALUES (1), (-70000)) v(x);
SELECT idset_union(s), idset_intersection(s) FROM (VALUES ('{1,2}'::idset), (NULL), ('{2,3}')) v(s);
SELECT idset_union(s), idset_intersection(s) FROM (SELECT '{1}'::idset AS s WHERE false) v;
SELECT idset_union(s) FROM (VALUES ('{}'::idset)) v(s);
SELECT cardinality(idset_union(sa)) = (SELECT count(DISTINCT x) FROM pairs, unnest(a) x) FROM pairs;
CREATE TABLE agg_src AS SELECT i % 100 AS g, (i * 7919) % 65536 AS x FROM generate_series(1, 200000) i;
ANALYZE agg_src;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT idset_agg(x) FROM agg_src;
SELECT md5(idset_agg(x)::text) = md5((SELECT ARRAY(SELECT DISTINCT x FROM agg_src ORDER BY 1)::text)) AS parallel_agg FROM agg_src;
SELECT count(*) AS groups, sum(cardinality(s)) = (SELECT count(DISTINCT (g, x)) FROM agg_src) AS ids
FROM (SELECT g, idset_agg(x) AS s FROM agg_src GROUP BY g) a;
SELECT idset_union(s) = (SELECT idset_agg(x) FROM agg_src) AS parallel_union FROM (SELECT g, idset_agg(x) AS s FROM agg_src GROUP BY g) a;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
DROP TABLE agg_src;
-- every object of the extension has a comment
SELECT pg_describe_object(classid, objid, 0) FROM pg_depend d
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpuvec')
  AND classid <> 'pg_opfamily'::regclass
  AND NOT EXISTS (SELECT FROM pg_depend i WHERE i.classid = d.classid AND i.objid = d.objid AND i.deptype = 'i')
  AND obj_description(objid, classid::regclass::text) IS NULL
ORDER BY 1;
