/*-------------------------------------------------------------------------
 *
 * forward.cu
 *	  Pools rows of an embedding table.
 *
 * The speed of memory limits this work.  So everything is arranged for many
 * loads in flight, with few instructions between them.
 *
 * If every lookup is a vector of the result (concat, or bags of one lookup),
 * gather.cu copies the rows.  The following is about all other cases.
 *
 * A call may take only 20 microseconds, and the gap between two kernels would
 * take one or two of them.  So kernels start while the previous kernel ends
 * (launch_chained).  If bags are settled (pooling_kernels.h), they also read
 * rows while it ends, and wait only before they write.
 *
 * Groups of 8, 16 or 32 lanes pool bags.  A lane adds up its own columns in
 * the order of the lookups.  Indices are fetched a chunk ahead, one per lane.
 * Rows of more than 512 bytes are pooled in slices.
 *
 * bag_kernel gives each group one bag of more than a few lookups.  It has
 * eight rows in flight, or four if four groups share a warp.  If keys are
 * skewed and rows come from the caches, the L2 cache is the limit (it reaches
 * 88 to 94 % of its throughput), and for float16 also the number of
 * instructions: see pooling_add_batch in pool.cuh.  Blocks are small and take
 * no shared memory, which leaves the L1 cache to the hot rows.
 *
 * stream_kernel gives each group several consecutive short bags.  Their
 * lookups are consecutive too, so the group treats them as one stream: rows
 * of several bags are in flight.  Where a bag ends, its vector is stored and
 * the next bag begins.  So short bags keep as many loads in flight as long
 * bags.  A warp waits for the sum of several bags' lengths, which varies less
 * than each length.
 *
 * Bags of more than GPUVEC_PIECE lookups are first cut into pieces
 * (pieces.cu), which then take the place of bags.
 *
 * Blocks are small because the hardware assigns blocks to multiprocessors one
 * by one: this balances bags of all lengths.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/embedding/pool.cuh"

namespace gpuvec
{

#define BAG_UNROLL 8        /* rows in flight per group of lanes */
#define BAG_NARROW_UNROLL 4 /* the same for groups of 8 lanes */
#define STREAM_UNROLL 4     /* the same in stream_kernel */
/* lookups per group of lanes in stream_kernel, on average */
#define RANGE_LOOKUPS 16

#define LONG_BAG 32 /* lookups of a long bag, on average */

#define POOL_MOST_THREADS 256

/* The parameters of bag_kernel and stream_kernel */
struct pool_params
{
	/* the table; its type is a template parameter */
	const char *table;
	uint32_t stride_bytes;
	uint32_t rows;
	uint32_t width;

	/* the lookups */
	const void *indices;
	const float *weights;
	uint32_t index_bits;

	/* bags or pieces */
	uint32_t hotness;
	const int64_t *offsets; /* NULL: bags of hotness lookups */
	const uint32_t *count;  /* NULL, or their number, if only the device knows it */
	uint32_t bags;          /* their number, or an upper limit of it */

	/* how the work is distributed */
	uint32_t range;      /* bags per group of lanes */
	uint32_t warp_tasks; /* warps per slice */
	uint32_t slices;
	uint32_t vectors; /* vectors per row */
	bool slice_major;

	/* the result */
	bool settled; /* see pooling_kernels.h */
	bool mean;
	bool skip_missing;
	bool vector_out;      /* aligned for vector stores */
	bool vector_partial;  /* the same for sums of pieces */
	const uint32_t *dest; /* NULL: bag i goes to row i */
	void *out;            /* its type is a template parameter */
	uint64_t out_stride;
	float *partial;
	double *partial_divisor;
	uint64_t partial_stride;
};

/*
 * Divide the sums of a bag.  Multiplying by the inverse of a power of two
 * gives the same bits as dividing by it, in a fraction of the time.
 */
template <int E>
static __device__ __forceinline__ void
divide(float (&acc)[E], float divisor)
{
	uint32_t bits = __float_as_uint(divisor);

	if (divisor >= 1.0f && divisor <= (float) (1 << 20) && bits << 9 == 0)
	{
		float inverse = __uint_as_float(2 * __float_as_uint(1.0f) - bits);

#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] *= inverse;
	}
	else
	{
#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] = divisor == 0.0f ? 0.0f : __fdiv_rn(acc[e], divisor);
	}
}

/*
 * The type in which divisors are summed: float64 for weights.  Without
 * weights the divisor of a piece is a number of lookups, at most
 * GPUVEC_PIECE, which float32 holds exactly.
 */
template <bool W>
struct pooling_divisor
{
	typedef float type;
};

template <>
struct pooling_divisor<true>
{
	typedef double type;
};

/*
 * If the destination is that of a piece with weights, store the piece's
 * divisor, not rounded
 */
template <bool W>
static __device__ __forceinline__ void
store_divisor(const struct pool_params &p, uint32_t dest, double divisor)
{
	if (W && dest & POOLING_PARTIAL)
		p.partial_divisor[dest & ~POOLING_PARTIAL] = divisor;
}

/*
 * Store the vector of a bag or of a piece.  For a piece without weights also
 * store its divisor.
 */
template <typename O, int E, bool W>
static __device__ __forceinline__ void
store_bag(const struct pool_params &p, uint32_t dest, uint32_t column, bool active, float (&acc)[E],
		  float divisor)
{
	if (dest & POOLING_PARTIAL)
	{
		uint32_t slot = dest & ~POOLING_PARTIAL;

		if (active)
			pooling_store<E>(p.partial + slot * p.partial_stride, column * E, p.width,
							 p.vector_partial, acc);
		if (!W && p.mean && column == 0)
			p.partial_divisor[slot] = divisor;
	}
	else if (active)
	{
		if (p.mean)
			divide(acc, divisor);
		pooling_store<E>((O *) p.out + dest * p.out_stride, column * E, p.width, p.vector_out, acc);
	}
}

/*
 * The divisor of the mean of lookups start .. end - 1, computed by one lane
 */
template <bool W>
static __device__ __forceinline__ typename pooling_divisor<W>::type
bag_divisor(const struct pool_params &p, uint64_t start, uint64_t end)
{
	typename pooling_divisor<W>::type divisor = 0;

	if (!W && !p.skip_missing)
		return (float) (end - start);
	for (uint64_t i = start; i < end; i++)
	{
		if (!p.skip_missing ||
			pooling_lookup(p.indices, p.index_bits, p.rows, i) != POOLING_MISSING)
			divisor += W ? p.weights[i] : 1.0f;
	}
	return divisor;
}

/* Begin a sum */
template <int E>
static __device__ __forceinline__ void
clear(float (&acc)[E])
{
#pragma unroll
	for (int e = 0; e < E; e++)
		acc[e] = 0.0f;
}

/*
 * Fetch lookup `at` of the n lookups that begin with `start`; if at >= n, the
 * lookup counts as missing
 */
template <bool W>
static __device__ __forceinline__ void
fetch_lookup(const struct pool_params &p, uint64_t start, int n, int at, uint32_t &row,
			 float &weight)
{
	row = POOLING_MISSING;
	weight = 1.0f;
	if (at < n)
	{
		row = pooling_lookup(p.indices, p.index_bits, p.rows, start + at);
		if (W)
			weight = __ldcs(p.weights + start + at);
	}
}

/*
 * Add the weights of a chunk's lookups, or their number, to the divisor of a
 * mean.  counted: a mask of the lookups of the warp that count.
 */
template <int LANES, bool W>
static __device__ __forceinline__ void
count_chunk(const struct pooling_chunk &chunk, uint32_t counted,
			typename pooling_divisor<W>::type &divisor)
{
	if (!W)
		divisor += (float) __popc(counted >> chunk.group_lane & (FULL_WARP >> (32 - LANES)));
	for (uint32_t i = 0; W && i < LANES; i++)
	{
		double weight = __shfl_sync(FULL_WARP, chunk.weight, chunk.group_lane + i);

		if (counted >> (chunk.group_lane + i) & 1)
			divisor += weight;
	}
}

/*
 * Pool bags or pieces: one with each group of lanes.  T is the type of the
 * table, O that of the result, VB the bytes of a vector, LANES the number of
 * lanes that share a row.  W: there are weights.
 *
 * (As a struct with members, like stream_group, it would need up to 16
 * registers more.)
 */
template <typename T, typename O, int VB, int LANES, bool W>
static __global__ void
__launch_bounds__(POOL_MOST_THREADS) bag_kernel(const __grid_constant__ struct pool_params p)
{
	constexpr int E = VB / (int) sizeof(T);
	constexpr int UNROLL = LANES == 8 ? BAG_NARROW_UNROLL : BAG_UNROLL;
	uint32_t lane = threadIdx.x % 32;
	uint32_t sub = lane % LANES;
	uint32_t warp_task;
	uint32_t slice;

	let_next_start();
	if (!p.settled)
		wait_for_previous();
	if (!pooling_find_work(p.warp_tasks, p.slices, p.slice_major, warp_task, slice))
		return;

	uint32_t bag = warp_task * (32 / LANES) + lane / LANES;
	bool valid = bag < (p.count ? *p.count : p.bags);
	uint32_t column = slice * LANES + sub;
	bool active = column < p.vectors;
	const char *base = pooling_lane_base(p.table, column, p.vectors, VB);
	uint64_t start = 0;
	int n = 0;

	if (valid)
	{
		start = p.offsets ? p.offsets[bag] : (uint64_t) bag * p.hotness;
		n = p.offsets ? (int) (p.offsets[bag + 1] - start) : (int) p.hotness;
	}

	int most = (int) __reduce_max_sync(FULL_WARP, (unsigned) n);
	bool count = p.mean && (W || p.skip_missing); /* otherwise the divisor is n */
	float acc[E];
	typename pooling_divisor<W>::type divisor = count ? 0 : n;
	struct pooling_chunk chunk;
	uint32_t next_row;
	float next_weight;

	clear(acc);
	chunk.ends = 0;
	chunk.group_lane = lane - sub;
	fetch_lookup<W>(p, start, n, sub, next_row, next_weight);
	for (int k = 0; k < most; k += LANES)
	{
		chunk.row = next_row;
		chunk.weight = next_weight;
		fetch_lookup<W>(p, start, n, k + LANES + sub, next_row, next_weight);
		chunk.present = __ballot_sync(FULL_WARP, chunk.row != POOLING_MISSING);
#pragma unroll 1
		for (uint32_t j = 0; j < LANES; j += UNROLL)
			pooling_add_batch<T, VB, LANES, UNROLL, W>(base, p.stride_bytes, chunk, j, acc,
													   [](uint32_t) {});
		if (count)
			count_chunk<LANES, W>(
				chunk, p.skip_missing ? chunk.present : __ballot_sync(FULL_WARP, k + (int) sub < n),
				divisor);
	}
	wait_for_previous();
	if (valid)
	{
		uint32_t dest = p.dest ? p.dest[bag] : bag;

		if (p.mean && column == 0)
			store_divisor<W>(p, dest, divisor);
		store_bag<O, E, W>(p, dest, column, active, acc, (float) divisor);
	}
}

/*
 * A group of lanes that pools p.range consecutive short bags or pieces, as
 * one stream of lookups.  Lane i of the group knows where its bag i ends,
 * where its vector goes and what it is divided by.
 *
 * The group pools a chunk of LANES lookups at a time, one lookup per lane,
 * while the next chunk is being fetched.  Positions k, n and last count from
 * the group's first lookup.
 */
template <typename T, typename O, int VB, int LANES, bool W>
struct stream_group
{
	static constexpr int E = VB / (int) sizeof(T);

	const struct pool_params p; /* a copy: it takes fewer registers than a reference */
	uint32_t lane;              /* in the warp */
	uint32_t sub;               /* in the group */
	uint32_t group_lane;        /* the group's first lane in the warp */
	bool waited;                /* wait_for_previous() was called */

	/* the work */
	uint32_t warp_task;
	uint32_t slice;
	uint32_t column; /* this lane's column, in vectors */
	bool active;     /* the row has this column */
	const char *base;
	uint64_t start; /* the group's first lookup */
	int n;
	int most; /* the greatest n of the warp's groups */

	/* this lane's bag */
	uint32_t dest;
	float divisor;
	int last; /* its last lookup; -1: the bag is empty */

	/* a bit for each bag of the group that is not empty and has not ended */
	uint32_t queue;
	/* a bit for each lane of the warp whose bag is empty */
	uint32_t empties;

	/* the sum, the chunk, and this lane's lookup of the next chunk */
	float acc[E];
	struct pooling_chunk chunk;
	uint32_t next_row;
	float next_weight;

	__device__ __forceinline__
	stream_group(const struct pool_params &params)
		: p(params), lane(threadIdx.x % 32), sub(lane % LANES), group_lane(lane - sub),
		  waited(!p.settled)
	{
	}

	/* Find the work; false if there is none */
	__device__ __forceinline__ bool
	find_work()
	{
		if (!pooling_find_work(p.warp_tasks, p.slices, p.slice_major, warp_task, slice))
			return false;
		column = slice * LANES + sub;
		active = column < p.vectors;
		base = pooling_lane_base(p.table, column, p.vectors, VB);
		chunk.group_lane = group_lane;
		return true;
	}

	/* The divisor of this lane's bag, which has lookups from .. to - 1 */
	__device__ __forceinline__ void
	find_divisor(uint64_t from, uint64_t to)
	{
		typename pooling_divisor<W>::type sum = bag_divisor<W>(p, from, to);

		/* with pieces, bags are not settled, so the group has waited */
		if (slice == 0)
			store_divisor<W>(p, dest, sum);
		divisor = (float) sum;
	}

	/* Find the bags and their lookups */
	__device__ __forceinline__ void
	find_bags()
	{
		uint32_t bags = p.count ? *p.count : p.bags;
		uint64_t first = (uint64_t) (warp_task * (32 / LANES) + lane / LANES) * p.range;
		uint32_t range = (uint32_t) min((uint64_t) p.range, bags - min(first, (uint64_t) bags));
		uint32_t bag = (uint32_t) first + sub;
		bool valid = sub < range;
		uint64_t from = 0;
		uint64_t to = 0;

		dest = bag;
		divisor = 0.0f;
		if (valid)
		{
			from = p.offsets ? p.offsets[bag] : (uint64_t) bag * p.hotness;
			to = p.offsets ? p.offsets[bag + 1] : from + p.hotness;
			if (p.dest)
				dest = p.dest[bag];
			if (p.mean)
				find_divisor(from, to);
		}
		start = __shfl_sync(FULL_WARP, from, group_lane);
		last = from == to ? -1 : (int) (to - start) - 1;
		n = (int) (__shfl_sync(FULL_WARP, to, group_lane + max(range, 1u) - 1) - start);
		most = (int) __reduce_max_sync(FULL_WARP, (unsigned) n);
		queue = __ballot_sync(FULL_WARP, from != to) >> group_lane & (FULL_WARP >> (32 - LANES));
		empties = __ballot_sync(FULL_WARP, valid && from == to);
		clear(acc);
	}

	/*
	 * If `now`, store the vector of bag i, and clear the sum for the next
	 * bag.  Called by the whole warp.
	 */
	__device__ __forceinline__ void
	store(uint32_t i, bool now)
	{
		uint32_t bag_dest = __shfl_sync(FULL_WARP, dest, group_lane + i);
		float bag_div = __shfl_sync(FULL_WARP, divisor, group_lane + i);

		if (!waited)
			wait_for_previous();
		waited = true;
		if (!now)
			return;
		store_bag<O, E, W>(p, bag_dest, column, active, acc, bag_div);
		clear(acc);
	}

	/* Store the vectors of empty bags */
	__device__ __forceinline__ void
	store_empties()
	{
		for (uint32_t i = 0; i < LANES && empties; i++)
		{
			if (empties >> i & pooling_group_starts<LANES>())
				store(i, empties >> (group_lane + i) & 1);
		}
	}

	/* Fetch lookup `at`: this lane's lookup of the next chunk */
	__device__ __forceinline__ void
	fetch(int at)
	{
		fetch_lookup<W>(p, start, n, at, next_row, next_weight);
	}

	/*
	 * Take the chunk that begins with lookup k, and find where bags end in it
	 */
	__device__ __forceinline__ void
	take(int k)
	{
		bool here = last >= k && last - k < LANES;

		chunk.row = next_row;
		chunk.weight = next_weight;
		fetch(k + LANES + sub);
		chunk.present = __ballot_sync(FULL_WARP, chunk.row != POOLING_MISSING);
		chunk.ends =
			__reduce_or_sync(FULL_WARP, here ? 1u << (group_lane + (uint32_t) (last - k)) : 0);
	}

	/*
	 * Called by the whole warp when a bag ends with lookup `at` of the chunk
	 * in at least one group
	 */
	__device__ __forceinline__ void
	end_bag(uint32_t at)
	{
		bool now = chunk.ends >> (group_lane + at) & 1;

		store(queue ? __ffs(queue) - 1 : 0, now);
		if (now)
			queue &= queue - 1;
	}

	/* Add the rows of the chunk */
	__device__ __forceinline__ void
	add()
	{
#pragma unroll 1
		for (uint32_t j = 0; j < LANES; j += STREAM_UNROLL)
			pooling_add_batch<T, VB, LANES, STREAM_UNROLL, W>(base, p.stride_bytes, chunk, j, acc,
															  [&](uint32_t at) { end_bag(at); });
	}
};

/* Pool short bags or pieces: several with each group of lanes */
template <typename T, typename O, int VB, int LANES, bool W>
static __global__ void
__launch_bounds__(POOL_MOST_THREADS) stream_kernel(const __grid_constant__ struct pool_params p)
{
	stream_group<T, O, VB, LANES, W> group(p);

	let_next_start();
	if (group.waited)
		wait_for_previous();
	if (!group.find_work())
		return;
	group.find_bags();
	group.store_empties();
	group.fetch(group.sub);
	for (int k = 0; k < group.most; k += LANES)
	{
		group.take(k);
		group.add();
	}
}

/*
 * How rows are read: with the longest vectors that the alignment allows,
 * except that rows of less than 128 bytes are spread over 8 lanes
 */
struct pooling_shape
pooling_choose_shape(const struct pooling_policy &policy, const void *data, uint64_t stride_bytes,
					 uint64_t row_bytes, uint32_t element_bytes, uint32_t max_vector_bytes)
{
	struct pooling_shape shape;
	uint32_t bytes = element_bytes;

	while (bytes < max_vector_bytes && (uintptr_t) data % (bytes * 2) == 0 &&
		   stride_bytes % (bytes * 2) == 0 &&
		   divide_up(row_bytes, bytes) > (1u << POOLING_MIN_LANES_LOG2))
		bytes *= 2;

	shape.vector_bytes = bytes;
	shape.vectors = (uint32_t) divide_up(row_bytes, bytes);
	shape.lanes_log2 = POOLING_MIN_LANES_LOG2;
	while (shape.lanes_log2 < 5 && shape.vectors > (1u << shape.lanes_log2) &&
		   bytes << (shape.lanes_log2 + 1) <= policy.slice_bytes)
		shape.lanes_log2++;
	shape.slices = (uint32_t) divide_up(shape.vectors, (uint64_t) 1 << shape.lanes_log2);
	return shape;
}

/* Launch bag_kernel or stream_kernel */
template <typename T, typename O, int VB, int LANES, bool W>
static cudaError_t
launch_pool(const struct pooling_policy &policy, const struct pool_params &params,
			cudaStream_t stream)
{
	uint64_t warps = (uint64_t) params.warp_tasks * params.slices;

	if (params.range == 1)
		return pooling_launch_cached(policy, bag_kernel<T, O, VB, LANES, W>, warps, policy.threads,
									 params, stream);
	return pooling_launch_cached(policy, stream_kernel<T, O, VB, LANES, W>, warps, policy.threads,
								 params, stream);
}

/* The same for vectors of VB bytes */
template <typename T, typename O, int VB>
static cudaError_t
pool_vectors(const struct pooling_policy &policy, const struct pool_params &params,
			 uint32_t lanes_log2, cudaStream_t stream)
{
	bool weighted = params.weights != NULL;

	switch (lanes_log2)
	{
		case 3:
			return weighted ? launch_pool<T, O, VB, 8, true>(policy, params, stream)
							: launch_pool<T, O, VB, 8, false>(policy, params, stream);
		case 4:
			return weighted ? launch_pool<T, O, VB, 16, true>(policy, params, stream)
							: launch_pool<T, O, VB, 16, false>(policy, params, stream);
		default:
			return weighted ? launch_pool<T, O, VB, 32, true>(policy, params, stream)
							: launch_pool<T, O, VB, 32, false>(policy, params, stream);
	}
}

/* The same for tables of T and results of O */
template <typename T, typename O>
static cudaError_t
pool_type(const struct pooling_policy &policy, const struct pool_params &params,
		  const struct pooling_shape &shape, cudaStream_t stream)
{
	switch (shape.vector_bytes)
	{
		case 16:
			return pool_vectors<T, O, 16>(policy, params, shape.lanes_log2, stream);
		case 8:
			return pool_vectors<T, O, 8>(policy, params, shape.lanes_log2, stream);
		case 4:
			return pool_vectors<T, O, 4>(policy, params, shape.lanes_log2, stream);
		default:
			return pool_vectors<T, O, sizeof(T)>(policy, params, shape.lanes_log2, stream);
	}
}

/*
 * Choose how the table is read, with vectors of at most most_bytes, and
 * launch the kernel; the other parameters are complete
 */
static cudaError_t
pool(const struct pooling_policy &policy, struct pool_params *params, gpuvec_storage storage,
	 gpuvec_storage out_storage, uint32_t most_bytes, cudaStream_t stream)
{
	uint32_t element_bytes = pooling_element_size(storage);
	uint64_t row_bytes = (uint64_t) params->width * element_bytes;
	struct pooling_shape shape;
	uint64_t warp_tasks;

	shape = pooling_choose_shape(policy, params->table, params->stride_bytes, row_bytes,
								 element_bytes, most_bytes);

	/* a warp gets the same number of lookups for every width */
	if (params->range > 1u << (shape.lanes_log2 - 1))
		params->range = 1u << (shape.lanes_log2 - 1);
	warp_tasks = divide_up(divide_up(params->bags, params->range), 32u >> shape.lanes_log2);
	if (warp_tasks * shape.slices > UINT32_MAX)
		return cudaErrorInvalidValue;
	params->warp_tasks = (uint32_t) warp_tasks;
	params->vectors = shape.vectors;
	params->slices = shape.slices;
	params->slice_major = policy.slice_major;
	params->vector_out =
		pooling_vector_out(params->out, params->out_stride, params->width,
						   shape.vector_bytes / element_bytes, pooling_element_size(out_storage));
	params->vector_partial = params->width % (shape.vector_bytes / element_bytes) == 0;

	if (storage == GPUVEC_FLOAT32)
		return pool_type<float, float>(policy, *params, shape, stream);
	if (out_storage == GPUVEC_FLOAT32)
		return pool_type<__half, float>(policy, *params, shape, stream);
	return pool_type<__half, __half>(policy, *params, shape, stream);
}

/* True if some bag may have more than one piece */
static bool
may_be_long(const struct pooling_bags *bags)
{
	if (bags->offsets == NULL)
		return bags->hotness > GPUVEC_PIECE;
	return bags->lookups > GPUVEC_PIECE && (bags->longest == 0 || bags->longest > GPUVEC_PIECE);
}

/* True if the lengths of bags differ much, or are unknown */
static bool
uneven_bags(const struct pooling_bags *bags)
{
	return bags->offsets != NULL && (bags->longest == 0 || bags->bags == 0 ||
									 bags->longest > bags->lookups / bags->bags * 3 / 2);
}

/* True if the arguments are within the limits */
static bool
valid_forward(const struct pooling_table *table, const struct pooling_bags *bags,
			  gpuvec_pool_mode mode)
{
	return table->rows < UINT32_MAX && table->width > 0 && table->stride >= table->width &&
		   table->stride <= UINT32_MAX / sizeof(float) &&
		   (bags->index_bits == 32 || bags->index_bits == 64) && bags->bags < POOLING_PARTIAL &&
		   (bags->offsets != NULL || bags->hotness <= INT32_MAX) &&
		   (mode == GPUVEC_POOL_CONCAT ? bags->weights == NULL
									   : (!may_be_long(bags) || bags->lookups < POOLING_PARTIAL)) &&
		   (mode == GPUVEC_POOL_CONCAT || bags->offsets != NULL ||
			bags->lookups == bags->bags * bags->hotness);
}

/* Bytes of memory that pooling_forward needs */
cudaError_t
pooling_forward_workspace(const struct pooling_table *table, const struct pooling_bags *bags,
						  gpuvec_pool_mode mode, size_t *bytes)
{
	struct arena area = {NULL, 0};
	struct pooling_bag_pieces pieces;

	*bytes = 0;
	if (!valid_forward(table, bags, mode))
		return cudaErrorInvalidValue;
	if (mode != GPUVEC_POOL_CONCAT && may_be_long(bags))
		pooling_lay_out_bags(&area, bags, table->width, &pieces);
	*bytes = area.used;
	return cudaSuccess;
}

/*
 * Number of bags that a group of lanes pools, so that it has RANGE_LOOKUPS
 * lookups on average
 */
static uint32_t
choose_range(const struct pooling_policy &policy, uint64_t lookups, uint64_t bags)
{
	uint64_t range = bags * RANGE_LOOKUPS / std::max(lookups, UINT64_C(1));

	return (uint32_t) std::clamp(range, policy.least_range, policy.most_range);
}

/*
 * Bytes of the longest vectors with which rows are read, if each group of
 * lanes pools one bag.  With shorter vectors more lanes share a row, so fewer
 * bags share a warp.  If long bags have uneven lengths, they then wait less
 * for each other.  Short rows in bags of many lookups are 2 to 4 % faster.
 */
static uint32_t
choose_vector_bytes(const struct pooling_bags *bags, uint32_t row_bytes)
{
	if (uneven_bags(bags))
		return row_bytes <= 32 * 8 ? 8 : 16;
	if (bags->lookups / bags->bags >= LONG_BAG && row_bytes <= 16 * 8)
		return row_bytes <= 16 * 4 ? 4 : 8;
	return 16;
}

cudaError_t
pooling_forward(const struct pooling_policy &policy, const struct pooling_table *table,
				const struct pooling_bags *bags, gpuvec_pool_mode mode, void *out,
				gpuvec_storage out_storage, uint64_t out_stride, void *work, size_t work_bytes,
				cudaStream_t stream)
{
	struct pool_params params = {};
	struct pooling_bag_pieces pieces = {};
	uint32_t most_bytes;
	size_t needed;
	cudaError_t error = pooling_forward_workspace(table, bags, mode, &needed);

	if (error != cudaSuccess)
		return error;
	if (work_bytes < needed || out_stride < table->width ||
		(out_storage != GPUVEC_FLOAT32 && out_storage != table->storage))
		return cudaErrorInvalidValue;
	if (mode == GPUVEC_POOL_CONCAT ||
		(bags->offsets == NULL && bags->hotness == 1 && bags->weights == NULL))
		return pooling_gather(policy, table, bags, mode == GPUVEC_POOL_CONCAT, out, out_storage,
							  out_stride, stream);
	if (bags->bags == 0)
		return cudaSuccess;

	params.table = (const char *) table->data;
	params.stride_bytes = (uint32_t) (table->stride * pooling_element_size(table->storage));
	params.rows = (uint32_t) table->rows;
	params.width = table->width;
	params.indices = bags->indices;
	params.weights = bags->weights;
	params.index_bits = bags->index_bits;
	params.hotness = (uint32_t) bags->hotness;
	params.offsets = bags->offsets;
	params.bags = bags->bags;
	params.settled = bags->settled != 0;
	params.mean = mode == GPUVEC_POOL_MEAN;
	params.skip_missing = bags->skip_missing != 0;
	params.out = out;
	params.out_stride = out_stride;

	if (may_be_long(bags))
	{
		struct arena area = {(char *) work, 0};

		pooling_lay_out_bags(&area, bags, table->width, &pieces);
		error = pooling_cut_bags(policy, bags, &pieces, stream);
		if (error != cudaSuccess)
			return error;

		params.settled = false;
		params.offsets = pieces.offsets;
		params.count = &pieces.shared.total->pieces;
		params.bags = bags->bags + bags->lookups / (GPUVEC_PIECE / 2) + 1;
		params.dest = pieces.dest;
		params.partial = pieces.shared.partial;
		params.partial_divisor = pieces.shared.partial_divisor;
		params.partial_stride = pieces.shared.partial_stride;
	}

	params.range = choose_range(policy, bags->lookups, bags->bags);
	most_bytes =
		params.range > 1
			? 16
			: choose_vector_bytes(bags, table->width * pooling_element_size(table->storage));
	most_bytes = std::clamp(most_bytes, policy.least_vector_bytes, policy.most_vector_bytes);
	error = pool(policy, &params, table->storage, out_storage, most_bytes, stream);
	if (error == cudaSuccess && params.count)
		error = pooling_combine(policy, &pieces.shared, params.mean, out, out_storage, out_stride,
								table->width, bags->lookups / GPUVEC_PIECE, stream);
	return error;
}

} // namespace gpuvec
