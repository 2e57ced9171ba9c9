/*-------------------------------------------------------------------------
 *
 * places.c
 *	  What lies on which device, for views.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/shards/shards.h"
#include "engine/store/mirror_kind.h"

/* The mirror's places, all of them; the caller holds the mutex */
static void
find_places(const gpuvec_mirror *mirror, gpuvec_place_info *places)
{
	memset(places, 0, GPUVEC_MAX_DEVICES * sizeof(*places));
	if (mirror->kind->places)
		mirror->kind->places(mirror, places);
	else
	{
		places[0].rows = mirror->nrows;
		places[0].bytes = mirror->kind->on_device(mirror) ? mirror->device_bytes : mirror->host_bytes;
	}
}

/* How many devices the first one of the store is made of */
static int
count_shards(gpuvec_store *store)
{
	shards_backend *shards = gpuvec_shards_of(store->devices[0].backend);

	return shards ? shards->n : 1;
}

gpuvec_place_info *
gpuvec_store_places(gpuvec_store *store, size_t *n)
{
	int			ndevices = count_shards(store);
	gpuvec_place_info places[GPUVEC_MAX_DEVICES];
	gpuvec_place_info *list;
	size_t		capacity;

	*n = 0;
	pthread_mutex_lock(&store->mutex);
	capacity = gpuvec_store_mirrors(store) * (size_t) ndevices;
	list = capacity > 0 ? calloc(capacity, sizeof(*list)) : NULL;
	if (list == NULL)
		*n = capacity;
	for (gpuvec_mirror *mirror = store->mirrors; mirror && list; mirror = mirror->next)
	{
		find_places(mirror, places);
		for (int i = 0; i < ndevices; i++)
			if (places[i].rows > 0 || places[i].segments > 0)
			{
				places[i].key = mirror->key;
				places[i].device = i;
				list[(*n)++] = places[i];
			}
	}
	pthread_mutex_unlock(&store->mutex);
	return list;
}

/* What a device is, and what it has done if it is one of several */
static void
describe_device(gpuvec_store *store, int number, gpuvec_device_info *info)
{
	gpuvec_backend *backend = store->devices[0].backend;
	shards_backend *shards = gpuvec_shards_of(backend);
	gpuvec_backend_info known;

	if (shards)
	{
		const shards_child *child = &shards->children[number];

		backend = child->backend;
		info->memory_budget = child->budget;
		info->searches = __atomic_load_n(&child->searches, __ATOMIC_RELAXED);
		info->queries = __atomic_load_n(&child->queries, __ATOMIC_RELAXED);
		info->errors = __atomic_load_n(&child->errors, __ATOMIC_RELAXED);
		info->refused = __atomic_load_n(&child->refused, __ATOMIC_RELAXED);
		info->busy_us = __atomic_load_n(&child->busy_ns, __ATOMIC_RELAXED) / 1000;
	}
	backend->info(backend, &known);
	info->number = number;
	info->gpu = store->gpus[number];
	memcpy(info->backend, known.name, sizeof(info->backend));
	memcpy(info->name, known.device, sizeof(info->name));
	info->capability = known.capability;
	info->memory_total = known.memory_total;
	info->memory_free = known.memory_free;
}

/* What the only device has done; the caller holds the mutex */
static void
describe_only(gpuvec_store *store, gpuvec_device_info *info)
{
	gpuvec_scheduler_stats stats;

	gpuvec_scheduler_get_stats(store->devices[0].scheduler, &stats);
	info->memory_budget = store->devices[0].budget;
	info->searches = stats.batches;
	info->queries = stats.queries;
	info->errors = stats.errors;
	info->busy_us = stats.busy_ns / 1000;
}

/* Add what all mirrors have on the devices; the caller holds the mutex */
static void
add_contents(gpuvec_store *store, gpuvec_device_info *list, int ndevices)
{
	for (const gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
	{
		gpuvec_place_info places[GPUVEC_MAX_DEVICES];

		find_places(mirror, places);
		for (int i = 0; i < ndevices; i++)
		{
			list[i].segments += places[i].segments;
			list[i].rows += places[i].rows;
			list[i].memory_used += places[i].bytes;
		}
	}
}

gpuvec_device_info *
gpuvec_store_devices(gpuvec_store *store, size_t *n)
{
	int			ndevices = count_shards(store);
	gpuvec_device_info *list;

	*n = (size_t) (ndevices + store->nlost);
	list = calloc(*n, sizeof(*list));
	if (list == NULL)
		return NULL;
	for (int i = 0; i < ndevices; i++)
		describe_device(store, i, &list[i]);
	for (int i = 0; i < store->nlost; i++)
	{
		list[ndevices + i].number = -1;
		list[ndevices + i].gpu = store->lost[i].gpu;
		memcpy(list[ndevices + i].last_error, store->lost[i].last_error, sizeof(store->lost[i].last_error));
	}
	pthread_mutex_lock(&store->mutex);
	if (ndevices == 1)
		describe_only(store, &list[0]);
	add_contents(store, list, ndevices);
	pthread_mutex_unlock(&store->mutex);
	return list;
}
