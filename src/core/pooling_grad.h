/*-------------------------------------------------------------------------
 *
 * pooling_grad.h
 *	  Gradients of pooling: the definition that the extension and the engine
 *	  share.
 *
 * Given the gradient with respect to the pooled result, each key of a bag
 * that was found gets a share of the gradient of its bag:
 *
 *	 sum		the gradient times the key's weight
 *	 mean		the gradient times (weight / divisor), or times 0 if the
 *				divisor is 0
 *	 concat		the key's own part of the gradient times its weight
 *
 * The gradient of a key's vector is the sum of its shares, in the order in
 * which the bags have the key.  It is computed like a weighted sum of a bag
 * (pooling.h): the gradients are the vectors, and the factors above are the
 * weights.  For sum and concat without weights there are no factors.
 *
 * The divisor is summed in float64 and rounded at the end, as in pooling, but
 * in 32 lanes that are folded in halves.  So its last bits may differ from
 * the divisor in pooling.
 *
 * The gradient with respect to a weight, with g the gradient of its bag and v
 * the vector of its key (zeros if the key was not found):
 *
 *	 sum		g . v
 *	 mean		(g . v - g . mean) / divisor; 0 if the divisor is 0 or the key
 *				is skipped
 *	 concat		g . v, with g the key's own part
 *
 * It is computed in float64, except `mean`, which is the float32 result of
 * pooling.  Scalar products are summed in lanes (product.h), and the result
 * is rounded at the end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOLING_GRAD_H
#define GPUVEC_POOLING_GRAD_H

#include "core/pooling.h"
#include "core/product.h"

/* One occurrence of a key in a bag: its share of the gradient */
typedef struct gpuvec_share
{
	int64_t		key;
	uint64_t	row;			/* of the gradient, which is [row][width] */
	float		factor;
	uint32_t	number;			/* unused; keeps the size a multiple of 8 */
} gpuvec_share;

/* The divisor of a bag's mean, summed in lanes */
static inline float
gpuvec_bag_divisor(const gpuvec_bag *bag)
{
	double		lanes[GPUVEC_DIVISOR_LANES] = {0};

	for (uint64_t i = 0; i < bag->n; i++)
	{
		GPUVEC_STEP(i);
		if (gpuvec_bag_counts(bag, i))
			lanes[i % GPUVEC_DIVISOR_LANES] += bag->weights ? bag->weights[i] : 1;
	}
	for (int half = GPUVEC_DIVISOR_LANES / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			lanes[i] += lanes[i + half];
	return (float) lanes[0];
}

/*
 * Append the shares of one bag to `shares`.  Returns their number.  *row is
 * the bag's first row of the gradient, and is set to the first row of the
 * next bag.
 */
static inline uint64_t
gpuvec_bag_shares(gpuvec_share *shares, const gpuvec_bag *bag, uint64_t *row)
{
	float		divisor = bag->mode == GPUVEC_POOL_MEAN ? gpuvec_bag_divisor(bag) : 1;
	uint64_t	nshares = 0;

	for (uint64_t i = 0; i < bag->n; i++)
	{
		float		weight = bag->weights ? bag->weights[i] : 1;

		GPUVEC_STEP(i);
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

/* The gradient with respect to the pooled result */
typedef struct gpuvec_upstream
{
	const float *gradient;
	uint32_t	width;
	bool		factors;		/* multiply by the shares' factors, which are
								 * 1 otherwise */
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
 * The gradient of one key: the sum of its n shares.  `scratch` has room for
 * three vectors.
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

		GPUVEC_LOOK();
		gpuvec_sum_shares_piece(scratch, shares + first, count, up);
		gpuvec_levels_add(&levels, scratch, 0);
	}
	(void) gpuvec_levels_end(&levels);
}

#define GPUVEC_DIGIT_BITS	8
#define GPUVEC_DIGITS		(1 << GPUVEC_DIGIT_BITS)

/*
 * Sort shares by key, ascending and stable: a radix sort that skips digits
 * which are the same in all keys.  `spare` has room for n shares.  Returns
 * the array that has the result: `shares` or `spare`.
 */
static inline gpuvec_share *
gpuvec_sort_shares(gpuvec_share *shares, gpuvec_share *spare, uint64_t n)
{
	for (int shift = 0; shift < 64; shift += GPUVEC_DIGIT_BITS)
	{
		uint64_t	start[GPUVEC_DIGITS] = {0};
		uint64_t	sum = 0;
		gpuvec_share *sorted = spare;

		/* flip the sign bit, so that keys sort as unsigned numbers */
#define GPUVEC_DIGIT(share) \
	((((uint64_t) (share).key ^ UINT64_C(1) << 63) >> shift) & (GPUVEC_DIGITS - 1))
		for (uint64_t i = 0; i < n; i++)
		{
			GPUVEC_STEP(i);
			start[GPUVEC_DIGIT(shares[i])]++;
		}
		if (n == 0 || start[GPUVEC_DIGIT(shares[0])] == n)
			continue;
		for (int digit = 0; digit < GPUVEC_DIGITS; digit++)
		{
			uint64_t	count = start[digit];

			start[digit] = sum;
			sum += count;
		}
		for (uint64_t i = 0; i < n; i++)
		{
			GPUVEC_STEP(i);
			sorted[start[GPUVEC_DIGIT(shares[i])]++] = shares[i];
		}
#undef GPUVEC_DIGIT
		spare = shares;
		shares = sorted;
	}
	return shares;
}

/*
 * The gradients of the weights of one bag: out[i] for key i.  *row is as in
 * gpuvec_bag_shares().  `mean` has room for one vector.
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

		GPUVEC_LOOK();
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
