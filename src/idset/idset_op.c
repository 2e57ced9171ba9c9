/*-------------------------------------------------------------------------
 *
 * idset_op.c
 *	  Operators of idset: comparison, set algebra, single ids.
 *
 * Sets are ordered like arrays: by the first id in which they differ; a
 * prefix of a set comes before the set.
 *
 * Loops over two sets are written once, for arrays of which the compiler
 * knows whether they are wide, and called for two narrow sets by themselves:
 * these are read as arrays of two-byte ids.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/detoast.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "idset/idset_merge.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"

PG_FUNCTION_INFO_V1(idset_eq);
PG_FUNCTION_INFO_V1(idset_ne);
PG_FUNCTION_INFO_V1(idset_lt);
PG_FUNCTION_INFO_V1(idset_le);
PG_FUNCTION_INFO_V1(idset_ge);
PG_FUNCTION_INFO_V1(idset_gt);
PG_FUNCTION_INFO_V1(idset_cmp);
PG_FUNCTION_INFO_V1(hash_idset);
PG_FUNCTION_INFO_V1(hash_idset_extended);
PG_FUNCTION_INFO_V1(idset_overlaps);
PG_FUNCTION_INFO_V1(idset_contains);
PG_FUNCTION_INFO_V1(idset_contained);
PG_FUNCTION_INFO_V1(idset_intersect);
PG_FUNCTION_INFO_V1(idset_unite);
PG_FUNCTION_INFO_V1(idset_subtract);
PG_FUNCTION_INFO_V1(idset_add_id);
PG_FUNCTION_INFO_V1(idset_id_add);
PG_FUNCTION_INFO_V1(idset_remove_id);
PG_FUNCTION_INFO_V1(idset_contains_id);
PG_FUNCTION_INFO_V1(idset_id_contained);
PG_FUNCTION_INFO_V1(idset_cardinality);
PG_FUNCTION_INFO_V1(idset_unnest);
PG_FUNCTION_INFO_V1(idset_unnest_support);

/* Estimated number of ids of an unknown set, for unnest() */
#define DEFAULT_IDS		50

/* Three-way comparison, as for qsort */
static pg_attribute_always_inline int
compare_ids(const IdSet *a, bool wide_a, const IdSet *b, bool wide_b)
{
	uint32		na = idset_count(a);
	uint32		nb = idset_count(b);

	for (uint32 i = 0; i < Min(na, nb); i++)
	{
		uint32		x = idset_id_at(a->ids, wide_a, i);
		uint32		y = idset_id_at(b->ids, wide_b, i);

		if (x != y)
			return x < y ? -1 : 1;
	}
	return na < nb ? -1 : na > nb;
}

static int
compare_sets(const IdSet *a, const IdSet *b)
{
	if (!idset_is_wide(a) && !idset_is_wide(b))
		return compare_ids(a, false, b, false);
	return compare_ids(a, idset_is_wide(a), b, idset_is_wide(b));
}

static bool
equal_sets(const IdSet *a, const IdSet *b)
{
	return VARSIZE(a) == VARSIZE(b) && memcmp(a, b, VARSIZE(a)) == 0;
}

/* Compare the two arguments of a comparison operator */
static int
compare_args(FunctionCallInfo fcinfo)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);
	IdSet	   *b = PG_GETARG_IDSET_P(1);
	int			result = compare_sets(a, b);

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	return result;
}

/* = operator */
Datum
idset_eq(PG_FUNCTION_ARGS)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);
	IdSet	   *b = PG_GETARG_IDSET_P(1);
	bool		result = equal_sets(a, b);

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	PG_RETURN_BOOL(result);
}

/* <> operator */
Datum
idset_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!DatumGetBool(idset_eq(fcinfo)));
}

/* < operator */
Datum
idset_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) < 0);
}

/* <= operator */
Datum
idset_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) <= 0);
}

/* >= operator */
Datum
idset_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) >= 0);
}

/* > operator */
Datum
idset_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_args(fcinfo) > 0);
}

/* Comparison function of the btree operator class */
Datum
idset_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_args(fcinfo));
}

/* Hash function of the hash operator class */
Datum
hash_idset(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		result = hash_bytes((const unsigned char *) set->ids, VARSIZE(set) - VARHDRSZ);

	PG_FREE_IF_COPY(set, 0);
	PG_RETURN_UINT32(result);
}

/* The same, 64 bits wide and with a seed */
Datum
hash_idset_extended(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint64		result = hash_bytes_extended((const unsigned char *) set->ids,
											 VARSIZE(set) - VARHDRSZ, PG_GETARG_INT64(1));

	PG_FREE_IF_COPY(set, 0);
	PG_RETURN_UINT64(result);
}

/* True if two sets have a common id.  Stops at the first common id. */
static pg_attribute_always_inline bool
overlapping_ids(const IdSet *a, bool wide_a, const IdSet *b, bool wide_b)
{
	uint32		na = idset_count(a);
	uint32		nb = idset_count(b);

	for (uint32 i = 0, j = 0; i < na && j < nb;)
	{
		uint32		x = idset_id_at(a->ids, wide_a, i);
		uint32		y = idset_id_at(b->ids, wide_b, j);

		if (x == y)
			return true;
		if (x < y)
			i++;
		else
			j++;
	}
	return false;
}

static bool
overlapping_sets(const IdSet *a, const IdSet *b)
{
	if (!idset_is_wide(a) && !idset_is_wide(b))
		return overlapping_ids(a, false, b, false);
	return overlapping_ids(a, idset_is_wide(a), b, idset_is_wide(b));
}

/* && operator */
Datum
idset_overlaps(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(overlapping_sets(PG_GETARG_IDSET_P(0), PG_GETARG_IDSET_P(1)));
}

/* @> operator */
Datum
idset_contains(PG_FUNCTION_ARGS)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);
	IdSet	   *b = PG_GETARG_IDSET_P(1);

	PG_RETURN_BOOL(idset_count(b) <= idset_count(a) && idset_common(a, b) == idset_count(b));
}

/* <@ operator */
Datum
idset_contained(PG_FUNCTION_ARGS)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);
	IdSet	   *b = PG_GETARG_IDSET_P(1);

	PG_RETURN_BOOL(idset_count(a) <= idset_count(b) && idset_common(a, b) == idset_count(a));
}

/*
 * & operator, and transition function of idset_intersection: once the state
 * is empty, sets are not even detoasted
 */
Datum
idset_intersect(PG_FUNCTION_ARGS)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);

	if (idset_count(a) == 0)
		PG_RETURN_IDSET_P(a);
	PG_RETURN_IDSET_P(idset_merge(a, PG_GETARG_IDSET_P(1), MERGE_BOTH));
}

/* | operator */
Datum
idset_unite(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(idset_merge(PG_GETARG_IDSET_P(0), PG_GETARG_IDSET_P(1),
								  MERGE_ONLY_A | MERGE_BOTH | MERGE_ONLY_B));
}

/* - operator */
Datum
idset_subtract(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(idset_merge(PG_GETARG_IDSET_P(0), PG_GETARG_IDSET_P(1), MERGE_ONLY_A));
}

/* | operator with one id */
Datum
idset_add_id(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		id = idset_check_id(PG_GETARG_INT64(1));
	uint32		n = idset_count(set);
	uint32		position;
	uint32	   *ids;

	if (idset_find(set, id, &position))
		PG_RETURN_IDSET_P(set);
	ids = palloc_array(uint32, n + 1);
	idset_copy_ids(set, 0, position, ids);
	ids[position] = id;
	idset_copy_ids(set, position, n, ids + position + 1);
	PG_RETURN_IDSET_P(idset_from_sorted(ids, n + 1));
}

/* | operator with an id on the left */
Datum
idset_id_add(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall2(idset_add_id, PG_GETARG_DATUM(1), PG_GETARG_DATUM(0));
}

/*
 * True if the set has this number.  No set has a number out of the range of
 * ids.
 */
static bool
find_number(const IdSet *set, int64 number, uint32 *position)
{
	return number >= 0 && number <= (int64) IDSET_MAX_ID &&
		idset_find(set, (uint32) number, position);
}

/* - operator with one id */
Datum
idset_remove_id(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	uint32		position;
	uint32	   *ids;

	if (!find_number(set, PG_GETARG_INT64(1), &position))
		PG_RETURN_IDSET_P(set);
	ids = palloc_array(uint32, n);
	idset_copy_ids(set, 0, position, ids);
	idset_copy_ids(set, position + 1, n, ids + position);
	PG_RETURN_IDSET_P(idset_from_sorted(ids, n - 1));
}

/* @> operator with one id */
Datum
idset_contains_id(PG_FUNCTION_ARGS)
{
	uint32		position;

	PG_RETURN_BOOL(find_number(PG_GETARG_IDSET_P(0), PG_GETARG_INT64(1), &position));
}

/* <@ operator with one id */
Datum
idset_id_contained(PG_FUNCTION_ARGS)
{
	uint32		position;

	PG_RETURN_BOOL(find_number(PG_GETARG_IDSET_P(1), PG_GETARG_INT64(0), &position));
}

/* cardinality(idset), from the size alone: nothing is detoasted */
Datum
idset_cardinality(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) idset_bytes_count(toast_raw_datum_size(PG_GETARG_DATUM(0)) - VARHDRSZ));
}

/* unnest(idset): one id for each call, ascending */
Datum
idset_unnest(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	IdSet	   *set;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		set = (IdSet *) PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(0));
		call->user_fctx = set;
		call->max_calls = idset_count(set);
		MemoryContextSwitchTo(old);
	}
	call = SRF_PERCALL_SETUP();
	set = call->user_fctx;
	if (call->call_cntr < call->max_calls)
	{
		/*
		 * SRF_RETURN_NEXT advances call_cntr before it evaluates the result
		 */
		int64		id = idset_id(set, call->call_cntr);

		SRF_RETURN_NEXT(call, Int64GetDatum(id));
	}
	SRF_RETURN_DONE(call);
}

/*
 * Planner support function of unnest(): a constant has a known number of ids
 */
Datum
idset_unnest_support(PG_FUNCTION_ARGS)
{
	Node	   *raw = (Node *) PG_GETARG_POINTER(0);

	if (IsA(raw, SupportRequestRows))
	{
		SupportRequestRows *request = (SupportRequestRows *) raw;

		if (request->node && IsA(request->node, FuncExpr))
		{
			Node	   *arg = linitial(((FuncExpr *) request->node)->args);

			arg = estimate_expression_value(request->root, arg);
			request->rows = DEFAULT_IDS;
			if (IsA(arg, Const))
				request->rows = ((Const *) arg)->constisnull ? 0 :
					idset_count(DatumGetIdSetP(((Const *) arg)->constvalue));
			PG_RETURN_POINTER(request);
		}
	}
	PG_RETURN_POINTER(NULL);
}
