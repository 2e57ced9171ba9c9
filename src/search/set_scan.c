/*-------------------------------------------------------------------------
 *
 * set_scan.c
 *	  A custom plan node for functions in FROM that search, gather or pool.
 *
 * A function scan stores all rows in a tuplestore before it returns the
 * first.  For 2,000 queries with 100 rows each, or for 65,536 vectors, that
 * costs more than the work on a GPU.  So a custom path is added, whose node
 * returns rows straight from the answers.  It costs less than the function
 * scan, so the planner prefers it.  The path is not offered where the node
 * could not do what a function scan does: WITH ORDINALITY, several functions
 * in ROWS FROM, and whole-row references (which row locks and UPDATE ... FROM
 * need too).
 *
 * The hook must be set before the planner asks for paths.  It is, because
 * before that the planner asks the functions' support functions for the
 * number of rows, which loads the library.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mirror/describe/usage.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "search/set_function.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"

typedef struct SetScanState
{
	CustomScanState css;
	FuncExpr   *expr;			/* the function call */
	const SetFunction *set;
	FmgrInfo	function;
	List	   *arguments;		/* of ExprState */
	MemoryContext context;		/* of the call and its rows */
	void	   *call;			/* result of set->begin(); NULL: not called
								 * yet */
	MirrorUsage used;			/* by all calls */
} SetScanState;

static set_rel_pathlist_hook_type previous_hook = NULL;

/* ---- planning ---- */

static Plan *plan_scan(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path,
					   List *tlist, List *clauses, List *custom_plans);
static Node *create_state(CustomScan *scan);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec function",
	.PlanCustomPath = plan_scan,
};

static const CustomScanMethods scan_methods = {
	.CustomName = "gpuvec function",
	.CreateCustomScanState = create_state,
};

/*
 * If a range table entry is a call of one of our functions, that call, else
 * NULL
 */
static FuncExpr *
set_function(RangeTblEntry *rte)
{
	RangeTblFunction *rtf;
	FuncExpr   *call;
	FmgrInfo	function;

	if (rte->rtekind != RTE_FUNCTION || rte->funcordinality || list_length(rte->functions) != 1)
		return NULL;
	rtf = linitial_node(RangeTblFunction, rte->functions);
	if (!IsA(rtf->funcexpr, FuncExpr) || rtf->funccolnames != NIL)
		return NULL;
	call = (FuncExpr *) rtf->funcexpr;
	if (!call->funcretset)
		return NULL;

	/*
	 * a function with SET or SECURITY DEFINER has another address here, so
	 * the function scan keeps it
	 */
	fmgr_info(call->funcid, &function);
	return SetFunctionFind(function.fn_addr) ? call : NULL;
}

/* The function scan's path, or NULL */
static Path *
function_scan_path(RelOptInfo *rel)
{
	ListCell   *cell;

	foreach(cell, rel->pathlist)
	{
		Path	   *path = lfirst(cell);

		if (path->pathtype == T_FunctionScan)
			return path;
	}
	return NULL;
}

/* set_rel_pathlist_hook: add our path for a function */
static void
add_set_path(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	Path	   *plain;
	CustomPath *path;

	if (previous_hook)
		previous_hook(root, rel, rti, rte);
	if (rel->reloptkind != RELOPT_BASEREL || rte->rtekind != RTE_FUNCTION ||
		set_function(rte) == NULL || !bms_is_empty(rel->attr_needed[0 - rel->min_attr]))
		return;
	plain = function_scan_path(rel);
	if (plain == NULL)
		return;

	path = makeNode(CustomPath);
	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = rel->reltarget;
	path->path.param_info = plain->param_info;
	path->path.parallel_safe = rel->consider_parallel;
	path->path.rows = plain->rows;
	path->path.startup_cost = plain->startup_cost;
	path->path.total_cost = plain->startup_cost +
		(plain->total_cost - plain->startup_cost) / 2;
#ifdef CUSTOMPATH_SUPPORT_PROJECTION
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
#endif
	path->methods = &path_methods;
	add_path(rel, &path->path);
}

/* The function's columns as a target list */
static List *
row_of_function(RelOptInfo *rel, RangeTblEntry *rte, FuncExpr *call)
{
	TupleDesc	desc;
	Oid			type;
	List	   *tlist = NIL;

	if (get_expr_result_type((Node *) call, &type, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Var		   *var = makeVar(rel->relid, i + 1, att->atttypid, att->atttypmod,
								  att->attcollation, 0);

		tlist = lappend(tlist, makeTargetEntry((Expr *) var, i + 1,
											   pstrdup(NameStr(att->attname)), false));
	}
	return tlist;
}

static Plan *
plan_scan(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path,
		  List *tlist, List *clauses, List *custom_plans)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	FuncExpr   *call = set_function(rte);
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = extract_actual_clauses(clauses, false);
	scan->scan.scanrelid = 0;	/* there is no table to open */
	scan->custom_scan_tlist = row_of_function(rel, rte, call);
	scan->custom_exprs = list_make1(copyObject(call));
	scan->flags = path->flags;
	scan->methods = &scan_methods;
	return (Plan *) scan;
}

/* ---- execution ---- */

static void begin_scan(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_scan(CustomScanState *node);
static void end_scan(CustomScanState *node);
static void rescan(CustomScanState *node);
static void explain(CustomScanState *node, List *ancestors, ExplainState *es);

static const CustomExecMethods exec_methods = {
	.CustomName = "gpuvec function",
	.BeginCustomScan = begin_scan,
	.ExecCustomScan = exec_scan,
	.EndCustomScan = end_scan,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

static Node *
create_state(CustomScan *scan)
{
	SetScanState *state = (SetScanState *) newNode(sizeof(SetScanState), T_CustomScanState);

	state->css.methods = &exec_methods;
	return (Node *) state;
}

/* Check the EXECUTE privilege, and prepare the arguments */
static void
begin_scan(CustomScanState *node, EState *estate, int eflags)
{
	SetScanState *state = (SetScanState *) node;
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;

	state->expr = linitial_node(FuncExpr, scan->custom_exprs);
	GpuvecCheckExecute(state->expr->funcid);
	InvokeFunctionExecuteHook(state->expr->funcid);
	fmgr_info(state->expr->funcid, &state->function);
	fmgr_info_set_expr((Node *) state->expr, &state->function);
	state->set = SetFunctionFind(state->function.fn_addr);
	if (state->set == NULL)
		elog(ERROR, "function %u is not one of gpuvec any more", state->expr->funcid);
	state->arguments = ExecInitExprList(state->expr->args, &node->ss.ps);
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec results",
										   ALLOCSET_DEFAULT_SIZES);
}

/* Evaluate the arguments, and call the function */
static void
call_function(SetScanState *state)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(state->context);
	int			nargs = list_length(state->arguments);
	FunctionCallInfo fcinfo = palloc0(SizeForFunctionCallInfo(nargs));
	ListCell   *cell;
	int			i = 0;

	InitFunctionCallInfoData(*fcinfo, &state->function, nargs, state->expr->inputcollid,
							 (Node *) state->css.ss.ps.state, NULL);
	foreach(cell, state->arguments)
	{
		fcinfo->args[i].value = ExecEvalExpr((ExprState *) lfirst(cell), econtext,
											 &fcinfo->args[i].isnull);
		i++;
	}
	state->call = state->set->begin(fcinfo, state->set->form, state->css.ss.ps.state->es_snapshot);
	MemoryContextSwitchTo(old);
}

/* ExecScan's access method: the next row of the function */
static TupleTableSlot *
next_row(ScanState *node)
{
	SetScanState *state = (SetScanState *) node;
	TupleTableSlot *slot = node->ss_ScanTupleSlot;
	MirrorUsage before = MirrorUsed;
	bool		found;

	if (state->call == NULL)
		call_function(state);
	ExecClearTuple(slot);
	memset(slot->tts_isnull, false, slot->tts_tupleDescriptor->natts * sizeof(bool));
	found = state->set->next(state->call, slot->tts_values, slot->tts_isnull);
	/* most rows come from memory */
	if (unlikely(MirrorUsedSince(&before)))
		MirrorUsageAdd(&state->used, &before);
	return found ? ExecStoreVirtualTuple(slot) : slot;
}

/*
 * ExecScan's recheck method: always true, as the node's rows cannot be locked
 */
static bool
recheck_row(ScanState *node, TupleTableSlot *slot)
{
	return true;
}

/* A row of no columns, as count(*) asks for; empty if that of the scan is */
static TupleTableSlot *
no_columns(PlanState *ps, TupleTableSlot *slot)
{
	TupleTableSlot *result = ExecClearTuple(ps->ps_ProjInfo->pi_state.resultslot);

	return TupIsNull(slot) ? result : ExecStoreVirtualTuple(result);
}

/*
 * The next row.  Without a condition, and if all columns are asked for or
 * none, there is nothing for ExecScan() to do.
 */
static TupleTableSlot *
exec_scan(CustomScanState *node)
{
	PlanState  *ps = &node->ss.ps;
	TupleTableSlot *slot;

	if (ps->qual != NULL || ps->state->es_epq_active != NULL ||
		(ps->ps_ProjInfo != NULL && ps->plan->targetlist != NIL))
		return ExecScan(&node->ss, next_row, recheck_row);
	CHECK_FOR_INTERRUPTS();
	slot = next_row(&node->ss);
	return ps->ps_ProjInfo != NULL ? no_columns(ps, slot) : slot;
}

/* End the call, and free its rows */
static void
drop_call(SetScanState *state)
{
	if (state->call && state->set->end)
		state->set->end(state->call);
	state->call = NULL;
	MemoryContextReset(state->context);
}

static void
end_scan(CustomScanState *node)
{
	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	drop_call((SetScanState *) node);
}

/* Rescan: keep the rows, unless parameters may have changed */
static void
rescan(CustomScanState *node)
{
	SetScanState *state = (SetScanState *) node;

	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	ExecScanReScan(&node->ss);
	if (node->ss.ps.chgParam != NULL)
		drop_call(state);
	else if (state->call)
		state->set->rewind(state->call);
}

/*
 * Show the function's name, because EXPLAIN only prints the node's name, and
 * with ANALYZE what the engine did.  VERBOSE shows the call, as for a
 * function scan.
 */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	SetScanState *state = (SetScanState *) node;
	List	   *context;

	ExplainPropertyText("Function", get_func_name(state->expr->funcid), es);
	if (es->analyze)
		MirrorUsageExplain(&state->used, es);
	if (!es->verbose)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	ExplainPropertyText("Function Call",
						deparse_expression((Node *) state->expr, context, true, false), es);
}

/* Called once, when the library is loaded */
void
SetScanInit(void)
{
	RegisterCustomScanMethods(&scan_methods);
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_set_path;
}
