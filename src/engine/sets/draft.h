/*-------------------------------------------------------------------------
 *
 * draft.h
 *	  A draft: a view under construction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_DRAFT_H
#define GPUVEC_DRAFT_H

#include "engine/sets/stage.h"

/*
 * A draft.  Its entries hold references.  Live maps that no backend has
 * adopted belong to the draft and may be changed.
 */
typedef struct gpuvec_draft
{
	gpuvec_backend *backend;
	gpuvec_thread_pool *pool;
	gpuvec_view_entry *entries;
	uint32_t	n;
	uint32_t	capacity;
} gpuvec_draft;

extern void gpuvec_draft_free(gpuvec_draft *draft);

/* Add all entries of a view */
extern bool gpuvec_draft_copy(gpuvec_draft *draft, const gpuvec_view *view, gpuvec_error *error);

/*
 * Bury (mark as dead) the live rows of these n blocks (ascending), and of all
 * blocks at or beyond nblocks.  Entries without live rows are removed.  Sets
 * *buried if any row was buried.  `limit` is above every block of the draft's
 * live rows.
 */
extern bool gpuvec_draft_bury(gpuvec_draft *draft, const uint32_t *blocks, uint64_t n,
							  uint32_t nblocks, uint32_t limit, bool *buried, gpuvec_error *error);

/*
 * Bury the live rows under n line pointers: those with these tids, which are
 * ascending and even, and with the next ones
 */
extern bool gpuvec_draft_bury_lines(gpuvec_draft *draft, const uint64_t *tids, uint64_t n,
									bool *buried, gpuvec_error *error);

/* Size of the entries from `first` on: all rows, live rows, and bytes */
typedef struct gpuvec_draft_size
{
	uint64_t	rows;
	uint64_t	live;
	size_t		bytes;			/* bytes on the device, or on the host */
} gpuvec_draft_size;

extern gpuvec_draft_size gpuvec_draft_measure(const gpuvec_draft *draft, uint32_t first);

/* What rows are called where they are staged */
typedef struct gpuvec_row_names
{
	uint64_t	more;			/* what is added to their tids */
	const uint32_t *ids;		/* by number: the ids that they get in place
								 * of numbers; NULL: they keep these */
} gpuvec_row_names;

/*
 * Stage the live rows of the entries from `first` on, and remove these
 * entries.  names may be NULL.  Rows whose sets are null are left out if the
 * stage has no filter columns.
 */
extern bool gpuvec_draft_unbuild(gpuvec_draft *draft, uint32_t first,
								 const gpuvec_row_names *names, gpuvec_stage *stage,
								 gpuvec_error *error);

/* Build segments of staged rows, and add them to the draft */
extern bool gpuvec_draft_build(gpuvec_draft *draft, gpuvec_stage *stage,
							   const gpuvec_stage_target *target, gpuvec_error *error);

/* Add an entry of another view, with references of its own */
extern bool gpuvec_draft_add_entry(gpuvec_draft *draft, const gpuvec_view_entry *entry,
								   gpuvec_error *error);

/* Remove entries that have no live rows */
extern void gpuvec_draft_drop_dead(gpuvec_draft *draft);

/* Number of live rows of an entry */
extern uint32_t gpuvec_entry_rows(const gpuvec_view_entry *entry);

/*
 * Bury a live row of an entry of a draft.  Copies the live map first if it is
 * shared.
 */
extern bool gpuvec_entry_bury(gpuvec_view_entry *entry, uint32_t row, gpuvec_error *error);

/*
 * Make the view, with all objects adopted.  Afterwards the draft is empty.
 * On failure, NULL; the caller still frees the draft.
 */
extern gpuvec_view *gpuvec_draft_finish(gpuvec_draft *draft, gpuvec_error *error);

#endif							/* GPUVEC_DRAFT_H */
