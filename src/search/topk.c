/*-------------------------------------------------------------------------
 *
 * topk.c
 *	  The search functions of SQL: gpuvec_topk, gpuvec_topk_batch and their
 *	  forms that return whole rows.
 *
 * In FROM a plan node does the same without a tuplestore (topk_scan.c); here they
 * are called elsewhere, or where the node does not fit.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "fmgr.h"
#include "funcapi.h"
#include "search/search.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_topk);
PG_FUNCTION_INFO_V1(gpuvec_topk_batch);
PG_FUNCTION_INFO_V1(gpuvec_topk_rows);
PG_FUNCTION_INFO_V1(gpuvec_topk_batch_rows);

/* The functions, by their addresses */
static const struct
{
	PGFunction	function;
	TopKKind	kind;
}			functions[] = {
	{gpuvec_topk, {.batch = false,.rows = false}},
	{gpuvec_topk_batch, {.batch = true,.rows = false}},
	{gpuvec_topk_rows, {.batch = false,.rows = true}},
	{gpuvec_topk_batch_rows, {.batch = true,.rows = true}}
};

/* Is this one of the search functions, and which? */
bool
TopKFunction(PGFunction function, TopKKind *kind)
{
	for (int i = 0; i < lengthof(functions); i++)
		if (functions[i].function == function)
		{
			*kind = functions[i].kind;
			return true;
		}
	return false;
}

/* All four functions */
static Datum
topk(FunctionCallInfo fcinfo, TopKKind kind)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TopKCall   *call;
	Datum		values[TOPK_MAX_COLUMNS];
	bool		nulls[TOPK_MAX_COLUMNS] = {0};

	GpuvecMaterializedSRF(fcinfo);
	call = TopKBegin(fcinfo, kind, GetActiveSnapshot());
	while (TopKNext(call, values))
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	TopKEnd(call);
	return (Datum) 0;
}

Datum
gpuvec_topk(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, (TopKKind) {.batch = false,.rows = false});
}

Datum
gpuvec_topk_batch(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, (TopKKind) {.batch = true,.rows = false});
}

Datum
gpuvec_topk_rows(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, (TopKKind) {.batch = false,.rows = true});
}

Datum
gpuvec_topk_batch_rows(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, (TopKKind) {.batch = true,.rows = true});
}
