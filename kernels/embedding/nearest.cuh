/*-------------------------------------------------------------------------
 *
 * nearest.cuh
 *	  What the files share that find the nearest vectors: queries, the order
 *	  of rows, and the steps of a round.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_NEAREST_CUH
#define GPUVEC_NEAREST_CUH

#include "kernels/device/lanes.cuh"
#include "kernels/embedding/cuda_embedding.h"

namespace gpuvec
{

/*
 * Queries that a group of threads scores at a time, unless there is only one
 */
#define QUERIES 8

/*
 * The order of the rows of an answer: words are compared one after another
 */
struct near_order
{
	uint64_t word[3]; /* for the score, the key, the tid */
};

/* A query of a batch */
struct near_query
{
	struct near_order bound; /* candidates are not behind it */
	double square;           /* product of the query with itself */
	uint32_t bounded;        /* boolean: there is a bound */
	/* candidates, including those for which there was no room */
	uint32_t count;
};

struct near_params
{
	const char *elements;
	const int64_t *keys;
	const uint64_t *tids;
	const uint8_t *live;
	uint64_t stride_bytes;
	uint32_t width;
	uint32_t first; /* slots to score: first .. end - 1 */
	uint32_t end;
	const double *queries; /* [nqueries][padded_width], padded with zeros */
	uint32_t padded_width;
	uint32_t nqueries;
	uint32_t ntiles; /* tiles of queries */
	struct near_query *states;
	uint32_t *slots; /* [nqueries][capacity] */
	double *scores;
	uint32_t capacity;
	uint32_t k;
	uint32_t *best_slots; /* [nqueries][k] */
	double *best_scores;
};

/* The first word of a row's order: the greater the score, the smaller */
static __device__ __forceinline__ uint64_t
score_word(double score)
{
	uint64_t bits = (uint64_t) __double_as_longlong(score + 0.0); /* -0 is 0 */

	return (bits >> 63) != 0 ? bits : ~bits & ~(UINT64_C(1) << 63);
}

/* Word 0, 1 or 2 of a row's order */
static __device__ __forceinline__ uint64_t
order_word(const struct near_params &p, int number, uint32_t slot, double score)
{
	return number == 0   ? score_word(score)
		   : number == 1 ? (uint64_t) p.keys[slot] ^ (UINT64_C(1) << 63)
						 : p.tids[slot];
}

/* True if a row is not behind the bound */
static __device__ __forceinline__ bool
within(const struct near_params &p, const struct near_order &bound, uint32_t slot, double score)
{
	for (int i = 0; i < 3; i++)
	{
		uint64_t word = order_word(p, i, slot, score);

		if (word != bound.word[i])
			return word < bound.word[i];
	}
	return true;
}

/*
 * In near_scores.cu: score the rows params->first .. params->end - 1; those
 * within the bounds become candidates
 */
extern cudaError_t
near_score(gpuvec_storage storage, gpuvec_metric metric, struct near_params *params,
		   cudaStream_t stream);

/* In near_best.cu: keep the best k candidates of each query, and the bound */
extern cudaError_t
near_select(const struct near_params &params, cudaStream_t stream);

/* In near_best.cu: copy the best rows of all queries to one array */
extern cudaError_t
near_collect(const struct near_params &params, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_NEAREST_CUH */
