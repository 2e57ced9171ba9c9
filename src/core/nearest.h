/*-------------------------------------------------------------------------
 *
 * nearest.h
 *	  Compares and ranks vectors: the definition that the extension and the
 *	  engine share.
 *
 * Elements of vectors and queries are float32; everything else is float64.
 * Sums over elements are kept in lanes (product.h), so the result is the same
 * bits on every machine.
 *
 *	 cosine		q . v / sqrt((q . q)(v . v)), or 0 if the divisor is 0
 *	 ip			q . v
 *	 l2			-sqrt of the sum of (q - v)^2: the distance, negated so that
 *				the greatest score is best; 0, not -0, for equal vectors
 *
 * Rows are ordered by score descending, key ascending, tid ascending.  Rows
 * whose score is NaN are left out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_NEAREST_H
#define GPUVEC_NEAREST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/pooling.h"
#include "core/product.h"

/* A row of an answer */
typedef struct gpuvec_near
{
	double		score;
	int64_t		key;
	uint64_t	tid;
} gpuvec_near;

/* True if a comes before b in the answer */
static inline bool
gpuvec_nearer(const gpuvec_near *a, const gpuvec_near *b)
{
	if (a->score != b->score)
		return a->score > b->score;
	if (a->key != b->key)
		return a->key < b->key;
	return a->tid < b->tid;
}

/* The sum of (q - v)^2 */
static inline double
gpuvec_square_distance(const float *restrict q, const float *restrict v, uint32_t width)
{
	double		lanes[GPUVEC_LANES] = {0};
	uint32_t	i = 0;

	for (; i + GPUVEC_LANES <= width; i += GPUVEC_LANES)
		for (int j = 0; j < GPUVEC_LANES; j++)
		{
			double		d = (double) q[i + j] - (double) v[i + j];

			lanes[j] += d * d;
		}
	for (int j = 0; i + j < width; j++)
	{
		double		d = (double) q[i + j] - (double) v[i + j];

		lanes[j] += d * d;
	}
	return gpuvec_fold(lanes);
}

/* The score of vector v; qq = q . q */
static inline double
gpuvec_near_score(gpuvec_metric metric, const float *q, double qq, const float *v, uint32_t width)
{
	double		product;
	double		squares;

	if (metric == GPUVEC_METRIC_L2)
		return 0 - sqrt(gpuvec_square_distance(q, v, width));
	product = gpuvec_product(q, v, width);
	if (metric == GPUVEC_METRIC_IP)
		return product;
	squares = qq * gpuvec_product(v, v, width);
	return squares == 0 ? 0 : product / sqrt(squares);
}

/*
 * The scores of n consecutive vectors.  `scratch` has room for one vector
 * unless they are float32.
 */
static inline void
gpuvec_near_scores(double *scores, gpuvec_metric metric, const float *q, double qq,
				   const void *vectors, uint64_t n, uint32_t width, gpuvec_storage storage,
				   float *scratch)
{
	for (uint64_t i = 0; i < n; i++)
	{
		const float *v = (const float *) vectors + i * width;

		if (storage == GPUVEC_FLOAT16)
		{
			gpuvec_halves_to_floats(scratch, (const uint16_t *) vectors + i * width, width);
			v = scratch;
		}
		scores[i] = gpuvec_near_score(metric, q, qq, v, width);
	}
}

/* The k best rows so far: a heap, the worst row at the root */
typedef struct gpuvec_near_heap
{
	gpuvec_near *rows;			/* [k] */
	uint64_t	n;
	uint64_t	k;
} gpuvec_near_heap;

/* True if a row with this score cannot be among the best k */
static inline bool
gpuvec_near_hopeless(const gpuvec_near_heap *heap, double score)
{
	return isnan(score) || (heap->n == heap->k && score < heap->rows[0].score);
}

/* Restore the heap below row i */
static inline void
gpuvec_near_sink(gpuvec_near_heap *heap, uint64_t i)
{
	gpuvec_near row = heap->rows[i];

	for (;;)
	{
		uint64_t	child = 2 * i + 1;

		if (child >= heap->n)
			break;
		if (child + 1 < heap->n && gpuvec_nearer(&heap->rows[child], &heap->rows[child + 1]))
			child++;
		if (!gpuvec_nearer(&row, &heap->rows[child]))
			break;
		heap->rows[i] = heap->rows[child];
		i = child;
	}
	heap->rows[i] = row;
}

/* Add a row if it is among the best k so far */
static inline void
gpuvec_near_offer(gpuvec_near_heap *heap, const gpuvec_near *row)
{
	uint64_t	i = heap->n;

	if (heap->n == heap->k)
	{
		if (gpuvec_nearer(row, &heap->rows[0]))
		{
			heap->rows[0] = *row;
			gpuvec_near_sink(heap, 0);
		}
		return;
	}
	heap->rows[heap->n++] = *row;
	while (i > 0 && gpuvec_nearer(&heap->rows[(i - 1) / 2], row))
	{
		heap->rows[i] = heap->rows[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap->rows[i] = *row;
}

/* Sort the rows, best first.  They are not a heap afterwards. */
static inline void
gpuvec_near_sort(gpuvec_near_heap *heap)
{
	uint64_t	n = heap->n;

	while (heap->n > 1)
	{
		gpuvec_near worst = heap->rows[0];

		GPUVEC_STEP(heap->n);
		heap->rows[0] = heap->rows[--heap->n];
		gpuvec_near_sink(heap, 0);
		heap->rows[heap->n] = worst;
	}
	heap->n = n;
}

#endif							/* GPUVEC_NEAREST_H */
