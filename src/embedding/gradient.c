/*-------------------------------------------------------------------------
 *
 * gradient.c
 *	  Gradients of pooling, with respect to the vectors and to the weights.
 *
 * As in pool.c, the engine computes them for a table with one mirror.
 * Otherwise, and if the request or its answer would not fit a message, the
 * vectors are collected, and the same functions compute the gradients in this
 * session.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "core/pooling_grad.h"
#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "miscadmin.h"

/*
 * With gpuvec_verify, the largest accepted difference between gradients of
 * weights, relative to the largest gradient
 */
#define WEIGHTS_TOLERANCE	1e-4

/* Raise the error that the upstream gradient has the wrong size */
static void
complain_of_gradient(const EmbeddingBags *bags, const gpuvec_embedding_answer *complaint)
{
	ereport(ERROR,
			(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
			 errmsg("the upstream gradient must have as many elements as pooling returns"),
			 errdetail("It has " UINT64_FORMAT ", pooling returns " UINT64_FORMAT ".",
					   bags->ngradient, complaint->count)));
}

/*
 * Fail unless the upstream gradient has as many elements as pooling returns
 */
static void
check_gradient(const EmbeddingBags *bags, const bool *found, uint32 width)
{
	gpuvec_embedding_answer complaint = {.status = GPUVEC_EMBEDDING_GRADIENT};
	uint64		rows = 0;

	if (bags->mode != GPUVEC_POOL_CONCAT)
		rows = bags->nbags;
	else
		for (uint64 i = 0; i < bags->nkeys; i++)
		{
			GPUVEC_STEP(i);
			rows += found[i] || bags->missing != GPUVEC_MISSING_SKIP;
		}
	complaint.count = rows * width;
	if (bags->ngradient != complaint.count)
		complain_of_gradient(bags, &complaint);
}

/* Compute the gradients of the keys' vectors in this session */
static void
vectors_here(const EmbeddingBags *bags, const float **where, uint32 width, EmbeddingGradient *result)
{
	Size		capacity = (bags->nkeys + 1) * sizeof(gpuvec_share);
	gpuvec_share *shares = MemoryContextAllocHuge(CurrentMemoryContext, capacity);
	gpuvec_share *spare = MemoryContextAllocHuge(CurrentMemoryContext, capacity);
	int64	   *keys = MemoryContextAllocHuge(CurrentMemoryContext,
											  (bags->nkeys + 1) * sizeof(int64));
	gpuvec_upstream up = {
		.gradient = bags->gradient, .width = width,
		.factors = bags->weights != NULL || bags->mode == GPUVEC_POOL_MEAN
	};
	float	   *scratch = palloc_array(float, (width + 1) * GPUVEC_SCRATCH_VECTORS);
	float	   *elements;
	uint64		row = 0;
	uint64		n = 0;
	uint64		nkeys = 0;

	for (uint64 bag = 0; bag < bags->nbags; bag++)
	{
		gpuvec_bag	one = EmbeddingBag(bags, where, width, bag, NULL);

		GPUVEC_STEP(bag);
		n += gpuvec_bag_shares(shares + n, &one, &row);
	}
	shares = gpuvec_sort_shares(shares, spare, n);
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (i == 0 || shares[i].key != shares[i - 1].key)
			keys[nkeys++] = shares[i].key;
	}
	elements = MemoryContextAllocHuge(CurrentMemoryContext, nkeys * width * sizeof(float) + 1);
	result->n = nkeys;
	result->keys = keys;
	result->elements = elements;
	for (uint64 i = 0; i < n;)
	{
		uint64		first = i;

		GPUVEC_LOOK();
		while (i < n && shares[i].key == shares[first].key)
		{
			GPUVEC_STEP(i);
			i++;
		}
		gpuvec_sum_shares(elements, shares + first, i - first, &up, scratch);
		elements += width;
	}
}

/* Compute the gradients of the weights in this session */
static void
weights_here(const EmbeddingBags *bags, const float **where, uint32 width, EmbeddingGradient *result)
{
	float	   *out = MemoryContextAllocHuge(CurrentMemoryContext, (bags->nkeys + 1) * sizeof(float));
	float	   *mean = palloc_array(float, width + 1);
	float	   *scratch = palloc_array(float, (width + 1) * GPUVEC_SCRATCH_VECTORS);
	uint64		row = 0;

	for (uint64 bag = 0; bag < bags->nbags; bag++)
	{
		gpuvec_bag	one = EmbeddingBag(bags, where, width, bag, scratch);

		GPUVEC_LOOK();
		gpuvec_bag_weight_gradients(out + bags->offsets[bag], &one, bags->gradient, mean, &row);
	}
	result->n = bags->nkeys;
	result->elements = out;
}

/* Collect the vectors, and compute the gradients in this session */
static void
gradient_here(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
			  bool use_engine, EmbeddingGradient *result)
{
	EmbeddingCollection *collection = EmbeddingCollect(table, bags->keys, bags->nkeys, use_engine);
	EmbeddingVectors vectors = {0};
	const float **where = EmbeddingLocate(collection, table, bags, &vectors);

	result->known = vectors.known;
	result->width = vectors.width;
	if (!vectors.known)
		return;
	check_gradient(bags, vectors.found, vectors.width);
	if (op == GPUVEC_EMBEDDING_GRAD)
		vectors_here(bags, where, vectors.width, result);
	else
		weights_here(bags, where, vectors.width, result);
}

/*
 * Let the engine compute the gradients.  False if the table does not have
 * exactly one shared mirror, or the request or answer would be too large.
 * False with *use_engine = false if there is no engine.
 */
static bool
gradient_in_engine(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
				   bool *use_engine, EmbeddingGradient *result)
{
	EmbeddingAnswer answer;
	const char *reason;

	*use_engine = true;
	if (table->ntargets != 1 || table->targets[0].mode != MIRROR_SHARED ||
		EmbeddingRequestTooLarge(bags))
		return false;
	if (!EmbeddingAsk(table, 0, op, 0, bags, &answer, &reason))
	{
		GpuvecLinkWarn(reason);
		*use_engine = false;
		return false;
	}
	if (answer.head.status == GPUVEC_EMBEDDING_LARGE)
		return false;
	if (answer.head.status == GPUVEC_EMBEDDING_GRADIENT)
		complain_of_gradient(bags, &answer.head);
	if (answer.head.status != GPUVEC_EMBEDDING_DONE)
		EmbeddingComplain(table, &answer.head);
	result->known = answer.head.nfound > 0;
	result->width = answer.head.width;
	result->n = op == GPUVEC_EMBEDDING_GRAD ? answer.head.nrows : answer.head.count;
	result->keys = answer.keys;
	result->elements = answer.elements;
	return true;
}

/*
 * Fail if gradients of weights differ by more than WEIGHTS_TOLERANCE.  A GPU
 * adds the products of a scalar product in another order.
 */
static void
compare_nearly(EmbeddingTable *table, const float *a, const float *b, uint64 n)
{
	double		largest = 0;

	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (isfinite(a[i]))
			largest = Max(largest, fabs(a[i]));
	}
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (isfinite(a[i]) != isfinite(b[i]) ||
			(isfinite(a[i]) && fabs((double) a[i] - b[i]) > WEIGHTS_TOLERANCE * largest))
			EmbeddingReportWrong(table);
	}
}

/* Fail if two answers differ */
static void
compare_gradients(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingGradient *a,
				  const EmbeddingGradient *b)
{
	if (a->known != b->known || (a->known && (a->n != b->n || a->width != b->width)))
		EmbeddingReportWrong(table);
	if (!a->known)
		return;
	if (op == GPUVEC_EMBEDDING_GRAD && memcmp(a->keys, b->keys, a->n * sizeof(int64)) != 0)
		EmbeddingReportWrong(table);
	if (op == GPUVEC_EMBEDDING_GRAD)
		EmbeddingCompare(table, a->elements, b->elements, a->n * a->width);
	else
		compare_nearly(table, a->elements, b->elements, a->n);
}

/*
 * Compute the gradients of the vectors (one per distinct key, ascending), or
 * of the weights (one per key), given bags->gradient.  They live in the
 * current memory context.
 */
void
EmbeddingGradients(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
				   EmbeddingGradient *result)
{
	bool		use_engine;

	memset(result, 0, sizeof(*result));
	if (!gradient_in_engine(table, op, bags, &use_engine, result))
		gradient_here(table, op, bags, use_engine, result);
	else if (gpuvec_verify)
	{
		EmbeddingGradient check = {0};

		gradient_here(table, op, bags, false, &check);
		compare_gradients(table, op, result, &check);
	}
	if (!result->known && op == GPUVEC_EMBEDDING_GRAD_WEIGHTS)
	{
		/* the weight of a key that was not found has no influence */
		result->n = bags->nkeys;
		result->elements = MemoryContextAllocExtended(CurrentMemoryContext,
													  (bags->nkeys + 1) * sizeof(float),
													  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	}
}
