-- CREATE INDEX ... USING gpuvec: rows that are found in any order, and are not checked again
CREATE SCHEMA index_bitmaps;
SET search_path = index_bitmaps, public;
CREATE TABLE docs (id int, tokens idset) WITH (autovacuum_enabled = off);
-- ids of 1000 + n are in n rows, about as many as come in one answer, or in several
INSERT INTO docs SELECT i, array_remove(ARRAY[i % 50, CASE WHEN i <= 8191 THEN 1001 END, CASE WHEN i <= 8192 THEN 1002 END, CASE WHEN i <= 8193 THEN 1003 END,
	CASE WHEN i % 3 > 0 THEN 1004 END, CASE WHEN i % 1000 = 7 THEN 100000 END], NULL)::idset FROM generate_series(1, 30000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM ANALYZE docs;
CREATE TABLE conditions AS SELECT * FROM unnest(ARRAY['tokens && ''{1001}''', 'tokens && ''{1002}''', 'tokens @> ''{1003}''', 'tokens @> 1004', 'tokens && ''{1001,7}''', 'tokens && ''{3,4,100000}''', 'tokens @> ''{7,1004}''',
	'tokens && ''{100000}''', 'tokens @> ''{100000,7}''', 'tokens <@ ''{7,1003,1004,1001,1002}''', 'tokens <@ ''{7,1004}'' AND tokens && ''{7}''', 'tokens && ''{1002}'' AND tokens @> ''{1004}''', 'tokens = ''{7,1004}''', 'tokens = ''{}''', 'tokens && ''{}''', 'tokens && ''{60000}''',
	'tokens <<->> (''{7,1004}'', 0.6, ''jaccard'')', 'tokens <<->> (''{7,1004,1002}'', -2, ''hamming'')', 'tokens <<->> (''{7,1004}'', 0, ''dice'')', 'tokens && ''{1002}'' OR tokens @> ''{5,1004}''']) condition;
CREATE FUNCTION found(condition text, parts text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	plan text;
BEGIN
	PERFORM set_config('enable_seqscan', (parts = 'Seq Scan')::text, true), set_config('enable_bitmapscan', (parts = 'Bitmap')::text, true), set_config('enable_indexscan', (parts = 'Index Scan')::text, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT * FROM docs WHERE ' || condition INTO plan;
	IF plan NOT LIKE '%' || parts || '%' THEN RETURN 'not by ' || parts; END IF;
	EXECUTE 'SELECT count(*) || '' '' || md5(coalesce(string_agg(ctid::text, '' '' ORDER BY ctid), '''')) FROM docs WHERE ' || condition INTO result;
	RETURN result;
END $$;
CREATE VIEW same AS SELECT condition, split_part(found(condition, 'Seq Scan'), ' ', 1) AS rows, found(condition, 'Bitmap') = found(condition, 'Seq Scan') AS by_bitmap,
	CASE WHEN condition !~ ' OR ' THEN found(condition, 'Index Scan') = found(condition, 'Seq Scan') END AS by_index FROM conditions;
SELECT * FROM same;
-- a bitmap of whole pages
SET work_mem = '64kB';
SELECT count(*), bool_and(by_bitmap AND coalesce(by_index, true)) AS all_same FROM same;
RESET work_mem;
-- by each method
SET gpuvec.method = bitset;
SELECT count(*), bool_and(by_bitmap AND coalesce(by_index, true)) AS all_same FROM same;
SET gpuvec.method = inverted;
SELECT count(*), bool_and(by_bitmap AND coalesce(by_index, true)) AS all_same FROM same;
RESET gpuvec.method;
-- rows that the engine lacks yet: its own, of this transaction, updated and deleted; and again once it has them
BEGIN;
INSERT INTO docs VALUES (39999, '{1001}');
SELECT condition, rows, by_bitmap, by_index FROM same WHERE condition ~ '&& ..1001..$';
INSERT INTO docs SELECT 40000 + i, '{7,1001,1004,100000}' FROM generate_series(1, 100) i;
DELETE FROM docs WHERE id = 17;
SELECT condition, rows, by_bitmap, by_index FROM same WHERE condition ~ '&& ..100[123]..$|@> 1004|100000';
UPDATE docs SET tokens = '{7,1002,1004}' WHERE id IN (8193, 8195);
UPDATE docs SET id = id WHERE id % 100 = 7;
SELECT condition, rows, by_bitmap, by_index FROM same WHERE condition ~ '&& ..100[12]..$|@> 1004';
DELETE FROM docs WHERE id IN (1, 2);
SELECT condition, rows, by_bitmap, by_index FROM same WHERE condition ~ '&& ..100[12]..$';
COMMIT;
SELECT count(*), bool_and(by_bitmap AND coalesce(by_index, true)) AS all_same FROM same;
VACUUM docs;
INSERT INTO docs SELECT 50000 + i, '{1,1002}' FROM generate_series(1, 5) i;
SELECT count(*), bool_and(by_bitmap AND coalesce(by_index, true)) AS all_same FROM same;
-- rows are checked again where the search proves less than the condition says
CREATE FUNCTION removed(condition text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE plan text;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) SELECT * FROM docs WHERE ' || condition INTO plan;
	RETURN plan ~ '"Rows Removed by Index Recheck": [1-9]';
END $$;
SET enable_seqscan = off; SET enable_indexscan = off;
SELECT removed('tokens <@ ''{7,1001}'''), removed('tokens && ''{1002}'' AND tokens @> ''{100000}'' AND tokens && ''{1,2,3}'''), removed('tokens && ''{1002}''');
SET client_min_messages = warning;
DROP SCHEMA index_bitmaps CASCADE;
