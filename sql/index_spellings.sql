-- CREATE INDEX ... USING gpuvec: conditions that are written in other ways than with && @> <@ <<->> of two sets
CREATE SCHEMA index_spellings;
SET search_path = index_spellings, public;
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
	('overlap_similarity(%s, %s)', '>= > ='), ('containment_similarity(%s, %s)', '>= > ='), ('tversky_similarity(%s, %s, 0.3, 1.7)', '>= > ='),
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

-- Who does not see all rows uses the index as well, of functions that show nothing of the others
GRANT USAGE ON SCHEMA index_spellings TO PUBLIC;
CREATE ROLE regress_spellings;
UPDATE docs SET owner = 'regress_spellings' WHERE id % 2 = 0;
VACUUM ANALYZE docs;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON docs USING (owner = current_user);
GRANT SELECT ON docs TO regress_spellings;
CREATE TABLE conditions AS SELECT * FROM unnest(ARRAY['tokens && ''{5}''', 'tokens @> ''{5,105}''', 'tokens <@ ''{5,24}''', 'tokens = ''{5,24}''', 'tokens @> 5', '5 <@ tokens',
	'jaccard_similarity(tokens, ''{5,105}'') > 0.3', 'hamming_distance(tokens, ''{5,105}'') < 3', 'tokens <-> ''{5,105}'' <= 0.7', 'tokens <<->> (''{5,105}'', 0.3, ''jaccard'')']) condition;
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
-- but not where an error could show what another row has
SELECT uses('SELECT id FROM docs WHERE tokens <<->> (''{5,105}'', 0.3, ''no_measure'')'), uses('SELECT id FROM docs WHERE tversky_similarity(''{5}'', tokens, 1, 1) > 0.3');
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
