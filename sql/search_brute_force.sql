-- Searches, compared with brute force in SQL.
CREATE TABLE docs (id int PRIMARY KEY, tokens idset);
INSERT INTO docs SELECT i, (SELECT idset_agg((i * 31 + j * j * (1 + i % 13) + (i % 5) * 65535) % 65536 % (CASE WHEN i % 3 = 0 THEN 40 ELSE 400 END))
						   FROM generate_series(1, i % 41) j) FROM generate_series(1, 3000) i;
UPDATE docs SET tokens = tokens | 65535 WHERE id % 50 = 0;
INSERT INTO docs VALUES (10001, NULL), (10002, '{}'), (10003, '{0}'), (10004, '{65535}'), (10005, '{0,65535}');
INSERT INTO docs SELECT 20000 + i, '{1,2,3}' FROM generate_series(1, 100) i;  -- ties

-- brute force with the formulas written out
CREATE FUNCTION brute(rel regclass, q idset, k bigint, measure text, min_score float8)
RETURNS TABLE (rank bigint, source regclass, tid tid, score float8, common int) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		SELECT row_number() OVER (ORDER BY score DESC, source::oid, tid), source::regclass, tid, score, n FROM (
			SELECT tableoid AS source, ctid AS tid, n, CASE $2
				WHEN 'braun_blanquet' THEN n::float8 / nullif(greatest(a, b), 0)
				WHEN 'jaccard' THEN n::float8 / nullif(a + b - n, 0)
				WHEN 'cosine' THEN sqrt(n::float8 * n / nullif(a::float8 * b, 0))
				WHEN 'dice' THEN 2 * n::float8 / nullif(a + b, 0)
				WHEN 'overlap' THEN n::float8 / nullif(least(a, b), 0)
				WHEN 'containment' THEN n::float8 / nullif(a, 0)
				WHEN 'intersection' THEN n::float8
				WHEN 'hamming' THEN (-(a + b - 2 * n))::float8
				WHEN 'kulczynski' THEN n::float8 * (a + b) / nullif(2 * a::float8 * b, 0) END AS score
			FROM (SELECT tableoid, ctid, cardinality($1) AS a, cardinality(tokens) AS b,
						 cardinality(ARRAY(SELECT unnest($1) INTERSECT SELECT unnest(tokens))) AS n
				  FROM %s WHERE tokens IS NOT NULL) x
			WHERE n > 0 OR $2 = 'hamming') y
		WHERE $4 IS NULL OR score >= $4
		ORDER BY 1 LIMIT $3 $q$, rel) USING q, measure, k, min_score;
END $$;
CREATE FUNCTION same(rel regclass, q idset, k bigint, measure text, min_score float8 DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN array_agg(g::text ORDER BY g.rank) IS NOT DISTINCT FROM
			(SELECT array_agg(b::text ORDER BY b.rank) FROM brute(rel, q, k, measure, min_score) b)
		THEN count(g.*)::text ELSE 'different' END
	FROM gpuvec_topk(rel, 'tokens', q, k, measure, min_score) g
$$;
CREATE VIEW measures AS SELECT unnest(ARRAY['braun_blanquet','jaccard','cosine','dice','overlap','containment','intersection','hamming','kulczynski']) AS measure;
CREATE VIEW queries AS SELECT * FROM (VALUES (1, '{1,2,3}'::idset), (2, '{0}'), (3, '{65535}'), (4, '{}'), (5, '{0,1,65535}'),
	(6, '{5,9,13,17,21,25,29,33,37,90,123,200,255,256,300}'), (7, '{40000}')) v(qid, q);

-- every measure, every query, several k
SELECT measure, qid, same('docs', q, 1, measure) AS k1, same('docs', q, 10, measure) AS k10, same('docs', q, 100, measure) AS k100,
	   same('docs', q, 100000, measure) AS k100000
FROM measures, queries ORDER BY measure, qid;
-- thresholds; all rows above one
SELECT measure, same('docs', q, 20, measure, 0.25) AS k20, same('docs', q, NULL, measure, 0.25) AS "all", same('docs', q, NULL, measure, 0) AS from_0
FROM measures, queries WHERE qid = 6 ORDER BY measure;
SELECT same('docs', q, NULL, 'hamming', -5) AS within_5, same('docs', q, 5, 'hamming', -12) AS within_12 FROM queries WHERE qid = 6;
SELECT same('docs', q, 7, 'intersection', 2) AS at_least_2 FROM queries WHERE qid = 6;
SELECT same('docs', '{1,2,3}', NULL, 'hamming', '-0') AS equal;
-- min_score is inclusive
SELECT count(*), min(score) FROM gpuvec_topk('docs', 'tokens', '{1,2,3,4}', NULL, 'braun_blanquet', 0.75);
-- batches
SELECT count(*) AS rows, bool_and(b.query = q.qid AND b.tid = s.tid AND b.score = s.score AND b.common = s.common) AS same
FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(q ORDER BY qid) FROM queries), 50) b
JOIN queries q ON q.qid = b.query
CROSS JOIN LATERAL (SELECT * FROM gpuvec_topk('docs', 'tokens', q.q, 50) s WHERE s.rank = b.rank) s;
SELECT query, count(*) FROM gpuvec_topk_batch('docs', 'tokens', ARRAY['{1}', NULL, '{}', '{40000}', '{1}']::idset[], 3) GROUP BY query ORDER BY query;
SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', ARRAY[]::idset[]);
SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', NULL);
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', NULL);
-- a large batch: bit-sliced on the CPU
SELECT count(*) AS rows, count(*) FILTER (WHERE b.score <> braun_blanquet_similarity(d.q, t.tokens)) AS wrong
FROM (SELECT array_agg(tokens ORDER BY id) AS qs FROM docs WHERE id <= 700) a,
	 gpuvec_topk_batch('docs', 'tokens', a.qs, 20) b
	 JOIN (SELECT row_number() OVER (ORDER BY id) AS n, tokens AS q FROM docs WHERE id <= 700) d ON d.n = b.query
	 JOIN docs t ON t.ctid = b.tid;
SELECT count(*) AS different FROM (
	SELECT n, rank, tid, score FROM (SELECT array_agg(tokens ORDER BY id) AS qs FROM docs WHERE id BETWEEN 100 AND 400) a,
		gpuvec_topk_batch('docs', 'tokens', a.qs, 10, 'cosine') b(n, rank, source, tid, score, common)
	EXCEPT
	SELECT d.n, s.rank, s.tid, s.score FROM (SELECT row_number() OVER (ORDER BY id) AS n, tokens AS q FROM docs WHERE id BETWEEN 100 AND 400) d,
		LATERAL gpuvec_topk('docs', 'tokens', d.q, 10, 'cosine') s) x;
-- whole rows
SELECT t.rank, (t.item).id, t.score, t.common FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,2,3}', 3) t ORDER BY rank;
SELECT count(*), count(DISTINCT (t.item).id) FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', ARRAY['{1}','{2}']::idset[], 5) t;
-- the join by ctid is a nested loop of TID scans
EXPLAIN (COSTS OFF) SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{3,17}', 10) t JOIN docs d ON d.ctid = t.tid;
CREATE FUNCTION estimate(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	EXECUTE 'EXPLAIN ' || statement INTO line;
	RETURN substring(line FROM 'rows=(\d+)');
END $$;
SELECT estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}')$$) AS default_k, estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 7)$$) AS k7,
	   estimate($$SELECT * FROM gpuvec_topk_batch('docs', 'tokens', ARRAY['{3}','{4}','{5}']::idset[], 7)$$) AS batch;
SELECT estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', NULL)$$) AS all_rows,
	   estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', NULL, 'jaccard', 0.5)$$) AS of_score, estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 7, 'jaccard', 0.5)$$) AS k7_of_score;
-- results become tables, views and materialized views
CREATE TABLE t1 AS SELECT * FROM gpuvec_topk('docs', 'tokens', '{1}', 2);
CREATE TABLE t2 AS SELECT * FROM gpuvec_topk_batch('docs', 'tokens', '{"{1}","{2}"}', 2);
CREATE TABLE t3 AS SELECT * FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1}', 2);
CREATE TABLE t4 AS SELECT * FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', '{"{1}","{2}"}', 2);
CREATE VIEW v1 AS SELECT * FROM gpuvec_topk('docs', 'tokens', '{1}', 2);
CREATE MATERIALIZED VIEW m1 AS SELECT d.id, d.tokens, t.score FROM gpuvec_topk('docs', 'tokens', '{1}', 20) t JOIN docs d ON d.ctid = t.tid;
SELECT (SELECT count(*) FROM t1) AS t1, (SELECT count(*) FROM t2) AS t2, (SELECT count(*) FROM t3) AS t3, (SELECT count(*) FROM t4) AS t4,
	   (SELECT count(*) FROM v1) AS v1, (SELECT count(*) FROM m1) AS m1;
SELECT same('m1', '{1,2}', 10, 'jaccard') AS materialized_view;
-- partitions and inheritance
CREATE TABLE part (id int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (1000);
CREATE TABLE part2 (extra text, id int, tokens idset);
ALTER TABLE part2 DROP COLUMN extra;
ALTER TABLE part ATTACH PARTITION part2 FOR VALUES FROM (1000) TO (2000);
CREATE TABLE part3 PARTITION OF part FOR VALUES FROM (2000) TO (30000) PARTITION BY RANGE (id);
CREATE TABLE part3a PARTITION OF part3 FOR VALUES FROM (2000) TO (30000);
INSERT INTO part SELECT * FROM docs;
SELECT measure, same('part', q, 30, measure) AS k30, same('part', q, NULL, measure, 0.3) AS "all" FROM measures, queries WHERE qid = 6 ORDER BY measure;
SELECT count(*), count(DISTINCT source) FROM gpuvec_topk('part', 'tokens', '{1,2,3}', 200) t JOIN part p ON (p.tableoid, p.ctid) = (t.source, t.tid);
SELECT (t.item).id, t.score FROM gpuvec_topk_rows(NULL::part, 'tokens', '{5,9,13,17,21}', 5) t ORDER BY rank;
CREATE TABLE parent (id int, tokens idset);
CREATE TABLE child (more text) INHERITS (parent);
INSERT INTO parent VALUES (1, '{1,2}');
INSERT INTO child VALUES (2, '{1,2}', 'x');
SELECT source, score FROM gpuvec_topk('parent', 'tokens', '{1,2}');
SELECT (item).id, (item).tokens FROM gpuvec_topk_rows(NULL::parent, 'tokens', '{1,2}');
-- empty tables
CREATE TABLE nothing (tokens idset);
SELECT count(*) FROM gpuvec_topk('nothing', 'tokens', '{1}');
SELECT count(*) FROM gpuvec_topk('nothing', 'tokens', '{1}', 10, 'hamming');
-- long sets, out of line
CREATE TABLE long (id int, tokens idset);
INSERT INTO long SELECT i, (SELECT idset_agg((j * (i % 7 + 1)) % 65536) FROM generate_series(1, 1600 * i) j) FROM generate_series(1, 15) i;
INSERT INTO long SELECT 100, idset_agg(i) FROM generate_series(0, 65535) i;
SELECT measure, same('long', (SELECT tokens FROM long WHERE id = 5), 7, measure) AS some, same('long', (SELECT tokens FROM long WHERE id = 100), 70, measure) AS everything
FROM measures ORDER BY measure;
DROP TABLE docs, part, parent, nothing, long, t1, t2, t3, t4 CASCADE;
DROP VIEW measures, queries;
DROP FUNCTION brute, same, estimate;
