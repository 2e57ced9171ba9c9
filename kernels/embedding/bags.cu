/*-------------------------------------------------------------------------
 *
 * bags.cu
 *	  Pools bags: bag_kernel, and which kernel with which vectors.
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
 * Blocks are small because the hardware assigns blocks to multiprocessors one
 * by one: this balances bags of all lengths.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/streams.cuh"

namespace gpuvec
{

#define BAG_UNROLL 8        /* rows in flight per group of lanes */
#define BAG_NARROW_UNROLL 4 /* the same for groups of 8 lanes */

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
	/* otherwise the divisor is n */
	bool count = p.mean && (W || p.skip_missing);
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

cudaError_t
pooling_pool_bags(const struct pooling_policy &policy, struct pool_params *params,
				  gpuvec_storage storage, gpuvec_storage out_storage, uint32_t most_bytes,
				  cudaStream_t stream)
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

} // namespace gpuvec
