/*-------------------------------------------------------------------------
 *
 * idvec_op.c
 *	  Operators and functions of sparse vectors: comparison, arithmetic, norm.
 *
 * Vectors are ordered by the first pair in which they differ, by id and then
 * by value; a vector comes before those that begin with it.
 *
 * Values are added as real is, and multiplied as double precision and then
 * rounded to real.  A result that is too large, or a product that is too near
 * to 0, is error 22003.  An id whose values cancel each other out is not there
 * any more.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/detoast.h"
#include "common/hashfn.h"
#include "idvec/idvec.h"

PG_FUNCTION_INFO_V1(idvec_eq);
PG_FUNCTION_INFO_V1(idvec_ne);
PG_FUNCTION_INFO_V1(idvec_lt);
PG_FUNCTION_INFO_V1(idvec_le);
PG_FUNCTION_INFO_V1(idvec_ge);
PG_FUNCTION_INFO_V1(idvec_gt);
PG_FUNCTION_INFO_V1(idvec_cmp);
PG_FUNCTION_INFO_V1(hash_idvec);
PG_FUNCTION_INFO_V1(hash_idvec_extended);
PG_FUNCTION_INFO_V1(idvec_add);
PG_FUNCTION_INFO_V1(idvec_subtract);
PG_FUNCTION_INFO_V1(idvec_multiply);
PG_FUNCTION_INFO_V1(idvec_multiplied);
PG_FUNCTION_INFO_V1(idvec_keep);
PG_FUNCTION_INFO_V1(idvec_remove);
PG_FUNCTION_INFO_V1(idvec_cardinality);
PG_FUNCTION_INFO_V1(idvec_norm);
PG_FUNCTION_INFO_V1(idvec_sum);
PG_FUNCTION_INFO_V1(idvec_value);

/* ---- comparison ---- */

/* Three-way comparison, as for qsort */
static int
compare_vectors(const gpuvec_sparse *a, const gpuvec_sparse *b)
{
	for (uint32 i = 0; i < Min(a->ids.n, b->ids.n); i++)
	{
		uint32		x = gpuvec_sparse_id(a, i);
		uint32		y = gpuvec_sparse_id(b, i);
		float4		v = gpuvec_sparse_value(a, i);
		float4		w = gpuvec_sparse_value(b, i);

		if (x != y)
			return x < y ? -1 : 1;
		if (v != w)
			return v < w ? -1 : 1;
	}
	return a->ids.n < b->ids.n ? -1 : a->ids.n > b->ids.n;
}

/* Compare the two arguments of a comparison operator */
static int
compare_args(FunctionCallInfo fcinfo)
{
	IdVec	   *a = PG_GETARG_IDVEC_P(0);
	IdVec	   *b = PG_GETARG_IDVEC_P(1);
	gpuvec_sparse x = idvec_sparse(a);
	gpuvec_sparse y = idvec_sparse(b);
	int			result = compare_vectors(&x, &y);

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	return result;
}

/* = operator */
Datum
idvec_eq(PG_FUNCTION_ARGS)
{
	IdVec	   *a = PG_GETARG_IDVEC_P(0);
	IdVec	   *b = PG_GETARG_IDVEC_P(1);
	bool		result = VARSIZE(a) == VARSIZE(b) && memcmp(a, b, VARSIZE(a)) == 0;

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	PG_RETURN_BOOL(result);
}

/* <> operator */
Datum
idvec_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!DatumGetBool(idvec_eq(fcinfo)));
}

/* < operator */
Datum
idvec_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) < 0);
}

/* <= operator */
Datum
idvec_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) <= 0);
}

/* >= operator */
Datum
idvec_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) >= 0);
}

/* > operator */
Datum
idvec_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) > 0);
}

/* Comparison function of the btree operator class */
Datum
idvec_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_args(fcinfo));
}

/* Hash function of the hash operator class */
Datum
hash_idvec(PG_FUNCTION_ARGS)
{
	IdVec	   *vector = PG_GETARG_IDVEC_P(0);
	uint32		result = hash_bytes((const unsigned char *) VARDATA(vector), VARSIZE(vector) - VARHDRSZ);

	PG_FREE_IF_COPY(vector, 0);
	PG_RETURN_UINT32(result);
}

/* The same, 64 bits wide and with a seed */
Datum
hash_idvec_extended(PG_FUNCTION_ARGS)
{
	IdVec	   *vector = PG_GETARG_IDVEC_P(0);
	uint64		result = hash_bytes_extended((const unsigned char *) VARDATA(vector),
											 VARSIZE(vector) - VARHDRSZ, PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(vector, 0);
	PG_RETURN_UINT64(result);
}

/* ---- arithmetic ---- */

/* a + sign * b */
static IdVec *
add_vectors(const IdVec *a, const IdVec *b, float4 sign)
{
	gpuvec_sparse x = idvec_sparse(a);
	gpuvec_sparse y = idvec_sparse(b);
	IdValue    *pairs = palloc_array(IdValue, Max(x.ids.n + y.ids.n, 1));
	uint32		n = 0;
	uint32		i = 0;
	uint32		j = 0;

	while (i < x.ids.n || j < y.ids.n)
	{
		bool		in_x = i < x.ids.n &&
			(j == y.ids.n || gpuvec_sparse_id(&x, i) <= gpuvec_sparse_id(&y, j));
		bool		in_y = j < y.ids.n &&
			(i == x.ids.n || gpuvec_sparse_id(&y, j) <= gpuvec_sparse_id(&x, i));

		pairs[n].id = in_x ? gpuvec_sparse_id(&x, i) : gpuvec_sparse_id(&y, j);
		pairs[n].value = in_x ? gpuvec_sparse_value(&x, i++) : 0;
		if (in_y)
			pairs[n].value += sign * gpuvec_sparse_value(&y, j++);
		if (isinf(pairs[n].value))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("value out of range: overflow"),
					 errdetail("The values of id %u are too large.", pairs[n].id)));
		n++;
	}
	return idvec_from_sorted(pairs, n);
}

/* + operator */
Datum
idvec_add(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDVEC_P(add_vectors(PG_GETARG_IDVEC_P(0), PG_GETARG_IDVEC_P(1), 1));
}

/* - operator */
Datum
idvec_subtract(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDVEC_P(add_vectors(PG_GETARG_IDVEC_P(0), PG_GETARG_IDVEC_P(1), -1));
}

/* * operator with a number */
Datum
idvec_multiply(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));
	double		factor = PG_GETARG_FLOAT8(1);
	IdValue    *pairs = palloc_array(IdValue, Max(vector.ids.n, 1));

	if (isnan(factor) || isinf(factor))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("cannot multiply a vector by %s", isnan(factor) ? "NaN" : "infinity")));
	for (uint32 i = 0; i < vector.ids.n; i++)
	{
		double		product = factor * gpuvec_sparse_value(&vector, i);

		if (product == 0 && factor != 0)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("value out of range: underflow"),
					 errdetail("The product for id %u is too near to 0.", gpuvec_sparse_id(&vector, i))));
		pairs[i].id = gpuvec_sparse_id(&vector, i);
		pairs[i].value = idvec_check_value(product);
	}
	PG_RETURN_IDVEC_P(idvec_from_sorted(pairs, vector.ids.n));
}

/* * operator with a number on the left */
Datum
idvec_multiplied(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall2(idvec_multiply, PG_GETARG_DATUM(1), PG_GETARG_DATUM(0));
}

/* The pairs whose ids are in a set, or those whose are not */
static IdVec *
choose_pairs(const IdVec *vector, const IdSet *set, bool in_set)
{
	gpuvec_sparse x = idvec_sparse(vector);
	gpuvec_id_span ids = idset_span(set);
	IdValue    *pairs = palloc_array(IdValue, Max(x.ids.n, 1));
	uint32		n = 0;
	uint32		j = 0;

	for (uint32 i = 0; i < x.ids.n; i++)
	{
		uint32		id = gpuvec_sparse_id(&x, i);

		while (j < ids.n && idset_id_at(ids.ids, ids.wide, j) < id)
			j++;
		if ((j < ids.n && idset_id_at(ids.ids, ids.wide, j) == id) != in_set)
			continue;
		pairs[n].id = id;
		pairs[n++].value = gpuvec_sparse_value(&x, i);
	}
	return idvec_from_sorted(pairs, n);
}

/* & operator with a set */
Datum
idvec_keep(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDVEC_P(choose_pairs(PG_GETARG_IDVEC_P(0), PG_GETARG_IDSET_P(1), true));
}

/* - operator with a set */
Datum
idvec_remove(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDVEC_P(choose_pairs(PG_GETARG_IDVEC_P(0), PG_GETARG_IDSET_P(1), false));
}

/* ---- functions ---- */

/* cardinality(idvec), from the header alone */
Datum
idvec_cardinality(PG_FUNCTION_ARGS)
{
	struct varlena *slice = PG_DETOAST_DATUM_SLICE(PG_GETARG_DATUM(0), 0, sizeof(uint32));
	uint32		head;

	memcpy(&head, VARDATA_ANY(slice), sizeof(head));
	PG_RETURN_INT32((int32) idvec_head_count(head));
}

/* idvec_norm(idvec): the square root of the sum of the squares */
Datum
idvec_norm(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));

	PG_RETURN_FLOAT8(sqrt(gpuvec_sparse_own(GPUVEC_SPARSE_COSINE, &vector)));
}

/* idvec_sum(idvec): the sum of the values */
Datum
idvec_sum(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));

	PG_RETURN_FLOAT8(gpuvec_sparse_own(GPUVEC_SPARSE_JACCARD, &vector));
}

/* idvec_value(idvec, int8): the value of an id; 0 if it is not there */
Datum
idvec_value(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));
	int64		id = PG_GETARG_INT64(1);
	uint32		low = 0;
	uint32		high = vector.ids.n;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if ((int64) gpuvec_sparse_id(&vector, middle) < id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == vector.ids.n || (int64) gpuvec_sparse_id(&vector, low) != id)
		PG_RETURN_FLOAT4(0);
	PG_RETURN_FLOAT4(gpuvec_sparse_value(&vector, low));
}
