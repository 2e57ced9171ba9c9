/*-------------------------------------------------------------------------
 *
 * pooling.h
 *	  Pools vectors: the definition that the extension and the engine share.
 *
 * A bag is a list of keys, each with a weight if the call has weights.  Its
 * vectors are summed in float32, element by element, in the order of the bag,
 * from +0 on.  Each key costs one rounded addition, or with weights one fused
 * multiply-add.
 *
 * A bag of more than GPUVEC_PIECE keys is cut into pieces of GPUVEC_PIECE
 * keys (the last may be shorter).  Each piece is summed as above.  The sums
 * of GPUVEC_FAN consecutive pieces are summed, then the sums of GPUVEC_FAN
 * such groups, then these.  So results are the same bits for any width of
 * vector registers, any number of threads and any machine, GPUs included
 * (kernels/embedding/pooling_kernels.h).
 *
 *	 sum		the sum of the vectors of the keys that were found, each times
 *				its weight
 *	 mean		the sum divided by the sum of the weights (1 for each key
 *				without weights), or zeros if the divisor is 0
 *	 concat		the vectors, one after another; with weights, for each key the
 *				sum of this key alone
 *
 * Keys that were not found add nothing to a sum.  With GPUVEC_MISSING_ZERO
 * they count as vectors of zeros: their weights are part of the divisor, and
 * concat has zeros in their place.  With GPUVEC_MISSING_SKIP they are
 * ignored, as if the bag did not have them.
 *
 * The divisor is summed in float64, in the same order, and rounded to float32
 * once, at the end; it is infinite if it is too large.  Float32 would not do:
 * weights of both signs may nearly cancel, and each bit that the divisor
 * lacks is lacking in the whole result.  Rounding makes the divisor 0 only if
 * it was 0, as all float32 are multiples of the smallest one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOLING_H
#define GPUVEC_POOLING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/half.h"
#include "core/key_hash.h"
#include "core/pooling_types.h"
#include "core/step.h"

/* sum += vector */
static inline void
gpuvec_vector_add(float *restrict sum, const float *restrict vector, uint32_t width)
{
	for (uint32_t i = 0; i < width; i++)
		sum[i] += vector[i];
}

/* sum += weight * vector, fused */
static inline void
gpuvec_vector_add_weighted(float *restrict sum, const float *restrict vector, float weight,
						   uint32_t width)
{
	for (uint32_t i = 0; i < width; i++)
		sum[i] = fmaf(weight, vector[i], sum[i]);
}

/* sum /= divisor; zeros if the divisor is 0 */
static inline void
gpuvec_vector_divide(float *sum, float divisor, uint32_t width)
{
	if (divisor == 0)
		memset(sum, 0, width * sizeof(float));
	else
		for (uint32_t i = 0; i < width; i++)
			sum[i] /= divisor;
}

/*
 * The vectors of a bag are scattered in memory.  Prefetch up to
 * GPUVEC_PREFETCH_BYTES of each, GPUVEC_PREFETCH_VECTORS keys ahead.
 */
#define GPUVEC_PREFETCH_VECTORS	3
#define GPUVEC_PREFETCH_BYTES	1024
#define GPUVEC_LINE_BYTES		64

/* Prefetch the beginning of a vector, which may be NULL */
static inline void
gpuvec_vector_prefetch(const void *vector, uint64_t bytes)
{
	if (bytes > GPUVEC_PREFETCH_BYTES)
		bytes = GPUVEC_PREFETCH_BYTES;
	for (uint64_t i = 0; vector && i < bytes; i += GPUVEC_LINE_BYTES)
		__builtin_prefetch((const char *) vector + i);
}

/*
 * Scratch of a bag, in vectors: one converted from float16, the sum of a
 * piece, and two levels of sums
 */
#define GPUVEC_SCRATCH_VECTORS	4

/* A bag whose keys have been looked up */
typedef struct gpuvec_bag
{
	const int64_t *keys;
	const void *const *vectors; /* [n]; NULL: the key was not found */
	const float *weights;		/* [n]; NULL: no weights */
	uint64_t	n;
	uint32_t	width;
	gpuvec_storage storage;
	gpuvec_pool_mode mode;
	gpuvec_missing missing;
	float	   *scratch;		/* room for GPUVEC_SCRATCH_VECTORS vectors */
} gpuvec_bag;

/*
 * The vector of key i as float32.  The key was found.  The result lasts until
 * the next call.
 */
static inline const float *
gpuvec_bag_vector(const gpuvec_bag *bag, uint64_t i)
{
	if (bag->storage == GPUVEC_FLOAT32)
		return (const float *) bag->vectors[i];
	gpuvec_halves_to_floats(bag->scratch, (const uint16_t *) bag->vectors[i], bag->width);
	return bag->scratch;
}

/* True if key i counts: it was found, or missing keys are not skipped */
static inline bool
gpuvec_bag_counts(const gpuvec_bag *bag, uint64_t i)
{
	return bag->vectors[i] != NULL || bag->missing != GPUVEC_MISSING_SKIP;
}

/* Pool a bag by concat.  Returns the number of floats written. */
static inline uint64_t
gpuvec_concat_bag(float *out, const gpuvec_bag *bag)
{
	float	   *to = out;

	for (uint64_t i = 0; i < bag->n; i++)
	{
		GPUVEC_LOOK();
		if (!gpuvec_bag_counts(bag, i))
			continue;
		if (bag->vectors[i] == NULL || bag->weights)
			memset(to, 0, bag->width * sizeof(float));
		if (bag->vectors[i] != NULL && bag->weights)
			gpuvec_vector_add_weighted(to, gpuvec_bag_vector(bag, i), bag->weights[i], bag->width);
		else if (bag->vectors[i] != NULL)
			memcpy(to, gpuvec_bag_vector(bag, i), bag->width * sizeof(float));
		to += bag->width;
	}
	return (uint64_t) (to - out);
}

/*
 * Sum keys [first, end) of a bag into `out`.  Returns the sum of their
 * weights.
 */
static inline double
gpuvec_sum_piece(float *out, const gpuvec_bag *bag, uint64_t first, uint64_t end)
{
	uint64_t	bytes = bag->width * gpuvec_element_bytes(bag->storage);
	double		divisor = 0;

	memset(out, 0, bag->width * sizeof(float));
	for (uint64_t i = first; i < end; i++)
	{
		if (i + GPUVEC_PREFETCH_VECTORS < bag->n)
			gpuvec_vector_prefetch(bag->vectors[i + GPUVEC_PREFETCH_VECTORS], bytes);
		if (!gpuvec_bag_counts(bag, i))
			continue;
		divisor += bag->weights ? bag->weights[i] : 1;
		if (bag->vectors[i] == NULL)
			continue;
		if (bag->weights)
			gpuvec_vector_add_weighted(out, gpuvec_bag_vector(bag, i), bag->weights[i], bag->width);
		else
			gpuvec_vector_add(out, gpuvec_bag_vector(bag, i), bag->width);
	}
	return divisor;
}

/*
 * The sums of a bag of several pieces.  Sums of pieces are added to level 2.
 * Every GPUVEC_FAN pieces, level 2 is added to level 1 and cleared.  Every
 * GPUVEC_FAN * GPUVEC_FAN pieces, level 1 is added to level 0, the result.
 */
typedef struct gpuvec_levels
{
	float	   *sums[3];		/* [level][width] */
	double		divisors[3];
	uint64_t	n;				/* pieces added so far */
	uint32_t	width;
} gpuvec_levels;

static inline void
gpuvec_levels_begin(gpuvec_levels *levels, float *out, float *scratch, uint32_t width)
{
	levels->sums[0] = out;
	levels->sums[1] = scratch;
	levels->sums[2] = scratch + width;
	levels->n = 0;
	levels->width = width;
	for (int i = 0; i < 3; i++)
	{
		memset(levels->sums[i], 0, width * sizeof(float));
		levels->divisors[i] = 0;
	}
}

/* Add the sums of a level to the level above, and clear them */
static inline void
gpuvec_levels_carry(gpuvec_levels *levels, int level)
{
	gpuvec_vector_add(levels->sums[level - 1], levels->sums[level], levels->width);
	levels->divisors[level - 1] += levels->divisors[level];
	memset(levels->sums[level], 0, levels->width * sizeof(float));
	levels->divisors[level] = 0;
}

/* Add the sum of a piece */
static inline void
gpuvec_levels_add(gpuvec_levels *levels, const float *piece, double divisor)
{
	gpuvec_vector_add(levels->sums[2], piece, levels->width);
	levels->divisors[2] += divisor;
	levels->n++;
	if (levels->n % GPUVEC_FAN == 0)
		gpuvec_levels_carry(levels, 2);
	if (levels->n % (GPUVEC_FAN * GPUVEC_FAN) == 0)
		gpuvec_levels_carry(levels, 1);
}

/* Call after the last piece.  Returns the divisor. */
static inline double
gpuvec_levels_end(gpuvec_levels *levels)
{
	if (levels->n % GPUVEC_FAN != 0)
		gpuvec_levels_carry(levels, 2);
	if (levels->n % (GPUVEC_FAN * GPUVEC_FAN) != 0)
		gpuvec_levels_carry(levels, 1);
	return levels->divisors[0];
}

/* Sum a bag into `out`.  Returns the sum of its weights. */
static inline double
gpuvec_sum_bag(float *out, const gpuvec_bag *bag)
{
	float	   *piece = bag->scratch + bag->width;
	gpuvec_levels levels;

	if (bag->n <= GPUVEC_PIECE)
		return gpuvec_sum_piece(out, bag, 0, bag->n);
	gpuvec_levels_begin(&levels, out, piece + bag->width, bag->width);
	for (uint64_t first = 0; first < bag->n; first += GPUVEC_PIECE)
	{
		uint64_t	end = first + GPUVEC_PIECE < bag->n ? first + GPUVEC_PIECE : bag->n;

		GPUVEC_LOOK();
		gpuvec_levels_add(&levels, piece, gpuvec_sum_piece(piece, bag, first, end));
	}
	return gpuvec_levels_end(&levels);
}

/*
 * Pool one bag.  Returns the number of floats written to `out`: the width,
 * or, for concat, the width times the number of keys that count.
 */
static inline uint64_t
gpuvec_pool_bag(float *out, const gpuvec_bag *bag)
{
	double		divisor;

	if (bag->mode == GPUVEC_POOL_CONCAT)
		return gpuvec_concat_bag(out, bag);
	divisor = gpuvec_sum_bag(out, bag);
	if (bag->mode == GPUVEC_POOL_MEAN)
		gpuvec_vector_divide(out, (float) divisor, bag->width);
	return bag->width;
}

#endif							/* GPUVEC_POOLING_H */
