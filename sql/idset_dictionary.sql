-- Dictionaries: idset_encode and idset_decode
CREATE TABLE words (id bigint PRIMARY KEY, token text COLLATE "C" NOT NULL UNIQUE);
-- ids in the order of first places, without gaps
SELECT idset_encode('words', '{red,fruit,red,green}');
SELECT idset_encode('words', '{blue,red}'), idset_encode('words', '{}'), idset_encode('words', NULL) IS NULL AS nothing;
SELECT id, token FROM words ORDER BY id;
SELECT idset_decode('words', '{0,2,3}'), idset_decode('words', '{}'), idset_decode('words', NULL) IS NULL AS nothing;
SELECT idset_encode('words', '{blue,red}', false), idset_encode('words', '{}', false);
-- what is lacking
CREATE FUNCTION try(statement text, OUT state text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END$$;
\x on
SELECT t.* FROM unnest(ARRAY[
	$$SELECT idset_encode('words', '{red,pink}', false)$$, $$SELECT idset_encode('words', ARRAY[repeat('x', 100), 'y'], false)$$,
	$$SELECT idset_decode('words', '{0,4}')$$, $$SELECT idset_decode('words', '{1,3,4294967295,7}')$$,
	$$SELECT idset_encode('words', '{red,NULL}')$$, $$SELECT idset_encode('words', '{{red},{blue}}')$$]) WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
\x off
SELECT count(*) FROM words;
-- failed transactions, savepoints and conflicts use no ids up
BEGIN;
SELECT idset_encode('words', '{lost,gone}');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idset_encode('words', '{lost}');
ROLLBACK TO s;
SELECT idset_encode('words', '{kept}');
COMMIT;
SELECT state FROM try($$SELECT idset_encode('words', ARRAY['fine', string_agg(md5(i::text), '')]) FROM generate_series(1, 1000) i$$);
SELECT idset_encode('words', '{next}'), (SELECT max(id) + 1 - count(*) FROM words) AS gaps;
-- decoding is by the snapshot of its statement
SELECT * FROM try($$SELECT idset_decode('words', idset_encode('words', '{at once}'))$$);
-- many rows of one statement, each of which sees what those before it have added
CREATE TABLE docs (id int, tags text[], tokens idset);
INSERT INTO docs SELECT i, ARRAY['t' || i % 50, 't' || i % 7, 'u' || i / 10] FROM generate_series(1, 500) i;
UPDATE docs SET tokens = idset_encode('words', tags);
SELECT count(*) AS tokens, max(id) + 1 AS ids FROM words;
SELECT count(*) FILTER (WHERE NOT idset_decode('words', tokens) @> tags OR NOT idset_decode('words', tokens) <@ tags) AS wrong, count(*) FROM docs;
SELECT count(*) FROM docs WHERE tokens && (SELECT idset_encode('words', '{t3,t4}', false));
-- in a trigger, and in several dictionaries by one expression
CREATE FUNCTION encode_tags() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.tokens := idset_encode('words', NEW.tags); RETURN NEW; END $$;
CREATE TRIGGER encode BEFORE INSERT OR UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION encode_tags();
INSERT INTO docs VALUES (501, '{red,brandnew}');
SELECT tags, idset_decode('words', tokens) FROM docs WHERE id = 501;
CREATE TABLE small (token text UNIQUE, other int DEFAULT 7, id int UNIQUE GENERATED ALWAYS AS IDENTITY);
SELECT d, idset_encode(d, t) FROM (VALUES ('words'::regclass, '{red}'::text[]), ('small', '{red,blue}'), ('words', '{blue}'), ('small', '{pink,blue}')) v (d, t);
TABLE small;
ALTER TABLE small RENAME TO "Small ""one";
CREATE SCHEMA "other schema";
ALTER TABLE "Small ""one" SET SCHEMA "other schema";
SELECT idset_encode('"other schema"."Small ""one"', '{blue,violet}');
SELECT idset_decode('"other schema"."Small ""one"', '{0,3}');
-- ids end
INSERT INTO "other schema"."Small ""one" (id, token) OVERRIDING SYSTEM VALUE VALUES (2147483646, 'almost');
INSERT INTO words VALUES (4294967294, 'almost');
\x on
SELECT idset_encode('"other schema"."Small ""one"', '{last}'), idset_encode('words', '{last}');
SELECT idset_decode('words', '{4294967295}');
SELECT t.* FROM unnest(ARRAY[$$SELECT idset_encode('"other schema"."Small ""one"', '{more,red}')$$, $$SELECT idset_encode('words', '{more,most}')$$]) WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
INSERT INTO words VALUES (-1, 'minus'), (5000000000, 'beyond');
SELECT t.* FROM unnest(ARRAY[$$SELECT idset_encode('words', '{minus}')$$, $$SELECT idset_encode('words', '{beyond}')$$]) WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
\x off
DELETE FROM words WHERE id > 1000000 OR id < 0;
-- a set has at most 65,536 ids, and the dictionary stays as it was
SELECT t.* FROM try($$SELECT idset_encode('words', array_agg('many' || i)) FROM generate_series(1, 70000) i$$) t;
SELECT count(*) = max(id) + 1 AS no_gaps, count(*) < 1000 AS few FROM words;
-- tables that cannot be dictionaries
CREATE TABLE parent (id bigint PRIMARY KEY, token text UNIQUE);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE parted (id bigint, token text) PARTITION BY HASH (token);
CREATE VIEW looking AS TABLE words;
CREATE TABLE no_id (token text UNIQUE);
CREATE TABLE no_token (id bigint UNIQUE);
CREATE TABLE short_id (id smallint UNIQUE, token text UNIQUE);
CREATE TABLE varchars (id bigint UNIQUE, token varchar UNIQUE);
CREATE TABLE no_unique (id bigint UNIQUE, token text);
CREATE TABLE partly (id bigint UNIQUE, token text);
CREATE UNIQUE INDEX ON partly (token) WHERE id > 5;
CREATE TABLE both_columns (id bigint, token text UNIQUE, UNIQUE (id, token));
CREATE TABLE later (id bigint UNIQUE, token text UNIQUE DEFERRABLE);
CREATE TABLE expressed (id bigint UNIQUE, token text);
CREATE UNIQUE INDEX ON expressed (lower(token));
CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE loosely (id bigint UNIQUE, token text COLLATE loose UNIQUE);
SELECT name, t.state, t.message, t.detail FROM unnest('{parent,parted,looking,no_id,no_token,short_id,varchars,no_unique,partly,both_columns,later,expressed,loosely,pg_class,docs_seq}'::text[]) WITH ORDINALITY u(name, n),
	try(format('SELECT idset_encode(%L, ''{a}'')', name)) t ORDER BY n;
SELECT name, t.state FROM unnest('{parent,parted,looking,no_unique}'::text[]) WITH ORDINALITY u(name, n), try(format('SELECT idset_decode(%L, ''{1}'')', name)) t ORDER BY n;
SELECT state, message FROM try('SELECT idset_encode(1::oid, ''{a}'')');
SELECT hint FROM try($$SELECT idset_encode('no_id', '{a}')$$);
-- a unique index may have other columns beside its key
CREATE TABLE included (id bigint, token text, note int, UNIQUE (id) INCLUDE (note), UNIQUE (token) INCLUDE (note, id));
SELECT idset_encode('included', '{b,a}');
DROP TABLE included;
-- the hint is a dictionary; children that have gone do no harm
DROP TABLE child;
SELECT idset_encode('parent', '{a}');
-- read only
BEGIN READ ONLY;
SELECT idset_encode('words', '{red}'), idset_decode('words', '{0}');
SELECT idset_encode('words', '{unheard}');
ROLLBACK;
-- rights are those of the caller
CREATE ROLE regress_gpuvec_reader;
CREATE ROLE regress_gpuvec_writer;
CREATE ROLE regress_gpuvec_none;
GRANT SELECT ON words TO regress_gpuvec_reader;
GRANT SELECT (id, token), INSERT (id, token) ON words TO regress_gpuvec_writer;
\set VERBOSITY terse
SET ROLE regress_gpuvec_none;
SELECT idset_encode('words', '{red}', false);
SELECT idset_decode('words', '{0}');
SELECT idset_encode('words', '{}');
\set VERBOSITY default
SET ROLE regress_gpuvec_reader;
SELECT idset_encode('words', '{red}'), idset_decode('words', '{0}');
BEGIN;
SELECT idset_encode('words', '{unheard}');
ROLLBACK;
SET ROLE regress_gpuvec_writer;
SELECT idset_decode('words', idset_encode('words', '{red}'));
BEGIN;
SELECT cardinality(idset_encode('words', '{by the writer}'));
SELECT idset_decode('words', idset_encode('words', '{by the writer}'));
-- a lock that nobody else waits for but those who add
SELECT locktype, classid::regclass, objid::regclass, mode FROM pg_locks WHERE locktype = 'object' AND pid = pg_backend_pid() AND classid = 'pg_class'::regclass;
ROLLBACK;
RESET ROLE;
-- row-level security
ALTER TABLE words ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON words USING (id % 2 = 0);
SET ROLE regress_gpuvec_reader;
SELECT idset_encode('words', '{red}', false);
SELECT idset_decode('words', '{0}');
RESET ROLE;
SELECT idset_encode('words', '{red}', false);
DROP POLICY even ON words;
ALTER TABLE words DISABLE ROW LEVEL SECURITY;
-- names are looked up nowhere: neither the search path nor temporary objects matter
CREATE SCHEMA evil;
CREATE FUNCTION evil.fail() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil was called'; END $$;
CREATE FUNCTION evil.text_eq(text, text) RETURNS bool LANGUAGE sql AS 'SELECT evil.fail() IS NULL';
CREATE FUNCTION evil.int8_eq(int8, int8) RETURNS bool LANGUAGE sql AS 'SELECT evil.fail() IS NULL';
CREATE FUNCTION evil.add(int8, int8) RETURNS int8 LANGUAGE sql AS 'SELECT evil.fail()::int8';
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.text_eq);
CREATE OPERATOR evil.= (LEFTARG = int8, RIGHTARG = int8, FUNCTION = evil.int8_eq);
CREATE OPERATOR evil.+ (LEFTARG = int8, RIGHTARG = int8, FUNCTION = evil.add);
CREATE FUNCTION evil.min(int8) RETURNS int8 LANGUAGE sql AS 'SELECT evil.fail()::int8';
CREATE FUNCTION evil.max(int8) RETURNS int8 LANGUAGE sql AS 'SELECT evil.fail()::int8';
CREATE FUNCTION evil.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT evil.fail()';
CREATE DOMAIN evil.int8 AS bigint CHECK (VALUE < 0);
CREATE TABLE evil.words (id bigint PRIMARY KEY, token text UNIQUE);
CREATE TEMPORARY TABLE words (id bigint PRIMARY KEY, token text UNIQUE);
SET search_path = evil, pg_temp, pg_catalog, public;
SELECT public.idset_decode('public.words', public.idset_encode('public.words', '{red,fruit}'));
SELECT public.cardinality(public.idset_encode('public.words', '{"added in spite of evil"}'));
SELECT pg_catalog.count(*) FROM evil.words;
SELECT public.idset_encode('pg_temp.words', '{temporary}'), public.idset_encode('pg_temp.words', '{temporary}', false);
RESET search_path;
SELECT token FROM public.words WHERE token LIKE '%evil';
-- triggers and rules that keep rows away
CREATE FUNCTION keep_away() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.token <> 'unwanted' THEN NEW END; END $$;
CREATE TRIGGER keep BEFORE INSERT ON parent FOR EACH ROW EXECUTE FUNCTION keep_away();
SELECT * FROM try($$SELECT idset_encode('parent', '{b,unwanted}')$$);
SELECT idset_encode('parent', '{b}');
-- a token that the unique index has no room for, among others and alone; one that compresses has
SELECT t.* FROM (VALUES (1, 1), (2, 3)) v (n, shorter), LATERAL (SELECT format($$SELECT idset_encode('parent', ARRAY[%s])$$, string_agg(token, ', ')) AS statement FROM (
	SELECT quote_literal('short ' || i) AS token FROM generate_series(2, shorter) i UNION ALL SELECT quote_literal(string_agg(md5(i::text), '')) FROM generate_series(1, 200) i) u) s, try(s.statement) t ORDER BY n;
SELECT idset_encode('parent', ARRAY[repeat('long', 5000)]);
SELECT count(*) AS added FROM parent WHERE token LIKE 'short %';
DELETE FROM parent WHERE length(token) > 1000;
-- a smaller vocabulary by a constraint
CREATE TABLE bounded (id int PRIMARY KEY CHECK (id BETWEEN 0 AND 2), token text UNIQUE);
SELECT idset_encode('bounded', '{a,b,c}');
SELECT state FROM try($$SELECT idset_encode('bounded', '{d}')$$);
-- renamed, moved, and in a renamed schema, within one expression, while another one takes its name: it stays the dictionary that it is
CREATE TABLE one (id bigint PRIMARY KEY, token text COLLATE "C" NOT NULL UNIQUE);
CREATE TABLE two (LIKE one INCLUDING ALL);
INSERT INTO one VALUES (1, 'x'), (2, 'y');
INSERT INTO two VALUES (11, 'x'), (12, 'y'), (1, 'wrong'), (2, 'wronger');
CREATE SCHEMA moved;
DO $$
DECLARE
	d regclass := 'one';
	change text;
	known idset;
	added idset;
	tokens text[];
BEGIN
	FOREACH change IN ARRAY ARRAY['SELECT', 'ALTER TABLE one RENAME TO old; ALTER TABLE two RENAME TO one', 'ALTER TABLE old SET SCHEMA moved; ALTER TABLE one RENAME TO old',
		'ALTER SCHEMA moved RENAME TO dwelt; CREATE SCHEMA moved; ALTER TABLE old SET SCHEMA moved'] LOOP
		EXECUTE change;
		known := idset_encode(d, '{x,y}'::text[], false);
		added := idset_encode(d, ARRAY[change], true);
		tokens := idset_decode(d, '{1,2}');
		RAISE NOTICE '%: % % %', d, known, added, tokens;
	END LOOP;
END $$;
SELECT count(*) FROM moved.old;
SELECT provolatile, proparallel, proisstrict FROM pg_proc WHERE proname IN ('idset_encode', 'idset_decode') ORDER BY proname DESC;
SET client_min_messages = warning;
DROP TABLE pg_temp.words;
DROP VIEW looking;
DROP TABLE words, docs, parent, parted, no_id, no_token, short_id, varchars, no_unique, partly, both_columns, later, expressed, loosely, bounded;
DROP COLLATION loose;
DROP SCHEMA evil, moved, dwelt, "other schema" CASCADE;
DROP FUNCTION try, encode_tags, keep_away;
DROP ROLE regress_gpuvec_reader, regress_gpuvec_writer, regress_gpuvec_none;
