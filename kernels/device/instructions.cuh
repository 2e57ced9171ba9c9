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
#include <stdint.h>

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

/* Begin to copy 16 bytes from global to shared memory */
static __device__ __forceinline__ void
copy_async(void *to, const void *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(to)), "l"(from)
				 : "memory");
}

/* The copies that this thread has begun make a group */
static __device__ __forceinline__ void
copy_async_end(void)
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Wait for this thread's groups: for all, or for all but the last two */
static __device__ __forceinline__ void
copy_async_wait(bool all_but_two)
{
	if (all_but_two)
		asm volatile("cp.async.wait_group 2;" : : : "memory");
	else
		asm volatile("cp.async.wait_group 0;" : : : "memory");
}

/*
 * Multiply 16 vectors a by 8 vectors b, of 256 bits each: c plus the number
 * of bits that two vectors have in common.  Lane 4 g + t brings 32 of the
 * first 128 bits of vectors g and g + 8 of a (a.x, a.y) and of vector g of b
 * (b0), and as many of the others (a.z, a.w, b1).  It gets the sums of vector
 * g of a with vectors 2 t and 2 t + 1 of b, then those of g + 8.
 */
static __device__ __forceinline__ void
multiply_bits(int *d, const uint4 &a, uint32_t b0, uint32_t b1, const int *c)
{
	asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
		"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
		: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]),
		  "r"(c[3]));
}

} // namespace gpuvec

#endif /* GPUVEC_INSTRUCTIONS_CUH */
