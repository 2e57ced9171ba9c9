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

/* Wait for the copies that this thread has begun */
static __device__ __forceinline__ void
wait_copies(void)
{
	asm volatile("cp.async.wait_all;" : : : "memory");
}

/*
 * A barrier in shared memory, by which warps wait for others.  It has phases:
 * a phase ends when so many arrivals as it was made for have come.
 */
typedef uint64_t shared_barrier;

static __device__ __forceinline__ void
barrier_make(shared_barrier *barrier, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier)), "r"(arrivals)
				 : "memory");
}

/* Arrive: others see what this thread has written before */
static __device__ __forceinline__ void
barrier_arrive(shared_barrier *barrier)
{
	asm volatile("{\n\t.reg .b64 state;\n\t"
				 "mbarrier.arrive.shared.b64 state, [%0];\n\t}"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier))
				 : "memory");
}

/* Arrive when all copies are complete that this thread has begun */
static __device__ __forceinline__ void
barrier_arrive_copied(shared_barrier *barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier))
				 : "memory");
}

/*
 * Has a phase ended: the first one, whose parity is 0, or a later one?  Called
 * by a whole warp.
 */
static __device__ __forceinline__ bool
barrier_ended(shared_barrier *barrier, uint32_t parity)
{
	uint32_t ended;

	asm volatile("{\n\t.reg .pred ended;\n\t"
				 "mbarrier.test_wait.parity.shared.b64 ended, [%1], %2;\n\t"
				 "selp.u32 %0, 1, 0, ended;\n\t}"
				 : "=r"(ended)
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier)), "r"(parity)
				 : "memory");
	return __all_sync(FULL_WARP, ended);
}

/* Wait for the end of a phase; called by a whole warp */
static __device__ __forceinline__ void
barrier_wait(shared_barrier *barrier, uint32_t parity)
{
#if __CUDA_ARCH__ >= 900
	uint32_t ended;

	/* this sleeps for a while */
	do
		asm volatile("{\n\t.reg .pred ended;\n\t"
					 "mbarrier.try_wait.parity.shared.b64 ended, [%1], %2;\n\t"
					 "selp.u32 %0, 1, 0, ended;\n\t}"
					 : "=r"(ended)
					 : "r"((uint32_t) __cvta_generic_to_shared(barrier)), "r"(parity)
					 : "memory");
	while (!ended);
	__syncwarp();
#else
	while (!barrier_ended(barrier, parity))
		;
#endif
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
