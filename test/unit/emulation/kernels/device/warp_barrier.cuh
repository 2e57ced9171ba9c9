/*-------------------------------------------------------------------------
 *
 * warp_barrier.cuh
 *	  The barriers of kernels/device/warp_barrier.cuh, emulated.  Copies are
 *	  done at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WARP_BARRIER_CUH
#define GPUVEC_WARP_BARRIER_CUH

namespace gpuvec
{

/*
 * A barrier: phases that have ended, arrivals of a phase, and those to come;
 * bytes that were announced, less those that were copied
 */
struct warp_barrier
{
	uint32_t	phases;
	uint16_t	arrivals;
	uint16_t	missing;
	int32_t		bytes;
};

static inline void
barrier_make(warp_barrier *barrier, uint32_t arrivals)
{
	*barrier = {0, (uint16_t) arrivals, (uint16_t) arrivals, 0};
}

static inline void
barriers_made(void)
{
}

/* End the phase if nothing is missing */
static inline void
barrier_check(warp_barrier *barrier)
{
	if (barrier->missing > 0 || barrier->bytes != 0)
		return;
	barrier->missing = barrier->arrivals;
	barrier->phases++;
}

static inline void
barrier_arrive_bytes(warp_barrier *barrier, uint32_t bytes)
{
	if (barrier->missing == 0)
		emu_fail("too many arrivals at a barrier");
	barrier->missing--;
	barrier->bytes += bytes;
	barrier_check(barrier);
}

static inline void
barrier_arrive(warp_barrier *barrier)
{
	barrier_arrive_bytes(barrier, 0);
}

static inline void
barrier_copy(void *to, const void *from, uint32_t bytes, warp_barrier *barrier)
{
	emu_copy(to, from, bytes, from);
	barrier->bytes -= bytes;
	barrier_check(barrier);
}

/* Other warps run while this one votes */
static inline void
barrier_wait(warp_barrier *barrier, uint32_t parity)
{
	while (!__all_sync(FULL_WARP, barrier->phases % 2 != parity))
		;
}

}

#endif							/* GPUVEC_WARP_BARRIER_CUH */
