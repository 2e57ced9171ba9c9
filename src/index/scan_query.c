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
GpuvecRankDistance(const gpuvec_scoring *scoring, double score)
{
	return GpuvecDistanceRounds(scoring) ? 1.0 - score : -score;
}

bool
GpuvecDistanceRounds(const gpuvec_scoring *scoring)
{
	if (scoring->sparse)
		return gpuvec_scoring_sparse(*scoring) != GPUVEC_SPARSE_INNER_PRODUCT;
	return scoring->measure == GPUVEC_COSINE;
}

/*
 * A row ranks if it comes before all rows without a common id.  By hamming all
 * rank.  With weights, rows that share ids may have the distance of those that
 * share none, or a greater one.
 */
bool
GpuvecRanks(const gpuvec_scoring *scoring, double distance)
{
	return gpuvec_ranks_disjoint(scoring->measure) || distance < GpuvecRankDistance(scoring, 0);
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
