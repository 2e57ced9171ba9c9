/*-------------------------------------------------------------------------
 *
 * measure.h
 *	  The similarity measures: one definition for SQL functions, operators,
 *	  the engine's ranking, the kernels and the tests.
 *
 * With A the query, B the row, i = |A n B|, a = |A| and b = |B|:
 *
 *	 braun_blanquet  i / max(a,b)		 Braun-Blanquet 1932
 *	 jaccard		 i / (a+b-i)		 Jaccard 1901, Tanimoto 1960
 *	 cosine			 sqrt(i*i/(a*b))	 Ochiai 1957
 *	 dice			 2i / (a+b)			 Dice 1945, Sorensen 1948
 *	 overlap		 i / min(a,b)		 Szymkiewicz 1934, Simpson 1943
 *	 containment	 i / a				 of the query in the row
 *	 intersection	 i
 *	 hamming		 -(a+b-2i)			 the negated symmetric difference
 *
 * A score is a float8; larger is more similar.  0/0 is similarity 0.  The
 * float8 that gpuvec_score returns *is* the order of results.  IEEE 754
 * rounds every operation in it correctly, on CPU and GPU alike, so both rank
 * the same.  Compile without contraction and without fast-math flags.
 *
 * Equal similarities have equal float8, and a greater similarity never has a
 * smaller float8, for all i, a and b:
 *
 *	 - i, a and b are at most 2^16, so every numerator and denominator below
 *	   is an integer of at most 2^32, and exact.
 *	 - Then comes one division.  Its result depends on nothing but the value
 *	   of the fraction, and rounding keeps the order.
 *	 - The square root of cosine depends on nothing but that result, and keeps
 *	   the order, too.  i / sqrt(a*b) would round twice on the way to a value
 *	   that two fractions share: 3 / sqrt(18) is not 1 / sqrt(2) then.
 *	 - intersection and hamming are integers.
 *
 * Different similarities have different float8, except for cosine.  Fractions
 * with denominators up to 2^17 are at least 2^-34 apart, and a float8 between
 * 0 and 1 is off by at most 2^-54.  But two values of i*i/(a*b) may differ by
 * only 2^-64; rows whose cosines are that close tie.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MEASURE_H
#define GPUVEC_MEASURE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GPUVEC_HD __host__ __device__
#else
#define GPUVEC_HD
#endif

typedef enum gpuvec_measure
{
	GPUVEC_BRAUN_BLANQUET,
	GPUVEC_JACCARD,
	GPUVEC_COSINE,
	GPUVEC_DICE,
	GPUVEC_OVERLAP,
	GPUVEC_CONTAINMENT,
	GPUVEC_INTERSECTION,
	GPUVEC_HAMMING
} gpuvec_measure;

#define GPUVEC_N_MEASURES	8

#define GPUVEC_MEASURE_NAMES \
	{"braun_blanquet", "jaccard", "cosine", "dice", \
	 "overlap", "containment", "intersection", "hamming"}

/* True if rows without a common id are ranked */
static inline GPUVEC_HD bool
gpuvec_ranks_disjoint(gpuvec_measure measure)
{
	return measure == GPUVEC_HAMMING;
}

/* num / den, where x/0 is similarity 0 */
static inline GPUVEC_HD double
gpuvec_ratio(double num, double den)
{
	return den == 0.0 ? 0.0 : num / den;
}

/*
 * The score of a row of b ids that has i ids in common with a query of a ids
 */
static inline GPUVEC_HD double
gpuvec_score(gpuvec_measure measure, uint32_t i, uint32_t a, uint32_t b)
{
	switch (measure)
	{
		case GPUVEC_BRAUN_BLANQUET:
			return gpuvec_ratio(i, a > b ? a : b);
		case GPUVEC_JACCARD:
			return gpuvec_ratio(i, a + b - i);
		case GPUVEC_COSINE:
			return sqrt(gpuvec_ratio((double) i * (double) i, (double) a * (double) b));
		case GPUVEC_DICE:
			return gpuvec_ratio(2.0 * i, a + b);
		case GPUVEC_OVERLAP:
			return gpuvec_ratio(i, a < b ? a : b);
		case GPUVEC_CONTAINMENT:
			return gpuvec_ratio(i, a);
		case GPUVEC_INTERSECTION:
			return (double) i;
		case GPUVEC_HAMMING:
			return (double) -(int32_t) (a + b - 2 * i);
	}
	return 0.0;
}

/*
 * The distance that the measure's operator returns.  Ratios are computed by
 * one division, not as 1 - score: in float8, 1 - 0.7 <= 0.3 is false, but 3 /
 * 10.0 <= 0.3 is true.  Measures without an operator have 1 - score.
 *
 * A larger score never has a larger distance, and equal scores have equal
 * distances.  Different scores have different distances, by the argument at
 * the head of the file, except for cosine: near 1 the values of 1 - score are
 * 2^-53 apart, so rows whose scores differ by less may have the same
 * distance.
 */
static inline GPUVEC_HD double
gpuvec_distance(gpuvec_measure measure, uint32_t i, uint32_t a, uint32_t b)
{
	uint32_t	longest = a > b ? a : b;

	switch (measure)
	{
		case GPUVEC_BRAUN_BLANQUET:
			return longest == 0 ? 1.0 : (double) (longest - i) / (double) longest;
		case GPUVEC_JACCARD:
			return longest == 0 ? 1.0 : (double) (a + b - 2 * i) / (double) (a + b - i);
		case GPUVEC_INTERSECTION:
			return (double) -(int32_t) i;
		case GPUVEC_HAMMING:
			return (double) (a + b - 2 * i);
		default:
			return 1.0 - gpuvec_score(measure, i, a, b);
	}
}

/*
 * A lower bound of the number of common ids that a row of at least b ids
 * needs to reach `score` with a query of a ids.  It never falls when b grows,
 * so the shortest row of a group gives the bound for the whole group.
 *
 * Computed in float: counts are at most 2^16, and the relative error of the
 * few operations is under 2^-20, so the error is under 1/8.  1/8 is
 * subtracted before rounding up.  The bound only prunes; gpuvec_score
 * decides.
 *
 * Proof that it never prunes a row that qualifies: for real numbers, score(i)
 * >= t implies i >= x, with x as below.  The computed x' is at most x + 1/8,
 * hence i >= x' - 1/8; and i is an integer, so i >= ceil(x' - 1/8).
 */
static inline GPUVEC_HD uint32_t
gpuvec_need(gpuvec_measure measure, uint32_t a, uint32_t b, float score)
{
	float		fa = (float) a;
	float		fb = (float) b;
	float		least = gpuvec_ranks_disjoint(measure) ? 0.0f : 1.0f;
	float		x = 0.0f;

	switch (measure)
	{
		case GPUVEC_BRAUN_BLANQUET:
			x = score * (fa > fb ? fa : fb);
			break;
		case GPUVEC_JACCARD:
			x = score > 0.0f ? score / (1.0f + score) * (fa + fb) : 0.0f;
			break;
		case GPUVEC_COSINE:
			x = score * sqrtf(fa * fb);
			break;
		case GPUVEC_DICE:
			x = score * (fa + fb) * 0.5f;
			break;
		case GPUVEC_OVERLAP:
			x = score * (fa < fb ? fa : fb);
			break;
		case GPUVEC_CONTAINMENT:
			x = score * fa;
			break;
		case GPUVEC_INTERSECTION:
			x = score;
			break;
		case GPUVEC_HAMMING:
			x = (score + fa + fb) * 0.5f;
			break;
	}
	x = ceilf(x - 0.125f);
	if (!(x >= least))			/* true for NaN (0 * infinity), too */
		x = least;
	if (x > 131072.0f)
		return 131072;			/* more than any row has */
	return (uint32_t) x;
}

/*
 * Map a score to a uint64 key: larger scores have smaller keys, so ascending
 * order of (key, tid) is the order of results.  The score is never NaN or -0.
 */
static inline GPUVEC_HD uint64_t
gpuvec_score_key(double score)
{
	union
	{
		double		d;
		uint64_t	u;
	}			v;

	v.d = score;
	/* map to unsigned integers in ascending order, then invert */
	v.u = (v.u >> 63) ? ~v.u : v.u | UINT64_C(0x8000000000000000);
	return ~v.u;
}

/* The inverse of gpuvec_score_key */
static inline GPUVEC_HD double
gpuvec_key_score(uint64_t key)
{
	union
	{
		double		d;
		uint64_t	u;
	}			v;

	key = ~key;
	v.u = (key >> 63) ? key & UINT64_C(0x7FFFFFFFFFFFFFFF) : ~key;
	return v.d;
}

#endif							/* GPUVEC_MEASURE_H */
