-- Rows of equal similarity, and the order of rows across partitions.
CREATE SCHEMA ranking;
SET search_path = ranking, public;
CREATE VIEW measures AS SELECT unnest(ARRAY['braun_blanquet','jaccard','cosine','dice','overlap','containment','intersection','hamming','kulczynski']) AS measure;

-- Equal cosines of different numbers of ids: with a query of ids from 0 on, i common ones of b make i * i / b a fraction that many i and b share.
CREATE TABLE cosines (id serial, tokens idset);
INSERT INTO cosines (tokens)
SELECT ARRAY(SELECT g FROM generate_series(0, i - 1) g UNION ALL SELECT 1000 + g FROM generate_series(1, b - i) g)::idset
FROM generate_series(1, 12) i, (VALUES (1, 3), (1, 2), (1, 1), (3, 2), (2, 1), (3, 1), (4, 1), (6, 1)) c(n, d), LATERAL (SELECT i * i * d / n AS b) x,
	 generate_series(1, 40) copy
WHERE i * i * d % n = 0 AND b BETWEEN i AND 65536
ORDER BY hashint4(copy * 7919 + i * 31 + b), i, b, copy;
VACUUM ANALYZE cosines;
CREATE VIEW queries AS SELECT n, ARRAY(SELECT generate_series(0, n - 1))::idset AS q FROM unnest('{12,18,37,60,1001}'::int[]) n;
-- By the fractions, in integers: is each row behind the one before it?  Ties of different numbers of ids have to be there.
CREATE FUNCTION order_of(list text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE 'SELECT format(''%s rows, %s ties of other numbers, %s wrong'', count(*), count(*) FILTER (WHERE s = before_s AND b <> before_b),
		count(*) FILTER (WHERE s > before_s OR (s = before_s AND tid < before_tid))) FROM (
			SELECT *, n1 * n1 * before_b AS s, before_n * before_n * b AS before_s FROM (
				SELECT *, lag(n1) OVER w AS before_n, lag(b) OVER w AS before_b, lag(tid) OVER w AS before_tid FROM (
					SELECT pos, tid, cardinality(tokens & q)::bigint AS n1, cardinality(tokens)::bigint AS b FROM (' || list || ') x) x
				WINDOW w AS (ORDER BY pos)) x) x' INTO answer;
	RETURN answer;
END $$;
CREATE FUNCTION by_function(q idset) RETURNS text LANGUAGE sql AS $$
	SELECT order_of(format($q$SELECT t.rank AS pos, t.tid, d.tokens, %L::idset AS q FROM gpuvec_topk('cosines', 'tokens', %1$L, 5000, 'cosine') t JOIN cosines d ON d.ctid = t.tid$q$, q)) $$;
CREATE FUNCTION by_index(q idset) RETURNS text LANGUAGE sql SET enable_seqscan = off SET enable_sort = off AS $$
	SELECT order_of(format($q$SELECT row_number() OVER () AS pos, tid, tokens, %L::idset AS q FROM (SELECT ctid AS tid, tokens FROM cosines
		WHERE tokens && %1$L ORDER BY tokens <=> %1$L LIMIT 5000) x$q$, q)) $$;
SELECT n, by_function(q) FROM queries ORDER BY n;
SET gpuvec.method = 'bitset';
SELECT n, by_function(q) FROM queries ORDER BY n;
SET gpuvec.method = 'inverted';
SELECT n, by_function(q) FROM queries ORDER BY n;
RESET gpuvec.method;
CREATE INDEX cosines_knn ON cosines USING gpuvec (tokens);
SELECT n, by_function(q), by_index(q) FROM queries ORDER BY n;
SET gpuvec.method = 'bitset';
SELECT n, by_index(q) FROM queries WHERE n = 60;
SET gpuvec.method = 'inverted';
SELECT n, by_index(q) FROM queries WHERE n = 60;
RESET gpuvec.method;
-- a threshold that a tie has is one that all of them have
SELECT cosine_similarity('{0,1,2}', '{0,1,2,3,4,5}') AS three, cosine_similarity('{0}', '{0,1}') AS one, '{0,1,2}'::idset <<->> ('{0,1,2,3,4,5}', cosine_similarity('{0}', '{0,1}'), 'cosine') AS reaches;

-- Partitions: each is searched only for rows that are better than the k-th so far.  Near duplicates, so that ties are everywhere.
CREATE TABLE parts (id int, tokens idset) PARTITION BY HASH (id);
SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES WITH (MODULUS 8, REMAINDER %1$s)', i) FROM generate_series(0, 7) i \gexec
INSERT INTO parts SELECT i, CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}' ELSE ARRAY[i % 20, i % 20 + 1, 50 + i % 7, 100 + i % 3, 200 + (i * i) % 11]::idset END
FROM generate_series(1, 3000) i;
CREATE TABLE asked AS SELECT row_number() OVER () AS n, q FROM unnest('{"{1,2,51,101,201}","{3,4}",NULL,"{}","{19,20,56,102,205}","{1,2,51,101,201}","{50,51,52,53,54,55,56}","{5,6,55,102,203,300}","{60000}","{100,101,102}"}'::idset[]) q;
CREATE FUNCTION score(measure text, q idset, s idset) RETURNS float8 LANGUAGE sql AS $$
	SELECT CASE measure WHEN 'braun_blanquet' THEN braun_blanquet_similarity(q, s) WHEN 'jaccard' THEN jaccard_similarity(q, s) WHEN 'cosine' THEN cosine_similarity(q, s)
		WHEN 'dice' THEN dice_similarity(q, s) WHEN 'overlap' THEN overlap_similarity(q, s) WHEN 'containment' THEN containment_similarity(q, s)
		WHEN 'intersection' THEN intersection_count(q, s) WHEN 'kulczynski' THEN kulczynski_similarity(q, s) ELSE -hamming_distance(q, s) END $$;
-- the rows of all partitions, as they rank for each query
CREATE FUNCTION ranked(measure text, min_score float8) RETURNS TABLE (query bigint, rank bigint, source regclass, tid tid, score float8, common int) LANGUAGE sql AS $$
	SELECT n, row_number() OVER (PARTITION BY n ORDER BY s DESC, oid, ctid), oid::regclass, ctid, s, common
	FROM (SELECT n, p.tableoid AS oid, p.ctid, score(measure, q, tokens) AS s, cardinality(q & tokens) AS common FROM asked, parts p
		  WHERE q IS NOT NULL AND tokens IS NOT NULL) x
	WHERE (common > 0 OR measure = 'hamming') AND (min_score IS NULL OR s >= min_score) $$;
CREATE FUNCTION found(k bigint, measure text, min_score float8) RETURNS TABLE (query bigint, rank bigint, source regclass, tid tid, score float8, common int) LANGUAGE sql AS $$
	SELECT query, rank, source, tid, score, common FROM gpuvec_topk_batch('parts', 'tokens', (SELECT array_agg(q ORDER BY n) FROM asked), k, measure, min_score) $$;
CREATE FUNCTION found_singly(k bigint, measure text, min_score float8) RETURNS TABLE (query bigint, rank bigint, source regclass, tid tid, score float8, common int) LANGUAGE sql AS $$
	SELECT n, rank, source, tid, score, common FROM asked, gpuvec_topk('parts', 'tokens', q, k, measure, min_score) $$;
CREATE FUNCTION check_parts(measure text, min_score float8) RETURNS TABLE (rows bigint, batch text, single text, prefix bool) LANGUAGE plpgsql AS $$
DECLARE
	some_k bigint;
	wrong bigint;
BEGIN
	CREATE TEMP TABLE want AS SELECT * FROM ranked(measure, min_score);
	SELECT count(*) INTO rows FROM want;
	FOREACH some_k IN ARRAY '{1,7,100,5000}'::bigint[] LOOP
		SELECT count(*) INTO wrong FROM (SELECT * FROM want w WHERE w.rank <= some_k) w FULL JOIN found(some_k, measure, min_score) f USING (query, rank, source, tid, score, common)
		WHERE w.query IS NULL OR f.query IS NULL;
		batch := concat_ws(' ', batch, wrong);
		SELECT count(*) INTO wrong FROM (SELECT * FROM want w WHERE w.rank <= some_k) w FULL JOIN found_singly(some_k, measure, min_score) f USING (query, rank, source, tid, score, common)
		WHERE w.query IS NULL OR f.query IS NULL;
		single := concat_ws(' ', single, wrong);
	END LOOP;
	SELECT array_agg(f::text ORDER BY f.query, f.rank) = (SELECT array_agg(g::text ORDER BY g.query, g.rank) FROM found(100, measure, min_score) g WHERE g.rank <= 7)
	INTO prefix FROM found(7, measure, min_score) f;
	DROP TABLE want;
	RETURN NEXT;
END $$;
SELECT measure, c.* FROM measures, check_parts(measure, NULL) c ORDER BY measure;
SELECT measure, c.* FROM measures, check_parts(measure, CASE measure WHEN 'intersection' THEN 2 WHEN 'hamming' THEN -6 ELSE 0.25 END) c ORDER BY measure;
-- rows that came since, deleted ones, and rows that only this transaction sees
BEGIN;
INSERT INTO parts SELECT i, ARRAY[i % 20, i % 20 + 1, 50 + i % 7, 100 + i % 3, 200 + (i * i) % 11]::idset FROM generate_series(3001, 3040) i;
DELETE FROM parts WHERE id % 10 = 0;
SELECT measure, c.* FROM measures, check_parts(measure, NULL) c WHERE measure IN ('jaccard', 'hamming') ORDER BY measure;
-- a partition that is new in this transaction is searched by itself
TRUNCATE parts_3;
INSERT INTO parts SELECT i, ARRAY[i % 20, i % 20 + 1, 50 + i % 7, 100 + i % 3, 200 + (i * i) % 11]::idset FROM generate_series(4001, 4400) i;
SELECT measure, c.* FROM measures, check_parts(measure, NULL) c WHERE measure IN ('jaccard', 'hamming') ORDER BY measure;
ROLLBACK;
-- the same by rooted mirrors, and after updates that move rows within their pages
CREATE INDEX parts_knn ON parts USING gpuvec (tokens);
SELECT measure, c.* FROM measures, check_parts(measure, NULL) c ORDER BY measure;
UPDATE parts SET tokens = tokens WHERE id % 5 = 0;
DELETE FROM parts WHERE id % 11 = 0;
VACUUM parts;
UPDATE parts SET tokens = tokens WHERE id % 7 = 0;
SELECT measure, c.* FROM measures, check_parts(measure, NULL) c ORDER BY measure;
-- without shared mirrors: scanned here, or (many queries) loaded for one call
CREATE TABLE plain AS SELECT id, tokens FROM parts ORDER BY tableoid, ctid;
CREATE TABLE unlogged (id int, tokens idset) PARTITION BY HASH (id);
SELECT format('CREATE UNLOGGED TABLE parts_%s_unlogged PARTITION OF unlogged FOR VALUES WITH (MODULUS 8, REMAINDER %1$s)', i) FROM generate_series(0, 7) i \gexec
INSERT INTO unlogged SELECT id, tokens FROM plain;
VACUUM FULL parts;
-- both have the same rows in the same order now
CREATE FUNCTION differ(queries idset[], k bigint, measure text) RETURNS text LANGUAGE sql AS $$
	SELECT count(*) || ' rows, ' || count(*) FILTER (WHERE a.tid IS NULL OR b.tid IS NULL) || ' differ'
	FROM gpuvec_topk_batch('parts', 'tokens', queries, k, measure) a
	FULL JOIN (SELECT query, rank, replace(source::text, '_unlogged', '')::regclass AS source, tid, score, common FROM gpuvec_topk_batch('unlogged', 'tokens', queries, k, measure)) b
	USING (query, rank, source, tid, score, common) $$;
SELECT measure, differ((SELECT array_agg(q ORDER BY n) FROM asked), 7, measure) AS scanned,
	   differ((SELECT array_agg(tokens ORDER BY id) FROM plain WHERE id <= 1500), 7, measure) AS loaded FROM measures ORDER BY measure;
SET client_min_messages = warning;
DROP SCHEMA ranking CASCADE;
RESET client_min_messages;
RESET search_path;
