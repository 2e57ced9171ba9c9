/*-------------------------------------------------------------------------
 *
 * gather.cu
 *	  Copies rows of an embedding table: each lookup is a vector of the
 *	  result.
 *
 * gather_kernel copies through registers, four rows with each group of lanes.
 * Its warps need few registers, so there are many of them, some reading, some
 * writing.  If lookups are settled (pooling_kernels.h), the first warps
 * prefetch rows into the L2 cache for warps that cannot start yet.
 *
 * gather_bulk_kernel lets the copy engine bring whole rows to shared memory,
 * and copies all rows of a block back as one piece.  That takes hardly any
 * instructions and no registers, and rows wait in shared memory while the
 * previous kernel ends.  It is faster if a call takes some tens of
 * microseconds.  Longer calls are left to gather_kernel, which is as fast or
 * a little faster.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/bulk_copy.cuh"
#include "kernels/embedding/pool.cuh"

namespace gpuvec
{

#define GATHER_UNROLL 4
/* about the number of warps that a GPU runs at a time */
#define GATHER_AHEAD 6144

#define BULK_THREADS 64
#define BULK_WARPS (BULK_THREADS / 32)
#define BULK_MOST_BYTES 8192 /* of shared memory per block */
#define BULK_SHORT_ROW 128   /* bytes of a short row, at most */

/* The parameters of the kernels */
struct gather_params
{
	const char *table;
	uint32_t stride_bytes;
	uint32_t rows;
	uint32_t width;
	const void *indices;
	uint32_t index_bits;
	uint32_t warp_tasks; /* warps per slice */
	uint32_t slices;
	uint32_t lanes_log2;
	uint32_t vectors;
	/* lookups per warp (at most 16); in gather_bulk_kernel per block */
	uint32_t chunk;
	uint64_t lookups;
	/*
	 * The first `ahead` warps of a slice each prefetch for the warp that is
	 * `ahead` further; 0: none
	 */
	uint32_t ahead;
	bool slice_major;
	bool settled; /* see pooling_kernels.h */
	bool exact;   /* keep the sign of zeros, unlike sums */
	bool vector_out;
	void *out;
	uint64_t out_stride;
};

/*
 * Prefetch into the L2 cache what `task`, a warp that starts later, will
 * read: group_bytes of its lookups' rows, from first_byte on.  Each lane
 * prefetches a line of 128 bytes.
 */
static __device__ __forceinline__ void
gather_ahead(const struct gather_params &p, uint32_t task, uint32_t first_byte,
			 uint32_t group_bytes, uint32_t row_bytes)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t lines = max(group_bytes / 128, 1u);
	uint32_t i = lane / lines;
	uint32_t byte = first_byte + lane % lines * 128;
	uint64_t position = (uint64_t) task * p.chunk + i;
	uint32_t row;

	if (i >= p.chunk || position >= p.lookups || byte >= row_bytes)
		return;
	row = pooling_lookup(p.indices, p.index_bits, p.rows, position);
	if (row != POOLING_MISSING)
		prefetch_l2(p.table + (uint64_t) row * p.stride_bytes + byte);
}

/*
 * Copy rows.  T is the type of the table, O that of the result, VB the bytes
 * of a vector, U the number of rows that a group of lanes loads at once.
 *
 * A warp has p.chunk consecutive lookups, one for each lane.  The groups of a
 * warp take turns, so that what the warp writes is consecutive.
 */
template <typename T, typename O, int VB, int U>
static __global__ void
gather_kernel(const __grid_constant__ struct gather_params p)
{
	constexpr int E = VB / (int) sizeof(T);
	typedef typename pooling_raw<VB>::type raw_type;
	uint32_t lane = threadIdx.x % 32;
	uint32_t groups = 32u >> p.lanes_log2;
	uint32_t group = lane >> p.lanes_log2;
	uint32_t task;
	uint32_t slice;
	raw_type raw[U];

	let_next_start();
	if (!p.settled)
		wait_for_previous();
	if (!pooling_find_work(p.warp_tasks, p.slices, p.slice_major, task, slice))
		return;

	uint64_t first = (uint64_t) task * p.chunk;
	uint32_t n = (uint32_t) min((uint64_t) p.chunk, p.lookups - first);
	uint32_t first_column = slice << p.lanes_log2;
	uint32_t column = first_column + (lane & ((1u << p.lanes_log2) - 1));
	bool active = column < p.vectors;
	const char *base = pooling_lane_base(p.table, column, p.vectors, VB);
	uint32_t my_row =
		lane < n ? pooling_lookup(p.indices, p.index_bits, p.rows, first + lane) : POOLING_MISSING;

#pragma unroll
	for (int u = 0; u < U; u++)
	{
		uint32_t row = __shfl_sync(FULL_WARP, my_row, u * groups + group);

		raw[u] = pooling_zero<VB>();
		if (row != POOLING_MISSING)
			raw[u] = __ldg((const raw_type *) (base + (uint64_t) row * p.stride_bytes));
	}

	if (task < p.ahead && task + p.ahead < p.warp_tasks)
		gather_ahead(p, task + p.ahead, first_column * VB, VB << p.lanes_log2, p.vectors * VB);
	wait_for_previous();
#pragma unroll
	for (int u = 0; u < U; u++)
	{
		uint32_t i = u * groups + group;
		float value[E];

		if (i >= n || !active)
			continue;
#pragma unroll
		for (int e = 0; e < E; e++)
		{
			value[e] = pooling_element<T>(raw[u], e);
			if (!p.exact)
				value[e] = 0.0f + value[e];
		}
		pooling_store<E>((O *) p.out + (first + i) * p.out_stride, column * E, p.width,
						 p.vector_out, value);
	}
}

/*
 * 0 + x for each element of a vector: the sum if there is nothing else to add
 */
template <typename T>
static __device__ __forceinline__ uint4
sum_of_one(const uint4 &raw)
{
	unsigned word[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		if (sizeof(T) == sizeof(float))
			word[i] = __float_as_uint(0.0f + pooling_element<T>(raw, i));
		else
			word[i] = pooling_halves(0.0f + pooling_element<T>(raw, 2 * i),
									 0.0f + pooling_element<T>(raw, 2 * i + 1));
	}
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/*
 * Copy rows of p.vectors * 16 bytes.  The results have the same type and
 * follow each other without gaps.
 *
 * A block has p.chunk consecutive lookups, a multiple of the number of its
 * warps.  Each warp starts the copies of its own part, so that no copy waits
 * for all indices.
 */
template <typename T>
static __global__ void
__launch_bounds__(BULK_THREADS) gather_bulk_kernel(const __grid_constant__ struct gather_params p)
{
	BULK_SHARED(uint4, rows, BULK_MOST_BYTES / sizeof(uint4));
	__shared__ uint64_t barrier;
	uint32_t lane = threadIdx.x % 32;
	uint32_t share = p.chunk / BULK_WARPS;
	uint32_t first_of_warp = threadIdx.x / 32 * share;
	uint64_t first = (uint64_t) blockIdx.x * p.chunk;
	uint32_t n = (uint32_t) min((uint64_t) p.chunk, p.lookups - first);
	bool mine = lane < share && first_of_warp + lane < n;
	uint32_t row = POOLING_MISSING;
	uint32_t missing;
	uint32_t found;

	let_next_start();
	if (!p.settled)
		wait_for_previous();
	if (mine)
		row = pooling_lookup(p.indices, p.index_bits, p.rows, first + first_of_warp + lane);
	if (threadIdx.x == 0)
		bulk_barrier_init(&barrier, BULK_WARPS);
	__syncthreads();

	found = __ballot_sync(FULL_WARP, row != POOLING_MISSING);
	missing = __ballot_sync(FULL_WARP, mine && row == POOLING_MISSING);
	for (; missing != 0; missing &= missing - 1)
	{
		uint4 *to = rows + (first_of_warp + __ffs(missing) - 1) * p.vectors;

		for (uint32_t i = lane; i < p.vectors; i += 32)
			to[i] = make_uint4(0, 0, 0, 0);
	}
	__syncwarp();
	if (lane == 0)
		bulk_barrier_arrive(&barrier, __popc(found) * p.vectors * 16);
	__syncwarp();
	if (row != POOLING_MISSING)
		bulk_read(rows + (first_of_warp + lane) * p.vectors,
				  p.table + (uint64_t) row * p.stride_bytes, p.vectors * 16, &barrier);

	bulk_barrier_wait(&barrier, 0);
	if (!p.exact)
	{
		for (uint32_t i = threadIdx.x; i < n * p.vectors; i += BULK_THREADS)
			rows[i] = sum_of_one<T>(rows[i]);
	}
	bulk_fence();
	__syncthreads();
	if (threadIdx.x == 0)
	{
		wait_for_previous();
		bulk_write((char *) p.out + first * p.vectors * 16, rows, n * p.vectors * 16);
		bulk_write_wait();
	}
}

/* Launch gather_kernel for vectors of VB bytes */
template <typename T, typename O, int VB>
static cudaError_t
gather_vectors(const struct pooling_policy &policy, struct gather_params &params,
			   const struct pooling_shape &shape, cudaStream_t stream)
{
	uint64_t warp_tasks;

	params.chunk = GATHER_UNROLL * (32u >> shape.lanes_log2);
	warp_tasks = divide_up(params.lookups, params.chunk);
	if (warp_tasks * shape.slices > UINT32_MAX)
		return cudaErrorInvalidValue;
	params.warp_tasks = (uint32_t) warp_tasks;
	params.ahead = params.settled ? GATHER_AHEAD / shape.slices : 0;
	return pooling_launch_cached(policy, gather_kernel<T, O, VB, GATHER_UNROLL>,
								 warp_tasks * shape.slices, policy.gather_threads, params, stream);
}

/* Launch gather_kernel for tables of T and results of O */
template <typename T, typename O>
static cudaError_t
gather_type(const struct pooling_policy &policy, struct gather_params &params,
			const struct pooling_shape &shape, cudaStream_t stream)
{
	switch (shape.vector_bytes)
	{
		case 16:
			return gather_vectors<T, O, 16 / sizeof(O) * sizeof(T)>(policy, params, shape, stream);
		case 8:
			return gather_vectors<T, O, 8>(policy, params, shape, stream);
		case 4:
			return gather_vectors<T, O, 4>(policy, params, shape, stream);
		default:
			return gather_vectors<T, O, sizeof(T)>(policy, params, shape, stream);
	}
}

/*
 * The best number of lookups per block of gather_bulk_kernel.  0: it cannot
 * serve this call, or gather_kernel is faster.  The numbers were found by
 * measuring on an H200.
 */
static uint32_t
choose_bulk(const struct pooling_policy &policy, const struct pooling_table *table,
			const struct pooling_bags *bags, const void *out, gpuvec_storage out_storage,
			uint64_t out_stride)
{
	uint64_t row_bytes = (uint64_t) table->width * pooling_element_size(table->storage);
	uint64_t stride_bytes = table->stride * pooling_element_size(table->storage);
	uint32_t lookups = row_bytes <= BULK_SHORT_ROW ? 64 : 16;

	if (!kernels_wait() || out_storage != table->storage || out_stride != table->width ||
		row_bytes % 16 != 0 || stride_bytes % 16 != 0 || (uintptr_t) table->data % 16 != 0 ||
		(uintptr_t) out % 16 != 0)
		return 0;
	if (row_bytes < policy.bulk_min_row || row_bytes > policy.bulk_max_row ||
		bags->lookups * row_bytes >= policy.bulk_max_result)
		return 0;
	while (lookups * row_bytes > BULK_MOST_BYTES)
		lookups /= 2;
	return lookups;
}

cudaError_t
pooling_gather(const struct pooling_policy &policy, const struct pooling_table *table,
			   const struct pooling_bags *bags, bool exact, void *out, gpuvec_storage out_storage,
			   uint64_t out_stride, cudaStream_t stream)
{
	uint32_t element_bytes = pooling_element_size(table->storage);
	uint64_t row_bytes = (uint64_t) table->width * element_bytes;
	struct gather_params params = {};
	struct pooling_shape shape;

	params.table = (const char *) table->data;
	params.stride_bytes = (uint32_t) (table->stride * element_bytes);
	params.rows = (uint32_t) table->rows;
	params.width = table->width;
	params.indices = bags->indices;
	params.index_bits = bags->index_bits;
	params.lookups = bags->lookups;
	params.slice_major = policy.slice_major;
	params.settled = bags->settled != 0;
	params.exact = exact;
	params.out = out;
	params.out_stride = out_stride;

	params.chunk = choose_bulk(policy, table, bags, out, out_storage, out_stride);
	if (params.chunk > 0)
	{
		auto kernel = table->storage == GPUVEC_FLOAT32 ? gather_bulk_kernel<float>
													   : gather_bulk_kernel<__half>;
		cudaError_t error = cudaFuncSetAttribute((const void *) kernel,
												 cudaFuncAttributePreferredSharedMemoryCarveout,
												 cudaSharedmemCarveoutMaxShared);

		if (error != cudaSuccess)
			return error;
		params.vectors = (uint32_t) (row_bytes / 16);
		return launch_any(kernel, divide_up(bags->lookups, params.chunk), BULK_THREADS,
						  params.chunk * row_bytes, policy.chained, stream, params);
	}

	/*
	 * results of float32 may be twice as long as the rows: let a lane store
	 * 16 bytes at once
	 */
	shape =
		pooling_choose_shape(policy, table->data, table->stride * element_bytes, row_bytes,
							 element_bytes, 16 / pooling_element_size(out_storage) * element_bytes);
	params.slices = shape.slices;
	params.lanes_log2 = shape.lanes_log2;
	params.vectors = shape.vectors;
	params.vector_out =
		pooling_vector_out(out, out_stride, table->width, shape.vector_bytes / element_bytes,
						   pooling_element_size(out_storage));
	if (table->storage == GPUVEC_FLOAT32)
		return gather_type<float, float>(policy, params, shape, stream);
	if (out_storage == GPUVEC_FLOAT32)
		return gather_type<__half, float>(policy, params, shape, stream);
	return gather_type<__half, __half>(policy, params, shape, stream);
}

} // namespace gpuvec
