/*-------------------------------------------------------------------------
 *
 * idvec_condition.c
 *	  Other spellings of conditions on vectors that an index can search for.
 *
 * As of sets (idset/idset_condition.c):
 *
 *		idvec_cosine_similarity(terms, q) >= 0.5, and other measures
 *		terms <=> q < 0.5, and other distances
 *
 * become terms <<->> threshold, whose right side is a call of idvec_reaching()
 * or of idvec_within().
 *
 * Why all rows are found.  The operator <<->> compares the float8 that the
 * measure's SQL function returns, so f(terms, q) >= c needs no more than the
 * same c.  A distance by inner product is 0 - score, which is exact.  Others
 * are 1 - score, of the very float8, rounded once.  It is at most 2, so it is
 * off by 2^-53 at most.  If it is at most c, the score is at least 1 - c -
 * 2^-53.  idset_score_within() rounds twice, and by 2^-51 at most together if
 * 1 - c is between -2 and 2.  Its slack is more than both.  If 1 - c is less
 * than that, all rows are found, and if it is more, there are none.
 *
 * A set beside a vector becomes the vector of its ids with the values 1, whose
 * scores are the same.
 *
 * Inner products have no bound that is of use, and so the rounding errors of
 * arithmetic around them have none.  comparisons.c takes those without any: a
 * sign, multiplication by 1 or -1, coalesce().
 *
 * What Jaccard's measure refuses.  The comparison fails for a vector with
 * negative values, if the executor comes to it: a cheaper condition of the
 * query may be false of that row.  So the row must be found, and <<->>, which
 * the executor may evaluate first, must not fail.  The measure of thresholds
 * that are made here is jaccard_or_error.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "idset/idset_threshold.h"
#include "idvec/idvec.h"
#include "idvec/idvec_condition.h"
#include "idvec/idvec_threshold.h"
#include "utils/builtins.h"
#include "utils/float.h"

PG_FUNCTION_INFO_V1(idvec_reaching);
PG_FUNCTION_INFO_V1(idvec_within);

/* 2^16 products of two float4 */
#define MOST_INNER_PRODUCT	0x1p272

/* Functions of two vectors, or of a set and a vector */
typedef struct ScoredFunction
{
	PGFunction	function;
	gpuvec_sparse_measure measure;
	bool		distance;
} ScoredFunction;

static const ScoredFunction functions[] = {
	{idvec_inner_product, GPUVEC_SPARSE_INNER_PRODUCT, false},
	{idset_inner_product, GPUVEC_SPARSE_INNER_PRODUCT, false},
	{idvec_cosine_similarity, GPUVEC_SPARSE_COSINE, false},
	{idvec_jaccard_similarity, GPUVEC_SPARSE_JACCARD, false},
	{idvec_negative_inner_product, GPUVEC_SPARSE_INNER_PRODUCT, true},
	{idset_negative_inner_product, GPUVEC_SPARSE_INNER_PRODUCT, true},
	{negative_inner_product_idset, GPUVEC_SPARSE_INNER_PRODUCT, true},
	{idvec_cosine_distance, GPUVEC_SPARSE_COSINE, true},
	{idvec_jaccard_distance, GPUVEC_SPARSE_JACCARD, true}
};

/* The score, or the distance, of a measure */
static IdSetScored
scored_by(gpuvec_sparse_measure measure, bool distance)
{
	IdSetScored scored = {
		.sparse = gpuvec_sparse_scoring(measure).sparse,.distance = distance,.most = 1
	};

	switch (measure)
	{
		case GPUVEC_SPARSE_INNER_PRODUCT:
			scored.negated = true;
			scored.least = -MOST_INNER_PRODUCT;
			scored.most = MOST_INNER_PRODUCT;
			break;
		case GPUVEC_SPARSE_COSINE:
			scored.least = distance ? 0 : -1;
			scored.most = distance ? 2 : 1;
			break;
		case GPUVEC_SPARSE_JACCARD:
			break;
	}
	return scored;
}

bool
idvec_scored(PGFunction function, IdSetScored *scored)
{
	for (int i = 0; i < lengthof(functions); i++)
	{
		if (function != functions[i].function)
			continue;
		*scored = scored_by(functions[i].measure, functions[i].distance);
		return true;
	}
	return idset_scored(function, scored) || idset_made_scored(function, scored);
}

const char *
idvec_condition_measure(gpuvec_sparse_measure measure)
{
	static const char *const names[] = GPUVEC_SPARSE_MEASURE_NAMES;

	return measure == GPUVEC_SPARSE_JACCARD ? IDVEC_JACCARD_OR_ERROR : names[measure];
}

/* ---- thresholds ---- */

/* No score reaches NaN, but what the measure refuses has to be found */
Datum
idvec_reaching(PG_FUNCTION_ARGS)
{
	double		score = PG_GETARG_FLOAT8(1);

	PG_RETURN_DATUM(threshold_reaching(fcinfo, PG_GETARG_DATUM(0),
									   isnan(score) ? get_float8_infinity() : score));
}

/*
 * The threshold that vectors reach which are at most this far from the query.
 * All distances are less than NaN.
 */
Datum
idvec_within(PG_FUNCTION_ARGS)
{
	double		distance = PG_GETARG_FLOAT8(1);
	const char *name = text_to_cstring(PG_GETARG_TEXT_PP(2));
	bool		negated = pg_strcasecmp(name, idvec_condition_measure(GPUVEC_SPARSE_INNER_PRODUCT)) == 0;

	PG_RETURN_DATUM(threshold_reaching(fcinfo, PG_GETARG_DATUM(0),
									   isnan(distance) ? -get_float8_infinity() :
									   idset_score_within(negated, distance)));
}
