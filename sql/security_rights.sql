-- Nothing of one user's choosing runs with the rights of another, and no memory is read that is not the value's.
CREATE ROLE regress_sec_mallory;
CREATE ROLE regress_sec_tenant;
CREATE SCHEMA regress_sec;
GRANT USAGE ON SCHEMA regress_sec TO PUBLIC;
CREATE TABLE regress_sec.ran (what text, as_user name);
GRANT ALL ON regress_sec.ran TO PUBLIC;

-- Estimators are for the extension's operators.  Servers of older minor versions let anybody attach them to others, where the constant is no set.
CREATE FUNCTION regress_sec.is_true(text, text) RETURNS bool LANGUAGE plpgsql STABLE AS 'BEGIN RETURN true; END';
CREATE OPERATOR regress_sec.&& (LEFTARG = int4, RIGHTARG = int4, FUNCTION = int4eq, RESTRICT = idset_overlapsel);
CREATE OPERATOR regress_sec.@> (LEFTARG = int8, RIGHTARG = int8, FUNCTION = int8eq, RESTRICT = idset_containsel);
CREATE OPERATOR regress_sec.<@ (LEFTARG = float8, RIGHTARG = float8, FUNCTION = float8eq, RESTRICT = idset_containedsel);
CREATE OPERATOR regress_sec.<<->> (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_sec.is_true, RESTRICT = idset_thresholdsel);
CREATE TABLE others AS SELECT i, i::int8 AS b, i::float8 AS f, repeat(i::text, 20) AS t FROM generate_series(1, 100) i;
ANALYZE others;
EXPLAIN (COSTS off) SELECT FROM others WHERE i OPERATOR(regress_sec.&&) 5;
EXPLAIN (COSTS off) SELECT FROM others WHERE b OPERATOR(regress_sec.@>) 81985529216486895;
EXPLAIN (COSTS off) SELECT FROM others WHERE f OPERATOR(regress_sec.<@) 5e-324;
EXPLAIN (COSTS off) SELECT FROM others WHERE t OPERATOR(regress_sec.<<->>) 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa';
SELECT count(*) FROM others WHERE i OPERATOR(regress_sec.&&) 5 OR b OPERATOR(regress_sec.@>) 6;

-- Who does not see all rows is not told by estimates how common an id is in those of others.
CREATE FUNCTION planned_rows(condition text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) SELECT * FROM tenants WHERE ' || condition INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
CREATE TABLE tenants (tenant name, tokens idset);
INSERT INTO tenants SELECT 'other', ARRAY[7, 100 + i] FROM generate_series(1, 2000) i;
INSERT INTO tenants SELECT 'regress_sec_tenant', ARRAY[8, 100 + i] FROM generate_series(1, 2000) i;
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON tenants USING (tenant = current_user);
GRANT SELECT ON tenants TO regress_sec_tenant;
CREATE INDEX ON tenants USING gpuvec (tokens);
ANALYZE tenants;
CREATE VIEW told AS SELECT predicate, planned_rows(format(predicate, 7)) <> planned_rows(format(predicate, 60000)) AS differs
	FROM unnest(ARRAY['tokens && ''{%s}''', 'tokens @> %s', 'tokens <@ ''{%s,101,102}''', 'tokens <<->> (''{%s}'', 0.5, ''jaccard'')']) predicate;
GRANT SELECT ON told TO PUBLIC;
SELECT * FROM told;
SET ROLE regress_sec_tenant;
SELECT * FROM told;
-- nor does he get them by an index
SET enable_seqscan = off;
SELECT count(*), count(*) FILTER (WHERE tenant <> 'regress_sec_tenant') AS of_others FROM (SELECT tenant FROM tenants ORDER BY tokens <-> '{7,8}' LIMIT 20) x;
SELECT count(*) FROM tenants WHERE tokens && '{7}';
RESET enable_seqscan;
-- nor by functions, nor their number
SELECT count(*) FROM gpuvec_topk('tenants', 'tokens', '{7}');
SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'tenants'::regclass;
SELECT count(*) FROM gpuvec_costs WHERE relation = 'tenants'::regclass;
SELECT gpuvec_evict('tenants');
SELECT gpuvec_prewarm('tenants', 'tokens');
SET gpuvec.verify = on;
SET gpuvec.engine_program = '/tmp/engine';
SELECT count(*) FROM pg_settings WHERE name = 'gpuvec.engine_program';
RESET ROLE;

-- The owner of a table sees its mirror, whatever the number of its file;
-- others do not.
CREATE TABLE tables_of_tenant (tokens idset);
ALTER TABLE tables_of_tenant OWNER TO regress_sec_tenant;
TRUNCATE tables_of_tenant;
INSERT INTO tables_of_tenant VALUES ('{7}');
SELECT pg_relation_filenode(oid) <> oid AS other_number FROM pg_class WHERE oid = 'tables_of_tenant'::regclass;
SET ROLE regress_sec_tenant;
SELECT score FROM gpuvec_topk('tables_of_tenant', 'tokens', '{7}');
SELECT relation, rows FROM gpuvec_mirrors;
SET ROLE regress_sec_mallory;
SELECT relation, rows FROM gpuvec_mirrors;
RESET ROLE;
DROP TABLE tables_of_tenant;

-- Training calls the extension's functions, whatever others of the same names there are in its schema.
SELECT extnamespace::regnamespace AS extschema FROM pg_extension WHERE extname = 'gpuvec' \gset
GRANT CREATE ON SCHEMA :extschema TO regress_sec_mallory;
CREATE DOMAIN regress_sec.reals AS real[];
SET ROLE regress_sec_mallory;
CREATE FUNCTION :extschema.gpuvec_vector_square(a int4, x real[]) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('square', current_user); RETURN x; END $$;
CREATE FUNCTION :extschema.gpuvec_vector_axpy(a int4, x real[], y real[]) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('axpy', current_user); RETURN x; END $$;
CREATE FUNCTION :extschema.gpuvec_vector_axpy(a float8, x regress_sec.reals, y regress_sec.reals) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('axpy of a domain', current_user); RETURN x; END $$;
CREATE FUNCTION :extschema.gpuvec_adagrad_step(x real[], gradient real[], m regress_sec.reals, v regress_sec.reals, learning_rate float8, epsilon float8, key int8) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('adagrad', current_user); RETURN x; END $$;
CREATE FUNCTION :extschema.gpuvec_adam_step(x real[], m real[], v real[], step int4, learning_rate float8, beta1 float8, beta2 float8, epsilon float8, key int8) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('adam', current_user); RETURN x; END $$;
CREATE FUNCTION :extschema.gpuvec_sgd_step(x regress_sec.reals, gradient real[], learning_rate float8, key int8) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('sgd', current_user); RETURN x; END $$;
CREATE FUNCTION :extschema.gpuvec_initial_vector(key int8, width int4, initializer text, scale float8, seed int4) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('initial', current_user); RETURN '{}'; END $$;
-- and of operators, functions and types that a search path finds first
RESET ROLE;
CREATE SCHEMA AUTHORIZATION regress_sec_mallory;
SET ROLE regress_sec_mallory;
CREATE FUNCTION regress_sec_mallory.equal(int8, int8) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('=', current_user); RETURN true; END $$;
CREATE OPERATOR regress_sec_mallory.= (LEFTARG = int8, RIGHTARG = int8, FUNCTION = regress_sec_mallory.equal);
CREATE FUNCTION regress_sec_mallory.negate(float8) RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('-', current_user); RETURN $1; END $$;
CREATE OPERATOR regress_sec_mallory.- (RIGHTARG = float8, FUNCTION = regress_sec_mallory.negate);
CREATE FUNCTION regress_sec_mallory.unnest(int8[]) RETURNS SETOF int8 LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('unnest', current_user); RETURN; END $$;
CREATE TYPE regress_sec_mallory.int8 AS (a int);
CREATE TYPE regress_sec_mallory.float4 AS (a int);
GRANT USAGE ON SCHEMA regress_sec_mallory TO PUBLIC;
RESET ROLE;
CREATE TABLE items (id bigint PRIMARY KEY, v real[]);
CREATE TABLE state (key bigint PRIMARY KEY, step int, m regress_sec.reals, v regress_sec.reals);
SELECT set_config('search_path', format('regress_sec_mallory, pg_catalog, %s', :'extschema'), false);
CREATE TEMP TABLE items (id bigint PRIMARY KEY, v real[]);
SELECT gpuvec_ensure_keys(format('%s.items', :'extschema')::regclass, 'id', 'v', '{1,2,3}', 2, seed => 1);
SELECT gpuvec_apply_grad(format('%s.items', :'extschema')::regclass, 'id', 'v', '{1,2}', '{1,1,2,2}');
SELECT gpuvec_apply_grad(format('%s.items', :'extschema')::regclass, 'id', 'v', '{1,2}', '{1,1,2,2}', 'adagrad', 0.1, 'state');
SELECT gpuvec_apply_grad(format('%s.items', :'extschema')::regclass, 'id', 'v', '{1,2}', '{1,1,2,2}', 'adagrad', 0.1, 'state');
TRUNCATE state;
SELECT gpuvec_apply_grad(format('%s.items', :'extschema')::regclass, 'id', 'v', '{1,2}', '{1,1,2,2}', 'adam', 0.1, 'state');
SELECT gpuvec_apply_grad(format('%s.items', :'extschema')::regclass, 'id', 'v', '{1,2}', '{1,1,2,2}', 'adam', 0.1, 'state');
SELECT count(*) FROM items;
DROP TABLE pg_temp.items;
RESET search_path;
SELECT count(*) FROM items;
SELECT * FROM regress_sec.ran;
-- the table's own triggers and defaults do run, as in any statement of his
SET ROLE regress_sec_mallory;
CREATE FUNCTION regress_sec_mallory.noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('trigger', current_user); RETURN NEW; END $$;
CREATE TABLE regress_sec_mallory.items (id bigint PRIMARY KEY, v real[]);
CREATE TRIGGER noted BEFORE INSERT ON regress_sec_mallory.items FOR EACH ROW EXECUTE FUNCTION regress_sec_mallory.noted();
GRANT ALL ON regress_sec_mallory.items TO regress_sec_tenant;
SET ROLE regress_sec_tenant;
SELECT gpuvec_ensure_keys('regress_sec_mallory.items', 'id', 'v', '{1}', 2);
RESET ROLE;
SELECT * FROM regress_sec.ran;

-- Checks of domains are for those who write.
TRUNCATE regress_sec.ran;
SET ROLE regress_sec_mallory;
CREATE FUNCTION regress_sec_mallory.checked(anyelement) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_sec.ran VALUES ('check', current_user); RETURN true; END $$;
CREATE DOMAIN regress_sec_mallory.ids AS :extschema.idset CHECK (regress_sec_mallory.checked(cardinality(VALUE)));
CREATE DOMAIN regress_sec_mallory.floats AS real[] CHECK (regress_sec_mallory.checked(cardinality(VALUE)));
CREATE DOMAIN regress_sec_mallory.number AS bigint CHECK (regress_sec_mallory.checked(VALUE));
RESET ROLE;
CREATE TABLE checked (id regress_sec_mallory.number PRIMARY KEY, tokens regress_sec_mallory.ids, v regress_sec_mallory.floats);
INSERT INTO checked SELECT i, ARRAY[i, 7], ARRAY[i, 1] FROM generate_series(1, 20) i;
CREATE INDEX ON checked USING gpuvec (tokens);
SELECT DISTINCT what FROM regress_sec.ran;
TRUNCATE regress_sec.ran;
ANALYZE checked;
SELECT count(*) FROM gpuvec_topk('checked', 'tokens', '{7}');
SELECT count(*) FROM gpuvec_topk_rows(NULL::checked, 'tokens', '{7}', 3);
SELECT gpuvec_pool('checked', 'id', 'v', '{1,2}'), (SELECT count(*) FROM gpuvec_nearest('checked', 'id', 'v', '{1,1}', 5));
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT FROM checked ORDER BY tokens <-> '{7,1}' LIMIT 2) x;
RESET enable_seqscan;
SELECT * FROM regress_sec.ran;
DROP TABLE checked;

-- Types named like those of pgvector that its owner, who is no superuser, has added to the extension: they are no vectors.
SET client_min_messages = warning;
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
	SELECT 79999, 'vector', 'regress_sec_mallory'::regrole, extnamespace, false, '0' FROM pg_extension WHERE extname = 'gpuvec';
RESET allow_system_table_mods;
SET ROLE regress_sec_mallory;
CREATE TYPE regress_sec_mallory.vector AS (a int8, b int8);
CREATE TYPE regress_sec_mallory.halfvec AS ENUM ('x');
ALTER EXTENSION vector ADD TYPE regress_sec_mallory.vector;
ALTER EXTENSION vector ADD TYPE regress_sec_mallory.halfvec;
CREATE TABLE regress_sec_mallory.vectors (id int, v regress_sec_mallory.vector, h regress_sec_mallory.halfvec);
INSERT INTO regress_sec_mallory.vectors VALUES (1, ROW(1, 2), 'x');
SELECT gpuvec_pool('regress_sec_mallory.vectors', 'id', 'v', '{1}');
SELECT gpuvec_pool('regress_sec_mallory.vectors', 'id', 'h', '{1}');
RESET ROLE;
ALTER EXTENSION vector DROP TYPE regress_sec_mallory.vector;
ALTER EXTENSION vector DROP TYPE regress_sec_mallory.halfvec;
-- Values that say to have more elements than they have bytes, or fewer than none: not used, and nothing is read behind their end.
CREATE TYPE vector;
CREATE FUNCTION vector_in(cstring) RETURNS vector AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION vector_out(vector) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, ALIGNMENT = int4, STORAGE = external);
CREATE TYPE halfvec;
CREATE FUNCTION halfvec_in(cstring) RETURNS halfvec AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION halfvec_out(halfvec) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE halfvec (INPUT = halfvec_in, OUTPUT = halfvec_out, ALIGNMENT = int4, STORAGE = external);
ALTER EXTENSION vector ADD TYPE vector;
ALTER EXTENSION vector ADD TYPE halfvec;
CREATE TABLE vectors (id int PRIMARY KEY, v vector, h halfvec);
INSERT INTO vectors VALUES (1, '\x010000000000803f', '\x01000000003c'), (2, '\xff7f00000000803f', '\xff7f0000003c'), (3, '\xffff00000000803f', '\xffff0000003c'), (4, '\x0100', '\x01'), (5, '\x', '\x'),
	(6, '\x010000000000', '\x0100000000');
CREATE FUNCTION regress_sec.complaint(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE d text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL;
	RETURN SQLERRM || ': ' || d;
END $$;
SELECT gpuvec_pool('vectors', 'id', 'v', '{1}'), gpuvec_pool('vectors', 'id', 'h', '{1}');
SELECT i, regress_sec.complaint(format('SELECT gpuvec_pool(''vectors'', ''id'', ''v'', ''{%s}'')', i)) FROM generate_series(2, 6) i;
SELECT i, regress_sec.complaint(format('SELECT gpuvec_pool(''vectors'', ''id'', ''h'', ''{%s}'')', i)) FROM generate_series(2, 6) i;
-- the same in the session, without a copy
BEGIN;
ALTER TABLE vectors ADD note int;
SELECT i, regress_sec.complaint(format('SELECT gpuvec_pool(''vectors'', ''id'', ''v'', ''{%s}'')', i)) FROM generate_series(2, 6) i;
ROLLBACK;
DROP EXTENSION vector CASCADE;
RESET client_min_messages;

-- Sets of sizes that no set has, which only a superuser, or a damaged disk, can make: ids are read in whole, and nothing behind the end.
CREATE CAST (bytea AS idset) WITHOUT FUNCTION;
CREATE TABLE damaged (id int, tokens idset);
INSERT INTO damaged VALUES (1, '\x0100050002'::bytea::idset), (2, '\x01'::bytea::idset), (3, '{1,5}'), (5, '\x010005'::bytea::idset), (6, '\x01000500070000'::bytea::idset), (4, '\x0100050007000900ff'::bytea::idset);
SELECT d.id, t.score, t.common FROM gpuvec_topk('damaged', 'tokens', '{1,5,327681}') t JOIN damaged d ON d.ctid = t.tid ORDER BY t.rank;
SELECT id, tokens, cardinality(tokens), tokens & '{5,327681}' AS common, tokens | 7 AS more FROM damaged ORDER BY id;
ANALYZE damaged;
-- Large ids before small ones, in a row that a search reads itself, and in its query
INSERT INTO damaged VALUES (7, '\xffffffff0500000000'::bytea::idset);
SELECT count(*) FROM gpuvec_topk('damaged', 'tokens', '{1,7}');
SELECT count(*) FROM gpuvec_topk('damaged', 'tokens', '{1,7}');
DELETE FROM damaged WHERE id = 7;
SELECT count(*) FROM gpuvec_topk('damaged', 'tokens', '{1,7}');
-- the engine refuses the query, and hangs up
INSERT INTO damaged VALUES (8, '{1}');
SET client_min_messages = error;
DO $$
BEGIN
	PERFORM FROM gpuvec_topk('damaged', 'tokens', '\xffffffff0500000000'::bytea::idset);
EXCEPTION WHEN protocol_violation THEN
	NULL;
END$$;
RESET client_min_messages;
-- (a training that begins then gets another connection)
CREATE TABLE heard AS SELECT u, i, '{1}'::idset AS tokens FROM generate_series(1, 4) u, generate_series(1, 3) i;
SELECT count(*) FROM gpuvec_topk('heard', 'tokens', '{1}');
DO $$
BEGIN
	PERFORM FROM gpuvec_topk('heard', 'tokens', '\xffffffff0500000000'::bytea::idset);
EXCEPTION WHEN protocol_violation THEN
	RAISE NOTICE 'refused';
END$$;
SELECT count(*) FROM gpuvec_item_neighbors('heard', 'u', 'i', 2);
DROP TABLE heard;
SELECT count(*) FROM damaged;
DROP CAST (bytea AS idset);
DROP TABLE damaged;

-- Who may not read one of the columns that a function is given learns nothing by it: each column of keys, vectors, users, items or weights alone is lacking.
CREATE TABLE secret_users (id bigint PRIMARY KEY, v real[]);
CREATE TABLE secret_items (id bigint PRIMARY KEY, v real[]);
CREATE TABLE secret_state (key bigint PRIMARY KEY, step int, m real[], v real[]);
CREATE TABLE secret_events (u bigint, i bigint, w real);
INSERT INTO secret_users VALUES (1, '{1,0}'), (2, '{0,1}');
INSERT INTO secret_items SELECT * FROM secret_users;
INSERT INTO secret_state SELECT id, 1, v, v FROM secret_users;
INSERT INTO secret_events VALUES (1, 1, 1), (1, 2, 2), (2, 2, 3);
CREATE FUNCTION regress_sec.state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', 'regress_sec_tenant', true);
	EXECUTE statement;
	RAISE SQLSTATE 'ALLOW' USING MESSAGE = 'to be undone';
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RETURN 'ALLOW';	-- but there is no copy to load, after GRANT
WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE VIEW secret_columns AS SELECT attrelid::regclass AS t, attname AS c FROM pg_attribute WHERE attrelid = ANY ('{secret_users,secret_items,secret_state,secret_events}'::regclass[]) AND attnum > 0;
CREATE VIEW secret_readers AS SELECT * FROM (VALUES
	('{users.id,users.v}'::text[], ARRAY['SELECT * FROM gpuvec_gather($users, ''{1,2}'')', 'SELECT * FROM gpuvec_gather_batch($users, ''{1,2}'', hotness => 1)', 'SELECT gpuvec_pool($users, ''{1,2}'')',
		'SELECT * FROM gpuvec_pool_batch($users, ''{1,2}'', hotness => 1)', 'SELECT gpuvec_sum_agg($users, 1)', 'SELECT gpuvec_weighted_sum_agg($users, 1, 2)', 'SELECT gpuvec_pool_agg($users, 1, 2, ''mean'', ''zero'')',
		'SELECT * FROM gpuvec_pool_grad($users, ''{1,2}'', ''{1,1}'')', 'SELECT * FROM gpuvec_pool_grad_batch($users, ''{1,2}'', ''{{1,1},{1,1}}'', hotness => 1)', 'SELECT gpuvec_pool_grad_weights($users, ''{1,2}'', ''{1,1}'')',
		'SELECT gpuvec_pool_grad_weights_batch($users, ''{1,2}'', ''{{1,1},{1,1}}'', hotness => 1)', 'SELECT * FROM gpuvec_nearest($users, ''{1,1}'')', 'SELECT * FROM gpuvec_nearest_batch($users, ''{{1,1},{1,2}}'')',
		'SELECT * FROM gpuvec_nearest_keys($users)', 'SELECT * FROM gpuvec_nearest_keys($users, ''{1}'')', 'SELECT gpuvec_prewarm($users)', 'SELECT gpuvec_ensure_keys($users, ''{2,3}'')', 'SELECT gpuvec_apply_grad($users, ''{1}'', ''{{1,1}}'')']),
	('{users.id}', ARRAY['SELECT gpuvec_ensure_keys($users, ''{2,3}'', 2)']),
	('{users.id,users.v,state.key,state.step,state.m,state.v}', ARRAY['DELETE FROM secret_state; SELECT gpuvec_apply_grad($users, ''{1}'', ''{{1,1}}'', ''adagrad'', 0.1, ''secret_state'')', 'SELECT gpuvec_apply_grad($users, ''{1}'', ''{{1,1}}'', ''adam'', 0.1, ''secret_state'')']),
	('{users.id,users.v,items.id,items.v}', ARRAY['SELECT * FROM gpuvec_recommend(''secret_users'', ''secret_items'')', 'SELECT * FROM gpuvec_recommend(''secret_users'', ''secret_items'', ''{1}'', 1)']),
	('{users.id,users.v,items.id,items.v,events.u,events.i}', ARRAY['SELECT * FROM gpuvec_recommend(''secret_users'', ''secret_items'', ''{1}'', 1, ''secret_events'', ''u'', ''i'')']),
	('{items.id,items.v,events.u,events.i,events.w}', ARRAY['SELECT * FROM gpuvec_als_fold_in($events, ''secret_items'', NULL, ''w'')', 'SELECT * FROM gpuvec_als_explain($events, ''secret_items'', 1, 1, ''w'')']),
	('{events.u,events.i,events.w}', ARRAY['SELECT * FROM gpuvec_item_neighbors($events, 5, ''w'')', 'SELECT * FROM gpuvec_als($events, ''secret_users'', ''secret_items'', ''w'', 2, 1)']),
	('{events.u,events.i,events.w,users.id,users.v,items.id,items.v}', ARRAY['SELECT * FROM gpuvec_als($events, ''secret_users'', ''secret_items'', ''w'', 2, 1, warm_start => true)'])
	) r (columns, statements);
-- with all rights, and with all but one
CREATE FUNCTION regress_sec.states(lacking text) RETURNS TABLE (statement text, expected text, got text) LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT t, string_agg(quote_ident(c), ', ') FILTER (WHERE lacking IS DISTINCT FROM replace(t::text, 'secret_', '') || '.' || c) AS columns FROM secret_columns GROUP BY t LOOP
		EXECUTE format('REVOKE ALL ON %s FROM regress_sec_tenant; GRANT INSERT, UPDATE, DELETE, SELECT (%s) ON %1$s TO regress_sec_tenant', r.t, r.columns);
	END LOOP;
	RETURN QUERY SELECT s, CASE WHEN lacking = ANY (columns) THEN '42501' ELSE 'ALLOW' END,
			regress_sec.state_of(replace(replace(s, '$users', '''secret_users'', ''id'', ''v'''), '$events', '''secret_events'', ''u'', ''i'''))
		FROM secret_readers, unnest(statements) s;
END $$;
SELECT lacking, count(*) FILTER (WHERE got = '42501') AS denied, count(*) FILTER (WHERE got = 'ALLOW') AS allowed, string_agg(statement || ' ' || got, '; ') FILTER (WHERE got <> expected) AS wrong
	FROM (SELECT NULL UNION ALL SELECT replace(t::text, 'secret_', '') || '.' || c FROM secret_columns) l (lacking), regress_sec.states(lacking) GROUP BY lacking ORDER BY lacking COLLATE "C" NULLS FIRST;
DROP VIEW secret_readers, secret_columns;
DROP TABLE secret_users, secret_items, secret_state, secret_events;

SET client_min_messages = warning;
DROP VIEW told;
DROP TABLE others, tenants, items, state, vectors;
DROP FUNCTION planned_rows;
DROP SCHEMA regress_sec CASCADE;
REVOKE CREATE ON SCHEMA :extschema FROM regress_sec_mallory;
DROP OWNED BY regress_sec_mallory CASCADE;
DROP ROLE regress_sec_mallory, regress_sec_tenant;
