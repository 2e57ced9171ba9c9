-- Every option with every other, through every function that pools, against plain SQL: types of keys and vectors, storage, tables that
-- were vacuumed or not, modes, weights, missing keys, slots, offsets or a fixed number of keys, single calls, batches, and aggregates.
-- Numbers are small and dyadic, so that sums are exact, but for quotients.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE TABLE source (key int8 PRIMARY KEY, embedding float8[]);
CREATE TABLE bag (b int PRIMARY KEY);
CREATE TABLE flat (b int, o int, key int8, weight float8, PRIMARY KEY (b, o));
CREATE VIEW bags AS SELECT b, coalesce(array_agg(key ORDER BY o) FILTER (WHERE o > 0), '{}') AS keys, coalesce(array_agg(weight ORDER BY o) FILTER (WHERE o > 0), '{}') AS weights
	FROM bag LEFT JOIN flat USING (b) GROUP BY b;
CREATE FUNCTION upstream(n int8, i int8) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT ((n * 7 + i * 3) % 5 - 2)::float8 $$;
-- a quotient as IEEE 754 has it: before PostgreSQL 14, a number divided by infinity is an error
CREATE FUNCTION quotient(a float8, b float8) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN abs(a) < 'Infinity' AND abs(b) = 'Infinity' THEN 0 ELSE a / b END $$;
-- same but for rounding; NaN is NaN
CREATE FUNCTION near(a float8, b float8) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT a = b OR abs(a - b) <= 1e-5 * (1 + abs(b)) $$;
CREATE FUNCTION near(a real[], b real[]) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
	SELECT a = b OR cardinality(a) = cardinality(b) AND (SELECT bool_and(near(x, y)) FROM unnest(a, b) u (x, y)) $$;
-- what is pooled: each key that counts, with its vector, its place among them, and what its bag is divided by
CREATE FUNCTION counted(weighted bool, mode text, missing text) RETURNS TABLE (b int, o int, place int8, key int8, weight float8, embedding float8[], divisor float8) LANGUAGE sql AS $$
	SELECT f.b, f.o, row_number() OVER (ORDER BY f.b, f.o), f.key, w, s.embedding, CASE mode WHEN 'mean' THEN sum(w) OVER (PARTITION BY f.b) ELSE 1 END
	FROM (SELECT *, CASE WHEN weighted THEN flat.weight ELSE 1 END AS w FROM flat) f LEFT JOIN source s USING (key) WHERE missing = 'zero' OR s.key IS NOT NULL $$;
CREATE FUNCTION expected_pool(width int, weighted bool, mode text, missing text) RETURNS TABLE (b int, e real[]) LANGUAGE sql AS $$
	WITH c AS MATERIALIZED (SELECT * FROM counted(weighted, mode, missing)),
	x AS (SELECT c.b, c.o, c.divisor, i, CASE WHEN embedding IS NULL THEN NULL ELSE weight * embedding[i] END AS x FROM c, generate_series(1, width) i),
	s AS (SELECT x.b, i, CASE WHEN max(divisor) = 0 THEN 0 ELSE quotient(coalesce(sum(x), 0), max(divisor)) END AS s FROM x GROUP BY 1, 2),
	sums AS (SELECT s.b, array_agg(s ORDER BY i)::real[] AS e FROM s GROUP BY 1),
	rows AS (SELECT x.b, array_agg(coalesce(x, 0) ORDER BY o, i)::real[] AS e FROM x GROUP BY 1)
	SELECT bag.b, CASE mode WHEN 'concat' THEN coalesce(rows.e, '{}') ELSE coalesce(sums.e, array_fill(0::real, ARRAY[width])) END
	FROM bag LEFT JOIN sums USING (b) LEFT JOIN rows USING (b) $$;
CREATE FUNCTION expected_grad(width int, weighted bool, mode text, missing text) RETURNS TABLE (key int8, e real[]) LANGUAGE sql AS $$
	WITH x AS (SELECT c.key, i, CASE WHEN divisor = 0 THEN 0 ELSE quotient(weight * upstream(CASE mode WHEN 'concat' THEN place ELSE c.b END, i), divisor) END AS x
		FROM counted(weighted, mode, missing) c, generate_series(1, width) i WHERE embedding IS NOT NULL)
	SELECT key, array_agg(s ORDER BY i)::real[] FROM (SELECT key, i, sum(x) AS s FROM x GROUP BY 1, 2) y GROUP BY 1 $$;
CREATE FUNCTION expected_weights(width int, weighted bool, mode text, missing text) RETURNS TABLE (b int, o int, e float8) LANGUAGE sql AS $$
	WITH d AS (SELECT c.*, coalesce((SELECT sum(embedding[i] * upstream(CASE mode WHEN 'concat' THEN place ELSE c.b END, i)) FROM generate_series(1, width) i WHERE embedding IS NOT NULL), 0) AS dot
		FROM counted(weighted, mode, missing) c),
	m AS (SELECT *, CASE WHEN divisor <> 0 THEN quotient(sum(dot * weight) OVER (PARTITION BY b), divisor) END AS mean FROM d)
	SELECT f.b, f.o, CASE WHEN m.b IS NULL THEN 0 WHEN mode <> 'mean' THEN dot WHEN divisor = 0 THEN 0 ELSE quotient(dot - mean, divisor) END
	FROM flat f LEFT JOIN m USING (b, o) $$;
-- the gradient of what is pooled
CREATE FUNCTION upstreams(width int, mode text, missing text) RETURNS float8[] LANGUAGE sql AS $$
	SELECT coalesce(CASE mode WHEN 'concat' THEN (SELECT array_agg(upstream(place, i) ORDER BY place, i) FROM counted(false, mode, missing), generate_series(1, width) i)
		ELSE (SELECT array_agg(upstream(b, i) ORDER BY b, i) FROM bag, generate_series(1, width) i) END, '{}') $$;
-- all forms of one combination; returns those with mistakes
CREATE FUNCTION check_forms(rel regclass, width int, hotness int, weighted bool, mode text, missing text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE c gpuvec_bags; up float8[] := upstreams(width, mode, missing); wrong int; total int := (SELECT count(*) FROM bag); form text; grouped int := (SELECT count(DISTINCT b) FROM flat);
BEGIN
	SELECT (CASE WHEN weighted THEN gpuvec_bags_agg(keys, weights ORDER BY b) ELSE gpuvec_bags_agg(keys ORDER BY b) END).* INTO c FROM bags;
	CREATE TEMP TABLE e ON COMMIT DROP AS SELECT * FROM expected_pool(width, weighted, mode, missing);
	CREATE TEMP TABLE a (form text, b int, a real[]) ON COMMIT DROP;
	INSERT INTO a SELECT 'pool', b, gpuvec_pool(rel, 'id', 'v', keys, mode, CASE WHEN weighted THEN weights END, missing) FROM bags;
	INSERT INTO a SELECT 'batch', p.* FROM gpuvec_pool_batch(rel, 'id', 'v', c.keys, c.offsets, mode => mode, weights => c.weights, missing => missing) p;
	IF hotness IS NOT NULL THEN
		INSERT INTO a SELECT 'hotness', p.* FROM gpuvec_pool_batch(rel, 'id', 'v', c.keys, hotness => hotness, mode => mode, weights => c.weights, missing => missing) p;
	END IF;
	FOREACH form IN ARRAY '{off,on}'::text[] LOOP
		PERFORM set_config('enable_hashagg', form, true);
		EXECUTE 'INSERT INTO a SELECT ''hashed ' || form || ''', b, ' || CASE WHEN mode = 'sum' AND missing = 'zero' THEN CASE WHEN weighted THEN 'gpuvec_pool_agg($1, ''id'', ''v'', key, weight)' ELSE 'gpuvec_pool_agg($1, ''id'', ''v'', key)' END
			ELSE 'gpuvec_pool_agg($1, ''id'', ''v'', key, CASE WHEN $2 THEN weight ELSE 1 END, $3, $4)' END || ' FROM (SELECT * FROM flat ORDER BY b, o) f GROUP BY b' USING rel, weighted, mode, missing;
	END LOOP;
	FOR form, wrong IN SELECT a.form, count(*) FILTER (WHERE near(a, e) IS NOT TRUE) + abs(CASE WHEN a.form LIKE 'hashed%' THEN grouped ELSE total END - count(*)) FROM a LEFT JOIN e USING (b) GROUP BY 1 LOOP
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s %s', rel, width, weighted, mode, missing, form); END IF;
	END LOOP;
	-- two slots
	SELECT count(*) INTO wrong FROM gpuvec_pool_batch(rel, 'id', 'v', c.keys, c.offsets, slots => 2, mode => mode, weights => c.weights, missing => missing) p
		FULL JOIN (SELECT x.b / 2 AS sample, x.e || y.e AS e FROM e x JOIN e y ON y.b % 2 = 0 AND x.b = y.b - 1) x ON x.sample = p.sample - 1 WHERE near(p.embedding, e) IS NOT TRUE;
	IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s slots', rel, width, weighted, mode, missing); END IF;
	-- gradients
	SELECT count(*) INTO wrong FROM gpuvec_pool_grad_batch(rel, 'id', 'v', c.keys, up, c.offsets, NULL, mode, c.weights, missing) p FULL JOIN expected_grad(width, weighted, mode, missing) x USING (key) WHERE near(p.gradient, x.e) IS NOT TRUE;
	IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s gradients', rel, width, weighted, mode, missing); END IF;
	SELECT count(*) INTO wrong FROM gpuvec_pool_grad_batch(rel, 'id', 'v', c.keys, up, c.offsets, NULL, mode, c.weights, missing, true) p FULL JOIN source USING (key) LEFT JOIN expected_grad(width, weighted, mode, missing) x USING (key)
	WHERE near(p.gradient, coalesce(x.e, array_fill(0::real, ARRAY[width]))) IS NOT TRUE;
	IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s full gradients', rel, width, weighted, mode, missing); END IF;
	SELECT count(*) INTO wrong FROM unnest(gpuvec_pool_grad_weights_batch(rel, 'id', 'v', c.keys, up, c.offsets, NULL, mode, c.weights, missing)) WITH ORDINALITY p (a, n)
		FULL JOIN (SELECT row_number() OVER (ORDER BY b, o) AS n, e FROM expected_weights(width, weighted, mode, missing)) x USING (n) WHERE near(a, e) IS NOT TRUE;
	IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s gradients of weights', rel, width, weighted, mode, missing); END IF;
	-- single calls, and as many keys a bag
	IF mode <> 'concat' THEN
		SELECT count(*) INTO wrong FROM (
			SELECT key, array_agg(s ORDER BY i)::real[] AS g FROM (
				SELECT key, i, sum(x) AS s FROM bags, gpuvec_pool_grad(rel, 'id', 'v', keys, (SELECT array_agg(upstream(b, i) ORDER BY i) FROM generate_series(1, width) i), mode, CASE WHEN weighted THEN weights END, missing) g,
					unnest(gradient) WITH ORDINALITY u (x, i) GROUP BY 1, 2) y GROUP BY 1) y
			FULL JOIN expected_grad(width, weighted, mode, missing) x USING (key) WHERE near(g, e) IS NOT TRUE;
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s single gradients', rel, width, weighted, mode, missing); END IF;
		SELECT count(*) INTO wrong FROM (SELECT b, o, a FROM bags, unnest(gpuvec_pool_grad_weights(rel, 'id', 'v', keys, (SELECT array_agg(upstream(b, i) ORDER BY i) FROM generate_series(1, width) i), mode, CASE WHEN weighted THEN weights END, missing)) WITH ORDINALITY u (a, o)) y
			FULL JOIN expected_weights(width, weighted, mode, missing) x USING (b, o) WHERE near(a, e) IS NOT TRUE;
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s single gradients of weights', rel, width, weighted, mode, missing); END IF;
	END IF;
	IF hotness IS NOT NULL THEN
		SELECT count(*) INTO wrong FROM gpuvec_pool_grad_batch(rel, 'id', 'v', c.keys, up, NULL, hotness, mode, c.weights, missing) p FULL JOIN expected_grad(width, weighted, mode, missing) x USING (key) WHERE near(p.gradient, x.e) IS NOT TRUE;
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s gradients by hotness', rel, width, weighted, mode, missing); END IF;
	END IF;
	DROP TABLE e, a;
END $$;
-- gathering, of which there are fewer forms
CREATE FUNCTION check_gather(rel regclass, hotness int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE c gpuvec_bags; wrong int;
BEGIN
	SELECT (gpuvec_bags_agg(keys ORDER BY b)).* INTO c FROM bags;
	SELECT count(*) INTO wrong FROM gpuvec_gather_batch(rel, 'id', 'v', c.keys, CASE WHEN hotness IS NULL THEN c.offsets END, hotness) g FULL JOIN flat f ON g.sample = f.b AND g.ordinality = f.o LEFT JOIN source s ON s.key = f.key
	WHERE g.key IS DISTINCT FROM f.key OR g.found IS DISTINCT FROM (s.key IS NOT NULL) OR g.embedding IS DISTINCT FROM s.embedding::real[];
	IF wrong <> 0 THEN RETURN NEXT format('%s gather_batch', rel); END IF;
	SELECT count(*) INTO wrong FROM bags, gpuvec_gather(rel, 'id', 'v', keys) g FULL JOIN flat f ON g.ordinality = f.o LEFT JOIN source s ON s.key = f.key
	WHERE f.b = bags.b AND (g.key IS DISTINCT FROM f.key OR g.found IS DISTINCT FROM (s.key IS NOT NULL) OR g.embedding IS DISTINCT FROM s.embedding::real[]);
	IF wrong <> 0 THEN RETURN NEXT format('%s gather', rel); END IF;
END $$;
-- the keys of a type: 0, -1, the least and the greatest, and some more
CREATE FUNCTION keys_of(type regtype) RETURNS int8[] LANGUAGE sql AS $$
	SELECT '{0,-1,1,2,3,7,11,-12,100}'::int8[] || CASE type WHEN 'int2'::regtype THEN '{-32768,32767}'::int8[] WHEN 'int4'::regtype THEN '{-2147483648,2147483647,65536}'
		ELSE '{-9223372036854775808,9223372036854775807,4294967296,-4294967297}' END $$;
-- fill all tables: `hotness`: as many keys in each bag; otherwise some are empty, and one has none that is found
CREATE FUNCTION fill(type regtype, vector_type regtype, width int, hotness int, vacuumed bool, nbags int DEFAULT 8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k int8[] := keys_of(type);
BEGIN
	TRUNCATE source, bag, flat;
	INSERT INTO source SELECT key, ARRAY(SELECT (random() * 16 - 8)::int / 2.0 FROM generate_series(1, width) WHERE key IS NOT NULL) FROM unnest(k) key WHERE key NOT IN (3, 11);
	INSERT INTO bag SELECT generate_series(1, nbags);
	INSERT INTO flat SELECT b, o, CASE WHEN b = 5 AND hotness IS NULL THEN 3 + o % 2 * 8 WHEN random() < 0.2 THEN 3 ELSE k[1 + (random() * (cardinality(k) - 1))::int] END, ('{-1,0,0.5,1,2,4}'::float8[])[1 + (random() * 5)::int]
	FROM bag, generate_series(1, coalesce(hotness, b * 5 % 13)) o WHERE hotness IS NOT NULL OR b NOT IN (1, 4);
	EXECUTE format('DROP TABLE IF EXISTS t; CREATE TABLE t (id %s PRIMARY KEY, v %s); INSERT INTO t SELECT key, embedding FROM source', type, vector_type);
	IF NOT vacuumed THEN
		PERFORM count(*) FROM gpuvec_gather('t', 'id', 'v', '{1}');
		UPDATE t SET v = array_fill(99, ARRAY[width]) WHERE id % 2 = 0;
		DELETE FROM t WHERE id = 7;
		UPDATE t SET v = embedding FROM source WHERE id = key AND id % 2 = 0;
		INSERT INTO t SELECT key, embedding FROM source WHERE key = 7;
	END IF;
END $$;
SELECT setseed(0.125);
-- all pairs (and more): each line is a table, with all modes, weights and treatments of missing keys
CREATE TABLE runs AS
	SELECT row_number() OVER (ORDER BY width, type, vector_type) AS run, type, vector_type, width, CASE WHEN (n + n / 5) % 2 = 0 THEN 3 END AS hotness, (n + n / 2) % 2 = 0 AS vacuumed, CASE WHEN (n + n / 7) % 2 = 0 THEN 'float32' ELSE 'float16' END AS storage
	FROM (SELECT *, row_number() OVER (ORDER BY width, type, vector_type) AS n FROM unnest('{int2,int4,int8}'::text[]) type, unnest('{real[],float8[]}'::text[]) vector_type, unnest('{1,3,4,31,33}'::int[]) width) x;
-- are they all pairs?
SELECT n AS tables, count(*) AS pairs_of_options, bool_and(pairs = a * b) AS all_there FROM (
	SELECT x.key AS k, y.key AS l, count(DISTINCT (x.value, y.value)) AS pairs, count(DISTINCT coalesce(x.value, '')) AS a, count(DISTINCT coalesce(y.value, '')) AS b
	FROM runs, jsonb_each_text(to_jsonb(runs) - 'run') x, jsonb_each_text(to_jsonb(runs) - 'run') y WHERE x.key < y.key GROUP BY 1, 2) p, (SELECT count(*) FROM runs) r (n) GROUP BY n;
CREATE PROCEDURE run_all(thorough bool) LANGUAGE plpgsql AS $$
DECLARE r runs; mistakes text; combinations int := 0;
BEGIN
	FOR r IN SELECT * FROM runs ORDER BY run LOOP
		PERFORM fill(r.type::regtype, r.vector_type::regtype, r.width, r.hotness, r.vacuumed, CASE WHEN thorough THEN 8 ELSE 2 END);
		COMMIT;
		IF r.vacuumed THEN ANALYZE t; END IF;
		PERFORM set_config('gpuvec.vector_storage', r.storage, false);
		FOR mistakes IN SELECT * FROM check_gather('t', r.hotness) LOOP RAISE WARNING 'mistake in run %: %', r, mistakes; END LOOP;
		FOR mistakes IN SELECT f FROM unnest('{f,t}'::bool[]) weighted, unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing, check_forms('t', r.width, r.hotness, weighted, mode, missing) f WHERE thorough OR weighted AND missing = 'zero' LOOP
			RAISE WARNING 'mistake in run %: %', r, mistakes;
		END LOOP;
		combinations := combinations + CASE WHEN thorough THEN 12 ELSE 3 END;
	END LOOP;
	RAISE WARNING '% combinations', combinations;
END $$;
CALL run_all(true);
-- wide ones: the same, but fewer of them
DELETE FROM runs;
INSERT INTO runs VALUES (1, 'int8', 'real[]', 128, NULL, true, 'float32'), (2, 'int4', 'float8[]', 128, 3, false, 'float16'), (3, 'int8', 'real[]', 1000, NULL, false, 'float32'), (4, 'int8', 'real[]', 4096, 3, true, 'float32');
CALL run_all(false);
-- NaN and infinity pass through, as IEEE 754 says: vectors, and then weights
SELECT setseed(0.5);
CREATE PROCEDURE run_special(vectors bool, weights bool, vacuumed bool) LANGUAGE plpgsql AS $$
DECLARE mistakes text;
BEGIN
	PERFORM fill('int8', 'real[]', 5, NULL, vacuumed);
	IF vectors THEN
		UPDATE source SET embedding = ARRAY(SELECT CASE (random() * 9)::int WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' WHEN 3 THEN '-Infinity' WHEN 4 THEN '-0' ELSE x END::float8 FROM unnest(embedding) x);
		UPDATE t SET v = embedding FROM source WHERE id = key;
	END IF;
	IF weights THEN
		UPDATE flat SET weight = CASE (random() * 9)::int WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' WHEN 3 THEN '-Infinity' WHEN 4 THEN '-0' ELSE weight END::float8;
	END IF;
	COMMIT;
	FOR mistakes IN SELECT f FROM unnest('{f,t}'::bool[]) weighted, unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing, check_forms('t', 5, NULL, weighted, mode, missing) f LOOP
		RAISE WARNING 'mistake: %', mistakes;
	END LOOP;
END $$;
CALL run_special(true, false, true);
CALL run_special(true, false, false);
CALL run_special(false, true, true);
CALL run_special(true, true, false);
DROP TABLE source, bag, flat, t, runs CASCADE;
DROP PROCEDURE run_all, run_special;
DROP FUNCTION upstream, quotient, near(float8, float8), near(real[], real[]), expected_weights, upstreams, check_forms, check_gather, keys_of, fill CASCADE;
