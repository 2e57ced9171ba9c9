/*-------------------------------------------------------------------------
 *
 * warp_barrier.cuh
 *	  Barriers in shared memory by which the warps of a block wait for each
 *	  other and for copies, on compute capability 9.0.
 *
 * A barrier has phases.  A phase ends when as many arrivals as the barrier was
 * made for have come, and all bytes have been copied that these announced.
 * Whoever waits says which phase it means by its parity: that of the first
 * phase is 0.  The phase before the first one has ended, and has parity 1.
 *
 * Unlike the barriers of bulk_copy.cuh these do not stop a whole block.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WARP_BARRIER_CUH
#define GPUVEC_WARP_BARRIER_CUH

#include <cuda_runtime.h>
#include <stdint.h>

namespace gpuvec
{

typedef uint64_t warp_barrier;

static __device__ __forceinline__ void
barrier_make(warp_barrier *barrier, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier)), "r"(arrivals)
				 : "memory");
}

/* Let the copy engine see the barriers that this thread has made */
static __device__ __forceinline__ void
barriers_made(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* Arrive: who waits sees what this thread has written before */
static __device__ __forceinline__ void
barrier_arrive(warp_barrier *barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier))
				 : "memory");
}

/* The same, and announce bytes to be copied */
static __device__ __forceinline__ void
barrier_arrive_bytes(warp_barrier *barrier, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
				 :
				 : "r"((uint32_t) __cvta_generic_to_shared(barrier)), "r"(bytes)
				 : "memory");
}

/*
 * Begin to copy from global to shared memory.  Addresses and bytes are
 * multiples of 16.
 */
static __device__ __forceinline__ void
barrier_copy(void *to, const void *from, uint32_t bytes, warp_barrier *barrier)
{
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
		:
		: "r"((uint32_t) __cvta_generic_to_shared(to)), "l"(from), "r"(bytes),
		  "r"((uint32_t) __cvta_generic_to_shared(barrier))
		: "memory");
}

/* Wait for the end of a phase; called by a whole warp */
static __device__ __forceinline__ void
barrier_wait(warp_barrier *barrier, uint32_t parity)
{
	uint32_t ended;

	/* this sleeps for a while */
	do
		asm volatile("{\n\t.reg .pred ended;\n\t"
					 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
					 "selp.u32 %0, 1, 0, ended;\n\t}"
					 : "=r"(ended)
					 : "r"((uint32_t) __cvta_generic_to_shared(barrier)), "r"(parity)
					 : "memory");
	while (!ended);
	__syncwarp();
}

} // namespace gpuvec

#endif /* GPUVEC_WARP_BARRIER_CUH */
