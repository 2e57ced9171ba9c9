/*-------------------------------------------------------------------------
 *
 * bulk_copy.cuh
 *	  Copies between global and shared memory by the copy engine ("bulk
 *	  asynchronous copies"
 *	  of compute capability 9.0), and the barrier that tells when they have
 *	  come.
 *
 * Addresses and sizes are multiples of 16 bytes.  The order of things: one
 * thread makes the barrier for a number of arrivals, then all synchronise;
 * each arrival says how many bytes it will ask for; whoever waits sees all
 * that arrived and was asked for.  Before bulk_write(), threads that wrote to
 * what is to be copied call bulk_fence() and synchronise.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BULK_COPY_CUH
#define GPUVEC_BULK_COPY_CUH

#include <cuda_runtime.h>
#include <stdint.h>

namespace gpuvec
{

/*
 * Shared memory that the launch gives: at most `most` elements, aligned to 16
 * bytes or more
 */
#define BULK_SHARED(type, name, most) extern __shared__ __align__(128) type name[]

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ uint32_t
bulk_address(const void *shared)
{
	return (uint32_t) __cvta_generic_to_shared(shared);
}
#endif

/* Make a barrier for a number of arrivals */
static __device__ __forceinline__ void
bulk_barrier_init(uint64_t *barrier, uint32_t arrivals)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
				 :
				 : "r"(bulk_address(barrier)), "r"(arrivals));
	asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
}

/* Arrive, with some bytes to come */
static __device__ __forceinline__ void
bulk_barrier_arrive(uint64_t *barrier, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
				 :
				 : "r"(bulk_address(barrier)), "r"(bytes)
				 : "memory");
#endif
}

/*
 * Wait until all have arrived and all bytes have come; phase: 0, then 1, then
 * 0 ...
 */
static __device__ __forceinline__ void
bulk_barrier_wait(uint64_t *barrier, uint32_t phase)
{
#if __CUDA_ARCH__ >= 900
	uint32_t done;

	do
	{
		asm volatile("{\n"
					 "	.reg .pred p;\n"
					 "	mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
					 "	selp.u32 %0, 1, 0, p;\n"
					 "}"
					 : "=r"(done)
					 : "r"(bulk_address(barrier)), "r"(phase)
					 : "memory");
	} while (!done);
#endif
}

/* Ask for bytes of global memory, whose coming the barrier tells */
static __device__ __forceinline__ void
bulk_read(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
#if __CUDA_ARCH__ >= 900
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
		:
		: "r"(bulk_address(to)), "l"(from), "r"(bytes), "r"(bulk_address(barrier))
		: "memory");
#endif
}

/* What this thread wrote to shared memory is to be seen by bulk_write() */
static __device__ __forceinline__ void
bulk_fence(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

/* Copy to global memory, which the L2 cache may give up first */
static __device__ __forceinline__ void
bulk_write(void *to, const void *from, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;"
				 :
				 : "l"(to), "r"(bulk_address(from)), "r"(bytes), "l"(policy)
				 : "memory");
#endif
}

/* Wait until shared memory has been read by this thread's copies */
static __device__ __forceinline__ void
bulk_write_wait(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("cp.async.bulk.commit_group;\n"
				 "	cp.async.bulk.wait_group.read 0;"
				 :
				 :
				 : "memory");
#endif
}

} // namespace gpuvec

#endif /* GPUVEC_BULK_COPY_CUH */
