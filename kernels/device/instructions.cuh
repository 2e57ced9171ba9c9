/*-------------------------------------------------------------------------
 *
 * instructions.cuh
 *	  Instructions that CUDA C++ does not offer, or that only some GPUs have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INSTRUCTIONS_CUH
#define GPUVEC_INSTRUCTIONS_CUH

#include <cuda_runtime.h>

namespace gpuvec
{

/* The mask of all lanes of a warp */
static constexpr unsigned FULL_WARP = 0xFFFFFFFFu;

/*
 * Wait for the end of the previous kernel, if this kernel was launched
 * chained (launch.h)
 */
static __device__ __forceinline__ void
wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
	cudaGridDependencySynchronize();
#endif
}

/* Let the next kernel of the stream start, if it is chained (launch.h) */
static __device__ __forceinline__ void
let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Prefetch a line of 128 bytes into the L2 cache */
static __device__ __forceinline__ void
prefetch_l2(const void *from)
{
	asm volatile("prefetch.global.L2 [%0];" : : "l"(from));
}

} // namespace gpuvec

#endif /* GPUVEC_INSTRUCTIONS_CUH */
