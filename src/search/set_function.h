/*-------------------------------------------------------------------------
 *
 * set_function.h
 *	  SQL functions that return rows, described by callbacks.
 *
 * One description serves two callers.  The plan node (set_scan.c) takes rows
 * as the executor asks for them.  Calls outside of FROM put all rows into a
 * tuplestore (srf.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SET_FUNCTION_H
#define GPUVEC_SET_FUNCTION_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/snapshot.h"

/* Most columns that a row of these functions has */
#define SET_MAX_COLUMNS		6

typedef struct SetFunction
{
	PGFunction	function;
	int			form;			/* tells apart functions with the same
								 * callbacks */

	/*
	 * Check the arguments and do the work.  Returns the call, which goes to
	 * the callbacks below.  It and all its rows live in the current memory
	 * context.  fcinfo must live as long, and fcinfo->flinfo must have the
	 * function's expression.
	 */
	void	   *(*begin) (FunctionCallInfo fcinfo, int form, Snapshot snapshot);

	/*
	 * Set values[] and nulls[] to the next row, or return false at the end.
	 * nulls[] is all false on entry.  Values passed by reference live until
	 * the next call.
	 */
	bool		(*next) (void *call, Datum *values, bool *nulls);

	/* Go back to the first row */
	void		(*rewind) (void *call);

	/* Release what the call holds beside memory; NULL: nothing to release */
	void		(*end) (void *call);
} SetFunction;

/*
 * Lists of descriptions; each list ends with an entry without a function.
 * They are added when the library is loaded.  TopKFunctions is in topk.c,
 * OverlapFunctions in overlaps.c.
 */
extern const SetFunction TopKFunctions[];
extern const SetFunction OverlapFunctions[];
extern void SetFunctionsAdd(const SetFunction *list);

/* srf.c */
extern const SetFunction *SetFunctionFind(PGFunction function);
extern Datum SetFunctionRows(FunctionCallInfo fcinfo, PGFunction function);
extern void GpuvecMaterializedSRF(FunctionCallInfo fcinfo);

/* set_scan.c: the plan node */
extern void SetScanInit(void);

#endif							/* GPUVEC_SET_FUNCTION_H */
