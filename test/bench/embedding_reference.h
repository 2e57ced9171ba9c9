/*-------------------------------------------------------------------------
 *
 * embedding_reference.h
 *	  What kernels/embedding/pooling_kernels.h defines, in plain C++, element
 *	  by element.
 *
 *-------------------------------------------------------------------------
 */
#ifndef EMBEDDING_REFERENCE_H
#define EMBEDDING_REFERENCE_H

#include <algorithm>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <vector>

#include "kernels/embedding/pooling_kernels.h"

/* A lookup with what it contributes */
struct ref_lookup
{
	const float *row;			/* NULL: missing */
	float		weight;
};

/* A sum in the order that pooling_kernels.h prescribes */
struct ref_sum
{
	std::vector<float> value;
	double		divisor;
	std::vector<double> exact;	/* the same in float64 */
	std::vector<double> magnitude;	/* the sum of absolute values */

	explicit ref_sum(size_t width)
		: value(width, 0.0f), divisor(0.0), exact(width, 0.0), magnitude(width, 0.0)
	{
	}

	void
	add(const ref_sum &other)
	{
		for (size_t i = 0; i < value.size(); i++)
		{
			value[i] += other.value[i];
			exact[i] += other.exact[i];
			magnitude[i] += other.magnitude[i];
		}
		divisor += other.divisor;
	}
};

/* Sum at most GPUVEC_PIECE lookups from left to right */
static inline ref_sum
ref_piece(const ref_lookup *lookups, size_t n, size_t width, bool weighted, bool skip_missing)
{
	ref_sum		sum(width);

	for (size_t i = 0; i < n; i++)
	{
		const ref_lookup &l = lookups[i];

		for (size_t c = 0; c < width && l.row; c++)
		{
			sum.value[c] = weighted ? fmaf(l.weight, l.row[c], sum.value[c]) : sum.value[c] + l.row[c];
			sum.exact[c] += (double) l.weight * l.row[c];
			sum.magnitude[c] += fabs((double) l.weight * l.row[c]);
		}
		if (l.row || !skip_missing)
			sum.divisor += l.weight;
	}
	return sum;
}

/* Sum a bag */
static inline ref_sum
ref_bag(const std::vector<ref_lookup> &lookups, size_t width, bool weighted, bool skip_missing)
{
	const size_t piece = GPUVEC_PIECE;
	const size_t fan = piece * GPUVEC_FAN;
	const size_t fan2 = fan * GPUVEC_FAN;
	const size_t n = lookups.size();
	ref_sum		total(width);

	if (n <= piece)
		return ref_piece(lookups.data(), n, width, weighted, skip_missing);
	for (size_t a = 0; a < n; a += fan2)
	{
		ref_sum		sum2(width);

		for (size_t b = a; b < std::min(n, a + fan2); b += fan)
		{
			ref_sum		sum1(width);

			for (size_t c = b; c < std::min(n, b + fan); c += piece)
				sum1.add(ref_piece(lookups.data() + c, std::min(n - c, piece), width, weighted, skip_missing));
			sum2.add(sum1);
		}
		total.add(sum2);
	}
	return total;
}

/* From the sum to the mean */
static inline void
ref_divide(ref_sum &sum)
{
	float		divisor = (float) sum.divisor;

	for (size_t c = 0; c < sum.value.size(); c++)
	{
		sum.value[c] = divisor == 0.0f ? 0.0f : sum.value[c] / divisor;
		sum.exact[c] = divisor == 0.0f ? 0.0 : sum.exact[c] / sum.divisor;
		sum.magnitude[c] = divisor == 0.0f ? 0.0 : sum.magnitude[c] / fabs(sum.divisor);
	}
}

/* What the gradient divides by: see warp_divisor() */
static inline float
ref_grad_divisor(const std::vector<ref_lookup> &lookups, bool skip_missing)
{
	double		lane[32] = {0};

	for (size_t i = 0; i < lookups.size(); i++)
		lane[i % 32] += lookups[i].row || !skip_missing ? lookups[i].weight : 0.0f;
	for (int d = 16; d > 0; d /= 2)
	{
		double		other[32];

		for (int i = 0; i < 32; i++)
			other[i] = lane[i] + lane[i ^ d];
		memcpy(lane, other, sizeof lane);
	}
	return (float) lane[0];
}

/* The same bits?  NaN equals NaN */
static inline bool
ref_same(float a, float b)
{
	return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

#endif							/* EMBEDDING_REFERENCE_H */
