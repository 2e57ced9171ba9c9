-- Gradients of pooling.
CREATE TABLE items (id bigint PRIMARY KEY, embedding real[]);
INSERT INTO items VALUES (4, '{1,2}'), (8, '{10,20}'), (15, '{100,200}'), (-3, '{3,4}');
-- toy cases
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,4,4,5}', '{1,-1}');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,4,4,5}', '{1,-1}', 'mean');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,4,4,5,-3}', '{1,-1}', 'mean', missing => 'skip');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,4,4,5}', '{1,2,3,4,5,6,7,8}', 'concat');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,5,4,4}', '{1,2,3,4,5,6}', 'concat', '{1,1,1,-2}', 'skip');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,4,4,5}', '{1,-1}', weights => '{2,0.5,1,7}', all_keys => true);
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,4}', '{1,-1}', 'mean', '{1,-1}');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{8,9}', '{1,-1}', missing => 'error');
SELECT * FROM gpuvec_pool_grad_batch('items', 'id', 'embedding', '{8,4,15,4,8}', '{{1,2},{3,4},{5,6}}', '{0,2,2,5}');
SELECT * FROM gpuvec_pool_grad_batch('items', 'id', 'embedding', '{8,4,15,4}', '{{1,2},{3,4}}', hotness => 2, mode => 'mean', weights => '{1,3,1,1}');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{8,4,4,5}', '{1,-1}');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{8,4,5}', '{1,-1}', 'mean');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{8,4,5}', '{1,-1}', 'mean', missing => 'skip');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{8,4,5}', '{1,2,3,4,5,6}', 'concat');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{5,8,4}', '{1,2,3,4}', 'concat', missing => 'skip');
SELECT gpuvec_pool_grad_weights_batch('items', 'id', 'embedding', '{8,4,15,4}', '{{1,2},{3,4}}', hotness => 2, weights => '{1,3,1,1}');
-- nothing found, nothing there
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{5,6}', '{1,2}');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{5,6}', '{1,2}', all_keys => true);
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{5,6}', '{1,2}');
SELECT * FROM gpuvec_pool_grad_batch('items', 'id', 'embedding', '{}', '{}', '{0}');
SELECT gpuvec_pool_grad_weights('items', 'id', 'embedding', '{}', '{1,2}');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', NULL, '{1,2}');
-- wrong arguments
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{4}', '{1,2,3}');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{4}', '{1,NULL}');
SELECT * FROM gpuvec_pool_grad('items', 'id', 'embedding', '{4}', NULL);
SELECT * FROM gpuvec_pool_grad_batch('items', 'id', 'embedding', '{4,5}', '{1,2,3}', hotness => 1, mode => 'concat', missing => 'skip');
CREATE TABLE twice AS SELECT * FROM items UNION ALL SELECT 8, '{1,1}';
SELECT * FROM gpuvec_pool_grad('twice', 'id', 'embedding', '{4}', '{1,2}', all_keys => true);
SELECT * FROM gpuvec_pool_grad('twice', 'id', 'embedding', '{4,8}', '{1,2}');

-- Every option with every other against plain SQL.  All numbers are small and dyadic, so that
-- sums are exact, but for quotients.
CREATE TABLE vectors (id int PRIMARY KEY, embedding real[]);
INSERT INTO vectors SELECT i, ARRAY(SELECT (i * 7 + j * 5) % 11 - 5 FROM generate_series(1, 5) j) FROM generate_series(-6, 30) i WHERE i % 4 <> 0;
CREATE TABLE bags (b int PRIMARY KEY, keys int8[], weights float8[]);
INSERT INTO bags SELECT b, ARRAY(SELECT (b * 13 + j * j * 5) % 40 - 8 FROM generate_series(1, 1 << (b % 5)) j),
	ARRAY(SELECT ('{1,2,0.5,0.5,0}'::float8[])[1 + (b + j) % 5] FROM generate_series(1, 1 << (b % 5)) j) FROM generate_series(0, 60) b;
CREATE VIEW flat AS SELECT b, o, key, w AS weight, v.embedding
	FROM bags, unnest(keys, weights) WITH ORDINALITY u (key, w, o) LEFT JOIN vectors v ON v.id = u.key;
-- a gradient for each element that is pooled, small integers
CREATE FUNCTION upstream(b int, o bigint, i bigint) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT ((b * 31 + o * 17 + i * 13) % 9 - 4)::float8 $$;
CREATE FUNCTION divisors(weighted bool, mode text, missing text) RETURNS TABLE (b int, divisor float8) LANGUAGE sql AS $$
	SELECT b, CASE WHEN mode = 'mean' THEN coalesce(sum(CASE WHEN weighted THEN weight ELSE 1 END) FILTER (WHERE missing = 'zero' OR embedding IS NOT NULL), 0) ELSE 1 END FROM flat GROUP BY b
$$;
CREATE FUNCTION expected(weighted bool, mode text, missing text) RETURNS TABLE (key int8, gradient float8[]) LANGUAGE sql AS $$
	WITH shares AS (
		SELECT key, i, CASE WHEN weighted THEN weight ELSE 1 END / divisor * upstream(b, CASE WHEN mode = 'concat' THEN o ELSE 0 END, i) AS share
		FROM flat JOIN divisors(weighted, mode, missing) USING (b), generate_series(1, 5) i WHERE embedding IS NOT NULL AND divisor <> 0)
	SELECT key, array_agg(s ORDER BY i) FROM (SELECT key, i, sum(share) AS s FROM shares GROUP BY 1, 2) x GROUP BY key
$$;
CREATE FUNCTION expected_weights(weighted bool, mode text, missing text) RETURNS float8[] LANGUAGE sql AS $$
	WITH dots AS (
		SELECT b, o, embedding IS NOT NULL AS found, CASE WHEN weighted THEN weight ELSE 1 END AS weight,
			coalesce((SELECT sum(x * upstream(b, CASE WHEN mode = 'concat' THEN o ELSE 0 END, i)) FROM unnest(embedding) WITH ORDINALITY u (x, i)), 0) AS dot FROM flat),
	means AS (
		SELECT b, divisor, CASE WHEN divisor <> 0 THEN sum(dot * weight) / divisor END AS mean FROM dots JOIN divisors(weighted, mode, missing) USING (b) GROUP BY 1, 2)
	SELECT array_agg(CASE WHEN missing = 'skip' AND NOT found THEN 0 WHEN mode <> 'mean' THEN dot WHEN divisor = 0 THEN 0 ELSE (dot - mean) / divisor END ORDER BY b, o)
	FROM dots JOIN means USING (b)
$$;
CREATE FUNCTION compare(weighted bool, mode text, missing text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE k int8[]; w float8[]; off int8[]; g float8[]; n int; wrong int; weights_wrong int;
BEGIN
	SELECT array_agg(f.key ORDER BY b, o), CASE WHEN weighted THEN array_agg(f.weight ORDER BY b, o) END INTO k, w FROM flat f;
	SELECT array_agg(x.n ORDER BY x.n) INTO off FROM (SELECT 0 AS n UNION ALL SELECT sum(cardinality(keys)) OVER (ORDER BY b) FROM bags) x;
	IF mode = 'concat' THEN
		SELECT array_agg(upstream(b, o, i) ORDER BY b, o, i) INTO g FROM flat f, generate_series(1, 5) i WHERE missing = 'zero' OR f.embedding IS NOT NULL;
	ELSE
		SELECT array_agg(upstream(b, 0, i) ORDER BY b, i) INTO g FROM bags, generate_series(1, 5) i;
	END IF;
	SELECT count(*), count(*) FILTER (WHERE (SELECT coalesce(max(CASE WHEN x = y::real THEN 0 WHEN mode = 'mean' THEN abs(x - y) ELSE 1 END), 1) FROM unnest(a.gradient, e.gradient) u (x, y)) > 1e-5) INTO n, wrong
	FROM gpuvec_pool_grad_batch('vectors', 'id', 'embedding', k, g, off, NULL, mode, w, missing) a FULL JOIN expected(weighted, mode, missing) e USING (key);
	SELECT count(*) INTO weights_wrong FROM unnest(gpuvec_pool_grad_weights_batch('vectors', 'id', 'embedding', k, g, off, NULL, mode, w, missing), expected_weights(weighted, mode, missing)) u (x, y)
	WHERE x IS NULL OR y IS NULL OR abs(x - y) > 1e-5 * (1 + abs(y));
	RETURN format('%s of %s gradients wrong, %s of weights', wrong, n, weights_wrong);
END $$;
SELECT weighted, mode, missing, compare(weighted, mode, missing)
FROM unnest('{f,t}'::bool[]) weighted, unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing;
-- many parts: a key in all bags, and each key in few; the sum over keys is that over bags
CREATE TABLE large AS SELECT i AS id, ARRAY[i % 7, 1, i % 3, -i % 5]::real[] AS embedding FROM generate_series(1, 6000) i;
SELECT count(*), sum(gradient[1]), sum(gradient[2]), max(gradient[2]) FILTER (WHERE key = 1) AS first, count(DISTINCT key), min(key), max(key)
FROM gpuvec_pool_grad_batch('large', 'id', 'embedding', (SELECT array_agg(CASE WHEN i % 10 = 0 THEN 1 ELSE 1 + i % 6001 END ORDER BY i) FROM generate_series(0, 39999) i),
	(SELECT array_agg((i % 4 + 1)::float8 ORDER BY i) FROM generate_series(0, 15999) i), hotness => 10);
-- One bag of 287,268 keys whose weights nearly cancel, against float64.  Odd keys come in the second half; their
-- weights and vectors are negative, so that of all sums only the divisor of the mean is small beside its parts.
CREATE TABLE signed AS SELECT id::int8, ARRAY[s * (1 + id * 7 % 97 / 97.0), s * (1 + id * 5 % 89 / 89.0)]::real[] AS embedding
	FROM (SELECT id, 1 - id % 2 * 2 AS s FROM generate_series(0, 99) id) x;
CREATE TABLE lookups AS SELECT o, key, ((1 - key % 2 * 2) * (0.5 + o * o % 1000003 * o % 1000003 / 1000003.0))::real::float8 AS weight
	FROM (SELECT o, o * 7919 % 50 * 2 + CASE WHEN o % 1024 = 0 THEN 0 ELSE o * 2 / 287268 END AS key FROM generate_series(0::int8, 287267) o) x;
CREATE VIEW arrays AS SELECT array_agg(key ORDER BY o) AS keys, array_agg(weight ORDER BY o) AS weights FROM lookups;
CREATE VIEW totals AS SELECT sum(weight) AS divisor, sum(abs(weight)) AS divisor_size, sum(weight * (embedding[1] - embedding[2] / 2)) AS dot,
		sum(abs(weight) * (abs(embedding[1]) + abs(embedding[2] / 2))) AS dot_size, ARRAY[sum(weight * embedding[1]), sum(weight * embedding[2])] AS sums
	FROM lookups JOIN signed ON id = key;
SELECT divisor_size / divisor BETWEEN 100 AND 10000 AS cancels FROM totals;
SELECT j, abs(mean - sums[j] / divisor) <= 1e-6 * abs(sums[j] / divisor) AS near
FROM arrays, totals, unnest(gpuvec_pool('signed', 'id', 'embedding', keys, 'mean', weights)) WITH ORDINALITY u (mean, j);
SELECT count(*), bool_and(abs(gradient[1] - share) <= 1e-5 * abs(share) AND abs(gradient[2] + share / 2) <= 1e-5 * abs(share)) AS near
FROM arrays, gpuvec_pool_grad('signed', 'id', 'embedding', keys, '{1,-0.5}', 'mean', weights)
	JOIN (SELECT key, sum(weight) / min(divisor) AS share FROM lookups, totals GROUP BY key) s USING (key);
SELECT count(*), bool_and(abs(x - (embedding[1] - embedding[2] / 2 - dot / divisor) / divisor) <= 1e-5 * dot_size / divisor ^ 2) AS near
FROM totals, (SELECT unnest(keys) AS id, unnest(gpuvec_pool_grad_weights('signed', 'id', 'embedding', keys, '{1,-0.5}', 'mean', weights)) AS x FROM arrays) u JOIN signed USING (id);
DROP VIEW arrays, totals;
DROP TABLE items, twice, vectors, bags, large, signed, lookups CASCADE;
DROP FUNCTION upstream, divisors, expected, expected_weights, compare;
