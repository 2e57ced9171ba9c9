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

}

#endif							/* GPUVEC_INSTRUCTIONS_CUH */
