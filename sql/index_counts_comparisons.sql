-- SELECT count(*) of comparisons of scores and distances: the search key that
-- is made of one says all of it, or the rows are looked at
CREATE SCHEMA index_counts_comparisons;
SET search_path = index_counts_comparisons, public;
SET client_min_messages = warning;
-- the least score of a distance, against fractions: at them, and beside them
CREATE TABLE fractions AS SELECT n, i FROM unnest(ARRAY[1, 2, 3, 7, 10, 49, 60, 1000, 65521, 65536, 131071, 131072]) n, LATERAL (SELECT DISTINCT (n * f)::int AS i FROM unnest(ARRAY[0, 0.1, 0.25, 0.3, 0.333333, 0.5, 0.6999, 0.7, 0.9, 0.99999, 1]) f) s;
CREATE TABLE limits AS SELECT DISTINCT c FROM (SELECT (n - i)::float8 / n + d AS c FROM fractions, unnest(ARRAY[0, 1e-16, -1e-16, 1e-14, -1e-14, 5e-13, -5e-13, 1e-9, -1e-9, 0.01]::float8[]) d) s;
INSERT INTO limits VALUES (-1), (1.5), (3), ('Infinity'), ('-Infinity'), (0.3), (0.7), (0.33333333333333), (0.33333333333334);
SELECT m, count(*) > 10000 AS many, count(*) FILTER (WHERE ((n - i)::float8 / n <= c) <> (i::float8 / n >= (idset_within('{}', c, m)).min_score)) AS wrong FROM fractions, limits, unnest('{jaccard,braun_blanquet}'::text[]) m GROUP BY m ORDER BY m;
SELECT m, (idset_within('{}', c, m)).min_score FROM unnest('{jaccard,hamming,intersection}'::text[]) m, unnest('{0.3,3,NaN}'::float8[]) c;
CREATE TABLE docs (id int NOT NULL, price int, tokens idset, tags text[], name text) WITH (autovacuum_enabled = off, fillfactor = 90);
INSERT INTO docs SELECT i, i % 100, t::idset, CASE WHEN i % 3 > 0 THEN t::text[] END, CASE WHEN i % 3 > 0 THEN array_to_string(t, ' ') END
	FROM (SELECT i, CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}' ELSE (ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])[1:1 + i % 10] || (ARRAY[100, 101, 102, 103 + i % 7])[1:i / 10 % 5] END AS t FROM generate_series(1, 70000) i) s;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, price);
CREATE INDEX docs_tags ON docs USING gpuvec (tags);
CREATE INDEX docs_name ON docs USING gpuvec (name gpuvec_trgm_ops);
CREATE TABLE parts (id int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (35000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (35000) TO (100000);
CREATE INDEX parts_tokens ON parts USING gpuvec (tokens);
INSERT INTO parts SELECT id, tokens FROM docs;
VACUUM ANALYZE docs;
VACUUM ANALYZE parts;
/* as in index_counts_boolean */
CREATE FUNCTION counted(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET enable_indexscan = off SET enable_bitmapscan = off AS $$
DECLARE
	line text;
	plan text = '';
	result text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		plan = plan || line || E'\n';
	END LOOP;
	EXECUTE query INTO result;
	RETURN coalesce(result, 'no row') || CASE WHEN plan !~ 'gpuvec count' THEN ' no node' WHEN plan ~ 'Scans Run' THEN ' by scan' ELSE ' by index' END;
END $$;
CREATE FUNCTION sequential(query text) RETURNS text LANGUAGE plpgsql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN coalesce(result, 'no row');
END $$;
CREATE FUNCTION compared(condition text, rel text DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text = format('SELECT count(*) FROM %s WHERE %s', rel, condition);
	node text = counted(query);
	seq text = sequential(query);
BEGIN
	RETURN CASE WHEN split_part(node, ' ', 1) = seq THEN node ELSE format('WRONG: %s, not %s', node, seq) END;
END $$;
CREATE FUNCTION plan_lines(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE query LOOP
		IF line NOT LIKE '% Disabled: true' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
-- by the index: a score or a distance as it is; limits at fractions and beside
-- them
SELECT c, compared(c) FROM unnest(ARRAY['tokens <%> ''{1,2,3,4}'' <= 0.5', 'tokens <%> ''{1,2,3,4}'' < 0.5', '0.5 >= tokens <%> ''{1,2,3,4}''', '0.5 > (''{1,2,3,4}'' <%> tokens)', 'tokens <%> ''{1,2,3}'' <= 0.3333333333333333', 'tokens <%> ''{1,2,3}'' <= 0.33333333333333', 'tokens <%> ''{1,2,3}'' < 0.33333333333334', 'tokens <-> ''{1,2,3,4}'' <= 0.3', 'tokens <-> ''{1,2,3,4,5,6,7}'' <= 0.3', 'tokens <-> ''{1,2,3,4,5,6,7}'' < 0.3',
	'tokens <#> ''{1,2,3,100}'' <= -3', 'tokens <#> ''{1,2,3,100}'' < -3', 'tokens <~> ''{1,2,3,100}'' <= 3', 'tokens <~> ''{1,2,3,100}'' < 3', 'hamming_distance(tokens, ''{1,2,3,100}'') < 3', 'intersection_count(tokens, ''{1,2,3,100}'') > 2', 'jaccard_similarity(tokens, ''{1,2,3}'') >= 0.6', 'jaccard_similarity(tokens, ''{1,2,3}'') > 0.6', 'jaccard_similarity(tokens, ''{1,2,3}'') > 0.6::real', 'cosine_similarity(tokens, ''{1,2,3}'') >= 0.7', 'containment_similarity(tokens, ''{1,2,3}'') > 0.5', 'containment_similarity(''{1,2,3}'', tokens) > 0.5', 'tversky_similarity(''{1,2,3}'', tokens, 0.3, 0.8) >= 0.75', 'overlap_similarity(tokens, ''{1,2,11}'') > 0.9', 'jaccard_similarity(tokens, ''{1,2,3}'') >= 0.6 AND price < 10', 'coalesce(jaccard_similarity(tokens, ''{1,2,3}''), 0) > 0.5', 'jaccard_similarity(tokens, ''{1,2,3}'') > 1', 'tokens <%> ''{1,2,3}'' < 0']) c;
SELECT c, compared(c) FROM unnest(ARRAY['tags <%> ''{1,2,3,4}'' <= 0.5', 'tags <%> ''{1,2,3,4}'' < 0.5', 'tags <~> ''{1,2}'' < 4', 'name <%~> ''1 2 3 4'' < 0.5', 'name <%~> ''1 2 3 4'' <= 0.33333333333333']) c;
SELECT c, compared(c, 'parts') FROM unnest(ARRAY['tokens <%> ''{1,2,3,4}'' < 0.5', 'jaccard_similarity(tokens, ''{1,2,3}'') > 0.6']) c;
SELECT counted('SELECT string_agg(format(''%s: %s'', price, n), '', '' ORDER BY price) FROM (SELECT price, count(*) AS n FROM docs WHERE tokens <%> ''{1,2,3,4}'' < 0.5 AND price BETWEEN 3 AND 5 GROUP BY price) s') AS "group";
EXPLAIN (COSTS OFF) SELECT count(*) FROM docs WHERE tokens <%> '{1,2,3}' < 0.33333333333334;
-- rows are looked at: distances that are rounded, equality, arithmetic, limits
-- that are not known
SELECT c, compared(c) FROM unnest(ARRAY['tokens <=> ''{1,2,3}'' <= 0.3', 'tokens <=> ''{1,2,3}'' <= 0.133974596215', 'tokens <%> ''{1,2,3}'' = 0', 'jaccard_similarity(tokens, ''{1,2,3}'') = 0.6', '1 - (tokens <%> ''{1,2,3}'') >= 0.6', 'jaccard_similarity(tokens, ''{1,2,3}'') > (SELECT 0.6)', 'tokens <%> ''{1,2,3}'' <= 0.5 OR price = 3', 'NOT tokens <%> ''{1,2,3}'' <= 0.5']) c;
-- what is said by two of them is not one bound
SELECT c, compared(c) FROM unnest(ARRAY['tokens <%> ''{1,2,3}'' <= 0.5 AND tokens <%> ''{1,2,100}'' < 0.9', 'tokens <%> ''{1,2,3}'' <= 0.5 AND tokens && ''{5}''']) c;
-- a limit as a parameter of a generic plan
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexscan = off;
PREPARE at_most (float8) AS SELECT count(*) FROM docs WHERE tokens <%> '{1,2,3}' <= $1;
PREPARE less (float8) AS SELECT count(*) FROM docs WHERE tokens <%> '{1,2,3}' < $1;
SELECT plan_lines('EXPLAIN (COSTS OFF) EXECUTE at_most (0.3333333333333333)');
EXECUTE at_most (0.3333333333333333);
EXECUTE at_most (0.33333333333333);
EXECUTE at_most ('NaN');
EXECUTE less (0.3333333333333333);
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexscan;
SELECT sequential('SELECT count(*) FROM docs WHERE tokens <%> ''{1,2,3}'' <= 0.3333333333333333') AS third, sequential('SELECT count(*) FROM docs WHERE tokens <%> ''{1,2,3}'' <= 0.33333333333333') AS below, sequential('SELECT count(*) FROM docs WHERE tokens <%> ''{1,2,3}'' <= ''NaN''') AS nan;
-- rows that the visibility map does not prove are looked at
BEGIN;
UPDATE docs SET tokens = '{1,2,3}' WHERE id % 1000 = 1;
DELETE FROM docs WHERE id % 1000 = 2;
SELECT compared('tokens <%> ''{1,2,3,4}'' < 0.5') AS changed, compared('jaccard_similarity(tokens, ''{1,2,3}'') > 0.6') AS similar;
ROLLBACK;
DROP SCHEMA index_counts_comparisons CASCADE;
