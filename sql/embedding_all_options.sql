-- Every option with every other, through every function over embedding tables, against plain SQL: kinds of tables, types of keys and vectors,
-- storage, tables that were vacuumed or not, modes, weights, missing keys, slots, offsets or a fixed number of keys, single calls, batches, and
-- aggregates; metrics and lists of keys that are not wanted; optimizers and initializers.
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
	SELECT (CASE WHEN weighted THEN gpuvec_weighted_bags_agg(keys, weights ORDER BY b) ELSE gpuvec_bags_agg(keys ORDER BY b) END).* INTO c FROM bags;
	CREATE TEMP TABLE e ON COMMIT DROP AS SELECT * FROM expected_pool(width, weighted, mode, missing);
	CREATE TEMP TABLE a (form text, b int, a real[]) ON COMMIT DROP;
	INSERT INTO a SELECT 'pool', b, gpuvec_pool(rel, 'id', 'v', keys, mode, CASE WHEN weighted THEN weights END, missing) FROM bags;
	INSERT INTO a SELECT 'batch', p.* FROM gpuvec_pool_batch(rel, 'id', 'v', c.keys, c.offsets, mode => mode, weights => c.weights, missing => missing) p;
	IF hotness IS NOT NULL THEN
		INSERT INTO a SELECT 'hotness', p.* FROM gpuvec_pool_batch(rel, 'id', 'v', c.keys, hotness => hotness, mode => mode, weights => c.weights, missing => missing) p;
	END IF;
	FOREACH form IN ARRAY '{off,on}'::text[] LOOP
		PERFORM set_config('enable_hashagg', form, true);
		EXECUTE 'INSERT INTO a SELECT ''hashed ' || form || ''', b, ' || CASE WHEN mode = 'sum' AND missing = 'zero' THEN CASE WHEN weighted THEN 'gpuvec_weighted_sum_agg($1, ''id'', ''v'', key, weight)' ELSE 'gpuvec_sum_agg($1, ''id'', ''v'', key)' END
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
		SELECT count(*) INTO wrong FROM gpuvec_pool_grad_batch(rel, 'id', 'v', c.keys, up, NULL, hotness, mode, c.weights, missing, true) p FULL JOIN source USING (key) LEFT JOIN expected_grad(width, weighted, mode, missing) x USING (key)
		WHERE near(p.gradient, coalesce(x.e, array_fill(0::real, ARRAY[width]))) IS NOT TRUE;
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s full gradients by hotness', rel, width, weighted, mode, missing); END IF;
		IF gpuvec_pool_grad_weights_batch(rel, 'id', 'v', c.keys, up, NULL, hotness, mode, c.weights, missing) IS DISTINCT FROM gpuvec_pool_grad_weights_batch(rel, 'id', 'v', c.keys, up, c.offsets, NULL, mode, c.weights, missing) THEN
			RETURN NEXT format('%s %s %s %s %s gradients of weights by hotness', rel, width, weighted, mode, missing);
		END IF;
		SELECT count(*) INTO wrong FROM gpuvec_pool_batch(rel, 'id', 'v', c.keys, hotness => hotness, slots => total, mode => mode, weights => c.weights, missing => missing) p
			FULL JOIN (SELECT array_agg(x ORDER BY b, i) AS e, 1 AS sample FROM e, unnest(e) WITH ORDINALITY u (x, i)) x USING (sample) WHERE near(p.embedding, coalesce(x.e, '{}')) IS NOT TRUE;
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s %s %s slots by hotness', rel, width, weighted, mode, missing); END IF;
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
-- a table of some kind; some columns of partitions and children have other places than in the table
CREATE PROCEDURE make(kind text, type text, vector_type text) LANGUAGE plpgsql AS $$
DECLARE columns text := format('(id %s PRIMARY KEY, v %s, filler text)', type, vector_type); other_columns text := format('(filler text, gone int, v %s, id %s NOT NULL)', vector_type, type);
BEGIN
	DROP TABLE IF EXISTS t CASCADE;
	EXECUTE CASE kind WHEN 'temporary' THEN 'CREATE TEMP TABLE t ' WHEN 'unlogged' THEN 'CREATE UNLOGGED TABLE t ' ELSE 'CREATE TABLE t ' END || columns || CASE kind WHEN 'partitions' THEN ' PARTITION BY HASH (id)' ELSE '' END;
	IF kind IN ('partitions', 'children') THEN
		EXECUTE 'CREATE TABLE t1 ' || other_columns;
		ALTER TABLE t1 DROP COLUMN gone;
	END IF;
	IF kind = 'partitions' THEN
		ALTER TABLE t ATTACH PARTITION t1 FOR VALUES WITH (MODULUS 3, REMAINDER 0);
		CREATE TABLE t2 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 1);
		CREATE TABLE t3 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 2);
	ELSIF kind = 'children' THEN
		ALTER TABLE t1 INHERIT t;
	END IF;
END $$;
-- fill all tables: `hotness`: as many keys in each bag; otherwise some are empty, and one has none that is found
CREATE PROCEDURE fill(kind text, type text, vector_type text, width int, hotness int, churned bool, nbags int DEFAULT 8) LANGUAGE plpgsql AS $$
DECLARE k int8[] := keys_of(type::regtype);
BEGIN
	TRUNCATE source, bag, flat;
	INSERT INTO source SELECT key, ARRAY(SELECT (random() * 16 - 8)::int / 2.0 FROM generate_series(1, width) WHERE key IS NOT NULL) FROM (SELECT unnest(k) AS key UNION ALL SELECT generate_series(1001, 1020)) x WHERE key NOT IN (3, 11);
	INSERT INTO bag SELECT generate_series(1, nbags);
	INSERT INTO flat SELECT b, o, CASE WHEN b = 5 AND hotness IS NULL THEN 3 + o % 2 * 8 WHEN random() < 0.2 THEN 3 ELSE k[1 + (random() * (cardinality(k) - 1))::int] END, ('{-1,0,0.5,1,2,4}'::float8[])[1 + (random() * 5)::int]
	FROM bag, generate_series(1, coalesce(hotness, b * 5 % 13)) o WHERE hotness IS NOT NULL OR b NOT IN (1, 4);
	CALL make(kind, type, vector_type);
	-- few rows a page
	INSERT INTO t SELECT key, embedding, repeat('x', 1900) FROM source WHERE kind <> 'children' OR key % 3 <> 1;
	IF kind = 'children' THEN
		INSERT INTO t1 (id, v, filler) SELECT key, embedding, repeat('x', 1900) FROM source WHERE key % 3 = 1;
	END IF;
	IF churned THEN
		PERFORM count(*) FROM gpuvec_gather('t', 'id', 'v', '{1}');
		UPDATE t SET v = array_fill(99, ARRAY[width]) WHERE id % 2 = 0;
		DELETE FROM t WHERE id = 7;
		UPDATE t SET v = embedding FROM source WHERE id = key AND id % 2 = 0;
		INSERT INTO t SELECT key, embedding FROM source WHERE key = 7;
	END IF;
END $$;
-- some rows of other pages change once more
CREATE PROCEDURE change_some() LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET v = ARRAY(SELECT -x FROM unnest(v) WITH ORDINALITY u (x, o) ORDER BY o) WHERE id % 5 = 1;
	UPDATE source SET embedding = ARRAY(SELECT -x FROM unnest(embedding) WITH ORDINALITY u (x, o) ORDER BY o) WHERE key % 5 = 1;
END $$;
-- missing => 'error': the first key without a vector, or the same as otherwise
CREATE FUNCTION check_errors(rel regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE c gpuvec_bags; lacking int8; call text; message text; a text; e text;
BEGIN
	SELECT (gpuvec_weighted_bags_agg(keys, weights ORDER BY b)).* INTO c FROM bags;
	SELECT f.key INTO lacking FROM flat f LEFT JOIN source s USING (key) WHERE s.key IS NULL ORDER BY b, o LIMIT 1;
	FOREACH call IN ARRAY ARRAY[
		'SELECT array_agg(p ORDER BY sample)::text FROM gpuvec_pool_batch($1, ''id'', ''v'', $2, $3, mode => ''mean'', missing => %L) p',
		'SELECT array_agg(p ORDER BY key)::text FROM gpuvec_pool_grad_batch($1, ''id'', ''v'', $2, $5, $3, weights => $4, missing => %L) p',
		'SELECT gpuvec_pool_grad_weights_batch($1, ''id'', ''v'', $2, $5, $3, weights => $4, missing => %L)::text',
		'SELECT gpuvec_pool_agg($1, ''id'', ''v'', k, w, ''concat'', %L ORDER BY o)::text FROM unnest($2, $4) WITH ORDINALITY u (k, w, o)'] LOOP
		BEGIN
			message := NULL;
			EXECUTE format(call, 'error') INTO a USING rel, c.keys, c.offsets, c.weights, array_fill(1::float8, ARRAY[(SELECT count(*) FROM bag)::int, (SELECT max(cardinality(embedding)) FROM source)]);
		EXCEPTION WHEN no_data_found THEN
			message := SQLERRM;
		END;
		IF message IS DISTINCT FROM format('relation "%s" has no vector with key %s', rel, lacking) AND lacking IS NOT NULL THEN
			RETURN NEXT format('%s instead of an error of key %s: %s', message, lacking, call);
		ELSIF lacking IS NULL THEN
			EXECUTE format(call, 'zero') INTO e USING rel, c.keys, c.offsets, c.weights, array_fill(1::float8, ARRAY[(SELECT count(*) FROM bag)::int, (SELECT max(cardinality(embedding)) FROM source)]);
			IF a IS DISTINCT FROM e THEN RETURN NEXT format('%s instead of %s: %s', a, e, call); END IF;
		END IF;
	END LOOP;
END $$;
-- the nearest: scores are exact but for roots and quotients, which are IEEE's
CREATE FUNCTION score(q float8[], v float8[], metric text) RETURNS float8 LANGUAGE sql AS $$
	SELECT CASE metric WHEN 'ip' THEN qv WHEN 'l2' THEN -sqrt(d) ELSE CASE WHEN qq * vv = 0 THEN 0 ELSE qv / sqrt(qq * vv) END END
	FROM (SELECT sum(a * b) AS qv, sum(a * a) AS qq, sum(b * b) AS vv, sum((a - b) ^ 2) AS d FROM unnest(q, v) u (a, b)) x $$;
CREATE FUNCTION check_nearest(rel regclass, width int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE queries float8[] := ARRAY(SELECT (random() * 12 - 6)::int / 2.0 FROM generate_series(1, 4 * width)); metric text; n int; lists text; keys int8[]; offs int8[]; wrong int;
BEGIN
	CREATE TEMP TABLE query ON COMMIT DROP AS SELECT q, queries[(q - 1) * width + 1 : q * width] AS vector FROM generate_series(1, 4) q;
	SELECT array_agg(vector ORDER BY q) INTO queries FROM query;
	FOR metric, n, lists IN SELECT m, ('{1,5,1000}'::int[])[1 + (random() * 2)::int], l FROM unnest('{cosine,ip,l2}'::text[]) m, unnest('{none,one,each}'::text[]) l LOOP
		CREATE TEMP TABLE unwanted ON COMMIT DROP AS SELECT q, key FROM query, (SELECT key FROM source UNION ALL SELECT 3) s WHERE lists <> 'none' AND (hashint8(key) & 3) = CASE lists WHEN 'each' THEN q ELSE 2 END % 4;
		SELECT b.keys, b.offsets INTO keys, offs FROM (SELECT (gpuvec_bags_agg(ARRAY(SELECT key FROM unwanted u WHERE u.q = query.q) ORDER BY q)).* FROM query WHERE q = 1 OR lists <> 'one') b;
		CREATE TEMP TABLE expected ON COMMIT DROP AS SELECT * FROM (SELECT q, row_number() OVER (PARTITION BY q ORDER BY s DESC, key) AS rank, key, s FROM (SELECT q, key, score(vector, embedding, metric) AS s FROM query, source WHERE (q, key) NOT IN (TABLE unwanted)) x) y WHERE rank <= n;
		SELECT count(*) INTO wrong FROM gpuvec_nearest_batch(rel, 'id', 'v', queries, n, metric, CASE WHEN lists <> 'none' THEN keys END, CASE WHEN lists = 'each' THEN offs END) a
			FULL JOIN expected e ON e.q = a.query AND e.rank = a.rank WHERE a.key IS DISTINCT FROM e.key OR a.score IS DISTINCT FROM e.s;
		IF wrong <> 0 THEN RETURN NEXT format('%s nearest_batch %s %s %s', rel, metric, n, lists); END IF;
		SELECT count(*) INTO wrong FROM query, gpuvec_nearest(rel, 'id', 'v', vector, n, metric, ARRAY(SELECT key FROM unwanted u WHERE u.q = query.q)) a
			FULL JOIN (SELECT * FROM expected WHERE q = 2) e USING (rank) WHERE query.q = 2 AND (a.key IS DISTINCT FROM e.key OR a.score IS DISTINCT FROM e.s);
		IF wrong <> 0 THEN RETURN NEXT format('%s nearest %s %s %s', rel, metric, n, lists); END IF;
		DROP TABLE unwanted, expected;
	END LOOP;
	DROP TABLE query;
END $$;
-- what changes the table comes last: new keys, and three steps of each optimizer, of keys that repeat and some that there are not
CREATE FUNCTION check_changes(rel regclass, type regtype, width int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE k int8[]; g float8[]; n int; wrong int; optimizer text; initializer text := ('{zeros,uniform,normal}'::text[])[1 + (random() * 2)::int];
BEGIN
	FOREACH optimizer IN ARRAY '{sgd,adagrad,adam}'::text[] LOOP
		CREATE TEMP TABLE state (key int8 PRIMARY KEY, step int8, m real[], v real[]) ON COMMIT DROP;
		CREATE TEMP TABLE expected ON COMMIT DROP AS SELECT key, i, embedding[i] AS x, 0::float8 AS m, 0::float8 AS v, 0 AS step FROM source, generate_series(1, width) i;
		FOR round IN 1 .. 3 LOOP
			SELECT array_agg((keys_of(type))[1 + (random() * (cardinality(keys_of(type)) - 1) + 0 * i)::int]) INTO k FROM generate_series(1, 12) i;
			SELECT array_agg((random() * 6 - 3)::int / 2.0 + 0 * i) INTO g FROM generate_series(1, 12 * width) i;
			n := gpuvec_apply_grad(rel, 'id', 'v', k, g, optimizer, 0.25, CASE WHEN optimizer <> 'sgd' THEN 'state'::regclass END, 0.5, 0.75, 0.125);
			UPDATE expected e SET step = step + 1, m = CASE optimizer WHEN 'adam' THEN 0.5 * m + 0.5 * s END, v = CASE optimizer WHEN 'adagrad' THEN v + s * s WHEN 'adam' THEN 0.75 * v + 0.25 * s * s END,
				x = x - 0.25 * CASE optimizer WHEN 'sgd' THEN s WHEN 'adagrad' THEN s / (sqrt(v + s * s) + 0.125) ELSE (0.5 * m + 0.5 * s) / (1 - 0.5 ^ (step + 1)) / (sqrt((0.75 * v + 0.25 * s * s) / (1 - 0.75 ^ (step + 1))) + 0.125) END
			FROM (SELECT key, i, sum(g[(o - 1) * width + i]) AS s FROM unnest(k) WITH ORDINALITY u (key, o), generate_series(1, width) i GROUP BY 1, 2) x WHERE e.key = x.key AND e.i = x.i;
			GET DIAGNOSTICS wrong = ROW_COUNT;
			IF wrong <> n * width THEN RETURN NEXT format('%s %s %s rows instead of %s', rel, optimizer, n, wrong / width); END IF;
		END LOOP;
		-- the table, what is gathered of it, and the state
		SELECT count(*) INTO wrong FROM (SELECT key, array_agg(x ORDER BY i)::real[] AS x, array_agg(m ORDER BY i)::real[] AS m, array_agg(v ORDER BY i)::real[] AS v, max(step) AS step FROM expected GROUP BY 1) e
			FULL JOIN gpuvec_gather(rel, 'id', 'v', ARRAY(SELECT id FROM t)) a USING (key) FULL JOIN t ON t.id = key FULL JOIN state s USING (key)
		WHERE near(t.v::real[], x) IS NOT TRUE OR (CASE current_setting('gpuvec.vector_storage') WHEN 'float32' THEN a.embedding = t.v::real[] ELSE cardinality(a.embedding) = cardinality(x) END) IS NOT TRUE
			OR optimizer <> 'sgd' AND e.step > 0 AND (s.step = e.step AND near(s.v, e.v) AND (optimizer = 'adagrad' AND s.m IS NULL OR near(s.m, e.m))) IS NOT TRUE OR (optimizer = 'sgd' OR e.step = 0) AND s.key IS NOT NULL;
		IF wrong <> 0 THEN RETURN NEXT format('%s %s %s', rel, width, optimizer); END IF;
		UPDATE t SET v = embedding FROM source WHERE id = source.key;
		DROP TABLE state, expected;
	END LOOP;
	k := keys_of(type);
	n := gpuvec_ensure_keys(rel, 'id', 'v', k || k, NULL, initializer, 2, width);
	SELECT count(*) INTO wrong FROM unnest(k) key LEFT JOIN source s USING (key) FULL JOIN gpuvec_gather(rel, 'id', 'v', k) g USING (key) FULL JOIN t ON id = key
	WHERE coalesce(t.v::real[] = coalesce(s.embedding::real[], gpuvec_initial_vector(key, width, initializer, 2, width)), key IS NULL AND id IN (SELECT key FROM source)) IS NOT TRUE
		OR key IS NOT NULL AND (g.found AND cardinality(g.embedding) = width AND CASE current_setting('gpuvec.vector_storage') WHEN 'float32' THEN g.embedding = t.v::real[] ELSE true END) IS NOT TRUE;
	IF wrong <> 0 OR n <> 2 OR gpuvec_ensure_keys(rel, 'id', 'v', k) <> 0 THEN RETURN NEXT format('%s %s new keys %s: %s, %s wrong', rel, width, initializer, n, wrong); END IF;
END $$;
SELECT setseed(0.125);
-- all pairs (and more): each line is a table, with all modes, weights and treatments of missing keys
CREATE TABLE runs AS
	SELECT n AS run, ('{table,partitions,children,temporary,unlogged}'::text[])[1 + (n + n / 2 * 2) % 5] AS kind, type, vector_type, width, CASE WHEN (n + n / 2 + n / 4) % 2 = 0 THEN 3 END AS hotness, ('{churned,vacuumed,mixed}'::text[])[1 + (n + n / 3 * 2) % 3] AS pages, CASE WHEN (n + n / 2 + n / 3) % 2 = 0 THEN 'float32' ELSE 'float16' END AS storage
	FROM (SELECT *, row_number() OVER (ORDER BY width, type, vector_type) AS n FROM unnest('{int2,int4,int8}'::text[]) type, unnest('{real[],float8[]}'::text[]) vector_type, unnest('{1,3,4,31,33}'::int[]) width) x;
-- are they all pairs?
SELECT n AS tables, count(*) AS pairs_of_options, bool_and(pairs = a * b) AS all_there FROM (
	SELECT x.key AS k, y.key AS l, count(DISTINCT (x.value, y.value)) AS pairs, count(DISTINCT coalesce(x.value, '')) AS a, count(DISTINCT coalesce(y.value, '')) AS b
	FROM runs, jsonb_each_text(to_jsonb(runs) - 'run') x, jsonb_each_text(to_jsonb(runs) - 'run') y WHERE x.key < y.key GROUP BY 1, 2) p, (SELECT count(*) FROM runs) r (n) GROUP BY n;
CREATE PROCEDURE check_run(r runs, thorough bool) LANGUAGE plpgsql AS $$
DECLARE mistakes text;
BEGIN
	PERFORM set_config('gpuvec.vector_storage', r.storage, false);
	FOR mistakes IN SELECT check_gather('t', r.hotness) UNION ALL SELECT check_errors('t') UNION ALL SELECT check_nearest('t', r.width) LOOP
		RAISE WARNING 'mistake in run %: %', r, mistakes;
	END LOOP;
	FOR mistakes IN SELECT f FROM unnest('{f,t}'::bool[]) weighted, unnest('{sum,mean,concat}'::text[]) mode, unnest('{zero,skip}'::text[]) missing, check_forms('t', r.width, r.hotness, weighted, mode, missing) f WHERE thorough OR weighted AND missing = 'zero' LOOP
		RAISE WARNING 'mistake in run %: %', r, mistakes;
	END LOOP;
	FOR mistakes IN SELECT check_changes('t', r.type::regtype, r.width) LOOP
		RAISE WARNING 'mistake in run %: %', r, mistakes;
	END LOOP;
	CREATE TEMP TABLE IF NOT EXISTS done (run int, combinations int);
	INSERT INTO done VALUES (r.run, CASE WHEN thorough THEN 12 ELSE 3 END);
END $$;
-- the statements of a run: VACUUM can be in no procedure
CREATE FUNCTION statements(thorough bool) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT s FROM runs r, unnest(ARRAY[
		format('CALL fill(%L, %L, %L, %s, %s, %L, %s)', kind, type, vector_type, width, coalesce(hotness::text, 'NULL'), pages = 'churned', CASE WHEN thorough THEN 8 ELSE 2 END),
		CASE WHEN pages <> 'churned' THEN 'VACUUM t' || CASE kind WHEN 'children' THEN ', t1' ELSE '' END END,
		CASE WHEN pages = 'mixed' THEN 'CALL change_some()' END,
		format('CALL check_run(%L, %L)', r, thorough)]) WITH ORDINALITY u (s, o) WHERE s IS NOT NULL ORDER BY run, o $$;
SELECT statements(true) \gexec
SELECT count(DISTINCT run) AS tables, sum(combinations) AS combinations FROM done;
-- wide ones: the same, but fewer of them
TRUNCATE done, runs;
INSERT INTO runs VALUES (1, 'table', 'int8', 'real[]', 128, NULL, 'vacuumed', 'float32'), (2, 'table', 'int4', 'float8[]', 128, 3, 'churned', 'float16'), (3, 'partitions', 'int8', 'real[]', 1000, NULL, 'mixed', 'float32'), (4, 'table', 'int8', 'real[]', 4096, 3, 'vacuumed', 'float32');
SELECT statements(false) \gexec
SELECT count(DISTINCT run) AS tables, sum(combinations) AS combinations FROM done;
-- NaN and infinity pass through, as IEEE 754 says: vectors, and then weights
SELECT setseed(0.5);
CREATE PROCEDURE run_special(vectors bool, weights bool, kind text) LANGUAGE plpgsql AS $$
DECLARE mistakes text;
BEGIN
	CALL fill(kind, 'int8', 'real[]', 5, NULL, kind = 'table');
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
CALL run_special(true, false, 'table');
CALL run_special(true, false, 'partitions');
CALL run_special(false, true, 'temporary');
CALL run_special(true, true, 'table');
DROP TABLE source, bag, flat, t, runs, done CASCADE;
DROP PROCEDURE make, fill, change_some, run_special;
DROP FUNCTION upstream, quotient, near(float8, float8), near(real[], real[]), counted, expected_pool, expected_grad, expected_weights, upstreams, check_forms, check_gather, check_errors, check_nearest, check_changes, score, keys_of, statements CASCADE;
