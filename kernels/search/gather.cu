/*-------------------------------------------------------------------------
 *
 * gather.cu
 *	  Counts the rows that pass a filter one by one, where they are few.
 *
 * The first kernel makes a list of these rows, from the filter's mask; one
 * list serves all queries with the filter.  Its order does not matter.  In
 * the second one a thread block takes a part of a list for one query.  Each
 * thread counts a row's ids with a bitmap of the query's, and emits it.
 *
 * Rows that share cold numbers with the query were emitted before, and are
 * left out of what is emitted here, as with scans and lists (cold_rows.cu).
 *
 * What it costs: a row of 60 ids has 8 chunks, of which a sector of 32 bytes
 * is read, and its length and tid.  32,768 rows are 10 MB, read at random: 10
 * us.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/emit.cuh"
#include "kernels/search/hot_bitmap.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define LIST_THREADS 256
#define GATHER_THREADS 256

/* List the rows of a filter in one segment */
static __global__ void
__launch_bounds__(LIST_THREADS) list_rows(const __grid_constant__ struct gather_params params)
{
	uint32_t number = blockIdx.x % params.nsegments;
	const struct row_list *list = &params.lists[blockIdx.x / params.nsegments];
	uint32_t *used = &params.used[blockIdx.x / params.nsegments];
	const struct device_segment *segment = &params.segments[number];
	const uint32_t *mask =
		params.masks + (size_t) list->filter * params.ntiles + segment->first_tile;

	for (uint32_t tile = threadIdx.x; tile < segment->ntiles; tile += LIST_THREADS)
	{
		uint32_t rows = mask[tile];
		uint32_t at;

		if (rows == 0)
			continue;
		at = list->first + atomicAdd(used, __popc(rows));
		for (; rows != 0; rows &= rows - 1)
			params.rows[at++] = make_uint2(number, tile * 32 + __ffs(rows) - 1);
	}
}

/* Count a part of a query's list */
static __global__ void
__launch_bounds__(GATHER_THREADS) gather_rows(const __grid_constant__ struct gather_params params)
{
	uint32_t *bitmap = (uint32_t *) shared_memory;
	uint32_t q = blockIdx.x / params.nparts;
	const struct query_state *query = &params.queries[q];
	const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
										params.weights, params.measure};
	uint32_t from = blockIdx.x % params.nparts * GATHER_PART;
	uint32_t n;

	if (from >= query->nrows || query->overflow || *(volatile const uint32_t *) params.stop)
		return;
	n = min(query->nrows - from, (uint32_t) GATHER_PART);
	mark_hot(bitmap, params.ids + query->ids, query->nids);
	__syncthreads();
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i - threadIdx.x < n; i += GATHER_THREADS)
	{
		bool mine = i < n;
		uint32_t common = 0;
		uint32_t len = 0;
		uint64_t tid = 0;

		if (mine)
		{
			uint2 place = params.rows[query->rows + from + i];
			const struct device_segment *segment = &params.segments[place.x];

			len = segment->len[place.y];
			tid = segment->tid[place.y];
			common = count_hot(bitmap, segment, place.y, segment->hot_len[place.y]);
		}
		__syncwarp();
		emit_rows(sink, q, &query->limits, mine, common, len, tid, query->disjoint != 0);
	}
}

cudaError_t
list_rows_launch(const struct gather_params *params, cudaStream_t stream)
{
	return launch(list_rows, (uint64_t) params->nlists * params->nsegments, LIST_THREADS, 0, stream,
				  *params);
}

cudaError_t
gather_launch(const struct gather_params *params, cudaStream_t stream)
{
	return launch(gather_rows, (uint64_t) params->nqueries * params->nparts, GATHER_THREADS,
				  HOT_WORDS * sizeof(uint32_t), stream, *params);
}

} // namespace gpuvec
