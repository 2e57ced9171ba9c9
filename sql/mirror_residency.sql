-- What is resident, and how it is evicted
CREATE SCHEMA residency;
SET search_path = residency, public;
CREATE TABLE docs (id int, tokens idset, more idset);
INSERT INTO docs SELECT i, ARRAY[i % 7, i % 11]::idset, ARRAY[i % 13]::idset FROM generate_series(1, 300) i;
SELECT gpuvec_prewarm('docs', 'tokens'), gpuvec_prewarm('docs', 'more');
CREATE TABLE indexed AS SELECT * FROM docs;
CREATE INDEX ON indexed USING gpuvec (tokens);
SELECT gpuvec_prewarm('indexed', 'tokens');
SELECT database = current_database() AS database, d.oid = database_oid AS database_oid, relation, relation_oid = relation::oid AS relation_oid,
	columns, index, kind, attnum, file = pg_relation_filenode(relation) AS file, private, state, rows
FROM gpuvec_mirrors m JOIN pg_database d ON d.datname = m.database WHERE relation IN ('docs'::regclass, 'indexed'::regclass) ORDER BY relation::text, attnum;
SELECT pid > 0 AS pid, restarts >= 0 AS restarts, trouble FROM gpuvec_engine;
-- one column, then the other; there is nothing more then
SELECT gpuvec_evict('docs', 'tokens'), gpuvec_evict('docs'), gpuvec_evict('docs'), gpuvec_evict(NULL), gpuvec_evict('indexed');
-- by number, of what does not exist
SELECT gpuvec_evict(0);
SELECT gpuvec_evict(0, 'tokens');
SELECT gpuvec_evict(4294967295, 'tokens');
SELECT gpuvec_evict(4294967295);
SELECT gpuvec_evict('docs'::regclass::oid);
CREATE ROLE regress_gpuvec_residency;
GRANT USAGE ON SCHEMA residency TO regress_gpuvec_residency;
SET ROLE regress_gpuvec_residency;
SELECT gpuvec_evict('docs');
SELECT gpuvec_evict(4294967295);
SELECT gpuvec_evict(0);
SELECT gpuvec_evict_all();
SELECT count(*) FROM gpuvec_mirrors;
RESET ROLE;
GRANT EXECUTE ON FUNCTION gpuvec_evict_all() TO regress_gpuvec_residency;
SELECT gpuvec_prewarm('docs', 'tokens');
SET ROLE regress_gpuvec_residency;
SELECT gpuvec_evict_all() > 0 AS evicted;
SELECT gpuvec_evict_all();
RESET ROLE;
SELECT count(*) FROM gpuvec_mirrors;
SELECT count(*) FROM gpuvec_costs WHERE resident;
-- it is only a copy
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}', 1000);
REVOKE ALL ON FUNCTION gpuvec_evict_all() FROM regress_gpuvec_residency;
DROP SCHEMA residency CASCADE;
DROP ROLE regress_gpuvec_residency;
