/*-------------------------------------------------------------------------
 *
 * renumber.h
 *	  From the ids of staged rows to numbers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RENUMBER_H
#define GPUVEC_RENUMBER_H

#include "engine/sets/id_numbers.h"
#include "engine/sets/stage.h"

/*
 * Count the ids of all staged rows, and make the map of a mirror that has
 * these rows.  NULL on failure.  charge, unless it is NULL, is called with
 * the bytes that this takes, the map included, as they grow; false stops it.
 */
typedef bool (*gpuvec_renumber_charge) (void *arg, size_t bytes, gpuvec_error *error);

extern gpuvec_id_numbers *gpuvec_renumber_map(const gpuvec_stage *stage, gpuvec_thread_pool *pool,
											  gpuvec_renumber_charge charge, void *arg,
											  gpuvec_error *error);

/*
 * Replace the stage, whose rows have ids, by one whose rows have numbers.
 * New ids get numbers; complete: there are none.  On failure *stage can only
 * be freed.
 */
extern bool gpuvec_renumber_rows(gpuvec_stage **stage, gpuvec_id_numbers *numbers, bool complete,
								 gpuvec_thread_pool *pool, gpuvec_error *error);

#endif							/* GPUVEC_RENUMBER_H */
