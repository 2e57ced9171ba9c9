/*-------------------------------------------------------------------------
 *
 * als_lanes.cuh
 *	  How the lanes of a warp share a vector.
 *
 * L lanes hold a vector of 4 L K floats: lane l has the elements
 * 4 (k L + l) .. 4 (k L + l) + 3 for k = 0 .. K - 1.  A warp has 32 / L such
 * groups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_LANES_CUH
#define GPUVEC_ALS_LANES_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/device/instructions.cuh"

namespace gpuvec
{

template <int LANES_OF_VECTOR, int CHUNKS>
struct als_shape
{
	static constexpr int L = LANES_OF_VECTOR;
	static constexpr int K = CHUNKS;
	static constexpr int STRIDE = 4 * L * K;
};

/* Call f with the shape of a stride */
template <typename F>
static inline cudaError_t
with_shape(uint32_t stride, F f)
{
	switch (stride)
	{
		case 16:
			return f(als_shape<4, 1>());
		case 32:
			return f(als_shape<8, 1>());
		case 64:
			return f(als_shape<16, 1>());
		case 128:
			return f(als_shape<32, 1>());
		case 256:
			return f(als_shape<32, 2>());
		case 384:
			return f(als_shape<32, 3>());
		case 512:
			return f(als_shape<32, 4>());
		case 768:
			return f(als_shape<32, 6>());
		case 1024:
			return f(als_shape<32, 8>());
		default:
			return cudaErrorInvalidValue;
	}
}

static __device__ __forceinline__ float
dot4(float4 a, float4 b, float sum)
{
	sum = __fmaf_rn(a.x, b.x, sum);
	sum = __fmaf_rn(a.y, b.y, sum);
	sum = __fmaf_rn(a.z, b.z, sum);
	return __fmaf_rn(a.w, b.w, sum);
}

/* to += factor * v */
static __device__ __forceinline__ void
add4(float4 &to, float factor, float4 v)
{
	to.x = __fmaf_rn(factor, v.x, to.x);
	to.y = __fmaf_rn(factor, v.y, to.y);
	to.z = __fmaf_rn(factor, v.z, to.z);
	to.w = __fmaf_rn(factor, v.w, to.w);
}

static __device__ __forceinline__ float4
load4(const float *p)
{
	return __ldg((const float4 *) p);
}

/* The sum over the L lanes of a group, for all of them */
template <int L>
static __device__ __forceinline__ float
group_sum(float sum)
{
#pragma unroll
	for (int distance = L / 2; distance > 0; distance /= 2)
		sum += __shfl_xor_sync(FULL_WARP, sum, distance);
	return sum;
}

} // namespace gpuvec

#endif /* GPUVEC_ALS_LANES_CUH */
