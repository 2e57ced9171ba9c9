/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The time, for measuring how long something takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CLOCK_H
#define GPUVEC_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of the monotonic clock */
static inline uint64_t
gpuvec_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

#endif							/* GPUVEC_CLOCK_H */
