/*-------------------------------------------------------------------------
 *
 * products.cu
 *	  Gradients of the weights of pooling: scalar products of gradients and vectors.
 *
 * They are those of common/embedding_grad.h, to the bit: in float64, in 16 lanes.  A thread
 * has four of these lanes, so that it loads four elements at once and four threads serve a
 * vector.  For a mean, the products of the gradients and the means come first.
 *
 *-------------------------------------------------------------------------
 */
#include "lanes.cuh"
#include "vectors.h"

#define THREADS			128
#define PART			4		/* lanes of a thread */
#define SHARERS			(LANES / PART)	/* threads that share a vector */
#define GROUPS			(THREADS / SHARERS)

/* Four elements from `i` on, which are not read again soon */
template <typename T>
static __device__ __forceinline__ void
load_part(const char *vector, uint32_t i, float (&part)[PART])
{
	if (sizeof(T) == sizeof(float))
	{
		uint4		raw = __ldcs((const uint4 *) ((const float *) vector + i));

#pragma unroll
		for (int e = 0; e < PART; e++)
			part[e] = emb_element<float>(raw, e);
	}
	else
	{
		uint2		raw = __ldcs((const uint2 *) ((const __half *) vector + i));

#pragma unroll
		for (int e = 0; e < PART; e++)
			part[e] = emb_element<__half>(raw, e);
	}
}

/* The same, of an array of `width` elements with neither alignment nor padding */
static __device__ __forceinline__ void
load_loose(const float *array, uint32_t width, uint32_t i, float (&part)[PART])
{
	if (width % PART == 0)
	{
		float4		raw = __ldg((const float4 *) (array + i));

		part[0] = raw.x;
		part[1] = raw.y;
		part[2] = raw.z;
		part[3] = raw.w;
	}
	else
	{
#pragma unroll
		for (int e = 0; e < PART; e++)
			part[e] = i + e < width ? __ldg(array + i + e) : 0.0f;
	}
}

/*
 * The sum of 16 lanes, of which `sum` are those from PART * sharer on, in the order of
 * gpuvec_fold(): halves that are 8, 4, 2 and 1 apart.
 */
static __device__ __forceinline__ double
fold_parts(double (&sum)[PART])
{
#pragma unroll
	for (uint32_t distance = SHARERS / 2; distance > 0; distance /= 2)
	{
#pragma unroll
		for (int e = 0; e < PART; e++)
			sum[e] += __shfl_xor_sync(EMB_FULL_WARP, sum[e], distance);
	}
	return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/*
 * The product of a gradient and a vector, in all threads that share them.  load(i, part) gives
 * the vector's elements from i on, zeros beyond its end.
 */
template <typename Load>
static __device__ __forceinline__ double
product(const float *gradient, uint32_t width, uint32_t sharer, const Load &load)
{
	double		sum[PART] = {0, 0, 0, 0};

#pragma unroll 8
	for (uint32_t i = sharer * PART; i < width; i += LANES)
	{
		float		g[PART];
		float		v[PART];

		load(i, v);
		load_loose(gradient, width, i, g);
#pragma unroll
		for (int e = 0; e < PART; e++)
			sum[e] = fma((double) g[e], (double) v[e], sum[e]);
	}
	return fold_parts(sum);
}

/* The products of the gradients and the means of all bags */
static __global__ void __launch_bounds__(THREADS)
bases_kernel(const __grid_constant__ struct weight_params p)
{
	uint64_t	bag = (uint64_t) blockIdx.x * GROUPS + threadIdx.x / SHARERS;
	uint32_t	sharer = threadIdx.x % SHARERS;
	uint64_t	at = bag * p.width;
	double		base = product(p.gradient + at, bag < p.nbags ? p.width : 0, sharer,
							   [&] (uint32_t i, float (&part)[PART])
	{
		load_loose(p.means + at, p.width, i, part);
	});

	if (bag < p.nbags && sharer == 0)
		p.bases[bag] = base;
}

/* The gradients of all weights */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
weights_kernel(const __grid_constant__ struct weight_params p)
{
	uint64_t	i = (uint64_t) blockIdx.x * GROUPS + threadIdx.x / SHARERS;
	uint32_t	sharer = threadIdx.x % SHARERS;
	uint32_t	slot = i < p.n ? p.slots[i] : GPUVEC_NO_SLOT;
	uint64_t	bag = i >= p.n ? 0 : p.samples ? p.samples[i] : i / p.hotness;
	const char *vector = slot != GPUVEC_NO_SLOT ? p.elements + slot * p.stride_bytes : NULL;
	double		result = product(p.gradient + bag * p.width, vector ? p.width : 0, sharer,
								 [&] (uint32_t column, float (&part)[PART])
	{
		load_part<T>(vector, column, part);
	});

	if (i >= p.n || sharer != 0)
		return;
	if (p.means != NULL)
	{
		float		divisor = p.divisors[bag];

		if (divisor == 0 || (vector == NULL && p.skip_missing))
			result = 0;
		else
			result = (result - p.bases[bag]) / divisor;
	}
	p.out[i] = (float) result;
}

cudaError_t
weights_launch(const struct weight_params *params, bool half, cudaStream_t stream)
{
	uint64_t	blocks = emb_divide_up(params->n, GROUPS);

	if (params->means != NULL)
	{
		cudaError_t rc = emb_launch(bases_kernel, emb_divide_up(params->nbags, GROUPS), THREADS, *params,
									stream);

		if (rc != cudaSuccess)
			return rc;
	}
	if (half)
		return emb_launch(weights_kernel<__half>, blocks, THREADS, *params, stream);
	return emb_launch(weights_kernel<float>, blocks, THREADS, *params, stream);
}
