-- A materialized view without data is no table without rows: every function raises the server's error, and takes the view once it has data.
CREATE TABLE unpopulated_sets AS SELECT i AS id, ARRAY[i % 7, i % 5 + 10]::idset AS s FROM generate_series(1, 50) i;
CREATE TABLE unpopulated_clicks AS SELECT i % 9 AS u, i % 7 AS i, 1 + i % 3 AS w FROM generate_series(1, 60) i GROUP BY 1, 2, 3;
CREATE TABLE unpopulated_users AS SELECT i::bigint AS key, ARRAY[i, 1 - i]::real[] AS embedding FROM generate_series(0, 8) i;
CREATE TABLE unpopulated_items AS SELECT i::bigint AS key, ARRAY[1, i]::real[] AS embedding FROM generate_series(0, 6) i;
CREATE MATERIALIZED VIEW mv_sets AS TABLE unpopulated_sets WITH NO DATA;
CREATE INDEX ON mv_sets USING gpuvec (s);
CREATE MATERIALIZED VIEW mv_plain AS TABLE unpopulated_sets WITH NO DATA;
CREATE MATERIALIZED VIEW mv_clicks AS TABLE unpopulated_clicks WITH NO DATA;
CREATE MATERIALIZED VIEW mv_users AS TABLE unpopulated_users WITH NO DATA;
CREATE MATERIALIZED VIEW mv_items AS TABLE unpopulated_items WITH NO DATA;
CREATE VIEW view_clicks AS TABLE mv_clicks;
CREATE VIEW view_sets AS SELECT * FROM mv_sets ORDER BY s <-> '{1,11}' LIMIT 3;
-- each statement reads one of the views
CREATE TABLE unpopulated_statements (n int GENERATED ALWAYS AS IDENTITY, statement text);
INSERT INTO unpopulated_statements (statement) VALUES
	($$SELECT count(*) FROM gpuvec_topk('mv_sets', 's', '{1,11}', 5)$$),
	($$SELECT gpuvec_topk('mv_plain', 's', '{1,11}', 5)$$),
	($$SELECT count(*) FROM gpuvec_topk('mv_plain', 's', '{}', 1)$$),
	($$SELECT count(*) FROM gpuvec_topk('mv_plain', 's', '{1}', 5, 'jaccard', 0.5)$$),
	($$SELECT count(*) FROM gpuvec_topk('mv_sets', 's', '{1}', 5, among => '{"(0,1)"}')$$),
	($$SELECT count(*) FROM gpuvec_topk_batch('mv_sets', 's', '{"{1}","{2,3}"}', 5)$$),
	($$SELECT count(*) FROM gpuvec_topk_batch('mv_plain', 's', '{}', 5)$$),
	($$SELECT count(*) FROM gpuvec_topk_rows(NULL::mv_sets, 's', '{1}', 5)$$),
	($$SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::mv_plain, 's', '{"{1}"}', 5)$$),
	($$SELECT count(*) FROM gpuvec_overlaps('mv_sets', 's', '{"{1}","{2,3}"}')$$),
	($$SELECT count(*) FROM gpuvec_vec_topk('mv_sets', 's', '{1:2,11:1}', 5)$$),
	($$SELECT count(*) FROM gpuvec_vec_topk_batch('mv_plain', 's', '{"{1:0.5}"}', 5, 'cosine')$$),
	($$SELECT count(*) FROM gpuvec_vec_topk_rows(NULL::mv_plain, 's', '{1:0.5}', 5, 'jaccard')$$),
	($$SELECT count(*) FROM gpuvec_vec_topk_batch_rows(NULL::mv_sets, 's', '{"{1:0.5}"}', 5)$$),
	($$SELECT id FROM mv_sets ORDER BY s <#> '{1:2,11:1}'::idvec LIMIT 3$$),
	($$SELECT count(*) FROM unpopulated_sets t, gpuvec_topk('mv_plain', 's', t.s, 2)$$),
	($$SELECT id FROM mv_sets ORDER BY s <-> '{1,11}' LIMIT 3$$),
	($$SELECT count(*) FROM mv_sets WHERE s && '{1}'$$),
	($$SELECT count(*) FROM view_sets$$),
	($$SELECT gpuvec_prewarm('mv_sets', 's')$$),
	($$SELECT gpuvec_prewarm('mv_plain', 's')$$),
	($$SELECT gpuvec_prewarm('mv_items', 'key', 'embedding')$$),
	($$SELECT count(*) FROM gpuvec_gather('mv_items', 'key', 'embedding', '{1,2}')$$),
	($$SELECT count(*) FROM gpuvec_gather('mv_items', 'key', 'embedding', '{}')$$),
	($$SELECT count(*) FROM gpuvec_gather_batch('mv_items', 'key', 'embedding', '{1,2}', hotness => 1)$$),
	($$SELECT gpuvec_pool('mv_items', 'key', 'embedding', '{1}')$$),
	($$SELECT gpuvec_pool('mv_items', 'key', 'embedding', '{}')$$),
	($$SELECT gpuvec_pool('mv_items', 'key', 'embedding', '{1}', missing => 'error')$$),
	($$SELECT count(*) FROM gpuvec_pool_batch('mv_items', 'key', 'embedding', '{1,2}', hotness => 1)$$),
	($$SELECT gpuvec_sum_agg('mv_items', 'key', 'embedding', key) FROM unpopulated_items$$),
	($$SELECT gpuvec_weighted_sum_agg('mv_items', 'key', 'embedding', key, 1) FROM unpopulated_items$$),
	($$SELECT gpuvec_pool_agg('mv_items', 'key', 'embedding', key, 1, 'mean', 'skip') FROM unpopulated_items$$),
	($$SELECT count(*) FROM gpuvec_pool_grad('mv_items', 'key', 'embedding', '{1}', '{1,2}')$$),
	($$SELECT count(*) FROM gpuvec_pool_grad_batch('mv_items', 'key', 'embedding', '{1,2}', '{1,2,3,4}', hotness => 1)$$),
	($$SELECT gpuvec_pool_grad_weights('mv_items', 'key', 'embedding', '{1}', '{1,2}')$$),
	($$SELECT count(*) FROM gpuvec_pool_grad_weights_batch('mv_items', 'key', 'embedding', '{1,2}', '{1,2,3,4}', hotness => 1)$$),
	($$SELECT count(*) FROM gpuvec_nearest('mv_items', 'key', 'embedding', '{1,2}', 3)$$),
	($$SELECT count(*) FROM gpuvec_nearest_batch('mv_items', 'key', 'embedding', '{{1,2},{3,4}}', 3)$$),
	($$SELECT count(*) FROM gpuvec_nearest_keys('mv_items', 'key', 'embedding', '{1,2}', 3)$$),
	($$SELECT count(*) FROM gpuvec_recommend('mv_users', 'unpopulated_items', NULL, 2)$$),
	($$SELECT count(*) FROM gpuvec_recommend('unpopulated_users', 'mv_items', NULL, 2)$$),
	($$SELECT count(*) FROM gpuvec_recommend('mv_users', 'unpopulated_items', '{1,2}', 2)$$),
	($$SELECT count(*) FROM gpuvec_recommend('unpopulated_users', 'mv_items', '{1,2}', 2)$$),
	($$SELECT count(*) FROM gpuvec_recommend('unpopulated_users', 'unpopulated_items', NULL, 2, 'mv_clicks', 'u', 'i')$$),
	($$SELECT count(*) FROM gpuvec_recommend('unpopulated_users', 'unpopulated_items', '{1}', 2, 'view_clicks', 'u', 'i')$$),
	($$SELECT count(*) FROM gpuvec_als_fold_in('mv_clicks', 'u', 'i', 'unpopulated_items', NULL, 'w')$$),
	($$SELECT count(*) FROM gpuvec_als_fold_in('unpopulated_clicks', 'u', 'i', 'mv_items', '{1}', 'w')$$),
	($$SELECT count(*) FROM gpuvec_als_explain('mv_clicks', 'u', 'i', 'unpopulated_items', 1, 2, 'w')$$),
	($$SELECT count(*) FROM gpuvec_als_explain('unpopulated_clicks', 'u', 'i', 'mv_items', 1, 2, 'w')$$),
	($$SELECT count(*) FROM gpuvec_item_neighbors('mv_clicks', 'u', 'i', 3, 'w')$$),
	($$SELECT count(*) FROM gpuvec_item_neighbors('view_clicks', 'u', 'i', 3)$$),
	($$SELECT count(*) FROM gpuvec_als('mv_clicks', 'u', 'i', 'als_users', 'als_items', factors => 2)$$);
CREATE TABLE als_users (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE als_items (key bigint PRIMARY KEY, embedding real[]);
-- what a statement raises, but for the view's name
CREATE FUNCTION unpopulated_raises(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, '"mv_[a-z]+"', '"mv"') || ' ' || hint;
END $$;
SELECT unpopulated_raises('SELECT FROM mv_sets') AS server \gset
SELECT :'server';
SELECT statement, unpopulated_raises(statement) AS raises FROM unpopulated_statements WHERE unpopulated_raises(statement) <> :'server' ORDER BY n;
-- no function that reads a relation is left out; those that are write one, or read none
SELECT p.proname FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'gpuvec'
	WHERE ('regclass'::regtype = ANY (p.proargtypes) OR 'anyelement'::regtype = ANY (p.proargtypes)) AND p.proname NOT LIKE '%transfn'
		AND NOT EXISTS (SELECT FROM unpopulated_statements WHERE statement LIKE '%' || p.proname || '(%') GROUP BY 1 ORDER BY 1;
-- who may not read the view hears of that first
CREATE ROLE unpopulated_reader;
SET ROLE unpopulated_reader;
SELECT gpuvec_topk('public.mv_sets', 's', '{1}', 5);
SELECT gpuvec_pool('public.mv_items', 'key', 'embedding', '{1}');
RESET ROLE;
DROP ROLE unpopulated_reader;
-- with data, and without it again, in statements that are prepared and functions that have been called
PREPARE unpopulated_topk AS SELECT count(*) FROM gpuvec_topk('mv_plain', 's', '{1,11}', 5);
PREPARE unpopulated_gather AS SELECT count(*) FROM gpuvec_gather('mv_items', 'key', 'embedding', '{1,2}');
EXECUTE unpopulated_topk;
REFRESH MATERIALIZED VIEW mv_sets;
REFRESH MATERIALIZED VIEW mv_plain;
REFRESH MATERIALIZED VIEW mv_clicks;
REFRESH MATERIALIZED VIEW mv_users;
REFRESH MATERIALIZED VIEW mv_items;
SELECT statement, unpopulated_raises(statement) AS raises FROM unpopulated_statements WHERE unpopulated_raises(statement) <> 'nothing' ORDER BY n;
EXECUTE unpopulated_topk;
EXECUTE unpopulated_gather;
REFRESH MATERIALIZED VIEW mv_sets WITH NO DATA;
REFRESH MATERIALIZED VIEW mv_plain WITH NO DATA;
REFRESH MATERIALIZED VIEW mv_clicks WITH NO DATA;
REFRESH MATERIALIZED VIEW mv_users WITH NO DATA;
REFRESH MATERIALIZED VIEW mv_items WITH NO DATA;
EXECUTE unpopulated_topk;
EXECUTE unpopulated_gather;
SELECT statement, unpopulated_raises(statement) AS raises FROM unpopulated_statements WHERE unpopulated_raises(statement) <> :'server' ORDER BY n;
-- relations that have no rows at all
CREATE SEQUENCE unpopulated_sequence;
CREATE TYPE unpopulated_type AS (id int, s idset);
SELECT gpuvec_topk('unpopulated_sequence', 's', '{1}', 5);
SELECT gpuvec_pool('unpopulated_sequence', 'key', 'embedding', '{1}');
SELECT gpuvec_topk('unpopulated_type', 's', '{1}', 5);
SELECT gpuvec_pool('unpopulated_type', 'key', 'embedding', '{1}');
SELECT gpuvec_als('unpopulated_sequence', 'u', 'i', 'als_users', 'als_items');
SELECT gpuvec_als('unpopulated_type', 'u', 'i', 'als_users', 'als_items');
DEALLOCATE unpopulated_topk;
DEALLOCATE unpopulated_gather;
DROP SEQUENCE unpopulated_sequence;
DROP TYPE unpopulated_type;
DROP FUNCTION unpopulated_raises;
DROP VIEW view_clicks, view_sets;
DROP MATERIALIZED VIEW mv_sets, mv_plain, mv_clicks, mv_users, mv_items;
DROP TABLE unpopulated_sets, unpopulated_clicks, unpopulated_users, unpopulated_items, unpopulated_statements, als_users, als_items;
