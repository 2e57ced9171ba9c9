-- Each function of the extension, called with the least and greatest numbers, infinities and NaN in each of its
-- arguments, and in all: what it cannot do is an error with a code of its own, not an internal one
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE TABLE extremes (id bigint PRIMARY KEY, s idset, v real[]);
INSERT INTO extremes SELECT i, ARRAY[i, i + 1, 70000 + i]::idset, ARRAY[i, 1] FROM generate_series(1, 20) i;
CREATE TABLE extreme_clicks (u bigint, i bigint, w float8);
INSERT INTO extreme_clicks SELECT a, b, 1 FROM generate_series(1, 5) a, generate_series(1, 5) b WHERE (a + b) % 2 = 0;
CREATE TABLE extreme_factors (id bigint PRIMARY KEY, v real[]);
INSERT INTO extreme_factors SELECT i, ARRAY[i, 1] FROM generate_series(1, 5) i;
CREATE TABLE extreme_tokens (id bigint PRIMARY KEY, token text COLLATE "C" NOT NULL UNIQUE);
-- what is given to arguments: by their name, or else by their type
CREATE TABLE extreme_values (name text, type regtype, usual text, extremes text[]);
INSERT INTO extreme_values VALUES ('key_column', 'name', $$'id'$$, '{}'),
	('user_column', 'name', $$'u'$$, '{}'), ('item_column', 'name', $$'i'$$, '{}'), ('weight_column', 'name', $$'w'$$, '{}'),
	('interactions', 'regclass', $$'extreme_clicks'$$, '{}'), ('user_factors', 'regclass', $$'extreme_factors'$$, '{}'),
	('item_factors', 'regclass', $$'extreme_factors'$$, '{}'), ('state', 'regclass', 'NULL', '{}'),
	('dictionary', 'regclass', $$'extreme_tokens'$$, '{}'), ('measure', 'text', $$'jaccard'$$, '{}'), ('metric', 'text', $$'cosine'$$, '{}'),
	('mode', 'text', $$'sum'$$, '{}'), ('missing', 'text', $$'zero'$$, '{}'), ('optimizer', 'text', $$'sgd'$$, '{}'),
	('initializer', 'text', $$'uniform'$$, '{}'), ('weighting', 'text', $$'cosine'$$, '{}'),
	('factors', 'integer', '2', '{-2147483648,-1,0,2147483647}'), ('iterations', 'integer', '1', '{-2147483648,-1,0}'),
	(NULL, 'regclass', $$'extremes'$$, '{}'), (NULL, 'name', $$'v'$$, '{}'), (NULL, 'text', $$'a b c'$$, '{}'),
	(NULL, 'smallint', '1', '{-32768,-1,0,32767}'), (NULL, 'integer', '1', '{-2147483648,-1,0,2147483647}'),
	(NULL, 'bigint', '1', '{-9223372036854775808,-1,0,4294967295,4294967296,9223372036854775807}'),
	(NULL, 'double precision', '0.5', '{0,-1,NaN,Infinity,-Infinity,1e308,-1e308,5e-324}'),
	(NULL, 'numeric', '0.5', '{0,-1,NaN,1e400,-1e400,1e-400}'),
	(NULL, 'real[]', $$'{1,2}'$$, '{"{}","{NaN,1}","{3e38,-3e38}","{Infinity,1e-45}"}'),
	(NULL, 'double precision[]', $$'{1,2}'$$, '{"{}","{NaN,1}","{1e308,-1e308}","{Infinity,5e-324}"}'),
	(NULL, 'bigint[]', $$'{1}'$$, '{"{}","{-9223372036854775808}","{9223372036854775807}"}'),
	(NULL, 'integer[]', $$'{1}'$$, '{"{-2147483648}","{2147483647}"}'), (NULL, 'smallint[]', $$'{1}'$$, '{"{-32768}","{32767}"}'),
	(NULL, 'idset', $$'{1,2}'$$, '{"{}","{0}","{4294967295}"}'), (NULL, 'idset[]', $$'{"{1,2}"}'$$, '{"{}","{NULL}"}'),
	(NULL, 'anyelement', 'NULL::extremes', '{}'), (NULL, 'tid[]', 'NULL', '{"{}","{\"(4294967295,65535)\"}"}'),
	(NULL, 'boolean', 'true', '{}'), (NULL, 'bytea', $$'\x01'$$, '{}'), (NULL, 'bit varying', $$B'1'$$, '{}'), (NULL, 'json', $$'[1]'$$, '{}'),
	(NULL, 'jsonb', $$'[1]'$$, '{}'), (NULL, 'text[]', $$'{a,b}'$$, '{}'), (NULL, 'anyarray', $$'{1}'::int[]$$, '{}'),
	(NULL, 'regconfig', $$'simple'$$, '{}'), (NULL, 'oid', '1', '{0,4294967295}'), (NULL, 'idset_query', $$'1'$$, '{}'),
	(NULL, 'idset_threshold', $$idset_threshold('{1}', 0.5)$$, '{}'), (NULL, 'idset_ranking', $$idset_ranking('{1}', 'tversky(1, 1e308)')$$, '{}'), (NULL, 'idvec_threshold', $$idvec_threshold('{1:0.5}', 0.5)$$, '{}'), (NULL, 'idvec', $$'{1:0.5}'$$, '{"{}","{0:-1}","{1:1e-45,2:3.4e38}","{4294967295:3.4e38}"}'),
	(NULL, 'idvec[]', $$'{"{1:0.5}"}'$$, '{"{}","{NULL}","{\"{1:1e-45,4294967295:-3.4e38}\"}"}');
-- a call for each extreme of each argument, and for all arguments at their last extreme
CREATE TABLE extreme_calls AS
WITH f AS (SELECT p.oid, p.proname, p.proargtypes::oid[] AS types, p.proargnames AS names
	FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'gpuvec'
	WHERE p.prokind IN ('f', 'a') AND p.pronargs > 0 AND NOT p.proargtypes::oid[] && '{internal,cstring}'::regtype[]::oid[]),
a AS (SELECT f.oid, f.proname, n, t.type::regtype AS type, v.usual, v.extremes
	FROM f, unnest(f.types) WITH ORDINALITY t(type, n), LATERAL (SELECT * FROM extreme_values v
		WHERE v.type = t.type AND (v.name = f.names[n + array_lower(f.names, 1) - 1] OR v.name IS NULL) ORDER BY v.name NULLS LAST LIMIT 1) v),
c AS (SELECT DISTINCT oid, varied, e FROM (SELECT oid, n AS varied, e FROM a, unnest(extremes) e UNION ALL SELECT DISTINCT oid, 0, NULL FROM a) x)
SELECT a.oid::regprocedure AS function, c.varied, format('SELECT %I(%s)', a.proname, string_agg(format(
	CASE WHEN a.type IN ('anyelement'::regtype, 'anyarray'::regtype) THEN '%s' ELSE '%s::' || a.type END,
	CASE WHEN (a.proname ~ '^gpuvec_((vec_)?topk|overlaps)' OR a.proname = 'gpuvec_prewarm' AND p.pronargs = 2) AND a.type = 'name'::regtype THEN quote_literal('s') WHEN a.n = c.varied THEN quote_literal(c.e) WHEN c.varied = 0 AND extremes <> '{}' THEN quote_literal(extremes[cardinality(extremes)]) ELSE a.usual END),
	', ' ORDER BY a.n)) AS call, count(*) = max(p.pronargs) AS complete
FROM a JOIN c USING (oid) JOIN pg_proc p ON p.oid = a.oid GROUP BY a.oid, a.proname, c.varied, c.e;
SELECT function FROM extreme_calls WHERE NOT complete GROUP BY 1 ORDER BY 1;
CREATE FUNCTION state_of(call text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE call; RETURN '00000'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
SELECT count(DISTINCT function) > 100 AS all_functions, count(*) > 1000 AS many_calls FROM extreme_calls;
SELECT call, state FROM extreme_calls, state_of(call) state WHERE state ~ '^(XX|58|F0|P0001|42)' ORDER BY call COLLATE "C";
-- lengths of the types themselves
SELECT state_of($$SELECT '{1}'::idset::bit(83886080)$$), state_of($$SELECT '{83886080}'::idset::bit(83886080)$$), state_of($$SELECT '{4294967295}'::idset::bit varying$$),
	state_of($$SELECT '{4294967295}'::idset::bit$$), state_of($$SELECT idset_to_bytea('{1}', 1073741820)$$);
SELECT idset_cast_to_bit('{1}', 2147483647);
SELECT idset_cast_to_bit('{1}', 2147483641);
SELECT idset_to_bit('{1}', 2147483647);
SELECT idset_cast_to_bit('{1}', -1), idset_cast_to_varbit('{1}', 2147483647);
DROP FUNCTION state_of;
DROP TABLE extremes, extreme_clicks, extreme_factors, extreme_tokens, extreme_values, extreme_calls;
RESET client_min_messages;
