/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The mirrors that are resident: what they hold, who changes them, and what
 *	  has to go when memory is short.
 *
 * store.c		finding, listing, evicting mirrors; memory budgets
 * update.c		loading and refreshing a mirror
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STORE_H
#define GPUVEC_STORE_H

#include <pthread.h>

#include "common/protocol.h"
#include "engine/backend.h"
#include "engine/options.h"
#include "engine/scheduler.h"
#include "engine/threads.h"

/* One device, or the CPU */
typedef struct gpuvec_place
{
	gpuvec_backend *backend;
	gpuvec_scheduler *scheduler;
	size_t		budget;			/* bytes that mirrors may take */
	size_t		used;			/* bytes that they take; guarded by the store */
} gpuvec_place;

/* What a mirror remembers of a page */
typedef struct gpuvec_page_state
{
	uint64_t	lsn;
	uint64_t	refresh;		/* number of the refresh that last read it */
} gpuvec_page_state;

/*
 * A mirror.  It is in the store's list until it is dropped or evicted; whoever
 * uses it holds a reference.  The store's mutex guards everything below; a view
 * is immutable, so a search only takes a reference under the mutex.
 */
typedef struct gpuvec_mirror
{
	struct gpuvec_mirror *next;
	int			refs;
	bool		listed;			/* in the store's list */
	gpuvec_mirror_key key;
	gpuvec_place *place;
	const void *owner;			/* session of a private mirror */
	const void *updater;		/* session that is loading or refreshing it */
	bool		loading;		/* the updater is loading, not refreshing */
	uint32_t	pages_done;
	uint32_t	pages_total;

	gpuvec_view *view;			/* NULL until loaded */
	gpuvec_page_state *pages;	/* [nblocks] */
	uint32_t	nblocks;
	uint64_t	refresh;
	uint64_t	checked;
	size_t		host_bytes;
	size_t		device_bytes;
	size_t		charged;		/* of place->used */

	uint64_t	loads;
	uint64_t	refreshes;
	uint64_t	searches;
	int64_t		last_use;		/* microseconds since the UNIX epoch */
} gpuvec_mirror;

typedef struct gpuvec_store
{
	pthread_mutex_t mutex;
	gpuvec_place places[GPUVEC_MAX_DEVICES];
	int			nplaces;
	gpuvec_pool *pool;			/* builds segments */
	gpuvec_mirror *mirrors;
	uint64_t	last_refresh;	/* numbers are given once in an engine's life */
	uint64_t	evictions;
	int64_t		started;
} gpuvec_store;

/* Microseconds since the UNIX epoch */
extern int64_t gpuvec_now(void);

/* Open the backends that the options ask for.  Logs and returns false on failure. */
extern bool gpuvec_store_open(gpuvec_store *store, const engine_options *options);

/* Find a mirror and take a reference, or NULL; `session` sees its private ones */
extern gpuvec_mirror *gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key,
										const void *session);
extern void gpuvec_store_release(gpuvec_store *store, gpuvec_mirror *mirror);

/* The same for a caller that holds the mutex, without a reference */
extern gpuvec_mirror *gpuvec_store_lookup(gpuvec_store *store, const gpuvec_mirror_key *key,
										  const void *session);

/* State of a mirror (NULL: absent) */
extern void gpuvec_store_state(gpuvec_store *store, gpuvec_mirror *mirror, gpuvec_state *state);

/* Drop what `drop` names; returns how many.  A session's private mirrors. */
extern uint64_t gpuvec_store_drop(gpuvec_store *store, const gpuvec_drop *drop, const void *session);
extern void gpuvec_store_drop_private(gpuvec_store *store, const void *session);

/* All mirrors; malloc'd, NULL if there are none or memory is lacking */
extern gpuvec_mirror_info *gpuvec_store_list(gpuvec_store *store, size_t *n);
extern void gpuvec_store_engine_info(gpuvec_store *store, gpuvec_engine_info *info);

/* Take a mirror out of the list; the caller holds the mutex */
extern void gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror);

/*
 * Charge bytes to a mirror, evicting others if need be.  Fails if it cannot fit.
 */
extern bool gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t bytes,
								gpuvec_error *error);
extern void gpuvec_store_uncharge(gpuvec_store *store, gpuvec_mirror *mirror, size_t bytes);

/* update.c */
typedef struct gpuvec_update gpuvec_update;

/*
 * Begin a load (creating the mirror) or, with load == NULL, a refresh of an
 * existing one.  A refresh of an absent mirror gives NULL without an error
 * (error->message is empty).
 */
extern gpuvec_update *gpuvec_update_begin(gpuvec_store *store, const gpuvec_mirror_key *key,
										  const gpuvec_load *load, const void *session,
										  gpuvec_error *error);

/* The LSNs of all pages, and the state they belong to; malloc'd */
extern uint64_t *gpuvec_update_lsns(gpuvec_update *update, gpuvec_state *state, gpuvec_error *error);

/* Add pages.  Takes over `frame` (malloc'd), which the rows stay in. */
extern bool gpuvec_update_pages(gpuvec_update *update, char *frame, size_t length,
								gpuvec_error *error);

/* Publish; the update is gone afterwards, whatever the outcome */
extern bool gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit,
								 gpuvec_state *state, gpuvec_error *error);
extern void gpuvec_update_abort(gpuvec_update *update);

#endif							/* GPUVEC_STORE_H */
