-- ORDER BY a filter column LIMIT n, range by range
CREATE SCHEMA index_ranges;
SET search_path = index_ranges, public;
CREATE TABLE docs (id int NOT NULL, created timestamptz NOT NULL, price int, i2 smallint, i8 bigint, day date, at timestamp, f4 real, f8 float8, amount numeric, flag bool, u uuid, mac macaddr, word text COLLATE "C", padded char(8) COLLATE "C", old_rank int, tokens idset) WITH (autovacuum_enabled = off, fillfactor = 90);
-- values in another order than the rows, equal ones, nulls in each column
INSERT INTO docs SELECT i, timestamptz '2026-01-01 00:00+00' + i * 7919 % 40009 * interval '1 minute', nullif(i % 101, 50), nullif(i % 30000, 7)::smallint, nullif(i::bigint * 1000000007 % 4000037, 7) - 2000000, CASE WHEN i % 17 > 0 THEN date '2020-01-01' + i % 365 END,
	CASE i % 5000 WHEN 3 THEN 'infinity' WHEN 4 THEN '-infinity' ELSE timestamp '2020-01-01' + i * 31 % 70001 * interval '1 hour' END, CASE i % 7001 WHEN 0 THEN float8 'NaN' WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' WHEN 3 THEN '-0' WHEN 4 THEN NULL ELSE i % 977 * 0.5 - 100 END, CASE i % 7001 WHEN 0 THEN float8 'NaN' WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' WHEN 3 THEN '-0' WHEN 4 THEN NULL ELSE i % 9770 * 0.25 - 1000 END,
	CASE i % 7001 WHEN 0 THEN numeric 'NaN' WHEN 1 THEN NULL ELSE 1e15::numeric + i % 20011 * 0.01 END, nullif(i % 3, 2)::bool, md5((i / 3)::text)::uuid, CASE WHEN i % 100 <> 9 THEN lpad(to_hex(i % 5003), 12, '0')::macaddr END, 'w' || md5((i / 2)::text), 'p' || i % 999, i,
	CASE WHEN i % 1000 = 0 THEN NULL WHEN i % 1000 = 1 THEN '{}' ELSE ARRAY[i % 5, 10 + i % 97, 200 + i % 2003, CASE WHEN i * 7919 % 40009 < 1500 THEN 60000 ELSE 60001 END]::idset END FROM generate_series(1, 40000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, created, price, i2, i8, day, at, f4, f8, amount, flag, u, mac, word, padded);
-- of all rows, so that all of this comes out again
SET default_statistics_target = 200;
VACUUM ANALYZE docs;
RESET default_statistics_target;
SET enable_seqscan = off;

/* How a query is run: without the node, in one range, in several */
CREATE FUNCTION ranges(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	most int = -1;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		most = greatest(most, substring(line, 'Ranges: (\d+)')::int);
	END LOOP;
	RETURN CASE most WHEN -1 THEN 'no node' WHEN 0 THEN 'not run' WHEN 1 THEN 'one range' ELSE CASE WHEN most > 25 THEN 'many ranges' ELSE 'several ranges' END END;
END $$;
CREATE FUNCTION rows_of(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	result text[];
BEGIN
	EXECUTE format('SELECT array_agg(q::text) FROM (%s) q', query) INTO result;
	RETURN result;
END $$;
CREATE FUNCTION sorted_rows_of(query text) RETURNS text[] LANGUAGE sql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_seqscan = on AS $$SELECT rows_of(query)$$;

/*
 * Rows in an order and the order alone, by the node and by a sequential scan
 * and a sort
 */
CREATE FUNCTION compare(sort text, condition text DEFAULT 'tokens && ''{3,12}''', relation text DEFAULT 'docs', rows text DEFAULT 'LIMIT 20') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	key text = regexp_replace(sort, '(,.*| ASC| DESC| NULLS.*)', '', 'g');
	whole text = format('SELECT id, %s AS key FROM %s WHERE %s ORDER BY %s, id %s', key, relation, condition, sort, rows);
	keys text = format('SELECT %s AS key FROM %s WHERE %s ORDER BY %s %s', key, relation, condition, sort, rows);
	found text[] = rows_of(whole);
	sought text[] = sorted_rows_of(whole);
BEGIN
	IF found IS DISTINCT FROM sought THEN RETURN format('%s, but %s by a sort', found, sought); END IF;
	IF sort !~ ',' AND rows_of(keys) IS DISTINCT FROM sorted_rows_of(keys) THEN RETURN 'other values by a sort'; END IF;
	RETURN format('%s rows, %s, %s', coalesce(cardinality(found), 0), ranges(whole), ranges(keys));
END $$;

-- every kind of column, in each order
SELECT sort, compare(sort) FROM unnest(ARRAY['created', 'created DESC', 'price', 'price DESC', 'price NULLS FIRST', 'price DESC NULLS LAST', 'i2', 'i2 DESC', 'i8', 'i8 DESC', 'day', 'day DESC NULLS LAST', 'at', 'at DESC', 'f4', 'f4 DESC', 'f8', 'f8 DESC', 'f8 DESC NULLS LAST',
	'amount', 'amount DESC', 'amount DESC NULLS LAST', 'flag', 'flag DESC', 'u', 'u DESC', 'mac', 'mac DESC NULLS LAST', 'word', 'word DESC', 'padded', 'padded DESC', 'old_rank', 'created DESC, price', 'price DESC NULLS LAST, created, word', 'flag, created DESC', 'created + ''1 day''', 'tokens']) WITH ORDINALITY s(sort, n) ORDER BY n;
-- few rows and many, and all of them
SELECT rows, compare('created DESC', rows => rows), compare('price DESC', rows => rows), compare('amount', rows => rows) FROM unnest(ARRAY['LIMIT 1', 'LIMIT 200', 'OFFSET 500 LIMIT 10', 'FETCH FIRST 3 ROWS ONLY', 'LIMIT 0', 'LIMIT ALL', 'OFFSET 100000 LIMIT 1', 'LIMIT NULL']) rows;
-- conditions: none that fits, old rows, other columns, ranges of the same one
SELECT condition, compare('created DESC', condition), compare('price', condition), compare('f8 DESC', condition) FROM unnest(ARRAY['tokens && ''{7000}''', 'tokens && ''{60000}''', 'tokens && ''{60001}'' AND id < 300', 'tokens @> ''{3,60001}''', 'tokens <@ ''{0,1,2,3,4,10,11,12,200,201,60000,60001}''', 'tokens @@ ''3 & 12''', 'jaccard_similarity(tokens, ''{3,12,300}'') >= 0.2', 'tokens && NULL', 'tokens && ''{3}'' AND price < 50', 'tokens && ''{3}'' AND price IS NULL', 'tokens && ''{3}'' AND price IS NOT NULL',
	'tokens && ''{3}'' AND created < ''2026-01-20''', 'tokens && ''{60000,3}'' AND price < 50', 'tokens && ''{3}'' AND created > ''2026-01-10'' AND created <= ''2026-01-20''', 'tokens && ''{3}'' AND f8 < 17.5', 'tokens && ''{3}'' AND f8 > 17.5::float4', 'tokens && ''{3}'' AND price = ANY (''{7,11,99}'')', 'price < 50', 'tokens IS NULL', 'tokens && ''{3}'' AND random() < 2', 'tokens && ''{3}'' AND now() > ''2020-01-01''', 'tokens && ''{3}'' OR price = 7', 'tokens && ''{3}'' AND old_rank % 10 = 1']) WITH ORDINALITY c(condition, n) ORDER BY n;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, price + 1 AS more FROM docs WHERE tokens && '{3,12}' AND price < 70 ORDER BY created DESC, id LIMIT 20;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && '{3,12}' ORDER BY created DESC LIMIT 20 FOR UPDATE;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && '{3,12}' ORDER BY created DESC;
-- all rows by a cursor, of which the planner takes the first ones to be wanted
CREATE FUNCTION all_ranges(sort text, condition text DEFAULT 'tokens && ''{3,12}''') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text = format('SELECT id FROM docs WHERE %s ORDER BY %s, id', condition, sort);
	rows refcursor;
	id int;
	ids text[];
BEGIN
	OPEN rows FOR EXECUTE query;
	LOOP
		FETCH rows INTO id;
		EXIT WHEN NOT FOUND;
		ids = ids || format('(%s)', id);
	END LOOP;
	RETURN CASE WHEN ids = sorted_rows_of(query) THEN cardinality(ids)::text ELSE ', but other rows by a sort' END;
END $$;
SELECT sort, all_ranges(sort) FROM unnest(ARRAY['created', 'price DESC', 'price', 'i2', 'i8 DESC', 'day', 'at DESC', 'f4', 'f8 DESC', 'f8', 'amount', 'amount DESC', 'flag', 'u', 'u DESC', 'mac', 'word', 'word DESC', 'padded', 'padded DESC NULLS LAST']) WITH ORDINALITY s(sort, n) ORDER BY n;

-- pages that begin behind a row, by a comparison of rows, of which the index
-- has the first column
EXPLAIN (COSTS OFF) SELECT id, created FROM docs WHERE tokens && '{3,12}' AND (created, id) < ('2026-01-20 00:00+00', 7) ORDER BY created DESC, id DESC LIMIT 20;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && '{3,12}' AND ('2026-01-20 00:00+00', 7) <= (created, id);
SELECT condition, compare(sort, 'tokens && ''{3,12}'' AND ' || condition) FROM (VALUES ('(created, id) < (''2026-01-20 00:00+00'', 7)', 'created DESC'), ('(created, id) >= (''2026-01-20 00:00+00'', 7)', 'created'), ('(''2026-01-20 00:00+00'', 7) > (created, id)', 'created DESC'), ('(price, created, id) <= (40, ''2026-01-20'', 500)', 'price DESC NULLS LAST'),
	('(i2, id) > (20000, 3)', 'i2'), ('(i2, id) > (20000::bigint, 3)', 'i2'), ('(f8, id) > (10::real, 3)', 'f8'), ('(word, id) >= (''w8'', 3)', 'word'), ('(price, id) < (NULL, 3)', 'price'), ('(price, id) < (30, NULL)', 'price'), ('(id, price) < (300, 3)', 'price'), ('(price, created) < (price, ''2026-01-20'')', 'price')) c(condition, sort);
CREATE FUNCTION pages(first timestamptz) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE
	last record;
	page record;
	n int = 1;
BEGIN
	SELECT first AS created, 0 AS id INTO last;
	WHILE n > 0 LOOP
		n = 0;
		FOR page IN SELECT id, created FROM docs WHERE tokens && '{3,12}' AND (created, id) < (last.created, last.id) ORDER BY created DESC, id DESC LIMIT 500 LOOP
			n = n + 1;
			last = page;
			RETURN NEXT page.id;
		END LOOP;
	END LOOP;
END $$;
SELECT count(*), array_agg(id) = (SELECT array_agg(id ORDER BY created DESC, id DESC) FROM docs WHERE tokens && '{3,12}') AS same FROM pages('infinity') id;

-- parameters, of which each run has new ones: of prepared statements, of
-- outer rows
SET plan_cache_mode = force_generic_plan;
PREPARE newest (idset, timestamptz, bigint) AS SELECT id, created FROM docs WHERE tokens && $1 AND created < $2 ORDER BY created DESC LIMIT $3;
EXPLAIN (COSTS OFF) EXECUTE newest ('{3}', '2026-01-20', 3);
EXECUTE newest ('{3}', '2026-01-20', 3);
EXECUTE newest ('{60000}', 'infinity', 3);
EXECUTE newest ('{3}', NULL, 3);
EXECUTE newest (NULL, 'infinity', 3);
DEALLOCATE newest;
RESET plan_cache_mode;
CREATE VIEW by_node AS SELECT o.n, x.* FROM generate_series(0, 40) o(n), LATERAL (SELECT id, created, price FROM docs WHERE tokens && ARRAY[o.n % 7, 60000]::idset AND price >= nullif(o.n, 3) ORDER BY created DESC, id LIMIT o.n % 5 * 20) x;
CREATE VIEW by_price AS SELECT o.n, x.* FROM generate_series(0, 40) o(n), LATERAL (SELECT id, price FROM docs WHERE tokens && ARRAY[o.n % 7, 60000]::idset AND price >= nullif(o.n, 3) ORDER BY price, id LIMIT o.n % 5 * 20) x;
EXPLAIN (COSTS OFF) SELECT * FROM by_node;
SELECT cardinality(rows_of('SELECT * FROM by_node')), rows_of('SELECT * FROM by_node ORDER BY n, created DESC, id') = sorted_rows_of('SELECT * FROM by_node ORDER BY n, created DESC, id');
SELECT cardinality(rows_of('SELECT * FROM by_price')), rows_of('SELECT * FROM by_price ORDER BY n, price, id') = sorted_rows_of('SELECT * FROM by_price ORDER BY n, price, id');
-- .. of columns passed by reference, too
CREATE VIEW by_amount AS SELECT o.n, x.* FROM (SELECT n, 1e15::numeric + n * 10 AS most FROM generate_series(0, 20) n) o, LATERAL (SELECT id, amount FROM docs WHERE tokens && '{3}' AND amount < o.most ORDER BY amount DESC, id LIMIT 5) x;
CREATE VIEW by_word AS SELECT o.n, x.* FROM (SELECT n, 'w' || to_hex(n % 16) AS w FROM generate_series(0, 20) n) o, LATERAL (SELECT id, word FROM docs WHERE tokens && '{3}' AND (word, id) > (o.w, 7) ORDER BY word, id LIMIT 5) x;
SELECT q, rows_of(format('SELECT * FROM %s ORDER BY n, id', q)) = sorted_rows_of(format('SELECT * FROM %s ORDER BY n, id', q)) AS same, ranges(format('SELECT * FROM %s', q)) <> 'no node' AS by_node FROM unnest(ARRAY['by_amount', 'by_word']) q;
SELECT (SELECT max(amount) FROM docs WHERE tokens && '{3}' AND amount < o.most) FROM (VALUES (1e15::numeric + 100), (1e15::numeric + 50)) o(most);

-- parts of larger queries; a column that another equals; volatile functions
SELECT q, rows_of(q) = sorted_rows_of(q) AS same, ranges(q) FROM unnest(ARRAY['SELECT d.id, o.n FROM docs d JOIN generate_series(0, 200, 2) o(n) ON d.price = o.n WHERE d.tokens && ''{3}'' ORDER BY d.created DESC, d.id LIMIT 10', 'SELECT id FROM (SELECT id, price FROM docs WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 50) s WHERE price > 20 ORDER BY id', 'SELECT (SELECT count(*) FROM (SELECT FROM docs WHERE tokens && ''{60000}'' ORDER BY created DESC, id LIMIT 50) x)', 'SELECT id FROM docs WHERE tokens && ''{3}'' AND price = i2 ORDER BY price, id LIMIT 10', 'SELECT DISTINCT ON (created) created, id FROM docs WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 10',
	'SELECT created, count(*) FROM docs WHERE tokens && ''{3}'' GROUP BY created ORDER BY created DESC LIMIT 10', 'SELECT id, row_number() OVER (ORDER BY created DESC, id) FROM docs WHERE tokens && ''{3}'' LIMIT 10', '(SELECT id FROM docs WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 10) UNION ALL (SELECT id FROM docs WHERE tokens && ''{60000}'' ORDER BY created, id LIMIT 10)', 'SELECT id, tableoid::regclass, ctid FROM docs d WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 10', 'SELECT d, md5(d::text) FROM docs d WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 10', 'SELECT id, ''a'' || (SELECT max(n) FROM generate_series(1, price) n) FROM docs WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 10',
	'SELECT id, random() < 2 FROM docs WHERE tokens && ''{3}'' ORDER BY created DESC, id LIMIT 10']) WITH ORDINALITY u(q, n) ORDER BY n;

-- cursors: what they began with, backward, and behind the transaction
BEGIN;
DECLARE old SCROLL CURSOR FOR SELECT id, created FROM docs WHERE tokens && '{60000}' ORDER BY created DESC, id;
DECLARE held CURSOR WITH HOLD FOR SELECT id FROM docs WHERE tokens && '{3}' ORDER BY created DESC, id LIMIT 5;
FETCH 3 FROM old;
-- own changes: rows go, come, and move from one range to another
DELETE FROM docs WHERE tokens && '{3}' AND id % 7 = 0;
UPDATE docs SET created = created - interval '20 days' WHERE tokens && '{3}' AND id % 11 = 0;
UPDATE docs SET created = created + interval '20 days', price = NULL WHERE tokens && '{60000}' AND id % 11 = 1;
UPDATE docs SET old_rank = -id WHERE id % 13 = 0;
INSERT INTO docs (id, created, price, tokens) SELECT 100000 + i, timestamptz '2026-01-01' + i * interval '2 hours', i % 50, '{3,60000}' FROM generate_series(1, 300) i;
SELECT sort, compare(sort, 'tokens && ''{3}'''), compare(sort, 'tokens && ''{60000}''') FROM unnest(ARRAY['created DESC', 'created', 'price DESC', 'price']) WITH ORDINALITY u(sort, n) ORDER BY n;
SAVEPOINT s;
DELETE FROM docs WHERE created > '2026-01-15';
SELECT compare('created DESC', 'tokens && ''{3}''');
ROLLBACK TO s;
SELECT compare('created DESC', 'tokens && ''{3}''');
FETCH 3 FROM old;
FETCH BACKWARD 2 FROM old;
MOVE FORWARD 1400 IN old;
FETCH 2 FROM old;
COMMIT;
FETCH ALL FROM held;
CLOSE held;
SELECT sort, compare(sort, 'tokens && ''{3}'''), compare(sort, 'tokens && ''{60000}''') FROM unnest(ARRAY['created DESC', 'created', 'price DESC', 'price']) WITH ORDINALITY u(sort, n) ORDER BY n;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT compare('created DESC'), compare('price');
COMMIT;
SET gpuvec.verify = on;
SELECT compare('created DESC'), compare('price DESC');
RESET gpuvec.verify;
-- bitmaps that lose single rows
SET work_mem = '64kB';
SELECT compare('created DESC', 'tokens && ''{60001,60000}'''), compare('price DESC', 'tokens && ''{60001,60000}''', rows => 'LIMIT 2000');
RESET work_mem;

-- tables that nobody has analyzed, that have grown since, and empty ones
CREATE TABLE fresh (id int, created timestamptz, tokens idset) WITH (autovacuum_enabled = off);
CREATE INDEX ON fresh USING gpuvec (tokens, created);
SELECT compare('created DESC', relation => 'fresh');
INSERT INTO fresh SELECT i, timestamptz '2026-01-01' + i * interval '1 minute', ARRAY[3, i % 100]::idset FROM generate_series(1, 20000) i;
SELECT compare('created DESC', relation => 'fresh');
ANALYZE fresh;
SELECT compare('created DESC', relation => 'fresh'), compare('created', relation => 'fresh');
INSERT INTO fresh SELECT i, timestamptz '2026-01-01' + i * interval '1 minute', ARRAY[3, i % 100]::idset FROM generate_series(20001, 40000) i;
SELECT compare('created DESC NULLS LAST', relation => 'fresh'), compare('created', relation => 'fresh');
UPDATE fresh SET created = NULL WHERE id % 3 = 0;
SELECT compare('created DESC', relation => 'fresh'), compare('created', relation => 'fresh'), compare('created DESC NULLS LAST', relation => 'fresh');
-- of the newest rows of a table that has doubled, and of rows that are all
-- old, few are fetched
CREATE FUNCTION fetched(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	n numeric = 0;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		n = n + coalesce(substring(line, 'Bitmap Heap Scan .* rows=([0-9.]+)')::numeric * substring(line, ' loops=([0-9]+)')::int, 0);
	END LOOP;
	RETURN CASE WHEN n = 0 THEN 'none' WHEN n < 2000 THEN 'few' ELSE 'many' END;
END $$;
SELECT fetched('SELECT id FROM fresh WHERE tokens && ''{3}'' ORDER BY created DESC NULLS LAST LIMIT 20'), fetched('SELECT id FROM fresh WHERE tokens && ''{3}'' ORDER BY created LIMIT 20');
UPDATE fresh SET tokens = CASE WHEN id < 8000 THEN '{4}' ELSE '{5}' END::idset;
ANALYZE fresh;
SELECT fetched('SELECT id FROM fresh WHERE tokens && ''{4}'' ORDER BY created DESC NULLS LAST LIMIT 20'), fetched('SELECT id FROM fresh WHERE tokens && ''{5}'' ORDER BY created LIMIT 20');
SET enable_incremental_sort = off;
SELECT fetched('SELECT id FROM fresh WHERE tokens && ''{4}'' ORDER BY created DESC NULLS LAST LIMIT 20'), ranges('SELECT id FROM fresh WHERE tokens && ''{4}'' ORDER BY created DESC NULLS LAST LIMIT 20');
RESET enable_incremental_sort;
SELECT compare('created DESC', 'tokens && ''{4}''', 'fresh'), compare('created', 'tokens && ''{5}''', 'fresh');
DROP TABLE fresh;

-- most values are equal, far from the first ones; keys that say nothing;
-- limits of another type; two indexes
CREATE TABLE skewed (id int, f float8, n numeric, url text COLLATE "C", b bigint, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO skewed SELECT i, CASE WHEN i % 1000 = 0 THEN i ELSE 0 END, CASE WHEN i % 1000 = 0 THEN i ELSE 0 END, 'http://' || md5(i::text), i * 10, ARRAY[i % 5]::idset FROM generate_series(1, 30000) i;
CREATE INDEX ON skewed USING gpuvec (tokens, f, n, url);
VACUUM ANALYZE skewed;
SELECT sort, condition, compare(sort, condition, 'skewed') FROM (VALUES ('f DESC', 'tokens && ''{0}'''), ('n DESC', 'tokens && ''{0}'''), ('f DESC', 'tokens && ''{3}'''), ('f', 'tokens && ''{3}'''), ('url DESC', 'tokens && ''{3}'''), ('f DESC', 'tokens && ''{0}'' AND f < 25000')) c(sort, condition);
CREATE INDEX ON skewed USING gpuvec (tokens, b);
CREATE INDEX ON skewed USING gpuvec (tokens, b, n);
SELECT sort, condition, compare(sort, condition, 'skewed') FROM (VALUES ('b DESC', 'tokens && ''{3}'' AND b < 200000'), ('b DESC', 'tokens && ''{3}'' AND b < 20000000000'), ('b DESC', 'tokens && ''{3}'' AND (b, id) < (200000, 3)'), ('b', 'tokens && ''{3}'' AND b > 20000::smallint'), ('b DESC', 'tokens && ''{3}'' AND (SELECT count(*) FROM generate_series(1, b % 10 + 6)) > 5')) c(sort, condition);
CREATE FUNCTION search_keys(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Index Cond' THEN RETURN trim(line); END IF;
	END LOOP;
END $$;
SELECT search_keys('SELECT id FROM skewed WHERE tokens && ''{3}'' AND (b, id) < (200000, 3) ORDER BY b DESC LIMIT 20');
DROP TABLE skewed;

-- an expression, a predicate, vectors
CREATE TABLE texts (id int, body text, price int, terms idvec) WITH (autovacuum_enabled = off);
INSERT INTO texts SELECT i, i % 10 || ' ' || i % 97, nullif(i * 31 % 5003, 77), format('{%s:1,%s:0.5}', i % 10, 10 + i % 97)::idvec FROM generate_series(1, 30000) i;
CREATE FUNCTION numbers(body text) RETURNS idset IMMUTABLE LANGUAGE sql AS $$SELECT string_to_array(body, ' ')::int[]::public.idset$$;
CREATE INDEX ON texts USING gpuvec (numbers(body), (price * 2), price) WHERE price < 4900;
CREATE INDEX ON texts USING gpuvec (terms, price);
ANALYZE texts;
SELECT sort, condition, compare(sort, condition, 'texts', 'LIMIT 5') FROM (VALUES ('(price * 2) DESC', 'numbers(body) && ''{3}'' AND price < 4900'), ('price DESC', 'numbers(body) && ''{3}'' AND price < 4900'), ('price * 2', 'numbers(body) && ''{3}'''), ('price DESC', 'terms <<->> idvec_threshold(''{3:1}'', 0.5, ''inner_product'')'), ('price', 'price > 100')) c(sort, condition);
DROP TABLE texts;

-- partitions: each is asked, or only the newest one; those that pruning leaves
CREATE TABLE logs (id int, created timestamptz NOT NULL, price int, tokens idset) PARTITION BY RANGE (created);
CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM (MINVALUE) TO ('2026-01-10');
CREATE TABLE logs_2 PARTITION OF logs FOR VALUES FROM ('2026-01-10') TO ('2026-01-20');
CREATE TABLE logs_3 PARTITION OF logs FOR VALUES FROM ('2026-01-20') TO (MAXVALUE);
CREATE INDEX ON logs USING gpuvec (tokens, created, price);
INSERT INTO logs SELECT id, created, price, tokens FROM docs;
VACUUM ANALYZE logs_1, logs_2, logs_3;
EXPLAIN (COSTS OFF) SELECT id FROM logs WHERE tokens && '{3,12}' ORDER BY created DESC LIMIT 20;
EXPLAIN (COSTS OFF) SELECT id FROM logs WHERE tokens && '{3,12}' ORDER BY price, id LIMIT 20;
SELECT condition, compare('created DESC', condition, 'logs'), compare('price', condition, 'logs'), compare('price DESC', condition, 'logs') FROM unnest(ARRAY['tokens && ''{3,12}''', 'tokens && ''{60000}''', 'tokens && ''{3}'' AND created < ''2026-01-11''', 'tokens && ''{3}'' AND created < now() + ''-1 day''', 'tokens && ''{3}'' AND (created, id) < (''2026-01-12'', 5)']) condition;
DROP TABLE logs;

-- row-level security: its conditions are search keys, too
CREATE ROLE regress_ranges;
GRANT USAGE ON SCHEMA index_ranges TO regress_ranges;
GRANT SELECT ON docs TO regress_ranges;
CREATE POLICY readers ON docs USING (tokens && '{1,3}');
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
SET ROLE regress_ranges;
SELECT compare('created DESC', 'price < 60'), compare('price', 'tokens && ''{60000,12}''');
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE price < 60 ORDER BY created DESC LIMIT 20;
RESET ROLE;
DROP OWNED BY regress_ranges;
DROP ROLE regress_ranges;
SET client_min_messages = warning;
DROP SCHEMA index_ranges CASCADE;
