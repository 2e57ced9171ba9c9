/*-------------------------------------------------------------------------
 *
 * stage_order.h
 *	  The rows of a stage in the order of segments, for several threads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STAGE_ORDER_H
#define GPUVEC_STAGE_ORDER_H

#include "engine/sets/stage.h"

typedef struct gpuvec_stage_order gpuvec_stage_order;

/*
 * Put the rows of a stage in order, without those of blocks at or beyond
 * nblocks: there have to be nrows of them.  They are read in slices of `step`
 * rows; the last slice may have fewer.  Takes the rows over: the stage can
 * only be freed then.  NULL on failure.
 */
extern gpuvec_stage_order *gpuvec_stage_order_new(gpuvec_stage *stage, uint32_t nblocks,
												  uint64_t nrows, uint32_t step,
												  gpuvec_thread_pool *pool, gpuvec_error *error);

/* Frees the rows that are left; nobody reads any more */
extern void gpuvec_stage_order_free(gpuvec_stage_order *order);

extern uint64_t gpuvec_stage_order_slices(const gpuvec_stage_order *order);

/*
 * Read the rows of a slice; called by threads of the pool, for each slice
 * once.  They are in the order of (length, tid), and stay until the thread
 * reads the next slice.  What they point to stays until it calls
 * gpuvec_stage_order_done(), as it has to before.  NULL on failure; then it
 * has not to.
 */
extern const gpuvec_source_row *gpuvec_stage_order_read(gpuvec_stage_order *order, uint64_t slice,
														int thread, uint32_t *n,
														gpuvec_error *error);

/*
 * The rows that this thread has read are not needed any more.  Frees the
 * chunks of which that is true for all rows.
 */
extern void gpuvec_stage_order_done(gpuvec_stage_order *order, int thread);

#endif							/* GPUVEC_STAGE_ORDER_H */
