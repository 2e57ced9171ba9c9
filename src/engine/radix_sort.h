/*-------------------------------------------------------------------------
 *
 * radix_sort.h
 *	  Sort 64-bit keys by their upper bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RADIX_SORT_H
#define GPUVEC_RADIX_SORT_H

#include <stdint.h>

/*
 * Sort n keys, fewer than 2^32, by their bits from first_bit on, ascending and
 * stable.  scratch has room for n keys.  Returns the array that holds the
 * sorted keys: keys or scratch.
 */
extern uint64_t *gpuvec_radix_sort(uint64_t *keys, uint64_t *scratch, uint64_t n, int first_bit);

#endif							/* GPUVEC_RADIX_SORT_H */
