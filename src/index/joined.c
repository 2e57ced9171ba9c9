/*-------------------------------------------------------------------------
 *
 * joined.c
 *	  Looks at the rows that a lateral join will join an index scan with.
 *
 *		SELECT ... FROM queries q, LATERAL (SELECT ... FROM docs d
 *			WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens
 *			LIMIT 10) x
 *
 * is a nested loop.  For each row of its outer side the executor sets
 * parameters, and begins the index scan anew, with keys made of them.  Here
 * the outer node of such a loop gets another function: it reads some rows at
 * once, and hands them out one by one.  Before that it makes of each row the
 * keys that the scan will have, and tells them to the scan (coming.c), which
 * asks for several queries in one request.  First one row is read, then
 * JOIN_GROWTH times as many each time, up to gpuvec.join_rows.  So a join of
 * which few rows are wanted does not read far ahead.
 *
 * Rows that are read ahead must not make a difference.  So this is not done
 * if the outer side has volatile functions, or nodes of other kinds than
 * those listed in is_harmless().  Nor where the loop may begin anew in the
 * middle (inside of another loop, a subquery of an expression, or a cursor
 * that scrolls), as nothing would tell that to the function.
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

#include "access/relscan.h"
#include "executor/executor.h"
#include "executor/nodeIndexscan.h"
#include "index/index_am.h"
#include "index/knn_scan.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* How fast the number of rows grows that are read at once */
#define JOIN_GROWTH		4

/* Bytes of rows from which no more are read at once */
#define JOIN_BYTES		(4 * 1024 * 1024)

/* The outer side of a loop */
typedef struct OuterSide
{
	dlist_node	link;			/* in outer_sides */
	PlanState  *node;
	ExecProcNodeMtd next_row;	/* the node's own function */
	NestLoopState *loop;
	IndexScanState *scan;
	TupleDesc	desc;			/* of its rows */
	TupleTableSlot **slots;		/* [most]; [n] of them have rows */
	uint32		most;
	uint32		n;
	uint32		next;			/* of the row to hand out next */
	uint32		capacity;		/* rows to read at once */
	bool		ended;			/* the node has no more rows */
} OuterSide;

static dlist_head outer_sides = DLIST_STATIC_INIT(outer_sides);
static ExecutorStart_hook_type previous_hook = NULL;

/* ---- rows ---- */

/* The side that a node is of */
static OuterSide *
side_of(const PlanState *node)
{
	dlist_iter	i;

	dlist_foreach(i, &outer_sides)
	{
		OuterSide  *side = dlist_container(OuterSide, link, i.cur);

		if (side->node == node)
			return side;
	}
	elog(ERROR, "node of a join is not known");
	return NULL;
}

/* Set the parameters of the loop by a row, as the loop does it */
static void
set_params(OuterSide *side, TupleTableSlot *slot)
{
	ListCell   *cell;

	foreach(cell, ((NestLoop *) side->loop->js.ps.plan)->nestParams)
	{
		const		NestLoopParam *param = lfirst(cell);
		ParamExecData *to = &side->node->state->es_param_exec_vals[param->paramno];

		to->value = slot_getattr(slot, param->paramval->varattno, &to->isnull);
	}
}

/*
 * Tell the scan what keys it will have.  The values of its keys end with the
 * next ones, and so do those of the rescan before, which is over.
 */
static void
tell_scan(OuterSide *side)
{
	IndexScanState *scan = side->scan;

	KnnComingReset(scan->iss_ScanDesc, side->n);
	for (uint32 i = 0; i < side->n; i++)
	{
		set_params(side, side->slots[i]);
		ResetExprContext(scan->iss_RuntimeContext);
		ExecIndexEvalRuntimeKeys(scan->iss_RuntimeContext, scan->iss_RuntimeKeys,
								 scan->iss_NumRuntimeKeys);
		KnnComingAdd(scan->iss_ScanDesc, scan->iss_ScanKeys, scan->iss_OrderByKeys);
	}
}

/*
 * Make a slot for rows like this one.  It has its own description of them,
 * which knows the values that columns have in rows that are older.
 */
static TupleTableSlot *
make_slot(OuterSide *side, const TupleTableSlot *row)
{
	EState	   *estate = side->node->state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	TupleTableSlot *slot;

	if (side->desc == NULL)
		side->desc = CreateTupleDescCopyConstr(row->tts_tupleDescriptor);
	slot = ExecInitExtraTupleSlot(estate, side->desc, row->tts_ops);
	MemoryContextSwitchTo(old);
	return slot;
}

/* A row of the outer side, copied: it holds no page */
static bool
read_row(OuterSide *side)
{
	TupleTableSlot *row = side->next_row(side->node);
	TupleTableSlot **slot = &side->slots[side->n];

	if (TupIsNull(row))
	{
		side->ended = true;
		return false;
	}
	if (*slot == NULL)
		*slot = make_slot(side, row);
	ExecCopySlot(*slot, row);
	ExecMaterializeSlot(*slot);
	side->n++;
	return true;
}

/* Read the next rows */
static void
read_rows(OuterSide *side)
{
	MemoryContext context = side->node->state->es_query_cxt;
	Size		most = MemoryContextMemAllocated(context, false) + JOIN_BYTES;

	side->n = side->next = 0;
	while (side->n < side->capacity && MemoryContextMemAllocated(context, false) < most && read_row(side))
		CHECK_FOR_INTERRUPTS();
	side->capacity = Min(side->capacity * JOIN_GROWTH, side->most);
	if (side->n > 1 && side->scan->iss_ScanDesc != NULL)
		tell_scan(side);
}

/* The function of an outer side: the next row */
static TupleTableSlot *
next_row(PlanState *node)
{
	OuterSide  *side = side_of(node);

	if (side->next == side->n && !side->ended)
		read_rows(side);
	return side->next < side->n ? side->slots[side->next++] : NULL;
}

/* ---- plans ---- */

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
	for (int i = 0; i < scan->iss_NumRuntimeKeys; i++)
		if (may_fail((Node *) scan->iss_RuntimeKeys[i].key_expr->expr, NULL))
			return true;
	return false;
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
		if (contain_volatile_functions((Node *) exprs[i]) || contain_subplans((Node *) exprs[i]) ||
			(stops && may_fail((Node *) exprs[i], NULL)))
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

/* Memory context callback: a statement ends, however it does */
static void
forget_side(void *arg)
{
	dlist_delete(&((OuterSide *) arg)->link);
}

/*
 * Have the rows of a loop's outer side read ahead, if it is one of ours.  It
 * may end before its last row, if it `stops`.
 */
static void
read_ahead(NestLoopState *loop, bool stops)
{
	PlanState  *node = outerPlanState(loop);
	bool		gated = stops;
	IndexScanState *scan = find_scan(innerPlanState(loop), &gated);
	MemoryContext context = node->state->es_query_cxt;
	MemoryContextCallback *callback;
	OuterSide  *side;

	if (scan == NULL || ((NestLoop *) loop->js.ps.plan)->nestParams == NIL ||
		!is_harmless(node->plan, stops) || (gated && keys_may_fail(scan)))
		return;
	side = MemoryContextAllocZero(context, sizeof(OuterSide));
	side->node = node;
	side->next_row = node->ExecProcNodeReal;
	side->loop = loop;
	side->scan = scan;
	side->most = gpuvec_join_rows;
	side->capacity = 1;
	side->slots = MemoryContextAllocZero(context, side->most * sizeof(TupleTableSlot *));
	callback = MemoryContextAllocZero(context, sizeof(MemoryContextCallback));
	callback->func = forget_side;
	callback->arg = side;
	dlist_push_head(&outer_sides, &side->link);
	MemoryContextRegisterResetCallback(context, callback);
	ExecSetExecProcNode(node, next_row);
}

/*
 * Find the loops in a plan that begin once.  What is below the inner side of
 * a loop, or in subqueries of expressions, may begin again.  Below a LIMIT or
 * a window a loop may stop early, unless a sort in between wants all rows.
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
	/* the function that a scan begins with gives way to that of look_at() */
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
	{
		ExpectedBegin(query->planstate);
		SiblingsNote(query);
	}
}

/* Called once, when the library is loaded */
void
GpuvecJoinedInit(void)
{
	previous_hook = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
