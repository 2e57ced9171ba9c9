-- CREATE INDEX ... USING gpuvec: conditions that are written in other ways than with && @> <@ <<->> of two sets
CREATE SCHEMA index_spellings;
SET search_path = index_spellings, public;
SET enable_indexonlyscan = off;
CREATE TABLE docs (id int, owner name DEFAULT 'postgres', tokens idset);
INSERT INTO docs (id, tokens)
SELECT i, CASE WHEN i % 3 = 0 THEN ARRAY[i % 13, i % 11 + 20] ELSE ARRAY[i % 97, i % 89 + 100, i % 7 + 300, i % 5 + 400] END::idset
FROM generate_series(1, 1500) i;
INSERT INTO docs (id, tokens) SELECT 10000 + i, '{}' FROM generate_series(1, 5) i;
INSERT INTO docs (id, tokens) SELECT 20000 + i, NULL FROM generate_series(1, 5) i;
INSERT INTO docs (id, tokens) SELECT 30000 + i, '{0,65535,4294967295}' FROM generate_series(1, 5) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
CREATE INDEX docs_id ON docs (id);
VACUUM ANALYZE docs;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'idset_ops';

-- the planner takes the index by itself
CREATE FUNCTION uses(query text, planned text DEFAULT '%docs_tokens%') RETURNS bool LANGUAGE plpgsql AS $$
DECLARE plan text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	RETURN plan LIKE planned AND plan NOT LIKE '%"Seq Scan"%';
END $$;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens @> 17;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE 17 <@ tokens;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE jaccard_similarity(tokens, '{5,105}') >= 0.5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE 0.5 < containment_similarity(tokens, '{5,105,305}');
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tversky_similarity('{5,105,305}', tokens, 0.1, 0.7) > 0.5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE hamming_distance(tokens, '{5,105}') <= 2;
SET enable_sort = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE intersection_count('{5,105,305}', tokens) > 2 ORDER BY tokens <-> '{5,105}' LIMIT 3;
RESET enable_sort;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tversky_similarity('{5,105,305}', tokens, 0.1, 0.7) > 0.5 OR tokens @> 17 AND intersection_count(tokens, '{5,17}') >= 2;
EXPLAIN (COSTS OFF) SELECT a.id, b.id FROM docs a JOIN docs b ON jaccard_similarity(a.tokens, b.tokens) >= 0.9 WHERE a.id IN (5, 6);
-- not where it cannot help: more rows for a worse score, a negation, both sides of one row, an unknown weight
SELECT condition, uses('SELECT id FROM docs WHERE id > 0 AND ' || condition) FROM unnest(ARRAY['jaccard_similarity(tokens, ''{5}'') <= 0.5', 'tokens <-> ''{5}'' >= 0.5', 'NOT jaccard_similarity(tokens, ''{5}'') >= 0.5',
	'jaccard_similarity(tokens, tokens) >= 0.5', 'jaccard_similarity(tokens, ''{5}'') >= random()', 'tversky_similarity(''{5}'', tokens, 1, id) >= 0.5', 'jaccard_similarity(tokens, ''{5}'') >= id']) condition;

-- rows by sequential scans, and by index and bitmap scans
CREATE FUNCTION found(condition text, parts text, planned text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT count(*) || '' '' || coalesce(string_agg(ctid::text, '' '' ORDER BY ctid), '''') FROM docs WHERE ' || condition;
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', (parts = 'seq')::text, true), set_config('enable_bitmapscan', (parts = 'bitmap')::text, true),
			set_config('enable_indexscan', (parts = 'index')::text, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF plan NOT LIKE planned THEN RAISE 'not by %: %', parts, plan; END IF;
	EXECUTE query INTO result;
	RETURN result;
END $$;
CREATE FUNCTION same(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_scan text := found(condition, 'seq', '%"Seq Scan"%');
	by_bitmap text := found(condition, 'bitmap', '%Bitmap Index Scan%docs_tokens"%');
	by_index text := found(condition, 'index', '%"Index Scan"%docs_tokens"%');
BEGIN
	RETURN CASE WHEN by_scan = by_bitmap AND by_scan = by_index THEN 'same: ' || split_part(by_scan, ' ', 1)
		ELSE format('scan %s, bitmap %s, index %s', left(by_scan, 200), left(by_bitmap, 200), left(by_index, 200)) END;
END $$;
-- single ids, also such that no set can have
SELECT id, same(format('tokens @> %s', id)), same(format('%s::int8 <@ tokens', id)) = same(format('tokens @> %s', id)) AS commuted
FROM unnest('{5,0,65535,70000,4294967295,4294967296,-1,9223372036854775807}'::int8[]) id;
-- all measures, both ways, with each score that occurs, those next to them, and such that are none
CREATE TABLE calls AS SELECT * FROM (VALUES
	('braun_blanquet_similarity(%s, %s)', '>= > ='), ('jaccard_similarity(%s, %s)', '>= > ='), ('cosine_similarity(%s, %s)', '>= > ='), ('dice_similarity(%s, %s)', '>= > ='),
	('overlap_similarity(%s, %s)', '>= > ='), ('containment_similarity(%s, %s)', '>= > ='), ('kulczynski_similarity(%s, %s)', '>= > ='), ('tversky_similarity(%s, %s, 0.3, 1.7)', '>= > ='),
	('tversky_similarity(%s, %s, 0.333333333333333333, 1e-7)', '>= > ='),
	('intersection_count(%s, %s)', '>= > ='), ('hamming_distance(%s, %s)', '<= < ='), ('(%s <-> %s)', '<= < ='), ('(%s <%%> %s)', '<= < ='), ('(%s <=> %s)', '<= < ='),
	('(%s <#> %s)', '<= < ='), ('(%s <~> %s)', '<= < =')) v(call, operators);
CREATE FUNCTION limits(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE type text;
BEGIN
	EXECUTE 'SELECT pg_typeof(' || call || ') FROM docs LIMIT 1' INTO type;
	RETURN QUERY EXECUTE 'SELECT score::text FROM (SELECT DISTINCT ' || call || ' AS score FROM docs WHERE tokens IS NOT NULL ORDER BY 1 LIMIT 7) x';
	RETURN QUERY SELECT unnest('{-1000000,-4,-1,0,1,2,1000000}'::text[]);
	IF type = 'double precision' THEN
		RETURN QUERY EXECUTE 'SELECT (score * x)::text FROM (SELECT DISTINCT ' || call || ' AS score FROM docs WHERE tokens IS NOT NULL ORDER BY 1 LIMIT 4) y, unnest(ARRAY[1 - 2.0 ^ -52, 1 + 2.0 ^ -52]::float8[]) x';
		RETURN QUERY SELECT unnest('{-Infinity,-0,4.9e-324,0.3333333333333333,Infinity,NaN}'::text[]);
	END IF;
END $$;
CREATE TABLE results AS
SELECT call, format(CASE WHEN turned THEN '%2$L %3$s %1$s' ELSE '%1$s %3$s %2$L' END, bound_call, bound, CASE WHEN turned THEN translate(operator, '<>', '><') ELSE operator END) AS condition
FROM (SELECT call, operators, turned, format(call, CASE WHEN turned THEN 'tokens' ELSE '''{5,105,305,1,2}''' END, CASE WHEN turned THEN '''{5,105,305,1,2}''' ELSE 'tokens' END) AS bound_call
	  FROM calls, unnest(ARRAY[false, true]) turned) x, unnest(string_to_array(operators, ' ')) operator, limits(bound_call) bound;
ALTER TABLE results ADD result text;
UPDATE results SET result = same(condition);
SELECT call, count(*) > 60 AS many, count(*) FILTER (WHERE result NOT LIKE 'same: %') AS different, count(DISTINCT result) > 3 AS others FROM results GROUP BY call ORDER BY call;
SELECT * FROM results WHERE result NOT LIKE 'same: %' ORDER BY 1, 2, 3 LIMIT 10;
-- with an empty set, without common ids nothing is similar
SELECT same('jaccard_similarity(tokens, ''{}'') >= 0'), same('jaccard_similarity(tokens, ''{}'') > 0'), same('tokens <%> ''{}'' <= 1'), same('hamming_distance(''{}'', tokens) <= 2'), same('intersection_count(''{}'', tokens) >= 0');
-- other types of the limit
SELECT same('hamming_distance(tokens, ''{5,105}'') < 3::int8'), same('jaccard_similarity(tokens, ''{5,105}'') >= 0.2::float4'), same('intersection_count(tokens, ''{5,105}'') > 0::int2');
-- combined
SELECT same('(jaccard_similarity(tokens, ''{5,105,305}'') > 0.3 OR tokens <%> ''{6,106,306}'' < 0.6) AND intersection_count(tokens, ''{5,6}'') = 1');
RESET enable_seqscan;

-- limits and queries that are not known when the statement is planned
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE by_score(idset, float8) AS SELECT count(*) FROM docs WHERE dice_similarity(tokens, $1) >= $2;
PREPARE by_distance(idset, float8) AS SELECT count(*) FROM docs WHERE tokens <=> $1 <= $2;
PREPARE by_id(int8) AS SELECT count(*) FROM docs WHERE tokens @> $1;
EXPLAIN (COSTS OFF) EXECUTE by_score('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_distance('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_id(1);
EXECUTE by_score('{5,105}', 0.3);
EXECUTE by_score('{5,105}', 'NaN');
EXECUTE by_score(NULL, 0.3);
EXECUTE by_distance('{5,105}', 0.5);
EXECUTE by_distance('{5,105}', 'NaN');
EXECUTE by_id(5);
EXECUTE by_id(-5);
RESET plan_cache_mode;
-- from another table, in a subquery, in an outer join
SELECT uses(query) FROM (VALUES ('SELECT * FROM (SELECT tokens FROM docs WHERE id < 50) a, LATERAL (SELECT id FROM docs b WHERE jaccard_similarity(b.tokens, a.tokens) > 0.5) x'),
	('SELECT * FROM (SELECT tokens FROM docs WHERE id < 50 OFFSET 0) a LEFT JOIN docs b ON b.tokens <%> a.tokens < 0.5')) v(query);
CREATE FUNCTION joined(seq text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	PERFORM set_config('enable_seqscan', seq, true);
	SELECT md5(string_agg(a.id || ' ' || coalesce(b.id::text, '-'), ',' ORDER BY a.id, b.id)) FROM (SELECT id, tokens FROM docs WHERE id < 50 OR id > 9999) a LEFT JOIN docs b ON b.tokens <%> a.tokens < 0.5 AND b.id <> a.id INTO result;
	RETURN result;
END $$;
SELECT joined('on') = joined('off') AS same;
-- an expression, a predicate, partitions
CREATE INDEX docs_less ON docs USING gpuvec ((tokens - 5)) WHERE id < 600;
SELECT uses('SELECT id FROM docs WHERE jaccard_similarity(tokens - 5, ''{105,305}'') >= 0.5 AND id < 600', '%docs_less%');
SELECT count(*) FROM docs WHERE jaccard_similarity(tokens - 5, '{105,305}') >= 0.5 AND id < 600;
DROP INDEX docs_less;
CREATE TABLE parts (id int, tokens idset) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (700);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (700) TO (100000);
INSERT INTO parts SELECT id, tokens FROM docs;
CREATE INDEX ON parts USING gpuvec (tokens);
ANALYZE parts;
EXPLAIN (COSTS OFF) SELECT id FROM parts WHERE jaccard_similarity(tokens, '{5,105,305}') >= 0.5;
SELECT (SELECT array_agg(id ORDER BY id) FROM parts WHERE jaccard_similarity(tokens, '{5,105,305}') >= 0.3) =
	   (SELECT array_agg(id ORDER BY id) FROM docs WHERE jaccard_similarity(tokens, '{5,105,305}') >= 0.3) AS same;
RESET enable_seqscan;
-- estimates are those of <<->>, not a third of the rows, of partitions also
CREATE FUNCTION planned_rows(query text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
SELECT planned_rows('SELECT FROM docs WHERE jaccard_similarity(tokens, ''{5,105,305,405}'') >= 0.9') < 20 AS few,
	   planned_rows('SELECT FROM docs WHERE jaccard_similarity(tokens, ''{5,105,305,405}'') >= 0') > 1000 AS many,
	   planned_rows('SELECT FROM parts a JOIN docs b USING (id) WHERE jaccard_similarity(a.tokens, ''{5,105,305,405}'') >= 0.9') < 20 AS joined;

-- Arithmetic around scores: each expression of each call, with bounds that occur, those next to them, and such that are
-- none, of each type of numbers; what is found by the index is what is found without
CREATE TABLE shapes AS SELECT * FROM (VALUES
	('1 - %s', -1), ('1.0 - %s', -1), ('1::float8 - %s', -1), ('(0.1 + 0.2) - %s', -1), ('-%s', -1), ('%s * 100', 1), ('100 * %s', 1), ('%s / 0.3', 1), ('%s * -3', -1),
	('100 * (1 - %s)', -1), ('%s + 0.7', 1), ('%s - 1e6::float8', 1), ('%s::real', 1), ('%s::numeric', 1), ('%s::numeric * 100', 1), ('%s::numeric / 7', 1),
	('1 - %s::real', -1), ('%s::real::numeric', 1), ('(1 - %s)::numeric::float8', -1), ('%s::float8', 1)) v(shape, sign);
CREATE TABLE scores AS SELECT * FROM (VALUES
	('braun_blanquet_similarity(%s, %s)', 1), ('jaccard_similarity(%s, %s)', 1), ('cosine_similarity(%s, %s)', 1), ('dice_similarity(%s, %s)', 1), ('overlap_similarity(%s, %s)', 1),
	('containment_similarity(%s, %s)', 1), ('kulczynski_similarity(%s, %s)', 1), ('tversky_similarity(%s, %s, 0.3, 1.7)', 1), ('intersection_count(%s, %s)', 1), ('cardinality(%s & %s)', 1),
	('hamming_distance(%s, %s)', -1), ('(%s <-> %s)', -1), ('(%s <%%> %s)', -1), ('(%s <=> %s)', -1), ('(%s <#> %s)', -1), ('(%s <~> %s)', -1)) v(call, sign);
CREATE FUNCTION bounds(expression text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT value::text FROM (SELECT DISTINCT %s AS value FROM docs WHERE tokens IS NOT NULL ORDER BY 1 LIMIT 5) x', expression);
	RETURN QUERY EXECUTE format('SELECT (value::float8 * x)::text FROM (SELECT DISTINCT %s AS value FROM docs WHERE tokens IS NOT NULL ORDER BY 1 DESC LIMIT 3) y, unnest(ARRAY[1 - 2.0 ^ -52, 1, 1 + 2.0 ^ -52]::float8[]) x', expression);
	RETURN QUERY SELECT unnest('{0.7,0.3,0.30000000000000004,NaN,Infinity,-Infinity}'::text[]);
END $$;
CREATE TABLE spelled AS
SELECT call, shape, turned, expression, bound, type, sign, row_number() OVER (ORDER BY call COLLATE "C", shape COLLATE "C", turned, type, bound COLLATE "C") AS n FROM (
	SELECT call, shape, c.sign * s.sign AS sign, turned,
		format(s.shape, format(call, CASE WHEN turned THEN 'tokens' ELSE '''{5,105,305,1,2}''' END, CASE WHEN turned THEN '''{5,105,305,1,2}''' ELSE 'tokens' END)) AS expression
	FROM scores c, shapes s, unnest(ARRAY[false, true]) turned) x, bounds(expression) bound, unnest(ARRAY['float8', 'real', 'numeric']) type
WHERE (type <> 'numeric' OR bound NOT LIKE '%Infinity') AND (type = 'float8' OR bound ~ '^-?[0-9.]{1,15}$');
-- a part of them, or it would take minutes
DELETE FROM spelled WHERE n % 7 <> 0;
ALTER TABLE spelled ADD condition text, ADD found text;
UPDATE spelled SET condition = CASE WHEN n % 2 = 0 THEN format('%s %s %L::%s', expression, operator, bound, type) ELSE format('%L::%s %s %s', bound, type, translate(operator, '<>', '><'), expression) END
FROM unnest(ARRAY['>=', '>', '=']) WITH ORDINALITY o(op, i), unnest(ARRAY[1, -1]) direction, LATERAL (SELECT CASE WHEN direction > 0 THEN op ELSE translate(op, '<>', '><') END AS operator) p
WHERE o.i = 1 + n / 2 % 3 AND direction = sign;
CREATE FUNCTION same_rows(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_scan text := found(condition, 'seq', '%"Seq Scan"%');
	by_index text := found(condition, 'bitmap', '%Bitmap Index Scan%docs_tokens"%');
BEGIN
	RETURN CASE WHEN by_scan = by_index THEN 'same: ' || split_part(by_scan, ' ', 1) ELSE format('scan %s, index %s', left(by_scan, 200), left(by_index, 200)) END;
END $$;
UPDATE spelled SET found = same_rows(condition);
SELECT shape, count(*) > 40 AS many, count(*) FILTER (WHERE found NOT LIKE 'same: %') AS different, count(DISTINCT found) > 3 AS others FROM spelled GROUP BY shape ORDER BY shape COLLATE "C";
SELECT condition, found FROM spelled WHERE found NOT LIKE 'same: %' ORDER BY 1 LIMIT 10;
-- counts with bounds of other types, also such that no float8 can be
SELECT condition, same_rows(condition) FROM unnest(ARRAY['intersection_count(tokens, ''{5,105,305}'') >= 2::numeric', '1.5 < cardinality(tokens & ''{5,105,305}'')', '-(tokens <#> ''{5,105,305}'') >= 2',
	'intersection_count(tokens, ''{5,105}'') * 2 >= 3', 'intersection_count(tokens, ''{5,105}'')::int8 > 1::int8', 'intersection_count(tokens, ''{5,105}'')::numeric < 1e400 AND intersection_count(tokens, ''{5,105}'') > 0',
	'intersection_count(tokens, ''{5,105}'') >= 1e400', 'hamming_distance(tokens, ''{5,105}'') <= 1e400', 'hamming_distance(tokens, ''{5,105}'') <= 2.5', 'intersection_count(tokens, ''{5}'') >= ''NaN''::numeric',
	'1 - (tokens <%> ''{5,105}'') BETWEEN 0.2 AND 0.6', 'NOT 1 - (tokens <%> ''{5,105}'') < 0.2', '1 - (tokens <%> ''{}'') >= 0', '100 * jaccard_similarity(tokens, ''{}'') >= 0']) condition;
-- coalesce(), where null sets do not satisfy the comparison
SELECT condition, same_rows(condition) FROM unnest(ARRAY['coalesce(jaccard_similarity(tokens, ''{5,105}''), 0) >= 0.2', 'coalesce(jaccard_similarity(tokens, ''{5,105}''), 0) > 0', 'coalesce(tokens <%> ''{5,105}'', 1) <= 0.8',
	'coalesce(tokens <%> ''{5,105}'', ''Infinity'') < 0.8', '1 - coalesce(tokens <-> ''{5,105}'', 1) > 0.1', '100 * coalesce(jaccard_similarity(tokens, ''{5,105}'')::real, 0) >= 20', 'coalesce(1 - (tokens <=> ''{5,105}''), 0) >= 0.3',
	'0 < coalesce(intersection_count(tokens, ''{5,105}''), -1)', 'coalesce(hamming_distance(tokens, ''{5}''), 2) = 3', 'coalesce(coalesce(jaccard_similarity(tokens, ''{5,105}''), 0), 1) >= 0.2']) condition;
-- nothing else is made a condition of: null sets satisfy it, what is far is asked for, it is no step that keeps the order
SET enable_seqscan = off;
SELECT condition, uses('SELECT id FROM docs WHERE id > 0 AND ' || condition) AS by_index
FROM unnest(ARRAY['coalesce(jaccard_similarity(tokens, ''{5}''), 1) >= 0.5', 'coalesce(jaccard_similarity(tokens, ''{5}''), 0) >= 0', 'coalesce(tokens <%> ''{5}'', 0.3::float8) <= 0.3::float8', 'coalesce(tokens <%> ''{5}'', ''NaN'') <= ''NaN''',
	'1 - coalesce(tokens <%> ''{5}'', 0) > 0', 'coalesce(hamming_distance(tokens, ''{5}''), 2) = 2', 'coalesce(jaccard_similarity(tokens, ''{5}''), ''NaN'') >= 0.5', 'coalesce(jaccard_similarity(tokens, ''{5}''), id) >= 0.5',
	'1 - (tokens <%> ''{5}'') <= 0.5', '1 - jaccard_similarity(tokens, ''{5}'') >= 0.5', '-(tokens <#> ''{5}'') <= 3', 'jaccard_similarity(tokens, ''{5}'') * -1 >= 0.5', 'jaccard_similarity(tokens, ''{5}'') * 0 >= 0',
	'1 / (tokens <%> ''{5}'') >= 0.5', 'id - (tokens <%> ''{5}'') >= 0.5', '1 - (tokens <%> tokens) >= 0.5', 'cardinality(tokens | ''{5}'') >= 2', 'cardinality(tokens) >= 2', 'random() - (tokens <%> ''{5}'') >= 0.5']) condition;
-- bounds that are not known when the statement is planned
SET plan_cache_mode = force_generic_plan;
CREATE FUNCTION prepare_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DEALLOCATE ALL;
	PREPARE by_one_minus(idset, float8) AS SELECT count(*) FROM docs WHERE 1 - (tokens <%> $1) >= $2;
	PREPARE by_hundred(idset, numeric) AS SELECT count(*) FROM docs WHERE 100 * intersection_count(tokens, $1) >= $2;
	PREPARE by_real(idset, real) AS SELECT count(*) FROM docs WHERE $2 < jaccard_similarity(tokens, $1)::real;
	PREPARE by_known(idset) AS SELECT count(*) FROM docs WHERE coalesce(jaccard_similarity(tokens, $1), 0) >= 0.2;
END $$;
SELECT prepare_all();
EXPLAIN (COSTS OFF) EXECUTE by_one_minus('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_hundred('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_real('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_known('{}');
CREATE FUNCTION answers() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	statement text;
	result text;
	results text := '';
BEGIN
	FOREACH statement IN ARRAY ARRAY['by_one_minus(''{5,105}'', 0.2)', 'by_one_minus(''{5,105}'', ''NaN'')', 'by_one_minus(''{5,105}'', ''-Infinity'')', 'by_one_minus(''{5,105}'', NULL)', 'by_one_minus(NULL, 0.2)',
		'by_hundred(''{5,105}'', 100)', 'by_hundred(''{5,105}'', 100.0000000000000000000001)', 'by_hundred(''{5,105}'', 1e400)', 'by_hundred(''{5,105}'', -1e400)', 'by_hundred(''{5,105}'', ''NaN'')',
		'by_real(''{5,105}'', 0.2)', 'by_real(''{5,105}'', 0)', 'by_known(''{5,105}'')', 'by_known(NULL)', 'by_known(''{}'')'] LOOP
		EXECUTE 'EXECUTE ' || statement INTO result;
		results := results || ' ' || result;
	END LOOP;
	RETURN results;
END $$;
SELECT answers() \gset
SET enable_seqscan = on;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT prepare_all();
SELECT :'answers' AS answers, answers() = :'answers' AS same;
DEALLOCATE ALL;
RESET plan_cache_mode;
RESET enable_indexscan;
RESET enable_bitmapscan;
-- joins
CREATE FUNCTION join_rows(condition text, parts text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT count(*) || '' '' || sum(hashtextextended(a.id || '' '' || b.id, 0)) FROM (SELECT id, tokens FROM docs WHERE id < 40 OR id > 9999) a JOIN docs b ON ' || condition;
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_indexscan', parts, true), set_config('enable_bitmapscan', parts, true), set_config('enable_seqscan', CASE parts WHEN 'on' THEN 'off' ELSE 'on' END, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF (plan LIKE '%"docs_tokens"%') <> (parts = 'on') THEN RETURN parts; END IF;
	EXECUTE query INTO result;
	RETURN result;
END $$;
SELECT shape, count(*), count(*) FILTER (WHERE join_rows(condition, 'on') = join_rows(condition, 'off')) AS same FROM (
	SELECT shape, format(shape, format(call, 'b.tokens', 'a.tokens')) || CASE WHEN c.sign * s.sign > 0 THEN ' >= ' ELSE ' <= ' END ||
		format('(%s)::float8', format(shape, CASE WHEN call ~ '<#>' THEN '(-1)' WHEN call ~ '_count|card' THEN '1' WHEN call ~ 'hamming|~' THEN '2' ELSE '0.4' END)) AS condition
	FROM scores c, shapes s WHERE shape IN ('1 - %s', '100 * %s', '%s::real', '%s::numeric')) x GROUP BY shape ORDER BY shape COLLATE "C";

-- Orders: rows in the order of a distance are in the order that is asked for
CREATE FUNCTION sorts(sort text, condition text DEFAULT 'id > 0') RETURNS bool LANGUAGE plpgsql AS $$
DECLARE plan text;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true);
	EXECUTE format('EXPLAIN (FORMAT JSON) SELECT id FROM docs WHERE %s ORDER BY %s LIMIT 10', condition, sort) INTO plan;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true);
	RETURN plan LIKE '%"Order By"%';
END $$;
SELECT sorts(sort) AS by_index, sort FROM unnest(ARRAY['1 - (tokens <%> ''{5,105}'') DESC NULLS LAST', '1.0 - (''{5,105}'' <=> tokens) DESC NULLS LAST', 'jaccard_similarity(tokens, ''{5,105}'') DESC NULLS LAST',
	'braun_blanquet_similarity(''{5,105}'', tokens) DESC NULLS LAST', 'dice_similarity(tokens, ''{5,105}'') DESC NULLS LAST', 'containment_similarity(''{5,105}'', tokens) DESC NULLS LAST', '-(tokens <#> ''{5,105}'') DESC NULLS LAST',
	'cosine_similarity(tokens, ''{5,105}'') DESC NULLS LAST', 'containment_similarity(tokens, ''{5,105}'') DESC NULLS LAST', 'overlap_similarity(tokens, ''{5,105}'') DESC NULLS LAST', '1 - jaccard_similarity(tokens, ''{5,105}'')', '100 * (tokens <~> ''{5,105}'')', '(tokens <%> ''{5,105}'')::real', 'coalesce(jaccard_similarity(tokens, ''{5,105}''), 0) DESC', 'coalesce(tokens <-> ''{5,105}'', 1)']) sort;
-- not where nulls would come first, what is farthest, or another order
SELECT sorts(sort) AS by_index, sort FROM unnest(ARRAY['1 - (tokens <%> ''{5,105}'') DESC', 'jaccard_similarity(tokens, ''{5,105}'') DESC', 'jaccard_similarity(tokens, ''{5,105}'')', '1 - (tokens <%> ''{5,105}'')',
	'coalesce(jaccard_similarity(tokens, ''{5,105}''), 0.1) DESC',
	'coalesce(tokens <-> ''{5,105}'', 0.5)', '(jaccard_similarity(tokens, ''{5,105}'')::numeric / 3)::float8 DESC NULLS LAST', 'tokens <%> ''{5,105}'' NULLS FIRST']) sort;
SELECT sorts('jaccard_similarity(tokens, ''{5,105}'') DESC', condition) AS by_index, condition FROM unnest(ARRAY['tokens IS NOT NULL', 'tokens <> ''{}''', 'jaccard_similarity(tokens, ''{5}'') > 0.1', 'id > 0', 'tokens IS NULL OR id > 0']) condition;
-- the values of all rows in this order, nulls and empty sets among them
CREATE FUNCTION ordered(sort text, seq text, rows int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT %s AS value FROM docs ORDER BY %s LIMIT %s', regexp_replace(sort, ' DESC| NULLS LAST', '', 'g'), sort, rows);
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', seq, true), set_config('enable_sort', seq, true), set_config('enable_indexscan', CASE seq WHEN 'on' THEN 'off' ELSE 'on' END, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF (plan LIKE '%"Order By"%') = (seq = 'on') THEN RETURN seq; END IF;
	EXECUTE format('SELECT md5(string_agg(coalesce(value::text, ''-''), '','')) FROM (%s) x', query) INTO result;
	RETURN result;
END $$;
CREATE TABLE sorted AS SELECT format(shape, format(call, CASE WHEN turned THEN 'tokens' ELSE query END, CASE WHEN turned THEN query ELSE 'tokens' END)) || suffix AS sort
	FROM (VALUES ('(%s <%%> %s)', false), ('(%s <-> %s)', false), ('(%s <=> %s)', false), ('(%s <#> %s)', false), ('(%s <~> %s)', false),
		('braun_blanquet_similarity(%s, %s)', true), ('jaccard_similarity(%s, %s)', true), ('dice_similarity(%s, %s)', true)) c(call, score),
		(VALUES ('1 - %s', true), ('%s * -3.7', true), ('(1 - %s)::real', true), ('0.3 * %s', false), ('%s::real', false)) s(shape, falls), unnest(ARRAY[false, true]) turned,
		unnest(ARRAY['''{5,105,305}''', '''{0,65535}''', '''{}''']) query, LATERAL (SELECT CASE WHEN score <> falls THEN ' DESC NULLS LAST' ELSE '' END AS suffix) f
	UNION ALL SELECT unnest(ARRAY['coalesce(jaccard_similarity(tokens, ''{5,105,305}''), 0) DESC', 'coalesce(tokens <-> ''{5,105,305}'', 1)', '1 - coalesce(tokens <-> ''{5,105,305}'', 1) DESC',
		'containment_similarity(''{5,105,305}'', tokens) DESC NULLS LAST']);
SELECT count(*), count(*) FILTER (WHERE ordered(sort, 'on', rows) = ordered(sort, 'off', rows)) AS same FROM sorted, unnest(ARRAY[20, 2000]) rows;
SELECT sort FROM sorted WHERE ordered(sort, 'on', 2000) <> ordered(sort, 'off', 2000) ORDER BY 1 LIMIT 5;
-- of a column that is not null, of partitions, for each row of another table
CREATE TABLE whole AS SELECT * FROM docs WHERE tokens IS NOT NULL;
ALTER TABLE whole ALTER tokens SET NOT NULL;
CREATE INDEX whole_tokens ON whole USING gpuvec (tokens);
VACUUM ANALYZE whole;
SELECT array_agg(value) FROM (SELECT jaccard_similarity(tokens, '{5,105,305}') AS value FROM whole ORDER BY jaccard_similarity(tokens, '{5,105,305}') DESC LIMIT 8) x;
SELECT array_agg(value) FROM (SELECT 1 - (tokens <%> '{5,105,305}') AS value FROM parts WHERE tokens IS NOT NULL ORDER BY 1 - (tokens <%> '{5,105,305}') DESC LIMIT 8) x;
SET enable_sort = off;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM whole ORDER BY jaccard_similarity(tokens, '{5,105,305}') DESC LIMIT 8;
SELECT array_agg(value) FROM (SELECT jaccard_similarity(tokens, '{5,105,305}') AS value FROM whole ORDER BY jaccard_similarity(tokens, '{5,105,305}') DESC LIMIT 8) x;
EXPLAIN (COSTS OFF) SELECT id FROM parts WHERE tokens IS NOT NULL ORDER BY 1 - (tokens <%> '{5,105,305}') DESC LIMIT 8;
SELECT array_agg(value) FROM (SELECT 1 - (tokens <%> '{5,105,305}') AS value FROM parts WHERE tokens IS NOT NULL ORDER BY 1 - (tokens <%> '{5,105,305}') DESC LIMIT 8) x;
SELECT uses('SELECT * FROM (SELECT tokens FROM docs WHERE id < 5) a, LATERAL (SELECT id FROM docs b ORDER BY jaccard_similarity(b.tokens, a.tokens) DESC NULLS LAST LIMIT 3) x', '%"Order By"%');
RESET enable_sort;
RESET enable_seqscan;
-- row numbers: a window that ends early reads few rows
CREATE TABLE many AS SELECT i AS id, ARRAY[i % 97, i % 89 + 100, i % 7 + 300, i % 1009 + 400]::idset AS tokens FROM generate_series(1, 20000) i;
CREATE INDEX many_tokens ON many USING gpuvec (tokens);
VACUUM ANALYZE many;
SELECT uses(query, '%"Order By"%') = (current_setting('server_version_num')::int >= 150000) AS as_expected FROM unnest(ARRAY[
	'SELECT id FROM (SELECT id, row_number() OVER (ORDER BY tokens <%> ''{5,105}'') r FROM many) x WHERE r <= 3',
	'SELECT id FROM (SELECT id, rank() OVER (ORDER BY 1 - (tokens <%> ''{5,105}'') DESC NULLS LAST) r FROM many) x WHERE 4 > r']) query;
SELECT array_agg(value) = ARRAY(SELECT tokens <%> '{5,105}' AS value FROM many ORDER BY 1 LIMIT 5) AS same FROM (SELECT tokens <%> '{5,105}' AS value, row_number() OVER (ORDER BY tokens <%> '{5,105}') r FROM many) x WHERE r <= 5;
SELECT uses(query, '%"Order By"%') FROM unnest(ARRAY['SELECT id FROM (SELECT id, row_number() OVER (ORDER BY tokens <%> ''{5,105}'') r FROM many) x WHERE r >= 3',
	'SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY id ORDER BY tokens <%> ''{5,105}'') r FROM many) x WHERE r <= 3']) query;

-- Who does not see all rows uses the index as well, of functions that show nothing of the others
GRANT USAGE ON SCHEMA index_spellings TO PUBLIC;
CREATE ROLE regress_spellings;
UPDATE docs SET owner = 'regress_spellings' WHERE id % 2 = 0;
VACUUM ANALYZE docs;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON docs USING (owner = current_user);
GRANT SELECT ON docs TO regress_spellings;
CREATE TABLE conditions AS SELECT * FROM unnest(ARRAY['tokens && ''{5}''', 'tokens @> ''{5,105}''', 'tokens <@ ''{5,24}''', 'tokens = ''{5,24}''', 'tokens @> 5', '5 <@ tokens',
	'jaccard_similarity(tokens, ''{5,105}'') > 0.3', '1 - (tokens <%> ''{5,105}'') > 0.3', 'jaccard_similarity(tokens, ''{5,105}'')::numeric >= 0.25', 'hamming_distance(tokens, ''{5,105}'') < 3', 'tokens <-> ''{5,105}'' <= 0.7', 'tokens <<->> (''{5,105}'', 0.3, ''jaccard'')']) condition;
GRANT SELECT ON conditions TO regress_spellings;
CREATE VIEW guarded WITH (security_barrier) AS SELECT ctid AS row_tid, * FROM docs WHERE length(owner::text) > 9;
SET ROLE regress_spellings;
SET enable_seqscan = off;
SELECT condition, uses('SELECT id FROM docs WHERE ' || condition) AS by_index FROM conditions;
RESET ROLE;
CREATE FUNCTION rows_of(from_where text, seq text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE result int[];
BEGIN
	PERFORM set_config('enable_seqscan', seq, true), set_config('enable_bitmapscan', CASE seq WHEN 'on' THEN 'off' ELSE 'on' END, true), set_config('enable_indexscan', CASE seq WHEN 'on' THEN 'off' ELSE 'on' END, true);
	EXECUTE 'SELECT array_agg(id ORDER BY id) FROM ' || from_where INTO result;
	RETURN result;
END $$;
SET ROLE regress_spellings;
SELECT count(*), bool_and(rows_of('docs WHERE ' || condition, 'on') = rows_of('docs WHERE ' || condition, 'off')) AS same FROM conditions;
-- but not where an error could show what another row has: of a right side that is bad, or not known yet
SELECT uses('SELECT id FROM docs WHERE tokens <<->> (''{5,105}'', 0.3, ''no_measure'')') AS bad, uses('SELECT id FROM docs WHERE tversky_similarity(''{5}'', tokens, 1, 1) > 0.3') AS good,
	uses('SELECT id FROM docs WHERE 1 - (tokens <%> ''{5}'') > (SELECT 0.3::float8)') AS later, uses('SELECT id FROM docs WHERE jaccard_similarity(tokens, ''{5}'') > (SELECT 0.3::float8)') AS leakproof;
RESET ROLE;
SELECT condition, uses('SELECT id FROM guarded WHERE ' || condition) AS by_index FROM conditions;
SELECT count(*), bool_and(rows_of('guarded WHERE ' || condition, 'on') = rows_of('guarded WHERE ' || condition, 'off')) AS same FROM conditions;
RESET enable_seqscan;
-- leakproof functions: those have no errors whatever sets and numbers they are given
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid WHERE e.extname = 'gpuvec' AND proleakproof ORDER BY p.oid::regprocedure::text COLLATE "C";
SET client_min_messages = warning;
DROP SCHEMA index_spellings CASCADE;
DROP ROLE regress_spellings;
