-- CREATE INDEX ... USING gpuvec: rows that search keys find, in order of a distance
CREATE SCHEMA index_keyed;
SET search_path = index_keyed, public;
CREATE TABLE docs (id int, tokens idset, n int DEFAULT 0) WITH (fillfactor = 70);
INSERT INTO docs SELECT i, (SELECT idset_agg((i::int8 * 7919 * j + j * j * 31 + i / 7) % (50 * j)) FROM generate_series(1, 5 + i % 12) j)
	FROM generate_series(1, 20000) i;
INSERT INTO docs SELECT 30000 + i, ('{' || 60000 + i % 3 || ',65535}')::idset FROM generate_series(1, 40) i;
INSERT INTO docs SELECT 40000 + i, CASE i % 2 WHEN 0 THEN '{}'::idset END FROM generate_series(1, 6) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM ANALYZE docs;

-- Rows by the index, and by a sequential scan and a sort; ties are compared as sets, for roots
-- come in another order than versions
CREATE FUNCTION same(op text, q idset, filter text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT id, tokens %s %L AS d FROM docs WHERE %s ORDER BY tokens %s %L', op, q, filter, op, q);
	plan json;
	got text;
	wanted text;
	n int;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	SET LOCAL enable_bitmapscan = off;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	EXECUTE 'SELECT string_agg(d || '': '' || ids, ''; '' ORDER BY d), coalesce(sum(n), 0) FROM (SELECT d, string_agg(id::text, '','' ORDER BY id) AS ids, count(*) AS n FROM (' ||
		query || ') x GROUP BY d) y' INTO got, n;
	-- in order, too
	EXECUTE 'SELECT CASE WHEN bool_or(d < before) THEN ''not in order'' ELSE $1 END FROM (SELECT d, lag(d) OVER () AS before FROM (' || query || ') x) y' USING got INTO got;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE 'SELECT string_agg(d || '': '' || ids, ''; '' ORDER BY d) FROM (SELECT d, string_agg(id::text, '','' ORDER BY id) AS ids FROM (' || query || ') x GROUP BY d) y' INTO wanted;
	SET LOCAL enable_indexscan = on;
	IF plan::text NOT LIKE '%"Index Scan"%' THEN RETURN 'not by the index'; END IF;
	RETURN CASE WHEN got IS NOT DISTINCT FROM wanted THEN 'same ' || n ELSE 'differs: ' || left(got, 200) || ' / ' || left(wanted, 200) END;
END $$;
CREATE VIEW filters AS SELECT * FROM (VALUES (1, $$tokens @> '{7}'$$), (2, $$tokens @> '{7,31}'$$), (3, $$tokens && '{3,9,17}'$$), (4, $$tokens = '{60001,65535}'$$),
	(5, $$tokens <@ '{1,2,3,7,31,60001,60002,65535}'$$), (6, $$tokens <<->> ('{7,31,62,93}', 0.2, 'jaccard')$$), (7, $$tokens @> '{}'$$), (8, $$tokens @> '{64000}'$$),
	(9, $$tokens && '{7}' AND tokens && '{31}' AND id % 3 = 0$$), (10, $$tokens @> '{7}' AND NOT tokens @> '{31}'$$)) f (number, filter);
SELECT number, op, same(op, '{7,31,62,93,150}', filter) FROM filters, unnest('{<->,<%>,<=>,<#>,<~>}'::text[]) WITH ORDINALITY o (op, i) ORDER BY number, i;
-- queries that have nothing, or little, in common with the rows that are found
SELECT number, q, same('<->', q, filter) FROM filters, unnest('{"{}","{60002}","{65535,60000}","{64000,64001}",NULL}'::idset[]) WITH ORDINALITY o (q, i) WHERE number IN (1, 4, 5, 9) ORDER BY number, i;
-- rows that the scan goes through: 1,152 are ranked before those of the keys are fetched
CREATE FUNCTION removed(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_sort = off;
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	plan := plan->0->'Plan'->'Plans'->0;
	RETURN format('%s, %s', plan->>'Node Type', CASE WHEN (plan->>'Rows Removed by Index Recheck')::int <= 1152 THEN 'few removed' ELSE 'removed ' || (plan->>'Rows Removed by Index Recheck') END);
END $$;
SELECT removed($$SELECT id FROM docs WHERE tokens @> '{60001}' ORDER BY tokens <-> '{7,31,62}' LIMIT 10$$);
SELECT removed($$SELECT id FROM docs WHERE tokens @> '{7,31}' ORDER BY tokens <-> '{7,31,62}' LIMIT 100000$$);
-- versions, holes, new rows
UPDATE docs SET n = n + 1 WHERE id % 2 = 0;
UPDATE docs SET n = n + 1 WHERE id % 3 = 0;
UPDATE docs SET tokens = tokens | 31 WHERE id % 11 = 0 AND tokens @> '{7}';
DELETE FROM docs WHERE id % 7 = 0;
INSERT INTO docs SELECT id + 50000, tokens FROM docs WHERE id % 13 = 0;
SELECT number, op, same(op, '{7,31,62,93,150}', filter) FROM filters, unnest('{<->,<=>}'::text[]) WITH ORDINALITY o (op, i) ORDER BY number, i;
VACUUM docs;
SELECT number, op, same(op, '{7,31,62,93,150}', filter) FROM filters, unnest('{<->,<=>}'::text[]) WITH ORDINALITY o (op, i) WHERE number <= 4 ORDER BY number, i;
-- a cursor sees its snapshot's rows, whatever happens before it changes over
BEGIN;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off;
SET LOCAL enable_seqscan = off;
CREATE TEMP TABLE wanted AS SELECT id, tokens <-> '{7,31,62}' AS d FROM docs WHERE tokens @> '{7}';
DECLARE c CURSOR FOR SELECT id, tokens <-> '{7,31,62}' AS d FROM docs WHERE tokens @> '{7}' ORDER BY tokens <-> '{7,31,62}';
CREATE TEMP TABLE got (id int, d float8, i serial);
CREATE FUNCTION take(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
	r record;
BEGIN
	FOR i IN 1..n LOOP
		FETCH c INTO r;
		IF NOT FOUND THEN RETURN i - 1; END IF;
		INSERT INTO got VALUES (r.id, r.d);
	END LOOP;
	RETURN n;
END $$;
SELECT take(20);
DELETE FROM docs WHERE id % 5 = 0;
UPDATE docs SET tokens = '{7}' WHERE id % 9 = 0;
INSERT INTO docs SELECT id + 100000, tokens FROM docs WHERE tokens @> '{7}';
SELECT take(100000) > 500;
SELECT count(*) FROM (SELECT id, d FROM got EXCEPT SELECT id, d FROM wanted) x;
SELECT count(*) = (SELECT count(*) FROM wanted) AS all_of_them, count(DISTINCT id) = count(*) AS once FROM got;
SELECT bool_and(d >= before) FROM (SELECT d, lag(d) OVER (ORDER BY i) AS before FROM got) x;
ROLLBACK;
-- what is planned without any settings
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens @> '{60001}' ORDER BY tokens <-> '{7,31,62}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens @> '{7}' ORDER BY tokens <-> '{7,31,62}' LIMIT 10;
DROP SCHEMA index_keyed CASCADE;
