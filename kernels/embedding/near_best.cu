/*-------------------------------------------------------------------------
 *
 * near_best.cu
 *	  Keeps the best candidates of each query.
 *
 * A query's bound is found digit by digit, in the order (score descending, key
 * ascending, tid ascending): k of its candidates are not behind it.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/nearest.cuh"

namespace gpuvec
{

#define SELECT_THREADS 512

#define ORDER_DIGITS 24 /* bytes */

/*
 * Find a digit of a row's order.  Returns false if the row's digits before it
 * differ from the prefix.
 */
static __device__ __forceinline__ bool
digit_of(const struct near_params &p, const struct near_order &prefix, int digit, uint32_t slot,
		 double score, uint32_t *value)
{
	int number = digit / 8;
	int shift = 56 - digit % 8 * 8;
	uint64_t word;

	for (int i = 0; i < number; i++)
		if (order_word(p, i, slot, score) != prefix.word[i])
			return false;
	word = order_word(p, number, slot, score);
	if (shift < 56 && (word ^ prefix.word[number]) >> (shift + 8) != 0)
		return false;
	*value = (uint32_t) (word >> shift) & 0xFF;
	return true;
}

/*
 * Find a bound that k of a query's candidates do not exceed, digit by digit,
 * from the highest on.  Called by a whole thread block.
 */
static __device__ void
find_bound(const struct near_params &p, const uint32_t *slots, const double *scores, uint32_t n,
		   struct near_order *bound)
{
	__shared__ uint32_t counts[256];
	__shared__ uint32_t found;
	__shared__ uint32_t before;
	uint32_t wanted = p.k;

	*bound = {{0, 0, 0}};
	for (int digit = 0; digit < ORDER_DIGITS; digit++)
	{
		int shift = 56 - digit % 8 * 8;
		bool done;

		for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x)
			counts[i] = 0;
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
		{
			uint32_t value;

			if (digit_of(p, *bound, digit, slots[i], scores[i], &value))
				atomicAdd(&counts[value], 1u);
		}
		__syncthreads();
		if (threadIdx.x == 0)
		{
			before = 0;
			for (found = 0; before + counts[found] < wanted; found++)
				before += counts[found];
		}
		__syncthreads();
		wanted -= before;
		bound->word[digit / 8] |= (uint64_t) found << shift;
		done = counts[found] == wanted;
		__syncthreads();
		if (done)
		{
			/* the bound includes all rows with this prefix */
			if (shift > 0)
				bound->word[digit / 8] |= (UINT64_C(1) << shift) - 1;
			for (int i = digit / 8 + 1; i < 3; i++)
				bound->word[i] = UINT64_MAX;
			break;
		}
	}
}

/* Keep the best k candidates of a query; one thread block per query */
static __global__ void
__launch_bounds__(SELECT_THREADS) select_best_kernel(const __grid_constant__ struct near_params p)
{
	__shared__ uint32_t warps[SELECT_THREADS / 32];
	struct near_query *state = &p.states[blockIdx.x];
	uint32_t *slots = p.slots + (uint64_t) blockIdx.x * p.capacity;
	double *scores = p.scores + (uint64_t) blockIdx.x * p.capacity;
	uint32_t n = state->count;
	uint32_t kept = 0;
	struct near_order bound;

	if (n < p.k)
		return;
	find_bound(p, slots, scores, n, &bound);
	for (uint32_t first = 0; first < n; first += blockDim.x)
	{
		uint32_t i = first + threadIdx.x;
		uint32_t slot = i < n ? slots[i] : 0;
		double score = i < n ? scores[i] : 0;
		bool keep = i < n && within(p, bound, slot, score);
		uint32_t votes = __ballot_sync(FULL_WARP, keep);
		uint32_t to = kept + __popc(votes & ((1u << threadIdx.x % 32) - 1));

		if (threadIdx.x % 32 == 0)
			warps[threadIdx.x / 32] = __popc(votes);
		__syncthreads();
		for (uint32_t w = 0; w < blockDim.x / 32; w++)
		{
			if (w < threadIdx.x / 32)
				to += warps[w];
			kept += warps[w];
		}
		if (keep)
		{
			slots[to] = slot;
			scores[to] = score;
		}
		__syncthreads();
	}
	if (threadIdx.x == 0)
	{
		state->bound = bound;
		state->bounded = 1;
		state->count = kept;
	}
}

/* Copy the best rows of all queries to one array */
static __global__ void
collect_kernel(const __grid_constant__ struct near_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	uint64_t query = i / p.k;
	uint32_t number = (uint32_t) (i % p.k);

	if (query < p.nqueries && number < p.states[query].count)
	{
		p.best_slots[i] = p.slots[query * p.capacity + number];
		p.best_scores[i] = p.scores[query * p.capacity + number];
	}
}

cudaError_t
near_select(const struct near_params &params, cudaStream_t stream)
{
	return launch(select_best_kernel, (uint64_t) params.nqueries, SELECT_THREADS, 0, stream,
				  params);
}

cudaError_t
near_collect(const struct near_params &params, cudaStream_t stream)
{
	return launch(collect_kernel, divide_up((uint64_t) params.nqueries * params.k, 256), 256, 0,
				  stream, params);
}

} // namespace gpuvec
