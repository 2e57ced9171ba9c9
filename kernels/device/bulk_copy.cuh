/*-------------------------------------------------------------------------
 *
 * bulk_copy.cuh
 *	  Copies between global and shared memory by the GPU's copy engine ("bulk
 *	  asynchronous copies" of compute capability 9.0), and the barriers that
 *	  tell when they are complete.
 *
 * Addresses and sizes are multiples of 16 bytes.
 *
 * To read: one thread initializes the barrier for a number of arrivals, and
 * the block synchronizes.  Each arrival says how many bytes it will ask for
 * with bulk_read().  bulk_barrier_wait() returns when all arrivals have
 * happened and all their bytes are in shared memory.
 *
 * To write: each thread that wrote the source in shared memory calls
 * bulk_fence(), and the block synchronizes.  Then a thread calls
 * bulk_write().
 *
 * On older GPUs the functions are empty.
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
 * Declares the dynamic shared memory of a kernel: at most `most` elements,
 * aligned to 128 bytes
 */
#define BULK_SHARED(type, name, most) extern __shared__ __align__(128) type name[]

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ uint32_t
bulk_address(const void *shared)
{
	return (uint32_t) __cvta_generic_to_shared(shared);
}
#endif

/* Initialize a barrier for a number of arrivals */
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

/* Arrive at the barrier, and add to the bytes that it waits for */
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
 * Wait until all have arrived and all bytes have been copied.  The phase of a
 * barrier's first use is 0, then 1, 0, 1, ...
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

/* Start a copy from global to shared memory; the barrier counts its bytes */
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

/* Make this thread's writes to shared memory visible to bulk_write() */
static __device__ __forceinline__ void
bulk_fence(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

/*
 * Start a copy from shared to global memory.  The L2 cache may evict the
 * copied lines first.
 */
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

/*
 * Wait until this thread's bulk_write() copies have read their shared memory,
 * which may then be overwritten
 */
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
