-- Bad input and lacking privileges: a clear error each.
CREATE TABLE docs (id int, tokens idset, other int[]);
INSERT INTO docs VALUES (1, '{1,2}', '{1}');
CREATE FUNCTION fails(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE d text; h text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ': ' || SQLERRM || CASE WHEN d <> '' THEN E'\n  detail: ' || d ELSE '' END || CASE WHEN h <> '' THEN E'\n  hint: ' || h ELSE '' END;
END $$;
\pset format unaligned
\pset tuples_only on
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}', 0)$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}', -5)$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}', NULL)$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}', 10, 'euclid')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}', 10, 'cosine', 'NaN')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}', 10, NULL)$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'nope', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'other', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'ctid', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk('docs', NULL, '{1}')$$);
SELECT fails($$SELECT gpuvec_topk(NULL, 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk('nope', 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk(0, 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk(987654321, 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{x}')$$);
SELECT fails($$SELECT gpuvec_topk_batch('docs', 'tokens', ARRAY[ARRAY['{1}','{2}'],ARRAY['{1}','{2}']]::idset[])$$);
SELECT fails($$SELECT gpuvec_topk_rows(1, 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk_rows(NULL::pg_class, 'relname', '{1}')$$);
CREATE TYPE pair AS (a int, tokens idset);
SELECT fails($$SELECT gpuvec_topk_rows(NULL::pair, 'tokens', '{1}')$$);
CREATE VIEW docs_view AS SELECT * FROM docs;
SELECT fails($$SELECT gpuvec_topk('docs_view', 'tokens', '{1}')$$);
CREATE SEQUENCE docs_seq;
SELECT fails($$SELECT gpuvec_topk('docs_seq', 'tokens', '{1}')$$);
CREATE INDEX docs_idx ON docs (id);
SELECT fails($$SELECT gpuvec_topk('docs_idx', 'tokens', '{1}')$$);
CREATE FOREIGN DATA WRAPPER dummy;
CREATE SERVER dummy FOREIGN DATA WRAPPER dummy;
CREATE FOREIGN TABLE docs_foreign (tokens idset) SERVER dummy;
SELECT fails($$SELECT gpuvec_topk('docs_foreign', 'tokens', '{1}')$$);
CREATE TABLE docs_part (id int, tokens idset) PARTITION BY LIST (id);
CREATE FOREIGN TABLE docs_part1 PARTITION OF docs_part FOR VALUES IN (1) SERVER dummy;
SELECT fails($$SELECT gpuvec_topk('docs_part', 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_prewarm('docs', 'nope')$$);
SELECT fails($$SELECT gpuvec_prewarm('docs_view', 'tokens')$$);
SELECT fails($$SELECT gpuvec_evict('docs', 'nope')$$);
-- privileges
CREATE ROLE regress_gpuvec_reader;
CREATE ROLE regress_gpuvec_column;
GRANT SELECT ON docs_seq TO regress_gpuvec_reader;
SET ROLE regress_gpuvec_reader;
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_prewarm('docs', 'tokens')$$);
SELECT fails($$SELECT gpuvec_evict('docs', 'tokens')$$);
SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'docs'::regclass;
RESET ROLE;
GRANT SELECT (tokens) ON docs TO regress_gpuvec_column;
SET ROLE regress_gpuvec_column;
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_topk_rows(NULL::docs, 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_evict('docs', 'tokens')$$);
SELECT fails($$SET gpuvec.verify = off$$);
SELECT fails($$SET gpuvec.engine = 'cpu'$$);
RESET ROLE;
-- row-level security
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY docs_policy ON docs USING (id > 1);
SET ROLE regress_gpuvec_column;
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}')$$);
RESET ROLE;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}');
SET row_security = off;
SET ROLE regress_gpuvec_column;
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}')$$);
RESET ROLE;
RESET row_security;
-- the owner is bound too if the table says so
ALTER TABLE docs OWNER TO regress_gpuvec_column;
SET ROLE regress_gpuvec_column;
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}')$$);
ALTER TABLE docs FORCE ROW LEVEL SECURITY;
SELECT fails($$SELECT gpuvec_topk('docs', 'tokens', '{1}')$$);
SELECT fails($$SELECT gpuvec_evict('docs', 'tokens')$$);
RESET ROLE;
-- settings
ALTER SYSTEM SET gpuvec.devices = '0,x';
ALTER SYSTEM SET gpuvec.engine = 'abacus';
ALTER SYSTEM SET gpuvec.max_sessions = 0;
-- the prefix is reserved (since 15)
SELECT current_setting('server_version_num')::int < 150000 OR fails($$SET gpuvec.no_such_setting = 1$$) LIKE '42602: %';
\pset tuples_only off
DROP TABLE docs, docs_part CASCADE;
DROP SEQUENCE docs_seq;
DROP SERVER dummy CASCADE;
DROP FOREIGN DATA WRAPPER dummy;
DROP TYPE pair;
DROP ROLE regress_gpuvec_reader, regress_gpuvec_column;
DROP FUNCTION fails;
