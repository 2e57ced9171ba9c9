/*-------------------------------------------------------------------------
 *
 * gram.h
 *	  The Gram matrix of factors that come in slices.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_GRAM_H
#define GPUVEC_GRAM_H

#include "engine/als/als_math.h"
#include "engine/thread_pool.h"

/* Rows that are added up in float32; all slices but the last are multiples */
#define GPUVEC_GRAM_CHUNK	2048

/* Floats of a factor, with the padding that the inner loops need */
static inline uint32_t
gpuvec_als_stride(uint32_t factors)
{
	return (factors + GPUVEC_ALS_LANES - 1) / GPUVEC_ALS_LANES * GPUVEC_ALS_LANES;
}

/*
 * sum[stride * stride] += the sum of y y' over n rows, its elements from the
 * diagonal on.  chunks[] has room for stride * stride floats for each chunk
 * of the rows.
 */
extern void gpuvec_gram_add(gpuvec_thread_pool *pool, const float *rows, uint64_t n,
							uint32_t stride, float *chunks, double *sum);

#endif							/* GPUVEC_GRAM_H */
