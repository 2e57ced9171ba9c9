/*-------------------------------------------------------------------------
 *
 * sparse_bound.h
 *	  What a sum of floats must reach, so that a row of sparse vectors may
 *	  have a score.
 *
 * A scan adds up products of floats, in any order, with or without fused
 * operations.  The score is another sum, of float8 in ascending order of ids
 * (core/sparse.h).  So the sum of floats only tells which rows need not be
 * scored: those whose sum is less than what follows here.
 *
 * q are the query's values, v the row's.  Both have C in common, n <= N ids.
 * s is the sum of float8, S that of floats, X the true one, and A the sum of
 * |q v| over C.  u = 2^-24 and U = 2^-53 are what roundings lose.
 *
 *	 - Products of floats are exact in float8, and never 0.  So |s - X| is
 *	   at most n U / (1 - n U) A, less than 1.01 * 2^-37 A.
 *	 - A term of S is rounded once as a product, and at most n - 1 times as
 *	   a part of sums: adding 0 is exact.  So |S - X| <= g A + n 2^-149,
 *	   with g = n u / (1 - n u), if nothing overflows.  The last term is for
 *	   products below 2^-126.  Sums lose nothing there.
 *	 - A <= |q| |v| (Cauchy and Schwarz), whatever the signs, and also with
 *	   ids that are not common.
 *
 * Hence s <= S + E, with E = (g + 2^-36) |q| |v| + 2^-126.  If a row has a
 * score of at least t, then
 *
 *	 - inner product: s >= t.
 *	 - cosine: s >= t |q| |v| (1 - 2^-49) if t > 0, and with 1 + 2^-49 if
 *	   t < 0: three roundings, before and in the root.  If |t| < 2^-500, a
 *	   quotient may be too small for a float8, and the score says no more
 *	   than s >= -2^-499 |q| |v|.  If t <= -1, it says nothing, but S >=
 *	   -(1 + g) |q| |v| for any row.  In both cases half of the 2^-36 in E
 *	   is enough, and the other half is not needed for s: the sum of float8
 *	   takes 2^-37.
 *	 - jaccard: m >= t / (1 + t) (a + b) (1 - 2^-50).  All terms are positive
 *	   and the smaller of two floats is exact, so S >= m (1 - g - 2^-36).
 *
 * This is computed in float8.  What it is off by comes in factors that are
 * large enough, 1 + 2^-30 and 1 - 2^-40.  The last difference and what makes
 * it a float are rounded, too, but cannot get beyond S: S is a float.
 *
 * Once a sum of floats has overflowed it stays infinite, or is NaN, though s
 * may be small.  So rows with such sums are scored.
 *
 * Floats below 2^-126 must not be taken for 0: with a value of 2^127, a
 * weight of 2^-140 counts.  A row that has no id of the query has a sum of 0,
 * which may be above what is asked for.  Who knows that there is none need
 * not ask: see gpuvec_sparse_wanted().
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SPARSE_BOUND_H
#define GPUVEC_SPARSE_BOUND_H

#include "core/sparse.h"

/* What sums of floats are off by, for one query */
typedef struct gpuvec_sparse_bound
{
	gpuvec_sparse_measure measure;
	double		own;			/* cosine: |q|; jaccard: a */
	double		share;			/* of A, by which a sum may be too small */
	double		slack;			/* the same of |v| */
} gpuvec_sparse_bound;

/* More than what products below 2^-126 lose */
#define GPUVEC_SPARSE_DENORMAL	0x1p-126

/*
 * For a query whose sums of floats have at most n terms.  square is the sum
 * of the squares of all its values, own its a (gpuvec_sparse_own()).
 */
static inline GPUVEC_HD gpuvec_sparse_bound
gpuvec_sparse_make_bound(gpuvec_sparse_measure measure, uint32_t n, double square, double own)
{
	double		terms = (double) n * 0x1p-24;
	gpuvec_sparse_bound bound;

	bound.measure = measure;
	bound.own = measure == GPUVEC_SPARSE_COSINE ? sqrt(own) : own;
	bound.share = (terms / (1 - terms) + 0x1p-36) * (1 + 0x1p-30);
	bound.slack = bound.share * sqrt(square);
	return bound;
}

/*
 * The least sum of floats of a row that may have this score.  square is the
 * sum of the squares of the row's values, own its b.  NaN if the score is, as
 * that of no bound.
 */
static inline GPUVEC_HD float
gpuvec_sparse_least(const gpuvec_sparse_bound *bound, double score, double square, double own)
{
	double		least = score;

	if (bound->measure == GPUVEC_SPARSE_JACCARD)
	{
		if (score <= 0)
			return -INFINITY;
		return (float) (score / (1 + score) * (bound->own + own) * (1 - bound->share) * (1 - 0x1p-40));
	}
	if (bound->measure == GPUVEC_SPARSE_COSINE)
	{
		least = score * bound->own * sqrt(own);
		least -= fabs(least) * 0x1p-40;
	}
	return (float) (least - (bound->slack * sqrt(square) + GPUVEC_SPARSE_DENORMAL));
}

/*
 * The same for many rows of one query: a row may have a score unless its sum
 * of floats is less than base + slope * x, where x is the row's place.  That
 * is computed in floats, fused or not.  It takes two operations and is a
 * little less than gpuvec_sparse_least(): nearly all rows end here.
 *
 * With x for |v|, or b of jaccard, all three bounds are such lines.  A float
 * for base, slope and x, and one for each operation, are off by 5 * 2^-24 of
 * |base| + |slope x|, which 2^-20 covers.  Products below 2^-126 lose less
 * than GPUVEC_SPARSE_DENORMAL.  A slope below 2^-126 is made one or 0, to the
 * side of what is less.  A place that is no normal float, and so may be off
 * by more, is NaN, and so is the line there.
 *
 * Beyond floats, a slope or base is FLT_MAX, which is less.  Where base +
 * slope * x is infinite, so is what it stands for, or more than any float.
 */
typedef struct gpuvec_sparse_line
{
	float		base;
	float		slope;
} gpuvec_sparse_line;

/* The line of a score; base is NaN if the score is, as that of no bound */
static inline GPUVEC_HD gpuvec_sparse_line
gpuvec_sparse_make_line(const gpuvec_sparse_bound *bound, double score)
{
	double		base = score;
	double		slope = -bound->slack;
	gpuvec_sparse_line line;

	if (bound->measure == GPUVEC_SPARSE_JACCARD)
	{
		slope = score <= 0 ? 0 : score / (1 + score) * (1 - bound->share) * (1 - 0x1p-40);
		base = score <= 0 ? -INFINITY : slope * bound->own;
	}
	else if (bound->measure == GPUVEC_SPARSE_COSINE)
	{
		slope = score * bound->own;
		slope -= fabs(slope) * 0x1p-40 + bound->slack;
		base = score - score;	/* 0, or NaN */
	}
	base -= fabs(base) * 0x1p-20 + 2 * GPUVEC_SPARSE_DENORMAL;
	slope -= fabs(slope) * 0x1p-20;
	if (fabs(slope) < FLT_MIN)
		slope = slope < 0 ? -FLT_MIN : 0;
	line.base = (float) (base > FLT_MAX ? FLT_MAX : base);
	line.slope = (float) (slope > FLT_MAX ? FLT_MAX : slope);
	return line;
}

/* The place of a row; square and own as of gpuvec_sparse_least() */
static inline GPUVEC_HD float
gpuvec_sparse_place(gpuvec_sparse_measure measure, double square, double own)
{
	double		place = measure == GPUVEC_SPARSE_JACCARD ? own : sqrt(square);

	return place >= FLT_MIN && place <= FLT_MAX ? (float) place : NAN;
}

/*
 * True if a row with an id of the query may have the score of the line.  It
 * has no branch, so that compilers make vectors of it.
 */
static inline GPUVEC_HD bool
gpuvec_sparse_reaches(float sum, gpuvec_sparse_line line, float place)
{
	return !((sum >= -FLT_MAX) & (sum < line.base + line.slope * place));
}

/*
 * True if a row may have the score that `least` is for.  hit: it has an id of
 * the query.  Rows without one have the score 0.
 */
static inline GPUVEC_HD bool
gpuvec_sparse_wanted(float sum, bool hit, float least, double score)
{
	if (!hit)
		return !(score > 0);
	return !(sum >= -FLT_MAX && sum < least);
}

#endif							/* GPUVEC_SPARSE_BOUND_H */
