-- Factors of users and items by alternating least squares (gpuvec_als), against the definition in plain SQL.
\set SHOW_CONTEXT never
-- two groups of 20 users and 10 items each; user u has met three quarters of the items of their group
CREATE TABLE events (u int, i bigint, w real);
INSERT INTO events SELECT u, i, 1 FROM generate_series(1, 40) u, generate_series(1, 20) i WHERE (u > 20) = (i > 10) AND (u * 7 + i * 3) % 4 <> 0;
CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
CREATE FUNCTION dot(a float8[], b float8[]) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT sum(x * y) FROM unnest(a, b) t (x, y) $$;
-- the loss by its definition, over all pairs of users and items
CREATE FUNCTION plain_loss(regularization float8, alpha float8 DEFAULT 1, weighted bool DEFAULT true) RETURNS float8 LANGUAGE sql AS $$
	WITH pair AS (SELECT u, i, sum(CASE WHEN weighted THEN w ELSE 1 END)::float8 AS w FROM events
		WHERE u IS NOT NULL AND i IS NOT NULL AND (w IS NOT NULL OR NOT weighted) GROUP BY u, i HAVING sum(CASE WHEN weighted THEN w ELSE 1 END) <> 0),
	term AS (SELECT coalesce(alpha * abs(w), 1) AS c, CASE WHEN w > 0 THEN 1 ELSE 0 END AS p, dot(x.embedding, y.embedding) AS s
		FROM users x CROSS JOIN items y LEFT JOIN pair ON u = x.key AND i = y.key)
	SELECT (sum(c * (p - s) ^ 2) + regularization * ((SELECT sum(dot(embedding, embedding)) FROM users) + (SELECT sum(dot(embedding, embedding)) FROM items))) / sum(c) FROM term $$;
CREATE FUNCTION near(a float8, b float8) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT abs(a - b) <= 1e-4 * abs(b) $$;
-- loss falls, a row for each iteration
CREATE TABLE run AS SELECT * FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 8, iterations => 6);
SELECT count(*), min(iteration), max(iteration), bool_and(seconds >= 0) AS seconds FROM run;
SELECT bool_and(loss < before) AS falls FROM (SELECT loss, lag(loss) OVER (ORDER BY iteration) AS before FROM run) r WHERE before IS NOT NULL;
SELECT near(loss, plain_loss(0.01)) AS as_defined FROM run WHERE iteration = 6;
SELECT count(*), min(key), max(key), min(array_length(embedding, 1)), max(array_length(embedding, 1)) FROM users;
SELECT count(*), min(key), max(key), min(array_length(embedding, 1)), max(array_length(embedding, 1)) FROM items;
-- two factors have room for the groups only: what a user has not met of their group scores high, and all of the other group low
CREATE FUNCTION groups_found() RETURNS bool LANGUAGE sql AS $$
	SELECT bool_and(CASE WHEN (x.key > 20) = (y.key > 10) THEN dot(x.embedding, y.embedding) > 0.4 ELSE abs(dot(x.embedding, y.embedding)) < 0.1 END) FROM users x CROSS JOIN items y $$;
BEGIN;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 6);
SELECT groups_found(), plain_loss(0.01) AS loss \gset
SELECT :'groups_found' AS found;
-- another seed begins elsewhere, and comes to as good an end
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 6, seed => 1);
SELECT groups_found() AS found, abs(plain_loss(0.01) / :loss - 1) < 0.05 AS as_good;
ROLLBACK;
-- the same rows in another order, from another kind of relation, with keys of other types: the same bits
CREATE TABLE users1 AS TABLE users;
CREATE TABLE items1 AS TABLE items;
CREATE FUNCTION same_factors() RETURNS bool LANGUAGE sql AS $$
	SELECT NOT EXISTS (TABLE users EXCEPT TABLE users1) AND NOT EXISTS (TABLE items EXCEPT TABLE items1)
		AND (SELECT count(*) FROM users) = (SELECT count(*) FROM users1) AND (SELECT count(*) FROM items) = (SELECT count(*) FROM items1) $$;
CREATE TABLE events2 AS SELECT u::smallint AS "a User", i::int AS "an ""Item", w::numeric AS weight FROM events ORDER BY (u * 31 + i * 17) % 101, i, u;
SELECT max(loss) FILTER (WHERE iteration = 1) > max(loss) FILTER (WHERE iteration = 6) AS falls FROM gpuvec_als('events2', 'a User', 'an "Item', 'users', 'items', factors => 8, iterations => 6);
SELECT same_factors();
SELECT count(*) FROM gpuvec_als('events2', 'a User', 'an "Item', 'users', 'items', 'weight', 8, 6);
SELECT same_factors();
CREATE VIEW events_view AS SELECT u::bigint, i::smallint, (w * 2)::float8 AS twice FROM events WHERE w > 0;
SELECT count(*) FROM gpuvec_als('events_view', 'u', 'i', 'users', 'items', 'twice', 8, 6, alpha => 0.5);
SELECT same_factors();
CREATE TABLE parts (i bigint, u int, w int) PARTITION BY LIST (u);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES IN (1, 3, 5, 7, 9);
CREATE TABLE parts2 PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT i, u, w FROM events;
SELECT count(*) FROM gpuvec_als('parts', 'u', 'i', 'users', 'items', 'w', 8, 6);
SELECT same_factors();
CREATE MATERIALIZED VIEW events_matview AS SELECT * FROM events;
SELECT count(*) FROM gpuvec_als('events_matview', 'u', 'i', 'users', 'items', factors => 8, iterations => 6);
SELECT same_factors();
-- another seed begins elsewhere
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 8, iterations => 6, seed => 1);
SELECT same_factors();
-- everybody likes everything: what is left of the loss are roundings, and no loss is below zero
TRUNCATE events;
INSERT INTO events SELECT u, i, 1 FROM generate_series(1, 40) u, generate_series(1, 30) i;
SELECT factors, alpha, (SELECT bool_and(loss >= 0 AND loss < 0.01) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', NULL, factors, 12, 1e-9, alpha) WHERE iteration > 6) AS no_less_than_zero
FROM unnest('{1,2,4,8}'::int[]) factors, unnest('{1,2,5}'::float8[]) alpha ORDER BY 1, 2;
-- weights, repeated pairs, dislikes, zeros, nulls
TRUNCATE events;
INSERT INTO events SELECT u, i, (u * i) % 7 + 0.5 FROM generate_series(1, 15) u, generate_series(-4, 7) i WHERE (u * 5 + i * i) % 3 <> 0;
INSERT INTO events SELECT u, i, -0.25 * u FROM generate_series(1, 15) u, generate_series(1, 7) i WHERE (u * 5 + i * i) % 9 = 0;	-- dislikes
INSERT INTO events SELECT u, i, 2 FROM events WHERE u % 4 = 0;
INSERT INTO events SELECT u, i, -w FROM events WHERE u = 3 AND i = 1;	-- nothing remains of it
INSERT INTO events VALUES (1, 100, 0), (100, 1, 0), (101, 1, NULL), (NULL, 1, 1), (1, NULL, 1), (NULL, NULL, NULL);	-- left out
INSERT INTO events VALUES (102, 102, 1.5), (102, 102, -1.5);	-- nothing remains
INSERT INTO events VALUES (103, 2, -1), (2, 103, -1);	-- nothing but dislikes
SELECT near(loss, plain_loss(0.1, 3)) AS as_defined, loss < 1 AS learns FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 5, 4, 0.1, 3) ORDER BY iteration DESC LIMIT 1;
SELECT count(*), sum(key) FROM users;
SELECT count(*), sum(key) FROM items;
SELECT key, round(sqrt(dot(embedding, embedding))::numeric, 3) AS length FROM users WHERE key > 100;
-- without weights each row counts as 1, zeros and nulls as well
DELETE FROM events WHERE u IS NULL OR i IS NULL;
SELECT near(loss, plain_loss(0.5, 2, false)) AS as_defined FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 3, iterations => 2, regularization => 0.5, alpha => 2) ORDER BY iteration DESC LIMIT 1;
SELECT key FROM users WHERE key >= 100 ORDER BY 1;
-- many steps are the exact solution: the last factors of items are those that plain SQL finds no way to improve
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 2, 3, 0.1, cg_steps => 100);
CREATE TABLE kept AS SELECT plain_loss(0.1) AS loss;
CREATE TABLE items_kept AS TABLE items;
CREATE FUNCTION loss_moved(k bigint, a float8, b float8) RETURNS float8 LANGUAGE plpgsql AS $$
	DECLARE result float8;
	BEGIN
		UPDATE items SET embedding = ARRAY[embedding[1] + a, embedding[2] + b] WHERE key = k;
		result := plain_loss(0.1);
		UPDATE items i SET embedding = o.embedding FROM items_kept o WHERE o.key = i.key AND i.key = k;
		RETURN result;
	END $$;
SELECT bool_and(loss_moved(k, a, b) >= loss * (1 - 1e-6)) AS best FROM kept, generate_series(-4, 7, 3) k, (VALUES (0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01), (0.01, 0.01), (0.01, -0.01)) v (a, b);
-- warm start goes on where the last training ended; keys that have no factor begin anew, others are left out
SELECT max(loss) FILTER (WHERE iteration = 4) AS four, max(loss) FILTER (WHERE iteration = 5) AS five FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 5) \gset
SELECT near(max(loss) FILTER (WHERE iteration = 4), :four) AS same FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 4);
SELECT iteration, near(loss, :five) AS continued FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 1, warm_start => true);
INSERT INTO users VALUES (1000, '{1,2,3,4}'), (1001, NULL);
DELETE FROM users WHERE key = 5;
SELECT iteration, loss < :four * 1.05 AS continued FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 1, warm_start => true);
SELECT count(*) FILTER (WHERE key = 5) AS again, count(*) FILTER (WHERE key >= 1000) AS left_out FROM users;
-- factors that do not fit
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 5, 1, warm_start => true);
UPDATE users SET embedding = '{1,2,NULL,4}' WHERE key = 5;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 1, warm_start => true);
UPDATE users SET embedding = '{1,2,NaN,4}' WHERE key = 5;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 1, warm_start => true);
-- other tables of factors: names, types, defaults, generated columns, triggers, partitions
CREATE SCHEMA "Odd ""Names";
CREATE TABLE "Odd ""Names"."a Table" (note text DEFAULT 'new', "The Key" smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int GENERATED ALWAYS AS ("The Key" * 2) STORED, "The Vector" float8[] NOT NULL);
CREATE TABLE numbered (id int PRIMARY KEY, v real[]) PARTITION BY RANGE (id);
CREATE TABLE numbered1 PARTITION OF numbered FOR VALUES FROM (MINVALUE) TO (3);
CREATE TABLE numbered2 PARTITION OF numbered FOR VALUES FROM (3) TO (MAXVALUE);
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', '"Odd ""Names"."a Table"', 'numbered', 'w', 4, 5);
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 5);
SELECT count(*), bool_and(embedding = "The Vector"::real[] AND note = 'new' AND n = key * 2) AS same FROM users JOIN "Odd ""Names"."a Table" ON key = "The Key";
SELECT count(*), bool_and(embedding = v) AS same FROM items JOIN numbered ON key = id;
CREATE TABLE wide (key bigint PRIMARY KEY, embedding real[], norm float8);
CREATE FUNCTION fill_norm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.norm := sqrt(dot(NEW.embedding, NEW.embedding)); RETURN NEW; END $$;
CREATE TRIGGER fill BEFORE INSERT ON wide FOR EACH ROW EXECUTE FUNCTION fill_norm();
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'wide', 'items', 'w', 4, 5);
SELECT count(*), bool_and(norm = sqrt(dot(embedding, embedding))) AS filled FROM wide;
-- several columns that would do: named ones, else the primary key
CREATE TABLE several (a bigint PRIMARY KEY, b bigint, e real[], f real[]);
CREATE TABLE several2 (LIKE several INCLUDING ALL);
SELECT gpuvec_als('events', 'u', 'i', 'several', 'several2', 'w', 4, 1);
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'several', 'several2', 'w', 4, 1, column_name => 'f');
SELECT count(a) > 0 AS a, count(b) AS b, count(e) AS e, count(f) > 0 AS f FROM several;
\set VERBOSITY terse
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'several', 'several2', 'w', 4, 1, key_column => 'b', column_name => 'e');
\set VERBOSITY default
CREATE TABLE without_key (a bigint, b bigint, e real[]);
SELECT gpuvec_als('events', 'u', 'i', 'without_key', 'several2', 'w', 4, 1);
CREATE TABLE without_vector (key bigint PRIMARY KEY, name text);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'without_vector', 'w', 4, 1);
DROP TABLE "Odd ""Names"."a Table", numbered, several, several2, without_key, without_vector;
DROP SCHEMA "Odd ""Names";
-- transactions: factors come and go with the caller's
TRUNCATE users1, items1;
INSERT INTO users1 TABLE users;
INSERT INTO items1 TABLE items;
BEGIN;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 7, 1);
SELECT same_factors();
SAVEPOINT s;
DELETE FROM events WHERE u > 3;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 7, 1);
SELECT count(*) FROM users;
ROLLBACK TO s;
SELECT count(*) > 3 AS more FROM users;
ROLLBACK;
SELECT same_factors();
-- what raises an error when factors are written leaves all as it was
ALTER TABLE items ADD CONSTRAINT positive CHECK (embedding[1] > 100) NOT VALID;
DO $$ BEGIN PERFORM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 1); EXCEPTION WHEN check_violation THEN RAISE NOTICE 'check_violation'; END $$;
ALTER TABLE items DROP CONSTRAINT positive;
SELECT same_factors();
-- a range of keys that the column cannot hold
CREATE TABLE small (key smallint PRIMARY KEY, embedding real[]);
INSERT INTO events VALUES (40000, 1, 1);
SELECT gpuvec_als('events', 'u', 'i', 'small', 'items', 'w', 4, 1);
DELETE FROM events WHERE u = 40000;
-- functions of the extension while a training is under way: searches may run, another training may not
CREATE TABLE docs (n int, tokens idset);
INSERT INTO docs SELECT n, ARRAY[n % 5, n] FROM generate_series(1, 100) n;
CREATE VIEW searching AS SELECT u, i, w FROM events, generate_series(1, 500) n
	WHERE CASE WHEN (u + i + n) % 97 = 0 THEN (SELECT count(*) FROM gpuvec_topk('docs', 'tokens', ARRAY[u % 5]::idset, 3)) = 3 ELSE true END;
SELECT count(*) > 66000 AS several_parts FROM searching;
SELECT count(*) FROM gpuvec_als('searching', 'u', 'i', 'wide', 'items', 'w', 4, 3, alpha => 0.002);
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items1', 'w', 4, 3);
SELECT bool_and(abs(u.embedding[1] - w.embedding[1]) < 1e-3) AS same FROM users u JOIN wide w USING (key);
CREATE OR REPLACE FUNCTION fill_norm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.norm := (SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2}', 5)); RETURN NEW; END $$;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'wide', 'items', 'w', 4, 3);
SELECT count(*), min(norm), max(norm) FROM wide;
CREATE OR REPLACE FUNCTION fill_norm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 1); RETURN NEW; END $$;
SELECT gpuvec_als('events', 'u', 'i', 'wide', 'items', 'w', 4, 3);
SELECT count(*), min(norm), max(norm) FROM wide;
SELECT gpuvec_als_rows(0);
SELECT count(*) FROM gpuvec_training;
DROP VIEW searching;
DROP TABLE docs, wide, small;
DROP FUNCTION fill_norm();
-- arguments
SELECT gpuvec_als(NULL, 'u', 'i', 'users', 'items');
SELECT gpuvec_als('events', NULL, 'i', 'users', 'items');
SELECT gpuvec_als('events', 'u', 'i', 'users', NULL);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', factors => NULL);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', seed => NULL);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', warm_start => NULL);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 0);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 1025);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', iterations => 0);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', cg_steps => 0);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', regularization => -0.1);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', regularization => 'NaN');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', alpha => 0);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', alpha => 1e-30);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', alpha => 'Infinity');
-- relations and columns
SELECT gpuvec_als('events', 'u', 'i', 'users', 'users');
SELECT gpuvec_als('users', 'key', 'key', 'users', 'items');
SELECT gpuvec_als(0, 'u', 'i', 'users', 'items');
SELECT gpuvec_als('events', 'u', 'i', 'users_pkey', 'items');
SELECT gpuvec_als('events', 'no', 'i', 'users', 'items');
SELECT gpuvec_als('events', 'u', 'ctid', 'users', 'items');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'no');
SELECT gpuvec_als('events', 'u', 'w', 'users', 'items');
SELECT gpuvec_als('users', 'key', 'key', 'users1', 'items', 'embedding');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', key_column => 'no');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', column_name => 'key');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'events_matview', key_column => 'u', column_name => 'w');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'events_matview', 'w');
-- weights that cannot be used
INSERT INTO events VALUES (5, -7, 'NaN');
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w');
UPDATE events SET w = '-Infinity' WHERE i = -7;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w');
UPDATE events SET w = 2e12 WHERE i = -7;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w');
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 2, 1, alpha => 0.01);
UPDATE events SET w = 6e11 WHERE i = -7;
INSERT INTO events VALUES (5, -7, 6e11);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w');
DELETE FROM events WHERE i = -7;
-- weights that vanish are left out, but not all of them
CREATE TABLE tiny AS SELECT u, i, 1e-30::float8 AS w FROM events;
SELECT gpuvec_als('tiny', 'u', 'i', 'users', 'items', 'w', 2, 1, alpha => 1e-20);
SELECT count(*) > 0 AS as_before FROM users;
SELECT count(*) AS folded_in FROM gpuvec_als_fold_in('tiny', 'u', 'i', 'items', NULL, 'w', alpha => 1e-20);
SELECT count(*) AS folded_in FROM gpuvec_als_fold_in('tiny', 'u', 'i', 'items', '{1,2}', 'w', alpha => 1e-20);
INSERT INTO tiny VALUES (7, 7, 1);
SELECT count(*) FROM gpuvec_als('tiny', 'u', 'i', 'users', 'items', 'w', 2, 1, alpha => 1e-20);
SELECT key FROM users;
UPDATE tiny SET w = 0;
SELECT count(*) FROM gpuvec_als('tiny', 'u', 'i', 'users', 'items', 'w', 2, 1);
SELECT count(*) FROM users;
DROP TABLE tiny;
SELECT gpuvec_als('events_view', 'u', 'i', 'users', 'items', 'twice', 2, 1) IS NOT NULL AS after_errors;
-- few of anything
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 64, 2);
SELECT min(array_length(embedding, 1)) FROM users;
TRUNCATE events;
SELECT * FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 3);
SELECT (SELECT count(*) FROM users) AS users, (SELECT count(*) FROM items) AS items;
INSERT INTO events VALUES (7, 9223372036854775807, 1);
SELECT near(loss, plain_loss(0.01)) AS as_defined FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 10) ORDER BY iteration DESC LIMIT 1;
SELECT x.key, y.key, round(dot(x.embedding, y.embedding)::numeric, 2) AS score FROM users x, items y;
INSERT INTO events SELECT 7, i, 1 FROM generate_series(1, 5) i;
SELECT near(loss, plain_loss(0.01)) AS as_defined FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 4, 10) ORDER BY iteration DESC LIMIT 1;
SELECT count(*), bool_and(round(dot(x.embedding, y.embedding)::numeric, 1) = 1.0) AS scores FROM users x, items y;
-- read-only transactions
BEGIN READ ONLY;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items');
ROLLBACK;
-- rights: those of the caller, on all three relations; policies apply
CREATE ROLE regress_als;
SET ROLE regress_als;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items');
RESET ROLE;
GRANT INSERT, SELECT ON users TO regress_als;
SET ROLE regress_als;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items');
RESET ROLE;
GRANT DELETE ON users, items TO regress_als;
GRANT INSERT (key, embedding) ON items TO regress_als;
SET ROLE regress_als;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items');
RESET ROLE;
GRANT SELECT (u, i) ON events TO regress_als;
SET ROLE regress_als;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', 'w');
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 1);
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 1, warm_start => true);
RESET ROLE;
SELECT count(*) FROM items;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON events USING (i BETWEEN 2 AND 4);
SET ROLE regress_als;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 1);
RESET ROLE;
SELECT array_agg(key ORDER BY key) FROM items;
-- a policy of the table of factors decides as well
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY others ON items USING (key < 4);
SET ROLE regress_als;
SELECT gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 1);
RESET ROLE;
SELECT array_agg(key ORDER BY key) FROM items;
DROP OWNED BY regress_als;
DROP ROLE regress_als;
-- names of columns that SQL would take for something else, and functions that a search path finds first
CREATE SCHEMA traps;
CREATE FUNCTION traps.gpuvec_als_rows(int, OUT key bigint, OUT embedding real[]) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
CREATE FUNCTION traps.no(events) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
SET search_path = traps, public;
SELECT count(*) FROM public.gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 2, iterations => 1);
SELECT public.gpuvec_als('events', 'no', 'i', 'users', 'items', factors => 2, iterations => 1);
RESET search_path;
DROP FUNCTION traps.gpuvec_als_rows, traps.no;
DROP SCHEMA traps;
-- a cursor that a trigger left open does not outlive the training, nor take another one for it
CREATE TABLE cursor_events AS SELECT n % 9 AS u, n % 7 AS i FROM generate_series(1, 40) n;
CREATE TABLE cursor_users (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE cursor_items (key bigint PRIMARY KEY, embedding real[]);
CREATE FUNCTION leave_open() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'left_open';
	r record;
BEGIN
	OPEN c FOR SELECT key, cardinality(embedding) FROM gpuvec_als_rows(0);
	FETCH c INTO r;
	RETURN NULL;
END $$;
CREATE TRIGGER leave AFTER INSERT ON cursor_users FOR EACH STATEMENT EXECUTE FUNCTION leave_open();
BEGIN;
SELECT count(*) FROM gpuvec_als('cursor_events', 'u', 'i', 'cursor_users', 'cursor_items', NULL, 5, 2);
DROP TRIGGER leave ON cursor_users;
SELECT count(*) FROM gpuvec_als('cursor_events', 'u', 'i', 'cursor_users', 'cursor_items', NULL, 900, 1);
-- rows that were fetched before are those of the first training
FETCH 2 FROM left_open;
ROLLBACK;
-- factors that a join reads several times begin with the first one each time
CREATE FUNCTION read_again() RETURNS trigger LANGUAGE plpgsql SET enable_material = off AS $$
BEGIN
	RAISE NOTICE '%', (SELECT json_agg(x) FROM (SELECT g AS reading, count(key) AS users, sum(key) AS keys
		FROM generate_series(1, 3) g LEFT JOIN gpuvec_als_rows(0) ON key > g - 10 GROUP BY g ORDER BY g) x);
	RETURN NULL;
END $$;
CREATE TRIGGER again AFTER INSERT ON cursor_users FOR EACH STATEMENT EXECUTE FUNCTION read_again();
SELECT count(*) FROM gpuvec_als('cursor_events', 'u', 'i', 'cursor_users', 'cursor_items', NULL, 5, 2);
DROP TABLE cursor_events, cursor_users, cursor_items;
DROP FUNCTION leave_open, read_again;
DROP VIEW events_view;
DROP MATERIALIZED VIEW events_matview;
DROP TABLE events, events2, parts, users, items, users1, items1, items_kept, run, kept CASCADE;
DROP FUNCTION dot, plain_loss, near, same_factors, groups_found, loss_moved;
