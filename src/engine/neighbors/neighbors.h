/*-------------------------------------------------------------------------
 *
 * neighbors.h
 *	  The nearest items of each item, by the users that both have.
 *
 * The order of calls: gpuvec_neighbors_new; gpuvec_neighbors_add, as often as
 * there are interactions; gpuvec_neighbors_prepare; and
 * gpuvec_neighbors_next until no item is left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_NEIGHBORS_H
#define GPUVEC_NEIGHBORS_H

#include "core/protocol_als.h"
#include "engine/als/interactions.h"
#include "engine/neighbors_backend.h"
#include "engine/store/store.h"

typedef struct gpuvec_neighbors_options
{
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	gpuvec_weighting weighting;
	double		k1;				/* 0 .. GPUVEC_MAX_BM25_K1 */
	double		b;				/* 0 .. 1 */
	gpuvec_finder *finder;		/* NULL: the store's GPU with the most room,
								 * if it is worth while, else threads */
} gpuvec_neighbors_options;

typedef struct gpuvec_neighbors gpuvec_neighbors;

/* store: where memory is charged, or NULL.  threads: 0: one for each core. */
extern gpuvec_neighbors *gpuvec_neighbors_new(gpuvec_store *store, int threads,
											  const gpuvec_neighbors_options *options,
											  gpuvec_error *error);
extern void gpuvec_neighbors_free(gpuvec_neighbors *neighbors);

/* Add n interactions; weights must be finite and not zero */
extern bool gpuvec_neighbors_add(gpuvec_neighbors *neighbors, uint64_t n, const int64_t *users,
								 const int64_t *items, const float *weights, gpuvec_error *error);

/*
 * All interactions have come: weigh them.  If it was canceled, it fails, and
 * the search is of no use.
 */
extern bool gpuvec_neighbors_prepare(gpuvec_neighbors *neighbors, const int *canceled,
									 gpuvec_error *error);

/*
 * The neighbors of the next items, in the order of the items' keys, best
 * first; *rows is valid until the next call.  All neighbors of an item come
 * in one call.  *rows without any is no end: that is when
 * gpuvec_neighbors_done equals the number of items.  If it was canceled, the
 * rows are of no use.
 */
extern bool gpuvec_neighbors_next(gpuvec_neighbors *neighbors, const int *canceled,
								  const gpuvec_neighbor **rows, uint64_t *n, gpuvec_error *error);
extern uint32_t gpuvec_neighbors_done(const gpuvec_neighbors *neighbors);

/* Does a GPU find them? */
extern bool gpuvec_neighbors_on_device(const gpuvec_neighbors *neighbors);

/* Users and items, and their pairs with a weight */
extern uint32_t gpuvec_neighbors_rows(const gpuvec_neighbors *neighbors, gpuvec_als_side side);
extern uint64_t gpuvec_neighbors_entries(const gpuvec_neighbors *neighbors);

#endif							/* GPUVEC_NEIGHBORS_H */
