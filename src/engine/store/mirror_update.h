/*-------------------------------------------------------------------------
 *
 * mirror_update.h
 *	  Loading and refreshing a mirror.
 *
 * update.c			beginning, and ending whatever has become of it
 * update_pages.c	taking pages
 * update_commit.c	publishing them
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_UPDATE_H
#define GPUVEC_MIRROR_UPDATE_H

#include "engine/store/store.h"

/*
 * Begin a load (creating the mirror) or, with load == NULL, a refresh of an
 * existing one.  A refresh of an absent mirror gives NULL without an error
 * (error->message is empty).
 */
extern gpuvec_update *gpuvec_update_begin(gpuvec_store *store, const gpuvec_mirror_key *key,
										  const gpuvec_load *load, const void *session,
										  gpuvec_error *error);

/*
 * The files that the mirror, which is being loaded, is made of: see sweep.c
 */
extern void gpuvec_update_files(gpuvec_update *update, const char *files, size_t bytes);

/* The state of the mirror that is updated; it stays until the update ends */
extern void gpuvec_update_state(gpuvec_update *update, gpuvec_state *state);

/* The LSNs of all its pages; malloc'd */
extern uint64_t *gpuvec_update_lsns(gpuvec_update *update, gpuvec_error *error);

/*
 * Add pages; `frame` stays the caller's.  If it lasts until the update is
 * gone, not all has to be copied.  To see to that, let the update own the
 * malloc'd memory of this size in which it lies: *message is NULL then,
 * unless nothing in it is needed any more.
 */
extern bool gpuvec_update_pages(gpuvec_update *update, const char *frame, size_t length,
								bool lasts, gpuvec_error *error);
extern bool gpuvec_update_own(gpuvec_update *update, char **message, size_t size,
							  gpuvec_error *error);

/* Publish; the update is gone afterwards, whatever the outcome */
extern bool gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit,
								 gpuvec_state *state, gpuvec_error *error);

/* End an update; one that was not published leaves nothing behind */
extern void gpuvec_update_end(gpuvec_update *update);

#endif							/* GPUVEC_MIRROR_UPDATE_H */
