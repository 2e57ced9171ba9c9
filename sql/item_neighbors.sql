-- The nearest items of each item by their users (gpuvec_item_neighbors), against the definition in plain SQL.
\set SHOW_CONTEXT never
CREATE TABLE events (u int, i bigint, w real);
INSERT INTO events SELECT u, i, abs(u * i + u) % 7 + 0.5 FROM generate_series(1, 30) u, generate_series(-9, 50) i WHERE abs(u * u * 31 + i * i * 7 + u * i) % 11 < 3;
INSERT INTO events SELECT u, i, 2 FROM events WHERE (u + i) % 4 = 0;	-- pairs that come twice
INSERT INTO events SELECT u, i, -w FROM events WHERE u = 3 AND i = 1;	-- nothing remains of it
INSERT INTO events VALUES (1, 100, 0), (100, 1, 0), (101, 1, NULL), (NULL, 1, 1), (1, NULL, 1), (NULL, NULL, NULL);	-- left out
INSERT INTO events VALUES (102, 102, 1.5), (102, 102, -1.5);	-- nothing remains
INSERT INTO events VALUES (103, 103, 1);	-- an item without neighbors
INSERT INTO events VALUES (30, 9223372036854775807, 3), (30, -9223372036854775808, 1), (29, -9223372036854775808, 0.25);
-- all scores, from the rows (user, item, weight) of a query
CREATE FUNCTION plain(weighting text, k1 float8, b float8, source text) RETURNS TABLE (item_key int8, neighbor_key int8, score float8) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
	WITH pair AS MATERIALIZED (SELECT u::int8, i::int8, sum(w::float8)::real::float8 AS x FROM (%s) e (u, i, w) WHERE u IS NOT NULL AND i IS NOT NULL AND w IS NOT NULL GROUP BY u, i HAVING sum(w) <> 0),
	idf AS MATERIALIZED (SELECT u, ln((SELECT count(DISTINCT i) FROM pair)::float8 / (1 + count(*))) AS idf FROM pair GROUP BY u),
	length AS MATERIALIZED (SELECT i, 1 - $3 + $3 * sum(x) / avg(sum(x)) OVER () AS length FROM pair GROUP BY i),
	weighted AS MATERIALIZED (SELECT u, i, CASE $1 WHEN 'tfidf' THEN sqrt(greatest(x, 0)) * idf WHEN 'bm25' THEN x * ($2 + 1) / ($2 * length + x) * idf ELSE x END AS w
		FROM pair JOIN idf USING (u) JOIN length USING (i)),
	square AS MATERIALIZED (SELECT i, sum(w * w ORDER BY u) AS s FROM weighted GROUP BY i),
	product AS MATERIALIZED (SELECT a.i AS i, b.i AS j, sum(a.w * b.w ORDER BY a.u) AS s FROM weighted a JOIN weighted b USING (u) WHERE a.i <> b.i GROUP BY 1, 2)
	SELECT p.i, p.j, CASE WHEN $1 IN ('cosine', 'tfidf') THEN CASE WHEN p.s > 0 THEN sqrt(p.s * p.s / (a.s * b.s)) END ELSE p.s END
	FROM product p JOIN square a ON a.i = p.i JOIN square b ON b.i = p.j WHERE p.s > 0 $q$, source) USING weighting, k1, b;
END $$;
-- compare with it; scores may differ in their last bits, since logarithms do
CREATE FUNCTION check_neighbors(k int, weighting text, k1 float8 DEFAULT 100, b float8 DEFAULT 0.8, relation regclass DEFAULT 'events', weight name DEFAULT 'w')
	RETURNS TABLE (rows int8, wrong_scores int8, wrong_ranks int8, missing int8) LANGUAGE sql AS $$
	WITH answer AS MATERIALIZED (SELECT * FROM gpuvec_item_neighbors(relation, 'u', 'i', k, weight, weighting, k1, b)),
	truth AS MATERIALIZED (SELECT * FROM plain(weighting, k1, b, format('SELECT u, i, %s FROM %s', coalesce(weight, '1'), relation))),
	ranked AS (SELECT *, row_number() OVER (PARTITION BY item_key ORDER BY score DESC, neighbor_key) AS place FROM answer),
	least_score AS (SELECT item_key, CASE WHEN count(*) = k THEN min(score) ELSE 0 END AS score FROM answer GROUP BY 1)
	SELECT (SELECT count(*) FROM answer),
		(SELECT count(*) FROM answer a LEFT JOIN truth t USING (item_key, neighbor_key) WHERE t.score IS NULL OR abs(a.score - t.score) > 1e-12 * t.score),
		(SELECT count(*) FROM ranked WHERE place <> rank),
		(SELECT count(*) FROM truth t LEFT JOIN answer a USING (item_key, neighbor_key) LEFT JOIN least_score l ON l.item_key = t.item_key
			WHERE a.item_key IS NULL AND (l.item_key IS NULL OR t.score > l.score * (1 + 1e-12)))
$$;
SELECT * FROM check_neighbors(20, 'cosine');
SELECT * FROM check_neighbors(20, 'tfidf');
SELECT * FROM check_neighbors(20, 'bm25');
SELECT * FROM check_neighbors(20, 'none');
SELECT * FROM check_neighbors(1, 'cosine');
SELECT * FROM check_neighbors(3, 'bm25', 1.2, 0.75);
SELECT * FROM check_neighbors(3, 'bm25', 0, 1);
SELECT * FROM check_neighbors(3, 'bm25', 5, 0);
-- k beyond the matches: all pairs that have a user in common
SELECT * FROM check_neighbors(100000, 'tfidf');
SELECT count(*) AS all_pairs FROM plain('tfidf', 100, 0.8, 'SELECT u, i, w FROM events');
-- without weights each row counts as 1
SELECT * FROM check_neighbors(7, 'cosine', weight => NULL);
SELECT * FROM check_neighbors(7, 'tfidf', weight => NULL);
-- what is left unsaid: cosine, 20, no weights
SELECT (SELECT count(*) FROM gpuvec_item_neighbors('events', 'u', 'i')) AS rows, count(*) AS differ FROM
	(SELECT * FROM gpuvec_item_neighbors('events', 'u', 'i') EXCEPT SELECT * FROM gpuvec_item_neighbors('events', 'u', 'i', 20, NULL, 'cosine')) d;
-- both ways the same bits
SELECT count(*) > 1000 AS many, count(*) FILTER (WHERE a.score IS DISTINCT FROM b.score) AS differ
FROM gpuvec_item_neighbors('events', 'u', 'i', 100, 'w', 'bm25') a LEFT JOIN gpuvec_item_neighbors('events', 'u', 'i', 100, 'w', 'bm25') b ON a.item_key = b.neighbor_key AND a.neighbor_key = b.item_key;
-- the least and the largest key: they share one user
SELECT rank, neighbor_key, score FROM gpuvec_item_neighbors('events', 'u', 'i', 100, 'w', 'none') WHERE item_key = 9223372036854775807 AND neighbor_key = -9223372036854775808;
SELECT count(*) FROM gpuvec_item_neighbors('events', 'u', 'i', 100, 'w') WHERE 103 IN (item_key, neighbor_key) OR 102 IN (item_key, neighbor_key) OR 100 IN (item_key, neighbor_key) OR item_key = neighbor_key;
-- ties: the smaller keys come first
CREATE TABLE ties (u int, i int);
INSERT INTO ties SELECT u, i FROM generate_series(1, 3) u, generate_series(1, 30) i WHERE i % 3 <= u;
SELECT item_key, string_agg(rank || ':' || neighbor_key || '=' || round(score::numeric, 3), ' ' ORDER BY rank) AS neighbors FROM gpuvec_item_neighbors('ties', 'u', 'i', 12) WHERE item_key IN (1, 2, 3) GROUP BY 1 ORDER BY 1;
SELECT count(DISTINCT score) AS scores FROM gpuvec_item_neighbors('ties', 'u', 'i', 30);
-- as many products as a GPU computes if there is one: the neighbors of three items, to the bit
CREATE TABLE many (u int, i int);
INSERT INTO many SELECT u, i FROM generate_series(1, 700) u, generate_series(1, 800) i WHERE (u * 7919 + i * 4729 + u * i * 31 + (u / 9) * i) % 1000 < 210;
SELECT sum(n * n) > 1.2 * 2 ^ 24 AS many FROM (SELECT count(*) AS n FROM many GROUP BY u) u;
CREATE TABLE many_near AS SELECT * FROM gpuvec_item_neighbors('many', 'u', 'i', 10);
WITH size AS (SELECT i, count(*)::float8 AS n FROM many GROUP BY i),
common AS (SELECT a.i, b.i AS other, count(*)::float8 AS n FROM many a JOIN many b USING (u) WHERE a.i IN (1, 400, 800) AND b.i <> a.i GROUP BY 1, 2),
scored AS (SELECT c.i, c.other, sqrt(c.n * c.n / (a.n * b.n)) AS score FROM common c JOIN size a ON a.i = c.i JOIN size b ON b.i = c.other),
truth AS (SELECT i::int8, (row_number() OVER (PARTITION BY i ORDER BY score DESC, other))::int AS rank, other::int8, score FROM scored)
SELECT (SELECT count(*) FROM many_near) AS rows, (SELECT count(*) FROM truth WHERE rank <= 10) AS compared,
	(SELECT count(*) FROM (SELECT * FROM truth WHERE rank <= 10 EXCEPT TABLE many_near) d) AS differ;
-- negative weights: two users who dislike both make them alike; what is not greater than zero is no neighbor
CREATE TABLE dislikes (u int, i int, w numeric);
INSERT INTO dislikes VALUES (1, 1, 2), (1, 2, -1), (1, 3, 1), (2, 1, -1), (2, 2, -3), (2, 3, 2), (3, 4, 1), (3, 4, -2), (3, 3, 2);
SELECT item_key, rank, neighbor_key, score FROM gpuvec_item_neighbors('dislikes', 'u', 'i', 5, 'w', 'none') ORDER BY 1, 2;
SELECT * FROM check_neighbors(5, 'cosine', relation => 'dislikes');
SELECT gpuvec_item_neighbors('dislikes', 'u', 'i', 5, 'w', 'tfidf');
SELECT gpuvec_item_neighbors('dislikes', 'u', 'i', 5, 'w', 'bm25');
-- other kinds of relations, types and names
CREATE VIEW events_view AS SELECT u::bigint, i::smallint, (w * 2)::float8 AS w FROM events WHERE i BETWEEN 1 AND 50 AND u < 30;
SELECT * FROM check_neighbors(10, 'bm25', relation => 'events_view');
CREATE TABLE parts (i bigint, u smallint, w numeric) PARTITION BY LIST (u);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES IN (1, 3, 5, 7, 9);
CREATE TABLE parts2 PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT i, u, w FROM events ORDER BY (u * 31 + i % 17) % 101;
SELECT count(*) AS rows, count(*) FILTER (WHERE a <> b) AS differ FROM gpuvec_item_neighbors('events', 'u', 'i', 9, 'w', 'tfidf') a FULL JOIN gpuvec_item_neighbors('parts', 'u', 'i', 9, 'w', 'tfidf') b USING (item_key, rank);
CREATE TABLE "Odd ""Names" ("a User" int, "an ""Item" int, "a Weight" int);
INSERT INTO "Odd ""Names" VALUES (1, 1, 1), (1, 2, 3);
SELECT * FROM gpuvec_item_neighbors('"Odd ""Names"', 'a User', 'an "Item', 3, 'a Weight', 'none');
-- users and items exchanged: the nearest users
SELECT count(*) > 100 AS many, bool_and(item_key BETWEEN 1 AND 30 AND score <= 1) AS users FROM gpuvec_item_neighbors('events', 'i', 'u', 5, 'w') WHERE item_key < 100;
-- where functions can stand; LIMIT, cursors, prepared statements
SELECT (gpuvec_item_neighbors('"Odd ""Names"', 'a User', 'an "Item')).neighbor_key;
SELECT n.* FROM (VALUES ('cosine'), ('none')) v (weighting), gpuvec_item_neighbors('"Odd ""Names"', 'a User', 'an "Item', 3, 'a Weight', v.weighting) n ORDER BY score DESC, item_key;
SELECT count(*) FROM (SELECT * FROM gpuvec_item_neighbors('events', 'u', 'i', 3, 'w') LIMIT 4) l;
PREPARE near(int8, text) AS SELECT count(*) FROM gpuvec_item_neighbors('events', 'u', 'i', $1, 'w', $2);
EXECUTE near(2, 'bm25');
EXECUTE near(1, 'cosine');
BEGIN;
DECLARE c CURSOR FOR SELECT rank, neighbor_key FROM gpuvec_item_neighbors('dislikes', 'u', 'i', 5, 'w', 'none') ORDER BY item_key, rank;
FETCH 1 FROM c;
SELECT count(*) FROM gpuvec_item_neighbors('ties', 'u', 'i', 1);
-- a cursor has the rows of its snapshot, another statement those that have come
DELETE FROM dislikes;
FETCH 1 FROM c;
SELECT count(*) FROM gpuvec_item_neighbors('dislikes', 'u', 'i', 5, 'w', 'none');
ROLLBACK;
SELECT count(*) FROM gpuvec_item_neighbors('dislikes', 'u', 'i', 5, 'w', 'none');
-- a table that neighbors are kept in, and recommending from it: the sum over a user's items, without those that the user has
CREATE TABLE near_items AS SELECT * FROM gpuvec_item_neighbors('events', 'u', 'i', 10, 'w', 'bm25');
CREATE FUNCTION recommend(who int, most int) RETURNS TABLE (item_key int8, score float8) LANGUAGE sql AS $$
	SELECT n.neighbor_key, sum(e.w * n.score) AS score FROM events e JOIN near_items n ON n.item_key = e.i
	WHERE e.u = who AND NOT EXISTS (SELECT FROM events k WHERE k.u = who AND k.i = n.neighbor_key)
	GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT most $$;
WITH truth AS (SELECT row_number() OVER (ORDER BY sum(e.w * p.score) DESC, p.neighbor_key) AS rank, p.neighbor_key AS item_key, sum(e.w * p.score) AS score
	FROM events e, LATERAL (SELECT * FROM plain('bm25', 100, 0.8, 'SELECT u, i, w FROM events') t WHERE t.item_key = e.i ORDER BY t.score DESC, t.neighbor_key LIMIT 10) p
	WHERE e.u = 7 AND p.neighbor_key NOT IN (SELECT i FROM events WHERE u = 7) GROUP BY 2),
answer AS (SELECT row_number() OVER () AS rank, * FROM recommend(7, 5))
SELECT count(*), count(*) FILTER (WHERE abs(a.score - t.score) <= 1e-9 * t.score) AS right FROM answer a JOIN truth t USING (rank, item_key);
-- few of anything
CREATE TABLE none (u int, i int, w float8);
SELECT count(*) FROM gpuvec_item_neighbors('none', 'u', 'i');
INSERT INTO none VALUES (1, 1, 1);
SELECT count(*) FROM gpuvec_item_neighbors('none', 'u', 'i', weighting => 'bm25');
INSERT INTO none VALUES (1, 2, 1);
SELECT * FROM gpuvec_item_neighbors('none', 'u', 'i', 100000);
-- a user who has all items but one weighs nothing
SELECT count(*) FROM gpuvec_item_neighbors('none', 'u', 'i', weighting => 'tfidf');
INSERT INTO none VALUES (2, 3, 1);
SELECT * FROM gpuvec_item_neighbors('none', 'u', 'i', weighting => 'tfidf');
SELECT count(*) FROM gpuvec_training;
-- arguments
SELECT gpuvec_item_neighbors(NULL, 'u', 'i');
SELECT gpuvec_item_neighbors('events', NULL, 'i');
SELECT gpuvec_item_neighbors('events', 'u', NULL);
SELECT gpuvec_item_neighbors('events', 'u', 'i', NULL);
SELECT gpuvec_item_neighbors('events', 'u', 'i', weighting => NULL);
SELECT gpuvec_item_neighbors('events', 'u', 'i', bm25_k1 => NULL);
SELECT gpuvec_item_neighbors('events', 'u', 'i', 0);
SELECT gpuvec_item_neighbors('events', 'u', 'i', 100001);
SELECT gpuvec_item_neighbors('events', 'u', 'i', -9223372036854775808);
SELECT gpuvec_item_neighbors('events', 'u', 'i', weighting => 'Cosine');
SELECT gpuvec_item_neighbors('events', 'u', 'i', bm25_k1 => -1);
SELECT gpuvec_item_neighbors('events', 'u', 'i', bm25_k1 => 'Infinity');
SELECT gpuvec_item_neighbors('events', 'u', 'i', bm25_b => 1.1);
SELECT gpuvec_item_neighbors('events', 'u', 'i', bm25_b => 'NaN');
-- relations, columns and weights
SELECT gpuvec_item_neighbors(0, 'u', 'i');
SELECT gpuvec_item_neighbors('events', 'no', 'i');
SELECT gpuvec_item_neighbors('events', 'u', 'w');
SELECT gpuvec_item_neighbors('events', 'u', 'i', 5, 'no');
INSERT INTO none VALUES (5, -7, 'NaN');
SELECT gpuvec_item_neighbors('none', 'u', 'i', 5, 'w');
UPDATE none SET w = 2e12 WHERE i = -7;
SELECT gpuvec_item_neighbors('none', 'u', 'i', 5, 'w');
UPDATE none SET w = 6e11 WHERE i = -7;
INSERT INTO none VALUES (5, -7, 6e11);
SELECT gpuvec_item_neighbors('none', 'u', 'i', 5, 'w');
-- the largest and the smallest weights
UPDATE none SET w = 5e11 WHERE i = -7;
INSERT INTO none VALUES (5, -8, 1e12), (6, -9, 1e-40), (6, -10, 1e-45);
SELECT item_key, neighbor_key, score FROM gpuvec_item_neighbors('none', 'u', 'i', 5, 'w') WHERE item_key < -6;
-- one at a time: another one, or a training, while rows are read
CREATE FUNCTION nested() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM gpuvec_item_neighbors('events', 'u', 'i'); RETURN true; END $$;
CREATE VIEW nested_view AS SELECT u, i FROM events WHERE CASE WHEN u = 9 THEN nested() ELSE true END;
SELECT gpuvec_item_neighbors('nested_view', 'u', 'i');
SELECT gpuvec_als_rows(0);
SELECT count(*) > 0 AS after_errors FROM gpuvec_item_neighbors('events', 'u', 'i');
-- rights and policies
CREATE ROLE regress_neighbors;
SET ROLE regress_neighbors;
SELECT gpuvec_item_neighbors('events', 'u', 'i');
RESET ROLE;
GRANT SELECT (u, i) ON events TO regress_neighbors;
SET ROLE regress_neighbors;
SELECT count(*) > 700 AS readable FROM gpuvec_item_neighbors('events', 'u', 'i');
SELECT gpuvec_item_neighbors('events', 'u', 'i', 5, 'w');
RESET ROLE;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON events USING (i BETWEEN 2 AND 4);
SET ROLE regress_neighbors;
SELECT min(item_key), max(item_key), min(neighbor_key), max(neighbor_key), count(*) FROM gpuvec_item_neighbors('events', 'u', 'i');
RESET ROLE;
SELECT max(item_key) FROM gpuvec_item_neighbors('events', 'u', 'i');
DROP FUNCTION check_neighbors, plain, recommend;
DROP VIEW events_view, nested_view;
DROP FUNCTION nested;
DROP TABLE events, ties, many, many_near, dislikes, parts, "Odd ""Names", near_items, none;
DROP ROLE regress_neighbors;
