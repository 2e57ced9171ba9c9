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

DROP TABLE plays, user_factors, artist_factors, recommendations;
DROP FUNCTION fold_in_users();
