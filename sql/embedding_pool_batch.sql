-- Pooling many bags at once.
CREATE TABLE items (id bigint PRIMARY KEY, embedding real[]);
INSERT INTO items VALUES (4, '{1,2}'), (8, '{10,20}'), (15, '{100,200}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4}', '{0,2,2,5}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4,16}', hotness => 2, mode => 'mean');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4,16}', hotness => 2, mode => 'mean', missing => 'skip');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4,16}', hotness => 2, mode => 'concat');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,16,4,4,16}', '{0,1,3,6}', mode => 'concat', missing => 'skip');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4,16}', hotness => 2, weights => '{1,2,3,4,5,6}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4,16}', hotness => 2, missing => 'error');
-- slots: several bags of one sample
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,4,4}', '{0,2,2,4,5}', slots => 2);
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,8,15,16}', hotness => 1, slots => 4, mode => 'mean');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{4,16,15,16}', hotness => 1, slots => 2, mode => 'concat', missing => 'skip');
-- gathering
SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', '{4,8,16,NULL,4}', '{0,0,2,2,5,5}');
SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', '{4,8,16,4}', hotness => 2);
SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', '{}', '{0,0}');
SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', NULL, '{0}');
SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', '{4,8}');
SELECT * FROM gpuvec_gather_batch('items', 'id', 'embedding', '{4,8}', '{0,1}');
-- one batch of many bags
CREATE TABLE bags (b int, keys int8[], weights float8[]);
INSERT INTO bags VALUES (3, '{}', '{}'), (1, '{4,8}', '{1,2}'), (4, '{15}', '{-1}'), (2, NULL, NULL);
SELECT (gpuvec_bags_agg(keys ORDER BY b)).* FROM bags;
SELECT (gpuvec_weighted_bags_agg(keys, weights ORDER BY b)).* FROM bags;
SELECT b, embedding FROM (SELECT array_agg(b ORDER BY b) AS bs, gpuvec_weighted_bags_agg(keys, weights ORDER BY b) AS a FROM bags) x, gpuvec_pool_batch('items', 'id', 'embedding', (a).keys, (a).offsets, weights => (a).weights), LATERAL (SELECT bs[sample] AS b) y;
SELECT gpuvec_bags_agg(keys) FROM bags WHERE b > 5;
SELECT b > 2 AS late, gpuvec_bags_agg(keys) OVER (PARTITION BY b > 2 ORDER BY b) FROM bags;
SELECT gpuvec_bags_agg(keys) IS NOT DISTINCT FROM ROW(array_agg(i ORDER BY i), array_agg(i ORDER BY i) || int8 '1000', NULL)::gpuvec_bags FROM (SELECT i, ARRAY[i] AS keys FROM generate_series(0::int8, 999) i) x;
SELECT gpuvec_weighted_bags_agg(keys, '{1}') FROM bags;
SELECT gpuvec_bags_agg('{1,NULL}');
SELECT gpuvec_bags_agg('{{1,2}}');
-- and back: the sample of each key, of offsets or of as many keys each; ordered by keys, each with its number
SELECT width_bucket(o - 1, offsets) AS sample, key, weight, dense_rank() OVER (ORDER BY key) - 1 AS n
FROM (SELECT (gpuvec_weighted_bags_agg(keys, weights ORDER BY b)).* FROM bags) c, unnest(keys, weights) WITH ORDINALITY u (key, weight, o) ORDER BY key, o;
SELECT (o - 1) / 2 + 1 AS sample, key FROM unnest('{4,8,15,4}'::int8[]) WITH ORDINALITY u (key, o) ORDER BY key, o;
DROP TABLE bags;
-- nothing, and nothing found
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{}', '{0}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{}', hotness => 3);
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{}', '{0,0,0}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3}', '{0,1,3}', mode => 'concat');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3}', '{0,1,3}', mode => 'concat', missing => 'skip');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', NULL, '{0}');
CREATE TABLE nothing (id int, v real[]);
SELECT * FROM gpuvec_pool_batch('nothing', 'id', 'v', '{1,2,3}', '{0,1,3}');
-- wrong arguments
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', '{0,2}', 1);
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', '{}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', '{1,2}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', '{0,1}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', '{0,3,2}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', '{0,NULL,2}');
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2}', hotness => 0);
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3}', hotness => 2);
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3}', hotness => 1, slots => 2);
SELECT * FROM gpuvec_pool_batch('items', 'id', 'embedding', '{1,2,3}', hotness => 1, slots => 0);
DROP TABLE items, nothing;

-- Every option with every other, random bags, widths of all sorts, against plain SQL.  Elements are small integers and weights
-- are small powers of two, so sums are exact, and a quotient of float8 rounded to float4 is that of float4.
CREATE TABLE vectors (width int, id int, embedding real[]);
CREATE TABLE bags (b int, keys int8[], weights float8[]);
CREATE FUNCTION expected(w int) RETURNS TABLE (b int, weighted bool, mode text, missing text, embedding real[]) LANGUAGE sql AS $$
	WITH k AS (
		SELECT b.b, weighted, u.o, u.key, CASE WHEN weighted THEN u.weight ELSE 1 END AS weight, v.embedding
		FROM bags b CROSS JOIN unnest('{f,t}'::bool[]) weighted CROSS JOIN unnest(b.keys, b.weights) WITH ORDINALITY u (key, weight, o)
			LEFT JOIN vectors v ON v.id = u.key AND v.width = w),
	missings AS (SELECT unnest('{zero,skip}'::text[]) AS missing),
	divisors AS (
		SELECT b, weighted, missing, coalesce(sum(weight) FILTER (WHERE missing = 'zero' OR embedding IS NOT NULL), 0) AS divisor
		FROM k, missings GROUP BY 1, 2, 3),
	products AS (
		SELECT b, weighted, o, i, weight * x AS x, embedding IS NOT NULL AS found
		FROM k, unnest(coalesce(embedding, array_fill(0::real, ARRAY[w]))) WITH ORDINALITY u (x, i)),
	sums AS (
		SELECT b, weighted, i, sum(x) AS s FROM products GROUP BY 1, 2, 3)
	SELECT b, weighted, mode, missing,
		array_agg(CASE mode WHEN 'sum' THEN s ELSE CASE WHEN divisor <> 0 THEN s / divisor ELSE 0 END END ORDER BY i)::real[]
	FROM sums JOIN divisors USING (b, weighted), unnest('{sum,mean}'::text[]) mode GROUP BY 1, 2, 3, 4
	UNION ALL
	SELECT b, weighted, 'concat', missing, coalesce(array_agg(x ORDER BY o, i) FILTER (WHERE missing = 'zero' OR found), '{}')::real[]
	FROM products, missings GROUP BY 1, 2, 4
$$;
CREATE FUNCTION actual(w int) RETURNS TABLE (b int, weighted bool, mode text, missing text, embedding real[]) LANGUAGE plpgsql AS $$
DECLARE all_keys int8[]; all_weights float8[]; all_offsets int8[];
BEGIN
	CREATE OR REPLACE TEMP VIEW flat AS SELECT b.b, o, key, weight FROM bags b, unnest(b.keys, b.weights) WITH ORDINALITY u (key, weight, o);
	SELECT array_agg(key ORDER BY f.b, o), array_agg(weight ORDER BY f.b, o) INTO all_keys, all_weights FROM flat f;
	SELECT array_agg(n ORDER BY n) INTO all_offsets FROM (SELECT 0 AS n UNION ALL SELECT sum(cardinality(keys)) OVER (ORDER BY bags.b) FROM bags) x;
	FOREACH weighted IN ARRAY '{f,t}'::bool[] LOOP
		FOREACH mode IN ARRAY '{sum,mean,concat}'::text[] LOOP
			FOREACH missing IN ARRAY '{zero,skip}'::text[] LOOP
				FOR b, embedding IN EXECUTE format('SELECT sample, embedding FROM gpuvec_pool_batch(''v%s'', ''id'', ''embedding'', $1, $2, mode => $3, weights => $4, missing => $5)', w)
					USING all_keys, all_offsets, mode, CASE WHEN weighted THEN all_weights END, missing
				LOOP
					RETURN NEXT;
				END LOOP;
			END LOOP;
		END LOOP;
	END LOOP;
END $$;
CREATE FUNCTION compare(w int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n int; wrong int;
BEGIN
	SELECT count(*), count(*) FILTER (WHERE e.embedding IS DISTINCT FROM a.embedding) INTO n, wrong
	FROM expected(w) e FULL JOIN actual(w) a USING (b, weighted, mode, missing);
	RETURN format('%s of %s wrong', wrong, n);
END $$;
CREATE FUNCTION make(w int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE v%s (id int PRIMARY KEY, embedding real[])', w);
	EXECUTE format('INSERT INTO v%s SELECT i, ARRAY(SELECT ((i * 7919 + j * 104729) %% 201 - 100)::real FROM generate_series(1, %s) j) FROM generate_series(-20, 100) i WHERE i %% 5 <> 0', w, w);
	EXECUTE format('INSERT INTO vectors SELECT %s, id, embedding FROM v%s', w, w);
END $$;
SELECT setseed(0.25);
INSERT INTO bags SELECT b, k, ARRAY(SELECT ('{-1,0,0.5,1,2}'::float8[])[1 + (random() * 4)::int] FROM unnest(k))
FROM (SELECT b, ARRAY(SELECT (random() * 120 - 20)::int8 FROM generate_series(1, 1 + (b * 37) % 90)) AS k FROM generate_series(1, 16) b) x;
SELECT w, make(w), compare(w) FROM unnest('{1,3,4,31,33,128}'::int[]) w;
VACUUM v1, v3, v4, v31, v33, v128;
SELECT w, compare(w) FROM unnest('{1,3,4,31,33,128}'::int[]) w;
-- some changed since
UPDATE v33 SET embedding = (SELECT array_agg(x + 1 ORDER BY o) FROM unnest(embedding) WITH ORDINALITY u (x, o)) WHERE id % 3 = 0;
UPDATE vectors v SET embedding = n.embedding FROM v33 n WHERE v.width = 33 AND v.id = n.id;
SELECT compare(33);
-- wide ones, few bags
DELETE FROM bags WHERE b > 3;
SELECT make(1000), make(4096);
SELECT w, compare(w) FROM unnest('{1000,4096}'::int[]) w;
-- a call of many parts gives the same bits as many calls, and each time
CREATE TABLE many (id int PRIMARY KEY, embedding real[]);
INSERT INTO many SELECT i, ARRAY(SELECT (sin(i * 1000 + j) * 3)::real FROM generate_series(1, 16) j) FROM generate_series(1, 5000) i;
CREATE TEMP TABLE many_bags AS SELECT b, ARRAY(SELECT 1 + (b * 7919 + j * j * 31) % 5500 FROM generate_series(1, 1 + b % 60) j)::int8[] AS keys FROM generate_series(1, 300) b;
CREATE TEMP TABLE flat_bags AS SELECT (SELECT array_agg(key ORDER BY b, o) FROM many_bags, unnest(keys) WITH ORDINALITY u (key, o)) AS keys,
	(SELECT array_agg(n ORDER BY n) FROM (SELECT 0 AS n UNION ALL SELECT sum(cardinality(keys)) OVER (ORDER BY b) FROM many_bags) x) AS offsets;
SELECT mode, count(*), count(*) FILTER (WHERE p.embedding IS DISTINCT FROM gpuvec_pool('many', 'id', 'embedding', b.keys, mode))
FROM unnest('{sum,mean,concat}'::text[]) mode, flat_bags f, gpuvec_pool_batch('many', 'id', 'embedding', f.keys, f.offsets, mode => mode) p JOIN many_bags b ON b.b = p.sample GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM (
	SELECT p.sample, p.embedding FROM flat_bags f, gpuvec_pool_batch('many', 'id', 'embedding', f.keys, f.offsets, mode => 'mean') p EXCEPT
	SELECT p.sample, p.embedding FROM flat_bags f, gpuvec_pool_batch('many', 'id', 'embedding', f.keys, f.offsets, mode => 'mean') p) x;
DROP TABLE vectors, bags, v1, v3, v4, v31, v33, v128, v1000, v4096, many CASCADE;
DROP FUNCTION expected, actual, compare, make;
