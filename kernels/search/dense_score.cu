/*-------------------------------------------------------------------------
 *
 * dense_score.cu
 *	  Counts and scores the rows that dense.cu has found.
 *
 * A find says which rows of a panel may qualify for two queries, two
 * neighboring rows at a time.  Half a warp takes a find: a lane has one of the
 * 16 pieces of each vector.  The four sums of two rows and two queries are
 * added up over the lanes, and four lanes score them.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

#define SCORE_THREADS 256
#define SCORE_BLOCKS 8 /* on a multiprocessor */
#define PIECES (VECTOR_BYTES / (uint32_t) sizeof(uint4))

/* A lane's piece of a vector */
static __device__ __forceinline__ uint4
load_piece(const uint4 *vectors, size_t v, uint32_t panel)
{
	return vectors[vector_word(v, panel, threadIdx.x % PIECES * 128) / 4];
}

/* Bits that two pieces have in common */
static __device__ __forceinline__ uint32_t
common_bits(uint4 a, uint4 b)
{
	return __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
}

/* Score a row for query q, and append it to the query's candidates if it ranks */
static __device__ __forceinline__ void
score_row(const struct scan_params &scan, uint32_t number, uint32_t row, uint32_t q,
		  uint32_t common)
{
	const struct candidate_sink sink = {scan.queries, scan.candidates, scan.capacity, scan.weights,
										scan.measure};
	const struct device_segment *segment = &scan.segments[number];

	/* a panel may end with places behind the last row, as a batch with some
	 * behind the last query */
	if (q < scan.nqueries && row < segment->nrows &&
		(segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
		emit_row(sink, q, &scan.queries[q].limits, common, segment->len[row], segment->tid[row]);
}

/*
 * Score the two rows of a place for the two queries whose pieces the lane has.
 * Lane i of the half warp scores row i % 2 for query i / 2.
 */
static __device__ __forceinline__ void
score_place(const struct scan_params &scan, const struct dense_panel &panel, uint32_t first,
			uint32_t query, uint4 q0, uint4 q1)
{
	uint4 row[2] = {load_piece(panel.bits, first, PANEL_ROWS),
					load_piece(panel.bits, first + 1, PANEL_ROWS)};
	uint32_t common[4] = {common_bits(row[0], q0), common_bits(row[1], q0), common_bits(row[0], q1),
						  common_bits(row[1], q1)};
	uint32_t lane = threadIdx.x % PIECES;
	uint32_t mine = 0;

#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
	{
#pragma unroll
		for (uint32_t d = PIECES / 2; d > 0; d /= 2)
			common[i] += __shfl_xor_sync(FULL_WARP, common[i], d);
		mine = lane == i ? common[i] : mine;
	}
	if (lane < 4)
		score_row(scan, panel.segment, panel.row + first + lane % 2, query + lane / 2 * 8, mine);
}

/*
 * Score what a half warp has found; the other half may have found something
 * else, or nothing
 */
static __device__ __forceinline__ void
score_find(const struct dense_params &params, uint2 find)
{
	uint32_t places = find_places(find);
	uint32_t query = find_query(find);
	/* a batch has vectors for all of its queries */
	uint4 q0 = load_piece(params.bits, query, PANEL_QUERIES);
	uint4 q1 = load_piece(params.bits, query + 8, PANEL_QUERIES);
	struct dense_panel panel = params.panels[find.x];

	while (__any_sync(FULL_WARP, places != 0))
	{
		/* the half that is done counts some rows in vain */
		uint32_t place = places ? __ffs((int) places) - 1 : 0;
		uint32_t first = find_row(find, place);

		score_place(params.scan, panel, first, places ? query : params.scan.nqueries, q0, q1);
		places &= places - 1;
	}
}

static __global__ void
__launch_bounds__(SCORE_THREADS)
	dense_score_kernel(const __grid_constant__ struct dense_params params)
{
	uint32_t half = (blockIdx.x * SCORE_THREADS + threadIdx.x) / PIECES;
	uint32_t n;

	wait_for_previous();
	n = min(params.counts->finds, params.room);
	for (uint32_t i = half / 2 * 2; i < n; i += gridDim.x * (SCORE_THREADS / PIECES))
	{
		uint2 find = params.finds[min(i + half % 2, n - 1)];

		if (i + half % 2 >= n)
			find.y &= 0xFFFF;
		score_find(params, find);
	}
}

cudaError_t
dense_score(const struct dense_params *params, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(dense_score_kernel, dim3(blocks * SCORE_BLOCKS), SCORE_THREADS, 0, stream,
						  *params);
}

} // namespace gpuvec
