/*-------------------------------------------------------------------------
 *
 * dense_panels.cu
 *	  Lists the panels of rows that dense.cu counts in a round.
 *
 * These are the panels of the round's classes in segments with bit vectors.
 * A panel has the class of its first tile.  A thread takes a panel, and a warp
 * lists those of neighboring panels, which stay together: they have rows of
 * about the same lengths.
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
#define GROUP_PANELS (32 / PANEL_TILES) /* of a group of tiles */

/* The panel that begins with a tile */
static __device__ __forceinline__ struct dense_panel
make_panel(const struct device_segment *segment, uint32_t number, uint32_t tile)
{
	size_t panel = tile / PANEL_TILES;
	uint32_t end = min(tile + PANEL_TILES, segment->ntiles);
	struct dense_panel result = {number,
								 tile * GPUVEC_TILE_ROWS,
								 ~0u,
								 0,
								 segment->bits + panel * (ROW_PANEL_BYTES / sizeof(uint4)),
								 0};

	for (; tile < end; tile++)
	{
		uint4 about = segment->tiles[tile];

		result.minlen = min(result.minlen, about.z);
		result.most = max(result.most, about.w);
	}
	return result;
}

/* True if a panel is to be counted in this round */
static __device__ __forceinline__ bool
is_listed(const struct dense_params &params, const struct device_segment *segment, uint2 where)
{
	return segment->bits != NULL && where.y < segment->ntiles &&
		   tile_class(where.x, where.y) - params.scan.class_lo <
			   params.scan.class_hi - params.scan.class_lo;
}

static __global__ void
__launch_bounds__(LIST_THREADS)
	dense_list_kernel(const __grid_constant__ struct dense_params params)
{
	uint32_t i = blockIdx.x * LIST_THREADS + threadIdx.x;
	uint32_t lane = threadIdx.x % 32;
	const struct device_segment *segment = NULL;
	uint2 where = {};
	uint32_t chosen;
	uint32_t first = 0;
	bool mine = false;

	wait_for_previous();
	if (i / GROUP_PANELS < params.scan.ngroups)
	{
		where = params.scan.groups[i / GROUP_PANELS];
		where.y += i % GROUP_PANELS * PANEL_TILES;
		segment = &params.scan.segments[where.x];
		mine = is_listed(params, segment, where);
	}
	chosen = __ballot_sync(FULL_WARP, mine);
	if (lane == 0 && chosen != 0)
		first = atomicAdd(&params.counts->listed, (uint32_t) __popc(chosen));
	first = __shfl_sync(FULL_WARP, first, 0);
	if (mine)
		params.panels[first + __popc(chosen & ((1u << lane) - 1))] =
			make_panel(segment, where.x, where.y);
}

cudaError_t
dense_list(const struct dense_params *params, cudaStream_t stream)
{
	uint32_t panels = params->scan.ngroups * GROUP_PANELS;

	return launch_chained(dense_list_kernel, dim3((panels + LIST_THREADS - 1) / LIST_THREADS),
						  LIST_THREADS, 0, stream, *params);
}

} // namespace gpuvec
