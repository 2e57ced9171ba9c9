/*-------------------------------------------------------------------------
 *
 * stage.h
 *	  Rows on their way into segments.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STAGE_H
#define GPUVEC_STAGE_H

#include "engine/backend.h"
#include "engine/thread_pool.h"

typedef struct gpuvec_stage gpuvec_stage;

/* NULL on lack of memory */
extern gpuvec_stage *gpuvec_stage_new(void);
extern void gpuvec_stage_free(gpuvec_stage *stage);

/*
 * Add a copy of a row; or, if its ids last until the stage is gone, perhaps
 * the row itself
 */
extern bool gpuvec_stage_add(gpuvec_stage *stage, uint64_t tid, const uint16_t *ids,
							 uint32_t len, bool last, gpuvec_error *error);

extern uint64_t gpuvec_stage_rows(const gpuvec_stage *stage);
extern uint64_t gpuvec_stage_lent(const gpuvec_stage *stage);	/* rows that were not
																 * copied */
extern size_t gpuvec_stage_bytes(const gpuvec_stage *stage);	/* allocated */
extern size_t gpuvec_stage_estimate(const gpuvec_stage *stage); /* as segments */

/* How to build segments of what was staged */
typedef struct gpuvec_stage_target
{
	gpuvec_thread_pool *pool;
	gpuvec_backend *backend;
	uint32_t	nblocks;		/* rows of blocks at or beyond are left out
								 * ... */
	uint64_t	nrows;			/* ... and this many remain */
	int			shares;			/* threads that share a search, by segments */

	/* called now and then with the bytes built and those still staged */
	bool		(*progress) (void *arg, size_t built, size_t staged, gpuvec_error *error);
	void	   *arg;
} gpuvec_stage_target;

/*
 * Sort all rows by (len, tid) and build and adopt their segments, which
 * *segments (malloc'd) lists.  Staged rows are freed as their segments are
 * built.
 */
extern bool gpuvec_stage_build(gpuvec_stage *stage, const gpuvec_stage_target *target,
							   gpuvec_segment ***segments, uint32_t *nsegments,
							   gpuvec_error *error);

#endif							/* GPUVEC_STAGE_H */
