/*-------------------------------------------------------------------------
 *
 * custom_node.c
 *	  Nodes of ours that stand above another node and hand on its rows.
 *
 * Such a node is a custom scan, as EXPLAIN shows, with one child.  Its rows
 * are those of the child, whose columns the scan's targets are made of.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "executor/executor.h"
#include "index/custom_node.h"

Path *
CustomNodePath(Path *below, const CustomPathMethods *methods)
{
	CustomPath *path = makeNode(CustomPath);

	path->path = *below;
	path->path.type = T_CustomPath;
	path->path.pathtype = T_CustomScan;
	path->path.parallel_aware = false;
#if PG_VERSION_NUM >= 150000
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
#endif
	path->custom_paths = list_make1(below);
	path->methods = methods;
	return &path->path;
}

Plan *
CustomNodePlan(const CustomPath *path, List *tlist, Plan *below, const CustomScanMethods *methods)
{
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan.targetlist = tlist;
	scan->custom_plans = list_make1(below);
	scan->custom_scan_tlist = copyObject(below->targetlist);
	scan->flags = path->flags;
	scan->methods = methods;
	return &scan->scan.plan;
}

Node *
CustomNodeState(Size size, const CustomExecMethods *methods)
{
	CustomScanState *state = (CustomScanState *) newNode(size, T_CustomScanState);

	state->methods = methods;
	return (Node *) state;
}

void
CustomNodeBegin(CustomScanState *node, EState *estate, int eflags)
{
	const CustomScan *scan = (const CustomScan *) node->ss.ps.plan;

	node->custom_ps = list_make1(ExecInitNode(linitial(scan->custom_plans), estate, eflags));
}

void
CustomNodeEnd(CustomScanState *node)
{
	ExecEndNode(CustomNodeBelow(node));
}

void
CustomNodeRescan(CustomScanState *node)
{
	PlanState  *below = CustomNodeBelow(node);

	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(below, node->ss.ps.chgParam);
	if (below->chgParam == NULL)
		ExecReScan(below);
}

TupleTableSlot *
CustomNodeRow(CustomScanState *node, TupleTableSlot *row)
{
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	ProjectionInfo *projection = node->ss.ps.ps_ProjInfo;

	ExecClearTuple(slot);
	if (TupIsNull(row))
		return slot;
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, row->tts_nvalid * sizeof(Datum));
	memcpy(slot->tts_isnull, row->tts_isnull, row->tts_nvalid * sizeof(bool));
	ExecStoreVirtualTuple(slot);
	if (projection == NULL)
		return slot;
	ResetExprContext(projection->pi_exprContext);
	projection->pi_exprContext->ecxt_scantuple = slot;
	return ExecProject(projection);
}
