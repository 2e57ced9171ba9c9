-- Estimates of joins by && @> <@ and <<->>
CREATE SCHEMA idset_joins;
SET search_path = idset_joins, public;
-- small numbers are frequent; the same ones in all versions
CREATE FUNCTION skewed(i int) RETURNS int8 LANGUAGE sql AS 'SELECT floor(1000 * power((hashint4(i) & 1048575) / 1048576.0::float8, 3))::int8';
CREATE TABLE docs (id int, tokens idset);
INSERT INTO docs SELECT i, (SELECT idset_agg(skewed(100 * i + j)) FROM generate_series(1, 3 + i % 15) j) FROM generate_series(1, 2000) i;
CREATE TABLE queries (n int, tokens idset, one int8);
INSERT INTO queries SELECT i, CASE WHEN i % 5 > 0 THEN (SELECT idset_agg(skewed(500000 + 10 * i + j)) FROM generate_series(1, 1 + i % 4) j) END, skewed(600000 + i) FROM generate_series(1, 500) i;
CREATE TABLE rare (n int, tokens idset);
INSERT INTO rare SELECT i, ARRAY[2000 + i, 3000 + i]::idset FROM generate_series(1, 500) i;
INSERT INTO docs SELECT 5000 + i, ARRAY[2000 + i, 3000 + i, 17]::idset FROM generate_series(1, 100) i;
CREATE TABLE unknown AS SELECT * FROM queries;
ANALYZE docs, queries, rare;
-- The planner's number of rows of a join, beside the right one
CREATE FUNCTION estimate(query text, factor float8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
	planned float8;
	counted float8;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	planned := (plan->0->'Plan'->>'Plan Rows')::float8;
	EXECUTE 'SELECT count(*) FROM (' || query || ') x' INTO counted;
	RETURN CASE WHEN planned BETWEEN counted / factor AND greatest(counted, 1) * factor THEN 'near' ELSE format('planned %s, counted %s', planned, counted) END;
END $$;
SELECT estimate('SELECT FROM docs d JOIN queries q ON d.tokens && q.tokens', 2);
SELECT estimate('SELECT FROM docs d JOIN queries q ON q.tokens && d.tokens', 2);
SELECT estimate('SELECT FROM docs d JOIN queries q ON d.tokens @> q.tokens', 4);
SELECT estimate('SELECT FROM docs d JOIN queries q ON q.tokens <@ d.tokens', 4);
SELECT estimate('SELECT FROM docs d JOIN queries q ON d.tokens @> q.one', 4);
SELECT estimate('SELECT FROM docs d JOIN queries q ON q.one <@ d.tokens', 4);
SELECT estimate('SELECT FROM docs d JOIN queries q ON d.tokens <<->> (q.tokens, 0.3, ''jaccard'')', 4);
SELECT estimate('SELECT FROM docs d JOIN queries q ON d.tokens <<->> idset_threshold(q.tokens, 0.5, ''containment'')', 4);
SELECT estimate('SELECT FROM docs a JOIN docs b ON a.tokens && b.tokens', 2);
-- few pairs, semijoins and antijoins, a side without statistics
SELECT estimate('SELECT FROM docs d JOIN rare q ON d.tokens && q.tokens', 20);
SELECT estimate('SELECT FROM queries q JOIN rare r ON q.tokens && r.tokens', 500);
SELECT estimate('SELECT FROM docs d WHERE EXISTS (SELECT FROM queries q WHERE d.tokens && q.tokens)', 2);
SELECT estimate('SELECT FROM queries q WHERE NOT EXISTS (SELECT FROM docs d WHERE d.tokens && q.tokens)', 5);
SELECT estimate('SELECT FROM docs d JOIN (SELECT tokens FROM unknown OFFSET 0) q ON d.tokens && q.tokens', 10);
-- an operator of other types
CREATE OPERATOR === (LEFTARG = int4, RIGHTARG = int4, FUNCTION = int4eq, JOIN = idset_overlapjoinsel);
SELECT count(*) >= 0 FROM docs a JOIN docs b ON a.id OPERATOR(idset_joins.===) b.id;
SET client_min_messages = warning;
DROP SCHEMA idset_joins CASCADE;
