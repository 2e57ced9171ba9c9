/*-------------------------------------------------------------------------
 *
 * dense_score.cu
 *	  Counts and scores the rows that dense.cu has found.
 *
 * A find has a bit for each pair of row and query to count; mostly there is
 * one.  Each lane of a warp has a find.  It takes a pair of it at a time,
 * until no lane has any.  The ids that row and query have in common are
 * counted by half warps, for one lane after the other: each lane has one of
 * the 16 pieces of both vectors.  Then all lanes score their pairs.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

#define SCORE_THREADS 256
#define SCORE_BLOCKS 4 /* on a multiprocessor */
#define PIECES (VECTOR_BYTES / (uint32_t) sizeof(uint4))

/* A pair of row and query to count and to score */
struct found_pair
{
	const uint4 *panel; /* vectors of the row's panel */
	uint32_t segment;
	uint32_t row;   /* in the segment */
	uint32_t place; /* in the panel */
	uint32_t query;
};

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
 * Count the ids that row and query of each lane have in common; `chosen` is
 * the mask of the lanes that have a pair
 */
static __device__ __forceinline__ uint32_t
count_pairs(const uint4 *queries, const struct found_pair &pair, uint32_t chosen)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t common = 0;

#pragma unroll 4
	for (uint32_t i = 0; i < PIECES; i++)
	{
		/* lane i of each half */
		uint32_t from = lane / PIECES * PIECES + i;
		const uint4 *panel =
			(const uint4 *) __shfl_sync(FULL_WARP, (unsigned long long) pair.panel, from);
		uint32_t place = __shfl_sync(FULL_WARP, pair.place, from);
		uint32_t query = __shfl_sync(FULL_WARP, pair.query, from);
		uint32_t n = 0;

		if (chosen >> from & 1)
			n = common_bits(load_piece(panel, place, PANEL_ROWS),
							load_piece(queries, query, PANEL_QUERIES));
#pragma unroll
		for (uint32_t d = PIECES / 2; d > 0; d /= 2)
			n += __shfl_xor_sync(FULL_WARP, n, d);
		common = lane == from ? n : common;
	}
	return common;
}

/* Score a pair, and append the row to the query's candidates if it ranks */
static __device__ __forceinline__ void
score_pair(const struct scan_params &scan, const struct found_pair &pair, uint32_t common)
{
	const struct candidate_sink sink = {scan.queries, scan.candidates, scan.capacity, scan.weights,
										scan.measure};
	const struct device_segment *segment = &scan.segments[pair.segment];
	uint32_t row = pair.row;

	/* a panel may end with places behind the last row */
	if (row < segment->nrows && (segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
		emit_row(sink, pair.query, &scan.queries[pair.query].limits, common, segment->len[row],
				 segment->tid[row]);
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

/* Count and score what each lane has found; some may have found nothing */
static __device__ __forceinline__ void
score_finds(const struct dense_params &params, uint4 find)
{
	struct dense_panel panel = params.panels[find.x];
	uint32_t chosen;

#pragma unroll 1
	while ((chosen = __ballot_sync(FULL_WARP, (find.z | find.w) != 0)) != 0)
	{
		struct found_pair pair = {panel.bits, panel.segment, 0, 0, 0};
		bool mine = (find.z | find.w) != 0;
		uint32_t common;

		if (mine)
		{
			uint32_t sum = take_bit(find.z, find.w);

			pair.place = find_row(find, sum);
			pair.row = panel.row + pair.place;
			pair.query = find_query(find, sum);
		}
		common = count_pairs(params.bits, pair, chosen);
		if (mine)
			score_pair(params.scan, pair, common);
	}
}

static __global__ void
__launch_bounds__(SCORE_THREADS, SCORE_BLOCKS)
	dense_score_kernel(const __grid_constant__ struct dense_params params)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t n;

	wait_for_previous();
	n = min(params.counts->finds, params.room);
	for (uint32_t at = blockIdx.x * SCORE_THREADS + threadIdx.x; at - lane < n;
		 at += gridDim.x * SCORE_THREADS)
	{
		uint4 find = make_uint4(0, 0, 0, 0);

		if (at < n)
			find = __ldcg(&params.finds[at]);
		score_finds(params, find);
	}
}

cudaError_t
dense_score(const struct dense_params *params, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(dense_score_kernel, dim3(blocks * SCORE_BLOCKS), SCORE_THREADS, 0, stream,
						  *params);
}

} // namespace gpuvec
