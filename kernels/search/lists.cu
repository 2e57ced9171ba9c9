/*-------------------------------------------------------------------------
 *
 * lists.cu
 *	  Counts the ids that rows share with queries, by inverted lists, and
 *	  emits the rows that may be among the best.
 *
 * A team of warps counts one query in one block of a segment.  Each lane has
 * 128 consecutive rows.  It keeps their counters bit-sliced in registers, as
 * four groups of 32.  The query's ids come in two kinds:
 *
 * Common ids have bitmaps; a lane adds the 128 bits of its rows with
 * carry-save adders (bit_counters.cuh).
 *
 * Other ids have short lists of rows, which are counted in bit planes in
 * shared memory (list_planes.cuh).  After as many lists as the planes can
 * count, the lanes add the planes to their counters.
 *
 * Rows are in order of length, so each lane needs gpuvec_need() of its
 * shortest row.  Comparing its counters with that number finds the rows to
 * score.  A team does not count at all if no lane's rows can share as many
 * ids with the query as they need.
 *
 * In blocks of 4,096 rows a team is one warp.  For many queries, a thread
 * block keeps the bitmaps of the block's most common ids in shared memory,
 * and its warps take one query after another (count_tiled).  For few queries,
 * warps read what they need from global memory (count_direct; lists_lone.cu
 * for very few).  If few ids are common, a block is a whole segment and a
 * team is a thread block (count_whole).  If no id is common, see
 * lists_plain.cu.
 *
 * A first bound comes from a few blocks, whose rows have the lengths at which
 * a query's best rows are expected.  Of each such block only some rows with
 * the highest counts are emitted.  The k-th best of any rows bounds the k-th
 * best of all rows.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/device/launch.h"
#include "kernels/search/bit_counters.cuh"
#include "kernels/search/list_items.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

/*
 * With more threads, each would have fewer registers, and what it spills
 * would go to the L2 cache
 */
#define TILED_THREADS 896
#define TILED_TEAM_WORDS (list_planes<1, TILED_PLANES>::TEAM_WORDS)
#define WHOLE_PLANES 7

/* A lane's rows in the bitmaps of a block; slot 0 comes first */
struct lane_bitmaps
{
	const uint4 *staged; /* slots up to nstaged, in shared memory */
	const uint4 *all;    /* all slots, in global memory */
	uint32_t nstaged;
};

/*
 * Counts queries in a block, with counters in registers.  STAGED: some
 * bitmaps are in shared memory.  COUNTS: for a query that counts rows.
 */
template <int PLANES, int WARPS, int NPLANES, bool STAGED, bool COUNTS = false>
struct list_counter : list_planes<WARPS, NPLANES>
{
	typedef list_planes<WARPS, NPLANES> base;
	typedef bit_counters<PLANES> word_counters;

	word_counters counters[4];

	__device__ __forceinline__
	list_counter(const struct list_params &p, uint32_t *team_planes, struct team_shared *shared,
				 struct entered_block<WARPS * 32> *team_block)
		: base(p, team_planes, shared, team_block)
	{
	}

	/* Set all counters to 0 */
	__device__ __forceinline__ void
	clear()
	{
#pragma unroll
		for (int w = 0; w < 4; w++)
			counters[w].clear();
	}

	/*
	 * Add the team's planes to the counters, of which the first FROM planes
	 * are in use; if FROM is 0, set the counters to them.  Clear the team's
	 * planes.
	 */
	template <int FROM>
	__device__ __forceinline__ void
	take_planes()
	{
		uint32_t carry[4] = {0, 0, 0, 0};

#pragma unroll
		for (int i = 0; i < NPLANES; i++)
		{
			uint4 *words = this->plane(i);
			uint4 v = *words;
			const uint32_t word[4] = {v.x, v.y, v.z, v.w};

			*words = make_uint4(0, 0, 0, 0);
#pragma unroll
			for (int w = 0; w < 4; w++)
				if (FROM > 0)
					carry[w] = word_counters::full_add(counters[w].plane[i], word[w], carry[w]);
				else
					counters[w].plane[i] = word[w];
		}
#pragma unroll
		for (int w = 0; w < 4; w++)
		{
			if (FROM > NPLANES)
				counters[w].template ripple<NPLANES>(carry[w]);
			else
#pragma unroll
				for (int i = NPLANES; i < PLANES; i++)
					counters[w].plane[i] = i == NPLANES ? carry[w] : 0;
		}
	}

	/*
	 * Set the counters to the team's planes, and add the counts in the lists
	 * of ids[from] .. ids[n - 1]
	 */
	__device__ __forceinline__ void
	count_more_lists(const uint16_t *ids, uint32_t from, uint32_t n)
	{
		take_planes<0>();
#pragma unroll 1
		for (; from < n; from += base::MOST_LISTS)
		{
			this->sync_team();
			this->template count_ids<false>(this->entered->lists, ids, from,
											min(from + base::MOST_LISTS, n));
			take_planes<PLANES>();
		}
	}

	/*
	 * This lane's rows in the bitmap of the block's slot 0, in global memory
	 */
	__device__ __forceinline__ const uint4 *
	block_bitmaps() const
	{
		const struct entered_block<WARPS * 32> *entered = this->entered;

		return entered->lists.bitmaps + this->member +
			   (WARPS > 1 ? 0 : (size_t) entered->block * (entered->lists.nslots + 1) * 32);
	}

	/*
	 * This lane's rows in the bitmap of a slot.  OTHERS: the slot may not be
	 * staged.
	 */
	template <bool OTHERS>
	__device__ __forceinline__ uint4
	bitmap(const struct lane_bitmaps &from, uint32_t slot) const
	{
		if (OTHERS && slot > from.nstaged)
			return __ldg(&from.all[slot * (WARPS * 32)]);
		return from.staged[slot * (WARPS * 32)];
	}

	/*
	 * Add the bitmaps of two slots, which share a word; carry[] become masks
	 * of weight 2
	 */
	template <bool OTHERS>
	__device__ __forceinline__ void
	add_pair(const struct lane_bitmaps &from, uint32_t slots, uint32_t *carry)
	{
		uint4 x = bitmap<OTHERS>(from, slots & 0xFFFF);
		uint4 y = bitmap<OTHERS>(from, slots >> 16);

		carry[0] = word_counters::full_add(counters[0].plane[0], x.x, y.x);
		carry[1] = word_counters::full_add(counters[1].plane[0], x.y, y.y);
		carry[2] = word_counters::full_add(counters[2].plane[0], x.z, y.z);
		carry[3] = word_counters::full_add(counters[3].plane[0], x.w, y.w);
	}

	/* Add four bitmaps; carry[] become masks of weight 4 */
	template <bool OTHERS>
	__device__ __forceinline__ void
	add_four(const struct lane_bitmaps &from, uint32_t slots01, uint32_t slots23, uint32_t *carry)
	{
		uint32_t a[4];
		uint32_t b[4];

		add_pair<OTHERS>(from, slots01, a);
		add_pair<OTHERS>(from, slots23, b);
#pragma unroll
		for (int w = 0; w < 4; w++)
			carry[w] = word_counters::full_add(counters[w].plane[1], a[w], b[w]);
	}

	/* Add eight bitmaps; carry[] become masks of weight 8 */
	template <bool OTHERS>
	__device__ __forceinline__ void
	add_eight(const struct lane_bitmaps &from, uint4 slots, uint32_t *carry)
	{
		uint32_t a[4];
		uint32_t b[4];

		add_four<OTHERS>(from, slots.x, slots.y, a);
		add_four<OTHERS>(from, slots.z, slots.w, b);
#pragma unroll
		for (int w = 0; w < 4; w++)
			carry[w] = word_counters::full_add(counters[w].plane[2], a[w], b[w]);
	}

	/*
	 * Add the bitmaps of n slots (a multiple of 8) to counters of TOP planes
	 */
	template <int TOP, bool OTHERS>
	__device__ __forceinline__ void
	count_slots(const uint4 *staged, const uint16_t *slots, uint32_t n)
	{
		const uint4 *eights = (const uint4 *) slots;
		struct lane_bitmaps from = {staged, NULL, 0};
		uint32_t a[4];
		uint32_t b[4];

		if (n == 0)
			return;
		if (OTHERS)
		{
			from.all = block_bitmaps();
			from.nstaged = this->entered->lists.nstaged;
		}
#pragma unroll 1
		for (; n >= 16; n -= 16, eights += 2)
		{
			add_eight<OTHERS>(from, __ldg(eights), a);
			add_eight<OTHERS>(from, __ldg(eights + 1), b);
#pragma unroll
			for (int w = 0; w < 4; w++)
				counters[w].template ripple<4, TOP>(
					word_counters::full_add(counters[w].plane[3], a[w], b[w]));
		}
		if (n == 0)
			return;
		add_eight<OTHERS>(from, __ldg(eights), a);
#pragma unroll
		for (int w = 0; w < 4; w++)
			counters[w].template ripple<3, TOP>(a[w]);
	}

	/* Add the bitmaps of a query's slots to counters of TOP planes */
	template <int TOP>
	__device__ __forceinline__ void
	count_bitmaps(const uint4 *staged, const uint16_t *entries, uint4 n)
	{
		if (STAGED)
		{
			count_slots<TOP, false>(staged, entries, n.x);
			count_slots<TOP, true>(staged, entries + n.x, n.y);
		}
		else
			count_slots<TOP, false>(staged, entries, n.x + n.y);
	}

	/*
	 * Find this lane's rows whose counts are at least a number below 2^PLANES
	 */
	__device__ __forceinline__ void
	rows_reaching(uint32_t number, uint32_t *rows) const
	{
#pragma unroll
		for (int w = 0; w < 4; w++)
			rows[w] = ~0u;
#pragma unroll
		for (int p = 0; p < PLANES; p++)
		{
			uint32_t zero = (number >> p & 1) - 1; /* ~0: the number has a 0 here */

#pragma unroll
			for (int w = 0; w < 4; w++)
				rows[w] = (counters[w].plane[p] & (rows[w] | zero)) | (rows[w] & zero);
		}
	}

	/* The count of this lane's row i */
	__device__ __forceinline__ uint32_t
	get(uint32_t i) const
	{
		uint32_t count = 0;

		/*
		 * choose plane by plane: with an index that is not constant, the
		 * counters would be in memory
		 */
#pragma unroll
		for (int p = 0; p < PLANES; p++)
		{
			uint32_t low = i & 32 ? counters[1].plane[p] : counters[0].plane[p];
			uint32_t high = i & 32 ? counters[3].plane[p] : counters[2].plane[p];

			count |= ((i & 64 ? high : low) >> i % 32 & 1) << p;
		}
		return count;
	}

	/*
	 * The largest count that at least `wanted` of the team's rows reach,
	 * among those that pass the query's filter; 0 if fewer of these have
	 * common ids
	 */
	__device__ __forceinline__ uint32_t
	high_count(uint32_t wanted, const struct query_limits *limits)
	{
		uint32_t passing[4];
		uint32_t count = 0;

		rows_passing(limits, this->entered->segment, this->first_row(), passing);

#pragma unroll 1
		for (int p = PLANES - 1; p >= 0; p--)
		{
			uint32_t rows[4];
			uint32_t n;

			rows_reaching(count | 1u << p, rows);
			n = 0;
#pragma unroll
			for (int w = 0; w < 4; w++)
				n += __popc(rows[w] & passing[w]);
			if (this->sum_of_team(__reduce_add_sync(FULL_WARP, n)) >= wanted)
				count |= 1u << p;
		}
		return count;
	}

	/*
	 * Count query q in the block that the team has entered.
	 *
	 * The fewer planes are in use while bitmaps are added, the more registers
	 * are free for loads.  NPLANES planes are enough if they can count all of
	 * the query's ids, or both its ids with slots and its ids with lists.  In
	 * the second case the counts of the lists are added last.
	 */
	__device__ __forceinline__ void
	count_query(uint32_t q, const uint4 *staged)
	{
		const struct list_params &params = this->params;
		const struct query_limits *limits = &params.queries[q].limits;
		uint4 n = __ldg(&params.nentries_of[this->entered->segment_number * params.nqueries + q]);
		uint32_t need;
		uint32_t most;
		const uint16_t *entries;
		const uint16_t *ids;
		bool few;
		uint32_t rows[4];

		if (!this->what_is_needed(limits, this->entered->minlen[this->member],
								  this->entered->maxlen[this->member], &need, &most))
			return;
		entries =
			params.entries + ((size_t) this->entered->segment_number * params.nentries + n.w) * 8;
		ids = entries + n.x + n.y;
		this->template count_ids<true>(this->entered->lists, ids, 0, min(n.z, base::MOST_LISTS));
		few = limits->len <= base::MOST_LISTS;
		if (few || max(n.x + n.y, n.z) <= base::MOST_LISTS)
		{
			if (few)
				take_planes<0>();
			else
				clear();
			count_bitmaps<NPLANES>(staged, entries, n);
			if (!few)
				take_planes<NPLANES>();
		}
		else
		{
			count_more_lists(ids, base::MOST_LISTS, n.z);
			count_bitmaps<PLANES>(staged, entries, n);
		}
		if (params.sample > 0)
			need = max(need, high_count(params.sample, limits));
		rows_reaching(need, rows);
#pragma unroll
		for (int w = 0; w < 4; w++)
			rows[w] = need >> PLANES ? 0 : rows[w];
		emit_words<COUNTS>(params, this->entered->segment, q, this->first_row(), rows, most,
						   [&](uint32_t i) { return get(i); });
		this->sync_team();
	}
};

typedef struct entered_block<WHOLE_THREADS> whole_block;

/* Take a query of the item for the whole warp */
static __device__ __forceinline__ uint32_t
take_query(struct team_shared *team)
{
	uint32_t i = 0;

	if (threadIdx.x % 32 == 0)
		i = atomicAdd(&team->next_query, 1);
	return __shfl_sync(FULL_WARP, i, 0);
}

/*
 * Blocks of 4,096 rows, with bitmaps in shared memory.  The warps of a thread
 * block share the queries of an item.
 */
template <int PLANES, int THREADS>
__global__ void
__launch_bounds__(THREADS, 1) count_tiled(const __grid_constant__ struct list_params params)
{
	struct team_shared *team = (struct team_shared *) shared_memory;
	struct entered_block<32> *entered =
		(struct entered_block<32> *) (team + 1); /* shared by all teams */
	uint32_t *planes = (uint32_t *) (entered + 1) + threadIdx.x / 32 * TILED_TEAM_WORDS;
	uint4 *bitmaps = (uint4 *) ((uint32_t *) (entered + 1) + THREADS / 32 * TILED_TEAM_WORDS);
	list_counter<PLANES, 1, TILED_PLANES, true> counter(params, planes, NULL, entered);
	uint32_t staged = ~0u;

	for (;;)
	{
		uint32_t item = take_item(params, team);
		uint2 queries;
		uint32_t i;

		if (item == ~0u)
			break;
		queries = item_range(params, item);
		if (queries.y == 0)
			continue;
		if (item / params.nslices != staged)
		{
			const struct device_lists *lists = &entered->lists;
			uint32_t words;
			const uint4 *source;

			staged = item / params.nslices;
			if (threadIdx.x < 32)
				counter.enter_block(staged);
			__syncthreads();
			words = (lists->nstaged + 1) * 32;
			source = lists->bitmaps + (size_t) entered->block * (lists->nslots + 1) * 32;
			for (uint32_t i = threadIdx.x; i < words; i += THREADS)
				bitmaps[i] = __ldcg(&source[i]);
			__syncthreads();
		}
		i = take_query(team);
		while (i < queries.y)
		{
			uint32_t q = queries.x + i;

			/* fetched early: used after this query is counted */
			i = take_query(team);
			if (q - entered->counted.x >= entered->counted.y)
				counter.count_query(q, bitmaps + counter.lane);
		}
	}
}

#define DIRECT_THREADS 128

/*
 * Blocks of 4,096 rows, with bitmaps in global memory.  One warp per query
 * and block.
 */
template <int PLANES>
__global__ void
__launch_bounds__(DIRECT_THREADS) count_direct(const __grid_constant__ struct list_params params)
{
	struct entered_block<32> *entered =
		(struct entered_block<32> *) shared_memory + threadIdx.x / 32;
	uint32_t *planes =
		(uint32_t *) ((struct entered_block<32> *) shared_memory + DIRECT_THREADS / 32) +
		threadIdx.x / 32 * TILED_TEAM_WORDS;
	list_counter<PLANES, 1, TILED_PLANES, false> counter(params, planes, NULL, entered);
	uint32_t warps = gridDim.x * (DIRECT_THREADS / 32);
	uint32_t ntasks = params.nblocks * params.nqueries;

	__syncwarp();
	for (uint32_t task = blockIdx.x * (DIRECT_THREADS / 32) + threadIdx.x / 32; task < ntasks;
		 task += warps)
	{
		uint32_t q = task % params.nqueries;

		if (*(volatile const uint32_t *) params.stop)
			break;
		if (params.ranges)
		{
			uint2 range = params.ranges[task / params.nqueries];

			if (q - range.x >= range.y)
				continue;
		}
		if (counter.is_counted(q, task / params.nqueries))
			continue;
		counter.enter_block(task / params.nqueries);
		counter.count_query(q, counter.block_bitmaps());
	}
}

template <int PLANES, bool COUNTS>
__global__ void
__launch_bounds__(WHOLE_THREADS, 2) count_whole(const __grid_constant__ struct list_params params)
{
	struct team_shared *team = (struct team_shared *) shared_memory;
	whole_block *entered = (whole_block *) (team + 1);
	list_counter<PLANES, WHOLE_THREADS / 32, WHOLE_PLANES, false, COUNTS> counter(
		params, (uint32_t *) (entered + 1), team, entered);

	count_segments(params, counter,
				   [&](uint32_t q) { counter.count_query(q, counter.block_bitmaps()); });
}

typedef void (*list_function)(const struct list_params);

/*
 * Threads of count_tiled: fewer if there are more planes, which take
 * registers
 */
static uint32_t
tiled_threads(uint32_t planes, size_t smem_limit)
{
	if (planes == 17)
		return 256;
	return smem_limit < 160 * 1024 ? 512 : TILED_THREADS;
}

static list_function
tiled_variant(uint32_t planes, uint32_t threads)
{
	if (planes == 17)
		return count_tiled<17, 256>;
	if (threads == 512)
		return planes == 7 ? count_tiled<7, 512> : count_tiled<8, 512>;
	return planes == 7 ? count_tiled<7, TILED_THREADS> : count_tiled<8, TILED_THREADS>;
}

static list_function
direct_variant(uint32_t planes)
{
	return planes == 7 ? count_direct<7> : planes == 8 ? count_direct<8> : count_direct<17>;
}

static list_function
whole_variant(uint32_t planes, bool counts)
{
	if (counts)
		return planes == 7   ? count_whole<7, true>
			   : planes == 8 ? count_whole<8, true>
							 : count_whole<17, true>;
	return planes == 7   ? count_whole<7, false>
		   : planes == 8 ? count_whole<8, false>
						 : count_whole<17, false>;
}

/* Shared memory of count_tiled without the bitmaps */
static size_t
tiled_bytes(uint32_t threads)
{
	return sizeof(struct team_shared) + sizeof(struct entered_block<32>) +
		   threads / 32 * TILED_TEAM_WORDS * sizeof(uint32_t);
}

static size_t
whole_bytes(uint32_t planes)
{
	return sizeof(struct team_shared) + sizeof(whole_block) + planes * WHOLE_ROWS / 8;
}

/* Slots of a segment of small blocks that are staged, without slot 0 */
uint32_t
lists_slots(size_t smem_limit)
{
	return (uint32_t) ((smem_limit - tiled_bytes(tiled_threads(7, smem_limit))) /
					   (TILED_ROWS / 8)) -
		   1;
}

/* Allow the kernels the shared memory that they need */
cudaError_t
lists_prepare(size_t smem_limit)
{
	static const uint32_t planes[] = {7, 8, 17};

	for (int i = 0; i < 3; i++)
	{
		uint32_t threads = tiled_threads(planes[i], smem_limit);
		cudaError_t rc =
			cudaFuncSetAttribute((const void *) tiled_variant(planes[i], threads),
								 cudaFuncAttributeMaxDynamicSharedMemorySize, (int) smem_limit);

		if (rc == cudaSuccess)
			rc = cudaFuncSetAttribute((const void *) whole_variant(planes[i], false),
									  cudaFuncAttributeMaxDynamicSharedMemorySize,
									  (int) whole_bytes(WHOLE_PLANES));
		if (rc == cudaSuccess)
			rc = cudaFuncSetAttribute((const void *) whole_variant(planes[i], true),
									  cudaFuncAttributeMaxDynamicSharedMemorySize,
									  (int) whole_bytes(WHOLE_PLANES));
		if (rc != cudaSuccess)
			return rc;
	}
	return lists_plain_prepare();
}

/* nslots: the largest number of slots that a segment stages */
cudaError_t
lists_count_tiled(const struct list_params *params, uint32_t planes, size_t smem_limit,
				  uint32_t nslots, uint32_t sms, cudaStream_t stream)
{
	uint32_t threads = tiled_threads(planes, smem_limit);
	size_t bytes = tiled_bytes(threads) + (size_t) (nslots + 1) * (TILED_ROWS / 8);
	uint32_t items = params->nblocks * params->nslices;

	return launch(tiled_variant(planes, threads), dim3(items < sms ? items : sms), threads, bytes,
				  stream, *params);
}

cudaError_t
lists_count_direct(const struct list_params *params, uint32_t planes, cudaStream_t stream)
{
	uint64_t warps = (uint64_t) params->nblocks * params->nqueries;
	uint64_t blocks = (warps + DIRECT_THREADS / 32 - 1) / (DIRECT_THREADS / 32);

	return launch(direct_variant(planes), dim3((uint32_t) (blocks < 65536 ? blocks : 65536)),
				  DIRECT_THREADS,
				  DIRECT_THREADS / 32 *
					  (sizeof(struct entered_block<32>) + TILED_TEAM_WORDS * sizeof(uint32_t)),
				  stream, *params);
}

cudaError_t
lists_count_whole(const struct list_params *params, uint32_t planes, bool counts, uint32_t sms,
				  cudaStream_t stream)
{
	uint64_t items = (uint64_t) params->nblocks * params->nslices;

	return launch(whole_variant(planes, counts),
				  dim3((uint32_t) std::min(items, (uint64_t) sms * 2)), WHOLE_THREADS,
				  whole_bytes(WHOLE_PLANES), stream, *params);
}

} // namespace gpuvec
