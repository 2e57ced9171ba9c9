-- Who searches an index with an expression or a predicate has nothing of his evaluated with the rights of the table's owner, nor put into
-- the copy that others search: whatever schemas, temporary objects and settings he has.
CREATE ROLE regress_sec_owner;
CREATE ROLE regress_sec_reader;
CREATE SCHEMA regress_sec;
GRANT USAGE ON SCHEMA regress_sec TO PUBLIC;
CREATE TABLE regress_sec.ran (what text, as_user name);
GRANT ALL ON regress_sec.ran TO PUBLIC;
CREATE SCHEMA AUTHORIZATION regress_sec_reader;
CREATE SCHEMA AUTHORIZATION regress_sec_owner;
GRANT USAGE ON SCHEMA regress_sec_owner TO PUBLIC;
SELECT extnamespace::regnamespace AS extschema FROM pg_extension WHERE extname = 'gpuvec' \gset

-- Ordinary index functions: one that finds functions of pg_catalog by the search path, one with a search path of its own, without pg_temp, that reads a table
SET ROLE regress_sec_owner;
CREATE FUNCTION regress_sec_owner.tokens_of(t text) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN ARRAY[ascii(lower(t)), length(t)]; END $$;
CREATE FUNCTION regress_sec_owner.is_word(t text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN lower(t) LIKE 'w%'; END $$;
CREATE TABLE regress_sec_owner.dict (id int, word text);
INSERT INTO regress_sec_owner.dict VALUES (1, 'a'), (2, 'b');
CREATE FUNCTION regress_sec_owner.tags(t text) RETURNS idset LANGUAGE sql IMMUTABLE SET search_path = regress_sec_owner, :extschema AS
	$$ SELECT idset_agg(id) FROM dict WHERE word = t $$;
CREATE TABLE regress_sec_owner.docs (id int, body text, tokens idset);
INSERT INTO regress_sec_owner.docs SELECT i, 'Word' || i % 50, ARRAY[i % 50, 100 + i] FROM generate_series(1, 1000) i;
CREATE TABLE regress_sec_owner.notes (id int, body text);
INSERT INTO regress_sec_owner.notes SELECT i, CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END FROM generate_series(1, 100) i;
CREATE INDEX docs_expression ON regress_sec_owner.docs USING gpuvec (regress_sec_owner.tokens_of(body));
CREATE INDEX docs_predicate ON regress_sec_owner.docs USING gpuvec (tokens) WHERE regress_sec_owner.is_word(body);
CREATE INDEX notes_tags ON regress_sec_owner.notes USING gpuvec (regress_sec_owner.tags(body));
ANALYZE regress_sec_owner.docs;
ANALYZE regress_sec_owner.notes;
GRANT SELECT ON regress_sec_owner.docs, regress_sec_owner.notes TO regress_sec_reader;
RESET ROLE;

-- What the reader has in store: a schema in front of pg_catalog, and a temporary view in the place of a table
SET ROLE regress_sec_reader;
CREATE FUNCTION regress_sec_reader.lower(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO regress_sec.ran VALUES ('lower', current_user); RETURN 'false'; END $$;
CREATE FUNCTION regress_sec_reader.ascii(text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN INSERT INTO regress_sec.ran VALUES ('ascii', current_user); RETURN 77; END $$;
CREATE FUNCTION pg_temp.evil() RETURNS int LANGUAGE plpgsql AS $$
BEGIN INSERT INTO regress_sec.ran VALUES ('view', current_user); RETURN 77; END $$;
CREATE TEMP VIEW dict AS SELECT pg_temp.evil() AS id, 'a'::text AS word;
GRANT ALL ON dict TO PUBLIC;
GRANT USAGE ON SCHEMA regress_sec_reader TO PUBLIC;
SELECT set_config('search_path', format('regress_sec_reader, pg_catalog, %s', :'extschema'), false) IS NOT NULL AS set;
SET enable_seqscan = off;
SET enable_sort = off;
-- He comes first, so that his are the pages that are read; a query without common ids has the scan go on to rows that do not rank.
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.docs ORDER BY regress_sec_owner.tokens_of(body) <-> '{119}' LIMIT 2) x;
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.docs ORDER BY regress_sec_owner.tokens_of(body) <-> '{60000}' LIMIT 1) x;
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.docs WHERE regress_sec_owner.tokens_of(body) && '{119}') x;
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.docs WHERE regress_sec_owner.is_word(body) ORDER BY tokens <-> '{7}' LIMIT 2) x;
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.docs WHERE regress_sec_owner.is_word(body) ORDER BY tokens <-> '{60000}' LIMIT 2) x;
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.notes ORDER BY regress_sec_owner.tags(body) <-> '{1}' LIMIT 2) x;
SELECT count(*) >= 0 AS searched FROM (SELECT FROM regress_sec_owner.notes ORDER BY regress_sec_owner.tags(body) <-> '{60000}' LIMIT 2) x;
RESET ROLE;
RESET search_path;
RESET enable_seqscan;
RESET enable_sort;
-- What ran, ran as himself
SELECT DISTINCT what, as_user FROM regress_sec.ran WHERE as_user <> 'regress_sec_reader';

DROP VIEW pg_temp.dict;

-- Others find the owner's values by the same indexes.
SET enable_seqscan = off;
SET enable_sort = off;
EXPLAIN (COSTS off) SELECT id FROM regress_sec_owner.docs ORDER BY regress_sec_owner.tokens_of(body) <-> '{119,6}' LIMIT 3;
SELECT id FROM regress_sec_owner.docs ORDER BY regress_sec_owner.tokens_of(body) <-> '{119,6}' LIMIT 3;
SELECT id FROM regress_sec_owner.docs WHERE regress_sec_owner.is_word(body) ORDER BY tokens <-> '{7}' LIMIT 3;
SELECT id FROM regress_sec_owner.notes ORDER BY regress_sec_owner.tags(body) <-> '{1}' LIMIT 3;
RESET enable_seqscan;
RESET enable_sort;

SET client_min_messages = warning;
DROP OWNED BY regress_sec_reader, regress_sec_owner CASCADE;
DROP SCHEMA regress_sec CASCADE;
DROP ROLE regress_sec_owner, regress_sec_reader;
