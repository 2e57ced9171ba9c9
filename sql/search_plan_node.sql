-- The plan node of search functions in FROM, and where the function scan takes over
CREATE SCHEMA topk_scan;
SET search_path = topk_scan, public;
CREATE TABLE docs (id int PRIMARY KEY, tokens idset);
INSERT INTO docs SELECT i, ARRAY[i % 7, 100 + i % 11, 200 + i % 5, 300 + i]::int[]::idset FROM generate_series(1, 500) i;
CREATE TABLE queries (id int PRIMARY KEY, tokens idset);
INSERT INTO queries SELECT i, ARRAY[i % 7, 100 + i % 11, 200 + i % 5]::int[]::idset FROM generate_series(1, 6) i;
ANALYZE docs;
ANALYZE queries;

-- what brute force says
CREATE FUNCTION brute(q idset, n int) RETURNS TABLE (rank bigint, id int, score float8) LANGUAGE sql STABLE AS $$
	SELECT row_number() OVER (ORDER BY s DESC, d.ctid), d.id, s
	FROM docs d, braun_blanquet_similarity(q, d.tokens) s WHERE s > 0
	ORDER BY s DESC, d.ctid LIMIT n $$;

-- the node, and its rows
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_topk('docs', 'tokens', '{1,101,201}', 3);
EXPLAIN (COSTS OFF, VERBOSE) SELECT t.score FROM gpuvec_topk_batch('docs', 'tokens', ARRAY['{1,101}', '{2}']::idset[], 3) t WHERE t.rank = 1;
EXPLAIN (COSTS OFF, VERBOSE) SELECT q.id, t.score FROM queries q, gpuvec_topk('docs', 'tokens', q.tokens, 3, measure => 'jaccard') t;
SELECT t.rank, d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{1,101,201}', 5) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;
SELECT count(*) AS rows, count(*) FILTER (WHERE t.score = b.score AND d.id = b.id) AS right
FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM queries), 20) t
JOIN docs d ON d.ctid = t.tid JOIN queries q ON q.id = t.query, LATERAL brute(q.tokens, 20) b WHERE b.rank = t.rank;
SELECT (t.item).id, t.score FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,101,201}', 3) t;
SELECT t.query, (t.item).id FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', ARRAY['{1,101}', NULL, '{2}']::idset[], 2) t;
SELECT t.rank + 10 AS r, t.source FROM gpuvec_topk('docs', 'tokens', '{1,101}', 4) t WHERE t.rank > 2;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', NULL, 4);

-- with parameters: of a prepared statement, of an outer query, of a plan that is rescanned
PREPARE search(idset, int) AS SELECT d.id FROM gpuvec_topk('docs', 'tokens', $1, $2) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;
EXECUTE search('{1,101,201}', 2);
EXECUTE search('{2,102,202}', 3);
SET plan_cache_mode = force_generic_plan;
EXECUTE search('{1,101,201}', 2);
EXECUTE search('{2,102,202}', 3);
RESET plan_cache_mode;
SELECT q.id, ARRAY(SELECT d.id FROM gpuvec_topk('docs', 'tokens', q.tokens, 2) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank)
	= ARRAY(SELECT b.id FROM brute(q.tokens, 2) b ORDER BY b.rank) AS right
FROM queries q ORDER BY q.id;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM queries q JOIN gpuvec_topk('docs', 'tokens', '{1,101}', 3) t ON t.rank >= q.id;
SELECT count(*) FROM queries q JOIN gpuvec_topk('docs', 'tokens', '{1,101}', 3) t ON t.rank >= q.id;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;

-- cursors
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT t.rank FROM gpuvec_topk('docs', 'tokens', '{1,101}', 5) t;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH ABSOLUTE 5 FROM c;
DELETE FROM docs WHERE id < 100;
FETCH FIRST FROM c;
DECLARE h CURSOR WITH HOLD FOR SELECT t.rank, (t.item).id > 0 AS row FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,101}', 2) t;
ROLLBACK;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT t.rank, (t.item).id > 0 AS row FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,101}', 2) t;
COMMIT;
FETCH ALL FROM h;
CLOSE h;

-- a savepoint that is rolled back takes no open table with it
BEGIN;
SAVEPOINT a;
SELECT count((t.item).id) FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,101}', 2) t;
SELECT (t.item).id / 0 FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,101}', 2) t;
ROLLBACK TO a;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2);
COMMIT;

-- lateral references: the function is called for each row
EXPLAIN (COSTS OFF) SELECT q.id, t.rank FROM queries q, gpuvec_topk('docs', 'tokens', q.tokens, 1) t;
SELECT q.id, t.rank, t.score FROM queries q, gpuvec_topk('docs', 'tokens', q.tokens, 1) t ORDER BY 1;
SELECT q.id, t.rank, t.score = f.score AND t.tid = f.tid AS same
	FROM queries q, gpuvec_topk('docs', 'tokens', q.tokens, q.id) t, gpuvec_topk('docs', 'tokens', q.tokens, q.id) WITH ORDINALITY f (rank, source, tid, score, common, ordinality)
	WHERE t.rank = f.rank AND q.id <= 3 ORDER BY 1, 2;
SELECT q.id, t.rank FROM queries q LEFT JOIN LATERAL gpuvec_topk('docs', 'tokens', CASE WHEN q.id % 2 = 0 THEN q.tokens END, 1) t ON t.score > 0.1 * q.id ORDER BY 1;
SELECT q.id, (SELECT count(*) FROM generate_series(1, 2) g, LATERAL (SELECT * FROM gpuvec_topk('docs', 'tokens', q.tokens, g + q.id) OFFSET 0) t WHERE t.rank <= q.id) AS n FROM queries q ORDER BY 1;
-- what the node does not do: the function scan takes over
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2) WITH ORDINALITY;
SELECT rank, ordinality FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2) WITH ORDINALITY;
EXPLAIN (COSTS OFF) SELECT t FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2) t;
SELECT (t).rank, t IS NOT NULL AS whole FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2) t;
SELECT * FROM ROWS FROM (gpuvec_topk('docs', 'tokens', '{1,101,201}', 1), generate_series(1, 2)) AS r(rank, source, tid, score, common, n);
UPDATE docs SET tokens = docs.tokens | 1000 FROM gpuvec_topk('docs', 'tokens', '{1,101,201}', 3) t WHERE docs.ctid = t.tid;
SELECT count(*) FROM docs WHERE tokens @> 1000;
SELECT d.id FROM gpuvec_topk('docs', 'tokens', '{1000}', 3) t JOIN docs d ON d.ctid = t.tid ORDER BY d.id FOR UPDATE OF d;
SELECT (gpuvec_topk('docs', 'tokens', '{1000}', 3)).rank;

-- the right to execute is asked for as ever; settings of a function hold
CREATE ROLE regress_gpuvec_scan;
GRANT USAGE ON SCHEMA topk_scan TO regress_gpuvec_scan;
GRANT SELECT ON docs TO regress_gpuvec_scan;
REVOKE EXECUTE ON FUNCTION gpuvec_topk(regclass, name, idset, int8, text, float8, tid[]) FROM PUBLIC;
SET ROLE regress_gpuvec_scan;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2);
RESET ROLE;
GRANT EXECUTE ON FUNCTION gpuvec_topk(regclass, name, idset, int8, text, float8, tid[]) TO PUBLIC;
SET ROLE regress_gpuvec_scan;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2);
RESET ROLE;
ALTER FUNCTION gpuvec_topk(regclass, name, idset, int8, text, float8, tid[]) SET gpuvec.method = 'bitset';
EXPLAIN (COSTS OFF) SELECT rank FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2);
SELECT rank FROM gpuvec_topk('docs', 'tokens', '{1,101}', 2);
ALTER FUNCTION gpuvec_topk(regclass, name, idset, int8, text, float8, tid[]) RESET ALL;
REVOKE ALL ON SCHEMA topk_scan FROM regress_gpuvec_scan;
REVOKE ALL ON docs FROM regress_gpuvec_scan;
DROP ROLE regress_gpuvec_scan;

-- each method gives the same rows
SET gpuvec.method = bitset;
CREATE TABLE by_scan AS SELECT * FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM queries), 50);
SET gpuvec.method = inverted;
CREATE TABLE by_lists AS SELECT * FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM queries), 50);
RESET gpuvec.method;
SELECT count(*) FROM by_scan;
SELECT count(*) FROM ((TABLE by_scan EXCEPT TABLE by_lists) UNION ALL (TABLE by_lists EXCEPT TABLE by_scan)) x;
SET gpuvec.method = 'neither';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA topk_scan CASCADE;
