-- Using factors: users folded in (gpuvec_als_fold_in), and the best items of users (gpuvec_recommend), against plain SQL.
\set SHOW_CONTEXT never
CREATE TABLE events (u int, i bigint, w real);
INSERT INTO events SELECT u, i, CASE WHEN (u + i) % 11 = 0 THEN -1 ELSE (u * i) % 5 + 0.5 END FROM generate_series(1, 60) u, generate_series(1, 40) i WHERE (u * u + i * 7) % 5 < 2;
CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
CREATE FUNCTION dot(a float8[], b float8[]) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT sum(x * y) FROM unnest(a, b) t (x, y) $$;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 6, 15, 0.1, 2);
-- a folded-in factor is where the loss has no slope: the largest slope of all users, by the definition of the loss
CREATE TABLE folded (key bigint, embedding real[]);
CREATE FUNCTION largest_slope(regularization float8, alpha float8) RETURNS float8 LANGUAGE sql AS $$
	WITH pair AS (SELECT u, i, sum(w)::float8 AS w FROM events WHERE w IS NOT NULL GROUP BY u, i HAVING sum(w) <> 0),
	term AS (SELECT x.key, x.embedding AS x, y.embedding AS y, coalesce(alpha * abs(w), 1) * (CASE WHEN w > 0 THEN 1 ELSE 0 END - dot(x.embedding, y.embedding)) AS rest
		FROM folded x CROSS JOIN items y LEFT JOIN pair ON u = x.key AND i = y.key)
	SELECT max(abs(slope)) FROM (SELECT sum(rest * y[f]) - regularization * x[f] AS slope FROM term, generate_series(1, 6) f GROUP BY key, x, f) s $$;
INSERT INTO folded SELECT * FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', NULL, 'w', 0.1, 2);
SELECT count(*), sum(key), largest_slope(0.1, 2) < 1e-3 AS best FROM folded;
-- a training that has come to its end found the same
BEGIN;
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', 6, 300, 0.1, 2, cg_steps => 20);
SELECT max(abs(x - y)) < 0.01 * max(abs(x)) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', NULL, 'w', 0.1, 2) f JOIN users t USING (key), unnest(f.embedding, t.embedding) e (x, y);
ROLLBACK;
-- some users: the same bits; unknown ones have no row
SELECT count(*), bool_and(f.embedding = a.embedding) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{7,1000,NULL,3,7}', 'w', 0.1, 2) f JOIN folded a USING (key);
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{}', 'w');
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{1000,NULL}', 'w');
-- users and items that are new; repeated pairs, zeros and nulls
INSERT INTO events VALUES (100, 5, 1), (100, 5, 1.5), (100, 500, 3), (100, 6, -1), (100, 7, 0), (100, 8, NULL), (101, 500, 1), (102, 5, 0);
TRUNCATE folded;
INSERT INTO folded SELECT * FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{100,101,102}', 'w', 0.1, 2);
SELECT key FROM folded;
SELECT largest_slope(0.1, 2) < 1e-3 AS best FROM folded;
-- without weights, other options
TRUNCATE folded;
INSERT INTO folded SELECT * FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', regularization => 2);
BEGIN;
UPDATE events SET w = 1;
SELECT count(*), largest_slope(2, 1) < 1e-3 AS best FROM folded;
ROLLBACK;
-- items, from the users' factors
SELECT count(*), bool_and(cardinality(embedding) = 6) AS width FROM gpuvec_als_fold_in('events', 'i', 'u', 'users', '{5,500}', 'w', 0.1, 2);
-- a table of factors that is kept as its interactions come
CREATE FUNCTION keep_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO users SELECT key, embedding FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', (SELECT array_agg(DISTINCT u::bigint) FROM fresh), 'w', 0.1, 2)
	ON CONFLICT (key) DO UPDATE SET embedding = excluded.embedding;
	RETURN NULL;
END $$;
CREATE TRIGGER keep AFTER INSERT ON events REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION keep_users();
INSERT INTO events VALUES (200, 1, 1), (201, 2, 1), (200, 3, 1), (1, 40, 5);
SELECT count(*), bool_and(f.embedding = users.embedding) AS same FROM users JOIN gpuvec_als_fold_in('events', 'u', 'i', 'items', '{200,201,1}', 'w', 0.1, 2) f USING (key);
DROP TRIGGER keep ON events;
DROP FUNCTION keep_users();
-- the best items, by brute force
CREATE FUNCTION brute_force(wanted int8[], n int, known bool, excluded int8[], these int8[]) RETURNS TABLE (user_key int8, rank int8, item_key int8, score numeric) LANGUAGE sql AS $$
	SELECT * FROM (SELECT x.key, row_number() OVER (PARTITION BY x.key ORDER BY dot(x.embedding, y.embedding) DESC, y.key) AS rank, y.key, round(dot(x.embedding, y.embedding)::numeric, 6)
		FROM users x CROSS JOIN items y WHERE (wanted IS NULL OR x.key = ANY (wanted)) AND (excluded IS NULL OR y.key <> ALL (array_remove(excluded, NULL))) AND (these IS NULL OR y.key = ANY (these))
		AND NOT (known AND EXISTS (SELECT FROM events WHERE u = x.key AND i = y.key))) r WHERE rank <= n $$;
CREATE FUNCTION check_recommend(wanted int8[], n int, known bool, excluded int8[], these int8[] DEFAULT NULL) RETURNS TABLE (rows int8, wrong int8) LANGUAGE sql AS $$
	WITH answer AS MATERIALIZED (SELECT r.user_key, r.rank::int8, r.item_key, round(r.score::numeric, 6) AS score FROM gpuvec_recommend('users', 'items', wanted, n, CASE WHEN known THEN 'events'::regclass END, 'u', 'i', excluded, these) r),
	expected AS MATERIALIZED (SELECT * FROM brute_force(wanted, n, known, excluded, these))
	SELECT (SELECT count(*) FROM answer), (SELECT count(*) FROM ((TABLE answer EXCEPT ALL TABLE expected) UNION ALL (TABLE expected EXCEPT ALL TABLE answer)) d) $$;
SELECT w, n, known, e, c.* FROM (VALUES (NULL::int8[]), ('{1,5,100,200,3000,NULL}')) w (w), (VALUES (1), (10), (1000)) n (n), (VALUES (false), (true)) k (known), (VALUES (NULL::int8[]), ('{5,7,NULL,9000}')) e (e), check_recommend(w, n, known, e) c ORDER BY w, n, known, e;
-- among given items
SELECT w, n, known, e, o, c.* FROM (VALUES (NULL::int8[]), ('{1,5,100,200,3000,NULL}')) w (w), (VALUES (2), (1000)) n (n), (VALUES (false), (true)) k (known), (VALUES (NULL::int8[]), ('{5,7,NULL,9000}')) e (e), (VALUES ('{3,5,3,NULL,40,8000,1,7,12}'::int8[]), ('{}'), ('{8000}')) o (o), check_recommend(w, n, known, e, o) c ORDER BY w, n, known, e, o;
-- known items may stay in
SELECT count(*) AS differ FROM gpuvec_recommend('users', 'items', NULL, 7, 'events', 'u', 'i', exclude_known => false) a FULL JOIN gpuvec_recommend('users', 'items', NULL, 7) b USING (user_key, rank, item_key, score) WHERE a IS NULL OR b IS NULL;
-- many users: several batches, and users with as many known items as there are items
BEGIN;
INSERT INTO users SELECT 10000 + n, ARRAY[sin(n), cos(n), sin(2 * n), cos(2 * n), sin(3 * n), 0.5]::real[] FROM generate_series(1, 3000) n;
INSERT INTO events SELECT 10000 + n, i, 1 FROM generate_series(1, 3000) n, generate_series(1, n % 41) i;
SELECT * FROM check_recommend(NULL, 3, true, NULL);
SELECT * FROM check_recommend(NULL, 100, true, '{1,7}');
SELECT * FROM check_recommend(NULL, 3, true, '{1,7}', '{1,2,3,4,5,6,7,8,9}');
-- very many given users, of the table and of a view of it
SELECT array_agg(n % 2600 + 10001) || '{1,5,NULL,5,-7,999999}' AS most FROM generate_series(1, 2700) n \gset
SELECT * FROM check_recommend(:'most', 3, true, NULL);
SELECT * FROM check_recommend(:'most', 2, false, '{1,7}', '{1,2,3,4,5,6,7,8,9}');
CREATE VIEW users_view AS SELECT key AS id, embedding AS v FROM users WHERE key % 2 = 0;
SELECT count(*), count(DISTINCT user_key), bool_and(user_key % 2 = 0) AS of_the_view FROM gpuvec_recommend('users_view', 'items', :'most', 3);
DROP VIEW users_view;
-- of several batches only what is asked for; and once more from the beginning
SELECT count(*) FROM (SELECT FROM gpuvec_recommend('users', 'items', NULL, 2, 'events', 'u', 'i') LIMIT 5) r;
SELECT n, count(*), count(DISTINCT user_key) FROM generate_series(1, 2) n LEFT JOIN gpuvec_recommend('users', 'items', NULL, 5, exclude => '{1}') r ON r.rank > n GROUP BY n ORDER BY n;
DECLARE few CURSOR WITH HOLD FOR SELECT count(*) OVER (ORDER BY user_key, rank) AS row FROM gpuvec_recommend('users', 'items', '{1,2,3}', 2);
DECLARE held CURSOR WITH HOLD FOR SELECT rank FROM gpuvec_recommend('users', 'items', NULL, 5);
FETCH 2 FROM few;
MOVE 3 FROM held;
DELETE FROM users WHERE key > 10000;
DELETE FROM events WHERE u > 10000;
COMMIT;
MOVE ALL FROM held;
FETCH ALL FROM few;
CLOSE ALL;
-- several rows with a user's or an item's key
CREATE TABLE twice (key bigint, embedding real[]);
INSERT INTO twice SELECT * FROM items UNION ALL SELECT key, embedding FROM items WHERE key < 4;
SELECT count(*), count(DISTINCT item_key) FROM gpuvec_recommend('users', 'twice', '{1,2}', 1000, 'events', 'u', 'i', '{2}');
SELECT gpuvec_recommend('users', 'twice', '{1,2}', among => '{1,7}');
SELECT count(*), count(DISTINCT user_key) FROM gpuvec_recommend('twice', 'items', '{1,9}', 3);
-- other numbers of elements
INSERT INTO twice VALUES (77, '{1,2}');
SELECT count(*) FROM gpuvec_recommend('twice', 'items', '{77}');
SELECT count(*) FROM gpuvec_recommend('twice', 'items', '{77}', among => '{1}');
SELECT count(*) FROM gpuvec_recommend('twice', 'items', '{77,1}');
SELECT count(*) FROM gpuvec_recommend('users', 'twice', '{1}', 1000);
INSERT INTO twice VALUES (79, '{}');
SELECT count(*) FROM gpuvec_recommend('twice', 'items', '{79}');
SELECT count(*) FROM gpuvec_recommend('twice', 'items', '{79,1}');
INSERT INTO twice VALUES (78, '{1,2,NULL,4,5,6}');
SELECT count(*) FROM gpuvec_recommend('twice', 'items', '{78}');
DELETE FROM twice WHERE key < 70;
SELECT count(*) FROM gpuvec_recommend('users', 'twice', '{1}');
TRUNCATE twice;
SELECT count(*) FROM gpuvec_recommend('users', 'twice');
SELECT count(*) FROM gpuvec_recommend('twice', 'items');
DROP TABLE twice;
SELECT count(*) FROM gpuvec_recommend('users', 'items', '{}');
SELECT count(*) FROM gpuvec_recommend('users', 'items', '{77}', interactions => 'events', user_column => 'u', item_column => 'i');
-- after changes of the factors, in the same transaction
BEGIN;
UPDATE items SET embedding = (SELECT array_agg(-x) FROM unnest(embedding) x) WHERE key % 2 = 0;
DELETE FROM items WHERE key = 9;
SELECT * FROM check_recommend(NULL, 7, true, '{3}');
ROLLBACK;
SELECT * FROM check_recommend(NULL, 7, true, '{3}');
-- outside of FROM; tables with other names and types
CREATE SCHEMA "Odd ""Names";
CREATE TABLE "Odd ""Names"."a Table" ("The Key" smallint PRIMARY KEY, "The Vector" float8[] NOT NULL, n int);
INSERT INTO "Odd ""Names"."a Table" SELECT * FROM items;
CREATE VIEW few_users AS SELECT key::int AS id, embedding AS v FROM users WHERE key < 4;
SELECT count(*), bool_and(a.score = b.score AND a.item_key = b.item_key) AS same FROM gpuvec_recommend('few_users', '"Odd ""Names"."a Table"', k => 3) a, gpuvec_recommend('users', 'items', '{1,2,3}', 3) b WHERE a.user_key = b.user_key AND a.rank = b.rank;
SELECT count(*) FROM (SELECT gpuvec_recommend('users', 'items', '{1,2}', 3)) r;
SELECT count(*) FROM (SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{1,2}')) r;
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', '"Odd ""Names"."a Table"', '{1,2}');
BEGIN READ ONLY;
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{1,2}');
SELECT count(*) FROM gpuvec_recommend('users', 'items', '{1,2}', 3);
ROLLBACK;
DROP TABLE "Odd ""Names"."a Table";
DROP SCHEMA "Odd ""Names";
-- Keys of each type, below 0 as well, of tables with rows that lack a user, an item or a weight: what there is of the keys above 0, for keys of bigint
CREATE FUNCTION shifted(type text) RETURNS TABLE (what text, rows int8, wrong int8) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TEMP TABLE moved_events (u %1$s, i %1$s, w real);
		INSERT INTO moved_events VALUES (NULL, 1, 5), (1, NULL, 7), (NULL, NULL, 1), (-29, 2, NULL), (NULL, -5, -3);
		INSERT INTO moved_events SELECT u - 30, i - 20, w FROM events;
		INSERT INTO moved_events VALUES (NULL, -19, 2), (-29, NULL, 1), (NULL, 0, NULL);
		CREATE TEMP TABLE moved_users (key %1$s, embedding real[]); INSERT INTO moved_users SELECT key - 30, embedding FROM users;
		CREATE TEMP TABLE moved_items (key %1$s, embedding real[]); INSERT INTO moved_items SELECT key - 20, embedding FROM items;
		CREATE TEMP TABLE trained_users (key %1$s, embedding real[]); CREATE TEMP TABLE trained_items (key %1$s, embedding real[])', type);
	RETURN QUERY SELECT 'fold in', count(a.key), count(*) FILTER (WHERE a.embedding IS DISTINCT FROM b.embedding)
		FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', NULL, 'w', 0.1, 2) a FULL JOIN gpuvec_als_fold_in('moved_events', 'u', 'i', 'moved_items', NULL, 'w', 0.1, 2) b ON b.key = a.key - 30;
	RETURN QUERY SELECT 'fold some in', count(a.key), count(*) FILTER (WHERE a.embedding IS DISTINCT FROM b.embedding)
		FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{1,2,40,NULL}', 'w', 0.1, 2) a FULL JOIN gpuvec_als_fold_in('moved_events', 'u', 'i', 'moved_items', '{-29,-28,10,NULL}', 'w', 0.1, 2) b ON b.key = a.key - 30;
	RETURN QUERY SELECT 'explain', count(a.item_key), count(*) FILTER (WHERE (a.contribution, a.weight) IS DISTINCT FROM (b.contribution, b.weight))
		FROM (SELECT u, x.* FROM (VALUES (1), (2), (40)) v (u), gpuvec_als_explain('events', 'u', 'i', 'items', u, 7, 'w', 0.1, 2) x) a
		FULL JOIN (SELECT u, x.* FROM (VALUES (-29), (-28), (10)) v (u), gpuvec_als_explain('moved_events', 'u', 'i', 'moved_items', u, -13, 'w', 0.1, 2) x) b ON b.u = a.u - 30 AND b.item_key = a.item_key - 20;
	RETURN QUERY SELECT 'recommend', count(a.user_key), count(*) FILTER (WHERE a.score IS DISTINCT FROM b.score)
		FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i', '{3,30}') a FULL JOIN gpuvec_recommend('moved_users', 'moved_items', NULL, 5, 'moved_events', 'u', 'i', '{-17,10}') b
		ON b.user_key = a.user_key - 30 AND b.item_key = a.item_key - 20 AND b.rank = a.rank;
	RETURN QUERY SELECT 'recommend to some', count(a.user_key), count(*) FILTER (WHERE a.score IS DISTINCT FROM b.score)
		FROM gpuvec_recommend('users', 'items', '{1,2,40,NULL}', 5, 'events', 'u', 'i', NULL, '{1,2,3,30,31,NULL}') a FULL JOIN gpuvec_recommend('moved_users', 'moved_items', '{-29,-28,10,NULL}', 5, 'moved_events', 'u', 'i', NULL, '{-19,-18,-17,10,11,NULL}') b
		ON b.user_key = a.user_key - 30 AND b.item_key = a.item_key - 20 AND b.rank = a.rank;
	RETURN QUERY SELECT 'neighbors', count(a.item_key), count(*) FILTER (WHERE a.score IS DISTINCT FROM b.score)
		FROM gpuvec_item_neighbors('events', 'u', 'i', 5, 'w') a FULL JOIN gpuvec_item_neighbors('moved_events', 'u', 'i', 5, 'w') b ON b.item_key = a.item_key - 20 AND b.neighbor_key = a.neighbor_key - 20 AND b.rank = a.rank;
	PERFORM gpuvec_als('moved_events', 'u', 'i', 'trained_users', 'trained_items', 'w', 6, 2);
	PERFORM gpuvec_als('moved_events', 'u', 'i', 'trained_users', 'trained_items', 'w', 6, 1, warm_start => true);
	RETURN QUERY SELECT 'train', count(e.u), count(*) FILTER (WHERE e.u IS NULL OR t.key IS NULL) FROM (SELECT DISTINCT u FROM (SELECT u FROM events WHERE w IS NOT NULL GROUP BY u, i HAVING sum(w) <> 0) x) e FULL JOIN trained_users t ON t.key = e.u - 30;
	DROP TABLE moved_events, moved_users, moved_items, trained_users, trained_items;
END $$;
SELECT type, s.* FROM unnest('{smallint,int,bigint}'::text[]) WITH ORDINALITY t (type, number), shifted(type) s ORDER BY number, what;
DROP FUNCTION shifted(text);
-- errors
SELECT gpuvec_als_fold_in(NULL, 'u', 'i', 'items');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', alpha => NULL);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', alpha => -1);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', regularization => 'Infinity');
SELECT gpuvec_als_fold_in('events', 'u', 'no', 'items');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'events');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', weight_column => 'no');
INSERT INTO events VALUES (300, 3, 'Infinity');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{300}', 'w');
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{1}', 'w');
DELETE FROM events WHERE u = 300;
CREATE TABLE bad (key bigint, embedding real[]);
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'bad');
INSERT INTO bad VALUES (1, NULL), (NULL, '{1,2}');
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'bad');
INSERT INTO bad VALUES (1, '{1,2}'), (2, '{3,4}');
SELECT count(*) > 0 AS some FROM gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{1,2,3,4,5}');
INSERT INTO bad VALUES (1, '{3,4}');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad');
UPDATE bad SET key = 3, embedding = '{1,2,3}' WHERE embedding = '{3,4}' AND key = 1;
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad');
TRUNCATE bad;
INSERT INTO bad VALUES (1, array_fill(1, '{1025}'));
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad');
-- the largest factors, and larger ones, whose products would overflow
TRUNCATE bad;
INSERT INTO bad SELECT i, ARRAY[1e15, -1e15 / i] FROM generate_series(1, 40) i;
SELECT count(*), bool_and(f.embedding = a.embedding) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{1,2,3}', regularization => 0) f JOIN gpuvec_als_fold_in('events', 'u', 'i', 'bad', regularization => 0) a USING (key);
SELECT count(*) > 0 AS some FROM gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9, regularization => 0);
INSERT INTO bad VALUES (41, '{3e38,-3e38}');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{1,2,3}');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad');
SELECT gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
DROP TABLE bad;
-- a cursor whose items go away between two parts fails, rather than that users have no more items
BEGIN;
DECLARE c CURSOR FOR SELECT user_key FROM gpuvec_recommend('users', 'items', NULL, 1000);
MOVE 1 FROM c;
TRUNCATE items;
SELECT count(*) FROM items;
FETCH ALL FROM c;
ROLLBACK;
SELECT gpuvec_recommend(NULL, 'items');
SELECT gpuvec_recommend('users', 'items', k => NULL);
SELECT gpuvec_recommend('users', 'items', k => 0);
SELECT gpuvec_recommend('users', 'items', interactions => 'events', user_column => 'u');
SELECT gpuvec_recommend('users', 'items', interactions => 'events', user_column => 'u', item_column => 'w');
SELECT gpuvec_recommend('users', 'events');
SELECT gpuvec_recommend('users', 'items', exclude_known => NULL);
SELECT gpuvec_recommend('users', 'items', among => '{{1},{2}}');
-- items in several tables: each of these is searched as often, and none ahead
CREATE TABLE many_users AS SELECT i::int8 AS key, ARRAY[i, 1]::real[] AS embedding FROM generate_series(1, 2000) i;
CREATE TABLE parted_items (key bigint, embedding real[]) PARTITION BY RANGE (key);
CREATE TABLE parted_items_1 PARTITION OF parted_items FOR VALUES FROM (1) TO (11);
CREATE TABLE parted_items_2 PARTITION OF parted_items FOR VALUES FROM (11) TO (41);
INSERT INTO parted_items SELECT i, ARRAY[i % 7, i] FROM generate_series(1, 40) i;
SELECT count(*) FROM gpuvec_recommend('many_users', 'parted_items');
SELECT count(*), count(DISTINCT searches) AS numbers_of_searches FROM gpuvec_mirrors WHERE relation IN ('parted_items_1'::regclass, 'parted_items_2'::regclass);
DROP TABLE many_users, parted_items;
-- the plan
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_recommend('users', 'items', '{1,2}');
SET search_path = '';
SELECT count(*) FROM public.gpuvec_recommend('public.users', 'public.items', '{1,2}', 3, 'public.events', 'u', 'i');
-- names that SQL could take for others
RESET search_path;
CREATE SCHEMA trap;
CREATE FUNCTION trap.array_agg(bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT 1 / 0; SELECT NULL::bigint[]';
CREATE FUNCTION trap.never(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT 1 / 0 = 1';
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.never);
SET search_path = trap, public, pg_catalog;
SELECT count(*) FROM gpuvec_recommend('users', 'items', '{1,2}', 3, 'events', 'u', 'i', '{3}', '{1,2,3,4,5}');
RESET search_path;
DROP OPERATOR trap.= (bigint, bigint);
DROP FUNCTION trap.never, trap.array_agg;
DROP SCHEMA trap;
-- rights
CREATE ROLE regress_als_reader;
GRANT SELECT ON users TO regress_als_reader;
SET ROLE regress_als_reader;
SELECT gpuvec_recommend('users', 'items', '{1}');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'users');
RESET ROLE;
GRANT SELECT ON items TO regress_als_reader;
SET ROLE regress_als_reader;
SELECT count(*) FROM gpuvec_recommend('users', 'items', '{1}');
SELECT gpuvec_recommend('users', 'items', '{1}', 10, 'events', 'u', 'i');
RESET ROLE;
-- policies of interactions and of users; the table of items must have none
GRANT SELECT ON events TO regress_als_reader;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON events TO regress_als_reader USING (i > 10);
ALTER TABLE users ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON users TO regress_als_reader USING (key < 3);
SET ROLE regress_als_reader;
SELECT user_key, count(*), count(*) FILTER (WHERE item_key <= 10) AS beyond_the_policy FROM gpuvec_recommend('users', 'items', '{1,2,3}', 1000, 'events', 'u', 'i') GROUP BY 1 ORDER BY 1;
RESET ROLE;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
SET ROLE regress_als_reader;
SELECT gpuvec_recommend('users', 'items', '{1}', among => '{}');
RESET ROLE;
ALTER TABLE items DISABLE ROW LEVEL SECURITY;
ALTER TABLE events DISABLE ROW LEVEL SECURITY;
ALTER TABLE users DISABLE ROW LEVEL SECURITY;
DROP POLICY few ON events;
DROP POLICY few ON users;
DROP OWNED BY regress_als_reader;
DROP ROLE regress_als_reader;
SELECT count(*) FROM gpuvec_training;
DROP VIEW few_users;
DROP FUNCTION check_recommend, brute_force, largest_slope, dot;
DROP TABLE events, users, items, folded;
