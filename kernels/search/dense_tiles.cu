/*-------------------------------------------------------------------------
 *
 * dense_tiles.cu
 *	  Lists the tiles that dense.cu counts in a round.
 *
 * These are the tiles of the round's classes in segments with bit vectors of
 * one number of chunks.  A warp lists those of a group of 32 tiles, which
 * stay together: neighbouring tiles have rows of about the same lengths.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/search_kernels.h"

namespace gpuvec
{

#define LIST_THREADS 256

static __global__ void
__launch_bounds__(LIST_THREADS)
	dense_list_kernel(const __grid_constant__ struct dense_params params)
{
	uint32_t group = (blockIdx.x * LIST_THREADS + threadIdx.x) / 32;
	uint32_t lane = threadIdx.x % 32;
	const struct device_segment *segment;
	uint32_t chosen;
	uint32_t first = 0;
	uint2 where;
	bool mine;

	wait_for_previous();
	if (group >= params.scan.ngroups)
		return;
	where = params.scan.groups[group];
	segment = &params.scan.segments[where.x];
	where.y += lane;
	mine = segment->bit_chunks == params.chunks && where.y < segment->ntiles &&
		   tile_class(where.x, where.y) - params.scan.class_lo <
			   params.scan.class_hi - params.scan.class_lo;
	chosen = __ballot_sync(FULL_WARP, mine);
	if (lane == 0 && chosen != 0)
		first = atomicAdd(params.listed, (uint32_t) __popc(chosen));
	first = __shfl_sync(FULL_WARP, first, 0);
	if (mine)
	{
		uint4 about = segment->tiles[where.y];
		size_t at = (size_t) where.y * params.chunks * (GPUVEC_TILE_ROWS / ROW_GROUP * ROW_LOADS);

		params.tiles[first + __popc(chosen & ((1u << lane) - 1))] = {
			where.x, where.y, about.z, about.w, segment->bits + at, 0};
	}
}

cudaError_t
dense_list(const struct dense_params *params, cudaStream_t stream)
{
	uint32_t blocks = (params->scan.ngroups * 32 + LIST_THREADS - 1) / LIST_THREADS;

	return launch_chained(dense_list_kernel, dim3(blocks), LIST_THREADS, 0, stream, *params);
}

} // namespace gpuvec
