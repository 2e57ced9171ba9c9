/*-------------------------------------------------------------------------
 *
 * als.c
 *	  gpuvec_als, which trains factors, and gpuvec_stat_training.
 *
 * gpuvec_als sends the interactions to the engine, asks for one iteration
 * after the other, and then replaces the rows of both tables of factors.  All
 * of it happens before the first row is returned, so that LIMIT does not cut
 * it short.
 *
 * The tables of factors are locked before they are changed, in the order of
 * their OIDs, so that trainings of the same tables replace each other's
 * factors one after the other.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "funcapi.h"
#include "link/engine_link.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "recommend/recommend.h"
#include "search/set_function.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_als);
PG_FUNCTION_INFO_V1(gpuvec_stat_training);

/* Positions of the arguments of gpuvec_als */
enum
{
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_USER_FACTORS,
	ARG_ITEM_FACTORS,
	ARG_WEIGHT_COLUMN,
	ARG_FACTORS,
	ARG_ITERATIONS,
	ARG_REGULARIZATION,
	ARG_ALPHA,
	ARG_CG_STEPS,
	ARG_SEED,
	ARG_WARM_START,
	ARG_KEY_COLUMN,
	ARG_COLUMN_NAME,
	N_ARGS
};

/* A call of gpuvec_als */
typedef struct Training
{
	FunctionCallInfo fcinfo;
	AlsJob		job;
	AlsInteractions interactions;
	AlsFactors	factors[2];		/* of gpuvec_als_side */
	bool		warm_start;
	instr_time	begun;
} Training;

/* Arguments that must not be null */
static const char *const required[N_ARGS] = {
	"interactions", "user_column", "item_column", "user_factors", "item_factors", NULL, "factors",
	"iterations", "regularization", "alpha", "cg_steps", "seed", "warm_start", NULL, NULL
};

/* An integer argument from 1 to `most` */
static uint32
number_argument(FunctionCallInfo fcinfo, int argument, const char *name, int32 most)
{
	int32		number = PG_GETARG_INT32(argument);

	if (number < 1 || number > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 1 and %d", name, most)));
	return (uint32) number;
}

/* Set the options of the job */
static void
take_options(Training *training)
{
	FunctionCallInfo fcinfo = training->fcinfo;
	gpuvec_als_begin *begin = &training->job.begin;

	begin->role = GetUserId();
	begin->relation = PG_GETARG_OID(ARG_INTERACTIONS);
	begin->factors = number_argument(fcinfo, ARG_FACTORS, "factors", GPUVEC_ALS_MAX_FACTORS);
	begin->iterations = number_argument(fcinfo, ARG_ITERATIONS, "iterations", GPUVEC_ALS_MAX_ITERATIONS);
	begin->cg_steps = number_argument(fcinfo, ARG_CG_STEPS, "cg_steps", GPUVEC_ALS_MAX_STEPS);
	begin->regularization = AlsFloatArgument(fcinfo, ARG_REGULARIZATION, "regularization", false);
	begin->alpha = AlsFloatArgument(fcinfo, ARG_ALPHA, "alpha", true);
	begin->seed = PG_GETARG_INT64(ARG_SEED);
	training->warm_start = PG_GETARG_BOOL(ARG_WARM_START);
}

/* Describe the tables, and check them */
static void
take_tables(Training *training)
{
	FunctionCallInfo fcinfo = training->fcinfo;
	Oid			interactions = PG_GETARG_OID(ARG_INTERACTIONS);
	Oid			users = PG_GETARG_OID(ARG_USER_FACTORS);
	Oid			items = PG_GETARG_OID(ARG_ITEM_FACTORS);

	if (users == items || users == interactions || items == interactions)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("interactions, factors of users and factors of items must be three different tables"),
				 errdetail("The rows of the tables of factors are replaced.")));
	AlsDescribeInteractions(interactions, AlsNameArgument(fcinfo, ARG_USER_COLUMN),
							AlsNameArgument(fcinfo, ARG_ITEM_COLUMN),
							AlsNameArgument(fcinfo, ARG_WEIGHT_COLUMN), &training->interactions);
	for (int side = 0; side < 2; side++)
	{
		AlsDescribeFactors(side == GPUVEC_ALS_USERS ? users : items,
						   AlsNameArgument(fcinfo, ARG_KEY_COLUMN),
						   AlsNameArgument(fcinfo, ARG_COLUMN_NAME), &training->factors[side]);
		AlsCheckWritable(&training->factors[side]);
	}
}

/* Send all that the training begins with */
static void
send_data(Training *training)
{
	AlsJob	   *job = &training->job;

	AlsJobBegin(job);
	AlsLogStep(&training->begun, "gpuvec_als", "read", AlsReadInteractions(job, &training->interactions, (Datum) 0));
	AlsJobPrepare(job);
	for (int side = 0; training->warm_start && side < 2; side++)
		(void) AlsReadFactors(job, side, &training->factors[side], false);
	AlsLogStep(&training->begun, "gpuvec_als", "prepared", job->state.entries);
}

/* Without any interaction there is nothing to learn: say so */
static void
check_entries(const Training *training)
{
	if (training->job.state.entries == 0)
		ereport(NOTICE,
				(errmsg("relation %s has no interactions to learn from",
						training->interactions.relation),
				 errdetail("All factors are deleted.")));
}

/* Do all iterations, and put a row for each of them */
static void
iterate(Training *training)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) training->fcinfo->resultinfo;
	AlsJob	   *job = &training->job;

	for (uint32 i = 0; job->state.entries > 0 && i < job->begin.iterations; i++)
	{
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		AlsJobRun(job);
		values[0] = Int32GetDatum((int32) job->state.iteration);
		values[1] = Float8GetDatum(job->state.loss);
		values[2] = Float8GetDatum(job->state.seconds);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	AlsLogStep(&training->begun, "gpuvec_als", "trained", job->state.iteration);
}

/* Replace the rows of both tables */
static void
write_factors(Training *training)
{
	const AlsFactors *factors = training->factors;
	int			first = factors[0].relid < factors[1].relid ? 0 : 1;
	uint64		rows = 0;

	AlsLockFactors(&factors[first]);
	AlsLockFactors(&factors[1 - first]);
	for (int side = 0; side < 2; side++)
		rows += AlsReplaceFactors(&training->job, training->fcinfo, side, &factors[side]);
	AlsLogStep(&training->begun, "gpuvec_als", "written", rows);
}

Datum
gpuvec_als(PG_FUNCTION_ARGS)
{
	Training	training = {.fcinfo = fcinfo};

	PreventCommandIfReadOnly("gpuvec_als()");
	EmbeddingRequireArguments(fcinfo, required, N_ARGS);
	GpuvecMaterializedSRF(fcinfo);
	take_options(&training);
	take_tables(&training);
	INSTR_TIME_SET_CURRENT(training.begun);
	PG_TRY();
	{
		send_data(&training);
		check_entries(&training);
		iterate(&training);
		write_factors(&training);
		AlsJobEnd(&training.job);
	}
	PG_CATCH();
	{
		AlsJobAbandon(&training.job);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return (Datum) 0;
}

/* ---- gpuvec_stat_training ---- */

/* Ask the engine, without starting it, for all trainings */
static bool
ask_states(GpuvecReply *reply)
{
	const char *reason;

	for (int attempt = 0; attempt < 2; attempt++)
	{
		if (GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY)
			return false;
		if (GpuvecLinkCall(GPUVEC_MSG_ALS_LIST, NULL, 0, GPUVEC_MSG_ALS_STATES, 0, reply))
			return true;
	}
	return false;
}

static void
put_state(ReturnSetInfo *rsinfo, const gpuvec_als_state *state)
{
	static const char *const phases[] = {"reading", "preparing", "training", "writing", "neighbors"};
	bool		sizes = state->phase >= GPUVEC_ALS_TRAINING;
	Datum		values[11];
	bool		nulls[11] = {0};
	int			n = 0;

	values[n++] = Int32GetDatum((int32) state->pid);
	values[n++] = ObjectIdGetDatum(state->database);
	values[n++] = ObjectIdGetDatum(state->relation);
	values[n++] = CStringGetTextDatum(state->phase < lengthof(phases) ? phases[state->phase] : "?");
	values[n++] = Int64GetDatum((int64) state->added);
	nulls[n] = nulls[n + 1] = nulls[n + 2] = !sizes;
	values[n++] = Int64GetDatum((int64) state->users);
	values[n++] = Int64GetDatum((int64) state->items);
	values[n++] = Int64GetDatum((int64) state->entries);
	values[n++] = Int32GetDatum((int32) state->iteration);
	values[n++] = Int32GetDatum((int32) state->iterations);
	nulls[n] = isnan(state->loss);
	values[n++] = Float8GetDatum(state->loss);
	Assert(n == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
gpuvec_stat_training(PG_FUNCTION_ARGS)
{
	GpuvecReply reply;

	GpuvecMaterializedSRF(fcinfo);
	if (!ask_states(&reply))
		return (Datum) 0;
	for (uint32 i = 0; i < reply.length / sizeof(gpuvec_als_state); i++)
	{
		gpuvec_als_state state;

		memcpy(&state, reply.data + i * sizeof(state), sizeof(state));
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
			has_privs_of_role(GetUserId(), state.role))
			put_state((ReturnSetInfo *) fcinfo->resultinfo, &state);
	}
	return (Datum) 0;
}
