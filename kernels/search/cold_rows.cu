/*-------------------------------------------------------------------------
 *
 * cold_rows.cu
 *	  Finds the rows that share cold numbers with queries, counts them
 *	  exactly, and emits them.
 *
 * Scans and lists count hot numbers only.  Let C be the live rows that share
 * a cold number with the query.  What scans and lists count is all that a row
 * outside C shares, but too little for a row of C.  As on the CPU
 * (engine/cpu/cold_rows.c, which has the proof), a round therefore has three
 * slices:
 *
 *	1. First of all, the rows of C are found in the cold postings.  Each is
 *	   counted exactly, its cold numbers by the postings and its hot ones in
 *	   its tile, and emitted if it ranks within the query's limits.
 *	2. Scans and lists emit rows as if there were no cold numbers.
 *	3. Before candidates are selected or tighten a bound, those that are rows
 *	   of C but were counted by hot numbers only are left out (select.cu).
 *
 * So at each selection a row is there at most once, with its exact count, and
 * each bound is the key of the k-th of k rows that qualify.  Rows that scans
 * and lists skip, because gpuvec_need says that they share too few numbers,
 * would not qualify if they are outside C, and do not matter if they are in
 * C.  In step 2 a row of C may take room for candidates.  A query that has
 * too little room then is run again, as any other.
 *
 * By measures of sparse vectors no count says that a row of C cannot qualify,
 * so each one is scored.  The table has counts all the same: they tell rows
 * that were scored by hot numbers only.
 *
 * Rows that do not pass the query's filter take part nowhere, so they are not
 * in C.
 *
 * C is a hash table for each query (cold_table.cuh), whose size is a guess.
 * If it is too small, some rows of C are counted too low, or are not known.
 * Even a bound from such a round might be wrong: with too low a count, a row
 * may seem to come behind the position that it comes before in truth.  So the
 * query's whole round is dropped (cold_full).  It is run again, if need be in
 * rounds of as few tiles as there is room for: a round finds only those rows
 * of C that are in its tiles.
 *
 * Step 1 is three kernels.  The first empties the tables.  In the second a
 * warp looks up 32 cold numbers of a query in one segment, by binary search,
 * and then takes all their postings together.  In the third a thread block
 * takes the rows of a slice of a query's table, each thread one, and tests
 * their hot numbers against a bitmap of those of the query.
 *
 * What it costs: 2,000 queries of 64 ids that follow Zipf's law over
 * 10,000,000 ids, 65,536 of them hot, have 19 cold numbers and 1,900 rows in
 * C each, of 8.5 million.  In 130 segments these are 5 million binary
 * searches, of which the last 3 or 4 steps leave the L2 cache: 0.6 GB.  3.8
 * million postings read their row's tid and live bit, and change two words of
 * a table: 0.5 GB.  Their rows have 6 chunks each, of which a sector of 32
 * bytes is read: 0.8 GB.  Tables of 6,000 slots are 0.2 GB, written once and
 * read once.  So about 2.3 GB, or 1 ms where half of 4.8 TB/s is reached.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/device/launch.h"
#include "kernels/search/cold_table.cuh"
#include "kernels/search/emit.cuh"
#include "kernels/search/hot_bitmap.cuh"
#include "kernels/search/sparse_score.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define COLD_THREADS 256
#define MOST_BLOCKS 65536

/* Empty all tables */
static __global__ void
__launch_bounds__(COLD_THREADS) clear_tables(const __grid_constant__ struct cold_params params)
{
	uint32_t first = blockIdx.x * COLD_THREADS + threadIdx.x;
	uint4 *keys = (uint4 *) params.tables.keys;
	uint4 *places = (uint4 *) params.tables.places;

	wait_for_previous();
	let_next_start();
	for (uint32_t i = first; i < params.nslots / 2; i += gridDim.x * COLD_THREADS)
	{
		keys[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
		places[i] = make_uint4(0, 0, 0, 0);
	}
	for (uint32_t q = first; q < params.nqueries; q += gridDim.x * COLD_THREADS)
		params.queries[q].cold_full = 0;
}

/*
 * The first lane whose number is greater than `position`; numbers ascend from
 * lane to lane, and the last one is greater
 */
static __device__ __forceinline__ uint32_t
lane_beyond(uint32_t number, uint32_t position)
{
	uint32_t found = 0;

#pragma unroll
	for (uint32_t step = 16; step > 0; step /= 2)
		if (__shfl_sync(FULL_WARP, number, found + step - 1) <= position)
			found += step;
	return found;
}

/*
 * True if this row of a segment is live, passes the query's filter, and is in
 * a tile of the round
 */
static __device__ __forceinline__ bool
row_counts(const struct cold_params &params, const struct query_state *query, uint32_t segment,
		   uint32_t row)
{
	const uint32_t *live = params.segments[segment].live;
	uint32_t hash = tile_class(segment, row / 32);

	return hash >= params.class_lo && hash < params.class_hi &&
		   (live == NULL || (live[row / 32] >> row % 32 & 1)) &&
		   (mask_word(&query->limits, &params.segments[segment], row / 32) >> row % 32 & 1);
}

/*
 * Count the postings of up to 32 numbers in a segment, a number for each
 * lane; called by a whole warp.  Stops if the query's table is full.
 */
static __device__ __forceinline__ void
count_postings(const struct cold_params &params, struct query_state *query, uint32_t segment,
			   uint2 postings)
{
	const struct device_segment *s = &params.segments[segment];
	uint32_t lane = threadIdx.x % 32;
	uint32_t upto = sum_upto_lane(postings.y);
	uint32_t total = __shfl_sync(FULL_WARP, upto, 31);
	uint32_t first = postings.x - (upto - postings.y); /* where position 0 would be */

#pragma unroll 1
	for (uint32_t i = 0; i < total; i += 32)
	{
		uint32_t position = min(i + lane, total - 1);
		uint32_t start = __shfl_sync(FULL_WARP, first, lane_beyond(upto, position));
		bool ok = true;

		if (i + lane < total)
		{
			uint32_t row = s->cold.row[start + position];

			if (row_counts(params, query, segment, row))
				ok = count_cold(params.tables, query, key_of_row(s, row), segment, row);
		}
		if (!__all_sync(FULL_WARP, ok))
		{
			if (lane == 0)
				query->cold_full = 1;
			break;
		}
	}
}

/* True if it is no use to go on; called by a whole warp */
static __device__ __forceinline__ bool
gives_up(const struct cold_params &params, const struct query_state *query)
{
	return __any_sync(FULL_WARP, *(volatile const uint32_t *) params.stop ||
									 *(volatile const uint32_t *) &query->cold_full);
}

/* Fill the tables; a warp for each piece and segment with cold numbers */
static __global__ void
__launch_bounds__(COLD_THREADS) fill_tables(const __grid_constant__ struct cold_params params)
{
	uint32_t lane = threadIdx.x % 32;
	uint64_t ntasks = (uint64_t) params.npieces * params.ncold_segments;
	uint64_t task = ((uint64_t) blockIdx.x * COLD_THREADS + threadIdx.x) / 32;

	wait_for_previous();
	let_next_start();
	for (; task < ntasks; task += (uint64_t) gridDim.x * (COLD_THREADS / 32))
	{
		uint2 piece = params.pieces[task % params.npieces];
		uint32_t segment = params.cold_segments[task / params.npieces];
		struct query_state *query = &params.queries[piece.x];
		uint2 postings = make_uint2(0, 0);

		if (gives_up(params, query))
			continue;
		if (piece.y + lane < query->ncold)
			postings = find_postings(params.segments[segment].cold,
									 params.numbers[query->cold + piece.y + lane]);
		count_postings(params, query, segment, postings);
	}
}

/* Shared memory of a thread block that emits */
struct __align__(16) cold_shared
{
	uint32_t bitmap[HOT_WORDS]; /* hot numbers of the query */
	uint16_t used[COLD_SLICE];  /* slots of the slice that have rows */
	uint32_t nused;
	uint32_t padding[3];
};

/*
 * Complete the count of the row in a slot, unless it cannot qualify even with
 * all hot numbers: then no other step of the search emits it.  The row's
 * length and count go to *len and *common.  Returns false if it cannot
 * qualify.
 */
static __device__ __forceinline__ bool
complete_row(const struct cold_params &params, const struct query_state *query,
			 const uint32_t *bitmap, uint2 *place, uint32_t *len, uint32_t *common)
{
	const struct device_segment *segment = &params.segments[place->x];
	uint32_t row = place->y >> 16;
	uint32_t hot_len = segment->hot_len[row];
	uint32_t need;

	*len = segment->len[row];
	*common = (place->y & 0xFFFF) + 1;
	need = gpuvec_need_with(params.scoring, query->limits.len, *len,
							bound_score(query->limits.bound.hi));
	if (*common + min(hot_len, query->nids) < need)
		return false;
	*common += count_hot(bitmap, segment, row, hot_len);
	place->y = row << 16 | (*common - 1);
	return true;
}

/* Where the rows of the lanes are, by their slots: see warp_rows */
struct slot_rows
{
	const struct cold_params &params;
	uint32_t slot;

	__device__ __forceinline__ void
	mark(uint32_t *marks, uint32_t rows) const
	{
		uint2 place = params.tables.places[slot];

		lane_row{&params.segments[place.x], place.y >> 16}.mark(marks, rows);
	}
};

/*
 * Emit the rows in some slots by counts: one of each lane that has one, with
 * the bitmap of the query's hot numbers
 */
template <bool COUNTS>
static __device__ __forceinline__ void
emit_counted(const struct cold_params &params, const struct candidate_sink &sink, uint32_t q,
			 const uint32_t *bitmap, bool mine, uint32_t slot)
{
	const struct query_state *query = &params.queries[q];
	uint32_t len = 0;
	uint32_t common = 0;

	mine = mine && complete_row(params, query, bitmap, &params.tables.places[slot], &len, &common);
	emit_rows<COUNTS>(sink, q, &query->limits, mine, {common, query->limits.len, len},
					  params.tables.keys[slot], slot_rows{params, slot});
}

/* The same by scores */
template <bool COUNTS>
static __device__ __forceinline__ void
emit_scored(const struct cold_params &params, const struct candidate_sink &sink, uint32_t q,
			bool mine, uint32_t slot)
{
	uint2 place = mine ? params.tables.places[slot] : make_uint2(0, 0);
	uint32_t row = place.y >> 16;
	struct row_key key = {0, 0};
	bool ranks = rank_sparse<true>(params.sparse, q, &params.queries[q].limits, mine,
								   &params.segments[place.x], row, params.tables.keys[slot], &key);

	if (mine)
		params.tables.places[slot].y =
			row << 16 | (((uint32_t) (key.lo & KEY_COMMON_MASK) - 1) & 0xFFFF);
	append_rows<COUNTS>(sink, q, ranks, key, slot_rows{params, slot});
}

/*
 * Emit the rows in a part of a query's table; a thread block for each.
 * COUNTS: for a query that counts rows.
 */
template <bool SPARSE, bool COUNTS>
static __global__ void
__launch_bounds__(COLD_THREADS) emit_tables(const __grid_constant__ struct cold_params params)
{
	struct cold_shared *shared = (struct cold_shared *) shared_memory;
	uint32_t q = blockIdx.x / params.nslices;
	uint32_t from = blockIdx.x % params.nslices * COLD_SLICE;
	const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
										params.scoring, &params.counts};
	const struct query_state *query = &params.queries[q];
	uint32_t n;

	wait_for_previous();
	let_next_start();
	if (query->ncold == 0 || query->cold_full || from >= query->nslots)
		return;
	if (threadIdx.x == 0)
		shared->nused = 0;
	if constexpr (SPARSE)
		__syncthreads();
	else
		mark_hot(shared->bitmap, params.ids + query->ids, query->nids);
	n = min(query->nslots - from, (uint32_t) COLD_SLICE);
	from += query->table;
	for (uint32_t i = threadIdx.x; i < n; i += COLD_THREADS)
		if (params.tables.keys[from + i] != COLD_FREE)
			shared->used[atomicAdd(&shared->nused, 1)] = (uint16_t) i;
	__syncthreads();
	n = shared->nused;
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i - threadIdx.x < n; i += COLD_THREADS)
	{
		bool mine = i < n;
		uint32_t slot = from + (mine ? shared->used[i] : 0);

		if constexpr (SPARSE)
			emit_scored<COUNTS>(params, sink, q, mine, slot);
		else
			emit_counted<COUNTS>(params, sink, q, shared->bitmap, mine, slot);
	}
}

template <bool COUNTS>
static void (*emit_variant(bool sparse))(const struct cold_params)
{
	return sparse ? emit_tables<true, COUNTS> : emit_tables<false, COUNTS>;
}

/* Fill the tables, and emit their rows */
cudaError_t
cold_launch(const struct cold_params *params, bool counts, cudaStream_t stream)
{
	bool sparse = params->scoring.sparse != 0;
	uint64_t clears = (params->nslots / 2 + COLD_THREADS - 1) / COLD_THREADS;
	uint64_t warps = (uint64_t) params->npieces * params->ncold_segments;
	uint64_t fills = (warps + COLD_THREADS / 32 - 1) / (COLD_THREADS / 32);
	cudaError_t rc;

	rc = launch_chained(clear_tables, std::min(clears, (uint64_t) MOST_BLOCKS), COLD_THREADS, 0,
						stream, *params);
	if (rc == cudaSuccess)
		rc = launch_chained(fill_tables, std::min(fills, (uint64_t) MOST_BLOCKS), COLD_THREADS, 0,
							stream, *params);
	if (rc == cudaSuccess)
		rc = launch_chained(counts ? emit_variant<true>(sparse) : emit_variant<false>(sparse),
							(uint64_t) params->nqueries * params->nslices, COLD_THREADS,
							sizeof(struct cold_shared), stream, *params);
	return rc;
}

} // namespace gpuvec
