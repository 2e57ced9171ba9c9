/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The time, for measuring how long something takes, and for when
 *	  something is to be done.
 *
 * The monotonic clock is the same for all processes of a machine, and nobody
 * can set it.  The wall clock is only for what people read: who waits until
 * the wall clock says something waits for hours if it is set back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CLOCK_H
#define GPUVEC_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t
gpuvec_clock_read(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds of the monotonic clock */
static inline uint64_t
gpuvec_clock_ns(void)
{
	return (uint64_t) gpuvec_clock_read(CLOCK_MONOTONIC);
}

/* Microseconds of it */
static inline int64_t
gpuvec_clock_us(void)
{
	return gpuvec_clock_read(CLOCK_MONOTONIC) / 1000;
}

/* Microseconds of it some milliseconds ago, which are cheap to read */
static inline int64_t
gpuvec_clock_coarse_us(void)
{
	return gpuvec_clock_read(CLOCK_MONOTONIC_COARSE) / 1000;
}

/* Microseconds of the wall clock since the UNIX epoch */
static inline int64_t
gpuvec_wall_clock_us(void)
{
	return gpuvec_clock_read(CLOCK_REALTIME) / 1000;
}

/* What the wall clock, as it is set now, said at that time */
static inline int64_t
gpuvec_wall_clock_at(int64_t us)
{
	return gpuvec_wall_clock_us() - (gpuvec_clock_us() - us);
}

#endif							/* GPUVEC_CLOCK_H */
