/*-------------------------------------------------------------------------
 *
 * idset_agg.c
 *	  Aggregates: a set of the ids in rows; the union and the intersection of
 *	  sets.
 *
 * idset_agg and idset_union collect ids in the same state: an array up to
 * ARRAY_IDS ids, so that many small groups stay small, then a bitmap of 8 kB.
 * Ids above 65535 are in an array of their own, which is freed of duplicates
 * whenever it is full.  idset_intersection has an idset as its state.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset.h"
#include "libpq/pqformat.h"

PG_FUNCTION_INFO_V1(idset_agg_transfn);
PG_FUNCTION_INFO_V1(idset_union_transfn);
PG_FUNCTION_INFO_V1(idset_collect_combinefn);
PG_FUNCTION_INFO_V1(idset_collect_serialfn);
PG_FUNCTION_INFO_V1(idset_collect_deserialfn);
PG_FUNCTION_INFO_V1(idset_collect_finalfn);

/* An array of more ids would be larger than the bitmap */
#define ARRAY_IDS		2048
#define BITMAP_WORDS	((IDSET_MAX_NARROW_ID + 1) / 64)

typedef struct IdCollection
{
	MemoryContext context;
	uint32		n;				/* narrow ids in the array, including
								 * duplicates */
	uint32		capacity;
	uint16	   *ids;			/* NULL once there is a bitmap */
	uint64	   *bitmap;
	uint32		nwide;			/* ids above 65535, including duplicates */
	uint32		wide_capacity;
	uint32	   *wide;
} IdCollection;

/* The aggregate's state, made on the first call */
static IdCollection *
get_collection(FunctionCallInfo fcinfo)
{
	MemoryContext context;
	IdCollection *collection;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "aggregate function called in non-aggregate context");
	if (!PG_ARGISNULL(0))
		return (IdCollection *) PG_GETARG_POINTER(0);
	collection = MemoryContextAllocZero(context, sizeof(IdCollection));
	collection->context = context;
	return collection;
}

/* The aggregate's state, or NULL if there is none yet */
static Datum
state_as_it_is(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_POINTER(PG_GETARG_POINTER(0));
}

/* Change from array to bitmap */
static void
use_bitmap(IdCollection *collection)
{
	collection->bitmap = MemoryContextAllocZero(collection->context, BITMAP_WORDS * sizeof(uint64));
	for (uint32 i = 0; i < collection->n; i++)
		collection->bitmap[collection->ids[i] / 64] |= UINT64CONST(1) << (collection->ids[i] % 64);
	if (collection->ids)
		pfree(collection->ids);
	collection->ids = NULL;
}

/* Make room for `more` ids in the array.  False: the state is a bitmap. */
static bool
make_room(IdCollection *collection, uint32 more)
{
	uint32		capacity = collection->capacity ? collection->capacity : 8;

	if (collection->bitmap)
		return false;
	if (collection->n + more <= collection->capacity)
		return true;
	while (capacity < collection->n + more)
		capacity *= 2;
	if (capacity > ARRAY_IDS)
	{
		use_bitmap(collection);
		return false;
	}
	collection->ids = collection->ids ?
		repalloc(collection->ids, capacity * sizeof(uint16)) :
		MemoryContextAlloc(collection->context, capacity * sizeof(uint16));
	collection->capacity = capacity;
	return true;
}

/* Add n narrow ids, in any order */
static void
add_narrow(IdCollection *collection, const uint16 *ids, uint32 n)
{
	if (make_room(collection, n))
	{
		if (n > 0)
			memcpy(collection->ids + collection->n, ids, n * sizeof(uint16));
		collection->n += n;
		return;
	}
	for (uint32 i = 0; i < n; i++)
		collection->bitmap[ids[i] / 64] |= UINT64CONST(1) << (ids[i] % 64);
}

/*
 * Make room for `more` wide ids.  Duplicates are dropped when the array is
 * full; it grows if that leaves it more than half full.
 */
static void
make_wide_room(IdCollection *collection, uint32 more)
{
	uint32		capacity = collection->wide_capacity ? collection->wide_capacity : 8;

	if (collection->nwide + more <= collection->wide_capacity)
		return;
	collection->nwide = idset_sort_distinct(collection->wide, collection->nwide);
	if (collection->nwide > GPUVEC_MAX_IDS)
		idset_from_sorted(collection->wide, collection->nwide); /* an error */
	while (capacity / 2 < collection->nwide + more)
		capacity *= 2;
	collection->wide = collection->wide ?
		repalloc(collection->wide, capacity * sizeof(uint32)) :
		MemoryContextAlloc(collection->context, capacity * sizeof(uint32));
	collection->wide_capacity = capacity;
}

/* Add the ids of a wide set */
static void
add_wide_set(IdCollection *collection, const IdSet *set)
{
	uint32		n = idset_count(set);
	uint32		nnarrow;
	uint16	   *narrow;

	idset_find(set, IDSET_MAX_NARROW_ID + 1, &nnarrow);
	narrow = palloc_array(uint16, Max(nnarrow, 1));
	for (uint32 i = 0; i < nnarrow; i++)
		narrow[i] = (uint16) idset_wide_ids(set)[i];
	add_narrow(collection, narrow, nnarrow);
	pfree(narrow);
	make_wide_room(collection, n - nnarrow);
	idset_copy_ids(set, nnarrow, n, collection->wide + collection->nwide);
	collection->nwide += n - nnarrow;
}

/* Add the ids of a set */
static void
add_set(IdCollection *collection, const IdSet *set)
{
	if (idset_is_wide(set))
		add_wide_set(collection, set);
	else
		add_narrow(collection, idset_ids(set), idset_count(set));
}

/* The narrow ids of a collection: fills in ids[], and returns their number */
static uint32
narrow_ids(const IdCollection *collection, uint32 *ids)
{
	uint32		n = 0;

	if (collection->bitmap == NULL)
	{
		for (; n < collection->n; n++)
			ids[n] = collection->ids[n];
		return n;
	}
	for (uint32 word = 0; word < BITMAP_WORDS; word++)
		for (uint64 bits = collection->bitmap[word]; bits != 0; bits &= bits - 1)
			ids[n++] = word * 64 + __builtin_ctzll(bits);
	return n;
}

/* The collected ids as a set */
static IdSet *
collected_set(const IdCollection *collection)
{
	uint32		capacity = collection->bitmap ? IDSET_MAX_NARROW_ID + 1 : collection->n;
	uint32	   *ids = palloc_array(uint32, Max(capacity + collection->nwide, 1));
	uint32		n = narrow_ids(collection, ids);
	IdSet	   *set;

	if (collection->nwide > 0)
		memcpy(ids + n, collection->wide, collection->nwide * sizeof(uint32));
	set = idset_from_ids(ids, n + collection->nwide);
	pfree(ids);
	return set;
}

/* Add one id */
static void
add_id(IdCollection *collection, uint32 id)
{
	uint16		narrow = (uint16) id;

	if (id <= IDSET_MAX_NARROW_ID)
	{
		add_narrow(collection, &narrow, 1);
		return;
	}
	make_wide_room(collection, 1);
	collection->wide[collection->nwide++] = id;
}

/*
 * Transition of idset_agg(int8).  A NULL only creates the state, so the
 * result of NULLs alone is {}.
 */
Datum
idset_agg_transfn(PG_FUNCTION_ARGS)
{
	IdCollection *collection = get_collection(fcinfo);

	if (!PG_ARGISNULL(1))
		add_id(collection, idset_check_id(PG_GETARG_INT64(1)));
	PG_RETURN_POINTER(collection);
}

/*
 * Transition of idset_union(idset).  NULLs do not create the state, so the
 * union of NULLs alone is NULL.
 */
Datum
idset_union_transfn(PG_FUNCTION_ARGS)
{
	IdCollection *collection;

	if (PG_ARGISNULL(1))
		return state_as_it_is(fcinfo);
	collection = get_collection(fcinfo);
	add_set(collection, PG_GETARG_IDSET_P(1));
	PG_RETURN_POINTER(collection);
}

/* Combine: add the ids of the second state to the first */
Datum
idset_collect_combinefn(PG_FUNCTION_ARGS)
{
	IdCollection *collection;
	IdSet	   *set;

	if (PG_ARGISNULL(1))
		return state_as_it_is(fcinfo);
	collection = get_collection(fcinfo);
	set = collected_set((IdCollection *) PG_GETARG_POINTER(1));
	add_set(collection, set);
	pfree(set);
	PG_RETURN_POINTER(collection);
}

/* Serialize the state for another process: the collected set */
Datum
idset_collect_serialfn(PG_FUNCTION_ARGS)
{
	IdSet	   *set = collected_set((IdCollection *) PG_GETARG_POINTER(0));
	bytea	   *result = palloc(VARSIZE(set));

	/* a bytea has the same layout */
	memcpy(result, set, VARSIZE(set));
	PG_RETURN_BYTEA_P(result);
}

/* Deserialize the state */
Datum
idset_collect_deserialfn(PG_FUNCTION_ARGS)
{
	bytea	   *state = PG_GETARG_BYTEA_P(0);
	IdCollection *collection = palloc0(sizeof(IdCollection));

	if (!AggCheckCallContext(fcinfo, NULL))
		elog(ERROR, "aggregate function called in non-aggregate context");
	collection->context = CurrentMemoryContext;
	add_set(collection, (IdSet *) state);
	PG_RETURN_POINTER(collection);
}

/* Final function of idset_agg and idset_union */
Datum
idset_collect_finalfn(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_IDSET_P(collected_set((IdCollection *) PG_GETARG_POINTER(0)));
}
