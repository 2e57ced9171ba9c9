/*-------------------------------------------------------------------------
 *
 * dense_score.cu
 *	  Scores the rows that dense.cu has found.
 *
 * A thread takes a find, which has four sums of two rows and two queries, and
 * scores those that reach their needs: mostly one.
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

/* Score a row for query q, and append it to the query's candidates if it ranks */
static __device__ __forceinline__ void
score_row(const struct scan_params &scan, const struct device_segment *segment, uint32_t row,
		  uint32_t q, uint32_t common)
{
	const struct candidate_sink sink = {scan.queries, scan.candidates, scan.capacity, scan.weights,
										scan.measure};

	/* a panel may end with places behind the last row */
	if (row < segment->nrows && (segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
		emit_row(sink, q, &scan.queries[q].limits, common, segment->len[row], segment->tid[row]);
}

static __global__ void
__launch_bounds__(SCORE_THREADS)
	dense_score_kernel(const __grid_constant__ struct dense_params params)
{
	uint32_t n;

	wait_for_previous();
	n = min(params.counts->finds, params.room);
	for (uint32_t at = blockIdx.x * SCORE_THREADS + threadIdx.x; at < n;
		 at += gridDim.x * SCORE_THREADS)
	{
		uint4 find = params.finds[at];
		struct dense_panel panel = params.panels[find.x];

#pragma unroll 1
		for (uint32_t i = 0; i < 4; i++)
			if (find_reached(find, i))
				score_row(params.scan, &params.scan.segments[panel.segment],
						  panel.row + find_row(find, i), find_query(find, i), find_sum(find, i));
	}
}

cudaError_t
dense_score(const struct dense_params *params, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(dense_score_kernel, dim3(blocks * SCORE_BLOCKS), SCORE_THREADS, 0, stream,
						  *params);
}

} // namespace gpuvec
