/*-------------------------------------------------------------------------
 *
 * scan_query.c
 *	  The query of an ordered scan, out of its keys, and how far it has come.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <float.h>
#include <math.h>

#include "access/relscan.h"
#include "index/knn_scan.h"

void
KnnReadKeys(IndexScanDesc scan, GpuvecConditions *conditions, GpuvecOrder *order)
{
	KnnState   *state = scan->opaque;

	GpuvecMakeConditions(scan, state->range.keys, state->range.n, conditions);
	if (scan->numberOfOrderBys > 0 && !conditions->nothing)
		GpuvecReadOrder(scan->indexRelation, &scan->orderByData[0], order);
	else
		memset(order, 0, sizeof(*order));
}

void
KnnMakeQuery(const GpuvecOrder *order, const GpuvecConditions *conditions, MirrorQuery *wire)
{
	wire->value = order->value;
	wire->vector = order->vector;
	if (conditions->filter.n > 0)
	{
		wire->filter = &conditions->filter;
		wire->disjoint = !gpuvec_ranks_disjoint(order->scoring.measure);
	}
}

/*
 * A larger score is a smaller distance.  But distances that are 1 - score may
 * be equal though the scores are not.
 */
double
GpuvecRankDistance(const GpuvecOrder *order, double score)
{
	return GpuvecOrderRounds(order) ? 1.0 - score : -score;
}

bool
GpuvecDistanceRounds(const gpuvec_scoring *scoring)
{
	if (scoring->sparse)
		return gpuvec_scoring_sparse(*scoring) != GPUVEC_SPARSE_INNER_PRODUCT;
	return scoring->measure == GPUVEC_COSINE;
}

bool
GpuvecOrderRounds(const GpuvecOrder *order)
{
	return !order->by_score && GpuvecDistanceRounds(&order->scoring);
}

/*
 * A row ranks if it has a common id, even if its score is 0, as tversky's with
 * huge weights may be.  By hamming all rank.  Of vectors, rows that share ids
 * may have the distance of those that share none, or a greater one: it must be
 * less.
 */
bool
GpuvecRanks(const GpuvecOrder *order, double distance, uint32 common)
{
	if (order->scoring.sparse)
		return distance < GpuvecRankDistance(order, 0);
	return common > 0 || gpuvec_ranks_disjoint(order->scoring.measure);
}

/* 1 - s is less than 1 if s is more than half of the step below 1 */
double
GpuvecFloor(const gpuvec_scoring *scoring)
{
	return GpuvecDistanceRounds(scoring) ? DBL_EPSILON / 4 : 0;
}

double
KnnLastDistance(const KnnState *state)
{
	return state->phase == SCAN_ENGINE && state->returned ? state->last.distance : INFINITY;
}

bool
KnnHasRows(const KnnState *state)
{
	return state->phase != SCAN_ENGINE || state->next < state->nrows;
}

double
KnnNextDistance(const KnnState *state, double behind)
{
	if (state->phase != SCAN_ENGINE)
		return state->phase == SCAN_OTHERS && !state->everything ? INFINITY : -INFINITY;
	if (state->next < state->nrows)
		return state->rows[state->next].distance;
	return Max(state->known, behind);
}
