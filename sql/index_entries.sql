-- What an index with an expression or a predicate keeps: computed by writers, never by readers.
SET client_min_messages = warning;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	by_index text;
	by_sort text;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	SET LOCAL enable_bitmapscan = off;
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	EXECUTE format('SELECT count(*) || '' rows '' || coalesce(md5(string_agg(x::text, '','' ORDER BY x)), '''') FROM (%s) x', query) INTO by_index;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format('SELECT count(*) || '' rows '' || coalesce(md5(string_agg(x::text, '','' ORDER BY x)), '''') FROM (%s) x', query) INTO by_sort;
	SET LOCAL enable_indexscan = on;
	RETURN coalesce(substring(plan FROM '"Index Name": "(\w+)"'), 'no index') || ': ' || split_part(by_index, ' ', 1) || ' rows, ' ||
		CASE WHEN by_index = by_sort THEN 'same' ELSE 'different' END;
END $$;

-- A reader's functions are called by nobody else, and never for rows that the reader does not see
CREATE ROLE regress_gpuvec_reader;
CREATE SCHEMA reader_schema AUTHORIZATION regress_gpuvec_reader;
CREATE TABLE calls (who name, what text);
GRANT INSERT ON calls TO PUBLIC;
CREATE TABLE docs (id int, body text);
INSERT INTO docs SELECT i, 'Word' || i % 50 FROM generate_series(1, 1000) i;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON docs USING (id % 2 = 0);
CREATE FUNCTION tokens_of(t text) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN public.idset(ARRAY[ascii(lower(t)), length(t)]); END $$;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens_of(body));
CREATE INDEX docs_some ON docs USING gpuvec (tokens_of(body)) WHERE lower(body) < 'word3';
ANALYZE docs;
GRANT SELECT ON docs TO regress_gpuvec_reader;
SET SESSION AUTHORIZATION regress_gpuvec_reader;
CREATE FUNCTION reader_schema.lower(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.calls VALUES (current_user, $1);
	RETURN 'caught';
END $$;
SET search_path = reader_schema, pg_catalog, public;
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
-- rows that rank, the others, those of a search key and an order, a key alone; the first loads the copy
SELECT id FROM docs ORDER BY public.tokens_of(body) <-> '{119,6}' LIMIT 2;
SELECT count(*) FROM (SELECT id FROM docs ORDER BY public.tokens_of(body) <-> '{60000}') x;
SELECT id FROM docs WHERE pg_catalog.lower(body) < 'word3' ORDER BY public.tokens_of(body) <-> '{60000}' LIMIT 1;
RESET SESSION AUTHORIZATION;
RESET search_path;
SELECT who, count(*) > 0 AS called, count(*) FILTER (WHERE substr(what, 5)::int % 2 = 1) AS hidden FROM calls GROUP BY who;
TRUNCATE calls;
SELECT count(*) FROM docs WHERE tokens_of(body) && '{119}';
SELECT same('SELECT id, tokens_of(body) <-> ''{119,6}'' FROM docs ORDER BY tokens_of(body) <-> ''{119,6}''');
-- nor in a temporary schema, which comes before a path that a function sets itself
CREATE TABLE dict (id int, word text);
INSERT INTO dict VALUES (1, 'a'), (2, 'b');
CREATE TABLE notes (id int, body text);
INSERT INTO notes SELECT i, CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END FROM generate_series(1, 100) i;
CREATE FUNCTION tags(t text) RETURNS idset LANGUAGE sql IMMUTABLE SET search_path = public AS
	$$ SELECT idset_agg(id) FROM dict WHERE word = t $$;
CREATE INDEX notes_tags ON notes USING gpuvec (tags(body));
ANALYZE notes;
GRANT SELECT ON notes TO regress_gpuvec_reader;
SET SESSION AUTHORIZATION regress_gpuvec_reader;
CREATE FUNCTION pg_temp.caught() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.calls VALUES (current_user, 'view');
	RETURN 1;
END $$;
CREATE TEMP VIEW dict AS SELECT pg_temp.caught() AS id, 'a'::text AS word;
SELECT id FROM notes ORDER BY tags(body) <-> '{1}' LIMIT 2;
RESET SESSION AUTHORIZATION;
SELECT DISTINCT who FROM calls;
RESET enable_seqscan;
RESET enable_sort;
RESET enable_bitmapscan;
SELECT same('SELECT id, tags(body) <-> ''{1}'' FROM notes ORDER BY tags(body) <-> ''{1}''');
DROP OWNED BY regress_gpuvec_reader;
DROP ROLE regress_gpuvec_reader;

-- What a transaction has not committed enters no copy: a function that is replaced, and not
CREATE TABLE replaced (id int, n int);
INSERT INTO replaced SELECT i, i % 10 FROM generate_series(1, 1000) i;
CREATE FUNCTION of_number(n int) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN public.idset(ARRAY[n]); END $$;
CREATE INDEX replaced_i ON replaced USING gpuvec (of_number(n));
ANALYZE replaced;
BEGIN;
CREATE OR REPLACE FUNCTION of_number(n int) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN public.idset(ARRAY[100 + n]); END $$;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
SELECT n FROM replaced ORDER BY of_number(n) <-> '{5}' LIMIT 1;
INSERT INTO replaced VALUES (1001, 5);
SELECT count(*) FROM replaced WHERE of_number(n) @> '{105}';
ROLLBACK;
SELECT same('SELECT n FROM replaced WHERE of_number(n) @> ''{5}''');
SELECT same('SELECT of_number(n) <-> ''{5}'' FROM replaced ORDER BY of_number(n) <-> ''{5}'' LIMIT 200');
-- one that is replaced for good: rows keep what was computed when they were written, as in any index
CREATE OR REPLACE FUNCTION of_number(n int) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN public.idset(ARRAY[100 + n]); END $$;
INSERT INTO replaced VALUES (1001, 5);
CREATE FUNCTION of_key(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN n; END $$;
CREATE INDEX replaced_b ON replaced (of_key(n));
CREATE OR REPLACE FUNCTION of_key(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN 100 + n; END $$;
INSERT INTO replaced VALUES (1002, 5);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT (SELECT count(*) FROM replaced WHERE of_key(n) = 5) AS btree_old, (SELECT count(*) FROM replaced WHERE of_key(n) = 105) AS btree_new;
SET enable_sort = off;
SELECT id, of_number(n) FROM replaced WHERE id > 990 AND n = 5 ORDER BY of_number(n) <-> '{105}' LIMIT 1;
SELECT gpuvec_evict('replaced') > 0 AS evicted;
SELECT id, of_number(n) FROM replaced WHERE id > 990 AND n = 5 ORDER BY of_number(n) <-> '{105}' LIMIT 1;
RESET enable_seqscan;
RESET enable_sort;
RESET enable_bitmapscan;
DROP TABLE replaced;

-- Values of all lengths, cut into parts; nulls; rows that come, go, and come again at the same tids
CREATE TABLE lengths (id int, n int, extra int) WITH (fillfactor = 70);
CREATE FUNCTION first_ids(n int) RETURNS idset LANGUAGE sql IMMUTABLE AS
	$$ SELECT CASE WHEN n >= 0 THEN (SELECT public.idset(array_agg(i)) FROM generate_series(0, n - 1) i)
		WHEN n = -1 THEN '{}'::public.idset END $$;
CREATE INDEX lengths_i ON lengths USING gpuvec (first_ids(n));
CREATE INDEX lengths_p ON lengths USING gpuvec (first_ids(n)) WHERE extra = 1;
INSERT INTO lengths SELECT i, n, i % 2
FROM unnest('{1,2,3,4000,4063,4064,4065,4066,4067,4068,4069,8131,8132,8136,8137,20000,65535,65536,-1,-2}'::int[]) WITH ORDINALITY u (n, i);
ANALYZE lengths;
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000,65535}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1,5000,65535}''');
SELECT same('SELECT id, n, first_ids(n) <~> ''{0}'' FROM lengths WHERE extra = 1 ORDER BY first_ids(n) <~> ''{0}''');
SELECT same('SELECT id FROM lengths WHERE first_ids(n) @> ''{4065}''');
REINDEX TABLE lengths;
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000,65535}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1,5000,65535}''');
UPDATE lengths SET extra = 1 - extra WHERE id % 3 = 0;
UPDATE lengths SET n = n + 1 WHERE n BETWEEN 4000 AND 20000;
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1,5000}''');
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000}'' FROM lengths WHERE extra = 1 ORDER BY first_ids(n) <-> ''{0,1,5000}''');
DELETE FROM lengths WHERE id % 2 = 0;
VACUUM lengths;
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1,5000}''');
-- the same tids: some of the new rows are in the partial index, some are not
INSERT INTO lengths SELECT i, i % 7, i % 3 FROM generate_series(100, 400) i;
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1,5000}''');
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1,5000}'' FROM lengths WHERE extra = 1 ORDER BY first_ids(n) <-> ''{0,1,5000}''');
DELETE FROM lengths;
VACUUM lengths;
SELECT same('SELECT id, n, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
-- room is used again: many rounds of rows take no more pages than a few
INSERT INTO lengths SELECT i, 200, 1 FROM generate_series(1, 300) i;
SELECT pg_relation_size('lengths_i') AS size \gset
DO $$ BEGIN FOR i IN 1..20 LOOP DELETE FROM lengths; PERFORM pg_catalog.set_config('x.y', i::text, true); END LOOP; END $$;
VACUUM lengths;
INSERT INTO lengths SELECT i, 200, 1 FROM generate_series(1, 300) i;
DELETE FROM lengths;
VACUUM lengths;
INSERT INTO lengths SELECT i, 200, 1 FROM generate_series(1, 300) i;
DELETE FROM lengths;
VACUUM lengths;
INSERT INTO lengths SELECT i, 200, 1 FROM generate_series(1, 300) i;
SELECT pg_relation_size('lengths_i') <= :size AS no_larger;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
TRUNCATE lengths;
-- also that of values in several chunks, which lie on several pages
INSERT INTO lengths SELECT i, 9000, 1 FROM generate_series(1, 20) i;
SELECT pg_relation_size('lengths_i') AS size \gset
DELETE FROM lengths;
VACUUM lengths;
INSERT INTO lengths SELECT i, 9000, 1 FROM generate_series(1, 20) i;
DELETE FROM lengths;
VACUUM lengths;
INSERT INTO lengths SELECT i, 9000, 1 FROM generate_series(1, 20) i;
SELECT pg_relation_size('lengths_i') < :size * 1.25 AS about_as_large;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
TRUNCATE lengths;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
INSERT INTO lengths VALUES (1, 3, 1);
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');

-- Entries that wait: seen by the transaction itself, whatever it does to the index meanwhile
BEGIN;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(2, 50) i;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
SAVEPOINT a;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(51, 90) i;
ROLLBACK TO a;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(91, 120) i;
SAVEPOINT b;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(121, 140) i;
RELEASE b;
COMMIT;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
BEGIN;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(200, 220) i;
REINDEX INDEX lengths_i;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(221, 240) i;
DROP INDEX lengths_p;
COMMIT;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
BEGIN;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(300, 320) i;
TRUNCATE lengths;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(321, 340) i;
COMMIT;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
CREATE UNIQUE INDEX lengths_id ON lengths (id);
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(330, 350) i ON CONFLICT DO NOTHING;
INSERT INTO lengths SELECT i, i, 1 FROM generate_series(345, 360) i ON CONFLICT (id) DO UPDATE SET n = lengths.n + 1;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM lengths ORDER BY first_ids(n) <-> ''{0,1}''');
-- a table and its index in one transaction, and several indexes at once, more than have a queue
BEGIN;
CREATE TABLE fresh (id int, n int);
CREATE INDEX fresh_i ON fresh USING gpuvec (first_ids(n));
INSERT INTO fresh SELECT i, i FROM generate_series(1, 50) i;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM fresh ORDER BY first_ids(n) <-> ''{0,1}''');
COMMIT;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM fresh ORDER BY first_ids(n) <-> ''{0,1}''');
DO $$ BEGIN FOR i IN 1..20 LOOP EXECUTE format('CREATE INDEX fresh_%s ON fresh USING gpuvec (first_ids(n)) WHERE id %% 20 = %s', i, i - 1); END LOOP; END $$;
INSERT INTO fresh SELECT i, i FROM generate_series(51, 250) i;
SELECT DISTINCT regexp_replace(same(format('SELECT id, first_ids(n) <-> ''{0,1}'' FROM fresh WHERE id %% 20 = %s ORDER BY first_ids(n) <-> ''{0,1}''', i)), '\d+: \d+', '#: #')
FROM generate_series(0, 19) i;
-- an index that a subtransaction rebuilds, empties or drops comes back with it
CREATE TABLE restored (id int, n int);
CREATE INDEX restored_i ON restored USING gpuvec (idset(ARRAY[n]));
BEGIN;
INSERT INTO restored SELECT i, i FROM generate_series(261, 270) i;
SAVEPOINT s;
REINDEX INDEX restored_i;
INSERT INTO restored VALUES (271, 271);
ROLLBACK TO s;
INSERT INTO restored SELECT i, i FROM generate_series(272, 280) i;
SAVEPOINT s;
TRUNCATE restored;
SELECT count(*) FROM restored;
INSERT INTO restored VALUES (271, 271);
ROLLBACK TO s;
INSERT INTO restored SELECT i, i FROM generate_series(281, 290) i;
SAVEPOINT s;
DROP INDEX restored_i;
SELECT count(*) FROM restored;
ROLLBACK TO s;
COMMIT;
SELECT same('SELECT id, idset(ARRAY[n]) <-> ''{265,285}'' FROM restored ORDER BY idset(ARRAY[n]) <-> ''{265,285}''');
BEGIN;
INSERT INTO restored SELECT i, i FROM generate_series(291, 299) i;
SAVEPOINT s;
REINDEX INDEX restored_i;
SELECT count(*) FROM restored;
RELEASE s;
COMMIT;
SELECT same('SELECT id, idset(ARRAY[n]) <-> ''{265,285}'' FROM restored ORDER BY idset(ARRAY[n]) <-> ''{265,285}''');
-- many rows without ids on a page, of which VACUUM removes some
CREATE TABLE without_ids (id int, n int);
CREATE INDEX without_ids_i ON without_ids USING gpuvec (first_ids(n));
INSERT INTO without_ids SELECT i, -1 - i % 2 FROM generate_series(1, 7000) i;
DELETE FROM without_ids WHERE id % 50 = 0;
VACUUM without_ids;
INSERT INTO without_ids SELECT i, i % 3 FROM generate_series(7001, 7200) i;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM without_ids ORDER BY first_ids(n) <-> ''{0,1}''');
-- temporary and unlogged tables
CREATE TEMP TABLE temporary_ids AS SELECT * FROM fresh;
CREATE INDEX ON temporary_ids USING gpuvec (first_ids(n));
INSERT INTO temporary_ids SELECT i, i FROM generate_series(300, 320) i;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM temporary_ids ORDER BY first_ids(n) <-> ''{0,1}''');
ALTER TABLE fresh SET UNLOGGED;
INSERT INTO fresh SELECT i, i FROM generate_series(251, 260) i;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM fresh ORDER BY first_ids(n) <-> ''{0,1}''');
ALTER TABLE fresh SET LOGGED;
SELECT same('SELECT id, first_ids(n) <-> ''{0,1}'' FROM fresh ORDER BY first_ids(n) <-> ''{0,1}''');

-- Changes are found out by marks, by WAL, and by versions of all entries
CREATE TABLE found_out (id int, n int) WITH (fillfactor = 50);
CREATE INDEX found_out_i ON found_out USING gpuvec (first_ids(n % 50));
INSERT INTO found_out SELECT i, i FROM generate_series(1, 3000) i;
ANALYZE found_out;
SELECT same('SELECT id, first_ids(n % 50) <-> ''{0,1}'' FROM found_out ORDER BY first_ids(n % 50) <-> ''{0,1}''');
UPDATE found_out SET n = n + 1 WHERE id % 100 = 7;
SELECT same('SELECT id, first_ids(n % 50) <-> ''{0,1}'' FROM found_out ORDER BY first_ids(n % 50) <-> ''{0,1}''');
DELETE FROM found_out WHERE id BETWEEN 500 AND 900;
VACUUM found_out;
INSERT INTO found_out SELECT i, i FROM generate_series(5000, 5500) i;
SELECT same('SELECT id, first_ids(n % 50) <-> ''{0,1}'' FROM found_out ORDER BY first_ids(n % 50) <-> ''{0,1}''');
VACUUM FULL found_out;
SELECT same('SELECT id, first_ids(n % 50) <-> ''{0,1}'' FROM found_out ORDER BY first_ids(n % 50) <-> ''{0,1}''');
REINDEX INDEX CONCURRENTLY found_out_i;
SELECT same('SELECT id, first_ids(n % 50) <-> ''{0,1}'' FROM found_out ORDER BY first_ids(n % 50) <-> ''{0,1}''');

DROP TABLE temporary_ids, calls, docs, dict, notes, lengths, fresh, found_out, without_ids, restored;
DROP FUNCTION tokens_of(text), tags(text), of_number(int), of_key(int), first_ids(int), same(text);
