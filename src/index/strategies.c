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
#include "entries/entries.h"
#include "index/index_am.h"
#include "index/knn_scan.h"
#include "mirror/describe/row_value.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

/* The measure of two sets that a distance strategy is of */
static gpuvec_measure
strategy_measure(StrategyNumber strategy)
{
	static const gpuvec_measure measures[] = {
		GPUVEC_BRAUN_BLANQUET, GPUVEC_JACCARD, GPUVEC_COSINE, GPUVEC_INTERSECTION, GPUVEC_HAMMING
	};

	StaticAssertStmt(lengthof(measures) == GPUVEC_LAST_DISTANCE - GPUVEC_FIRST_DISTANCE + 1,
					 "each distance strategy has a measure");
	Assert(strategy >= GPUVEC_FIRST_DISTANCE && strategy <= GPUVEC_LAST_DISTANCE);
	return measures[strategy - GPUVEC_FIRST_DISTANCE];
}

bool
GpuvecStrategyScoring(StrategyNumber strategy, bool weights, gpuvec_scoring *scoring)
{
	memset(scoring, 0, sizeof(*scoring));
	if (!weights)
		scoring->measure = strategy_measure(strategy);
	else if (strategy == GPUVEC_JACCARD_DISTANCE)
		*scoring = gpuvec_sparse_scoring(GPUVEC_SPARSE_JACCARD);
	else if (strategy == GPUVEC_COSINE_DISTANCE)
		*scoring = gpuvec_sparse_scoring(GPUVEC_SPARSE_COSINE);
	else if (strategy == GPUVEC_INNER_PRODUCT)
		*scoring = gpuvec_sparse_scoring(GPUVEC_SPARSE_INNER_PRODUCT);
	else
		return false;
	return true;
}

bool
GpuvecHasValues(Relation index)
{
	return RowTypeHasValues(index->rd_opcintype[0]);
}

/*
 * A strategy does not tell the measure: <#> is of two sets, of two vectors, or
 * of a set and a vector, which is another type than that of the column
 */
void
GpuvecReadOrder(Relation index, const ScanKeyData *key, GpuvecOrder *order)
{
	bool		mixed = OidIsValid(key->sk_subtype) && key->sk_subtype != index->rd_opcintype[0];
	bool		values = GpuvecHasValues(index);
	bool		weights = mixed || values;
	bool		is_set = mixed == values;

	memset(order, 0, sizeof(*order));
	if (!GpuvecStrategyScoring(key->sk_strategy, weights, &order->scoring))
		elog(ERROR, "strategy %d is not one of vectors", key->sk_strategy);
	if (key->sk_flags & SK_ISNULL)
		return;
	order->value = EntriesMakeSets(index) ? EntriesQuery(index, key, key->sk_argument) :
		PG_DETOAST_DATUM_COPY(key->sk_argument);
	/* the executor raises the error, if it comes to a row */
	if (order->value == NULL)
	{
		order->value = (const struct varlena *) idset_alloc(0);
		order->refused = true;
	}
	order->vector = is_set ? idvec_sparse_of_set((const IdSet *) order->value) :
		idvec_sparse((const IdVec *) order->value);
	order->refused |= weights && idvec_refuses(&order->scoring, &order->vector);
}

bool
GpuvecIsOurs(Relation index)
{
	return index != NULL && index->rd_indam->ambuild == gpuvec_build;
}

int
GpuvecKeyElements(const ScanKeyData *key, Datum **elements, bool **isnull)
{
	ArrayType  *array = DatumGetArrayTypeP(key->sk_argument);
	int16		length;
	bool		byval;
	char		align;
	int			n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, byval, align, elements, isnull, &n);
	return n;
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
