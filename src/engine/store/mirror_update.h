/*-------------------------------------------------------------------------
 *
 * mirror_update.h
 *	  Loading and refreshing a mirror, and applying rows of a feed to it.
 *
 * update.c			beginning and ending an update
 * update_pages.c	taking pages
 * sent_pages.c		the pages that were taken, and their end
 * joint_load.c		pages that several sessions send
 * update_rows.c	taking rows of a feed
 * update_commit.c	publishing them
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_UPDATE_H
#define GPUVEC_MIRROR_UPDATE_H

#include "engine/store/store.h"

/*
 * Begin a load, which makes the mirror if it is absent, or, if load is NULL,
 * a refresh.  NULL on failure.  A refresh of an absent mirror returns NULL
 * without an error (error->message is empty).
 */
extern gpuvec_update *gpuvec_update_begin(gpuvec_store *store, const gpuvec_mirror_key *key,
										  const gpuvec_load *load, const void *session,
										  gpuvec_error *error);

/* Set the files from which the mirror is loaded: see gpuvec_sweep_watch */
extern void gpuvec_update_files(gpuvec_update *update, const char *files, size_t bytes);

/* Set where rows are to lie, from those on that this update publishes */
extern void gpuvec_update_place(gpuvec_update *update, gpuvec_placement placement);

/* The state of the mirror.  It does not change until the update ends. */
extern void gpuvec_update_state(gpuvec_update *update, gpuvec_state *state);

/* The LSNs of all pages of the mirror; malloc'd, NULL on lack of memory */
extern uint64_t *gpuvec_update_lsns(gpuvec_update *update, gpuvec_error *error);

/*
 * Take the pages of a frame, which stays the caller's.  If the frame stays
 * valid until the update ends (`lasts`), rows need not be copied.  For that,
 * pass the malloc'd message that contains the frame to gpuvec_update_own,
 * which charges the rows.  It takes over the message and sets *message to
 * NULL, unless no row in it is still needed.
 */
extern bool gpuvec_update_pages(gpuvec_update *update, const char *frame, size_t length,
								bool lasts, gpuvec_error *error);
extern bool gpuvec_update_own(gpuvec_update *update, char **message, size_t size,
							  gpuvec_error *error);

/*
 * Join a load of this number; NULL if there is none, without an error, or on
 * failure.  The slice takes pages as other updates do.  Handing it over adds
 * them to the load, and sets *pages to their number; a slice that ends
 * otherwise is lost, and with it the load.  gpuvec_update_failed: note why a
 * slice fails, so that the load fails with this error.
 */
extern gpuvec_update *gpuvec_update_join(gpuvec_store *store, const gpuvec_load_join *join,
										 const void *session, gpuvec_error *error);
extern void gpuvec_update_hand_over(gpuvec_update *slice, uint64_t *pages);
extern void gpuvec_update_failed(gpuvec_update *update, const gpuvec_error *error);

/* True if this is the slice of a joint load */
extern bool gpuvec_update_is_slice(const gpuvec_update *update);

/* Publish the update.  The update is freed, even on failure. */
extern bool gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit,
								 gpuvec_state *state, gpuvec_error *error);

/*
 * Begin to apply rows of a feed.  If that cannot be, NULL without an error,
 * and *state is what the session is told.
 */
extern gpuvec_update *gpuvec_update_begin_rows(gpuvec_store *store, const gpuvec_rows *rows,
											   const void *session, gpuvec_state *state,
											   gpuvec_error *error);

/*
 * Apply rows of a feed, if the mirror has this feed and comes to them; or
 * keep them, and apply what can be applied of all that are kept.  Their
 * records have been checked.  *state is the mirror's state afterwards, or
 * LOADING.  False on failure.
 */
extern bool gpuvec_update_rows(gpuvec_store *store, const gpuvec_rows *rows,
							   const char *records, size_t bytes, const void *session,
							   gpuvec_state *state, gpuvec_error *error);

/*
 * The load or refresh of a mirror makes no step: hang_up(its session), which
 * may not wait, then wait for its end.  For one by several sessions, those
 * that have joined it are hung up, too.  Returns the number of sessions.
 */
extern uint64_t gpuvec_update_oust(gpuvec_store *store, const gpuvec_mirror_key *key,
								   const void *session, void (*hang_up) (const void *session));

/*
 * End and free an update.  An update that was not published leaves the mirror
 * unchanged; a mirror that was never loaded is dropped.
 */
extern void gpuvec_update_end(gpuvec_update *update);

#endif							/* GPUVEC_MIRROR_UPDATE_H */
