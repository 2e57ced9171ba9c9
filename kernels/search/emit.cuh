/*-------------------------------------------------------------------------
 *
 * emit.cuh
 *	  Scores a counted row, and appends it to a query's candidates.
 *
 * Every way of counting ends here.  For a query that counts rows there are no
 * candidates: a row that ranks is counted, or its tid is listed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMIT_CUH
#define GPUVEC_EMIT_CUH

#include "kernels/device/instructions.cuh"
#include "kernels/search/cold_table.cuh"

namespace gpuvec
{

/* Where candidates go */
struct candidate_sink
{
	struct query_state *queries;
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t capacity;
	gpuvec_scoring scoring;
	const struct row_counts *counts = NULL;
};

/* True if a page is one of those whose rows are counted */
static __device__ __forceinline__ bool
is_counted_page(const struct row_counts &counts, uint32_t block)
{
	return block / 4 < counts.page_bytes && (counts.pages[block / 4] >> (block % 4 * 2) & 1);
}

/*
 * Where the rows of a warp's lanes are, and how to mark some of them, a bit
 * for each lane, to be put into groups (group_rows.cu): in one tile ..
 */
struct warp_rows
{
	const struct device_segment *segment;
	uint32_t tile;

	__device__ __forceinline__ void
	mark(uint32_t *marks, uint32_t rows) const
	{
		if (threadIdx.x % 32 == 0)
			atomicOr(&marks[segment->first_tile + tile], rows);
	}
};

/* .. or each anywhere */
struct lane_row
{
	const struct device_segment *segment;
	uint32_t row;

	__device__ __forceinline__ void
	mark(uint32_t *marks, uint32_t rows) const
	{
		if (rows >> threadIdx.x % 32 & 1)
			atomicOr(&marks[segment->first_tile + row / 32], 1u << row % 32);
	}
};

/*
 * Count the rows of the lanes that have one, or list their tids.  Called by a
 * whole warp; returns how many these rows are.  A row of which only hot
 * numbers were counted is left out: it came before, with all its numbers.
 *
 * Where most rows match, many warps count at the same time.  None needs the
 * sum, and each thread block has a place of some, so nothing is waited for.
 */
template <typename Place>
static __device__ __forceinline__ uint32_t
count_rows(const struct row_counts &counts, struct query_state *query, bool counted,
		   const struct row_key &key, const Place &place)
{
	uint32_t lane = threadIdx.x % 32;
	uint64_t tid = tid_of_key(key.lo, counts.partition_bits);
	uint32_t rows;
	uint32_t listed;
	uint32_t base = 0;

	if (counts.cold.keys != NULL)
		counted = counted && !counted_too_low(counts.cold, query, key);
	rows = __ballot_sync(FULL_WARP, counted);
	if (rows == 0)
		return 0;
	counted = counted && is_counted_page(counts, gpuvec_tid_block(tid));
	listed = rows & ~__ballot_sync(FULL_WARP, counted);
	if (lane == 0 && rows != listed)
		atomicAdd(&counts.counted[blockIdx.x % COUNT_PLACES * COUNT_STRIDE],
				  __popc(rows & ~listed));
	if (counts.marks != NULL && rows != listed)
		place.mark(counts.marks, rows & ~listed);
	if (listed == 0)
		return __popc(rows);
	if (lane == 0)
		base = atomicAdd(&query->count, __popc(listed));
	base = __shfl_sync(FULL_WARP, base, 0) + __popc(listed & ((1u << lane) - 1));
	if ((listed >> lane & 1) && base < counts.capacity)
		counts.tids[base] = tid;
	return __popc(rows);
}

/*
 * The key of a row with this score and number of common ids, if it is within a
 * query's limits.  Rows that do not pass the query's filter are none.
 */
static __device__ __forceinline__ bool
rank_score(const struct query_limits *limits, double score, uint32_t common, uint64_t tid,
		   struct row_key *key)
{
	*key = {gpuvec_score_key(score), tid | common};
	return !key_less(limits->bound.hi, limits->bound.lo, key->hi, key->lo) &&
		   key_less(limits->after.hi, limits->after.lo, key->hi, key->lo);
}

/*
 * The same of a set, by what it shares with the query.  disjoint: rows without
 * a common id rank, whatever the measure is.
 */
static __device__ __forceinline__ bool
rank_row(const struct candidate_sink &sink, const struct query_limits *limits, gpuvec_shared shared,
		 uint64_t tid, bool disjoint, struct row_key *key)
{
	if (shared.common == 0 && !disjoint && !gpuvec_ranks_disjoint(sink.scoring.measure))
		return false;
	return rank_score(limits, gpuvec_score_with(sink.scoring, shared), shared.common, tid, key);
}

/* Append a row to the candidates of query q; a lane on its own */
static __device__ __forceinline__ void
append_row(const struct candidate_sink &sink, uint32_t q, const struct row_key &key)
{
	uint32_t at = atomicAdd(&sink.queries[q].count, 1);

	if (at < sink.capacity)
		sink.candidates[(size_t) q * sink.capacity + at] = key;
}

/* Score a row for query q, and append it if it ranks; a lane on its own */
static __device__ __forceinline__ void
emit_row(const struct candidate_sink &sink, uint32_t q, const struct query_limits *limits,
		 gpuvec_shared shared, uint64_t tid)
{
	struct row_key key;

	if (rank_row(sink, limits, shared, tid, false, &key))
		append_row(sink, q, key);
}

/*
 * Append the rows of the lanes that have one to the candidates of query q;
 * called by a whole warp.  Returns how many they are.
 *
 * The query's count includes rows for which there was no room: a count beyond
 * the capacity says that some were lost.
 *
 * COUNTS: the query counts rows; only then the place matters.
 */
template <bool COUNTS, typename Place>
static __device__ __forceinline__ uint32_t
append_rows(const struct candidate_sink &sink, uint32_t q, bool candidate,
			const struct row_key &key, const Place &place)
{
	if constexpr (COUNTS)
		return count_rows(*sink.counts, &sink.queries[q], candidate, key, place);

	uint32_t lane = threadIdx.x % 32;
	uint32_t votes = __ballot_sync(FULL_WARP, candidate);
	uint32_t base = 0;

	if (votes == 0)
		return 0;
	if (lane == 0)
		base = atomicAdd(&sink.queries[q].count, __popc(votes));
	base = __shfl_sync(FULL_WARP, base, 0) + __popc(votes & ((1u << lane) - 1));
	if (candidate && base < sink.capacity)
		sink.candidates[(size_t) q * sink.capacity + base] = key;
	return __popc(votes);
}

/*
 * Score a row of each lane for query q, and append the rows that rank within
 * the query's limits.  Called by a whole warp; a lane without a row passes
 * candidate = false.  Returns how many rows rank.
 */
template <bool COUNTS, typename Place>
static __device__ __forceinline__ uint32_t
emit_rows(const struct candidate_sink &sink, uint32_t q, const struct query_limits *limits,
		  bool candidate, gpuvec_shared shared, uint64_t tid, const Place &place)
{
	struct row_key key = {0, 0};

	candidate = candidate && rank_row(sink, limits, shared, tid, false, &key);
	return append_rows<COUNTS>(sink, q, candidate, key, place);
}

} // namespace gpuvec

#endif /* GPUVEC_EMIT_CUH */
