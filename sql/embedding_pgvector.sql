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
DROP EXTENSION vector CASCADE;
