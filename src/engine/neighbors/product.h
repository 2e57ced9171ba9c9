/*-------------------------------------------------------------------------
 *
 * product.h
 *	  One row of the product of the weighted matrix of items and users with
 *	  its transpose, and its k largest elements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PRODUCT_ROWS_H
#define GPUVEC_PRODUCT_ROWS_H

#include "engine/als/interactions.h"
#include "engine/neighbors/weighted.h"
#include "engine/neighbors_backend.h"

/* What a thread works with */
typedef struct gpuvec_product_scratch
{
	double	   *sums;			/* [items], by columns; all zero between rows */
	uint32_t   *columns;		/* [items]: those with a sum, if they are few */
	gpuvec_scored_item *best;	/* [k]: a heap, the worst first */
} gpuvec_product_scratch;

extern bool gpuvec_product_scratch_new(gpuvec_als_memory *memory, uint32_t items, uint32_t k,
									   gpuvec_product_scratch *scratch, gpuvec_error *error);
extern void gpuvec_product_scratch_free(gpuvec_als_memory *memory, gpuvec_product_scratch *scratch);

/* Sort scored items: the best first */
extern void gpuvec_sort_scored(gpuvec_scored_item *items, uint32_t n);

/*
 * Find the k best neighbors of an item; they are scratch->best[0 .. result -
 * 1], best first.  If it was canceled, they are of no use.
 */
extern uint32_t gpuvec_product_row(const gpuvec_weighted *matrix, uint32_t item, uint32_t k,
								   const int *canceled, gpuvec_product_scratch *scratch);

#endif							/* GPUVEC_PRODUCT_ROWS_H */
