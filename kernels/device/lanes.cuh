/*-------------------------------------------------------------------------
 *
 * lanes.cuh
 *	  Sums in lanes, as core/product.h defines them: 16 threads compute one
 *	  sum.
 *
 * Here a lane is one of a sum's 16 partial sums (LANES), except for the
 * parameter `lane`, a thread's number in its warp.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LANES_CUH
#define GPUVEC_LANES_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/device/instructions.cuh"

namespace gpuvec
{

static constexpr int LANES = 16;

/*
 * Add up the lanes of N sums.  Each thread ends with one complete sum in
 * a[0]: the highest bits of its lane number say which of the N.
 */
template <int N, int DISTANCE>
struct folding
{
	static __device__ __forceinline__ void
	run(double *a, uint32_t lane)
	{
		constexpr int M = N > 1 ? N / 2 : 1;

#pragma unroll
		for (int i = 0; i < M; i++)
		{
			bool upper = N > 1 && (lane & DISTANCE) != 0;
			double mine = upper ? a[N > 1 ? i + M : i] : a[i];
			double other = N == 1 ? a[i] : upper ? a[i] : a[N > 1 ? i + M : i];

			a[i] = mine + __shfl_xor_sync(FULL_WARP, other, DISTANCE);
		}
		folding<M, DISTANCE / 2>::run(a, lane);
	}
};

template <int N>
struct folding<N, 0>
{
	static __device__ __forceinline__ void
	run(double *, uint32_t)
	{
	}
};

/*
 * Element i of a vector, loaded as data that is not read again soon (__ldcs)
 */
template <typename T>
static __device__ __forceinline__ double
lane_element(const char *vector, uint32_t i)
{
	if (sizeof(T) == 4)
		return __uint_as_float(__ldcs((const unsigned *) vector + i));
	else
		return __half2float(__ushort_as_half(__ldcs((const unsigned short *) vector + i)));
}

} // namespace gpuvec

#endif /* GPUVEC_LANES_CUH */
