/*-------------------------------------------------------------------------
 *
 * product.h
 *	  The product of the weighted matrix of items and users with its
 *	  transpose, row by row, and the k largest elements of each, on threads of
 *	  the CPU.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PRODUCT_ROWS_H
#define GPUVEC_PRODUCT_ROWS_H

#include "engine/neighbors_backend.h"

/* It has no state of its own; a product has a scratch for each thread */
extern gpuvec_finder gpuvec_cpu_finder;

/*
 * The first item from `first` on, and before `end`, with at least this work
 * before it; `end` if there is none
 */
static inline uint32_t
gpuvec_product_item(const uint64_t *work, uint32_t first, uint32_t end, uint64_t least)
{
	while (first < end)
	{
		uint32_t	middle = first + (end - first) / 2;

		if (work[middle] < least)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

/* Sort scored items: the best first */
extern void gpuvec_sort_scored(gpuvec_scored_item *items, uint32_t n);

#endif							/* GPUVEC_PRODUCT_ROWS_H */
