/*-------------------------------------------------------------------------
 *
 * idvec_threshold.h
 *	  The right side of the operator <<->> of vectors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDVEC_THRESHOLD_H
#define GPUVEC_IDVEC_THRESHOLD_H

#include "gpuvec.h"

#include "access/htup.h"
#include "idvec/idvec.h"

typedef struct IdVecThreshold
{
	IdVec	   *query;			/* NULL: the query or min_score is null, so
								 * the operator returns null */
	double		min_score;		/* never NaN */
	gpuvec_scoring scoring;
	bool		or_error;		/* true of what the measure refuses */
} IdVecThreshold;

/*
 * A measure of thresholds: jaccard, where a vector with negative values is no
 * error but reaches every score (see idvec_condition.c)
 */
#define IDVEC_JACCARD_OR_ERROR	"jaccard_or_error"

/*
 * Parse a value of type idvec_threshold, in the current memory context.  The
 * query may point into the value.  If a part is invalid: an error if `raise`,
 * else false.
 */
extern bool idvec_threshold_parse(HeapTupleHeader value, IdVecThreshold *result, bool raise);

#endif							/* GPUVEC_IDVEC_THRESHOLD_H */
