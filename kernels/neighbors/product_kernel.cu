/*-------------------------------------------------------------------------
 *
 * product_kernel.cu
 *	  One row of the product of the weighted matrix of items and users with
 *	  its transpose, and its k largest elements.
 *
 * A block has one item and one slice of the columns, with a sum in shared
 * memory for each column.  A slice is cut into ranges of about equal work, one
 * for each warp.  Each warp goes through the users of the item in their order
 * and adds those entries of the user's row that lie in its range; lanes have
 * different entries, thus different columns.  So no two threads ever add to
 * one sum at a time, there are no atomics, and each sum adds the users in
 * their order: the same bits as on the CPU.  Warps need not wait for each
 * other until all users are done.
 *
 * Where a user's entries of a range begin and end was computed before
 * (splits).  Lanes read that for 32 users at a time.
 *
 * The k best are found by radix selection of the scores' bits, which have the
 * order of the scores, for these are not negative: eight passes of eight
 * bits.  Among scores that equal the k-th, four more passes find the items
 * with the smallest numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/neighbors/product_kernels.h"

namespace gpuvec
{

static constexpr uint32_t THREADS = PRODUCT_WARPS * 32;
static constexpr unsigned ALL = 0xFFFFFFFFu;
static constexpr uint32_t DIGITS = 256;

/* Shared memory behind the sums */
struct select_state
{
	uint32_t counts[DIGITS];
	uint32_t digit;   /* that was chosen in a pass ... */
	uint32_t before;  /* ... and how many come before it */
	uint32_t nscores; /* that are greater than zero */
	uint32_t n;       /* items that were put out */
};

extern __shared__ double product_sums[];

/* ---- the sums ---- */

/* A user of the item: entries of its row in the warp's range */
struct user_range
{
	uint64_t from;
	uint64_t to;
	double weight; /* of the item */
};

/* That of one lane; empty beyond the last user */
static __device__ __forceinline__ user_range
load_range(const product_params &p, uint64_t at, uint64_t end, uint32_t range)
{
	user_range r = {0, 0, 0};

	if (at < end)
	{
		uint32_t user = p.matrix.item_users[at];
		uint64_t start = p.matrix.user_starts[user];
		const uint32_t *split =
			p.splits + (uint64_t) user * (p.nslices * PRODUCT_WARPS + 1) + range;

		r.from = start + split[0];
		r.to = start + split[1];
		r.weight = p.matrix.item_weights[at];
	}
	return r;
}

/* The range of one lane, for all lanes */
static __device__ __forceinline__ user_range
broadcast_range(const user_range &mine, uint32_t lane)
{
	user_range r;

	r.from = __shfl_sync(ALL, mine.from, lane);
	r.to = __shfl_sync(ALL, mine.to, lane);
	r.weight = __shfl_sync(ALL, mine.weight, lane);
	return r;
}

/* An entry of a user's row */
struct user_entry
{
	uint32_t column;
	double weight;
};

/* The lane's first entry of a range; of no use if there is none */
static __device__ __forceinline__ user_entry
first_entry(const product_params &p, const user_range &r)
{
	uint64_t at = r.from + threadIdx.x % 32;
	user_entry entry = {0, 0};

	if (at < r.to)
	{
		entry.column = p.matrix.columns[at];
		entry.weight = p.matrix.weights[at];
	}
	return entry;
}

/* Add a user's entries, the lane's first one of which has been read */
static __device__ __forceinline__ void
add_range(const product_params &p, const user_range &r, const user_entry &first,
		  uint32_t first_column, double *sums)
{
	uint64_t at = r.from + threadIdx.x % 32;

	if (at < r.to)
		sums[first.column - first_column] += r.weight * first.weight;
	for (at += 32; at < r.to; at += 32)
		sums[p.matrix.columns[at] - first_column] += r.weight * p.matrix.weights[at];
	/* the next user comes after all lanes */
	__syncwarp();
}

/* Add n users, one after the other; each lane has the range of one */
static __device__ __forceinline__ void
add_ranges(const product_params &p, const user_range &mine, uint32_t n, uint32_t first_column,
		   double *sums)
{
	user_range r = broadcast_range(mine, 0);
	user_entry entry = first_entry(p, r);

	for (uint32_t lane = 1; lane <= n; lane++)
	{
		/* read ahead; behind the last lane, its own entry once more */
		user_range next = broadcast_range(mine, lane < n ? lane : n - 1);
		user_entry next_entry = first_entry(p, next);

		add_range(p, r, entry, first_column, sums);
		r = next;
		entry = next_entry;
	}
}

/* Add all users of an item, in their order */
static __device__ void
add_users(const product_params &p, uint32_t item, uint32_t range, uint32_t first_column,
		  double *sums)
{
	uint64_t end = p.matrix.item_starts[item + 1];

	for (uint64_t at = p.matrix.item_starts[item]; at < end; at += 32)
	{
		user_range mine = load_range(p, at + threadIdx.x % 32, end, range);
		uint32_t n = end - at < 32 ? (uint32_t) (end - at) : 32;

		add_ranges(p, mine, n, first_column, sums);
	}
}

/*
 * Turn sums into scores; what is not greater than zero, and the item itself,
 * becomes zero.  Counts the others.
 */
static __device__ void
score_sums(const product_params &p, uint32_t item, uint32_t first_column, uint32_t ncolumns,
		   double *sums, select_state *state)
{
	double own = p.matrix.squares[item];
	uint32_t n = 0;

	for (uint32_t i = threadIdx.x; i < ncolumns; i += THREADS)
	{
		uint32_t other = p.matrix.items[first_column + i];
		double sum = sums[i];
		double score = 0;

		if (sum > 0 && other != item)
			score = gpuvec_neighbor_score(p.matrix.weighting, sum, own, p.matrix.squares[other]);
		sums[i] = score;
		n += score > 0;
	}
	if (n > 0)
		atomicAdd(&state->nscores, n);
}

/* ---- the k best ---- */

/*
 * The first warp finds the digit, from the largest one down (descending) or
 * from the smallest one up, with which the counts reach `wanted`.
 */
static __device__ void
choose_digit(select_state *state, uint32_t wanted, bool descending)
{
	constexpr uint32_t EACH = DIGITS / 32;
	uint32_t lane = threadIdx.x;
	uint32_t own = 0;
	uint32_t sum;

	for (uint32_t i = 0; i < EACH; i++)
	{
		uint32_t digit = lane * EACH + i;

		own += state->counts[descending ? DIGITS - 1 - digit : digit];
	}
	sum = own;
	for (uint32_t distance = 1; distance < 32; distance *= 2)
	{
		uint32_t other = __shfl_up_sync(ALL, sum, distance);

		if (lane >= distance)
			sum += other;
	}
	if (sum >= wanted && sum - own < wanted)
	{
		uint32_t before = sum - own;
		uint32_t digit = lane * EACH;

		for (;; digit++)
		{
			uint32_t n = state->counts[descending ? DIGITS - 1 - digit : digit];

			if (before + n >= wanted)
				break;
			before += n;
		}
		state->digit = descending ? DIGITS - 1 - digit : digit;
		state->before = before;
	}
}

/* Threads of the block zero the counts of digits */
static __device__ void
zero_counts(select_state *state)
{
	for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
		state->counts[i] = 0;
	__syncthreads();
}

/*
 * The wanted-th largest of the scores' bits.  Sets *wanted to how many of
 * those that are equal to it are among the largest, and *equal to how many
 * there are.
 */
static __device__ uint64_t
select_score(const uint64_t *bits, uint32_t n, select_state *state, uint32_t *wanted,
			 uint32_t *equal)
{
	uint64_t prefix = 0;
	uint64_t mask = 0;

	for (int shift = 56; shift >= 0; shift -= 8)
	{
		zero_counts(state);
		for (uint32_t i = threadIdx.x; i < n; i += THREADS)
			if ((bits[i] & mask) == prefix)
				atomicAdd(&state->counts[bits[i] >> shift & (DIGITS - 1)], 1u);
		__syncthreads();
		if (threadIdx.x < 32)
			choose_digit(state, *wanted, true);
		__syncthreads();
		*wanted -= state->before;
		*equal = state->counts[state->digit];
		prefix |= (uint64_t) state->digit << shift;
		mask |= (uint64_t) (DIGITS - 1) << shift;
		__syncthreads();
	}
	return prefix;
}

/* The wanted-th smallest number of the items whose scores have these bits */
static __device__ uint32_t
select_item(const uint64_t *bits, const uint32_t *items, uint32_t n, uint64_t tied,
			select_state *state, uint32_t wanted)
{
	uint32_t prefix = 0;
	uint32_t mask = 0;

	for (int shift = 24; shift >= 0; shift -= 8)
	{
		zero_counts(state);
		for (uint32_t i = threadIdx.x; i < n; i += THREADS)
			if (bits[i] == tied && (items[i] & mask) == prefix)
				atomicAdd(&state->counts[items[i] >> shift & (DIGITS - 1)], 1u);
		__syncthreads();
		if (threadIdx.x < 32)
			choose_digit(state, wanted, false);
		__syncthreads();
		wanted -= state->before;
		prefix |= state->digit << shift;
		mask |= (DIGITS - 1) << shift;
		__syncthreads();
	}
	return prefix;
}

/*
 * Put out the items whose scores have more than these bits, and of those that
 * have the same the items up to last_item
 */
static __device__ void
put_best(const uint64_t *bits, const uint32_t *items, uint32_t n, uint64_t least,
		 uint32_t last_item, select_state *state, gpuvec_scored_item *best)
{
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		if (bits[i] > least || (bits[i] == least && least != 0 && items[i] <= last_item))
		{
			gpuvec_scored_item *to = &best[atomicAdd(&state->n, 1u)];

			memcpy(&to->score, &bits[i], sizeof(to->score));
			to->item = items[i];
			to->unused = 0;
		}
}

/* Find the k best scores, and put them out */
static __device__ void
put_k(const product_params &p, const uint64_t *bits, const uint32_t *items, uint32_t n,
	  select_state *state, gpuvec_scored_item *best)
{
	uint64_t least = 0;
	uint32_t last_item = UINT32_MAX;

	if (state->nscores > p.matrix.k)
	{
		uint32_t wanted = p.matrix.k;
		uint32_t equal = 0;

		least = select_score(bits, n, state, &wanted, &equal);
		if (equal > wanted)
			last_item = select_item(bits, items, n, least, state, wanted);
	}
	put_best(bits, items, n, least, last_item, state, best);
}

__global__ void
__launch_bounds__(THREADS) product_kernel(const __grid_constant__ product_params p)
{
	uint32_t at = blockIdx.x / p.nslices;
	uint32_t slice = blockIdx.x % p.nslices;
	uint32_t place = p.order[at];
	uint32_t item = p.first + place;
	uint32_t range = slice * PRODUCT_WARPS + threadIdx.x / 32;
	uint32_t first_column = p.bounds[slice * PRODUCT_WARPS];
	uint32_t ncolumns = p.bounds[(slice + 1) * PRODUCT_WARPS] - first_column;
	uint64_t slot = (uint64_t) place * p.nslices + slice;
	double *sums = product_sums;
	select_state *state = (select_state *) (sums + ncolumns);

	for (uint32_t i = threadIdx.x; i < ncolumns; i += THREADS)
		sums[i] = 0;
	if (threadIdx.x == 0)
		state->nscores = state->n = 0;
	__syncthreads();
	add_users(p, item, range, first_column, sums);
	__syncthreads();
	score_sums(p, item, first_column, ncolumns, sums, state);
	__syncthreads();
	put_k(p, (const uint64_t *) sums, p.matrix.items + first_column, ncolumns, state,
		  p.best + slot * p.matrix.k);
	__syncthreads();
	if (threadIdx.x == 0)
		p.counts[slot] = state->n;
}

/* ---- launching ---- */

uint32_t
product_columns(size_t shared_limit)
{
	return (uint32_t) ((shared_limit - sizeof(select_state)) / sizeof(double));
}

cudaError_t
product_prepare(size_t shared_limit)
{
	return cudaFuncSetAttribute((const void *) product_kernel,
								cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared_limit);
}

cudaError_t
product_find(const product_params &params, uint32_t n, uint32_t columns, cudaStream_t stream)
{
	return launch(product_kernel, (uint64_t) n * params.nslices, THREADS,
				  columns * sizeof(double) + sizeof(select_state), stream, params);
}

} // namespace gpuvec
