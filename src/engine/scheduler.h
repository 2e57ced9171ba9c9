/*-------------------------------------------------------------------------
 *
 * scheduler.h
 *	  Runs the searches of all sessions on one backend, in batches.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SCHEDULER_H
#define GPUVEC_SCHEDULER_H

#include "engine/backend.h"

typedef struct gpuvec_scheduler gpuvec_scheduler;

typedef struct gpuvec_scheduler_stats
{
	uint64_t	requests;		/* of sessions */
	uint64_t	batches;
	uint64_t	queries;
	uint64_t	errors;			/* requests that failed */
	uint64_t	busy_ns;		/* time of all batches */
} gpuvec_scheduler_stats;

extern gpuvec_scheduler *gpuvec_scheduler_new(gpuvec_backend *backend);
extern void gpuvec_scheduler_free(gpuvec_scheduler *scheduler);

/* Count a session's request, which may take several searches */
extern void gpuvec_scheduler_count(gpuvec_scheduler *scheduler);

/*
 * Search the view; blocks until the answers are there.  The search may run in
 * one batch with searches of other threads on the same view by the same
 * scoring and method.  There is at least one query.
 */
extern bool gpuvec_scheduler_topk(gpuvec_scheduler *scheduler, const gpuvec_view *view,
								  const gpuvec_scoring *scoring, gpuvec_method method,
								  gpuvec_topk_query *queries,
								  uint32_t nqueries, gpuvec_error *error);

/*
 * Count the rows of pairs of queries, in a batch of its own, for which the
 * backend has a function
 */
extern bool gpuvec_scheduler_overlaps(gpuvec_scheduler *scheduler, const gpuvec_view *view,
									  gpuvec_overlaps *overlaps, gpuvec_error *error);

extern void gpuvec_scheduler_get_stats(gpuvec_scheduler *scheduler,
									   gpuvec_scheduler_stats *stats);

#endif							/* GPUVEC_SCHEDULER_H */
