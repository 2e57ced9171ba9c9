/*-------------------------------------------------------------------------
 *
 * lists_plain.cu
 *	  Counts the ids that rows share with queries, in segments where no id is
 *	  common.
 *
 * There are no bitmaps then, only lists.  A thread block counts in a whole
 * segment, in one byte of shared memory for each row: an atomic addition
 * counts a row, and nothing has to wait for its result (list_planes.cuh).
 *
 * For many queries, each warp counts some of the lists (count_plain).  For
 * very few, the threads share all postings evenly (count_plain_lone).  In the
 * end each thread looks through the bytes of 128 rows.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/device/launch.h"
#include "kernels/search/list_items.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define PLAIN_PLANES 8
#define PLAIN_TEAM_WORDS (list_planes<WHOLE_THREADS / 32, PLAIN_PLANES, true>::TEAM_WORDS)

/* Shared memory of count_shared_out() */
struct __align__(16) list_shares
{
	uint32_t upto[WHOLE_THREADS];  /* postings of the lists up to and including this list */
	uint32_t first[WHOLE_THREADS]; /* where this list starts, less the postings of lists before */
	uint32_t sums[WHOLE_THREADS / 32];
};

/*
 * Counts queries in a whole segment without bitmaps, in a byte for each row.
 * COUNTS: for a query that counts rows.
 */
template <bool COUNTS>
struct plain_counter : list_planes<WHOLE_THREADS / 32, PLAIN_PLANES, true>
{
	typedef list_planes<WHOLE_THREADS / 32, PLAIN_PLANES, true> base;

	/* the state of entered_block, in registers: here they are not scarce */
	const struct device_segment *segment;
	uint32_t segment_number;
	uint32_t minlen; /* of this lane's rows; ~0: no rows */
	uint32_t maxlen;

	__device__ __forceinline__
	plain_counter(const struct list_params &p, uint32_t *team_planes, struct team_shared *shared)
		: base(p, team_planes, shared, NULL), segment(NULL)
	{
	}

	/* Enter a segment */
	__device__ __forceinline__ void
	enter_block(uint32_t block)
	{
		uint2 where = params.blocks[block];
		uint32_t first = member * LANE_ROWS;

		segment_number = where.x;
		segment = &params.segments[where.x];
		minlen = ~0u;
		maxlen = 0;
		if (first < segment->nrows)
		{
			minlen = segment->len[first];
			maxlen = segment->len[min(first + LANE_ROWS, segment->nrows) - 1];
		}
	}

	/*
	 * Does the work of count_ids() for a query that is alone.  The team's
	 * threads share all postings evenly, each with LOADS of them in flight.
	 * So a few long lists take no more time than many short ones.
	 */
	__device__ __forceinline__ void
	count_shared_out(const uint16_t *ids, uint32_t n, struct list_shares *shares)
	{
		constexpr int LOADS = 8;
		const struct device_lists &lists = segment->lists;

#pragma unroll 1
		for (uint32_t from = 0; from < n; from += WHOLE_THREADS)
		{
			uint32_t m = min(n - from, (uint32_t) WHOLE_THREADS);
			uint32_t warps = (m + 31) / 32;
			uint2 list = make_uint2(0, 0);
			uint32_t upto;
			uint32_t total = 0;

			if (member < m)
				list = find_list(lists, ids[from + member]);
			upto = list.y;
#pragma unroll
			for (int d = 1; d < 32; d *= 2)
			{
				uint32_t left = __shfl_up_sync(FULL_WARP, upto, d);

				if (lane >= (uint32_t) d)
					upto += left;
			}
			if (lane == 31)
				shares->sums[member / 32] = upto;
			__syncthreads();
			for (uint32_t w = 0; w < warps; w++)
			{
				uint32_t sum = shares->sums[w];

				if (w < member / 32)
					upto += sum;
				total += sum;
			}
			if (member < m)
			{
				shares->upto[member] = upto;
				shares->first[member] = list.x - (upto - list.y);
			}
			__syncthreads();

#pragma unroll 1
			for (uint32_t at = member; at < total; at += LOADS * WHOLE_THREADS)
			{
				uint32_t src[LOADS] = {};
				uint32_t posting[LOADS];

				/*
				 * binary search for the first list that ends beyond the
				 * position
				 */
#pragma unroll 1
				for (uint32_t step = 1u << (31 - __clz(m)); step > 0; step /= 2)
#pragma unroll
					for (int i = 0; i < LOADS; i++)
						if (src[i] + step <= m &&
							shares->upto[src[i] + step - 1] <= at + i * WHOLE_THREADS)
							src[i] += step;
#pragma unroll
				for (int i = 0; i < LOADS; i++)
				{
					uint32_t position = at + i * WHOLE_THREADS;

					posting[i] = position < total
									 ? __ldg(&lists.postings[shares->first[src[i]] + position])
									 : 0;
				}
#pragma unroll
				for (int i = 0; i < LOADS; i++)
					if (at + i * WHOLE_THREADS < total)
						bump(posting[i]);
			}
			__syncthreads();
		}
	}

	/*
	 * Compare the bytes of x with those of y, which are all the same number.
	 * The highest bit of each byte tells whether x's byte is at least that
	 * number.
	 */
	static __device__ __forceinline__ uint32_t
	bytes_reaching(uint32_t x, uint32_t y)
	{
		uint32_t high = 0x80808080;
		/* the highest bit of each byte of low: x >= y in the other 7 bits */
		uint32_t low = (x | high) - (y & ~high);

		return ((x & ~y) | (~(x ^ y) & low)) & high;
	}

	/*
	 * True if any of this lane's rows has a count of at least a number.  No
	 * row's count exceeds `most`.
	 */
	__device__ __forceinline__ bool
	any_reaching(uint32_t number, uint32_t most) const
	{
		uint32_t add = number < 128 ? (128 - number) * 0x01010101 : 0;
		uint32_t sums = 0;

		if (most >= 128)
			return number_reaching(number) > 0;
			/*
			 * no sum overflows its byte; a sum of at least 128 has the
			 * highest bit set
			 */
#pragma unroll
		for (int i = 0; i < PLAIN_PLANES; i++)
		{
			uint4 v = *plane(i);

			sums |= (v.x + add) | (v.y + add) | (v.z + add) | (v.w + add);
		}
		return (sums & 0x80808080) != 0;
	}

	/* Number of this lane's rows whose counts are at least a number */
	__device__ __forceinline__ uint32_t
	number_reaching(uint32_t number) const
	{
		uint32_t y = number * 0x01010101;
		uint32_t n = 0;

		if (number > 255)
			return 0;
#pragma unroll
		for (int i = 0; i < PLAIN_PLANES; i++)
		{
			uint4 v = *plane(i);

			n += __popc(bytes_reaching(v.x, y) | bytes_reaching(v.y, y) >> 1 |
						bytes_reaching(v.z, y) >> 2 | bytes_reaching(v.w, y) >> 3);
		}
		return n;
	}

	/*
	 * Mask of this lane's rows 32 w .. 32 w + 31 whose counts are at least a
	 * number
	 */
	__device__ __forceinline__ uint32_t
	rows_reaching(int w, uint32_t number) const
	{
		uint32_t y = number * 0x01010101;
		uint32_t rows = 0;

#pragma unroll
		for (int half = 0; half < 2; half++)
		{
			uint4 v = *plane(2 * w + half);
			const uint32_t word[4] = {v.x, v.y, v.z, v.w};

			/* multiplying brings the four bits together; no carries occur */
#pragma unroll
			for (int i = 0; i < 4; i++)
				rows |= (bytes_reaching(word[i], y) >> 7) * 0x01020408 >> 24 << (half * 16 + i * 4);
		}
		return rows;
	}

	/*
	 * Number of this lane's rows whose counts are at least a number, of those
	 * that pass the query's filter
	 */
	__device__ __forceinline__ uint32_t
	passing_reaching(const struct query_limits *limits, uint32_t number) const
	{
		uint32_t passing[4];
		uint32_t n = 0;

		if (limits->mask == NULL || number > 255)
			return number_reaching(number);
		rows_passing(limits, segment, member * LANE_ROWS, passing);
#pragma unroll
		for (int w = 0; w < 4; w++)
			n += __popc(rows_reaching(w, number) & passing[w]);
		return n;
	}

	/*
	 * The largest count that at least `wanted` of the team's rows reach,
	 * among those that pass the query's filter; 0 if fewer of these have
	 * common ids
	 */
	__device__ __forceinline__ uint32_t
	high_count(uint32_t wanted, const struct query_limits *limits)
	{
		uint32_t count = 0;

#pragma unroll 1
		for (int p = PLAIN_PLANES - 1; p >= 0; p--)
			if (sum_of_team(__reduce_add_sync(FULL_WARP,
											  passing_reaching(limits, count | 1u << p))) >= wanted)
				count |= 1u << p;
		return count;
	}

	/* The count of this lane's row i */
	__device__ __forceinline__ uint32_t
	get(uint32_t i) const
	{
		return ((const uint8_t *) plane(i / 16))[i % 16];
	}

	/*
	 * Count query q in the segment that was entered.  shares: NULL, or shared
	 * memory to count a query that is alone.
	 */
	__device__ __forceinline__ void
	count_query(uint32_t q, struct list_shares *shares)
	{
		const struct query_limits *limits = &params.queries[q].limits;
		uint32_t need;
		uint32_t most;
		const uint16_t *entries;
		uint4 n = params.nentries_of[segment_number * params.nqueries + q];

		if (!what_is_needed(limits, minlen, maxlen, &need, &most))
			return;
		entries = params.entries + ((size_t) segment_number * params.nentries + n.w) * 8;
		if (shares)
			count_shared_out(entries, n.z, shares);
		else
			count_ids<true>(segment->lists, entries, 0, n.z);
		if (params.sample > 0)
			need = max(need, high_count(params.sample, limits));
		if (__any_sync(FULL_WARP, any_reaching(need, limits->len)))
		{
			uint32_t rows[4];

#pragma unroll
			for (int w = 0; w < 4; w++)
				rows[w] = need > 255 ? 0 : rows_reaching(w, need);
			emit_words<COUNTS>(params, segment, q, member * LANE_ROWS, rows, most,
							   [&](uint32_t i) { return get(i); });
		}
		clear_planes();
		sync_team();
	}
};

#define PLAIN_BLOCKS 3 /* thread blocks per multiprocessor */

static __global__ void
__launch_bounds__(WHOLE_THREADS, PLAIN_BLOCKS)
	count_plain(const __grid_constant__ struct list_params params)
{
	struct team_shared *team = (struct team_shared *) shared_memory;
	plain_counter<false> counter(params, (uint32_t *) (team + 1), team);

	count_segments(params, counter, [&](uint32_t q) { counter.count_query(q, NULL); });
}

/* For at most LONE_QUERIES queries */
template <bool COUNTS>
__global__ void
__launch_bounds__(WHOLE_THREADS, 1)
	count_plain_lone(const __grid_constant__ struct list_params params)
{
	struct team_shared *team = (struct team_shared *) shared_memory;
	struct list_shares *shares = (struct list_shares *) (team + 1);
	plain_counter<COUNTS> counter(params, (uint32_t *) (shares + 1), team);

	let_next_start();
	wait_for_previous();
	count_segments(params, counter, [&](uint32_t q) { counter.count_query(q, shares); });
}

static size_t
plain_bytes(void)
{
	return sizeof(struct team_shared) + PLAIN_TEAM_WORDS * sizeof(uint32_t);
}

/* Allow the kernels the shared memory that they need */
cudaError_t
lists_plain_prepare(void)
{
	cudaError_t rc =
		cudaFuncSetAttribute((const void *) count_plain,
							 cudaFuncAttributeMaxDynamicSharedMemorySize, (int) plain_bytes());

	if (rc == cudaSuccess)
		rc = cudaFuncSetAttribute((const void *) count_plain_lone<false>,
								  cudaFuncAttributeMaxDynamicSharedMemorySize,
								  (int) (plain_bytes() + sizeof(struct list_shares)));
	if (rc == cudaSuccess)
		rc = cudaFuncSetAttribute((const void *) count_plain_lone<true>,
								  cudaFuncAttributeMaxDynamicSharedMemorySize,
								  (int) (plain_bytes() + sizeof(struct list_shares)));
	return rc;
}

/*
 * The caller makes sure that no row shares more than 255 ids with a query,
 * and that no segment has slots
 */
cudaError_t
lists_count_plain(const struct list_params *params, bool counts, uint32_t sms, cudaStream_t stream)
{
	uint64_t items = (uint64_t) params->nblocks * params->nslices;
	dim3 blocks = dim3((uint32_t) std::min(items, (uint64_t) sms * PLAIN_BLOCKS));

	if (params->nqueries <= LONE_QUERIES)
		return launch_chained(counts ? count_plain_lone<true> : count_plain_lone<false>, blocks,
							  WHOLE_THREADS, plain_bytes() + sizeof(struct list_shares), stream,
							  *params);
	return launch(count_plain, blocks, WHOLE_THREADS, plain_bytes(), stream, *params);
}

} // namespace gpuvec
