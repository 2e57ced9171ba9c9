-- The statements of doc/recommendations.md.
-- two kinds of listeners, who play two kinds of artists, not all of them
CREATE TABLE plays (user_id int, artist_id int, times int);
INSERT INTO plays
SELECT u, a, 1 + (u * a) % 5 FROM generate_series(1, 200) u, generate_series(1, 40) a WHERE u % 2 = a % 2 AND (u * 13 + a * 7) % 9 < 4;
CREATE INDEX ON plays (user_id);
CREATE TABLE user_factors (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE artist_factors (key bigint PRIMARY KEY, embedding real[]);

SELECT iteration, round(loss::numeric, 3) AS loss
FROM gpuvec_als('plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'times', factors => 2, iterations => 4)
ORDER BY iteration DESC LIMIT 1;

-- for some users, without what they have played: artists of their kind
SELECT user_key, bool_and(user_key % 2 = item_key % 2) AS own_kind, count(*)
FROM gpuvec_recommend('user_factors', 'artist_factors', '{1,2}', 5, 'plays', 'user_id', 'artist_id') GROUP BY 1 ORDER BY 1;
-- for all users, into a table
CREATE TABLE recommendations AS
SELECT * FROM gpuvec_recommend('user_factors', 'artist_factors', k => 5, interactions => 'plays', user_column => 'user_id', item_column => 'artist_id');
SELECT count(*), count(DISTINCT user_key) AS users FROM recommendations;
-- artists that are played by the same users as artist 3
SELECT bool_and(n.key % 2 = 1) AS own_kind
FROM artist_factors a, gpuvec_nearest('artist_factors', 'key', 'embedding', a.embedding, 5, exclude => ARRAY[a.key]) n WHERE a.key = 3;

-- a ranking of given artists, with those that the user knows
SELECT rank, item_key, round(score::numeric, 2) AS score FROM gpuvec_recommend('user_factors', 'artist_factors', '{1}', among => '{1,2,3,4}');
SELECT item_key, round(contribution::numeric, 2) AS contribution, weight
FROM gpuvec_als_explain('plays', 'user_id', 'artist_id', 'artist_factors', 1, 7, 'times') LIMIT 3;
-- items that are near to each other by their users, without a training
CREATE TABLE artist_neighbors AS SELECT * FROM gpuvec_item_neighbors('plays', 'user_id', 'artist_id', 20, 'times', 'bm25');
ALTER TABLE artist_neighbors ADD PRIMARY KEY (item_key, rank);
-- neighbors of artist 3
SELECT count(*), bool_and(neighbor_key % 2 = 1) AS own_kind FROM artist_neighbors WHERE item_key = 3 AND rank <= 5;
-- artists for user 1: near to what they play, the more the more they play it
SELECT count(*), bool_and(artist_id % 2 = 1) AS own_kind FROM (
SELECT n.neighbor_key AS artist_id, sum(p.times * n.score) AS score
FROM plays p JOIN artist_neighbors n ON n.item_key = p.artist_id
WHERE p.user_id = 1 AND NOT EXISTS (SELECT FROM plays known WHERE known.user_id = 1 AND known.artist_id = n.neighbor_key)
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5) best;

-- a table of factors that is kept as rows come
CREATE FUNCTION fold_in_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO user_factors
	SELECT * FROM gpuvec_als_fold_in('plays', 'user_id', 'artist_id', 'artist_factors',
		(SELECT array_agg(DISTINCT user_id::bigint) FROM new_plays), 'times')
	ON CONFLICT (key) DO UPDATE SET embedding = excluded.embedding;
	RETURN NULL;
END $$;
CREATE TRIGGER fold_in AFTER INSERT ON plays REFERENCING NEW TABLE AS new_plays
	FOR EACH STATEMENT EXECUTE FUNCTION fold_in_users();
INSERT INTO plays VALUES (1000, 1, 3), (1000, 5, 1);
SELECT user_key, bool_and(item_key % 2 = 1) AS own_kind
FROM gpuvec_recommend('user_factors', 'artist_factors', '{1000}', 5, 'plays', 'user_id', 'artist_id') GROUP BY 1;
-- items, from the factors of users
INSERT INTO artist_factors
SELECT * FROM gpuvec_als_fold_in('plays', 'artist_id', 'user_id', 'user_factors', '{1,5}', 'times')
ON CONFLICT (key) DO UPDATE SET embedding = excluded.embedding;
-- now and then: train again, from where the factors are
SELECT count(*) FROM gpuvec_als('plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'times', factors => 2, iterations => 2, warm_start => true);

DROP TRIGGER fold_in ON plays;
-- BM25 with k1 = 100 and b = 0.8
CREATE VIEW bm25_plays AS
SELECT user_id, artist_id, times * (100 + 1) / (100 * (1 - 0.8 + 0.8 * length / mean_length) + times) * ln(artists / (1 + user_artists)) AS weight
FROM (SELECT *, sum(times) OVER (PARTITION BY artist_id) AS length, count(*) OVER (PARTITION BY user_id) AS user_artists,
		sum(times) OVER () / artists AS mean_length
	FROM (SELECT user_id, artist_id, sum(times)::float8 AS times, (SELECT count(DISTINCT artist_id)::float8 FROM plays) AS artists
		FROM plays GROUP BY user_id, artist_id) p) w;
-- TF-IDF, each artist's weights of length 1
CREATE VIEW tfidf_plays AS
SELECT user_id, artist_id, weight / sqrt(sum(weight * weight) OVER (PARTITION BY artist_id)) AS weight
FROM (SELECT user_id, artist_id, sqrt(times) * ln(artists / (1 + count(*) OVER (PARTITION BY user_id))) AS weight
	FROM (SELECT user_id, artist_id, sum(times)::float8 AS times, (SELECT count(DISTINCT artist_id)::float8 FROM plays) AS artists
		FROM plays GROUP BY user_id, artist_id) p) w;

SELECT count(*) FROM gpuvec_als('bm25_plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'weight', factors => 2, iterations => 4);
-- four fifths for training
CREATE VIEW training_plays AS SELECT * FROM plays WHERE gpuvec_draw(user_id, artist_id, 7) < 0.8;
CREATE VIEW test_plays AS SELECT * FROM plays WHERE gpuvec_draw(user_id, artist_id, 7) >= 0.8;
-- or: two artists of each user who has more
CREATE VIEW held_out AS
SELECT user_id, artist_id FROM (SELECT user_id, artist_id, count(*) OVER (PARTITION BY user_id) AS artists,
		row_number() OVER (PARTITION BY user_id ORDER BY gpuvec_draw(user_id, artist_id, 7), artist_id) AS n
	FROM (SELECT DISTINCT user_id, artist_id FROM plays) p) r WHERE n <= 2 AND artists > 2;

-- train, and recommend ten artists to those who have test plays
SELECT count(*) FROM gpuvec_als('training_plays', 'user_id', 'artist_id', 'user_factors', 'artist_factors', 'times', factors => 4);
CREATE TABLE recommended AS
SELECT user_key, rank, item_key FROM gpuvec_recommend('user_factors', 'artist_factors',
	(SELECT array_agg(DISTINCT user_id::bigint) FROM test_plays), 10, 'training_plays', 'user_id', 'artist_id');

-- precision, MAP, NDCG and AUC at 10
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
SELECT round(sum(hits) / sum(wanted), 2) AS precision, round(avg(precisions / wanted)::numeric, 2) AS map, round(avg(gain / best_gain)::numeric, 2) AS ndcg,
	round(avg((in_order + (hits + likes) / 2.0 * (others - misses)) / (likes * others)), 2) AS auc
FROM users;

DROP VIEW bm25_plays, tfidf_plays, training_plays, test_plays, held_out;
DROP TABLE plays, user_factors, artist_factors, recommendations, recommended, artist_neighbors;
DROP FUNCTION fold_in_users();
