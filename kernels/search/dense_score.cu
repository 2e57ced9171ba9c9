/*-------------------------------------------------------------------------
 *
 * dense_score.cu
 *	  Counts and scores the rows that dense.cu has found.
 *
 * A find has a bit for each pair of row and query to count; mostly there is
 * one.  Each lane of a warp has a find.  The warp collects the pairs of its
 * lanes in shared memory, and takes 32 of them at a time, so that no lane
 * idles because its find had fewer pairs than another's.  The ids that row
 * and query have in common are counted by half warps, for one pair after the
 * other: each lane has one of the 16 pieces of both vectors.  Then each lane
 * scores a pair.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define SCORE_THREADS 256
#define SCORE_BLOCKS 4 /* on a multiprocessor */
#define PIECES (VECTOR_BYTES / (uint32_t) sizeof(uint4))

/* Pairs of a warp: fewer than 32 that are left, and one of each lane */
#define WARP_PAIRS 64

/* A pair of row and query to count and to score */
struct found_pair
{
	uint32_t panel; /* number of the row's panel in the list of the round */
	uint32_t where; /* the row's place in the panel, and the query */
};

#define PLACE_BITS 7
static_assert(PANEL_ROWS == 1 << PLACE_BITS, "a place in a panel has PLACE_BITS");

static __device__ __forceinline__ uint32_t
pair_place(const struct found_pair &pair)
{
	return pair.where % PANEL_ROWS;
}

static __device__ __forceinline__ uint32_t
pair_query(const struct found_pair &pair)
{
	return pair.where >> PLACE_BITS;
}

/* This lane's piece of a vector */
static __device__ __forceinline__ uint4
load_piece(const uint4 *vectors, size_t v, uint32_t panel)
{
	return __ldcg(&vectors[vector_word(v, panel, threadIdx.x % PIECES * 128) / 4]);
}

/* Bits that two pieces have in common */
static __device__ __forceinline__ uint32_t
common_bits(uint4 a, uint4 b)
{
	return __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
}

/*
 * Count the ids that row and query of each lane have in common; `bits` are
 * the vectors of the lane's panel
 */
static __device__ __forceinline__ uint32_t
count_pairs(const uint4 *queries, const uint4 *bits, const struct found_pair &pair)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t common = 0;

#pragma unroll 4
	for (uint32_t i = 0; i < PIECES; i++)
	{
		/* lane i of each half */
		uint32_t from = lane / PIECES * PIECES + i;
		const uint4 *panel =
			(const uint4 *) __shfl_sync(FULL_WARP, (unsigned long long) bits, from);
		struct found_pair other = {0, __shfl_sync(FULL_WARP, pair.where, from)};
		uint32_t n = common_bits(load_piece(panel, pair_place(other), PANEL_ROWS),
								 load_piece(queries, pair_query(other), PANEL_QUERIES));

#pragma unroll
		for (uint32_t d = PIECES / 2; d > 0; d /= 2)
			n += __shfl_xor_sync(FULL_WARP, n, d);
		common = lane == from ? n : common;
	}
	return common;
}

/* Score a pair, and append the row to the query's candidates if it ranks */
static __device__ __forceinline__ void
score_pair(const struct scan_params &scan, const struct dense_panel &panel,
		   const struct found_pair &pair, uint32_t common)
{
	const struct candidate_sink sink = {scan.queries, scan.candidates, scan.capacity, scan.scoring};
	const struct device_segment *segment = &scan.segments[panel.segment];
	uint32_t row = panel.row + pair_place(pair);
	uint32_t query = pair_query(pair);
	const struct query_limits *limits = &scan.queries[query].limits;

	/* a panel may end with places behind the last row */
	if (row < segment->nrows && (segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
		emit_row(sink, query, limits, {common, limits->len, segment->len[row]},
				 key_of_row(segment, row));
}

/* Take the lowest bit of a mask, which is not 0 */
static __device__ __forceinline__ uint32_t
take_bit(uint32_t &low, uint32_t &high)
{
	uint32_t &word = low ? low : high;
	uint32_t bit = (uint32_t) __ffs((int) word) - 1 + (low ? 0 : 32);

	word &= word - 1;
	return bit;
}

/* Count and score n of a warp's pairs, 1 to 32 */
static __device__ __forceinline__ void
score_pairs(const struct dense_params &params, const struct found_pair *pairs, uint32_t n)
{
	uint32_t lane = threadIdx.x % 32;
	/* lanes without a pair count the last one once more */
	struct found_pair pair = pairs[min(lane, n - 1)];
	struct dense_panel panel = params.panels[pair.panel];
	uint32_t common = count_pairs(params.bits, panel.bits, pair);

	if (lane < n)
		score_pair(params.scan, panel, pair, common);
}

/*
 * Collect the pairs that each lane has found, behind the n pairs that are
 * there, and count and score 32 as soon as they are together.  Returns how
 * many are left: fewer than 32.
 */
static __device__ __forceinline__ uint32_t
score_finds(const struct dense_params &params, struct found_pair *pairs, uint32_t n, uint4 find)
{
	uint32_t before = (1u << threadIdx.x % 32) - 1;
	uint32_t chosen;

#pragma unroll 1
	while ((chosen = __ballot_sync(FULL_WARP, (find.z | find.w) != 0)) != 0)
	{
		if (find.z | find.w)
		{
			uint32_t sum = take_bit(find.z, find.w);

			pairs[n + __popc(chosen & before)] = {find.x, find_row(find, sum) |
															  find_query(find, sum) << PLACE_BITS};
		}
		__syncwarp();
		n += __popc(chosen);
		if (n >= 32)
		{
			n -= 32;
			score_pairs(params, pairs + n, 32);
			/* the next pairs may overwrite these */
			__syncwarp();
		}
	}
	return n;
}

static __global__ void
__launch_bounds__(SCORE_THREADS, SCORE_BLOCKS)
	dense_score_kernel(const __grid_constant__ struct dense_params params)
{
	struct found_pair *pairs = (struct found_pair *) shared_memory + threadIdx.x / 32 * WARP_PAIRS;
	uint32_t lane = threadIdx.x % 32;
	uint32_t npairs = 0;
	uint32_t n;

	wait_for_previous();
	n = min(params.counts->finds, params.capacity);
	for (uint32_t at = blockIdx.x * SCORE_THREADS + threadIdx.x; at - lane < n;
		 at += gridDim.x * SCORE_THREADS)
	{
		uint4 find = make_uint4(0, 0, 0, 0);

		if (at < n)
			find = __ldcg(&params.finds[at]);
		npairs = score_finds(params, pairs, npairs, find);
	}
	if (npairs > 0)
		score_pairs(params, pairs, npairs);
}

cudaError_t
dense_score(const struct dense_params *params, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(dense_score_kernel, dim3(blocks * SCORE_BLOCKS), SCORE_THREADS,
						  SCORE_THREADS / 32 * WARP_PAIRS * sizeof(struct found_pair), stream,
						  *params);
}

} // namespace gpuvec
