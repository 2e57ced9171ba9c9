-- Indexes on columns of arrays: distances of the sets of their elements, and
-- the server's own operators, which are checked on the rows.
CREATE SCHEMA index_arrays;
SET search_path = index_arrays, public;
SET client_min_messages = error;
-- what a set has: bits of int2 and int4, hashes of others, no nulls
SELECT idset_of_array('{3,1,NULL,3}'::int[]), idset_of_array('{-1,-2147483648}'::int[]), idset_of_array('{-1}'::int2[]), idset_of_array('{{1,2},{2,3}}'::int[]) AS plane, idset_of_array('{}'::text[]) AS empty, idset_of_array(NULL::text[]) IS NULL AS nothing, idset_of_array('{NULL}'::text[]) AS nulls;
SELECT idset_of_array('{a,b}'::text[]) = idset_hash('{a,b}'::text[]) AS text, idset_of_array('{1,5000000000}'::int8[]) = idset_hash('{1,5000000000}'::int8[]) AS int8, idset_of_array('{1.0}'::numeric[]) = idset_of_array('{1.00}'::numeric[]) AS "numeric", idset_of_array('{a}'::varchar[]) = idset_of_array('{a}'::text[]) AS "varchar", idset_of_array('{1e0}'::float8[]) = idset_of_array('{1}'::float8[]) AS float8;
SELECT a <-> b AS bb, a <%> b AS jaccard, a <#> b AS common, a <~> b AS differ FROM (VALUES ('{red,blue,red}'::text[], '{blue,green,NULL,grey}'::text[]), ('{}', '{}'), ('{}', '{a}'), ('{a}', NULL)) v(a, b);
SELECT bool_and((a <%> b) = (idset_of_array(a) <%> idset_of_array(b)) AND (a <-> b) = (idset_of_array(a) <-> idset_of_array(b)) AND (a <#> b) = (idset_of_array(a) <#> idset_of_array(b)) AND (a <~> b) = (idset_of_array(a) <~> idset_of_array(b))) AS defined FROM (SELECT ARRAY(SELECT i * j % 11 - 3 FROM generate_series(1, i) j) a, ARRAY(SELECT i * j % 7 FROM generate_series(1, 9 - i) j) b FROM generate_series(1, 8) i) s;
-- two values without a type: as before where there was more than one operator
CREATE FUNCTION message(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; hint text; context text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, nullif(concat_ws(' ', nullif(detail, ''), nullif(hint, '')), ''), substring(context, 'making a set for index "\w+"'));
END $$;
SELECT op, message(format('SELECT %L %s %L', '{1,2}', op, '{2,3}')) FROM unnest('{<->,<%>,<=>,<#>,<~>,&&,@>,=}'::text[]) op;
SELECT op, message(format('SELECT %L::idset %s %L', '{1,2}', op, '{2,3}')) FROM unnest('{<->,<%>,<=>,<#>,<~>,&&,@>,=}'::text[]) op;
-- the set of a constant or parameter is kept, but a parameter may change
CREATE FUNCTION in_turn() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text = '';
	q int[];
BEGIN
	FOR i IN 1..3 LOOP
		q = ARRAY[i, 5];
		said = concat_ws(' ', said, '{1,5}'::int[] <%> q, q <~> '{2,5}'::int[]);
	END LOOP;
	RETURN said;
END $$;
SELECT in_turn();
-- rows: nulls, duplicates, orders of elements, different elements with one id
CREATE TABLE docs (id int, tags text[], ints int[], smalls int2[], bigs int8[], words varchar[], uuids uuid[], price int);
CREATE FUNCTION chance(i int, j int, kind int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT (hashint4extended(i * 100 + j, kind) & 1048575) / 1048576::float8 $$;
CREATE TABLE same AS SELECT min(i) AS a, max(i) AS b FROM generate_series(1, 200000) i GROUP BY hashint8extended(i, 0) & 4294967295 HAVING count(*) > 1;
SELECT count(*) > 0 AS collisions FROM same;
INSERT INTO docs SELECT i, CASE WHEN i % 41 > 0 THEN t END, ARRAY(SELECT hashtext(x) % 1000 FROM unnest(t) x), ARRAY(SELECT (hashtext(x) % 30)::int2 FROM unnest(t) x), ARRAY(SELECT (hashtext(x) % 20)::int8 FROM unnest(t) x) || CASE i % 6 WHEN 0 THEN (SELECT a FROM same LIMIT 1) WHEN 1 THEN (SELECT b FROM same LIMIT 1) END::int8, t, ARRAY(SELECT md5(x)::uuid FROM unnest(t) x), i % 100
	FROM (SELECT i, ARRAY(SELECT CASE WHEN chance(i, j, 1) < 0.03 THEN NULL ELSE 'tag ' || (chance(i, j, 2) ^ 3 * 60)::int END FROM generate_series(1, (i * 7919 % 23) / 3) j WHERE i > 0) t FROM generate_series(1, 6000) i) s;
CREATE INDEX docs_tags ON docs USING gpuvec (tags, price);
CREATE INDEX docs_ints ON docs USING gpuvec (ints);
CREATE INDEX docs_smalls ON docs USING gpuvec (smalls);
CREATE INDEX docs_bigs ON docs USING gpuvec (bigs);
CREATE INDEX docs_words ON docs USING gpuvec (words);
CREATE INDEX docs_uuids ON docs USING gpuvec (uuids);
INSERT INTO docs SELECT -id, tags[2:] || 'new'::text, ints || 7, smalls, bigs, words, uuids, price FROM docs WHERE id % 5 = 0;
UPDATE docs SET tags = tags || 'tag 3'::text WHERE id % 11 = 0;
UPDATE docs SET price = price + 1 WHERE id % 13 = 0;
DELETE FROM docs WHERE id % 17 = 0;
ANALYZE docs;
SELECT indexrelid::regclass, amvalidate FROM pg_index i JOIN pg_class c ON c.oid = indexrelid, amvalidate(indclass[0]) WHERE indrelid = 'docs'::regclass ORDER BY 1;
-- the same rows by the index and without it; what the plan is
CREATE FUNCTION rows_of(query text, off text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	EXECUTE 'SET LOCAL enable_' || off || ' = off';
	IF off = 'indexscan' THEN SET LOCAL enable_bitmapscan = off; ELSE SET LOCAL enable_sort = off; END IF;
	EXECUTE format('SELECT string_agg(r::text, %L) FROM (%s) r', '; ', query) INTO result;
	SET LOCAL enable_indexscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on;
	RETURN result;
END $$;
CREATE FUNCTION uses_index(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE line text; used bool = false;
BEGIN
	SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off;
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		used = used OR line ~ 'docs_\w+';
	END LOOP;
	SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on;
	RETURN used;
END $$;
CREATE FUNCTION compared(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN rows_of(query, 'seqscan') IS DISTINCT FROM rows_of(query, 'indexscan') THEN 'differ'
		WHEN uses_index(query) THEN 'same, by the index' ELSE 'same, without it' END;
END $$;
CREATE TABLE queries AS SELECT col, q FROM (VALUES ('tags', '{"tag 3","tag 40"}'), ('tags', '{}'), ('tags', '{NULL}'), ('tags', '{"tag 1",NULL}'), ('tags', '{"tag 1","tag 1","tag 2"}'), ('ints', '{-5,7,300}'), ('ints', '{7}'), ('smalls', '{-3,5,9}'), ('bigs', '{5,6,7}'), ('bigs', (SELECT format('{%s}', a) FROM same LIMIT 1)), ('bigs', (SELECT format('{%s,1}', b) FROM same LIMIT 1)), ('words', '{"tag 3","tag 40"}'), ('uuids', (SELECT uuids::text FROM docs WHERE cardinality(uuids) = 3 ORDER BY id LIMIT 1))) v(col, q);
SELECT col, op, count(*) AS queries, string_agg(DISTINCT compared(format('SELECT id FROM docs WHERE %s %s %L ORDER BY id', col, op, q)), ', ') AS rows
	FROM queries, unnest('{&&,@>,<@,=}'::text[]) op GROUP BY 1, 2 ORDER BY 1, 2;
SELECT op, count(*) AS queries, string_agg(DISTINCT compared(format('SELECT %s %s %L AS d, count(*) FROM (SELECT * FROM docs ORDER BY %1$s %2$s %3$L LIMIT 300) x GROUP BY 1 ORDER BY 1', col, op, q)), ', ') AS rows
	FROM queries, unnest('{<->,<%>,<#>,<~>}'::text[]) op GROUP BY 1 ORDER BY 1;
SELECT compared(format('SELECT id FROM docs WHERE %s ORDER BY id', c)), c FROM unnest(ARRAY['tags && ''{"tag 3"}'' AND price < 50', 'price = 7 AND tags IS NULL', 'tags IS NULL', 'bigs = (SELECT bigs FROM docs WHERE id = 600)', 'tags @> (SELECT tags FROM docs WHERE id = 601)', 'words && (ARRAY[''tag 5'']::varchar[])', 'ints @> ARRAY[7]']) c;
-- every row of = is compared: as many by the index as without
SELECT bool_and(compared(format('SELECT id FROM docs WHERE bigs = %L ORDER BY id', bigs)) ~ '^same') AS equal FROM (SELECT bigs FROM docs WHERE id % 400 = 1) s;
-- counts look at the rows
SELECT compared(format('SELECT count(*) FROM docs WHERE %s', c)), c FROM unnest(ARRAY['tags && ''{"tag 3"}''', 'tags @> ''{"tag 3","tag 4"}'' AND price < 50', 'bigs = ''{7,5}''', 'words <@ ''{"tag 1","tag 2"}''', 'ints && ''{7}'' AND ints @> ''{-5}''', 'price = 7']) c;
SELECT compared('SELECT price, count(*) FROM docs WHERE tags && ''{"tag 3"}'' GROUP BY price ORDER BY price');
SELECT compared('SELECT id FROM docs WHERE tags && ''{"tag 3","tag 7"}'' ORDER BY price, id LIMIT 20');
-- arrays with more elements than a set has ids are searched for, too
SELECT compared(format('SELECT id FROM docs WHERE ints %s (SELECT array_agg(i) FROM generate_series(-35000, 35000) i) ORDER BY id', op)), op FROM unnest('{&&,@>,<@,=}'::text[]) op;
SELECT compared('SELECT ints <#> ''{7,1}'' AS d FROM docs WHERE ints && (SELECT array_agg(i) FROM generate_series(-35000, 35000) i) ORDER BY ints <#> ''{7,1}'' LIMIT 20');
-- parameters, cursors, joins, aggregates
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE nearest AS SELECT count(*), min(d), max(d) FROM (SELECT tags <%> $1 AS d FROM docs ORDER BY tags <%> $1 LIMIT 20) x;
EXECUTE nearest('{"tag 3","tag 40"}');
EXPLAIN (COSTS OFF) EXECUTE nearest('{"tag 3","tag 40"}');
PREPARE found AS SELECT count(*) FROM docs WHERE tags && $1 AND tags @> $2;
EXECUTE found('{"tag 3"}', '{"tag 40"}');
RESET plan_cache_mode;
EXPLAIN (COSTS OFF) SELECT * FROM docs WHERE tags && '{"tag 3"}' ORDER BY tags <-> '{"tag 3","tag 40"}' LIMIT 5;
SELECT count(*), count(DISTINCT a) FROM (SELECT a.id AS a, n.id AS b FROM docs a, LATERAL (SELECT b.id FROM docs b ORDER BY b.words <-> a.words LIMIT 2) n WHERE a.id BETWEEN 1 AND 200) x;
BEGIN;
DECLARE c CURSOR FOR SELECT ints <#> '{7,1}' AS d FROM docs ORDER BY ints <#> '{7,1}';
FETCH 2 FROM c;
MOVE 1000 IN c;
FETCH 1 FROM c;
COMMIT;
-- a query of a row that is not reached makes no error, whatever functions its
-- elements have
CREATE FUNCTION circle_hash(circle) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT radius($1)::int';
CREATE FUNCTION circle_hash(circle, int8) RETURNS int8 LANGUAGE plpgsql IMMUTABLE AS $$BEGIN IF radius($1) = 41 THEN RAISE 'no hash'; END IF; RETURN radius($1); END$$;
CREATE OPERATOR CLASS circle_ops DEFAULT FOR TYPE circle USING hash AS OPERATOR 1 ~=, FUNCTION 1 circle_hash(circle), FUNCTION 2 circle_hash(circle, int8);
CREATE TABLE circles AS SELECT i AS n, ARRAY[circle(point(0, 0), i)] AS c FROM generate_series(1, 40) i;
CREATE INDEX docs_circles ON circles USING gpuvec (c);
CREATE TABLE asked_circles AS SELECT n, ARRAY[circle(point(0, 0), n)] AS q FROM generate_series(1, 41) n;
ANALYZE circles;
SELECT count(*), max(n) FROM (SELECT a.n, d FROM (SELECT * FROM asked_circles ORDER BY n) a, LATERAL (SELECT c <#> q AS d FROM circles ORDER BY c <#> q LIMIT 2) x LIMIT 80) y;
SELECT message('SELECT d FROM asked_circles, LATERAL (SELECT c <#> q AS d FROM circles ORDER BY c <#> q LIMIT 2) x');
CREATE TABLE asked (n int, q int[]);
INSERT INTO asked SELECT i, '{7}' FROM generate_series(1, 40) i UNION ALL SELECT 41, ARRAY(SELECT generate_series(1, 70000));
SELECT count(*), max(n) FROM (SELECT n, d FROM (SELECT * FROM asked ORDER BY n) a, LATERAL (SELECT ints <#> q AS d FROM docs ORDER BY ints <#> q LIMIT 2) x LIMIT 80) y;
SELECT message('SELECT n, d FROM asked, LATERAL (SELECT ints <#> q AS d FROM docs ORDER BY ints <#> q LIMIT 2) x');
-- errors
SELECT message('INSERT INTO docs (id, ints) VALUES (0, ARRAY(SELECT generate_series(1, 70000)))');
CREATE TABLE points (p point[], s idset, tags text[], d text);
SELECT message('CREATE INDEX ON points USING gpuvec (p)');
SELECT message('CREATE INDEX ON points USING gpuvec (s, tags)');
SELECT message('CREATE INDEX ON points USING gpuvec (d)');
INSERT INTO points (tags) VALUES ('{a}'), (ARRAY(SELECT generate_series(1, 70000)::text));
SELECT message('CREATE INDEX points_tags ON points USING gpuvec (tags)');
-- expressions, predicates, partitions, domains
CREATE DOMAIN labels AS text[];
CREATE TABLE parted (id int, tags labels) PARTITION BY RANGE (id);
CREATE TABLE docs_p1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (3000);
CREATE TABLE docs_p2 PARTITION OF parted FOR VALUES FROM (3000) TO (MAXVALUE);
INSERT INTO parted SELECT id, tags FROM docs;
CREATE INDEX docs_parted ON parted USING gpuvec (tags);
CREATE INDEX docs_some ON docs USING gpuvec ((ints || 1)) WHERE price < 10;
SELECT compared(q) FROM unnest(ARRAY['SELECT tags <%> ''{"tag 3"}'' AS d FROM parted ORDER BY tags <%> ''{"tag 3"}'' LIMIT 50', 'SELECT id FROM parted WHERE tags && ''{"tag 3"}'' ORDER BY id', 'SELECT (ints || 1) <~> ''{1,7}'' AS d FROM docs WHERE price < 10 ORDER BY (ints || 1) <~> ''{1,7}'' LIMIT 50']) q;
-- a B-tree's and GIN's operators stay theirs
RESET enable_seqscan;
CREATE INDEX docs_gin ON docs USING gin (tags);
SELECT compared('SELECT id FROM docs WHERE tags @> ''{"tag 3","tag 4","tag 5"}'' ORDER BY id');
REINDEX INDEX docs_tags;
VACUUM docs;
SELECT compared('SELECT tags <%> ''{"tag 3","tag 9"}'' AS d FROM docs ORDER BY tags <%> ''{"tag 3","tag 9"}'' LIMIT 100');
DROP SCHEMA index_arrays CASCADE;
