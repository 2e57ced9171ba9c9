-- The nearest vectors.
CREATE TABLE items (id bigint, embedding real[]);
INSERT INTO items VALUES (1, '{1,0}'), (2, '{0,2}'), (3, '{3,3}'), (4, '{-1,0}'), (5, '{0,0}'), (6, '{2,0}'), (7, '{NaN,1}'), (8, '{1,2,3}'), (9, NULL), (NULL, '{1,0}'), (10, '{Infinity,0}');
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', 20);
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0.5}', 4, 'ip');
SELECT rank, key, round(score::numeric, 4) AS score FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0.5}', metric => 'l2') WHERE key <> 10;
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', 2, 'l2');
SELECT key FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', 3, exclude => '{6,NULL,77,1}');
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{0,0}', 2);
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,2,3}');
SELECT query, rank, key, round(score::numeric, 4) AS score FROM gpuvec_nearest_batch('items', 'id', 'embedding', '{{1,0},{0,1},{-1,-1}}', 2);
SELECT * FROM gpuvec_nearest_batch('items', 'id', 'embedding', '{}', 2);
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', NULL);
-- what is pooled, and then searched for
SELECT key FROM gpuvec_nearest('items', 'id', 'embedding', gpuvec_pool('items', 'id', 'embedding', '{1,6}', 'mean'), 2, exclude => '{1,6}');
-- a query of the wrong width; a table without rows
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,2,3,4}');
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{}');
CREATE TABLE nothing (id int, v real[]);
SELECT * FROM gpuvec_nearest('nothing', 'id', 'v', '{1}');
-- wrong arguments
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', 0);
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', 100001);
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', NULL);
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,NULL}');
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{{1,0}}');
SELECT * FROM gpuvec_nearest_batch('items', 'id', 'embedding', '{1,0}');
SELECT * FROM gpuvec_nearest('items', 'id', 'embedding', '{1,0}', metric => 'jaccard');
SELECT * FROM gpuvec_nearest('items', 'embedding', 'id', '{1,0}');

-- against plain SQL: small integers, many ties
CREATE FUNCTION score(q real[], v real[], metric text) RETURNS float8 LANGUAGE sql AS $$
	SELECT CASE metric WHEN 'ip' THEN qv WHEN 'l2' THEN -sqrt(d) ELSE CASE WHEN qq * vv = 0 THEN 0 ELSE qv / sqrt(qq * vv) END END
	FROM (SELECT sum(a::float8 * b) AS qv, sum(a::float8 * a) AS qq, sum(b::float8 * b) AS vv, sum((a::float8 - b) ^ 2) AS d FROM unnest(q, v) u (a, b)) x
$$;
CREATE TABLE vectors (id int, embedding real[]);
INSERT INTO vectors SELECT (i * 7919) % 1201 - 300, ARRAY(SELECT (i * j * j * 31 + i * i * j) % 7 - 3 FROM generate_series(1, 21) j) FROM generate_series(1, 1200) i;
CREATE FUNCTION compare(queries real[], n int, metrics text[] DEFAULT '{cosine,ip,l2}', rel regclass DEFAULT 'vectors') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE metric text; wrong int; total int;
BEGIN
	FOREACH metric IN ARRAY metrics LOOP
		EXECUTE format('SELECT count(*) FILTER (WHERE a.key IS DISTINCT FROM b.key OR a.score IS DISTINCT FROM b.score), count(*) FROM gpuvec_nearest_batch(%L, ''id'', ''embedding'', $1, $2, $3, ''{5,6,7}'') a FULL JOIN (
				SELECT q AS query, row_number() OVER (PARTITION BY q ORDER BY s DESC, key)::int AS rank, key, s AS score FROM (
					SELECT q, v.id AS key, score((SELECT array_agg(x ORDER BY o) FROM unnest($1[q:q][:]) WITH ORDINALITY u (x, o)), v.embedding::real[], $3) AS s
					FROM generate_series(1, array_length($1, 1)) q, %s v WHERE v.id NOT IN (5, 6, 7)) x) b USING (query, rank) WHERE rank <= $2', rel, rel)
			INTO wrong, total USING queries, n, metric;
		RETURN NEXT format('%s: %s of %s wrong', metric, wrong, total);
	END LOOP;
END $$;
SELECT array_agg(embedding) AS queries FROM (SELECT embedding FROM vectors WHERE id IN (1, 77, 834)) x \gset
SELECT compare(:'queries', 10);
VACUUM vectors;
SELECT compare(:'queries', 10);
SELECT compare(:'queries', 400, '{cosine}');
-- most of the nearest are dead, deleted, or not yet committed
UPDATE vectors SET embedding = array_fill(9::real, '{21}') WHERE id % 2 = 0;
UPDATE vectors SET embedding = array_fill(-9::real, '{21}') WHERE id % 2 = 0;
DELETE FROM vectors WHERE id % 3 = 0;
SELECT compare(:'queries' || array_fill(1::real, '{1,21}'), 10);
BEGIN;
UPDATE vectors SET embedding = array_fill(1::real, '{21}');
SELECT compare(:'queries' || array_fill(1::real, '{1,21}'), 10);
ROLLBACK;
SELECT compare(:'queries' || array_fill(1::real, '{1,21}'), 10);
CREATE TABLE parted (id int, embedding double precision[]) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (0) TO (MAXVALUE);
INSERT INTO parted SELECT * FROM vectors;
SELECT compare(:'queries', 30, '{cosine,l2}', 'parted');
-- each query with a list of its own: none, short ones, of keys that are not there, of most keys, and long ones
CREATE FUNCTION compare_lists(n int, metrics text[] DEFAULT '{cosine,ip,l2}', rel regclass DEFAULT 'vectors') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE metric text; wrong int; total int; queries float8[]; keys int8[]; offs int8[];
BEGIN
	SELECT array_agg(embedding ORDER BY q) INTO queries FROM (SELECT q, ARRAY(SELECT (q * j * j) % 7 - 3 FROM generate_series(1, 21) j) AS embedding FROM generate_series(1, 40) q) x;
	CREATE TEMP TABLE unwanted ON COMMIT DROP AS SELECT q, key FROM generate_series(1, 40) q, generate_series(-300, 1000) key WHERE CASE q % 8 WHEN 0 THEN false WHEN 7 THEN key % 9 <> q % 9 ELSE abs(hashint4(q * 1009 + key)) % (q * 5) = 1 END;
	SELECT b.keys, b.offsets INTO keys, offs FROM (SELECT (gpuvec_bags_agg(k ORDER BY q)).* FROM (SELECT q, ARRAY(SELECT key FROM unwanted u WHERE u.q = g.q ORDER BY -key)::int8[] AS k FROM generate_series(1, 40) g (q)) x) b;
	FOREACH metric IN ARRAY metrics LOOP
		EXECUTE format('SELECT count(*) FILTER (WHERE a.key IS DISTINCT FROM b.key OR a.score IS DISTINCT FROM b.score), count(*) FROM gpuvec_nearest_batch(%L, ''id'', ''embedding'', $1, $2, $3, $4, $5) a FULL JOIN (
				SELECT * FROM (SELECT q AS query, row_number() OVER (PARTITION BY q ORDER BY s DESC, key)::int AS rank, key, s AS score FROM (
					SELECT q, v.id AS key, score((SELECT array_agg(x ORDER BY o) FROM unnest($1[q:q][:]) WITH ORDINALITY u (x, o))::real[], v.embedding::real[], $3) AS s
					FROM generate_series(1, 40) g (q), %s v WHERE NOT EXISTS (SELECT FROM unwanted u WHERE u.q = g.q AND u.key = v.id)) x) y WHERE rank <= $2) b USING (query, rank)', rel, rel)
			INTO wrong, total USING queries, n, metric, keys, offs;
		RETURN NEXT format('%s: %s of %s wrong', metric, wrong, total);
	END LOOP;
	DROP TABLE unwanted;
END $$;
SET client_min_messages = warning;
SELECT compare_lists(10);
SELECT compare_lists(300, '{cosine}');
VACUUM vectors;
SELECT compare_lists(1, '{ip}');
SELECT compare_lists(7, '{l2}', 'parted');
-- lists that are short, but whose keys have many rows
CREATE TABLE again AS SELECT id / 100 AS id, embedding FROM vectors;
SELECT count(*) AS found, bool_and(key <> query + 1) AS none_unwanted, count(*) = sum(wanted) AS all_there
FROM (SELECT query, key, 1 AS n, CASE WHEN row_number() OVER (PARTITION BY query) = 1 THEN (SELECT count(*) FROM again WHERE id <> query + 1) ELSE 0 END AS wanted
	FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', 1500, exclude => '{2,3,4}', exclude_offsets => '{0,1,2,3}')) x;
SELECT query, count(*), bool_and(key <> query + 1) AS none_unwanted FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', 500, exclude => '{2,3,4}', exclude_offsets => '{0,1,2,3}') GROUP BY 1 ORDER BY 1;
-- a list that is longer than those of a request may be together
SELECT query, rank, key FROM gpuvec_nearest_batch('again', 'id', 'embedding', (:'queries'::float8[])[:2][:], 2, 'l2', array_fill(-2::int8, '{8388609}') || '{1}', '{0,8388609,8388610}') ORDER BY 1, 2;
-- wrong lists
SELECT * FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', exclude_offsets => '{0,0,0,0}');
SELECT * FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', exclude => '{1}', exclude_offsets => '{0,0,1}');
SELECT * FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', exclude => '{1}', exclude_offsets => '{0,2,1,1}');
SELECT * FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', exclude => '{1}', exclude_offsets => '{0,0,0,0}');
SELECT * FROM gpuvec_nearest_batch('again', 'id', 'embedding', :'queries', exclude => '{NULL}', exclude_offsets => '{0,0,0,1}');
SELECT * FROM gpuvec_nearest_batch('again', 'id', 'embedding', '{}', exclude => '{}', exclude_offsets => '{0}');
-- by key: as by vectors that are given, without the row itself; keys that are not there, nulls and repetitions
CREATE FUNCTION compare_keys(wanted int8[], n int, unwanted int8[], rel regclass DEFAULT 'vectors') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE metric text; wrong int; total int;
BEGIN
	FOREACH metric IN ARRAY '{cosine,ip,l2}'::text[] LOOP
		EXECUTE format('SELECT count(*) FILTER (WHERE a.key IS DISTINCT FROM b.key OR a.score IS DISTINCT FROM b.score), count(*) FROM gpuvec_nearest_keys(%L, ''id'', ''embedding'', $1, $2, $3, $4) a FULL JOIN (
				SELECT query_key, row_number() OVER (PARTITION BY query_key ORDER BY s DESC, key)::int AS rank, key, s AS score
				FROM (SELECT q.id AS query_key, v.id AS key, score(q.embedding::real[], v.embedding::real[], $3) AS s FROM %s q, %s v
					WHERE q.id <> v.id AND ($1 IS NULL OR q.id = ANY ($1)) AND v.id <> ALL (coalesce(array_remove($4, NULL), ''{}''))) x) b USING (query_key, rank) WHERE rank <= $2', rel, rel, rel)
			INTO wrong, total USING wanted, n, metric, unwanted;
		RETURN NEXT format('%s: %s of %s wrong', metric, wrong, total);
	END LOOP;
END $$;
SELECT compare_keys('{77,-5,1,1,NULL,834,99999}', 10, NULL);
SELECT compare_keys('{77,1,834}', 2000, '{5,1,NULL,5}');
SELECT compare_keys('{77,1,834}', 5, '{}', 'parted');
CREATE TABLE some_vectors AS SELECT id, embedding FROM vectors WHERE id BETWEEN 1 AND 60;
SELECT compare_keys(NULL, 3, NULL, 'some_vectors');
BEGIN;
UPDATE some_vectors SET embedding = array_fill(2::real, '{21}') WHERE id % 2 = 0;
DELETE FROM some_vectors WHERE id % 5 = 0;
SELECT compare_keys(NULL, 70, '{4}', 'some_vectors');
ROLLBACK;
SELECT compare_keys(NULL, 1, NULL, 'some_vectors');
-- of a row alone, of none, and of more keys than are gathered at a time
SELECT count(*) FROM gpuvec_nearest_keys('nothing', 'id', 'v');
SELECT count(*) FROM gpuvec_nearest_keys('some_vectors', 'id', 'embedding', '{}');
SELECT count(*) FROM gpuvec_nearest_keys('some_vectors', 'id', 'embedding', '{-7,NULL}');
DELETE FROM some_vectors WHERE id > (SELECT min(id) FROM some_vectors);
SELECT count(*) FROM gpuvec_nearest_keys('some_vectors', 'id', 'embedding');
CREATE TABLE many AS SELECT id, ARRAY[id % 100, 1]::real[] AS embedding FROM generate_series(1, 17000) id WHERE id <= 1000 OR id > 16000;
SELECT count(*), count(DISTINCT query_key), bool_and(rank = 1 AND key = CASE WHEN query_key > 100 THEN (query_key - 1) % 100 + 1 ELSE query_key + 100 END) AS next_alike, min(score) FROM gpuvec_nearest_keys('many', 'id', 'embedding', (SELECT array_agg(id) FROM generate_series(1, 17000) id), 1, 'l2');
SELECT count(*), count(DISTINCT query_key) FROM gpuvec_nearest_keys('many', 'id', 'embedding', (SELECT array_agg(id) FROM generate_series(1, 300) id), 1500);
DROP TABLE many;
-- rows without a vector have none; vectors of several widths, several rows of a key, wrong arguments
SELECT query_key, rank, key, round(score::numeric, 4) AS score FROM gpuvec_nearest_keys('items', 'id', 'embedding', '{1,3,9}', 2);
SELECT * FROM gpuvec_nearest_keys('items', 'id', 'embedding', '{1,8}');
SELECT * FROM gpuvec_nearest_keys('items', 'id', 'embedding', '{8}');
SELECT count(*) FROM gpuvec_nearest_keys('again', 'id', 'embedding', '{2}');
SELECT * FROM gpuvec_nearest_keys('items', 'id', 'embedding', '{1}', 0);
SELECT * FROM gpuvec_nearest_keys('items', 'id', 'embedding', '{1}', metric => 'jaccard');
SELECT * FROM gpuvec_nearest_keys('items', 'id', 'embedding', '{{1}}');
SELECT * FROM gpuvec_nearest_keys(NULL, 'id', 'embedding', '{1}');
DROP TABLE items, nothing, vectors, parted, again, some_vectors CASCADE;
DROP FUNCTION score;
