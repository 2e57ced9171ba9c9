/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  The functions of SQL over embedding tables.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "search/search.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_gather);
PG_FUNCTION_INFO_V1(gpuvec_gather_batch);
PG_FUNCTION_INFO_V1(gpuvec_pool);
PG_FUNCTION_INFO_V1(gpuvec_pool_batch);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad_batch);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad_weights);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad_weights_batch);

/* Positions of arguments behind relation, key column and vector column */
enum
{
	ARG_KEYS = 3,

	/* of a batch */
	ARG_OFFSETS = 4,
	ARG_HOTNESS,
	ARG_SLOTS,

	/* of gradients */
	ARG_GRADIENT = 4,
	ARG_GRADIENT_OFFSETS,
	ARG_GRADIENT_HOTNESS
};

/* The keys that are not null; returns their number */
static uint64
keys_that_are(const int64 **keys, const bool *nulls, uint64 n)
{
	int64	   *kept;
	uint64		nkept = 0;

	if (nulls == NULL)
		return n;
	kept = MemoryContextAllocHuge(CurrentMemoryContext, (n + 1) * sizeof(int64));
	for (uint64 i = 0; i < n; i++)
		if (!nulls[i])
			kept[nkept++] = (*keys)[i];
	*keys = kept;
	return nkept;
}

/*
 * Return a row for each key of the bags, with its sample if it is a batch.  Vectors are
 * those of the keys that are not null.
 */
static void
put_gathered(ReturnSetInfo *rsinfo, bool batch, const EmbeddingBags *bags, const bool *nulls,
			 const EmbeddingVectors *vectors)
{
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);
	const float *next = vectors->elements;
	uint64		asked = 0;
	uint64		bag = 0;

	for (uint64 i = 0; i < bags->nkeys; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(row);
		bool		no_key = nulls && nulls[i];
		bool		found = !no_key && vectors->found[asked++];
		Datum		values[5];
		bool		isnull[5] = {false, false, no_key, false, !found};

		while (i == bags->offsets[bag + 1])
			bag++;
		values[0] = Int64GetDatum((int64) bag + 1);
		values[1] = Int64GetDatum((int64) (i - bags->offsets[bag]) + 1);
		values[2] = Int64GetDatum(bags->keys[i]);
		values[3] = BoolGetDatum(found);
		values[4] = found ? EmbeddingArray(next, vectors->width) : (Datum) 0;
		if (found)
			next += vectors->width;
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values + !batch, isnull + !batch);
		MemoryContextReset(row);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextDelete(row);
}

/* Each key of an array, or of many bags, with its vector */
static Datum
gather(FunctionCallInfo fcinfo, bool batch)
{
	EmbeddingTable *table;
	EmbeddingBags bags = {.nbags = 1};
	EmbeddingVectors vectors;
	uint64		offsets[2] = {0};
	const int64 *keys;
	uint64		nkeys;
	bool	   *nulls;

	GpuvecMaterializedSRF(fcinfo);
	table = EmbeddingTableArguments(fcinfo);
	if (!PG_ARGISNULL(ARG_KEYS))
	{
		bags.keys = EmbeddingKeysArgument(fcinfo, ARG_KEYS, "keys", &nulls, &bags.nkeys);
		offsets[1] = bags.nkeys;
		bags.offsets = offsets;
		if (batch)
			EmbeddingBagsArguments(fcinfo, ARG_OFFSETS, ARG_HOTNESS, &bags);
		keys = bags.keys;
		nkeys = keys_that_are(&keys, nulls, bags.nkeys);
		EmbeddingGather(table, keys, nkeys, &vectors);
		put_gathered((ReturnSetInfo *) fcinfo->resultinfo, batch, &bags, nulls, &vectors);
	}
	EmbeddingClose(table);
	return (Datum) 0;
}

Datum
gpuvec_gather(PG_FUNCTION_ARGS)
{
	return gather(fcinfo, false);
}

Datum
gpuvec_gather_batch(PG_FUNCTION_ARGS)
{
	return gather(fcinfo, true);
}

/* gpuvec_pool: one bag of keys */
Datum
gpuvec_pool(PG_FUNCTION_ARGS)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo);
	EmbeddingBags bags = {.nbags = 1};
	EmbeddingVectors vectors;
	uint64		offsets[2] = {0};

	bags.mode = EmbeddingModeArgument(fcinfo, ARG_KEYS + 1);
	bags.missing = EmbeddingMissingArgument(fcinfo, ARG_KEYS + 3);
	if (PG_ARGISNULL(ARG_KEYS))
	{
		EmbeddingClose(table);
		PG_RETURN_NULL();
	}
	bags.keys = EmbeddingKeysArgument(fcinfo, ARG_KEYS, "keys", NULL, &bags.nkeys);
	bags.weights = EmbeddingWeightsArgument(fcinfo, ARG_KEYS + 2, bags.nkeys);
	offsets[1] = bags.nkeys;
	bags.offsets = offsets;
	EmbeddingPool(table, &bags, &vectors);
	EmbeddingClose(table);
	if (!vectors.known)
		PG_RETURN_NULL();
	return EmbeddingArray(vectors.elements, vectors.count);
}

/* Return a row for each sample: the vectors of its bags, one behind the other */
static void
put_samples(ReturnSetInfo *rsinfo, const EmbeddingBags *bags, uint64 slots,
			const EmbeddingVectors *vectors)
{
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);
	const float *next = vectors->elements;

	for (uint64 bag = 0; bag < bags->nbags; bag += slots)
	{
		MemoryContext old = MemoryContextSwitchTo(row);
		uint64		n = 0;
		Datum		values[2];
		bool		nulls[2] = {false, !vectors->known};

		values[0] = Int64GetDatum((int64) (bag / slots) + 1);
		if (vectors->known)
		{
			for (uint64 slot = 0; slot < slots; slot++)
				n += EmbeddingBagElements(bags, vectors, bag + slot);
			values[1] = EmbeddingArray(next, n);
			next += n;
		}
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		MemoryContextReset(row);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextDelete(row);
}

/* gpuvec_pool_batch: many bags of keys */
Datum
gpuvec_pool_batch(PG_FUNCTION_ARGS)
{
	EmbeddingTable *table;
	EmbeddingBags bags = {0};
	EmbeddingVectors vectors;
	int64		slots;

	GpuvecMaterializedSRF(fcinfo);
	table = EmbeddingTableArguments(fcinfo);
	bags.mode = EmbeddingModeArgument(fcinfo, ARG_SLOTS + 1);
	bags.missing = EmbeddingMissingArgument(fcinfo, ARG_SLOTS + 3);
	if (!PG_ARGISNULL(ARG_KEYS))
	{
		bags.keys = EmbeddingKeysArgument(fcinfo, ARG_KEYS, "keys", NULL, &bags.nkeys);
		bags.weights = EmbeddingWeightsArgument(fcinfo, ARG_SLOTS + 2, bags.nkeys);
		EmbeddingBagsArguments(fcinfo, ARG_OFFSETS, ARG_HOTNESS, &bags);
		slots = EmbeddingSlotsArgument(fcinfo, ARG_SLOTS, bags.nbags);
		EmbeddingPool(table, &bags, &vectors);
		put_samples((ReturnSetInfo *) fcinfo->resultinfo, &bags, slots, &vectors);
	}
	EmbeddingClose(table);
	return (Datum) 0;
}

/*
 * The arguments of a gradient; false: the keys are null.  `batch`: there are offsets
 * and hotness.  *next is the position of the argument behind mode, weights, missing.
 */
static bool
gradient_arguments(FunctionCallInfo fcinfo, bool batch, EmbeddingBags *bags, int *next)
{
	int			mode = batch ? ARG_GRADIENT_HOTNESS + 1 : ARG_GRADIENT + 1;
	uint64	   *offsets;

	*next = mode + 3;
	if (PG_ARGISNULL(ARG_KEYS))
		return false;
	bags->mode = EmbeddingModeArgument(fcinfo, mode);
	bags->missing = EmbeddingMissingArgument(fcinfo, mode + 2);
	bags->keys = EmbeddingKeysArgument(fcinfo, ARG_KEYS, "keys", NULL, &bags->nkeys);
	bags->weights = EmbeddingWeightsArgument(fcinfo, mode + 1, bags->nkeys);
	EmbeddingGradientArgument(fcinfo, ARG_GRADIENT, bags);
	if (batch)
	{
		EmbeddingBagsArguments(fcinfo, ARG_GRADIENT_OFFSETS, ARG_GRADIENT_HOTNESS, bags);
		return true;
	}
	offsets = palloc_array(uint64, 2);
	offsets[0] = 0;
	offsets[1] = bags->nkeys;
	bags->offsets = offsets;
	bags->nbags = 1;
	return true;
}

/* Return a key and its gradient (NULL: zeros) */
static void
put_gradient(ReturnSetInfo *rsinfo, MemoryContext row, int64 key, const float *elements,
			 const float *zeros, uint32 width)
{
	MemoryContext old = MemoryContextSwitchTo(row);
	Datum		values[2];
	bool		nulls[2] = {false, false};

	CHECK_FOR_INTERRUPTS();
	values[0] = Int64GetDatum(key);
	values[1] = EmbeddingArray(elements ? elements : zeros, width);
	MemoryContextSwitchTo(old);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	MemoryContextReset(row);
}

/* Return all gradients; `keys`: zeros for those of these n that have none */
static void
put_gradients(ReturnSetInfo *rsinfo, const EmbeddingGradient *gradient, const int64 *keys, uint64 n)
{
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);
	float	   *zeros = palloc0(gradient->width * sizeof(float) + 1);
	const float *elements = gradient->elements;
	uint64		next = 0;

	for (uint64 i = 0; i < n; i++)
	{
		bool		has = next < gradient->n && gradient->keys[next] == keys[i];

		put_gradient(rsinfo, row, keys[i], has ? elements : NULL, zeros, gradient->width);
		elements += has ? gradient->width : 0;
		next += has;
	}
	MemoryContextDelete(row);
}

/* gpuvec_pool_grad: gradients of vectors, by key */
static Datum
pool_grad(FunctionCallInfo fcinfo, bool batch)
{
	EmbeddingTable *table;
	EmbeddingBags bags = {0};
	EmbeddingGradient gradient;
	int			next;

	GpuvecMaterializedSRF(fcinfo);
	table = EmbeddingTableArguments(fcinfo);
	if (gradient_arguments(fcinfo, batch, &bags, &next))
	{
		const int64 *keys;
		uint64		n;

		EmbeddingGradients(table, GPUVEC_EMBED_GRAD, &bags, &gradient);
		keys = gradient.keys;
		n = gradient.n;
		if (!PG_ARGISNULL(next) && PG_GETARG_BOOL(next))
		{
			keys = EmbeddingAllKeys(table, &n);
			if (!gradient.known)
				(void) EmbeddingWidth(table, &gradient.width);
		}
		put_gradients((ReturnSetInfo *) fcinfo->resultinfo, &gradient, keys, n);
	}
	EmbeddingClose(table);
	return (Datum) 0;
}

Datum
gpuvec_pool_grad(PG_FUNCTION_ARGS)
{
	return pool_grad(fcinfo, false);
}

Datum
gpuvec_pool_grad_batch(PG_FUNCTION_ARGS)
{
	return pool_grad(fcinfo, true);
}

/* gpuvec_pool_grad_weights: the gradient of each weight */
static Datum
pool_grad_weights(FunctionCallInfo fcinfo, bool batch)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo);
	EmbeddingBags bags = {0};
	EmbeddingGradient gradient;
	int			next;
	bool		known = gradient_arguments(fcinfo, batch, &bags, &next);

	if (known)
		EmbeddingGradients(table, GPUVEC_EMBED_GRAD_WEIGHTS, &bags, &gradient);
	EmbeddingClose(table);
	if (!known)
		PG_RETURN_NULL();
	return EmbeddingArray(gradient.elements, gradient.n);
}

Datum
gpuvec_pool_grad_weights(PG_FUNCTION_ARGS)
{
	return pool_grad_weights(fcinfo, false);
}

Datum
gpuvec_pool_grad_weights_batch(PG_FUNCTION_ARGS)
{
	return pool_grad_weights(fcinfo, true);
}
