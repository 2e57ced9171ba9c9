/*-------------------------------------------------------------------------
 *
 * weighting.h
 *	  Weights of interactions before items are compared: one definition for
 *	  the engine, its tests and the benchmark.
 *
 * x is what the weights of a pair of a user u and an item i add up to; N is
 * the number of items, n(u) the number of items of u, s(i) the sum of all x
 * of i, and s the mean of s(i) over all items.  A pair weighs
 *
 *	 none		x
 *	 cosine		x
 *	 tfidf		sqrt(x) idf(u)
 *	 bm25		x (K1 + 1) / (K1 (1 - B + B s(i) / s) + x) idf(u)
 *
 *	 idf(u) =	ln(N / (1 + n(u)))
 *
 * and the score of two items is the sum of the products of their weights over
 * all users that both have.  cosine and tfidf divide it by the lengths of
 * both items: with v and w for the sums of the squares of their weights, the
 * score is sqrt(sum * sum / (v * w)).  So equal cosines of small integers are
 * equal float8 (core/measure.h).
 *
 * idf is the logarithm of a quotient, not a difference of logarithms: a user
 * whose idf is zero must weigh nothing, for lengths would make the rounding
 * error of a difference as large as any other weight.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WEIGHTING_H
#define GPUVEC_WEIGHTING_H

#include <string.h>

#include "core/measure.h"

typedef enum gpuvec_weighting
{
	GPUVEC_WEIGHTING_COSINE,
	GPUVEC_WEIGHTING_TFIDF,
	GPUVEC_WEIGHTING_BM25,
	GPUVEC_WEIGHTING_NONE,
	GPUVEC_N_WEIGHTINGS
} gpuvec_weighting;

/* Largest K1 of bm25 */
#define GPUVEC_MAX_BM25_K1	1e12

static inline const char *
gpuvec_weighting_name(gpuvec_weighting weighting)
{
	static const char *const names[GPUVEC_N_WEIGHTINGS] = {"cosine", "tfidf", "bm25", "none"};

	return names[weighting];
}

/* The weighting with a name, or GPUVEC_N_WEIGHTINGS */
static inline gpuvec_weighting
gpuvec_weighting_find(const char *name)
{
	int			weighting = 0;

	while (weighting < GPUVEC_N_WEIGHTINGS &&
		   strcmp(gpuvec_weighting_name((gpuvec_weighting) weighting), name) != 0)
		weighting++;
	return (gpuvec_weighting) weighting;
}

/* Are sums divided by the lengths of both items? */
static inline GPUVEC_HD bool
gpuvec_weighting_divides(gpuvec_weighting weighting)
{
	return weighting == GPUVEC_WEIGHTING_COSINE || weighting == GPUVEC_WEIGHTING_TFIDF;
}

/* Must weights of pairs not be negative? */
static inline bool
gpuvec_weighting_positive(gpuvec_weighting weighting)
{
	return weighting == GPUVEC_WEIGHTING_TFIDF || weighting == GPUVEC_WEIGHTING_BM25;
}

/* idf of a user who has n of all items */
static inline double
gpuvec_idf(uint64_t items, uint64_t n)
{
	return log((double) items / (1.0 + (double) n));
}

/* How long an item is for bm25, given the sum of its x and the mean sum */
static inline double
gpuvec_bm25_length(double b, double sum, double mean)
{
	return (1.0 - b) + b * sum / mean;
}

/* The weight of a pair; idf and length matter to some weightings only */
static inline double
gpuvec_pair_weight(gpuvec_weighting weighting, double k1, double x, double idf, double length)
{
	if (weighting == GPUVEC_WEIGHTING_TFIDF)
		return sqrt(x) * idf;
	if (weighting == GPUVEC_WEIGHTING_BM25)
		return x * (k1 + 1.0) / (k1 * length + x) * idf;
	return x;
}

/* The score of two items, given the sums of their products and squares */
static inline GPUVEC_HD double
gpuvec_neighbor_score(gpuvec_weighting weighting, double sum, double squares1, double squares2)
{
	return gpuvec_weighting_divides(weighting) ? sqrt(sum * sum / (squares1 * squares2)) : sum;
}

#endif							/* GPUVEC_WEIGHTING_H */
