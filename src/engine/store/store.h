/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The resident mirrors: what they hold, who changes them, and what is
 *	  evicted when memory is short.
 *
 * store.c			finding, listing, dropping, evicting mirrors
 * devices.c		the devices that hold mirrors, and their memory budgets
 * places.c			what lies on which device
 * sweep.c			dropping mirrors whose table or index is gone
 * update*.c		loading and refreshing a mirror, and applying rows of a
 *				feed to it (mirror_update.h)
 * kept_*.c			rows of a feed that cannot be applied yet (kept_rows.h)
 * mirror_kind.h	what a mirror may hold
 * page_numbers.c	which refresh last read a page
 * fingerprint.c	checksums that tell whether a page's rows have changed
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STORE_H
#define GPUVEC_STORE_H

#include <pthread.h>
#include <time.h>

#include "core/protocol_monitor.h"
#include "engine/backend.h"
#include "engine/options.h"
#include "engine/scheduler.h"
#include "engine/store/fingerprint.h"
#include "engine/store/kept_rows.h"
#include "engine/store/page_numbers.h"
#include "engine/thread_pool.h"

/* A GPU, or the CPU */
typedef struct gpuvec_device
{
	gpuvec_backend *backend;
	gpuvec_scheduler *scheduler;
	size_t		budget;			/* bytes that mirrors may use */
	size_t		copy_budget;	/* part of it that is not the host's memory
								 * beside devices: all mirrors must fit it, or
								 * there are no copies of any */
	size_t		used;			/* bytes that mirrors, compounds and requests
								 * are charged; guarded by the store's mutex */
} gpuvec_device;

/*
 * What a mirror keeps of a page, to detect changes: the page's LSN, and a
 * fingerprint of its rows
 */
typedef struct gpuvec_page_state
{
	uint64_t	lsn;
	gpuvec_fingerprint rows;
} gpuvec_page_state;

/* Bytes charged for each page, besides its rows */
#define GPUVEC_PAGE_BYTES	(sizeof(uint64_t) + sizeof(gpuvec_page_state))

/* The functions of a kind of mirror: mirror_kind.h */
typedef struct gpuvec_mirror_kind gpuvec_mirror_kind;

/* A load or refresh under way: mirror_update.h */
typedef struct gpuvec_update gpuvec_update;

/* Threads that may work on a mirror in the background at the same time */
#define GPUVEC_BACKGROUND	2

/*
 * A mirror.  The struct of each kind of mirror begins with this struct.  A
 * mirror is in the store's list until it is dropped or evicted; every user
 * holds a reference.  The store's mutex guards all members, except those that
 * only the updater uses.
 */
typedef struct gpuvec_mirror
{
	struct gpuvec_mirror *next;
	struct gpuvec_mirror *next_alike;	/* in its bucket, while it is listed */
	int			refs;
	bool		listed;			/* in the store's list */
	gpuvec_placement placement; /* that its owner wants; atomic */
	gpuvec_mirror_key key;
	const gpuvec_mirror_kind *kind;
	gpuvec_device *device;
	const void *owner;			/* session that owns a private mirror; else
								 * NULL */
	const void *updater;		/* session that is loading or refreshing it;
								 * else NULL */
	struct gpuvec_joint_load *joint;	/* load under way that other sessions
										 * may join, or NULL */
	bool		committing;		/* the updater, or work in the background, is
								 * about to publish rows; nobody else may */
	uint64_t	claims;			/* threads that have asked for that, ... */
	uint64_t	claims_ended;	/* ... and whose turn is over */
	bool		applying;		/* the updater is only applying rows of a
								 * feed, and soon done */
	bool		wanted;			/* a load or refresh waits for that: no other
								 * rows are applied before it */
	uint32_t	pages_done;
	uint32_t	pages_total;

	/* published in one step with the rows */
	gpuvec_page_numbers *numbers;	/* NULL until loaded */
	uint32_t	nblocks;
	uint32_t	nsegments;
	uint64_t	nrows;
	uint64_t	nids;			/* ids, those of dead rows included */
	uint64_t	refresh;
	uint64_t	checked;
	uint64_t	feed;
	uint64_t	applied;
	size_t		host_bytes;
	size_t		device_bytes;
	size_t		charged;		/* this mirror's part of device->used */
	size_t		copy_bytes;		/* part of charged for copies on several
								 * devices, which give way to all else */
	size_t		updating;		/* part of charged for the update under way */
	size_t		background[GPUVEC_BACKGROUND];	/* part of charged for work in
												 * the background */

	/* used by the updater only */
	gpuvec_page_state *pages;	/* [nblocks] */
	size_t		page_capacity;	/* pages that there is room for */

	uint64_t	loads;
	uint64_t	refreshes;
	uint64_t	searches;
	uint64_t	row_updates;	/* times that rows of a feed were applied */
	uint64_t	rows_applied;	/* rows that they brought */
	uint64_t	page_rows;		/* rows that refreshes brought */
	int64_t		last_use;		/* microseconds of the monotonic clock */
	gpuvec_kept_rows kept;		/* rows of a feed for later */
	char	   *files;			/* paths of the files without which the mirror
								 * is useless, each with its NUL (sweep.c); or
								 * NULL */
	size_t		file_bytes;
} gpuvec_mirror;

/* A device that the options name and that cannot be used */
typedef struct gpuvec_lost_device
{
	int			gpu;			/* -1: the CPU, in tests */
	char		last_error[256];
} gpuvec_lost_device;

/* Merges segments of sets in the background: sets/merge.c */
typedef struct gpuvec_merger gpuvec_merger;

/* Rows of small mirrors, once more in common segments: sets/compound.c */
typedef struct gpuvec_compounds gpuvec_compounds;

/*
 * Mirrors of the list, by their relations.  The OIDs of partitions often
 * follow each other, so they are spread as they are.
 */
#define GPUVEC_BUCKETS		1024

/* The kinds of mirrors that there are */
typedef struct gpuvec_mirror_kinds
{
	const gpuvec_mirror_kind *sets;
	const gpuvec_mirror_kind *vectors;
} gpuvec_mirror_kinds;

typedef struct gpuvec_store
{
	pthread_mutex_t mutex;
	pthread_cond_t changed;		/* used with the mutex: a mirror has another
								 * state, or no updater any more, or a request
								 * was canceled */
	pthread_cond_t committed;	/* `committing` of some mirror was cleared */
	gpuvec_mirror_kinds kinds;
	gpuvec_device devices[GPUVEC_MAX_DEVICES];
	int			ndevices;
	int			gpus[GPUVEC_MAX_DEVICES];	/* numbers of the GPUs that the
											 * first device is made of */
	int			numbers[GPUVEC_MAX_DEVICES];	/* by which options name them:
												 * those of GPUs; in tests,
												 * places on the CPU */
	gpuvec_lost_device lost[GPUVEC_MAX_DEVICES];
	int			nlost;
	gpuvec_thread_pool *pool;	/* runs the parallel parts of updates and
								 * requests */
	gpuvec_merger *merger;
	gpuvec_compounds *compounds;	/* NULL until they are started */
	gpuvec_mirror *mirrors;
	gpuvec_mirror *buckets[GPUVEC_BUCKETS];
	uint64_t	last_refresh;	/* number of the last refresh; never reused
								 * while the engine runs */
	uint64_t	evictions;
	size_t		kept_bytes;		/* bytes of rows that are kept for mirrors */
	size_t		work_budget;	/* bytes of host memory for work beside
								 * mirrors, if these are on devices; on the
								 * CPU all share the device's budget */
	size_t		work_used;		/* such bytes that are reserved */
	int			trim_due;		/* atomic: an update has freed much memory */
	int64_t		started;		/* microseconds since the UNIX epoch */
} gpuvec_store;

/* The time of the monotonic clock that is `us` microseconds from now */
extern struct timespec gpuvec_deadline(uint32_t us);

/* Make a mutex, and a condition whose waits end by gpuvec_deadline() */
extern void gpuvec_waiting_init(pthread_mutex_t *mutex, pthread_cond_t *cond);

/*
 * Wait for a change of any mirror, with the mutex, which is released
 * meanwhile.  False once the deadline is over.  gpuvec_store_changed ends all
 * waits; gpuvec_store_wake does too, and takes the mutex itself.
 */
extern bool gpuvec_store_wait(gpuvec_store *store, const struct timespec *deadline);
extern void gpuvec_store_changed(gpuvec_store *store);
extern void gpuvec_store_wake(gpuvec_store *store);

/*
 * devices.c: open the devices that the options name.  Logs and returns false
 * on failure.  gpuvec_roomiest_device: the device with the most free budget;
 * the caller holds the store's mutex.
 */
extern bool gpuvec_store_open(gpuvec_store *store, const gpuvec_engine_options *options,
							  const gpuvec_mirror_kinds *kinds);
extern gpuvec_device *gpuvec_roomiest_device(gpuvec_store *store);

/* True if one of the devices that the options leave out can be used */
extern bool gpuvec_probe(const gpuvec_engine_options *options);

/*
 * The state of the mirror of this key.  A private mirror is found only by the
 * session that owns it.
 */
extern void gpuvec_store_stat(gpuvec_store *store, const gpuvec_mirror_key *key,
							  const void *session, gpuvec_state *state);

/*
 * Drop the mirrors that `drop` names; returns their number.
 * gpuvec_store_drop_private drops all private mirrors of a session.
 */
extern uint64_t gpuvec_store_drop(gpuvec_store *store, const gpuvec_drop *drop,
								  const void *session);
extern void gpuvec_store_drop_private(gpuvec_store *store, const void *session);

/*
 * Describe all mirrors in a malloc'd array of *n.  NULL if there are none (*n
 * = 0) or on lack of memory (*n > 0).
 */
extern gpuvec_mirror_info *gpuvec_store_list(gpuvec_store *store, size_t *n);
extern void gpuvec_store_engine_info(gpuvec_store *store, gpuvec_engine_info *info);

/*
 * places.c: describe the devices, those that cannot be used too, and what
 * each holds of each mirror; like gpuvec_store_list
 */
extern gpuvec_device_info *gpuvec_store_devices(gpuvec_store *store, size_t *n);
extern gpuvec_place_info *gpuvec_store_places(gpuvec_store *store, size_t *n);

/* Number of mirrors in the list; the caller holds the mutex */
static inline size_t
gpuvec_store_mirrors(const gpuvec_store *store)
{
	size_t		n = 0;

	for (const gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		n++;
	return n;
}

/*
 * For kinds and updates; the caller holds the mutex.  find returns NULL if
 * there is no such mirror.  add makes an empty mirror.  unlist drops the
 * list's reference.  use counts n queries of a mirror.
 */
extern gpuvec_mirror *gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key,
										const void *session);
extern gpuvec_mirror *gpuvec_store_add(gpuvec_store *store, const gpuvec_mirror_key *key,
									   const void *session, gpuvec_error *error);
extern void gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror);
extern void gpuvec_store_use(gpuvec_mirror *mirror, uint64_t n);
extern void gpuvec_store_get_state(const gpuvec_mirror *mirror, gpuvec_state *state);

/*
 * claim: wait until no other thread is about to publish rows of a mirror, and
 * keep others from it.  unclaim: let others publish.  The caller holds the
 * mutex and a reference.
 */
extern void gpuvec_store_claim(gpuvec_store *store, gpuvec_mirror *mirror);
extern void gpuvec_store_unclaim(gpuvec_store *store, gpuvec_mirror *mirror);

/* Bytes charged for work in the background; the caller holds the mutex */
static inline size_t
gpuvec_store_background(const gpuvec_mirror *mirror)
{
	size_t		bytes = 0;

	for (int i = 0; i < GPUVEC_BACKGROUND; i++)
		bytes += mirror->background[i];
	return bytes;
}

/* Drop a reference; the caller does not hold the mutex */
extern void gpuvec_store_release(gpuvec_store *store, gpuvec_mirror *mirror);

/*
 * *charged is the part of a mirror's charge for one purpose.  Set it to
 * `bytes`, and change the charge accordingly.  If that does not fit, copies of
 * mirrors are dropped; if it still does not and `evict`, other mirrors are
 * evicted.  Fail if it still does not fit.  charge_spare: fail if it does not
 * fit at once.
 */
extern bool gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged,
								size_t bytes, bool evict, gpuvec_error *error);
extern bool gpuvec_store_charge_spare(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged,
									  size_t bytes);

/*
 * Reserve host memory for work that belongs to no mirror, and give it back.
 * If it does not fit, mirrors on the CPU are evicted.  Fails if it still does
 * not fit.
 */
extern bool gpuvec_store_reserve(gpuvec_store *store, size_t bytes, gpuvec_error *error);
extern void gpuvec_store_unreserve(gpuvec_store *store, size_t bytes);

/*
 * Charge the device with the most free budget for work that belongs to no
 * mirror, and give it back.  If it does not fit, mirrors are evicted; if it
 * still does not fit, NULL.
 */
extern gpuvec_device *gpuvec_store_borrow(gpuvec_store *store, size_t bytes);

/*
 * Charge a device for what can be done without, if it takes at most half of
 * what is free there; false: it takes more
 */
extern bool gpuvec_store_borrow_spare(gpuvec_store *store, gpuvec_device *device, size_t bytes);
extern void gpuvec_store_repay(gpuvec_store *store, gpuvec_device *device, size_t bytes);

/*
 * Charge a mirror for what it takes, plus the update under way and the work
 * in the background, instead of what it was charged.  Called after rows were
 * published, or an update has failed and its memory stays with the mirror
 * (keeps_room).  The caller holds the mutex.
 */
extern void gpuvec_store_settle(gpuvec_mirror *mirror);

/* The charge of a mirror with the rows of an update, and nblocks pages */
extern size_t gpuvec_store_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update,
								 uint32_t nblocks);

/*
 * sweep.c.  start: start the sweeper thread.  watch: drop this mirror when
 * these files are gone; they are paths, each with its NUL, of `bytes` bytes
 * in all.
 */
extern bool gpuvec_sweep_start(gpuvec_store *store);
extern void gpuvec_sweep_watch(gpuvec_store *store, gpuvec_mirror *mirror, const char *files,
							   size_t bytes);

#endif							/* GPUVEC_STORE_H */
