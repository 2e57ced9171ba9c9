-- Casts between idvec and the type sparsevec of the extension vector
-- (pgvector), which need not be installed: here is a type of the
-- same name and layout (dimensions, number, 32 bits unused, indexes from 0 on,
-- values), which is read and written like bytea.
SET client_min_messages = warning;
CREATE FUNCTION try(statement text, OUT state text, OUT result text, OUT detail text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement INTO result;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, result = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
END$$;
-- neither the extension nor the type; then a type of that name alone; then an
-- extension without it
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
CREATE TYPE sparsevec;
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
CREATE FUNCTION sparsevec_in(cstring) RETURNS sparsevec AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION sparsevec_out(sparsevec) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION sparsevec_typmod_in(cstring[]) RETURNS int AS 'bittypmodin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION sparsevec_typmod_out(int) RETURNS cstring AS 'bittypmodout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE sparsevec (INPUT = sparsevec_in, OUTPUT = sparsevec_out, TYPMOD_IN = sparsevec_typmod_in, TYPMOD_OUT = sparsevec_typmod_out, ALIGNMENT = int4, STORAGE = external);
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) SELECT 79998, 'vector', extowner, extnamespace, false, '0' FROM pg_extension WHERE extname = 'gpuvec';
RESET allow_system_table_mods;
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
-- a domain of that name, though the extension has it
CREATE SCHEMA decoy;
CREATE DOMAIN decoy.sparsevec AS bytea;
ALTER EXTENSION vector ADD DOMAIN decoy.sparsevec;
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
ALTER EXTENSION vector ADD TYPE sparsevec;
-- only superusers make functions in C
CREATE ROLE regress_sparsevec;
GRANT CREATE ON SCHEMA public TO regress_sparsevec;
SET ROLE regress_sparsevec;
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
-- a function that is there already is not taken, whoever has made it, and
-- nothing is made beside it
CREATE FUNCTION public.idvec(sparsevec) RETURNS idvec LANGUAGE sql IMMUTABLE AS $$SELECT '{666:1}'::idvec$$;
RESET ROLE;
CREATE VIEW made AS SELECT castsource::regtype AS source, casttarget::regtype AS target, castcontext AS context, castfunc::regprocedure AS function, pg_get_userbyid(proowner) = current_user AS mine, prosrc, provolatile, proisstrict, proparallel,
	obj_description(c.oid, 'pg_cast') AS comment, (SELECT count(*) FROM pg_depend WHERE deptype = 'e' AND (classid, objid) IN (('pg_cast'::regclass, c.oid), ('pg_proc'::regclass, p.oid))) AS of_extensions
	FROM pg_cast c JOIN pg_proc p ON castfunc = p.oid WHERE 'sparsevec'::regtype IN (castsource, casttarget);
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
SELECT count(*) FROM made;
SELECT proname, pg_get_userbyid(proowner) AS owner, l.lanname FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE proname IN ('idvec', 'idvec_to_sparsevec') AND 'sparsevec'::regtype = ANY (proargtypes::oid[] || prorettype);
DROP FUNCTION idvec(sparsevec);
SET ROLE regress_sparsevec;
CREATE FUNCTION public.idvec_to_sparsevec(idvec, int, bool) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS $$SELECT '\x010203'::sparsevec$$;
RESET ROLE;
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
SELECT count(*) FROM made;
SELECT proname, pg_get_userbyid(proowner) AS owner, l.lanname FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE proname IN ('idvec', 'idvec_to_sparsevec') AND 'sparsevec'::regtype = ANY (proargtypes::oid[] || prorettype);
DROP FUNCTION idvec_to_sparsevec(idvec, int, bool);
-- types of the search path are not meant
CREATE DOMAIN decoy.int4 AS text;
CREATE DOMAIN decoy.bool AS text;
CREATE DOMAIN decoy.idvec AS text;
SET search_path = decoy, public, pg_catalog;
SELECT public.gpuvec_sparsevec_casts();
RESET search_path;
\x
SELECT * FROM made ORDER BY source::text;
\x
-- twice is as good as once; others find all done
SELECT gpuvec_sparsevec_casts();
SET ROLE regress_sparsevec;
SELECT gpuvec_sparsevec_casts();
RESET ROLE;
SELECT count(*) FROM made;
-- one that is missing is made again
DROP CAST (idvec AS sparsevec);
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
DROP FUNCTION idvec_to_sparsevec(idvec, int, bool);
SELECT gpuvec_sparsevec_casts();
SELECT count(*) FROM made;
-- values: pgvector's {1:0.5,3:2}/5
SELECT '\x05000000020000000000000000000000020000000000003f00000040'::sparsevec::idvec AS vector, '{1:0.5,3:2}'::idvec::sparsevec AS three, '{1:0.5,3:2}'::idvec::sparsevec(5) AS five, '{}'::idvec::sparsevec AS empty, '{}'::idvec::sparsevec(7) AS empty_of_seven,
	   '\x070000000000000000000000'::sparsevec::idvec AS none;
CREATE FUNCTION le(bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT encode(substr($1, 4, 1) || substr($1, 3, 1) || substr($1, 2, 1) || substr($1, 1, 1), 'hex')$$;
CREATE FUNCTION sparse(dimensions int, n int, indexes int[], vals real[]) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS
	$$SELECT ('\x' || le(int4send(dimensions)) || le(int4send(n)) || '00000000' || (SELECT coalesce(string_agg(le(int4send(x)), '' ORDER BY o), '') FROM unnest(indexes) WITH ORDINALITY u(x, o)) ||
		(SELECT coalesce(string_agg(le(float4send(x)), '' ORDER BY o), '') FROM unnest(vals) WITH ORDINALITY u(x, o)))::sparsevec$$;
SELECT sparse(5, 2, '{0,2}', '{0.5,2}')::idvec, sparse(2147483647, 2, '{65535,2147483646}', '{-1,3e38}')::idvec, sparse(5, 2, '{2,0}', '{1,255}')::idvec AS unsorted, sparse(5, 3, '{0,1,2}', '{0,-0,7}')::idvec AS zeros, sparse(9, 1, '{0}', '{1e-45}')::idvec;
SELECT '{65536:-1,1000000000:255}'::idvec::sparsevec::text = sparse(1000000000, 2, '{65535,999999999}', '{-1,255}')::text AS greatest, '{1:1}'::idvec::sparsevec::text = sparse(1, 1, '{0}', '{1}')::text AS least;
CREATE TABLE columns (id int PRIMARY KEY, v idvec, s sparsevec, s5 sparsevec(5));
INSERT INTO columns VALUES (1, sparse(5, 1, '{4}', '{0.25}'), '{2:1}'::idvec, '{2:1,5:3}'::idvec);	-- by assignment
SELECT * FROM columns;
UPDATE columns SET v = s5, s = v;
SELECT id, v, s::idvec FROM columns;
SELECT NULL::idvec::sparsevec IS NULL AND NULL::sparsevec::idvec IS NULL AS strict;
SELECT statement, t.* FROM unnest(ARRAY[$$'{0:1}'::idvec::sparsevec$$, $$'{0:1,5:2}'::idvec::sparsevec(5)$$, $$'{6:1}'::idvec::sparsevec(5)$$, $$'{1:1,6:1}'::idvec::sparsevec(5)$$, $$'{1000000001:1}'::idvec::sparsevec$$, $$'{2147483648:1}'::idvec::sparsevec$$,
	$$'{4294967295:1}'::idvec::sparsevec$$, $$'{4294967295:1}'::idvec::sparsevec(5)$$]) WITH ORDINALITY u(statement, n), try('SELECT ' || statement) t ORDER BY n;
SELECT * FROM try($$INSERT INTO columns (id, s5) VALUES (2, '{6:1}'::idvec)$$);
SELECT state, result, detail FROM try($$SELECT idvec(array_agg(i), array_agg(1::real))::sparsevec FROM generate_series(1, 16001) i$$);
SELECT length(idvec(array_agg(i), array_agg(1::real))::sparsevec::text) FROM generate_series(1, 16000) i;
-- what is no sparsevec is an error, and nothing is read behind its end
SELECT what, t.state, t.result FROM (VALUES
	(1, 'nothing', '\x'), (2, 'no whole head', '\x0500000000000000000000'), (3, 'no indexes', '\x050000000100000000000000'), (4, 'no values', '\x05000000010000000000000000000000'), (5, 'as it should be', '\x050000000100000000000000000000000000803f'),
	(6, 'a byte short', '\x05000000010000000000000000000000000080'), (7, 'a byte more', '\x050000000100000000000000000000000000803f00'), (8, 'a pair more', '\x05000000010000000000000000000000000000000000803f0000803f'),
	(9, 'negative', '\x05000000ffffffff00000000000000000000803f'), (10, 'least', '\x050000000000008000000000'), (11, 'greatest', '\x05000000ffffff7f00000000'), (12, 'wraps around 32 bits', '\x050000000000002000000000'),
	(13, 'wraps to one', '\x050000000100002000000000000000000000803f'), (14, 'one too many', '\x050000000200000000000000000000000000803f')) w(n, what, value), try(format('SELECT %L::sparsevec::idvec', value)) t ORDER BY n;
SELECT what, t.* FROM (VALUES (1, 'twice', $$sparse(5, 2, '{1,1}', '{1,2}')$$), (2, 'before the first', $$sparse(5, 1, '{-2}', '{1}')$$), (3, 'just before the first', $$sparse(5, 1, '{-1}', '{1}')$$), (4, 'NaN', $$sparse(5, 1, '{1}', '{NaN}')$$),
	(5, 'infinite', $$sparse(5, 1, '{1}', '{-Infinity}')$$), (6, 'least', $$sparse(5, 1, '{-2147483648}', '{1}')$$), (7, 'behind the last', $$sparse(5, 1, '{5}', '{1}')$$)) w(n, what, value), try('SELECT ' || value || '::idvec') t ORDER BY n;
-- the function, called with other numbers than a type can have
SELECT statement, t.* FROM unnest(ARRAY[$$'{1000000001:1}', 2147483647$$, $$'{1000000000:1}', 2147483647$$, $$'{3:1}', 0$$, $$'{3:1}', -2147483648$$]) WITH ORDINALITY u(statement, n), try(format('SELECT idvec_to_sparsevec(%s, true)', statement)) t ORDER BY n;
-- stored ones, short and out of line
CREATE TABLE stored AS SELECT i AS id, idvec(array_agg(1 + k * (1 + i % 7) * CASE WHEN i % 2 = 0 THEN 1 ELSE 65536 END), array_agg(CASE WHEN i % 3 = 0 THEN k % 255 + 1 ELSE k - 4.5 END::real)) AS v FROM generate_series(1, 40) i, generate_series(0, CASE WHEN i % 10 = 9 THEN 1500 ELSE i % 9 END) k GROUP BY i;
ALTER TABLE stored ADD s sparsevec;
UPDATE stored SET s = v;
SELECT count(*), count(*) FILTER (WHERE s::idvec IS DISTINCT FROM v OR s::text IS DISTINCT FROM v::sparsevec::text) AS wrong, count(*) FILTER (WHERE pg_column_size(s) > 4000) AS long,
	   count(*) FILTER (WHERE s::text IS DISTINCT FROM (SELECT sparse(max(e.id)::int, count(*)::int, array_agg(e.id::int - 1 ORDER BY e.id), array_agg(value ORDER BY e.id))::text FROM idvec_each(v) e)) AS by_layout FROM stored;
DROP TABLE columns, stored;
-- they go with either of their types
DROP VIEW made;
DROP FUNCTION sparse;
DROP EXTENSION vector CASCADE;
SELECT count(*) FROM pg_proc WHERE proname = 'idvec_to_sparsevec' OR prosrc = 'sparsevec_to_idvec';
SELECT * FROM try('SELECT gpuvec_sparsevec_casts()');
REVOKE CREATE ON SCHEMA public FROM regress_sparsevec;
DROP ROLE regress_sparsevec;
DROP SCHEMA decoy CASCADE;
DROP FUNCTION try, le;
RESET client_min_messages;
