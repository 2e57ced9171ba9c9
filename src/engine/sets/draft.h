/*-------------------------------------------------------------------------
 *
 * draft.h
 *	  A view that is being made.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_DRAFT_H
#define GPUVEC_DRAFT_H

#include "engine/sets/stage.h"

/* Entries hold references; live maps that no backend has adopted are new */
typedef struct gpuvec_draft
{
	gpuvec_backend *backend;
	gpuvec_thread_pool *pool;
	gpuvec_view_entry *entries;
	uint32_t	n;
	uint32_t	room;
} gpuvec_draft;

extern void gpuvec_draft_free(gpuvec_draft *draft);

/* Add an entry; takes over the references, on failure too */
extern bool gpuvec_draft_add(gpuvec_draft *draft, gpuvec_segment *segment,
							 gpuvec_livemap *live, gpuvec_error *error);

/* The entries of a view */
extern bool gpuvec_draft_copy(gpuvec_draft *draft, const gpuvec_view *view, gpuvec_error *error);

/*
 * Bury the rows of these blocks (ascending), and of all at or beyond nblocks.
 * `limit` is above every block of the draft's live rows.
 */
extern bool gpuvec_draft_bury(gpuvec_draft *draft, const uint32_t *blocks, uint64_t n,
							  uint32_t nblocks, uint32_t limit, bool *buried, gpuvec_error *error);

/* Rows of the entries from `first` on: all, live ones, and bytes they take */
typedef struct gpuvec_draft_size
{
	uint64_t	rows;
	uint64_t	live;
	size_t		bytes;			/* on the device, or on the host */
} gpuvec_draft_size;

extern gpuvec_draft_size gpuvec_draft_measure(const gpuvec_draft *draft, uint32_t first);

/* Stage the live rows of the entries from `first` on, and let these go */
extern bool gpuvec_draft_unbuild(gpuvec_draft *draft, uint32_t first, gpuvec_stage *stage,
								 gpuvec_error *error);

/* Add an entry that another view has as well */
extern bool gpuvec_draft_add_entry(gpuvec_draft *draft, const gpuvec_view_entry *entry,
								   gpuvec_error *error);

/* Leave out entries that have no live row any more */
extern void gpuvec_draft_drop_dead(gpuvec_draft *draft);

/* Live rows of an entry */
extern uint32_t gpuvec_entry_rows(const gpuvec_view_entry *entry);

/* Bury a live row of an entry of a draft, in a live map of its own */
extern bool gpuvec_entry_bury(gpuvec_view_entry *entry, uint32_t row, gpuvec_error *error);

/* Make the view; the draft is empty afterwards */
extern gpuvec_view *gpuvec_draft_finish(gpuvec_draft *draft, gpuvec_error *error);

#endif							/* GPUVEC_DRAFT_H */
