-- Training, folding in, recommending and neighbors from all kinds of relations and columns: the same as from an ordinary table.
\set VERBOSITY terse
CREATE TABLE events (u int, i int, w float4);
INSERT INTO events SELECT u, i, 1 + u % 3 FROM generate_series(1, 60) u, generate_series(1, 30) i WHERE (u * i) % 7 < 3;
CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
CREATE FUNCTION results(events regclass, u name, i name, w name, users regclass DEFAULT 'users', items regclass DEFAULT 'items', key name DEFAULT 'key', vector name DEFAULT 'embedding') RETURNS TABLE (what text, rows int8, answer text) LANGUAGE sql AS $$
	SELECT 'train', count(*), md5(string_agg(loss::text, ',' ORDER BY iteration)) FROM gpuvec_als(events, u, i, users, items, w, factors => 4, iterations => 2, key_column => key, column_name => vector);
	SELECT 'train', count(*), md5(string_agg(loss::text, ',' ORDER BY iteration)) FROM gpuvec_als(events, u, i, users, items, w, factors => 4, iterations => 2, key_column => key, column_name => vector)
	UNION ALL SELECT 'all users', count(*), md5(string_agg(f::text, ',' ORDER BY f.key)) FROM gpuvec_als_fold_in(events, u, i, items, NULL, w, key_column => key, column_name => vector) f
	UNION ALL SELECT 'few users', count(*), md5(string_agg(f::text, ',' ORDER BY f.key)) FROM gpuvec_als_fold_in(events, u, i, items, '{1,2,60}', w, key_column => key, column_name => vector) f
	UNION ALL SELECT 'recommend', count(*), md5(string_agg(r::text, ',' ORDER BY user_key, rank)) FROM gpuvec_recommend(users, items, NULL, 4, events, u, i, key_column => key, column_name => vector) r
	UNION ALL SELECT 'few of them', count(*), md5(string_agg(r::text, ',' ORDER BY user_key, rank)) FROM gpuvec_recommend(users, items, '{1,2,60}', 4, events, u, i, key_column => key, column_name => vector) r
	UNION ALL SELECT 'explain', count(*), md5(string_agg(e::text, ',' ORDER BY item_key)) FROM gpuvec_als_explain(events, u, i, items, 1, 2, w, key_column => key, column_name => vector) e
	UNION ALL SELECT 'neighbors', count(*), md5(string_agg(n::text, ',' ORDER BY item_key, rank)) FROM gpuvec_item_neighbors(events, u, i, 5, w) n $$;
CREATE TABLE expected AS SELECT * FROM results('events', 'u', 'i', 'w');
SELECT what, rows FROM expected;
CREATE FUNCTION differences(events regclass, u name DEFAULT 'u', i name DEFAULT 'i', w name DEFAULT 'w', users regclass DEFAULT 'users', items regclass DEFAULT 'items', key name DEFAULT 'key', vector name DEFAULT 'embedding') RETURNS TABLE (what text) LANGUAGE sql AS $$
	SELECT what FROM (SELECT * FROM results(events, u, i, w, users, items, key, vector) EXCEPT ALL TABLE expected) d $$;
-- partitions with columns in another order, views, materialized views
CREATE TABLE parts (u int, i int, w float4) PARTITION BY LIST (u);
CREATE TABLE part PARTITION OF parts FOR VALUES IN (1, 2, 3, 4, 5);
CREATE TABLE rest (w float4, gone int, i int, u int);
ALTER TABLE rest DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION rest DEFAULT;
INSERT INTO parts TABLE events;
CREATE VIEW viewed AS SELECT w, i::bigint AS i, u::smallint AS u FROM parts;
CREATE MATERIALIZED VIEW stored AS TABLE viewed;
CREATE MATERIALIZED VIEW empty AS TABLE viewed WITH NO DATA;
SELECT t, d.* FROM unnest('{parts,viewed,stored}'::regclass[]) t, differences(t) d;
SELECT gpuvec_als('empty', 'u', 'i', 'users', 'items');
SELECT gpuvec_recommend('users', 'items', NULL, 3, 'empty', 'u', 'i');
-- factors in partitions
CREATE TABLE user_parts (key bigint PRIMARY KEY, embedding real[]) PARTITION BY HASH (key);
CREATE TABLE user_parts_1 PARTITION OF user_parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE user_parts_2 PARTITION OF user_parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE item_parts (key bigint PRIMARY KEY, embedding real[]) PARTITION BY HASH (key);
CREATE TABLE item_parts_1 PARTITION OF item_parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE item_parts_2 PARTITION OF item_parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT * FROM differences('parts', users => 'user_parts', items => 'item_parts');
-- names that need quotes, domains of domains, and a search path with operators and types that lie in wait
CREATE SCHEMA "a ""Sche.ma";
CREATE DOMAIN "a ""Sche.ma".number AS int4;
CREATE DOMAIN "a ""Sche.ma"."int8" AS "a ""Sche.ma".number CHECK (VALUE > 0);
CREATE DOMAIN "a ""Sche.ma".weight AS numeric(8, 2);
CREATE DOMAIN "a ""Sche.ma".vector AS real[];
CREATE DOMAIN "a ""Sche.ma".key AS int8;
CREATE TABLE "a ""Sche.ma"."Ev""ents; DROP" ("U'ser" "a ""Sche.ma"."int8", "it em$1" int2, "select" "a ""Sche.ma".weight);
INSERT INTO "a ""Sche.ma"."Ev""ents; DROP" TABLE events;
CREATE TABLE "a ""Sche.ma"."u.f" ("K ey" "a ""Sche.ma".key PRIMARY KEY, "e""m" "a ""Sche.ma".vector);
CREATE TABLE "a ""Sche.ma"."i.f" ("K ey" "a ""Sche.ma".key PRIMARY KEY, "e""m" "a ""Sche.ma".vector);
CREATE FUNCTION "a ""Sche.ma".trap(int4, int4) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a trap'; END $$;
CREATE FUNCTION "a ""Sche.ma".trap(int8, int8) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a trap'; END $$;
CREATE OPERATOR "a ""Sche.ma".= (LEFTARG = int4, RIGHTARG = int4, FUNCTION = "a ""Sche.ma".trap);
CREATE OPERATOR "a ""Sche.ma".= (LEFTARG = int8, RIGHTARG = int8, FUNCTION = "a ""Sche.ma".trap);
CREATE OPERATOR "a ""Sche.ma".< (LEFTARG = int8, RIGHTARG = int8, FUNCTION = "a ""Sche.ma".trap);
SET search_path = "a ""Sche.ma", pg_catalog, public;
SELECT 1::int4 = 1::int4;
SELECT * FROM differences('"Ev""ents; DROP"', 'U''ser', 'it em$1', 'select', '"u.f"', '"i.f"', 'K ey', 'e"m');
RESET search_path;
-- what is no table, and what are no keys
SELECT gpuvec_als_fold_in('events', 'ctid', 'i', 'items');
SELECT gpuvec_als_fold_in('users_pkey', 'key', 'key', 'items');
SELECT gpuvec_recommend('users', 'items', NULL, 3, 'events', 'w', 'i');
SELECT gpuvec_recommend('users', 'items', NULL, 3, 'pg_class', 'oid', 'relpages');
SET client_min_messages = warning;
DROP SCHEMA "a ""Sche.ma" CASCADE;
DROP FUNCTION results, differences;
DROP TABLE events, users, items, expected, user_parts, item_parts;
DROP TABLE parts CASCADE;
