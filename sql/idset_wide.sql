-- Sets of ids above 65535 beside others: whatever two sets have in common is counted on arrays of int8.
SELECT setseed(0.17);
CREATE FUNCTION some_id(kind int) RETURNS int8 LANGUAGE sql VOLATILE AS $$
	SELECT (ARRAY[0, 65530, 2147483640, 4294967280, 70000])[1 + floor(random() * CASE WHEN kind = 0 THEN 1 WHEN kind = 1 THEN 2 ELSE 5 END)::int] + floor(random() * CASE WHEN kind = 0 THEN 40 WHEN kind = 1 THEN 6 ELSE 15 END)::int8 $$;
-- kind 0 and 1: ids below 65536; 2: any; 3: above 65535; lengths differ so that sets are merged or searched
CREATE TABLE mixed AS SELECT i, kind, ARRAY(SELECT DISTINCT x FROM (SELECT CASE WHEN kind = 3 THEN some_id(2) | 65536 ELSE some_id(kind) END AS x FROM generate_series(1, n)) y ORDER BY 1) AS a
FROM (SELECT i, i % 4 AS kind, (ARRAY[0, 1, 2, 5, 12, 40, 120])[1 + (i / 4) % 7] AS n FROM generate_series(1, 140) i) g;
INSERT INTO mixed SELECT 200 + i, 2, ARRAY(SELECT j * CASE i WHEN 1 THEN 7 WHEN 2 THEN 65537 ELSE 9 END + CASE i WHEN 3 THEN 65000 ELSE 0 END FROM generate_series(0, 4000) j) FROM generate_series(1, 3) i;
INSERT INTO mixed VALUES (300, 2, '{65535}'), (301, 2, '{65536}'), (302, 2, '{65535,65536}'), (303, 2, '{2147483647}'), (304, 2, '{2147483648}'), (305, 2, '{4294967295}'),
	(306, 2, '{0,65535,65536,2147483647,2147483648,4294967295}'), (307, 2, '{0}');
ALTER TABLE mixed ADD COLUMN s idset;
UPDATE mixed SET s = a::idset;
SELECT count(*) > 100 AS many, count(*) FILTER (WHERE s @> 0) > 10 AS narrow, bool_or(65535 < ANY (a)) AS wide, count(*) FILTER (WHERE s::int8[] <> a) AS casts,
	   count(*) FILTER (WHERE s::text <> a::text) AS output, count(*) FILTER (WHERE a::text::idset <> s) AS input, count(*) FILTER (WHERE s::json::text <> array_to_json(a)::text) AS json,
	   count(*) FILTER (WHERE cardinality(s) <> cardinality(a)) AS cardinality, count(*) FILTER (WHERE ARRAY(SELECT unnest(s)) <> a) AS unnest,
	   count(*) FILTER (WHERE (ARRAY(SELECT x FROM unnest(a) x ORDER BY -x) || a)::idset <> s) AS any_order,
	   count(*) FILTER (WHERE length(idset_send(s)) <> 4 + cardinality(a) * CASE WHEN 65535 < ANY (a) THEN 4 ELSE 2 END) AS send
FROM mixed;
-- to int4[] only what fits
SELECT s::int4[] FROM mixed WHERE i = 303;
SELECT s::int4[] FROM mixed WHERE i = 304;
SELECT s::int4[] FROM mixed WHERE i = 306;
-- a set has the same bytes, however it came about
SELECT count(*) FILTER (WHERE (s | 65536) - 65536 <> s - 65536 OR pg_column_size((s | 4294967295) - 4294967295) <> pg_column_size(s - 4294967295)) AS bytes,
	   count(*) FILTER (WHERE hash_idset((s | 70000) - 70000) <> hash_idset(s - 70000) OR hash_idset_extended((s | 70000) - 70000, 7) <> hash_idset_extended(s - 70000, 7)) AS hashes
FROM mixed;
-- hashes of sets of ids below 65536 are what they were
SELECT hash_idset('{}') = hashtext('') AS empty, hash_idset('{3,17,255,256,1000,32768,50000,65535}') = uuid_hash('03001100-ff00-0001-e803-008050c3ffff') AS eight,
	hash_idset_extended('{3,17,255,256,1000,32768,50000,65535}', 1) = uuid_hash_extended('03001100-ff00-0001-e803-008050c3ffff', 1) AS extended;
-- all pairs
CREATE TABLE pairs AS SELECT x.i, y.i AS j, x.a, y.a AS b, x.s AS sa, y.s AS sb, cardinality(x.a) AS na, cardinality(y.a) AS nb,
	ARRAY(SELECT unnest(x.a) INTERSECT SELECT unnest(y.a) ORDER BY 1) AS common FROM mixed x, mixed y;
SELECT count(*) AS pairs, count(*) FILTER (WHERE cardinality(common) > 0) > 5000 AS overlapping, count(*) FILTER (WHERE (sa && sb) <> (common <> '{}')) AS overlaps,
	   count(*) FILTER (WHERE (sa @> sb) <> (common = b)) AS contains, count(*) FILTER (WHERE (sa <@ sb) <> (common = a)) AS contained,
	   count(*) FILTER (WHERE (sa & sb)::int8[] <> common) AS intersection, count(*) FILTER (WHERE intersection_count(sa, sb) <> cardinality(common)) AS count,
	   count(*) FILTER (WHERE hamming_distance(sa, sb) <> na + nb - 2 * cardinality(common)) AS hamming,
	   count(*) FILTER (WHERE (sa = sb) <> (a = b) OR (sa <> sb) <> (a <> b)) AS equal,
	   count(*) FILTER (WHERE (sa < sb) <> (a < b) OR (sa <= sb) <> (a <= b) OR (sa > sb) <> (a > b) OR (sa >= sb) <> (a >= b) OR sign(idset_cmp(sa, sb)) <> CASE WHEN a < b THEN -1 WHEN a > b THEN 1 ELSE 0 END) AS sorting,
	   count(*) FILTER (WHERE sa = sb AND hash_idset(sa) <> hash_idset(sb)) AS hash FROM pairs;
SELECT count(*) FILTER (WHERE (sa | sb)::int8[] <> ARRAY(SELECT unnest(a) UNION SELECT unnest(b) ORDER BY 1)) AS "union",
	   count(*) FILTER (WHERE (sa - sb)::int8[] <> ARRAY(SELECT unnest(a) EXCEPT SELECT unnest(b) ORDER BY 1)) AS difference FROM pairs WHERE (i + j) % 3 = 0;
SELECT count(*) FILTER (WHERE braun_blanquet_similarity(sa, sb) <> CASE WHEN m = 0 THEN 0 ELSE n::float8 / m END) AS bb,
	   count(*) FILTER (WHERE jaccard_similarity(sa, sb) <> CASE WHEN na + nb = 0 THEN 0 ELSE n::float8 / (na + nb - n) END) AS jaccard,
	   count(*) FILTER (WHERE cosine_similarity(sa, sb) <> CASE WHEN na * nb = 0 THEN 0 ELSE sqrt(n::float8 * n / (na * nb)) END) AS cosine,
	   count(*) FILTER (WHERE dice_similarity(sa, sb) <> CASE WHEN na + nb = 0 THEN 0 ELSE 2 * n::float8 / (na + nb) END) AS dice,
	   count(*) FILTER (WHERE overlap_similarity(sa, sb) <> CASE WHEN least(na, nb) = 0 THEN 0 ELSE n::float8 / least(na, nb) END) AS overlap,
	   count(*) FILTER (WHERE containment_similarity(sa, sb) <> CASE WHEN na = 0 THEN 0 ELSE n::float8 / na END) AS containment,
	   count(*) FILTER (WHERE (sa <-> sb) <> CASE WHEN m = 0 THEN 1 ELSE (m - n)::float8 / m END) AS d_bb,
	   count(*) FILTER (WHERE (sa <%> sb) <> CASE WHEN na + nb = 0 THEN 1 ELSE (na + nb - 2 * n)::float8 / (na + nb - n) END) AS d_jaccard,
	   count(*) FILTER (WHERE (sa <=> sb) <> 1 - cosine_similarity(sa, sb)) AS d_cosine,
	   count(*) FILTER (WHERE (sa <#> sb) <> -n OR (sa <~> sb) <> na + nb - 2 * n) AS d_counts,
	   count(*) FILTER (WHERE (sa <<->> (sb, 0.3, 'jaccard')) <> (jaccard_similarity(sa, sb) >= 0.3)) AS threshold,
	   count(*) FILTER (WHERE (sa <<->> (sb, 0.6, 'containment')) <> (containment_similarity(sb, sa) >= 0.6)) AS threshold_containment
FROM (SELECT *, cardinality(common) AS n, greatest(na, nb) AS m FROM pairs) p;
-- single ids
SELECT count(*) FILTER (WHERE (s | x)::int8[] <> ARRAY(SELECT unnest(a) UNION SELECT x ORDER BY 1)) AS add, count(*) FILTER (WHERE (s - x)::int8[] <> ARRAY(SELECT unnest(a) EXCEPT SELECT x ORDER BY 1)) AS remove,
	   count(*) FILTER (WHERE (s @> x) <> (x = ANY (a)) OR (x <@ s) <> (x = ANY (a))) AS has
FROM mixed, unnest('{0,7,65535,65536,65537,70000,2147483647,2147483648,4294967295}'::int8[]) x;
SELECT count(*) FROM mixed WHERE s @> 4294967296 OR s @> (-1) OR s @> 9223372036854775807;
-- aggregates, in one process and in several
SELECT idset_agg(x)::int8[] = ARRAY(SELECT DISTINCT unnest(a) FROM mixed ORDER BY 1) AS agg FROM (SELECT unnest(a) AS x FROM mixed) y;
SELECT idset_union(s)::int8[] = ARRAY(SELECT DISTINCT unnest(a) FROM mixed ORDER BY 1) AS "union" FROM mixed;
SELECT idset_intersection(s | 65536 | 7) AS intersection FROM mixed WHERE kind <> 0;
SELECT count(*) AS groups, count(*) FILTER (WHERE u <> v) AS wrong FROM (SELECT idset_union(s) AS u, i % 13 AS g FROM mixed GROUP BY 2) x JOIN (SELECT idset_agg(id) AS v, i % 13 AS g FROM mixed, unnest(a) id GROUP BY 2) y USING (g);
SELECT idset_agg(x) FROM (VALUES (NULL::int8), (4294967295), (65536), (65535), (65536)) v(x);
-- any number of narrow ids and of wide ones
SELECT count(*) AS sets, count(*) FILTER (WHERE s::int8[] <> a) AS wrong
FROM generate_series(0, 3) narrow, generate_series(0, 3) wide, LATERAL (SELECT ARRAY(SELECT 10 * narrow + i FROM generate_series(1, narrow) i UNION ALL SELECT 4294967295 - 10 * wide - i FROM generate_series(wide, 1, -1) i)::int8[] AS a) x,
	LATERAL (SELECT coalesce(idset_agg(id), '{}') AS s FROM unnest(a) id) y;
CREATE TABLE many AS SELECT i, (i::int8 * 2654435761) % 4294967296 AS x FROM generate_series(1, 60000) i;
ANALYZE many;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT cardinality(idset_agg(x)) AS n, md5(idset_agg(x)::text) = md5(ARRAY(SELECT DISTINCT x FROM many ORDER BY 1)::text) AS same, idset_agg(x) = (SELECT array_agg(x)::idset FROM many) AS cast FROM many;
SELECT md5(idset_union(ARRAY[x, x / 65536, i]::idset)::text) = md5(ARRAY(SELECT DISTINCT unnest(ARRAY[x, x / 65536, i]) FROM many WHERE i <= 20000 ORDER BY 1)::text) AS same FROM many WHERE i <= 20000;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
-- at most 65,536 ids
CREATE FUNCTION state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END$$;
SELECT cardinality(idset_agg(i::int8 * 65535)) AS most FROM generate_series(0, 65535) i;
SELECT statement, state_of(statement) FROM unnest(ARRAY[
	'SELECT idset_agg(i) FROM generate_series(0, 65536) i',
	'SELECT idset_agg(i * 60000::int8) FROM generate_series(1, 65537) i, generate_series(1, 2)',
	'SELECT array_agg(i)::int4[]::idset FROM generate_series(0, 65536) i',
	'SELECT array_agg(i)::int4[]::idset FROM generate_series(65536, 0, -1) i',
	'SELECT (''{'' || string_agg(i::text, '','') || ''}'')::idset FROM generate_series(0, 65536) i',
	'SELECT idset_agg(i) | 65536 FROM generate_series(0, 65535) i',
	'SELECT (idset_agg(i) | 65535) - 65536 FROM generate_series(0, 65535) i',
	'SELECT idset_agg(i) | ''{1,65536}'' FROM generate_series(0, 65535) i',
	'SELECT idset_union(s) FROM (SELECT idset_agg(i) AS s FROM generate_series(0, 65535) i UNION ALL SELECT ''{70000}'') x']) WITH ORDINALITY u(statement, n) ORDER BY n;
-- sorting, grouping, unique indexes
SELECT array_agg(s ORDER BY s) = (SELECT array_agg(a::idset ORDER BY a) FROM mixed) AS sorted, count(DISTINCT s) = count(DISTINCT a) AS distinct FROM mixed;
CREATE TABLE uniq (s idset UNIQUE);
INSERT INTO uniq SELECT s FROM mixed WHERE cardinality(a) < 500 ON CONFLICT DO NOTHING;
SELECT count(*) = (SELECT count(DISTINCT a) FROM mixed WHERE cardinality(a) < 500) AS unique FROM uniq;
INSERT INTO uniq VALUES ('{65535,65536}');
-- statistics: estimates are those of a table with other numbers in place of the ids above 65535
CREATE TABLE stats AS SELECT i, CASE WHEN i % 3 = 0 THEN ARRAY[i % 5, 10 + i % 50] ELSE ARRAY[i % 5, 4294967290 + i % 4, 100000 + i] END::idset AS s FROM generate_series(1, 20000) i;
CREATE TABLE twin AS SELECT i, CASE WHEN i % 3 = 0 THEN ARRAY[i % 5, 10 + i % 50] ELSE ARRAY[i % 5, 60090 + i % 4, 1000 + i] END::idset AS s FROM stats;
ANALYZE stats, twin;
SELECT x, (SELECT x = ANY (most_common_elems::text::int8[]) FROM pg_stats WHERE tablename = 'stats' AND attname = 's') AS listed FROM unnest('{0,4,10,59,4294967290,4294967293,4294967295,65536}'::int8[]) x;
CREATE FUNCTION planned(relation text, condition text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE format('EXPLAIN SELECT FROM %I WHERE %s', relation, condition) INTO line;
	RETURN substring(line FROM 'rows=(\d+)');
END$$;
SELECT condition, planned('stats', condition) = planned('twin', replace(condition, '42949672', '600')) AS same, planned('stats', condition) < 20000 AS less
FROM unnest(ARRAY['s @> 3', 's @> 4294967291', 's @> 4294967295', 's @> 4294967299', 's && ''{4294967290,4294967291}''', 's @> ''{1,4294967292}''', 's && ''{10,4294967290}''',
	's <@ ''{0,1,2,3,4,10,11,12,13,14,4294967290}''', 's = ''{3,10}''', 's <<->> (''{3,4294967290,5}'', 0.5, ''jaccard'')']) WITH ORDINALITY u(condition, n) ORDER BY n;
SELECT planned('stats', 's @> 4294967291') BETWEEN 3000 AND 3700 AS near;
-- more different ids above 65535 than are counted at a time
CREATE TABLE rare AS SELECT (SELECT idset_agg(1000000 + (i * 900 + j)) | 4294967295 | 7 FROM generate_series(1, 900) j) AS s FROM generate_series(1, 1300) i;
ANALYZE rare;
SELECT cardinality(e) BETWEEN 2 AND 1000 AS listed, f[array_position(e, 7::int8)] AS of_7, f[array_position(e, 4294967295)] AS of_last
FROM (SELECT most_common_elems::text::int8[] AS e, most_common_elem_freqs AS f FROM pg_stats WHERE tablename = 'rare' AND attname = 's') x;
DROP TABLE mixed, pairs, many, uniq, stats, twin, rare;
DROP FUNCTION some_id, state_of, planned;
