-- Searches among given rows, compared with brute force in SQL; by both ways, fetching and filtering.
CREATE SCHEMA among;
SET search_path = among, public;
CREATE TABLE docs (id int PRIMARY KEY, tenant int, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 70);
INSERT INTO docs SELECT i, i % 20, (SELECT idset_agg((i * 31 + j * j * (1 + i % 13)) % 65536 % (CASE WHEN i % 3 = 0 THEN 40 ELSE 400 END))
								   FROM generate_series(1, i % 31) j) FROM generate_series(1, 3000) i;
INSERT INTO docs VALUES (10001, 1, NULL), (10002, 1, '{}'), (10003, 1, '{1}');
INSERT INTO docs SELECT 20000 + i, 7, '{1,2,3}' FROM generate_series(1, 200) i;  -- ties
-- row versions: dead, moved, moved on the same page
CREATE TABLE old AS SELECT ctid AS tid, id FROM docs;
DELETE FROM docs WHERE id % 17 = 0;
UPDATE docs SET tokens = tokens | 3 WHERE id % 10 = 0;
UPDATE docs SET tenant = tenant WHERE id % 7 = 0;
CREATE TABLE docs_indexed AS SELECT * FROM docs WITH NO DATA;
ALTER TABLE docs_indexed SET (autovacuum_enabled = off, fillfactor = 70);
CREATE INDEX ON docs_indexed USING gpuvec (tokens);
INSERT INTO docs_indexed SELECT * FROM docs;
UPDATE docs_indexed SET tenant = tenant WHERE id % 4 = 0;
CREATE UNLOGGED TABLE docs_unlogged AS SELECT * FROM docs;
CREATE MATERIALIZED VIEW docs_view AS SELECT * FROM docs;
ANALYZE;

CREATE FUNCTION brute(rel regclass, q idset, k bigint, measure text, min_score float8, among tid[])
RETURNS TABLE (rank bigint, source regclass, tid tid, score float8, common int) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		SELECT row_number() OVER (ORDER BY score DESC, tid), %L::regclass, tid, score, n FROM (
			SELECT ctid AS tid, n, CASE $2
				WHEN 'braun_blanquet' THEN n::float8 / nullif(greatest(a, b), 0)
				WHEN 'jaccard' THEN n::float8 / nullif(a + b - n, 0)
				WHEN 'cosine' THEN sqrt(n::float8 * n / nullif(a::float8 * b, 0))
				WHEN 'dice' THEN 2 * n::float8 / nullif(a + b, 0)
				WHEN 'overlap' THEN n::float8 / nullif(least(a, b), 0)
				WHEN 'containment' THEN n::float8 / nullif(a, 0)
				WHEN 'intersection' THEN n::float8
				WHEN 'hamming' THEN (-(a + b - 2 * n))::float8
				WHEN 'kulczynski' THEN n::float8 * (a + b) / nullif(2 * a::float8 * b, 0) END AS score
			FROM (SELECT ctid, cardinality($1) AS a, cardinality(tokens) AS b,
						 cardinality(ARRAY(SELECT unnest($1) INTERSECT SELECT unnest(tokens))) AS n
				  FROM %s WHERE tokens IS NOT NULL AND ($5 IS NULL OR ctid IN (SELECT unnest($5)))) x
			WHERE n > 0 OR $2 = 'hamming') y
		WHERE $4 IS NULL OR score >= $4
		ORDER BY 1 LIMIT $3 $q$, rel, rel) USING q, measure, k, min_score, among;
END $$;
CREATE FUNCTION same(rel regclass, q idset, k bigint, measure text, min_score float8, tids tid[]) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN array_agg(g::text ORDER BY g.rank) IS NOT DISTINCT FROM
			(SELECT array_agg(b::text ORDER BY b.rank) FROM brute(rel, q, k, measure, min_score, tids) b)
		THEN count(g.*)::text ELSE 'different' END
	FROM gpuvec_topk(rel, 'tokens', q, k, measure, min_score, tids) g
$$;
-- how many searches the engine has done for a table
CREATE FUNCTION searches(rel regclass) RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT coalesce((SELECT searches FROM gpuvec_mirrors WHERE relation = rel), 0) $$;
-- the rows whose numbers modulo m are 0, in no order
CREATE FUNCTION nth(rel regclass, m int) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE tids tid[];
BEGIN
	EXECUTE format('SELECT array_agg(ctid ORDER BY id * 7919 %% 1000, id) FROM %s WHERE id %% $1 = 0', rel) INTO tids USING m;
	RETURN tids;
END $$;
CREATE VIEW measures AS SELECT unnest(ARRAY['braun_blanquet','jaccard','cosine','dice','overlap','containment','intersection','hamming','kulczynski']) AS measure;

-- few rows are fetched, the engine is not asked; most rows are filtered
SELECT gpuvec_prewarm('docs', 'tokens') > 2500 AS rows, gpuvec_prewarm('docs_indexed', 'tokens') > 2500 AS roots;
SELECT searches('docs') AS before \gset
SELECT measure, same('docs', '{1,2,3,40,99}', 10, measure, NULL, nth('docs', 100)) AS k10,
	   same('docs', '{1,2,3,40,99}', 100000, measure, NULL, nth('docs', 100)) AS "all" FROM measures;
SELECT searches('docs') - :before AS searches;
SELECT searches('docs') AS before \gset
SELECT measure, same('docs', '{1,2,3,40,99}', 1, measure, NULL, nth('docs', 2)) AS k1,
	   same('docs', '{1,2,3,40,99}', 10, measure, NULL, nth('docs', 2)) AS k10,
	   same('docs', '{1,2,3,40,99}', 100, measure, NULL, nth('docs', 1)) AS k100 FROM measures;
SELECT searches('docs') - :before >= 24 AS searched;
-- the same with an index, whose mirror knows roots of HOT chains
SELECT searches('docs_indexed') AS before \gset
SELECT measure, same('docs_indexed', '{1,2,3,40,99}', 10, measure, NULL, nth('docs_indexed', 100)) AS k10,
	   same('docs_indexed', '{1,2,3,40,99}', 100000, measure, NULL, nth('docs_indexed', 100)) AS "all" FROM measures;
SELECT searches('docs_indexed') - :before AS searches;
SELECT searches('docs_indexed') AS before \gset
SELECT measure, same('docs_indexed', '{1,2,3,40,99}', 1, measure, NULL, nth('docs_indexed', 4)) AS k1,
	   same('docs_indexed', '{1,2,3,40,99}', 10, measure, NULL, nth('docs_indexed', 2)) AS k10,
	   same('docs_indexed', '{1,2,3,40,99}', 100, measure, NULL, nth('docs_indexed', 1)) AS k100 FROM measures;
SELECT searches('docs_indexed') - :before >= 24 AS searched;
-- ties, in all sizes between
SELECT m, k, same('docs', '{1,2,3}', k, 'jaccard', NULL, nth('docs', m)) AS plain, same('docs_indexed', '{1,2,3}', k, 'jaccard', NULL, nth('docs_indexed', m)) AS indexed
FROM unnest(ARRAY[1,2,3,5,9,20,60,300]) m, unnest(ARRAY[1,7,50,150]) k ORDER BY m, k;
-- thresholds, with and without k
SELECT m, same('docs', '{1,2,3}', 20, 'jaccard', 0.5, nth('docs', m)) AS k20, same('docs', '{1,2,3}', NULL, 'jaccard', 0.9, nth('docs', m)) AS many,
	   same('docs', '{1,2,3,4,5,6,7}', NULL, 'cosine', 0.01, nth('docs', m)) AS "all", same('docs', '{1,2,3}', NULL, 'hamming', -4, nth('docs', m)) AS within_4
FROM unnest(ARRAY[1,2,20,200]) m ORDER BY m;
-- rows that have little or nothing in common with the query: asked for, abandoned, and fetched
SELECT searches('docs') AS before \gset
SELECT measure, same('docs', '{1,2,3,5,7,11,13,17,19,40,99}', 10, measure, NULL, a.tids) AS least, same('docs', '{1,2,3}', 50, measure, NULL, b.tids) AS none
FROM measures, (SELECT ARRAY(SELECT ctid FROM docs WHERE tokens && '{1,2,3,5,7,11,13,17,19,40,99}' ORDER BY jaccard_similarity(tokens, '{1,2,3,5,7,11,13,17,19,40,99}') LIMIT 400) AS tids) a,
	 (SELECT ARRAY(SELECT ctid FROM docs WHERE NOT tokens && '{1,2,3}' OR id = 20003) AS tids) b;
SELECT searches('docs') - :before >= 16 AS searched;
-- tables that are copied for the call, or for which that is too much
SELECT m, same('docs_unlogged', '{1,2,3,99}', 30, 'dice', NULL, nth('docs_unlogged', m)) AS unlogged, same('docs_view', '{1,2,3,99}', 30, 'dice', NULL, nth('docs_view', m)) AS view
FROM unnest(ARRAY[1,2,20,200]) m ORDER BY m;
-- every method of the engine
SET gpuvec.method = 'bitset';
SELECT same('docs', '{1,2,3,40,99}', 100, 'cosine', NULL, nth('docs', 2)) AS bitset;
SET gpuvec.method = 'inverted';
SELECT same('docs', '{1,2,3,40,99}', 100, 'cosine', NULL, nth('docs', 2)) AS inverted;
RESET gpuvec.method;

-- NULL is no restriction, an empty array one to nothing
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2}', 25, among => NULL);
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2}', 25, among => '{}');
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2}', 25, among => ARRAY[NULL]::tid[]);
SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', ARRAY['{1}', '{2}']::idset[], 25, among => '{}');
-- NULLs and repetitions among the tids; tids of no row
SELECT id, rank FROM gpuvec_topk('docs', 'tokens', '{1,2,3}', among => (SELECT ARRAY[NULL, max(ctid), NULL, max(ctid), max(ctid)] FROM docs WHERE id = 20001)) t JOIN docs d ON d.ctid = t.tid;
SELECT id, rank FROM gpuvec_topk('docs', 'tokens', '{1,2,3}', among => (SELECT ARRAY[ARRAY['(0,0)', '(0,65535)', '(9999999,1)'], ARRAY['(4294967294,1)', '(4294967295,1)', max(ctid)::text]]::tid[]
	FROM docs WHERE id = 20001)) t JOIN docs d ON d.ctid = t.tid;
SELECT same('docs', '{1,2,3}', 30, 'dice', NULL, nth('docs', 2) || nth('docs', 3) || '{"(0,0)","(0,65535)","(9999999,1)","(4294967295,1)",NULL}'::tid[]) AS filtered;
-- dead versions: of deleted rows, and of updated ones, which are not followed
SELECT same('docs', '{1,2,3}', 30, 'dice', NULL, ARRAY(SELECT tid FROM old WHERE id % 17 = 0 OR id % 10 = 0 OR id = 20001)) AS few,
	   same('docs', '{1,2,3}', 30, 'dice', NULL, ARRAY(SELECT tid FROM old)) AS many;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{3}', 10000, among => ARRAY(SELECT o.tid FROM old o JOIN docs d USING (id) WHERE d.ctid <> o.tid));
-- the statement's snapshot decides, its own transaction's changes included
BEGIN;
INSERT INTO docs VALUES (30001, 0, '{1,2,3,4,5,6,7,8}');
UPDATE docs SET tokens = tokens | 8 WHERE id = 20001;
DELETE FROM docs WHERE id = 20002;
SELECT id, rank, score FROM gpuvec_topk('docs', 'tokens', '{1,2,3,4,5,6,7,8}', among => ARRAY(SELECT ctid FROM docs WHERE id IN (30001, 20001, 20002))) t JOIN docs d ON d.ctid = t.tid ORDER BY rank;
SELECT id, rank, score FROM gpuvec_topk('docs', 'tokens', '{1,2,3,4,5,6,7,8}', 2, among => ARRAY(SELECT ctid FROM docs)) t JOIN docs d ON d.ctid = t.tid ORDER BY rank;
ROLLBACK;

-- batches: some queries of one are rarer among the rows than others, one is NULL
CREATE VIEW queries AS SELECT array_agg(tokens ORDER BY id) AS sets FROM (SELECT id, tokens FROM docs WHERE id % 97 = 5 UNION ALL SELECT 0, '{1,2,3}' UNION ALL SELECT -1, NULL) q;
CREATE FUNCTION same_batch(rel regclass, k bigint, measure text, tids tid[]) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN array_agg(row(b.query, b.rank, b.tid, b.score, b.common)::text ORDER BY b.query, b.rank) IS NOT DISTINCT FROM
			(SELECT array_agg(row(n, s.rank, s.tid, s.score, s.common)::text ORDER BY n, s.rank)
			 FROM queries, unnest(sets) WITH ORDINALITY u(q, n), brute(rel, q, k, measure, NULL, tids) s)
		THEN count(*)::text ELSE 'different' END
	FROM queries, gpuvec_topk_batch(rel, 'tokens', sets, k, measure, among => tids) b
$$;
SELECT m, same_batch('docs', 12, 'cosine', nth('docs', m)) AS plain, same_batch('docs_indexed', 12, 'jaccard', nth('docs_indexed', m)) AS indexed,
	   same_batch('docs_unlogged', 12, 'overlap', nth('docs_unlogged', m)) AS unlogged
FROM unnest(ARRAY[1,2,9,60]) m ORDER BY m;
SELECT same_batch('docs', 12, 'cosine', ARRAY(SELECT ctid FROM docs WHERE NOT tokens && '{1,2,3}' OR id = 20003)) AS rare,
	   same_batch('docs', 3, 'cosine', ARRAY(SELECT ctid FROM docs WHERE tokens && '{1,2,3}' ORDER BY jaccard_similarity(tokens, '{1,2,3}') LIMIT 500)) AS rarer;
-- whole rows
SELECT t.rank, (t.item).id, t.score FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,2,3}', 3, among => ARRAY(SELECT ctid FROM docs WHERE tenant = 5)) t ORDER BY rank;
SELECT t.query, t.rank, (t.item).id, t.score FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', ARRAY['{1,2,3}', '{9}']::idset[], 2, among => ARRAY(SELECT ctid FROM docs WHERE tenant = 5)) t ORDER BY query, rank;

-- as a function scan, beside a column of each outer row
SELECT tenant, id, score FROM (VALUES (3), (4), (5)) v(tenant) CROSS JOIN LATERAL
	(SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{1,2,3,99}', 1, among => ARRAY(SELECT ctid FROM docs WHERE docs.tenant = v.tenant)) t JOIN docs d ON d.ctid = t.tid) x ORDER BY tenant;
-- a parameter of a plan node that is rescanned
PREPARE search(tid[]) AS SELECT d.id FROM gpuvec_topk('docs', 'tokens', '{1,2,3,99}', 1, among => $1) t JOIN docs d ON d.ctid = t.tid;
SET plan_cache_mode = force_generic_plan;
SELECT ARRAY(SELECT ctid FROM docs WHERE tenant = 3)::text AS tids \gset
EXECUTE search(:'tids');
SELECT ARRAY(SELECT ctid FROM docs WHERE tenant = 4)::text AS tids \gset
EXECUTE search(:'tids');
RESET plan_cache_mode;

-- the expected number of rows
CREATE FUNCTION estimate(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	EXECUTE 'EXPLAIN ' || statement INTO line;
	RETURN substring(line FROM 'rows=(\d+)');
END $$;
SELECT estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 7, among => '{"(0,1)","(0,2)","(0,3)"}')$$) AS tids3,
	   estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 2, among => '{"(0,1)","(0,2)","(0,3)"}')$$) AS k2,
	   estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', NULL, 'cosine', 0.5, '{"(0,1)","(0,2)","(0,3)"}')$$) AS no_k,
	   estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 2, among => '{}')$$) AS none,
	   estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 7, among => NULL)$$) AS k7,
	   estimate($$SELECT * FROM gpuvec_topk('docs', 'tokens', '{3}', 7, among => ARRAY(SELECT ctid FROM docs))$$) AS unknown,
	   estimate($$SELECT * FROM gpuvec_topk_batch('docs', 'tokens', ARRAY['{3}','{4}']::idset[], 7, among => '{"(0,1)","(0,2)","(0,3)"}')$$) AS batch;

-- parents: a tid does not say of which table
CREATE FUNCTION fails(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE d text; h text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ': ' || SQLERRM || CASE WHEN d <> '' THEN E'\n  detail: ' || d ELSE '' END || CASE WHEN h <> '' THEN E'\n  hint: ' || h ELSE '' END;
END $$;
\pset format unaligned
\pset tuples_only on
CREATE TABLE part (id int, tokens idset) PARTITION BY RANGE (id);
SELECT fails($$SELECT gpuvec_topk('part', 'tokens', '{1}', among => '{}')$$);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (30000);
INSERT INTO part SELECT id, tokens FROM docs;
SELECT fails($$SELECT gpuvec_topk('part', 'tokens', '{1}', among => '{"(0,1)"}')$$);
SELECT fails($$SELECT gpuvec_topk_batch_rows(NULL::part, 'tokens', ARRAY['{1}']::idset[], among => '{"(0,1)"}')$$);
SELECT count(*) FROM gpuvec_topk('part', 'tokens', '{1,2,3}', among => NULL);
SELECT same('part1', '{1,2,3}', 30, 'dice', NULL, nth('part1', 2));
CREATE TABLE parent (id int, tokens idset);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent VALUES (1, '{1,2}');
INSERT INTO child VALUES (2, '{1,2}');
SELECT fails($$SELECT gpuvec_topk('parent', 'tokens', '{1}', among => '{"(0,1)"}')$$);
SELECT tid, score FROM gpuvec_topk('child', 'tokens', '{1}', among => '{"(0,1)"}');
DROP TABLE child;
SELECT tid, score FROM gpuvec_topk('parent', 'tokens', '{1}', among => '{"(0,1)"}');
-- privileges and policies are those of all searches
CREATE ROLE regress_gpuvec_among;
GRANT USAGE ON SCHEMA among TO regress_gpuvec_among;
SET ROLE regress_gpuvec_among;
SELECT fails($$SELECT gpuvec_topk('parent', 'tokens', '{1}', among => '{"(0,1)"}')$$);
RESET ROLE;
GRANT SELECT ON parent TO regress_gpuvec_among;
SET ROLE regress_gpuvec_among;
SELECT fails($$SELECT gpuvec_topk('parent', 'tokens', '{1}', among => '{"(0,1)"}')$$);
RESET ROLE;
ALTER TABLE parent ENABLE ROW LEVEL SECURITY;
SET ROLE regress_gpuvec_among;
SELECT fails($$SELECT gpuvec_topk('parent', 'tokens', '{1}', among => '{"(0,1)"}')$$);
RESET ROLE;
\pset tuples_only off
\pset format aligned
SET client_min_messages = warning;
DROP SCHEMA among CASCADE;
DROP ROLE regress_gpuvec_among;
