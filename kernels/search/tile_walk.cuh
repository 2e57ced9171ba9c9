/*-------------------------------------------------------------------------
 *
 * tile_walk.cuh
 *	  How the thread blocks of a scan go through the tiles of a round.
 *
 * A block takes one item after another, each of which has a range of groups
 * of 32 tiles.  Each warp takes strips of the range on its own: tiles of one
 * group that follow one another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TILE_WALK_CUH
#define GPUVEC_TILE_WALK_CUH

#include "kernels/device/instructions.cuh"
#include "kernels/search/search_kernels.h"

namespace gpuvec
{

/* In shared memory */
struct tile_walk
{
	uint32_t item;
	uint32_t next_slot;
};

/*
 * Take the next item; false if none is left, or all queries are canceled.
 * Called by the whole thread block.
 */
static __device__ __forceinline__ bool
take_item(const struct scan_params &params, struct tile_walk *walk, uint32_t *item)
{
	__syncthreads();
	if (threadIdx.x == 0)
	{
		bool stop = *(volatile const uint32_t *) params.stop;

		walk->item = stop ? ~0u : atomicAdd(params.next_item, 1);
		walk->next_slot = 0;
	}
	__syncthreads();
	*item = walk->item;
	return *item < params.nitems;
}

/*
 * Of a strip of n tiles, scan those in the round's classes:
 * scan(segment, tile, chunk, nchunks) for a tile that begins at a chunk.
 * Called by a whole warp.
 */
template <class Scan>
static __device__ __forceinline__ void
walk_strip(const struct scan_params &params, uint32_t group, uint32_t offset, uint32_t n,
		   const Scan &scan)
{
	uint32_t lane = threadIdx.x % 32;
	uint2 where = params.groups[group];
	const struct device_segment *segment = &params.segments[where.x];
	uint32_t tile = where.y + offset + lane;
	uint32_t hash = tile_class(where.x, tile);
	bool take =
		lane < n && tile < segment->ntiles && hash >= params.class_lo && hash < params.class_hi;
	uint32_t pending = __ballot_sync(FULL_WARP, take);
	uint4 mine = make_uint4(0, 0, 0, 0);

	if (take)
		mine = segment->tiles[tile];
#pragma unroll 1
	for (; pending != 0; pending &= pending - 1)
	{
		int src = __ffs(pending) - 1;
		uint32_t chunk = __shfl_sync(FULL_WARP, mine.x, src);
		uint32_t nchunks = __shfl_sync(FULL_WARP, mine.y, src) & ((1 << TILE_WHOLE_SHIFT) - 1);

		scan(segment, where.y + offset + src, chunk, nchunks);
	}
}

/*
 * Scan the strips of a range: strip(group, offset, n) for n <= 32 tiles from
 * an offset on.  Called by the whole thread block.
 */
template <class Strip>
static __device__ __forceinline__ void
walk_range(const struct scan_params &params, struct tile_walk *walk, uint32_t range,
		   const Strip &strip)
{
	uint32_t group = range * params.range_groups;
	uint32_t slots = min(params.range_groups, params.ngroups - group) * 32;

	for (;;)
	{
		uint32_t slot = 0;
		uint32_t end;

		if (threadIdx.x % 32 == 0)
			slot = atomicAdd(&walk->next_slot, params.grab);
		slot = __shfl_sync(FULL_WARP, slot, 0);
		if (slot >= slots)
			break;
		end = min(slot + params.grab, slots);
#pragma unroll 1
		for (; slot < end; slot += 32)
			strip(group + slot / 32, slot % 32, min(end - slot, 32u));
	}
}

} // namespace gpuvec

#endif /* GPUVEC_TILE_WALK_CUH */
