/*-------------------------------------------------------------------------
 *
 * custom_node.h
 *	  Nodes of ours that stand above another node and hand on its rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUSTOM_NODE_H
#define GPUVEC_CUSTOM_NODE_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* A path above another one, with the same rows, order and costs */
extern Path *CustomNodePath(Path *below, const CustomPathMethods *methods);

/* The plan of such a path.  All conditions are evaluated below. */
extern Plan *CustomNodePlan(const CustomPath *path, List *tlist, Plan *below,
							const CustomScanMethods *methods);

/* The node's state: `size` zeroed bytes that begin with a CustomScanState */
extern Node *CustomNodeState(Size size, const CustomExecMethods *methods);

/* BeginCustomScan, EndCustomScan */
extern void CustomNodeBegin(CustomScanState *node, EState *estate, int eflags);
extern void CustomNodeEnd(CustomScanState *node);

/* For ReScanCustomScan: the node below begins again */
extern void CustomNodeRescan(CustomScanState *node);

/* The node below */
static inline PlanState *
CustomNodeBelow(const CustomScanState *node)
{
	return (PlanState *) linitial(node->custom_ps);
}

/*
 * A row from below as this node returns it: in a slot of the kind that is
 * expected, and with the columns that are wanted.  It is valid as long as the
 * row below.
 */
extern TupleTableSlot *CustomNodeRow(CustomScanState *node, TupleTableSlot *row);

#endif							/* GPUVEC_CUSTOM_NODE_H */
