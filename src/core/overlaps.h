/*-------------------------------------------------------------------------
 *
 * overlaps.h
 *	  Numbers of rows that match two sets of several: an array of all pairs.
 *
 * Of n sets, pairs (a, b) with a <= b come by a, then b.  The rows of (a, a)
 * are those that match set a.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_OVERLAPS_H
#define GPUVEC_OVERLAPS_H

#include <stdint.h>

/* Most sets of a request */
#define GPUVEC_MOST_OVERLAPS	4096

/* The number of pairs of n sets */
#define gpuvec_overlap_pairs(n)	((uint64_t) (n) * ((uint64_t) (n) + 1) / 2)

/* The place of pair (a, a), of uint64_t; that of (a, b) is b - a behind it */
#define gpuvec_overlap_pair(n, a) \
	((uint64_t) (a) * (2 * (uint64_t) (n) - (a) + 1) / 2)

#endif							/* GPUVEC_OVERLAPS_H */
