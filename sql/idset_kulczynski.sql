-- The measure kulczynski: values, ties of sets of other lengths, extremes, and
-- searches compared with plain SQL.
SET extra_float_digits = 1;
-- the mean of both containments; 0/0 is 0
SELECT kulczynski_similarity('{1,2,3,4}', '{1,2,9}') AS seven_twelfths, kulczynski_similarity('{1,2,9}', '{1,2,3,4}') AS turned,
	kulczynski_similarity('{1,2}', '{1,2}') AS same, kulczynski_similarity('{1}', '{2}') AS nothing, kulczynski_similarity('{}', '{}') AS empty,
	kulczynski_similarity('{}', '{1}') AS no_query, kulczynski_similarity('{1}', '{}') AS no_row, kulczynski_similarity(NULL, '{1}') IS NULL AS strict,
	kulczynski_similarity('{1,70000}', '{70000,4000000000}') AS wide;
-- the longest sets: one common id, one that is missing, all
SELECT kulczynski_similarity('{0}', s) = (65537::float8 / 131072) AS one, kulczynski_similarity(s - 0, s) < 1 AS nearly, kulczynski_similarity(s, s) = 1 AS "all",
	kulczynski_similarity(s, (SELECT idset_agg(i) FROM generate_series(65535, 131070) i)) * 65536 = 1 AS last
FROM (SELECT idset_agg(i) AS s FROM generate_series(0, 65535) i) x;
-- names, as of any measure; the hint has it
SELECT name, '{1,2,9}'::idset <<->> ('{1,2,3,4}', 7 / 12.0, name) AS finds, '{1,2,9}'::idset <<->> ('{1,2,3,4}', 7 / 12.0 + 2.0 ^ -52, name) AS not_more FROM unnest(ARRAY['kulczynski', 'Kulczynski']) name;
SELECT '{1}'::idset <<->> ('{1}', 0.5, 'kulczynsky');

-- i common ids with a query of twelve, of b = 12i / (12 - i): all these are
-- one half, and those of 12i / (16 - i) two thirds
CREATE TABLE halves (id serial, tokens idset);
INSERT INTO halves (tokens)
SELECT ARRAY(SELECT g FROM generate_series(0, i - 1) g UNION ALL SELECT 1000 + copy * 200 + g FROM generate_series(1, b - i) g)::idset
FROM generate_series(1, 12) i, unnest('{12,16}'::int[]) n, LATERAL (SELECT 12 * i / nullif(n - i, 0) AS b) x, generate_series(1, 40) copy
WHERE 12 * i % nullif(n - i, 0) = 0 AND b >= i
ORDER BY hashint4(copy * 7919 + i * 31 + b), i, b, copy;
SELECT kulczynski_similarity('{0,1,2,3,4,5,6,7,8,9,10,11}', tokens) AS score, count(*) AS rows, count(DISTINCT cardinality(tokens)) AS lengths FROM halves GROUP BY 1 ORDER BY 1;
INSERT INTO halves (tokens) SELECT CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN '{}'::idset ELSE idset_range('{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}', i % 7, i % 16) END FROM generate_series(1, 300) i;
INSERT INTO halves (tokens) SELECT idset_agg(i) FROM generate_series(0, 65535) i;
-- the formula, in numeric, which is rounded once
CREATE TABLE queries AS SELECT row_number() OVER () AS n, q FROM unnest('{"{0,1,2,3,4,5,6,7,8,9,10,11}","{0}","{}","{3,70000}","{60000}","{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,1201}"}'::idset[]) q;
INSERT INTO queries VALUES (7, NULL), (8, (SELECT idset_agg(i) FROM generate_series(3, 65535) i));
CREATE TABLE wanted AS
SELECT n, ctid AS tid, common, coalesce(((common * (a + b))::numeric(60, 40) / nullif(2 * a::numeric * b, 0))::float8, 0) AS score
FROM (SELECT n, d.ctid, cardinality(q)::int8 AS a, cardinality(tokens) AS b, cardinality(q & tokens) AS common FROM queries, halves d WHERE tokens IS NOT NULL AND q IS NOT NULL) x;
SELECT count(*) AS pairs, count(*) FILTER (WHERE float8send(kulczynski_similarity(q, tokens)) <> float8send(score)) AS wrong
FROM wanted w JOIN queries USING (n) JOIN halves d ON d.ctid = w.tid;
-- searches: k, thresholds, batches and rows among others
CREATE FUNCTION wrong(k int, bound float8) RETURNS TABLE (rows bigint, singly bigint, batch bigint) LANGUAGE sql AS $$
	WITH best AS (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY score DESC, tid) AS rank FROM wanted WHERE common > 0 AND (bound IS NULL OR score >= bound)) x WHERE k IS NULL OR rank <= k),
	single AS (SELECT n, t.rank::int8, t.tid, t.common, t.score FROM queries, gpuvec_topk('halves', 'tokens', q, k, 'kulczynski', bound) t),
	many AS (SELECT t.query::int8 AS n, t.rank::int8, t.tid, t.common, t.score FROM gpuvec_topk_batch('halves', 'tokens', (SELECT array_agg(q ORDER BY n) FROM queries), k, 'kulczynski', bound) t)
	SELECT (SELECT count(*) FROM best),
		(SELECT count(*) FROM best FULL JOIN single USING (n, rank, tid, common, score) WHERE best.n IS NULL OR single.n IS NULL),
		(SELECT count(*) FROM best FULL JOIN many USING (n, rank, tid, common, score) WHERE best.n IS NULL OR many.n IS NULL) $$;
SELECT k, bound, w.* FROM unnest('{1,7,100,1000,NULL}'::int[]) k, unnest('{NULL,-1,0,0.5,0.6666666666666666,0.6666666666666667,1,1.1}'::float8[]) bound, wrong(k, bound) w WHERE k IS NOT NULL OR bound IS NOT NULL ORDER BY 1, 2;
SELECT count(*) FILTER (WHERE found IS DISTINCT FROM best) AS wrong FROM (SELECT
	(SELECT array_agg(t.tid ORDER BY t.rank) FROM gpuvec_topk('halves', 'tokens', q, 20, 'kulczynski', among => a.tids) t) AS found,
	(SELECT array_agg(tid ORDER BY score DESC, tid) FROM (SELECT * FROM wanted w WHERE w.n = queries.n AND common > 0 AND tid = ANY (a.tids) ORDER BY score DESC, tid LIMIT 20) x) AS best
	FROM queries, (SELECT array_agg(ctid) AS tids FROM halves WHERE id % 3 = 0) a) x;
-- conditions that an index searches for; no index has its order
CREATE INDEX halves_tokens ON halves USING gpuvec (tokens);
SELECT k, bound, w.singly, w.batch FROM unnest('{7,NULL}'::int[]) k, unnest('{NULL,0.5,0.6666666666666666}'::float8[]) bound, wrong(k, bound) w WHERE k IS NOT NULL OR bound IS NOT NULL ORDER BY 1, 2;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM halves WHERE kulczynski_similarity(tokens, '{0,1,2}') >= 0.5;
RESET enable_seqscan;
EXPLAIN (COSTS OFF) SELECT id FROM halves ORDER BY kulczynski_similarity(tokens, '{0,1,2}') DESC LIMIT 3;
SET enable_seqscan = off;
SELECT n, (SELECT count(*) FROM halves WHERE tokens <<->> (q, 0.5, 'kulczynski')) AS threshold, (SELECT count(*) FROM halves WHERE kulczynski_similarity(q, tokens) >= 0.5) AS comparison,
	(SELECT count(*) FROM wanted w WHERE w.n = queries.n AND score >= 0.5) AS wanted FROM queries ORDER BY n;
RESET enable_seqscan;
DROP TABLE halves, queries, wanted;
DROP FUNCTION wrong;
RESET extra_float_digits;
