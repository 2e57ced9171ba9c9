/*-------------------------------------------------------------------------
 *
 * embedding_grad.h
 *	  Gradients of pooling: the one definition that the extension and the engine
 *	  share.
 *
 * Given the gradient with respect to what pooling returned, each key that a bag has
 * and that was found gets a share of the gradient of its bag:
 *
 *	 sum		the gradient times the key's weight
 *	 mean		the gradient times (weight / divisor), nothing if the divisor is 0
 *	 concat		its own part of the gradient times its weight
 *
 * The gradient of a key's vector is the sum of its shares, float32, from 0 on, in the
 * order in which the bags have the key: one product (rounded) and one sum (rounded)
 * for each, and more than GPUVEC_PIECE in pieces, as for pooling.
 *
 * The gradient with respect to a weight is, with g the gradient of its bag and v the
 * vector of its key (zeros if it was not found),
 *
 *	 sum		g . v
 *	 mean		(g . v - g . mean) / divisor, 0 if the divisor is 0 or the key is skipped
 *	 concat		g . v, with g its own part
 *
 * in float64 but for the mean, which is what pooling returns; scalar products are summed
 * in lanes (product.h), and the result is rounded in the end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_GRAD_H
#define GPUVEC_EMBEDDING_GRAD_H

#include "embedding.h"
#include "product.h"

/* A share that a key has in the gradient */
typedef struct gpuvec_share
{
	int64_t		key;
	uint64_t	row;			/* of the gradient: [row * width] */
	float		factor;
	uint32_t	number;			/* unused; keeps the size a multiple of 8 */
} gpuvec_share;

/*
 * The shares of the keys of one bag, appended to `shares`; returns their number.
 * *row is the row of the gradient where the bag begins, and becomes that where the
 * next one does.
 */
static inline uint64_t
gpuvec_bag_shares(gpuvec_share *shares, const gpuvec_bag *bag, uint64_t *row)
{
	float		divisor = bag->mode == GPUVEC_POOL_MEAN ? gpuvec_bag_divisor(bag) : 1;
	uint64_t	nshares = 0;

	for (uint64_t i = 0; i < bag->n; i++)
	{
		float		weight = bag->weights ? bag->weights[i] : 1;

		if (!gpuvec_bag_counts(bag, i))
			continue;
		if (bag->vectors[i] != NULL && divisor != 0)
			shares[nshares++] = (gpuvec_share) {
				.key = bag->keys[i],.row = *row,
				.factor = bag->mode == GPUVEC_POOL_MEAN ? weight / divisor : weight
			};
		if (bag->mode == GPUVEC_POOL_CONCAT)
			(*row)++;
	}
	if (bag->mode != GPUVEC_POOL_CONCAT)
		(*row)++;
	return nshares;
}

/* The sum of the shares of one piece */
static inline void
gpuvec_sum_share_piece(float *restrict out, const gpuvec_share *shares, uint64_t n,
					   const float *restrict gradient, uint32_t width)
{
	memset(out, 0, width * sizeof(float));
	for (uint64_t i = 0; i < n; i++)
	{
		if (i + GPUVEC_PREFETCH_VECTORS < n)
			gpuvec_vector_prefetch(gradient + shares[i + GPUVEC_PREFETCH_VECTORS].row * width,
								   width * sizeof(float));
		gpuvec_vector_add_weighted(out, gradient + shares[i].row * width, shares[i].factor, width);
	}
}

/* The sum of n shares, cut into parts of so many; room for a vector of each size */
static inline void
gpuvec_sum_share_range(float *out, const gpuvec_share *shares, uint64_t n, const float *gradient,
					   uint32_t width, uint64_t part, float *room)
{
	if (part < GPUVEC_PIECE)
	{
		gpuvec_sum_share_piece(out, shares, n, gradient, width);
		return;
	}
	memset(out, 0, width * sizeof(float));
	for (uint64_t i = 0; i < n; i += part)
	{
		gpuvec_sum_share_range(room, shares + i, n - i < part ? n - i : part, gradient, width,
							   part / GPUVEC_FAN, room + width);
		gpuvec_vector_add(out, room, width);
	}
}

/* The gradient of one key: the sum of n shares.  scratch[GPUVEC_SCRATCH_VECTORS * width]. */
static inline void
gpuvec_sum_shares(float *out, const gpuvec_share *shares, uint64_t n, const float *gradient,
				  uint32_t width, float *scratch)
{
	if (n <= GPUVEC_PIECE)
		gpuvec_sum_share_piece(out, shares, n, gradient, width);
	else
		gpuvec_sum_share_range(out, shares, n, gradient, width, GPUVEC_LARGEST_SUM, scratch);
}

#define GPUVEC_DIGIT_BITS	8
#define GPUVEC_DIGITS		(1 << GPUVEC_DIGIT_BITS)

/*
 * Sort shares by key, ascending, keeping the order of those of one key: a radix sort
 * that leaves out the digits which all keys have in common.  `spare` has room for as
 * many; returns which of the two has the result.
 */
static inline gpuvec_share *
gpuvec_sort_shares(gpuvec_share *shares, gpuvec_share *spare, uint64_t n)
{
	for (int shift = 0; shift < 64; shift += GPUVEC_DIGIT_BITS)
	{
		uint64_t	start[GPUVEC_DIGITS] = {0};
		uint64_t	sum = 0;
		gpuvec_share *sorted = spare;

		/* the sign comes first in the order of bytes */
#define GPUVEC_DIGIT(share) \
	((((uint64_t) (share).key ^ UINT64_C(1) << 63) >> shift) & (GPUVEC_DIGITS - 1))
		for (uint64_t i = 0; i < n; i++)
			start[GPUVEC_DIGIT(shares[i])]++;
		if (n == 0 || start[GPUVEC_DIGIT(shares[0])] == n)
			continue;
		for (int digit = 0; digit < GPUVEC_DIGITS; digit++)
		{
			uint64_t	count = start[digit];

			start[digit] = sum;
			sum += count;
		}
		for (uint64_t i = 0; i < n; i++)
			sorted[start[GPUVEC_DIGIT(shares[i])]++] = shares[i];
#undef GPUVEC_DIGIT
		spare = shares;
		shares = sorted;
	}
	return shares;
}

/*
 * The gradients of the weights of one bag: out[i] for its i-th key.  *row as above;
 * `mean` has room for a vector.
 */
static inline void
gpuvec_bag_weight_gradients(float *out, const gpuvec_bag *bag, const float *gradient, float *mean,
							uint64_t *row)
{
	const float *g = gradient + *row * bag->width;
	float		divisor = 1;
	double		base = 0;

	if (bag->mode == GPUVEC_POOL_MEAN)
	{
		(void) gpuvec_pool_bag(mean, bag);
		divisor = gpuvec_bag_divisor(bag);
		base = gpuvec_product(g, mean, bag->width);
	}
	for (uint64_t i = 0; i < bag->n; i++)
	{
		double		dot = 0;

		out[i] = 0;
		if (!gpuvec_bag_counts(bag, i))
			continue;
		if (bag->vectors[i] != NULL)
			dot = gpuvec_product(g, gpuvec_bag_vector(bag, i), bag->width);
		if (bag->mode != GPUVEC_POOL_MEAN)
			out[i] = (float) dot;
		else if (divisor != 0)
			out[i] = (float) ((dot - base) / divisor);
		if (bag->mode == GPUVEC_POOL_CONCAT)
		{
			g += bag->width;
			(*row)++;
		}
	}
	if (bag->mode != GPUVEC_POOL_CONCAT)
		(*row)++;
}

#endif							/* GPUVEC_EMBEDDING_GRAD_H */
