-- Partitions of all kinds, which one request names: the best rows of all of them, whatever was changed, and whoever sees it.
CREATE SCHEMA several;
SET search_path = several, public;
CREATE TABLE parts (id int, tokens idset) PARTITION BY LIST (id);
-- with an index, or without; with large ids; without WAL; with another order of columns; with nothing; with partitions of its own
SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%1$s)', i) FROM generate_series(0, 5) i \gexec
CREATE UNLOGGED TABLE parts_6 PARTITION OF parts FOR VALUES IN (6);
CREATE TABLE parts_7 (tokens idset, dropped int, id int);
ALTER TABLE parts_7 DROP COLUMN dropped;
ALTER TABLE parts ATTACH PARTITION parts_7 FOR VALUES IN (7);
CREATE TABLE parts_8 PARTITION OF parts FOR VALUES IN (8, 9) PARTITION BY LIST (id);
CREATE TABLE parts_8_8 PARTITION OF parts_8 FOR VALUES IN (8);
CREATE TABLE parts_8_9 PARTITION OF parts_8 FOR VALUES IN (9);
CREATE INDEX ON parts_1 USING gpuvec (tokens);
CREATE INDEX ON parts_3 USING gpuvec (tokens, id);
CREATE INDEX ON parts_5 USING gpuvec (tokens);
CREATE INDEX ON parts_8_9 USING gpuvec (tokens);
-- rows of few kinds, so ties are everywhere; none in parts_4 at first
CREATE FUNCTION some_rows(lo int, hi int) RETURNS TABLE (id int, tokens idset) LANGUAGE sql AS $$
	SELECT CASE i % 10 WHEN 4 THEN 0 ELSE i % 10 END, CASE WHEN i % 97 = 0 THEN NULL
		WHEN i % 10 = 2 AND i % 3 = 0 THEN ARRAY[i % 7, 10 + i % 5, 100000 + i % 11]::idset
		ELSE ARRAY[i % 7, 10 + i % 5, 20 + i / 10 % 9, 40 + i % 23]::idset END FROM generate_series(lo, hi) i $$;
INSERT INTO parts SELECT * FROM some_rows(1, 4000);
CREATE TABLE asked AS SELECT row_number() OVER () AS n, q FROM unnest('{"{1,11,21,41}","{3,13,25,60}",NULL,"{}","{0,10,20,21,22,23}","{100003,2,12}","{77777}","{1,11,21,41}"}'::idset[]) q;
CREATE FUNCTION score(measure text, q idset, s idset) RETURNS float8 LANGUAGE sql AS $$
	SELECT CASE measure WHEN 'braun_blanquet' THEN braun_blanquet_similarity(q, s) WHEN 'cosine' THEN cosine_similarity(q, s)
		WHEN 'intersection' THEN intersection_count(q, s) ELSE -hamming_distance(q, s) END $$;
CREATE FUNCTION best(measure text, k bigint, bound float8) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s %s %s %s %s %s', n, rank, oid::regclass, ctid, s, common) FROM (
		SELECT *, row_number() OVER (PARTITION BY n ORDER BY s DESC, oid, ctid) AS rank
		FROM (SELECT n, p.tableoid AS oid, p.ctid, score(measure, q, tokens) AS s, cardinality(q & tokens) AS common FROM asked, parts p
			  WHERE q IS NOT NULL AND tokens IS NOT NULL) x
		WHERE (common > 0 OR measure = 'hamming') AND (bound IS NULL OR s >= bound)) x WHERE k IS NULL OR rank <= k $$;
CREATE FUNCTION found(measure text, k bigint, bound float8) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s %s %s %s %s %s', query, rank, source, tid, score, common) FROM gpuvec_topk_batch('parts', 'tokens', (SELECT array_agg(q ORDER BY n) FROM asked), k, measure, bound) $$;
CREATE FUNCTION found_singly(measure text, k bigint, bound float8) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s %s %s %s %s %s', n, rank, source, tid, score, common) FROM asked, gpuvec_topk('parts', 'tokens', q, k, measure, bound) $$;
-- how many rows differ, of all measures and some k
CREATE FUNCTION wrong() RETURNS TABLE (measure text, batch text, singly text) LANGUAGE sql AS $$
	SELECT m, string_agg((SELECT count(*) FROM (SELECT * FROM best(m, k, bound)) a(x) FULL JOIN (SELECT * FROM found(m, k, bound)) b(x) USING (x) WHERE a IS NULL OR b IS NULL)::text, ' ' ORDER BY k, bound),
		string_agg((SELECT count(*) FROM (SELECT * FROM best(m, k, bound)) a(x) FULL JOIN (SELECT * FROM found_singly(m, k, bound)) b(x) USING (x) WHERE a IS NULL OR b IS NULL)::text, ' ' ORDER BY k, bound)
	FROM unnest('{braun_blanquet,cosine,intersection,hamming}'::text[]) m,
		LATERAL (VALUES (1::bigint, NULL::float8), (3, NULL), (25, NULL), (400, NULL), (10, CASE WHEN m = 'hamming' THEN -5 ELSE 0.5 END), (NULL, CASE WHEN m = 'hamming' THEN -4 ELSE 0.5 END)) v(k, bound)
	GROUP BY m ORDER BY m $$;
SELECT * FROM wrong();
-- rows that came since, and went
INSERT INTO parts SELECT * FROM some_rows(4001, 4300);
DELETE FROM parts WHERE tokens @> 1 AND id IN (0, 1, 5);
SELECT * FROM wrong();
-- rows that only this transaction sees, and rows that it does not see any more: more than are asked for in reserve
BEGIN;
UPDATE parts SET tokens = tokens | '{99}' WHERE id IN (0, 1, 3);
SAVEPOINT failed;
UPDATE parts SET tokens = '{1,11,21,41}' WHERE id IN (0, 3, 7);
INSERT INTO parts SELECT i % 10, '{1,11,21,41}' FROM generate_series(1, 600) i WHERE i % 10 <> 4;
SELECT * FROM wrong() WHERE measure IN ('braun_blanquet', 'hamming');
ROLLBACK TO failed;
SELECT * FROM wrong() WHERE measure IN ('braun_blanquet', 'hamming');
ROLLBACK;
SELECT * FROM wrong();
-- updates within pages: an index has roots, functions return rows
VACUUM parts;
UPDATE parts SET id = id WHERE tokens @> 11;
DELETE FROM parts WHERE tokens @> 12;
VACUUM parts;
UPDATE parts SET id = id WHERE tokens @> 13;
INSERT INTO parts SELECT i, '{1,11,21,41}' FROM unnest('{1,3,5,9}'::int[]) i, generate_series(1, 40);
SELECT * FROM wrong();
-- a partition that is not there any more, one that is emptied, and a new one
DROP TABLE parts_2;
TRUNCATE parts_5;
CREATE TABLE parts_4_new PARTITION OF parts FOR VALUES IN (10);
INSERT INTO parts SELECT 10, tokens FROM parts WHERE id = 7;
SELECT * FROM wrong();
-- under SERIALIZABLE
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM wrong() WHERE measure = 'cosine';
COMMIT;

-- ORDER BY a distance: index scans below a Merge Append, which begin together
DROP TABLE parts_6;
CREATE INDEX ON parts USING gpuvec (tokens);
ANALYZE parts;
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		-- from 17 IN is a condition of the index, where id is in it
		IF line NOT LIKE '%(id = ANY (%' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
SET enable_seqscan = off;
SELECT plan($$SELECT id FROM parts WHERE id IN (0, 1, 3) ORDER BY tokens <-> '{1,11,21,41}' LIMIT 10$$);
RESET enable_seqscan;
CREATE FUNCTION distances(q idset, k int, OUT by_index text, OUT by_sort text) LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT string_agg(d::text, '' '') FROM (SELECT tokens <-> %L::idset AS d FROM parts ORDER BY 1 LIMIT %s) x', q, k);
BEGIN
	SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off;
	EXECUTE query INTO by_index;
	SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; SET LOCAL enable_indexscan = off;
	EXECUTE query INTO by_sort;
	SET LOCAL enable_indexscan = on;
END $$;
CREATE FUNCTION orders() RETURNS text LANGUAGE sql AS $$
	SELECT format('%s of %s', count(*) FILTER (WHERE (d).by_index = (d).by_sort), count(*)) FROM (SELECT distances(q, k) AS d FROM asked, unnest('{1,2,7,50,1000,5000}'::int[]) k WHERE q IS NOT NULL) x $$;
SELECT orders();
BEGIN;
INSERT INTO parts SELECT i, '{1,11,21,41}' FROM unnest('{1,3,9}'::int[]) i, generate_series(1, 20);
DELETE FROM parts WHERE tokens @> 20;
SELECT orders();
ROLLBACK;
SELECT orders();
-- scans that begin again, each time for another set
SET enable_seqscan = off;
SET enable_sort = off;
SELECT n, (SELECT string_agg(d::text, ' ') FROM (SELECT tokens <-> q AS d FROM parts ORDER BY tokens <-> q LIMIT 3) x) AS nearest,
	(SELECT string_agg(d::text, ' ') FROM (SELECT tokens <-> q AS d FROM parts ORDER BY (tokens <-> q) + 0 LIMIT 3) x) AS sorted FROM asked ORDER BY n;
-- a cursor whose scans were given rows goes on, whatever happens meanwhile
BEGIN;
DECLARE near CURSOR FOR SELECT tokens <-> '{0,10,20,21,22,23}' AS d FROM parts ORDER BY tokens <-> '{0,10,20,21,22,23}';
CREATE TABLE before AS SELECT row_number() OVER (ORDER BY d) AS n, d FROM (SELECT tokens <-> '{0,10,20,21,22,23}' AS d FROM parts) x;
FETCH 2 FROM near;
DELETE FROM parts WHERE tokens @> 10;
INSERT INTO parts SELECT i, '{0,10,20,21,22,23}' FROM unnest('{1,3,9}'::int[]) i, generate_series(1, 20);
SELECT count(*) FROM gpuvec_topk('parts', 'tokens', '{0,10,20,21,22,23}', 40);
MOVE 1500 FROM near;
FETCH 3 FROM near;
SELECT d FROM before WHERE n BETWEEN 1503 AND 1505 ORDER BY n;
ROLLBACK;
RESET enable_seqscan;
RESET enable_sort;
SET client_min_messages = warning;
DROP SCHEMA several CASCADE;
RESET client_min_messages;
RESET search_path;
