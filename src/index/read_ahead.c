/*-------------------------------------------------------------------------
 *
 * read_ahead.c
 *	  A node that reads the outer rows of a lateral join ahead.
 *
 *		SELECT ... FROM queries q, LATERAL (SELECT ... FROM docs d
 *			WHERE d.tenant = q.tenant ORDER BY d.tokens <-> q.tokens
 *			LIMIT 10) x
 *
 * is a nested loop.  For each row of its outer side the executor sets
 * parameters, and begins the index scan anew, with keys made of them.  Only
 * the server's own nested loop makes these parameters.  So this node stands
 * between the loop and its outer side: a custom scan, as EXPLAIN shows.  It
 * reads some rows at once, and hands them on one by one.  Before that it makes
 * of each row the keys that the scan will have, and tells them to the scan
 * (coming.c), which asks for several queries in one request.  First one row
 * is read, then READ_GROWTH times as many each time, up to gpuvec.join_rows.
 * So a join of which few rows are wanted does not read far ahead.
 *
 * The planner puts such a node wherever the inner side may be a scan in the
 * order of one of our indexes.  It costs what the outer side costs, so the
 * same plans are chosen as without it.  Whether rows may be read ahead is
 * decided when a statement begins (joined.c).  If not, the node hands on each
 * row as it comes.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "executor/executor.h"
#include "executor/nodeIndexscan.h"
#include "index/custom_node.h"
#include "index/index_am.h"
#include "index/knn_scan.h"
#include "index/read_ahead.h"
#include "miscadmin.h"
#include "optimizer/paths.h"
#include "utils/memutils.h"

/* How fast the number of rows grows that are read at once */
#define READ_GROWTH		4

/* Bytes of rows from which no more are read at once */
#define READ_BYTES		(4 * 1024 * 1024)

typedef struct ReadAheadState
{
	CustomScanState css;		/* custom_ps: whose rows it hands on */
	NestLoopState *loop;		/* NULL: rows are not read ahead */
	IndexScanState *scan;
	TupleTableSlot **slots;		/* [most]; [n] of them have rows */
	uint32		most;
	uint32		n;
	uint32		next;			/* of the row to hand on next */
	uint32		capacity;		/* rows to read at once */
	bool		ended;			/* there are no more rows */
} ReadAheadState;

static Plan *plan_read_ahead(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path,
							 List *tlist, List *clauses, List *custom_plans);
static Node *create_state(CustomScan *scan);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec read-ahead",
	.PlanCustomPath = plan_read_ahead,
};

static const CustomScanMethods scan_methods = {
	.CustomName = "gpuvec read-ahead",
	.CreateCustomScanState = create_state,
};

static set_join_pathlist_hook_type previous_hook = NULL;

/* ---- planning ---- */

/* True if a path has its rows in the order of one of our indexes */
static bool
orders_for_rows(const Path *path)
{
	while (path != NULL)
	{
		switch (nodeTag(path))
		{
			case T_IndexPath:
				return ((IndexPath *) path)->indexorderbys != NIL &&
					GpuvecIsOurIndex(((IndexPath *) path)->indexinfo);
			case T_SubqueryScanPath:
				path = ((SubqueryScanPath *) path)->subpath;
				break;
			case T_LimitPath:
				path = ((LimitPath *) path)->subpath;
				break;
			case T_SortPath:
			case T_IncrementalSortPath:
				path = ((SortPath *) path)->subpath;
				break;
			case T_ProjectionPath:
				path = ((ProjectionPath *) path)->subpath;
				break;
			case T_AggPath:
				path = ((AggPath *) path)->subpath;
				break;
			case T_MaterialPath:
				path = ((MaterialPath *) path)->subpath;
				break;
			default:
				return false;
		}
	}
	return false;
}

static bool
is_ours(const Path *path)
{
	return IsA(path, CustomPath) && ((const CustomPath *) path)->methods == &path_methods;
}

/* Put the node into the nested loops of some paths, if it can be of use */
static void
put_into(List *paths)
{
	ListCell   *cell;

	foreach(cell, paths)
	{
		JoinPath   *loop = lfirst(cell);

		if (IsA(loop, NestPath) && !is_ours(loop->outerjoinpath) &&
			PATH_REQ_OUTER(loop->innerjoinpath) != NULL && orders_for_rows(loop->innerjoinpath))
			loop->outerjoinpath = CustomNodePath(loop->outerjoinpath, &path_methods);
	}
}

/* set_join_pathlist_hook */
static void
add_to_joins(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel, RelOptInfo *innerrel,
			 JoinType jointype, JoinPathExtraData *extra)
{
	if (previous_hook)
		previous_hook(root, joinrel, outerrel, innerrel, jointype, extra);
	if (gpuvec_join_rows <= 1)
		return;
	put_into(joinrel->pathlist);
	put_into(joinrel->partial_pathlist);
}

/* PlanCustomPath */
static Plan *
plan_read_ahead(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
				List *clauses, List *custom_plans)
{
	return CustomNodePlan(path, tlist, linitial(custom_plans), &scan_methods);
}

/* ---- rows ---- */

/* The next row as this node returns it */
static TupleTableSlot *
make_row(ReadAheadState *state)
{
	return CustomNodeRow(&state->css, ExecProcNode(CustomNodeBelow(&state->css)));
}

/* Set the parameters of the loop by a row, as the loop does it */
static void
set_params(const ReadAheadState *state, TupleTableSlot *row)
{
	ListCell   *cell;

	foreach(cell, ((NestLoop *) state->loop->js.ps.plan)->nestParams)
	{
		const		NestLoopParam *param = lfirst(cell);
		ParamExecData *to = &state->css.ss.ps.state->es_param_exec_vals[param->paramno];

		to->value = slot_getattr(row, param->paramval->varattno, &to->isnull);
	}
}

/*
 * Tell the scan what keys it will have.  The values of its keys end with the
 * next ones, and so do those of the rescan before, which is over.
 */
static void
tell_scan(ReadAheadState *state)
{
	IndexScanState *scan = state->scan;
	bool		room = true;

	KnnComingReset(scan->iss_ScanDesc, state->n);
	for (uint32 i = 0; i < state->n && room; i++)
	{
		set_params(state, state->slots[i]);
		ResetExprContext(scan->iss_RuntimeContext);
		ExecIndexEvalRuntimeKeys(scan->iss_RuntimeContext, scan->iss_RuntimeKeys,
								 scan->iss_NumRuntimeKeys);
		room = KnnComingAdd(scan->iss_ScanDesc, scan->iss_ScanKeys, scan->iss_OrderByKeys);
	}
}

static TupleTableSlot *
make_slot(ReadAheadState *state)
{
	EState	   *estate = state->css.ss.ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	TupleTableSlot *slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(&state->css.ss.ps),
												  &TTSOpsVirtual);

	MemoryContextSwitchTo(old);
	return slot;
}

/* Read a row, and copy it: it holds no page */
static bool
read_row(ReadAheadState *state)
{
	TupleTableSlot *row = make_row(state);
	TupleTableSlot **slot = &state->slots[state->n];

	if (TupIsNull(row))
	{
		state->ended = true;
		return false;
	}
	if (*slot == NULL)
		*slot = make_slot(state);
	ExecCopySlot(*slot, row);
	state->n++;
	return true;
}

/* Read the next rows */
static void
read_rows(ReadAheadState *state)
{
	MemoryContext context = state->css.ss.ps.state->es_query_cxt;
	Size		most = MemoryContextMemAllocated(context, false) + READ_BYTES;

	state->n = state->next = 0;
	while (state->n < state->capacity && MemoryContextMemAllocated(context, false) < most &&
		   read_row(state))
		CHECK_FOR_INTERRUPTS();
	state->capacity = Min(state->capacity * READ_GROWTH, state->most);
	if (state->n > 1 && state->scan->iss_ScanDesc != NULL)
		tell_scan(state);
}

/* ---- execution ---- */

static TupleTableSlot *
next_row(CustomScanState *node)
{
	ReadAheadState *state = (ReadAheadState *) node;

	if (state->loop == NULL)
		return make_row(state);
	if (state->next == state->n && !state->ended)
		read_rows(state);
	return state->next < state->n ? state->slots[state->next++] :
		ExecClearTuple(node->ss.ss_ScanTupleSlot);
}

static void
rescan(CustomScanState *node)
{
	ReadAheadState *state = (ReadAheadState *) node;

	state->n = state->next = 0;
	state->capacity = 1;
	state->ended = false;
	CustomNodeRescan(node);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "gpuvec read-ahead",
	.BeginCustomScan = CustomNodeBegin,
	.ExecCustomScan = next_row,
	.EndCustomScan = CustomNodeEnd,
	.ReScanCustomScan = rescan,
};

static Node *
create_state(CustomScan *scan)
{
	return CustomNodeState(sizeof(ReadAheadState), &exec_methods);
}

PlanState *
ReadAheadChild(PlanState *node)
{
	if (!IsA(node, CustomScanState) || ((CustomScanState *) node)->methods != &exec_methods)
		return NULL;
	return CustomNodeBelow((CustomScanState *) node);
}

void
ReadAheadBegin(NestLoopState *loop, IndexScanState *scan, uint32 most)
{
	ReadAheadState *state = (ReadAheadState *) outerPlanState(loop);

	state->loop = loop;
	state->scan = scan;
	state->most = most;
	state->capacity = 1;
	state->slots = MemoryContextAllocZero(loop->js.ps.state->es_query_cxt,
										  most * sizeof(TupleTableSlot *));
}

void
ReadAheadInit(void)
{
	RegisterCustomScanMethods(&scan_methods);
	previous_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = add_to_joins;
}
