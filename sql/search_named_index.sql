-- functions that search an index with an expression, or of arrays
CREATE SCHEMA search_named_index;
SET search_path = search_named_index, public;
SET client_min_messages = warning;
CREATE TABLE names (id int PRIMARY KEY, name text, tags text[], old bool NOT NULL DEFAULT false);
INSERT INTO names SELECT i, CASE WHEN i % 50 > 0 THEN 'name ' || i % 97 || ' of ' || i % 11 END, CASE WHEN i % 40 > 0 THEN ARRAY['t' || i % 7, 't' || i % 13, NULL, 't' || i % 7] END, i % 10 = 0 FROM generate_series(1, 3000) i;
CREATE INDEX names_trgm ON names USING gpuvec (idset_trigrams(name), id);
CREATE INDEX names_tags ON names USING gpuvec (tags);
CREATE INDEX names_new ON names USING gpuvec (idset_trigrams(name)) WHERE NOT old;
CREATE INDEX names_both ON names USING gpuvec ((idset_trigrams(name) | idset_of_array(tags)));
ANALYZE names;
-- the answer of a function against that of a plain statement
CREATE FUNCTION differs(called text, plain text) RETURNS bigint LANGUAGE plpgsql SET enable_indexscan = off SET enable_bitmapscan = off AS $$
DECLARE n bigint;
BEGIN
	EXECUTE format('WITH a AS (SELECT tid, score FROM %s), b AS (SELECT ctid AS tid, score FROM %s) SELECT count(*) FROM ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a)) d', called, plain) INTO n;
	RETURN n;
END $$;
CREATE FUNCTION best(rel text, sets text, query text, k int, wanting text DEFAULT 'true') RETURNS text LANGUAGE sql AS $$
	SELECT format('(SELECT ctid, braun_blanquet_similarity(%s, %L) AS score FROM %s WHERE %s AND %s && %L ORDER BY 2 DESC, tableoid, ctid LIMIT %s) x', sets, query, rel, wanting, sets, query, k) $$;
CREATE TABLE wanted AS SELECT idset_trigrams('name 12 of 5') AS q, idset_of_array('{t3,t12}'::text[]) AS t;
CREATE FUNCTION compared(spelling text, k int, rel text DEFAULT 'names') RETURNS text LANGUAGE sql AS $$
	SELECT format('trigrams %s, tags %s, new %s, both %s',
		differs(format('gpuvec_topk(%L, %L, %L, %s)', rel, CASE spelling WHEN 'key' THEN 'idset_trigrams(name)' ELSE rel || '_trgm' END, q, k), best(rel, 'idset_trigrams(name)', q::text, k)),
		differs(format('gpuvec_topk(%L, %L, %L, %s)', rel, CASE spelling WHEN 'key' THEN 'tags' ELSE rel || '_tags' END, t, k), best(rel, 'idset_of_array(tags)', t::text, k)),
		differs(format('gpuvec_topk(%L, %L, %L, %s)', rel, rel || '_new', q, k), best(rel, 'idset_trigrams(name)', q::text, k, 'NOT old')),
		differs(format('gpuvec_topk(%L, %L, %L, %s)', rel, CASE spelling WHEN 'key' THEN 'idset_trigrams(name) | idset_of_array(tags)' ELSE rel || '_both' END, q | t, k), best(rel, 'idset_trigrams(name) | idset_of_array(tags)', (q | t)::text, k))) FROM wanted $$;
SELECT compared('name', k), compared('key', k) AS by_key FROM unnest('{1,7,100,4000}'::int[]) k;
-- by the engine, with one request for all partitions or rows
CREATE FUNCTION requests(called text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM ' || called LOOP
		IF line ~ 'Engine Requests' THEN RETURN trim(line); END IF;
	END LOOP;
	RETURN 'none';
END $$;
SELECT requests(format('gpuvec_topk(''names'', ''names_trgm'', %L, 10)', q)) AS trigrams, requests(format('gpuvec_topk(''names'', ''tags'', %L, 10)', t)) AS tags FROM wanted;
-- other functions: batches, whole rows, vectors, among rows, overlaps, loading
SELECT * FROM gpuvec_topk_batch('names', 'names_trgm', ARRAY[idset_trigrams('name 3 of 3'), NULL, idset_trigrams('of 10')], 2);
SELECT (item).id, (item).name, score FROM gpuvec_topk_rows(NULL::names, 'names_tags', idset_of_array('{t3,t12}'::text[]), 3);
SELECT source, tid, score FROM gpuvec_vec_topk('names', 'names_tags', idvec(idset_of_array('{t3,t12}'::text[])), 3);
SELECT count(*), bool_and(old) FROM wanted, gpuvec_topk('names', 'names_trgm', q, 4000, among => ARRAY(SELECT ctid FROM names WHERE old)) t JOIN names n ON n.ctid = t.tid;
SELECT differs(format('gpuvec_topk(''names'', ''names_trgm'', %L, 50, among => ARRAY(SELECT ctid FROM names WHERE id %% 3 = 0))', q), best('names', 'idset_trigrams(name)', q::text, 50, 'id % 3 = 0')) AS third, differs(format('gpuvec_topk(''names'', ''names_trgm'', %L, 50, among => ARRAY(SELECT ctid FROM names WHERE id < 30))', q), best('names', 'idset_trigrams(name)', q::text, 50, 'id < 30')) AS few FROM wanted;
SELECT a, b, rows FROM gpuvec_overlaps('names', 'tags', ARRAY[idset_of_array('{t3}'::text[]), idset_of_array('{t12}'::text[])]);
SELECT count(*) FILTER (WHERE tags && '{t3}'), count(*) FILTER (WHERE tags && '{t3}' AND tags && '{t12}'), count(*) FILTER (WHERE tags && '{t12}') FROM names;
SELECT gpuvec_prewarm('names', 'idset_trigrams(name)') AS trigrams, gpuvec_prewarm('names', 'names_new') AS new;
-- rows of this transaction, versions of rows, rows that are gone
BEGIN;
INSERT INTO names VALUES (3001, 'name 12 of 5', '{t3,t12}');
UPDATE names SET old = NOT old WHERE id % 17 = 0;
UPDATE names SET name = 'name 12 of ' || id WHERE id BETWEEN 100 AND 110;
DELETE FROM names WHERE id % 19 = 0;
SELECT compared('name', 50);
SAVEPOINT s;
UPDATE names SET tags = '{t3}' WHERE id < 200;
SELECT compared('key', 50);
ROLLBACK TO s;
SELECT compared('name', 4000);
COMMIT;
UPDATE names SET old = old WHERE id % 3 = 0;
SELECT compared('name', 50);
VACUUM names;
SELECT compared('key', 4000);
-- in the transaction that makes the index, and temporary tables
BEGIN;
CREATE TABLE now AS TABLE names;
CREATE INDEX now_trgm ON now USING gpuvec (idset_trigrams(name));
CREATE INDEX now_tags ON now USING gpuvec (tags);
CREATE INDEX now_new ON now USING gpuvec (idset_trigrams(name)) WHERE NOT old;
CREATE INDEX now_both ON now USING gpuvec ((idset_trigrams(name) | idset_of_array(tags)));
SELECT compared('name', 50, 'now');
ROLLBACK;
CREATE TEMP TABLE private AS TABLE names;
CREATE INDEX private_trgm ON private USING gpuvec (idset_trigrams(name));
CREATE INDEX private_tags ON private USING gpuvec (tags);
CREATE INDEX private_new ON private USING gpuvec (idset_trigrams(name)) WHERE NOT old;
CREATE INDEX private_both ON private USING gpuvec ((idset_trigrams(name) | idset_of_array(tags)));
UPDATE private SET old = old WHERE id % 3 = 0;
SELECT compared('name', 50, 'private'), compared('key', 4000, 'private') AS by_key;
SELECT differs(format('gpuvec_topk(''private'', ''private_trgm'', %L, 50, among => ARRAY(SELECT ctid FROM private WHERE id %% 3 = 0))', q), best('private', 'idset_trigrams(name)', q::text, 50, 'id % 3 = 0')) AS third FROM wanted;
SELECT a, b, rows FROM gpuvec_overlaps('private', 'tags', ARRAY[idset_of_array('{t3}'::text[]), idset_of_array('{t12}'::text[])]);
SELECT count(*) FILTER (WHERE tags && '{t3}'), count(*) FILTER (WHERE tags && '{t3}' AND tags && '{t12}'), count(*) FILTER (WHERE tags && '{t12}') FROM private;
-- partitions by their own indexes; a table that inherits
CREATE TABLE parts (id int, name text, tags text[], old bool) PARTITION BY RANGE (id);
CREATE TABLE parts_1 (old bool, tags text[], gone int, name text, id int);
ALTER TABLE parts_1 DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES FROM (0) TO (1000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (4000) PARTITION BY LIST (old);
CREATE TABLE parts_3 PARTITION OF parts_2 FOR VALUES IN (true);
CREATE TABLE parts_4 PARTITION OF parts_2 DEFAULT;
INSERT INTO parts SELECT id, name, tags, old FROM names;
CREATE INDEX parts_trgm ON parts USING gpuvec (idset_trigrams(name));
CREATE INDEX parts_tags ON parts USING gpuvec (tags);
CREATE INDEX parts_new ON parts USING gpuvec (idset_trigrams(name)) WHERE NOT old;
CREATE INDEX parts_both ON parts USING gpuvec ((idset_trigrams(name) | idset_of_array(tags)));
SELECT compared('name', k, 'parts'), compared('key', k, 'parts') AS by_key FROM unnest('{1,100,4000}'::int[]) k;
SELECT requests(format('gpuvec_topk(''parts'', ''parts_trgm'', %L, 10)', q)) FROM wanted;
CREATE TABLE heir () INHERITS (names);
INSERT INTO heir VALUES (5000, 'name 12 of 5', '{t3}');
SELECT count(*) FROM gpuvec_topk('names', 'names_trgm', idset_trigrams('name 12'), 10);
CREATE INDEX ON heir USING gpuvec (idset_trigrams(name)) WHERE NOT old;
SELECT count(*) FROM gpuvec_topk('names', 'names_trgm', idset_trigrams('name 12'), 10);
CREATE INDEX ON heir USING gpuvec (idset_trigrams(name));
SELECT differs(format('gpuvec_topk(''names'', ''names_trgm'', %L, 50)', q), best('names', 'idset_trigrams(name)', q::text, 50)) FROM wanted;
SELECT count(*) FROM gpuvec_topk('names', 'names_new', idset_trigrams('name 12'), 10);
DROP TABLE heir;
-- a column comes before an index
CREATE TABLE twice (a idset, b text);
CREATE INDEX a ON twice USING gpuvec (idset_trigrams(b));
INSERT INTO twice VALUES ('{1}', 'b');
SELECT count(*) FROM gpuvec_topk('twice', 'a', '{1}', 10);
-- by its key an index with a predicate is not meant
CREATE TABLE few (b text, old bool);
CREATE INDEX few_new ON few USING gpuvec (idset_trigrams(b)) WHERE NOT old;
INSERT INTO few VALUES ('a name', false), ('a name', true);
SELECT count(*) FROM gpuvec_topk('few', 'few_new', idset_trigrams('name'), 10);
SELECT count(*) FROM gpuvec_topk('few', 'idset_trigrams(b)', idset_trigrams('name'), 10);
-- what is refused
SELECT count(*) FROM gpuvec_topk('names', 'nothing', '{1}', 10);
SELECT gpuvec_prewarm('names', 'id', 'nothing');
SELECT count(*) FROM gpuvec_topk('names', 'name', '{1}', 10);
SELECT count(*) FROM gpuvec_topk('twice', 'names_trgm', '{1}', 10);
CREATE TABLE vectors (id int, v idvec);
CREATE INDEX vectors_ids ON vectors USING gpuvec ((v)) WHERE id > 0;
SELECT count(*) FROM gpuvec_topk('vectors', 'vectors_ids', '{1}', 10);
SELECT count(*) FROM gpuvec_vec_topk('vectors', 'vectors_ids', '{1:1}', 10);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'names_both'::regclass;
SELECT count(*) FROM gpuvec_topk('names', 'names_both', '{1}', 10);
UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'names_both'::regclass;
-- rights: on all columns that the index is made of
CREATE ROLE regress_named_index;
GRANT USAGE ON SCHEMA search_named_index TO regress_named_index;
GRANT SELECT (id, name) ON names TO regress_named_index;
SET ROLE regress_named_index;
SELECT count(*) FROM gpuvec_topk('names', 'names_trgm', idset_trigrams('name 12'), 10);
SELECT count(*) FROM gpuvec_topk('names', 'names_new', idset_trigrams('name 12'), 10);
SELECT count(*) FROM gpuvec_topk('names', 'names_both', idset_trigrams('name 12'), 10);
SELECT count(*) FROM gpuvec_topk('names', 'tags', '{1}', 10);
RESET ROLE;
GRANT SELECT ON names TO regress_named_index;
SET ROLE regress_named_index;
SELECT count(*) FROM gpuvec_topk('names', 'names_both', idset_trigrams('name 12'), 10);
RESET ROLE;
ALTER TABLE names ENABLE ROW LEVEL SECURITY;
SET ROLE regress_named_index;
SELECT count(*) FROM gpuvec_topk('names', 'names_trgm', idset_trigrams('name 12'), 10);
RESET ROLE;
DROP SCHEMA search_named_index CASCADE;
DROP ROLE regress_named_index;
