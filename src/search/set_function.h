/*-------------------------------------------------------------------------
 *
 * set_function.h
 *	  Functions that return rows, one at a time.
 *
 * The same description serves the plan node (set_scan.c), which hands rows
 * out as they are asked for, and calls elsewhere, which need a tuplestore
 * (srf.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SET_FUNCTION_H
#define GPUVEC_SET_FUNCTION_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/snapshot.h"

/* Columns of a row, at most */
#define SET_MAX_COLUMNS		6

typedef struct SetFunction
{
	PGFunction	function;
	int			form;			/* which of several that have the same
								 * functions below */

	/*
	 * Check the arguments and do the work.  The call, with all its rows,
	 * lives in the current memory context; fcinfo must live as long, and have
	 * the function's expression.
	 */
	void	   *(*begin) (FunctionCallInfo fcinfo, int form, Snapshot snapshot);

	/*
	 * The next row, or false; nulls[] is all false before.  Values that are
	 * passed by reference live until the next one is asked for.
	 */
	bool		(*next) (void *call, Datum *values, bool *nulls);

	/* Go back to the first row */
	void		(*rewind) (void *call);

	/* Let go of what the call holds beside memory; NULL: nothing */
	void		(*end) (void *call);
} SetFunction;

/*
 * Lists of them, each of which ends with one without a function: those of
 * topk.c, and others that are added when the library is loaded
 */
extern const SetFunction TopKFunctions[];
extern void SetFunctionsAdd(const SetFunction *list);

/* srf.c */
extern const SetFunction *SetFunctionFind(PGFunction function);
extern Datum SetFunctionRows(FunctionCallInfo fcinfo, PGFunction function);
extern void GpuvecMaterializedSRF(FunctionCallInfo fcinfo);

/* set_scan.c: the plan node */
extern void SetScanInit(void);

#endif							/* GPUVEC_SET_FUNCTION_H */
