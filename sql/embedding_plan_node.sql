-- The plan node of functions over embedding tables that return rows, against the function scan
CREATE TABLE items (id bigint PRIMARY KEY, embedding real[]);
INSERT INTO items SELECT i, ARRAY[i, -i, i / 2.0] FROM generate_series(1, 300) i WHERE i % 3 > 0;
ANALYZE items;
EXPLAIN (COSTS OFF) SELECT sample FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3,4}', hotness => 2);
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_gather('items', 'id', 'embedding', '{1,2}');
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', '{1,2}', '{0,2}');
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{1,2}', '{1,1,1}');
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_pool_grad_batch('items', 'id', 'embedding', '{1,2}', '{1,1,1}', '{0,2}');
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', hotness => 1) WITH ORDINALITY;
SELECT sample, embedding FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3,4}', hotness => 2) WHERE sample > 1;
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{1,2,2}', '{1,10,100}', all_keys => true) WHERE key < 6;
-- how many rows are expected
CREATE FUNCTION expected(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json; BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan->0->'Plan'->'Plan Rows';
END $$;
SELECT expected($$SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', array_fill(1, '{60}')::int8[], hotness => 3)$$),
	expected($$SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', array_fill(1, '{60}')::int8[], hotness => 3, slots => 5)$$),
	expected($$SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', (SELECT '{1,2}'::int8[]), '{0,1,1,2}')$$),
	expected($$SELECT * FROM gpuvec_gather('items', 'id', 'embedding', '{1,2,3,4,5}')$$),
	expected($$SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{1,2}', '{1,1,1}')$$),
	expected($$SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{}', '{0}')$$),
	expected($$SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', (SELECT '{1,2}'::int8[]), hotness => 1)$$);
-- lateral references: calls of differing sizes one after the other, empty and null ones among them
SELECT setseed(0.25);
CREATE TABLE bags AS SELECT b, CASE WHEN b % 17 = 0 THEN NULL ELSE array_agg((random() * 330)::int8) FILTER (WHERE x < b % 13) END AS keys
	FROM generate_series(1, 200) b, generate_series(0, 12) x GROUP BY b;
UPDATE bags SET keys = '{}' WHERE keys IS NULL AND b % 17 > 0;
ANALYZE bags;
CREATE VIEW offsets_of AS SELECT b, keys, ARRAY[0, cardinality(keys) / 3, cardinality(keys) / 2, cardinality(keys)]::int8[] AS offsets FROM bags;
EXPLAIN (COSTS OFF) SELECT b, sample, p.embedding FROM offsets_of, gpuvec_pool_batch('items', 'id', 'embedding', keys, offsets) p;
CREATE FUNCTION differences(mode text, missing text, slots int, OUT rows bigint, OUT different bigint) LANGUAGE sql AS $$
	WITH node AS MATERIALIZED (SELECT b, p.* FROM offsets_of, gpuvec_pool_batch('items', 'id', 'embedding', keys, offsets, mode => mode, missing => missing, slots => slots) p),
		scan AS MATERIALIZED (SELECT b, sample, p.embedding FROM offsets_of, gpuvec_pool_batch('items', 'id', 'embedding', keys, offsets, mode => mode, missing => missing, slots => slots) WITH ORDINALITY p)
	SELECT (SELECT count(*) FROM node), (SELECT count(*) FROM ((TABLE node EXCEPT ALL TABLE scan) UNION ALL (TABLE scan EXCEPT ALL TABLE node)) d) $$;
SELECT mode, missing, slots, (differences(mode, missing, slots)).* FROM unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing, unnest('{1,3}'::int[]) slots ORDER BY 1, 2, 3;
WITH node AS MATERIALIZED (SELECT b, g.* FROM offsets_of, gpuvec_gather_batch('items', 'id', 'embedding', keys || NULL::int8, offsets[:3] || offsets[4] + 1) g WHERE keys IS NOT NULL),
	scan AS MATERIALIZED (SELECT b, sample, g.ordinality, key, found, g.embedding FROM offsets_of, gpuvec_gather_batch('items', 'id', 'embedding', keys || NULL::int8, offsets[:3] || offsets[4] + 1) WITH ORDINALITY g (sample, ordinality, key, found, embedding, n) WHERE keys IS NOT NULL)
SELECT (SELECT count(*) FROM node) AS rows, (SELECT count(*) FROM ((TABLE node EXCEPT ALL TABLE scan) UNION ALL (TABLE scan EXCEPT ALL TABLE node)) d) AS different;
-- the rows of a call once more, without another one
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT n, sample, embedding FROM generate_series(1, 3) n LEFT JOIN gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,4,5,3}', '{0,2,4,5}', mode => 'concat', missing => 'skip') ON sample >= n ORDER BY 1, 2;
SELECT n, ordinality, key, embedding FROM generate_series(1, 2) n LEFT JOIN gpuvec_gather('items', 'id', 'embedding', '{1,3,NULL,2}') ON ordinality > n ORDER BY 1, 2;
SELECT n, key, gradient FROM generate_series(1, 2) n LEFT JOIN gpuvec_pool_grad('items', 'id', 'embedding', '{2,1,3,2}', '{1,10,100}', all_keys => n IS NULL) ON key >= n ORDER BY 1, 2;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
-- a cursor that lets the function wait, while others are called
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,4,5,7,8}', hotness => 2);
FETCH 2 FROM c;
SELECT gpuvec_pool('items', 'id', 'embedding', '{10}');
UPDATE items SET embedding = '{0,0,0}' WHERE id = 7;
FETCH 2 FROM c;
FETCH BACKWARD 2 FROM c;
ROLLBACK;
DROP VIEW offsets_of CASCADE;
DROP TABLE items, bags;
DROP FUNCTION expected, differences;
