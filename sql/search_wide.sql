-- Columns and queries with ids above 65535, beside others: searches find what plain SQL finds.  (Without its engine a session would warn.)
SELECT setseed(0.71);
CREATE TABLE docs (id int, tokens idset);
INSERT INTO docs SELECT i, (SELECT idset_agg((i * 31 + j * j * (1 + i % 13)) % CASE WHEN i % 3 = 0 THEN 40 ELSE 300 END) FROM generate_series(1, 1 + i % 17) j) FROM generate_series(1, 4000) i;
INSERT INTO docs VALUES (5001, NULL), (5002, '{}'), (5003, '{65535}');
CREATE TABLE queries AS SELECT * FROM (VALUES (1, '{1,2,3}'::idset), (2, '{65535}'), (3, '{}'), (4, '{1,2,65536}'), (5, '{70000,4294967295}'), (6, NULL), (7, '{0,5,17,2147483648}'),
	(8, (SELECT idset_agg(i) FROM generate_series(1, 60) i)), (9, '{1,2,3,65535,65536,2147483647,2147483648,4294967295}'), (10, '{4294967295}'),
	(11, (SELECT idset_agg(i * 65537) FROM generate_series(0::int8, 2000) i))) q(n, query);
CREATE FUNCTION score(q idset, s idset, measure text) RETURNS float8 LANGUAGE sql AS $$
	SELECT CASE measure WHEN 'braun_blanquet' THEN braun_blanquet_similarity(q, s) WHEN 'jaccard' THEN jaccard_similarity(q, s) WHEN 'cosine' THEN cosine_similarity(q, s) WHEN 'dice' THEN dice_similarity(q, s)
		WHEN 'overlap' THEN overlap_similarity(q, s) WHEN 'containment' THEN containment_similarity(q, s) WHEN 'intersection' THEN intersection_count(q, s) WHEN 'kulczynski' THEN kulczynski_similarity(q, s) ELSE -hamming_distance(q, s) END $$;
CREATE FUNCTION expected(q idset, k int, measure text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(ctid || ' ' || s, ';' ORDER BY s DESC, ctid), '') FROM (
		SELECT ctid, score(q, tokens, measure) AS s FROM docs WHERE tokens IS NOT NULL AND q IS NOT NULL AND (measure = 'hamming' OR q && tokens) ORDER BY 2 DESC, 1 LIMIT k) x $$;
CREATE FUNCTION wrong() RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(n || ' ' || measure || ' ' || k, ', ' ORDER BY n, measure, k), 'none') FROM queries, unnest('{braun_blanquet,jaccard,cosine,dice,overlap,containment,intersection,hamming,kulczynski}'::text[]) measure, unnest('{1,50}'::int[]) k
	WHERE expected(query, k, measure) <> (SELECT coalesce(string_agg(tid || ' ' || score, ';' ORDER BY rank), '') FROM gpuvec_topk('docs', 'tokens', query, k, measure)) $$;
-- all queries in one statement
CREATE FUNCTION wrong_batch(measure text) RETURNS text LANGUAGE sql AS $$
	WITH found AS MATERIALIZED (SELECT query AS n, coalesce(string_agg(tid || ' ' || score, ';' ORDER BY rank), '') AS answer
		FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(query ORDER BY n) FROM queries), 20, measure) GROUP BY 1)
	SELECT coalesce(string_agg(n::text, ', ' ORDER BY n), 'none') FROM queries LEFT JOIN found USING (n) WHERE expected(query, 20, measure) <> coalesce(answer, '') $$;
CREATE FUNCTION resident() RETURNS bool LANGUAGE sql AS $$SELECT EXISTS (SELECT FROM gpuvec_mirrors WHERE relation = 'docs'::regclass)$$;
CREATE FUNCTION wrong_above(bound float8, measure text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(n::text, ', ' ORDER BY n), 'none') FROM queries
	WHERE (SELECT coalesce(string_agg(ctid || ' ' || s, ';' ORDER BY s DESC, ctid), '') FROM (SELECT ctid, score(query, tokens, measure) AS s FROM docs WHERE query && tokens) x WHERE s >= bound) <>
		(SELECT coalesce(string_agg(tid || ' ' || score, ';' ORDER BY rank), '') FROM gpuvec_topk('docs', 'tokens', query, NULL, measure, bound)) $$;
-- the rows of two thirds of the table: fetched, or found by the engine
CREATE FUNCTION wrong_among(of int) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(n::text, ', ' ORDER BY n), 'none') FROM queries
	WHERE (SELECT coalesce(string_agg(ctid || ' ' || s, ';' ORDER BY s DESC, ctid), '') FROM (SELECT ctid, jaccard_similarity(query, tokens) AS s FROM docs WHERE query && tokens AND id % of > 0 ORDER BY 2 DESC, 1 LIMIT 5) x) <>
		(SELECT coalesce(string_agg(tid || ' ' || score, ';' ORDER BY rank), '') FROM gpuvec_topk('docs', 'tokens', query, 5, 'jaccard', among => (SELECT array_agg(ctid) FROM docs WHERE id % of > 0))) $$;
-- a column without such ids, and queries with them
SELECT gpuvec_prewarm('docs', 'tokens');
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2,3}', 10);
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2,65536}', 10);
SELECT wrong(), wrong_batch('jaccard'), wrong_batch('hamming'), wrong_above(0.2, 'dice'), wrong_among(3);
SELECT resident();
SELECT count(*) AS among, count(*) FILTER (WHERE score <> jaccard_similarity('{1,2,65536}', tokens)) AS wrong
FROM gpuvec_topk('docs', 'tokens', '{1,2,65536}', 30, 'jaccard', among => (SELECT array_agg(ctid) FROM docs WHERE id % 3 = 1)) t JOIN docs ON ctid = tid WHERE id % 3 = 1;
-- one row with such an id
INSERT INTO docs VALUES (6001, '{1,2,65536}');
SELECT wrong(), wrong_batch('cosine'), resident();
SELECT gpuvec_evict('docs');
SELECT gpuvec_prewarm('docs', 'tokens');
SELECT wrong();
INSERT INTO docs SELECT 7000 + i, (SELECT idset_agg(CASE WHEN j % 2 = 0 THEN j * i % 90 ELSE 4294967295 - (j * i) % 50 END) FROM generate_series(1, i % 9) j) FROM generate_series(1, 300) i;
INSERT INTO docs SELECT 7400 + i, ARRAY[65535 + i % 2, 2147483647 + i::int8 % 2, 1, 2, 3, 4294967295 - i % 3, 4294967200 - i]::int8[]::idset FROM generate_series(1, 40) i;
SELECT wrong(), wrong_batch('dice'), wrong_above(0.2, 'jaccard'), wrong_above(1, 'intersection'), wrong_among(3), wrong_among(400);
-- as many ids as a set can have
SELECT count(*) AS longest, count(*) FILTER (WHERE score <> intersection_count(query, tokens)) AS wrong FROM (SELECT idset_agg(i * 65537) AS query FROM generate_series(0::int8, 65535) i) q, gpuvec_topk('docs', 'tokens', query, 100, 'intersection') t JOIN docs ON ctid = tid;
SELECT (t.item).id, t.score FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,2,65536}', 2) t ORDER BY rank;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT wrong();
DELETE FROM docs WHERE id > 6000;
SELECT wrong();
ROLLBACK;
SELECT wrong_batch('overlap');
-- none again
DELETE FROM docs WHERE id > 6000;
SELECT wrong();
SELECT gpuvec_prewarm('docs', 'tokens');
SELECT wrong(), wrong_batch('braun_blanquet'), resident();
-- an index on it, and one that keeps its rows
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
CREATE FUNCTION without_zero(s idset) RETURNS idset IMMUTABLE LANGUAGE sql AS 'SELECT s OPERATOR(public.-) 0';
CREATE INDEX docs_expression ON docs USING gpuvec (without_zero(tokens));
-- by index and by sort: the same rows, in the same order
CREATE FUNCTION rows_of(query text, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', (NOT by_index)::text, true), set_config('enable_sort', (NOT by_index)::text, true), set_config('enable_indexscan', by_index::text, true), set_config('enable_bitmapscan', by_index::text, true);
	EXECUTE format('SELECT string_agg(x::text, '';'') FROM (%s) x', query) INTO result;
	RETURN result;
END$$;
CREATE FUNCTION by_index_wrong() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text := '';
	q idset;
	op text;
	e text;
BEGIN
	FOR q, op, e IN SELECT query, o, x FROM queries, unnest('{<->,<%>,<=>,<#>,<~>}'::text[]) o, unnest('{tokens,without_zero(tokens)}'::text[]) x LOOP
		IF rows_of(format('SELECT d FROM (SELECT %s %s %L::idset AS d FROM docs ORDER BY %1$s %2$s %3$L::idset LIMIT 300) y', e, op, q), true) IS DISTINCT FROM
		   rows_of(format('SELECT d FROM (SELECT %s %s %L::idset AS d FROM docs ORDER BY 1 LIMIT 300) y', e, op, q), false) THEN
			result := result || format('%s %s %s; ', e, op, q);
		END IF;
	END LOOP;
	FOR q, op, e IN SELECT query, o, x FROM queries, unnest('{&&,@>,<@,=,threshold}'::text[]) o, unnest('{tokens,without_zero(tokens)}'::text[]) x LOOP
		IF rows_of(format('SELECT string_agg(id::text, '','' ORDER BY id) FROM docs WHERE %s %s', e, CASE WHEN op = 'threshold' THEN format('<<->> (%L, 0.4, ''jaccard'')', q) ELSE format('%s %L::idset', op, q) END), true) IS DISTINCT FROM
		   rows_of(format('SELECT string_agg(id::text, '','' ORDER BY id) FROM docs WHERE %s %s', e, CASE WHEN op = 'threshold' THEN format('<<->> (%L, 0.4, ''jaccard'')', q) ELSE format('%s %L::idset', op, q) END), false) THEN
			result := result || format('%s %s %s; ', e, op, q);
		END IF;
	END LOOP;
	RETURN coalesce(nullif(result, ''), 'none');
END$$;
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
EXPLAIN (COSTS OFF) SELECT tokens <-> '{1,65536}' FROM docs ORDER BY 1 LIMIT 3;
EXPLAIN (COSTS OFF) SELECT without_zero(tokens) <-> '{1,65536}' FROM docs ORDER BY 1 LIMIT 3;
EXPLAIN (COSTS OFF) SELECT count(*) FROM docs WHERE tokens && '{1,65536}';
COMMIT;
SELECT by_index_wrong(), wrong();
INSERT INTO docs SELECT 8000 + i, '{1,2,65536}'::idset | (i * 1000003) FROM generate_series(1, 40) i;
INSERT INTO docs SELECT 8100, idset_agg(i * 60001) FROM generate_series(0, 30000) i;
UPDATE docs SET tokens = tokens | 4294967295 WHERE id % 500 = 0;
SELECT by_index_wrong(), wrong(), wrong_batch('jaccard'), wrong_above(0.1, 'cosine'), wrong_among(3);
-- in an order, of rows that have an id
CREATE FUNCTION filtered_wrong() RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(n || ' ' || f, ', ' ORDER BY n, f), 'none') FROM queries, unnest(ARRAY['tokens @> 65536', 'tokens && ''{65535,4294967295}''', 'tokens @> ''{1,2}''', 'tokens <@ ''{0,1,2,3,65536,4294967295}''']) f
	WHERE rows_of(format('SELECT tokens <-> %L::idset AS d FROM docs WHERE %s ORDER BY 1 LIMIT 50', query, f), true) IS DISTINCT FROM
		rows_of(format('SELECT tokens <-> %L::idset AS d FROM docs WHERE %s ORDER BY 1 LIMIT 50', query, f), false) $$;
SELECT filtered_wrong();
REINDEX TABLE docs;
SELECT by_index_wrong(), wrong();
DELETE FROM docs WHERE id >= 8000;
UPDATE docs SET tokens = tokens - 4294967295;
SELECT by_index_wrong(), wrong();
VACUUM docs;
SELECT by_index_wrong();
SELECT gpuvec_prewarm('docs', 'tokens');
SELECT by_index_wrong(), filtered_wrong(), wrong(), resident();
-- partitions, of which one has such ids, and a table without WAL
INSERT INTO docs SELECT 9000 + i, ARRAY[1, 2, 3, 65536 + i % 5, 4294967295 - i % 7]::int8[]::idset FROM generate_series(1, 100) i;
CREATE TABLE parted (id int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (9000);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (9000) TO (20000);
INSERT INTO parted SELECT * FROM docs;
CREATE TEMPORARY TABLE own AS SELECT * FROM docs;
CREATE FUNCTION table_wrong(rel regclass, measure text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format($q$SELECT coalesce(string_agg(n::text, ', ' ORDER BY n), 'none') FROM queries
		WHERE (SELECT string_agg(tableoid || ' ' || ctid || ' ' || s, ';' ORDER BY s DESC, tableoid, ctid) FROM (SELECT tableoid, ctid, score(query, tokens, $1) AS s FROM %s WHERE query && tokens ORDER BY 3 DESC, 1, 2 LIMIT 30) x)
			IS DISTINCT FROM (SELECT string_agg(source::oid || ' ' || tid || ' ' || score, ';' ORDER BY rank) FROM gpuvec_topk('%1$s', 'tokens', query, 30, $1))$q$, rel) INTO result USING measure;
	RETURN result;
END$$;
SELECT measure, table_wrong('parted', measure) AS partitions, table_wrong('own', measure) AS temporary FROM unnest('{braun_blanquet,overlap,intersection}'::text[]) measure;
-- many queries: the engine gets a copy of the temporary table for this search
SELECT count(*) AS rows, count(*) FILTER (WHERE (b.tid, b.score) IS DISTINCT FROM (e.tid, e.score)) AS wrong
FROM (SELECT array_agg(tokens ORDER BY id) AS queries FROM own WHERE id % 20 = 0) q, gpuvec_topk_batch('own', 'tokens', queries, 5, 'jaccard') b
FULL JOIN (SELECT n, row_number() OVER (PARTITION BY n ORDER BY s DESC, ctid) AS rank, ctid, s FROM (SELECT row_number() OVER (ORDER BY id) AS n, tokens AS query FROM own WHERE id % 20 = 0) q,
	LATERAL (SELECT ctid, jaccard_similarity(query, tokens) AS s FROM own WHERE query && tokens ORDER BY 2 DESC, 1 LIMIT 5) x) e (query, rank, tid, score) USING (query, rank);
-- ever new ids: the mirror does not keep what it knows of those that are in no row
CREATE TABLE churned (id int, tokens idset);
INSERT INTO churned SELECT i, ARRAY[i % 7, 100000 + i]::int8[]::idset FROM generate_series(1, 1000) i;
CREATE PROCEDURE churn(times int) LANGUAGE plpgsql AS $$
BEGIN
	FOR round IN 1 .. times LOOP
		UPDATE churned SET tokens = (SELECT idset_agg(round * 65536::int8 + i) FROM generate_series(0, 60000) i) WHERE id = 1;
		PERFORM FROM gpuvec_topk('churned', 'tokens', ARRAY[1, 2, round * 65536::int8]::idset, 3);
		COMMIT;
	END LOOP;
END$$;
CALL churn(60);
SELECT ids < 300000 AS few_ids, bytes < 50000000 AS few_bytes FROM gpuvec_mirrors WHERE relation = 'churned'::regclass;
SELECT id, score, common FROM gpuvec_topk('churned', 'tokens', ARRAY[65536 * 60, 65536 * 60 + 1, 65536 * 60 - 1, 101000]::int8[]::idset, 3, 'intersection') JOIN churned ON ctid = tid ORDER BY rank;
DROP PROCEDURE churn;
DROP TABLE churned;
-- the first ids above 65535 come after 0, 1 and 2 rows, on pages of their own
SELECT format('CREATE TABLE first_%s (tokens idset, pad text)', n) FROM generate_series(0, 2) n \gexec
SELECT format('ALTER TABLE first_%s ALTER pad SET STORAGE PLAIN', n) FROM generate_series(0, 2) n \gexec
SELECT format('INSERT INTO first_%s SELECT ''{3,40000,50000}'', repeat(''x'', 7600) FROM generate_series(1, %1$s)', n) FROM generate_series(0, 2) n \gexec
SELECT n, found FROM generate_series(0, 2) n, LATERAL (SELECT count(*) AS found FROM gpuvec_topk(format('first_%s', n)::regclass, 'tokens', '{3,40000}', 5)) f;
SELECT format('INSERT INTO first_%s SELECT ARRAY[7, 8 + i %% 3, 50000, 100000 + i]::int8[]::idset, repeat(''y'', 700) FROM generate_series(1, 40) i', n) FROM generate_series(0, 2) n \gexec
CREATE VIEW firsts AS SELECT 0 AS n, ctid, tokens FROM first_0 UNION ALL SELECT 1, ctid, tokens FROM first_1 UNION ALL SELECT 2, ctid, tokens FROM first_2;
SELECT g.n, query, found IS NOT DISTINCT FROM plain AS same FROM generate_series(0, 2) g (n), unnest('{"{3,40000,100001}","{0,1,2,7,50000}","{8,100001}"}'::idset[]) query,
	LATERAL (SELECT array_agg((tid, score) ORDER BY rank) AS found FROM gpuvec_topk(format('first_%s', g.n)::regclass, 'tokens', query, 100, 'jaccard')) f,
	LATERAL (SELECT array_agg((ctid, s) ORDER BY s DESC, ctid) AS plain FROM (SELECT ctid, jaccard_similarity(query, tokens) AS s FROM firsts x WHERE x.n = g.n AND query && tokens) y) p ORDER BY g.n, query::text;
DROP VIEW firsts;
DROP TABLE first_0, first_1, first_2;
DROP TABLE queries, docs, parted, own;
DROP FUNCTION score, expected, wrong, wrong_batch, wrong_above, wrong_among, resident, without_zero, rows_of, by_index_wrong, filtered_wrong, table_wrong;
