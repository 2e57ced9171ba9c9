/*-------------------------------------------------------------------------
 *
 * id_counts.h
 *	  How many rows have each id, and the ids in the order of that.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ID_COUNTS_H
#define GPUVEC_ID_COUNTS_H

#include "engine/sets/id_numbers.h"
#include "engine/thread_pool.h"

typedef struct gpuvec_id_counts gpuvec_id_counts;

/* Counts that nthreads threads may add to, beside one another */
extern gpuvec_id_counts *gpuvec_id_counts_new(int nthreads, gpuvec_error *error);
extern void gpuvec_id_counts_free(gpuvec_id_counts *counts);

/* Count the ids of one row, by thread 0 ..  nthreads - 1 */
extern bool gpuvec_id_counts_add(gpuvec_id_counts *counts, int thread, const uint32_t *ids,
								 uint32_t n, gpuvec_error *error);

/* Bytes allocated; nobody may be adding to them */
extern size_t gpuvec_id_counts_bytes(const gpuvec_id_counts *counts);

/* Complete the counts, when all rows have been added */
extern bool gpuvec_id_counts_finish(gpuvec_id_counts *counts, gpuvec_thread_pool *pool,
									gpuvec_error *error);

/*
 * Make a map of complete counts: the ids get the numbers from 0 on, the most
 * frequent first, of equal ones the lowest first.  The counts become the map,
 * and can only be freed.
 */
extern gpuvec_id_numbers *gpuvec_id_counts_rank(gpuvec_id_counts *counts, gpuvec_thread_pool *pool,
												gpuvec_error *error);

#endif							/* GPUVEC_ID_COUNTS_H */
