-- Indexes on vectors: rows that come, go and change, and what is done to
-- tables and columns.
CREATE SCHEMA index_vectors_rows;
SET search_path = index_vectors_rows, public;
SET client_min_messages = warning;
CREATE FUNCTION plans(by_index bool) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('enable_' || kind, CASE WHEN by_index THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind $$;
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan;
END $$;
-- All rows in the order of their distances, the first ones, and those of a
-- condition, by the index against a scan and a sort
CREATE FUNCTION same(tab text, distance text, condition text DEFAULT 'true', limits text DEFAULT '{1,8,33,NULL}', in_order bool DEFAULT false, shape text DEFAULT '"Order By"') RETURNS text LANGUAGE plpgsql AS $$
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
CREATE TABLE ops AS SELECT unnest('{<#>,<=>,<%>}'::text[]) AS op;
-- how all operators do with some queries
CREATE FUNCTION all_same(tab text, operand text, condition text DEFAULT 'true', queries idvec[] DEFAULT '{"{0:1,1:2,7:0.5}","{3:1,5000:2,70001:3}","{64000:1}"}') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(DISTINCT same(tab, format('%s %s %L::idvec', operand, op, q), condition), '; ') FROM ops, unnest(queries) q $$;
-- n pairs: floats, one-byte values, either of wide ids; -1 is none, 0 null
CREATE FUNCTION pairs(n int, kind int) RETURNS idvec LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN n > 0 THEN (SELECT public.idvec(array_agg(CASE WHEN kind > 1 THEN i * 10000::int8 + i % 3 ELSE i END), array_agg((CASE WHEN kind % 2 = 1 THEN 1 + i % 200 ELSE 0.5 + i % 9 END)::real)) FROM generate_series(0, n - 1) i)
		WHEN n = -1 THEN '{}'::public.idvec END $$;

-- Vectors of a column, and those that an index keeps: of an expression, and of
-- an expression with a predicate.  All lengths, also such as are cut into
-- parts.
CREATE TABLE lengths (id int, n int, kind int, extra int, v idvec) WITH (fillfactor = 70);
CREATE INDEX lengths_v ON lengths USING gpuvec (v);
CREATE INDEX lengths_e ON lengths USING gpuvec ((v * 2));
CREATE INDEX lengths_p ON lengths USING gpuvec ((v * 2), kind) WHERE extra = 1;
CREATE FUNCTION checked() RETURNS text LANGUAGE sql AS $$ SELECT concat_ws(' | ', all_same('lengths', 'v'), all_same('lengths', 'v * 2'), all_same('lengths', 'v * 2', 'extra = 1 AND kind < 2')) $$;
INSERT INTO lengths SELECT i, n, kind, i % 2, pairs(n, kind)
FROM unnest('{1,2,3,4,20,21,22,40,41,42,339,340,341,510,511,679,680,681,1015,1016,1354,1355,1356,1624,1625,1626,2030,2706,2707,2708,2709,2710,4062,4064,8130,20000,-1,0}'::int[]) WITH ORDINALITY u(n, i), generate_series(0, 3) kind WHERE n > 0 OR kind < 2;
INSERT INTO lengths SELECT 100 + kind, 65536, kind, 1, pairs(65536, kind) FROM generate_series(0, 3, 3) kind;
ANALYZE lengths;
SELECT checked();
REINDEX TABLE lengths;
SELECT checked();
UPDATE lengths SET extra = 1 - extra WHERE id % 3 = 0;
UPDATE lengths SET v = v + '{1:0.5,7000:2}' WHERE n BETWEEN 300 AND 4000;
SELECT checked();
DELETE FROM lengths WHERE id % 2 = 0 OR id > 99;
VACUUM lengths;
SELECT checked();
-- the same tids: some of the new rows are in the partial index, some are not
INSERT INTO lengths SELECT i, i % 7 - 1, i % 4, i % 3, pairs(i % 7 - 1, i % 4) FROM generate_series(200, 500) i;
SELECT checked();
DELETE FROM lengths WHERE id < 350;
VACUUM lengths;
INSERT INTO lengths SELECT i, i % 700, i % 4, 1, pairs(i % 700, i % 4) FROM generate_series(600, 900, 7) i;
SELECT checked();
VACUUM (FULL) lengths;
SELECT checked();
CREATE INDEX lengths_n ON lengths (n);
CLUSTER lengths USING lengths_n;
SELECT checked();

-- rows of this transaction, of subtransactions that fail and that do not
BEGIN;
INSERT INTO lengths SELECT i, i % 90, i % 4, 1, pairs(i % 90, i % 4) FROM generate_series(1000, 1050) i;
SELECT checked();
SAVEPOINT a;
INSERT INTO lengths SELECT i, 3, 0, 1, '{0:5,1:5,7:5,3:9}' FROM generate_series(1051, 1090) i;
UPDATE lengths SET v = '{0:1,7:3}' WHERE id % 5 = 0;
DELETE FROM lengths WHERE id % 7 = 0;
SELECT checked();
ROLLBACK TO a;
SELECT checked();
INSERT INTO lengths SELECT i, i % 30, i % 4, 1, pairs(i % 30, i % 4) FROM generate_series(1091, 1120) i;
SAVEPOINT b;
UPDATE lengths SET v = v * 2, extra = 1 WHERE id % 5 = 0;
SAVEPOINT c;
DELETE FROM lengths WHERE id % 11 = 0;
ROLLBACK TO c;
RELEASE b;
SELECT checked();
COMMIT;
SELECT checked();
BEGIN;
UPDATE lengths SET v = '{0:100}' WHERE id % 3 = 0;
SELECT checked();
ROLLBACK;
SELECT checked();
-- updates in place, and of other columns, of chains
CREATE TABLE chains (id int PRIMARY KEY, v idvec, n int DEFAULT 0) WITH (fillfactor = 40);
INSERT INTO chains SELECT i, pairs(i % 20, i % 4) FROM generate_series(1, 300) i;
CREATE INDEX chains_v ON chains USING gpuvec (v);
SELECT all_same('chains', 'v');
BEGIN;
UPDATE chains SET n = n + 1 WHERE id % 2 = 0;
SELECT pg_stat_get_xact_tuples_hot_updated('chains'::regclass) AS in_place, all_same('chains', 'v');
COMMIT;
UPDATE chains SET n = n + 1 WHERE id % 4 = 0;
UPDATE chains SET v = '{0:3,7:1}' WHERE id % 8 = 0;
UPDATE chains SET n = n + 1 WHERE id % 8 = 0;
SELECT all_same('chains', 'v');
VACUUM chains;
SELECT all_same('chains', 'v');
INSERT INTO chains SELECT i, '{1:7}' FROM generate_series(250, 350) i ON CONFLICT DO NOTHING;
INSERT INTO chains SELECT i, '{0:7,5000:1}' FROM generate_series(340, 360) i ON CONFLICT (id) DO UPDATE SET v = chains.v + excluded.v;
SELECT all_same('chains', 'v');
COPY chains (id, v) FROM stdin;
1001	{0:1,7:2.5}
1002	{}
1003	\N
1004	{5000:3,4294967295:1e-45}
\.
SELECT all_same('chains', 'v');
DELETE FROM chains;
SELECT all_same('chains', 'v');
INSERT INTO chains VALUES (1, '{1:1}');
SELECT all_same('chains', 'v');
TRUNCATE chains;
SELECT all_same('chains', 'v');
INSERT INTO chains VALUES (1, '{1:1}'), (2, NULL);
SELECT all_same('chains', 'v');

-- an index that is built, emptied or dropped in a transaction, or comes back
BEGIN;
CREATE TABLE fresh (id int, v idvec);
CREATE INDEX fresh_v ON fresh USING gpuvec (v);
INSERT INTO fresh SELECT i, pairs(i % 20, i % 4) FROM generate_series(1, 100) i;
SELECT all_same('fresh', 'v');
SAVEPOINT s;
TRUNCATE fresh;
INSERT INTO fresh SELECT i, '{7:1}' FROM generate_series(1, 10) i;
SELECT all_same('fresh', 'v');
ROLLBACK TO s;
SELECT all_same('fresh', 'v');
SAVEPOINT s;
REINDEX INDEX fresh_v;
INSERT INTO fresh SELECT i, '{7:1}' FROM generate_series(1, 10) i;
ROLLBACK TO s;
INSERT INTO fresh SELECT i, '{7:3}' FROM generate_series(101, 110) i;
SELECT all_same('fresh', 'v');
SAVEPOINT s;
DROP INDEX fresh_v;
SELECT all_same('fresh', 'v') LIKE 'another plan%' AS without_index;
ROLLBACK TO s;
COMMIT;
SELECT all_same('fresh', 'v');
REINDEX INDEX CONCURRENTLY fresh_v;
SELECT all_same('fresh', 'v');
CREATE INDEX CONCURRENTLY fresh_other ON fresh USING gpuvec (v) WHERE id > 50;
DROP INDEX fresh_v;
SELECT all_same('fresh', 'v', 'id > 50');
DROP INDEX fresh_other;
CREATE INDEX fresh_v ON fresh USING gpuvec (v);
ALTER TABLE fresh SET UNLOGGED;
INSERT INTO fresh SELECT i, '{7:5}' FROM generate_series(111, 120) i;
SELECT all_same('fresh', 'v');
ALTER TABLE fresh SET LOGGED;
INSERT INTO fresh SELECT i, '{7:6}' FROM generate_series(121, 130) i;
SELECT all_same('fresh', 'v');
CREATE TEMP TABLE of_session AS SELECT * FROM fresh;
CREATE INDEX ON of_session USING gpuvec (v);
INSERT INTO of_session SELECT i, pairs(i % 9, 2) FROM generate_series(300, 320) i;
SELECT all_same('of_session', 'v');
DELETE FROM of_session WHERE id % 2 = 0;
SELECT all_same('of_session', 'v');
CREATE TEMP TABLE until_commit (id int, v idvec) ON COMMIT DELETE ROWS;
CREATE INDEX ON until_commit USING gpuvec (v);
BEGIN;
INSERT INTO until_commit SELECT * FROM fresh;
SELECT all_same('until_commit', 'v');
COMMIT;
SELECT all_same('until_commit', 'v');

-- columns that come later: rows that do not have the value, and such as do
CREATE TABLE later (id int);
INSERT INTO later SELECT i FROM generate_series(1, 50) i;
ALTER TABLE later ADD COLUMN v idvec DEFAULT '{1:2}', ADD COLUMN w idvec;
CREATE INDEX later_v ON later USING gpuvec (v);
CREATE INDEX later_w ON later USING gpuvec (w);
SELECT all_same('later', 'v'), all_same('later', 'w');
INSERT INTO later VALUES (51, '{0:3}', '{1:1}'), (52, NULL, NULL);
INSERT INTO later (id) VALUES (53);
UPDATE later SET id = id + 100 WHERE id % 10 = 0;
SELECT all_same('later', 'v'), all_same('later', 'w');
VACUUM FULL later;
SELECT all_same('later', 'v'), all_same('later', 'w');
-- types that change: the index is built again
CREATE TABLE retyped (id int, s idset);
INSERT INTO retyped SELECT i, ARRAY[i % 7, i % 5 + 10, 70001]::idset FROM generate_series(1, 200) i;
CREATE INDEX retyped_s ON retyped USING gpuvec (s);
SELECT same('retyped', $$s <%> '{1,12}'::idset$$);
ALTER TABLE retyped ALTER s TYPE idvec USING s::idvec * 1.5;
SELECT pg_get_indexdef('retyped_s'::regclass), all_same('retyped', 's');
INSERT INTO retyped VALUES (201, '{0:1,1:2}');
SELECT all_same('retyped', 's');
ALTER TABLE retyped ALTER s TYPE idset USING s::idset;
SELECT same('retyped', $$s <%> '{1,12}'::idset$$);
ALTER TABLE retyped ALTER s TYPE idvec;
SELECT all_same('retyped', 's');
ALTER TABLE retyped DROP COLUMN s;
-- a domain
CREATE DOMAIN weights AS idvec CHECK (cardinality(VALUE) < 30);
CREATE TABLE of_domain (id int, v weights NOT NULL);
INSERT INTO of_domain SELECT i, pairs(1 + i % 20, i % 4) FROM generate_series(1, 200) i;
CREATE INDEX of_domain_v ON of_domain USING gpuvec (v);
SELECT all_same('of_domain', 'v');
INSERT INTO of_domain VALUES (201, '{0:1,1:2}');
SELECT all_same('of_domain', 'v');
-- generated columns, and a view
CREATE TABLE texts (id int, body text, v idvec GENERATED ALWAYS AS (idvec_words('simple', body)) STORED);
INSERT INTO texts SELECT i, repeat('a ', i % 5) || repeat('b ', i % 3) || repeat('word' || i % 10 || ' ', 2) FROM generate_series(1, 300) i;
CREATE INDEX texts_v ON texts USING gpuvec (v);
CREATE VIEW texts_seen AS SELECT id, v, tableoid, ctid FROM texts WHERE id % 2 = 0;
UPDATE texts SET body = body || ' a a word1' WHERE id % 50 = 0;
SELECT all_same('texts', 'v', queries => ARRAY[idvec_words('simple', 'a word1'), idvec_words('simple', 'word3 word4 b b b')]), all_same('texts_seen', 'v', queries => ARRAY[idvec_words('simple', 'a word1')]);
CREATE MATERIALIZED VIEW texts_kept AS SELECT id, v * 2 AS v FROM texts;
CREATE INDEX texts_kept_v ON texts_kept USING gpuvec (v);
SELECT all_same('texts_kept', 'v', queries => ARRAY[idvec_words('simple', 'a word1')]);
DELETE FROM texts WHERE id > 200;
REFRESH MATERIALIZED VIEW texts_kept;
SELECT all_same('texts_kept', 'v', queries => ARRAY[idvec_words('simple', 'a word1')]);
-- many changes: rows are handed over until there is no more room for them
CREATE TABLE many (id serial, v idvec, n int DEFAULT 0);
CREATE INDEX many_v ON many USING gpuvec (v);
INSERT INTO many (v) SELECT pairs(1 + i % 60, i % 4) * (1 + i % 10) FROM generate_series(1, 500) i;
SELECT all_same('many', 'v');
INSERT INTO many (v) SELECT pairs(1 + i % 60, i % 4) * (1 + i % 11) FROM generate_series(1, 3000) i;
SELECT all_same('many', 'v');
UPDATE many SET v = v * 0.5 WHERE id % 3 = 0;
DELETE FROM many WHERE id % 7 = 0;
SELECT all_same('many', 'v');
INSERT INTO many (v) SELECT pairs(n, kind) * 3 FROM unnest('{100,339,340,341,500,679,680,681,700}'::int[]) n, generate_series(0, 3) kind, generate_series(1, 5);
SELECT all_same('many', 'v');
SELECT bool_and(rows > 0) AS rows, count(DISTINCT index) FROM gpuvec_mirrors WHERE relation IN ('many'::regclass, 'texts'::regclass);
DROP SCHEMA index_vectors_rows CASCADE;
