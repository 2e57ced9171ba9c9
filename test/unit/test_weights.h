/*-------------------------------------------------------------------------
 *
 * test_weights.h
 *	  Weights of queries by measures of sparse vectors, for tests that ask
 *	  by all measures.
 *
 * Measures have their numbers on the wire.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TEST_WEIGHTS_H
#define GPUVEC_TEST_WEIGHTS_H

#include <math.h>

#include "core/protocol_sets.h"
#include "engine/backend.h"

#include "unit_test.h"

#define MOST_WEIGHTS	64

/* Weights of a query's ids, and which one is that of each number */
typedef struct test_weights
{
	float		weights[MOST_WEIGHTS];
	uint16_t	places[MOST_WEIGHTS];
} test_weights;

/* qsort comparator of matches: by score, then by tid */
static inline int
compare_matches(const void *x, const void *y)
{
	const gpuvec_match *a = x;
	const gpuvec_match *b = y;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

static inline bool
is_sparse(int measure)
{
	return measure >= (int) GPUVEC_WIRE_SPARSE;
}

/* Draw weights for a query that has its numbers */
static inline void
draw_weights(int measure, gpuvec_topk_query *q, test_weights *w)
{
	uint32_t	n = gpuvec_query_len(q);

	if (!is_sparse(measure))
		return;
	for (uint32_t i = 0; i < n; i++)
	{
		float		weight = random_below(2) ? 0.1f + (float) random_below(3) : (float) (1 + random_below(1 << 24)) * 0x1p-22f;
		uint32_t	j = (uint32_t) random_below(i + 1);

		if (measure != GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD && random_below(4) == 0)
			weight = -weight;
		w->weights[i] = weight;
		w->places[i] = w->places[j];
		w->places[j] = (uint16_t) i;
		q->square += (double) weight * weight;
		q->own += measure == GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD ? weight : 0;
	}
	if (measure == GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_COSINE)
		q->own = q->square;
	q->weights = w->weights;
	q->places = w->places;
}

/*
 * The score of a set of len ids, where shares[i] says of the query's i-th
 * number, hot ones first, whether the set has it
 */
static inline double
weighted_score(int measure, const gpuvec_topk_query *q, const bool *shares, uint32_t len)
{
	bool		has[MOST_WEIGHTS] = {false};
	double		s = 0;
	double		ratio;

	for (uint32_t i = 0; i < q->len + q->ncold; i++)
		has[q->places[i]] = shares[i];
	for (uint32_t i = 0; i < gpuvec_query_len(q); i++)
		if (has[i])
			s += measure == GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD && q->weights[i] > 1 ? 1 : q->weights[i];
	if (measure == GPUVEC_WIRE_SPARSE)
		return s;
	if (measure == GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD)
		return q->own + len - s == 0 ? 0 : s / (q->own + len - s);
	ratio = q->own * len == 0 ? 0 : s * s / (q->own * len);
	ratio = sqrt(ratio > 1 ? 1 : ratio);
	return s < 0 ? 0 - ratio : ratio;
}

#endif							/* GPUVEC_TEST_WEIGHTS_H */
