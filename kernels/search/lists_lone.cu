/*-------------------------------------------------------------------------
 *
 * lists_lone.cu
 *	  Counts the ids that rows share with queries, if there are very few
 *	  queries (LONE_QUERIES).
 *
 * This is done as in lists.cu, but so that one query keeps the whole GPU
 * busy.  A thread block counts one query in a block of 4,096 rows; each
 * thread has 32 rows.  The warps share the lists of the query's ids, and the
 * planes in which these are counted.  A thread adds one word of each bitmap,
 * with the loads of 16 bitmaps in flight.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/bit_counters.cuh"
#include "kernels/search/list_planes.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define LONE_THREADS (TILED_ROWS / 32)
#define LONE_WARPS (LONE_THREADS / 32)

/*
 * Planes and lists are those of a team of one warp, but all warps of the
 * thread block count in the same planes.  COUNTS: for a query that counts
 * rows.
 */
template <int PLANES, bool COUNTS>
struct lone_counter : list_planes<1, TILED_PLANES>
{
	typedef list_planes<1, TILED_PLANES> base;

	bit_counters<PLANES> counters;
	struct team_shared *shared;
	uint32_t word;      /* this thread's word of each bitmap and plane */
	uint32_t first_row; /* this thread's first row in the segment */
	uint32_t minlen;    /* of its rows; ~0: no rows */
	uint32_t maxlen;

	__device__ __forceinline__
	lone_counter(const struct list_params &p, struct team_shared *s,
				 struct entered_block<32> *team_block)
		: base(p, (uint32_t *) (team_block + 1), s, team_block), shared(s), word(threadIdx.x)
	{
		__syncthreads();
	}

	/* Enter a block */
	__device__ __forceinline__ void
	enter(uint32_t block)
	{
		uint2 where = params.blocks[block];
		const struct device_segment *segment = &params.segments[where.x];

		if (threadIdx.x < 32)
			set_block(block);
		first_row = (where.y << TILED_SHIFT) + word * 32;
		minlen = ~0u;
		maxlen = 0;
		if (first_row < segment->nrows)
		{
			minlen = segment->len[first_row];
			maxlen = segment->len[min(first_row + 32, segment->nrows) - 1];
		}
		__syncthreads();
	}

	/*
	 * Add the planes to the counters, or set the counters to them; clear the
	 * planes
	 */
	template <bool ADD>
	__device__ __forceinline__ void
	take_planes()
	{
		uint32_t carry = 0;

#pragma unroll
		for (int i = 0; i < TILED_PLANES; i++)
		{
			uint32_t *mine = planes + i * WORDS + word;

			if constexpr (ADD)
				carry = counters.full_add(counters.plane[i], *mine, carry);
			else
				counters.plane[i] = *mine;
			*mine = 0;
		}
		if constexpr (ADD)
			counters.template ripple<TILED_PLANES>(carry);
		else
#pragma unroll
			for (int i = TILED_PLANES; i < PLANES; i++)
				counters.plane[i] = 0;
	}

	/*
	 * Count the lists of ids[from] .. ids[upto - 1]; each warp counts a
	 * quarter
	 */
	__device__ __forceinline__ void
	count_quarters(const uint16_t *ids, uint32_t from, uint32_t upto)
	{
#pragma unroll 1
		for (uint32_t i = from; i < upto; i += LONE_THREADS)
		{
			uint32_t mine = i + lane * LONE_WARPS + word / 32;
			uint2 list = make_uint2(0, 0);

			if (mine < upto)
				list = find_list(entered->lists, ids[mine]);
			count_short_lists<true>(entered->lists.postings, list.x, list.y,
									planes + TILED_PLANES * WORDS + word / 32 * 32);
		}
		__syncthreads();
	}

	/* Set the counters to the counts in the lists of n ids */
	__device__ __forceinline__ void
	count_lists_of(const uint16_t *ids, uint32_t n)
	{
		count_quarters(ids, 0, min(n, MOST_LISTS));
		take_planes<false>();
#pragma unroll 1
		for (uint32_t from = MOST_LISTS; from < n; from += MOST_LISTS)
		{
			__syncthreads();
			count_quarters(ids, from, min(from + MOST_LISTS, n));
			take_planes<true>();
		}
	}

	/* Add the bitmaps of N slots */
	template <int N>
	__device__ __forceinline__ void
	add_slots(const uint32_t *bitmaps, const uint4 *eights)
	{
		uint32_t mask[N];

#pragma unroll
		for (int i = 0; i < N / 8; i++)
		{
			uint4 eight = eights[i];
			const uint32_t pair[4] = {eight.x, eight.y, eight.z, eight.w};

#pragma unroll
			for (int j = 0; j < 4; j++)
			{
				mask[i * 8 + j * 2] = __ldg(bitmaps + (pair[j] & 0xFFFF) * WORDS);
				mask[i * 8 + j * 2 + 1] = __ldg(bitmaps + (pair[j] >> 16) * WORDS);
			}
		}
		counters.template add<N>(mask);
	}

	/* Add the bitmaps of n slots (a multiple of 8) */
	__device__ __forceinline__ void
	count_slots(const uint16_t *slots, uint32_t n)
	{
		const struct device_lists &lists = entered->lists;
		const uint32_t *bitmaps = (const uint32_t *) lists.bitmaps +
								  (size_t) entered->block * (lists.nslots + 1) * WORDS + word;
		const uint4 *eights = (const uint4 *) slots;

#pragma unroll 2
		for (; n >= 16; n -= 16, eights += 2)
			add_slots<16>(bitmaps, eights);
		if (n > 0)
			add_slots<8>(bitmaps, eights);
	}

	/* The sum of a number of each warp */
	__device__ __forceinline__ uint32_t
	sum_of_block(uint32_t n)
	{
		__syncthreads();
		if (threadIdx.x == 0)
			shared->votes = 0;
		__syncthreads();
		if (lane == 0)
			atomicAdd(&shared->votes, n);
		__syncthreads();
		return shared->votes;
	}

	/*
	 * The largest count that at least `wanted` of the block's rows reach,
	 * among those that pass the query's filter; 0 if fewer of these have
	 * common ids
	 */
	__device__ __forceinline__ uint32_t
	high_count(uint32_t wanted, const struct query_limits *limits)
	{
		uint32_t passing[1];
		uint32_t count = 0;

		rows_passing(limits, entered->segment, first_row, passing);

#pragma unroll 1
		for (int p = PLANES - 1; p >= 0; p--)
		{
			uint32_t n = __popc(counters.at_least_number(count | 1u << p) & passing[0]);

			if (sum_of_block(__reduce_add_sync(FULL_WARP, n)) >= wanted)
				count |= 1u << p;
		}
		return count;
	}

	/* Count query q in the block that was entered */
	__device__ __forceinline__ void
	count_query(uint32_t q)
	{
		const struct query_limits *limits = &params.queries[q].limits;
		uint32_t need =
			gpuvec_need_with(params.scoring, limits->len, minlen, bound_score(limits->bound.hi));
		uint32_t most = params.sample > 0 ? (2 * params.sample + LONE_WARPS - 1) / LONE_WARPS : ~0u;
		bool hopeless = minlen == ~0u || need > min(limits->len, maxlen);
		const uint16_t *entries;
		uint32_t rows[1];
		uint4 n = params.nentries_of[entered->segment_number * params.nqueries + q];

		if (__syncthreads_and(hopeless))
			return;
		entries = params.entries + ((size_t) entered->segment_number * params.nentries + n.w) * 8;
		count_lists_of(entries + n.x + n.y, n.z);
		count_slots(entries, n.x + n.y);
		if (params.sample > 0)
			need = max(need, high_count(params.sample, limits));
		rows[0] = hopeless || need >> PLANES ? 0 : counters.at_least_number(need);
		emit_words<COUNTS>(params, entered->segment, q, first_row, rows, most,
						   [&](uint32_t bit) { return counters.get(bit); });
	}
};

/* One thread block per query and block */
template <int PLANES, bool COUNTS>
__global__ void
__launch_bounds__(LONE_THREADS) count_lone(const __grid_constant__ struct list_params params)
{
	struct team_shared *shared = (struct team_shared *) shared_memory;
	lone_counter<PLANES, COUNTS> counter(params, shared, (struct entered_block<32> *) (shared + 1));
	uint32_t ntasks = params.own_blocks > 0 ? params.nblocks : params.nblocks * params.nqueries;

	let_next_start();
	wait_for_previous();
	for (uint32_t task = blockIdx.x; task < ntasks; task += gridDim.x)
	{
		uint32_t q = params.own_blocks > 0 ? task / params.own_blocks : task % params.nqueries;
		uint32_t block = params.own_blocks > 0 ? params.own_first[q] + task % params.own_blocks
											   : task / params.nqueries;

		if (params.ranges && q - params.ranges[block].x >= params.ranges[block].y)
			continue;
		if (counter.is_counted(q, block))
			continue;
		/* all threads must see the same value */
		__syncthreads();
		if (threadIdx.x == 0)
			shared->item = *(volatile const uint32_t *) params.stop;
		__syncthreads();
		if (shared->item)
			break;
		counter.enter(block);
		counter.count_query(q);
	}
}

typedef void (*lone_function)(const struct list_params);

static lone_function
lone_variant(uint32_t planes, bool counts)
{
	if (counts)
		return planes == 7   ? count_lone<7, true>
			   : planes == 8 ? count_lone<8, true>
							 : count_lone<17, true>;
	return planes == 7   ? count_lone<7, false>
		   : planes == 8 ? count_lone<8, false>
						 : count_lone<17, false>;
}

cudaError_t
lists_count_lone(const struct list_params *params, uint32_t planes, bool counts,
				 cudaStream_t stream)
{
	uint64_t blocks = (uint64_t) params->nblocks * (params->own_blocks > 0 ? 1 : params->nqueries);

	return launch_chained(lone_variant(planes, counts),
						  dim3((uint32_t) (blocks < 65536 ? blocks : 65536)), LONE_THREADS,
						  sizeof(struct team_shared) + sizeof(struct entered_block<32>) +
							  TILED_PLANES * TILED_ROWS / 8 + LONE_THREADS * sizeof(uint32_t),
						  stream, *params);
}

} // namespace gpuvec
