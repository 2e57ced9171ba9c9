/*-------------------------------------------------------------------------
 *
 * view.c
 *	  Live maps, and views: the segments that a search sees.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/method_costs.h"

/* Allocate a live map of nwords words; nlive and bits are not initialized */
static gpuvec_livemap *
allocate_livemap(uint32_t nwords, gpuvec_error *error)
{
	size_t		size = sizeof(gpuvec_livemap) + nwords * sizeof(uint32_t);
	gpuvec_livemap *map = malloc(size);

	if (map == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	map->refs = 1;
	map->nwords = nwords;
	map->child = 0;
	map->backend = NULL;
	map->device = NULL;
	map->copies = NULL;
	return map;
}

gpuvec_livemap *
gpuvec_livemap_new(uint32_t nrows, gpuvec_error *error)
{
	uint32_t	nwords = (nrows + 31) / 32;
	gpuvec_livemap *map = allocate_livemap(nwords, error);

	if (map == NULL)
		return NULL;
	map->nlive = nrows;
	memset(map->bits, 0xFF, nwords * sizeof(uint32_t));
	if (nrows % 32 != 0)
		map->bits[nwords - 1] = (UINT32_C(1) << (nrows % 32)) - 1;
	return map;
}

gpuvec_livemap *
gpuvec_livemap_none(uint32_t nrows, gpuvec_error *error)
{
	uint32_t	nwords = (nrows + 31) / 32;
	gpuvec_livemap *map = allocate_livemap(nwords, error);

	if (map == NULL)
		return NULL;
	map->nlive = 0;
	memset(map->bits, 0, nwords * sizeof(uint32_t));
	return map;
}

gpuvec_livemap *
gpuvec_livemap_copy(const gpuvec_livemap *from, gpuvec_error *error)
{
	gpuvec_livemap *map = allocate_livemap(from->nwords, error);

	if (map == NULL)
		return NULL;
	map->nlive = from->nlive;
	memcpy(map->bits, from->bits, from->nwords * sizeof(uint32_t));
	return map;
}

gpuvec_livemap *
gpuvec_livemap_ref(gpuvec_livemap *map)
{
	if (map)
		__atomic_add_fetch(&map->refs, 1, __ATOMIC_RELAXED);
	return map;
}

void
gpuvec_livemap_unref(gpuvec_livemap *map)
{
	if (map == NULL || __atomic_sub_fetch(&map->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (map->backend)
		map->backend->release_livemap(map->backend, map);
	free(map);
}

gpuvec_view *
gpuvec_view_new(const gpuvec_view_entry *entries, uint32_t nentries, gpuvec_error *error)
{
	static uint64_t last_number = 0;	/* atomic */
	size_t		size = sizeof(gpuvec_view) + nentries * sizeof(gpuvec_view_entry);
	gpuvec_view *view = calloc(1, size);

	if (view == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	view->refs = 1;
	view->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
	view->nentries = nentries;
	for (uint32_t i = 0; i < nentries; i++)
	{
		view->entries[i] = entries[i];
		view->nrows += entries[i].live ? entries[i].live->nlive : entries[i].segment->nrows;
		view->nids += entries[i].segment->nids;
	}
	return view;
}

gpuvec_view *
gpuvec_view_ref(gpuvec_view *view)
{
	__atomic_add_fetch(&view->refs, 1, __ATOMIC_RELAXED);
	return view;
}

void
gpuvec_view_unref(gpuvec_view *view)
{
	if (view == NULL || __atomic_sub_fetch(&view->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (view->backend)
		view->backend->release_view(view->backend, view);
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		gpuvec_segment_unref(view->entries[i].segment);
		gpuvec_livemap_unref(view->entries[i].live);
	}
	gpuvec_method_costs_unref(view->costs);
	free(view);
}
