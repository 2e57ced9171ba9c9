/*-------------------------------------------------------------------------
 *
 * idset_algebra.c
 *	  Merges of sets, and functions of the order of a set's ids: rank, n-th
 *	  id, range, shift.
 *
 * Two narrow sets are merged as they are.  If one of them is wide, both are
 * merged as arrays of four-byte ids, and the result gets the form that its
 * ids need.
 *
 * The least, the greatest and the n-th id are read without the rest of a long
 * set that is stored out of line.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/detoast.h"
#include "idset/idset_merge.h"

PG_FUNCTION_INFO_V1(idset_differ);
PG_FUNCTION_INFO_V1(idset_min);
PG_FUNCTION_INFO_V1(idset_max);
PG_FUNCTION_INFO_V1(idset_nth);
PG_FUNCTION_INFO_V1(idset_rank);
PG_FUNCTION_INFO_V1(idset_range);
PG_FUNCTION_INFO_V1(idset_range_count);
PG_FUNCTION_INFO_V1(idset_shift);
PG_FUNCTION_INFO_V1(union_count);
PG_FUNCTION_INFO_V1(difference_count);

/* ---- merges ---- */

/* The ids of a set as four-byte ids; a copy if it is narrow */
static const uint32 *
widened_ids(const IdSet *set)
{
	uint32	   *ids;

	if (idset_is_wide(set))
		return idset_wide_ids(set);
	ids = palloc_array(uint32, Max(idset_count(set), 1));
	idset_copy_ids(set, 0, idset_count(set), ids);
	return ids;
}

/* Merge two sets, one of which is wide */
static IdSet *
merge_wide_sets(const IdSet *a, const IdSet *b, int keep)
{
	uint32		na = idset_count(a);
	uint32		nb = idset_count(b);
	uint32	   *out = palloc_array(uint32, idset_merge_capacity(na, nb, keep) + MERGE_SLACK);
	uint32		n = idset_merge_wide(widened_ids(a), na, widened_ids(b), nb, keep, out);
	IdSet	   *result = idset_from_sorted(out, n);

	pfree(out);
	return result;
}

IdSet *
idset_merge(const IdSet *a, const IdSet *b, int keep)
{
	uint32		na = idset_count(a);
	uint32		nb = idset_count(b);
	IdSet	   *result;

	if (idset_is_wide(a) || idset_is_wide(b))
		return merge_wide_sets(a, b, keep);
	result = idset_alloc(idset_merge_capacity(na, nb, keep) + MERGE_SLACK);
	idset_shrink(result, idset_merge_narrow(idset_ids(a), na, idset_ids(b), nb, keep,
											result->ids));
	return result;
}

/* # operator, and transition function of idset_symmetric_difference */
Datum
idset_differ(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(idset_merge(PG_GETARG_IDSET_P(0), PG_GETARG_IDSET_P(1),
								  MERGE_ONLY_A | MERGE_ONLY_B));
}

/* union_count(idset, idset): the number of ids of any of both */
Datum
union_count(PG_FUNCTION_ARGS)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);
	IdSet	   *b = PG_GETARG_IDSET_P(1);

	PG_RETURN_INT32((int32) (idset_count(a) + idset_count(b) - idset_common(a, b)));
}

/*
 * difference_count(idset, idset): the number of ids that only the first has
 */
Datum
difference_count(PG_FUNCTION_ARGS)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);

	PG_RETURN_INT32((int32) (idset_count(a) - idset_common(a, PG_GETARG_IDSET_P(1))));
}

/* ---- single ids by their position ---- */

/* The number of ids of a set that may be stored out of line */
static uint32
stored_count(Datum set)
{
	return idset_bytes_count(toast_raw_datum_size(set) - VARHDRSZ);
}

/* The i-th id, from 0, of a set that may be stored out of line */
static uint32
stored_id(Datum set, uint32 i)
{
	bool		wide = idset_bytes_wide(toast_raw_datum_size(set) - VARHDRSZ);
	int32		width = wide ? sizeof(uint32) : sizeof(uint16);
	struct varlena *slice = PG_DETOAST_DATUM_SLICE(set, i * width, width);
	uint32		wide_id;
	uint16		narrow_id;

	if (wide)
	{
		memcpy(&wide_id, VARDATA_ANY(slice), sizeof(wide_id));
		return wide_id;
	}
	memcpy(&narrow_id, VARDATA_ANY(slice), sizeof(narrow_id));
	return narrow_id;
}

/* idset_min(idset): the least id; NULL if there is none */
Datum
idset_min(PG_FUNCTION_ARGS)
{
	if (stored_count(PG_GETARG_DATUM(0)) == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(stored_id(PG_GETARG_DATUM(0), 0));
}

/* idset_max(idset): the greatest id; NULL if there is none */
Datum
idset_max(PG_FUNCTION_ARGS)
{
	uint32		n = stored_count(PG_GETARG_DATUM(0));

	if (n == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(stored_id(PG_GETARG_DATUM(0), n - 1));
}

/* idset_nth(idset, int8): the n-th least id, from 1; NULL if there is none */
Datum
idset_nth(PG_FUNCTION_ARGS)
{
	int64		n = PG_GETARG_INT64(1);

	if (n < 1 || n > stored_count(PG_GETARG_DATUM(0)))
		PG_RETURN_NULL();
	PG_RETURN_INT64(stored_id(PG_GETARG_DATUM(0), (uint32) n - 1));
}

/* ---- positions of numbers ---- */

/* How many ids of a set are less than a number, which need not be an id */
static uint32
ids_below(const IdSet *set, int64 number)
{
	uint32		position;

	if (number <= 0)
		return 0;
	if (number > (int64) IDSET_MAX_ID)
		return idset_count(set);
	idset_find(set, (uint32) number, &position);
	return position;
}

/* idset_rank(idset, int8): the number of ids up to a number */
Datum
idset_rank(PG_FUNCTION_ARGS)
{
	int64		number = PG_GETARG_INT64(1);

	if (number < 0)
		PG_RETURN_INT32(0);
	PG_RETURN_INT32((int32) ids_below(PG_GETARG_IDSET_P(0),
									  Min(number, (int64) IDSET_MAX_ID) + 1));
}

/* A set of the ids number from ..  to - 1 of a set */
static IdSet *
cut_set(const IdSet *set, uint32 from, uint32 to)
{
	uint32		n = to > from ? to - from : 0;
	IdSet	   *result;

	if (idset_is_wide(set))
		return idset_from_sorted(idset_wide_ids(set) + from, n);
	result = idset_alloc(n);
	memcpy(result->ids, set->ids + from, n * sizeof(uint16));
	return result;
}

/* idset_range(idset, int8, int8): the ids from a number to below another */
Datum
idset_range(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);

	PG_RETURN_IDSET_P(cut_set(set, ids_below(set, PG_GETARG_INT64(1)),
							  ids_below(set, PG_GETARG_INT64(2))));
}

/* idset_range_count(idset, int8, int8): the number of these ids */
Datum
idset_range_count(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		from = ids_below(set, PG_GETARG_INT64(1));
	uint32		to = ids_below(set, PG_GETARG_INT64(2));

	PG_RETURN_INT32(to > from ? (int32) (to - from) : 0);
}

/*
 * idset_shift(idset, int8): a number is added to all ids.  Those that leave
 * the range of ids are dropped.
 */
Datum
idset_shift(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	int64		ids = (int64) IDSET_MAX_ID + 1;
	int64		by = Max(Min(PG_GETARG_INT64(1), ids), -ids);
	uint32		from = ids_below(set, -by);
	uint32		to = ids_below(set, ids - by);
	uint32	   *shifted = palloc_array(uint32, Max(idset_count(set), 1));
	uint32		n = 0;

	for (uint32 i = from; i < to; i++)
		shifted[n++] = (uint32) (idset_id(set, i) + by);
	PG_RETURN_IDSET_P(idset_from_sorted(shifted, n));
}
