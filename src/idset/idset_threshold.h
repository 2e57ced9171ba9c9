/*-------------------------------------------------------------------------
 *
 * idset_threshold.h
 *	  The right side of the operator <<->>: query, least score, measure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_THRESHOLD_H
#define GPUVEC_IDSET_THRESHOLD_H

#include "gpuvec.h"

#include "access/htup.h"
#include "core/measure.h"
#include "idset/idset.h"

typedef struct IdSetThreshold
{
	IdSet	   *query;			/* NULL: the query or min_score is null, so
								 * the operator returns null */
	double		min_score;		/* never NaN */
	gpuvec_measure measure;
	gpuvec_weights weights;		/* of tversky */
} IdSetThreshold;

/*
 * Find a measure by name, "jaccard" or "tversky(0.7, 0.3)"; false if there is
 * none.  Other measures than tversky leave the weights alone.
 */
extern bool idset_find_measure(const char *name, gpuvec_measure *measure, gpuvec_weights *weights);

/* The same; an error if there is none */
extern gpuvec_measure idset_measure_by_name(const char *name, gpuvec_weights *weights);

/*
 * Parse a value of type idset_threshold, in the current memory context.  The
 * query may point into the value.  If a part is invalid: an error if `raise`,
 * else false.
 */
extern bool idset_threshold_parse(HeapTupleHeader value, IdSetThreshold *result, bool raise);

/* True if a set of `len` ids can reach the least score */
static inline bool
idset_threshold_possible(const IdSetThreshold *threshold, uint32 len)
{
	uint32		a = idset_count(threshold->query);

	/* scores never fall when the number of common ids grows */
	return gpuvec_score_with(threshold->measure, threshold->weights, Min(a, len), a, len) >=
		threshold->min_score;
}

static inline bool
idset_threshold_reached(const IdSetThreshold *threshold, const IdSet *set)
{
	const IdSet *query = threshold->query;
	uint32		a = idset_count(query);
	uint32		b = idset_count(set);

	return gpuvec_score_with(threshold->measure, threshold->weights, idset_common(query, set),
							 a, b) >= threshold->min_score;
}

#endif							/* GPUVEC_IDSET_THRESHOLD_H */
