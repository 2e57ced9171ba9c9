/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  SQL functions over embedding tables that return rows.
 *
 * A call computes all vectors at once, and then returns them row by row.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "search/set_search.h"
#include "search/set_function.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(gpuvec_gather);
PG_FUNCTION_INFO_V1(gpuvec_gather_batch);
PG_FUNCTION_INFO_V1(gpuvec_pool_batch);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad_batch);
PG_FUNCTION_INFO_V1(gpuvec_vectors_support);

/* Forms of a function: for one bag of keys, or for a batch of bags */
#define FORM_ONE	0
#define FORM_BATCH	1

/* Positions of arguments, in functions of a batch */
enum
{
	ARG_OFFSETS = EMBEDDING_ARG_KEYS + 1,
	ARG_HOTNESS,
	ARG_SLOTS
};

/* ---- gpuvec_gather, gpuvec_gather_batch: keys with their vectors ---- */

typedef struct GatherCall
{
	bool		batch;			/* rows begin with the number of the bag */
	EmbeddingBags bags;
	uint64		one[2];			/* the offsets of a single bag */
	bool	   *nulls;			/* [nkeys]: keys that are null; NULL: none */
	EmbeddingVectors vectors;	/* of the keys that are not null */

	/* the next row */
	uint64		key;			/* index of its key */
	uint64		asked;			/* number of keys before it that are not null */
	uint64		bag;
	const float *elements;
	EmbeddingArrayBuffer buffer;
} GatherCall;

/* Leave out null keys; returns the number of the others */
static uint64
keys_that_are(const int64 **keys, const bool *nulls, uint64 n)
{
	int64	   *kept;
	uint64		nkept = 0;

	if (nulls == NULL)
		return n;
	kept = MemoryContextAllocHuge(CurrentMemoryContext, (n + 1) * sizeof(int64));
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (!nulls[i])
			kept[nkept++] = (*keys)[i];
	}
	*keys = kept;
	return nkept;
}

static void
gather_rewind(void *state)
{
	GatherCall *call = state;

	call->key = call->asked = call->bag = 0;
	call->elements = call->vectors.elements;
}

static void *
gather_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo, snapshot);
	GatherCall *call = palloc0_object(GatherCall);
	EmbeddingBags *bags = &call->bags;
	const int64 *keys;
	uint64		nkeys;

	call->batch = form == FORM_BATCH;
	if (!PG_ARGISNULL(EMBEDDING_ARG_KEYS))
	{
		bags->keys = EmbeddingKeysArgument(fcinfo, EMBEDDING_ARG_KEYS, "keys", &call->nulls,
										   &bags->nkeys);
		bags->nbags = 1;
		call->one[1] = bags->nkeys;
		bags->offsets = call->one;
		if (call->batch)
			EmbeddingBagsArguments(fcinfo, ARG_OFFSETS, ARG_HOTNESS, bags);
		keys = bags->keys;
		nkeys = keys_that_are(&keys, call->nulls, bags->nkeys);
		EmbeddingGather(table, keys, nkeys, &call->vectors);
	}
	EmbeddingClose(table);
	gather_rewind(call);
	return call;
}

/*
 * Return the next key with its vector; in a batch with the number of its bag
 */
static bool
gather_next(void *state, Datum *values, bool *nulls)
{
	GatherCall *call = state;
	EmbeddingBags *bags = &call->bags;
	uint64		i = call->key++;
	bool		no_key;
	bool		found;
	int			n = 0;

	CHECK_FOR_INTERRUPTS();
	if (i >= bags->nkeys)
		return false;
	while (i == bags->offsets[call->bag + 1])
		call->bag++;
	no_key = call->nulls && call->nulls[i];
	found = !no_key && call->vectors.found[call->asked++];
	if (call->batch)
		values[n++] = Int64GetDatum((int64) call->bag + 1);
	values[n++] = Int64GetDatum((int64) (i - bags->offsets[call->bag]) + 1);
	nulls[n] = no_key;
	values[n++] = Int64GetDatum(bags->keys[i]);
	values[n++] = BoolGetDatum(found);
	nulls[n] = !found;
	if (found)
	{
		values[n] = EmbeddingNextArray(&call->buffer, call->elements, call->vectors.width);
		call->elements += call->vectors.width;
	}
	return true;
}

/* ---- gpuvec_pool_batch: many bags of keys ---- */

typedef struct PoolCall
{
	EmbeddingBags bags;
	uint64		slots;			/* number of bags of a sample, which is a row */
	EmbeddingVectors vectors;

	/* the next row */
	uint64		bag;			/* its first bag */
	const float *elements;
	EmbeddingArrayBuffer buffer;
} PoolCall;

static void
pool_rewind(void *state)
{
	PoolCall   *call = state;

	call->bag = 0;
	call->elements = call->vectors.elements;
}

static void *
pool_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo, snapshot);
	PoolCall   *call = palloc0_object(PoolCall);
	EmbeddingBags *bags = &call->bags;

	bags->mode = EmbeddingModeArgument(fcinfo, ARG_SLOTS + 1);
	bags->missing = EmbeddingMissingArgument(fcinfo, ARG_SLOTS + 3);
	if (!PG_ARGISNULL(EMBEDDING_ARG_KEYS))
	{
		bags->keys = EmbeddingKeysArgument(fcinfo, EMBEDDING_ARG_KEYS, "keys", NULL, &bags->nkeys);
		bags->weights = EmbeddingWeightsArgument(fcinfo, ARG_SLOTS + 2, bags->nkeys);
		EmbeddingBagsArguments(fcinfo, ARG_OFFSETS, ARG_HOTNESS, bags);
		call->slots = EmbeddingSlotsArgument(fcinfo, ARG_SLOTS, bags->nbags);
		EmbeddingPool(table, bags, &call->vectors);
	}
	EmbeddingClose(table);
	pool_rewind(call);
	return call;
}

/* Return the next sample: the vectors of its bags, joined */
static bool
pool_next(void *state, Datum *values, bool *nulls)
{
	PoolCall   *call = state;
	uint64		n = 0;

	CHECK_FOR_INTERRUPTS();
	if (call->bag >= call->bags.nbags)
		return false;
	values[0] = Int64GetDatum((int64) (call->bag / call->slots) + 1);
	nulls[1] = !call->vectors.known;
	if (call->vectors.known)
	{
		for (uint64 slot = 0; slot < call->slots; slot++)
			n += EmbeddingBagElements(&call->bags, &call->vectors, call->bag + slot);
		values[1] = EmbeddingNextArray(&call->buffer, call->elements, n);
		call->elements += n;
	}
	call->bag += call->slots;
	return true;
}

/* ---- gpuvec_pool_grad, gpuvec_pool_grad_batch: gradients by key ---- */

typedef struct GradientCall
{
	EmbeddingGradient gradient;
	const int64 *keys;			/* [nkeys]: keys to return, either with a
								 * gradient or all keys of the table */
	uint64		nkeys;
	float	   *zeros;			/* gradient of keys that have none */

	/* the next row */
	uint64		key;
	uint64		next;			/* index of the next gradient */
	EmbeddingArrayBuffer buffer;
} GradientCall;

static void
gradient_rewind(void *state)
{
	GradientCall *call = state;

	call->key = call->next = 0;
}

static void *
gradient_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo, snapshot);
	GradientCall *call = palloc0_object(GradientCall);
	EmbeddingGradient *gradient = &call->gradient;
	EmbeddingBags bags = {0};
	int			all_keys;

	if (EmbeddingGradientArguments(fcinfo, form == FORM_BATCH, &bags, &all_keys))
	{
		EmbeddingGradients(table, GPUVEC_EMBEDDING_GRAD, &bags, gradient);
		call->keys = gradient->keys;
		call->nkeys = gradient->n;
		if (!PG_ARGISNULL(all_keys) && PG_GETARG_BOOL(all_keys))
		{
			call->keys = EmbeddingAllKeys(table, &call->nkeys);
			if (!gradient->known)
				(void) EmbeddingWidth(table, &gradient->width);
		}
		call->zeros = palloc0(gradient->width * sizeof(float) + 1);
	}
	EmbeddingClose(table);
	return call;
}

/* Return the next key and its gradient */
static bool
gradient_next(void *state, Datum *values, bool *nulls)
{
	GradientCall *call = state;
	EmbeddingGradient *gradient = &call->gradient;
	const float *elements = call->zeros;

	CHECK_FOR_INTERRUPTS();
	if (call->key >= call->nkeys)
		return false;
	if (call->next < gradient->n && gradient->keys[call->next] == call->keys[call->key])
		elements = gradient->elements + call->next++ * gradient->width;
	values[0] = Int64GetDatum(call->keys[call->key++]);
	values[1] = EmbeddingNextArray(&call->buffer, elements, gradient->width);
	return true;
}

/* ---- the functions ---- */

#define ROWS_OF(what, name, which) \
	{.function = name, .form = which, .begin = what##_begin, .next = what##_next, \
		.rewind = what##_rewind}

static const SetFunction functions[] = {
	ROWS_OF(gather, gpuvec_gather, FORM_ONE),
	ROWS_OF(gather, gpuvec_gather_batch, FORM_BATCH),
	ROWS_OF(pool, gpuvec_pool_batch, FORM_BATCH),
	ROWS_OF(gradient, gpuvec_pool_grad, FORM_ONE),
	ROWS_OF(gradient, gpuvec_pool_grad_batch, FORM_BATCH),
	{0}
};

void
EmbeddingInit(void)
{
	SetFunctionsAdd(functions);
}

/*
 * Number of elements of an array argument; -1 if the planner does not know it
 */
static double
known_elements(PlannerInfo *root, FuncExpr *call, int argument)
{
	Const	   *known = SearchKnownArgument(root, call, argument);
	ArrayType  *array;

	if (known == NULL || known->constisnull)
		return -1;
	array = DatumGetArrayTypeP(known->constvalue);
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

/* Value of a bigint argument; -1 if the planner does not know it */
static double
known_number(PlannerInfo *root, FuncExpr *call, int argument)
{
	Const	   *known = SearchKnownArgument(root, call, argument);

	return known == NULL || known->constisnull ? -1 : (double) DatumGetInt64(known->constvalue);
}

/* Expected number of rows of gpuvec_pool_batch; -1 if not known */
static double
expected_samples(PlannerInfo *root, FuncExpr *call)
{
	double		keys = known_elements(root, call, EMBEDDING_ARG_KEYS);
	double		offsets = known_elements(root, call, ARG_OFFSETS);
	double		hotness = known_number(root, call, ARG_HOTNESS);
	double		bags = offsets > 0 ? offsets - 1 : hotness > 0 && keys >= 0 ? keys / hotness : -1;

	return bags < 0 ? bags : bags / Max(known_number(root, call, ARG_SLOTS), 1);
}

/*
 * Planner support: the expected number of rows.  Calling it also makes the
 * planner load the library, before it asks for paths (set_scan.c).
 */
Datum
gpuvec_vectors_support(PG_FUNCTION_ARGS)
{
	Node	   *raw = (Node *) PG_GETARG_POINTER(0);
	SupportRequestRows *request = (SupportRequestRows *) raw;
	double		rows;
	FmgrInfo	function;
	const SetFunction *f;

	if (!IsA(raw, SupportRequestRows) || request->node == NULL || !IsA(request->node, FuncExpr))
		PG_RETURN_POINTER(NULL);
	fmgr_info(request->funcid, &function);
	f = SetFunctionFind(function.fn_addr);
	rows = f != NULL && f->begin == pool_begin ?
		expected_samples(request->root, (FuncExpr *) request->node) :
		known_elements(request->root, (FuncExpr *) request->node, EMBEDDING_ARG_KEYS);
	if (rows < 0)
		PG_RETURN_POINTER(NULL);
	request->rows = Max(rows, 1);
	PG_RETURN_POINTER(request);
}

Datum
gpuvec_gather(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_gather);
}

Datum
gpuvec_gather_batch(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_gather_batch);
}

Datum
gpuvec_pool_batch(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_pool_batch);
}

Datum
gpuvec_pool_grad(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_pool_grad);
}

Datum
gpuvec_pool_grad_batch(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_pool_grad_batch);
}
