/*-------------------------------------------------------------------------
 *
 * pool.cuh
 *	  What the kernels that pool share: vectors of elements, the cutting of
 *	  long bags, the launching of kernels, and the innermost loop.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOL_CUH
#define GPUVEC_POOL_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/device/arena.h"
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/embedding/pooling_kernels.h"

namespace gpuvec
{

/* The row number of a missing lookup */
#define POOLING_MISSING 0xFFFFFFFFu

/*
 * With this bit, a destination is the sum of a piece, not a row of the result
 */
#define POOLING_PARTIAL 0x80000000u

/* A row is shared by at least 2^POOLING_MIN_LANES_LOG2 lanes */
#define POOLING_MIN_LANES_LOG2 3

/* Bags, or sorted lookups, that a warp looks through when pieces are made */
#define POOLING_TILE 512

/* Counts of bags and pieces, made before pieces are written */
struct pooling_counts
{
	uint32_t bags;
	uint32_t pieces;
	uint32_t partials; /* pieces of long bags */
	uint32_t longs;    /* bags of more than one piece */
};

/*
 * A long bag: one of more than one piece.  An element behind the last long
 * bag tells where its partial sums end.
 */
struct pooling_long
{
	uint32_t partial; /* its first partial sum */
	uint32_t dest;    /* its row in the result */
};

/* The part of the description of pieces that pooling and gradients share */
struct pooling_pieces
{
	struct pooling_counts *tiles;  /* [tiles]: counts in each tile */
	struct pooling_counts *before; /* [tiles]: counts before each tile */
	struct pooling_counts *total;
	struct pooling_long *longs;
	float *partial;          /* partial sums: those of the pieces of long bags */
	double *partial_divisor; /* their divisors, or NULL */
	uint64_t partial_stride;
};

/*
 * Pieces of bags for pooling.  Piece i has lookups offsets[i] .. offsets[i +
 * 1] - 1, and its sum goes to dest[i].
 */
struct pooling_bag_pieces
{
	struct pooling_pieces shared;
	int64_t *offsets;
	uint32_t *dest;
};

/* The parameters of combine_kernel */
struct pooling_combine_params
{
	const struct pooling_counts *total;
	const struct pooling_long *longs;
	const float *partial;
	const double *partial_divisor; /* NULL: no division */
	uint64_t partial_stride;
	void *out;
	uint64_t out_stride;
	uint32_t width;
	uint32_t slices; /* slices of 128 columns */
};

/* The parameters of scan_kernel */
struct pooling_scan_params
{
	const struct pooling_counts *tiles;
	struct pooling_counts *before;
	uint32_t ntiles;
	uint32_t slice; /* tiles per block */
	struct pooling_counts *total;
	struct pooling_long *longs;
	uint32_t *out_count; /* or NULL */
};

/*
 * How the rows of a table are read: with vectors of vector_bytes, by
 * 2^lanes_log2 lanes in each slice
 */
struct pooling_shape
{
	uint32_t vector_bytes;
	uint32_t vectors; /* vectors per row */
	uint32_t lanes_log2;
	uint32_t slices;
};

/* Bytes of an element */
static inline uint32_t
pooling_element_size(gpuvec_storage storage)
{
	return (uint32_t) gpuvec_element_bytes(storage);
}

/*
 * In gather.cu: copy the row of each lookup to the result.  exact: keep the
 * sign of zeros, which a sum of one row does not.
 */
extern cudaError_t
pooling_gather(const struct pooling_policy &policy, const struct pooling_table *table,
			   const struct pooling_bags *bags, bool exact, void *out, gpuvec_storage out_storage,
			   uint64_t out_stride, cudaStream_t stream);

/* In bags.cu */
extern struct pooling_shape
pooling_choose_shape(const struct pooling_policy &policy, const void *data, uint64_t stride_bytes,
					 uint64_t row_bytes, uint32_t element_bytes, uint32_t max_vector_bytes);

/* In pieces.cu */
extern cudaError_t
pooling_combine(const struct pooling_policy &policy, const struct pooling_pieces *pieces, bool mean,
				void *out, gpuvec_storage out_storage, uint64_t out_stride, uint32_t width,
				uint64_t most_longs, cudaStream_t stream);
extern cudaError_t
pooling_scan(const struct pooling_policy &policy, const struct pooling_pieces *pieces,
			 uint64_t ntiles, uint32_t *out_count, cudaStream_t stream);
extern void
pooling_lay_out_bags(struct arena *area, const struct pooling_bags *bags, uint32_t width,
					 struct pooling_bag_pieces *pieces);
extern cudaError_t
pooling_cut_bags(const struct pooling_policy &policy, const struct pooling_bags *bags,
				 const struct pooling_bag_pieces *pieces, cudaStream_t stream);

/* The beginning of a chained kernel that does nothing before it waits */
static __device__ __forceinline__ void
pooling_begin(void)
{
	let_next_start();
	wait_for_previous();
}

/* Launch a kernel that waits for the previous kernel */
template <typename P>
static inline cudaError_t
pooling_launch(const struct pooling_policy &policy, void (*kernel)(P), uint64_t blocks,
			   uint32_t threads, const P &params, cudaStream_t stream)
{
	return launch_any(kernel, blocks, threads, 0, policy.chained, stream, params);
}

/*
 * The same for a kernel that uses the L1 cache well and shared memory little
 */
template <typename P>
static inline cudaError_t
pooling_launch_cached(const struct pooling_policy &policy, void (*kernel)(P), uint64_t warps,
					  uint32_t threads, const P &params, cudaStream_t stream)
{
	cudaError_t error =
		cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
							 cudaSharedmemCarveoutMaxL1);

	if (error != cudaSuccess)
		return error;
	return pooling_launch(policy, kernel, divide_up(warps, threads / 32), threads, params, stream);
}

/* Elements of a partial sum, padded to whole float4 */
static inline uint64_t
pooling_partial_stride(uint32_t width)
{
	return ((uint64_t) width + 3) / 4 * 4;
}

/* The type of a vector of VB bytes, which one load reads */
template <int VB>
struct pooling_raw;
template <>
struct pooling_raw<2>
{
	typedef unsigned short type;
};
template <>
struct pooling_raw<4>
{
	typedef unsigned int type;
};
template <>
struct pooling_raw<8>
{
	typedef uint2 type;
};
template <>
struct pooling_raw<16>
{
	typedef uint4 type;
};

template <int VB>
static __device__ __forceinline__ typename pooling_raw<VB>::type
pooling_zero(void)
{
	typename pooling_raw<VB>::type zero = {};

	return zero;
}

/* Word i of a vector */
static __device__ __forceinline__ unsigned
pooling_word(unsigned short raw, int)
{
	return raw;
}

static __device__ __forceinline__ unsigned
pooling_word(unsigned raw, int)
{
	return raw;
}

static __device__ __forceinline__ unsigned
pooling_word(const uint2 &raw, int i)
{
	return i == 0 ? raw.x : raw.y;
}

static __device__ __forceinline__ unsigned
pooling_word(const uint4 &raw, int i)
{
	return i == 0 ? raw.x : i == 1 ? raw.y : i == 2 ? raw.z : raw.w;
}

/* Element e of a vector; e is a constant when compiled */
template <typename T, typename R>
static __device__ __forceinline__ float
pooling_element(const R &raw, int e)
{
	if (sizeof(T) == 4)
		return __uint_as_float(pooling_word(raw, e));
	else
	{
		unsigned word = pooling_word(raw, e / 2);

		return __half2float(
			__ushort_as_half((unsigned short) (e % 2 ? word >> 16 : word & 0xFFFF)));
	}
}

/* The row of a lookup, or POOLING_MISSING */
static __device__ __forceinline__ uint32_t
pooling_lookup(const void *indices, uint32_t index_bits, uint32_t rows, uint64_t position)
{
	if (index_bits == 64)
	{
		int64_t index = __ldcs((const long long *) indices + position);

		return (uint64_t) index < rows ? (uint32_t) index : POOLING_MISSING;
	}
	else
	{
		int32_t index = __ldcs((const int *) indices + position);

		return index >= 0 && (uint32_t) index < rows ? (uint32_t) index : POOLING_MISSING;
	}
}

/*
 * The bag of a lookup: of bags low .. high the last that begins at or before
 * it
 */
static __device__ __forceinline__ uint32_t
pooling_find_bag(const int64_t *offsets, uint32_t low, uint32_t high, uint32_t position)
{
	while (low < high)
	{
		uint32_t middle = low + (high - low + 1) / 2;

		if (offsets[middle] <= (int64_t) position)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/*
 * Find the work of this warp: a task and a slice.  Returns false if there is
 * none.
 */
static __device__ __forceinline__ bool
pooling_find_work(uint32_t warp_tasks, uint32_t slices, bool slice_major, uint32_t &task,
				  uint32_t &slice)
{
	uint64_t thread = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t warp = (uint32_t) (thread / 32);

	if (slices == 1)
	{
		task = warp;
		slice = 0;
	}
	else if (slice_major)
	{
		task = warp % warp_tasks;
		slice = warp / warp_tasks;
	}
	else
	{
		task = warp / slices;
		slice = warp % slices;
	}
	return task < warp_tasks && slice < slices;
}

/*
 * Address of this lane's vectors in row 0 of a table.  Lanes beyond the row
 * get the address of the first vector, so that all lanes can load alike.
 *
 * The shuffle changes nothing, but hides from the compiler how the address
 * was computed.  Otherwise the compiler would compute it again for each row,
 * with four times the instructions.
 */
static __device__ __forceinline__ const char *
pooling_lane_base(const char *table, uint32_t column, uint32_t vectors, uint32_t vector_bytes)
{
	const char *base = table + (column < vectors ? (uint64_t) column * vector_bytes : 0);

	return (const char *) __shfl_sync(FULL_WARP, (unsigned long long) base, threadIdx.x % 32);
}

/*
 * A chunk of lookups, one for each lane.  A mask has a bit for each lane of
 * the warp.
 */
struct pooling_chunk
{
	/* of this lane's lookup; pooling_add_batch rotates it among the lanes */
	uint32_t row;
	float weight;
	uint32_t present;    /* mask: rows to add */
	uint32_t ends;       /* mask: a bag ends after this lookup */
	uint32_t group_lane; /* the first lane of this lane's group */
};

/* A mask with the first lane of each group */
template <int LANES>
static __device__ __forceinline__ constexpr uint32_t
pooling_group_starts(void)
{
	return LANES == 8 ? 0x01010101 : LANES == 16 ? 0x00010001 : 1;
}

/*
 * The weights of the next U lookups of a group, which its lanes hold in
 * `weights`.  Unless all rows are there, `mine` has a bit for each that is.
 * The weight of a missing row is -0, for -0 * 0 does not change a sum.
 */
template <int LANES, int U>
static __device__ __forceinline__ void
pooling_batch_weights(float weights, bool all, uint32_t mine, float (&weight)[U])
{
#pragma unroll
	for (int u = 0; u < U; u++)
	{
		weight[u] = __shfl_sync(FULL_WARP, weights, u, LANES);
		if (!all && !(mine >> u & 1))
			weight[u] = -0.0f;
	}
}

/*
 * Add the rows of the lookups j .. j + U - 1 of a chunk.  All of them are
 * loaded before the first is added.  Where bags end, end(j + u) is called by
 * the whole warp, which has to find out itself for which groups of LANES
 * lanes.  T is the type of the table, VB the bytes of a vector; W: there are
 * weights.
 *
 * This is the innermost code of pooling: what is usual, all rows there and of
 * one bag, takes three instructions per row besides the additions.  That the
 * lanes of a batch are constants spares the computation of them: after each
 * batch the lookups of a group move on by U lanes.  So all batches of a chunk
 * have to be added, in their order.
 */
template <typename T, int VB, int LANES, int U, bool W, typename End>
static __device__ __forceinline__ void
pooling_add_batch(const char *base, uint32_t stride_bytes, struct pooling_chunk &chunk, uint32_t j,
				  float (&acc)[VB / sizeof(T)], const End &end)
{
	constexpr int E = VB / (int) sizeof(T);
	typedef typename pooling_raw<VB>::type raw_type;
	constexpr uint32_t starts = pooling_group_starts<LANES>();
	constexpr uint32_t need = starts * ((1u << U) - 1);
	uint32_t present = chunk.present >> j & need;
	uint32_t ends = chunk.ends >> j & need;
	uint32_t mine = present >> chunk.group_lane;
	uint32_t rows = chunk.row;
	float weights = chunk.weight;
	raw_type raw[U];
	float weight[U];

	if (LANES > U)
	{
		uint32_t next = (threadIdx.x + U) % LANES;

		chunk.row = __shfl_sync(FULL_WARP, rows, next, LANES);
		if (W)
			chunk.weight = __shfl_sync(FULL_WARP, weights, next, LANES);
	}
	if ((present | ends) == 0)
		return;
	if (present == need)
	{
#pragma unroll
		for (int u = 0; u < U; u++)
		{
			uint32_t row = __shfl_sync(FULL_WARP, rows, u, LANES);

			raw[u] = __ldg((const raw_type *) (base + (uint64_t) row * stride_bytes));
		}
	}
	else
	{
#pragma unroll
		for (int u = 0; u < U; u++)
		{
			uint32_t row = __shfl_sync(FULL_WARP, rows, u, LANES);

			raw[u] = pooling_zero<VB>();
			if (mine >> u & 1)
				raw[u] = __ldg((const raw_type *) (base + (uint64_t) row * stride_bytes));
		}
	}
	if (W)
		pooling_batch_weights<LANES>(weights, present == need, mine, weight);

	auto add = [&](int u)
	{
#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] = W ? __fmaf_rn(weight[u], pooling_element<T>(raw[u], e), acc[e])
					   : acc[e] + pooling_element<T>(raw[u], e);
	};

	if (ends == 0)
	{
#pragma unroll
		for (int u = 0; u < U; u++)
			add(u);
	}
	else
	{
#pragma unroll
		for (int u = 0; u < U; u++)
		{
			add(u);
			if (ends >> u & starts)
				end(j + u);
		}
	}
}

/*
 * Store E elements of a row from element `at` on.  The last vector of a row
 * may be longer than the row.
 */
template <int E>
static __device__ __forceinline__ void
pooling_store(float *row, uint32_t at, uint32_t width, bool vector_out, const float (&value)[E])
{
	if (vector_out && E % 4 == 0)
	{
#pragma unroll
		for (int e = 0; e + 3 < E; e += 4)
			__stcs((float4 *) (row + at + e),
				   make_float4(value[e], value[e + 1], value[e + 2], value[e + 3]));
	}
	else if (vector_out && E == 2)
		__stcs((float2 *) (row + at), make_float2(value[0], value[E - 1]));
	else
	{
#pragma unroll
		for (int e = 0; e < E; e++)
		{
			if (at + e < width)
				__stcs(row + at + e, value[e]);
		}
	}
}

/* Two float16, rounded to nearest, in a word */
static __device__ __forceinline__ unsigned
pooling_halves(float low, float high)
{
	return __half_as_ushort(__float2half_rn(low)) |
		   (unsigned) __half_as_ushort(__float2half_rn(high)) << 16;
}

/* The same for results of float16 */
template <int E>
static __device__ __forceinline__ void
pooling_store(__half *row, uint32_t at, uint32_t width, bool vector_out, const float (&value)[E])
{
	constexpr int last = E - 1;

	if (vector_out && E == 8)
		__stcs((uint4 *) (row + at), make_uint4(pooling_halves(value[0], value[1 % E]),
												pooling_halves(value[2 % E], value[3 % E]),
												pooling_halves(value[4 % E], value[5 % E]),
												pooling_halves(value[6 % E], value[last])));
	else if (vector_out && E == 4)
		__stcs((uint2 *) (row + at), make_uint2(pooling_halves(value[0], value[1 % E]),
												pooling_halves(value[2 % E], value[last])));
	else if (vector_out && E == 2)
		__stcs((unsigned *) (row + at), pooling_halves(value[0], value[last]));
	else
	{
#pragma unroll
		for (int e = 0; e < E; e++)
		{
			if (at + e < width)
				__stcs((unsigned short *) (row + at + e),
					   __half_as_ushort(__float2half_rn(value[e])));
		}
	}
}

/*
 * True if rows of a result may be stored with vectors of `elements` elements.
 * bytes: of an element of the result.
 */
static inline bool
pooling_vector_out(const void *out, uint64_t stride, uint32_t width, uint32_t elements,
				   uint32_t bytes)
{
	uint32_t n = elements < 16 / bytes ? elements : 16 / bytes;

	return (uintptr_t) out % (bytes * n) == 0 && stride % n == 0 && width % elements == 0;
}

} // namespace gpuvec

#endif /* GPUVEC_POOL_CUH */
