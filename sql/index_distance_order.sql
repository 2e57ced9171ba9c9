-- CREATE INDEX ... USING gpuvec: rows in order of a distance
CREATE SCHEMA index_knn;
SET search_path = index_knn, public;
CREATE TABLE docs (id int, tokens idset);
INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100, i % 7 + 300]::idset FROM generate_series(1, 3000) i;
INSERT INTO docs SELECT 10000 + i, '{}' FROM generate_series(1, 3) i;
INSERT INTO docs SELECT 20000 + i, NULL FROM generate_series(1, 3) i;
INSERT INTO docs SELECT 30000 + i, '{0,65535}' FROM generate_series(1, 3) i;
CREATE INDEX docs_knn ON docs USING gpuvec (tokens);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'idset_ops';
SELECT pg_relation_size('docs_knn') = current_setting('block_size')::int AS one_page;
ANALYZE docs;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tokens <-> '{1,101,301}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE id % 10 = 3 ORDER BY tokens <~> '{1,101,301}' LIMIT 10;

CREATE TABLE few AS SELECT * FROM docs LIMIT 50;
CREATE INDEX ON few USING gpuvec (tokens);
CREATE INDEX docs_id ON docs (id);
ANALYZE few;
EXPLAIN (COSTS OFF) SELECT id FROM few ORDER BY tokens <-> '{1,101,301}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE id = 17 ORDER BY tokens <-> '{1,101,301}' LIMIT 10;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && '{1}' LIMIT 10;
RESET enable_seqscan;

-- what the index gives, and what a scan and a sort give, in the order of root tids: without
-- updates these are the rows' own
CREATE FUNCTION same(op text, q idset, rest text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_sort text;
	plan text;
	line text;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	FOR line IN EXECUTE format('EXPLAIN SELECT ctid FROM docs %s ORDER BY tokens %s %L', rest, op, q) LOOP
		plan := concat(plan, line);
	END LOOP;
	EXECUTE format('SELECT string_agg(r, '' '') FROM (SELECT id || ctid::text AS r FROM docs %s ORDER BY tokens %s %L) x', rest, op, q) INTO by_index;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format('SELECT string_agg(id || ctid::text, '' '' ORDER BY tokens %s %L, ctid) FROM docs %s', op, q, rest) INTO by_sort;
	SET LOCAL enable_indexscan = on;
	IF plan NOT LIKE '%Index Scan%' THEN RETURN split_part(plan, '  (', 1); END IF;
	RETURN CASE WHEN by_index IS NOT DISTINCT FROM by_sort THEN 'same ' || length(by_index) ELSE 'differs: ' || left(by_index, 300) || ' / ' || left(by_sort, 300) END;
END $$;
SELECT op, q, same(op, q) FROM unnest('{<->,<%>,<=>,<#>,<~>}'::text[]) op, unnest('{"{1,101,301}","{}","{0,65535}","{500}",NULL}'::idset[]) q;
SELECT op, same(op, '{1,2,101,301}', 'WHERE id % 50 = 7') FROM unnest('{<->,<%>,<=>,<#>,<~>}'::text[]) op;
-- deleted rows, rows in holes, aborted rows
DELETE FROM docs WHERE id % 3 = 0;
VACUUM docs;
INSERT INTO docs SELECT 40000 + i, ARRAY[i % 50, i % 9 + 300]::idset FROM generate_series(1, 500) i;
BEGIN; INSERT INTO docs SELECT 50000 + i, '{1,101,301}' FROM generate_series(1, 50) i; ROLLBACK;
SELECT op, same(op, '{1,101,301}') FROM unnest('{<->,<%>,<=>,<#>,<~>}'::text[]) op;
-- chains of versions: roots come in another order than versions, so distances are compared
CREATE FUNCTION same_distances(q idset) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	by_index float8[];
	by_sort float8[];
	tids tid[];
	n_index int;
	n_sort int;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	SELECT array_agg(d), array_agg(ctid) INTO by_index, tids FROM (SELECT tokens <-> q AS d, ctid FROM docs ORDER BY tokens <-> q) x;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	SELECT array_agg(tokens <-> q ORDER BY tokens <-> q), count(*) INTO by_sort, n_sort FROM docs;
	SET LOCAL enable_indexscan = on;
	SELECT count(DISTINCT t) INTO n_index FROM unnest(tids) t;
	RETURN by_index = by_sort AND n_index = n_sort;
END $$;
UPDATE docs SET id = -id WHERE id % 4 = 1;
SELECT same_distances('{1,101,301}');
UPDATE docs SET tokens = tokens | 1 WHERE id % 11 = 5;
SELECT same_distances('{1,101,301}');
VACUUM docs;
SELECT same_distances('{1,101,301}');
-- LIMIT, OFFSET, cursors, rescans with another query
SET enable_seqscan = off;
SET enable_sort = off;
SELECT count(*) FROM (SELECT id FROM docs ORDER BY tokens <-> '{1,101,301}' LIMIT 700 OFFSET 5) x;
BEGIN;
DECLARE c CURSOR FOR SELECT round((tokens <-> '{1,101,301}')::numeric, 3) FROM docs ORDER BY tokens <-> '{1,101,301}';
FETCH 3 FROM c;
DELETE FROM docs WHERE tokens @> '{1,101}';
MOVE 60 IN c;
FETCH 2 FROM c;
ROLLBACK;
SELECT q, d FROM unnest('{"{1}","{2,102}","{5,105,305}"}'::idset[]) q,
	LATERAL (SELECT round((tokens <-> q)::numeric, 3) AS d FROM docs ORDER BY tokens <-> q LIMIT 2) x;
RESET enable_seqscan;
RESET enable_sort;
-- temporary and unlogged tables have no mirror that outlives the call
CREATE TEMP TABLE tmp AS SELECT * FROM docs;
CREATE INDEX ON tmp USING gpuvec (tokens);
SET enable_seqscan = off;
SET enable_sort = off;
SELECT count(*) FROM (SELECT id FROM tmp ORDER BY tokens <-> '{1,101,301}') x;
CREATE UNLOGGED TABLE unl AS SELECT * FROM docs;
CREATE INDEX ON unl USING gpuvec (tokens);
SELECT count(*) FROM (SELECT id FROM unl ORDER BY tokens <-> '{1,101,301}') x;
-- partitions
CREATE TABLE parts (id int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (1000) TO (MAXVALUE);
INSERT INTO parts SELECT * FROM docs;
CREATE INDEX parts_knn ON parts USING gpuvec (tokens);
EXPLAIN (COSTS OFF) SELECT id FROM parts ORDER BY tokens <-> '{1,101,301}' LIMIT 3;
SELECT count(*) FROM (SELECT id FROM parts ORDER BY tokens <-> '{1,101,301}') x;
RESET enable_seqscan;
RESET enable_sort;
REINDEX INDEX docs_knn;
CREATE INDEX CONCURRENTLY docs_knn2 ON docs USING gpuvec (tokens);
REINDEX INDEX CONCURRENTLY docs_knn2;
DROP INDEX docs_knn2;
-- an empty table, one that was never analyzed
CREATE TABLE empty (tokens idset);
CREATE INDEX ON empty USING gpuvec (tokens);
SELECT * FROM empty ORDER BY tokens <-> '{1}' LIMIT 3;
INSERT INTO empty VALUES ('{2}'), (NULL), ('{1,2}');
SET enable_seqscan = off;
SELECT * FROM empty ORDER BY tokens <-> '{1}' LIMIT 3;
TRUNCATE empty;
SELECT * FROM empty ORDER BY tokens <-> '{1}' LIMIT 3;
RESET enable_seqscan;
-- what is refused
CREATE UNIQUE INDEX ON docs USING gpuvec (tokens);
CREATE INDEX ON docs USING gpuvec (tokens) WITH (fillfactor = 50);
CREATE INDEX kept ON docs USING gpuvec (tokens);
ALTER INDEX kept SET (fillfactor = 50);
ALTER INDEX kept RESET (fillfactor);
CLUSTER docs USING kept;
ALTER INDEX kept RENAME TO renamed;
DROP INDEX renamed;
CREATE INDEX ON docs USING gpuvec (tokens) INCLUDE (id);
DO $$ BEGIN CREATE INDEX ON docs USING gpuvec (tokens DESC); EXCEPTION WHEN feature_not_supported THEN RAISE NOTICE '%', SQLERRM; END $$;
CREATE INDEX ON docs USING gpuvec (id);
ALTER TABLE docs ADD EXCLUDE USING gpuvec (tokens WITH =);
SET client_min_messages = warning;
DROP SCHEMA index_knn CASCADE;
