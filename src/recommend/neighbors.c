/*-------------------------------------------------------------------------
 *
 * neighbors.c
 *	  gpuvec_item_neighbors: the nearest items of each item, by the users who
 *	  have interacted with both.
 *
 * The engine gets the interactions as for a training, and computes the
 * neighbors of some thousand items at a time, when they are asked for
 * (core/weighting.h says how items are compared).  Rows go to a tuplestore,
 * which is written to disk when it becomes large.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "embedding/embedding_table.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "recommend/recommend.h"
#include "search/set_function.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_item_neighbors);

/* Positions of the arguments */
enum
{
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_K,
	ARG_WEIGHT_COLUMN,
	ARG_WEIGHTING,
	ARG_BM25_K1,
	ARG_BM25_B,
	N_ARGS
};

static const char *const required[N_ARGS] = {
	"interactions", "user_column", "item_column", "k", NULL, "weighting", "bm25_k1", "bm25_b"
};

static gpuvec_weighting
weighting_argument(FunctionCallInfo fcinfo)
{
	const char *name = text_to_cstring(PG_GETARG_TEXT_PP(ARG_WEIGHTING));
	gpuvec_weighting weighting = gpuvec_weighting_find(name);

	if (weighting == GPUVEC_N_WEIGHTINGS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown weighting \"%s\"", name),
				 errhint("Available weightings are cosine, tfidf, bm25 and none.")));
	return weighting;
}

/* A parameter of bm25, from 0 to `most` */
static double
bm25_argument(FunctionCallInfo fcinfo, int argument, double most)
{
	double		number = PG_GETARG_FLOAT8(argument);

	if (!(number >= 0 && number <= most))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 0 and %g", required[argument], most)));
	return number;
}

/* Put a row for each of n neighbors; those of an item have ranks from 1 on */
static void
put_neighbors(ReturnSetInfo *rsinfo, const gpuvec_neighbor *rows, uint64 n)
{
	bool		nulls[4] = {0};
	int32		rank = 0;

	for (uint64 i = 0; i < n; i++)
	{
		Datum		values[4];

		GPUVEC_STEP(i);
		rank = i > 0 && rows[i].item == rows[i - 1].item ? rank + 1 : 1;
		values[0] = Int64GetDatum(rows[i].item);
		values[1] = Int32GetDatum(rank);
		values[2] = Int64GetDatum(rows[i].neighbor);
		values[3] = Float8GetDatum(rows[i].score);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* Put the neighbors of all items */
static void
put_items(AlsJob *job, ReturnSetInfo *rsinfo)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec neighbors",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	while (job->state.iteration < job->state.items)
	{
		const gpuvec_neighbor *rows;
		uint64		n;

		CHECK_FOR_INTERRUPTS();
		n = AlsJobNeighbors(job, &rows);
		put_neighbors(rsinfo, rows, n);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

Datum
gpuvec_item_neighbors(PG_FUNCTION_ARGS)
{
	AlsJob		job = {.neighbors = true};
	AlsInteractions interactions;
	gpuvec_neighbors_begin begin = {.role = GetUserId()};

	GpuvecMaterializedSRF(fcinfo);
	EmbeddingRequireArguments(fcinfo, required, N_ARGS);
	begin.relation = PG_GETARG_OID(ARG_INTERACTIONS);
	begin.k = AlsRowsArgument(fcinfo, ARG_K);
	begin.weighting = weighting_argument(fcinfo);
	begin.k1 = bm25_argument(fcinfo, ARG_BM25_K1, GPUVEC_MAX_BM25_K1);
	begin.b = bm25_argument(fcinfo, ARG_BM25_B, 1);
	AlsDescribeInteractions(begin.relation, AlsNameArgument(fcinfo, ARG_USER_COLUMN),
							AlsNameArgument(fcinfo, ARG_ITEM_COLUMN),
							AlsNameArgument(fcinfo, ARG_WEIGHT_COLUMN), &interactions);
	PG_TRY();
	{
		AlsJobBeginNeighbors(&job, &begin);
		(void) AlsReadInteractions(&job, &interactions, (Datum) 0);
		AlsJobPrepare(&job);
		put_items(&job, (ReturnSetInfo *) fcinfo->resultinfo);
		AlsJobEnd(&job);
	}
	PG_CATCH();
	{
		AlsJobAbandon(&job);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return (Datum) 0;
}
