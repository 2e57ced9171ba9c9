/*-------------------------------------------------------------------------
 *
 * gather.cu
 *	  Counts the rows that pass a filter one by one, where they are few.
 *
 * The first kernel makes a list of these rows, from the filter's mask; one
 * list serves all queries with the filter.  Its order does not matter.  A
 * thread block lists the rows of a segment: it counts them, takes as many
 * places at once, and then writes.
 *
 * In the second one a thread block takes a part of a list for one query.
 * Each thread counts the ids of one row with a bitmap of the query's.  Of the
 * rows that rank, the block emits no more than the k best: each thread
 * compares its key with all others.  What is among the k best of all rows is
 * among those of its slice.  So a selection of few candidates follows, even
 * where tens of thousands of rows pass: it would take longer than all else.
 *
 * Rows that share cold numbers with the query were emitted before, and are
 * left out of what is emitted here, as with scans and lists (cold_rows.cu).
 * Here they are counted too low, and may come behind the position that they
 * come before in truth.  So they must not take the places of others: a query
 * with cold numbers has all rows emitted.
 *
 * By measures of sparse vectors, a warp scores its rows one after another.
 *
 * What it costs: a row of 60 ids has 8 chunks, of which a sector of 32 bytes
 * is read, and its length and tid.  32,768 rows are 10 MB, read at random, by
 * 128 blocks: 10 us.  The comparison takes 256 steps, 2 us.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/emit.cuh"
#include "kernels/search/hot_bitmap.cuh"
#include "kernels/search/sparse_score.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define LIST_THREADS 256

/* Shared memory of a thread block that lists rows */
struct list_shared
{
	uint32_t rows[LIST_THREADS / 32]; /* of each warp, then of those before it */
	uint32_t first;
};

/*
 * The position of a thread's first row, where each thread of the block has n
 * rows; takes places for all of them
 */
static __device__ __forceinline__ uint32_t
take_places(struct list_shared *shared, uint32_t n, uint32_t *used)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t warp = threadIdx.x / 32;
	uint32_t upto = sum_upto_lane(n);

	if (lane == 31)
		shared->rows[warp] = upto;
	__syncthreads();
	if (threadIdx.x == 0)
	{
		uint32_t sum = 0;

		for (uint32_t i = 0; i < LIST_THREADS / 32; i++)
		{
			uint32_t rows = shared->rows[i];

			shared->rows[i] = sum;
			sum += rows;
		}
		shared->first = sum > 0 ? atomicAdd(used, sum) : 0;
	}
	__syncthreads();
	return shared->first + shared->rows[warp] + upto - n;
}

/* List the rows of a filter in one segment */
static __global__ void
__launch_bounds__(LIST_THREADS) list_rows(const __grid_constant__ struct gather_params params)
{
	uint32_t number = blockIdx.x % params.nsegments;
	const struct row_list *list = &params.lists[blockIdx.x / params.nsegments];
	const struct device_segment *segment = &params.segments[number];
	const uint32_t *mask = list->mask + segment->first_tile;
	uint32_t n = 0;
	uint32_t at;

	for (uint32_t tile = threadIdx.x; tile < segment->ntiles; tile += LIST_THREADS)
		n += __popc(mask[tile]);
	__syncwarp();
	at = (uint32_t) list->first + take_places((struct list_shared *) shared_memory, n,
											  &params.used[blockIdx.x / params.nsegments]);
	if (n == 0)
		return;
	for (uint32_t tile = threadIdx.x; tile < segment->ntiles; tile += LIST_THREADS)
		for (uint32_t rows = mask[tile]; rows != 0; rows &= rows - 1)
			params.rows[at++] = make_uint2(number, tile * 32 + __ffs(rows) - 1);
}

/* Shared memory of a thread block that gathers */
struct __align__(16) gather_shared
{
	struct row_key keys[GATHER_SLICE];
	uint32_t bitmap[HOT_WORDS]; /* hot numbers of the query */
};

/*
 * True if the row of this thread, which has a key if it ranks, is among the k
 * best of the block; called by all threads
 */
static __device__ __forceinline__ bool
is_among_best(struct row_key *keys, bool ranks, const struct row_key &key, uint32_t k)
{
	uint32_t better = 0;

	if (ranks)
		keys[threadIdx.x] = key;
	else
		keys[threadIdx.x] = {~UINT64_C(0), ~UINT64_C(0)};
	__syncthreads();
	for (uint32_t i = 0; ranks && i < GATHER_SLICE; i++)
		better += key_less(keys[i].hi, keys[i].lo, key.hi, key.lo);
	__syncwarp();
	return ranks && better < k;
}

/*
 * Count row i of a query's list, by the bitmap.  True, and *key is set, if it
 * ranks.
 */
static __device__ __forceinline__ bool
rank_listed(const struct gather_params &params, const struct candidate_sink &sink,
			const struct query_state *query, uint32_t i, struct row_key *key)
{
	struct gather_shared *shared = (struct gather_shared *) shared_memory;
	uint2 place = params.rows[query->rows + i];
	const struct device_segment *segment = &params.segments[place.x];
	uint32_t common = count_hot(shared->bitmap, segment, place.y, segment->hot_len[place.y]);

	return rank_row(sink, &query->limits, {common, query->limits.len, segment->len[place.y]},
					key_of_row(segment, place.y), query->disjoint != 0, key);
}

/* The same by scores, a row for each lane; called by a whole warp */
static __device__ __forceinline__ bool
rank_listed_sparse(const struct gather_params &params, uint32_t q, uint32_t i, struct row_key *key)
{
	const struct query_state *query = &params.queries[q];
	bool mine = i < query->nrows;
	uint2 place = mine ? params.rows[query->rows + i] : make_uint2(0, 0);
	const struct device_segment *segment = &params.segments[place.x];

	return rank_sparse<false>(params.sparse, q, &query->limits, mine, segment, place.y,
							  mine ? key_of_row(segment, place.y) : 0, key);
}

/* Where the rows of the lanes are that count a slice: see warp_rows */
struct listed_rows
{
	const struct gather_params &params;
	const struct query_state *query;

	__device__ __forceinline__ void
	mark(uint32_t *marks, uint32_t rows) const
	{
		uint32_t i = blockIdx.x % params.nslices * GATHER_SLICE + threadIdx.x;

		if (rows >> threadIdx.x % 32 & 1)
		{
			uint2 place = params.rows[query->rows + i];

			lane_row{&params.segments[place.x], place.y}.mark(marks, rows);
		}
	}
};

/* Count a slice of a query's list; COUNTS: for a query that counts rows */
template <bool SPARSE, bool COUNTS>
static __global__ void
__launch_bounds__(GATHER_SLICE) gather_rows(const __grid_constant__ struct gather_params params)
{
	struct gather_shared *shared = (struct gather_shared *) shared_memory;
	uint32_t q = blockIdx.x / params.nslices;
	const struct query_state *query = &params.queries[q];
	const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
										params.scoring, &params.counts};
	uint32_t i = blockIdx.x % params.nslices * GATHER_SLICE + threadIdx.x;
	struct row_key key = {0, 0};
	bool ranks = false;

	if (i - threadIdx.x >= query->nrows || query->overflow)
		return;
	if constexpr (SPARSE)
		ranks = rank_listed_sparse(params, q, i, &key);
	else
	{
		mark_hot(shared->bitmap, params.ids + query->ids, query->nids);
		__syncthreads();
		if (i < query->nrows)
			ranks = rank_listed(params, sink, query, i, &key);
	}
	if (!COUNTS && query->k < GATHER_SLICE && query->ncold == 0)
		ranks = is_among_best(shared->keys, ranks, key, query->k);
	__syncwarp();
	append_rows<COUNTS>(sink, q, ranks, key, listed_rows{params, query});
}

cudaError_t
list_rows_launch(const struct gather_params *params, cudaStream_t stream)
{
	return launch(list_rows, (uint64_t) params->nlists * params->nsegments, LIST_THREADS,
				  sizeof(struct list_shared), stream, *params);
}

template <bool COUNTS>
static void (*gather_variant(bool sparse))(const struct gather_params)
{
	return sparse ? gather_rows<true, COUNTS> : gather_rows<false, COUNTS>;
}

cudaError_t
gather_launch(const struct gather_params *params, bool counts, cudaStream_t stream)
{
	bool sparse = params->scoring.sparse != 0;

	return launch(counts ? gather_variant<true>(sparse) : gather_variant<false>(sparse),
				  (uint64_t) params->nqueries * params->nslices, GATHER_SLICE,
				  sizeof(struct gather_shared), stream, *params);
}

} // namespace gpuvec
