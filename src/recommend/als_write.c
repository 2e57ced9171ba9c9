/*-------------------------------------------------------------------------
 *
 * als_write.c
 *	  Factors from the engine into tables.
 *
 * The rows of a table are replaced by two statements,
 *
 *		DELETE FROM table
 *		INSERT INTO table (key, embedding) SELECT ... FROM gpuvec_als_rows()
 *
 * with the caller's rights, in the caller's transaction.  So triggers,
 * constraints, defaults, policies and indexes do their work, and other
 * sessions see the old factors until the commit.  DELETE is used rather than
 * TRUNCATE, which would lock out readers, and take the rows from those whose
 * snapshots are older.
 *
 * gpuvec_als_rows is a function of the extension that returns the factors as
 * the executor asks for rows, so they never are in memory all at once.  It
 * has rows only while this file runs the statement.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_class.h"
#include "embedding/embedding_table.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "recommend/recommend.h"
#include "search/set_function.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(gpuvec_als_rows);

/* Bytes of factors that are asked for at a time */
#define BATCH_BYTES		((Size) 4 * 1024 * 1024)

/* ---- gpuvec_als_rows: the factors as rows ---- */

typedef struct FactorRows
{
	uint64		job;			/* its number */
	uint32		factors;		/* elements of each factor */
	gpuvec_als_side side;
	MemoryContext context;		/* of the batch */
	uint32		rows;			/* of the side */
	uint32		row;			/* the next one */
	uint32		first;			/* the batch: from this row ... */
	uint32		end;			/* ... to this one */
	const int64 *keys;
	const float *elements;
	EmbeddingArrayBuffer buffer;
} FactorRows;

static void *
factors_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	FactorRows *call = palloc0_object(FactorRows);
	const AlsJob *job = AlsJobCurrent();
	int32		side = PG_GETARG_INT32(0);

	if (job == NULL || job->state.phase < GPUVEC_ALS_TRAINING ||
		side < GPUVEC_ALS_USERS || side > GPUVEC_ALS_ITEMS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no training is under way that has factors"),
				 errhint("Call gpuvec_als() or gpuvec_als_fold_in().")));
	call->job = job->number;
	call->factors = job->begin.factors;
	call->side = (gpuvec_als_side) side;
	call->rows = (uint32) (side == GPUVEC_ALS_USERS ? job->state.users : job->state.items);
	call->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec factors",
										  ALLOCSET_DEFAULT_SIZES);
	return call;
}

/* Ask for the batch that begins with the next row */
static void
next_batch(FactorRows *call)
{
	uint32		most = BATCH_BYTES / (sizeof(int64) + call->factors * sizeof(float));
	uint32		n = Min(call->rows - call->row, most);
	AlsJob	   *job = AlsJobCurrent();
	MemoryContext old;

	/*
	 * A cursor of a trigger may outlive the statement that trained, and the
	 * job, in whose place another one may be
	 */
	if (job == NULL || job->number != call->job)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the training has ended")));
	MemoryContextReset(call->context);
	old = MemoryContextSwitchTo(call->context);
	AlsJobGet(job, call->side, call->row, n, &call->keys, &call->elements);
	MemoryContextSwitchTo(old);
	call->first = call->row;
	call->end = call->row + n;
}

/* Return the next row: a key and its factor */
static bool
factors_next(void *state, Datum *values, bool *nulls)
{
	FactorRows *call = state;

	CHECK_FOR_INTERRUPTS();
	if (call->row == call->rows)
		return false;
	if (call->row < call->first || call->row >= call->end)
		next_batch(call);
	values[0] = Int64GetDatum(call->keys[call->row - call->first]);
	values[1] = EmbeddingNextArray(&call->buffer,
								   call->elements + (Size) (call->row - call->first) * call->factors,
								   call->factors);
	call->row++;
	return true;
}

static void
factors_rewind(void *state)
{
	((FactorRows *) state)->row = 0;
}

static const SetFunction functions[] = {
	{.function = gpuvec_als_rows, .begin = factors_begin, .next = factors_next, .rewind = factors_rewind},
	{0}
};

void
RecommendInit(void)
{
	SetFunctionsAdd(functions);
	SetFunctionsAdd(RecommendFunctions);
}

Datum
gpuvec_als_rows(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_als_rows);
}

/* ---- replacing the rows of a table ---- */

/* Run a statement; returns the number of rows that it changed */
static uint64
run_statement(const char *sql)
{
	uint64		rows;
	int			rc;

	SPI_connect();
	rc = SPI_execute(sql, false, 0);
	if (rc < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(rc));
	rows = SPI_processed;
	SPI_finish();
	return rows;
}

void
AlsLockFactors(const AlsFactors *factors)
{
	char		kind = get_rel_relkind(factors->relid);

	if (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE)
		(void) run_statement(psprintf("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", factors->relation));
}

/*
 * Replace the rows of a table by the factors of a side; returns their number
 */
uint64
AlsReplaceFactors(AlsJob *job, FunctionCallInfo fcinfo, gpuvec_als_side side,
				  const AlsFactors *factors)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	StringInfoData sql;

	(void) run_statement(psprintf("DELETE FROM %s", factors->relation));
	initStringInfo(&sql);
	/* OVERRIDING SYSTEM VALUE: for keys GENERATED ALWAYS AS IDENTITY */
	appendStringInfo(&sql,
					 "INSERT INTO %s (%s, %s) OVERRIDING SYSTEM VALUE SELECT r.key, r.embedding FROM %s(%d) r",
					 factors->relation, factors->key, factors->column,
					 quote_qualified_identifier(get_namespace_name(schema), "gpuvec_als_rows"), side);
	return run_statement(sql.data);
}
