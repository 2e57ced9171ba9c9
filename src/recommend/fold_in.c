/*-------------------------------------------------------------------------
 *
 * fold_in.c
 *	  gpuvec_als_fold_in: factors of users from their present interactions.
 *
 * While the factors of items stay as they are, the best factor of a user is
 * the solution of a linear system of its own (core/als.h).  So users who have
 * come or changed since a training get factors without another one.  Items
 * are folded in likewise, with both sides exchanged.
 *
 * The systems of a few users are solved here, if the engine has what they
 * need (als_items.c).
 *
 * Else the engine gets the factors of all items, in the order of their keys,
 * then the interactions, and solves the systems.  Both is exact, in float64,
 * and gives the same bits.
 *
 * Interactions with items that have no factor are left out; users who have no
 * others get no row.
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
#include "search/set_function.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_als_fold_in);

/* Most users, and most rows of them, whose systems are solved here */
#define MOST_USERS		32
#define MOST_PAIRS		16384

/* Bytes of factors that are asked for at a time */
#define BATCH_BYTES		((Size) 4 * 1024 * 1024)

/* Positions of the arguments */
enum
{
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_ITEM_FACTORS,
	ARG_USERS,
	ARG_WEIGHT_COLUMN,
	ARG_REGULARIZATION,
	ARG_ALPHA,
	ARG_KEY_COLUMN,
	ARG_COLUMN_NAME,
	N_ARGS
};

static const char *const required[N_ARGS] = {
	"interactions", "user_column", "item_column", "item_factors", NULL, NULL, "regularization",
	"alpha", NULL, NULL
};

/* A call of gpuvec_als_fold_in */
typedef struct FoldIn
{
	FunctionCallInfo fcinfo;
	AlsJob		job;
	AlsInteractions interactions;
	AlsFactors	items;
	Datum		users;			/* int8[], or 0: all */
	instr_time	begun;			/* the present step of the call */
} FoldIn;

/* Set the options of the job, but for the number of factors */
static void
take_arguments(FoldIn *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	gpuvec_als_begin *begin = &call->job.begin;

	EmbeddingRequireArguments(fcinfo, required, N_ARGS);
	begin->role = GetUserId();
	begin->relation = PG_GETARG_OID(ARG_INTERACTIONS);
	begin->iterations = begin->cg_steps = 1;
	begin->fold_in = 1;
	begin->regularization = AlsFloatArgument(fcinfo, ARG_REGULARIZATION, "regularization", false);
	begin->alpha = AlsFloatArgument(fcinfo, ARG_ALPHA, "alpha", true);
	if (!PG_ARGISNULL(ARG_USERS))
		call->users = PointerGetDatum(PG_GETARG_ARRAYTYPE_P(ARG_USERS));
	AlsDescribeInteractions(begin->relation, AlsNameArgument(fcinfo, ARG_USER_COLUMN),
							AlsNameArgument(fcinfo, ARG_ITEM_COLUMN),
							AlsNameArgument(fcinfo, ARG_WEIGHT_COLUMN), &call->interactions);
	AlsDescribeFactors(PG_GETARG_OID(ARG_ITEM_FACTORS), AlsNameArgument(fcinfo, ARG_KEY_COLUMN),
					   AlsNameArgument(fcinfo, ARG_COLUMN_NAME), &call->items);
}

/* Put a row for each of n users */
static void
put_factors(FoldIn *call, uint32 n, const int64 *keys, const float *elements)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) call->fcinfo->resultinfo;
	uint32		factors = call->job.begin.factors;
	EmbeddingArrayBuffer buffer = {0};
	Datum		values[2];
	bool		nulls[2] = {false, false};

	for (uint32 i = 0; i < n; i++)
	{
		GPUVEC_LOOK();
		values[0] = Int64GetDatum(keys[i]);
		values[1] = EmbeddingNextArray(&buffer, elements + (Size) i * factors, factors);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* Put a row for each user that has a factor */
static void
put_users(FoldIn *call)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec factors",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	uint32		users = (uint32) call->job.state.users;
	uint32		most = BATCH_BYTES / (sizeof(int64) + call->job.begin.factors * sizeof(float));

	for (uint32 first = 0; first < users; first += most)
	{
		uint32		n = Min(users - first, most);
		const int64 *keys;
		const float *elements;

		CHECK_FOR_INTERRUPTS();
		AlsJobGet(&call->job, GPUVEC_ALS_USERS, first, n, &keys, &elements);
		put_factors(call, n, keys, elements);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

static void
log_step(FoldIn *call, const char *what, uint64 rows)
{
	AlsLogStep(&call->begun, "gpuvec_als_fold_in", what, rows);
}

/* Let the engine compute all factors */
static void
fold_in_engine(FoldIn *call)
{
	AlsJob	   *job = &call->job;

	PG_TRY();
	{
		AlsJobBegin(job);
		log_step(call, "read items", AlsReadFactors(job, GPUVEC_ALS_ITEMS, &call->items, true));
		log_step(call, "read", AlsReadInteractions(job, &call->interactions, call->users));
		AlsJobPrepare(job);
		log_step(call, "prepared", job->state.entries);
		AlsJobRun(job);
		log_step(call, "solved", job->state.users);
		put_users(call);
		AlsJobEnd(job);
		log_step(call, "returned", job->state.users);
	}
	PG_CATCH();
	{
		AlsJobAbandon(job);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* True if there are few users to fold in */
static bool
few_users(const FoldIn *call)
{
	const ArrayType *users = (const ArrayType *) DatumGetPointer(call->users);

	return users != NULL && ArrayGetNItems(ARR_NDIM(users), ARR_DIMS(users)) <= MOST_USERS;
}

/* Put a row for each user of the pairs */
static void
solve_users(FoldIn *call, const AlsPairs *pairs, const AlsItems *items)
{
	uint32		n = items->factors;
	double	   *a = MemoryContextAllocHuge(CurrentMemoryContext, (Size) n * n * sizeof(double));
	double	   *b = palloc_array(double, n);
	float	   *factor = palloc_array(float, n);
	uint64		end;

	for (uint64 i = 0; i < pairs->n; i = end)
	{
		const AlsPair *first = &pairs->pairs[i];
		bool		some;

		CHECK_FOR_INTERRUPTS();
		for (end = i; end < pairs->n && pairs->pairs[end].user == first->user;)
		{
			GPUVEC_STEP(end);
			end++;
		}
		some = AlsPrepareSystem(items, first, end - i, call->job.begin.regularization, a, b);
		if (some)
			gpuvec_als_substitute(a, n, b);
		for (uint32 j = 0; j < n; j++)
			factor[j] = some ? (float) b[j] : 0;
		put_factors(call, 1, &first->user, factor);
	}
}

/* Compute the factors of a few users; false if that cannot be done here */
static bool
fold_in_here(FoldIn *call)
{
	double		alpha = call->job.begin.alpha;
	AlsPairs	pairs;
	AlsItems	items = {0};

	if (!few_users(call) ||
		!AlsReadPairs(&call->interactions, call->users, alpha, MOST_PAIRS, &pairs))
		return false;
	if (pairs.n == 0)
		return false;
	if (!AlsGatherItems(&call->items, &pairs, pairs.pairs[0].item, &items))
		return false;
	AlsUnitePairs(&pairs, &items, alpha);
	call->job.begin.factors = items.factors;
	solve_users(call, &pairs, &items);
	return true;
}

Datum
gpuvec_als_fold_in(PG_FUNCTION_ARGS)
{
	FoldIn		call = {.fcinfo = fcinfo};

	GpuvecMaterializedSRF(fcinfo);
	take_arguments(&call);
	if (fold_in_here(&call))
		return (Datum) 0;
	call.job.begin.factors = AlsFactorWidth(&call.items);
	INSTR_TIME_SET_CURRENT(call.begun);
	if (call.job.begin.factors > 0)
		fold_in_engine(&call);
	return (Datum) 0;
}
