/*-------------------------------------------------------------------------
 *
 * list_items.cuh
 *	  Hands out work items to the thread blocks that count by lists.
 *
 * An item is a block of a segment and some of the queries.  Thread blocks
 * take items until none is left, or until all queries are canceled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LIST_ITEMS_CUH
#define GPUVEC_LIST_ITEMS_CUH

#include "kernels/search/list_planes.cuh"

namespace gpuvec
{

/*
 * The rows of a segment that is one block, and the threads of the team that
 * counts in it
 */
#define WHOLE_ROWS (1 << WHOLE_SHIFT)
#define WHOLE_THREADS (WHOLE_ROWS / LANE_ROWS)

/* The number of an item's block in params.blocks[] */
static __device__ __forceinline__ uint32_t
item_block(const struct list_params &params, uint32_t item)
{
	uint32_t block = item / params.nslices;

	return params.own_blocks == 0
			   ? block
			   : params.own_first[block / params.own_blocks] + block % params.own_blocks;
}

/* The queries of an item: first query, number of queries */
static __device__ __forceinline__ uint2
item_range(const struct list_params &params, uint32_t item)
{
	if (params.own_blocks > 0)
		return make_uint2(item / params.own_blocks, 1);

	uint2 range =
		params.ranges ? params.ranges[item / params.nslices] : make_uint2(0, params.nqueries);
	uint32_t before = item % params.nslices * params.item_queries;

	if (before >= range.y)
		return make_uint2(0, 0);
	return make_uint2(range.x + before, min(range.y - before, params.item_queries));
}

/* Take an item for the whole thread block; ~0: none is left */
static __device__ __forceinline__ uint32_t
take_item(const struct list_params &params, struct team_shared *team)
{
	uint32_t item;

	__syncthreads();
	if (threadIdx.x == 0)
	{
		team->item =
			*(volatile const uint32_t *) params.stop ? ~0u : atomicAdd(params.next_item, 1);
		team->next_query = 0;
	}
	__syncthreads();
	item = team->item;
	return item < params.nblocks * params.nslices ? item : ~0u;
}

/* Count whole segments with a thread block, one query after another */
template <typename Counter, typename Count>
static __device__ __forceinline__ void
count_segments(const struct list_params &params, Counter &counter, Count count)
{
	uint32_t current = ~0u;

	for (;;)
	{
		uint32_t item = take_item(params, counter.team);
		uint2 queries;

		if (item == ~0u)
			break;
		queries = item_range(params, item);
		if (item_block(params, item) != current)
		{
			current = item_block(params, item);
			counter.enter_block(current);
		}
		for (uint32_t i = 0; i < queries.y; i++)
			if (!counter.is_counted(queries.x + i, current))
				count(queries.x + i);
	}
}

} // namespace gpuvec

#endif /* GPUVEC_LIST_ITEMS_CUH */
