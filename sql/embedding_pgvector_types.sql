-- The types vector and halfvec of the extension vector (pgvector), which need not be installed: here are types of the same names
-- and layout (16 bits of width, 16 unused, elements), which are read and written like bytea, in an extension of that name.
SET client_min_messages = warning;
CREATE TYPE vector;
CREATE FUNCTION vector_in(cstring) RETURNS vector AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION vector_out(vector) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, ALIGNMENT = int4, STORAGE = external);
CREATE TYPE halfvec;
CREATE FUNCTION halfvec_in(cstring) RETURNS halfvec AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION halfvec_out(halfvec) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE halfvec (INPUT = halfvec_in, OUTPUT = halfvec_out, ALIGNMENT = int4, STORAGE = external);
RESET client_min_messages;
CREATE TABLE items (id int PRIMARY KEY, v vector, h halfvec);
INSERT INTO items VALUES (1, '\x020000000000803f00002040', '\x02000000003c0041'), (2, '\x02000000000000bf0000c842', '\x0200000001000080'), (3, NULL, NULL),
	(4, '\x03000000000080bf0000803f00000000', '\x03000000ff7b007c0038');
-- a name alone is not enough
SELECT gpuvec_pool('items', 'id', 'v', '{1,2}');
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) SELECT 79999, 'vector', extowner, extnamespace, false, '0' FROM pg_extension WHERE extname = 'gpuvec';
RESET allow_system_table_mods;
ALTER EXTENSION vector ADD TYPE vector;
ALTER EXTENSION vector ADD TYPE halfvec;
SELECT gpuvec_pool('items', 'id', 'v', '{1,2,3}'), gpuvec_pool('items', 'id', 'h', '{1,2,3}');
SELECT key, a.embedding AS v, b.embedding AS h FROM gpuvec_gather('items', 'id', 'v', '{4}') a JOIN gpuvec_gather('items', 'id', 'h', '{4}') b USING (key);
SELECT gpuvec_pool('items', 'id', 'v', '{1,4}');
SELECT key, score FROM gpuvec_nearest('items', 'id', 'h', '{1,1}', 5, 'ip');
-- wide ones, out of line
INSERT INTO items SELECT 5, ('\xa00f0000' || string_agg('0000' || to_hex(x / 16 % 16) || to_hex(x % 16) || '3f', '' ORDER BY i))::vector FROM (SELECT i, i % 128 AS x FROM generate_series(0, 3999) i) y;
SELECT (gpuvec_pool('items', 'id', 'v', '{5,5}'))[1:3], cardinality(gpuvec_pool('items', 'id', 'v', '{5}'));
VACUUM items;
SELECT (gpuvec_pool('items', 'id', 'v', '{5,5}'))[126:130];
DROP TABLE items;
-- training, which needs casts as that extension has them: implicit to real[], by assignment from it
CREATE FUNCTION vector_to_float4(vector, int, bool) RETURNS real[] LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(CASE bits & 2147483647 WHEN 0 THEN 0 ELSE sign(1 - 2 * (bits >> 31 & 1)) * 2.0 ^ ((bits >> 23 & 255) - 127) * (1 + (bits & 8388607) / 8388608.0) END ORDER BY i)::real[]
	FROM (SELECT i, get_byte(b, 4 * i) | (get_byte(b, 4 * i + 1) << 8) | (get_byte(b, 4 * i + 2) << 16) | (get_byte(b, 4 * i + 3) << 24) AS bits FROM (SELECT $1::text::bytea AS b) x, generate_series(1, length(b) / 4 - 1) i) y $$;
CREATE FUNCTION array_to_vector(real[], int, bool) RETURNS vector LANGUAGE sql IMMUTABLE AS $$
	SELECT ('\x' || lpad(to_hex(cardinality($1) & 255), 2, '0') || lpad(to_hex(cardinality($1) >> 8), 2, '0') || '0000' || string_agg(substr(h, 7, 2) || substr(h, 5, 2) || substr(h, 3, 2) || substr(h, 1, 2), '' ORDER BY o))::vector
	FROM (SELECT encode(float4send(x), 'hex') AS h, o FROM unnest($1) WITH ORDINALITY u (x, o)) x $$;
CREATE CAST (vector AS real[]) WITH FUNCTION vector_to_float4(vector, int, bool) AS IMPLICIT;
CREATE CAST (real[] AS vector) WITH FUNCTION array_to_vector(real[], int, bool) AS ASSIGNMENT;
CREATE TABLE items (id bigint PRIMARY KEY, v vector);
CREATE TABLE state (key bigint PRIMARY KEY, step bigint, m real[], v real[]);
SELECT gpuvec_ensure_keys('items', 'id', 'v', '{1,2,-3}', 3, seed => 4);
SELECT id, v::real[] = gpuvec_initial_vector(id, 3, 'uniform', 0.05, 4) AS as_expected FROM items ORDER BY id;
INSERT INTO items SELECT 5, '{1,-2,0.5}'::real[];
SELECT gpuvec_ensure_keys('items', 'id', 'v', '{5,6}', initializer => 'zeros'), gpuvec_apply_grad('items', 'id', 'v', '{5,6,5}', '{{2,0,1},{1,1,1},{2,4,1}}', learning_rate => 0.5);
SELECT key, embedding, i.v::real[] = embedding AS same FROM gpuvec_gather('items', 'id', 'v', '{5,6}') JOIN items i ON id = key;
SELECT gpuvec_apply_grad('items', 'id', 'v', '{6}', '{4,-4,0}', 'adagrad', 1, 'state'), gpuvec_pool('items', 'id', 'v', '{6}'), gpuvec_apply_grad('items', 'id', 'v', '{5,5}', '{1,2,3,4,5,6}', 'adagrad', 1, 'state');
SELECT gpuvec_pool('items', 'id', 'v', '{5,6}', 'concat'), array_agg(n.key ORDER BY rank) AS nearest FROM items, gpuvec_nearest('items', 'id', 'v', v::real[], 2, 'l2') n WHERE id = 6;
DROP TABLE items, state;
DROP EXTENSION vector CASCADE;
