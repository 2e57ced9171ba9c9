/*-------------------------------------------------------------------------
 *
 * shards_view.c
 *	  The shard of a view that each device has.
 *
 * The shard of a device is a view of its own: the entries of the device's
 * segments, in the same order.  The device's backend adopts it.  An empty
 * view is a part of the first device.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/shards/shards.h"

/* ---- live maps ---- */

void
shards_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map)
{
	gpuvec_backend *child = ((shards_backend *) backend)->children[map->child].backend;

	shards_free_copies(map->copies);
	map->copies = NULL;
	child->release_livemap(child, map);
}

/* Let one device adopt its own maps; `mine` has room for all n */
static bool
adopt_own(shards_backend *shards, int number, gpuvec_livemap *const *maps, uint32_t n,
		  gpuvec_livemap **mine, gpuvec_error *error)
{
	gpuvec_backend *child = shards->children[number].backend;
	uint32_t	count = 0;

	for (uint32_t i = 0; i < n; i++)
		if (maps[i]->child == number)
			mine[count++] = maps[i];
	if (count > 0 && !child->adopt_livemaps(child, mine, count, error))
		return shards_failed(number, error);
	for (uint32_t i = 0; i < count; i++)
		mine[i]->backend = &shards->base;
	return true;
}

bool
shards_adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps, uint32_t n,
					  gpuvec_error *error)
{
	shards_backend *shards = (shards_backend *) backend;
	gpuvec_livemap **mine = malloc((n + 1) * sizeof(*mine));
	bool		ok = mine != NULL || gpuvec_fail_memory(error, n * sizeof(*mine));

	for (int i = 0; ok && i < shards->n; i++)
		ok = adopt_own(shards, i, maps, n, mine, error);
	free(mine);
	for (uint32_t i = 0; !ok && i < n; i++)
		if (maps[i]->backend)
		{
			shards_release_livemap(backend, maps[i]);
			maps[i]->backend = NULL;
		}
	return ok;
}

/* ---- views ---- */

/* A shard with n entries, without references; NULL: no memory */
static gpuvec_view *
shard_of(const shards_backend *shards, const gpuvec_view *view, int child, uint32_t n,
		 gpuvec_error *error)
{
	size_t		size = sizeof(gpuvec_view) + n * sizeof(gpuvec_view_entry);
	gpuvec_view *shard = calloc(1, size);

	if (shard == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	shard->refs = 1;
	shard->backend = shards->children[child].backend;
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		const gpuvec_view_entry *entry = &view->entries[i];

		if (entry->segment->child != child)
			continue;
		shard->entries[shard->nentries++] = *entry;
		shard->nrows += entry->live ? entry->live->nlive : entry->segment->nrows;
		shard->nids += entry->segment->nids;
	}
	return shard;
}

/*
 * Divide a view among the devices, in *divided.  The shards hold no references
 * yet.  False: out of memory, nothing to free.
 */
static bool
divide(const shards_backend *shards, const gpuvec_view *view, shards_view *divided,
	   gpuvec_error *error)
{
	uint32_t	entries[GPUVEC_MAX_DEVICES] = {0};

	divided->n = 0;
	divided->copies = NULL;
	for (uint32_t i = 0; i < view->nentries; i++)
		entries[view->entries[i].segment->child]++;
	for (int child = 0; child < shards->n; child++)
	{
		gpuvec_view *shard;

		if (entries[child] == 0 && (view->nentries > 0 || child > 0))
			continue;
		shard = shard_of(shards, view, child, entries[child], error);
		if (shard == NULL)
		{
			while (divided->n > 0)
				free(divided->shard[--divided->n].view);
			return false;
		}
		divided->shard[divided->n].child = child;
		divided->shard[divided->n++].view = shard;
	}
	return true;
}

/* True if each live map lies where its segment does */
static bool
maps_fit(const gpuvec_view *view)
{
	for (uint32_t i = 0; i < view->nentries; i++)
		if (view->entries[i].live &&
			view->entries[i].live->child != view->entries[i].segment->child)
			return false;
	return true;
}

/*
 * Let the devices adopt their shards, which hold references from then on.  On
 * failure, the shards are freed.
 */
static bool
adopt_shards(shards_view *divided, gpuvec_error *error)
{
	int			adopted = 0;
	bool		ok = true;

	for (; ok && adopted < divided->n; adopted++)
	{
		gpuvec_view *shard = divided->shard[adopted].view;
		gpuvec_backend *child = shard->backend;

		shard->backend = NULL;
		for (uint32_t i = 0; i < shard->nentries; i++)
		{
			gpuvec_segment_ref(shard->entries[i].segment);
			gpuvec_livemap_ref(shard->entries[i].live);
		}
		ok = child->adopt_view(child, shard, error) ||
			shards_failed(divided->shard[adopted].child, error);
	}
	for (int i = 0; !ok && i < divided->n; i++)
	{
		if (i < adopted)
			gpuvec_view_unref(divided->shard[i].view);
		else
			free(divided->shard[i].view);
	}
	return ok;
}

bool
shards_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	shards_view *divided = malloc(sizeof(*divided));

	if (divided == NULL)
		return gpuvec_fail_memory(error, sizeof(*divided));
	if (!maps_fit(view))
	{
		free(divided);
		return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
						   "a map of live rows is on another device than its rows");
	}
	if (!divide((shards_backend *) backend, view, divided, error) ||
		!adopt_shards(divided, error))
	{
		free(divided);
		return false;
	}
	view->backend = backend;
	view->device = divided;
	return true;
}

void
shards_release_view(gpuvec_backend *backend, gpuvec_view *view)
{
	shards_view *divided = view->device;

	(void) backend;
	shards_free_copies(divided->copies);
	for (int i = 0; i < divided->n; i++)
		gpuvec_view_unref(divided->shard[i].view);
	free(divided);
	view->device = NULL;
}
