-- CREATE INDEX ... USING gpuvec: <<->> and <@ by index and bitmap scans
CREATE SCHEMA index_threshold;
SET search_path = index_threshold, public;
SET enable_indexonlyscan = off;
CREATE TABLE docs (id int, note int, tokens idset) WITH (fillfactor = 70, autovacuum_enabled = off);
INSERT INTO docs
SELECT i, i % 10, CASE WHEN i % 3 = 0 THEN ARRAY[i % 13, i % 11 + 20] ELSE ARRAY[i % 97, i % 89 + 100, i % 7 + 300] END::idset
FROM generate_series(1, 3000) i;
INSERT INTO docs SELECT 10000 + i, 1, '{}' FROM generate_series(1, 5) i;
INSERT INTO docs SELECT 20000 + i, 1, NULL FROM generate_series(1, 5) i;
INSERT INTO docs SELECT 30000 + i, 1, '{0,65535}' FROM generate_series(1, 5) i;
INSERT INTO docs SELECT 40000, 1, idset_agg(i) FROM generate_series(0, 65535) i;
INSERT INTO docs SELECT 50000 + i, 2, (SELECT idset_agg(j * i) FROM generate_series(0, 900) j) FROM generate_series(1, 5) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
CREATE INDEX docs_note ON docs (note);
VACUUM ANALYZE docs;
-- some versions in chains, some rows dead, sets that became empty and that were
UPDATE docs SET id = id + 0 WHERE id % 4 = 0;
UPDATE docs SET tokens = '{}' WHERE id % 500 = 7;
UPDATE docs SET tokens = '{5}' WHERE id = 10001;
DELETE FROM docs WHERE id % 50 = 1 AND id < 10000 OR id = 10002;
SELECT count(*), count(tokens), count(*) FILTER (WHERE tokens = '{}') AS empty FROM docs;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'idset_ops';
SELECT amopstrategy, amopopr::regoperator FROM pg_amop o JOIN pg_am a ON a.oid = o.amopmethod
WHERE amname = 'gpuvec' AND amoppurpose = 's' AND amopstrategy <= 10 ORDER BY 1, amopopr::regoperator::text COLLATE "C";

-- the planner takes the index by itself
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens <<->> ('{1,2,3,4,5,6,7,8}', 0.6, 'jaccard');
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens <<->> ('{5,105}', 0.6, NULL);
SET cpu_operator_cost = 0.0001;	-- trips are cheaper, however long they took
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens <@ '{5,105,305}' AND note = 3;
RESET cpu_operator_cost;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens <<->> idset_threshold('{5,105}', 0.6, 'cosine');
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE '{5,105,305}' @> tokens;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens <<->> ('{5,105}', 0.6, NULL) ORDER BY tokens <-> '{5,105}' LIMIT 3;
RESET enable_bitmapscan;
RESET enable_seqscan;

-- rows by a sequential, a bitmap and an index scan, none of them twice
CREATE FUNCTION found(condition text, parts text, planned text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT count(*) || '' '' || coalesce(string_agg(ctid::text, '' '' ORDER BY ctid), '''') FROM docs WHERE ' || condition;
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', (parts = 'seq')::text, true), set_config('enable_bitmapscan', (parts = 'bitmap')::text, true),
			set_config('enable_indexscan', (parts = 'index')::text, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF plan NOT LIKE planned THEN RAISE 'not by %: %', parts, plan; END IF;
	EXECUTE query INTO result;
	RETURN result;
END $$;
CREATE FUNCTION same(condition text, index text DEFAULT 'docs_tokens') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_scan text := found(condition, 'seq', '%"Seq Scan"%');
	by_bitmap text := found(condition, 'bitmap', format('%%Bitmap Index Scan%%%s"%%', index));
	by_index text := found(condition, 'index', format('%%"Index Scan"%%%s"%%', index));
BEGIN
	RETURN CASE WHEN by_scan = by_bitmap AND by_scan = by_index THEN 'same: ' || split_part(by_scan, ' ', 1)
		ELSE format('scan %s, bitmap %s, index %s', left(by_scan, 200), left(by_bitmap, 200), left(by_index, 200)) END;
END $$;
-- all measures: a bound that few rows reach, one that all do, none does, ties, and below what a row without a common id has
CREATE TABLE results AS
SELECT measure, q, bound, same(format('tokens <<->> (%L, %L, %L)', q, bound, measure)) AS result
FROM unnest('{braun_blanquet,jaccard,cosine,dice,overlap,containment,intersection,hamming,kulczynski,NULL}'::text[]) measure,
	 unnest('{"{5}","{5,105,305}","{0,1,2,3,4,5,6,7,8,9,20,21,22,23,24}","{}","{0,65535}","{40000}"}'::idset[]) q,
	 unnest('{-Infinity,-65537,-4,-3,-2.5,-1,-0,0,4.9e-324,0.3333333333333333,0.5,0.6,1,1.0000000000000002,2,65536,Infinity}'::float8[]) bound;
SELECT measure, count(*) AS searches, count(*) FILTER (WHERE result NOT LIKE 'same: %') AS different,
	   count(*) FILTER (WHERE result = 'same: 0') AS none, count(DISTINCT result) > 3 AS others
FROM results GROUP BY measure ORDER BY measure;
SELECT * FROM results WHERE result NOT LIKE 'same: %' ORDER BY 1, 2, 3;
SELECT measure, bound, result FROM results WHERE q = '{5,105,305}' AND bound::text IN ('-3', '0', '0.5', '1') ORDER BY 1, 2;
DROP TABLE results;
-- whole and split scores: each that occurs, as the bound
SELECT count(*) > 20 AS many, count(*) FILTER (WHERE same(format('tokens <<->> (%L, %L, %L)', '{5,105,305,1,2}', bound, measure)) NOT LIKE 'same: %') AS different
FROM (SELECT DISTINCT 'jaccard' AS measure, jaccard_similarity('{5,105,305,1,2}', tokens) AS bound FROM docs WHERE tokens IS NOT NULL UNION
	  SELECT DISTINCT 'cosine', cosine_similarity('{5,105,305,1,2}', tokens) FROM docs WHERE tokens IS NOT NULL UNION
	  SELECT DISTINCT 'kulczynski', kulczynski_similarity('{5,105,305,1,2}', tokens) FROM docs WHERE tokens IS NOT NULL UNION
	  SELECT DISTINCT 'hamming', -hamming_distance('{5,105,305,1,2}', tokens) FROM docs WHERE tokens IS NOT NULL) x;
-- subsets, with the empty set; the other boolean operators with an empty query
SELECT op, q, same(format('tokens %s %L', op, q)) FROM unnest('{<@,&&,@>,=}'::text[]) op,
	unnest('{"{}","{5}","{5,105,305}","{0,1,2,3,4,5,6,7,8,9,10,11,12,20,21,22,23,24,25,26,27,28,29,30}","{0,65535}","{40000}"}'::idset[]) q;
SELECT same(format('tokens <@ %L', (SELECT tokens FROM docs WHERE id = 40000))) AS all_ids;
SELECT same('''{5,105,305}'' @> tokens') AS commuted;
-- nulls
SELECT condition, same(condition) FROM unnest(ARRAY[
	'tokens <<->> ((SELECT NULL::idset_threshold))', 'tokens <@ (SELECT NULL::idset)', 'tokens <<->> ((SELECT idset_threshold(NULL, 0.5)))',
	'tokens <<->> ((SELECT idset_threshold(''{5}'', NULL)))', 'tokens <<->> ((SELECT idset_threshold(''{5}'', 0.4, NULL)))']) condition;
-- several keys at once, and filters
SELECT condition, same(condition) FROM unnest(ARRAY[
	'tokens <<->> (''{5,105,305}'', 0.3, ''jaccard'') AND tokens <<->> (''{6,305}'', 0.3, ''dice'')',
	'tokens <<->> (''{5,105,305}'', 0, ''jaccard'') AND tokens <<->> (''{5}'', -2, ''hamming'')',
	'tokens <<->> (''{5,105,305}'', 0.3, NULL) AND tokens @> ''{105}'' AND tokens && ''{5,6}''',
	'tokens <@ ''{5,25,105,305}'' AND tokens @> ''{}''', 'tokens <@ ''{5,6,25,26}'' AND tokens && ''{}''',
	'tokens <@ ''{5,6,25,26}'' AND tokens <<->> (''{5,25}'', 1, ''jaccard'')', 'tokens = ''{}'' AND tokens <@ ''{5}''',
	'tokens = ''{5,25}'' AND tokens <@ ''{5}''', 'tokens <@ ''{5,6,25,26}'' AND note > 3']) condition;
-- the engine has found no more rows than the bound says, for the most telling key
CREATE FUNCTION rechecked(condition text, OUT removed int, OUT rows int) LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_bitmapscan = off;
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT FROM docs WHERE ' || condition INTO plan;
	plan := plan->0->'Plan';
	IF plan->>'Node Type' <> 'Index Scan' THEN RAISE '%', plan; END IF;
	removed := plan->>'Rows Removed by Index Recheck';
	rows := (plan->>'Actual Rows')::float8;
END $$;
SELECT condition, (rechecked(condition)).* FROM unnest(ARRAY[
	'tokens <<->> (''{5,105,305}'', 0.3, ''jaccard'')', 'tokens <<->> (''{5,105,305}'', -2, ''hamming'')', 'tokens <<->> (''{}'', -2, ''hamming'')',
	'tokens <<->> (''{}'', 0.1, ''dice'')', 'tokens <<->> ((SELECT idset_threshold(NULL, 0)))', 'tokens <<->> (''{5}'', 0, ''dice'')', 'tokens <<->> (''{5}'', -65537, ''hamming'')',
	'tokens <@ ''{5,6,25,26}''', 'tokens <@ ''{}''', 'tokens <@ ''{5,6}'' AND tokens = ''{5}''', 'tokens && ''{5,105}'' AND tokens <@ ''{5,25,26}''',
	'tokens && ''{5,105}'' AND tokens @> ''{5,105}''', 'tokens && ''{5,105}'' AND tokens @> ''{}''', 'tokens && ''{}''', 'tokens = ''{}''',
	'tokens @> ''{5}'' AND tokens <<->> (''{5,105}'', 0.5, ''jaccard'')', 'tokens && ''{5}'' AND tokens <<->> (''{5,105}'', 0, ''jaccard'')']) condition;
-- bitmaps with those of other indexes, and of each other
CREATE FUNCTION same_bitmap(condition text, planned text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_scan text := found(condition, 'seq', '%"Seq Scan"%');
BEGIN
	RETURN CASE WHEN by_scan = found(condition, 'bitmap', planned) THEN 'same: ' || split_part(by_scan, ' ', 1) ELSE 'different' END;
END $$;
SELECT same_bitmap('tokens <<->> (''{5,105,305}'', 0.3, NULL) OR note = 3', '%BitmapOr%docs_tokens%docs_note%'),
	   same_bitmap('tokens <@ ''{5,6,25,26}'' OR tokens <<->> (''{5,105,305}'', -2, ''hamming'')', '%BitmapOr%docs_tokens%docs_tokens%'),
	   same_bitmap('tokens <<->> (''{5,105,305}'', 0, NULL) OR note = 3', '%BitmapOr%docs_tokens%docs_note%'),
	   same_bitmap('tokens <@ ''{}'' OR tokens @> ''{40000}''', '%BitmapOr%docs_tokens%docs_tokens%');
-- errors are those of the operator
SET enable_seqscan = off;
SELECT count(*) FROM docs WHERE tokens <<->> ('{5}', 0.5, 'euclid');
SELECT count(*) FROM docs WHERE tokens <<->> ('{5}', 'NaN', NULL);
-- a new right side for each rescan, parameters, a cursor with changes behind it
EXPLAIN (COSTS OFF)
SELECT q.i, d.id FROM generate_series(1, 20) q(i), docs d WHERE d.tokens <<->> idset_threshold(ARRAY[q.i, q.i + 20]::idset, q.i / 20.0, 'dice');
SELECT count(*) AS pairs, count(*) FILTER (WHERE dice_similarity(ARRAY[i, i + 20]::idset, tokens) < i / 20.0) AS wrong,
	   (SELECT count(*) FROM generate_series(1, 20) i, docs WHERE dice_similarity(ARRAY[i, i + 20]::idset, tokens) >= i / 20.0) AS truth
FROM (SELECT q.i, d.tokens FROM generate_series(1, 20) q(i), docs d WHERE d.tokens <<->> idset_threshold(ARRAY[q.i, q.i + 20]::idset, q.i / 20.0, 'dice')) x;
SET plan_cache_mode = force_generic_plan;
PREPARE threshold(idset, float8, text) AS SELECT count(*) FROM docs WHERE tokens <<->> ($1, $2, $3);
EXPLAIN (COSTS OFF) EXECUTE threshold('{5,105}', 0.5, 'jaccard');
EXECUTE threshold('{5,105}', 0.5, 'jaccard');
EXECUTE threshold('{5,105}', 0.6, NULL);
EXECUTE threshold('{5,105}', -3, 'hamming');
EXECUTE threshold(NULL, 0.6, NULL);
RESET plan_cache_mode;
BEGIN;
SET LOCAL enable_bitmapscan = off;
DECLARE c CURSOR FOR SELECT tokens <@ '{5,25}' AS fits FROM docs WHERE tokens <@ '{5,25}';	-- in any order
FETCH 3 FROM c;
INSERT INTO docs VALUES (60000, 1, '{25}'), (60001, 1, '{}');
DELETE FROM docs WHERE id = 10001;
FETCH ALL FROM c;
SELECT count(*) FROM docs WHERE tokens <@ '{5,25}';
ROLLBACK;
SELECT same('tokens <@ ''{5,25}''');
-- expressions and predicates
CREATE INDEX docs_more ON docs USING gpuvec ((tokens | 5));
CREATE INDEX docs_less ON docs USING gpuvec ((tokens & '{1,2,3,4,5,6}')) WHERE note < 5;
ANALYZE docs;
SELECT condition, same('(tokens | 5) ' || condition, 'docs_more') AS more,
	   same('note < 5 AND (tokens & ''{1,2,3,4,5,6}'') ' || condition, 'docs_less') AS less
FROM unnest(ARRAY['<@ ''{5,6,26}''', '<@ ''{}''', '= ''{}''', '<<->> (''{5,6}'', 0.5, ''jaccard'')', '<<->> (''{4,26}'', 0, NULL)', '<<->> (''{}'', -1, ''hamming'')']) condition;
DROP INDEX docs_more, docs_less;
-- tables without a mirror
CREATE TEMP TABLE tmp AS SELECT * FROM docs;
CREATE INDEX ON tmp USING gpuvec (tokens);
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM docs;
CREATE INDEX ON unlogged USING gpuvec (tokens);
SELECT (SELECT count(*) FROM tmp WHERE tokens <@ '{5,25}') AS temporary, (SELECT count(*) FROM unlogged WHERE tokens <@ '{5,25}') AS unlogged,
	   (SELECT count(*) FROM tmp WHERE tokens <<->> ('{5,25}', 0.5, NULL)) AS temporary, (SELECT count(*) FROM unlogged WHERE tokens <<->> ('{5,25}', 0.5, NULL)) AS unlogged,
	   (SELECT count(*) FROM docs WHERE tokens <@ '{5,25}') AS mirrored, (SELECT count(*) FROM docs WHERE tokens <<->> ('{5,25}', 0.5, NULL)) AS mirrored;
-- partitions
CREATE TABLE parts (id int, note int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (1000) TO (MAXVALUE);
INSERT INTO parts SELECT * FROM docs;
CREATE INDEX ON parts USING gpuvec (tokens);
EXPLAIN (COSTS OFF) SELECT count(*) FROM parts WHERE tokens <<->> ('{5,25}', 0.5, NULL);
SELECT (SELECT count(*) FROM parts WHERE tokens <<->> ('{5,25}', 0.5, NULL)) AS reach, (SELECT count(*) FROM parts WHERE tokens <@ '{5,25}') AS subsets;
-- an operator class of one's own has to fit
SET client_min_messages = info;
CREATE OPERATOR CLASS odd_ops FOR TYPE idset USING gpuvec AS
	OPERATOR 9 <<->> (idset, idset_threshold), OPERATOR 10 <@ (idset, idset), OPERATOR 6 <-> (idset, idset) FOR ORDER BY float_ops,
	OPERATOR 1 && (idset, idset);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'odd_ops';
CREATE OPERATOR CLASS some_ops FOR TYPE idset USING gpuvec AS
	OPERATOR 1 <-> (idset, idset) FOR ORDER BY float_ops, OPERATOR 10 <<->> (idset, idset_threshold);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'some_ops';
-- one distance is enough, whichever it is; a search operator is none
CREATE OPERATOR CLASS last_ops FOR TYPE idset USING gpuvec AS OPERATOR 5 <~> (idset, idset) FOR ORDER BY float_ops;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'last_ops';
CREATE OPERATOR CLASS none_ops FOR TYPE idset USING gpuvec AS OPERATOR 6 && (idset, idset);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'none_ops';
TRUNCATE docs;
RESET enable_seqscan;
SELECT same('tokens <@ ''{}''') AS none, same('tokens <<->> (''{}'', -1, ''hamming'')') AS none;
SET client_min_messages = warning;
DROP SCHEMA index_threshold CASCADE;
