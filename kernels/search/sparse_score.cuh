/*-------------------------------------------------------------------------
 *
 * sparse_score.cuh
 *	  Scores of rows by measures of sparse vectors.
 *
 * A score is a sum of float8 in ascending order of ids (core/sparse.h).  A
 * query has its terms in this order.  So a warp takes 32 terms of the query at
 * a time: each lane looks one up among the numbers of the row, which ascend.
 * Then all lanes add up those that were found, in the order of lanes.  That
 * takes no memory, however long query and row are.
 *
 * The values of a set are 1.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SPARSE_SCORE_CUH
#define GPUVEC_SPARSE_SCORE_CUH

#include "kernels/search/cold_table.cuh"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

/* What a row shares with a query */
struct sparse_shared_sum
{
	double sum;
	uint32_t common; /* number of common ids */
};

/* The sum of the squares of a row's values */
static __device__ __forceinline__ double
sparse_row_square(const struct device_segment *segment, uint32_t row)
{
	return segment->sums ? segment->sums[row].x : segment->len[row];
}

/* gpuvec_sparse_own() of a row, by a measure that needs it */
static __device__ __forceinline__ double
sparse_row_own(gpuvec_sparse_measure measure, const struct device_segment *segment, uint32_t row)
{
	return segment->sums && measure == GPUVEC_SPARSE_JACCARD ? segment->sums[row].y
															 : sparse_row_square(segment, row);
}

/*
 * True if a row has a negative value, which jaccard does not take.  Such rows
 * have a score above all, so that sessions learn of them.
 */
static __device__ __forceinline__ bool
sparse_row_refused(gpuvec_sparse_measure measure, const struct device_segment *segment,
				   uint32_t row)
{
	return measure == GPUVEC_SPARSE_JACCARD && segment->sums && segment->sums[row].y < 0;
}

/* The value that a row has for a hot number; false: it does not have it */
static __device__ __forceinline__ bool
find_hot_value(const struct device_segment *segment, uint32_t row, uint32_t number, float *value)
{
	/* number p of the row is ids[first + p / 8 * 256 + p % 8] */
	size_t first = ((size_t) segment->tiles[row / 32].x * 32 + row % 32) * 8;
	const uint16_t *ids = (const uint16_t *) segment->ids + first;
	uint32_t lo = 0;
	uint32_t len = segment->hot_len[row];
	uint32_t hi = len;
	size_t at;

	while (lo < hi)
	{
		uint32_t middle = (lo + hi) / 2;

		if (__ldg(&ids[(size_t) (middle / 8) * 256 + middle % 8]) < number)
			lo = middle + 1;
		else
			hi = middle;
	}
	at = (size_t) (lo / 8) * 256 + lo % 8;
	if (lo == len || __ldg(&ids[at]) != number)
		return false;
	*value = segment->values ? __ldg(&segment->values[first + at]) : 1;
	return true;
}

/* The same of a cold number */
static __device__ __forceinline__ bool
find_cold_value(const struct device_segment *segment, uint32_t row, uint32_t number, float *value)
{
	const struct device_cold &cold = segment->cold;
	uint2 postings = find_postings(cold, number);
	uint32_t lo = postings.x;
	uint32_t end = postings.x + postings.y;
	uint32_t hi = end;

	while (lo < hi)
	{
		uint32_t middle = lo + (hi - lo) / 2;

		if (cold.row[middle] < row)
			lo = middle + 1;
		else
			hi = middle;
	}
	if (lo == end || cold.row[lo] != row)
		return false;
	*value = cold.value ? cold.value[lo] : 1;
	return true;
}

/*
 * What a row shares with query q: hot numbers, and if COLD also cold ones.
 * Called by a whole warp, for one row; all lanes get the result.
 */
template <bool COLD>
static __device__ __forceinline__ struct sparse_shared_sum
sum_terms(const struct sparse_tables &tables, uint32_t q, const struct device_segment *segment,
		  uint32_t row)
{
	const struct sparse_query *query = &tables.queries[q];
	const struct sparse_term *terms = tables.terms + query->terms;
	uint32_t lane = threadIdx.x % 32;
	struct sparse_shared_sum shared = {0, 0};

#pragma unroll 1
	for (uint32_t i = 0; i < query->nterms; i += 32)
	{
		bool found = false;
		double term = 0;
		uint32_t votes;

		if (i + lane < query->nterms)
		{
			uint32_t number = terms[i + lane].number;
			float value = 0;

			if (number < GPUVEC_HOT_NUMBERS)
				found = find_hot_value(segment, row, number, &value);
			else if (COLD)
				found = find_cold_value(segment, row, number, &value);
			if (found)
				term = gpuvec_sparse_term(query->bound.measure, terms[i + lane].weight, value);
		}
		votes = __ballot_sync(FULL_WARP, found);
		shared.common += __popc(votes);
#pragma unroll 1
		for (; votes != 0; votes &= votes - 1)
			shared.sum += __shfl_sync(FULL_WARP, term, __ffs(votes) - 1);
	}
	return shared;
}

/* The score of a row, by what it shares with the query */
static __device__ __forceinline__ double
sparse_row_score(const struct sparse_query *query, const struct device_segment *segment,
				 uint32_t row, double sum)
{
	gpuvec_sparse_measure measure = query->bound.measure;
	gpuvec_sparse_shared shared = {sum, query->own, sparse_row_own(measure, segment, row)};

	return sparse_row_refused(measure, segment, row) ? INFINITY
													 : gpuvec_sparse_score(measure, shared);
}

/*
 * Score the rows of the lanes that have one, one after another, for query q;
 * called by a whole warp.  Each such lane gets the key of its row, and whether
 * it is within the query's limits.  The part of the key that tells the row is
 * `tid`.
 */
template <bool COLD>
static __device__ __forceinline__ bool
rank_sparse(const struct sparse_tables &tables, uint32_t q, const struct query_limits *limits,
			bool mine, const struct device_segment *segment, uint32_t row, uint64_t tid,
			struct row_key *key)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t pending = __ballot_sync(FULL_WARP, mine);
	struct sparse_shared_sum shared = {0, 0};

#pragma unroll 1
	for (; pending != 0; pending &= pending - 1)
	{
		uint32_t from = __ffs(pending) - 1;
		struct sparse_shared_sum one =
			sum_terms<COLD>(tables, q,
							(const struct device_segment *) __shfl_sync(
								FULL_WARP, (unsigned long long) segment, from),
							__shfl_sync(FULL_WARP, row, from));

		if (lane == from)
			shared = one;
	}
	return mine &&
		   rank_score(limits, sparse_row_score(&tables.queries[q], segment, row, shared.sum),
					  shared.common, tid, key);
}

} // namespace gpuvec

#endif /* GPUVEC_SPARSE_SCORE_CUH */
