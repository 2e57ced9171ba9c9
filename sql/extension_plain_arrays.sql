-- With gpuvec installed, expressions over plain arrays mean and plan what they did.
SELECT ARRAY[1,2] = '{1,2}', ARRAY[1,2] && '{2}', ARRAY[1,2] @> '{2}', '{1}' <@ ARRAY[1,2], cardinality(ARRAY[1,2]),
	   cardinality('{1,2}'::int[]), ARRAY(SELECT unnest(ARRAY[1,2])), ARRAY(SELECT unnest('{1,2}'::int2[]));
SELECT ARRAY[1,2]::int2[] && '{2}', ARRAY[1,2]::int8[] && '{2}', ARRAY[1,2]::int8[] = ARRAY[1,2]::int8[], '{1,2}'::int2[] @> '{1}';
PREPARE p4 AS SELECT ARRAY[1,2] && $1, ARRAY[1,2] = $1, ARRAY[1,2] @> $1, cardinality($1::int[]);
EXECUTE p4('{2}');
PREPARE p2 (int2[]) AS SELECT $1 && '{2}', $1 @> '{2}', cardinality($1);
EXECUTE p2('{1,2}');
PREPARE p8 (int8[]) AS SELECT $1 && '{2}', $1 @> '{2}', cardinality($1);
EXECUTE p8('{1,2}');
SELECT conname, ARRAY(SELECT unnest(conkey)) FROM pg_constraint WHERE false;
SELECT count(*) >= 0 AS ok FROM pg_constraint c, unnest(c.conkey) k;
SELECT count(*) >= 0 AS ok FROM pg_index i, unnest(i.indkey) k;
CREATE TABLE plain (id int, a2 int2[], a4 int4[], a8 int8[]);
INSERT INTO plain SELECT i, ARRAY[i % 100, i % 7]::int2[], ARRAY[i % 100, i % 7], ARRAY[i % 100, i % 7]::int8[] FROM generate_series(1, 5000) i;
CREATE INDEX ON plain USING gin (a2);
CREATE INDEX ON plain USING gin (a4);
CREATE INDEX ON plain USING gin (a8);
ANALYZE plain;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM plain WHERE a2 && '{99}';
EXPLAIN (COSTS OFF) SELECT * FROM plain WHERE a4 && '{99}';
EXPLAIN (COSTS OFF) SELECT * FROM plain WHERE a4 @> '{99}';
EXPLAIN (COSTS OFF) SELECT * FROM plain WHERE a8 && '{99}';
EXPLAIN (COSTS OFF) SELECT * FROM plain WHERE a4 = '{99,1}';
PREPARE g4 AS SELECT count(*) FROM plain WHERE a4 && $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE g4('{99}');
EXECUTE g4('{99}');
RESET plan_cache_mode;
RESET enable_seqscan;
-- literals and untyped parameters resolve beside an idset
CREATE TABLE sets (id int, s idset);
INSERT INTO sets VALUES (1, '{1,2,3}'), (2, '{3,4}');
SELECT id FROM sets WHERE s && '{1}';
SELECT id FROM sets WHERE s @> '{3,4}' ORDER BY id;
SELECT id FROM sets WHERE s = '{4,3}';
PREPARE ps AS SELECT id FROM sets WHERE s && $1 ORDER BY id;
EXECUTE ps('{3}');
SELECT id FROM sets ORDER BY s <-> '{3,4,5}';
SELECT id FROM sets WHERE s && ARRAY[1]::idset;
-- a typed array is not a set by itself
\set VERBOSITY terse
SELECT id FROM sets WHERE s && ARRAY[1];
\set VERBOSITY default
-- Literals alone: the operators that sets and vectors both have cannot choose,
-- those and functions of sets alone can.  One typed operand decides.
CREATE FUNCTION try(statement text, OUT state text, OUT result text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT ' || statement INTO result;
EXCEPTION WHEN OTHERS THEN
	state := SQLSTATE;
	result := SQLERRM;
END$$;
SELECT statement, t.* FROM unnest(ARRAY[$$'{1,2}' <#> '{1,3}'$$, $$'{1,2}' <=> '{1,3}'$$, $$'{1,2}' <%> '{1,3}'$$, $$NULL <=> NULL$$, $$'{1,2}' <#> NULL$$, $$cardinality('{1,2}')$$, $$'{1,2}' - '{1,3}'$$, $$'{1:2}' + '{1:3}'$$,
	$$idvec_inner_product('{1:1}', '{1:2}')$$,
	-- as before
	$$'{1,2}' <~> '{1,3}'$$, $$cosine_similarity('{1,2}', '{1,3}')$$, $$jaccard_similarity('{1,2}', '{1,3}')$$, $$intersection_count('{1,2}', '{1,3}')$$, $$hamming_distance('{1,2}', '{1,3}')$$, $$idset('{1,2}')$$, $$'{1,2}' = '{1,3}'$$, $$'2' * 3$$, $$2.5 * '2'$$, $$'2' - 3$$,
	-- vectors
	$$idvec('{1:2}')$$, $$idvec_cosine_similarity('{1:1}', '{1:2}')$$, $$idvec_jaccard_similarity('{1:1}', '{1:2}')$$,
	-- one is typed
	$$'{1,2}'::idset <#> '{1,3}'$$, $$'{1,2}' <=> '{1,3}'::idset$$, $$'{1,2}'::idset <%> '{1,3}'$$, $$'{1,2}'::idset - '{1,3}'$$, $$'{1,2}'::idset & '{1,3}'$$, $$'{1,2}'::idset <#> NULL$$, $$'{1:2}'::idvec <#> '{1:3}'$$, $$'{1:2}' <=> '{1:3}'::idvec$$, $$'{1:2}'::idvec <%> '{1:3}'$$,
	$$'{1:2}'::idvec - '{1:3}'$$, $$'{1:2}'::idvec & '{1,3}'$$, $$'{1:2}'::idvec * '3'$$,
	-- what would be of two types is not converted
	$$'{1,2}'::idset <=> '{1:2}'::idvec$$, $$'{1,2}'::idset <%> '{1:2}'::idvec$$, $$'{1,2}'::idset - '{1:2}'::idvec$$, $$'{1,2}'::idset = '{1:2}'::idvec$$, $$ARRAY[1] <#> '{1}'$$, $$cosine_similarity('{1}', '{1:2}'::idvec)$$, $$idvec_cosine_similarity('{1}'::idset, '{1:2}'::idvec)$$])
	WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
SELECT id, s <#> '{1,3}' AS product, s <=> '{1,3}' AS cosine, s <%> '{1,3}' AS jaccard, cosine_similarity(s, '{1,3}') AS similarity FROM sets ORDER BY s <#> '{1,3}', id;
PREPARE pd AS SELECT id, $1 <#> s AS product FROM sets ORDER BY s <#> $1, id;
EXECUTE pd('{1,3}');
PREPARE pv (idvec) AS SELECT id, $1 <#> s AS product FROM sets ORDER BY s <#> $1, id;
EXECUTE pv('{1:1,4:9}');
DROP FUNCTION try;
-- with intarray beside it
SET client_min_messages = warning;
CREATE EXTENSION intarray;
RESET client_min_messages;
SELECT ARRAY[1,2] && '{2}', ARRAY[1,2] @> ARRAY[2], ARRAY[1,2] & '{2}', ARRAY[1,2] | 3, ARRAY[1,2] - 2, icount('{1,2}');
SELECT id FROM sets WHERE s && '{1}';
SELECT '{1,2}'::idset & '{2}', '{1,2}'::idset | 3, '{1,2}'::idset - 2;
DROP EXTENSION intarray;
DROP TABLE plain, sets;
