/*-------------------------------------------------------------------------
 *
 * sets_mirror.h
 *	  Mirrors of sets: a view of segments, which searches read.
 *
 * sets_mirror.c	the kind's table; opening a view for a search
 * sets_rows.c		taking rows
 * sets_commit.c	the view that an update publishes
 * stage.c			rows on their way into segments
 * draft.c			a view that is being made
 * merge.c			merging segments in the background
 *
 * A load stages all rows, sorts them by (length, tid), cuts them into
 * segments, and publishes them.  A refresh publishes a new view of the same
 * segments: rows of pages that were read again, or that are gone, lose their
 * bit in a copy of their segment's live map, and the rows that came go to a
 * new small segment.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SETS_MIRROR_H
#define GPUVEC_SETS_MIRROR_H

#include "engine/sets/stage.h"
#include "engine/store/mirror_kind.h"

typedef struct gpuvec_sets_mirror
{
	gpuvec_mirror base;
	gpuvec_view *view;			/* that is published; NULL until loaded */
	uint64_t	sorted_rows;	/* rows when all were last sorted */
	uint64_t	added_rows;		/* rows that came since */
	bool		merge_due;		/* the merger should look at the mirror */
} gpuvec_sets_mirror;

typedef struct gpuvec_sets_update
{
	gpuvec_update base;
	gpuvec_stage *stage;
	void	  **messages;		/* that staged rows lie in */
	uint64_t	nmessages;
	size_t		message_bytes;	/* of all of them */
	uint64_t	lent;			/* staged rows that lie in them */

	/* for publishing; then the view and the numbers that were replaced */
	gpuvec_view *view;
	uint64_t	sorted_rows;
	uint64_t	added_rows;
} gpuvec_sets_update;

/* A mirror of sets, or NULL */
static inline gpuvec_sets_mirror *
gpuvec_sets_of(gpuvec_mirror *mirror)
{
	return mirror && mirror->kind == &gpuvec_sets_kind ? (gpuvec_sets_mirror *) mirror : NULL;
}

/* What a search needs of a mirror: references to be let go with close */
typedef struct gpuvec_sets_reader
{
	gpuvec_state state;
	gpuvec_device *device;
	gpuvec_view *view;			/* NULL: not ready, or not fresh */
	gpuvec_page_numbers *numbers;
} gpuvec_sets_reader;

/*
 * Open a mirror for nqueries queries, if it is as fresh as needed; `session`
 * sees its own
 */
extern void gpuvec_sets_open(gpuvec_store *store, const gpuvec_mirror_key *key,
							 const void *session, const gpuvec_freshness *need,
							 uint32_t nqueries, gpuvec_sets_reader *reader);
extern void gpuvec_sets_close(gpuvec_sets_reader *reader);

/*
 * Let the mirror have another view, and the store show what is in it.  The
 * caller holds the mutex, and takes over the reference to the old one.
 */
extern void gpuvec_sets_set_view(gpuvec_sets_mirror *mirror, gpuvec_view *view);

/* sets_rows.c and sets_commit.c: functions of the kind */
extern size_t gpuvec_sets_take_row(gpuvec_update *update, uint64_t tid, const char *from,
								   const char *end, bool lasts, gpuvec_error *error);
extern bool gpuvec_sets_own_message(gpuvec_update *update, char **message, size_t size,
									gpuvec_error *error);
extern void gpuvec_sets_free_messages(gpuvec_sets_update *update);
extern size_t gpuvec_sets_bytes_taken(const gpuvec_update *update);
extern bool gpuvec_sets_prepare(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error);

/* merge.c: start the merger */
extern bool gpuvec_merger_start(gpuvec_store *store);

/*
 * A view was published: is there work for the merger now?  The caller holds
 * the mutex.  To wake it takes some time, and is left to the caller for
 * later.
 */
extern void gpuvec_merger_look(gpuvec_store *store, gpuvec_sets_mirror *mirror);
extern void gpuvec_merger_wake(gpuvec_store *store);

#endif							/* GPUVEC_SETS_MIRROR_H */
