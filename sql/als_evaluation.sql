-- How good recommendations are: splits, and precision, MAP, NDCG and AUC at 10; weights by BM25 and TF-IDF.  The recipes of
-- doc/recommendations.md against loops that follow the definitions word by word.
\set SHOW_CONTEXT never
CREATE TABLE plays (user_id int, artist_id int, times int);
INSERT INTO plays SELECT u, a, 1 + (u * a) % 5 FROM generate_series(1, 200) u, generate_series(1, 40) a WHERE u % 2 = a % 2 AND (u * 13 + a * 7) % 9 < 4;
INSERT INTO plays SELECT user_id, artist_id, 2 FROM plays WHERE user_id % 7 = 0;
CREATE TABLE user_factors (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE artist_factors (key bigint PRIMARY KEY, embedding real[]);
-- numbers that are drawn: always the same, even, and independent of each other
SELECT gpuvec_draw(1, 2), gpuvec_draw(1, 2, 0), gpuvec_draw(2, 1), gpuvec_draw(1, 2, 1), gpuvec_draw(-9223372036854775808, 9223372036854775807, -1), gpuvec_draw(1, NULL), gpuvec_draw(1, 2, NULL);
SELECT bool_and(n BETWEEN 9600 AND 10400) AS even FROM (SELECT count(*) AS n FROM generate_series(1, 1000) u, generate_series(1, 100) i GROUP BY width_bucket(gpuvec_draw(u, i), 0, 1, 10)) d;
SELECT bool_and(abs(r) < 0.02) AS independent FROM (SELECT unnest(ARRAY[corr(gpuvec_draw(u, i), gpuvec_draw(u, i + 1)), corr(gpuvec_draw(u, i), gpuvec_draw(u + 1, i)), corr(gpuvec_draw(u, i), gpuvec_draw(u, i, 1)), corr(gpuvec_draw(u, i), gpuvec_draw(i, u))]) AS r FROM generate_series(1, 300) u, generate_series(301, 500) i) c;
SELECT count(*), count(DISTINCT gpuvec_draw(u, i)) FROM generate_series(1, 300) u, generate_series(1, 300) i;
-- four fifths for training
CREATE VIEW training_plays AS SELECT * FROM plays WHERE gpuvec_draw(user_id, artist_id, 7) < 0.8;
CREATE VIEW test_plays AS SELECT * FROM plays WHERE gpuvec_draw(user_id, artist_id, 7) >= 0.8;
SELECT abs(count(*) - 0.8 * (SELECT count(*) FROM plays)) < 0.05 * (SELECT count(*) FROM plays) AS four_fifths, count(*) + (SELECT count(*) FROM test_plays) - (SELECT count(*) FROM plays) AS lost,
	(SELECT count(*) FROM training_plays JOIN test_plays USING (user_id, artist_id)) AS both FROM training_plays;
-- two artists of each user who has more
CREATE VIEW held_out AS
SELECT user_id, artist_id FROM (SELECT user_id, artist_id, count(*) OVER (PARTITION BY user_id) AS artists,
		row_number() OVER (PARTITION BY user_id ORDER BY gpuvec_draw(user_id, artist_id, 7), artist_id) AS n
	FROM (SELECT DISTINCT user_id, artist_id FROM plays) p) r WHERE n <= 2 AND artists > 2;
SELECT min(n), max(n), count(*) FROM (SELECT count(*) AS n FROM held_out GROUP BY user_id) h;
-- train, and recommend ten artists to those who have test plays
SELECT count(*) FROM gpuvec_als('training_plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'times', factors => 4);
CREATE TABLE recommended AS
SELECT user_key, rank, item_key FROM gpuvec_recommend('user_factors', 'artist_factors',
	(SELECT array_agg(DISTINCT user_id::bigint) FROM test_plays), 10, 'training_plays', 'user_id', 'artist_id');
CREATE VIEW measured AS
WITH likes AS (
	SELECT user_id AS user_key, artist_id AS item_key, count(*) OVER (PARTITION BY user_id) AS likes
	FROM (SELECT DISTINCT user_id, artist_id FROM test_plays) t),
ranked AS (
	SELECT user_key, rank, l.likes IS NOT NULL AS hit, count(l.likes) OVER (PARTITION BY user_key ORDER BY rank) AS hits
	FROM recommended LEFT JOIN likes l USING (user_key, item_key)),
users AS (
	SELECT likes, least(likes, 10) AS wanted, count(*) FILTER (WHERE hit) AS hits, count(*) FILTER (WHERE NOT hit) AS misses,
		coalesce(sum(hits::float8 / rank) FILTER (WHERE hit), 0) AS precisions, coalesce(sum(1 / ln(rank + 1)) FILTER (WHERE hit), 0) AS gain,
		(SELECT sum(1 / ln(n + 1)) FROM generate_series(1, least(likes, 10)) n) AS best_gain,
		coalesce(sum(hits) FILTER (WHERE NOT hit), 0) AS in_order, (SELECT count(*) FROM artist_factors) - likes AS others
	FROM (SELECT DISTINCT user_key, likes FROM likes) u JOIN ranked USING (user_key) GROUP BY user_key, likes)
SELECT sum(hits) / sum(wanted) AS precision, avg(precisions / wanted) AS map, avg(gain / best_gain) AS ndcg,
	avg((in_order + (hits + likes) / 2.0 * (others - misses)) / (likes * others)) AS auc
FROM users;
-- the same, by a loop over users and ranks
CREATE FUNCTION by_loop(k int) RETURNS TABLE (prec float8, map float8, ndcg float8, auc float8) LANGUAGE plpgsql AS $$
DECLARE
	likes bigint[]; items bigint := (SELECT count(*) FROM artist_factors); u bigint; item bigint;
	relevant float8 := 0; wanted float8 := 0; total int := 0; hit int; miss int; ap float8; a float8; ideal float8; place int;
BEGIN
	map := 0; ndcg := 0; auc := 0;
	FOR u IN SELECT DISTINCT user_key FROM recommended WHERE user_key IN (SELECT user_id FROM test_plays) LOOP
		likes := ARRAY(SELECT DISTINCT artist_id::bigint FROM test_plays WHERE user_id = u);
		wanted := wanted + least(k, cardinality(likes));
		ideal := 0; hit := 0; miss := 0; ap := 0; a := 0; place := 0;
		FOR i IN 1 .. least(k, cardinality(likes)) LOOP ideal := ideal + 1 / log(2, i + 1); END LOOP;
		FOR item IN SELECT item_key FROM recommended r WHERE user_key = u ORDER BY r.rank LOOP
			place := place + 1;
			IF item = ANY (likes) THEN
				relevant := relevant + 1;
				hit := hit + 1;
				ap := ap + hit::float8 / place;
				ndcg := ndcg + 1 / log(2, place + 1) / ideal;
			ELSE
				miss := miss + 1;
				a := a + hit;
			END IF;
		END LOOP;
		a := a + (hit + cardinality(likes)) / 2.0 * (items - cardinality(likes) - miss);
		auc := auc + a / (cardinality(likes) * (items - cardinality(likes)));
		map := map + ap / least(k, cardinality(likes));
		total := total + 1;
	END LOOP;
	prec := relevant / wanted; map := map / total; ndcg := ndcg / total; auc := auc / total;
	RETURN NEXT;
END $$;
SELECT abs(m.precision - l.prec) < 1e-12 AS precision, abs(m.map - l.map) < 1e-12 AS map, abs(m.ndcg - l.ndcg) < 1e-12 AS ndcg, abs(m.auc - l.auc) < 1e-12 AS auc,
	m.precision > 0.5 AND m.map > 0.3 AND m.ndcg > 0.4 AND m.auc > 0.8 AND l.prec < 1 AS plausible FROM measured m, by_loop(10) l;
-- others than those that were recommended: no better than chance
UPDATE recommended SET item_key = (item_key * 7 + user_key) % 40 + 1;
SELECT abs(m.precision - l.prec) < 1e-12 AS precision, abs(m.map - l.map) < 1e-12 AS map, abs(m.ndcg - l.ndcg) < 1e-12 AS ndcg, abs(m.auc - l.auc) < 1e-12 AS auc, m.auc BETWEEN 0.3 AND 0.7 AS chance FROM measured m, by_loop(10) l;
-- what is wanted and nothing else: all are 1
TRUNCATE recommended;
INSERT INTO recommended SELECT user_id, row_number() OVER (PARTITION BY user_id ORDER BY artist_id), artist_id FROM (SELECT DISTINCT user_id, artist_id FROM test_plays) t;
SELECT round(precision, 9) AS precision, round(map::numeric, 9) AS map, round(ndcg::numeric, 9) AS ndcg, round(auc, 9) AS auc FROM measured;
-- weights
CREATE VIEW bm25_plays AS
SELECT user_id, artist_id, times * (100 + 1) / (100 * (1 - 0.8 + 0.8 * length / mean_length) + times) * ln(artists / (1 + user_artists)) AS weight
FROM (SELECT *, sum(times) OVER (PARTITION BY artist_id) AS length, count(*) OVER (PARTITION BY user_id) AS user_artists,
		sum(times) OVER () / artists AS mean_length
	FROM (SELECT user_id, artist_id, sum(times)::float8 AS times, (SELECT count(DISTINCT artist_id)::float8 FROM plays) AS artists
		FROM plays GROUP BY user_id, artist_id) p) w;
CREATE VIEW tfidf_plays AS
SELECT user_id, artist_id, weight / sqrt(sum(weight * weight) OVER (PARTITION BY artist_id)) AS weight
FROM (SELECT user_id, artist_id, sqrt(times) * ln(artists / (1 + count(*) OVER (PARTITION BY user_id))) AS weight
	FROM (SELECT user_id, artist_id, sum(times)::float8 AS times, (SELECT count(DISTINCT artist_id)::float8 FROM plays) AS artists
		FROM plays GROUP BY user_id, artist_id) p) w;
-- the same one by one: matrices have a row for each artist and a column for each user
CREATE FUNCTION weights_by_loop(bm25 bool) RETURNS TABLE (user_id int, artist_id int, weight float8) LANGUAGE plpgsql AS $$
DECLARE
	n float8 := (SELECT count(*) FROM (SELECT DISTINCT p.artist_id FROM plays p) d);
	mean float8 := (SELECT avg(s) FROM (SELECT sum(times) AS s FROM plays p GROUP BY p.artist_id) d);
	pair record; idf float8; row_sum float8;
BEGIN
	FOR pair IN SELECT p.user_id, p.artist_id, sum(times)::float8 AS x FROM plays p GROUP BY 1, 2 LOOP
		idf := ln(n) - ln(1 + (SELECT count(DISTINCT p.artist_id) FROM plays p WHERE p.user_id = pair.user_id));
		row_sum := (SELECT sum(times) FROM plays p WHERE p.artist_id = pair.artist_id);
		user_id := pair.user_id; artist_id := pair.artist_id;
		weight := CASE WHEN bm25 THEN pair.x * (100 + 1.0) / (100 * ((1.0 - 0.8) + 0.8 * row_sum / mean) + pair.x) * idf ELSE sqrt(pair.x) * idf END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT count(*), bool_and((abs(a.weight - b.weight) < 1e-12) IS TRUE) AS same FROM bm25_plays a FULL JOIN weights_by_loop(true) b USING (user_id, artist_id);
SELECT count(*), bool_and((abs(a.weight - b.weight / length) < 1e-12) IS TRUE) AS same FROM tfidf_plays a FULL JOIN
	(SELECT *, sqrt(sum(weight ^ 2) OVER (PARTITION BY artist_id)) AS length FROM weights_by_loop(false)) b USING (user_id, artist_id);
-- both can be trained on
SELECT count(*) FROM gpuvec_als('bm25_plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'weight', factors => 4, iterations => 2);
SELECT count(*) FROM gpuvec_als('tfidf_plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'weight', factors => 4, iterations => 2);
DROP VIEW measured, held_out, training_plays, test_plays, bm25_plays, tfidf_plays;
DROP FUNCTION by_loop, weights_by_loop;
DROP TABLE plays, user_factors, artist_factors, recommended;
