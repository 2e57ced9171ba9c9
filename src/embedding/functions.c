/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  SQL functions over embedding tables that return one value.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(gpuvec_pool);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad_weights);
PG_FUNCTION_INFO_V1(gpuvec_pool_grad_weights_batch);

/* gpuvec_pool: pool one bag of keys */
Datum
gpuvec_pool(PG_FUNCTION_ARGS)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo, GetActiveSnapshot());
	EmbeddingBags bags = {.nbags = 1};
	EmbeddingVectors vectors;
	uint64		offsets[2] = {0};

	bags.mode = EmbeddingModeArgument(fcinfo, EMBEDDING_ARG_KEYS + 1);
	bags.missing = EmbeddingMissingArgument(fcinfo, EMBEDDING_ARG_KEYS + 3);
	if (PG_ARGISNULL(EMBEDDING_ARG_KEYS))
	{
		EmbeddingClose(table);
		PG_RETURN_NULL();
	}
	bags.keys = EmbeddingKeysArgument(fcinfo, EMBEDDING_ARG_KEYS, "keys", NULL, &bags.nkeys);
	bags.weights = EmbeddingWeightsArgument(fcinfo, EMBEDDING_ARG_KEYS + 2, bags.nkeys);
	offsets[1] = bags.nkeys;
	bags.offsets = offsets;
	EmbeddingPool(table, &bags, &vectors);
	EmbeddingClose(table);
	if (!vectors.known)
		PG_RETURN_NULL();
	return EmbeddingArray(vectors.elements, vectors.count);
}

/* gpuvec_pool_grad_weights: the gradient of each weight */
static Datum
pool_grad_weights(FunctionCallInfo fcinfo, bool batch)
{
	EmbeddingTable *table = EmbeddingTableArguments(fcinfo, GetActiveSnapshot());
	EmbeddingBags bags = {0};
	EmbeddingGradient gradient;
	int			next;
	bool		known = EmbeddingGradientArguments(fcinfo, batch, &bags, &next);

	if (known)
		EmbeddingGradients(table, GPUVEC_EMBEDDING_GRAD_WEIGHTS, &bags, &gradient);
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
