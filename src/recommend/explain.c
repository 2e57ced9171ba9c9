/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  gpuvec_als_explain: which of a user's items made the score of an item,
 *	  and how much.
 *
 * A user's factor is x = A^-1 times the sum of c p y_j over the user's items
 * j (core/als.h).  So the score of an item i is the sum over them of
 *
 *		c p y_i' A^-1 y_j
 *
 * which is item j's contribution.  One solution, A^-1 y_i, gives all of them.
 * A dislike has p = 0: it contributes nothing by itself, but it is in A.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "core/als_solve.h"
#include "embedding/embedding_table.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "recommend/recommend.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_als_explain);

/* Positions of the arguments */
enum
{
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_ITEM_FACTORS,
	ARG_USER_KEY,
	ARG_RECOMMENDED,
	ARG_WEIGHT_COLUMN, ARG_REGULARIZATION, ARG_ALPHA,
	ARG_KEY_COLUMN, ARG_COLUMN_NAME,
	N_ARGS
};

static const char *const required[N_ARGS] = {
	"interactions", "user_column", "item_column", "item_factors", "user_key", "recommended", NULL,
	"regularization", "alpha", NULL, NULL
};

/* A user's item, and what it contributes */
typedef struct Contribution
{
	const AlsPair *pair;
	double		contribution;
} Contribution;

/* Read the user's interactions */
static void
read_pairs(FunctionCallInfo fcinfo, double alpha, AlsPairs *pairs)
{
	Datum		user = PG_GETARG_DATUM(ARG_USER_KEY);
	Datum		users = PointerGetDatum(construct_array(&user, 1, INT8OID, sizeof(int64),
														FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	AlsInteractions interactions;

	AlsDescribeInteractions(PG_GETARG_OID(ARG_INTERACTIONS),
							AlsNameArgument(fcinfo, ARG_USER_COLUMN),
							AlsNameArgument(fcinfo, ARG_ITEM_COLUMN),
							AlsNameArgument(fcinfo, ARG_WEIGHT_COLUMN), &interactions);
	(void) AlsReadPairs(&interactions, users, alpha, PG_UINT64_MAX - 1, pairs);
}

/* Get the factors of the user's items and of the recommended one */
static void
read_items(FunctionCallInfo fcinfo, const AlsPairs *pairs, AlsItems *items)
{
	int64		recommended = PG_GETARG_INT64(ARG_RECOMMENDED);
	AlsFactors	table;

	memset(items, 0, sizeof(*items));
	AlsDescribeFactors(PG_GETARG_OID(ARG_ITEM_FACTORS), AlsNameArgument(fcinfo, ARG_KEY_COLUMN),
					   AlsNameArgument(fcinfo, ARG_COLUMN_NAME), &table);
	if (!AlsGatherItems(&table, pairs, recommended, items))
		AlsScanItems(&table, pairs, recommended, items);
}

/* qsort comparator: the largest contribution first, then by keys */
static int
compare_contributions(const void *a, const void *b)
{
	const Contribution *x = a;
	const Contribution *y = b;

	GPUVEC_LOOK();
	if (x->contribution != y->contribution)
		return x->contribution > y->contribution ? -1 : 1;
	return x->pair->item < y->pair->item ? -1 : 1;
}

/* Compute what each pair contributes to the score of an item */
static Contribution *
contributions(const AlsPairs *pairs, const AlsItems *items, const float *item,
			  double regularization)
{
	uint32		n = items->factors;
	Contribution *list = MemoryContextAllocHuge(CurrentMemoryContext,
												(pairs->n + 1) * sizeof(Contribution));
	double	   *a = MemoryContextAllocHuge(CurrentMemoryContext, (Size) n * n * sizeof(double));
	double	   *w = palloc_array(double, n);
	bool		some = AlsPrepareSystem(items, pairs->pairs, pairs->n, regularization, a, w);

	for (uint32 i = 0; i < n; i++)
		w[i] = some ? item[i] : 0;
	if (some)
		gpuvec_als_substitute(a, n, w);
	for (uint64 j = 0; j < pairs->n; j++)
	{
		const AlsPair *pair = &pairs->pairs[j];
		double		sum = 0;

		GPUVEC_LOOK();
		for (uint32 i = 0; i < n; i++)
			sum += w[i] * pair->factor[i];
		list[j].pair = pair;
		list[j].contribution = pair->confidence > 0 ? pair->confidence * sum : 0;
	}
	qsort(list, pairs->n, sizeof(Contribution), compare_contributions);
	return list;
}

/* Put a row for each contribution */
static void
put_contributions(FunctionCallInfo fcinfo, const Contribution *list, uint64 n)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	for (uint64 i = 0; i < n; i++)
	{
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		CHECK_FOR_INTERRUPTS();
		values[0] = Int64GetDatum(list[i].pair->item);
		values[1] = Float8GetDatum(list[i].contribution);
		values[2] = Float8GetDatum(list[i].pair->weight);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

Datum
gpuvec_als_explain(PG_FUNCTION_ARGS)
{
	AlsPairs	pairs;
	AlsItems	items;
	const float *item;
	double		regularization;
	double		alpha;

	GpuvecMaterializedSRF(fcinfo);
	EmbeddingRequireArguments(fcinfo, required, N_ARGS);
	regularization = AlsFloatArgument(fcinfo, ARG_REGULARIZATION, "regularization", false);
	alpha = AlsFloatArgument(fcinfo, ARG_ALPHA, "alpha", true);
	read_pairs(fcinfo, alpha, &pairs);
	read_items(fcinfo, &pairs, &items);
	AlsUnitePairs(&pairs, &items, alpha);
	item = AlsItemFactor(&items, PG_GETARG_INT64(ARG_RECOMMENDED));
	if (item != NULL)
		put_contributions(fcinfo, contributions(&pairs, &items, item, regularization), pairs.n);
	return (Datum) 0;
}
