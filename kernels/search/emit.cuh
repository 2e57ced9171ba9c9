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
	gpuvec_weights weights; /* of tversky */
	gpuvec_measure measure;
};

/*
 * Score a row of each lane for query q, and append the rows that rank within
 * the query's limits.  Called by a whole warp; a lane without a row passes
 * candidate = false.  Rows that do not pass the query's filter are none.
 * disjoint: rows without a common id rank, whatever the measure is.
 *
 * Returns how many rows rank.  The query's count includes rows for which
 * there was no room: a count beyond the capacity says that some were lost.
 */
static __device__ __forceinline__ uint32_t
emit_rows(const struct candidate_sink &sink, uint32_t q, const struct query_limits *limits,
		  bool candidate, uint32_t common, uint32_t rowlen, uint64_t tid, bool disjoint = false)
{
	uint32_t lane = threadIdx.x % 32;
	struct row_key key = {0, 0};
	uint32_t votes;
	uint32_t base = 0;

	if (candidate && (common > 0 || disjoint || gpuvec_ranks_disjoint(sink.measure)))
	{
		key.hi = gpuvec_score_key(
			gpuvec_score_with(sink.measure, sink.weights, common, limits->len, rowlen));
		key.lo = tid | common;
		candidate = !key_less(limits->bound.hi, limits->bound.lo, key.hi, key.lo) &&
					key_less(limits->after.hi, limits->after.lo, key.hi, key.lo);
	}
	else
		candidate = false;

	votes = __ballot_sync(FULL_WARP, candidate);
	if (votes == 0)
		return 0;
	if (lane == 0)
		base = atomicAdd(&sink.queries[q].count, __popc(votes));
	base = __shfl_sync(FULL_WARP, base, 0) + __popc(votes & ((1u << lane) - 1));
	if (candidate && base < sink.capacity)
		sink.candidates[(size_t) q * sink.capacity + base] = key;
	return __popc(votes);
}

} // namespace gpuvec

#endif /* GPUVEC_EMIT_CUH */
