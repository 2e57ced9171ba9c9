/*-------------------------------------------------------------------------
 *
 * als_interactions.h
 *	  Interactions on their way to the engine.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_INTERACTIONS_H
#define GPUVEC_ALS_INTERACTIONS_H

#include "recommend/recommend.h"
#include "utils/portal.h"

/* Interactions in one message */
#define ALS_CHUNK_ROWS	32768

typedef struct AlsInteractionChunk
{
	uint32		n;
	int64		users[ALS_CHUNK_ROWS];
	int64		items[ALS_CHUNK_ROWS];
	float		weights[ALS_CHUNK_ROWS];
} AlsInteractionChunk;

/*
 * als_weights.c.  Add an interaction of a user, unless its weight is zero.
 * The item and the weight are not null; weight is NULL if there is no such
 * column.  True: the chunk is full.  Fails if the weight cannot be used.
 */
extern bool AlsTakeInteraction(AlsInteractionChunk *chunk, const Oid *types, double alpha,
							   int64 user, Datum item, const Datum *weight);

/* als_parallel.c */

/*
 * True if all that an open portal does is to scan this table, and parallel
 * workers may do so as well.  They look for `times` as many rows as the
 * portal's plan.
 */
extern bool AlsOnlyScans(Portal portal, Oid relid, double times);

/*
 * Let parallel workers read interactions under the active snapshot, of these
 * users only unless keys is 0.  Adds to *rows how many had keys and a weight.
 * False: there are no workers, and nothing was read.
 */
extern bool AlsReadParallel(const AlsInteractions *interactions, Datum keys, double alpha,
							AlsTakeChunk *take, void *arg, uint64 *rows);

#endif							/* GPUVEC_ALS_INTERACTIONS_H */
