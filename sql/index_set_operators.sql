-- CREATE INDEX ... USING gpuvec: && @> = by index and bitmap scans
CREATE SCHEMA index_search;
SET search_path = index_search, public;
CREATE TABLE docs (id int, note int, tokens idset) WITH (fillfactor = 70);
INSERT INTO docs SELECT i, i % 10, ARRAY[i % 97, i % 89 + 100, i % 7 + 300]::idset FROM generate_series(1, 5000) i;
INSERT INTO docs SELECT 10000 + i, 1, '{}' FROM generate_series(1, 3) i;
INSERT INTO docs SELECT 20000 + i, 1, NULL FROM generate_series(1, 3) i;
INSERT INTO docs SELECT 30000 + i, 1, '{0,65535}' FROM generate_series(1, 3) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
CREATE INDEX docs_note ON docs (note);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'idset_ops';
VACUUM ANALYZE docs;
-- some versions in chains, some rows dead
UPDATE docs SET id = id + 0 WHERE id % 3 = 0;
DELETE FROM docs WHERE id % 50 = 1;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && '{5}';
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens @> '{5,105}' ORDER BY tokens <-> '{5}' LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens @> '{5,105}';
RESET enable_bitmapscan;
SET enable_indexscan = off;
SET cpu_operator_cost = 0.0001;	-- trips are cheaper, however long they took
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && '{5}' AND note = 3;
RESET cpu_operator_cost;
RESET enable_indexscan;

CREATE FUNCTION same(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	sql text := 'SELECT count(*) || '' '' || coalesce(sum(id), 0) || '' '' || coalesce(sum(hashtext(tokens::text)), 0) FROM docs WHERE ' || condition;
	by_scan text;
	by_bitmap text;
	by_index text;
	plan text;
BEGIN
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_indexscan = off;
	EXECUTE sql INTO by_scan;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_bitmapscan = on;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql INTO plan;
	IF plan NOT LIKE '%Bitmap Index Scan%docs_tokens%' THEN RETURN 'no bitmap scan: ' || plan; END IF;
	EXECUTE sql INTO by_bitmap;
	SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_indexscan = on;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql INTO plan;
	IF plan LIKE '%"Index Scan"%docs_tokens%' THEN
		EXECUTE sql INTO by_index;
	ELSIF condition LIKE '% OR %' THEN
		by_index := by_scan;	-- bitmaps alone can do that
	ELSE
		RETURN 'no index scan: ' || plan;
	END IF;
	RETURN CASE WHEN by_scan = by_bitmap AND by_scan = by_index THEN 'same: ' || split_part(by_scan, ' ', 1)
		ELSE format('scan %s, bitmap %s, index %s', by_scan, by_bitmap, by_index) END;
END $$;
SELECT op, q, same(format('tokens %s %L', op, q)) FROM unnest('{&&,@>,=}'::text[]) op,
	unnest('{"{5}","{5,105}","{5,105,300}","{}","{0,65535}","{0}","{40000}"}'::idset[]) q;
SELECT same('tokens && ''{5,6}'' AND tokens @> ''{105}''');
SELECT same('tokens && ''{5,6}'' AND note > 3');
SELECT same('tokens && ''{5,6}'' OR tokens @> ''{7}''');
BEGIN;
INSERT INTO docs VALUES (40000, 1, '{5,105}');
SELECT same('tokens @> ''{5,105}''');
ROLLBACK;
SELECT same('tokens @> ''{5,105}''');
TRUNCATE docs;
SELECT same('tokens @> ''{5,105}''');
SELECT same('tokens = ''{}''');
SET client_min_messages = warning;
DROP SCHEMA index_search CASCADE;
