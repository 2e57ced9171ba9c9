-- Estimates of @> with two and three ids, of short skewed sets, beside those of plain arrays
CREATE SCHEMA idset_pairs;
SET search_path = idset_pairs, public;
CREATE FUNCTION estimated_rows(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
SELECT setseed(0.5);
-- ids that are drawn one by one, and ids that come with their like: of one of 40 groups
CREATE TABLE docs AS SELECT kind, a AS numbers, a::idset AS tokens FROM (
	SELECT kind, ARRAY(SELECT DISTINCT (floor(500 * power(random(), 3)) + kind * (i % 40) * 500)::int FROM generate_series(1, 3 + i % 6) ORDER BY 1) AS a
	FROM generate_series(1, 20000) i, generate_series(0, 1) kind OFFSET 0) x;
CREATE TABLE alone AS SELECT * FROM docs WHERE kind = 0;
CREATE TABLE grouped AS SELECT * FROM docs WHERE kind = 1;
ANALYZE alone;
ANALYZE grouped;
CREATE FUNCTION ratios(relation text, n int) RETURNS TABLE (sets float8, arrays float8) LANGUAGE plpgsql AS $$
DECLARE
	ids int[];
	actual float8;
BEGIN
	-- ids that some row has together
	FOR ids IN EXECUTE format('SELECT numbers[1:%s] FROM %I WHERE cardinality(numbers) > %s ORDER BY md5(numbers::text) LIMIT 150', n, relation, n) LOOP
		EXECUTE format('SELECT count(*) FROM %I WHERE numbers @> %L', relation, ids) INTO actual;
		sets := estimated_rows(format('SELECT FROM %I WHERE tokens @> %L', relation, ids::idset)) / actual;
		arrays := estimated_rows(format('SELECT FROM %I WHERE numbers @> %L', relation, ids)) / actual;
		RETURN NEXT;
	END LOOP;
END $$;
CREATE VIEW medians AS SELECT relation, n, count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY sets) AS median, percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(ln(sets))) AS sets, percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(ln(arrays))) AS arrays
	FROM unnest('{alone,grouped}'::text[]) relation, unnest('{2,3}'::int[]) n, ratios(relation, n) GROUP BY relation, n;
SELECT relation, n, count, relation = 'grouped' OR median BETWEEN 0.4 AND 2.5 AS near, sets <= arrays * 1.5 + 0.2 AS as_good_as_arrays FROM medians ORDER BY relation, n;
SET client_min_messages = warning;
DROP SCHEMA idset_pairs CASCADE;
