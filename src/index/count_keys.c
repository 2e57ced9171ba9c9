/*-------------------------------------------------------------------------
 *
 * count_keys.c
 *	  The conditions of a scan whose rows are counted.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "executor/executor.h"
#include "index/count.h"
#include "index/knn_scan.h"
#include "index/set_match.h"
#include "utils/datum.h"
#include "utils/rel.h"

/*
 * Read the filters of a scan: queries that its search keys do not say all of.
 * False: there are others.
 */
static bool
read_queries(const PlanState *node, Relation index, List **queries)
{
	ListCell   *cell;

	*queries = NIL;
	foreach(cell, node->plan->qual)
	{
		const IdSetQuery *query = GpuvecMatchedQuery(lfirst(cell), index->rd_index->indkey.values[0]);

		if (query == NULL)
			return false;
		*queries = lappend(*queries, (void *) query);
	}
	return true;
}

IndexScanDesc
CountBeginKeys(PlanState *node, MemoryContext context, List **queries)
{
	BitmapIndexScanState *index;
	MemoryContext old;
	bool		ours;

	if (!IsA(node, BitmapHeapScanState) || !IsA(outerPlanState(node), BitmapIndexScanState))
		return NULL;
	index = (BitmapIndexScanState *) outerPlanState(node);
	if (index->ss.ps.chgParam != NULL ||
		(index->biss_NumRuntimeKeys > 0 && !index->biss_RuntimeKeysReady))
		ExecReScan(&index->ss.ps);
	old = MemoryContextSwitchTo(context);
	ours = GpuvecIsOurs(index->biss_RelationDesc) && index->biss_NumArrayKeys == 0 &&
		read_queries(node, index->biss_RelationDesc, queries);
	MemoryContextSwitchTo(old);
	return ours ? index->biss_ScanDesc : NULL;
}

int
CountCopyRounded(IndexScanDesc scan, ScanKeyData *others)
{
	const GpuvecConditions *conditions = &((const KnnState *) scan->opaque)->conditions;
	const GpuvecRounded *rounded = conditions->rounded;
	int			n = 0;

	for (int i = 0; i < conditions->nrounded; i++)
	{
		AttrNumber	attnum = rounded[i].others.sk_attno;
		Form_pg_attribute attribute =
			TupleDescAttr(RelationGetDescr(scan->indexRelation), attnum - 1);

		if (i > 0 && rounded[i].low == rounded[0].low)
			continue;
		others[n] = rounded[i].others;
		others[n].sk_argument = datumCopy(others[n].sk_argument, attribute->attbyval, attribute->attlen);
		n++;
	}
	return n;
}
