-- Recipes: the best songs of listeners and similar songs by searches, and factors kept current.  How good they are: als_evaluation.sql.
\set SHOW_CONTEXT never
CREATE TABLE plays (listener bigint, song bigint, times int);
-- listeners and songs of three kinds; each listener knows four of the eight songs of their kind
INSERT INTO plays SELECT l, l % 3 * 100 + (l / 3 + n * 3) % 8, 1 + (l + n) % 3 FROM generate_series(1, 60) l, generate_series(0, 3) n;
CREATE TABLE listener_factors (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE song_factors (key bigint PRIMARY KEY, embedding real[]);
-- train
SELECT max(iteration), bool_and(loss BETWEEN 0 AND 1) FROM gpuvec_als('plays', 'listener', 'song', 'listener_factors', 'song_factors', weight_column => 'times', factors => 3, regularization => 0.1, alpha => 10);
-- recommend to one listener
SELECT n.rank, n.key / 100 AS kind
FROM listener_factors l, gpuvec_nearest('song_factors', 'key', 'embedding', l.embedding, 4, 'ip',
	exclude => (SELECT array_agg(song) FROM plays WHERE listener = l.key)) n
WHERE l.key = 31 ORDER BY n.rank;
-- recommend to many listeners: those songs of their kind that they do not know come first, as a ranking in SQL has it
CREATE TABLE recommended AS
SELECT b.listeners[n.query] AS listener, n.rank, n.key AS song, n.score
FROM (SELECT array_agg(key ORDER BY key) AS listeners, array_agg(embedding::float8[] ORDER BY key) AS queries,
		gpuvec_bags_agg(known ORDER BY key) AS known
	FROM listener_factors, LATERAL (SELECT array_agg(DISTINCT song) AS known FROM plays WHERE listener = key) p
	WHERE key <= 40) b,
	gpuvec_nearest_batch('song_factors', 'key', 'embedding', b.queries, 4, 'ip', (b.known).keys, (b.known).offsets) n;
SELECT count(*), count(*) FILTER (WHERE song / 100 = listener % 3) AS of_the_kind FROM recommended;
WITH ranked AS (
	SELECT l.key AS listener, s.key AS song, row_number() OVER (PARTITION BY l.key ORDER BY (SELECT sum(x::float8 * y::float8) FROM unnest(l.embedding, s.embedding) e (x, y)) DESC, s.key) AS rank
	FROM listener_factors l, song_factors s WHERE l.key <= 40 AND NOT EXISTS (SELECT FROM plays p WHERE (p.listener, p.song) = (l.key, s.key)))
SELECT count(*) AS differ FROM recommended r JOIN ranked USING (listener, rank) WHERE ranked.song <> r.song;
-- similar songs
SELECT n.rank, n.key = 104 AS itself, n.key / 100 AS kind
FROM song_factors s, gpuvec_nearest('song_factors', 'key', 'embedding', s.embedding, 3) n WHERE s.key = 104 ORDER BY n.rank;
SELECT query_key, bool_and(key <> query_key) AS others, count(*) FILTER (WHERE key / 100 = query_key / 100) AS of_the_kind FROM gpuvec_nearest_keys('song_factors', 'key', 'embedding', '{104,201}', 3) GROUP BY 1 ORDER BY 1;
-- keep factors current: by a statement for those who have played something
CREATE TABLE played (listener bigint);
CREATE FUNCTION note_played() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO played SELECT DISTINCT listener FROM new_plays;
	RETURN NULL;
END $$;
CREATE TRIGGER note_played AFTER INSERT ON plays REFERENCING NEW TABLE AS new_plays
	FOR EACH STATEMENT EXECUTE FUNCTION note_played();
INSERT INTO plays VALUES (1000, 201, 2), (1000, 203, 1), (31, 205, 1);
WITH gone AS (DELETE FROM played RETURNING listener)
INSERT INTO listener_factors
SELECT f.* FROM (SELECT array_agg(DISTINCT listener) AS listeners FROM gone) g,
	gpuvec_als_fold_in('plays', 'listener', 'song', 'song_factors', g.listeners, 'times', regularization => 0.1, alpha => 10) f
WHERE g.listeners IS NOT NULL
ON CONFLICT (key) DO UPDATE SET embedding = excluded.embedding;
SELECT n.rank, n.key / 100 AS kind
FROM listener_factors l, gpuvec_nearest('song_factors', 'key', 'embedding', l.embedding, 6, 'ip',
	exclude => (SELECT array_agg(song) FROM plays WHERE listener = l.key)) n
WHERE l.key = 1000 ORDER BY n.rank;
SELECT count(*) FROM played;
-- new songs, likewise: the columns change places
INSERT INTO plays SELECT l, 299, 3 FROM generate_series(2, 60, 3) l;
INSERT INTO song_factors
SELECT * FROM gpuvec_als_fold_in('plays', 'song', 'listener', 'listener_factors', '{299}', 'times', regularization => 0.1, alpha => 10);
SELECT n.rank, n.key / 100 AS kind
FROM song_factors s, gpuvec_nearest('song_factors', 'key', 'embedding', s.embedding, 4, exclude => '{299}') n WHERE s.key = 299 ORDER BY n.rank;
-- train on, from where the factors are
SELECT count(*), bool_and(loss BETWEEN 0 AND 1) FROM gpuvec_als('plays', 'listener', 'song', 'listener_factors', 'song_factors', weight_column => 'times', factors => 3, regularization => 0.1, alpha => 10, iterations => 2, warm_start => true);
SET client_min_messages = warning;
DROP TABLE plays, listener_factors, song_factors, recommended, played;
DROP FUNCTION note_played;
