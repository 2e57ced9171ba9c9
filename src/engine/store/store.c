/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The resident mirrors: finding, listing, dropping, evicting.
 *
 * Mirrors are charged bytes of their device's budget.  When a charge does not
 * fit, compounds (sets/compound.c) are dropped, then copies of mirrors on
 * several devices, those of the least recently used mirror first.  If that is
 * not enough, mirrors are evicted in the same order, but only if that makes
 * enough room.  Private mirrors, and mirrors being loaded or refreshed, are
 * not evicted.  An evicted mirror that is being searched is only unlisted; its
 * memory is freed when the search releases its view.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/log.h"
#include "engine/store/mirror_kind.h"

struct timespec
gpuvec_deadline(uint32_t us)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += us / 1000000;
	t.tv_nsec += us % 1000000 * 1000;
	if (t.tv_nsec >= 1000000000)
	{
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

bool
gpuvec_store_wait(gpuvec_store *store, const struct timespec *deadline)
{
	return pthread_cond_timedwait(&store->changed, &store->mutex, deadline) == 0;
}

void
gpuvec_store_changed(gpuvec_store *store)
{
	pthread_cond_broadcast(&store->changed);
}

void
gpuvec_store_wake(gpuvec_store *store)
{
	pthread_mutex_lock(&store->mutex);
	gpuvec_store_changed(store);
	pthread_mutex_unlock(&store->mutex);
}

/*
 * Free a list of mirrors that have no references.  Called without the mutex,
 * as it takes time.
 */
static void
free_mirrors(gpuvec_mirror *dead)
{
	while (dead)
	{
		gpuvec_mirror *next = dead->next;

		dead->kind->drop(dead);
		gpuvec_page_numbers_unref(dead->numbers);
		free(dead->pages);
		free(dead->files);
		free(dead);
		dead = next;
	}
}

void
gpuvec_store_release(gpuvec_store *store, gpuvec_mirror *mirror)
{
	bool		last;

	pthread_mutex_lock(&store->mutex);
	last = --mirror->refs == 0;
	pthread_mutex_unlock(&store->mutex);
	if (last)
	{
		mirror->next = NULL;
		free_mirrors(mirror);
	}
}

/* The bucket of mirrors with this key */
static gpuvec_mirror **
bucket_of(gpuvec_store *store, const gpuvec_mirror_key *key)
{
	return &store->buckets[key->relation % GPUVEC_BUCKETS];
}

gpuvec_mirror *
gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	for (gpuvec_mirror *mirror = *bucket_of(store, key); mirror; mirror = mirror->next_alike)
		if (mirror->key.relation == key->relation &&
			memcmp(&mirror->key, key, sizeof(*key)) == 0 &&
			(mirror->owner == NULL || mirror->owner == session))
			return mirror;
	return NULL;
}

gpuvec_mirror *
gpuvec_store_add(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
				 gpuvec_error *error)
{
	const gpuvec_mirror_kind *kind = gpuvec_kind_of(store, key);
	gpuvec_mirror *mirror = calloc(1, kind->mirror_bytes);

	if (mirror == NULL)
	{
		gpuvec_fail_memory(error, kind->mirror_bytes);
		return NULL;
	}
	mirror->refs = 1;			/* the list's reference */
	mirror->listed = true;
	mirror->key = *key;
	mirror->kind = kind;
	mirror->owner = key->private_id != 0 ? session : NULL;
	mirror->device = gpuvec_roomiest_device(store);
	if (!kind->make(mirror, error))
	{
		free(mirror);
		return NULL;
	}
	mirror->next = store->mirrors;
	store->mirrors = mirror;
	mirror->next_alike = *bucket_of(store, key);
	*bucket_of(store, key) = mirror;
	return mirror;
}

/*
 * Take a mirror out of the list.  Drops the list's reference, so the caller
 * must hold another one, or free the mirror if none is left.
 */
void
gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror)
{
	gpuvec_mirror **link = &store->mirrors;
	gpuvec_mirror **alike = bucket_of(store, &mirror->key);

	if (!mirror->listed)
		return;
	while (*link != mirror)
		link = &(*link)->next;
	*link = mirror->next;
	while (*alike != mirror)
		alike = &(*alike)->next_alike;
	*alike = mirror->next_alike;
	mirror->listed = false;
	if (mirror->kind->unlisted)
		mirror->device->used -= mirror->kind->unlisted(store, mirror->device, mirror);
	mirror->device->used -= mirror->charged;
	mirror->charged = 0;
	mirror->copy_bytes = 0;
	gpuvec_kept_drop(store, mirror);
	mirror->refs--;
	gpuvec_store_changed(store);
}

/*
 * Unlist a mirror.  If it has no other references, add it to the list *dead.
 */
static void
unlist_dead(gpuvec_store *store, gpuvec_mirror *mirror, gpuvec_mirror **dead)
{
	gpuvec_store_unlist(store, mirror);
	if (mirror->refs == 0)
	{
		mirror->next = *dead;
		*dead = mirror;
	}
}

/* Get the state of a mirror; NULL or an unlisted mirror is absent */
void
gpuvec_store_get_state(const gpuvec_mirror *mirror, gpuvec_state *state)
{
	memset(state, 0, sizeof(*state));
	if (mirror == NULL || !mirror->listed)
		return;
	state->state = mirror->numbers ? GPUVEC_READY : GPUVEC_LOADING;
	state->nblocks = mirror->nblocks;
	state->refresh = mirror->refresh;
	state->checked = mirror->checked;
	state->nrows = mirror->nrows;
	state->nids = mirror->nids;
	state->feed = mirror->feed;
	state->applied = mirror->applied;
	gpuvec_kept_state(mirror, state);
}

void
gpuvec_store_stat(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
				  gpuvec_state *state)
{
	pthread_mutex_lock(&store->mutex);
	gpuvec_store_get_state(gpuvec_store_find(store, key, session), state);
	pthread_mutex_unlock(&store->mutex);
}

void
gpuvec_store_use(gpuvec_mirror *mirror, uint64_t n)
{
	mirror->searches += n;
	mirror->last_use = gpuvec_clock_us();
}

/*
 * In the order in which threads come: updates that follow each other closely
 * would never let a merger in
 */
void
gpuvec_store_claim(gpuvec_store *store, gpuvec_mirror *mirror)
{
	uint64_t	turn = mirror->claims++;

	while (mirror->claims_ended != turn)
		pthread_cond_wait(&store->committed, &store->mutex);
	mirror->committing = true;
}

void
gpuvec_store_unclaim(gpuvec_store *store, gpuvec_mirror *mirror)
{
	mirror->claims_ended++;
	mirror->committing = false;
	pthread_cond_broadcast(&store->committed);
}

/* True if `drop` names this mirror */
static bool
drop_matches(const gpuvec_mirror *mirror, const gpuvec_drop *drop, const void *session)
{
	if (drop->private_id != 0)
		return mirror->owner == session && mirror->key.private_id == drop->private_id;
	return mirror->owner == NULL &&
		(drop->database == 0 || mirror->key.database == drop->database) &&
		(drop->relation == 0 || mirror->key.relation == drop->relation) &&
		(drop->attnum == 0 || mirror->key.attnum == drop->attnum);
}

/*
 * Drop the mirrors that `drop` names, or all private mirrors of a session if
 * drop is NULL.  Returns their number.
 */
static uint64_t
drop_mirrors(gpuvec_store *store, const gpuvec_drop *drop, const void *session)
{
	gpuvec_mirror *dead = NULL;
	uint64_t	n = 0;

	pthread_mutex_lock(&store->mutex);
	for (gpuvec_mirror *mirror = store->mirrors, *next; mirror; mirror = next)
	{
		next = mirror->next;
		if (drop ? !drop_matches(mirror, drop, session) : mirror->owner != session)
			continue;
		unlist_dead(store, mirror, &dead);
		n++;
	}
	pthread_mutex_unlock(&store->mutex);
	free_mirrors(dead);
	return n;
}

uint64_t
gpuvec_store_drop(gpuvec_store *store, const gpuvec_drop *drop, const void *session)
{
	return drop_mirrors(store, drop, session);
}

void
gpuvec_store_drop_private(gpuvec_store *store, const void *session)
{
	drop_mirrors(store, NULL, session);
}

/* True if evicting this mirror is allowed and frees memory of the device */
static bool
can_go(const gpuvec_mirror *mirror, const gpuvec_device *device)
{
	return mirror->device == device && mirror->updater == NULL && mirror->owner == NULL;
}

/*
 * The least recently used mirror that can be evicted from a device, or NULL
 */
static gpuvec_mirror *
least_recent(gpuvec_store *store, const gpuvec_device *device)
{
	gpuvec_mirror *oldest = NULL;

	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (can_go(mirror, device) && (oldest == NULL || mirror->last_use < oldest->last_use))
			oldest = mirror;
	return oldest;
}

/* What has no place in the store any more, and is freed without the mutex */
typedef struct removed_copies
{
	gpuvec_mirror *mirrors;		/* without references */
	gpuvec_copies *copies;
	const gpuvec_device *device;	/* that had the copies */
} removed_copies;

static void
free_removed(const removed_copies *gone)
{
	free_mirrors(gone->mirrors);
	if (gone->copies)
		gone->device->backend->copier->free_copies(gone->copies);
}

/* True if `bytes` more of a device's budget are free */
static inline bool
fits(const gpuvec_device *device, size_t bytes)
{
	return bytes <= device->budget && device->used <= device->budget - bytes;
}

/* The same, where there are copies, which give way to all other rows */
static inline bool
fits_beside_copies(const gpuvec_device *device, size_t bytes)
{
	return bytes <= device->copy_budget && device->used <= device->copy_budget - bytes;
}

/*
 * The least recently used mirror of a device whose copies may be dropped for
 * `self` (may be NULL), or NULL.  What another update is about to publish may
 * share copies with what is published.
 */
static gpuvec_mirror *
least_recent_copies(gpuvec_store *store, const gpuvec_device *device, const gpuvec_mirror *self)
{
	gpuvec_mirror *oldest = NULL;

	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (mirror->device == device && mirror->copy_bytes > 0 &&
			(mirror->updater == NULL || mirror == self) &&
			(oldest == NULL || mirror->last_use < oldest->last_use))
			oldest = mirror;
	return oldest;
}

/* Drop compounds and copies until `bytes` more fit; true if they do */
static bool
drop_copies(gpuvec_store *store, gpuvec_device *device, const gpuvec_mirror *self, size_t bytes,
			removed_copies *gone)
{
	gpuvec_mirror *mirror;

	gone->device = device;
	if (!fits_beside_copies(device, bytes))
		device->used -= store->kinds.sets->give_way(store, device);
	while (!fits_beside_copies(device, bytes) &&
		   (mirror = least_recent_copies(store, device, self)) != NULL)
	{
		gone->copies = mirror->kind->take_copies(mirror, NULL, gone->copies);
		device->used -= mirror->copy_bytes;
		mirror->charged -= mirror->copy_bytes;
		if (mirror->kind->on_device(mirror))
			mirror->device_bytes -= mirror->copy_bytes;
		else
			mirror->host_bytes -= mirror->copy_bytes;
		mirror->copy_bytes = 0;
	}
	return fits(device, bytes);
}

/*
 * Drop compounds and copies, then evict mirrors until `bytes` more fit.
 * False, with no mirror evicted, if that cannot be reached.
 */
static bool
make_room(gpuvec_store *store, gpuvec_device *device, const gpuvec_mirror *self, size_t bytes,
		  removed_copies *gone)
{
	size_t		stays;

	if (drop_copies(store, device, self, bytes, gone))
		return true;
	stays = device->used;
	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (can_go(mirror, device))
			stays -= mirror->charged;
	if (bytes > device->budget || stays > device->budget - bytes)
		return false;
	while (device->used > device->budget - bytes)
	{
		gpuvec_mirror *oldest = least_recent(store, device);

		gpuvec_log("LOG", "evicting the mirror of relation %u of database %u",
				   oldest->key.relation, oldest->key.database);
		unlist_dead(store, oldest, &gone->mirrors);
		store->evictions++;
	}
	return true;
}

/* Report that `bytes` more of a mirror do not fit */
static bool
fail_budget(const gpuvec_mirror *mirror, size_t bytes, gpuvec_error *error)
{
	const gpuvec_device *device = mirror->device;

	gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL,
				"Increase gpuvec.device_memory, or search fewer tables at a time.",
				"out of gpuvec memory");
	snprintf(error->detail, sizeof(error->detail),
			 "The mirror needs at least %zu kB; the budget is %zu kB, of which other mirrors in use take %zu kB.",
			 (mirror->charged + bytes) / 1024, device->budget / 1024,
			 (device->used - mirror->charged) / 1024);
	return false;
}

/* Change a charge; the caller holds the mutex */
static void
set_charge(gpuvec_mirror *mirror, size_t *charged, size_t bytes)
{
	mirror->device->used += bytes - *charged;
	mirror->charged += bytes - *charged;
	*charged = bytes;
}

bool
gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged, size_t bytes,
					bool evict, gpuvec_error *error)
{
	removed_copies gone = {0};
	gpuvec_device *device = mirror->device;
	bool		ok = true;

	pthread_mutex_lock(&store->mutex);
	if (mirror->listed)
	{
		if (bytes > *charged && !fits_beside_copies(device, bytes - *charged))
		{
			size_t		more = bytes - *charged;

			ok = evict ? make_room(store, device, mirror, more, &gone) :
				drop_copies(store, device, mirror, more, &gone);
			if (!ok)
				fail_budget(mirror, more, error);
		}
		if (ok)
			set_charge(mirror, charged, bytes);
	}
	pthread_mutex_unlock(&store->mutex);
	free_removed(&gone);
	return ok;
}

bool
gpuvec_store_charge_spare(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged,
						  size_t bytes)
{
	bool		ok;

	pthread_mutex_lock(&store->mutex);
	ok = mirror->listed &&
		(bytes <= *charged || fits_beside_copies(mirror->device, bytes - *charged));
	if (ok)
		set_charge(mirror, charged, bytes);
	pthread_mutex_unlock(&store->mutex);
	return ok;
}

/*
 * What host memory for work is counted in: *used of *budget.  The device of
 * the CPU backend has all host memory.
 */
static gpuvec_device *
work_account(gpuvec_store *store, size_t **used, size_t *budget)
{
	gpuvec_device *device = &store->devices[0];
	bool		on_cpu = !device->backend->on_device;

	*used = on_cpu ? &device->used : &store->work_used;
	*budget = on_cpu ? device->budget : store->work_budget;
	return on_cpu ? device : NULL;
}

bool
gpuvec_store_reserve(gpuvec_store *store, size_t bytes, gpuvec_error *error)
{
	removed_copies gone = {0};
	gpuvec_device *device;
	size_t	   *used;
	size_t		budget;
	bool		ok;

	pthread_mutex_lock(&store->mutex);
	device = work_account(store, &used, &budget);
	ok = bytes <= budget && *used <= budget - bytes;
	if (device && (!ok || !fits_beside_copies(device, bytes)))
		ok = make_room(store, device, NULL, bytes, &gone);
	if (ok)
		*used += bytes;
	else
	{
		gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL,
					device ? "Increase gpuvec.device_memory." : NULL, "out of gpuvec memory");
		snprintf(error->detail, sizeof(error->detail),
				 "%zu kB more are needed; the budget is %zu kB, of which %zu kB are in use.",
				 bytes / 1024, budget / 1024, *used / 1024);
	}
	pthread_mutex_unlock(&store->mutex);
	free_removed(&gone);
	return ok;
}

void
gpuvec_store_unreserve(gpuvec_store *store, size_t bytes)
{
	size_t	   *used;
	size_t		budget;

	pthread_mutex_lock(&store->mutex);
	(void) work_account(store, &used, &budget);
	*used -= bytes;
	pthread_mutex_unlock(&store->mutex);
}

gpuvec_device *
gpuvec_store_borrow(gpuvec_store *store, size_t bytes)
{
	removed_copies gone = {0};
	gpuvec_device *device;

	pthread_mutex_lock(&store->mutex);
	device = gpuvec_roomiest_device(store);
	if (fits_beside_copies(device, bytes) || make_room(store, device, NULL, bytes, &gone))
		device->used += bytes;
	else
		device = NULL;
	pthread_mutex_unlock(&store->mutex);
	free_removed(&gone);
	return device;
}

bool
gpuvec_store_borrow_spare(gpuvec_store *store, gpuvec_device *device, size_t bytes)
{
	bool		ok;

	pthread_mutex_lock(&store->mutex);
	ok = bytes <= SIZE_MAX / 2 && fits_beside_copies(device, 2 * bytes);
	if (ok)
		device->used += bytes;
	pthread_mutex_unlock(&store->mutex);
	return ok;
}

void
gpuvec_store_repay(gpuvec_store *store, gpuvec_device *device, size_t bytes)
{
	pthread_mutex_lock(&store->mutex);
	device->used -= bytes;
	pthread_mutex_unlock(&store->mutex);
}

/*
 * Bytes of a mirror on host and device, with nblocks pages and the rows of an
 * update (NULL: with its current rows)
 */
static void
count_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update, uint32_t nblocks,
			size_t *host, size_t *device)
{
	size_t		copies = mirror->kind->copy_bytes ? mirror->kind->copy_bytes(mirror, update) : 0;

	mirror->kind->bytes(mirror, update, host, device);
	*host += nblocks * GPUVEC_PAGE_BYTES;
	if (mirror->kind->on_device(mirror))
		*device += copies;
	else
		*host += copies;
}

size_t
gpuvec_store_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update, uint32_t nblocks)
{
	size_t		host;
	size_t		device;

	count_bytes(mirror, update, nblocks, &host, &device);
	return mirror->kind->on_device(mirror) ? device : host;
}

void
gpuvec_store_settle(gpuvec_mirror *mirror)
{
	size_t		bytes = gpuvec_store_background(mirror) + mirror->updating;

	count_bytes(mirror, NULL, mirror->nblocks, &mirror->host_bytes, &mirror->device_bytes);
	bytes += mirror->kind->on_device(mirror) ? mirror->device_bytes : mirror->host_bytes;
	if (mirror->listed)
	{
		mirror->device->used += bytes - mirror->charged;
		mirror->charged = bytes;
		mirror->copy_bytes = mirror->kind->copy_bytes ? mirror->kind->copy_bytes(mirror, NULL) : 0;
	}
}

static void
fill_info(const gpuvec_mirror *mirror, gpuvec_mirror_info *info)
{
	bool		reads_pages = mirror->updater && !mirror->applying;

	info->key = mirror->key;
	info->state = mirror->numbers ? GPUVEC_READY : GPUVEC_LOADING;
	info->nsegments = mirror->nsegments;
	info->pages_done = reads_pages ? mirror->pages_done : mirror->nblocks;
	info->pages_total = reads_pages ? mirror->pages_total : mirror->nblocks;
	info->nrows = mirror->nrows;
	info->nids = mirror->nids;
	info->host_bytes = mirror->host_bytes;
	info->device_bytes = mirror->device_bytes;
	info->loads = mirror->loads;
	info->refreshes = mirror->refreshes;
	info->searches = mirror->searches;
	info->checked = mirror->checked;
	info->last_use = mirror->last_use > 0 ? gpuvec_wall_clock_at(mirror->last_use) : 0;
	info->feed = mirror->feed;
	info->applied = mirror->applied;
	info->row_updates = mirror->row_updates;
	info->rows_applied = mirror->rows_applied;
	info->page_rows = mirror->page_rows;
}

gpuvec_mirror_info *
gpuvec_store_list(gpuvec_store *store, size_t *n)
{
	gpuvec_mirror_info *list;
	size_t		capacity;

	*n = 0;
	pthread_mutex_lock(&store->mutex);
	capacity = gpuvec_store_mirrors(store);
	list = capacity > 0 ? calloc(capacity, sizeof(*list)) : NULL;
	if (list == NULL)
		*n = capacity;
	for (gpuvec_mirror *mirror = store->mirrors; mirror && list; mirror = mirror->next)
		fill_info(mirror, &list[(*n)++]);
	pthread_mutex_unlock(&store->mutex);
	return list;
}

void
gpuvec_store_engine_info(gpuvec_store *store, gpuvec_engine_info *info)
{
	gpuvec_backend_info first;

	memset(info, 0, sizeof(*info));
	store->devices[0].backend->info(store->devices[0].backend, &first);
	info->pid = (uint32_t) getpid();
	memcpy(info->backend, first.name, sizeof(info->backend));
	memcpy(info->device, first.device, sizeof(info->device));
	info->capability = first.capability;
	info->threads = (uint32_t) gpuvec_thread_pool_threads(store->pool);
	info->started = store->started;
	pthread_mutex_lock(&store->mutex);
	for (int i = 0; i < store->ndevices; i++)
	{
		gpuvec_scheduler_stats stats;

		gpuvec_scheduler_get_stats(store->devices[i].scheduler, &stats);
		info->memory_used += store->devices[i].used;
		info->memory_budget += store->devices[i].budget;
		info->requests += stats.requests;
		info->batches += stats.batches;
		info->queries += stats.queries;
	}
	info->evictions = store->evictions;
	pthread_mutex_unlock(&store->mutex);
}
