/*-------------------------------------------------------------------------
 *
 * narrow.cu
 *	  Copies of factors in float16.
 *
 * Steps of conjugate gradient read these copies, which takes half as long.
 * They change the steps a little, but not what they lead to: the residual,
 * from which the steps begin, is computed from the factors themselves, with
 * each iteration anew.
 *
 * All factors are divided by the same power of two, such that the largest
 * element has 14 bits before the point.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/als/als_kernels.h"
#include "kernels/als/als_lanes.cuh"
#include "kernels/device/arena.h"
#include "kernels/device/launch.h"

namespace gpuvec
{

#define THREADS 256
#define BITS 14

/* The largest exponent of a unit; it stays finite, and so does 1 / unit */
#define MOST_EXPONENT 100

static_assert(NARROW_BLOCKS == THREADS, "a thread would not read one maximum");

struct narrow_params
{
	const float4 *factors; /* [n] */
	uint64_t n;
	struct als_narrow narrow;
};

/* The maximum of a block, for all of its threads */
static __device__ __forceinline__ float
block_max(float value)
{
	__shared__ float warps[THREADS / 32];

#pragma unroll
	for (int distance = 16; distance > 0; distance /= 2)
		value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, distance));
	if (threadIdx.x % 32 == 0)
		warps[threadIdx.x / 32] = value;
	__syncthreads();
	for (int i = 0; i < THREADS / 32; i++)
		value = fmaxf(value, warps[i]);
	return value;
}

static __global__ void
__launch_bounds__(THREADS) maxima_kernel(const __grid_constant__ struct narrow_params p)
{
	float most = 0;

	for (uint64_t i = (uint64_t) blockIdx.x * THREADS + threadIdx.x; i < p.n;
		 i += NARROW_BLOCKS * THREADS)
	{
		float4 v = __ldg(p.factors + i);

		most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
	}
	most = block_max(most);
	if (threadIdx.x == 0)
		p.narrow.maxima[blockIdx.x] = most;
}

/* Two numbers of float16 */
static __device__ __forceinline__ unsigned
narrow2(float a, float b, float scale)
{
	return (unsigned) __half_as_ushort(__float2half_rn(a * scale)) |
		   (unsigned) __half_as_ushort(__float2half_rn(b * scale)) << 16;
}

static __global__ void
__launch_bounds__(THREADS) narrow_kernel(const __grid_constant__ struct narrow_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * THREADS + threadIdx.x;
	float most = block_max(p.narrow.maxima[threadIdx.x]);
	int exponent = most > 0 ? ilogbf(most) : 0;
	float scale;

	exponent = min(max(exponent, -MOST_EXPONENT), MOST_EXPONENT);
	scale = ldexpf(1, BITS - exponent);
	if (i == 0)
		*p.narrow.unit = ldexpf(1, exponent - BITS);
	if (i < p.n)
	{
		float4 v = __ldg(p.factors + i);
		uint2 bits;

		bits.x = narrow2(v.x, v.y, scale);
		bits.y = narrow2(v.z, v.w, scale);
		((uint2 *) p.narrow.factors)[i] = bits;
	}
}

cudaError_t
als_narrow_launch(const float *factors, const struct als_narrow &narrow, uint32_t n,
				  uint32_t stride, cudaStream_t stream)
{
	struct narrow_params p = {(const float4 *) factors, (uint64_t) n * stride / 4, narrow};
	cudaError_t rc = launch(maxima_kernel, (uint64_t) NARROW_BLOCKS, THREADS, 0, stream, p);

	return rc == cudaSuccess
			   ? launch(narrow_kernel, divide_up(p.n, THREADS), THREADS, 0, stream, p)
			   : rc;
}

} // namespace gpuvec
