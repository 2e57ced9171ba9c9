-- The statements of README.md's section on embedding tables.
CREATE TABLE items (id bigint PRIMARY KEY, embedding real[]);
INSERT INTO items VALUES (1, '{1,0,0}'), (2, '{0.8,0.6,0}'), (3, '{0,1,0}'), (4, '{0,0.6,0.8}'), (5, '{0,0,1}');
CREATE TABLE clicks (user_id int, item_id bigint, weight float8);
INSERT INTO clicks VALUES (1, 1, 1), (1, 2, 2), (2, 4, 1), (2, 5, 1), (2, 77, 1);

-- vectors by their keys
SELECT * FROM gpuvec_gather('items', 'id', 'embedding', '{3,77}');
-- their sum, mean, or concatenation
SELECT gpuvec_pool('items', 'id', 'embedding', '{1,2}', mode => 'mean', weights => '{1,3}');
-- a profile of each user: few trips to the engine for all groups
CREATE TABLE profiles AS
SELECT user_id, gpuvec_pool_agg('items', 'id', 'embedding', item_id, weight, 'mean', 'skip') AS profile FROM clicks GROUP BY user_id;
-- what a user may like next
SELECT n.rank, n.key, n.score
FROM profiles p, gpuvec_nearest('items', 'id', 'embedding', p.profile, 2, exclude => ARRAY(SELECT item_id FROM clicks c WHERE c.user_id = p.user_id)) n
WHERE p.user_id = 1;
-- training
CREATE TABLE items_state (key bigint PRIMARY KEY, step bigint, m real[], v real[]);
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1,2,6}', initializer => 'normal', scale => 0.1);
WITH pooled AS (SELECT gpuvec_pool('items', 'id', 'embedding', '{1,6}', 'mean') AS p),
	loss AS (SELECT array_agg(x - 1 ORDER BY i) AS upstream FROM pooled, unnest(p) WITH ORDINALITY u (x, i)),
	gradients AS (SELECT array_agg(key) AS keys, array_agg(gradient) AS gradients FROM loss, gpuvec_pool_grad('items', 'id', 'embedding', '{1,6}', upstream, 'mean'))
SELECT gpuvec_apply_grad('items', 'id', 'embedding', keys, gradients, 'adam', 0.1, 'items_state') FROM gradients;
SELECT id, embedding FROM items WHERE id < 6 ORDER BY id;
SELECT key, step FROM items_state ORDER BY key;
-- batches
SELECT users[sample] AS user_id, embedding
FROM (SELECT array_agg(user_id ORDER BY user_id) AS users, (gpuvec_weighted_bags_agg(items, weights ORDER BY user_id)).*
	FROM (SELECT user_id, array_agg(item_id) AS items, array_agg(weight) AS weights FROM clicks GROUP BY user_id) c) b,
	gpuvec_pool_batch('items', 'id', 'embedding', keys, offsets, mode => 'mean', weights => b.weights) p;
-- the sample of each key, by key (the transposed matrix), and each key's number among the distinct ones
SELECT key, width_bucket(o - 1, '{0,2,2,5}'::bigint[]) AS sample, dense_rank() OVER (ORDER BY key) - 1 AS number
FROM unnest('{7,4,4,9,7}'::bigint[]) WITH ORDINALITY u (key, o) ORDER BY key, o;
-- with as many keys in each bag, here 2
SELECT key, (o - 1) / 2 + 1 AS sample FROM unnest('{7,4,4,9}'::bigint[]) WITH ORDINALITY u (key, o);
DROP TABLE items, clicks, profiles, items_state;
