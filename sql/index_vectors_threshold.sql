-- Thresholds of vectors: v <<->> (query, min_score, measure) by scans of the
-- table and by bitmap scans, against the functions of similarities.
CREATE SCHEMA index_vectors_threshold;
SET search_path = index_vectors_threshold, public;
SELECT '{1:2,3:4}'::idvec <<->> ('{3:1}', 4, 'inner_product') AS reached, '{1:2,3:4}'::idvec <<->> ('{3:1}', 4.000000000000001, NULL) AS not_reached,
	'{1:2}'::idvec <<->> ('{1:5}', 1, 'COSINE') AS cosine, '{1:2}'::idvec <<->> idvec_threshold('{1:4}', 0.5, 'tanimoto') AS jaccard,
	'{1:2}'::idvec <<->> idvec_threshold('{1:4}', 8) AS default_measure, idvec_threshold('{1:4}', 8),
	'{}'::idvec <<->> ('{}', 0, 'cosine') AS empty, '{1:1}'::idvec <<->> (NULL, 0, 'cosine') AS no_query, '{1:1}'::idvec <<->> ('{1:1}', NULL, 'cosine') AS no_score,
	NULL::idvec <<->> ('{1:1}', 0, 'cosine') AS no_vector, '{1:1}'::idvec <<->> ('{1:1}', 'Infinity', 'cosine') AS infinite, '{1:1}'::idvec <<->> ('{1:1}', '-Infinity', 'cosine') AS any_score;
SELECT '{1:1}'::idvec <<->> ('{1:1}', 'NaN', 'cosine');
SELECT '{1:1}'::idvec <<->> ('{1:1}', 0, 'braun_blanquet');
SELECT '{1:1}'::idvec <<->> ('{1:-1}', 0, 'jaccard');
SELECT '{1:-1}'::idvec <<->> ('{1:1}', 0, 'jaccard');

CREATE FUNCTION chance(i int8, j int8, below int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS $$SELECT (hashint8extended(i * 1000 + j, 20261130) & 9007199254740991) % below$$;
-- every third row has values of both signs; c has none that is negative
CREATE TABLE docs (id int PRIMARY KEY, v idvec, c idvec, tenant int, others idset);
INSERT INTO docs SELECT r, CASE WHEN r % 41 = 0 THEN NULL WHEN r % 37 = 0 THEN '{}' ELSE
		(SELECT idvec_agg(CASE WHEN k % 5 = 4 THEN k * 100000007::int8 ELSE k END, (1 + chance(r, k + 500, 2000)) / 128.0 * CASE WHEN chance(r, k + 700, 3) = 0 THEN -1 ELSE 1 END)
		FROM generate_series(0, 29) k WHERE chance(r, k, 100) < 60 / (1 + k / 6)) END, NULL, r % 20, ARRAY[r % 7, r % 11]::idset
	FROM generate_series(1, 1000) r;
UPDATE docs SET c = CASE WHEN v IS NOT NULL THEN coalesce((SELECT idvec_agg(id, abs(value)) FROM idvec_each(v)), '{}') END;
CREATE INDEX docs_v ON docs USING gpuvec (v, tenant, others);
CREATE INDEX docs_c ON docs USING gpuvec (c) WHERE id > 0;
VACUUM (FULL, ANALYZE) docs;
CREATE TABLE queries (q int PRIMARY KEY, v idvec);
INSERT INTO queries VALUES (1, '{0:2,1:1,7:0.5,900000063:3}'), (2, '{0:1,1:-2,5:0.5,6:-1.5,1900000133:4}'), (3, '{2:-1,3:-2}'), (4, '{}'), (5, '{29:1}'), (6, '{77777:1}'), (7, NULL);
INSERT INTO queries SELECT id + 10, v FROM docs WHERE id IN (5, 74);
CREATE TABLE measures (measure text, col text, function text);
INSERT INTO measures VALUES ('inner_product', 'v', 'idvec_inner_product'), ('cosine', 'v', 'idvec_cosine_similarity'), ('cosine', 'c', 'idvec_cosine_similarity'), ('jaccard', 'c', 'idvec_jaccard_similarity'), (NULL, 'c', 'idvec_inner_product');
-- what a condition finds by a bitmap scan, and what it finds by a scan
CREATE FUNCTION found(condition text, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	ids text;
BEGIN
	PERFORM set_config('enable_seqscan', CASE WHEN by_index THEN 'off' ELSE 'on' END, true), set_config('enable_indexscan', 'off', true);
	PERFORM set_config('enable_bitmapscan', CASE WHEN by_index THEN 'on' ELSE 'off' END, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM docs WHERE ' || condition INTO plan;
	IF (plan LIKE '%Bitmap%') <> by_index THEN RETURN 'another plan: ' || plan; END IF;
	EXECUTE 'SELECT string_agg(id::text, '','' ORDER BY id) FROM docs WHERE ' || condition INTO ids;
	RETURN coalesce(ids, 'none');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
-- scores to ask for: those of rows, what is next to them, and others
CREATE FUNCTION scores(function text, col text, query idvec) RETURNS SETOF float8 LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT unnest(ARRAY[s, s * (1 + 2.3e-16), s * (1 - 2.3e-16)]) FROM (SELECT DISTINCT %s(%s, $1) AS s FROM docs WHERE id %% 97 = 3) x WHERE s IS NOT NULL', function, col) USING query;
	RETURN QUERY SELECT unnest('{-1e300,-0.5,-1e-300,0,1e-300,1e-17,0.2,1,5,1e300}'::float8[]);
END $$;
SET extra_float_digits = 1;
CREATE TABLE cases AS SELECT measure, col, function, q, v, s FROM measures, queries, scores(function, col, CASE WHEN measure = 'jaccard' THEN (SELECT coalesce(idvec_agg(id, abs(value)), '{}') FROM idvec_each(v)) ELSE v END) s;
UPDATE cases SET v = coalesce((SELECT idvec_agg(id, abs(value)) FROM idvec_each(v)), '{}') WHERE measure = 'jaccard' AND v IS NOT NULL;
CREATE TABLE answers AS SELECT measure, col, q, s,
	found(format('%s <<->> (%L::idvec, %L::float8, %L)', col, v, s, measure) || CASE WHEN col = 'c' THEN ' AND id > 0' ELSE '' END, true) AS by_index,
	found(format('%s(%s, %L::idvec) >= %L::float8', function, col, v, s), false) AS by_scan,
	found(format('%s <<->> (%L::idvec, %L::float8, %L)', col, v, s, measure), false) AS by_operator FROM cases;
SELECT measure, col, count(*) > 100 AS many, count(*) FILTER (WHERE by_index <> by_scan OR by_operator <> by_scan) AS different, count(DISTINCT by_scan) > 20 AS many_answers, min(by_index) FILTER (WHERE by_index !~ '^[0-9,]+$') AS least FROM answers GROUP BY 1, 2 ORDER BY 1, 2;
SELECT * FROM answers WHERE by_index <> by_scan OR by_operator <> by_scan ORDER BY measure, col, q, s LIMIT 3;
-- with conditions on other columns, several values, and what is negated
SELECT condition, left(found(condition, true), 60) AS by_index, found(condition, true) = found(condition, false) AS same FROM (VALUES
	($$v <<->> ('{0:2,1:1}', 0.1, 'cosine') AND tenant = 3$$), ($$v <<->> ('{0:2,1:1}', -5, NULL) AND tenant IN (3, 4) AND others @> 5$$),
	($$v <<->> ANY (ARRAY[('{0:2,1:1}', 0.8, 'cosine')::idvec_threshold, ('{5:1}', 3, 'inner_product')::idvec_threshold, NULL, ('{7:1}', 0.5, 'cosine')::idvec_threshold])$$),
	($$v <<->> ANY ('{}'::idvec_threshold[])$$), ($$v <<->> ('{0:2}', 6, NULL) AND v <<->> ('{1:2}', 6, NULL)$$),
	($$v <<->> ('{0:2}', 25, NULL) OR v <<->> ('{1:2}', 25, NULL)$$)) c (condition);
-- an order beside a threshold
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE v <<->> ('{0:2,1:1}', 0.5, 'cosine') ORDER BY v <#> '{5:1}' LIMIT 3;
SELECT id FROM docs WHERE v <<->> ('{0:2,1:1}', 0.5, 'cosine') ORDER BY v <#> '{5:1}' LIMIT 3;
RESET enable_seqscan;
RESET enable_sort;
RESET enable_bitmapscan;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT array_agg(id ORDER BY n) FROM (SELECT id, row_number() OVER (ORDER BY v <#> '{5:1}', ctid) n FROM docs WHERE idvec_cosine_similarity(v, '{0:2,1:1}') >= 0.5) x WHERE n <= 3;
RESET enable_indexscan;
RESET enable_bitmapscan;
-- what Jaccard's similarity refuses: the row fails, as in a scan, if it is
-- there; a query always, if there are rows
INSERT INTO docs VALUES (1001, '{1:1}', '{0:1,1:-1}', 1, '{}');
SELECT found($$c <<->> ('{0:2,1:1}', 0.9, 'jaccard') AND id > 0$$, by_index) FROM (VALUES (true), (false)) v (by_index);
DELETE FROM docs WHERE id = 1001;
SELECT left(found($$c <<->> ('{0:2,1:1}', 0.5, 'jaccard') AND id > 0$$, by_index), 40), left(found($$c <<->> ('{0:-2}', 0.9, 'jaccard') AND id > 0$$, by_index), 40) FROM (VALUES (true), (false)) v (by_index);
-- below a policy, what cannot fail is searched for by the index; not what a
-- row that the policy hides makes fail
CREATE FUNCTION uses(condition text, index_name text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM docs WHERE ' || condition INTO plan;
	RETURN plan LIKE '%' || index_name || '%';
END $$;
CREATE ROLE regress_gpuvec_thresholds;
GRANT USAGE ON SCHEMA index_vectors_threshold TO regress_gpuvec_thresholds;
GRANT SELECT ON docs TO regress_gpuvec_thresholds;
INSERT INTO docs VALUES (1002, '{0:1,1:-1}', '{0:1,1:-1}', 99, '{}');
CREATE POLICY hidden ON docs USING (tenant < 20);
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
SET ROLE regress_gpuvec_thresholds;
SET enable_seqscan = off;
SELECT measure, uses(format('c <<->> (''{0:2,1:1}'', 0.9, %L) AND id > 0', measure), 'docs_c') AS by_index FROM unnest('{cosine,inner_product,jaccard}'::text[]) measure;
-- a measure that is not there makes rows fail, but no plan
SELECT uses($$c <<->> ('{0:2,1:1}', 0.9, 'braun_blanquet') AND id > 0$$, 'docs_c') AS by_index;
SELECT count(*) FROM docs WHERE c <<->> ('{0:2,1:1}', 0.9, 'jaccard') AND id > 0;
RESET enable_seqscan;
RESET ROLE;
ALTER TABLE docs DISABLE ROW LEVEL SECURITY;
DROP POLICY hidden ON docs;
DELETE FROM docs WHERE id = 1002;
-- bad thresholds
SELECT found($$v <<->> ('{0:2}', 'NaN', 'cosine')$$, true), found($$v <<->> ('{0:2}', 0, 'dice')$$, true);
SELECT count(*) FROM docs WHERE v <<->> ANY (ARRAY[('{0:2}', '-Infinity', NULL)::idvec_threshold, ('{0:2}', 0, 'dice')::idvec_threshold]);
SET client_min_messages = warning;
DROP SCHEMA index_vectors_threshold CASCADE;
DROP ROLE regress_gpuvec_thresholds;
