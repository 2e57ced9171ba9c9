-- Pooling by GROUP BY.
CREATE TABLE items (id int PRIMARY KEY, embedding real[]);
INSERT INTO items SELECT i, ARRAY[i, i * i % 100, -i, 1] FROM generate_series(1, 500) i;
CREATE TABLE clicks (u int, item int, weight float8);
INSERT INTO clicks SELECT (i * 7919) % 997, 1 + (i * 104729) % 510, (i % 5) * 0.5 - 1 FROM generate_series(1, 20000) i;
VACUUM ANALYZE items, clicks;
-- small sums are exact, whatever the order
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item) FROM clicks WHERE u < 3 GROUP BY u ORDER BY u;
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item, weight) FROM clicks WHERE u < 3 GROUP BY u ORDER BY u;
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item, weight, 'concat', 'skip' ORDER BY item) FROM clicks WHERE u = 3 AND item < 200 GROUP BY u;
CREATE VIEW expected AS SELECT u, gpuvec_pool('items', 'id', 'embedding', array_agg(item), weights => array_agg(weight)) AS e FROM clicks GROUP BY u;
CREATE VIEW actual AS SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item, weight) AS e FROM clicks GROUP BY u;
CREATE TEMP TABLE answers AS SELECT * FROM expected;
-- hashed, hashed in several rounds, sorted
EXPLAIN (COSTS OFF) SELECT * FROM actual;
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong FROM actual a FULL JOIN answers x USING (u);
SET work_mem = '64kB';
SET enable_sort = off;
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong FROM actual a FULL JOIN answers x USING (u);
RESET work_mem;
RESET enable_sort;
SET enable_hashagg = off;
EXPLAIN (COSTS OFF) SELECT * FROM actual;
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong FROM actual a FULL JOIN answers x USING (u);
RESET enable_hashagg;
-- grouping sets, filters, distinct, several at once
SELECT u, item % 2 AS odd, gpuvec_pool_agg('items', 'id', 'embedding', item), gpuvec_pool_agg('items', 'id', 'embedding', item, 1, 'mean', 'skip') FILTER (WHERE item < 250)
FROM clicks WHERE u < 2 GROUP BY GROUPING SETS ((u), (item % 2), (u, item % 2), ()) ORDER BY 1, 2;
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item % 3), gpuvec_pool_agg(DISTINCT 'items', 'id', 'embedding', item % 3) FROM clicks WHERE u = 4 GROUP BY u;
-- window functions: each row's state is pooled as it is
SELECT item, gpuvec_pool_agg('items', 'id', 'embedding', item) OVER (ORDER BY item) FROM (SELECT unnest('{5,3,NULL,8,900}'::int[]) AS item) x;
-- nothing at all, nulls only, nothing found
SELECT gpuvec_pool_agg('items', 'id', 'embedding', item) FROM clicks WHERE u < 0;
SELECT gpuvec_pool_agg('items', 'id', 'embedding', NULL), gpuvec_pool_agg('items', 'id', 'embedding', 1000) FROM generate_series(1, 3);
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, 'sum', 'error') FROM unnest('{1,1000}'::int8[]) k;
-- two tables in one call, each a group of its own
CREATE TABLE other (id int, embedding real[]);
INSERT INTO other VALUES (1, '{1}'), (2, '{2}');
SELECT r, gpuvec_pool_agg(r, 'id', 'embedding', k) FROM unnest('{items,other}'::regclass[]) r, unnest('{1,2}'::int8[]) k GROUP BY r::text, r ORDER BY r::text;
SELECT gpuvec_pool_agg(r, 'id', 'embedding', k) FROM unnest('{items,other}'::regclass[]) r, unnest('{1,2}'::int8[]) k;
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, w) FROM (VALUES (1, 1.5), (2, NULL)) v (k, w);
SELECT gpuvec_pool_agg('items', 'id', NULL, k) FROM generate_series(1, 3) k;
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, 'most', 'skip') FROM generate_series(1, 3) k;
-- an error in the middle leaves nothing behind
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item, weight, 'sum', 'error') FROM clicks GROUP BY u LIMIT 1;
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong FROM actual a FULL JOIN answers x USING (u);
DROP TABLE items, clicks, other CASCADE;
