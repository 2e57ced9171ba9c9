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
#include "catalog/pg_amop.h"
#include "entries/entries.h"
#include "idset/idset_ranking.h"
#include "index/index_am.h"
#include "index/knn_scan.h"
#include "mirror/describe/row_value.h"
#include "utils/array.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

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

Oid
GpuvecFindOperator(const IndexOptInfo *index, StrategyNumber strategy, Oid *right)
{
	CatCList   *list = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(index->opfamily[0]));
	Oid			found = InvalidOid;

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_amop amop = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);

		if (amop->amopstrategy != strategy || amop->amoplefttype != index->opcintype[0])
			continue;
		found = amop->amopopr;
		*right = amop->amoprighttype;
	}
	ReleaseCatCacheList(list);
	return found;
}

bool
GpuvecHasValues(Relation index)
{
	return RowTypeHasValues(index->rd_opcintype[0]);
}

/*
 * Read the value of an idset_ranking.  False: there is no such measure.  A
 * part of it may be null.
 */
static bool
read_ranking(Datum value, GpuvecOrder *order)
{
	IdSetRanking ranking;
	HeapTupleHeader row = (HeapTupleHeader) PG_DETOAST_DATUM_COPY(value);

	if (!idset_ranking_parse(row, &ranking, false))
		return false;
	order->scoring = ranking.scoring;
	order->value = (const struct varlena *) ranking.query;
	return true;
}

/* The query that a distance operator has on its right side */
static const struct varlena *
read_value(Relation index, const ScanKeyData *key)
{
	return EntriesMakeSets(index) ? EntriesQuery(index, key, key->sk_argument) :
		PG_DETOAST_DATUM_COPY(key->sk_argument);
}

/*
 * A strategy does not tell the measure.  <#> is of two sets, of two vectors,
 * or of a set and a vector, which is another type than that of the column.
 * The right side of <&> names it.
 */
void
GpuvecReadOrder(Relation index, const ScanKeyData *key, GpuvecOrder *order)
{
	bool		by_score = key->sk_strategy == GPUVEC_RANKS;
	bool		mixed = !by_score && OidIsValid(key->sk_subtype) && key->sk_subtype != index->rd_opcintype[0];
	bool		values = GpuvecHasValues(index);
	bool		weights = mixed || values;
	bool		is_set = mixed == values;

	memset(order, 0, sizeof(*order));
	order->by_score = by_score;
	if (!by_score && !GpuvecStrategyScoring(key->sk_strategy, weights, &order->scoring))
		elog(ERROR, "strategy %d is not one of vectors", key->sk_strategy);
	if (key->sk_flags & SK_ISNULL)
		return;
	if (by_score)
		order->refused = !read_ranking(key->sk_argument, order);
	else
	{
		order->value = read_value(index, key);
		order->refused = order->value == NULL;
	}
	/* the executor raises the error, if it comes to a row */
	if (order->refused)
		order->value = (const struct varlena *) idset_alloc(0);
	if (order->value == NULL)
		return;
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
