/*-------------------------------------------------------------------------
 *
 * stage.h
 *	  The stage: rows that wait to be sorted and built into segments.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STAGE_H
#define GPUVEC_STAGE_H

#include "engine/backend.h"
#include "engine/thread_pool.h"

typedef struct gpuvec_stage gpuvec_stage;

/* Rows of a full segment: GPUVEC_SEGMENT_ROWS, or fewer in tests */
extern uint32_t gpuvec_full_segment(void);

/*
 * Segments that rows are sorted into.  On the CPU, `shares` threads share a
 * search by segments.
 */
extern uint64_t gpuvec_segments_needed(const gpuvec_backend *backend, uint64_t nrows,
									   int shares);

/*
 * If rows are sorted into so many segments or more, these have narrow ranges
 * of lengths: they are sorted ones
 */
#define GPUVEC_SORTED_SEGMENTS	3

/* Make an empty stage; NULL on lack of memory */
extern gpuvec_stage *gpuvec_stage_new(gpuvec_row_kind kind);
extern void gpuvec_stage_free(gpuvec_stage *stage);

/*
 * Add a row.  What it points to is copied, except that if `last`, it stays
 * valid until the stage is freed, and the stage may refer to it.
 */
extern bool gpuvec_stage_add(gpuvec_stage *stage, const gpuvec_source_row *row, bool last,
							 gpuvec_error *error);

/*
 * stage_runs.c: move all rows of another stage, which is of the same load, to
 * this one.  On failure both can only be freed.
 */
extern bool gpuvec_stage_unite(gpuvec_stage *stage, gpuvec_stage *other, gpuvec_error *error);

/* What each row has besides ids */
extern gpuvec_row_kind gpuvec_stage_kind(const gpuvec_stage *stage);

/* Number of cold ids in all rows */
extern uint64_t gpuvec_stage_cold(const gpuvec_stage *stage);

/* Call visit for all rows, until it returns false */
typedef bool (*gpuvec_row_visitor) (void *arg, const gpuvec_source_row *row, gpuvec_error *error);

extern bool gpuvec_stage_visit(const gpuvec_stage *stage, gpuvec_row_visitor visit, void *arg,
							   gpuvec_error *error);

/*
 * The slices of a stage, in the order of its rows: a malloc'd array, which is
 * valid until the stage is changed.  Threads may visit slices beside one
 * another.
 */
typedef struct gpuvec_stage_slice
{
	struct stage_chunk *chunk;	/* NULL: all rows of a stage that has few */
	int			in_class;
} gpuvec_stage_slice;

extern gpuvec_stage_slice *gpuvec_stage_slices(const gpuvec_stage *stage, uint64_t *n,
											   gpuvec_error *error);
extern bool gpuvec_stage_visit_slice(const gpuvec_stage *stage, const gpuvec_stage_slice *slice,
									 gpuvec_row_visitor visit, void *arg, gpuvec_error *error);

/* Slices for each thread in one run of a pool that others wait for */
#define GPUVEC_SLICES_AT_ONCE	8

/* True if the stage has spread its rows over classes */
extern bool gpuvec_stage_is_spread(const gpuvec_stage *stage);

/*
 * Give all rows of a stage that is spread other ids, as many as they have.
 * All threads of the pool call rewrite, which sets ncold and ids of *to, and
 * the values behind them.
 * These stay valid until the thread's next call.  On failure the stage can
 * only be freed.
 */
typedef void (*gpuvec_row_rewriter) (void *arg, int thread, const gpuvec_source_row *row,
									 gpuvec_source_row *to);

extern bool gpuvec_stage_rewrite(gpuvec_stage *stage, gpuvec_thread_pool *pool,
								 gpuvec_row_rewriter rewrite, void *arg, gpuvec_error *error);

extern uint64_t gpuvec_stage_rows(const gpuvec_stage *stage);

/* Number of rows that were not copied */
extern uint64_t gpuvec_stage_lent(const gpuvec_stage *stage);

/* Bytes allocated */
extern size_t gpuvec_stage_bytes(const gpuvec_stage *stage);

/* Bytes that the rows will take as segments */
extern size_t gpuvec_stage_estimate(const gpuvec_stage *stage);

/* How to build segments of the staged rows */
typedef struct gpuvec_stage_target
{
	gpuvec_thread_pool *pool;
	gpuvec_backend *backend;
	uint32_t	nblocks;		/* rows of blocks at or beyond this are left
								 * out */
	uint64_t	nrows;			/* number of rows that are not left out */
	int			shares;			/* threads that will share a search by
								 * segments */
	bool		sorted;			/* the segments are sorted ones, however few
								 * they are */

	/*
	 * called now and then, with the bytes of the segments built and of the
	 * rows still staged; false stops building
	 */
	bool		(*progress) (void *arg, size_t built, size_t staged, gpuvec_error *error);

	/*
	 * NULL, or called by threads of the pool for each new segment, before it
	 * is adopted; may give its rows other tids in the same order
	 */
	void		(*name_rows) (void *arg, gpuvec_segment *segment);
	void	   *arg;
} gpuvec_stage_target;

/*
 * Sort all rows by (len, tid), build their segments, and adopt these.
 * *segments is a malloc'd array of *nsegments references.  Staged rows are
 * freed as their segments are built.
 */
extern bool gpuvec_stage_build(gpuvec_stage *stage, const gpuvec_stage_target *target,
							   gpuvec_segment ***segments, uint32_t *nsegments,
							   gpuvec_error *error);

#endif							/* GPUVEC_STAGE_H */
