/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The mirrors that are resident: what they hold, who changes them, and what
 *	  has to go when memory is short.
 *
 * places.c		the devices that mirrors live on, and their memory budgets
 * store.c		finding, listing, dropping, evicting mirrors
 * sweep.c		dropping mirrors that are of nothing any more
 * update.c		loading and refreshing a mirror
 * draft.c		the view that an update is about to publish
 * merge.c		merging segments in the background
 * page_numbers.c	which refresh last read a page
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STORE_H
#define GPUVEC_STORE_H

#include <pthread.h>

#include "core/protocol.h"
#include "engine/backend.h"
#include "engine/fingerprint.h"
#include "engine/options.h"
#include "engine/page_numbers.h"
#include "engine/scheduler.h"
#include "engine/thread_pool.h"

/* One device, or the CPU */
typedef struct gpuvec_place
{
	gpuvec_backend *backend;
	gpuvec_scheduler *scheduler;
	size_t		budget;			/* bytes that mirrors may take */
	size_t		used;			/* bytes that they take; guarded by the store */
} gpuvec_place;

/* What a mirror remembers of a page to know whether it has changed */
typedef struct gpuvec_page_state
{
	uint64_t	lsn;
	gpuvec_fingerprint rows;
} gpuvec_page_state;

/* Bytes that a page costs, over its rows */
#define GPUVEC_PAGE_BYTES	(sizeof(uint64_t) + sizeof(gpuvec_page_state))

/* The rows of a mirror of an embedding table: embed.h */
typedef struct gpuvec_embedding_table gpuvec_embedding_table;

/*
 * A mirror.  It is in the store's list until it is dropped or evicted; whoever
 * uses it holds a reference.  The store's mutex guards everything below, except
 * for what only the updater looks at.
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
	uint32_t	pages_done;
	uint32_t	pages_total;

	/* what is published, in one step; NULL until loaded */
	gpuvec_view *view;			/* of sets */
	gpuvec_page_numbers *numbers;
	uint32_t	nblocks;
	uint64_t	refresh;
	uint64_t	checked;
	uint64_t	feed;
	uint64_t	applied;
	size_t		host_bytes;
	size_t		device_bytes;
	size_t		charged;		/* of place->used */

	gpuvec_embedding_table *embed;	/* of vectors: its rows, once there is an updater */
	uint64_t	nrows;			/* of vectors */

	bool		committing;		/* the updater is making a view of the published one */
	bool		merge_due;		/* the merger should look at the mirror */
	size_t		merging;		/* of charged, for a merge under way */

	/* the updater's */
	gpuvec_page_state *pages;	/* [nblocks] */
	uint64_t	sorted_rows;	/* rows when all were last sorted */
	uint64_t	added_rows;		/* rows that came since */

	uint64_t	loads;
	uint64_t	refreshes;
	uint64_t	searches;
	int64_t		last_use;		/* microseconds since the UNIX epoch */
	char	   *files;			/* without which it is of no use: see sweep.c; or NULL */
	size_t		file_bytes;
} gpuvec_mirror;

typedef struct gpuvec_merger gpuvec_merger;

typedef struct gpuvec_store
{
	pthread_mutex_t mutex;
	gpuvec_place places[GPUVEC_MAX_DEVICES];
	int			nplaces;
	gpuvec_pool *pool;			/* builds segments */
	gpuvec_merger *merger;		/* merges them */
	gpuvec_mirror *mirrors;
	uint64_t	last_refresh;	/* numbers are given once in an engine's life */
	uint64_t	evictions;
	int64_t		started;
} gpuvec_store;

/* Microseconds since the UNIX epoch */
extern int64_t gpuvec_now(void);

/* places.c: open what the options ask for.  Logs and returns false on failure. */
extern bool gpuvec_store_open(gpuvec_store *store, const engine_options *options);
extern gpuvec_place *gpuvec_roomiest_place(gpuvec_store *store);

/* What a search needs of a mirror: references to be let go with close_search */
typedef struct gpuvec_searchable
{
	gpuvec_state state;
	gpuvec_place *place;
	gpuvec_view *view;			/* NULL: not ready, or not fresh */
	gpuvec_page_numbers *numbers;
} gpuvec_searchable;

/* A mirror's state; `session` sees its own private mirrors */
extern void gpuvec_store_stat(gpuvec_store *store, const gpuvec_mirror_key *key,
							  const void *session, gpuvec_state *state);

/* Open a mirror for nqueries queries, if it is as fresh as needed */
extern void gpuvec_store_open_search(gpuvec_store *store, const gpuvec_mirror_key *key,
									 const void *session, const gpuvec_freshness *need,
									 uint32_t nqueries, gpuvec_searchable *s);
extern void gpuvec_store_close_search(gpuvec_searchable *s);

/* Open the rows of an embedding table, for nkeys keys; NULL: it is not ready */
extern gpuvec_embedding_table *gpuvec_store_open_embed(gpuvec_store *store,
												   const gpuvec_mirror_key *key,
												   const void *session, uint64_t nkeys,
												   gpuvec_state *state);

/* Drop what `drop` names; returns how many.  A session's private mirrors. */
extern uint64_t gpuvec_store_drop(gpuvec_store *store, const gpuvec_drop *drop, const void *session);
extern void gpuvec_store_drop_private(gpuvec_store *store, const void *session);

/*
 * All mirrors; malloc'd, NULL if there are none (*n is 0) or memory is
 * lacking
 */
extern gpuvec_mirror_info *gpuvec_store_list(gpuvec_store *store, size_t *n);
extern void gpuvec_store_engine_info(gpuvec_store *store, gpuvec_engine_info *info);

/* For updates; the caller holds the mutex */
extern gpuvec_mirror *gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key,
										const void *session);
extern gpuvec_mirror *gpuvec_store_add(gpuvec_store *store, const gpuvec_mirror_key *key,
									   const void *session);
extern void gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror);
extern void gpuvec_store_get_state(const gpuvec_mirror *mirror, gpuvec_state *state);

/* Drop a reference; the caller does not hold the mutex */
extern void gpuvec_store_release(gpuvec_store *store, gpuvec_mirror *mirror);

/*
 * Change what a mirror is charged for one purpose from *charged to `bytes`.  If
 * that does not fit, evict others when `evict`, and fail if it still does not.
 */
extern bool gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged,
								size_t bytes, bool evict, gpuvec_error *error);

/*
 * A new view has been set, or an update of an embedding table has come to nothing: charge
 * the mirror what it takes, and what is under way of a merge, instead of what it was
 * charged.  The caller holds the mutex.
 */
extern void gpuvec_store_settle(gpuvec_mirror *mirror);

/* What a mirror with this view and so many pages takes of its place */
extern size_t gpuvec_store_bytes(const gpuvec_mirror *mirror, const gpuvec_view *view,
								 uint32_t nblocks);

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

/*
 * The files that the mirror, which is being loaded, is made of: see sweep.c
 */
extern void gpuvec_update_files(gpuvec_update *update, const char *files, size_t bytes);

/* The state of the mirror that is updated; it stays until the update ends */
extern void gpuvec_update_state(gpuvec_update *update, gpuvec_state *state);

/* The LSNs of all its pages; malloc'd */
extern uint64_t *gpuvec_update_lsns(gpuvec_update *update, gpuvec_error *error);

/*
 * Add pages; `frame` stays the caller's.  If it lasts until the update is gone, not all has to
 * be copied.  To see to that, let the update own the malloc'd memory of this size in which it
 * lies: *message is NULL then, unless nothing in it is needed any more.
 */
extern bool gpuvec_update_pages(gpuvec_update *update, const char *frame, size_t length,
								bool last, gpuvec_error *error);
extern bool gpuvec_update_own(gpuvec_update *update, char **message, size_t size,
							  gpuvec_error *error);

/* Publish; the update is gone afterwards, whatever the outcome */
extern bool gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit,
								 gpuvec_state *state, gpuvec_error *error);
extern void gpuvec_update_abort(gpuvec_update *update);

/*
 * sweep.c: start the sweeper; look after a mirror by these files, paths each
 * with its NUL
 */
extern bool gpuvec_sweep_start(gpuvec_store *store);
extern void gpuvec_sweep_watch(gpuvec_store *store, gpuvec_mirror *mirror, const char *files,
							   size_t bytes);

/* merge.c: start the merger */
extern bool gpuvec_merger_start(gpuvec_store *store);

/*
 * A view was published: is there work for the merger now?  The caller holds the mutex.  To
 * wake it takes some time, and is left to the caller for later.
 */
extern void gpuvec_merger_look(gpuvec_store *store, gpuvec_mirror *mirror);
extern void gpuvec_merger_wake(gpuvec_store *store);

#endif							/* GPUVEC_STORE_H */
