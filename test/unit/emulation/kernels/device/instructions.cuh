/*-------------------------------------------------------------------------
 *
 * instructions.cuh
 *	  The instructions of kernels/device/instructions.cuh, emulated.
 *
 * A kernel has ended before the next one starts.  But that one has to wait,
 * if it may start early: emu_launch() sees to it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INSTRUCTIONS_CUH
#define GPUVEC_INSTRUCTIONS_CUH

namespace gpuvec
{

static constexpr unsigned FULL_WARP = 0xFFFFFFFFu;

static inline void
wait_for_previous(void)
{
	emu_waited = true;
}

static inline void
let_next_start(void)
{
}

static inline void
prefetch_l2(const void *)
{
}

/* Copies are done at once */
static inline void
copy_async(void *to, const void *from)
{
	emu_copy(to, from, 16, from);
}

static inline void
wait_copies(void)
{
}

/* A barrier: phases that have ended, arrivals of a phase, and those to come */
struct shared_barrier
{
	uint32_t	phases;
	uint16_t	arrivals;
	uint16_t	missing;
};

static inline void
barrier_make(shared_barrier *barrier, uint32_t arrivals)
{
	*barrier = {0, (uint16_t) arrivals, (uint16_t) arrivals};
}

static inline void
barrier_arrive(shared_barrier *barrier)
{
	if (--barrier->missing > 0)
		return;
	barrier->missing = barrier->arrivals;
	barrier->phases++;
}

static inline void
barrier_arrive_copied(shared_barrier *barrier)
{
	barrier_arrive(barrier);
}

/* Other warps run while this one votes */
static inline bool
barrier_ended(shared_barrier *barrier, uint32_t parity)
{
	return __all_sync(FULL_WARP, barrier->phases % 2 != parity);
}

static inline void
barrier_wait(shared_barrier *barrier, uint32_t parity)
{
	while (!barrier_ended(barrier, parity))
		;
}

/* The 64 bits that a lane of the warp brings as x and y */
static inline void
exchange_bits(uint64_t *all, uint32_t x, uint32_t y)
{
	memcpy(all, emu_warp((uint64_t) x << 32 | y), 32 * sizeof(*all));
}

static inline void
multiply_bits(int *d, const uint4 &a_lane, uint32_t b0, uint32_t b1, const int *c)
{
	uint64_t	a[2][32];
	uint64_t	b[32];
	unsigned	lane = threadIdx.x % 32;

	exchange_bits(a[0], a_lane.x, a_lane.z);
	exchange_bits(a[1], a_lane.y, a_lane.w);
	exchange_bits(b, b0, b1);
	for (unsigned i = 0; i < 4; i++)
	{
		int			sum = c[i];

		for (unsigned t = 0; t < 4; t++)
			sum += __builtin_popcountll(a[i / 2][lane / 4 * 4 + t] & b[(lane % 4 * 2 + i % 2) * 4 + t]);
		d[i] = sum;
	}
}

}

#endif							/* GPUVEC_INSTRUCTIONS_CUH */
