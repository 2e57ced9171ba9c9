-- Pooling by GROUP BY.
CREATE TABLE items (id int PRIMARY KEY, embedding real[]);
INSERT INTO items SELECT i, ARRAY[i, i * i % 100, -i, 1] FROM generate_series(1, 500) i;
CREATE TABLE clicks (u int, item int, weight float8);
INSERT INTO clicks SELECT (i * 7919) % 997, 1 + (i * 104729) % 510, (i % 5) * 0.5 - 1 FROM generate_series(1, 20000) i;
VACUUM ANALYZE items, clicks;
-- small sums are exact, whatever the order
SELECT u, gpuvec_sum_agg('items', 'id', 'embedding', item) FROM clicks WHERE u < 3 GROUP BY u ORDER BY u;
SELECT u, gpuvec_weighted_sum_agg('items', 'id', 'embedding', item, weight) FROM clicks WHERE u < 3 GROUP BY u ORDER BY u;
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item, weight, 'concat', 'skip' ORDER BY item) FROM clicks WHERE u = 3 AND item < 200 GROUP BY u;
CREATE VIEW expected AS SELECT u, gpuvec_pool('items', 'id', 'embedding', array_agg(item), weights => array_agg(weight)) AS e FROM clicks GROUP BY u;
CREATE VIEW actual AS SELECT u, gpuvec_weighted_sum_agg('items', 'id', 'embedding', item, weight) AS e FROM clicks GROUP BY u;
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
-- vectors are kept from group to group: far fewer keys are asked for than groups have
SELECT sum(searches) AS before FROM gpuvec_mirrors WHERE relation = 'items'::regclass \gset
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong FROM actual a FULL JOIN answers x USING (u);
SELECT sum(searches) - :before BETWEEN 500 AND 1000 AS few FROM gpuvec_mirrors WHERE relation = 'items'::regclass;
-- forgotten when memory is used up, or not kept at all where that does not pay
SET work_mem = '64kB';
CREATE TABLE wide (id int PRIMARY KEY, embedding real[]);
INSERT INTO wide SELECT i, ARRAY(SELECT (i * 7919 + j * 104729) % 201 - 100 FROM generate_series(1, 200) j) FROM generate_series(-200, 400) i;
SELECT n, count(*), count(*) FILTER (WHERE a IS DISTINCT FROM e) AS wrong FROM (
	SELECT n, g, gpuvec_pool_agg('wide', 'id', 'embedding', k, w, 'mean', 'zero') AS a, gpuvec_pool('wide', 'id', 'embedding', array_agg(k), 'mean', array_agg(w)) AS e
	FROM unnest('{10,150,700}'::int[]) n, generate_series(1, 200) g, LATERAL (SELECT (g * j * 31 + j * j) % n - 201 + n / 10 AS k, j % 3 AS w FROM generate_series(1, 1 + g % 12) j) x GROUP BY n, g) y GROUP BY n ORDER BY n;
RESET work_mem;
-- more keys than are kept
SELECT g, gpuvec_sum_agg('items', 'id', 'embedding', k) = gpuvec_pool('items', 'id', 'embedding', array_agg(k)) AS same
FROM generate_series(1, 7) g, generate_series(1, 1500 * (g % 2) + 3) k GROUP BY g ORDER BY g;
-- what a statement changes itself it does not see, and so no group does
CREATE FUNCTION spoil(u int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN UPDATE items SET embedding = '{7,7,7,7}' WHERE id = u; RETURN u; END $$;
BEGIN;
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong, sum(spoiled) > 0 AS spoiled
FROM (SELECT u, gpuvec_weighted_sum_agg('items', 'id', 'embedding', item, weight) AS e, spoil(u) AS spoiled FROM clicks GROUP BY u) a FULL JOIN answers x USING (u);
SELECT count(*) AS changed FROM actual a JOIN answers x USING (u) WHERE a.e IS DISTINCT FROM x.e;
ROLLBACK;
-- the same with keys that no group had before, so that each asks with the visibility map that the first ones read
CREATE TABLE seq AS SELECT i AS id, ARRAY[i, 1]::real[] AS embedding FROM generate_series(1, 20000) i;
CHECKPOINT;
VACUUM seq;
CREATE FUNCTION disturb(how text, g int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	IF g % 50 > 0 THEN RETURN 0;
	ELSIF how = 'update' THEN UPDATE seq SET embedding = '{0,0}' WHERE id BETWEEN g * 10 AND g * 10 + 200;
	ELSIF how = 'delete' THEN DELETE FROM seq WHERE id BETWEEN g * 10 + 5 AND g * 10 + 50;
	ELSIF how = 'insert' THEN INSERT INTO seq SELECT i, '{0,0}' FROM generate_series(g * 10 + 5, g * 10 + 40) i;
	ELSE PERFORM gpuvec_evict('seq');
	END IF;
	RETURN 1; END $$;
SET work_mem = '64kB';
CREATE FUNCTION pool_disturbed(how text, OUT groups bigint, OUT wrong bigint, OUT disturbed bigint) LANGUAGE sql AS $$
	SELECT count(*), count(*) FILTER (WHERE p IS DISTINCT FROM ARRAY[100 * g + 45, 10]::real[]), sum(d) FROM (
		SELECT g, gpuvec_sum_agg('seq', 'id', 'embedding', g * 10 + j) AS p, disturb(how, g) AS d
		FROM (SELECT g, j FROM generate_series(1, 1000) g, generate_series(0, 9) j OFFSET 0) x GROUP BY g) y $$;
BEGIN; SELECT * FROM pool_disturbed('update'); ROLLBACK;
BEGIN; SELECT * FROM pool_disturbed('delete'); ROLLBACK;
BEGIN; SELECT * FROM pool_disturbed('insert'); ROLLBACK;
VACUUM seq;
SELECT * FROM pool_disturbed('evict');
RESET work_mem;
DROP FUNCTION pool_disturbed, disturb;
DROP TABLE seq;
-- groups of two tables in turn, or of vectors that differ in width
CREATE TABLE narrow AS SELECT id, embedding[1:CASE WHEN id > 450 THEN 3 ELSE 2 END] AS embedding FROM items;
SELECT r, count(*), count(*) FILTER (WHERE a IS DISTINCT FROM e) AS wrong FROM (
	SELECT g, CASE WHEN g % 20 < 10 THEN 'items' ELSE 'narrow' END AS r, gpuvec_sum_agg(CASE WHEN g % 20 < 10 THEN 'items' ELSE 'narrow' END, 'id', 'embedding', k) AS a,
		gpuvec_pool(CASE WHEN g % 20 < 10 THEN 'items' ELSE 'narrow' END, 'id', 'embedding', array_agg(k)) AS e
	FROM generate_series(1, 100) g, generate_series(g, g + 5) k GROUP BY g) x GROUP BY r ORDER BY r;
SELECT g, gpuvec_sum_agg('narrow', 'id', 'embedding', k) FROM generate_series(441, 455) g, generate_series(g - 1, g) k GROUP BY g;
SELECT g, gpuvec_sum_agg('narrow', 'id', 'embedding', k) FROM generate_series(400, 416) g, unnest(ARRAY[g, g + g / 416 * 84]) k GROUP BY g;
-- a key of two rows, in a late group
INSERT INTO narrow VALUES (330, '{1,1}');
SELECT g, gpuvec_sum_agg('narrow', 'id', 'embedding', k) FROM generate_series(320, 335) g, generate_series(g - 1, g) k GROUP BY g;
-- a table without a mirror, and one of partitions
CREATE TEMP TABLE own AS SELECT * FROM items;
CREATE TABLE parted (id int, embedding real[]) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (250);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (250) TO (MAXVALUE);
INSERT INTO parted SELECT * FROM items;
SELECT count(*), count(*) FILTER (WHERE a IS DISTINCT FROM e) AS wrong, count(*) FILTER (WHERE b IS DISTINCT FROM e) AS wrong_parted FROM (
	SELECT u, gpuvec_weighted_sum_agg('own', 'id', 'embedding', item, weight) AS a, gpuvec_weighted_sum_agg('parted', 'id', 'embedding', item, weight) AS b FROM clicks WHERE u < 300 GROUP BY u) x JOIN answers USING (u);
RESET enable_hashagg;
-- grouping sets, filters, distinct, several at once
SELECT u, item % 2 AS odd, gpuvec_sum_agg('items', 'id', 'embedding', item), gpuvec_pool_agg('items', 'id', 'embedding', item, 1, 'mean', 'skip') FILTER (WHERE item < 250)
FROM clicks WHERE u < 2 GROUP BY GROUPING SETS ((u), (item % 2), (u, item % 2), ()) ORDER BY 1, 2;
SELECT u, gpuvec_sum_agg('items', 'id', 'embedding', item % 3), gpuvec_sum_agg(DISTINCT 'items', 'id', 'embedding', item % 3) FROM clicks WHERE u = 4 GROUP BY u;
-- window functions: each row's state is pooled as it is
SELECT item, gpuvec_sum_agg('items', 'id', 'embedding', item) OVER (ORDER BY item) FROM (SELECT unnest('{5,3,NULL,8,900}'::int[]) AS item) x;
SELECT count(*), count(*) FILTER (WHERE a IS DISTINCT FROM gpuvec_pool('items', 'id', 'embedding', ARRAY(SELECT j * j % 520 FROM generate_series(1, i) j)::int8[])) AS wrong
FROM (SELECT i, gpuvec_sum_agg('items', 'id', 'embedding', i * i % 520) OVER (ORDER BY i) AS a FROM generate_series(1, 60) i) x;
-- nothing at all, nulls only, nothing found
SELECT gpuvec_sum_agg('items', 'id', 'embedding', item) FROM clicks WHERE u < 0;
SELECT gpuvec_sum_agg('items', 'id', 'embedding', NULL), gpuvec_sum_agg('items', 'id', 'embedding', 1000) FROM generate_series(1, 3);
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, 'sum', 'error') FROM unnest('{1,1000}'::int8[]) k;
-- a table that has no vectors: null, whatever the group
CREATE TABLE nothing (id int, embedding real[]);
INSERT INTO nothing VALUES (7, NULL);
SELECT gpuvec_sum_agg('nothing', 'id', 'embedding', k) IS NULL AS lone, gpuvec_pool_agg('nothing', 'id', 'embedding', k, 1, 'mean', 'skip') IS NULL AS mean FROM generate_series(1, 3) k;
SELECT count(*), count(e) AS vectors FROM (SELECT gpuvec_sum_agg('nothing', 'id', 'embedding', k) AS e FROM generate_series(1, 300) k GROUP BY k % 100) x;
SELECT count(*), count(e) AS vectors FROM (SELECT gpuvec_sum_agg('nothing', 'id', 'embedding', k) OVER (ORDER BY k) AS e FROM generate_series(1, 5) k) x;
-- two tables in one call, each a group of its own
CREATE TABLE other (id int, embedding real[]);
INSERT INTO other VALUES (1, '{1}'), (2, '{2}');
SELECT r, gpuvec_sum_agg(r, 'id', 'embedding', k) FROM unnest('{items,other}'::regclass[]) r, unnest('{1,2}'::int8[]) k GROUP BY r::text, r ORDER BY r::text;
SELECT gpuvec_sum_agg(r, 'id', 'embedding', k) FROM unnest('{items,other}'::regclass[]) r, unnest('{1,2}'::int8[]) k;
SELECT gpuvec_weighted_sum_agg('items', 'id', 'embedding', k, w) FROM (VALUES (1, 1.5), (2, NULL)) v (k, w);
SELECT gpuvec_sum_agg('items', 'id', NULL, k) FROM generate_series(1, 3) k;
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, 'most', 'skip') FROM generate_series(1, 3) k;
-- a mode alone: a missing key counts
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, w, 'mean', 'zero') FROM (VALUES (1, 1), (3, 2), (1000, 1)) v (k, w);
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, m, 'zero') FROM (VALUES (1, 'sum'), (2, 'mean')) v (k, m);
-- mode and missing are those of the group
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, m, 'skip') FROM (VALUES (1, 'sum'), (2, 'mean')) v (k, m);
-- a null that a strict function leaves where the row before had its argument
SELECT gpuvec_sum_agg(r::regclass, 'id', 'embedding', k) FROM (VALUES (1, 'items'::text), (2, NULL)) v (k, r);
SELECT gpuvec_sum_agg('items', c::name, 'embedding', k) FROM (VALUES (1, 'id'::text), (2, NULL)) v (k, c);
SELECT gpuvec_sum_agg('items', 'id', c::name, k) FROM (VALUES (1, 'embedding'::text), (2, NULL)) v (k, c);
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, 'mean', m) FROM (VALUES (1, 'skip'), (2, NULL)) v (k, m);
SELECT gpuvec_pool_agg('items', 'id', 'embedding', k, 1, 'mean', m) FROM (VALUES (1, 'zero'), (NULL, 'error')) v (k, m);
SELECT m, gpuvec_pool_agg('items', 'id', 'embedding', k, 1, m, 'skip') FROM (VALUES (1, 'sum'), (2, 'mean'), (3, 'sum'), (4, 'mean')) v (k, m) GROUP BY m ORDER BY m;
-- an error in the middle leaves nothing behind
SELECT u, gpuvec_pool_agg('items', 'id', 'embedding', item, weight, 'sum', 'error') FROM clicks GROUP BY u LIMIT 1;
SELECT count(*), count(*) FILTER (WHERE a.e IS DISTINCT FROM x.e) AS wrong FROM actual a FULL JOIN answers x USING (u);
DROP TABLE items, clicks, other, wide, narrow, nothing, own, parted CASCADE;
DROP FUNCTION spoil;
