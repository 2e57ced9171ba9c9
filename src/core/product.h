/*-------------------------------------------------------------------------
 *
 * product.h
 *	  Scalar products: the definition that the extension and the engine share.
 *
 * Products of float32 are exact in float64.  Sums over elements are kept in
 * 16 lanes, element i in lane i mod 16, which are folded in halves at the
 * end.  So the result is the same bits on every machine, whatever the width
 * of its vector registers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PRODUCT_H
#define GPUVEC_PRODUCT_H

#include "core/pooling_types.h"

/* Sum the lanes, in halves; overwrites them */
static inline double
gpuvec_fold(double *lanes)
{
	for (int half = GPUVEC_LANES / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			lanes[i] += lanes[i + half];
	return lanes[0];
}

/* q . v */
static inline double
gpuvec_product(const float *restrict q, const float *restrict v, uint32_t width)
{
	double		lanes[GPUVEC_LANES] = {0};
	uint32_t	i = 0;

	for (; i + GPUVEC_LANES <= width; i += GPUVEC_LANES)
		for (int j = 0; j < GPUVEC_LANES; j++)
			lanes[j] += (double) q[i + j] * (double) v[i + j];
	for (int j = 0; i + j < width; j++)
		lanes[j] += (double) q[i + j] * (double) v[i + j];
	return gpuvec_fold(lanes);
}

#endif							/* GPUVEC_PRODUCT_H */
