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
 *	 kulczynski		 i(a+b)/(2ab)		 (i/a + i/b) / 2, Kulczynski 1927
 *	 tversky		 i / (i + alpha*(a-i) + beta*(b-i))		 Tversky 1977
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
 *	   is an integer of at most 2^33, and exact.
 *	 - Then comes one division.  Its result depends on nothing but the value
 *	   of the fraction, and rounding keeps the order.
 *	 - The square root of cosine depends on nothing but that result, and keeps
 *	   the order, too.  i / sqrt(a*b) would round twice on the way to a value
 *	   that two fractions share: 3 / sqrt(18) is not 1 / sqrt(2) then.
 *	 - intersection and hamming are integers.
 *
 * Different similarities have different float8, except for cosine and
 * kulczynski.  Fractions with denominators up to 2^17 are at least 2^-34
 * apart, and a float8 between 0 and 1 is off by at most 2^-54.  But two
 * values of i*i/(a*b) may differ by only 2^-64, and two of i(a+b)/(2ab) by
 * 2^-66; rows whose similarities are that close tie.
 *
 * tversky has weights: alpha for ids that only the query has, beta for those
 * that only the row has.  Weights that are decimal fractions of up to nine
 * digits behind the point, and not too large, are kept as integers over a
 * power of ten (gpuvec_make_tversky).  All that was said of fractions holds
 * for them: the similarity is that of the decimal fractions, rounded once.
 * With other weights it is rounded after each of five operations, each of
 * which keeps the order: so for given a and b the score never falls when i
 * grows, and it is the same everywhere, but equal similarities may differ in
 * their last bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MEASURE_H
#define GPUVEC_MEASURE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GPUVEC_HD __host__ __device__
#else
#define GPUVEC_HD
#endif

/* The measures without weights, and their names in SQL */
#define GPUVEC_MEASURES(measure) \
	measure(GPUVEC_BRAUN_BLANQUET, "braun_blanquet") \
	measure(GPUVEC_JACCARD, "jaccard") \
	measure(GPUVEC_COSINE, "cosine") \
	measure(GPUVEC_DICE, "dice") \
	measure(GPUVEC_OVERLAP, "overlap") \
	measure(GPUVEC_CONTAINMENT, "containment") \
	measure(GPUVEC_INTERSECTION, "intersection") \
	measure(GPUVEC_HAMMING, "hamming") \
	measure(GPUVEC_KULCZYNSKI, "kulczynski")

#define GPUVEC_MEASURE_VALUE(value, name) value,
#define GPUVEC_MEASURE_NAME(value, name) name,

/* These numbers are on the wire: protocol_sets.h */
typedef enum gpuvec_measure
{
	GPUVEC_MEASURES(GPUVEC_MEASURE_VALUE)
	GPUVEC_TVERSKY				/* has weights: gpuvec_tversky */
} gpuvec_measure;

#define GPUVEC_N_MEASURES	((int) GPUVEC_TVERSKY)
#define GPUVEC_MEASURE_NAMES {GPUVEC_MEASURES(GPUVEC_MEASURE_NAME)}

/* The weights of tversky */
typedef struct gpuvec_tversky
{
	double		one;			/* the weights of a common id, ... */
	double		alpha;			/* ... of an id that only the query has, ... */
	double		beta;			/* ... and of one that only the row has, as
								 * integers.  If one is 0, alpha and beta are
								 * as given. */
	double		sum;			/* of alpha and beta as given */
	double		share;			/* of alpha in that sum */
} gpuvec_tversky;

/* How rows are scored */
typedef struct gpuvec_scoring
{
	gpuvec_measure measure;
	gpuvec_tversky tversky;		/* counts for no other measure */
	uint32_t	sparse;			/* 0: as sets; else as vectors, by
								 * gpuvec_scoring_sparse(): then nothing else
								 * here counts */
} gpuvec_scoring;

/* What a query and a row share: i, a and b of the formulas above */
typedef struct gpuvec_shared
{
	uint32_t	common;			/* ids that both have */
	uint32_t	a;				/* ids of the query */
	uint32_t	b;				/* ids of the row */
} gpuvec_shared;

/*
 * Largest integers that weights are kept as: times at most 2^17 ids they are
 * exact
 */
#define GPUVEC_MAX_SCALE	1e9
#define GPUVEC_MAX_WEIGHT	68719476736.0	/* 2^36 */

/* Weights must be finite, not negative, and not both 0 */
static inline bool
gpuvec_tversky_valid(double alpha, double beta)
{
	return alpha >= 0 && beta >= 0 && (alpha > 0 || beta > 0) &&
		alpha <= DBL_MAX && beta <= DBL_MAX;
}

/*
 * Make valid weights ready for use.  x / scale is rounded correctly, so it is
 * the float8 of the decimal fraction; if that is the weight, the fraction is
 * what was meant.
 */
static inline gpuvec_tversky
gpuvec_make_tversky(double alpha, double beta)
{
	double		largest = alpha > beta ? alpha : beta;
	double		ratio = alpha / largest;
	gpuvec_tversky made = {0, alpha, beta, alpha + beta, ratio / (ratio + beta / largest)};

	for (double scale = 1; scale <= GPUVEC_MAX_SCALE; scale *= 10)
	{
		double		x = rint(alpha * scale);
		double		y = rint(beta * scale);

		if (x > GPUVEC_MAX_WEIGHT || y > GPUVEC_MAX_WEIGHT)
			break;
		if (x / scale != alpha || y / scale != beta)
			continue;
		made.one = scale;
		made.alpha = x;
		made.beta = y;
		break;
	}
	return made;
}

/* alpha or beta as it was given; the same float8 by what was said above */
static inline double
gpuvec_given_weight(const gpuvec_tversky *tversky, double weight)
{
	return tversky->one != 0 ? weight / tversky->one : weight;
}

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

/* The score by a measure without weights */
static inline GPUVEC_HD double
gpuvec_score(gpuvec_measure measure, gpuvec_shared shared)
{
	uint32_t	i = shared.common;
	uint32_t	a = shared.a;
	uint32_t	b = shared.b;

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
		case GPUVEC_KULCZYNSKI:
			return gpuvec_ratio((double) i * (double) (a + b), 2.0 * (double) a * (double) b);
		case GPUVEC_TVERSKY:
			break;
	}
	return 0.0;
}

/*
 * The same for tversky.  With integers, both products and all sums are exact.
 * Otherwise the quotient of what is not common comes first, for then no
 * operation falls when i grows.
 */
static inline GPUVEC_HD double
gpuvec_tversky_score(gpuvec_tversky tversky, gpuvec_shared shared)
{
	uint32_t	i = shared.common;
	double		others = tversky.alpha * (double) (shared.a - i) +
		tversky.beta * (double) (shared.b - i);
	double		common = tversky.one * (double) i;

	if (i == 0)
		return 0.0;
	if (tversky.one != 0.0)
		return common / (common + others);
	return 1.0 / (1.0 + others / (double) i);
}

/* The score by any measure */
static inline GPUVEC_HD double
gpuvec_score_with(gpuvec_scoring scoring, gpuvec_shared shared)
{
	return scoring.measure == GPUVEC_TVERSKY ? gpuvec_tversky_score(scoring.tversky, shared) :
		gpuvec_score(scoring.measure, shared);
}

/*
 * The distance that the measure's operator returns.  Ratios are computed by
 * one division, not as 1 - score: in float8, 1 - 0.7 <= 0.3 is false, but 3 /
 * 10.0 <= 0.3 is true.  Measures without an operator have 1 - score.
 *
 * A larger score never has a larger distance, and equal scores have equal
 * distances.  Different scores have different distances, by the argument at
 * the head of the file, except for cosine and kulczynski: near 1 the values
 * of 1 - score are 2^-53 apart, so rows whose scores differ by less may have
 * the same distance.
 */
static inline GPUVEC_HD double
gpuvec_distance(gpuvec_measure measure, gpuvec_shared shared)
{
	uint32_t	i = shared.common;
	uint32_t	a = shared.a;
	uint32_t	b = shared.b;
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
			return 1.0 - gpuvec_score(measure, shared);
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
		case GPUVEC_KULCZYNSKI:
			/* 2ab / (a + b), by steps none of which falls when b grows */
			x = score * (2.0f * fa / (1.0f + fa / fb));
			break;
		case GPUVEC_TVERSKY:
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
 * The same for tversky.  Here the bound may depend on the score much more
 * than in proportion: with small weights all scores are near 1, where a score
 * as a float can be too high.  So the score is lowered by more than it was
 * rounded by, and all else is computed in double, off by less than 2^-49.
 * Scores too small for that do not prune.
 *
 * With W = alpha + beta, M = (alpha*a + beta*b) / W and t <= 1, score(i) >= t
 * implies i >= t*M / ((1-t)/W + t).
 */
static inline GPUVEC_HD uint32_t
gpuvec_tversky_need(gpuvec_tversky tversky, uint32_t a, uint32_t b, float score)
{
	double		t = score >= FLT_MIN ? (double) score * (1.0 - 1.0 / 4194304) : 0.0;
	double		mean = tversky.share * (double) a + (1.0 - tversky.share) * (double) b;
	double		x = t * mean / ((1.0 - t) / tversky.sum + t);

	if (t > 1.0)
		return 131072;			/* no row has such a score */
	x = ceil(x - 0.125);
	return x >= 1.0 ? (uint32_t) x : 1; /* 1 for NaN, too */
}

/* The bound by any measure */
static inline GPUVEC_HD uint32_t
gpuvec_need_with(gpuvec_scoring scoring, uint32_t a, uint32_t b, float score)
{
	return scoring.measure == GPUVEC_TVERSKY ? gpuvec_tversky_need(scoring.tversky, a, b, score) :
		gpuvec_need(scoring.measure, a, b, score);
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
