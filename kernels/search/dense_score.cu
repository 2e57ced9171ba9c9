/*-------------------------------------------------------------------------
 *
 * dense_score.cu
 *	  Scores the pairs of row and query that dense.cu has listed.
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

/* Score a pair, and append the row to the query's candidates if it ranks */
static __device__ __forceinline__ void
score_pair(const struct scan_params &scan, uint2 pair)
{
	const struct candidate_sink sink = {scan.queries, scan.candidates, scan.capacity, scan.weights,
										scan.measure};
	const struct device_segment *segment = &scan.segments[pair_segment(pair)];
	uint32_t row = pair_row(pair);
	uint32_t q = pair_query(pair);

	/* a panel may end with places behind the last row */
	if (row < segment->nrows &&
		(segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
		emit_row(sink, q, &scan.queries[q].limits, pair_common(pair), segment->len[row],
				 segment->tid[row]);
}

static __global__ void
__launch_bounds__(SCORE_THREADS)
	dense_score_kernel(const __grid_constant__ struct dense_params params)
{
	uint32_t n;

	wait_for_previous();
	n = min(params.counts->pairs, params.room);
	for (uint32_t i = blockIdx.x * SCORE_THREADS + threadIdx.x; i < n;
		 i += gridDim.x * SCORE_THREADS)
		score_pair(params.scan, params.pairs[i]);
}

cudaError_t
dense_score(const struct dense_params *params, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(dense_score_kernel, dim3(blocks * SCORE_BLOCKS), SCORE_THREADS, 0, stream,
						  *params);
}

} // namespace gpuvec
