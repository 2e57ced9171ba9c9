/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *	  The aggregates gpuvec_pool_agg, gpuvec_sum_agg and
 *	  gpuvec_weighted_sum_agg: pool the vectors of the keys of each group.
 *
 * One request to the engine per group would be slow.  So the transition
 * function only collects keys.  The states of all groups in the same memory
 * context form a collection.  When the first of these groups is finished, all
 * of them are pooled in one request, and the others find their results there.
 *
 * In a hashed aggregate, all groups in memory are complete when the first is
 * finished.  Groups that did not fit were spilled; they are in a later
 * collection.  In a sorted aggregate, a collection is one group.  After
 * LONE_GROUPS such groups, vectors are kept from group to group (cache.c).  A
 * state that gets more keys after it was pooled, as in window functions, is
 * pooled again.
 *
 * Citus can compute the arguments of an aggregate on the workers, and the
 * aggregate on the coordinator, where a worker's oid may be another table's.
 * With Citus, the relation must not come from rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "search/set_search.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(gpuvec_pool_agg_transfn);
PG_FUNCTION_INFO_V1(gpuvec_pool_agg_finalfn);

/* Room for keys in a new group */
#define FIRST_KEYS	4

/* After this many groups that were pooled alone, vectors are kept */
#define LONE_GROUPS	4

typedef struct PoolCollection PoolCollection;

/* The state of one group */
typedef struct PoolState
{
	PoolCollection *collection;
	struct PoolState *next;		/* next in the collection */
	int64	   *keys;
	float	   *weights;		/* [n], or NULL */
	uint32		n;
	uint32		capacity;

	/* the result, once pooled */
	bool		pooled;
	bool		known;			/* false: the table has no vectors, so no
								 * width */
	uint32		pooled_n;		/* n when it was pooled */
	uint64		count;
	const float *elements;
} PoolState;

/*
 * The arguments, apart from key and weight; the same in all rows of a group
 */
typedef struct PoolArguments
{
	Oid			relid;
	NameData	key_column;
	NameData	column;
	gpuvec_pool_mode mode;
	gpuvec_missing missing;
	bool		weighted;
} PoolArguments;

/* A call of the aggregate in a statement, with all its groups */
typedef struct PoolCall
{
	MemoryContext context;		/* lives as long as the call */
	PoolCollection *collections;
	PoolArguments lone_what;	/* arguments of the last group that was pooled
								 * alone */
	uint32		lone;			/* number of such groups in succession */
	EmbeddingCache *cache;		/* for such groups, or NULL */
	MirrorKeptMap *kept_map;	/* for such groups, or NULL */
} PoolCall;

/*
 * Groups of one memory context and with the same arguments, which are pooled
 * together
 */
struct PoolCollection
{
	PoolCollection *next;		/* next of the same call */
	PoolCall   *call;
	MemoryContext context;
	MemoryContextCallback callback;
	PoolArguments what;
	PoolState  *states;
	MemoryContext kept;			/* holds the vectors of the last pooling */
};

/* Positions of arguments, after the state */
enum
{
	ARG_RELATION = 1,
	ARG_KEY_COLUMN,
	ARG_COLUMN,
	ARG_KEY,
	ARG_WEIGHT,
	ARG_MODE,
	ARG_MISSING
};

/*
 * Reset callback of a collection's memory context: take the collection off
 * its list
 */
static void
forget_collection(void *arg)
{
	PoolCollection *collection = arg;
	PoolCollection **link = &collection->call->collections;

	while (*link != collection)
		link = &(*link)->next;
	*link = collection->next;
}

/* Read the arguments, apart from key and weight */
static void
read_what(FunctionCallInfo fcinfo, PoolArguments *what)
{
	if (PG_ARGISNULL(ARG_RELATION) || PG_ARGISNULL(ARG_KEY_COLUMN) || PG_ARGISNULL(ARG_COLUMN))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("relation and columns must not be null")));
	memset(what, 0, sizeof(*what));
	what->relid = PG_GETARG_OID(ARG_RELATION);
	namestrcpy(&what->key_column, NameStr(*PG_GETARG_NAME(ARG_KEY_COLUMN)));
	namestrcpy(&what->column, NameStr(*PG_GETARG_NAME(ARG_COLUMN)));
	what->weighted = PG_NARGS() > ARG_WEIGHT;
	if (PG_NARGS() > ARG_MODE)
		what->mode = EmbeddingModeArgument(fcinfo, ARG_MODE);
	if (PG_NARGS() > ARG_MISSING)
		what->missing = EmbeddingMissingArgument(fcinfo, ARG_MISSING);
}

/* Refuse a relation that comes from rows, in a database with Citus */
static void
check_source(FunctionCallInfo fcinfo)
{
	Aggref	   *aggregate = AggGetAggref(fcinfo);
	SearchCatalogs catalogs;

	if (aggregate == NULL || !contain_var_clause(linitial(aggregate->args)))
		return;
	SearchFindCatalogs(&catalogs);
	if (OidIsValid(catalogs.citus))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation must not come from rows in a database with Citus"),
				 errdetail("They may be rows of another node, where tables have other oids."),
				 errhint("Group by the column that the rows are distributed by, or select them in a subquery with OFFSET 0.")));
}

/* Find or make the collection that a new group belongs to */
static PoolCollection *
find_collection(FunctionCallInfo fcinfo, MemoryContext context)
{
	PoolCall   *call = fcinfo->flinfo->fn_extra;
	PoolCollection *collection;
	PoolArguments what;

	if (call == NULL)
	{
		check_source(fcinfo);
		call = fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
																 sizeof(PoolCall));
		call->context = fcinfo->flinfo->fn_mcxt;
	}
	read_what(fcinfo, &what);
	for (collection = call->collections; collection; collection = collection->next)
		if (collection->context == context && memcmp(&collection->what, &what, sizeof(what)) == 0)
			return collection;
	collection = MemoryContextAllocZero(context, sizeof(PoolCollection));
	collection->context = context;
	collection->what = what;
	collection->call = call;
	collection->next = call->collections;
	call->collections = collection;
	collection->callback.func = forget_collection;
	collection->callback.arg = collection;
	MemoryContextRegisterResetCallback(context, &collection->callback);
	return collection;
}

static PoolState *
new_state(FunctionCallInfo fcinfo, MemoryContext context)
{
	PoolCollection *collection = find_collection(fcinfo, context);
	PoolState  *state = MemoryContextAllocZero(context, sizeof(PoolState));

	state->collection = collection;
	state->capacity = FIRST_KEYS;
	state->keys = MemoryContextAlloc(context, FIRST_KEYS * sizeof(int64));
	if (collection->what.weighted)
		state->weights = MemoryContextAlloc(context, FIRST_KEYS * sizeof(float));
	state->next = collection->states;
	collection->states = state;
	return state;
}

/* True if an argument is this text */
static bool
is_text(FunctionCallInfo fcinfo, int argument, const char *name)
{
	text	   *value;
	Size		length = strlen(name);

	if (PG_ARGISNULL(argument))
		return false;
	value = PG_GETARG_TEXT_PP(argument);
	return VARSIZE_ANY_EXHDR(value) == length && memcmp(VARDATA_ANY(value), name, length) == 0;
}

/* True if the arguments are still the same.  This runs for each row. */
static bool
same_what(FunctionCallInfo fcinfo, const PoolArguments *what)
{
	static const char *const modes[] = GPUVEC_POOL_MODE_NAMES;
	static const char *const missing[] = GPUVEC_MISSING_NAMES;

	return !PG_ARGISNULL(ARG_RELATION) && !PG_ARGISNULL(ARG_KEY_COLUMN) &&
		!PG_ARGISNULL(ARG_COLUMN) && PG_GETARG_OID(ARG_RELATION) == what->relid &&
		strcmp(NameStr(*PG_GETARG_NAME(ARG_KEY_COLUMN)), NameStr(what->key_column)) == 0 &&
		strcmp(NameStr(*PG_GETARG_NAME(ARG_COLUMN)), NameStr(what->column)) == 0 &&
		(PG_NARGS() <= ARG_MODE || is_text(fcinfo, ARG_MODE, modes[what->mode])) &&
		(PG_NARGS() <= ARG_MISSING || is_text(fcinfo, ARG_MISSING, missing[what->missing]));
}

/* Add a key to a group */
static void
add_key(PoolState *state, int64 key, float weight)
{
	if (state->n == state->capacity)
	{
		if (state->capacity > (uint32) (MaxAllocSize / sizeof(int64) / 2))
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a group has too many keys to be pooled")));
		state->capacity *= 2;
		state->keys = repalloc(state->keys, state->capacity * sizeof(int64));
		if (state->weights)
			state->weights = repalloc(state->weights, state->capacity * sizeof(float));
	}
	state->keys[state->n] = key;
	if (state->weights)
		state->weights[state->n] = weight;
	state->n++;
}

/* Transition function: add a key.  Rows whose key is null are ignored. */
Datum
gpuvec_pool_agg_transfn(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	PoolState  *state;
	float		weight = 1;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "gpuvec_pool_agg_transfn called in non-aggregate context");
	state = PG_ARGISNULL(0) ? new_state(fcinfo, context) : (PoolState *) PG_GETARG_POINTER(0);
	if (!PG_ARGISNULL(0) && !same_what(fcinfo, &state->collection->what))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("relation, columns, mode and missing must be the same in all rows of a group")));
	if (PG_ARGISNULL(ARG_KEY))
		PG_RETURN_POINTER(state);
	if (state->weights)
	{
		if (PG_ARGISNULL(ARG_WEIGHT))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("the weight of a key must not be null")));
		weight = (float) PG_GETARG_FLOAT8(ARG_WEIGHT);
	}
	add_key(state, PG_GETARG_INT64(ARG_KEY), weight);
	PG_RETURN_POINTER(state);
}

/* True if the group was pooled with all its keys */
static bool
is_pooled(const PoolState *state)
{
	return state->pooled && state->pooled_n == state->n;
}

/* Make a bag of each group that has to be pooled */
static void
collect_bags(const PoolCollection *collection, EmbeddingBags *bags)
{
	uint64		nkeys = 0;
	uint64		nbags = 0;
	int64	   *keys;
	float	   *weights = NULL;
	uint64	   *offsets;

	for (PoolState *state = collection->states; state; state = state->next)
		if (!is_pooled(state))
		{
			nkeys += state->n;
			nbags++;
		}
	keys = MemoryContextAllocHuge(CurrentMemoryContext, (nkeys + 1) * sizeof(int64));
	offsets = MemoryContextAllocHuge(CurrentMemoryContext, (nbags + 1) * sizeof(uint64));
	if (collection->what.weighted)
		weights = MemoryContextAllocHuge(CurrentMemoryContext, (nkeys + 1) * sizeof(float));
	memset(bags, 0, sizeof(*bags));
	bags->keys = keys;
	bags->offsets = offsets;
	bags->weights = weights;
	bags->mode = collection->what.mode;
	bags->missing = collection->what.missing;
	offsets[0] = 0;
	for (PoolState *state = collection->states; state; state = state->next)
	{
		GPUVEC_LOOK();
		if (is_pooled(state))
			continue;
		memcpy(keys + bags->nkeys, state->keys, state->n * sizeof(int64));
		if (weights)
			memcpy(weights + bags->nkeys, state->weights, state->n * sizeof(float));
		bags->nkeys += state->n;
		offsets[++bags->nbags] = bags->nkeys;
	}
}

/*
 * The cache to pool a collection with, or NULL.  It is made after LONE_GROUPS
 * groups with the same table and columns were pooled alone, because more are
 * then likely to follow.
 */
static EmbeddingCache *
find_cache(const PoolCollection *collection)
{
	const PoolArguments *what = &collection->what;
	PoolCall   *call = collection->call;
	bool		alone = collection->states->next == NULL;

	if (!alone || call->lone_what.relid != what->relid ||
		strcmp(NameStr(call->lone_what.key_column), NameStr(what->key_column)) != 0 ||
		strcmp(NameStr(call->lone_what.column), NameStr(what->column)) != 0)
	{
		if (call->cache)
			EmbeddingCacheDrop(call->cache);
		call->cache = NULL;
		call->lone = 0;
		call->lone_what = *what;
	}
	if (!alone)
		return NULL;
	if (call->lone < LONE_GROUPS)
	{
		call->lone++;
		return NULL;
	}
	if (call->cache == NULL)
		call->cache = EmbeddingCacheMake(call->context);
	if (call->kept_map == NULL)
	{
		call->kept_map = MemoryContextAllocZero(call->context, sizeof(MirrorKeptMap));
		call->kept_map->context = call->context;
	}
	return call->cache;
}

static void
pool_bags(PoolCollection *collection, const EmbeddingBags *bags, EmbeddingVectors *vectors)
{
	const PoolArguments *what = &collection->what;
	EmbeddingCache *cache = find_cache(collection);
	EmbeddingTable *table = EmbeddingOpen(what->relid, NameStr(what->key_column),
										  NameStr(what->column), GetActiveSnapshot());

	if (cache && table->ntargets == 1)
		table->kept_map = collection->call->kept_map;
	if (cache == NULL || !EmbeddingCachePool(cache, table, bags, vectors))
		EmbeddingPool(table, bags, vectors);
	EmbeddingClose(table);
}

/* Pool all groups of a collection that have not been pooled */
static void
pool_collection(PoolCollection *collection)
{
	MemoryContext old;
	EmbeddingBags bags;
	EmbeddingVectors vectors;
	const float *next;
	uint64		bag = 0;

	/* the only group of a window function is pooled again for each row */
	if (collection->kept && collection->states->next == NULL)
		MemoryContextDelete(collection->kept);
	collection->kept = AllocSetContextCreate(collection->context, "gpuvec pooled",
											 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(collection->kept);
	collect_bags(collection, &bags);
	pool_bags(collection, &bags, &vectors);
	next = vectors.elements;
	for (PoolState *state = collection->states; state; state = state->next)
	{
		if (is_pooled(state))
			continue;
		state->pooled = true;
		state->pooled_n = state->n;
		state->known = vectors.known;
		state->elements = next;
		state->count = vectors.known ? EmbeddingBagElements(&bags, &vectors, bag++) : 0;
		next += state->count;
	}
	MemoryContextSwitchTo(old);
}

/* Final function: the pooled vector, or null if the table has no vectors */
Datum
gpuvec_pool_agg_finalfn(PG_FUNCTION_ARGS)
{
	PoolState  *state;

	if (!AggCheckCallContext(fcinfo, NULL))
		elog(ERROR, "gpuvec_pool_agg_finalfn called in non-aggregate context");
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	state = (PoolState *) PG_GETARG_POINTER(0);
	if (!is_pooled(state))
		pool_collection(state->collection);
	if (!state->known)
		PG_RETURN_NULL();
	return EmbeddingArray(state->elements, state->count);
}
