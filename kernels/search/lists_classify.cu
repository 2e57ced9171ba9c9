/*-------------------------------------------------------------------------
 *
 * lists_classify.cu
 *	  Sorts the ids of each query by what each segment has for them: bitmaps,
 *	  lists or nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

/*
 * Sort the len ids of query q by what a segment has for them.  The entries of
 * the segment, from unit `entries` on, become: slots staged in shared memory,
 * other slots, slot 0 up to a multiple of 8 slots, then ids with lists.
 *
 * Called by one warp for each query and segment.
 */
static __device__ __forceinline__ void
classify(const struct list_params &params, uint32_t segment, uint32_t q, const uint16_t *query_ids,
		 uint32_t len, uint32_t entries)
{
	uint32_t lane = threadIdx.x % 32;
	const struct device_lists *lists = &params.segments[segment].lists;
	uint32_t below = (1u << lane) - 1;
	uint32_t nslots[2] = {0, 0};
	uint32_t all; /* slots, padded to a multiple of 8 */
	uint32_t at[3];
	uint16_t *out = params.entries + ((size_t) segment * params.nentries + entries) * 8;

	if (lists->shift == 0)
		return;
	for (uint32_t i = lane; i < len; i += 32)
	{
		uint32_t id = query_ids[i];
		uint32_t slot = id <= lists->maxid ? lists->slot[id] : NO_SLOT;

		nslots[0] += slot <= lists->nstaged;
		nslots[1] += slot > lists->nstaged && slot != NO_SLOT;
	}
	__syncwarp();
	nslots[0] = __reduce_add_sync(FULL_WARP, nslots[0]);
	nslots[1] = __reduce_add_sync(FULL_WARP, nslots[1]);
	at[0] = 0;
	at[1] = nslots[0];
	all = (nslots[0] + nslots[1] + 7) / 8 * 8;
	at[2] = all;
	if (lane < all - nslots[0] - nslots[1])
		out[nslots[0] + nslots[1] + lane] = 0;
	for (uint32_t from = 0; from < len; from += 32)
	{
		uint32_t id = from + lane < len ? query_ids[from + lane] : ~0u;
		uint32_t slot = id <= lists->maxid ? lists->slot[id] : NO_SLOT;
		int kind = slot <= lists->nstaged ? 0 : slot != NO_SLOT ? 1 : id <= lists->maxid ? 2 : 3;

#pragma unroll
		for (int k = 0; k < 3; k++)
		{
			uint32_t mine = __ballot_sync(FULL_WARP, kind == k);

			if (kind == k)
				out[at[k] + __popc(mine & below)] = (uint16_t) (k < 2 ? slot : id);
			at[k] += __popc(mine);
		}
	}
	if (lane == 0)
	{
		uint32_t staged = nslots[1] > 0 ? nslots[0] / 8 * 8 : all;

		params.nentries_of[segment * params.nqueries + q] =
			make_uint4(staged, all - staged, at[2] - all, entries);
	}
}

#define CLASSIFY_WARPS 8

static __global__ void
__launch_bounds__(CLASSIFY_WARPS * 32)
	classify_kernel(const __grid_constant__ struct list_params params)
{
	uint32_t q = blockIdx.x * CLASSIFY_WARPS + threadIdx.x / 32;

	if (q < params.nqueries)
	{
		const struct query_state *query = &params.queries[q];

		classify(params, blockIdx.y, q, params.ids + query->ids, query->nids, query->entries);
	}
}

/*
 * The same for queries that are kernel parameters.  The first block stores
 * them for the kernels that follow.
 */
static __global__ void
__launch_bounds__(LONE_QUERIES * 32)
	classify_lone(const __grid_constant__ struct lone_params params)
{
	uint32_t q = threadIdx.x / 32;

	wait_for_previous();
	let_next_start();
	if (blockIdx.x == 0)
	{
		for (uint32_t i = threadIdx.x; i < params.ncounters; i += LONE_QUERIES * 32)
			params.counters[i] = 0;
		for (uint32_t i = threadIdx.x; i < params.nids; i += LONE_QUERIES * 32)
			params.stored_ids[i] = params.ids[i];
		if (threadIdx.x < params.lists.nqueries)
			params.lists.queries[threadIdx.x] = params.queries[threadIdx.x];
	}
	if (q < params.lists.nqueries)
	{
		const struct query_state *query = &params.queries[q];

		classify(params.lists, blockIdx.x, q, params.ids + query->ids, query->nids, query->entries);
	}
}

cudaError_t
lists_classify(const struct list_params *params, cudaStream_t stream)
{
	return launch(classify_kernel,
				  dim3((params->nqueries + CLASSIFY_WARPS - 1) / CLASSIFY_WARPS, params->nsegments),
				  CLASSIFY_WARPS * 32, 0, stream, *params);
}

cudaError_t
lists_classify_lone(const struct lone_params *params, cudaStream_t stream)
{
	return launch_chained(classify_lone, dim3(params->lists.nsegments), LONE_QUERIES * 32, 0,
						  stream, *params);
}

} // namespace gpuvec
