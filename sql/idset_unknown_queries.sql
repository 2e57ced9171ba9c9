-- Queries that planning does not know: parameters of generic plans, and columns of other tables
CREATE SCHEMA idset_unknown;
SET search_path = idset_unknown, public;
-- pseudo-random numbers in [0, 1) that are the same everywhere
CREATE FUNCTION uniform(seed text) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
	SELECT ('x' || substr(md5(seed), 1, 7))::bit(28)::int / 268435456.0::float8
$$;
-- sets of 6 to 20 ids up to 3,000; some of them are empty, some null
CREATE TABLE docs (id int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO docs SELECT i, CASE WHEN i % 50 = 0 THEN '{}' WHEN i % 50 = 1 THEN NULL ELSE
	(SELECT idset_agg((3000 * uniform(i || ' ' || j) ^ 2)::int) FROM generate_series(1, 6 + i % 15) j) END
FROM generate_series(1, 20000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM ANALYZE docs;
SELECT gpuvec_prewarm('docs', 'tokens') > 0 AS resident;

-- from the sixth execution on a plan is generic, if it looks no worse than the others
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		-- until 16 it says what an InitPlan returns; from 19 what it is
		RETURN NEXT regexp_replace(regexp_replace(line, ' \(returns .*\)', ''), 'InitPlan exists_', 'InitPlan ');
	END LOOP;
END $$;
PREPARE alike (idset) AS SELECT EXISTS (SELECT FROM docs WHERE tokens <<->> ($1, 0.8, 'jaccard'));
EXECUTE alike('{60000}');
DO $$ BEGIN FOR i IN 1..5 LOOP EXECUTE 'EXECUTE alike(''{60000}'')'; END LOOP; END $$;
-- 13 does not count them
SELECT coalesce((to_jsonb(s) ->> 'generic_plans')::int > 0, true) AS generic FROM pg_prepared_statements s WHERE name = 'alike';
SELECT plan('EXECUTE alike(''{60000}'')');
SET plan_cache_mode = force_generic_plan;
SELECT plan('EXECUTE alike(''{60000}'')');
PREPARE superset (idset) AS SELECT id FROM docs WHERE tokens @> $1 LIMIT 1;
SELECT plan('EXECUTE superset(''{60000}'')');
PREPARE reversed (idset) AS SELECT id FROM docs WHERE $1 <@ tokens LIMIT 1;
SELECT plan('EXECUTE reversed(''{60000}'')');
PREPARE called (idset, float8, text) AS SELECT id FROM docs WHERE tokens <<->> idset_threshold($1, $2, $3) LIMIT 1;
SELECT plan('EXECUTE called(''{60000}'', 0.8, ''jaccard'')');
PREPARE whole (idset_threshold) AS SELECT id FROM docs WHERE tokens <<->> $1 LIMIT 1;
SELECT plan('EXECUTE whole(ROW(''{60000}'', 0.8, ''jaccard''))');
-- drivers leave the types of parameters to the server
PREPARE untyped AS SELECT id FROM docs WHERE tokens <<->> ($1, $2, $3) LIMIT 1;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped';
SELECT plan('EXECUTE untyped(''{60000}'', 0.8, ''jaccard'')');
RESET plan_cache_mode;
-- in PL/pgSQL: no sequential scan in ten calls
CREATE FUNCTION is_known(query idset) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM docs WHERE tokens <<->> (query, 0.8, 'jaccard'));
END $$;
CREATE FUNCTION superset_of(query idset) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT id FROM docs WHERE tokens @> query LIMIT 1);
END $$;
BEGIN;
SELECT pg_stat_get_xact_numscans('docs'::regclass) AS sequential, pg_stat_get_xact_numscans('docs_tokens'::regclass) AS by_index \gset
SELECT count(*), count(*) FILTER (WHERE is_known('{60000}')) AS known, count(superset_of('{60000,60001}')) AS found FROM generate_series(1, 10) i;
SELECT pg_stat_get_xact_numscans('docs'::regclass) - :sequential AS sequential, pg_stat_get_xact_numscans('docs_tokens'::regclass) - :by_index AS by_index;
COMMIT;
-- what comes from another table
SELECT plan($$SELECT d.id FROM (SELECT tokens FROM docs WHERE id < 5) q JOIN docs d ON d.tokens <<->> (q.tokens, 0.8, 'jaccard')$$);

-- Estimates: the geometric mean of what the column's own sets find.  The planner never says less than one row.
CREATE FUNCTION estimated_rows(condition text, types text DEFAULT 'idset', arguments text DEFAULT '''{}''') RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	SET LOCAL plan_cache_mode = force_generic_plan;
	EXECUTE 'PREPARE estimate (' || types || ') AS SELECT FROM docs WHERE ' || condition;
	EXECUTE 'EXPLAIN (FORMAT JSON) EXECUTE estimate(' || arguments || ')' INTO plan;
	DEALLOCATE estimate;
	RETURN plan->0->'Plan'->>'Plan Rows';
END $$;
CREATE FUNCTION typical_rows(condition text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE result float8;
BEGIN
	EXECUTE 'SELECT exp(avg(ln(greatest(n, 1)))) FROM (SELECT (SELECT count(*) FROM docs WHERE ' || replace(condition, '$1', 'q.tokens') ||
		') AS n FROM (SELECT tokens FROM docs WHERE id % 401 = 0 AND tokens <> ''{}'') q) x' INTO result;
	RETURN result;
END $$;
CREATE FUNCTION near(condition text, factor float8 DEFAULT 2, OUT ok bool, OUT typical float8, OUT estimated float8) LANGUAGE plpgsql AS $$
BEGIN
	typical := typical_rows(condition);
	estimated := estimated_rows(condition);
	ok := typical <= factor * estimated AND estimated <= factor * typical;
	IF ok THEN
		typical := NULL;
		estimated := NULL;
	END IF;
END $$;
SELECT condition, (near(condition, 4)).*
FROM unnest(ARRAY['tokens && $1', '$1 && tokens', 'tokens @> $1', '$1 <@ tokens', 'tokens <@ $1', 'tokens <<->> ($1, 0.8, ''jaccard'')',
				  'tokens <<->> ($1, 2, ''intersection'')', 'tokens <<->> idset_threshold($1, 0.1, ''cosine'')', 'tokens <<->> ($1, -15, ''hamming'')',
				  'tokens <<->> ($1, 0, ''jaccard'')', 'tokens <<->> ($1, 1.5, NULL)']) condition;
-- what is known of a threshold counts
SELECT estimated_rows('tokens <<->> ($1, NULL, ''jaccard'')') AS null_score, estimated_rows('tokens <<->> (NULL, $1, ''jaccard'')', 'float8', '0') AS null_query;
SELECT estimated_rows('tokens <<->> (''{1,2,3,4}'', $1, ''jaccard'')', 'float8', '0') = estimated_rows('tokens <<->> (''{1,2,3,4}'', 1/3.0, ''jaccard'')', 'int', '1') AS half_of_the_ids,
	   estimated_rows('tokens <<->> (''{1,2,3,4}'', 0.2, $1)', 'text', '''cosine''') = estimated_rows('tokens <<->> (''{1,2,3,4}'', 0.2, ''braun_blanquet'')', 'int', '1') AS default_measure,
	   estimated_rows('tokens <<->> ($1, 0.1, ''jaccard'')') > estimated_rows('tokens <<->> ($1, 0.3, ''jaccard'')') AS score_counts;
SELECT estimated_rows('tokens <<->> ($1, 0.5, ''none'')') AS bad_measure, estimated_rows('tokens <<->> ($1, ''NaN'', NULL)') AS bad_score;
-- single ids: the more common ones are asked for more often
SELECT exp(sum(n * ln(n)) / sum(n)) BETWEEN 0.5 * min(e) AND 2 * min(e) AS ok
FROM (SELECT count(*) AS n FROM docs, unnest(tokens) u GROUP BY u) x, estimated_rows('tokens @> $1', 'int8', '5') e;
SELECT estimated_rows('$1 <@ tokens', 'int8', '5') = estimated_rows('tokens @> $1', 'int8', '5') AS same;
-- few ids are listed, others are as rare as those that are not
SET default_statistics_target = 10;
ANALYZE docs;
SELECT condition, (near(condition, 4)).* FROM unnest(ARRAY['tokens && $1', 'tokens @> $1', 'tokens <<->> ($1, 0.8, ''jaccard'')', 'tokens <<->> ($1, 2, ''intersection'')']) condition;
RESET default_statistics_target;

-- where nearly all queries find many rows, a sequential scan finds the first one soonest
CREATE TABLE dense (id int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO dense SELECT i, ARRAY[i % 3, 3 + i / 3 % 3, 6 + i / 9 % 3]::idset FROM generate_series(1, 20000) i;
CREATE INDEX dense_tokens ON dense USING gpuvec (tokens);
VACUUM ANALYZE dense;
SELECT gpuvec_prewarm('dense', 'tokens');
SET plan_cache_mode = force_generic_plan;
PREPARE dense_overlap (idset) AS SELECT EXISTS (SELECT FROM dense WHERE tokens && $1);
SELECT plan('EXECUTE dense_overlap(''{60000}'')');
PREPARE dense_alike (idset) AS SELECT EXISTS (SELECT FROM dense WHERE tokens <<->> ($1, 0.3, 'jaccard'));
SELECT plan('EXECUTE dense_alike(''{60000}'')');
-- no statistics, and no sets in them
CREATE TABLE hollow (tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO hollow SELECT CASE WHEN i % 4 > 0 THEN idset '{}' END FROM generate_series(1, 1000) i;
PREPARE hollow_overlap (idset) AS SELECT FROM hollow WHERE tokens && $1;
PREPARE hollow_alike (idset) AS SELECT FROM hollow WHERE tokens <<->> ($1, 0.3, 'jaccard');
PREPARE hollow_id (int8) AS SELECT FROM hollow WHERE tokens @> $1;
EXPLAIN (COSTS OFF) EXECUTE hollow_overlap('{1}');
ANALYZE hollow;
EXPLAIN (COSTS OFF) EXECUTE hollow_overlap('{1}');
EXPLAIN (COSTS OFF) EXECUTE hollow_alike('{1}');
EXPLAIN (COSTS OFF) EXECUTE hollow_id(1);
RESET plan_cache_mode;

-- Who may not read the column learns nothing of its values: neither its common sets nor
-- its histogram is looked at.  Ids that come together show it, for the model does not know that.
CREATE TABLE hidden (id int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO hidden SELECT i, CASE WHEN i % 2 = 0 THEN '{1,2,3,4,5,6,7,8}' ELSE '{9}' END::idset | (10000 + i) FROM generate_series(1, 3000) i;
INSERT INTO hidden SELECT i, '{40001,40002,40003,40004,40005,40006,40007}' FROM generate_series(1, 1000) i;
ANALYZE hidden;
CREATE FUNCTION hidden_rows(source text, arguments text DEFAULT NULL) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	IF arguments IS NULL THEN
		EXECUTE 'EXPLAIN (FORMAT JSON) SELECT FROM ' || source INTO plan;
	ELSE
		SET LOCAL plan_cache_mode = force_generic_plan;
		EXECUTE 'PREPARE estimate (idset) AS SELECT FROM ' || source;
		EXECUTE 'EXPLAIN (FORMAT JSON) EXECUTE estimate(' || arguments || ')' INTO plan;
		DEALLOCATE estimate;
	END IF;
	RETURN plan->0->'Plan'->>'Plan Rows';
END $$;
CREATE ROLE regress_idset_unknown;
GRANT USAGE ON SCHEMA idset_unknown TO regress_idset_unknown;
ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
CREATE POLICY none ON hidden USING (id >= 0);
GRANT SELECT ON hidden TO regress_idset_unknown;
SELECT hidden_rows('hidden WHERE tokens @> ''{1,2,3,4,5,6,7,8}''') > 1000 AS histogram, hidden_rows('hidden WHERE tokens @> ''{40001,40002,40003,40004,40005,40006,40007}''') > 500 AS common,
	   hidden_rows('hidden WHERE tokens @> $1', '''{}''') < 3 AS typical;
SET ROLE regress_idset_unknown;
SELECT hidden_rows('hidden WHERE tokens @> ''{1,2,3,4,5,6,7,8}''') > 1000 AS histogram, hidden_rows('hidden WHERE tokens @> ''{40001,40002,40003,40004,40005,40006,40007}''') > 500 AS common,
	   hidden_rows('hidden WHERE tokens @> $1', '''{}''') < 3 AS typical;
RESET ROLE;
-- statistics of two expressions of a table, which look alike (from version 14 on)
CREATE TABLE expressions (a int, b int) WITH (autovacuum_enabled = off);
INSERT INTO expressions SELECT (i % 10 = 0)::int, i % 2 FROM generate_series(1, 20000) i;
DO $$ BEGIN
	IF current_setting('server_version_num')::int >= 140000 THEN
		CREATE STATISTICS expressions_a ON (idset(ARRAY[a])) FROM expressions;
		CREATE STATISTICS expressions_b ON (idset(ARRAY[b])) FROM expressions;
	END IF;
END $$;
ANALYZE expressions;
SELECT current_setting('server_version_num')::int < 140000 OR
	hidden_rows('expressions WHERE idset(ARRAY[a]) && $1', '''{}''') < hidden_rows('expressions WHERE idset(ARRAY[b]) && $1', '''{}''') AS told_apart;
-- operators of other types that have these estimators
CREATE OPERATOR === (LEFTARG = int4, RIGHTARG = int4, FUNCTION = int4eq, RESTRICT = idset_overlapsel);
CREATE OPERATOR ==== (LEFTARG = int4, RIGHTARG = int4, FUNCTION = int4eq, RESTRICT = idset_containsel);
CREATE OPERATOR ===== (LEFTARG = int8, RIGHTARG = int8, FUNCTION = int8eq, RESTRICT = idset_containedsel);
CREATE OPERATOR ====== (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq, RESTRICT = idset_thresholdsel);
EXPLAIN (COSTS OFF) SELECT FROM hidden WHERE id === 42;
EXPLAIN (COSTS OFF) SELECT FROM hidden WHERE id ==== 42;
EXPLAIN (COSTS OFF) SELECT FROM hidden WHERE id::int8 ===== 42::int8;
EXPLAIN (COSTS OFF) SELECT FROM hidden WHERE id::text ====== '42';
SET client_min_messages = warning;
DROP SCHEMA idset_unknown CASCADE;
DROP ROLE regress_idset_unknown;
