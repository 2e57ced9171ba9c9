/*-------------------------------------------------------------------------
 *
 * pooling_grad.h
 *	  Gradients of pooling: the one definition that the extension and the
 *	  engine
 *	  share.
 *
 * Given the gradient with respect to what pooling returned, each key that a
 * bag has and that was found gets a share of the gradient of its bag:
 *
 *	 sum		the gradient times the key's weight
 *	 mean		the gradient times (weight / divisor), or times 0 if the
 *	 			divisor is 0
 *	 concat		its own part of the gradient times its weight
 *
 * The gradient of a key's vector is the sum of its shares, in the order in
 * which the bags have the key, computed like that of a bag (pooling.h) of
 * which shares are the vectors and those factors the weights; there are none
 * for sum and concat without weights.  The divisor is summed in float64 and
 * rounded in the end, as pooling does it, but in 32 lanes, that are folded in
 * halves: so it may differ from that of pooling in its last bits.
 *
 * The gradient with respect to a weight is, with g the gradient of its bag
 * and v the vector of its key (zeros if it was not found),
 *
 *	 sum		g . v
 *	 mean		(g . v - g . mean) / divisor, 0 if the divisor is 0 or the key
 *	 			is skipped
 *	 concat		g . v, with g its own part
 *
 * in float64 but for the mean, which is what pooling returns; scalar products
 * are summed in lanes (product.h), and the result is rounded in the end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOLING_GRAD_H
#define GPUVEC_POOLING_GRAD_H

#include "core/pooling.h"
#include "core/product.h"

/* A share that a key has in the gradient */
typedef struct gpuvec_share
{
	int64_t		key;
	uint64_t	row;			/* of the gradient: [row * width] */
	float		factor;
	uint32_t	number;			/* unused; keeps the size a multiple of 8 */
} gpuvec_share;

/* The divisor of a bag's mean */
static inline float
gpuvec_bag_divisor(const gpuvec_bag *bag)
{
	double		lanes[GPUVEC_DIVISOR_LANES] = {0};

	for (uint64_t i = 0; i < bag->n; i++)
		if (gpuvec_bag_counts(bag, i))
			lanes[i % GPUVEC_DIVISOR_LANES] += bag->weights ? bag->weights[i] : 1;
	for (int half = GPUVEC_DIVISOR_LANES / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			lanes[i] += lanes[i + half];
	return (float) lanes[0];
}

/*
 * The shares of the keys of one bag, appended to `shares`; returns their
 * number. *row is the row of the gradient where the bag begins, and becomes
 * that where the next one does.
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
		if (bag->vectors[i] != NULL)
		{
			gpuvec_share *share = &shares[nshares++];

			share->key = bag->keys[i];
			share->row = *row;
			share->factor = weight;
			if (bag->mode == GPUVEC_POOL_MEAN)
				share->factor = divisor == 0 ? 0 : weight / divisor;
		}
		if (bag->mode == GPUVEC_POOL_CONCAT)
			(*row)++;
	}
	if (bag->mode != GPUVEC_POOL_CONCAT)
		(*row)++;
	return nshares;
}

/* The gradient that shares are of */
typedef struct gpuvec_upstream
{
	const float *gradient;
	uint32_t	width;
	bool		factors;		/* shares have factors; else they are 1 */
} gpuvec_upstream;

/* The sum of at most GPUVEC_PIECE shares */
static inline void
gpuvec_sum_shares_piece(float *out, const gpuvec_share *shares, uint64_t n,
						const gpuvec_upstream *up)
{
	memset(out, 0, up->width * sizeof(float));
	for (uint64_t i = 0; i < n; i++)
	{
		const float *row = up->gradient + shares[i].row * up->width;

		if (i + GPUVEC_PREFETCH_VECTORS < n)
			gpuvec_vector_prefetch(up->gradient + shares[i + GPUVEC_PREFETCH_VECTORS].row * up->width,
								   up->width * sizeof(float));
		if (up->factors)
			gpuvec_vector_add_weighted(out, row, shares[i].factor, up->width);
		else
			gpuvec_vector_add(out, row, up->width);
	}
}

/*
 * The gradient of one key: the sum of n shares; `scratch` has room for three
 * vectors
 */
static inline void
gpuvec_sum_shares(float *out, const gpuvec_share *shares, uint64_t n, const gpuvec_upstream *up,
				  float *scratch)
{
	gpuvec_levels levels;

	if (n <= GPUVEC_PIECE)
	{
		gpuvec_sum_shares_piece(out, shares, n, up);
		return;
	}
	gpuvec_levels_begin(&levels, out, scratch + up->width, up->width);
	for (uint64_t first = 0; first < n; first += GPUVEC_PIECE)
	{
		uint64_t	count = n - first < GPUVEC_PIECE ? n - first : GPUVEC_PIECE;

		gpuvec_sum_shares_piece(scratch, shares + first, count, up);
		gpuvec_levels_add(&levels, scratch, 0);
	}
	(void) gpuvec_levels_end(&levels);
}

#define GPUVEC_DIGIT_BITS	8
#define GPUVEC_DIGITS		(1 << GPUVEC_DIGIT_BITS)

/*
 * Sort shares by key, ascending, keeping the order of those of one key: a
 * radix sort that leaves out the digits which all keys have in common.
 * `spare` has room for as many; returns which of the two has the result.
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
 * The gradients of the weights of one bag: out[i] for its i-th key.  *row as
 * above; `mean` has room for a vector.
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

#endif							/* GPUVEC_POOLING_GRAD_H */
