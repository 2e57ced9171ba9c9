/*-------------------------------------------------------------------------
 *
 * embedding.h
 *	  How vectors are pooled: the one definition that the extension and the
 *	  engine share.
 *
 * A bag is a list of keys, each with a weight if the call has weights.  Sums are
 * float32, element by element, from 0 on, in the order of the bag: one product
 * (rounded) and one sum (rounded) for each key, so results are the same bits
 * whatever the width of vector registers, the number of threads, or the machine.
 *
 *	 sum		the vectors of the keys that were found, each times its weight
 *	 mean		that, divided by the sum of the weights (float32, same order; 1
 *				for each key if there are none), or zeros if that sum is 0
 *	 concat		the vectors, each times its weight, one behind the other
 *
 * Keys that were not found add nothing.  With GPUVEC_MISSING_ZERO they count as
 * vectors of zeros: their weights are part of the divisor, and concat has zeros in
 * their place.  With GPUVEC_MISSING_SKIP it is as if the bag did not have them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_H
#define GPUVEC_EMBEDDING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum gpuvec_pool_mode
{
	GPUVEC_POOL_SUM,
	GPUVEC_POOL_MEAN,
	GPUVEC_POOL_CONCAT
} gpuvec_pool_mode;

#define GPUVEC_N_POOL_MODES		3
#define GPUVEC_POOL_MODE_NAMES	{"sum", "mean", "concat"}

typedef enum gpuvec_missing
{
	GPUVEC_MISSING_ZERO,
	GPUVEC_MISSING_SKIP,
	GPUVEC_MISSING_ERROR
} gpuvec_missing;

#define GPUVEC_N_MISSING		3
#define GPUVEC_MISSING_NAMES	{"zero", "skip", "error"}

/* Elements that a vector may have */
#define GPUVEC_MAX_WIDTH		65536

/* What is wrong with a row's vector, so that it cannot be used */
typedef enum gpuvec_vector_kind
{
	GPUVEC_VECTOR_GOOD,
	GPUVEC_VECTOR_NULLS,		/* it has null elements */
	GPUVEC_VECTOR_DIMENSIONS,	/* it has several dimensions */
	GPUVEC_VECTOR_LONG			/* it has more than GPUVEC_MAX_WIDTH elements */
} gpuvec_vector_kind;

#define GPUVEC_N_VECTOR_KINDS	4

/* A hash of a key: the finalizer of MurmurHash3 (Austin Appleby, public domain) */
static inline uint64_t
gpuvec_hash_key(int64_t key)
{
	uint64_t	h = (uint64_t) key;

	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 33;
}

/* Add a vector to a sum */
static inline void
gpuvec_vector_add(float *restrict sum, const float *restrict vector, uint32_t width)
{
	for (uint32_t i = 0; i < width; i++)
		sum[i] += vector[i];
}

/* Add a vector times a weight to a sum */
static inline void
gpuvec_vector_add_weighted(float *restrict sum, const float *restrict vector, float weight,
						   uint32_t width)
{
	for (uint32_t i = 0; i < width; i++)
		sum[i] += weight * vector[i];
}

/* A vector times a weight */
static inline void
gpuvec_vector_scale(float *restrict to, const float *restrict vector, float weight, uint32_t width)
{
	for (uint32_t i = 0; i < width; i++)
		to[i] = weight * vector[i];
}

/* Make a mean of a sum */
static inline void
gpuvec_vector_divide(float *sum, float divisor, uint32_t width)
{
	if (divisor == 0)
		memset(sum, 0, width * sizeof(float));
	else
		for (uint32_t i = 0; i < width; i++)
			sum[i] /= divisor;
}

/* Vectors are scattered: how many of a bag are fetched ahead, and how much of each */
#define GPUVEC_PREFETCH_VECTORS	3
#define GPUVEC_PREFETCH_BYTES	1024
#define GPUVEC_LINE_BYTES		64

/* Fetch the beginning of a vector into the cache */
static inline void
gpuvec_vector_prefetch(const float *vector, uint32_t width)
{
	uint32_t	bytes = width * (uint32_t) sizeof(float);

	if (bytes > GPUVEC_PREFETCH_BYTES)
		bytes = GPUVEC_PREFETCH_BYTES;
	for (uint32_t i = 0; vector && i < bytes; i += GPUVEC_LINE_BYTES)
		__builtin_prefetch((const char *) vector + i);
}

/*
 * Pool one bag.  vectors[i] is the i-th key's, NULL if it was not found; weights may
 * be NULL.  Returns the number of floats written to `out`: `width`, or, for concat,
 * that times the number of keys (found ones, if others are skipped).
 */
static inline uint64_t
gpuvec_pool_bag(float *out, const float *const *vectors, const float *weights, uint64_t n,
				uint32_t width, gpuvec_pool_mode mode, gpuvec_missing missing)
{
	float		divisor = 0;

	if (mode == GPUVEC_POOL_CONCAT)
	{
		float	   *to = out;

		for (uint64_t i = 0; i < n; i++)
		{
			if (vectors[i] == NULL && missing == GPUVEC_MISSING_SKIP)
				continue;
			if (vectors[i] == NULL)
				memset(to, 0, width * sizeof(float));
			else if (weights)
				gpuvec_vector_scale(to, vectors[i], weights[i], width);
			else
				memcpy(to, vectors[i], width * sizeof(float));
			to += width;
		}
		return (uint64_t) (to - out);
	}
	memset(out, 0, width * sizeof(float));
	for (uint64_t i = 0; i < n; i++)
	{
		if (i + GPUVEC_PREFETCH_VECTORS < n)
			gpuvec_vector_prefetch(vectors[i + GPUVEC_PREFETCH_VECTORS], width);
		if (vectors[i] == NULL && missing == GPUVEC_MISSING_SKIP)
			continue;
		divisor += weights ? weights[i] : 1;
		if (vectors[i] == NULL)
			continue;
		if (weights)
			gpuvec_vector_add_weighted(out, vectors[i], weights[i], width);
		else
			gpuvec_vector_add(out, vectors[i], width);
	}
	if (mode == GPUVEC_POOL_MEAN)
		gpuvec_vector_divide(out, divisor, width);
	return width;
}

#endif							/* GPUVEC_EMBEDDING_H */
