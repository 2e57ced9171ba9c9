/*-------------------------------------------------------------------------
 *
 * neighbors_backend.h
 *	  Interface to what finds the nearest items of items: threads of the CPU
 *	  (neighbors/product.c), or a GPU (kernels/neighbors/).
 *
 * Scores are those of core/weighting.h, to the bit: sums add users in the
 * order of their numbers, in float64.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_NEIGHBORS_BACKEND_H
#define GPUVEC_NEIGHBORS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/weighting.h"
#include "engine/engine_error.h"
#include "engine/thread_pool.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* An item with a score; of equal scores the smaller number comes first */
typedef struct gpuvec_scored_item
{
	double		score;
	uint32_t	item;
	uint32_t	unused;			/* 0 */
} gpuvec_scored_item;

/* engine/als/als_memory.h, engine/neighbors/weighted.h */
struct gpuvec_als_memory;
struct gpuvec_weighted;

/*
 * The weighted matrix, in host memory that the caller owns.  Items have
 * numbers, and columns in which users have them.
 */
typedef struct gpuvec_product_problem
{
	gpuvec_weighting weighting;
	uint32_t	k;				/* at least 1, less than nitems */
	uint32_t	nusers;
	uint32_t	nitems;			/* at least 2 */
	const uint64_t *user_starts;	/* [nusers + 1]: users' rows ... */
	const uint32_t *columns;	/* ... have ascending columns, ... */
	const double *weights;		/* ... and weights */
	const uint64_t *item_starts;	/* [nitems + 1]: items' rows ... */
	const uint32_t *item_users; /* ... have ascending users, ... */
	const double *item_weights; /* ... and the same weights; not for a finder
								 * on the host */
	const uint32_t *items;		/* [nitems]: the item of each column */
	const double *squares;		/* [nitems]: sums of squared weights */
	const uint64_t *work;		/* [nitems + 1]: products before each item */

	/* for a finder on the host: all of that, and what it works with */
	const struct gpuvec_weighted *matrix;
	gpuvec_thread_pool *pool;
	struct gpuvec_als_memory *memory;
} gpuvec_product_problem;

typedef struct gpuvec_finder gpuvec_finder;
typedef struct gpuvec_device_product gpuvec_device_product;

struct gpuvec_finder
{
	bool		on_host;		/* it takes no device memory, and is asked for
								 * small batches */

	/*
	 * Bytes of device memory that a problem takes, if up to `batch` items are
	 * asked for at a time; SIZE_MAX: threads would be faster.
	 */
	size_t		(*bytes) (gpuvec_finder *finder, const gpuvec_product_problem *problem,
						  uint32_t batch);

	/*
	 * Copy a problem to the device; nothing of it is needed after that.  On
	 * the host, `matrix` and what follows it stay where they are.
	 */
	gpuvec_device_product *(*open) (gpuvec_finder *finder, const gpuvec_product_problem *problem,
									uint32_t batch, gpuvec_error *error);

	/*
	 * The k best items, with a score greater than zero, of each of n items
	 * from `first` on: in any order at best[i * room], counts[i] of them,
	 * where room is k times `slices` of the product.  There may be more than
	 * k of them: the others are not among the k best.  If it was canceled
	 * (`canceled` may be NULL), they are of no use.
	 */
	bool		(*find) (gpuvec_device_product *product, uint32_t first, uint32_t n,
						 const int *canceled, gpuvec_scored_item *best, uint32_t *counts,
						 gpuvec_error *error);
	void		(*free) (gpuvec_device_product *product);

	/* Close the service; no product is left */
	void		(*close) (gpuvec_finder *finder);
};

struct gpuvec_device_product
{
	gpuvec_finder *finder;
	uint32_t	slices;			/* into which the columns are cut */
};

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_NEIGHBORS_BACKEND_H */
