/*-------------------------------------------------------------------------
 *
 * instructions.cuh
 *	  Instructions for which CUDA C++ has no word, or that only some GPUs
 *	  have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INSTRUCTIONS_CUH
#define GPUVEC_INSTRUCTIONS_CUH

#include <cuda_runtime.h>

namespace gpuvec
{

/* All lanes of a warp */
static constexpr unsigned FULL_WARP = 0xFFFFFFFFu;

/*
 * Wait for the end of the kernel before, if this one is chained: see launch.h
 */
static __device__ __forceinline__ void
wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
	cudaGridDependencySynchronize();
#endif
}

/* Let the next kernel start, which waits */
static __device__ __forceinline__ void
let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Ask the L2 cache for 128 bytes */
static __device__ __forceinline__ void
prefetch_l2(const void *from)
{
	asm volatile("prefetch.global.L2 [%0];" : : "l"(from));
}

} // namespace gpuvec

#endif /* GPUVEC_INSTRUCTIONS_CUH */
