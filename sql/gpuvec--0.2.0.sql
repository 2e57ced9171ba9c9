/* sql/gpuvec--0.2.0.sql */

\echo Use "CREATE EXTENSION gpuvec" to load this file. \quit

-- each script begins with this question, an update's as well

CREATE FUNCTION gpuvec_library_version(at_least text DEFAULT NULL) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_library_version(text) IS 'version of the installed library; an error if it is lower than the argument';
SELECT gpuvec_library_version('0.2.0'::text);

-- type idset

CREATE TYPE idset;

CREATE FUNCTION idset_in(cstring) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_in(cstring) IS 'text input of idset';

CREATE FUNCTION idset_out(idset) RETURNS cstring
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_out(idset) IS 'text output of idset';

CREATE FUNCTION idset_recv(internal) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_recv(internal) IS 'binary input of idset';

CREATE FUNCTION idset_send(idset) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_send(idset) IS 'binary output of idset';

CREATE FUNCTION idset_typanalyze(internal) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_typanalyze(internal) IS 'statistics of idset columns';

-- ALIGNMENT int4: PostgreSQL reads the four-byte header of a varlena as an
-- int4.  Short values have a one-byte header and need no padding.  STORAGE
-- external: ids do not compress well, and a search detoasts many values.
CREATE TYPE idset (
	INPUT = idset_in, OUTPUT = idset_out, RECEIVE = idset_recv, SEND = idset_send,
	ANALYZE = idset_typanalyze,
	INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = external
);
COMMENT ON TYPE idset IS 'a set of up to 65,536 ids 0 to 4294967295; two bytes an id if all are below 65536, else four';

-- Casts are AS ASSIGNMENT: implicit casts would change the meaning of
-- expressions on plain arrays.

CREATE FUNCTION idset(int2[]) RETURNS idset
	AS 'MODULE_PATHNAME', 'int2_array_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(int2[]) IS 'convert int2[] to idset';

CREATE CAST (int2[] AS idset) WITH FUNCTION idset(int2[]) AS ASSIGNMENT;
COMMENT ON CAST (int2[] AS idset) IS 'negative numbers and nulls are errors';

CREATE FUNCTION idset(int4[]) RETURNS idset
	AS 'MODULE_PATHNAME', 'int4_array_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(int4[]) IS 'convert int4[] to idset';

CREATE CAST (int4[] AS idset) WITH FUNCTION idset(int4[]) AS ASSIGNMENT;
COMMENT ON CAST (int4[] AS idset) IS 'negative numbers and nulls are errors';

CREATE FUNCTION idset(int8[]) RETURNS idset
	AS 'MODULE_PATHNAME', 'int8_array_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(int8[]) IS 'convert int8[] to idset';

CREATE CAST (int8[] AS idset) WITH FUNCTION idset(int8[]) AS ASSIGNMENT;
COMMENT ON CAST (int8[] AS idset) IS 'ids outside 0 to 4294967295 and nulls are errors';

CREATE FUNCTION idset_to_int4_array(idset) RETURNS int4[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_int4_array(idset) IS 'convert idset to int4[]';

CREATE CAST (idset AS int4[]) WITH FUNCTION idset_to_int4_array(idset) AS ASSIGNMENT;
COMMENT ON CAST (idset AS int4[]) IS 'ids in ascending order; an id above 2147483647 is an error';

CREATE FUNCTION idset_to_int8_array(idset) RETURNS int8[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_int8_array(idset) IS 'convert idset to int8[]';

CREATE CAST (idset AS int8[]) WITH FUNCTION idset_to_int8_array(idset) AS ASSIGNMENT;
COMMENT ON CAST (idset AS int8[]) IS 'ids in ascending order';

CREATE FUNCTION idset_to_json(idset) RETURNS json
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_json(idset) IS 'convert idset to a JSON array';

CREATE CAST (idset AS json) WITH FUNCTION idset_to_json(idset) AS ASSIGNMENT;
COMMENT ON CAST (idset AS json) IS 'a JSON array of ids in ascending order';

CREATE FUNCTION idset_to_int2_array(idset) RETURNS int2[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_int2_array(idset) IS 'convert idset to int2[]';

CREATE CAST (idset AS int2[]) WITH FUNCTION idset_to_int2_array(idset) AS ASSIGNMENT;
COMMENT ON CAST (idset AS int2[]) IS 'ids in ascending order; one above 32767 is an error';

CREATE FUNCTION idset_to_jsonb(idset) RETURNS jsonb
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_jsonb(idset) IS 'convert idset to a JSON array';

CREATE CAST (idset AS jsonb) WITH FUNCTION idset_to_jsonb(idset) AS ASSIGNMENT;
COMMENT ON CAST (idset AS jsonb) IS 'a JSON array of ids in ascending order';

CREATE FUNCTION idset(json) RETURNS idset
	AS 'MODULE_PATHNAME', 'json_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(json) IS 'convert a JSON array to idset';

CREATE CAST (json AS idset) WITH FUNCTION idset(json) AS ASSIGNMENT;
COMMENT ON CAST (json AS idset) IS 'an array of whole numbers; anything else is an error';

CREATE FUNCTION idset(jsonb) RETURNS idset
	AS 'MODULE_PATHNAME', 'jsonb_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(jsonb) IS 'convert a JSON array to idset';

CREATE CAST (jsonb AS idset) WITH FUNCTION idset(jsonb) AS ASSIGNMENT;
COMMENT ON CAST (jsonb AS idset) IS 'an array of whole numbers; anything else is an error';

CREATE FUNCTION idset_array(int4[]) RETURNS idset[]
	AS 'MODULE_PATHNAME', 'int4_rows_to_idsets' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_array(int4[]) IS 'convert int4[][] to idset[]';

CREATE CAST (int4[] AS idset[]) WITH FUNCTION idset_array(int4[]);
COMMENT ON CAST (int4[] AS idset[]) IS 'each row of an array of two dimensions is a set';

CREATE FUNCTION idset_array(int8[]) RETURNS idset[]
	AS 'MODULE_PATHNAME', 'int8_rows_to_idsets' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_array(int8[]) IS 'convert int8[][] to idset[]';

CREATE CAST (int8[] AS idset[]) WITH FUNCTION idset_array(int8[]);
COMMENT ON CAST (int8[] AS idset[]) IS 'each row of an array of two dimensions is a set';

CREATE FUNCTION idset(varbit) RETURNS idset
	AS 'MODULE_PATHNAME', 'varbit_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(varbit) IS 'convert a bit string to idset';

CREATE CAST (bit AS idset) WITH FUNCTION idset(varbit);
COMMENT ON CAST (bit AS idset) IS 'bit i, from the left and from 0, is id i';

CREATE CAST (varbit AS idset) WITH FUNCTION idset(varbit);
COMMENT ON CAST (varbit AS idset) IS 'bit i, from the left and from 0, is id i';

CREATE FUNCTION idset_to_bit(idset, bits int4) RETURNS bit
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_bit(idset, int4) IS 'bits of ids, of the given length';

CREATE FUNCTION idset_cast_to_bit(idset, int4) RETURNS bit
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_cast_to_bit(idset, int4) IS 'convert idset to bit(n)';

CREATE CAST (idset AS bit) WITH FUNCTION idset_cast_to_bit(idset, int4);
COMMENT ON CAST (idset AS bit) IS 'an id that does not fit the length is an error';

CREATE FUNCTION idset_cast_to_varbit(idset, int4) RETURNS varbit
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_cast_to_varbit(idset, int4) IS 'convert idset to varbit(n)';

CREATE CAST (idset AS varbit) WITH FUNCTION idset_cast_to_varbit(idset, int4);
COMMENT ON CAST (idset AS varbit) IS 'as many bits as the greatest id needs';

CREATE FUNCTION idset_from_bytea(bytea) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_from_bytea(bytea) IS 'the set of the bits that are set; bit 0 is the least significant bit of the first byte';

CREATE FUNCTION idset_to_bytea(idset, bytes int4) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_to_bytea(idset, int4) IS 'bits of ids in so many bytes; bit 0 is the least significant bit of the first byte';

-- comparison operators and operator classes

CREATE FUNCTION idset_lt(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_lt(idset, idset) IS 'implementation of < operator';

CREATE OPERATOR < (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
COMMENT ON OPERATOR < (idset, idset) IS 'less than';

CREATE FUNCTION idset_le(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_le(idset, idset) IS 'implementation of <= operator';

CREATE OPERATOR <= (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
COMMENT ON OPERATOR <= (idset, idset) IS 'less than or equal';

CREATE FUNCTION idset_eq(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_eq(idset, idset) IS 'implementation of = operator';

CREATE OPERATOR = (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR = (idset, idset) IS 'equal';

CREATE FUNCTION idset_ne(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_ne(idset, idset) IS 'implementation of <> operator';

CREATE OPERATOR <> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel
);
COMMENT ON OPERATOR <> (idset, idset) IS 'not equal';

CREATE FUNCTION idset_ge(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_ge(idset, idset) IS 'implementation of >= operator';

CREATE OPERATOR >= (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel
);
COMMENT ON OPERATOR >= (idset, idset) IS 'greater than or equal';

CREATE FUNCTION idset_gt(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_gt(idset, idset) IS 'implementation of > operator';

CREATE OPERATOR > (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
COMMENT ON OPERATOR > (idset, idset) IS 'greater than';

CREATE FUNCTION idset_cmp(idset, idset) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idset_cmp(idset, idset) IS 'less-equal-greater';

CREATE FUNCTION hash_idset(idset) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION hash_idset(idset) IS 'hash';

CREATE FUNCTION hash_idset_extended(idset, int8) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION hash_idset_extended(idset, int8) IS 'hash';

CREATE OPERATOR CLASS idset_btree_ops DEFAULT FOR TYPE idset USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 idset_cmp(idset, idset),
	FUNCTION 4 btequalimage(oid);	-- equal sets are equal bytes
COMMENT ON OPERATOR CLASS idset_btree_ops USING btree IS 'order of sets, like arrays: by the first id in which they differ, a set before the sets that begin with it';
COMMENT ON OPERATOR FAMILY idset_btree_ops USING btree IS 'order of sets';

CREATE OPERATOR CLASS idset_hash_ops DEFAULT FOR TYPE idset USING hash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_idset(idset),
	FUNCTION 2 hash_idset_extended(idset, int8);
COMMENT ON OPERATOR CLASS idset_hash_ops USING hash IS 'hashing of sets';
COMMENT ON OPERATOR FAMILY idset_hash_ops USING hash IS 'hashing of sets';

-- Operators of two sets.  No operator has an integer array on one side: it
-- would be chosen for array_column && '{...}', and the column's GIN index
-- would not be used.

CREATE FUNCTION idset_overlaps(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_overlaps(idset, idset) IS 'implementation of && operator';

CREATE FUNCTION idset_contains(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_contains(idset, idset) IS 'implementation of @> operator';

CREATE FUNCTION idset_contained(idset, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_contained(idset, idset) IS 'implementation of <@ operator';

CREATE FUNCTION idset_overlapsel(internal, oid, internal, int4) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_overlapsel(internal, oid, internal, int4) IS 'restriction selectivity of &&';

CREATE FUNCTION idset_containsel(internal, oid, internal, int4) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_containsel(internal, oid, internal, int4) IS 'restriction selectivity of @>';

CREATE FUNCTION idset_containedsel(internal, oid, internal, int4) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_containedsel(internal, oid, internal, int4) IS 'restriction selectivity of <@';

CREATE FUNCTION idset_thresholdsel(internal, oid, internal, int4) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_thresholdsel(internal, oid, internal, int4) IS 'restriction selectivity of <<->>';

CREATE FUNCTION idset_overlapjoinsel(internal, oid, internal, int2, internal) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_overlapjoinsel(internal, oid, internal, int2, internal) IS 'join selectivity of &&';

CREATE FUNCTION idset_containjoinsel(internal, oid, internal, int2, internal) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_containjoinsel(internal, oid, internal, int2, internal) IS 'join selectivity of @>';

CREATE FUNCTION idset_containedjoinsel(internal, oid, internal, int2, internal) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_containedjoinsel(internal, oid, internal, int2, internal) IS 'join selectivity of <@';

CREATE FUNCTION idset_thresholdjoinsel(internal, oid, internal, int2, internal) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_thresholdjoinsel(internal, oid, internal, int2, internal) IS 'join selectivity of <<->>';

CREATE OPERATOR && (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_overlaps,
	COMMUTATOR = &&, RESTRICT = idset_overlapsel, JOIN = idset_overlapjoinsel
);
COMMENT ON OPERATOR && (idset, idset) IS 'have a common id';

CREATE OPERATOR @> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_contains,
	COMMUTATOR = <@, RESTRICT = idset_containsel, JOIN = idset_containjoinsel
);
COMMENT ON OPERATOR @> (idset, idset) IS 'contains';

CREATE OPERATOR <@ (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_contained,
	COMMUTATOR = @>, RESTRICT = idset_containedsel, JOIN = idset_containedjoinsel
);
COMMENT ON OPERATOR <@ (idset, idset) IS 'is contained in';

CREATE FUNCTION idset_intersect(idset, idset) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_intersect(idset, idset) IS 'implementation of & operator';

CREATE OPERATOR & (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_intersect, COMMUTATOR = &
);
COMMENT ON OPERATOR & (idset, idset) IS 'intersection';

CREATE FUNCTION idset_unite(idset, idset) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_unite(idset, idset) IS 'implementation of | operator';

CREATE OPERATOR | (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_unite, COMMUTATOR = |
);
COMMENT ON OPERATOR | (idset, idset) IS 'union';

CREATE FUNCTION idset_subtract(idset, idset) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_subtract(idset, idset) IS 'implementation of - operator';

CREATE OPERATOR - (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_subtract
);
COMMENT ON OPERATOR - (idset, idset) IS 'difference';

CREATE FUNCTION idset_differ(idset, idset) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_differ(idset, idset) IS 'implementation of # operator';

CREATE OPERATOR # (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_differ, COMMUTATOR = #
);
COMMENT ON OPERATOR # (idset, idset) IS 'symmetric difference';

-- operators of a set and a single id

CREATE FUNCTION idset_add_id(idset, int8) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_add_id(idset, int8) IS 'implementation of | operator';

CREATE FUNCTION idset_id_add(int8, idset) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_id_add(int8, idset) IS 'implementation of | operator';

CREATE FUNCTION idset_remove_id(idset, int8) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_remove_id(idset, int8) IS 'implementation of - operator';

CREATE FUNCTION idset_contains_id(idset, int8) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_contains_id(idset, int8) IS 'implementation of @> operator';

CREATE FUNCTION idset_id_contained(int8, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_id_contained(int8, idset) IS 'implementation of <@ operator';

CREATE OPERATOR | (LEFTARG = idset, RIGHTARG = int8, FUNCTION = idset_add_id, COMMUTATOR = |);
COMMENT ON OPERATOR | (idset, int8) IS 'add an id';

CREATE OPERATOR | (LEFTARG = int8, RIGHTARG = idset, FUNCTION = idset_id_add, COMMUTATOR = |);
COMMENT ON OPERATOR | (int8, idset) IS 'add an id';

CREATE OPERATOR - (LEFTARG = idset, RIGHTARG = int8, FUNCTION = idset_remove_id);
COMMENT ON OPERATOR - (idset, int8) IS 'remove an id';

CREATE OPERATOR @> (
	LEFTARG = idset, RIGHTARG = int8, FUNCTION = idset_contains_id,
	COMMUTATOR = <@, RESTRICT = idset_containsel, JOIN = idset_containjoinsel
);
COMMENT ON OPERATOR @> (idset, int8) IS 'contains the id';

CREATE OPERATOR <@ (
	LEFTARG = int8, RIGHTARG = idset, FUNCTION = idset_id_contained,
	COMMUTATOR = @>, RESTRICT = idset_containedsel, JOIN = idset_containedjoinsel
);
COMMENT ON OPERATOR <@ (int8, idset) IS 'is an id of';

-- functions

CREATE FUNCTION cardinality(idset) RETURNS int4
	AS 'MODULE_PATHNAME', 'idset_cardinality' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION cardinality(idset) IS 'number of ids';

CREATE FUNCTION idset_unnest_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION idset_unnest_support(internal) IS 'planner support of unnest(idset)';

CREATE FUNCTION unnest(idset) RETURNS SETOF int8
	AS 'MODULE_PATHNAME', 'idset_unnest' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 50
	SUPPORT idset_unnest_support;
COMMENT ON FUNCTION unnest(idset) IS 'ids as rows, ascending';

CREATE FUNCTION idset_min(idset) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_min(idset) IS 'the least id; null if there is none';

CREATE FUNCTION idset_max(idset) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_max(idset) IS 'the greatest id; null if there is none';

CREATE FUNCTION idset_nth(idset, n int8) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_nth(idset, int8) IS 'the n-th id in ascending order, from 1; null if there is none';

CREATE FUNCTION idset_rank(idset, number int8) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_rank(idset, int8) IS 'number of ids that are not greater than a number';

CREATE FUNCTION idset_range(idset, from_id int8, to_id int8) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_range(idset, int8, int8) IS 'ids from the first number to below the second';

CREATE FUNCTION idset_range_count(idset, from_id int8, to_id int8) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_range_count(idset, int8, int8) IS 'number of ids from the first number to below the second';

CREATE FUNCTION idset_shift(idset, by_number int8) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_shift(idset, int8) IS 'all ids with a number added; what is no id then is dropped';

-- aggregates

CREATE FUNCTION idset_agg_transfn(internal, int8) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idset_agg_transfn(internal, int8) IS 'transition function of idset_agg';

CREATE FUNCTION idset_union_transfn(internal, idset) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_union_transfn(internal, idset) IS 'transition function of idset_union';

CREATE FUNCTION idset_collect_combinefn(internal, internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_collect_combinefn(internal, internal) IS 'combine function of idset_agg and idset_union';

CREATE FUNCTION idset_collect_serialfn(internal) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_collect_serialfn(internal) IS 'serialization function of idset_agg and idset_union';

CREATE FUNCTION idset_collect_deserialfn(bytea, internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_collect_deserialfn(bytea, internal) IS 'deserialization function of idset_agg and idset_union';

CREATE FUNCTION idset_collect_finalfn(internal) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_collect_finalfn(internal) IS 'final function of idset_agg and idset_union';

CREATE AGGREGATE idset_agg(int8) (
	SFUNC = idset_agg_transfn, STYPE = internal, SSPACE = 256, FINALFUNC = idset_collect_finalfn,
	COMBINEFUNC = idset_collect_combinefn, SERIALFUNC = idset_collect_serialfn,
	DESERIALFUNC = idset_collect_deserialfn, PARALLEL = SAFE
);
COMMENT ON AGGREGATE idset_agg(int8) IS 'the set of all ids; nulls are skipped';

CREATE AGGREGATE idset_union(idset) (
	SFUNC = idset_union_transfn, STYPE = internal, SSPACE = 1024, FINALFUNC = idset_collect_finalfn,
	COMBINEFUNC = idset_collect_combinefn, SERIALFUNC = idset_collect_serialfn,
	DESERIALFUNC = idset_collect_deserialfn, PARALLEL = SAFE
);
COMMENT ON AGGREGATE idset_union(idset) IS 'the union of all sets; nulls are skipped';

CREATE AGGREGATE idset_intersection(idset) (
	SFUNC = idset_intersect, STYPE = idset, COMBINEFUNC = idset_intersect, PARALLEL = SAFE
);
COMMENT ON AGGREGATE idset_intersection(idset) IS 'the intersection of all sets; nulls are skipped';

CREATE AGGREGATE idset_symmetric_difference(idset) (
	SFUNC = idset_differ, STYPE = idset, COMBINEFUNC = idset_differ, PARALLEL = SAFE
);
COMMENT ON AGGREGATE idset_symmetric_difference(idset) IS 'ids that an odd number of sets have; nulls are skipped';

-- sets of text

CREATE FUNCTION idset_trigrams(text) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idset_trigrams(text) IS 'trigrams of a text, as pg_trgm has them';

CREATE FUNCTION idset_words(regconfig, text) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idset_words(regconfig, text) IS 'hashes of the lexemes of to_tsvector';

CREATE FUNCTION idset_shingles(document text, n int4) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idset_shingles(text, int4) IS 'hashes of each run of n words';

CREATE FUNCTION idset_ngrams(document text, n int4) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idset_ngrams(text, int4) IS 'hashes of each run of n characters';

CREATE FUNCTION idset_hash(anyarray) RETURNS idset
	AS 'MODULE_PATHNAME', 'idset_hash_array' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_hash(anyarray) IS 'hashes of the elements of an array';

-- idset_decode is restricted, for workers cannot read temporary tables

CREATE FUNCTION idset_encode(dictionary regclass, tokens text[], grow bool DEFAULT true) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION idset_encode(regclass, text[], bool) IS 'ids of tokens by a dictionary, which gets those that it lacks';

CREATE FUNCTION idset_decode(dictionary regclass, set idset) RETURNS text[]
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 1000;
COMMENT ON FUNCTION idset_decode(regclass, idset) IS 'tokens of a set by its dictionary, in the order of ids';

-- Similarity measures.  With the suffix, names differ from those of other
-- extensions' functions of text.

CREATE FUNCTION braun_blanquet_similarity(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION braun_blanquet_similarity(idset, idset) IS 'i / max(a, b), with i common ids of sets of a and b ids';

CREATE FUNCTION jaccard_similarity(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION jaccard_similarity(idset, idset) IS 'i / (a + b - i), with i common ids of sets of a and b ids';

CREATE FUNCTION cosine_similarity(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION cosine_similarity(idset, idset) IS 'sqrt(i * i / (a * b)), with i common ids of sets of a and b ids';

CREATE FUNCTION dice_similarity(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION dice_similarity(idset, idset) IS '2i / (a + b), with i common ids of sets of a and b ids';

CREATE FUNCTION overlap_similarity(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION overlap_similarity(idset, idset) IS 'i / min(a, b), with i common ids of sets of a and b ids';

CREATE FUNCTION containment_similarity(query idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION containment_similarity(idset, idset) IS 'i / a, with i common ids and a ids of the query';

CREATE FUNCTION kulczynski_similarity(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION kulczynski_similarity(idset, idset) IS 'i * (a + b) / (2 * a * b), the mean of i / a and i / b, with i common ids of sets of a and b ids';

CREATE FUNCTION tversky_similarity(query idset, idset, alpha float8, beta float8) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION tversky_similarity(idset, idset, float8, float8) IS 'i / (i + alpha * (a - i) + beta * (b - i)), with i common ids, a ids of the query and b of the other set';

CREATE FUNCTION intersection_count(idset, idset) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION intersection_count(idset, idset) IS 'number of common ids';

CREATE FUNCTION hamming_distance(idset, idset) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION hamming_distance(idset, idset) IS 'number of ids that only one of the sets has';

CREATE FUNCTION union_count(idset, idset) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION union_count(idset, idset) IS 'number of ids that any of the sets has';

CREATE FUNCTION difference_count(idset, idset) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION difference_count(idset, idset) IS 'number of ids that the first set has and the second has not';

-- distance operators

CREATE FUNCTION idset_braun_blanquet_distance(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_braun_blanquet_distance(idset, idset) IS 'implementation of <-> operator';

CREATE OPERATOR <-> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_braun_blanquet_distance, COMMUTATOR = <->
);
COMMENT ON OPERATOR <-> (idset, idset) IS 'Braun-Blanquet distance: (max(a, b) - i) / max(a, b)';

CREATE FUNCTION idset_jaccard_distance(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_jaccard_distance(idset, idset) IS 'implementation of <%> operator';

CREATE OPERATOR <%> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_jaccard_distance, COMMUTATOR = <%>
);
COMMENT ON OPERATOR <%> (idset, idset) IS 'Jaccard distance: (a + b - 2i) / (a + b - i)';

CREATE FUNCTION idset_cosine_distance(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_cosine_distance(idset, idset) IS 'implementation of <=> operator';

CREATE OPERATOR <=> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_cosine_distance, COMMUTATOR = <=>
);
COMMENT ON OPERATOR <=> (idset, idset) IS 'cosine distance: 1 - sqrt(i * i / (a * b))';

CREATE FUNCTION idset_negative_intersection(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_negative_intersection(idset, idset) IS 'implementation of <#> operator';

CREATE OPERATOR <#> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_negative_intersection, COMMUTATOR = <#>
);
COMMENT ON OPERATOR <#> (idset, idset) IS 'negated number of common ids';

CREATE FUNCTION idset_hamming_distance(idset, idset) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_hamming_distance(idset, idset) IS 'implementation of <~> operator';

CREATE OPERATOR <~> (
	LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_hamming_distance, COMMUTATOR = <~>
);
COMMENT ON OPERATOR <~> (idset, idset) IS 'number of ids that only one of the sets has';

-- threshold search

CREATE TYPE idset_threshold AS (query idset, min_score float8, measure text);
COMMENT ON TYPE idset_threshold IS 'a query, the least score, and the measure (null: braun_blanquet)';
COMMENT ON COLUMN idset_threshold.query IS 'the set to compare with';
COMMENT ON COLUMN idset_threshold.min_score IS 'the least score';
COMMENT ON COLUMN idset_threshold.measure IS 'name of the measure; null: braun_blanquet';

CREATE FUNCTION idset_threshold(query idset, min_score float8, measure text DEFAULT 'braun_blanquet')
	RETURNS idset_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idset_threshold(idset, float8, text) IS 'the right side of the operator <<->>';

-- the planner makes conditions with these of comparisons of scores and
-- distances

CREATE FUNCTION idset_reaching(query idset, min_score float8, measure text) RETURNS idset_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_reaching(idset, float8, text) IS 'the right side of <<->> that finds what reaches a score; null if that is NaN';

CREATE FUNCTION idset_within(query idset, max_distance float8, measure text) RETURNS idset_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_within(idset, float8, text) IS 'the right side of <<->> that finds all that is at most so far, and what is a rounding error farther';

CREATE FUNCTION idset_limit(bound float8, scale float8, shift float8, slack float8) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_limit(float8, float8, float8, float8) IS 'the score for which scale * score + shift is the bound, plus slack';

CREATE FUNCTION idset_limit(bound numeric, scale float8, shift float8, slack float8) RETURNS float8
	AS 'MODULE_PATHNAME', 'idset_limit_numeric' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_limit(numeric, float8, float8, float8) IS 'the score for which scale * score + shift is the bound, plus slack';

CREATE FUNCTION idset_reaches_threshold(idset, idset_threshold) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_reaches_threshold(idset, idset_threshold) IS 'implementation of <<->> operator';

CREATE OPERATOR <<->> (
	LEFTARG = idset, RIGHTARG = idset_threshold, FUNCTION = idset_reaches_threshold,
	RESTRICT = idset_thresholdsel, JOIN = idset_thresholdjoinsel
);
COMMENT ON OPERATOR <<->> (idset, idset_threshold) IS 'has at least the score with the query';

-- queries

CREATE TYPE idset_query;

CREATE FUNCTION idset_query_in(cstring) RETURNS idset_query
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_query_in(cstring) IS 'text input of idset_query';

CREATE FUNCTION idset_query_out(idset_query) RETURNS cstring
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_query_out(idset_query) IS 'text output of idset_query';

CREATE FUNCTION idset_query_recv(internal) RETURNS idset_query
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_query_recv(internal) IS 'binary input of idset_query';

CREATE FUNCTION idset_query_send(idset_query) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_query_send(idset_query) IS 'binary output of idset_query';

CREATE TYPE idset_query (
	INPUT = idset_query_in, OUTPUT = idset_query_out, RECEIVE = idset_query_recv, SEND = idset_query_send,
	INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = extended
);
COMMENT ON TYPE idset_query IS 'a boolean expression of ids, like 1 & (2 | !3)';

CREATE FUNCTION idset_querysel(internal, oid, internal, int4) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_querysel(internal, oid, internal, int4) IS 'restriction selectivity of @@ and ~~';

CREATE FUNCTION idset_query_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idset_query_support(internal) IS 'planner support of @@ and ~~';

CREATE FUNCTION idset_matches_query(idset, idset_query) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE SUPPORT idset_query_support;
COMMENT ON FUNCTION idset_matches_query(idset, idset_query) IS 'implementation of @@ operator';

CREATE FUNCTION idset_query_matches(idset_query, idset) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE SUPPORT idset_query_support;
COMMENT ON FUNCTION idset_query_matches(idset_query, idset) IS 'implementation of ~~ operator';

CREATE OPERATOR @@ (
	LEFTARG = idset, RIGHTARG = idset_query, FUNCTION = idset_matches_query,
	COMMUTATOR = ~~, RESTRICT = idset_querysel, JOIN = contjoinsel
);
COMMENT ON OPERATOR @@ (idset, idset_query) IS 'matches the query';

CREATE OPERATOR ~~ (
	LEFTARG = idset_query, RIGHTARG = idset, FUNCTION = idset_query_matches,
	COMMUTATOR = @@, RESTRICT = idset_querysel, JOIN = contjoinsel
);
COMMENT ON OPERATOR ~~ (idset_query, idset) IS 'is matched by the set';

-- type idvec: ids with values

CREATE TYPE idvec;

CREATE FUNCTION idvec_in(cstring) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_in(cstring) IS 'text input of idvec';

CREATE FUNCTION idvec_out(idvec) RETURNS cstring
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_out(idvec) IS 'text output of idvec';

CREATE FUNCTION idvec_recv(internal) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_recv(internal) IS 'binary input of idvec';

CREATE FUNCTION idvec_send(idvec) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_send(idvec) IS 'binary output of idvec';

CREATE FUNCTION idvec_typanalyze(internal) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_typanalyze(internal) IS 'statistics of idvec columns';

-- alignment and storage as those of idset
CREATE TYPE idvec (
	INPUT = idvec_in, OUTPUT = idvec_out, RECEIVE = idvec_recv, SEND = idvec_send,
	ANALYZE = idvec_typanalyze,
	INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = external
);
COMMENT ON TYPE idvec IS 'up to 65,536 ids 0 to 4294967295, each with a value of type real that is not 0';

CREATE FUNCTION idvec(idset) RETURNS idvec
	AS 'MODULE_PATHNAME', 'idset_to_idvec' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec(idset) IS 'convert idset to idvec';

CREATE CAST (idset AS idvec) WITH FUNCTION idvec(idset) AS ASSIGNMENT;
COMMENT ON CAST (idset AS idvec) IS 'all values are 1';

CREATE FUNCTION idset(idvec) RETURNS idset
	AS 'MODULE_PATHNAME', 'idvec_to_idset' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset(idvec) IS 'convert idvec to idset';

CREATE CAST (idvec AS idset) WITH FUNCTION idset(idvec);
COMMENT ON CAST (idvec AS idset) IS 'the ids without their values';

CREATE FUNCTION idvec(int8[], float4[]) RETURNS idvec
	AS 'MODULE_PATHNAME', 'arrays_to_idvec' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec(int8[], float4[]) IS 'a vector of ids and their values, in any order';

CREATE FUNCTION idvec_values(idvec) RETURNS float4[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_values(idvec) IS 'values in ascending order of their ids';

CREATE FUNCTION idvec_each(idvec, OUT id int8, OUT value float4) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 50;
COMMENT ON FUNCTION idvec_each(idvec) IS 'ids and their values as rows, ascending by id';

CREATE FUNCTION idvec(json) RETURNS idvec
	AS 'MODULE_PATHNAME', 'json_to_idvec' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec(json) IS 'convert a JSON object to idvec';

CREATE CAST (json AS idvec) WITH FUNCTION idvec(json) AS ASSIGNMENT;
COMMENT ON CAST (json AS idvec) IS 'an object of ids and their values; anything else is an error';

CREATE FUNCTION idvec(jsonb) RETURNS idvec
	AS 'MODULE_PATHNAME', 'jsonb_to_idvec' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec(jsonb) IS 'convert a JSON object to idvec';

CREATE CAST (jsonb AS idvec) WITH FUNCTION idvec(jsonb) AS ASSIGNMENT;
COMMENT ON CAST (jsonb AS idvec) IS 'an object of ids and their values; anything else is an error';

CREATE FUNCTION idvec_to_json(idvec) RETURNS json
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_to_json(idvec) IS 'convert idvec to a JSON object';

CREATE CAST (idvec AS json) WITH FUNCTION idvec_to_json(idvec) AS ASSIGNMENT;
COMMENT ON CAST (idvec AS json) IS 'a JSON object of ids and their values';

CREATE FUNCTION idvec_to_jsonb(idvec) RETURNS jsonb
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_to_jsonb(idvec) IS 'convert idvec to a JSON object';

CREATE CAST (idvec AS jsonb) WITH FUNCTION idvec_to_jsonb(idvec) AS ASSIGNMENT;
COMMENT ON CAST (idvec AS jsonb) IS 'a JSON object of ids and their values';

-- what it makes belongs to its caller, not to the extension, so a dump has it
CREATE FUNCTION gpuvec_sparsevec_casts() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION gpuvec_sparsevec_casts() IS 'make casts between idvec and the type sparsevec of the extension vector';

CREATE FUNCTION idvec_lt(idvec, idvec) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_lt(idvec, idvec) IS 'implementation of < operator';

CREATE OPERATOR < (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
COMMENT ON OPERATOR < (idvec, idvec) IS 'less than';

CREATE FUNCTION idvec_le(idvec, idvec) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_le(idvec, idvec) IS 'implementation of <= operator';

CREATE OPERATOR <= (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
COMMENT ON OPERATOR <= (idvec, idvec) IS 'less than or equal';

CREATE FUNCTION idvec_eq(idvec, idvec) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_eq(idvec, idvec) IS 'implementation of = operator';

CREATE OPERATOR = (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR = (idvec, idvec) IS 'equal';

CREATE FUNCTION idvec_ne(idvec, idvec) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_ne(idvec, idvec) IS 'implementation of <> operator';

CREATE OPERATOR <> (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel
);
COMMENT ON OPERATOR <> (idvec, idvec) IS 'not equal';

CREATE FUNCTION idvec_ge(idvec, idvec) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_ge(idvec, idvec) IS 'implementation of >= operator';

CREATE OPERATOR >= (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel
);
COMMENT ON OPERATOR >= (idvec, idvec) IS 'greater than or equal';

CREATE FUNCTION idvec_gt(idvec, idvec) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_gt(idvec, idvec) IS 'implementation of > operator';

CREATE OPERATOR > (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
COMMENT ON OPERATOR > (idvec, idvec) IS 'greater than';

CREATE FUNCTION idvec_cmp(idvec, idvec) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION idvec_cmp(idvec, idvec) IS 'less-equal-greater';

CREATE FUNCTION hash_idvec(idvec) RETURNS int4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION hash_idvec(idvec) IS 'hash';

CREATE FUNCTION hash_idvec_extended(idvec, int8) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION hash_idvec_extended(idvec, int8) IS 'hash';

CREATE OPERATOR CLASS idvec_btree_ops DEFAULT FOR TYPE idvec USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 idvec_cmp(idvec, idvec),
	FUNCTION 4 btequalimage(oid);	-- equal vectors are equal bytes
COMMENT ON OPERATOR CLASS idvec_btree_ops USING btree IS 'order of vectors: by the first pair in which they differ, a vector before those that begin with it';
COMMENT ON OPERATOR FAMILY idvec_btree_ops USING btree IS 'order of vectors';

CREATE OPERATOR CLASS idvec_hash_ops DEFAULT FOR TYPE idvec USING hash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_idvec(idvec),
	FUNCTION 2 hash_idvec_extended(idvec, int8);
COMMENT ON OPERATOR CLASS idvec_hash_ops USING hash IS 'hashing of vectors';
COMMENT ON OPERATOR FAMILY idvec_hash_ops USING hash IS 'hashing of vectors';

CREATE FUNCTION idvec_add(idvec, idvec) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_add(idvec, idvec) IS 'implementation of + operator';

CREATE OPERATOR + (LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_add, COMMUTATOR = +);
COMMENT ON OPERATOR + (idvec, idvec) IS 'add values';

CREATE FUNCTION idvec_subtract(idvec, idvec) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_subtract(idvec, idvec) IS 'implementation of - operator';

CREATE OPERATOR - (LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_subtract);
COMMENT ON OPERATOR - (idvec, idvec) IS 'subtract values';

CREATE FUNCTION idvec_multiply(idvec, float8) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_multiply(idvec, float8) IS 'implementation of * operator';

CREATE FUNCTION idvec_multiplied(float8, idvec) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_multiplied(float8, idvec) IS 'implementation of * operator';

CREATE OPERATOR * (LEFTARG = idvec, RIGHTARG = float8, FUNCTION = idvec_multiply, COMMUTATOR = *);
COMMENT ON OPERATOR * (idvec, float8) IS 'multiply values';

CREATE OPERATOR * (LEFTARG = float8, RIGHTARG = idvec, FUNCTION = idvec_multiplied, COMMUTATOR = *);
COMMENT ON OPERATOR * (float8, idvec) IS 'multiply values';

CREATE FUNCTION idvec_keep(idvec, idset) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_keep(idvec, idset) IS 'implementation of & operator';

CREATE OPERATOR & (LEFTARG = idvec, RIGHTARG = idset, FUNCTION = idvec_keep);
COMMENT ON OPERATOR & (idvec, idset) IS 'the ids of a set, with their values';

CREATE FUNCTION idvec_remove(idvec, idset) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_remove(idvec, idset) IS 'implementation of - operator';

CREATE OPERATOR - (LEFTARG = idvec, RIGHTARG = idset, FUNCTION = idvec_remove);
COMMENT ON OPERATOR - (idvec, idset) IS 'without the ids of a set';

CREATE FUNCTION cardinality(idvec) RETURNS int4
	AS 'MODULE_PATHNAME', 'idvec_cardinality' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION cardinality(idvec) IS 'number of ids';

CREATE FUNCTION idvec_norm(idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_norm(idvec) IS 'square root of the sum of the squares of the values';

CREATE FUNCTION idvec_sum(idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_sum(idvec) IS 'sum of the values';

CREATE FUNCTION idvec_value(idvec, id int8) RETURNS float4
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_value(idvec, int8) IS 'value of an id; 0 if it is not there';

CREATE FUNCTION idvec_agg_transfn(internal, int8, float8) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idvec_agg_transfn(internal, int8, float8) IS 'transition function of idvec_agg';

CREATE FUNCTION idvec_agg_combinefn(internal, internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idvec_agg_combinefn(internal, internal) IS 'combine function of idvec_agg';

CREATE FUNCTION idvec_agg_serialfn(internal) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_agg_serialfn(internal) IS 'serialization function of idvec_agg';

CREATE FUNCTION idvec_agg_deserialfn(bytea, internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_agg_deserialfn(bytea, internal) IS 'deserialization function of idvec_agg';

CREATE FUNCTION idvec_agg_finalfn(internal) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idvec_agg_finalfn(internal) IS 'final function of idvec_agg';

CREATE AGGREGATE idvec_agg(id int8, value float8) (
	SFUNC = idvec_agg_transfn, STYPE = internal, SSPACE = 512, FINALFUNC = idvec_agg_finalfn,
	COMBINEFUNC = idvec_agg_combinefn, SERIALFUNC = idvec_agg_serialfn,
	DESERIALFUNC = idvec_agg_deserialfn, PARALLEL = SAFE
);
COMMENT ON AGGREGATE idvec_agg(int8, float8) IS 'a vector of all ids, whose values are added up; rows with a null are skipped';

CREATE FUNCTION idvec_trigrams(text) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idvec_trigrams(text) IS 'how often each id of idset_trigrams is there';

CREATE FUNCTION idvec_words(regconfig, text) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idvec_words(regconfig, text) IS 'how often each id of idset_words is there';

CREATE FUNCTION idvec_shingles(document text, n int4) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idvec_shingles(text, int4) IS 'how often each id of idset_shingles is there';

CREATE FUNCTION idvec_ngrams(document text, n int4) RETURNS idvec
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION idvec_ngrams(text, int4) IS 'how often each id of idset_ngrams is there';

-- Measures.  Functions have names that no function of sets has, for the
-- server could not choose one for two literals.  Operators share theirs, so
-- one of two literals needs a type.

CREATE FUNCTION idvec_inner_product(idvec, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_inner_product(idvec, idvec) IS 'sum of the products of the values of common ids';

CREATE FUNCTION idset_inner_product(idset, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_inner_product(idset, idvec) IS 'sum of the values that a vector has for the ids of a set';

CREATE FUNCTION idvec_cosine_similarity(idvec, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_cosine_similarity(idvec, idvec) IS 'inner product, divided by both norms';

CREATE FUNCTION idvec_jaccard_similarity(idvec, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_jaccard_similarity(idvec, idvec) IS 'm / (a + b - m), with m the sum of the lesser values of common ids, for vectors of sums a and b';

CREATE FUNCTION idvec_negative_inner_product(idvec, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_negative_inner_product(idvec, idvec) IS 'implementation of <#> operator';

CREATE OPERATOR <#> (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_negative_inner_product, COMMUTATOR = <#>
);
COMMENT ON OPERATOR <#> (idvec, idvec) IS 'negated inner product';

CREATE FUNCTION idvec_cosine_distance(idvec, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_cosine_distance(idvec, idvec) IS 'implementation of <=> operator';

CREATE OPERATOR <=> (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_cosine_distance, COMMUTATOR = <=>
);
COMMENT ON OPERATOR <=> (idvec, idvec) IS 'cosine distance: 1 - idvec_cosine_similarity';

CREATE FUNCTION idvec_jaccard_distance(idvec, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_jaccard_distance(idvec, idvec) IS 'implementation of <%> operator';

CREATE OPERATOR <%> (
	LEFTARG = idvec, RIGHTARG = idvec, FUNCTION = idvec_jaccard_distance, COMMUTATOR = <%>
);
COMMENT ON OPERATOR <%> (idvec, idvec) IS 'Jaccard distance: 1 - idvec_jaccard_similarity';

CREATE FUNCTION idset_negative_inner_product(idset, idvec) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_negative_inner_product(idset, idvec) IS 'implementation of <#> operator';

CREATE FUNCTION idset_negative_inner_product(idvec, idset) RETURNS float8
	AS 'MODULE_PATHNAME', 'negative_inner_product_idset' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_negative_inner_product(idvec, idset) IS 'implementation of <#> operator';

CREATE OPERATOR <#> (
	LEFTARG = idset, RIGHTARG = idvec, FUNCTION = idset_negative_inner_product, COMMUTATOR = <#>
);
COMMENT ON OPERATOR <#> (idset, idvec) IS 'negated sum of the values of common ids';

CREATE OPERATOR <#> (
	LEFTARG = idvec, RIGHTARG = idset, FUNCTION = idset_negative_inner_product, COMMUTATOR = <#>
);
COMMENT ON OPERATOR <#> (idvec, idset) IS 'negated sum of the values of common ids';

-- index access method

CREATE FUNCTION gpuvec_handler(internal) RETURNS index_am_handler
	AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION gpuvec_handler(internal) IS 'gpuvec index access method handler';

CREATE ACCESS METHOD gpuvec TYPE INDEX HANDLER gpuvec_handler;
COMMENT ON ACCESS METHOD gpuvec IS 'index access method for similarity search of sets and vectors';

CREATE OPERATOR CLASS idset_ops DEFAULT FOR TYPE idset USING gpuvec AS
	OPERATOR 1 <-> (idset, idset) FOR ORDER BY float_ops,
	OPERATOR 2 <%> (idset, idset) FOR ORDER BY float_ops,
	OPERATOR 3 <=> (idset, idset) FOR ORDER BY float_ops,
	OPERATOR 4 <#> (idset, idset) FOR ORDER BY float_ops,
	OPERATOR 5 <~> (idset, idset) FOR ORDER BY float_ops,
	OPERATOR 6 && (idset, idset),
	OPERATOR 7 @> (idset, idset),
	OPERATOR 7 @> (idset, int8),
	OPERATOR 8 = (idset, idset),
	OPERATOR 9 <@ (idset, idset),
	OPERATOR 10 <<->> (idset, idset_threshold);
COMMENT ON OPERATOR CLASS idset_ops USING gpuvec IS 'distances of sets';

-- Sets are ranked by sums of weights, too.

ALTER OPERATOR FAMILY idset_ops USING gpuvec ADD
	OPERATOR 4 <#> (idset, idvec) FOR ORDER BY float_ops;

CREATE TYPE idvec_threshold AS (query idvec, min_score float8, measure text);
COMMENT ON TYPE idvec_threshold IS 'a query, the least score, and the measure (null: inner_product)';
COMMENT ON COLUMN idvec_threshold.query IS 'the vector to compare with';
COMMENT ON COLUMN idvec_threshold.min_score IS 'the least score';
COMMENT ON COLUMN idvec_threshold.measure IS 'name of the measure; null: inner_product';

CREATE FUNCTION idvec_threshold(query idvec, min_score float8, measure text DEFAULT 'inner_product')
	RETURNS idvec_threshold
	AS 'MODULE_PATHNAME', 'idset_threshold' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idvec_threshold(idvec, float8, text) IS 'the right side of the operator <<->>';

CREATE FUNCTION idvec_reaching(query idvec, min_score float8, measure text) RETURNS idvec_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_reaching(idvec, float8, text) IS 'the right side of <<->> that finds what reaches a score';

CREATE FUNCTION idvec_within(query idvec, max_distance float8, measure text) RETURNS idvec_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION idvec_within(idvec, float8, text) IS 'the right side of <<->> that finds all that is at most so far, and what is a rounding error farther';

CREATE FUNCTION idvec_reaches_threshold(idvec, idvec_threshold) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idvec_reaches_threshold(idvec, idvec_threshold) IS 'implementation of <<->> operator';

CREATE OPERATOR <<->> (
	LEFTARG = idvec, RIGHTARG = idvec_threshold, FUNCTION = idvec_reaches_threshold,
	RESTRICT = contsel, JOIN = contjoinsel
);
COMMENT ON OPERATOR <<->> (idvec, idvec_threshold) IS 'has at least the score with the query';

CREATE OPERATOR CLASS idvec_ops DEFAULT FOR TYPE idvec USING gpuvec AS
	OPERATOR 2 <%> (idvec, idvec) FOR ORDER BY float_ops,
	OPERATOR 3 <=> (idvec, idvec) FOR ORDER BY float_ops,
	OPERATOR 4 <#> (idvec, idvec) FOR ORDER BY float_ops,
	OPERATOR 4 <#> (idvec, idset) FOR ORDER BY float_ops,
	OPERATOR 10 <<->> (idvec, idvec_threshold);
COMMENT ON OPERATOR CLASS idvec_ops USING gpuvec IS 'distances of vectors';
COMMENT ON OPERATOR FAMILY idvec_ops USING gpuvec IS 'distances of vectors';

-- Operator classes of filter columns: columns behind the first.  Comparisons
-- of two types are those that B-trees have, too.

CREATE OPERATOR FAMILY integer_ops USING gpuvec;
COMMENT ON OPERATOR FAMILY integer_ops USING gpuvec IS 'filters by integers';
CREATE OPERATOR FAMILY float_ops USING gpuvec;
COMMENT ON OPERATOR FAMILY float_ops USING gpuvec IS 'filters by floating-point numbers';

CREATE OPERATOR CLASS int2_ops DEFAULT FOR TYPE int2 USING gpuvec FAMILY integer_ops AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS int2_ops USING gpuvec IS 'filter by int2';

CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING gpuvec FAMILY integer_ops AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS int4_ops USING gpuvec IS 'filter by int4';

CREATE OPERATOR CLASS int8_ops DEFAULT FOR TYPE int8 USING gpuvec FAMILY integer_ops AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS int8_ops USING gpuvec IS 'filter by int8';

CREATE OPERATOR CLASS float4_ops DEFAULT FOR TYPE float4 USING gpuvec FAMILY float_ops AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS float4_ops USING gpuvec IS 'filter by float4';

CREATE OPERATOR CLASS float8_ops DEFAULT FOR TYPE float8 USING gpuvec FAMILY float_ops AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS float8_ops USING gpuvec IS 'filter by float8';

CREATE OPERATOR CLASS numeric_ops DEFAULT FOR TYPE numeric USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS numeric_ops USING gpuvec IS 'filter by numeric';
COMMENT ON OPERATOR FAMILY numeric_ops USING gpuvec IS 'filter by numeric';

CREATE OPERATOR CLASS date_ops DEFAULT FOR TYPE date USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS date_ops USING gpuvec IS 'filter by date';
COMMENT ON OPERATOR FAMILY date_ops USING gpuvec IS 'filter by date';

CREATE OPERATOR CLASS timestamp_ops DEFAULT FOR TYPE timestamp USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS timestamp_ops USING gpuvec IS 'filter by timestamp without time zone';
COMMENT ON OPERATOR FAMILY timestamp_ops USING gpuvec IS 'filter by timestamp without time zone';

CREATE OPERATOR CLASS timestamptz_ops DEFAULT FOR TYPE timestamptz USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS timestamptz_ops USING gpuvec IS 'filter by timestamp with time zone';
COMMENT ON OPERATOR FAMILY timestamptz_ops USING gpuvec IS 'filter by timestamp with time zone';

CREATE OPERATOR CLASS bool_ops DEFAULT FOR TYPE bool USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS bool_ops USING gpuvec IS 'filter by bool';
COMMENT ON OPERATOR FAMILY bool_ops USING gpuvec IS 'filter by bool';

CREATE OPERATOR CLASS text_ops DEFAULT FOR TYPE text USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS text_ops USING gpuvec IS 'filter by text and varchar';
COMMENT ON OPERATOR FAMILY text_ops USING gpuvec IS 'filter by text and varchar';

CREATE OPERATOR CLASS bpchar_ops DEFAULT FOR TYPE bpchar USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS bpchar_ops USING gpuvec IS 'filter by char(n)';
COMMENT ON OPERATOR FAMILY bpchar_ops USING gpuvec IS 'filter by char(n)';

CREATE OPERATOR CLASS uuid_ops DEFAULT FOR TYPE uuid USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS uuid_ops USING gpuvec IS 'filter by uuid';
COMMENT ON OPERATOR FAMILY uuid_ops USING gpuvec IS 'filter by uuid';

CREATE OPERATOR CLASS enum_ops DEFAULT FOR TYPE anyenum USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS enum_ops USING gpuvec IS 'filter by enums';
COMMENT ON OPERATOR FAMILY enum_ops USING gpuvec IS 'filter by enums';

CREATE OPERATOR CLASS inet_ops DEFAULT FOR TYPE inet USING gpuvec AS OPERATOR 13 =;
COMMENT ON OPERATOR CLASS inet_ops USING gpuvec IS 'filter by inet and cidr, for equality';
COMMENT ON OPERATOR FAMILY inet_ops USING gpuvec IS 'filter by inet and cidr, for equality';

CREATE OPERATOR CLASS macaddr_ops DEFAULT FOR TYPE macaddr USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS macaddr_ops USING gpuvec IS 'filter by macaddr';
COMMENT ON OPERATOR FAMILY macaddr_ops USING gpuvec IS 'filter by macaddr';

CREATE OPERATOR CLASS macaddr8_ops DEFAULT FOR TYPE macaddr8 USING gpuvec AS
	OPERATOR 11 <, OPERATOR 12 <=, OPERATOR 13 =, OPERATOR 14 >=, OPERATOR 15 >;
COMMENT ON OPERATOR CLASS macaddr8_ops USING gpuvec IS 'filter by macaddr8';
COMMENT ON OPERATOR FAMILY macaddr8_ops USING gpuvec IS 'filter by macaddr8';

ALTER OPERATOR FAMILY integer_ops USING gpuvec ADD
	OPERATOR 11 < (int2, int4), OPERATOR 12 <= (int2, int4), OPERATOR 13 = (int2, int4),
	OPERATOR 14 >= (int2, int4), OPERATOR 15 > (int2, int4),
	OPERATOR 11 < (int2, int8), OPERATOR 12 <= (int2, int8), OPERATOR 13 = (int2, int8),
	OPERATOR 14 >= (int2, int8), OPERATOR 15 > (int2, int8),
	OPERATOR 11 < (int4, int2), OPERATOR 12 <= (int4, int2), OPERATOR 13 = (int4, int2),
	OPERATOR 14 >= (int4, int2), OPERATOR 15 > (int4, int2),
	OPERATOR 11 < (int4, int8), OPERATOR 12 <= (int4, int8), OPERATOR 13 = (int4, int8),
	OPERATOR 14 >= (int4, int8), OPERATOR 15 > (int4, int8),
	OPERATOR 11 < (int8, int2), OPERATOR 12 <= (int8, int2), OPERATOR 13 = (int8, int2),
	OPERATOR 14 >= (int8, int2), OPERATOR 15 > (int8, int2),
	OPERATOR 11 < (int8, int4), OPERATOR 12 <= (int8, int4), OPERATOR 13 = (int8, int4),
	OPERATOR 14 >= (int8, int4), OPERATOR 15 > (int8, int4);
ALTER OPERATOR FAMILY float_ops USING gpuvec ADD
	OPERATOR 11 < (float4, float8), OPERATOR 12 <= (float4, float8), OPERATOR 13 = (float4, float8),
	OPERATOR 14 >= (float4, float8), OPERATOR 15 > (float4, float8),
	OPERATOR 11 < (float8, float4), OPERATOR 12 <= (float8, float4), OPERATOR 13 = (float8, float4),
	OPERATOR 14 >= (float8, float4), OPERATOR 15 > (float8, float4);

-- search functions

CREATE FUNCTION gpuvec_topk_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION gpuvec_topk_support(internal) IS 'planner support of the search functions';

CREATE FUNCTION gpuvec_topk(
	relation regclass, column_name name, query idset, k int8 DEFAULT 100,
	measure text DEFAULT 'braun_blanquet', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT rank int4, OUT source regclass, OUT tid tid, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 100
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_topk(regclass, name, idset, int8, text, float8, tid[])
	IS 'the k rows of a table whose sets are most similar to the query';

CREATE FUNCTION gpuvec_topk_batch(
	relation regclass, column_name name, queries idset[], k int8 DEFAULT 100,
	measure text DEFAULT 'braun_blanquet', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT query int4, OUT rank int4, OUT source regclass, OUT tid tid, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_topk_batch(regclass, name, idset[], int8, text, float8, tid[])
	IS 'the k most similar rows for each query of an array';

CREATE FUNCTION gpuvec_topk_rows(
	base anyelement, column_name name, query idset, k int8 DEFAULT 100,
	measure text DEFAULT 'braun_blanquet', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT rank int4, OUT item anyelement, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 100
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_topk_rows(anyelement, name, idset, int8, text, float8, tid[])
	IS 'the k most similar rows of the table whose row type the first argument has, as whole rows';

CREATE FUNCTION gpuvec_topk_batch_rows(
	base anyelement, column_name name, queries idset[], k int8 DEFAULT 100,
	measure text DEFAULT 'braun_blanquet', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT query int4, OUT rank int4, OUT item anyelement, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_topk_batch_rows(anyelement, name, idset[], int8, text, float8, tid[])
	IS 'the k most similar rows for each query of an array, as whole rows';

CREATE FUNCTION gpuvec_vec_topk(
	relation regclass, column_name name, query idvec, k int8 DEFAULT 100,
	measure text DEFAULT 'inner_product', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT rank int4, OUT source regclass, OUT tid tid, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 100
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_vec_topk(regclass, name, idvec, int8, text, float8, tid[])
	IS 'the k rows of a table that are most similar to a vector, such as by weights of their ids';

CREATE FUNCTION gpuvec_vec_topk_batch(
	relation regclass, column_name name, queries idvec[], k int8 DEFAULT 100,
	measure text DEFAULT 'inner_product', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT query int4, OUT rank int4, OUT source regclass, OUT tid tid, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_vec_topk_batch(regclass, name, idvec[], int8, text, float8, tid[])
	IS 'the k most similar rows for each vector of an array';

CREATE FUNCTION gpuvec_vec_topk_rows(
	base anyelement, column_name name, query idvec, k int8 DEFAULT 100,
	measure text DEFAULT 'inner_product', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT rank int4, OUT item anyelement, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 100
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_vec_topk_rows(anyelement, name, idvec, int8, text, float8, tid[])
	IS 'the k rows most similar to a vector, as whole rows; the first argument has the table''s row type';

CREATE FUNCTION gpuvec_vec_topk_batch_rows(
	base anyelement, column_name name, queries idvec[], k int8 DEFAULT 100,
	measure text DEFAULT 'inner_product', min_score float8 DEFAULT NULL, among tid[] DEFAULT NULL,
	OUT query int4, OUT rank int4, OUT item anyelement, OUT score float8, OUT common int4)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_topk_support;
COMMENT ON FUNCTION gpuvec_vec_topk_batch_rows(anyelement, name, idvec[], int8, text, float8, tid[])
	IS 'the k most similar rows for each vector of an array, as whole rows';
-- Orders by any measure.  An array has an operator of another name, as a
-- literal beside a ranking is a set.

CREATE TYPE idset_ranking AS (query idset, measure text);
COMMENT ON TYPE idset_ranking IS 'a query and the measure to rank sets by';
COMMENT ON COLUMN idset_ranking.query IS 'the set to compare with';
COMMENT ON COLUMN idset_ranking.measure IS 'name of the measure';

CREATE FUNCTION idset_ranking(query idset, measure text DEFAULT 'braun_blanquet') RETURNS idset_ranking
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION idset_ranking(idset, text) IS 'the right side of the operators <&> and <&~>';

CREATE FUNCTION idset_negative_score(idset, idset_ranking) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_negative_score(idset, idset_ranking) IS 'implementation of <&> operator';

CREATE OPERATOR <&> (
	LEFTARG = idset, RIGHTARG = idset_ranking, FUNCTION = idset_negative_score
);
COMMENT ON OPERATOR <&> (idset, idset_ranking) IS 'negated score with the query';

ALTER OPERATOR FAMILY idset_ops USING gpuvec ADD
	OPERATOR 16 <&> (idset, idset_ranking) FOR ORDER BY float_ops;

-- Arrays.  An index on a column of arrays keeps the sets of their elements,
-- which distances are defined on.  Searches by the server's own operators are
-- checked on the rows.  There is no <=> of two arrays: the extension rum has
-- an operator of this name.  Nor is there <<->> of an array: a literal beside
-- a threshold is a set.

CREATE FUNCTION idset_of_array(anyarray) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_of_array(anyarray) IS 'the elements of an array: the bits of int2 and int4, hashes of other types; without nulls';

CREATE FUNCTION array_braun_blanquet_distance(anyarray, anyarray) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION array_braun_blanquet_distance(anyarray, anyarray) IS 'implementation of <-> operator';

CREATE OPERATOR <-> (
	LEFTARG = anyarray, RIGHTARG = anyarray, FUNCTION = array_braun_blanquet_distance, COMMUTATOR = <->
);
COMMENT ON OPERATOR <-> (anyarray, anyarray) IS 'Braun-Blanquet distance of the sets of elements';

CREATE FUNCTION array_jaccard_distance(anyarray, anyarray) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION array_jaccard_distance(anyarray, anyarray) IS 'implementation of <%> operator';

CREATE OPERATOR <%> (
	LEFTARG = anyarray, RIGHTARG = anyarray, FUNCTION = array_jaccard_distance, COMMUTATOR = <%>
);
COMMENT ON OPERATOR <%> (anyarray, anyarray) IS 'Jaccard distance of the sets of elements';

CREATE FUNCTION array_negative_intersection(anyarray, anyarray) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION array_negative_intersection(anyarray, anyarray) IS 'implementation of <#> operator';

CREATE OPERATOR <#> (
	LEFTARG = anyarray, RIGHTARG = anyarray, FUNCTION = array_negative_intersection, COMMUTATOR = <#>
);
COMMENT ON OPERATOR <#> (anyarray, anyarray) IS 'negated number of common elements';

CREATE FUNCTION array_hamming_distance(anyarray, anyarray) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION array_hamming_distance(anyarray, anyarray) IS 'implementation of <~> operator';

CREATE OPERATOR <~> (
	LEFTARG = anyarray, RIGHTARG = anyarray, FUNCTION = array_hamming_distance, COMMUTATOR = <~>
);
COMMENT ON OPERATOR <~> (anyarray, anyarray) IS 'number of elements that only one of the arrays has';

CREATE FUNCTION idset_array_within(query anyarray, max_distance float8, measure text) RETURNS idset_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_array_within(anyarray, float8, text) IS 'as idset_within, for an array; all arrays are found if it may be too large for a set';

CREATE FUNCTION array_reaches_threshold(anyarray, idset_threshold) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION array_reaches_threshold(anyarray, idset_threshold) IS 'implementation of <<~>> operator';

CREATE OPERATOR <<~>> (
	LEFTARG = anyarray, RIGHTARG = idset_threshold, FUNCTION = array_reaches_threshold,
	RESTRICT = matchingsel, JOIN = matchingjoinsel
);
COMMENT ON OPERATOR <<~>> (anyarray, idset_threshold) IS 'the set of elements has at least the score with the query';

CREATE FUNCTION gpuvec_array_query(internal, int2, oid) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_array_query(internal, int2, oid) IS 'index support: the set that an operator''s right side is searched for by';

CREATE FUNCTION array_negative_score(anyarray, idset_ranking) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION array_negative_score(anyarray, idset_ranking) IS 'implementation of <&~> operator';

CREATE OPERATOR <&~> (
	LEFTARG = anyarray, RIGHTARG = idset_ranking, FUNCTION = array_negative_score
);
COMMENT ON OPERATOR <&~> (anyarray, idset_ranking) IS 'negated score of the set of elements with the query';

CREATE OPERATOR CLASS array_ops DEFAULT FOR TYPE anyarray USING gpuvec AS
	OPERATOR 1 <-> FOR ORDER BY float_ops,
	OPERATOR 2 <%> FOR ORDER BY float_ops,
	OPERATOR 4 <#> FOR ORDER BY float_ops,
	OPERATOR 5 <~> FOR ORDER BY float_ops,
	OPERATOR 6 pg_catalog.&&,
	OPERATOR 7 pg_catalog.@>,
	OPERATOR 8 pg_catalog.=,
	OPERATOR 9 pg_catalog.<@,
	OPERATOR 10 <<~>> (anyarray, idset_threshold),
	OPERATOR 16 <&~> (anyarray, idset_ranking) FOR ORDER BY float_ops,
	FUNCTION 1 idset_of_array(anyarray),
	FUNCTION 2 gpuvec_array_query(internal, int2, oid),
	STORAGE idset;
COMMENT ON OPERATOR CLASS array_ops USING gpuvec IS 'distances of arrays, and searches for their elements';
COMMENT ON OPERATOR FAMILY array_ops USING gpuvec IS 'distances of arrays';

-- Arrays in jsonb, of strings and numbers: the same.  Other values are refused
-- by an index.

CREATE FUNCTION idset_of_jsonb(jsonb) RETURNS idset
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_of_jsonb(jsonb) IS 'the strings and numbers of a jsonb array: hashes; without nulls';

CREATE FUNCTION jsonb_braun_blanquet_distance(jsonb, jsonb) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION jsonb_braun_blanquet_distance(jsonb, jsonb) IS 'implementation of <-> operator';

CREATE OPERATOR <-> (
	LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = jsonb_braun_blanquet_distance, COMMUTATOR = <->
);
COMMENT ON OPERATOR <-> (jsonb, jsonb) IS 'Braun-Blanquet distance of the sets of elements';

CREATE FUNCTION jsonb_jaccard_distance(jsonb, jsonb) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION jsonb_jaccard_distance(jsonb, jsonb) IS 'implementation of <%> operator';

CREATE OPERATOR <%> (
	LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = jsonb_jaccard_distance, COMMUTATOR = <%>
);
COMMENT ON OPERATOR <%> (jsonb, jsonb) IS 'Jaccard distance of the sets of elements';

CREATE FUNCTION jsonb_negative_intersection(jsonb, jsonb) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION jsonb_negative_intersection(jsonb, jsonb) IS 'implementation of <#> operator';

CREATE OPERATOR <#> (
	LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = jsonb_negative_intersection, COMMUTATOR = <#>
);
COMMENT ON OPERATOR <#> (jsonb, jsonb) IS 'negated number of common elements';

CREATE FUNCTION jsonb_hamming_distance(jsonb, jsonb) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION jsonb_hamming_distance(jsonb, jsonb) IS 'implementation of <~> operator';

CREATE OPERATOR <~> (
	LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = jsonb_hamming_distance, COMMUTATOR = <~>
);
COMMENT ON OPERATOR <~> (jsonb, jsonb) IS 'number of elements that only one of the arrays has';

CREATE FUNCTION idset_jsonb_within(query jsonb, max_distance float8, measure text) RETURNS idset_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_jsonb_within(jsonb, float8, text) IS 'as idset_within, for an array in jsonb; all are found if it may have no set';

CREATE FUNCTION jsonb_reaches_threshold(jsonb, idset_threshold) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION jsonb_reaches_threshold(jsonb, idset_threshold) IS 'implementation of <<~>> operator';

CREATE OPERATOR <<~>> (
	LEFTARG = jsonb, RIGHTARG = idset_threshold, FUNCTION = jsonb_reaches_threshold,
	RESTRICT = matchingsel, JOIN = matchingjoinsel
);
COMMENT ON OPERATOR <<~>> (jsonb, idset_threshold) IS 'the set of elements has at least the score with the query';

CREATE FUNCTION jsonb_negative_score(jsonb, idset_ranking) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION jsonb_negative_score(jsonb, idset_ranking) IS 'implementation of <&~> operator';

CREATE OPERATOR <&~> (
	LEFTARG = jsonb, RIGHTARG = idset_ranking, FUNCTION = jsonb_negative_score
);
COMMENT ON OPERATOR <&~> (jsonb, idset_ranking) IS 'negated score of the set of elements with the query';

CREATE FUNCTION gpuvec_jsonb_query(internal, int2, oid) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_jsonb_query(internal, int2, oid) IS 'index support: the set that an operator''s right side is searched for by';

CREATE OPERATOR CLASS jsonb_ops DEFAULT FOR TYPE jsonb USING gpuvec AS
	OPERATOR 1 <-> FOR ORDER BY float_ops,
	OPERATOR 2 <%> FOR ORDER BY float_ops,
	OPERATOR 4 <#> FOR ORDER BY float_ops,
	OPERATOR 5 <~> FOR ORDER BY float_ops,
	OPERATOR 6 pg_catalog.?| (jsonb, text[]),
	OPERATOR 7 pg_catalog.@>,
	OPERATOR 7 pg_catalog.? (jsonb, text),
	OPERATOR 7 pg_catalog.?& (jsonb, text[]),
	OPERATOR 8 pg_catalog.=,
	OPERATOR 9 pg_catalog.<@,
	OPERATOR 10 <<~>> (jsonb, idset_threshold),
	OPERATOR 16 <&~> (jsonb, idset_ranking) FOR ORDER BY float_ops,
	FUNCTION 1 idset_of_jsonb(jsonb),
	FUNCTION 2 gpuvec_jsonb_query(internal, int2, oid),
	STORAGE idset;
COMMENT ON OPERATOR CLASS jsonb_ops USING gpuvec IS 'distances of arrays in jsonb, and searches for their elements';
COMMENT ON OPERATOR FAMILY jsonb_ops USING gpuvec IS 'distances of arrays in jsonb';

-- Texts: the same by their trigrams.  Operators have names of their own, since
-- literals are texts where there is such an operator.

CREATE FUNCTION trgm_jaccard_distance(text, text) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION trgm_jaccard_distance(text, text) IS 'implementation of <%~> operator';

CREATE OPERATOR <%~> (
	LEFTARG = text, RIGHTARG = text, FUNCTION = trgm_jaccard_distance, COMMUTATOR = <%~>
);
COMMENT ON OPERATOR <%~> (text, text) IS 'Jaccard distance of the sets of trigrams';

CREATE FUNCTION idset_trgm_within(query text, max_distance float8, measure text) RETURNS idset_threshold
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION idset_trgm_within(text, float8, text) IS 'as idset_within, for the trigrams of a text; all texts are found if it may have too many';

CREATE FUNCTION trgm_reaches_threshold(text, idset_threshold) RETURNS bool
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION trgm_reaches_threshold(text, idset_threshold) IS 'implementation of <<%~>> operator';

CREATE OPERATOR <<%~>> (
	LEFTARG = text, RIGHTARG = idset_threshold, FUNCTION = trgm_reaches_threshold,
	RESTRICT = matchingsel, JOIN = matchingjoinsel
);
COMMENT ON OPERATOR <<%~>> (text, idset_threshold) IS 'the set of trigrams has at least the score with the query';

CREATE FUNCTION trgm_negative_score(text, idset_ranking) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION trgm_negative_score(text, idset_ranking) IS 'implementation of <&%~> operator';

CREATE OPERATOR <&%~> (
	LEFTARG = text, RIGHTARG = idset_ranking, FUNCTION = trgm_negative_score
);
COMMENT ON OPERATOR <&%~> (text, idset_ranking) IS 'negated score of the set of trigrams with the query';

CREATE FUNCTION gpuvec_trgm_query(internal, int2, oid) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_trgm_query(internal, int2, oid) IS 'index support: the set that an operator''s right side is searched for by';

CREATE OPERATOR CLASS gpuvec_trgm_ops FOR TYPE text USING gpuvec AS
	OPERATOR 2 <%~> FOR ORDER BY float_ops,
	OPERATOR 8 pg_catalog.=,
	OPERATOR 10 <<%~>> (text, idset_threshold),
	OPERATOR 16 <&%~> (text, idset_ranking) FOR ORDER BY float_ops,
	OPERATOR 17 pg_catalog.~~,
	OPERATOR 18 pg_catalog.~~*,
	FUNCTION 1 idset_trigrams(text),
	FUNCTION 2 gpuvec_trgm_query(internal, int2, oid),
	STORAGE idset;
COMMENT ON OPERATOR CLASS gpuvec_trgm_ops USING gpuvec IS 'distances of texts by their trigrams, =, LIKE and ILIKE';
COMMENT ON OPERATOR FAMILY gpuvec_trgm_ops USING gpuvec IS 'distances of texts by their trigrams';

CREATE FUNCTION gpuvec_overlaps_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION gpuvec_overlaps_support(internal) IS 'planner support of gpuvec_overlaps';

CREATE FUNCTION gpuvec_overlaps(
	relation regclass, column_name name, sets idset[],
	OUT a int4, OUT b int4, OUT "rows" int8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 55
	SUPPORT gpuvec_overlaps_support;
COMMENT ON FUNCTION gpuvec_overlaps(regclass, name, idset[])
	IS 'how many rows of a table share an id with two sets of an array both, for all pairs of sets';

-- embedding tables

CREATE FUNCTION gpuvec_vectors_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION gpuvec_vectors_support(internal) IS 'planner support of the functions that return rows with vectors';

CREATE FUNCTION gpuvec_gather(
	relation regclass, key_column name, column_name name, keys int8[],
	OUT ordinality int8, OUT key int8, OUT found bool, OUT embedding real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 100
	SUPPORT gpuvec_vectors_support;
COMMENT ON FUNCTION gpuvec_gather(regclass, name, name, int8[]) IS 'keys with their vectors';

CREATE FUNCTION gpuvec_gather_batch(
	relation regclass, key_column name, column_name name, keys int8[],
	offsets int8[] DEFAULT NULL, hotness int8 DEFAULT NULL,
	OUT sample int8, OUT ordinality int8, OUT key int8, OUT found bool, OUT embedding real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_vectors_support;
COMMENT ON FUNCTION gpuvec_gather_batch(regclass, name, name, int8[], int8[], int8)
	IS 'the keys of many bags with their vectors';

CREATE FUNCTION gpuvec_pool(
	relation regclass, key_column name, column_name name, keys int8[],
	mode text DEFAULT 'sum', weights float8[] DEFAULT NULL, missing text DEFAULT 'zero')
	RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000;
COMMENT ON FUNCTION gpuvec_pool(regclass, name, name, int8[], text, float8[], text)
	IS 'the sum, mean or concatenation of the vectors of keys';

CREATE FUNCTION gpuvec_pool_batch(
	relation regclass, key_column name, column_name name, keys int8[],
	offsets int8[] DEFAULT NULL, hotness int8 DEFAULT NULL, slots int8 DEFAULT 1,
	mode text DEFAULT 'sum', weights float8[] DEFAULT NULL, missing text DEFAULT 'zero',
	OUT sample int8, OUT embedding real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_vectors_support;
COMMENT ON FUNCTION gpuvec_pool_batch(regclass, name, name, int8[], int8[], int8, int8, text, float8[], text)
	IS 'the sums, means or concatenations of the vectors of many bags of keys';

CREATE FUNCTION gpuvec_pool_agg_finalfn(internal) RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_pool_agg_finalfn(internal) IS 'final function of the aggregates that pool';

-- Each aggregate has its own name.  If one name had several numbers of
-- arguments, a misplaced ORDER BY would count as one more argument.

CREATE FUNCTION gpuvec_pool_agg_transfn(internal, regclass, name, name, int8) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_pool_agg_transfn(internal, regclass, name, name, int8)
	IS 'transition function of gpuvec_sum_agg';

CREATE AGGREGATE gpuvec_sum_agg(relation regclass, key_column name, column_name name, key int8) (
	SFUNC = gpuvec_pool_agg_transfn, STYPE = internal, SSPACE = 128, FINALFUNC = gpuvec_pool_agg_finalfn,
	PARALLEL = RESTRICTED
);
COMMENT ON AGGREGATE gpuvec_sum_agg(regclass, name, name, int8)
	IS 'the sum of the vectors of the keys of each group';

CREATE FUNCTION gpuvec_pool_agg_transfn(internal, regclass, name, name, int8, float8) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_pool_agg_transfn(internal, regclass, name, name, int8, float8)
	IS 'transition function of gpuvec_weighted_sum_agg';

CREATE AGGREGATE gpuvec_weighted_sum_agg(relation regclass, key_column name, column_name name, key int8, weight float8) (
	SFUNC = gpuvec_pool_agg_transfn, STYPE = internal, SSPACE = 128, FINALFUNC = gpuvec_pool_agg_finalfn,
	PARALLEL = RESTRICTED
);
COMMENT ON AGGREGATE gpuvec_weighted_sum_agg(regclass, name, name, int8, float8)
	IS 'the weighted sum of the vectors of the keys of each group';

CREATE FUNCTION gpuvec_pool_agg_transfn(internal, regclass, name, name, int8, float8, text, text) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_pool_agg_transfn(internal, regclass, name, name, int8, float8, text, text)
	IS 'transition function of gpuvec_pool_agg';

CREATE AGGREGATE gpuvec_pool_agg(relation regclass, key_column name, column_name name, key int8, weight float8, mode text, missing text) (
	SFUNC = gpuvec_pool_agg_transfn, STYPE = internal, SSPACE = 128, FINALFUNC = gpuvec_pool_agg_finalfn,
	PARALLEL = RESTRICTED
);
COMMENT ON AGGREGATE gpuvec_pool_agg(regclass, name, name, int8, float8, text, text)
	IS 'the sum, mean or concatenation of the vectors of the keys of each group';

CREATE TYPE gpuvec_bags AS (keys int8[], offsets int8[], weights float8[]);
COMMENT ON TYPE gpuvec_bags IS 'many bags of keys, as the functions named _batch take them';
COMMENT ON COLUMN gpuvec_bags.keys IS 'the keys of all bags, one behind the other';
COMMENT ON COLUMN gpuvec_bags.offsets IS 'where each bag begins, and the number of keys';
COMMENT ON COLUMN gpuvec_bags.weights IS 'the weight of each key; null: none';

CREATE FUNCTION gpuvec_bags_agg_finalfn(internal) RETURNS gpuvec_bags
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_bags_agg_finalfn(internal) IS 'final function of gpuvec_bags_agg and gpuvec_weighted_bags_agg';

CREATE FUNCTION gpuvec_bags_agg_transfn(internal, int8[]) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_bags_agg_transfn(internal, int8[]) IS 'transition function of gpuvec_bags_agg';

CREATE AGGREGATE gpuvec_bags_agg(keys int8[]) (
	SFUNC = gpuvec_bags_agg_transfn, STYPE = internal, SSPACE = 4096, FINALFUNC = gpuvec_bags_agg_finalfn,
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE gpuvec_bags_agg(int8[]) IS 'one batch of many bags of keys';

CREATE FUNCTION gpuvec_bags_agg_transfn(internal, int8[], float8[]) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_bags_agg_transfn(internal, int8[], float8[]) IS 'transition function of gpuvec_weighted_bags_agg';

CREATE AGGREGATE gpuvec_weighted_bags_agg(keys int8[], weights float8[]) (
	SFUNC = gpuvec_bags_agg_transfn, STYPE = internal, SSPACE = 4096, FINALFUNC = gpuvec_bags_agg_finalfn,
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE gpuvec_weighted_bags_agg(int8[], float8[]) IS 'one batch of many bags of keys with weights';

CREATE FUNCTION gpuvec_pool_grad(
	relation regclass, key_column name, column_name name, keys int8[], upstream float8[],
	mode text DEFAULT 'sum', weights float8[] DEFAULT NULL, missing text DEFAULT 'zero', all_keys bool DEFAULT false,
	OUT key int8, OUT gradient real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_vectors_support;
COMMENT ON FUNCTION gpuvec_pool_grad(regclass, name, name, int8[], float8[], text, float8[], text, bool)
	IS 'gradients of the vectors of keys, given that of their pooled vector';

CREATE FUNCTION gpuvec_pool_grad_batch(
	relation regclass, key_column name, column_name name, keys int8[], upstream float8[],
	offsets int8[] DEFAULT NULL, hotness int8 DEFAULT NULL,
	mode text DEFAULT 'sum', weights float8[] DEFAULT NULL, missing text DEFAULT 'zero', all_keys bool DEFAULT false,
	OUT key int8, OUT gradient real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000
	SUPPORT gpuvec_vectors_support;
COMMENT ON FUNCTION gpuvec_pool_grad_batch(regclass, name, name, int8[], float8[], int8[], int8, text, float8[], text, bool)
	IS 'gradients of the vectors of keys, given those of the pooled vectors of many bags';

CREATE FUNCTION gpuvec_pool_grad_weights(
	relation regclass, key_column name, column_name name, keys int8[], upstream float8[],
	mode text DEFAULT 'sum', weights float8[] DEFAULT NULL, missing text DEFAULT 'zero')
	RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000;
COMMENT ON FUNCTION gpuvec_pool_grad_weights(regclass, name, name, int8[], float8[], text, float8[], text)
	IS 'gradients of the weights of keys, given that of their pooled vector';

CREATE FUNCTION gpuvec_pool_grad_weights_batch(
	relation regclass, key_column name, column_name name, keys int8[], upstream float8[],
	offsets int8[] DEFAULT NULL, hotness int8 DEFAULT NULL,
	mode text DEFAULT 'sum', weights float8[] DEFAULT NULL, missing text DEFAULT 'zero')
	RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000;
COMMENT ON FUNCTION gpuvec_pool_grad_weights_batch(regclass, name, name, int8[], float8[], int8[], int8, text, float8[], text)
	IS 'gradients of the weights of keys, given those of the pooled vectors of many bags';

CREATE FUNCTION gpuvec_initial_vector(key int8, width int4, initializer text, scale float8, seed int8) RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION gpuvec_initial_vector(int8, int4, text, float8, int8)
	IS 'the vector that gpuvec_ensure_keys gives a new key';

CREATE FUNCTION gpuvec_ensure_keys(
	relation regclass, key_column name, column_name name, keys int8[], width int4 DEFAULT NULL,
	initializer text DEFAULT 'uniform', scale float8 DEFAULT 0.05, seed int8 DEFAULT 0) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION gpuvec_ensure_keys(regclass, name, name, int8[], int4, text, float8, int8)
	IS 'add the keys that a table lacks, with initial vectors; returns their number';

CREATE FUNCTION gpuvec_gradient_rows(keys int8[], gradients float8[], OUT key int8, OUT gradient real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000 ROWS 1000;
COMMENT ON FUNCTION gpuvec_gradient_rows(int8[], float8[]) IS 'each key once with the sum of its gradients';

CREATE FUNCTION gpuvec_vector_axpy(a float8, x real[], y real[]) RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION gpuvec_vector_axpy(float8, real[], real[]) IS 'a x + y';

CREATE FUNCTION gpuvec_vector_square(a float8, x real[]) RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION gpuvec_vector_square(float8, real[]) IS 'a times the square of each element';

CREATE FUNCTION gpuvec_sgd_step(x real[], gradient real[], learning_rate float8, key int8) RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION gpuvec_sgd_step(real[], real[], float8, int8) IS 'one step of stochastic gradient descent';

CREATE FUNCTION gpuvec_adagrad_step(
	x real[], gradient real[], m real[], v real[], learning_rate float8, epsilon float8, key int8)
	RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION gpuvec_adagrad_step(real[], real[], real[], real[], float8, float8, int8) IS 'one step of AdaGrad';

CREATE FUNCTION gpuvec_adam_step(
	x real[], m real[], v real[], step int8, learning_rate float8, beta1 float8, beta2 float8, epsilon float8, key int8)
	RETURNS real[]
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION gpuvec_adam_step(real[], real[], real[], int8, float8, float8, float8, float8, int8) IS 'one step of Adam';

CREATE FUNCTION gpuvec_apply_grad(
	relation regclass, key_column name, column_name name, keys int8[], gradients float8[],
	optimizer text DEFAULT 'sgd', learning_rate float8 DEFAULT 0.01, state regclass DEFAULT NULL,
	beta1 float8 DEFAULT 0.9, beta2 float8 DEFAULT 0.999, epsilon float8 DEFAULT 1e-8) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION gpuvec_apply_grad(regclass, name, name, int8[], float8[], text, float8, regclass, float8, float8, float8)
	IS 'one step of an optimizer: update the vectors of keys; returns the number of updated rows';

CREATE FUNCTION gpuvec_nearest(
	relation regclass, key_column name, column_name name, query float8[], k int8 DEFAULT 10,
	metric text DEFAULT 'cosine', exclude int8[] DEFAULT NULL,
	OUT rank int4, OUT key int8, OUT score float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 10;
COMMENT ON FUNCTION gpuvec_nearest(regclass, name, name, float8[], int8, text, int8[])
	IS 'the k rows whose vectors are nearest to the query';

CREATE FUNCTION gpuvec_nearest_batch(
	relation regclass, key_column name, column_name name, queries float8[], k int8 DEFAULT 10,
	metric text DEFAULT 'cosine', exclude int8[] DEFAULT NULL, exclude_offsets int8[] DEFAULT NULL,
	OUT query int4, OUT rank int4, OUT key int8, OUT score float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000;
COMMENT ON FUNCTION gpuvec_nearest_batch(regclass, name, name, float8[], int8, text, int8[], int8[])
	IS 'the k nearest rows for each row of an array of queries';

CREATE FUNCTION gpuvec_nearest_keys(
	relation regclass, key_column name, column_name name, keys int8[] DEFAULT NULL, k int8 DEFAULT 10,
	metric text DEFAULT 'cosine', exclude int8[] DEFAULT NULL,
	OUT query_key int8, OUT rank int4, OUT key int8, OUT score float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 1000;
COMMENT ON FUNCTION gpuvec_nearest_keys(regclass, name, name, int8[], int8, text, int8[])
	IS 'the k other rows that are nearest to the row of each key; of all keys, unless some are given';

-- recommendations

CREATE FUNCTION gpuvec_als(
	interactions regclass, user_column name, item_column name, user_factors regclass, item_factors regclass,
	weight_column name DEFAULT NULL, factors int4 DEFAULT 64, iterations int4 DEFAULT 15,
	regularization float8 DEFAULT 0.01, alpha float8 DEFAULT 1, cg_steps int4 DEFAULT 3, seed int8 DEFAULT 0,
	warm_start bool DEFAULT false, key_column name DEFAULT NULL, column_name name DEFAULT NULL,
	OUT iteration int4, OUT loss float8, OUT seconds float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000000 ROWS 15;
COMMENT ON FUNCTION gpuvec_als(regclass, name, name, regclass, regclass, name, int4, int4, float8, float8, int4, int8, bool, name, name)
	IS 'train factors of users and items by alternating least squares, and replace the rows of both tables by them; returns the loss after each iteration';

CREATE FUNCTION gpuvec_als_rows(side int4, OUT key int8, OUT embedding real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 10000 ROWS 10000;
COMMENT ON FUNCTION gpuvec_als_rows(int4)
	IS 'factors of the training that this session is writing down; for statements of gpuvec_als';

CREATE FUNCTION gpuvec_als_fold_in(
	interactions regclass, user_column name, item_column name, item_factors regclass, users int8[] DEFAULT NULL,
	weight_column name DEFAULT NULL, regularization float8 DEFAULT 0.01, alpha float8 DEFAULT 1,
	key_column name DEFAULT NULL, column_name name DEFAULT NULL,
	OUT key int8, OUT embedding real[])
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 100000 ROWS 1000;
COMMENT ON FUNCTION gpuvec_als_fold_in(regclass, name, name, regclass, int8[], name, float8, float8, name, name)
	IS 'factors of users from their present interactions and the factors of items, without training';

CREATE FUNCTION gpuvec_als_explain(
	interactions regclass, user_column name, item_column name, item_factors regclass, user_key int8, recommended int8,
	weight_column name DEFAULT NULL, regularization float8 DEFAULT 0.01, alpha float8 DEFAULT 1,
	key_column name DEFAULT NULL, column_name name DEFAULT NULL,
	OUT item_key int8, OUT contribution float8, OUT weight float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 10000 ROWS 100;
COMMENT ON FUNCTION gpuvec_als_explain(regclass, name, name, regclass, int8, int8, name, float8, float8, name, name)
	IS 'what each item of a user contributes to the score of an item, largest contributions first';

CREATE FUNCTION gpuvec_recommend_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_recommend_support(internal)
	IS 'planner support of gpuvec_recommend: expected number of rows';

CREATE FUNCTION gpuvec_recommend(
	user_factors regclass, item_factors regclass, users int8[] DEFAULT NULL, k int8 DEFAULT 10,
	interactions regclass DEFAULT NULL, user_column name DEFAULT NULL, item_column name DEFAULT NULL,
	exclude int8[] DEFAULT NULL, among int8[] DEFAULT NULL, exclude_known bool DEFAULT true,
	key_column name DEFAULT NULL, column_name name DEFAULT NULL,
	OUT user_key int8, OUT rank int4, OUT item_key int8, OUT score float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 100000 ROWS 1000
	SUPPORT gpuvec_recommend_support;
COMMENT ON FUNCTION gpuvec_recommend(regclass, regclass, int8[], int8, regclass, name, name, int8[], int8[], bool, name, name)
	IS 'the k items with the highest scores for each user, without those that the user has interacted with';

CREATE FUNCTION gpuvec_draw(user_key int8, item_key int8, seed int8 DEFAULT 0) RETURNS float8
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION gpuvec_draw(int8, int8, int8)
	IS 'a random number from 0 to less than 1 for a pair, always the same with the same seed';

CREATE FUNCTION gpuvec_item_neighbors(
	interactions regclass, user_column name, item_column name, k int8 DEFAULT 20, weight_column name DEFAULT NULL,
	weighting text DEFAULT 'cosine', bm25_k1 float8 DEFAULT 100, bm25_b float8 DEFAULT 0.8,
	OUT item_key int8, OUT rank int4, OUT neighbor_key int8, OUT score float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED COST 100000 ROWS 100000;
COMMENT ON FUNCTION gpuvec_item_neighbors(regclass, name, name, int8, name, text, float8, float8)
	IS 'the k items that are nearest to each item, by the users who have interacted with both';

CREATE FUNCTION gpuvec_stat_training(
	OUT pid int4, OUT database oid, OUT relation oid, OUT phase text, OUT rows int8, OUT users int8, OUT items int8,
	OUT pairs int8, OUT iteration int4, OUT iterations int4, OUT loss float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION gpuvec_stat_training() IS 'trainings under way, by oid';

CREATE VIEW gpuvec_training AS
	SELECT t.pid, d.datname AS database,
		   CASE WHEN d.datname = current_database() THEN t.relation::regclass END AS relation,
		   t.phase, t.rows, t.users, t.items, t.pairs, t.iteration, t.iterations, t.loss
	FROM gpuvec_stat_training() t LEFT JOIN pg_database d ON d.oid = t.database;
COMMENT ON VIEW gpuvec_training IS 'trainings under way: those of roles that the caller has the rights of';
GRANT SELECT ON gpuvec_training TO PUBLIC;

-- mirrors and the engine

CREATE FUNCTION gpuvec_prewarm(relation regclass, column_name name) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_prewarm(regclass, name)
	IS 'load a column into the engine now; returns the number of rows';

CREATE FUNCTION gpuvec_prewarm(relation regclass, key_column name, column_name name) RETURNS int8
	AS 'MODULE_PATHNAME', 'gpuvec_prewarm_embedding' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_prewarm(regclass, name, name)
	IS 'load an embedding table into the engine now; returns the number of rows';

CREATE FUNCTION gpuvec_check_foreign(relation regclass,
	OUT leaf regclass, OUT server name, OUT problem text, OUT hint text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION gpuvec_check_foreign(regclass)
	IS 'what makes searches of foreign tables slow or impossible';

CREATE FUNCTION gpuvec_evict(relation regclass, column_name name DEFAULT NULL) RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_evict(regclass, name)
	IS 'drop the engine''s copy of a column, or of all columns of a table; returns the number of copies';

CREATE FUNCTION gpuvec_evict_all() RETURNS int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION gpuvec_evict_all()
	IS 'drop all of the engine''s copies, those of other databases too; returns their number';
REVOKE ALL ON FUNCTION gpuvec_evict_all() FROM PUBLIC;

CREATE FUNCTION gpuvec_stat_mirrors(
	OUT database oid, OUT relation oid, OUT attnum int2, OUT key_attnum int2, OUT index oid, OUT kind text, OUT file oid,
	OUT private bool, OUT state text,
	OUT pages_done int8, OUT pages_total int8, OUT rows int8, OUT ids int8, OUT segments int4,
	OUT bytes int8, OUT device_bytes int8, OUT loads int8, OUT refreshes int8, OUT searches int8,
	OUT rows_waiting int8, OUT pages_waiting int8, OUT feed_age interval, OUT rows_by_feed int8, OUT rows_by_pages int8,
	OUT waits int8, OUT wait_time interval, OUT checked_lsn pg_lsn, OUT last_use timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION gpuvec_stat_mirrors() IS 'what is resident in the engine, by oid';

CREATE FUNCTION gpuvec_stat_engine(
	OUT pid int4, OUT backend text, OUT device text, OUT compute_capability text, OUT threads int4,
	OUT memory_used int8, OUT memory_budget int8, OUT started timestamptz, OUT sessions int4,
	OUT requests int8, OUT queries int8, OUT batches int8, OUT evictions int8, OUT restarts int4, OUT trouble text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION gpuvec_stat_engine() IS 'the engine and what it has done, or why it cannot be asked; no row if it is not running';

CREATE FUNCTION gpuvec_stat_devices(
	OUT device int4, OUT gpu int4, OUT backend text, OUT name text, OUT compute_capability text,
	OUT memory_total int8, OUT memory_free int8, OUT memory_used int8, OUT memory_budget int8,
	OUT segments int4, OUT rows int8, OUT searches int8, OUT queries int8, OUT busy interval,
	OUT errors int8, OUT refused int8, OUT trouble text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 4;
COMMENT ON FUNCTION gpuvec_stat_devices() IS 'the devices of the engine, and those that it cannot use; no row if it is not running';

CREATE FUNCTION gpuvec_stat_places(
	OUT database oid, OUT relation oid, OUT attnum int2, OUT key_attnum int2, OUT index oid, OUT private bool,
	OUT device int4, OUT segments int4, OUT rows int8, OUT bytes int8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION gpuvec_stat_places() IS 'what each device holds of what is resident in the engine, by oid';

-- In the views, operators and functions without an exact match in pg_catalog
-- are schema-qualified.  Otherwise a user who may create objects in the
-- extension's schema could provide a better match, which the views would call.

CREATE VIEW gpuvec_mirrors AS
	SELECT d.datname AS database, m.database AS database_oid,
		   CASE WHEN d.datname = current_database() THEN m.relation::regclass END AS relation,
		   m.relation AS relation_oid,
		   ARRAY(SELECT a.attname FROM pg_attribute a
				 WHERE d.datname = current_database() AND a.attrelid = m.relation AND a.attnum IN (m.attnum, m.key_attnum)
				 ORDER BY a.attnum = m.attnum) AS columns,
		   CASE WHEN d.datname = current_database() AND m.index OPERATOR(pg_catalog.<>) 0 THEN m.index::regclass END AS index,
		   m.kind, m.attnum, m.file, m.private, m.state, m.pages_done, m.pages_total, m.rows, m.ids, m.segments, m.bytes, m.device_bytes,
		   m.loads, m.refreshes, m.searches, m.rows_waiting, m.pages_waiting, m.feed_age, m.rows_by_feed, m.rows_by_pages,
		   m.waits, m.wait_time, m.checked_lsn, m.last_use
	FROM gpuvec_stat_mirrors() m LEFT JOIN pg_database d ON d.oid = m.database;
COMMENT ON VIEW gpuvec_mirrors IS 'columns of tables that are resident in the engine, or being loaded';
GRANT SELECT ON gpuvec_mirrors TO PUBLIC;

CREATE FUNCTION gpuvec_stat_costs(
	OUT database oid, OUT relation oid, OUT file oid, OUT attnum int2, OUT index oid, OUT rooted bool, OUT resident bool, OUT gpu bool,
	OUT pages int8, OUT rows int8, OUT ids int8, OUT trips int8, OUT trip_operators float8, OUT rank_operators float8,
	OUT last_note timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;
COMMENT ON FUNCTION gpuvec_stat_costs() IS 'what loads and searches have left for the planner, by oid';

CREATE VIEW gpuvec_costs AS
	SELECT d.datname AS database,
		   CASE WHEN d.datname = current_database() THEN c.relation::regclass END AS relation,
		   c.relation AS relation_oid,
		   (SELECT a.attname FROM pg_attribute a
			WHERE d.datname = current_database() AND a.attrelid = c.relation AND a.attnum = c.attnum) AS column_name,
		   CASE WHEN d.datname = current_database() AND c.index OPERATOR(pg_catalog.<>) 0 THEN c.index::regclass END AS index,
		   c.rooted, c.resident, c.gpu, c.pages, c.rows, c.ids, c.trips, c.trip_operators, c.rank_operators, c.last_note
	FROM gpuvec_stat_costs() c LEFT JOIN pg_database d ON d.oid = c.database
	WHERE d.datname <> current_database() OR pg_catalog.pg_relation_filenode(c.relation) = c.file;
COMMENT ON VIEW gpuvec_costs IS 'what loads and searches have left in shared memory for the planner';
GRANT SELECT ON gpuvec_costs TO PUBLIC;

CREATE VIEW gpuvec_engine AS
	SELECT e.pid, e.backend, e.device, e.compute_capability, e.threads, e.memory_used, e.memory_budget,
		   now() - e.started AS uptime, e.sessions, e.requests, e.queries, e.batches,
		   CASE WHEN e.batches > 0 THEN e.queries::float8 OPERATOR(pg_catalog./) e.batches END AS mean_batch,
		   e.evictions, e.restarts, e.trouble
	FROM gpuvec_stat_engine() e;
COMMENT ON VIEW gpuvec_engine IS 'the engine that holds the resident data, or why it cannot be asked; no row if it is not running';
GRANT SELECT ON gpuvec_engine TO PUBLIC;

CREATE VIEW gpuvec_devices AS
	SELECT d.device, d.gpu, d.backend, d.name, d.compute_capability, d.memory_total, d.memory_free, d.memory_used,
		   d.memory_budget, d.segments, d.rows, d.searches, d.queries, d.busy, d.errors, d.refused, d.trouble
	FROM gpuvec_stat_devices() d;
COMMENT ON VIEW gpuvec_devices IS 'the devices of the engine, and those that it cannot use; no row if it is not running';
GRANT SELECT ON gpuvec_devices TO PUBLIC;

CREATE VIEW gpuvec_mirror_devices AS
	SELECT d.datname AS database, p.database AS database_oid,
		   CASE WHEN d.datname = current_database() THEN p.relation::regclass END AS relation,
		   p.relation AS relation_oid,
		   ARRAY(SELECT a.attname FROM pg_attribute a
				 WHERE d.datname = current_database() AND a.attrelid = p.relation AND a.attnum IN (p.attnum, p.key_attnum)
				 ORDER BY a.attnum = p.attnum) AS columns,
		   CASE WHEN d.datname = current_database() AND p.index OPERATOR(pg_catalog.<>) 0 THEN p.index::regclass END AS index,
		   p.private, p.device, p.segments, p.rows, p.bytes
	FROM gpuvec_stat_places() p LEFT JOIN pg_database d ON d.oid = p.database;
COMMENT ON VIEW gpuvec_mirror_devices IS 'what each device of the engine holds of the columns that are resident';
GRANT SELECT ON gpuvec_mirror_devices TO PUBLIC;
