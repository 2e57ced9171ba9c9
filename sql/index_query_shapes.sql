-- CREATE INDEX ... USING gpuvec: which queries use it, and what they return
CREATE SCHEMA index_shapes;
SET search_path = index_shapes, public;
-- 10,000 rows, 1,000 tenants with 10 rows each; 50 rows
CREATE TABLE docs (id int PRIMARY KEY, tenant int, tokens idset);
INSERT INTO docs SELECT i, i % 1000, (SELECT idset_agg((i::int8 * 7919 * j + j * j * 31 + i / 7) % 3000) FROM generate_series(1, 20 + i % 30) j)
	FROM generate_series(1, 10000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
CREATE INDEX docs_tenant ON docs (tenant);
CREATE TABLE few AS SELECT * FROM docs WHERE id <= 50;
CREATE INDEX few_tokens ON few USING gpuvec (tokens);
VACUUM ANALYZE docs;
VACUUM ANALYZE few;

-- What a query returns, row by row, against the same without index scans.  Rows of equal
-- distance come from the index in the order of their ctids (there are no updates here); a sort
-- is told so by what stands in /* */.
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	got text[];
	wanted text[];
BEGIN
	EXECUTE 'SELECT coalesce(array_agg(x::text), ''{}'') FROM (' || query || ') x' INTO got;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_bitmapscan = off;
	EXECUTE 'SELECT coalesce(array_agg(x::text), ''{}'') FROM (' || replace(replace(query, '/*', ''), '*/', '') || ') x' INTO wanted;
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_bitmapscan = on;
	RETURN CASE WHEN got = wanted THEN 'same ' || cardinality(got)
		ELSE format('%s rows instead of %s: %s... instead of %s...', cardinality(got), cardinality(wanted), got[:5], wanted[:5]) END;
END $$;
-- Its plan and that
CREATE FUNCTION show(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query;
	RETURN NEXT same(query);
END $$;
-- The kinds of nodes of its plan
CREATE FUNCTION nodes(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	RETURN (SELECT string_agg(m[1], ', ') FROM regexp_matches(plan::text, '"Node Type": "([^"]*)"', 'g') m);
END $$;

-- 1. the nearest rows
SELECT show($$SELECT id, tokens <-> '{1,31,62}' FROM docs ORDER BY tokens <-> '{1,31,62}' /*, ctid*/ LIMIT 100$$);
SELECT show($$SELECT id, tokens <=> '{1,31,62}' FROM docs ORDER BY tokens <=> '{1,31,62}' /*, ctid*/ LIMIT 10 OFFSET 20$$);
-- 2. of a table so small that a sort is faster, whatever pages cost
SELECT show($$SELECT id FROM few ORDER BY tokens <-> '{1,31,62}', ctid LIMIT 10$$);
EXPLAIN (COSTS OFF) SELECT id FROM few ORDER BY tokens <-> '{1,31,62}' LIMIT 10;
SET random_page_cost = 1;
EXPLAIN (COSTS OFF) SELECT id FROM few ORDER BY tokens <-> '{1,31,62}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}' LIMIT 10;
RESET random_page_cost;
-- 3. a filter that another index serves better, and one that keeps every second row
SELECT show($$SELECT id FROM docs WHERE tenant = 5 ORDER BY tokens <-> '{1,31,62}' /*, ctid*/ LIMIT 5$$);
SELECT show($$SELECT id FROM docs WHERE tenant < 500 ORDER BY tokens <-> '{1,31,62}' /*, ctid*/ LIMIT 5$$);
-- 4. rows with certain ids
SELECT show($$SELECT id FROM docs WHERE tokens && '{5}' ORDER BY id$$);
SELECT show($$SELECT id FROM docs WHERE tokens @> '{5,821}' ORDER BY id$$);
-- 5. these and what another index finds
SELECT show($$SELECT id FROM docs WHERE tokens && '{5,6,7}' AND tenant < 20 ORDER BY id$$);
-- 6. the nearest of those
-- (in the index's order; and found, then sorted, if the order is not the index's)
SELECT same($$SELECT id FROM docs WHERE tokens @> '{1}' ORDER BY tokens <-> '{1,31,62}' /*, ctid*/ LIMIT 5$$);
SET enable_incremental_sort = off;
SELECT show($$SELECT id FROM docs WHERE tokens @> '{1}' ORDER BY (tokens <-> '{1,31,62}') + 0, ctid LIMIT 5$$);
RESET enable_incremental_sort;
-- 7. the neighbours of each row of another table
SELECT show($$SELECT few.id, n.* FROM few, LATERAL
	(SELECT d.id, d.tokens <-> few.tokens FROM docs d ORDER BY d.tokens <-> few.tokens /*, d.ctid*/ LIMIT 3) n$$);
-- 8. a join of rows that are alike; one by any common id, which too many rows have for an index
SELECT show($$SELECT d.id FROM few JOIN docs d ON d.tokens <<->> (few.tokens, 3, 'intersection') WHERE few.id = 17 ORDER BY d.id$$);
SELECT show($$SELECT d.id FROM few JOIN docs d ON d.tokens && few.tokens WHERE few.id = 17 ORDER BY d.id$$);
-- 9. in a CTE
SELECT show($$WITH near AS MATERIALIZED (SELECT id, tenant FROM docs ORDER BY tokens <~> '{1,31,62}' /*, ctid*/ LIMIT 50)
	SELECT tenant % 10, count(*) FROM near GROUP BY 1 ORDER BY 1$$);
-- 10. a row for each distance
SELECT show($$SELECT DISTINCT ON (tokens <-> '{1,31,62}') id, tokens <-> '{1,31,62}' FROM docs
	ORDER BY tokens <-> '{1,31,62}' /*, ctid*/ LIMIT 7$$);
-- 11. the nearest of two sets
SELECT q, regexp_replace(nodes(q), '(Subquery Scan|Result), ', '', 'g') AS nodes, same(q) FROM (SELECT
	$$(SELECT 1, id FROM docs ORDER BY tokens <-> '{1,31,62}' /*, ctid*/ LIMIT 3) UNION ALL
	(SELECT 2, id FROM docs ORDER BY tokens <%> '{7,40}' /*, ctid*/ LIMIT 3)$$ AS q) x \gx
-- 12. a partitioned table
CREATE TABLE parts (id int, tenant int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (5001);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (5001) TO (MAXVALUE);
INSERT INTO parts SELECT * FROM docs;
CREATE INDEX parts_tokens ON parts USING gpuvec (tokens);
VACUUM ANALYZE parts;
EXPLAIN (COSTS OFF) SELECT id FROM parts ORDER BY tokens <-> '{1,31,62}' LIMIT 10;
SELECT same($$SELECT tokens <-> '{1,31,62}' FROM parts ORDER BY tokens <-> '{1,31,62}' LIMIT 200$$);
SELECT count(DISTINCT id) FROM (SELECT id FROM parts ORDER BY tokens <-> '{1,31,62}' LIMIT 200) x;
-- 13. a prepared statement, with a generic plan
SET plan_cache_mode = force_generic_plan;
PREPARE nearest (idset, int) AS SELECT id, tokens <-> $1 AS distance FROM docs ORDER BY tokens <-> $1 LIMIT $2;
EXPLAIN (COSTS OFF) EXECUTE nearest ('{1,31,62}', 4);
CREATE TEMP TABLE answers AS EXECUTE nearest ('{7,40}', 4);
SELECT count(*), bool_and(a.distance = d.tokens <-> '{7,40}') FROM answers a JOIN docs d USING (id);
SET enable_indexscan = off;
SELECT array_agg(distance ORDER BY distance) = ARRAY(SELECT tokens <-> '{7,40}' FROM docs ORDER BY 1 LIMIT 4) FROM answers;
RESET enable_indexscan;
RESET plan_cache_mode;
-- 14. a cursor
BEGIN;
EXPLAIN (COSTS OFF) DECLARE c CURSOR FOR SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}' LIMIT 1000;
DECLARE c CURSOR FOR SELECT tokens <-> '{1,31,62}' AS distance FROM docs ORDER BY tokens <-> '{1,31,62}' LIMIT 1000;
MOVE 300 IN c;
FETCH 1 FROM c;
SET LOCAL enable_indexscan = off;
SELECT tokens <-> '{1,31,62}' AS distance FROM docs ORDER BY tokens <-> '{1,31,62}' OFFSET 300 LIMIT 1;
COMMIT;
-- 15. a second key: from version 17 on the index may order by the first one
SELECT nodes($$SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}', id LIMIT 10$$) =
	CASE WHEN current_setting('server_version_num')::int < 170000 THEN 'Limit, Sort, Seq Scan' ELSE 'Limit, Incremental Sort, Index Scan' END AS as_expected;
SELECT same($$SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}', id LIMIT 10$$);
-- 16. what it does not serve: farthest first, all rows in order, an expression
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}' DESC LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}';
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY (tokens | 1) <-> '{1,31,62}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY 1 - (tokens <-> '{1,31,62}') LIMIT 10;
-- 17. tables that have no mirror that outlives a statement
CREATE TEMP TABLE tmp AS SELECT * FROM docs;
CREATE INDEX tmp_tokens ON tmp USING gpuvec (tokens);
ANALYZE tmp;
EXPLAIN (COSTS OFF) SELECT id FROM tmp ORDER BY tokens <-> '{1,31,62}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM tmp WHERE tokens && '{5}';
-- 18. several distances: a scan has one order, even where nothing else is allowed
SET enable_incremental_sort = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}', tokens <-> '{2}' LIMIT 10;
RESET enable_incremental_sort;
SET enable_sort = off;
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM docs ORDER BY tokens <-> '{1,31,62}', tokens <-> '{2}' LIMIT 10) x;
RESET enable_sort;
RESET enable_seqscan;
-- 19. a query that needs no column: the index has no values to give
CREATE TABLE wide (tokens idset, filler text);
ALTER TABLE wide ALTER filler SET STORAGE plain;
INSERT INTO wide SELECT ARRAY[i]::idset, repeat('x', 5000) FROM generate_series(1, 1000) i;
CREATE INDEX wide_tokens ON wide USING gpuvec (tokens);
VACUUM ANALYZE wide;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM (SELECT tokens <-> NULL::idset FROM wide ORDER BY tokens <-> NULL::idset LIMIT 300) x;
SELECT count(*) FROM wide;
RESET enable_seqscan;
RESET enable_bitmapscan;
SET client_min_messages = warning;
DROP SCHEMA index_shapes CASCADE;
