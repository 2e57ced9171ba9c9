/*-------------------------------------------------------------------------
 *
 * srf.c
 *	  Functions that return rows through a tuplestore.
 *
 * This serves calls outside of FROM, and calls in FROM that the plan node
 * (set_scan.c) cannot serve.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "search/set_function.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

/*
 * Prepare to return a set as a tuplestore: InitMaterializedSRF() of
 * PostgreSQL 15 and later, for all versions.
 */
void
GpuvecMaterializedSRF(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;
	TupleDesc	desc;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	if (!(rsinfo->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("materialize mode required, but it is not allowed in this context")));

	old = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0,
											  false, work_mem);
	rsinfo->setDesc = desc;
	MemoryContextSwitchTo(old);
}

/* Lists of functions */
#define MAX_LISTS	8

static const SetFunction *lists[MAX_LISTS];
static int	nlists = 0;

void
SetFunctionsAdd(const SetFunction *list)
{
	Assert(nlists < MAX_LISTS);
	lists[nlists++] = list;
}

/* The description of the function at an address, or NULL */
const SetFunction *
SetFunctionFind(PGFunction function)
{
	for (int i = 0; i < nlists; i++)
		for (const SetFunction *f = lists[i]; f->function; f++)
			if (f->function == function)
				return f;
	return NULL;
}

/* Call a function, and return all its rows in a tuplestore */
Datum
SetFunctionRows(FunctionCallInfo fcinfo, PGFunction function)
{
	const SetFunction *f = SetFunctionFind(function);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[SET_MAX_COLUMNS];
	bool		nulls[SET_MAX_COLUMNS] = {0};
	void	   *call;

	GpuvecMaterializedSRF(fcinfo);
	call = f->begin(fcinfo, f->form, GetActiveSnapshot());
	while (f->next(call, values, nulls))
	{
		GPUVEC_LOOK();
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		memset(nulls, false, sizeof(nulls));
	}
	if (f->end)
		f->end(call);
	return (Datum) 0;
}
