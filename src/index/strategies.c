/*-------------------------------------------------------------------------
 *
 * strategies.c
 *	  What all files of the access method ask about an index or its scan.
 *
 * Nothing here depends on how a scan is made, so that planning, scanning and
 * looking at plans can all stand on it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "access/table.h"
#include "index/index_am.h"
#include "index/knn_scan.h"

gpuvec_measure
GpuvecStrategyMeasure(StrategyNumber strategy)
{
	static const gpuvec_measure measures[] = {
		GPUVEC_BRAUN_BLANQUET, GPUVEC_JACCARD, GPUVEC_COSINE, GPUVEC_INTERSECTION, GPUVEC_HAMMING
	};

	StaticAssertStmt(lengthof(measures) == GPUVEC_LAST_DISTANCE - GPUVEC_FIRST_DISTANCE + 1,
					 "each distance strategy has a measure");
	Assert(strategy >= GPUVEC_FIRST_DISTANCE && strategy <= GPUVEC_LAST_DISTANCE);
	return measures[strategy - GPUVEC_FIRST_DISTANCE];
}

void
GpuvecReadOrder(const ScanKeyData *key, GpuvecOrder *order)
{
	const IdSet *set;

	memset(order, 0, sizeof(*order));
	order->scoring.measure = GpuvecStrategyMeasure(key->sk_strategy);
	if (key->sk_flags & SK_ISNULL)
		return;
	set = (const IdSet *) PG_DETOAST_DATUM_COPY(key->sk_argument);
	order->value = (const struct varlena *) set;
	order->vector.ids = idset_span(set);
}

bool
GpuvecIsOurs(Relation index)
{
	return index != NULL && index->rd_indam->ambuild == gpuvec_build;
}

bool
GpuvecIsOrderedScan(const PlanState *node)
{
	const IndexScanState *scan = (const IndexScanState *) node;

	return IsA(node, IndexScanState) && scan->iss_NumOrderByKeys == 1 &&
		GpuvecIsOurs(scan->iss_RelationDesc);
}

/*
 * The table.  In a bitmap scan the executor does not pass it, but holds its
 * lock.
 */
Relation
GpuvecScanHeap(IndexScanDesc scan)
{
	KnnState   *state = scan->opaque;

	if (scan->heapRelation != NULL)
		return scan->heapRelation;
	if (state->opened == NULL)
		state->opened = table_open(scan->indexRelation->rd_index->indrelid, NoLock);
	return state->opened;
}

/* Describe the mirror for an index scan */
void
GpuvecDescribe(IndexScanDesc scan, MirrorTarget *target)
{
	MirrorDescribeIndex(GpuvecScanHeap(scan), scan->indexRelation, target);
	if (!GpuvecInRecovery(scan, target))
		MirrorFollow(target);
}
