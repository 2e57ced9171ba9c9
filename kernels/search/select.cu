/*-------------------------------------------------------------------------
 *
 * select.cu
 *	  Reduces a query's list of the best rows and its new candidates to the k
 *	  best of both.
 *
 * This happens between rounds, and also tightens the query's bound.  After
 * the last round, the list is sorted.
 *
 * One thread block serves one query.  It finds the k-th smallest 128-bit key
 * by radix select from the highest bits on.  The keys that agree with the
 * prefix found so far form the bin.  The bits that are 1 in some keys of the
 * bin and 0 in others tell the highest bit in which its keys differ.  So a
 * common prefix (few exponents, many ties in the score) costs one pass
 * instead of several.  A histogram of the 8 bits from there on selects the
 * next bin.  A bin of at most SMALL_BIN keys is finished by counting, for
 * each key, the smaller keys.
 *
 * Keys of different rows differ, so exactly k keys are <= the k-th key.
 *
 * Candidates of a query with cold numbers may be rows that its table has, too
 * (cold_rows.cu).  These were counted by hot numbers only, and are left out
 * before anything else is done.
 *
 * Lists of up to GPUVEC_FAST_K rows are sorted in shared memory by the same
 * kernel.  Longer lists are sorted in runs of SORT_RUN, which are then merged
 * pairwise: the new position of a key is its position in its own run plus the
 * number of smaller keys in the other run, found by binary search.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/cold_table.cuh"

namespace gpuvec
{

#define SELECT_THREADS 512
#define SELECT_WARPS (SELECT_THREADS / 32)
#define SMALL_BIN 256
#define DIGITS 256
#define CACHED 2048 /* keys that are kept in shared memory */

extern __shared__ uint4 select_memory[];

/* Shared memory of a thread block */
struct select_shared
{
	struct row_key cached[CACHED]; /* the first keys of the source */
	struct row_key sort[SORT_RUN]; /* also used for a small bin */
	uint32_t histogram[DIGITS];
	struct row_key kth;
	/* bits that are 1 in some key of the bin; lowest word first */
	uint32_t some_one[4];
	uint32_t some_zero[4]; /* the same for 0 */
	struct row_key largest[SELECT_WARPS];
	uint32_t bin;
	uint32_t before; /* keys of the old bin that are less than those of the new bin */
	uint32_t nout;
	uint32_t padding;
};

/* The keys to select from: two arrays */
struct key_source
{
	const struct row_key *top;
	const struct row_key *candidates;
	const struct row_key *cached;
	uint32_t ntop;
	uint32_t total;

	__device__ __forceinline__ struct row_key
	get_global(uint32_t i) const
	{
		return i < ntop ? top[i] : candidates[i - ntop];
	}

	__device__ __forceinline__ struct row_key
	get(uint32_t i) const
	{
		return i < CACHED ? cached[i] : get_global(i);
	}
};

/* The keys that agree with value in the bits of mask */
struct key_bin
{
	struct row_key mask;
	struct row_key value;

	__device__ __forceinline__ bool
	has(const struct row_key &key) const
	{
		return (key.hi & mask.hi) == value.hi && (key.lo & mask.lo) == value.lo;
	}
};

/* Word w (0: the lowest) of a key */
static __device__ __forceinline__ uint32_t
key_word(const struct row_key &key, int w)
{
	return (uint32_t) ((w < 2 ? key.lo : key.hi) >> (w % 2 * 32));
}

/* Bits shift .. shift + 7 of a key */
static __device__ __forceinline__ uint32_t
key_digit(const struct row_key &key, uint32_t shift)
{
	uint64_t bits;

	if (shift >= 64)
		bits = key.hi >> (shift - 64);
	else
	{
		bits = key.lo >> shift;
		if (shift > 56)
			bits |= key.hi << (64 - shift);
	}
	return (uint32_t) bits & (DIGITS - 1);
}

/* Ones in the bits from `shift` (0 .. 128) on */
static __device__ __forceinline__ struct row_key
key_mask_from(uint32_t shift)
{
	struct row_key mask;

	mask.hi = shift >= 128 ? 0 : shift <= 64 ? ~UINT64_C(0) : ~UINT64_C(0) << (shift - 64);
	mask.lo = shift >= 64 ? 0 : ~UINT64_C(0) << shift;
	return mask;
}

/*
 * Return the highest bit in which keys of the bin differ.  Add the bits above
 * it, which all keys have in common, to the bin's prefix.
 */
static __device__ uint32_t
highest_difference(struct select_shared *shared, const struct key_source &source,
				   struct key_bin *bin)
{
	struct row_key ones = {0, 0};
	struct row_key zeros = {0, 0}; /* bits that are 0 in some key */
	struct row_key common;
	struct row_key mask;
	uint32_t bit = 0;

	if (threadIdx.x < 4)
	{
		shared->some_one[threadIdx.x] = 0;
		shared->some_zero[threadIdx.x] = 0;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < source.total; i += SELECT_THREADS)
	{
		struct row_key key = source.get(i);

		if (bin->has(key))
		{
			ones.hi |= key.hi;
			ones.lo |= key.lo;
			zeros.hi |= ~key.hi;
			zeros.lo |= ~key.lo;
		}
	}
	__syncwarp();
	for (int w = 0; w < 4; w++)
	{
		uint32_t some_one = __reduce_or_sync(FULL_WARP, key_word(ones, w));
		uint32_t some_zero = __reduce_or_sync(FULL_WARP, key_word(zeros, w));

		if (threadIdx.x % 32 == 0)
		{
			atomicOr(&shared->some_one[w], some_one);
			atomicOr(&shared->some_zero[w], some_zero);
		}
	}
	__syncthreads();
	for (int w = 0; w < 4; w++)
	{
		uint32_t differ = shared->some_one[w] & shared->some_zero[w];

		if (differ != 0)
			bit = w * 32 + 31 - __clz(differ);
	}
	common.hi = (uint64_t) shared->some_one[3] << 32 | shared->some_one[2];
	common.lo = (uint64_t) shared->some_one[1] << 32 | shared->some_one[0];
	mask = key_mask_from(bit + 1);
	bin->mask = mask;
	bin->value.hi = common.hi & mask.hi;
	bin->value.lo = common.lo & mask.lo;
	__syncthreads();
	return bit;
}

/*
 * Count the digits at `shift` of the bin's keys, and find the digit of the
 * rank-th key.  It goes to shared->bin, the number of keys with smaller
 * digits to shared->before.  Returns how many keys have the digit.
 */
static __device__ uint32_t
find_digit(struct select_shared *shared, const struct key_source &source, const struct key_bin &bin,
		   uint32_t shift, uint32_t rank)
{
	for (uint32_t i = threadIdx.x; i < DIGITS; i += SELECT_THREADS)
		shared->histogram[i] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < source.total; i += SELECT_THREADS)
	{
		struct row_key key = source.get(i);

		if (bin.has(key))
			atomicAdd(&shared->histogram[key_digit(key, shift)], 1);
	}
	__syncthreads();
	if (threadIdx.x < 32)
	{
		uint32_t mine = 0;
		uint32_t upto;

		for (int i = 0; i < DIGITS / 32; i++)
			mine += shared->histogram[threadIdx.x * (DIGITS / 32) + i];
		upto = mine;
		for (int d = 1; d < 32; d *= 2)
		{
			uint32_t left = __shfl_up_sync(FULL_WARP, upto, d);

			if (threadIdx.x >= (uint32_t) d)
				upto += left;
		}
		if (upto >= rank && upto - mine < rank)
		{
			uint32_t before = upto - mine;
			uint32_t digit = threadIdx.x * (DIGITS / 32);

			while (before + shared->histogram[digit] < rank)
				before += shared->histogram[digit++];
			shared->bin = digit;
			shared->before = before;
		}
	}
	__syncthreads();
	return shared->histogram[shared->bin];
}

/* The largest key of the bin; every thread gets it */
static __device__ struct row_key
largest_key(struct select_shared *shared, const struct key_source &source,
			const struct key_bin &bin)
{
	struct row_key largest = {0, 0};

	for (uint32_t i = threadIdx.x; i < source.total; i += SELECT_THREADS)
	{
		struct row_key key = source.get(i);

		if (bin.has(key) && key_less(largest.hi, largest.lo, key.hi, key.lo))
			largest = key;
	}
	__syncwarp();
	for (int d = 16; d > 0; d /= 2)
	{
		uint64_t hi = __shfl_xor_sync(FULL_WARP, (unsigned long long) largest.hi, d);
		uint64_t lo = __shfl_xor_sync(FULL_WARP, (unsigned long long) largest.lo, d);

		if (key_less(largest.hi, largest.lo, hi, lo))
		{
			largest.hi = hi;
			largest.lo = lo;
		}
	}
	if (threadIdx.x % 32 == 0)
		shared->largest[threadIdx.x / 32] = largest;
	__syncthreads();
	for (int w = 0; w < SELECT_WARPS; w++)
	{
		struct row_key key = shared->largest[w];

		if (key_less(largest.hi, largest.lo, key.hi, key.lo))
			largest = key;
	}
	__syncthreads();
	return largest;
}

/*
 * The rank-th smallest key of a bin of at most SMALL_BIN keys; every thread
 * gets it
 */
static __device__ struct row_key
finish_small_bin(struct select_shared *shared, const struct key_source &source,
				 const struct key_bin &bin, uint32_t count, uint32_t rank)
{
	struct row_key kth;

	if (threadIdx.x == 0)
		shared->nout = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < source.total; i += SELECT_THREADS)
	{
		struct row_key key = source.get(i);

		if (bin.has(key))
			shared->sort[atomicAdd(&shared->nout, 1)] = key;
	}
	__syncthreads();
	if (threadIdx.x < count)
	{
		struct row_key mine = shared->sort[threadIdx.x];
		uint32_t smaller = 0;

		for (uint32_t i = 0; i < count; i++)
		{
			struct row_key other = shared->sort[i];

			smaller += key_less(other.hi, other.lo, mine.hi, mine.lo);
		}
		if (smaller == rank - 1)
			shared->kth = mine;
	}
	__syncthreads();
	kth = shared->kth;
	__syncthreads();
	return kth;
}

/* The k-th smallest key (1 <= k <= source.total); every thread gets it */
static __device__ struct row_key
kth_key(struct select_shared *shared, const struct key_source &source, uint32_t k)
{
	struct key_bin bin = {{0, 0}, {0, 0}};
	uint32_t count = source.total;
	uint32_t rank = k;

	while (count > rank && count > SMALL_BIN)
	{
		uint32_t bit = highest_difference(shared, source, &bin);
		uint32_t shift = bit > 7 ? bit - 7 : 0;
		struct row_key mask = key_mask_from(shift);
		uint64_t digit;

		count = find_digit(shared, source, bin, shift, rank);
		rank -= shared->before;
		digit = shared->bin;

		/*
		 * the digit's upper bits may repeat bits of the prefix: they agree
		 */
		bin.mask = mask;
		if (shift >= 64)
			bin.value.hi |= digit << (shift - 64);
		else
		{
			bin.value.lo |= digit << shift;
			if (shift > 56)
				bin.value.hi |= digit >> (64 - shift);
		}
		__syncthreads();
	}
	if (count == rank)
		return largest_key(shared, source, bin);
	return finish_small_bin(shared, source, bin, count, rank);
}

/* Copy the keys that are <= limit to out; every thread gets their number */
static __device__ uint32_t
copy_keys(struct select_shared *shared, const struct key_source &source,
		  const struct row_key &limit, struct row_key *out)
{
	uint32_t n;

	if (threadIdx.x == 0)
		shared->nout = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < source.total; i += SELECT_THREADS)
	{
		struct row_key key = source.get(i);

		if (!key_less(limit.hi, limit.lo, key.hi, key.lo))
			out[atomicAdd(&shared->nout, 1)] = key;
	}
	__syncthreads();
	n = shared->nout;
	__syncthreads();
	return n;
}

/*
 * Sort n (<= SORT_RUN) keys in shared memory: a bitonic sort, padded to a
 * power of 2
 */
static __device__ void
sort_shared(struct row_key *keys, uint32_t n)
{
	uint32_t size = 2;

	while (size < n)
		size *= 2;
	for (uint32_t i = n + threadIdx.x; i < size; i += SELECT_THREADS)
	{
		keys[i].hi = ~UINT64_C(0);
		keys[i].lo = ~UINT64_C(0);
	}
	__syncthreads();
	for (uint32_t run = 2; run <= size; run *= 2)
		for (uint32_t d = run / 2; d > 0; d /= 2)
		{
			for (uint32_t i = threadIdx.x; i < size / 2; i += SELECT_THREADS)
			{
				uint32_t a = (i & ~(d - 1)) * 2 + (i & (d - 1));
				uint32_t b = a + d;
				struct row_key x = keys[a];
				struct row_key y = keys[b];
				bool ascending = (a & run) == 0;

				if (key_less(y.hi, y.lo, x.hi, x.lo) == ascending)
				{
					keys[a] = y;
					keys[b] = x;
				}
			}
			__syncthreads();
		}
}

/*
 * Leave out those of n candidates that were counted too low, and move the
 * others together; every thread gets their number.  What is written in a pass
 * was read in it or before.
 */
static __device__ uint32_t
leave_out(struct select_shared *shared, const struct cold_tables &tables,
		  const struct query_state *query, struct row_key *candidates, uint32_t n)
{
	if (threadIdx.x == 0)
		shared->nout = 0;
	for (uint32_t i = threadIdx.x; i - threadIdx.x < n; i += SELECT_THREADS)
	{
		struct row_key key = {0, 0};
		bool stays = false;

		if (i < n)
		{
			key = candidates[i];
			stays = !counted_too_low(tables, query, key);
		}
		__syncthreads();
		if (stays)
			candidates[atomicAdd(&shared->nout, 1)] = key;
	}
	__syncthreads();
	n = shared->nout;
	__syncthreads();
	return n;
}

/*
 * A round that is of no use for a query: note that it has to be run again, or
 * drop the candidates
 */
static __device__ void
drop_round(const struct select_params &params, struct query_state *query)
{
	if (threadIdx.x > 0)
		return;
	if (params.mode == SELECT_TIGHTEN)
		query->count = 0;
	else
		query->overflow = 1;
	if (params.states)
		params.states[blockIdx.x] = *query;
}

static __global__ void
__launch_bounds__(SELECT_THREADS) select_kernel(const __grid_constant__ struct select_params params)
{
	struct select_shared *shared = (struct select_shared *) select_memory;
	struct query_state *query = &params.queries[blockIdx.x];
	struct key_source source;
	struct row_key limit = {~UINT64_C(0), ~UINT64_C(0)};
	struct row_key *candidates;
	bool lost;
	uint32_t k;
	uint32_t n;

	let_next_start();
	wait_for_previous();
	/* the candidates of a query that overflowed before are invalid as well */
	if (query->overflow || query->cold_full)
	{
		drop_round(params, query);
		return;
	}
	lost = query->count > params.capacity;
	k = query->k;
	candidates = params.candidates + (size_t) blockIdx.x * params.capacity;
	n = min(query->count, params.capacity);
	if (params.tables.keys != NULL && query->ncold > 0)
		n = leave_out(shared, params.tables, query, candidates, n);
	source.top = params.top_in + (size_t) blockIdx.x * params.kmax;
	source.candidates = candidates;
	source.ntop = query->ntop;
	source.total = source.ntop + n;
	for (uint32_t i = threadIdx.x; i < min(source.total, (uint32_t) CACHED); i += SELECT_THREADS)
		shared->cached[i] = source.get_global(i);
	source.cached = shared->cached;
	__syncthreads();
	if (source.total >= k)
		limit = kth_key(shared, source, k);

	if (params.mode == SELECT_TIGHTEN || lost)
		n = params.mode == SELECT_TIGHTEN ? source.ntop : 0;
	else if (params.mode == SELECT_ROUND)
		n = copy_keys(shared, source, limit, params.top_out + (size_t) blockIdx.x * params.kmax);
	else
	{
		n = copy_keys(shared, source, limit, shared->sort);
		sort_shared(shared->sort, n);
		for (uint32_t i = threadIdx.x; i < n; i += SELECT_THREADS)
			params.results[(size_t) blockIdx.x * params.kmax + i] = shared->sort[i];
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		if (source.total >= k)
			query->limits.bound = limit;
		query->ntop = n;
		query->count = 0;
		if (lost && params.mode != SELECT_TIGHTEN)
			query->overflow = 1;
		if (params.states)
			params.states[blockIdx.x] = *query;
	}
}

/* Sort one run of a list */
static __global__ void
__launch_bounds__(SELECT_THREADS)
	sort_runs_kernel(const __grid_constant__ struct sort_params params)
{
	struct row_key *keys = (struct row_key *) select_memory;
	size_t list = (size_t) blockIdx.y * params.kmax;
	uint32_t total = params.queries[blockIdx.y].ntop;
	uint32_t from = blockIdx.x * SORT_RUN;
	uint32_t n;

	if (from >= total)
		return;
	n = min(total - from, (uint32_t) SORT_RUN);
	for (uint32_t i = threadIdx.x; i < n; i += SELECT_THREADS)
		keys[i] = params.in[list + from + i];
	__syncthreads();
	sort_shared(keys, n);
	for (uint32_t i = threadIdx.x; i < n; i += SELECT_THREADS)
		params.out[list + from + i] = keys[i];
}

/* Merge pairs of runs of a list; one thread per key */
static __global__ void
__launch_bounds__(SELECT_THREADS)
	merge_runs_kernel(const __grid_constant__ struct sort_params params)
{
	size_t list = (size_t) blockIdx.y * params.kmax;
	uint32_t total = params.queries[blockIdx.y].ntop;
	uint32_t i = blockIdx.x * SELECT_THREADS + threadIdx.x;
	uint32_t pair = i / params.width / 2 * params.width * 2;
	uint32_t other = i / params.width % 2 ? pair : pair + params.width;
	const struct row_key *in = params.in + list;
	struct row_key key;
	uint32_t lo;
	uint32_t hi;

	if (i >= total)
		return;
	key = in[i];
	other = min(other, total);
	lo = other;
	hi = min(other + params.width, total);
	while (lo < hi)
	{
		uint32_t middle = lo + (hi - lo) / 2;
		struct row_key probe = in[middle];

		if (key_less(probe.hi, probe.lo, key.hi, key.lo))
			lo = middle + 1;
		else
			hi = middle;
	}
	params.out[list + pair + i % params.width + (lo - other)] = key;
}

/* Allow the kernel the shared memory that it needs */
cudaError_t
select_prepare(void)
{
	return cudaFuncSetAttribute((const void *) select_kernel,
								cudaFuncAttributeMaxDynamicSharedMemorySize,
								(int) sizeof(struct select_shared));
}

/* Select for all queries */
cudaError_t
select_launch(const struct select_params *params, cudaStream_t stream)
{
	return launch_chained(select_kernel, dim3(params->nqueries), SELECT_THREADS,
						  sizeof(struct select_shared), stream, *params);
}

/*
 * Sort runs of SORT_RUN, or merge runs of params->width, in all queries'
 * lists
 */
cudaError_t
sort_launch(const struct sort_params *params, cudaStream_t stream)
{
	if (params->width == 0)
		return launch(sort_runs_kernel,
					  dim3((params->kmax + SORT_RUN - 1) / SORT_RUN, params->nqueries),
					  SELECT_THREADS, SORT_RUN * sizeof(struct row_key), stream, *params);
	return launch(merge_runs_kernel,
				  dim3((params->kmax + SELECT_THREADS - 1) / SELECT_THREADS, params->nqueries),
				  SELECT_THREADS, 0, stream, *params);
}

} // namespace gpuvec
