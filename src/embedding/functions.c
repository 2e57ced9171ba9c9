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
PG_FUNCTION_INFO_V1(gpuvec_pool);
PG_FUNCTION_INFO_V1(gpuvec_pool_batch);

/* Positions of arguments behind relation, key column and vector column */
enum
{
	ARG_KEYS = 3,

	/* of a batch */
	ARG_OFFSETS = 4,
	ARG_HOTNESS,
	ARG_SLOTS
};

/* gpuvec_gather: each key of an array with its vector */
Datum
gpuvec_gather(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	EmbeddingTable *table;
	EmbeddingVectors vectors;
	const int64 *keys;
	bool	   *nulls;
	uint64		nkeys;
	const float *next;
	MemoryContext row;

	GpuvecMaterializedSRF(fcinfo);
	table = EmbeddingTableArguments(fcinfo);
	if (PG_ARGISNULL(ARG_KEYS))
	{
		EmbeddingClose(table);
		return (Datum) 0;
	}
	keys = EmbeddingKeysArgument(fcinfo, ARG_KEYS, "keys", &nulls, &nkeys);
	EmbeddingGather(table, keys, nkeys, &vectors);
	EmbeddingClose(table);

	row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row", ALLOCSET_DEFAULT_SIZES);
	next = vectors.elements;
	for (uint64 i = 0; i < nkeys; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(row);
		bool		no_key = nulls && nulls[i];
		bool		found = vectors.found[i] && !no_key;
		Datum		values[4];
		bool		isnull[4] = {false, no_key, false, !found};

		values[0] = Int64GetDatum((int64) i + 1);
		values[1] = Int64GetDatum(keys[i]);
		values[2] = BoolGetDatum(found);
		values[3] = found ? EmbeddingArray(next, vectors.width) : (Datum) 0;
		if (vectors.found[i])
			next += vectors.width;
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
		MemoryContextReset(row);
		CHECK_FOR_INTERRUPTS();
	}
	return (Datum) 0;
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
