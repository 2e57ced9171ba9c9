/*-------------------------------------------------------------------------
 *
 * idset_ranking.h
 *	  The right side of the operators <&>, <&~> and <&%~>: query and measure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_RANKING_H
#define GPUVEC_IDSET_RANKING_H

#include "gpuvec.h"

#include "access/htup.h"
#include "core/measure.h"
#include "idset/idset.h"

typedef struct IdSetRanking
{
	IdSet	   *query;			/* NULL: the query or the measure is null, so
								 * the operator returns null */
	gpuvec_scoring scoring;
} IdSetRanking;

/*
 * Parse a value of type idset_ranking, in the current memory context.  The
 * query may point into the value.  If there is no such measure: an error if
 * `raise`, else false.
 */
extern bool idset_ranking_parse(HeapTupleHeader value, IdSetRanking *result, bool raise);

/*
 * The right side of a call of one of them, its argument 1.  It is parsed once
 * for the calls with the same value that follow.
 */
extern const IdSetRanking *idset_ranking_argument(FunctionCallInfo fcinfo);

/*
 * The result for a set: its score, negated.  (0 - 0 is 0, and -0 would be
 * shown as such.)
 */
static inline double
idset_ranking_distance(const IdSetRanking *ranking, const IdSet *set)
{
	return 0.0 - gpuvec_score_with(ranking->scoring,
								   idset_shared(idset_span(ranking->query), idset_span(set)));
}

#endif							/* GPUVEC_IDSET_RANKING_H */
