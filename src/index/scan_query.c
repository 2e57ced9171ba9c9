/*-------------------------------------------------------------------------
 *
 * scan_query.c
 *	  The query of an ordered scan, out of its keys, and how far it has come.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "index/knn_scan.h"

IdSet *
KnnReadKeys(IndexScanDesc scan, GpuvecConditions *conditions)
{
	GpuvecMakeConditions(scan, conditions);
	if (scan->numberOfOrderBys == 0 || conditions->nothing ||
		(scan->orderByData[0].sk_flags & SK_ISNULL))
		return NULL;
	return (IdSet *) PG_DETOAST_DATUM_COPY(scan->orderByData[0].sk_argument);
}

void
KnnMakeQuery(gpuvec_measure measure, const IdSet *query, const GpuvecConditions *conditions,
			 MirrorQuery *wire)
{
	wire->set = query;
	wire->len = idset_count(query);
	if (conditions->filter.n > 0)
	{
		wire->filter = &conditions->filter;
		wire->disjoint = !gpuvec_ranks_disjoint(measure);
	}
}

/*
 * A number that sorts like the distance of a row that ranks.  A larger score
 * is a smaller distance.  But distances that are 1 - score may be equal
 * though the scores are not.
 */
double
GpuvecRankDistance(gpuvec_measure measure, double score)
{
	return measure == GPUVEC_COSINE ? 1.0 - score : -score;
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
