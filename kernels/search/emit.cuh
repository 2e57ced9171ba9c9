/*-------------------------------------------------------------------------
 *
 * emit.cuh
 *	  Scores a counted row, and appends it to a query's candidates.
 *
 * Every way of counting ends here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMIT_CUH
#define GPUVEC_EMIT_CUH

#include "kernels/device/instructions.cuh"
#include "kernels/search/search_kernels.h"

namespace gpuvec
{

/* Where candidates go */
struct candidate_sink
{
	struct query_state *queries;
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t capacity;
	gpuvec_scoring scoring;
};

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
 */
static __device__ __forceinline__ uint32_t
append_rows(const struct candidate_sink &sink, uint32_t q, bool candidate,
			const struct row_key &key)
{
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
static __device__ __forceinline__ uint32_t
emit_rows(const struct candidate_sink &sink, uint32_t q, const struct query_limits *limits,
		  bool candidate, gpuvec_shared shared, uint64_t tid)
{
	struct row_key key = {0, 0};

	candidate = candidate && rank_row(sink, limits, shared, tid, false, &key);
	return append_rows(sink, q, candidate, key);
}

} // namespace gpuvec

#endif /* GPUVEC_EMIT_CUH */
