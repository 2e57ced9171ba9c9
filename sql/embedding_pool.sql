-- Embedding tables: gathering and pooling vectors by their keys.
CREATE TABLE items (id bigint PRIMARY KEY, embedding real[]);
INSERT INTO items VALUES (4, '{1,2,3}'), (8, '{10,20,30}'), (15, '{100,200,300}'), (0, '{0.5,0,-0.5}'), (-1, '{7,7,7}'),
	(9223372036854775807, '{1,0,0}'), (-9223372036854775808, '{0,0,1}');
SELECT * FROM gpuvec_gather('items', 'id', 'embedding', '{8,5,4,NULL,8,-1,9223372036854775807,-9223372036854775808,0}');
SELECT * FROM gpuvec_gather('items', 'id', 'embedding', '{}');
SELECT * FROM gpuvec_gather('items', 'id', 'embedding', NULL);
-- toy cases
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8,15}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8,15}', mode => 'mean');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8,15}', mode => 'concat');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,4,8}', weights => '{2,-1,0.5}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,4,8}', 'mean', '{2,-1,1}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,4,8}', 'concat', '{2,-1,0}');
-- keys without a vector
SELECT mode, missing, gpuvec_pool('items', 'id', 'embedding', '{4,5,8}', mode, missing => missing)
FROM unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing;
SELECT mode, missing, gpuvec_pool('items', 'id', 'embedding', '{4,5,8}', mode, '{1,2,1}', missing)
FROM unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing;
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8}', missing => 'error');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,5,6,8}', missing => 'error');
-- nothing found, sums of weights of zero
SELECT mode, keys, gpuvec_pool('items', 'id', 'embedding', keys::int8[], mode)
FROM unnest('{sum,mean,concat}'::text[]) mode, unnest(ARRAY['{}', '{5,6}']) keys;
SELECT gpuvec_pool('items', 'id', 'embedding', '{5,6}', 'concat', missing => 'skip');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8}', 'mean', '{1,-1}');
SELECT gpuvec_pool('items', 'id', 'embedding', NULL);
-- as IEEE says
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8}', weights => '{NaN,1}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8}', weights => '{Infinity,-Infinity}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,5}', weights => '{1,NaN}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{4,8}', 'mean', '{Infinity,1}');
-- types of keys and vectors
CREATE TABLE small (id smallint, v double precision[]);
INSERT INTO small VALUES (1, '{0.1,1e300}'), (-32768, '{1,-1e300}'), (2, '{1e-300,2}');
SELECT * FROM gpuvec_gather('small', 'id', 'v', '{1,2,-32768,65537}');
CREATE DOMAIN item_key AS int CHECK (VALUE > 0);
CREATE DOMAIN item_vector AS real[] CHECK (cardinality(VALUE) = 2);
CREATE TABLE domains (id item_key, v item_vector);
INSERT INTO domains VALUES (1, '{1,2}'), (2, '{3,4}');
SELECT gpuvec_pool('domains', 'id', 'v', '{1,2,4294967297}');
-- columns of older rows
ALTER TABLE domains ADD COLUMN other int NOT NULL DEFAULT 7, ADD COLUMN v2 real[] DEFAULT '{5,6}';
SELECT gpuvec_pool('domains', 'id', 'v2', '{1,2}');
DELETE FROM domains WHERE id = 2;
SELECT gpuvec_pool('domains', 'other', 'v2', '{7}');
-- several columns of keys and vectors in a table
CREATE TABLE several (a int, b int, v real[], w real[]);
INSERT INTO several VALUES (1, 2, '{1}', '{2,2}'), (2, 1, '{3}', '{4,4}');
SELECT gpuvec_pool('several', k, c, '{1}') FROM unnest('{a,b}'::name[]) k, unnest('{v,w}'::name[]) c;
-- rows that do not count, and such that cannot be used
CREATE TABLE odd (id int, v real[]);
INSERT INTO odd VALUES (1, '{1,2}'), (2, NULL), (NULL, '{3,4}'), (3, '{1,2,3}'), (4, '{1,NULL}'), (5, '{{1,2},{3,4}}'), (6, '{}'),
	(7, '{7,7}'), (7, '{7,8}'), (8, '{8,8}'), (8, NULL), (9, array_fill(0::real, '{65536}')), (10, array_fill(0::real, '{65537}'));
SELECT key, found, embedding FROM gpuvec_gather('odd', 'id', 'v', '{1,2,8}');
SELECT gpuvec_pool('odd', 'id', 'v', '{1,3}');
SELECT gpuvec_pool('odd', 'id', 'v', '{3,2,1}');
SELECT gpuvec_pool('odd', 'id', 'v', '{3}');
SELECT gpuvec_pool('odd', 'id', 'v', '{1,4}');
SELECT gpuvec_pool('odd', 'id', 'v', '{1,5}');
SELECT gpuvec_pool('odd', 'id', 'v', '{1,6}');
SELECT gpuvec_pool('odd', 'id', 'v', '{6}');
SELECT gpuvec_pool('odd', 'id', 'v', '{1,7}');
SELECT gpuvec_pool('odd', 'id', 'v', '{1,10}');
SELECT cardinality(gpuvec_pool('odd', 'id', 'v', '{9,2}', 'concat'));
SELECT gpuvec_pool('odd', 'id', 'v', '{1,2}', missing => 'error');
SELECT count(*) FROM gpuvec_gather('odd', 'id', 'v', '{1,7}');
-- a null key is no key, whatever the table has
INSERT INTO odd VALUES (0, '{0,NULL}');
SELECT * FROM gpuvec_gather('odd', 'id', 'v', '{NULL,1,NULL,8}');
UPDATE odd SET v = '{0}' WHERE id = 0;
SELECT * FROM gpuvec_gather('odd', 'id', 'v', '{NULL,1}');
INSERT INTO odd VALUES (0, '{1,1}');
SELECT * FROM gpuvec_gather('odd', 'id', 'v', '{1,NULL}');
SELECT * FROM gpuvec_gather('odd', 'id', 'v', '{NULL}');
-- an empty table has no width
CREATE TABLE nothing (id int, v real[]);
SELECT gpuvec_pool('nothing', 'id', 'v', '{1}') IS NULL, gpuvec_pool('nothing', 'id', 'v', '{}') IS NULL;
SELECT * FROM gpuvec_gather('nothing', 'id', 'v', '{1}');
-- wrong arguments
SELECT gpuvec_pool('items', 'id', 'embedding', '{1}', 'max');
SELECT gpuvec_pool('items', 'id', 'embedding', '{1}', missing => 'null');
SELECT gpuvec_pool('items', 'id', 'embedding', '{1,NULL}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{{1},{2}}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{1,2}', weights => '{1}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{1}', weights => '{NULL}');
SELECT gpuvec_pool('items', 'id', 'id', '{1}');
SELECT gpuvec_pool('items', 'embedding', 'embedding', '{1}');
SELECT gpuvec_pool('items', 'no', 'embedding', '{1}');
SELECT gpuvec_pool('items', 'ctid', 'embedding', '{1}');
SELECT gpuvec_pool(NULL, 'id', 'embedding', '{1}');
SELECT gpuvec_pool('items_pkey', 'id', 'embedding', '{1}');
CREATE VIEW item_view AS SELECT * FROM items;
SELECT gpuvec_pool('item_view', 'id', 'embedding', '{1}');
-- what is resident
SELECT relation, columns, rows FROM gpuvec_mirrors WHERE relation IN ('items'::regclass, 'small'::regclass) ORDER BY 1;
SELECT gpuvec_evict('items', 'embedding'), gpuvec_prewarm('items', 'id', 'embedding'), gpuvec_evict('items'), gpuvec_evict('items', 'id');
SELECT gpuvec_prewarm('items', 'embedding');
-- privileges
CREATE ROLE regress_embedding;
SET ROLE regress_embedding;
SELECT gpuvec_pool('items', 'id', 'embedding', '{4}');
RESET ROLE;
GRANT SELECT (embedding) ON items TO regress_embedding;
SET ROLE regress_embedding;
SELECT gpuvec_pool('items', 'id', 'embedding', '{4}');
RESET ROLE;
GRANT SELECT (id) ON items TO regress_embedding;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
SET ROLE regress_embedding;
SELECT gpuvec_pool('items', 'id', 'embedding', '{4}');
RESET ROLE;
ALTER TABLE items DISABLE ROW LEVEL SECURITY;
SET ROLE regress_embedding;
SELECT gpuvec_pool('items', 'id', 'embedding', '{4}');
RESET ROLE;
REVOKE ALL ON items FROM regress_embedding;
DROP ROLE regress_embedding;

-- every change is seen, in every kind of table
CREATE FUNCTION pool_sql(rel regclass, keys int8[]) RETURNS real[] LANGUAGE plpgsql AS $$
DECLARE result real[];
BEGIN
	EXECUTE format('SELECT array_agg(s ORDER BY i)::real[] FROM (SELECT u.i, sum(u.x::float8) AS s FROM unnest($1) k JOIN %s t ON t.id = k, unnest(t.embedding) WITH ORDINALITY u (x, i) GROUP BY u.i) x', rel) INTO result USING keys;
	RETURN result;
END $$;
CREATE FUNCTION same(rel regclass, keys int8[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE ours real[] := gpuvec_pool(rel, 'id', 'embedding', keys); theirs real[] := pool_sql(rel, keys);
BEGIN
	RETURN CASE WHEN ours IS NOT DISTINCT FROM theirs THEN coalesce('ok ' || ours[1], 'none') ELSE format('%s but must be %s', ours, theirs) END;
END $$;
CREATE TABLE live (id int PRIMARY KEY, embedding real[], note text) WITH (fillfactor = 50);
INSERT INTO live SELECT i, ARRAY[i, i % 10, -i] FROM generate_series(1, 1000) i;
SELECT same('live', '{1,2,3,1000}');
UPDATE live SET embedding = '{5,5,5}' WHERE id = 2;
SELECT same('live', '{1,2,3,1000}');
UPDATE live SET note = 'a HOT update' WHERE id = 3;
SELECT same('live', '{1,2,3,1000}');
UPDATE live SET id = 2000 WHERE id = 3;
SELECT same('live', '{1,2,3,1000,2000}');
DELETE FROM live WHERE id = 1000;
SELECT same('live', '{1,2,3,1000,2000}');
VACUUM live;
SELECT same('live', '{1,2,3,1000,2000}');
INSERT INTO live VALUES (1000, '{8,8,8}');
SELECT same('live', '{1,2,3,1000,2000}');
BEGIN;
UPDATE live SET embedding = '{9,9,9}' WHERE id = 1;
SELECT same('live', '{1,2,3,1000,2000}');
SAVEPOINT s;
UPDATE live SET embedding = '{1,1,1}' WHERE id = 1;
DELETE FROM live WHERE id = 2000;
SELECT same('live', '{1,2,3,1000,2000}');
ROLLBACK TO s;
SELECT same('live', '{1,2,3,1000,2000}');
UPDATE live SET embedding = '{77,77,77}';
SELECT same('live', '{1,2,3,1000,2000}');
DECLARE d CURSOR FOR SELECT embedding FROM gpuvec_gather('live', 'id', 'embedding', '{1,2}');
DELETE FROM live;
FETCH ALL d;
SELECT same('live', '{1,2,3,1000,2000}');
ROLLBACK;
SELECT same('live', '{1,2,3,1000,2000}');
UPDATE live SET embedding = embedding || 1::real WHERE id <= 500;
SELECT gpuvec_pool('live', 'id', 'embedding', '{2,700}');
UPDATE live SET embedding = embedding || 1::real WHERE id > 500;
SELECT same('live', '{1,2,3,1000,2000}');
VACUUM FULL live;
SELECT same('live', '{1,2,3,1000,2000}');
BEGIN;
TRUNCATE live;
INSERT INTO live VALUES (1, '{3,2,1,0}');
SELECT same('live', '{1}');
ROLLBACK;
SELECT same('live', '{1,2,3,1000,2000}');
ALTER TABLE live ALTER embedding TYPE double precision[];
SELECT same('live', '{1,2,3,1000,2000}');
CREATE TEMP TABLE temporary AS SELECT * FROM live;
SELECT same('temporary', '{1,2,3,1000,2000}');
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM live;
SELECT same('unlogged', '{1,2,3,1000,2000}');
CREATE MATERIALIZED VIEW view AS SELECT * FROM live;
SELECT same('view', '{1,2,3,1000,2000}');
CREATE TABLE parted (note text, id int, embedding real[]) PARTITION BY HASH (id);
CREATE TABLE parted0 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE parted1 (embedding real[], dropped int, note text, id int);
ALTER TABLE parted1 DROP COLUMN dropped;
ALTER TABLE parted ATTACH PARTITION parted1 FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 2);
INSERT INTO parted SELECT note, id, embedding FROM live;
SELECT same('parted', '{1,2,3,1000,2000}');
SELECT gpuvec_pool('parted', 'id', 'embedding', '{2,1,3}', 'concat'), gpuvec_pool('parted', 'id', 'embedding', '{3}');
SELECT count(*) FILTER (WHERE found) FROM gpuvec_gather('parted', 'id', 'embedding', ARRAY(SELECT generate_series(1, 3000)));
CREATE TABLE child () INHERITS (live);
INSERT INTO child VALUES (1, '{1,1,1,1}');
SELECT gpuvec_pool('live', 'id', 'embedding', '{2,1}');
DROP TABLE child;

-- random bags against plain SQL: small integers are exact in any order
SELECT setseed(0.5);
CREATE TABLE random AS SELECT i AS id, ARRAY(SELECT (random() * 200 - 100)::int + 0 * i FROM generate_series(1, 33))::real[] AS embedding FROM generate_series(1, 3000) i;
CREATE TABLE bags AS SELECT b, ARRAY(SELECT (random() * 4000 + 0 * b)::int FROM generate_series(1, 40))::int8[] AS keys FROM generate_series(1, 50) b;
SELECT count(*) FROM bags WHERE gpuvec_pool('random', 'id', 'embedding', keys) IS DISTINCT FROM pool_sql('random', keys);
VACUUM random;
SELECT count(*) FROM bags WHERE gpuvec_pool('random', 'id', 'embedding', keys) IS DISTINCT FROM pool_sql('random', keys);
SELECT count(*) FROM gpuvec_gather('random', 'id', 'embedding', (SELECT array_agg(key) FROM bags, unnest(keys) key)) g LEFT JOIN random r ON r.id = g.key
WHERE g.embedding IS DISTINCT FROM r.embedding OR g.found <> (r.id IS NOT NULL);
DROP TABLE several, items, small, domains, odd, nothing, live, parted, random, bags, temporary, unlogged CASCADE;
DROP FUNCTION pool_sql, same;
