-- CREATE INDEX ... USING gpuvec (set, filter columns): conditions beside an order, against sequential scans
CREATE SCHEMA index_filters;
SET search_path = index_filters, public;
CREATE TYPE mood AS ENUM ('sad', 'fine', 'glad');
CREATE DOMAIN small AS int2 CHECK (VALUE > -1000);
CREATE FUNCTION rnd(i int, k int, n int) RETURNS int LANGUAGE sql IMMUTABLE AS
	'SELECT ((hashint4extended(i, k) & 9223372036854775807) % n)::int';
CREATE FUNCTION has(i int, k int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT rnd(i, k + 1000, 12) > 0';
CREATE TABLE docs (id int, tokens idset, n int DEFAULT 0, i2 small, i4 int, i8 int8, f4 float4, f8 float8, num numeric, d date, ts timestamp,
	tz timestamptz, b bool, t text COLLATE "C", v varchar(20), bp char(6), u uuid, e mood, ip inet, tags idset,
	m6 macaddr, m8 macaddr8) WITH (fillfactor = 80);
CREATE FUNCTION fill(a int, z int) RETURNS void LANGUAGE sql AS $$
INSERT INTO docs SELECT i, CASE WHEN has(i, 0) THEN (SELECT idset_agg(rnd(i, j, 40 * j)) FROM generate_series(1, rnd(i, 1, 9)) j) END, 0,
	CASE WHEN has(i, 2) THEN rnd(i, 2, 20) - 10 END, CASE WHEN has(i, 3) THEN rnd(i, 3, 1000) - 500 END,
	CASE WHEN has(i, 4) THEN (rnd(i, 4, 5) - 2) * 4611686018427387903 + rnd(i, 41, 2) END,
	CASE WHEN has(i, 5) THEN ('{NaN,Infinity,-Infinity,-0,0,1.5,-2.25,0.1,3e38}'::float4[])[rnd(i, 5, 9) + 1] END,
	CASE WHEN has(i, 6) THEN ('{NaN,Infinity,-Infinity,-0,0,1.5,-2.25,0.1,1e-300}'::float8[])[rnd(i, 6, 9) + 1] END,
	CASE WHEN has(i, 7) THEN (ARRAY['NaN', '0', '1.5', '1.50000000000000000000001', '-7', '1e400', '-1e400', '0.1', '123456789012345678901234567890']::numeric[])[rnd(i, 7, 9) + 1] END,
	CASE WHEN has(i, 8) THEN ('{-infinity,infinity,2024-02-29,2000-01-01,1999-12-31,2030-06-01}'::date[])[rnd(i, 8, 6) + 1] END,
	CASE WHEN has(i, 9) THEN ('{-infinity,infinity,2024-02-29 10:00,2000-01-01,1999-12-31 23:59:59.999999}'::timestamp[])[rnd(i, 9, 5) + 1] END,
	CASE WHEN has(i, 10) THEN ('{-infinity,infinity,2024-02-29 10:00+00,2000-01-01 00:00+00,1999-12-31 23:59:59.999999+00}'::timestamptz[])[rnd(i, 10, 5) + 1] END,
	CASE WHEN has(i, 11) THEN rnd(i, 11, 3) = 0 END,
	CASE WHEN has(i, 12) THEN (ARRAY['', 'a', 'ab', 'abcd', 'abcde', 'abce', 'B', 'ü', repeat('long', 1000)])[rnd(i, 12, 9) + 1] END,
	CASE WHEN has(i, 13) THEN (ARRAY['', 'a', 'A', 'ab', 'x y', 'Zoo'])[rnd(i, 13, 6) + 1] END,
	CASE WHEN has(i, 14) THEN (ARRAY['', 'a', 'ab', 'abcd', 'abcdef'])[rnd(i, 14, 5) + 1] END,
	CASE WHEN has(i, 15) THEN (repeat('0', 15) || rnd(i, 15, 3) || repeat('0', 15) || rnd(i, 151, 4))::uuid END,
	CASE WHEN has(i, 16) THEN ('{sad,fine,glad}'::mood[])[rnd(i, 16, 3) + 1] END,
	CASE WHEN has(i, 17) THEN ('{10.0.0.1,10.0.0.0/8,::1,192.168.1.0/24}'::inet[])[rnd(i, 17, 4) + 1] END,
	CASE WHEN has(i, 18) THEN (SELECT idset_agg(rnd(i, 100 + j, 30) * 5000) FROM generate_series(1, rnd(i, 18, 5)) j) END,
	CASE WHEN has(i, 19) THEN ('{00:00:00:00:00:00,00:00:00:00:00:01,00:00:00:80:00:00,00:00:01:00:00:00,7f:ff:ff:ff:ff:ff,80:00:00:00:00:00,08:00:2b:01:02:03,08:00:2b:01:02:04,ff:ff:ff:ff:ff:ff}'::macaddr[])[rnd(i, 19, 9) + 1] END,
	CASE WHEN has(i, 20) THEN ('{00:00:00:00:00:00:00:00,00:00:00:00:00:00:00:01,00:00:00:00:80:00:00:00,00:00:00:01:00:00:00:00,7f:ff:ff:ff:ff:ff:ff:ff,80:00:00:00:00:00:00:00,08:00:2b:ff:fe:01:02:03,ff:ff:ff:ff:ff:ff:ff:fe,ff:ff:ff:ff:ff:ff:ff:ff}'::macaddr8[])[rnd(i, 20, 9) + 1] END
	FROM generate_series(a, z) i $$;
SELECT fill(1, 6000);
SET client_min_messages = warning;
CREATE INDEX docs_most ON docs USING gpuvec (tokens, i2, i4, i8, f4, f8, num, d, ts, tz, b, t, bp, u, e, ip);
CREATE INDEX docs_rest ON docs USING gpuvec (tokens, tags, v, m6, m8);
ANALYZE docs;

CREATE TABLE atoms (number int GENERATED ALWAYS AS IDENTITY, columns text, atom text);
INSERT INTO atoms (columns, atom) VALUES
	('most', 'i2 = 3'), ('most', 'i2 < 4::int8'), ('most', 'i2 >= -2::int4'), ('most', 'i2 = ANY (''{1,2,-9,NULL}'')'), ('most', 'i2 IS NULL'),
	('most', 'i4 = 17'), ('most', 'i4 < 40::int2'), ('most', 'i4 > 3000000000'), ('most', 'i4 BETWEEN -100 AND 100'), ('most', 'i4 = ANY (''{}'')'), ('most', 'i4 > ANY (''{5,300}'')'), ('most', 'i4 <= ANY (''{5,300,NULL}'')'),
	('most', 'i8 = 4611686018427387903'), ('most', 'i8 > 0::int2'), ('most', 'i8 < -9223372036854775807'), ('most', 'i8 <= -9223372036854775806'), ('most', 'i8 IN (0, 1, 4611686018427387904)'),
	('most', 'f4 = 0'), ('most', 'f4 = ''NaN'''), ('most', 'f4 < 0.1::float8'), ('most', 'f4 <= 0.1::float4'), ('most', 'f4 > 1e39::float8'), ('most', 'f4 >= ''Infinity'''), ('most', 'f4 < -3e38'),
	('most', 'f8 = -0.0::float8'), ('most', 'f8 > ''Infinity'''), ('most', 'f8 <= ''-Infinity'''), ('most', 'f8 < 0.1::float4'), ('most', 'f8 = ANY (''{NaN,-0,1e-300}'')'), ('most', 'f8 IS NOT NULL'),
	('most', 'num = 1.5'), ('most', 'num > 1.5'), ('most', 'num < 1.50000000000000000000001'), ('most', 'num = ''NaN'''), ('most', 'num >= 1e399'), ('most', 'num <= -1e399'), ('most', 'num IN (0.1, 0, 123456789012345678901234567891)'),
	('most', 'd = ''2024-02-29'''), ('most', 'd < ''2000-01-01'''), ('most', 'd >= ''infinity'''), ('most', 'd IN (''1999-12-31'', ''-infinity'')'),
	('most', 'ts > ''2000-01-01'''), ('most', 'ts <= ''1999-12-31 23:59:59.999999'''), ('most', 'ts < ''infinity'''), ('most', 'tz >= ''2000-01-01 00:00+00'''), ('most', 'tz = ''-infinity'''),
	('most', 'b'), ('most', 'NOT b'), ('most', 'b IS NULL'), ('most', 'b > false'),
	('most', 't = ''abcd'''), ('most', 't < ''abcde'''), ('most', 't > ''abcd'''), ('most', 't >= ''ab'''), ('most', 't <= '''''), ('most', 't IN ('''', ''ü'', ''B'', ''none'')'), ('most', 't = repeat(''long'', 1000)'),
	('most', 'bp = ''ab'''), ('most', 'bp = ''ab   '''), ('most', 'bp > ''abc'''), ('most', 'bp IN (''a'', '''')'),
	('most', 'u = ''00000000-0000-0001-0000-000000000002'''), ('most', 'u > ''00000000-0000-0001-0000-000000000002'''), ('most', 'u <= ''00000000-0000-0001-0000-000000000001'''), ('most', 'u IS NOT NULL'),
	('most', 'e = ''fine'''), ('most', 'e < ''glad'''), ('most', 'e >= ''fine'''), ('most', 'e > ''glad'''), ('most', 'e IN (''sad'', ''glad'')'), ('most', 'e > ANY (''{sad,fine}'')'),
	('most', 'ip = ''10.0.0.1'''), ('most', 'ip IN (''::1'', ''10.0.0.0/8'')'),
	('both', 'tokens IS NULL'), ('both', 'tokens IS NOT NULL'), ('both', 'tokens && ''{3,7,11}'''), ('both', 'tokens @> ''{5}'''), ('both', 'tokens && ANY (''{"{1,2}","{7}"}''::idset[])'), ('both', 'tokens = ''{}'''),
	('both', 'tokens <@ ''{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}'''),
	('rest', 'tags && ''{5000,10000}'''), ('rest', 'tags @> ''{15000}'''), ('rest', 'tags @> ''{15000,20000}'''), ('rest', 'tags <@ ''{0,5000,10000,15000,20000,25000,30000,35000,40000}'''), ('rest', 'tags = ''{}'''),
	('rest', 'tags = ''{5000}'''), ('rest', 'tags && ''{}'''), ('rest', 'tags @> ''{}'''), ('rest', 'tags IS NULL'), ('rest', 'tags <<->> (''{5000,10000}'', 0.4, ''jaccard'')'), ('rest', 'tags && ANY (''{"{5000}","{70000}"}''::idset[])'),
	('rest', 'v = ''a'''), ('rest', 'v = ''A'''), ('rest', 'v < ''x'''), ('rest', 'v IN (''ab'', ''Zoo'')'), ('rest', 'v IS NOT NULL'),
	('rest', 'm6 = ''08:00:2b:01:02:03'''), ('rest', 'm6 < ''00:00:00:00:00:00'''), ('rest', 'm6 <= ''00:00:00:00:00:00'''), ('rest', 'm6 < ''80:00:00:00:00:00'''), ('rest', 'm6 >= ''ff:ff:ff:ff:ff:ff'''),
	('rest', 'm6 > ''ff:ff:ff:ff:ff:ff'''), ('rest', 'm6 BETWEEN ''00:00:00:80:00:00'' AND ''08:00:2b:01:02:03'''), ('rest', 'm6 IN (''00:00:00:00:00:01'', ''ff:ff:ff:ff:ff:ff'', ''12:34:56:78:9a:bc'')'),
	('rest', 'm6 > ANY (''{7f:ff:ff:ff:ff:ff,80:00:00:00:00:00,NULL}'')'), ('rest', 'm6 IS NULL'),
	('rest', 'm8 = ''08:00:2b:01:02:03'''), ('rest', 'm8 < ''00:00:00:00:00:00:00:00'''), ('rest', 'm8 <= ''00:00:00:00:80:00:00:00'''), ('rest', 'm8 < ''80:00:00:00:00:00:00:00'''),
	('rest', 'm8 >= ''ff:ff:ff:ff:ff:ff:ff:ff'''), ('rest', 'm8 > ''ff:ff:ff:ff:ff:ff:ff:fe'''), ('rest', 'm8 > ''ff:ff:ff:ff:ff:ff:ff:ff'''), ('rest', 'm8 BETWEEN ''00:00:00:01:00:00:00:00'' AND ''7f:ff:ff:ff:ff:ff:ff:ff'''),
	('rest', 'm8 = ANY (''{00:00:00:00:00:00:00:00,ff:ff:ff:ff:ff:ff:ff:fe,NULL}'')'), ('rest', 'm8 <= ANY (''{00:00:00:00:00:00:00:01,08:00:2b:ff:fe:01:02:03}'')'), ('rest', 'm8 IS NOT NULL');

-- Rows by an index and by a sequential scan and a sort: distances, rows of each distance, the first
-- ten, and rows without an order
CREATE FUNCTION rows_of(query text, OUT ids int[], OUT ds float8[]) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT array_agg(id), array_agg(d) FROM (' || query || ') x' INTO ids, ds;
END $$;
CREATE FUNCTION sorted(ids int[], ds float8[]) RETURNS text LANGUAGE sql AS
	'SELECT string_agg(concat(d, '':'', i), '','' ORDER BY d, i) FROM unnest(ids, ds) x (i, d)';
CREATE FUNCTION same(cond text, op text, q idset) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plain text := format('SELECT id, tokens %s %L AS d FROM docs WHERE %s', op, q, cond);
	query text := format('%s ORDER BY tokens %s %L', plain, op, q);
	got record;
	ten record;
	unordered record;
	wanted record;
	plan json;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	got := rows_of(query);
	ten := rows_of(query || ' LIMIT 10');
	SET LOCAL enable_sort = on;
	unordered := rows_of(plain);
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_bitmapscan = off;
	wanted := rows_of(query);
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_bitmapscan = on;
	-- from 18 the planner sees that some conditions exclude each other
	IF plan::text NOT LIKE '%"Index Scan"%docs_%' AND plan::text NOT LIKE '%"One-Time Filter": "false"%' THEN RETURN 'not by an index'; END IF;
	IF got.ds IS DISTINCT FROM wanted.ds OR sorted(got.ids, got.ds) IS DISTINCT FROM sorted(wanted.ids, wanted.ds) THEN RETURN 'differs'; END IF;
	IF ten.ids IS DISTINCT FROM got.ids[1:10] THEN RETURN 'first ten differ'; END IF;
	IF sorted(unordered.ids, unordered.ds) IS DISTINCT FROM sorted(wanted.ids, wanted.ds) THEN RETURN 'differs without an order'; END IF;
	RETURN 'same';
END $$;
CREATE FUNCTION op(i int) RETURNS text LANGUAGE sql AS $$ SELECT (ARRAY['<->', '<%>', '<=>', '<#>', '<~>'])[i % 5 + 1] $$;
CREATE FUNCTION query(i int) RETURNS idset LANGUAGE sql AS $$ SELECT (ARRAY['{7,31,62,93,150}', '{3}', '{}', '{64000}', '{1,2,3,4,5,6,7,8,9,10,70000}']::idset[])[i % 5 + 1] $$;
CREATE FUNCTION differing(seed int) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' | ', same(cond, op(i), query(i / 5)), cond, op(i), query(i / 5)::text) FROM (
		SELECT number + seed AS i, atom AS cond FROM atoms
		UNION ALL
		SELECT i + seed, concat_ws(' AND ', a.atom, b.atom, CASE WHEN i % 2 = 0 THEN c.atom END) FROM generate_series(1, 60) i,
			(SELECT count(*)::int AS n FROM atoms) x, atoms a, atoms b, atoms c
		WHERE a.number = 1 + rnd(i, seed + 1, n) AND b.number = 1 + rnd(i, seed + 2, n) AND c.number = 1 + rnd(i, seed + 3, n)) y
	WHERE same(cond, op(i), query(i / 5)) <> 'same' $$;
SELECT count(*) > 80 AS atoms FROM atoms;
SELECT * FROM differing(0);
-- each operator of each class, with a value of each type on its right, and with an array of those
CREATE TABLE operators AS
SELECT attname AS name, oprname AS op, CASE WHEN amoprighttype = 'anyenum'::regtype THEN 'mood' ELSE amoprighttype::regtype END AS type, examples
FROM pg_amop JOIN pg_am a ON a.oid = amopmethod AND a.amname = 'gpuvec' JOIN pg_operator o ON o.oid = amopopr
	JOIN pg_attribute ON attrelid IN ('docs_most'::regclass, 'docs_rest'::regclass) AND attnum > 1
	JOIN pg_type t ON t.oid = atttypid AND amoplefttype = CASE WHEN typtype = 'e' THEN 'anyenum'::regtype WHEN typtype = 'd' THEN typbasetype ELSE t.oid END
	JOIN (VALUES ('^(smallint|integer|bigint)$', '{3,-5,NULL}'), ('^(real|double precision|numeric)$', '{1.5,-2.25,NULL}'), ('^(date|timestamp.*)$', '{2000-01-01,2024-02-29,NULL}'),
		('^boolean$', '{t,NULL}'), ('^(text|character)$', '{ab,abcd,NULL}'), ('^uuid$', '{00000000-0000-0001-0000-000000000002,NULL}'), ('^anyenum$', '{fine,sad,NULL}'), ('^inet$', '{10.0.0.1,::1,NULL}'),
		('^macaddr8?$', '{7f:ff:ff:ff:ff:ff,08:00:2b:01:02:03,NULL}')) e (types, examples)
		ON amoprighttype::regtype::text ~ types
WHERE amoppurpose = 's';
SELECT count(*) > 100 AS operators, count(DISTINCT name) AS columns FROM operators;
SELECT cond, same(cond, '<->', '{7,31,62}') FROM (SELECT format('%I %s %L::%s', name, op, (examples::text[])[1], type) AS cond FROM operators
	UNION ALL SELECT format('%I %s ANY (%L::%s[])', name, op, examples, type) FROM operators) c
WHERE same(cond, '<->', '{7,31,62}') <> 'same';
DROP TABLE operators;
-- the functions use the copy, which has rows without a set: these are no answer
SELECT (SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2}', 100000, 'hamming')) = count(tokens) AS sets, count(tokens) < count(*) AS nulls FROM docs;
-- most conditions find some rows, and leave some out
CREATE FUNCTION rows_where(cond text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	EXECUTE 'SELECT count(*) FROM docs WHERE ' || cond INTO n;
	RETURN n;
END $$;
SELECT count(*) FILTER (WHERE n = 0) < 12 AS found, count(*) FILTER (WHERE n = 6000) = 0 AS left_out FROM (SELECT rows_where(atom) AS n FROM atoms) x;
-- updates of filter columns, deletions, new rows, VACUUM
UPDATE docs SET n = n + 1 WHERE id % 3 = 0;
UPDATE docs SET i4 = i4 + 1, tags = tags | 5000, t = 'abcd' WHERE id % 7 = 0;
UPDATE docs SET i2 = NULL, b = NOT b, e = 'sad' WHERE id % 11 = 0;
UPDATE docs SET tokens = NULL WHERE id % 13 = 0;
UPDATE docs SET tokens = '{7,31}' WHERE id % 17 = 0;
DELETE FROM docs WHERE id % 5 = 0;
SELECT fill(10001, 10500);
SELECT * FROM differing(1);
VACUUM docs;
SELECT fill(11001, 11100);
SELECT (SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2}', 100000, 'hamming')) = count(tokens) AS sets, count(tokens) < count(*) AS nulls FROM docs;
SELECT * FROM differing(2);
-- a label that comes after the index, in the middle of the others
ALTER TYPE mood ADD VALUE 'calm' BEFORE 'fine';
UPDATE docs SET e = 'calm' WHERE id % 19 = 0;
INSERT INTO atoms (columns, atom) VALUES ('most', 'e = ''calm'''), ('most', 'e > ''calm'''), ('most', 'e <= ''calm''');
SELECT atom, same(atom, '<->', '{7,31,62}') FROM atoms WHERE atom LIKE 'e %' ORDER BY number;
-- a column that is added later, with a value that old rows do not have on their pages
ALTER TABLE docs ADD COLUMN late int DEFAULT 42;
INSERT INTO docs (id, tokens, late) SELECT 20000 + i, '{7,31}', i FROM generate_series(30, 50) i;
CREATE INDEX docs_late ON docs USING gpuvec (tokens, late);
SELECT cond, same(cond, '<->', '{7,31,62}') FROM unnest('{late = 42,late < 42,late IS NULL}'::text[]) cond;
ALTER TABLE docs DROP COLUMN late;
ALTER TABLE docs ADD COLUMN late int DEFAULT 43;
CREATE INDEX docs_late ON docs USING gpuvec (tokens, late);
SELECT cond, same(cond, '<->', '{7,31,62}') FROM unnest('{late = 42,late = 43,late IS NOT NULL}'::text[]) cond;
-- the type of a column changes
ALTER TABLE docs ALTER COLUMN late TYPE text USING late::text;
SELECT cond, same(cond, '<->', '{7,31,62}') FROM unnest(ARRAY['late = ''43''', 'late > ''42''']) cond;
ALTER TABLE docs DROP COLUMN late;
-- indexes that keep their rows: expressions and predicates
DROP INDEX docs_most, docs_rest;
CREATE INDEX docs_kept ON docs USING gpuvec ((tokens | 9), i4, lower(t), tags) WHERE id % 2 = 0;
CREATE FUNCTION same_kept(cond text, op text, q idset) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	ALTER TABLE docs RENAME TO docs_table;
	EXECUTE 'CREATE VIEW docs AS SELECT id, tokens | 9 AS tokens, i4, lower(t) AS t, tags FROM docs_table WHERE id % 2 = 0';
	result := same(cond, op, q);
	DROP VIEW docs;
	ALTER TABLE docs_table RENAME TO docs;
	RETURN result;
END $$;
CREATE TABLE kept_atoms (number int GENERATED ALWAYS AS IDENTITY, atom text);
INSERT INTO kept_atoms (atom) VALUES ('i4 < 40'), ('i4 BETWEEN -100 AND 100'), ('i4 IS NULL'), ('t = ''b'''), ('t IS NULL'), ('tags && ''{5000}'''), ('tags IS NULL AND i4 > 5'), ('tokens IS NULL'),
	('t = ''long'' AND i4 > 0'), ('tokens @> ''{7}'' AND i4 > 0'), ('i4 = 100000'), ('tokens IS NULL AND i4 < 0 AND t >= ''a''');
SELECT atom, op(number), same_kept(atom, op(number), query(number)) FROM kept_atoms ORDER BY number;
UPDATE docs SET i4 = i4 + 1 WHERE id % 4 = 0;
UPDATE docs SET tokens = NULL, t = repeat('T', 9000) WHERE id % 14 = 0;
DELETE FROM docs WHERE id % 10 = 2;
SELECT fill(12001, 12300);
-- sets that do not fit a page, and wide ones
INSERT INTO docs (id, tokens, i4, t, tags) SELECT 30000 + 2 * i, (SELECT idset_agg(x) FROM generate_series(i, 9000 + i) x), 30 * i, 'B', '{5000}' FROM generate_series(1, 5) i;
INSERT INTO docs (id, tokens, i4, t, tags) SELECT 31000 + 2 * i, (SELECT idset_agg(x * 30) FROM generate_series(1, 3000 * i) x), 30 * i, 'B', '{70000}' FROM generate_series(1, 3) i;
SELECT atom, op(number), same_kept(atom, op(number), query(number)) FROM kept_atoms ORDER BY number;
VACUUM docs;
SELECT fill(13001, 13100);
SELECT atom, op(number), same_kept(atom, op(number), query(number)) FROM kept_atoms ORDER BY number;
DROP TABLE docs CASCADE;

-- collations: another one than C, and one that takes different texts for equal
CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE docs (id int, tokens idset, n int DEFAULT 0, a text COLLATE "en-x-icu", b text COLLATE loose, c text COLLATE "POSIX");
INSERT INTO docs SELECT i, ARRAY[i % 7, i % 11 + 10]::idset, 0, x, x, x FROM generate_series(1, 700) i, LATERAL (SELECT (ARRAY['ab', 'AB', 'aB', 'b', 'ä', 'z', NULL])[i % 7 + 1] AS x) y;
CREATE INDEX docs_texts ON docs USING gpuvec (tokens, a, b, c);
SELECT cond, same(cond, '<->', '{3,13}') FROM unnest(ARRAY['a = ''ab''', 'a > ''AB''', 'b = ''ab''', 'b < ''b''', 'b IN (''Ab'', ''Z'')', 'c < ''ab''', 'c >= ''b''', 'c = ''ä''', 'a COLLATE "C" < ''b'' AND b = ''aB''']) cond;
DROP TABLE docs;
-- a column gets another collation, the table the same file
CREATE TABLE docs (id int, tokens idset, n int DEFAULT 0, b text COLLATE "C");
INSERT INTO docs SELECT i, ARRAY[i % 7, i % 11 + 10]::idset, 0, (ARRAY['ab', 'AB', 'b'])[i % 3 + 1] FROM generate_series(1, 700) i;
CREATE INDEX docs_texts ON docs USING gpuvec (tokens, b);
SELECT cond, same(cond, '<->', '{3,13}') FROM unnest(ARRAY['b = ''AB''']) cond;
SELECT pg_relation_filenode('docs') AS before \gset
ALTER TABLE docs ALTER COLUMN b TYPE text COLLATE loose;
SELECT pg_relation_filenode('docs') = :before AS same_file;
SELECT cond, same(cond, '<->', '{3,13}') FROM unnest(ARRAY['b = ''AB''']) cond;
DROP TABLE docs;
DROP COLLATION loose;

SET random_page_cost = 1.1;
-- what is planned: parameters, null ones, joins, generic plans; conditions that are none
CREATE TABLE docs (id int PRIMARY KEY, tokens idset, tenant int, price float8, tags idset);
INSERT INTO docs SELECT i, ARRAY[i % 7, i % 11 + 10, i % 13 + 30]::idset, i % 50, i % 100, ARRAY[i % 5]::idset FROM generate_series(1, 5000) i;
CREATE INDEX docs_all ON docs USING gpuvec (tokens, tenant, price, tags);
CREATE TABLE queries (id int, tokens idset, tenant int);
INSERT INTO queries SELECT i, ARRAY[i % 7, i % 11 + 10]::idset, nullif(i % 40, 7) FROM generate_series(1, 60) i;
ANALYZE docs, queries;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant = 5 AND price < 10 ORDER BY tokens <-> '{3,13}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant = 5 AND price + 1 < 10 ORDER BY tokens <-> '{3,13}' LIMIT 10;
EXPLAIN (COSTS OFF) SELECT q.id, x.* FROM queries q, LATERAL (SELECT d.id FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 3) x;
SELECT count(*) AS rows, count(*) FILTER (WHERE d IS DISTINCT FROM e) AS wrong FROM queries q,
	LATERAL (SELECT d.tokens <-> q.tokens AS d, row_number() OVER () AS n FROM docs d WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens LIMIT 12) x
	JOIN LATERAL (SELECT e, row_number() OVER (ORDER BY e) AS n FROM (SELECT d.tokens <-> q.tokens AS e FROM docs d WHERE d.tenant + 0 = q.tenant OFFSET 0) z) y USING (n);
SET plan_cache_mode = force_generic_plan;
PREPARE ask(int, float8, idset) AS SELECT count(*), min(d), max(d), bool_and(tenant = $1 AND price < $2) FROM (SELECT *, tokens <-> $3 AS d FROM docs WHERE tenant = $1 AND price < $2 ORDER BY tokens <-> $3 LIMIT 20) x;
EXPLAIN (COSTS OFF) EXECUTE ask(5, 50, '{3,13}');
EXECUTE ask(5, 50, '{3,13}');
EXECUTE ask(5, 101, '{3,13}');
EXECUTE ask(NULL, 50, '{3,13}');
EXECUTE ask(5, 50, NULL);
EXECUTE ask(5000, 50, '{3,13}');
RESET plan_cache_mode;
-- no scan orders by the distance of another column than the first; nor is a set that is compared with an array of sets looked for
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant = 5 ORDER BY tags <-> '{3}' LIMIT 10;
SET enable_seqscan = off;
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		-- from 18 it says which nodes are disabled
		IF line NOT LIKE '% Disabled: true' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
SELECT plan('SELECT id FROM docs ORDER BY tags <-> ''{3}'' LIMIT 10');
RESET enable_seqscan;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens && ANY ('{"{1}","{2}"}'::idset[]);
-- rows that the engine finds by exact conditions need no check
CREATE FUNCTION removed(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	plan := plan->0->'Plan'->'Plans'->0;
	RETURN concat_ws(', ', plan->>'Node Type', (plan->>'Actual Rows')::numeric::int, plan->>'Rows Removed by Index Recheck');
END $$;
SET enable_sort = off;
SELECT removed($$SELECT id FROM docs WHERE tenant = 5 AND price < 60 ORDER BY tokens <-> '{3,13}' LIMIT 10$$);
SELECT removed($$SELECT id FROM docs WHERE tenant = 5 ORDER BY tokens <-> '{60000}' LIMIT 100$$);
SELECT removed($$SELECT id FROM docs WHERE tenant = 5 AND tags @> '{0}' ORDER BY tokens <-> '{3,13}' LIMIT 10$$);
RESET enable_sort;
-- functions use the copy of this index, if there is none without filter columns
SELECT count(*), max(score) FROM gpuvec_topk('docs', 'tokens', '{3,13,33}', 3);
SELECT count(*) AS copies FROM gpuvec_mirrors WHERE relation = 'docs'::regclass;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
SELECT count(*), max(score) FROM gpuvec_topk('docs', 'tokens', '{3,13,33}', 3);
SELECT count(*) AS copies FROM gpuvec_mirrors WHERE relation = 'docs'::regclass;
-- what a copy means covers what its keys are made of
BEGIN;
ALTER TABLE docs ALTER COLUMN tenant TYPE int8;
SELECT count(*) FROM (SELECT id FROM docs WHERE tenant = 5 ORDER BY tokens <-> '{3,13}') x;
ROLLBACK;
SELECT count(*) FROM (SELECT id FROM docs WHERE tenant = 5 ORDER BY tokens <-> '{3,13}') x;

-- definitions that are refused
CREATE INDEX ON docs USING gpuvec (tenant);
CREATE INDEX ON docs USING gpuvec (tenant, tokens);
CREATE INDEX ON docs USING gpuvec (tokens, (ARRAY[tenant]));
CREATE INDEX ON docs USING gpuvec (tokens, (tenant::oid));
CREATE INDEX ON docs USING gpuvec (tokens) INCLUDE (tenant);
CREATE INDEX ON docs USING gpuvec (tokens, tenant, price, tags, tenant, tenant, tenant, tenant, tenant, tenant, tenant, tenant, tenant, tenant, tenant, tenant, tenant);
CREATE UNIQUE INDEX ON docs USING gpuvec (tokens, tenant);
ALTER TABLE docs ADD EXCLUDE USING gpuvec (tokens WITH =, tenant WITH =);

-- the operator classes
SELECT opcname, opcintype::regtype, opcdefault, amvalidate(c.oid) FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'gpuvec' ORDER BY 1;
SELECT column_number, property, pg_index_column_has_property('docs_all', column_number, property) AS has
	FROM generate_series(1, 4, 3) column_number, unnest('{distance_orderable,search_array,search_nulls}'::text[]) property;
CREATE OPERATOR CLASS odd_ops FOR TYPE int4 USING gpuvec AS OPERATOR 11 <, OPERATOR 13 =, OPERATOR 6 <>;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'odd_ops';
CREATE OPERATOR CLASS odder_ops FOR TYPE int4 USING gpuvec AS OPERATOR 11 <;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'odder_ops';
-- a type without keys is refused, whatever its operator class says
CREATE OPERATOR CLASS oddest_ops FOR TYPE oid USING gpuvec AS OPERATOR 11 <, OPERATOR 13 =;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'oddest_ops';
CREATE INDEX ON docs USING gpuvec (tokens, (tenant::oid) oddest_ops);
-- different values with one key: rows are checked again, whatever else says that they were found exactly
CREATE TABLE nearly (id int, tokens idset, price numeric);
INSERT INTO nearly SELECT n, ARRAY[n % 3], CASE WHEN n % 2 = 0 THEN 1 ELSE 1.00000000000000000001 END FROM generate_series(1, 60) n;
CREATE INDEX ON nearly USING gpuvec (tokens, price);
VACUUM ANALYZE nearly;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*), count(*) FILTER (WHERE price = 1) AS right FROM nearly WHERE tokens && '{1}' AND price = 1;
RESET enable_bitmapscan;
SET enable_indexscan = off;
SELECT count(*), count(*) FILTER (WHERE price = 1) AS right FROM nearly WHERE tokens && '{1}' AND price = 1;
RESET enable_indexscan;
RESET enable_seqscan;
DROP SCHEMA index_filters CASCADE;
