/*-------------------------------------------------------------------------
 *
 * bags.cuh
 *	  What the kernels share that pool bags: parameters, divisors, stores.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BAGS_CUH
#define GPUVEC_BAGS_CUH

#include "kernels/embedding/pool.cuh"

namespace gpuvec
{

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
	const uint32_t *count;  /* their number, if the device has it; or NULL */
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
 * In bags.cu: choose how the table is read, with vectors of at most
 * most_bytes, and launch the kernel; the other parameters are complete
 */
extern cudaError_t
pooling_pool_bags(const struct pooling_policy &policy, struct pool_params *params,
				  gpuvec_storage storage, gpuvec_storage out_storage, uint32_t most_bytes,
				  cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_BAGS_CUH */
