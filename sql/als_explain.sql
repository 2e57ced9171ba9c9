-- What made a score (gpuvec_als_explain), and users folded in one by one, against Gaussian elimination in plain SQL.
\set SHOW_CONTEXT never
CREATE TABLE events (u int, i bigint, w real);
INSERT INTO events SELECT u, i, CASE WHEN (u + i) % 11 = 0 THEN -1 ELSE (u * i) % 5 + 0.5 END FROM generate_series(1, 20) u, generate_series(1, 30) i WHERE (u * u + i * 7) % 5 < 2;
INSERT INTO events VALUES (1, 5, 1), (1, 5, 1.5), (1, 500, 3), (1, 6, -4), (1, 7, 0), (1, 8, NULL), (NULL, 5, 1), (100, 500, 1), (101, 3, 1), (101, 3, -1);
CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
INSERT INTO items SELECT i, ARRAY[sin(i), cos(i * i), sin(i + 0.5) / 2, cos(3 * i)]::real[] FROM generate_series(1, 40) i;
VACUUM ANALYZE items;
-- solve a x = b
CREATE FUNCTION solve(a float8[], b float8[]) RETURNS float8[] LANGUAGE plpgsql AS $$
DECLARE n int := cardinality(b); factor float8;
BEGIN
	FOR p IN 1 .. n LOOP
		FOR r IN 1 .. n LOOP
			CONTINUE WHEN r = p;
			factor := a[r][p] / a[p][p];
			FOR c IN 1 .. n LOOP a[r][c] := a[r][c] - factor * a[p][c]; END LOOP;
			b[r] := b[r] - factor * b[p];
		END LOOP;
	END LOOP;
	RETURN (SELECT array_agg(b[p] / a[p][p] ORDER BY p) FROM generate_series(1, n) p);
END $$;
CREATE FUNCTION dot(a float8[], b float8[]) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT sum(x * y) FROM unnest(a, b) t (x, y) $$;
CREATE VIEW pairs AS SELECT u, i, sum(w)::float8 AS w FROM events JOIN items ON key = i WHERE u IS NOT NULL AND w IS NOT NULL GROUP BY u, i HAVING sum(w) <> 0;
-- A of a user, as the head of core/als.h has it
CREATE FUNCTION matrix(which int, regularization float8, alpha float8) RETURNS float8[] LANGUAGE sql AS $$
	SELECT array_agg(line ORDER BY r) FROM (SELECT r, array_agg(cell ORDER BY c) AS line FROM (
		SELECT r, c, CASE WHEN r = c THEN regularization ELSE 0 END + sum(coalesce(alpha * abs(w), 1) * y.embedding[r] * y.embedding[c]) AS cell
		FROM items y LEFT JOIN pairs ON u = which AND i = key, generate_series(1, (SELECT max(cardinality(embedding)) FROM items)) r, generate_series(1, (SELECT max(cardinality(embedding)) FROM items)) c GROUP BY r, c) cells GROUP BY r) lines $$;
CREATE FUNCTION explained(which int, item int8, regularization float8, alpha float8) RETURNS TABLE (item_key int8, contribution numeric, weight float8) LANGUAGE sql AS $$
	WITH a AS MATERIALIZED (SELECT solve(matrix(which, regularization, alpha), embedding::float8[]) AS w FROM items WHERE key = item)
	SELECT i, round((CASE WHEN pairs.w > 0 THEN alpha * pairs.w ELSE 0 END * dot(a.w, embedding))::numeric, 7), pairs.w FROM a, pairs JOIN items ON key = i WHERE u = which $$;
CREATE FUNCTION check_explain(which int, item int8, regularization float8, alpha float8) RETURNS TABLE (rows int8, wrong int8) LANGUAGE sql AS $$
	WITH answer AS MATERIALIZED (SELECT item_key, round(contribution::numeric, 7) AS contribution, weight FROM gpuvec_als_explain('events', 'u', 'i', 'items', which, item, 'w', regularization, alpha)),
	expected AS MATERIALIZED (SELECT * FROM explained(which, item, regularization, alpha))
	SELECT (SELECT count(*) FROM answer), (SELECT count(*) FROM answer a FULL JOIN expected e USING (item_key, weight) WHERE a.contribution IS NULL OR e.contribution IS NULL OR abs(a.contribution - e.contribution) > 0.000001) $$;
-- factors of users, by elimination
CREATE FUNCTION check_folded(which int8[], regularization float8, alpha float8) RETURNS TABLE (users int8, wrong int8) LANGUAGE sql AS $$
	WITH answer AS MATERIALIZED (SELECT * FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', which, 'w', regularization, alpha)),
	expected AS MATERIALIZED (SELECT u::int8 AS key, solve(matrix(u, regularization, alpha), (SELECT array_agg(b ORDER BY r) FROM (SELECT r, sum(CASE WHEN w > 0 THEN alpha * w ELSE 0 END * embedding[r]) AS b FROM pairs p JOIN items ON key = i, generate_subscripts(embedding, 1) r WHERE p.u = d.u GROUP BY r) s)) AS x
		FROM (SELECT DISTINCT u FROM pairs WHERE u = ANY (which)) d)
	SELECT (SELECT count(*) FROM answer), (SELECT count(*) FROM answer a FULL JOIN expected e USING (key) WHERE a.key IS NULL OR e.key IS NULL OR EXISTS (SELECT FROM unnest(embedding, x) v (a, b) WHERE (abs(a - b) < 0.00001) IS NOT TRUE)) $$;
SELECT u, i, r, a, c.* FROM (VALUES (1), (2), (7), (100), (101), (999)) u (u), (VALUES (3), (35), (500)) i (i), (VALUES (0.1, 1.0), (2.0, 10.0)) o (r, a), check_explain(u, i, r, a) c ORDER BY u, i, r;
SELECT * FROM check_folded('{1,2,7,NULL,7,100,101,999}', 0.1, 2);
SELECT * FROM check_folded('{3}', 0, 1);
-- the matrix comes from the mirror
SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'items'::regclass;
-- largest contributions first, and they add up to the score of the folded-in factor
SELECT bool_and(contribution <= before) AS in_order FROM (SELECT contribution, lag(contribution) OVER () AS before FROM gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, 'w')) e;
SELECT abs(sum(contribution) - (SELECT dot(f.embedding, y.embedding) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}', 'w') f, items y WHERE y.key = 9)) < 1e-6 AS adds_up FROM gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, 'w');
SELECT count(*) FROM (SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9)) e;
-- one user as with all users, to the bit: the session solves few, the engine many
CREATE VIEW same_bits AS SELECT count(*), bool_and(a.embedding = b.embedding) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', NULL, 'w') a LEFT JOIN LATERAL gpuvec_als_fold_in('events', 'u', 'i', 'items', ARRAY[a.key], 'w') b USING (key);
TABLE same_bits;
-- items that have changed: in this transaction, by others, vacuumed or not; other snapshots
BEGIN;
UPDATE items SET embedding = ARRAY[0.5, 2, key / 50.0, -1] WHERE key % 3 = 0;
SELECT * FROM check_folded('{1,2,3}', 0.1, 2);
SELECT * FROM check_explain(1, 3, 0.1, 2);
DELETE FROM items WHERE key = 5;
SELECT * FROM check_folded('{1,2,3}', 0.1, 2);
SAVEPOINT before;
INSERT INTO items VALUES (500, '{1,2,3,4}');
SELECT * FROM check_folded('{1,2,100}', 0.1, 2);
SELECT * FROM check_explain(100, 500, 0.1, 2);
ROLLBACK TO before;
SELECT * FROM check_folded('{1,2,100}', 0.1, 2);
COMMIT;
SELECT * FROM check_folded('{1,2,3}', 0.1, 2);
SELECT * FROM check_folded('{1,2,3}', 0.1, 2);
TABLE same_bits;
VACUUM items;
SELECT * FROM check_folded('{1,2,3}', 0.1, 2);
TABLE same_bits;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM check_folded('{4}', 0.1, 2);
INSERT INTO items VALUES (500, '{4,3,2,1}');
SELECT * FROM check_folded('{4,100}', 0.1, 2);
ROLLBACK;
SELECT * FROM check_folded('{4,100}', 0.1, 2);
-- many chunks of the matrix, and a width that is no multiple of the inner loops'
CREATE TABLE many (key int PRIMARY KEY, embedding float8[]);
INSERT INTO many SELECT i, (SELECT array_agg(sin(i * f)) FROM generate_series(1, 19) f) FROM generate_series(1, 5000) i ORDER BY i % 7, i;
VACUUM many;
SELECT count(*), bool_and(a.embedding = b.embedding) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'many', NULL, 'w') a LEFT JOIN LATERAL gpuvec_als_fold_in('events', 'u', 'i', 'many', ARRAY[a.key], 'w') b USING (key);
SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'many'::regclass;
DROP TABLE many;
-- a mirror of rounded vectors does not do
SET gpuvec.vector_storage = 'float16';
TABLE same_bits;
SELECT * FROM check_explain(1, 3, 0.1, 2);
RESET gpuvec.vector_storage;
-- a table that cannot have a mirror: the same
CREATE VIEW seen_items AS TABLE items;
SELECT count(*), max(abs(a.contribution - b.contribution)) < 1e-9 AS same FROM gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, 'w') a FULL JOIN gpuvec_als_explain('events', 'u', 'i', 'seen_items', 2, 9, 'w') b USING (item_key, weight);
SELECT bool_and(a.embedding = b.embedding) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}', 'w') a FULL JOIN gpuvec_als_fold_in('events', 'u', 'i', 'seen_items', '{2}', 'w') b USING (key);
CREATE TEMP TABLE own_items AS TABLE items;
SELECT bool_and(a.embedding = b.embedding) AS same FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}', 'w') a FULL JOIN gpuvec_als_fold_in('events', 'u', 'i', 'own_items', '{2}', 'w') b USING (key);
CREATE TABLE child_items () INHERITS (items);
SELECT * FROM check_folded('{1,2,3}', 0.1, 2);
INSERT INTO child_items VALUES (500, '{4,3,2,1}');
SELECT * FROM check_folded('{1,100,3}', 0.1, 2);
SELECT * FROM check_explain(1, 500, 0.1, 2);
DROP TABLE child_items, own_items;
DROP VIEW seen_items;
-- policies of items and of events
CREATE ROLE regress_als_listener;
GRANT SELECT ON events, items, pairs TO regress_als_listener;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON items TO regress_als_listener USING (key < 20);
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON events TO regress_als_listener USING (i > 5);
CREATE FUNCTION summary() RETURNS TABLE (rows int8, lowest int8, highest int8, sum numeric, score numeric) LANGUAGE sql AS $$
	SELECT count(*), min(item_key), max(item_key), round(sum(contribution)::numeric, 5), (SELECT round(dot(embedding, '{0,0,1,0}')::numeric, 5) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}', 'w')) FROM gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, 'w') $$;
SET ROLE regress_als_listener;
SELECT rows, lowest, highest FROM summary();
SELECT sum AS listener_sum, score AS listener_score FROM summary() \gset
RESET ROLE;
ALTER TABLE items DISABLE ROW LEVEL SECURITY;
ALTER TABLE events DISABLE ROW LEVEL SECURITY;
BEGIN;
DELETE FROM items WHERE key >= 20;
DELETE FROM events WHERE i <= 5;
SELECT sum = :listener_sum AS same_sum, score = :listener_score AS same_score FROM summary();
ROLLBACK;
DROP POLICY few ON items;
DROP POLICY few ON events;
-- rights
REVOKE SELECT ON items FROM regress_als_listener;
SET ROLE regress_als_listener;
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}');
RESET ROLE;
GRANT SELECT (key, embedding) ON items TO regress_als_listener;
REVOKE SELECT ON events FROM regress_als_listener;
SET ROLE regress_als_listener;
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}');
RESET ROLE;
GRANT SELECT (u, i) ON events TO regress_als_listener;
SET ROLE regress_als_listener;
SELECT count(*) > 0 AS some FROM gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9);
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}');
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, 'w');
RESET ROLE;
-- errors
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', NULL, 9);
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, NULL);
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, alpha => 0);
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, regularization => 'NaN');
SELECT gpuvec_als_explain('events', 'u', 'no', 'items', 2, 9);
SELECT gpuvec_als_explain('events', 'u', 'i', 'events', 2, 9);
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9, 'i', alpha => 1e12);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}', 'i', alpha => 1e12);
INSERT INTO events VALUES (300, 3, 6e11), (300, 3, 7e11), (301, 3, 'NaN'), (302, 8000, 6e11), (302, 8000, 7e11);
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 300, 9, 'w');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{300}', 'w');
SELECT gpuvec_als_explain('events', 'u', 'i', 'items', 301, 9, 'w');
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'items', '{301}', 'w');
-- of an item without a factor it does not matter
SELECT count(*) FROM gpuvec_als_explain('events', 'u', 'i', 'items', 302, 9, 'w');
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{302}', 'w');
DELETE FROM events WHERE u >= 300;
-- factors that cannot be used
CREATE TABLE bad (key bigint, embedding real[]);
SELECT count(*) FROM gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
INSERT INTO bad TABLE items;
VACUUM bad;
SELECT count(*) > 0 AS some FROM gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
INSERT INTO bad VALUES (9, '{1,2,3,4}');
SELECT gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{2}');
UPDATE bad SET key = 90, embedding = '{1,2,3}' WHERE embedding = '{1,2,3,4}';
SELECT gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{2}');
UPDATE bad SET embedding = '{1,2,3,NaN}' WHERE key = 90;
SELECT gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
SELECT gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{2}');
UPDATE bad SET embedding = '{1,2,NULL,4}' WHERE key = 90;
SELECT gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
UPDATE bad SET embedding = NULL WHERE key = 90;
SELECT count(*) > 0 AS some FROM gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
VACUUM bad;
SELECT count(*) > 0 AS some FROM gpuvec_als_explain('events', 'u', 'i', 'bad', 2, 9);
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'bad', '{2}');
-- names that SQL could take for others
CREATE SCHEMA trap;
CREATE FUNCTION trap.never(int, bigint) RETURNS bool LANGUAGE sql AS 'SELECT 1 / 0 = 1';
CREATE OPERATOR trap.= (LEFTARG = int, RIGHTARG = bigint, FUNCTION = trap.never);
SET search_path = trap, public, pg_catalog;
SELECT count(*) > 0 AS some FROM gpuvec_als_explain('events', 'u', 'i', 'items', 2, 9);
SELECT count(*) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{2}');
RESET search_path;
DROP OPERATOR trap.= (int, bigint);
DROP FUNCTION trap.never;
DROP SCHEMA trap;
DROP FUNCTION summary, check_folded, check_explain, explained, matrix, solve;
DROP VIEW same_bits, pairs;
DROP TABLE events, items, bad;
DROP FUNCTION dot;
DROP ROLE regress_als_listener;
