/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The mirrors that are resident: finding, listing, dropping, evicting.
 *
 * Memory is charged to mirrors in bytes of their place's budget.  When a charge
 * does not fit, mirrors that nobody is loading or refreshing are evicted, the
 * least recently used first, but only if that makes room enough.  An evicted
 * mirror that is being searched is only unlisted; its memory goes when the
 * search lets go of its view.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/embedding/embedding_mirror.h"
#include "engine/log.h"
#include "engine/store.h"

int64_t
gpuvec_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Free mirrors whose last reference is gone; without the mutex, as it takes time */
static void
free_mirrors(gpuvec_mirror *dead)
{
	while (dead)
	{
		gpuvec_mirror *next = dead->next;

		gpuvec_view_unref(dead->view);
		gpuvec_embedding_unref(dead->embed);
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

gpuvec_mirror *
gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (memcmp(&mirror->key, key, sizeof(*key)) == 0 &&
			(mirror->owner == NULL || mirror->owner == session))
			return mirror;
	return NULL;
}

/* Add an empty mirror; NULL on lack of memory */
gpuvec_mirror *
gpuvec_store_add(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	gpuvec_mirror *mirror = calloc(1, sizeof(*mirror));

	if (mirror == NULL)
		return NULL;
	mirror->refs = 1;			/* the list's */
	mirror->listed = true;
	mirror->key = *key;
	mirror->owner = key->private_id != 0 ? session : NULL;
	mirror->place = gpuvec_roomiest_place(store);
	mirror->next = store->mirrors;
	store->mirrors = mirror;
	return mirror;
}

/*
 * Take a mirror out of the list.  The list's own reference goes too, so the
 * caller must hold another one or free it.
 */
void
gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror)
{
	gpuvec_mirror **link = &store->mirrors;

	if (!mirror->listed)
		return;
	while (*link != mirror)
		link = &(*link)->next;
	*link = mirror->next;
	mirror->listed = false;
	mirror->place->used -= mirror->charged;
	mirror->charged = 0;
	mirror->refs--;
}

/* Unlist a mirror, and put it on a list of dead ones if nobody else uses it */
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

/* State of a mirror; NULL is absent */
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
	state->nrows = mirror->view ? mirror->view->nrows : mirror->nrows;
	state->nids = mirror->view ? mirror->view->nids : 0;
	state->feed = mirror->feed;
	state->applied = mirror->applied;
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
gpuvec_store_open_search(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
						 const gpuvec_freshness *need, uint32_t nqueries, gpuvec_searchable *s)
{
	gpuvec_mirror *mirror;

	memset(s, 0, sizeof(*s));
	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_find(store, key, session);
	gpuvec_store_get_state(mirror, &s->state);
	if (gpuvec_fresh(&s->state, need) && mirror->view)
	{
		s->place = mirror->place;
		s->view = gpuvec_view_ref(mirror->view);
		s->numbers = gpuvec_page_numbers_ref(mirror->numbers);
		mirror->searches += nqueries;
		mirror->last_use = gpuvec_now();
	}
	pthread_mutex_unlock(&store->mutex);
}

void
gpuvec_store_close_search(gpuvec_searchable *s)
{
	gpuvec_view_unref(s->view);
	gpuvec_page_numbers_unref(s->numbers);
	s->view = NULL;
	s->numbers = NULL;
}

gpuvec_embedding_table *
gpuvec_store_open_embed(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
						uint64_t nkeys, gpuvec_state *state)
{
	gpuvec_embedding_table *table = NULL;
	gpuvec_mirror *mirror;

	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_find(store, key, session);
	gpuvec_store_get_state(mirror, state);
	if (state->state == GPUVEC_READY)
	{
		table = gpuvec_embedding_ref(mirror->embed);
		mirror->searches += nkeys;
		mirror->last_use = gpuvec_now();
	}
	pthread_mutex_unlock(&store->mutex);
	return table;
}

/* Does `drop` name this mirror? */
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

/* Unlist mirrors, by `drop` or (drop == NULL) all private ones of a session */
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

/* May a mirror be evicted from a place? */
static bool
can_go(const gpuvec_mirror *mirror, const gpuvec_place *place)
{
	return mirror->place == place && mirror->updater == NULL && mirror->owner == NULL;
}

/* The mirror of a place that was used least recently and can go */
static gpuvec_mirror *
least_recent(gpuvec_store *store, const gpuvec_place *place)
{
	gpuvec_mirror *oldest = NULL;

	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (can_go(mirror, place) && (oldest == NULL || mirror->last_use < oldest->last_use))
			oldest = mirror;
	return oldest;
}

/* Evict mirrors until `bytes` more fit, unless that is in vain */
static bool
make_room(gpuvec_store *store, gpuvec_place *place, size_t bytes, gpuvec_mirror **dead)
{
	size_t		stays = place->used;

	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (can_go(mirror, place))
			stays -= mirror->charged;
	if (bytes > place->budget || stays > place->budget - bytes)
		return false;
	while (place->used > place->budget - bytes)
	{
		gpuvec_mirror *oldest = least_recent(store, place);

		gpuvec_log("LOG", "evicting the mirror of relation %u of database %u",
				   oldest->key.relation, oldest->key.database);
		unlist_dead(store, oldest, dead);
		store->evictions++;
	}
	return true;
}

/* Report that a mirror does not fit */
static bool
fail_budget(const gpuvec_mirror *mirror, size_t bytes, gpuvec_error *error)
{
	const gpuvec_place *place = mirror->place;

	gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL,
				"Increase gpuvec.device_memory, or search fewer tables at a time.",
				"out of gpuvec memory");
	snprintf(error->detail, sizeof(error->detail),
			 "The mirror needs at least %zu kB; the budget is %zu kB, of which other mirrors in use take %zu kB.",
			 (mirror->charged + bytes) / 1024, place->budget / 1024,
			 (place->used - mirror->charged) / 1024);
	return false;
}

bool
gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t *charged, size_t bytes,
					bool evict, gpuvec_error *error)
{
	gpuvec_mirror *dead = NULL;
	gpuvec_place *place = mirror->place;
	bool		ok = true;

	pthread_mutex_lock(&store->mutex);
	if (mirror->listed)
	{
		if (bytes > *charged)
		{
			size_t		more = bytes - *charged;

			if (more > place->budget || place->used > place->budget - more)
				ok = evict && make_room(store, place, more, &dead);
			if (!ok)
				fail_budget(mirror, more, error);
		}
		if (ok)
		{
			place->used += bytes - *charged;
			mirror->charged += bytes - *charged;
			*charged = bytes;
		}
	}
	pthread_mutex_unlock(&store->mutex);
	free_mirrors(dead);
	return ok;
}

/* Bytes of a view (or table) and its pages on host and device */
static void
count_bytes(const gpuvec_view *view, const gpuvec_embedding_table *embed, uint32_t nblocks,
			size_t *host, size_t *device)
{
	if (embed)
	{
		gpuvec_embedding_bytes(embed, host, device);
		*host += nblocks * GPUVEC_PAGE_BYTES;
		return;
	}
	*host = sizeof(*view) + view->nentries * sizeof(gpuvec_view_entry) + nblocks * GPUVEC_PAGE_BYTES;
	*device = 0;
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		const gpuvec_livemap *live = view->entries[i].live;
		size_t		map = live ? sizeof(*live) + live->nwords * sizeof(uint32_t) : 0;

		*host += gpuvec_segment_host_bytes(view->entries[i].segment) + map;
		*device += view->entries[i].segment->device_bytes + (view->backend->on_device ? map : 0);
	}
}

/* What a mirror is charged for */
static size_t
charged_bytes(const gpuvec_mirror *mirror, size_t host, size_t device)
{
	bool		on_device = mirror->embed ? mirror->embed->vectors != NULL :
		mirror->place->backend->on_device;

	return on_device ? device : host;
}

size_t
gpuvec_store_bytes(const gpuvec_mirror *mirror, const gpuvec_view *view, uint32_t nblocks)
{
	size_t		host;
	size_t		device;

	count_bytes(view, mirror->embed, nblocks, &host, &device);
	return charged_bytes(mirror, host, device);
}

void
gpuvec_store_settle(gpuvec_mirror *mirror)
{
	size_t		bytes;

	count_bytes(mirror->view, mirror->embed, mirror->nblocks, &mirror->host_bytes,
				&mirror->device_bytes);
	bytes = mirror->merging + charged_bytes(mirror, mirror->host_bytes, mirror->device_bytes);
	if (mirror->listed)
	{
		mirror->place->used += bytes - mirror->charged;
		mirror->charged = bytes;
	}
}

/* Describe a mirror */
static void
fill_info(const gpuvec_mirror *mirror, gpuvec_mirror_info *info)
{
	info->key = mirror->key;
	info->state = mirror->numbers ? GPUVEC_READY : GPUVEC_LOADING;
	info->nsegments = mirror->view ? mirror->view->nentries : 0;
	info->pages_done = mirror->updater ? mirror->pages_done : mirror->nblocks;
	info->pages_total = mirror->updater ? mirror->pages_total : mirror->nblocks;
	info->nrows = mirror->view ? mirror->view->nrows : mirror->nrows;
	info->nids = mirror->view ? mirror->view->nids : 0;
	info->host_bytes = mirror->host_bytes;
	info->device_bytes = mirror->device_bytes;
	info->loads = mirror->loads;
	info->refreshes = mirror->refreshes;
	info->searches = mirror->searches;
	info->checked = mirror->checked;
	info->last_use = mirror->last_use;
}

gpuvec_mirror_info *
gpuvec_store_list(gpuvec_store *store, size_t *n)
{
	gpuvec_mirror_info *list;
	size_t		room = 0;

	*n = 0;
	pthread_mutex_lock(&store->mutex);
	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		room++;
	list = room > 0 ? calloc(room, sizeof(*list)) : NULL;
	if (list == NULL)
		*n = room;
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
	store->places[0].backend->info(store->places[0].backend, &first);
	info->pid = (uint32_t) getpid();
	memcpy(info->backend, first.name, sizeof(info->backend));
	memcpy(info->device, first.device, sizeof(info->device));
	info->capability = first.capability;
	info->threads = (uint32_t) gpuvec_pool_threads(store->pool);
	info->started = store->started;
	pthread_mutex_lock(&store->mutex);
	for (int i = 0; i < store->nplaces; i++)
	{
		gpuvec_scheduler_stats stats;

		gpuvec_scheduler_get_stats(store->places[i].scheduler, &stats);
		info->memory_used += store->places[i].used;
		info->memory_budget += store->places[i].budget;
		info->requests += stats.requests;
		info->batches += stats.batches;
		info->queries += stats.queries;
	}
	info->evictions = store->evictions;
	pthread_mutex_unlock(&store->mutex);
}
