-- Vectors stored as float16.
CREATE TABLE items (id int PRIMARY KEY, embedding double precision[]);
INSERT INTO items VALUES (1, ARRAY[1/3.0, 2048, 2049, 2051, -2051]), (2, ARRAY[65504, 65519, 65520, -65519.9, -65520]), (3, ARRAY[1e-8, 3e-8, 5e-8, 9e-8, -1e-7]),
	(4, '{NaN,Infinity,-Infinity,-0,0}'), (5, ARRAY[6.1e-5, 6.2e-5, 0.1, -0.2, 1000.5]), (6, ARRAY[1.00048828125, 1.0004882813, 1.00146484375, 1.0009765625, 2]);
VACUUM items;
SET gpuvec.vector_storage = 'float16';
SELECT key, embedding FROM gpuvec_gather('items', 'id', 'embedding', '{1,2,3,4,5,6}');
SELECT gpuvec_pool('items', 'id', 'embedding', '{1,5}'), gpuvec_pool('items', 'id', 'embedding', '{1,5}', 'mean', '{1,3}');
SELECT key, score FROM gpuvec_nearest('items', 'id', 'embedding', '{1,1,1,1,1}', 2, 'ip');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{1,5}', '{0,0,1,1,0}');
-- the same in a table without a mirror
CREATE TEMP TABLE copy AS SELECT * FROM items;
SELECT count(*) FROM gpuvec_gather('items', 'id', 'embedding', '{1,2,3,4,5,6}') a JOIN gpuvec_gather('copy', 'id', 'embedding', '{1,2,3,4,5,6}') b USING (key, embedding);
-- float32 all the while
RESET gpuvec.vector_storage;
SELECT key, embedding FROM gpuvec_gather('items', 'id', 'embedding', '{1,6}');
-- a copy of each, one of them with half of the elements' bytes
CREATE TABLE wide AS SELECT i AS id, array_fill(i::real, '{1000}') AS embedding FROM generate_series(1, 200) i;
SELECT cardinality(gpuvec_pool('wide', 'id', 'embedding', '{1,200}'));
SET gpuvec.vector_storage = 'float16';
SELECT cardinality(gpuvec_pool('wide', 'id', 'embedding', '{1,200}'));
SELECT columns, rows, max(bytes) - min(bytes) >= 2000 * rows AS saved FROM gpuvec_mirrors WHERE relation = 'wide'::regclass GROUP BY 1, 2;
-- refreshed like any other
UPDATE wide SET embedding = array_fill(0.1::real, '{3}') WHERE id = 7;
UPDATE wide SET embedding = array_fill(0.1::real, '{1000}') WHERE id = 8;
SELECT gpuvec_pool('wide', 'id', 'embedding', '{7}'), (gpuvec_pool('wide', 'id', 'embedding', '{8,9}'))[1000];
-- every width: odd ones are padded
CREATE TABLE widths (id int PRIMARY KEY, v real[]);
SELECT sum(gpuvec_ensure_keys('widths', 'id', 'v', ARRAY[w]::int8[], w, scale => 0)) FROM generate_series(1, 40) w;
UPDATE widths SET v = ARRAY(SELECT id + i FROM generate_series(1, id) i);
SELECT count(*) FROM widths WHERE gpuvec_pool('widths', 'id', 'v', ARRAY[id, id]) IS DISTINCT FROM ARRAY(SELECT 2 * (id + i) FROM generate_series(1, id) i)::real[];
DROP TABLE items, copy, wide, widths;
