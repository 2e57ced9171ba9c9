/*-------------------------------------------------------------------------
 *
 * joined.c
 *	  Decides where the outer rows of a lateral join are read ahead.
 *
 * The planner has put a node between the loop and its outer side that can do
 * it (read_ahead.c).
 *
 * Rows that are read ahead must not make a difference.  So this is not done
 * if the outer side has volatile functions, or nodes of other kinds than
 * those listed in is_harmless().  Nor where the loop is in a subquery of an
 * expression, or in a cursor that scrolls.
 *
 * An expression of a row that is never reached must not raise an error.  So
 * below a LIMIT it is not done if an expression of the outer side or a key of
 * the scan may fail.  Nor is it done if a key may fail and the scan may not
 * begin for each row: there is a condition in front of it.  Only leakproof
 * functions are known not to fail.  (If a session takes some rows of a cursor
 * without LIMIT, an error may come up to gpuvec.join_rows rows too early.)
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "entries/entries.h"
#include "executor/executor.h"
#include "index/count.h"
#include "index/index_am.h"
#include "index/merge.h"
#include "index/ranges.h"
#include "index/read_ahead.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

static ExecutorStart_hook_type previous_hook = NULL;

/* check_function_callback: true unless a function never fails */
static bool
function_may_fail(Oid function, void *context)
{
	return !get_func_leakproof(function);
}

/* expression_tree_walker: true if an expression may raise an error */
static bool
may_fail(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, CoerceToDomain) || check_functions_in_node(node, function_may_fail, NULL))
		return true;
	return expression_tree_walker(node, may_fail, context);
}

/* True if an expression of a scan's keys may raise an error */
static bool
keys_may_fail(const IndexScanState *scan)
{
	/* making a set may: it calls functions of the elements' type */
	if (EntriesMakeSets(scan->iss_RelationDesc))
		return true;
	for (int i = 0; i < scan->iss_NumRuntimeKeys; i++)
		if (may_fail((Node *) scan->iss_RuntimeKeys[i].key_expr->expr, NULL))
			return true;
	return false;
}

/*
 * True if an expression may be evaluated ahead.  If the loop may stop early
 * (`stops`), it must not fail.
 */
static bool
is_harmless_expression(Node *expr, bool stops)
{
	return !contain_volatile_functions(expr) && !contain_subplans(expr) &&
		!(stops && may_fail(expr, NULL));
}

/*
 * True if rows of a plan may be read ahead.  If the loop may stop early
 * (`stops`), none of its expressions may fail.
 */
static bool
is_harmless(const Plan *plan, bool stops)
{
	const Node *exprs[4] = {(Node *) plan->targetlist, (Node *) plan->qual};
	ListCell   *cell;

	switch (nodeTag(plan))
	{
		case T_FunctionScan:
			exprs[2] = (Node *) ((FunctionScan *) plan)->functions;
			break;
		case T_ValuesScan:
			exprs[2] = (Node *) ((ValuesScan *) plan)->values_lists;
			break;
		case T_HashJoin:
			exprs[2] = (Node *) ((HashJoin *) plan)->hashclauses;
			exprs[3] = (Node *) ((HashJoin *) plan)->join.joinqual;
			break;
		case T_Append:
			foreach(cell, ((Append *) plan)->appendplans)
				if (!is_harmless(lfirst(cell), stops))
				return false;
			break;
		case T_SubqueryScan:
			if (!is_harmless(((SubqueryScan *) plan)->subplan, stops))
				return false;
			break;
		case T_Limit:
			exprs[2] = ((Limit *) plan)->limitCount;
			exprs[3] = ((Limit *) plan)->limitOffset;
			break;
		case T_SeqScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_BitmapIndexScan:
		case T_Sort:
		case T_IncrementalSort:
		case T_Material:
		case T_Hash:
		case T_Agg:
		case T_Gather:
		case T_GatherMerge:
			break;
		default:
			return false;
	}
	for (int i = 0; i < lengthof(exprs); i++)
		if (!is_harmless_expression((Node *) exprs[i], stops))
			return false;
	return (plan->lefttree == NULL || is_harmless(plan->lefttree, stops)) &&
		(plan->righttree == NULL || is_harmless(plan->righttree, stops));
}

/* True if a node may return no row without having asked for one */
static bool
may_not_ask(const PlanState *node)
{
	if (IsA(node, ResultState))
		return ((Result *) node->plan)->resconstantqual != NULL;
	if (IsA(node, LimitState))
		return ((Limit *) node->plan)->limitCount != NULL &&
			!IsA(((Limit *) node->plan)->limitCount, Const);
	return false;
}

/*
 * The ordered scan of one of our indexes that a node has its rows of, or
 * NULL.  Sets *gated if it may not begin for each row of a loop.
 */
static IndexScanState *
find_scan(PlanState *node, bool *gated)
{
	while (node != NULL)
	{
		*gated |= may_not_ask(node);
		switch (nodeTag(node))
		{
			case T_IndexScanState:
				return GpuvecIsOrderedScan(node) && ((IndexScanState *) node)->iss_NumRuntimeKeys > 0 ?
					(IndexScanState *) node : NULL;
			case T_SubqueryScanState:
				node = ((SubqueryScanState *) node)->subplan;
				break;
			case T_LimitState:
			case T_SortState:
			case T_IncrementalSortState:
			case T_AggState:
			case T_ResultState:
			case T_MaterialState:
				node = outerPlanState(node);
				break;
			default:
				return NULL;
		}
	}
	return NULL;
}

/*
 * Have the rows of a loop's outer side read ahead, if it is one of ours.  It
 * may end before its last row, if it `stops`.
 */
static void
read_ahead(NestLoopState *loop, bool stops)
{
	PlanState  *node = ReadAheadChild(outerPlanState(loop));
	bool		gated = stops;
	IndexScanState *scan = find_scan(innerPlanState(loop), &gated);

	if (node == NULL || scan == NULL || ((NestLoop *) loop->js.ps.plan)->nestParams == NIL ||
		!is_harmless(node->plan, stops) ||
		!is_harmless_expression((Node *) outerPlan(loop->js.ps.plan)->targetlist, stops) ||
		(gated && keys_may_fail(scan)))
		return;
	ReadAheadBegin(loop, scan, (uint32) gpuvec_join_rows);
}

/*
 * Find the loops in a plan, but not those in subqueries of expressions.  Below
 * a LIMIT or a window, and on the inner side of another loop, a loop may stop
 * early, unless a sort in between wants all rows.
 */
static void
look_at(PlanState *node, bool stops)
{
	if (node == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(node))
	{
		case T_NestLoopState:
			read_ahead((NestLoopState *) node, stops);
			look_at(outerPlanState(node), stops);
			look_at(innerPlanState(node), true);
			break;
		case T_CustomScanState:
			look_at(ReadAheadChild(node), stops);
			break;
		case T_AppendState:
			for (int i = 0; i < ((AppendState *) node)->as_nplans; i++)
				look_at(((AppendState *) node)->appendplans[i], stops);
			break;
		case T_SubqueryScanState:
			look_at(((SubqueryScanState *) node)->subplan, stops);
			break;
		case T_HashJoinState:
			look_at(outerPlanState(node), stops);
			look_at(outerPlanState(innerPlanState(node)), stops);
			break;
		case T_LimitState:
		case T_WindowAggState:	/* of which few row numbers may be wanted */
			look_at(outerPlanState(node), true);
			break;
		case T_SortState:
			look_at(outerPlanState(node), false);
			break;
		case T_AggState:
			look_at(outerPlanState(node), stops && ((Agg *) node->plan)->aggstrategy != AGG_PLAIN);
			break;
		case T_GatherState:
		case T_GatherMergeState:
		case T_GroupState:
		case T_IncrementalSortState:
		case T_LockRowsState:
		case T_MaterialState:
		case T_ProjectSetState:
		case T_ResultState:
		case T_UniqueState:
#if PG_VERSION_NUM >= 140000
		case T_ModifyTableState:
#endif
			look_at(outerPlanState(node), stops);
			break;
		default:
			break;
	}
}

/* ExecutorStart_hook */
static void
executor_start(QueryDesc *query, int eflags)
{
	if (previous_hook)
		previous_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (gpuvec_join_rows > 1 &&
		(eflags & (EXEC_FLAG_EXPLAIN_ONLY | EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD)) == 0)
		look_at(query->planstate, false);
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		ExpectedBegin(query->planstate);
}

/* Called once, when the library is loaded */
void
GpuvecJoinedInit(void)
{
	ReadAheadInit();
	MergeInit();
	CountInit();
	RangesInit();
	previous_hook = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
