/*-------------------------------------------------------------------------
 *
 * kept_rows.h
 *	  Rows of a feed that a mirror cannot apply yet.
 *
 * kept_list.c		the list of these rows
 * kept_rows.c		adding to it by a mirror's key, and what is applied next
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KEPT_ROWS_H
#define GPUVEC_KEPT_ROWS_H

#include "core/protocol_mirrors.h"
#include "engine/engine_error.h"

/* Most bytes of records that are kept for all mirrors together */
#define GPUVEC_KEPT_BYTES	((size_t) 64 * 1024 * 1024)

/* Records of one message, with the numbers from + 1 .. to */
typedef struct gpuvec_kept_message
{
	struct gpuvec_kept_message *next;
	uint64_t	from;
	uint64_t	to;
	size_t		bytes;
	char		records[];
} gpuvec_kept_message;

/*
 * What is kept for a mirror: messages of one feed, in the order of their
 * numbers.  Each begins where the one before it ends, or earlier.
 */
typedef struct gpuvec_kept_rows
{
	uint64_t	feed;
	gpuvec_kept_message *first; /* NULL: nothing is kept */
	gpuvec_kept_message *last;
	size_t		bytes;
} gpuvec_kept_rows;

struct gpuvec_store;
struct gpuvec_mirror;

/*
 * Keep the records of a message for its mirror, if there is one.  Drops what
 * does not end where they begin, and the oldest messages of the mirror that
 * has most if there are too many.  False, and *error, if there is no memory.
 */
extern bool gpuvec_kept_add(struct gpuvec_store *store, const gpuvec_rows *rows,
							const char *records, size_t bytes, const void *session,
							gpuvec_error *error);

/*
 * Copy the kept records that the mirror of `rows` has to apply next: not all,
 * if they are many.  Sets the numbers in *next, and *state.  Returns the
 * records, malloc'd.  NULL: there are none, or another session changes the
 * mirror, or (*error is filled) there is no memory.
 */
extern char *gpuvec_kept_next(struct gpuvec_store *store, const gpuvec_rows *rows,
							  const void *session, gpuvec_rows *next, gpuvec_state *state,
							  gpuvec_error *error);

/*
 * Add a message, which it takes over, behind what is kept.  The caller holds
 * the mutex.
 */
extern void gpuvec_kept_append(struct gpuvec_store *store, struct gpuvec_mirror *mirror,
							   uint64_t feed, gpuvec_kept_message *message);

/*
 * Free what the mirror has applied, or will never apply; all of it if the
 * mirror is being dropped.  The caller holds the mutex.
 */
extern void gpuvec_kept_trim(struct gpuvec_store *store, struct gpuvec_mirror *mirror);
extern void gpuvec_kept_drop(struct gpuvec_store *store, struct gpuvec_mirror *mirror);

/* Set what *state says of kept records; the caller holds the mutex */
extern void gpuvec_kept_state(const struct gpuvec_mirror *mirror, gpuvec_state *state);

#endif							/* GPUVEC_KEPT_ROWS_H */
