-- Sets of every length against arrays; stored short, long and out of line; indexes, views, COPY, dump, parallel aggregates.
-- lengths 0 to 65536: whatever two sets have in common is counted by joining rows
CREATE TABLE lengths AS
SELECT row_number() OVER (ORDER BY n, step) AS i, n, step, start
FROM (VALUES (0, 1, 0), (1, 1, 0), (1, 1, 65535), (2, 65535, 0), (3, 7, 5), (8, 3, 1), (16, 1, 65520), (17, 5, 0), (64, 1021, 3), (255, 257, 9), (256, 257, 9), (257, 3, 100),
	(2047, 11, 40000), (2048, 31, 7), (2049, 31, 7), (20000, 3, 1), (32768, 2, 1), (65535, 1, 1), (65536, 1, 0)) v(n, step, start);
CREATE TABLE ids AS SELECT i, ((start + k::int8 * step) % 65536)::int4 AS id FROM lengths, generate_series(0, n - 1) k;
ANALYZE ids;
CREATE TABLE sets AS SELECT l.i, l.n, a.ids, a.ids::idset AS s FROM lengths l, LATERAL (SELECT ARRAY(SELECT id FROM ids WHERE ids.i = l.i) AS ids) a;
SELECT count(*) AS sets, max(n), bool_and(cardinality(s) = n) AS cardinality,
	   bool_and(s::int4[] = ARRAY(SELECT id FROM ids WHERE ids.i = sets.i ORDER BY id)) AS int4, bool_and(s::int8[]::int4[] = s::int4[]) AS int8,
	   bool_and(ARRAY(SELECT unnest(s)) = s::int8[]) AS unnest, bool_and(s::text = s::int4[]::text) AS output, bool_and(s::text::idset = s) AS input,
	   bool_and(s::json::text = replace(translate(s::text, '{}', '[]'), ' ', '')) AS json, bool_and(s::json::text::idset = s) AS json_input,
	   bool_and((SELECT idset_agg(id) FROM ids WHERE ids.i = sets.i) IS NOT DISTINCT FROM nullif(s, '{}')) AS agg
FROM sets;
CREATE TABLE common AS
SELECT a.i, b.i AS j, a.s AS sa, b.s AS sb, a.n AS x, b.n AS y, coalesce(c.n, 0) AS n
FROM sets a CROSS JOIN sets b LEFT JOIN (SELECT a.i, b.i AS j, count(*)::int4 AS n FROM ids a JOIN ids b USING (id) GROUP BY 1, 2) c ON (c.i, c.j) = (a.i, b.i);
SELECT count(*) AS pairs, count(*) FILTER (WHERE intersection_count(sa, sb) <> n) AS intersection,
	   count(*) FILTER (WHERE hamming_distance(sa, sb) <> x + y - 2 * n) AS hamming,
	   count(*) FILTER (WHERE (sa && sb) <> (n > 0)) AS overlaps, count(*) FILTER (WHERE (sa @> sb) <> (n = y)) AS contains,
	   count(*) FILTER (WHERE (sa <@ sb) <> (n = x)) AS contained, count(*) FILTER (WHERE (sa = sb) <> (n = x AND n = y)) AS equal,
	   count(*) FILTER (WHERE cardinality(sa & sb) <> n OR NOT sa @> (sa & sb) OR NOT sb @> (sa & sb)) AS intersect,
	   count(*) FILTER (WHERE cardinality(sa | sb) <> x + y - n OR NOT (sa | sb) @> sa OR NOT (sa | sb) @> sb) AS unite,
	   count(*) FILTER (WHERE cardinality(sa - sb) <> x - n OR NOT sa @> (sa - sb) OR (sa - sb) && sb) AS subtract,
	   count(*) FILTER (WHERE braun_blanquet_similarity(sa, sb) <> coalesce(n / nullif(greatest(x, y), 0)::float8, 0)) AS braun_blanquet,
	   count(*) FILTER (WHERE (sa <%> sb) <> coalesce((x + y - 2 * n) / nullif(x + y - n, 0)::float8, 1)) AS jaccard_distance,
	   count(*) FILTER (WHERE containment_similarity(sa, sb) <> coalesce(n / nullif(x, 0)::float8, 0)) AS containment,
	   count(*) FILTER (WHERE cosine_similarity(sa, sb) <> coalesce(sqrt(n::float8 * n / nullif(x::float8 * y, 0)), 0)) AS cosine,
	   count(*) FILTER (WHERE CASE WHEN sa < sb THEN -1 WHEN sa > sb THEN 1 ELSE 0 END <>
							  CASE WHEN sa::int4[] < sb::int4[] THEN -1 WHEN sa::int4[] > sb::int4[] THEN 1 ELSE 0 END) AS sorting
FROM common;
-- one id added to and removed from each set
SELECT count(*) AS tried, count(*) FILTER (WHERE (s | x::int8)::int4[] <> ARRAY(SELECT unnest(ids) UNION SELECT x ORDER BY 1)) AS add,
	   count(*) FILTER (WHERE (s - x::int8)::int4[] <> ARRAY(SELECT unnest(ids) EXCEPT SELECT x ORDER BY 1)) AS remove,
	   count(*) FILTER (WHERE (s @> x::int8) <> (x = ANY (ids)) OR (x::int8 <@ s) <> (x = ANY (ids))) AS contains
FROM sets, unnest(ARRAY[0, 1, 9, 32767, 32768, 65534, 65535]) x WHERE n < 20000;
-- nulls in, nulls out
SELECT count(*) FILTER (WHERE v IS NOT NULL) FROM (SELECT NULL::idset AS e, '{1}'::idset AS s) t, LATERAL unnest(ARRAY[(e = s)::text, (s && e)::text, (s @> e)::text, (s & e)::text,
	(e | s)::text, (s - e)::text, (s | NULL::int8)::text, (s - NULL::int8)::text, (s @> NULL::int8)::text, (s <-> e)::text, (e <%> s)::text, (s <=> e)::text, (s <#> e)::text, (s <~> e)::text,
	cardinality(e)::text, e::int4[]::text, e::json::text, jaccard_similarity(e, s)::text, dice_similarity(e, s)::text, overlap_similarity(s, e)::text, NULL::int4[]::idset::text]) v;
-- short headers leave ids unaligned: every length and offset
CREATE TABLE narrow (pad text, s idset, pad2 "char", s2 idset, i int4);
INSERT INTO narrow SELECT repeat('x', i % 9), (SELECT coalesce(idset_agg(k * 300 + i), '{}') FROM generate_series(1, i % 70) k), 'y', (SELECT idset_agg(k) FROM generate_series(i, 65535, 700) k), i
	FROM generate_series(0, 499) i;
SELECT count(*), count(*) FILTER (WHERE pg_column_size(s) = 1 + 2 * cardinality(s)) AS short,
	   bool_and(s::int4[] = ARRAY(SELECT k * 300 + i FROM generate_series(1, i % 70) k)) AS same, bool_and(s2::int4[] = ARRAY(SELECT generate_series(i, 65535, 700))) AS same2,
	   bool_and(s = s::text::idset AND s2 = s2::text::idset) AS equal, bool_and(intersection_count(s, s2) = cardinality(ARRAY(SELECT unnest(s) INTERSECT SELECT unnest(s2)))) AS common
FROM narrow;
-- long sets go out of line, uncompressed
SELECT typstorage, typalign, typlen FROM pg_type WHERE oid = 'idset'::regtype;
SELECT count(*) FILTER (WHERE pg_column_size(s) >= 2 * n) AS plain, count(*) AS sets, pg_relation_size(reltoastrelid) > 0 AS toasted
FROM sets, pg_class c WHERE c.oid = 'sets'::regclass GROUP BY reltoastrelid;
-- compressed by choice
ALTER TABLE sets ADD c idset;
ALTER TABLE sets ALTER c SET STORAGE main;
UPDATE sets SET c = s;
SELECT bool_and(c = s AND cardinality(c) = n AND c::text = s::text AND c @> s) FROM sets;
-- COPY, text and binary, there and back
\set dir `mktemp -d /tmp/gpuvec.XXXXXX`
\setenv GPUVEC_DIR :dir
\! chmod 777 "$GPUVEC_DIR"
\set text :dir '/text'
\set binary :dir '/binary'
INSERT INTO sets (i, s) VALUES (1000, NULL);
COPY (SELECT i, s, ARRAY[s, NULL, s] FROM sets) TO :'text';
COPY (SELECT i, s, ARRAY[s, NULL, s] FROM sets) TO :'binary' (FORMAT binary);
CREATE TABLE copied (i int8, s idset, both_ways idset[]);
COPY copied FROM :'text';
COPY copied FROM :'binary' (FORMAT binary);
SELECT count(*), count(*) FILTER (WHERE c.s IS DISTINCT FROM s.s OR c.both_ways IS DISTINCT FROM ARRAY[s.s, NULL, s.s]) AS different FROM copied c JOIN sets s USING (i);
-- indexes, constraints, partitions, generated columns
CREATE TABLE keyed (s idset PRIMARY KEY, arr int4[], g idset GENERATED ALWAYS AS (arr::idset) STORED, d idset DEFAULT '{7,3}' CHECK (d @> '{3}'), l int4 GENERATED ALWAYS AS (cardinality(s)) STORED);
INSERT INTO keyed (s, arr) SELECT ARRAY[i % 100, i / 100]::idset, ARRAY[i, i % 7] FROM generate_series(0, 5000) i WHERE i % 100 >= i / 100;
INSERT INTO keyed (s) VALUES ('{5,3}');
INSERT INTO keyed (s, d) VALUES ('{60000}', '{7}');
INSERT INTO keyed (s, arr) VALUES ('{60000}', '{-7}');
INSERT INTO keyed (s, arr) VALUES ('{7,65536,4294967295}', '{2147483647,65536}'), ('{65536}', '{65535}');
INSERT INTO keyed (s) VALUES ('{}') ON CONFLICT (s) DO NOTHING;
INSERT INTO keyed (s) VALUES ('{}') ON CONFLICT (s) DO NOTHING;
CREATE INDEX keyed_hash ON keyed USING hash (g);
ANALYZE keyed;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT l FROM keyed WHERE s = '{7,42}';
EXPLAIN (COSTS OFF) SELECT l FROM keyed WHERE g = '{0,7}';
SELECT s, g, d, l FROM keyed WHERE s = '{42,7}' OR g = '{0,7}' ORDER BY s;
EXPLAIN (COSTS OFF) SELECT s FROM keyed WHERE s >= '{7}' AND s < '{8}' ORDER BY s LIMIT 3;
SELECT s FROM keyed WHERE s >= '{7}' AND s < '{8}' ORDER BY s LIMIT 3;
SELECT array_agg(s ORDER BY s DESC) = (SELECT array_agg(s ORDER BY s::int8[] DESC) FROM keyed) AS sorted FROM keyed;
RESET enable_seqscan;
RESET enable_bitmapscan;
CREATE TABLE referring (s idset REFERENCES keyed);
INSERT INTO referring VALUES ('{42,7}');
INSERT INTO referring VALUES ('{42,7,1}');
CREATE TABLE parted (s idset) PARTITION BY HASH (s);
CREATE TABLE parted0 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 2);
INSERT INTO parted SELECT s FROM keyed;
SELECT count(DISTINCT tableoid) AS partitions, count(*) = (SELECT count(*) FROM keyed) AS complete, bool_and(satisfies_hash_partition('parted'::regclass, 3, substr(tableoid::regclass::text, 7)::int4, s)) AS placed FROM parted;
SELECT count(*) AS joined FROM keyed a JOIN parted b USING (s);
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT count(*) AS merged FROM keyed a JOIN parted b USING (s);
RESET enable_hashjoin;
RESET enable_nestloop;
SELECT hash_agg = sort_agg AS same FROM (SELECT count(*) FROM (SELECT DISTINCT s & '{1,2,3,4,5}' FROM keyed) x) h(hash_agg), (SELECT count(*) FROM (SELECT (s & '{1,2,3,4,5}')::text FROM keyed GROUP BY 1) x) t(sort_agg);
-- the classes are complete, and operators know their commutators and negators
SELECT amname, opcname, amvalidate(c.oid) FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE opcintype = 'idset'::regtype ORDER BY 1;
SELECT o.oid::regoperator AS operator, nullif(o.oprcom, 0)::regoperator AS commutator, nullif(o.oprnegate, 0)::regoperator AS negator, o.oprrest, o.oprjoin, o.oprcanmerge AS merges, o.oprcanhash AS hashes
FROM pg_operator o WHERE 'idset'::regtype IN (oprleft, oprright) ORDER BY oprname COLLATE "C", oprleft = 'idset'::regtype DESC, oprright;
SELECT count(*) AS wrong FROM pg_operator o JOIN pg_operator c ON c.oid = o.oprcom
WHERE 'idset'::regtype IN (o.oprleft, o.oprright) AND (c.oprcom <> o.oid OR c.oprleft <> o.oprright OR c.oprright <> o.oprleft);
SELECT castsource::regtype, casttarget::regtype, castcontext FROM pg_cast WHERE 'idset'::regtype IN (castsource, casttarget) ORDER BY castsource::regtype::text COLLATE "C", casttarget::regtype::text COLLATE "C";
-- aggregates: parallel, in groups, as windows
CREATE TABLE many AS SELECT i, CASE WHEN i % 11 > 0 THEN (i * 37) % 5000 END AS x, CASE WHEN i % 13 > 0 THEN ARRAY[1, 2, i % 50, i % 7, 100 + i % 900]::idset END AS s FROM generate_series(1, 60000) i;
CREATE TABLE fewer AS SELECT i, NULL::int4 AS x, CASE WHEN i = 17 THEN '{4,5}'::idset END AS s FROM generate_series(1, 20000) i;
ANALYZE many, fewer;
CREATE TABLE expected AS SELECT (SELECT ARRAY(SELECT DISTINCT x FROM many WHERE x IS NOT NULL ORDER BY 1)) AS agg, (SELECT ARRAY(SELECT DISTINCT unnest(s)::int4 FROM many ORDER BY 1)) AS uni,
	(SELECT array_agg(id ORDER BY id) FROM (SELECT unnest(s)::int4 AS id FROM many GROUP BY 1 HAVING count(*) = (SELECT count(s) FROM many)) x) AS inter;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 3;
SELECT cardinality(agg), cardinality(uni), inter FROM expected;
EXPLAIN (COSTS OFF) SELECT idset_agg(x), idset_union(s), idset_intersection(s) FROM many;
SELECT idset_agg(x)::int4[] = (SELECT agg FROM expected) AS agg, idset_union(s)::int4[] = (SELECT uni FROM expected) AS union, idset_intersection(s)::int4[] = (SELECT inter FROM expected) AS intersection FROM many;
SELECT idset_agg(x), idset_union(s), idset_intersection(s) FROM fewer;
SELECT idset_agg(x), idset_union(s), idset_intersection(s) FROM fewer WHERE i > 17;
SELECT idset_agg(x), idset_union(s), idset_intersection(s) FROM fewer WHERE i < 0;
SET max_parallel_workers_per_gather = 0;
SELECT idset_agg(x)::int4[] = (SELECT agg FROM expected) AS agg, idset_union(s)::int4[] = (SELECT uni FROM expected) AS union, idset_intersection(s)::int4[] = (SELECT inter FROM expected) AS intersection FROM many;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
SELECT count(*) AS groups, count(*) FILTER (WHERE coalesce(a::int4[], '{}') <> b) AS different
FROM (SELECT i % 3000 AS g, idset_agg(x) AS a, ARRAY(SELECT DISTINCT y FROM unnest(array_remove(array_agg(x), NULL)) y ORDER BY 1) AS b FROM many GROUP BY 1) v;
SELECT i, idset_agg(i) OVER w AS agg, idset_union(s) OVER w AS union, idset_intersection(s) OVER w AS intersection FROM (VALUES (1, '{1,2}'::idset), (2, NULL), (3, '{2,5}'), (4, '{}')) v(i, s)
	WINDOW w AS (ORDER BY i) ORDER BY i;
SELECT idset_agg(DISTINCT x) = idset_agg(x) AS same, idset_agg(x) FILTER (WHERE x < 3) AS filtered FROM many;
SELECT idset_union(s | 65535) = idset_union(s) | 65535 AS same FROM sets;
-- sets of rows, estimated
CREATE FUNCTION planned_rows(query text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END$$;
SELECT planned_rows($$SELECT * FROM unnest('{1,2,3}'::idset)$$) AS constant, planned_rows($$SELECT * FROM unnest((SELECT '{1}'::idset))$$) AS unknown;
DROP FUNCTION planned_rows;
SELECT * FROM sets, unnest(s) WITH ORDINALITY u(id, place) WHERE n = 3 AND place = 2 AND c = s;
-- views, materialised views, functions, rules of tables
CREATE VIEW similar_sets AS SELECT a.i, b.i AS j, a.s <-> b.s AS distance, cardinality(a.s & b.s) AS common, a.s @> '{3}' AND 3 <@ a.s AS three FROM sets a JOIN sets b ON a.s && b.s AND a.s <> b.s;
CREATE MATERIALIZED VIEW similar_now AS SELECT * FROM similar_sets WHERE distance < 0.9 WITH DATA;
CREATE TABLE similar_then AS TABLE similar_now;
SELECT count(*) > 0 AS some, count(*) = (SELECT count(*) FROM common WHERE n > 0 AND x + y <> 2 * n AND (greatest(x, y) - n)::float8 / greatest(x, y) < 0.9) AS right FROM similar_then;
SELECT pg_get_viewdef('similar_sets', true) LIKE '%s @> ''{3}''::idset AND 3::bigint <@ %s AS three%' AS definition;
-- dumped, restored, the same: the server's own programs do it
CREATE VIEW checksum AS SELECT (SELECT md5(string_agg(s::text, ';' ORDER BY i)) FROM sets) AS sets, (SELECT md5(string_agg(k::text, ';' ORDER BY s)) FROM keyed k) AS keyed,
	(SELECT md5(string_agg(tableoid::regclass::text || s, ';' ORDER BY s)) FROM parted) AS parted, (SELECT md5(string_agg(n::text, ';' ORDER BY i, j)) FROM similar_now n) AS similar_now,
	(SELECT count(*) FROM pg_constraint WHERE conrelid IN ('keyed'::regclass, 'referring'::regclass)) AS constraints, (SELECT count(*) FROM pg_index WHERE indrelid = 'keyed'::regclass) AS indexes;
DROP TABLE common CASCADE;
SELECT setting AS bindir FROM pg_config WHERE name = 'BINDIR' \gset
\setenv GPUVEC_BIN :bindir
SELECT current_database() AS database, current_database() || '_restored' AS restored \gset
\setenv GPUVEC_FROM :database
\setenv GPUVEC_TO :restored
CREATE DATABASE :"restored" TEMPLATE template0;
\! "$GPUVEC_BIN/pg_dump" -Fc -f "$GPUVEC_DIR/dump" "$GPUVEC_FROM" && "$GPUVEC_BIN/pg_restore" --exit-on-error -d "$GPUVEC_TO" "$GPUVEC_DIR/dump" && echo restored
\! "$GPUVEC_BIN/psql" -XAt -d "$GPUVEC_FROM" -c 'TABLE checksum' > "$GPUVEC_DIR/before"; "$GPUVEC_BIN/psql" -XAt -d "$GPUVEC_TO" -c 'TABLE checksum' > "$GPUVEC_DIR/after"; wc -l < "$GPUVEC_DIR/after" | tr -d ' '; diff "$GPUVEC_DIR/before" "$GPUVEC_DIR/after" && echo same
DROP DATABASE :"restored";
\! rm -rf "$GPUVEC_DIR"
SET client_min_messages = warning;
DROP TABLE lengths, ids, sets, narrow, copied, keyed, referring, parted, many, fewer, expected, similar_then CASCADE;
