-- Statistics of idset columns, and the planner's estimates from them
CREATE FUNCTION estimated_rows(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan->0->'Plan'->>'Plan Rows';
END $$;
CREATE FUNCTION counted_rows(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE n float8;
BEGIN
	EXECUTE 'SELECT count(*) FROM (' || query || ') q' INTO n;
	RETURN n;
END $$;
-- is the estimate within the factor?  The planner never says less than one row.
CREATE FUNCTION near(query text, factor float8 DEFAULT 2, OUT ok bool, OUT counted float8, OUT estimated float8) LANGUAGE plpgsql AS $$
BEGIN
	counted := counted_rows(query);
	estimated := estimated_rows(query);
	ok := greatest(counted, 1) <= factor * estimated AND estimated <= factor * greatest(counted, 1);
	IF ok THEN
		counted := NULL;
		estimated := NULL;
	END IF;
END $$;
-- pseudo-random numbers in [0, 1) that are the same everywhere
CREATE FUNCTION uniform(seed text) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
	SELECT ('x' || substr(md5(seed), 1, 7))::bit(28)::int / 268435456.0::float8
$$;
-- ids from 0 (in most sets) to some thousand (rare ones), 0 to 30 a set; one null in ten
CREATE TABLE docs (id int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO docs
SELECT i, CASE WHEN i % 10 <> 7 THEN coalesce(
	(SELECT idset_agg((floor(exp(uniform(i || ' ' || j) * ln(4000))) - 1)::int) FROM generate_series(1, (i * 7 % 31)) j), '{}') END
FROM generate_series(1, 20000) i;

-- never analyzed: the defaults for arrays
SELECT condition, round((estimated_rows('SELECT FROM docs WHERE ' || condition) / estimated_rows('SELECT FROM docs'))::numeric, 3) AS selectivity
FROM unnest(ARRAY['tokens && ''{1,2}''', 'tokens @> ''{1,2}''', 'tokens <@ ''{1,2}''', 'tokens @> 5', 'tokens <<->> (''{1,2}'', 0.5, NULL)',
				  'tokens && NULL', 'tokens @> 4294967296']) condition;

SET default_statistics_target = 1000;
ANALYZE docs;
-- what pg_stats shows is what the table has
SELECT null_frac, array_length(most_common_elems::text::int[], 1) AS ids, array_length(most_common_elem_freqs, 1) AS numbers,
	   most_common_elem_freqs[array_length(most_common_elem_freqs, 1)] AS nulls,
	   array_length(elem_count_histogram, 1) AS lengths, elem_count_histogram[1] AS shortest, elem_count_histogram[1000] AS longest
FROM pg_stats WHERE tablename = 'docs' AND attname = 'tokens';
SELECT count(*) AS ids,
	   count(*) FILTER (WHERE abs(freq - n / (SELECT count(tokens) FROM docs)::float8) > 1e-6) AS differences
FROM (SELECT u.id, u.freq FROM pg_stats s, ROWS FROM (unnest(most_common_elems::text::int[]), unnest(most_common_elem_freqs)) u(id, freq)
	  WHERE s.tablename = 'docs' AND s.attname = 'tokens' AND u.id IS NOT NULL) s
FULL JOIN (SELECT e AS id, count(*) AS n FROM docs d, unnest(d.tokens) e GROUP BY e) d USING (id);
SELECT abs(elem_count_histogram[1001] - (SELECT avg(cardinality(tokens)) FROM docs)) < 0.001 AS mean,
	   (SELECT count(*) FROM docs, unnest(elem_count_histogram[1:1000]) h WHERE cardinality(tokens) <= h) BETWEEN 0.48 * 1000 * (SELECT count(tokens) FROM docs)
	   AND 0.56 * 1000 * (SELECT count(tokens) FROM docs) AS ranks
FROM pg_stats WHERE tablename = 'docs' AND attname = 'tokens';

-- single ids: common, rare, absent, impossible
SELECT count(*) AS ids, count(DISTINCT n) AS frequencies FROM (SELECT count(*) AS n FROM docs d, unnest(d.tokens) e GROUP BY e) x;
SELECT condition, (near('SELECT FROM docs WHERE ' || condition, 1.1)).*
FROM unnest(ARRAY[0, 1, 2, 10, 100, 1000, 2000, 3000, 3998, 4001, 50000, 65535]) id,
	 unnest(ARRAY[format('tokens && ''{%s}''', id), format('tokens @> ''{%s}''', id), format('tokens @> %s', id), format('%s <@ tokens', id),
				  format('''{%s}'' && tokens', id), format('''{%s}'' <@ tokens', id)]) condition
WHERE NOT (near('SELECT FROM docs WHERE ' || condition, 1.1)).ok;
SELECT (near('SELECT FROM docs WHERE tokens @> 65536')).ok, (near('SELECT FROM docs WHERE tokens @> (-1)')).ok;
-- several ids
SELECT condition, (near('SELECT FROM docs WHERE ' || condition)).*
FROM unnest(ARRAY['tokens && ''{0,1,2,3}''', 'tokens && ''{10,20,30}''', 'tokens && ''{1000,2000,3000}''', 'tokens && ''{50000,60000}''',
				  'tokens && ''{}''', 'tokens && ''{0,50000}''',
				  'tokens @> ''{0,1}''', 'tokens @> ''{0,1,2,3}''', 'tokens @> ''{5,10,20}''', 'tokens @> ''{0,3000}''', 'tokens @> ''{0,50000}''',
				  'tokens @> ''{}''', 'tokens @> ''{1000,2000,3000,3500}''',
				  'tokens <@ ''{}''', 'tokens <@ ''{0}''', 'tokens <@ ''{0,1,2,3,4,5,6,7,8,9,10}''', 'tokens <@ ''{50000}''',
				  'tokens = ''{}''', 'tokens = ''{0}''', 'tokens = ''{50000}''',
				  'tokens = ''{0,1,2,3,4,5,6,7,8,9}''', 'tokens IS NULL', 'NOT tokens @> 0']) condition;
-- thresholds: all measures, as a constant, a row, and by the constructor
SELECT measure, bound, (near(format('SELECT FROM docs WHERE tokens <<->> idset_threshold(%L, %s, %L)', q, bound, measure))).*
FROM (VALUES ('braun_blanquet', 0.3), ('jaccard', 0.2), ('cosine', 0.4), ('dice', 0.35), ('overlap', 0.8), ('containment', 0.6), ('intersection', 3), ('hamming', -12),
			 ('jaccard', 0), ('jaccard', -1), ('jaccard', 1.5), ('intersection', 1), ('hamming', -100), ('hamming', -3)) v(measure, bound),
	 unnest(ARRAY['{0,1,2,3,4,5,6,7}', '{0,1,10,100,1000}', '{0}', '{50000}', '{}']::idset[]) q
WHERE NOT (near(format('SELECT FROM docs WHERE tokens <<->> idset_threshold(%L, %s, %L)', q, bound, measure))).ok;
SELECT condition, estimated_rows('SELECT FROM docs WHERE ' || condition) =
	   estimated_rows('SELECT FROM docs WHERE tokens <<->> idset_threshold(''{0,1,2,3}'', 0.3, ''jaccard'')') AS as_constructor
FROM unnest(ARRAY['tokens <<->> (''{0,1,2,3}'', 0.3, ''jaccard'')', 'tokens <<->> ''("{0,1,2,3}",0.3,jaccard)''',
				  'tokens <<->> (''{0,1,2,3}'', 0.1 + 0.2, ''jaccard'')']) condition;
-- more ids than are modeled one by one, each in half of the sets
CREATE TABLE halves (tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO halves SELECT idset(string_agg(('x' || md5(i || ' ' || j))::bit(128)::text, '' ORDER BY j)::varbit) FROM generate_series(1, 1000) i, generate_series(1, 8) j GROUP BY i;
ANALYZE halves;
SELECT least, (near(format('SELECT FROM halves WHERE tokens <<->> idset_threshold(%L, %s, ''intersection'')', (SELECT idset_agg(id) FROM generate_series(0, 149) id), least))).*
FROM unnest(ARRAY[63, 75, 84, 87]) least;
-- ids that come together: the histogram of sets corrects the model, which thinks that they do so by chance
CREATE TABLE together (id int, tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO together SELECT i, CASE WHEN i % 2 = 0 THEN idset '{1,2,3,4,5,6,7,8}' ELSE '{9}' END | (10000 + i) FROM generate_series(1, 3000) i;
ANALYZE together;
SELECT condition, (near('SELECT FROM together WHERE ' || condition)).*
FROM unnest(ARRAY['tokens @> ''{1,2,3,4,5,6,7,8}''', 'tokens && ''{1,2,3,4,5,6,7,8}''', 'tokens <<->> (''{1,2,3,4,5,6,7,8,9}'', 0.8, ''jaccard'')',
				  'tokens && ''{1,9}''']) condition;
-- a sample, and few ids listed: the others are rarer than the rarest of these
SET default_statistics_target = 10;
ANALYZE docs;
SELECT array_length(most_common_elems::text::int[], 1) AS ids, array_length(elem_count_histogram, 1) AS lengths
FROM pg_stats WHERE tablename = 'docs' AND attname = 'tokens';
SELECT condition, (near('SELECT FROM docs WHERE ' || condition, 1.5)).*
FROM unnest(ARRAY['tokens && ''{0}''', 'tokens @> ''{1}''', 'tokens && ''{0,1,2,3}''', 'tokens @> ''{0,1}''']) condition;
SELECT id, estimated_rows(format('SELECT FROM docs WHERE tokens @> %s', id)) < 0.5 * (SELECT min(count) FROM
	(SELECT count(*) FROM docs, unnest(tokens) e WHERE e < 30 GROUP BY e) x) AS rarer
FROM unnest(ARRAY[3000, 4001, 65535]) id;
-- no sets, or only null and empty ones
CREATE TABLE hollow (tokens idset) WITH (autovacuum_enabled = off);
ANALYZE hollow;
INSERT INTO hollow SELECT CASE WHEN i % 4 > 0 THEN idset '{}' END FROM generate_series(1, 400) i;
SELECT estimated_rows('SELECT FROM hollow WHERE tokens && ''{1}''') >= 1 AS without;
ANALYZE hollow;
SELECT condition, (near('SELECT FROM hollow WHERE ' || condition)).*
FROM unnest(ARRAY['tokens @> ''{}''', 'tokens <@ ''{1}''', 'tokens && ''{1}''', 'tokens @> ''{1}''', 'tokens <<->> (''{1}'', 0, NULL)', 'tokens <<->> (''{1}'', 0.1, NULL)']) condition;
-- short sets, few of which the statistics have: those that a query has by
-- chance
CREATE TABLE few (tokens idset) WITH (autovacuum_enabled = off);
INSERT INTO few SELECT (SELECT idset_agg((40 * uniform(i || ' ' || j))::int) FROM generate_series(1, 1 + i % 3) j) FROM generate_series(1, 20000) i;
ANALYZE few;
SELECT condition, (near(format('SELECT FROM few WHERE tokens ' || condition, (SELECT idset_agg(i) FROM generate_series(0, n) i)))).*
FROM (VALUES ('<@ %L', 29), ('<@ %L', 19), ('<@ %L', 9), ('&& %L', 9), ('<<->> (%L, 2, ''intersection'')', 9)) v(condition, n);
DROP TABLE docs, halves, together, hollow, few;
DROP FUNCTION near, estimated_rows, counted_rows, uniform;
