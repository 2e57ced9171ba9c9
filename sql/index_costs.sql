-- What loads and searches leave for the planner's costs of index scans
CREATE SCHEMA index_costs;
SET search_path = index_costs, public;
-- never analysed: the server's estimates come from the size alone
-- (an index that is built notes the number of rows, so the rows come later)
CREATE TABLE docs (id int, note int, tokens idset) WITH (autovacuum_enabled = off);
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
INSERT INTO docs SELECT i, i % 11, ARRAY[i % 97, i % 89 + 100, i % 7 + 300, 400 + i % 3, 500]::idset FROM generate_series(1, 20000) i;
CREATE TABLE partly (LIKE docs) WITH (autovacuum_enabled = off);
CREATE INDEX partly_tokens ON partly USING gpuvec (tokens) WHERE note * 7 % 11 < 6;
INSERT INTO partly SELECT * FROM docs;
CREATE TABLE nothing (LIKE docs) WITH (autovacuum_enabled = off);
CREATE INDEX nothing_tokens ON nothing USING gpuvec (tokens);

-- What is known of them (of ids those of dead rows are counted, until they are removed)
CREATE VIEW known AS
	SELECT relation, column_name AS column, index, resident, rows, round(ids::numeric / nullif(rows, 0), 1) AS mean_ids
	FROM gpuvec_costs c WHERE relation IN ('docs'::regclass, 'partly'::regclass, 'nothing'::regclass) ORDER BY relation;
CREATE FUNCTION nearest(which regclass) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT id FROM %s %s ORDER BY tokens <-> ''{1,101,301}'' LIMIT 10', which,
		CASE WHEN which = 'partly'::regclass THEN 'WHERE note * 7 % 11 < 6' END) $$;
-- A plan, and the index scan in it
CREATE FUNCTION plan(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan';
END $$;
CREATE FUNCTION scan(which regclass) RETURNS json LANGUAGE sql AS $$ SELECT plan(nearest(which)) -> 'Plans' -> 0 $$;
CREATE FUNCTION search(which regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	EXECUTE 'SELECT count(*) FROM (' || nearest(which) || ') x' INTO n;
	RETURN n || ' rows';
END $$;
-- A fiftieth of a scan of the table for all distances, for as many rows as the server estimates
CREATE FUNCTION fiftieth(which regclass) RETURNS float8 LANGUAGE sql AS $$
	SELECT (plan(format('SELECT tokens <-> ''{1}'' FROM %s', which)) ->> 'Total Cost')::float8 / 50 $$;
-- What costs come before the first row: what they are by the view (a trip, and ranking the rows that the mirror has, of
-- which there are more by as much as the table has more pages), or by constants, and a fiftieth of a scan if it has to be loaded?
CREATE FUNCTION explained(which regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	scan json := scan(which);
	cost float8 := scan ->> 'Startup Cost';
	pages int8 := pg_relation_size(which) / current_setting('block_size')::int;
	known gpuvec_costs;
	expected float8;
	constants float8 := (SELECT max(trip_operators) FROM gpuvec_costs) + 0.025 * (plan('SELECT FROM ' || which) ->> 'Plan Rows')::float8;
BEGIN
	SELECT * INTO known FROM gpuvec_costs c WHERE relation = which;
	expected := (CASE WHEN FOUND THEN known.trip_operators + known.rank_operators * known.rows / known.pages * pages
		ELSE constants END) * current_setting('cpu_operator_cost')::float8;
	RETURN (scan ->> 'Index Name') || CASE WHEN abs(cost - expected) < 0.006 THEN ' as known'
		WHEN abs(cost - expected - fiftieth(which)) < 0.01 THEN CASE WHEN known IS NULL THEN ' by constants, to be loaded' ELSE ' as known, to be loaded' END
		ELSE format(' %s instead of %s (+ %s)', cost, expected, fiftieth(which)) END;
END $$;

-- Facts may have been given up for want of room, if other tests have many mirrors.  Then nobody knows that a mirror was not used.
-- So fill the table anew, with the same rows, until its file is one of which it is known.
CREATE PROCEDURE fill_until_known() LANGUAGE plpgsql AS $$
BEGIN
	CREATE TEMP TABLE same_rows AS TABLE docs;
	FOR i IN 1 .. 100 LOOP
		EXIT WHEN explained('docs') LIKE '%to be loaded';
		COMMIT;
		TRUNCATE docs;
		INSERT INTO docs TABLE same_rows;
	END LOOP;
	DROP TABLE same_rows;
END $$;
-- nobody knows anything, but plans are made all the same, and nothing is loaded for them
SELECT reltuples <= 0 AS not_analysed FROM pg_class WHERE oid = 'docs'::regclass;
-- (but how long trips take, which does not depend on the table, is known from another one)
SET enable_seqscan = off;
SELECT search('nothing');
RESET enable_seqscan;
SELECT * FROM known;
CALL fill_until_known();
SELECT explained('docs');
SELECT scan('docs') ->> 'Startup Cost' AS cold \gset
-- a search leaves the rows that it found, which the server does not know; how long the first one took is not measured
SELECT search('docs');
SELECT * FROM known;
SELECT trips, rank_operators, gpu IS NOT NULL AS told FROM gpuvec_costs WHERE relation = 'docs'::regclass;
SELECT (plan('SELECT FROM docs') ->> 'Plan Rows')::int <> 20000 AS server_thinks_other;
SELECT explained('docs'), (scan('docs') ->> 'Startup Cost')::float8 < :cold - 1 AS cheaper;
-- so does one of a partial index, whose predicate the server can but guess
SELECT search('partly');
SELECT * FROM known;
SELECT explained('partly');
-- more rows: more by as much as there are more pages
SELECT scan('docs') ->> 'Startup Cost' AS before \gset
INSERT INTO docs SELECT * FROM docs;
SELECT explained('docs'), (scan('docs') ->> 'Startup Cost')::float8 > :before AS more;
-- the same, found out; the first search does not wait for the engine to say so
SELECT search('docs');
SELECT search('docs');
SELECT * FROM known WHERE relation = 'docs'::regclass;
SELECT explained('docs');

-- one search of eight is timed, and the averages are within bounds
SELECT trips AS before FROM gpuvec_costs WHERE relation = 'docs'::regclass \gset
SELECT count(search('docs')) FROM generate_series(1, 160);
SELECT trips - :before = 20 AS timed, trip_operators BETWEEN 2500 AND 20000 AND trip_operators <> 10000 AS trip,
	rank_operators BETWEEN 0.0025 / 32 AND 0.0025 * 4.1 AND rank_operators <> 0.0025 AS rank
FROM gpuvec_costs WHERE relation = 'docs'::regclass;
SELECT explained('docs');
-- others are not: they take as long as the rows that they find
SELECT trips AS before FROM gpuvec_costs WHERE relation = 'docs'::regclass \gset
SET enable_seqscan = off;
SELECT sum(n) FROM generate_series(1, 40), LATERAL (SELECT count(*) AS n FROM docs WHERE tokens && '{1,101}') x;
RESET enable_seqscan;
SELECT count(*) FROM generate_series(1, 40), gpuvec_topk('docs', 'tokens', '{1,101,301}', 2000);
SELECT trips - :before AS timed FROM gpuvec_costs WHERE relation = 'docs'::regclass;

-- what is not resident is dearer, by less than what would keep it from being loaded
SELECT gpuvec_evict('docs', 'tokens') AS evicted;
SELECT * FROM known;
SELECT explained('docs'), explained('partly');
SELECT gpuvec_prewarm('docs', 'tokens');
SELECT explained('docs');

-- another file is another mirror
TRUNCATE docs;
INSERT INTO docs SELECT 1, 2, '{3}' FROM generate_series(1, 20000);
CALL fill_until_known();
SELECT explained('docs');
SELECT relation FROM known;

-- an empty table has costs, too, when it is known and when it is not
SET enable_seqscan = off;
SELECT (scan('nothing') ->> 'Total Cost')::float8 < 1e6 AS finite;
TRUNCATE nothing;
SELECT (scan('nothing') ->> 'Total Cost')::float8 < 1e6 AS finite;
RESET enable_seqscan;

-- before the rows that a condition on the set finds, others are ranked in vain
ANALYZE docs;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT (p ->> 'Plan Rows')::int AS rows, p ->> 'Node Type' AS node, (p ->> 'Total Cost')::float8 - (p ->> 'Startup Cost')::float8 > 100 AS in_vain
	FROM plan('SELECT id FROM docs WHERE tokens && ''{7}'' ORDER BY tokens <-> ''{3}'' ') p;
RESET enable_bitmapscan;
RESET enable_seqscan;

-- one sees one's own tables
CREATE ROLE regress_gpuvec_costs;
SET ROLE regress_gpuvec_costs;
SELECT count(*) FROM gpuvec_costs;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA index_costs CASCADE;
DROP ROLE regress_gpuvec_costs;
