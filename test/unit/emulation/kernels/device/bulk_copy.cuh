/*-------------------------------------------------------------------------
 *
 * bulk_copy.cuh
 *	  The copies of kernels/device/bulk_copy.cuh, emulated: they are done at
 *	  once, and
 *	  whoever waits at the barrier waits for the threads of the block.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BULK_COPY_CUH
#define GPUVEC_BULK_COPY_CUH

#include <stdint.h>

namespace gpuvec
{

#define BULK_SHARED(type, name, most)	__shared__ type name[most]

static inline void
bulk_barrier_init(uint64_t *, uint32_t)
{
}

static inline void
bulk_barrier_arrive(uint64_t *, uint32_t)
{
}

static inline void
bulk_barrier_wait(uint64_t *, uint32_t)
{
	__syncthreads();
}

static inline void
bulk_read(void *to, const void *from, uint32_t bytes, uint64_t *)
{
	emu_copy(to, from, bytes, from);
}

static inline void
bulk_fence(void)
{
}

static inline void
bulk_write(void *to, const void *from, uint32_t bytes)
{
	emu_copy(to, from, bytes, to);
}

static inline void
bulk_write_wait(void)
{
}

}

#endif							/* GPUVEC_BULK_COPY_CUH */
