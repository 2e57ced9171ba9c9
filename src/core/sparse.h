/*-------------------------------------------------------------------------
 *
 * sparse.h
 *	  Sparse vectors, ids with values, and their measures: one definition for
 *	  SQL functions, operators, indexes and the tests.
 *
 * With x(i) and y(i) for the values that two vectors have for an id i:
 *
 *	 inner_product	s = sum of x(i) y(i)
 *	 cosine			s / sqrt(a b) as sqrt(s s / (a b)) with the sign of s
 *	 jaccard		m / (a + b - m), m = sum of the smaller of x(i) and y(i)
 *
 * s and m are sums over the ids that both have.  a and b are sums over all
 * ids of one vector: of x(i) x(i) for cosine, of x(i) for jaccard.  jaccard
 * is that of multisets (Ruzicka 1958), which chemists call Tanimoto's of
 * counts; it is for vectors without negative values.
 *
 * Every sum is of float8, and its terms are added one after another, in
 * ascending order of ids, beginning with 0.  So it has the same bits
 * wherever it is computed, and whichever vector comes first:
 *
 *	 - A term is exact.  The product of two float4 has 48 bits and is at least
 *	   2^-298, so it is a float8, and never 0.
 *	 - A sum of 65,536 terms of at most 2^256 does not overflow.
 *	 - No term, nor a b and a + b, depends on which vector comes first.
 *
 * A set is the vector of its ids with the values 1.  The scores of two such
 * vectors are those of the sets, to the last bit (core/measure.h), for all
 * sums are integers then.
 *
 * 0/0 is similarity 0, as for sets.  Any other vector's similarity to itself
 * is 1: s, a and b are one number z then, and z z / (z z) is 1, as is
 * z / (z + z - z).  A cosine beyond 1 or -1, which comes of rounding, is cut.
 * Jaccard's similarity is at most 1.  Each term of m is at most that of a and
 * that of b, so rounded sums keep m <= a and m <= b.  Then a + b, rounded, is
 * at least 2 m, and a + b - m, rounded, at least m.
 *
 * Compile without contraction and without fast-math flags.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SPARSE_H
#define GPUVEC_SPARSE_H

#include <math.h>

#include "core/ids.h"
#include "core/measure.h"

/* Ids with values */
typedef struct gpuvec_sparse
{
	gpuvec_id_span ids;
	const void *values;			/* [ids.n] of finite float that are not 0, or
								 * of uint8_t if small; NULL: all are 1 */
	bool		small;
} gpuvec_sparse;

/* The measures, and their names in SQL */
#define GPUVEC_SPARSE_MEASURES(measure) \
	measure(GPUVEC_SPARSE_INNER_PRODUCT, "inner_product") \
	measure(GPUVEC_SPARSE_COSINE, "cosine") \
	measure(GPUVEC_SPARSE_JACCARD, "jaccard")

typedef enum gpuvec_sparse_measure
{
	GPUVEC_SPARSE_MEASURES(GPUVEC_MEASURE_VALUE)
} gpuvec_sparse_measure;

#define GPUVEC_SPARSE_MEASURE_NAMES {GPUVEC_SPARSE_MEASURES(GPUVEC_MEASURE_NAME)}

/* The scoring by a measure of vectors, and the measure of such a scoring */
static inline gpuvec_scoring
gpuvec_sparse_scoring(gpuvec_sparse_measure measure)
{
	gpuvec_scoring scoring = {(gpuvec_measure) 0, {0, 0, 0, 0, 0}, 1 + (uint32_t) measure};

	return scoring;
}

static inline GPUVEC_HD gpuvec_sparse_measure
gpuvec_scoring_sparse(gpuvec_scoring scoring)
{
	return (gpuvec_sparse_measure) (scoring.sparse - 1);
}

/* What two vectors share: s or m, a and b of the formulas above */
typedef struct gpuvec_sparse_shared
{
	double		common;
	double		a;
	double		b;
} gpuvec_sparse_shared;

/* The i-th id, from 0 */
static inline GPUVEC_HD uint32_t
gpuvec_sparse_id(const gpuvec_sparse *vector, uint32_t i)
{
	return vector->ids.wide ? ((const uint32_t *) vector->ids.ids)[i] :
		((const uint16_t *) vector->ids.ids)[i];
}

/* Its value */
static inline GPUVEC_HD float
gpuvec_sparse_value(const gpuvec_sparse *vector, uint32_t i)
{
	if (vector->values == NULL)
		return 1;
	return vector->small ? ((const uint8_t *) vector->values)[i] :
		((const float *) vector->values)[i];
}

/* What an id that both vectors have adds to s or m */
static inline GPUVEC_HD double
gpuvec_sparse_term(gpuvec_sparse_measure measure, float x, float y)
{
	if (measure == GPUVEC_SPARSE_JACCARD)
		return x < y ? x : y;
	return (double) x * y;
}

/* The sum over a vector's own ids: a or b */
static inline GPUVEC_HD double
gpuvec_sparse_own(gpuvec_sparse_measure measure, const gpuvec_sparse *vector)
{
	double		sum = 0;

	if (measure == GPUVEC_SPARSE_INNER_PRODUCT)
		return 0;
	for (uint32_t i = 0; i < vector->ids.n; i++)
	{
		float		x = gpuvec_sparse_value(vector, i);

		sum += gpuvec_sparse_term(measure, x, x);
	}
	return sum;
}

/* The score */
static inline GPUVEC_HD double
gpuvec_sparse_score(gpuvec_sparse_measure measure, gpuvec_sparse_shared shared)
{
	double		ratio;

	switch (measure)
	{
		case GPUVEC_SPARSE_COSINE:
			ratio = gpuvec_ratio(shared.common * shared.common, shared.a * shared.b);
			if (ratio > 1)
				ratio = 1;
			/* never -0 */
			return shared.common < 0 ? 0 - sqrt(ratio) : sqrt(ratio);
		case GPUVEC_SPARSE_JACCARD:
			return gpuvec_ratio(shared.common, shared.a + shared.b - shared.common);
		case GPUVEC_SPARSE_INNER_PRODUCT:
			break;
	}
	return shared.common;
}

/*
 * The distance, which the measure's operator returns.  A greater score never
 * has a greater distance, and equal scores have equal distances.  That is why
 * it is 1 - score, not a quotient of its own as for sets: two quotients of
 * the same sums could be rounded to different orders.
 */
static inline GPUVEC_HD double
gpuvec_sparse_distance(gpuvec_sparse_measure measure, gpuvec_sparse_shared shared)
{
	double		score = gpuvec_sparse_score(measure, shared);

	return measure == GPUVEC_SPARSE_INNER_PRODUCT ? 0 - score : 1 - score;
}

#endif							/* GPUVEC_SPARSE_H */
