-- Boolean queries: input and output, evaluation, estimates, index conditions.
SELECT '1'::idset_query, '1&2|3'::idset_query, '1|2&3'::idset_query, '(1|2)&3'::idset_query, ' ! ( 1 & 2 ) | !3 '::idset_query, '!!1'::idset_query, '((1))'::idset_query, '4294967295&0'::idset_query;
SELECT '1|(2|(3|4))'::idset_query, '(1&2)&(3&4)'::idset_query, '!(1)&!(2|3)'::idset_query, '(1|2)|(3&(4|5))'::idset_query;
SELECT ''::idset_query;
SELECT '1 2'::idset_query;
SELECT '1 &'::idset_query;
SELECT '(1'::idset_query;
SELECT '1)'::idset_query;
SELECT '1 && 2'::idset_query;
SELECT '-1'::idset_query;
SELECT 'a'::idset_query;
SELECT '4294967296'::idset_query;
SELECT '42949672950'::idset_query;
SELECT '99999999999999999999999'::idset_query;
-- binary form
SELECT idset_query_send('1&(2|!3)');
CREATE TABLE queries (q idset_query);
INSERT INTO queries VALUES ('1&(2|!3)'), (NULL), ('!!0'), ((SELECT string_agg(i::text, '|') FROM generate_series(1, 5000) i)::idset_query);
SELECT count(*), count(*) FILTER (WHERE q::text::idset_query::text <> q::text) AS text, max(length(q::text)) FROM queries;
-- long ones are not deep, and deep ones are an error
SELECT '{999999}'::idset @@ (SELECT string_agg(i::text, '|') FROM generate_series(600000, 1000000) i)::idset_query;
SELECT (SELECT string_agg('1', '&') FROM generate_series(1, 1000000) i)::idset_query;
SET max_stack_depth = '100kB';
SELECT (repeat('!', 100000) || '1')::idset_query;
SELECT (repeat('(', 100000) || '1' || repeat(')', 100000))::idset_query;
RESET max_stack_depth;
-- evaluation
SELECT '{1,3}'::idset @@ '1 & (2 | !3)', '{1,2,3}'::idset @@ '1 & (2 | !3)', '{1}'::idset @@ '1 & (2 | !3)', '{}'::idset @@ '!1', '{}'::idset @@ '1', '1&70000' ~~ '{1,70000}'::idset;
SELECT NULL::idset @@ '1' IS NULL AS no_set, '{1}'::idset @@ NULL::idset_query IS NULL AS no_query;
-- random queries, as SQL
SELECT setseed(0.6);
CREATE FUNCTION random_query(depth int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE kind float8 = random();
BEGIN
	IF depth = 0 OR kind < 0.2 THEN
		RETURN (ARRAY[0, 1, 2, 3, 4, 5, 65535, 65536, 4294967295])[1 + floor(random() * 9)::int];
	ELSIF kind < 0.4 THEN
		RETURN '!' || CASE WHEN random() < 0.5 THEN random_query(0) ELSE '(' || random_query(depth - 1) || ')' END;
	END IF;
	RETURN '(' || (SELECT string_agg(random_query(depth - 1), CASE WHEN kind < 0.7 THEN ' & ' ELSE ' | ' END) FROM generate_series(1, 2 + floor(random() * 2)::int)) || ')';
END $$;
CREATE FUNCTION sql_answer(query text, a int8[]) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE answer bool;
BEGIN
	EXECUTE 'SELECT ' || replace(replace(replace(regexp_replace(query, '(\d+)', '(\1 = ANY ($1))', 'g'), '!', ' NOT '), '&', 'AND'), '|', 'OR') INTO answer USING a;
	RETURN answer;
END $$;
CREATE TABLE texts AS SELECT i, random_query(1 + i % 4) AS t FROM generate_series(1, 300) i;
CREATE TABLE sets AS SELECT i, a, a::idset AS s FROM (SELECT i, ARRAY(SELECT x FROM unnest('{0,1,2,3,4,5,7,65535,65536,70000,4294967295}'::int8[]) x WHERE random() < 0.5 AND (i % 3 > 0 OR x < 65536)) AS a FROM generate_series(1, 40) i) g;
SELECT count(*) AS answers, count(*) FILTER (WHERE (s @@ t::idset_query) <> sql_answer(t, a)) AS wrong, count(*) FILTER (WHERE (t::idset_query ~~ s) <> sql_answer(t, a)) AS commuted,
	   count(*) FILTER (WHERE (s @@ t::idset_query::text::idset_query) <> sql_answer(t, a)) AS by_text, count(*) FILTER (WHERE s @@ t::idset_query) BETWEEN 3000 AND 9000 AS both_answers
FROM texts, sets;
-- estimates
CREATE FUNCTION estimate(condition text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) SELECT FROM tagged WHERE ' || condition INTO plan;
	RETURN (plan->0->'Plan'->>'Plan Rows')::float8;
END $$;
CREATE TABLE tagged AS SELECT i, CASE WHEN i % 10 > 0 THEN ARRAY(SELECT t FROM generate_series(0, 19) t WHERE hashint4(20 * i + t) & 1023 < 51 * (1 + t % 8))::idset END AS tokens FROM generate_series(1, 20000) i;
SELECT estimate($$tokens @@ '1'$$) BETWEEN 50 AND 150 AS default_estimate;
ANALYZE tagged;
CREATE TABLE conditions (c text);
INSERT INTO conditions VALUES ($$tokens @@ '1'$$), ($$tokens @@ '!1'$$), ($$tokens @@ '1 & 2'$$), ($$tokens @@ '1 | 2 | 7'$$), ($$tokens @@ '1 & (2 | !3)'$$), ($$tokens @@ '!(1 | 2) & 7'$$), ($$'3 & !4' ~~ tokens$$), ($$tokens @@ '1 & !1 | 15'$$);
SELECT c, estimate(c) BETWEEN 0.7 * n AND 1.4 * n AS fits FROM conditions,
	LATERAL (SELECT (xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM tagged WHERE ' || c, false, true, '')))[1]::text::float8 AS n) t ORDER BY c;
SELECT estimate($$tokens @@ '99999'$$) <= 10 AS rare, estimate($$tokens @@ NULL$$) <= 1 AS none, estimate($$tokens @@ '!99999'$$) BETWEEN 17900 AND 18000 AS all_but_null;
-- an index finds what a query needs
CREATE INDEX ON tagged USING gpuvec (tokens);
INSERT INTO tagged SELECT i, ARRAY[1, 2, 65535 - i % 2]::idset FROM generate_series(20001, 20003) i;
CREATE FUNCTION index_condition(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) SELECT FROM tagged WHERE ' || condition LOOP
		IF line ~ '(Index|Recheck) Cond' THEN RETURN regexp_replace(line, '^ *', ''); END IF;
	END LOOP;
	RETURN 'none';
END $$;
SET enable_seqscan = off;
SELECT c, index_condition(c) FROM (VALUES ($$tokens @@ '1'$$), ($$tokens @@ '1 & 2 & !3'$$), ($$tokens @@ '1 & (2 | 3)'$$), ($$tokens @@ '1 | (2 & !3)'$$), ($$tokens @@ '(1 | 2) & (3 | 4 | 5)'$$),
	($$tokens @@ '!(!1 | !70000)'$$), ($$tokens @@ '!1'$$), ($$tokens @@ '1 | !2'$$), ($$'1 & 2' ~~ tokens$$), ($$idset_matches_query(tokens, '1')$$), ($$tokens @@ NULL$$), ($$NOT tokens @@ '1'$$)) v(c);
-- many lists of which a set needs one id, the shortest of them neither first nor last; deep ones
SELECT c, index_condition('tokens @@ ' || quote_literal(c)) FROM (VALUES ('(1 | 2 | 3) & (4 | 5 | 6) & (7 | 8) & (9 | 10 | 11)'), ('(1 | 2) & (3 | 4) & 5 & (6 | 7) & 8'), ('(1 | 2) & (3 | !4)'), ('(1 | 2) & 3 | !4 | 5'), ('((1 | 2) & (3 | 4) | 5) & !6 | 7 & 8')) v(c);
SELECT index_condition('tokens @@ ' || quote_literal(repeat('(', 200) || '1 | 2 | 3' || string_agg(CASE WHEN i % 2 = 0 THEN ' | ' || 1 + i % 7 ELSE ' & !' || i END || ')', '' ORDER BY i))) AS deep FROM generate_series(1, 200) i;
-- both ways, the same rows
CREATE FUNCTION rows_of(condition text, by_index bool) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE answer int[];
BEGIN
	PERFORM set_config('enable_seqscan', (NOT by_index)::text, true), set_config('enable_indexscan', by_index::text, true), set_config('enable_bitmapscan', by_index::text, true);
	EXECUTE 'SELECT array_agg(i ORDER BY i) FROM tagged WHERE ' || condition INTO answer;
	RETURN answer;
END $$;
SELECT count(*), count(*) FILTER (WHERE rows_of(c, true) IS DISTINCT FROM rows_of(c, false)) AS wrong, sum(cardinality(rows_of(c, false))) > 1000 AS many
FROM (SELECT format('tokens @@ %L', replace(replace(random_query(1 + g % 3), '65536', '7'), '4294967295', '15')) AS c FROM generate_series(1, 25) g UNION ALL SELECT c FROM conditions) q;
PREPARE by_parameter(idset_query) AS SELECT count(*) FROM tagged WHERE tokens @@ $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE by_parameter('1 & 2');
SET plan_cache_mode = force_custom_plan;
EXECUTE by_parameter('1 & 2');
SELECT (SELECT count(*) FROM tagged WHERE tokens @> '{1,2}') AS expected;
-- ordered by a distance, and filtered
SELECT count(*) FROM (SELECT i FROM tagged WHERE tokens @@ '1 & !2' ORDER BY tokens <-> '{1,5}' LIMIT 10) t;
DROP TABLE queries, texts, sets, tagged, conditions;
DROP FUNCTION random_query, sql_answer, estimate, index_condition, rows_of;
