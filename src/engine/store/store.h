/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The mirrors that are resident: what they hold, who changes them, and
 *	  what
 *	  has to go when memory is short.
 *
 * store.c			finding, listing, dropping, evicting mirrors
 * devices.c		the devices that mirrors live on, and their memory budgets
 * sweep.c			dropping mirrors that are of nothing any more
 * update*.c		loading and refreshing a mirror (mirror_update.h)
 * mirror_kind.h	what a mirror may hold
 * page_numbers.c	which refresh last read a page
 * fingerprint.c	did a page's rows come back as they were?
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STORE_H
#define GPUVEC_STORE_H

#include <pthread.h>

#include "core/protocol.h"
#include "engine/backend.h"
#include "engine/store/fingerprint.h"
#include "engine/options.h"
#include "engine/store/page_numbers.h"
#include "engine/scheduler.h"
#include "engine/thread_pool.h"

/* A GPU, or the CPU */
typedef struct gpuvec_device
{
	gpuvec_backend *backend;
	gpuvec_scheduler *scheduler;
	size_t		budget;			/* bytes that mirrors may take */
	size_t		used;			/* bytes that they take; guarded by the store */
} gpuvec_device;

/* What a mirror remembers of a page to know whether it has changed */
typedef struct gpuvec_page_state
{
	uint64_t	lsn;
	gpuvec_fingerprint rows;
} gpuvec_page_state;

/* Bytes that a page costs, over its rows */
#define GPUVEC_PAGE_BYTES	(sizeof(uint64_t) + sizeof(gpuvec_page_state))

/* What a mirror holds: mirror_kind.h */
typedef struct gpuvec_mirror_kind gpuvec_mirror_kind;

/* What loads or refreshes it: mirror_update.h */
typedef struct gpuvec_update gpuvec_update;

/*
 * A mirror; its kind's struct begins with it.  It is in the store's list
 * until it is dropped or evicted; whoever uses it holds a reference.  The
 * store's mutex guards everything below, except for what only the updater
 * looks at.
 */
typedef struct gpuvec_mirror
{
	struct gpuvec_mirror *next;
	int			refs;
	bool		listed;			/* in the store's list */
	gpuvec_mirror_key key;
	const gpuvec_mirror_kind *kind;
	gpuvec_device *device;
	const void *owner;			/* session of a private mirror */
	const void *updater;		/* session that is loading or refreshing it */
	bool		committing;		/* the updater is about to publish rows;
								 * nobody else may */
	uint32_t	pages_done;
	uint32_t	pages_total;

	/* what is published, in one step with the rows */
	gpuvec_page_numbers *numbers;	/* NULL until loaded */
	uint32_t	nblocks;
	uint32_t	nsegments;
	uint64_t	nrows;
	uint64_t	nids;			/* those of dead rows included */
	uint64_t	refresh;
	uint64_t	checked;
	uint64_t	feed;
	uint64_t	applied;
	size_t		host_bytes;
	size_t		device_bytes;
	size_t		charged;		/* of device->used */
	size_t		background;		/* of charged, for work in the background */

	/* the updater's */
	gpuvec_page_state *pages;	/* [nblocks] */

	uint64_t	loads;
	uint64_t	refreshes;
	uint64_t	searches;
	int64_t		last_use;		/* microseconds since the UNIX epoch */
	char	   *files;			/* without which it is of no use: see sweep.c;
								 * or NULL */
	size_t		file_bytes;
} gpuvec_mirror;

/* Merges segments of sets in the background: sets/merge.c */
typedef struct gpuvec_merger gpuvec_merger;

typedef struct gpuvec_store
{
	pthread_mutex_t mutex;
	gpuvec_device devices[GPUVEC_MAX_DEVICES];
	int			ndevices;
	gpuvec_thread_pool *pool;	/* does what an update or a request takes */
	gpuvec_merger *merger;
	gpuvec_mirror *mirrors;
	uint64_t	last_refresh;	/* numbers are given once in an engine's life */
	uint64_t	evictions;
	int64_t		started;
} gpuvec_store;

/* Microseconds since the UNIX epoch */
extern int64_t gpuvec_now(void);

/*
 * devices.c: open what the options ask for.  Logs and returns false on
 * failure.
 */
extern bool gpuvec_store_open(gpuvec_store *store, const gpuvec_engine_options *options);
extern gpuvec_device *gpuvec_roomiest_device(gpuvec_store *store);

/* A mirror's state; `session` sees its own private mirrors */
extern void gpuvec_store_stat(gpuvec_store *store, const gpuvec_mirror_key *key,
							  const void *session, gpuvec_state *state);

/* Drop what `drop` names; returns how many.  A session's private mirrors. */
extern uint64_t gpuvec_store_drop(gpuvec_store *store, const gpuvec_drop *drop,
								  const void *session);
extern void gpuvec_store_drop_private(gpuvec_store *store, const void *session);

/*
 * All mirrors; malloc'd, NULL if there are none (*n is 0) or memory is
 * lacking
 */
extern gpuvec_mirror_info *gpuvec_store_list(gpuvec_store *store, size_t *n);
extern void gpuvec_store_engine_info(gpuvec_store *store, gpuvec_engine_info *info);

/*
 * For kinds and updates; the caller holds the mutex.  `add` makes an empty
 * mirror; `use` counts n queries of one.
 */
extern gpuvec_mirror *gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key,
										const void *session);
extern gpuvec_mirror *gpuvec_store_add(gpuvec_store *store, const gpuvec_mirror_key *key,
									   const void *session, gpuvec_error *error);
extern void gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror);
extern void gpuvec_store_use(gpuvec_mirror *mirror, uint64_t n);
extern void gpuvec_store_get_state(const gpuvec_mirror *mirror, gpuvec_state *state);

/* Drop a reference; the caller does not hold the mutex */
extern void gpuvec_store_release(gpuvec_store *store, gpuvec_mirror *mirror);

/*
 * Change what a mirror is charged for one purpose from *charged to `bytes`.
 * If that does not fit, evict others when `evict`, and fail if it still does
 * not.
 */
extern bool gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged,
								size_t bytes, bool evict, gpuvec_error *error);

/*
 * The rows have been exchanged, or an update that keeps its room has come to
 * nothing: charge the mirror what it takes, and what is under way in the
 * background, instead of what it was charged.  The caller holds the mutex.
 */
extern void gpuvec_store_settle(gpuvec_mirror *mirror);

/*
 * What a mirror will be charged with the rows of an update, and nblocks pages
 */
extern size_t gpuvec_store_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update,
								 uint32_t nblocks);

/*
 * sweep.c: start the sweeper; look after a mirror by these files, paths each
 * with its NUL
 */
extern bool gpuvec_sweep_start(gpuvec_store *store);
extern void gpuvec_sweep_watch(gpuvec_store *store, gpuvec_mirror *mirror, const char *files,
							   size_t bytes);

#endif							/* GPUVEC_STORE_H */
