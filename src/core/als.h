/*-------------------------------------------------------------------------
 *
 * als.h
 *	  Alternating least squares for implicit feedback: what the extension, the
 *	  engine and its backends share.
 *
 * Each pair of a user u and an item i has a preference p and a confidence c.
 * A pair with the weight w in the table has c = alpha |w|, and p is 1, or 0
 * if w is negative (a dislike).  All other pairs have c = 1 and p = 0.
 * Training looks for vectors x of users and y of items, called factors, that
 * make
 *
 *		sum over all pairs of c (p - x.y)^2 + regularization (|X|^2 + |Y|^2)
 *
 * small.  With the factors of one side fixed, each vector of the other side
 * is the solution of a linear system of its own:
 *
 *		(G + sum of (c - 1) y y') x = sum of c p y,
 *		G = sum of y y' over all items + regularization I
 *
 * where all sums but that of G are over the pairs of the user that are in the
 * table, so that the work is proportional to their number.  Iterations solve
 * for all users, then for all items.
 *
 * The loss is the sum above, divided by the sum of all c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_H
#define GPUVEC_ALS_H

#include <math.h>

#include "core/key_hash.h"

/* Largest number of elements of a factor */
#define GPUVEC_ALS_MAX_FACTORS	1024

/* Largest number of iterations, and of steps of conjugate gradient */
#define GPUVEC_ALS_MAX_ITERATIONS 100000
#define GPUVEC_ALS_MAX_STEPS	1024

/*
 * Largest confidence of a pair.  Products of two of them, and sums of many,
 * are far from the limits of float32.
 */
#define GPUVEC_ALS_MAX_CONFIDENCE 1e12

/*
 * Smallest alpha.  With a smaller one, confidences of ordinary weights would
 * be zero in float32, so that nothing would be left to train on.
 */
#define GPUVEC_ALS_MIN_ALPHA	1e-20

/*
 * Largest element of a factor that is read.  Sums of many products of two of
 * them are far from the limits of float32.
 */
#define GPUVEC_ALS_MAX_ELEMENT	1e15f

/*
 * Conjugate gradient ends when the squared residual is less than this, or
 * less than this part of the squared right side.  The latter is all that
 * float32 leaves of a residual.  If the system has several solutions, a step
 * along such a rest might be of any length.
 */
#define GPUVEC_ALS_RESIDUAL		1e-20f
#define GPUVEC_ALS_REST			1e-12f

/* The two sides of a training */
typedef enum gpuvec_als_side
{
	GPUVEC_ALS_USERS,
	GPUVEC_ALS_ITEMS
} gpuvec_als_side;

/*
 * Element i of the factor that a key has before training, between -0.5 and
 * 0.5 divided by the square root of the number of factors.  So scalar
 * products are of the size of preferences, whatever the number of factors.
 * If they are much smaller, the first iterations have regularization to fight
 * rather than the interactions to fit, and training takes longer.
 *
 * It depends on nothing else than these arguments, so not on the order in
 * which keys come.
 */
static inline float
gpuvec_als_initial(int64_t seed, gpuvec_als_side side, int64_t key, uint32_t i, uint32_t factors)
{
	uint64_t	h = gpuvec_hash_key(seed ^ INT64_C(0x2545F4914F6CDD1D));
	double		uniform;

	h = gpuvec_hash_key((int64_t) ((h ^ (uint64_t) key) + (side == GPUVEC_ALS_ITEMS ?
														   UINT64_C(0x9E3779B97F4A7C15) :
														   UINT64_C(0x14057B7EF767814F))));
	h = gpuvec_hash_key((int64_t) (h + (i + UINT64_C(1)) * UINT64_C(0xD1B54A32D192ED03)));
	uniform = (double) (h >> 11) / 9007199254740992.0;
	return (float) ((uniform - 0.5) / sqrt(factors));
}

#endif							/* GPUVEC_ALS_H */
