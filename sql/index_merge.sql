-- ORDER BY a distance of a table with partitions: scans that are merged give
-- what a sort of all rows gives, in the order of distance, table and tid.
CREATE SCHEMA index_merge;
SET search_path = index_merge, public;
-- rows of few kinds, so ties are everywhere; null and empty sets
CREATE FUNCTION some_rows(lo int, hi int) RETURNS TABLE (id int, n int, tokens idset) LANGUAGE sql AS $$
	SELECT i % 10, i, CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}'
		WHEN i % 10 = 2 AND i % 3 = 0 THEN ARRAY[i % 7, 10 + i % 5, 100000 + i % 11]::idset
		ELSE ARRAY[i % 7, 10 + i % 5, 20 + i / 10 % 9, 40 + i % 23]::idset END FROM generate_series(lo, hi) i $$;
CREATE TABLE asked AS SELECT row_number() OVER () AS n, q
	FROM unnest('{"{1,11,21,41}",NULL,"{}","{0,10,20,21,22,23}","{100003,2,12}","{77777}","{5}"}'::idset[]) q;
-- What a query returns by index scans that are merged, against the same by
-- sequential scans and a sort, which has what stands in /* */ as well
CREATE FUNCTION same(query text, merged bool DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	got text[];
	wanted text[];
BEGIN
	PERFORM set_config(name, 'off', true) FROM unnest('{enable_seqscan,enable_bitmapscan,enable_sort,enable_hashagg}'::text[]) name;
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	EXECUTE 'SELECT coalesce(array_agg(x::text), ''{}'') FROM (' || query || ') x' INTO got;
	PERFORM set_config(name, 'on', true) FROM unnest('{enable_seqscan,enable_sort,enable_hashagg}'::text[]) name;
	SET LOCAL enable_indexscan = off;
	EXECUTE 'SELECT coalesce(array_agg(x::text), ''{}'') FROM (' || replace(replace(query, '/*', ''), '*/', '') || ') x' INTO wanted;
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_bitmapscan = on;
	RETURN CASE WHEN (plan ~ 'gpuvec merge') <> merged THEN 'another plan: ' || (SELECT string_agg(m[1], ', ') FROM regexp_matches(plan, '"Node Type": "([^"]*)"', 'g') m)
		WHEN got = wanted THEN 'same' ELSE format('%s rows instead of %s: %s... instead of %s...', cardinality(got), cardinality(wanted), got[:5], wanted[:5]) END;
END $$;
-- all measures, sets and numbers of rows: what differs
CREATE FUNCTION wrong(source text, ks int[]) RETURNS TABLE (query text, result text) LANGUAGE sql AS $$
	SELECT * FROM (SELECT query, same(query) AS result FROM (
		SELECT format('SELECT tableoid, ctid, tokens %1$s %2$L::idset AS d FROM %3$s ORDER BY tokens %1$s %2$L::idset /*, tableoid, ctid*/ LIMIT %4$s', operator, q, source, k) AS query
		FROM unnest('{<->,<%>,<#>,<~>,<=>}'::text[]) operator, asked, unnest(ks) k WHERE q IS NOT NULL ORDER BY operator, asked.n, k) x) x
	WHERE result <> 'same' $$;

-- partitions of all kinds: of another order of columns, with columns that were
-- dropped, empty, with partitions of their own
CREATE TABLE parts (id int, n int, tokens idset) PARTITION BY LIST (id);
SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%1$s)', i) FROM generate_series(0, 4) i \gexec
CREATE UNLOGGED TABLE parts_6 PARTITION OF parts FOR VALUES IN (6);
CREATE TABLE parts_7 (tokens idset, dropped int, id int, n int);
ALTER TABLE parts_7 DROP COLUMN dropped;
CREATE TABLE parts_8 PARTITION OF parts FOR VALUES IN (8, 9) PARTITION BY LIST (id);
CREATE TABLE parts_8_9 PARTITION OF parts_8 FOR VALUES IN (9) PARTITION BY RANGE (n);
CREATE TABLE parts_8_9_low PARTITION OF parts_8_9 FOR VALUES FROM (MINVALUE) TO (2000);
CREATE TABLE parts_8_9_high PARTITION OF parts_8_9 FOR VALUES FROM (2000) TO (MAXVALUE);
CREATE TABLE parts_8_8 PARTITION OF parts_8 FOR VALUES IN (8);
ALTER TABLE parts ATTACH PARTITION parts_7 FOR VALUES IN (7);
CREATE TABLE parts_nothing PARTITION OF parts FOR VALUES IN (5);
INSERT INTO parts SELECT CASE id WHEN 5 THEN 1 ELSE id END, n, tokens FROM some_rows(1, 4000);
CREATE INDEX ON parts USING gpuvec (tokens);
ANALYZE parts;
SET enable_sort = off;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM parts WHERE id IN (0, 8, 9) ORDER BY tokens <-> '{1,11,21,41}' LIMIT 3;
RESET enable_sort;
RESET enable_seqscan;
SELECT * FROM wrong('parts', '{1,10,127,128,129,1024,1025,10000}');
-- one request, and no scan of a table that has none of the rows
CREATE FUNCTION analyzed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	PERFORM set_config(name, 'off', true) FROM unnest('{enable_seqscan,enable_bitmapscan,enable_sort}'::text[]) name;
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line ~ '(Limit|Custom Scan|Requests: [1-9]|Merge Append|Scan)' THEN RETURN NEXT regexp_replace(line, 'rows=(\d+)\.00', 'rows=\1'); END IF;
	END LOOP;
END $$;
CREATE TABLE far (id int, tokens idset) PARTITION BY RANGE (id);
SELECT format('CREATE TABLE far_%s PARTITION OF far FOR VALUES FROM (%s) TO (%s)', i, i * 100, i * 100 + 100) FROM generate_series(0, 3) i \gexec
INSERT INTO far SELECT i, ARRAY[1, i / 100 * 1000 + i % 50, i / 100 * 1000 + 500]::idset FROM generate_series(0, 399) i;
CREATE INDEX ON far USING gpuvec (tokens);
SELECT count(*) > 0 AS loaded FROM gpuvec_topk('far', 'tokens', '{1}', 1);
BEGIN;
SELECT analyzed($$SELECT id FROM far ORDER BY tokens <-> '{1,2000,2500}' LIMIT 5$$);
-- two are as many as it takes
SELECT analyzed($$SELECT id FROM far WHERE id < 200 ORDER BY tokens <-> '{1,500,1500}' LIMIT 5$$);
COMMIT;
-- two partitions, three, 40 by a hash
CREATE TABLE hashed (n int, tokens idset) PARTITION BY HASH (n);
SELECT format('CREATE TABLE hashed_%s PARTITION OF hashed FOR VALUES WITH (MODULUS 40, REMAINDER %1$s)', i) FROM generate_series(0, 39) i \gexec
INSERT INTO hashed SELECT n, tokens FROM some_rows(1, 3000);
CREATE INDEX ON hashed USING gpuvec (tokens);
SELECT * FROM wrong('hashed', '{1,130}');
SELECT * FROM wrong('(SELECT *, tableoid, ctid FROM parts WHERE id IN (1, 7)) p', '{1,129,10000}');
SELECT * FROM wrong('(SELECT *, tableoid, ctid FROM parts WHERE id < 3) p', '{1,129}');
-- a partition without the index, whose rows come in no order
CREATE TABLE partly (id int, n int, tokens idset) PARTITION BY LIST (id);
SELECT format('CREATE TABLE partly_%s PARTITION OF partly FOR VALUES IN (%1$s)', i) FROM generate_series(0, 2) i \gexec
INSERT INTO partly SELECT n % 3, n, tokens FROM some_rows(1, 600);
CREATE INDEX ON partly_0 USING gpuvec (tokens);
CREATE INDEX ON partly_2 USING gpuvec (tokens);
SELECT same($$SELECT tokens <-> '{1,11,21,41}' FROM partly ORDER BY tokens <-> '{1,11,21,41}' LIMIT 30$$, false);
-- conditions that most rows fail, and that none passes; more rows are asked
-- for
SELECT * FROM wrong('(SELECT *, tableoid, ctid FROM parts WHERE n % 50 = 7) p', '{1,10,1000}');
SELECT same($$SELECT n FROM parts WHERE n % 50 = 55 ORDER BY tokens <-> '{1,11,21,41}' LIMIT 3$$);
SELECT same($$SELECT n, tokens <#> '{1}' FROM parts WHERE n > 3900 AND random() < 2 ORDER BY tokens <#> '{1}' /*, tableoid, ctid*/ LIMIT 30$$);
-- no set
SELECT same($$SELECT count(*) FROM (SELECT n FROM parts ORDER BY tokens <-> NULL::idset LIMIT 300) x$$, false);
SELECT same($$SELECT count(*) FROM (SELECT n FROM parts ORDER BY tokens <-> (SELECT q FROM asked WHERE q IS NULL) LIMIT 300) x$$);
SELECT same($$SELECT n FROM parts ORDER BY tokens <-> (SELECT q FROM asked WHERE n = 4) /*, tableoid, ctid*/ LIMIT 300$$);

-- partitions that are left out when a statement begins, and while it runs
CREATE FUNCTION pruned(ids int[], q idset) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT count(*), md5(string_agg(x::text, '' '')) FROM (SELECT tableoid, n, tokens <-> $2 FROM parts WHERE id = ANY ($1) ORDER BY tokens <-> $2 %s LIMIT 400) x';
	got text;
	wanted text;
BEGIN
	SET LOCAL plan_cache_mode = force_generic_plan;
	PERFORM set_config(name, 'off', true) FROM unnest('{enable_seqscan,enable_bitmapscan,enable_sort}'::text[]) name;
	EXECUTE 'PREPARE pruned (int[], idset) AS ' || format(query, '');
	EXECUTE format('EXECUTE pruned (%L, %L)', ids, q) INTO got;
	PERFORM set_config(name, 'on', true) FROM unnest('{enable_seqscan,enable_sort}'::text[]) name;
	SET LOCAL enable_indexscan = off;
	EXECUTE format(query, ', tableoid, ctid') INTO wanted USING ids, q;
	SET LOCAL enable_indexscan = on;
	DEALLOCATE pruned;
	RETURN CASE WHEN got = wanted THEN 'same' ELSE format('%s instead of %s', got, wanted) END;
END $$;
SELECT ids, string_agg(DISTINCT pruned(ids::int[], q), ', ') FROM asked, unnest('{"{1}","{1,7}","{8,9,2}","{5}","{5,0}","{77}"}'::text[]) ids GROUP BY ids ORDER BY ids;
-- (the same set of partitions, and another one, for each row)
SELECT same($$SELECT a.n, x.* FROM asked a, LATERAL (SELECT tableoid, p.n, tokens <-> a.q FROM parts p WHERE p.id > a.n
	ORDER BY tokens <-> a.q /*, tableoid, ctid*/ LIMIT 150) x$$);
SELECT same($$SELECT a.n, x.* FROM asked a, LATERAL (SELECT tableoid, p.n, tokens <%> a.q FROM parts p WHERE p.n > a.n * 300
	ORDER BY tokens <%> a.q /*, tableoid, ctid*/ LIMIT 150) x$$);
-- (a condition without columns, which stands above each scan)
SELECT same($$SELECT a.n, x.* FROM asked a, LATERAL (SELECT tableoid, p.n, tokens <-> a.q FROM parts p WHERE a.n % 3 <> 1
	ORDER BY tokens <-> a.q /*, tableoid, ctid*/ LIMIT 150) x$$);
SELECT same($$SELECT a.n, x.* FROM asked a, LATERAL (SELECT tableoid, p.n, tokens <-> a.q FROM parts p WHERE p.id = a.n
	ORDER BY tokens <-> a.q /*, tableoid, ctid*/ LIMIT 150) x$$);
SELECT same($$SELECT tableoid, n FROM parts WHERE id > (SELECT 6) ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 300$$);
SELECT same($$SELECT tableoid, n FROM parts WHERE id > (SELECT 600) ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 300$$);
SELECT same($$SELECT a.n, (SELECT string_agg(x::text, ' ') FROM (SELECT tableoid, p.n FROM parts p WHERE p.id > a.n ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 20) x) FROM asked a$$);
SELECT same($$SELECT a.n, (SELECT string_agg(x::text, ' ') FROM (SELECT tableoid, p.n FROM parts p ORDER BY tokens <=> a.q /*, tableoid, ctid*/ LIMIT 20) x) FROM asked a$$);

-- a table and those that inherit from it, without the distance among the
-- columns
CREATE TABLE base (n int, tokens idset);
CREATE TABLE heir (more int) INHERITS (base);
CREATE TABLE heir_of_heir () INHERITS (heir);
INSERT INTO base SELECT n, tokens FROM some_rows(1, 500);
INSERT INTO heir SELECT n, tokens FROM some_rows(501, 1500);
INSERT INTO heir_of_heir SELECT n, tokens FROM some_rows(1501, 2000);
CREATE INDEX ON base USING gpuvec (tokens);
CREATE INDEX ON heir USING gpuvec (tokens);
CREATE INDEX ON heir_of_heir USING gpuvec (tokens);
SELECT same($$SELECT n FROM base ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 200$$);
SELECT same($$SELECT tableoid::regclass, ctid, b, b.n + 1 FROM base b ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 200$$);
SELECT * FROM wrong('base', '{129}');

-- other parts of statements
SELECT same($$SELECT p, p.tableoid::regclass, p.ctid, xmin IS NULL FROM parts p ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 140$$);
SELECT same($$SELECT n, row_number() OVER (ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/) FROM parts LIMIT 140$$);
SELECT same($$SELECT * FROM (SELECT n, row_number() OVER (ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/) AS r FROM parts) x WHERE r < 9$$);
SELECT same($$SELECT DISTINCT ON (tokens <-> '{1,11,21,41}') n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 5$$);
SELECT same($$SELECT tokens <-> '{1,11,21,41}' FROM parts GROUP BY 1 ORDER BY 1 LIMIT 5$$);
SELECT same($$SELECT tokens <-> '{1,11,21,41}', count(*) FROM parts GROUP BY 1 ORDER BY 1 LIMIT 5$$);
SELECT same($$SELECT n, generate_series(1, 2) FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 5$$);
SELECT same($$SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ OFFSET 3900 LIMIT 50$$);
SELECT same($$SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ FETCH FIRST 30 ROWS WITH TIES$$) <> '' AS ties;
SELECT same($$SELECT p.n, a.n FROM parts p JOIN asked a ON a.n = p.id ORDER BY p.tokens <-> '{1,11,21,41}' /*, p.tableoid, p.ctid*/ LIMIT 60$$);
SELECT same($$SELECT p.n, x FROM parts p LEFT JOIN LATERAL (SELECT count(*) AS x FROM asked a WHERE a.q && p.tokens) a ON true ORDER BY p.tokens <-> '{1,11,21,41}' /*, p.tableoid, p.ctid*/ LIMIT 160$$);
SELECT same($$SELECT p.n, a.n FROM parts p JOIN asked a ON a.n = p.id ORDER BY p.tokens <-> '{1,11,21,41}' /*, p.tableoid, p.ctid*/ LIMIT 60 FOR UPDATE OF p$$);
SELECT same($$SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 150 FOR UPDATE$$);
SELECT same($$SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 150 FOR SHARE SKIP LOCKED$$);
SELECT same($$(SELECT 1, n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 150) UNION ALL (SELECT 2, n FROM far, asked WHERE n = 1 ORDER BY tokens <-> '{1,2000}' /*, far.tableoid, far.ctid*/ LIMIT 3)$$);
SELECT same($$SELECT n FROM parts TABLESAMPLE system (100) ORDER BY tokens <-> '{1,11,21,41}', tableoid, ctid LIMIT 3$$, false);
-- orders that are made of the distance
CREATE TABLE filled (n int, tokens idset NOT NULL) PARTITION BY RANGE (n);
SELECT format('CREATE TABLE filled_%s PARTITION OF filled FOR VALUES FROM (%s) TO (%s)', i, i * 1000, i * 1000 + 1000) FROM generate_series(0, 2) i \gexec
INSERT INTO filled SELECT n, tokens FROM some_rows(1, 2999) WHERE tokens IS NOT NULL;
CREATE INDEX ON filled USING gpuvec (tokens);
SELECT same(format('SELECT tableoid, n FROM filled ORDER BY %s /*, tableoid, ctid*/ LIMIT %s', o, k)) FROM unnest(ARRAY[
	$$jaccard_similarity(tokens, '{1,11,21,41}') DESC$$, $$1 - (tokens <%> '{1,11,21,41}') DESC$$, $$-(tokens <#> '{1,11,21,41}') DESC$$]) o, unnest('{1,129,1025}'::int[]) k;
-- (rows of equal values come in any order here)
SELECT same(format('SELECT %s FROM filled ORDER BY %1$s LIMIT %s', o, k)) FROM unnest(ARRAY[
	$$(tokens <-> '{1,11,21,41}') + 1e15$$, $$1e16 - (tokens <%> '{1,11,21,41}') DESC$$]) o, unnest('{1,129,1025}'::int[]) k;

-- what is left to a Merge Append: branches of UNION ALL, each with a distance
-- of its own; a sort among the scans
SELECT same($$SELECT d, n FROM (SELECT tokens <-> '{1,11,21,41}' AS d, n FROM parts_0 UNION ALL SELECT 2 * (tokens <-> '{1,11,21,41}'), n FROM parts_1) x ORDER BY d /*, n*/ LIMIT 1$$, false);
SELECT same($$SELECT d FROM (SELECT tokens <-> '{1,11,21,41}' AS d FROM parts_0 UNION ALL SELECT 2 * (tokens <-> '{1,11,21,41}') FROM parts_1) x ORDER BY d LIMIT 300$$, false);
SELECT same($$SELECT d FROM (SELECT tokens <-> '{1,11,21,41}' AS d FROM base UNION ALL SELECT tokens <%> '{1,11,21,41}' FROM parts UNION ALL SELECT tokens <%> '{2,12}' FROM hashed) x ORDER BY d LIMIT 300$$, false);
CREATE TABLE mixed (id int, n int, tokens idset) PARTITION BY LIST (id);
SELECT format('CREATE TABLE mixed_%s PARTITION OF mixed FOR VALUES IN (%1$s)', i) FROM generate_series(0, 4) i \gexec
INSERT INTO mixed SELECT n % 5, n, tokens FROM some_rows(1, 3000);
CREATE INDEX ON mixed_1 USING gpuvec (tokens);
CREATE INDEX ON mixed_2 USING gpuvec (tokens);
CREATE INDEX ON mixed_3 USING gpuvec (tokens) WHERE n > 100;
SELECT same($$SELECT tokens <-> '{1,11,21,41}' FROM mixed ORDER BY tokens <-> '{1,11,21,41}' LIMIT 300$$, false);
-- scans of another kind among those that are merged: with a condition of the
-- index; of a partial index, and of one with an expression, which have mirrors
-- of their own
CREATE INDEX ON mixed_0 USING gpuvec (tokens, n);
CREATE INDEX mixed_4_expression ON mixed_4 USING gpuvec ((tokens - 99));
SELECT same($$SELECT tokens <-> '{1,11,21,41}' FROM mixed WHERE n > 200 AND id < 4 ORDER BY tokens <-> '{1,11,21,41}' LIMIT $$ || k) FROM unnest('{1,129,1025,10000}'::int[]) k;
CREATE INDEX ON mixed_0 USING gpuvec ((tokens - 99));
CREATE INDEX ON mixed_1 USING gpuvec ((tokens - 99)) WHERE n > 20;
CREATE INDEX ON mixed_2 USING gpuvec ((tokens - 99));
CREATE INDEX ON mixed_3 USING gpuvec ((tokens - 99));
SELECT same($$SELECT tableoid, n FROM mixed WHERE n > 100 ORDER BY (tokens - 99) <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT $$ || k) FROM unnest('{1,129,1025,10000}'::int[]) k;

-- own rows, which are not committed, and wait to be handed over
BEGIN;
SELECT same($$SELECT tableoid, n FROM mixed WHERE n > 100 ORDER BY (tokens - 99) <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 5$$);
INSERT INTO mixed SELECT i % 5, 10000 + i, '{1,11,21,41,99}' FROM generate_series(1, 200) i WHERE i % 5 <> 2;
SELECT same($$SELECT tableoid, n FROM mixed WHERE n > 100 ORDER BY (tokens - 99) <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT $$ || k) FROM unnest('{1,129,1025}'::int[]) k;
DELETE FROM mixed WHERE n % 3 = 0;
UPDATE mixed SET tokens = '{1,11,21,41}' WHERE n BETWEEN 1000 AND 1100;
SAVEPOINT failed;
INSERT INTO parts SELECT i % 3, 20000 + i, '{1,11,21,41}' FROM generate_series(1, 400) i;
SELECT same($$SELECT tokens <-> '{1,11,21,41}', n > 20000 FROM mixed WHERE n > 100 ORDER BY tokens <-> '{1,11,21,41}' LIMIT $$ || k) <> '' AS done FROM unnest('{1,129,1025}'::int[]) k;
SELECT * FROM wrong('parts', '{1,129,420}');
ROLLBACK TO failed;
SELECT * FROM wrong('parts', '{1,129}');
DELETE FROM parts WHERE tokens @> 11 AND id < 4;
SELECT * FROM wrong('parts', '{1,129}');
ROLLBACK;
SELECT * FROM wrong('parts', '{1,129}');

-- a function that changes the partitions, for each row
CREATE FUNCTION adds(n int) RETURNS int LANGUAGE sql AS $$
	INSERT INTO parts SELECT i, 30000 + n, '{1,11,21,41}' FROM generate_series(0, 4) i; SELECT n $$;
BEGIN;
CREATE TABLE wanted AS SELECT row_number() OVER () AS r, * FROM (SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}', tableoid, ctid LIMIT 300) x;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
CREATE TABLE got AS SELECT row_number() OVER () AS r, n FROM (SELECT adds(n) AS n FROM parts ORDER BY tokens <-> '{1,11,21,41}' LIMIT 300) x;
SELECT count(*) FROM got JOIN wanted USING (r, n);
ROLLBACK;

-- cursors: what they give in pieces, and what is changed meanwhile
CREATE FUNCTION take(c refcursor, many int) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	n int;
	ns int[] := '{}';
BEGIN
	WHILE many > 0 LOOP
		FETCH c INTO n;
		EXIT WHEN NOT FOUND;
		ns := ns || n;
		many := many - 1;
	END LOOP;
	RETURN ns;
END $$;
BEGIN;
CREATE TABLE wanted AS SELECT array_agg(n) AS ns FROM (SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}', tableoid, ctid) x;
CREATE TABLE got (ns int[]);
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
DECLARE c CURSOR FOR SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}';
DECLARE s SCROLL CURSOR FOR SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}';
INSERT INTO got SELECT take('c', 1);
DELETE FROM parts WHERE id = 3;
UPDATE got SET ns = ns || take('c', 126);
INSERT INTO parts SELECT i % 5, 30000 + i, '{1,11,21,41}' FROM generate_series(1, 100) i;
UPDATE got SET ns = ns || take('c', 3);
SELECT same($$SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 200$$);
UPDATE parts SET tokens = '{2}' WHERE id = 1;
SAVEPOINT one;
UPDATE got SET ns = ns || take('c', 500);
RELEASE one;
TRUNCATE asked;
UPDATE got SET ns = ns || take('c', 10000);
SELECT got.ns = wanted.ns, cardinality(got.ns) FROM got, wanted;
FETCH 2 FROM s;
MOVE FORWARD 200 IN s;
FETCH BACKWARD 2 FROM s;
SELECT ns[200:201] FROM wanted;
ROLLBACK;
-- the row that a cursor is at
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
DECLARE c CURSOR FOR SELECT n FROM parts ORDER BY tokens <-> '{1,11,21,41}' FOR UPDATE;
MOVE 40 IN c;
FETCH c;
UPDATE parts SET n = -1 WHERE CURRENT OF c;
SELECT count(*) FROM parts WHERE n = -1;
FETCH c;
ROLLBACK;

-- a scan that has asked by itself goes on behind its own last row: next to a
-- row whose distance says nothing, and if its mirror was not there at first
CREATE TABLE late (id int, n int, tokens idset) PARTITION BY LIST (id);
SELECT format('CREATE TABLE late_%s PARTITION OF late FOR VALUES IN (%1$s)', i) FROM generate_series(0, 2) i \gexec
INSERT INTO late SELECT i % 3, i, ARRAY[1, 10 + i % 500, 2000 + i % 29, 3000 + i % 31, 4000 + i % 37]::idset FROM generate_series(1, 6000) i;
INSERT INTO late SELECT 1, 10000 + i, ARRAY[1, 12, 6000 + i]::idset FROM generate_series(1, 600) i;
CREATE INDEX ON late_0 USING gpuvec (tokens, n);
CREATE INDEX ON late_1 USING gpuvec (tokens);
CREATE INDEX ON late_2 USING gpuvec (tokens);
CREATE FUNCTION all_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	ns int[];
BEGIN
	PERFORM set_config(name, 'off', true) FROM unnest('{enable_seqscan,enable_bitmapscan,enable_sort}'::text[]) name;
	OPEN c FOR EXECUTE query;
	ns := take(c, 100000);
	CLOSE c;
	RETURN (SELECT count(*) || ' rows, ' || count(DISTINCT n) FROM unnest(ns) n);
END $$;
SELECT all_of($$SELECT n FROM late WHERE n < 9000 ORDER BY tokens <-> '{1,12,2002}'$$);
SELECT gpuvec_evict('late_1');
SELECT all_of($$SELECT n FROM late ORDER BY tokens <-> '{1,12,2002}'$$);

-- rights: a view that hides rows, and policies
CREATE VIEW hiding WITH (security_barrier) AS SELECT * FROM parts WHERE n % 3 = 0;
CREATE FUNCTION leaks(int) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RETURN $1 % 3 = 0 OR $1 / 0 > 0; END $$;
SELECT same($$SELECT n FROM hiding WHERE leaks(n) ORDER BY tokens <-> '{1,11,21,41}' /*, n*/ LIMIT 1$$) <> '' AS no_error;
CREATE ROLE index_merge_reader;
GRANT USAGE ON SCHEMA index_merge TO index_merge_reader;
GRANT SELECT ON parts TO index_merge_reader;
ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
CREATE POLICY thirds ON parts USING (n % 3 = 0);
SET ROLE index_merge_reader;
SELECT same($$SELECT n FROM parts WHERE leaks(n) ORDER BY tokens <-> '{1,11,21,41}' /*, tableoid, ctid*/ LIMIT 200$$);
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA index_merge CASCADE;
DROP ROLE index_merge_reader;
RESET client_min_messages;
RESET search_path;
