/* sql/gpuvec--0.1.0--0.2.0.sql */

\echo Use "ALTER EXTENSION gpuvec UPDATE TO '0.2.0'" to load this file. \quit

-- an older library is told at once

SELECT gpuvec_library_version('0.2.0'::text);

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
COMMENT ON ACCESS METHOD gpuvec IS 'index access method for similarity search of sets and vectors';
COMMENT ON OPERATOR FAMILY idvec_ops USING gpuvec IS 'distances of vectors';

-- Search functions by vectors, with names of their own: beside idset a literal
-- would not tell its type.

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
