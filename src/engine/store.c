/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The mirrors that are resident.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/log.h"
#include "engine/store.h"

#define MEGABYTE	((size_t) 1024 * 1024)

/* Part of the free device memory, or of the machine's, that mirrors may take */
#define DEVICE_PERCENT	80
#define MACHINE_PERCENT	50

int64_t
gpuvec_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A number in a file, or SIZE_MAX ("max", no file) */
static size_t
read_limit(const char *path)
{
	FILE	   *file = fopen(path, "r");
	unsigned long long value;
	size_t		limit = SIZE_MAX;

	if (file == NULL)
		return limit;
	if (fscanf(file, "%llu", &value) == 1)
		limit = (size_t) value;
	fclose(file);
	return limit;
}

/* The lowest memory limit of the control groups that this process is in */
static size_t
cgroup_limit(void)
{
	FILE	   *file = fopen("/proc/self/cgroup", "r");
	size_t		limit = SIZE_MAX;
	char		line[1024];

	if (file == NULL)
		return limit;
	while (fgets(line, sizeof(line), file))
	{
		char		path[1200];
		bool		unified = strncmp(line, "0::", 3) == 0;
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers ? strchr(controllers + 1, ':') : NULL;
		size_t		found;

		/* number:controllers:path, of which only the path may contain colons */
		if (group == NULL)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (*group != '/' || (!unified && strstr(controllers, "memory") == NULL))
			continue;
		/* the group itself and all above it */
		for (;;)
		{
			if (unified)
				snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
			else
				snprintf(path, sizeof(path), "/sys/fs/cgroup/memory%s/memory.limit_in_bytes", group);
			found = read_limit(path);
			if (found < limit)
				limit = found;
			if (*group == '\0')
				break;
			*strrchr(group, '/') = '\0';
		}
	}
	fclose(file);
	return limit;
}

/* What mirrors may take in a place */
static size_t
choose_budget(gpuvec_backend *backend, const engine_options *options)
{
	gpuvec_backend_info info;
	size_t		limit;

	if (options->memory_mb > 0)
		return (size_t) options->memory_mb * MEGABYTE;
	backend->info(backend, &info);
	if (backend->on_device)
		return info.memory_free / 100 * DEVICE_PERCENT;
	limit = cgroup_limit();
	return (info.memory_total < limit ? info.memory_total : limit) / 100 * MACHINE_PERCENT;
}

/* Add a place with an open backend */
static bool
add_place(gpuvec_store *store, gpuvec_backend *backend, const engine_options *options)
{
	gpuvec_place *place = &store->places[store->nplaces];

	place->backend = backend;
	place->scheduler = gpuvec_scheduler_new(backend);
	place->budget = choose_budget(backend, options);
	if (place->scheduler == NULL)
		return false;
	store->nplaces++;
	return true;
}

/* Open all GPUs that are asked for.  False: *error says why not. */
static bool
open_devices(gpuvec_store *store, const engine_options *options, gpuvec_error *error)
{
	if (gpuvec_cuda_count(error) == 0)
		return false;
	for (int i = 0; i < options->ndevices; i++)
	{
		gpuvec_backend_options backend_options = {.device = options->devices[i]};
		gpuvec_backend *backend = gpuvec_cuda_open(&backend_options, error);

		if (backend == NULL)
			return false;
		if (!add_place(store, backend, options))
			return gpuvec_fail_memory(error, 0);
	}
	return true;
}

/* Close the devices that were opened before one failed */
static void
close_devices(gpuvec_store *store)
{
	while (store->nplaces > 0)
	{
		gpuvec_place *place = &store->places[--store->nplaces];

		gpuvec_scheduler_free(place->scheduler);
		place->backend->close(place->backend);
	}
}

/* Open the CPU backend */
static bool
open_cpu(gpuvec_store *store, const engine_options *options, gpuvec_error *error)
{
	gpuvec_backend_options backend_options = {.threads = options->cpu_threads};
	gpuvec_backend *backend = gpuvec_cpu_open(&backend_options, error);

	if (backend == NULL)
		return false;
	return add_place(store, backend, options) || gpuvec_fail_memory(error, 0);
}

/* Say what is ready */
static void
log_ready(const gpuvec_store *store)
{
	for (int i = 0; i < store->nplaces; i++)
	{
		const gpuvec_place *place = &store->places[i];
		gpuvec_backend_info info;

		place->backend->info(place->backend, &info);
		gpuvec_log("LOG", "ready: backend %s, %s, %d threads, memory budget %zu MB",
				   info.name, info.device, info.threads, place->budget / MEGABYTE);
	}
}

bool
gpuvec_store_open(gpuvec_store *store, const engine_options *options)
{
	gpuvec_error error = {0};
	bool		opened = false;

	memset(store, 0, sizeof(*store));
	pthread_mutex_init(&store->mutex, NULL);
	store->started = gpuvec_now();
	store->pool = gpuvec_pool_new(options->cpu_threads);
	if (store->pool == NULL)
	{
		gpuvec_log("ERROR", "could not start threads");
		return false;
	}
	if (strcmp(options->backend, "cpu") != 0)
	{
		opened = open_devices(store, options, &error);
		if (!opened)
		{
			bool		forced = strcmp(options->backend, "cuda") == 0;

			close_devices(store);
			gpuvec_log(forced ? "ERROR" : "LOG", "no GPU can be used: %s%s%s", error.message,
					   error.detail[0] ? ": " : "", error.detail);
			if (forced)
				return false;
		}
	}
	if (!opened && !open_cpu(store, options, &error))
	{
		gpuvec_log("ERROR", "%s", error.message);
		return false;
	}
	log_ready(store);
	return true;
}

/* Free a mirror whose last reference is gone */
static void
free_mirror(gpuvec_mirror *mirror)
{
	gpuvec_view_unref(mirror->view);
	free(mirror->pages);
	free(mirror);
}

/* Drop a reference; the caller holds the mutex.  Returns what is to be freed. */
static gpuvec_mirror *
unref_mirror(gpuvec_mirror *mirror)
{
	return --mirror->refs == 0 ? mirror : NULL;
}

void
gpuvec_store_release(gpuvec_store *store, gpuvec_mirror *mirror)
{
	gpuvec_mirror *dead;

	if (mirror == NULL)
		return;
	pthread_mutex_lock(&store->mutex);
	dead = unref_mirror(mirror);
	pthread_mutex_unlock(&store->mutex);
	if (dead)
		free_mirror(dead);
}

/*
 * The list's own reference goes too, so the caller must hold another one or have
 * taken care of it.
 */
void
gpuvec_store_unlist(gpuvec_store *store, gpuvec_mirror *mirror)
{
	if (!mirror->listed)
		return;
	for (gpuvec_mirror **link = &store->mirrors; *link; link = &(*link)->next)
	{
		if (*link == mirror)
		{
			*link = mirror->next;
			break;
		}
	}
	mirror->listed = false;
	mirror->place->used -= mirror->charged;
	mirror->charged = 0;
	mirror->refs--;
}

gpuvec_mirror *
gpuvec_store_lookup(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (memcmp(&mirror->key, key, sizeof(*key)) == 0 &&
			(mirror->owner == NULL || mirror->owner == session))
			return mirror;
	return NULL;
}

gpuvec_mirror *
gpuvec_store_find(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	gpuvec_mirror *mirror;

	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_lookup(store, key, session);
	if (mirror)
		mirror->refs++;
	pthread_mutex_unlock(&store->mutex);
	return mirror;
}

void
gpuvec_store_state(gpuvec_store *store, gpuvec_mirror *mirror, gpuvec_state *state)
{
	memset(state, 0, sizeof(*state));
	if (mirror == NULL)
		return;
	pthread_mutex_lock(&store->mutex);
	if (mirror->listed)
	{
		state->state = mirror->view ? GPUVEC_READY :
			mirror->updater ? GPUVEC_LOADING : GPUVEC_ABSENT;
		state->nblocks = mirror->nblocks;
		state->refresh = mirror->refresh;
		state->checked = mirror->checked;
		state->nrows = mirror->view ? mirror->view->nrows : 0;
	}
	pthread_mutex_unlock(&store->mutex);
}

/* Does `drop` name this mirror? */
static bool
drop_matches(const gpuvec_mirror *mirror, const gpuvec_drop *drop, const void *session)
{
	if (mirror->key.database != drop->database)
		return false;
	if (drop->private_id != 0)
		return mirror->owner == session && mirror->key.private_id == drop->private_id;
	return mirror->owner == NULL &&
		(drop->relation == 0 || mirror->key.relation == drop->relation) &&
		(drop->attnum == 0 || mirror->key.attnum == drop->attnum);
}

/*
 * Unlist mirrors, by `drop` or (drop == NULL) all private ones of a session.
 * They are freed after the mutex is released: freeing device memory takes time.
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
		gpuvec_store_unlist(store, mirror);
		n++;
		if (mirror->refs == 0)
		{
			mirror->next = dead;
			dead = mirror;
		}
	}
	pthread_mutex_unlock(&store->mutex);
	while (dead)
	{
		gpuvec_mirror *next = dead->next;

		free_mirror(dead);
		dead = next;
	}
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
	return mirror->place == place && mirror->updater == NULL && mirror->owner == NULL &&
		mirror->view != NULL;
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

/* Bytes of a place that no eviction frees */
static size_t
bytes_that_stay(gpuvec_store *store, const gpuvec_place *place)
{
	size_t		bytes = place->used;

	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (can_go(mirror, place))
			bytes -= mirror->charged;
	return bytes;
}

bool
gpuvec_store_charge(gpuvec_store *store, gpuvec_mirror *mirror, size_t bytes, gpuvec_error *error)
{
	gpuvec_place *place = mirror->place;
	gpuvec_mirror *dead = NULL;
	bool		fits;

	pthread_mutex_lock(&store->mutex);
	/* evict only if that helps; this mirror has an updater and stays */
	fits = bytes <= place->budget && bytes_that_stay(store, place) <= place->budget - bytes;
	while (fits && place->used > place->budget - bytes)
	{
		gpuvec_mirror *oldest = least_recent(store, place);

		gpuvec_log("LOG", "evicting the mirror of relation %u of database %u",
				   oldest->key.relation, oldest->key.database);
		gpuvec_store_unlist(store, oldest);
		store->evictions++;
		if (oldest->refs == 0)
		{
			oldest->next = dead;
			dead = oldest;
		}
	}
	if (fits && mirror->listed)
	{
		place->used += bytes;
		mirror->charged += bytes;
	}
	if (!fits)
	{
		gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL, "Increase gpuvec.device_memory, or search fewer tables.",
					"the memory of the gpuvec engine is too small for the mirror");
		snprintf(error->detail, sizeof(error->detail),
				 "It needs at least %zu kB; the budget is %zu kB, of which %zu kB are in use.",
				 (mirror->charged + bytes) / 1024, place->budget / 1024,
				 (place->used - mirror->charged) / 1024);
	}
	pthread_mutex_unlock(&store->mutex);
	while (dead)
	{
		gpuvec_mirror *next = dead->next;

		free_mirror(dead);
		dead = next;
	}
	return fits;
}

void
gpuvec_store_uncharge(gpuvec_store *store, gpuvec_mirror *mirror, size_t bytes)
{
	pthread_mutex_lock(&store->mutex);
	if (mirror->listed)
	{
		mirror->place->used -= bytes;
		mirror->charged -= bytes;
	}
	pthread_mutex_unlock(&store->mutex);
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
	for (gpuvec_mirror *mirror = store->mirrors; mirror && list; mirror = mirror->next)
	{
		gpuvec_mirror_info *info = &list[(*n)++];

		info->key = mirror->key;
		info->state = mirror->view ? GPUVEC_READY : GPUVEC_LOADING;
		info->nsegments = mirror->view ? mirror->view->nentries : 0;
		info->pages_done = mirror->updater ? mirror->pages_done : mirror->nblocks;
		info->pages_total = mirror->updater ? mirror->pages_total : mirror->nblocks;
		info->nrows = mirror->view ? mirror->view->nrows : 0;
		info->nids = mirror->view ? mirror->view->nids : 0;
		info->host_bytes = mirror->host_bytes;
		info->device_bytes = mirror->device_bytes;
		info->loads = mirror->loads;
		info->refreshes = mirror->refreshes;
		info->searches = mirror->searches;
		info->checked = mirror->checked;
		info->last_use = mirror->last_use;
	}
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
