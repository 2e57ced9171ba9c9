-- New keys, and steps of optimizers.
\set SHOW_CONTEXT never
CREATE TABLE items (id bigint PRIMARY KEY, embedding real[], note text DEFAULT 'new');
-- the width has to be known
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1,2}');
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{3,1,2,3}', 4);
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1,2,3,4,-5,9223372036854775807}');
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1,2,3,4,-5}'), gpuvec_ensure_keys('items', 'id', 'embedding', '{}');
SELECT id, embedding = gpuvec_initial_vector(id, 4, 'uniform', 0.05, 0) AS as_expected, note FROM items ORDER BY id;
-- deterministic: the same for the same seed and key, whatever else; other seeds, other vectors
SELECT gpuvec_initial_vector(7, 3, 'uniform', 0.05, 0), gpuvec_initial_vector(7, 5, 'uniform', 0.05, 0), gpuvec_initial_vector(7, 3, 'uniform', 0.05, 1), gpuvec_initial_vector(8, 3, 'uniform', 0.05, 0);
SELECT gpuvec_initial_vector(7, 3, 'zeros', 0.05, 0), gpuvec_initial_vector(7, 3, 'normal', 1, 0);
SELECT initializer, round(avg(x)::numeric, 2) AS mean, round(stddev(x)::numeric, 2) AS deviation, max(abs(x)) BETWEEN 0.6 * largest AND largest AS within
FROM (VALUES ('uniform', 1), ('normal', 6)) v (initializer, largest), generate_series(1, 500) k, unnest(gpuvec_initial_vector(k, 100, initializer, 1, 42)) x GROUP BY 1, largest ORDER BY 1 DESC;
SELECT count(DISTINCT x) > 49900 AS all_different FROM generate_series(1, 500) k, unnest(gpuvec_initial_vector(k, 100, 'uniform', 1, 42)) x;
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1}', initializer => 'ones');
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{11}', initializer => 'ones');
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{11}', 0);
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{11,NULL}');
CREATE TABLE no_key (id bigint, embedding double precision[]);
SELECT gpuvec_ensure_keys('no_key', 'id', 'embedding', '{11}', 3);
CREATE UNIQUE INDEX no_key_some ON no_key (id) WHERE id > 0;
CREATE UNIQUE INDEX no_key_two ON no_key (id, embedding);
ALTER TABLE no_key ADD UNIQUE (id) DEFERRABLE;
SELECT gpuvec_ensure_keys('no_key', 'id', 'embedding', '{11}', 3);
ALTER TABLE no_key DROP CONSTRAINT no_key_id_key;
CREATE UNIQUE INDEX no_key_all ON no_key (id) INCLUDE (embedding);
SELECT gpuvec_ensure_keys('no_key', 'id', 'embedding', '{11}', 3);
-- wrong columns, and wrong kinds of relations
SELECT gpuvec_ensure_keys('items', 'no', 'embedding', '{11}', 3);
SELECT gpuvec_ensure_keys('items', 'id', 'note', '{11}', 3);
SELECT gpuvec_ensure_keys('items', 'note', 'embedding', '{11}', 3);
SELECT gpuvec_apply_grad('items', 'note', 'embedding', '{1}', '{1,1,1,1}');
SELECT gpuvec_apply_grad('items', 'id', 'id', '{1}', '{1,1,1,1}');
SELECT gpuvec_ensure_keys(0, 'id', 'embedding', '{11}', 3);
CREATE VIEW item_view AS SELECT id, embedding FROM items;
SELECT gpuvec_ensure_keys('item_view', 'id', 'embedding', '{1,11}', 4), gpuvec_apply_grad('item_view', 'id', 'embedding', '{11}', '{1,1,1,1}');
DELETE FROM items WHERE id = 11;
-- keys that the table numbers itself are given all the same; computed ones cannot be
CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, embedding real[], note int GENERATED ALWAYS AS IDENTITY (START 5));
SELECT gpuvec_ensure_keys('numbered', 'id', 'embedding', '{12,11}', 2, 'zeros'), gpuvec_ensure_keys('numbered', 'id', 'embedding', '{11,13}', 2, 'zeros');
SELECT * FROM numbered ORDER BY id;
CREATE TABLE computed (n bigint, id bigint GENERATED ALWAYS AS (n + 1) STORED PRIMARY KEY, embedding real[], twice real[] GENERATED ALWAYS AS (embedding || embedding) STORED);
INSERT INTO computed VALUES (1, DEFAULT, '{1,2}');
\set VERBOSITY sqlstate
SELECT gpuvec_ensure_keys('computed', 'id', 'embedding', '{1,2}', 2);
\set VERBOSITY default
SELECT gpuvec_ensure_keys('computed', 'id', 'embedding', '{1,2}', 2);
SELECT gpuvec_ensure_keys('computed', 'n', 'twice', '{1,2}', 2);
SELECT gpuvec_apply_grad('computed', 'id', 'twice', '{1}', '{1,1,1,1}');
SELECT gpuvec_apply_grad('computed', 'id', 'embedding', '{2}', '{1,1}', learning_rate => 1);
SELECT * FROM computed;
DROP TABLE numbered, computed;
-- columns with the names that the statements use
CREATE TABLE same_names (k int PRIMARY KEY, d real[], t int DEFAULT 2, u int);
SELECT gpuvec_ensure_keys('same_names', 'k', 'd', '{1}', 2, 'zeros'), gpuvec_ensure_keys('same_names', 'k', 'd', '{1,2,3}', 2, 'zeros');
CREATE TABLE other_names (id int PRIMARY KEY, k int DEFAULT 2, v real[]);
SELECT gpuvec_ensure_keys('other_names', 'id', 'v', '{1,2}', 2, 'zeros'), gpuvec_ensure_keys('other_names', 'id', 'v', '{1,2,3,4}', 2, 'zeros');
SELECT id, v FROM other_names ORDER BY id;
DROP TABLE same_names, other_names;
-- types, odd names, a search path full of traps
CREATE SCHEMA "Odd ""Names";
CREATE TABLE "Odd ""Names"."a Table" ("The Key" smallint PRIMARY KEY, "The Vector" double precision[]);
SELECT gpuvec_ensure_keys('"Odd ""Names"."a Table"', 'The Key', 'The Vector', '{1,-2}', 2, seed => 5);
SELECT "The Key", "The Vector"::real[] = gpuvec_initial_vector("The Key", 2, 'uniform', 0.05, 5) FROM "Odd ""Names"."a Table" ORDER BY 1;
SELECT gpuvec_ensure_keys('"Odd ""Names"."a Table"', 'The Key', 'The Vector', '{32768}');
SELECT gpuvec_apply_grad('"Odd ""Names"."a Table"', 'The Key', 'The Vector', '{1}', '{1,2}', learning_rate => 1);
SELECT "The Key", "The Vector"::real[] = gpuvec_vector_axpy(-1, CASE "The Key" WHEN 1 THEN '{1,2}' ELSE '{0,0}' END::real[], gpuvec_initial_vector("The Key", 2, 'uniform', 0.05, 5)) FROM "Odd ""Names"."a Table" ORDER BY 1;
-- gradients by key
SELECT * FROM gpuvec_gradient_rows('{5,-1,5,2}', '{{1,2},{3,4},{5,6},{7,8}}');
SELECT * FROM gpuvec_gradient_rows('{}', '{}');
SELECT * FROM gpuvec_gradient_rows('{1,2}', '{1,2,3}');
SELECT count(*), md5(string_agg(r::text, '')) = md5('(1,"{' || repeat('1,', 65535) || '1}")') AS same FROM gpuvec_gradient_rows('{1}', array_fill(1::float8, '{65536}')) r;
SELECT * FROM gpuvec_gradient_rows('{1}', array_fill(1::float8, '{65537}'));
-- tables that cannot be the state of an optimizer
CREATE TABLE wrong_state (key bigint, step bigint, m real[]);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{1,1,1,1}', 'adam', 0.1, 'wrong_state');
ALTER TABLE wrong_state ADD v float8[];
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{1,1,1,1}', 'adam', 0.1, 'wrong_state');
ALTER TABLE wrong_state ALTER v TYPE real[];
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{1,1,1,1}', 'adam', 0.1, 'wrong_state');
ALTER TABLE wrong_state ALTER key TYPE text, ADD UNIQUE (key);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{1,1,1,1}', 'adagrad', 0.1, 'wrong_state');
ALTER TABLE wrong_state ALTER key TYPE int USING 1;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{1,1,1,1}', 'adagrad', 0.1, 'wrong_state');
SELECT key, step, m, v FROM wrong_state;
DROP TABLE wrong_state;
-- steps
TRUNCATE items;
INSERT INTO items VALUES (1, '{1,2}'), (2, '{3,4}'), (3, '{5,6}'), (4, NULL);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{3,1,9,4,1}', '{{1,2},{10,20},{5,5},{6,6},{-5,0}}', learning_rate => 0.5);
SELECT id, embedding FROM items ORDER BY id;
CREATE TABLE state (key bigint PRIMARY KEY, step bigint, m real[], v real[]);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1,2}', '{{3,-4},{0,1}}', 'adagrad', 1, 'state');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{2}', '{{2,1}}', 'adagrad', 1, 'state');
SELECT id, embedding, step, m, v FROM items LEFT JOIN state ON key = id ORDER BY id;
TRUNCATE state;
UPDATE items SET embedding = '{1,1}';
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1,2}', '{{0.5,-4},{0,1}}', 'adam', 0.1, 'state', 0.5, 0.75);
SELECT id, embedding, step, m, v FROM items LEFT JOIN state ON key = id ORDER BY id;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam', 0.1, 'state', 0.5, 0.75);
SELECT id, embedding, step, m, v FROM items LEFT JOIN state ON key = id ORDER BY id;
-- steps with options away from their defaults, some of them several times, against float8 arithmetic: epsilon matters where gradients are small
CREATE TABLE stepped (id bigint PRIMARY KEY, embedding real[]);
CREATE TABLE moments (key bigint PRIMARY KEY, step bigint, m real[], v real[]);
CREATE FUNCTION stepped_by(optimizer text, rate float8, beta1 float8, beta2 float8, epsilon float8, given bool) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	x float8[] := '{1,2,-3}';
	m float8[] := '{0,0,0}';
	v float8[] := '{0,0,0}';
	g float8[];
	furthest float8 := 0;
BEGIN
	TRUNCATE stepped, moments;
	INSERT INTO stepped VALUES (1, x::real[]), (2, x::real[]);
	FOR step IN 1 .. 4 LOOP
		g := ARRAY[1e-4 * step, -0.5 / step, 3e-3];
		IF given THEN
			PERFORM gpuvec_apply_grad('stepped', 'id', 'embedding', '{1}', g, optimizer, rate, 'moments', beta1, beta2, epsilon);
		ELSE	-- the defaults, as they are documented
			PERFORM gpuvec_apply_grad('stepped', 'id', 'embedding', '{1}', g, optimizer, state => 'moments');
		END IF;
		FOR i IN 1 .. 3 LOOP
			m[i] := beta1 * m[i] + (1 - beta1) * g[i];
			v[i] := CASE WHEN optimizer = 'adam' THEN beta2 * v[i] + (1 - beta2) * g[i] ^ 2 ELSE v[i] + g[i] ^ 2 END;
			x[i] := x[i] - rate * CASE WHEN optimizer = 'adam' THEN m[i] / (1 - beta1 ^ step) / (sqrt(v[i] / (1 - beta2 ^ step)) + epsilon) ELSE g[i] / (sqrt(v[i]) + epsilon) END;
		END LOOP;
		furthest := greatest(furthest, (SELECT max(abs(a - b)) FROM stepped, unnest(embedding, x) e (a, b) WHERE id = 1));
	END LOOP;
	RETURN furthest;
END $$;
SELECT optimizer, epsilon, bool_and(stepped_by(optimizer, rate, beta1, beta2, epsilon, true) < 3e-6) AS right FROM unnest('{adagrad,adam}'::text[]) optimizer, unnest('{0.01,0.5}'::float8[]) rate,
	(VALUES (0.9, 0.999), (0.5, 0.75), (0, 0)) b (beta1, beta2), unnest('{0,1e-8,1e-3,0.01,0.5,3}'::float8[]) epsilon GROUP BY optimizer, epsilon ORDER BY optimizer, epsilon;
SELECT optimizer, stepped_by(optimizer, 0.01, 0.9, 0.999, 1e-8, false) < 3e-6 AS right FROM unnest('{adagrad,adam}'::text[]) optimizer;
SELECT embedding FROM stepped WHERE id = 2;
-- the functions that do the steps
SELECT abs((gpuvec_adagrad_step('{1}', '{0.5}', NULL, '{0.25}', 0.1, e, 1))[1] - (1 - 0.1 * 0.5 / (0.5 + e))) < 1e-6 AS adagrad,
	abs((gpuvec_adam_step('{1}', '{0.05}', '{0.01}', 1, 0.1, 0.9, 0.96, e, 1))[1] - (1 - 0.1 * 0.5 / (0.5 + e))) < 1e-6 AS adam FROM unnest('{0,0.25,2}'::float8[]) e;
DROP TABLE stepped, moments;
DROP FUNCTION stepped_by;
-- the state of another optimizer
UPDATE state SET m = NULL WHERE key = 1;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam', 0.1, 'state');
SELECT id, embedding FROM items WHERE id = 1;
UPDATE state SET v = NULL WHERE key = 1;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adagrad', 0.1, 'state');
TRUNCATE state;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adagrad', 0.1, 'state');
\set VERBOSITY sqlstate
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam', 0.1, 'state');
\set VERBOSITY default
TRUNCATE state;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam', 0.1, 'state');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adagrad', 0.1, 'state');
SELECT id, step, m IS NULL AS no_m, v IS NULL AS no_v FROM items JOIN state ON key = id;
-- what is not finite is never stored: gradients, sums of them, vectors and states that are there, and results
TRUNCATE state;
CREATE TABLE kept AS SELECT id, embedding FROM items;
UPDATE items SET embedding = CASE id WHEN 1 THEN '{1,1}' WHEN 2 THEN '{1,NaN}' ELSE '{1e38,1}' END::real[] WHERE id < 4;
CREATE TABLE before AS SELECT id, embedding FROM items;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{3,1}', '{{1,1},{1,NaN}}');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{2}', '{{1,1}}');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1e20,1}}', 'adagrad', 1, 'state');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{0,1}}', 'adagrad', 1, 'state', epsilon => 0);
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1001}', 2, scale => 1e300);
CREATE FUNCTION refusal_of(call text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE call; RETURN 'done'; EXCEPTION WHEN numeric_value_out_of_range THEN RETURN SQLERRM; END $$;
SELECT optimizer, given, refusal_of(format($$SELECT gpuvec_apply_grad('items', 'id', 'embedding', %L, %L, %L, %s, %s)$$, keys, gradients, optimizer, rate,
	CASE optimizer WHEN 'sgd' THEN 'NULL' ELSE $$'state'$$ END)) AS refusal
FROM unnest('{sgd,adagrad,adam}'::text[]) WITH ORDINALITY o(optimizer, n), (VALUES (1, 'NaN', '{1}', '{1,NaN}', '1'), (2, 'infinite', '{1}', '{-Infinity,1}', '1'),
	(3, 'too large for real', '{1}', '{1,1e39}', '1'), (4, 'a sum too large', '{1,1}', '{1,3e38,1,3e38}', '1'), (5, 'of a key that is not there', '{1,77}', '{1,1,NaN,1}', '1'),
	(6, 'a vector with NaN', '{1,2}', '{1,1,1,1}', '1'), (7, 'a great step', '{1,3}', '{1,1,1,1}', '1e300')) v(m, given, keys, gradients, rate) ORDER BY m, n;
SELECT count(*) AS states FROM state;
SELECT count(*) AS changed FROM items i JOIN before b USING (id) WHERE i.embedding::text IS DISTINCT FROM b.embedding::text;
UPDATE items i SET embedding = k.embedding FROM kept k WHERE k.id = i.id;
DROP FUNCTION refusal_of;
DROP TABLE kept, before;
-- what is pooled now
SELECT gpuvec_pool('items', 'id', 'embedding', '{2,3}') AS pooled;
-- wrong arguments
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adamw');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'sgd', state => 'state');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1,1}}');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{3,9}', '{{1,1,1},{2,2,2}}', 'adagrad', 1, 'state');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{3,9}', '{{1},{2}}', 'adam', 1, 'state');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', NULL);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', learning_rate => NULL);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,NULL}}');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1,NULL}', '{{1,1},{1,1}}');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', learning_rate => 'NaN');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', learning_rate => '-Infinity');
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam', 0.1, 'state', 1, 0.5);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adam', 0.1, 'state', 0.5, -0.5);
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}', 'adagrad', 0.1, 'state', epsilon => -1);
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1001}', scale => 'Infinity');
-- privileges are the caller's
CREATE ROLE regress_trainer;
GRANT SELECT ON items TO regress_trainer;
SET ROLE regress_trainer;
SELECT gpuvec_apply_grad('items', 'id', 'embedding', '{1}', '{{1,1}}');
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{12}');
RESET ROLE;
REVOKE ALL ON items FROM regress_trainer;
DROP ROLE regress_trainer;
-- a training loop: three items' vectors learn to have sums with given scores
TRUNCATE items, state;
SELECT gpuvec_ensure_keys('items', 'id', 'embedding', '{1,2,3}', 2, seed => 1);
CREATE TABLE samples (b int, keys int8[], wanted real[]);
INSERT INTO samples VALUES (1, '{1,2}', '{3,1}'), (2, '{2,3}', '{5,-1}'), (3, '{1,3}', '{4,0}');
CREATE FUNCTION train(n int) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE loss float8; k int8[]; g float8[];
BEGIN
	FOR i IN 1 .. n LOOP
		SELECT array_agg(key) INTO k FROM (SELECT key FROM samples, unnest(keys) WITH ORDINALITY u (key, o) ORDER BY b, o) x;
		SELECT array_agg(e - w ORDER BY b, o), sum((e - w) ^ 2) INTO g, loss
		FROM gpuvec_pool_batch('items', 'id', 'embedding', k, hotness => 2) p JOIN samples ON b = sample, unnest(embedding, wanted) WITH ORDINALITY u (e, w, o);
		PERFORM gpuvec_apply_grad('items', 'id', 'embedding', array_agg(key), array_agg(gradient), 'adam', 0.1, 'state')
		FROM gpuvec_pool_grad_batch('items', 'id', 'embedding', k, g, hotness => 2);
	END LOOP;
	RETURN loss;
END $$;
SELECT train(1) > 50 AS before, train(300) < 0.001 AS after;
SELECT id, array_agg(round(x::numeric, 1) ORDER BY o) FROM items, unnest(embedding) WITH ORDINALITY u (x, o) GROUP BY id ORDER BY id;
DROP VIEW item_view;
DROP TABLE items, state, samples, no_key;
DROP SCHEMA "Odd ""Names" CASCADE;
DROP FUNCTION train;
