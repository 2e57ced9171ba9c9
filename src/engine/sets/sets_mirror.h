/*-------------------------------------------------------------------------
 *
 * sets_mirror.h
 *	  Mirrors of sets: a view of segments, which searches read.
 *
 * sets_kind.c		the kind's table
 * sets_mirror.c	the view of a mirror; opening it for a search
 * sets_rows.c		taking rows
 * sets_commit.c	the view that an update publishes
 * stage.c			rows that wait to be built into segments
 * stage_slices.c	slices of these rows, for the threads of a pool
 * stage_runs.c		rows that several sessions have staged
 * id_numbers.c		the numbers of ids, if some are above 65,535; id_table.c
 * id_counts.c		the first numbers: how many rows have each id
 * renumber.c		from the ids of staged rows to numbers
 * draft.c			a view under construction
 * merge.c			merging segments in the background
 * merge_choose.c	which segments are merged
 * compound.c		rows of several small mirrors in common segments
 * compound_make.c	the thread that makes these
 * compound_joint.c	views of several mirrors that are kept
 *
 * A load stages all rows, sorts them by (length, tid), cuts them into
 * segments, and publishes a view of these.  A refresh publishes a new view
 * with the same segments.  Rows of pages that were read again, or that are
 * gone, are buried: their bits are cleared in a copy of their segment's live
 * map.  The new rows go to a new small segment.  Rows of a feed are published
 * in the same way, where those under the same line pointers are buried.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SETS_MIRROR_H
#define GPUVEC_SETS_MIRROR_H

#include "engine/method_costs.h"
#include "engine/sets/id_numbers.h"
#include "engine/sets/merge_choose.h"
#include "engine/sets/stage.h"
#include "engine/store/mirror_kind.h"

/* sets_kind.c: the functions of these mirrors, for the store */
extern const gpuvec_mirror_kind gpuvec_sets_kind;

typedef struct gpuvec_sets_mirror
{
	gpuvec_mirror base;
	gpuvec_view *view;			/* published view; NULL until loaded */
	gpuvec_method_costs *costs; /* of its searches */
	uint64_t	sorted_rows;	/* rows when all rows were last sorted into
								 * segments */
	bool		merge_due[GPUVEC_MERGE_LEVELS]; /* a merger should look at the
												 * mirror */
	struct merge_run *merging[GPUVEC_MERGE_LEVELS]; /* merges that are running */
	uint64_t	looked_at[GPUVEC_MERGE_LEVELS]; /* when a merger did so last:
												 * number of its look */
	uint32_t	most_merged;	/* a merge takes at most so many large
								 * segments */
	gpuvec_id_numbers *id_numbers;	/* of the ids of the view's rows; NULL:
									 * all rows are narrow, and have their ids
									 * as numbers */
} gpuvec_sets_mirror;

typedef struct gpuvec_sets_update
{
	gpuvec_update base;
	gpuvec_stage *stage;
	void	  **messages;		/* [nmessages] messages that contain staged
								 * rows; malloc'd */
	uint64_t	nmessages;
	size_t		message_bytes;	/* bytes of all messages */
	uint64_t	lent;			/* staged rows that are in messages */

	uint16_t   *packed;			/* a row that is wide or has values, while it
								 * is staged */

	/* for publishing; afterwards both are the replaced ones */
	gpuvec_view *view;
	gpuvec_id_numbers *id_numbers;	/* see gpuvec_sets_mirror */
	uint64_t	sorted_rows;
} gpuvec_sets_update;

/* What the rows of a mirror with this key have besides ids */
static inline gpuvec_row_kind
gpuvec_sets_row_kind(const gpuvec_mirror_key *key)
{
	gpuvec_row_kind kind = {key->nfilters, key->values != 0};

	return kind;
}

/* The mirror, if it is one of sets; else NULL */
static inline gpuvec_sets_mirror *
gpuvec_sets_of(gpuvec_mirror *mirror)
{
	return mirror && !gpuvec_is_embedding_key(&mirror->key) ? (gpuvec_sets_mirror *) mirror : NULL;
}

/* What a search uses of a mirror; gpuvec_sets_close drops the references */
typedef struct gpuvec_sets_reader
{
	gpuvec_state state;
	gpuvec_device *device;
	gpuvec_view *view;			/* NULL: not ready, or not fresh */
	gpuvec_id_numbers *id_numbers;	/* of the view; see gpuvec_sets_mirror */
	gpuvec_page_numbers *numbers;
} gpuvec_sets_reader;

/* How fresh a mirror must be, and how long to wait for that */
typedef struct gpuvec_sets_need
{
	gpuvec_freshness fresh;
	uint32_t	patience_us;	/* 0: not at all */
	const int  *canceled;		/* atomic: nonzero ends the wait, at the next
								 * gpuvec_store_changed */
} gpuvec_sets_need;

/*
 * Open a mirror for nqueries queries, if it is as fresh as needed.  A
 * session's own private mirrors are found too.
 */
extern void gpuvec_sets_open(gpuvec_store *store, const gpuvec_mirror_key *key,
							 const void *session, const gpuvec_sets_need *need,
							 uint32_t nqueries, gpuvec_sets_reader *reader);
extern void gpuvec_sets_close(gpuvec_sets_reader *reader);

/*
 * Set the mirror's view, and what the store shows of it.  The caller holds
 * the mutex, and takes over the reference to the old view.
 */
extern void gpuvec_sets_set_view(gpuvec_store *store, gpuvec_sets_mirror *mirror, gpuvec_view *view);

/*
 * Copy the rows of an adopted view to all devices, if they are to have copies,
 * and charge that.  *charged is part of the mirror's charge.  Nobody else may
 * copy this view.
 */
extern void gpuvec_sets_copy(gpuvec_store *store, gpuvec_sets_mirror *mirror, gpuvec_view *view,
							 size_t *charged);

/*
 * sets_rows.c: true if ids are ascending and distinct.  Wide ones need not be
 * aligned.
 */
extern bool gpuvec_sets_ids_valid(gpuvec_id_span span);

/*
 * sets_rows.c: true if these may be the filter keys of a row of len ids in a
 * mirror with nfilters filter columns.  They need not be aligned.
 */
extern bool gpuvec_sets_filter_keys_valid(const void *filter_keys, uint32_t nfilters, uint32_t len);

/*
 * True if a mirror of sets may have this key; if a row of one with this key
 * may have this form; if these are the values of a row
 */
static inline bool
gpuvec_sets_key_valid(const gpuvec_mirror_key *key)
{
	return key->nfilters <= GPUVEC_MAX_FILTERS && key->values <= 1;
}

extern bool gpuvec_sets_form_valid(uint32_t form, const gpuvec_mirror_key *key);
extern bool gpuvec_sets_values_valid(const float *values, uint32_t n);

/* Bytes of the numbers of ids that an update has made anew */
extern size_t gpuvec_sets_new_numbers_bytes(const gpuvec_sets_update *sets);

/* sets_rows.c and sets_commit.c: functions of the kind */
extern size_t gpuvec_sets_take_row(gpuvec_update *update, uint64_t tid, const char *from,
								   const char *end, bool lasts, gpuvec_error *error);
extern bool gpuvec_sets_take_fed(gpuvec_update *update, const gpuvec_fed_row *row,
								 gpuvec_error *error);
extern bool gpuvec_sets_own_message(gpuvec_update *update, char **message, size_t size,
									gpuvec_error *error);
extern void gpuvec_sets_free_messages(gpuvec_sets_update *update);
extern size_t gpuvec_sets_bytes_taken(const gpuvec_update *update);
extern bool gpuvec_sets_unite(gpuvec_update *update, gpuvec_update *slice, gpuvec_error *error);
extern bool gpuvec_sets_prepare(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error);

/* merge.c: start the mergers */
extern bool gpuvec_merger_start(gpuvec_store *store);

/*
 * gpuvec_merger_look: a view was published; note whether the mergers have
 * work.  The caller holds the mutex.  gpuvec_merger_wake: wake them if they
 * have; takes some time, so it is a separate call, without the mutex.
 * gpuvec_merger_let_work: if the mergers are far behind, give them some
 * milliseconds before an update begins.
 */
extern void gpuvec_merger_look(gpuvec_store *store, gpuvec_sets_mirror *mirror);
extern void gpuvec_merger_wake(gpuvec_store *store);
extern void gpuvec_merger_let_work(gpuvec_store *store, gpuvec_sets_mirror *mirror);

#endif							/* GPUVEC_SETS_MIRROR_H */
