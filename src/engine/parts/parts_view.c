/*-------------------------------------------------------------------------
 *
 * parts_view.c
 *	  The part of a view that each device has.
 *
 * The part of a device is a view of its own: the entries of the device's
 * segments, in the same order.  The device's backend adopts it.  An empty
 * view is a part of the first device.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/parts/parts.h"

/* ---- live maps ---- */

void
parts_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map)
{
	gpuvec_backend *child = ((parts_backend *) backend)->children[map->child].backend;

	parts_free_copies(map->copies);
	map->copies = NULL;
	child->release_livemap(child, map);
}

/* Let one device adopt its own maps; `mine` has room for all n */
static bool
adopt_own(parts_backend *parts, int number, gpuvec_livemap *const *maps, uint32_t n,
		  gpuvec_livemap **mine, gpuvec_error *error)
{
	gpuvec_backend *child = parts->children[number].backend;
	uint32_t	count = 0;

	for (uint32_t i = 0; i < n; i++)
		if (maps[i]->child == number)
			mine[count++] = maps[i];
	if (count > 0 && !child->adopt_livemaps(child, mine, count, error))
		return parts_failed(number, error);
	for (uint32_t i = 0; i < count; i++)
		mine[i]->backend = &parts->base;
	return true;
}

bool
parts_adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps, uint32_t n,
					 gpuvec_error *error)
{
	parts_backend *parts = (parts_backend *) backend;
	gpuvec_livemap **mine = malloc((n + 1) * sizeof(*mine));
	bool		ok = mine != NULL || gpuvec_fail_memory(error, n * sizeof(*mine));

	for (int i = 0; ok && i < parts->n; i++)
		ok = adopt_own(parts, i, maps, n, mine, error);
	free(mine);
	for (uint32_t i = 0; !ok && i < n; i++)
		if (maps[i]->backend)
		{
			parts_release_livemap(backend, maps[i]);
			maps[i]->backend = NULL;
		}
	return ok;
}

/* ---- views ---- */

/* The part of a device, with n entries, without references; NULL: no memory */
static gpuvec_view *
part_of(const parts_backend *parts, const gpuvec_view *view, int child, uint32_t n,
		gpuvec_error *error)
{
	size_t		size = sizeof(gpuvec_view) + n * sizeof(gpuvec_view_entry);
	gpuvec_view *part = calloc(1, size);

	if (part == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	part->refs = 1;
	part->backend = parts->children[child].backend;
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		const gpuvec_view_entry *entry = &view->entries[i];

		if (entry->segment->child != child)
			continue;
		part->entries[part->nentries++] = *entry;
		part->nrows += entry->live ? entry->live->nlive : entry->segment->nrows;
		part->nids += entry->segment->nids;
	}
	return part;
}

bool
parts_divide(const parts_backend *parts, const gpuvec_view *view, parts_view *divided,
			 gpuvec_error *error)
{
	uint32_t	entries[GPUVEC_MAX_DEVICES] = {0};

	divided->n = 0;
	divided->copies = NULL;
	for (uint32_t i = 0; i < view->nentries; i++)
		entries[view->entries[i].segment->child]++;
	for (int child = 0; child < parts->n; child++)
	{
		gpuvec_view *part;

		if (entries[child] == 0 && (view->nentries > 0 || child > 0))
			continue;
		part = part_of(parts, view, child, entries[child], error);
		if (part == NULL)
		{
			while (divided->n > 0)
				free(divided->part[--divided->n].view);
			return false;
		}
		divided->part[divided->n].child = child;
		divided->part[divided->n++].view = part;
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
 * Let the devices adopt their parts, which hold references from then on.  On
 * failure, the parts are freed.
 */
static bool
adopt_parts(parts_view *divided, gpuvec_error *error)
{
	int			adopted = 0;
	bool		ok = true;

	for (; ok && adopted < divided->n; adopted++)
	{
		gpuvec_view *part = divided->part[adopted].view;
		gpuvec_backend *child = part->backend;

		part->backend = NULL;
		for (uint32_t i = 0; i < part->nentries; i++)
		{
			gpuvec_segment_ref(part->entries[i].segment);
			gpuvec_livemap_ref(part->entries[i].live);
		}
		ok = child->adopt_view(child, part, error) ||
			parts_failed(divided->part[adopted].child, error);
	}
	for (int i = 0; !ok && i < divided->n; i++)
	{
		if (i < adopted)
			gpuvec_view_unref(divided->part[i].view);
		else
			free(divided->part[i].view);
	}
	return ok;
}

bool
parts_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	parts_view *divided = malloc(sizeof(*divided));

	if (divided == NULL)
		return gpuvec_fail_memory(error, sizeof(*divided));
	if (!maps_fit(view))
	{
		free(divided);
		return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
						   "a map of live rows is on another device than its rows");
	}
	if (!parts_divide((parts_backend *) backend, view, divided, error) ||
		!adopt_parts(divided, error))
	{
		free(divided);
		return false;
	}
	view->backend = backend;
	view->device = divided;
	return true;
}

void
parts_release_view(gpuvec_backend *backend, gpuvec_view *view)
{
	parts_view *divided = view->device;

	(void) backend;
	parts_free_copies(divided->copies);
	for (int i = 0; i < divided->n; i++)
		gpuvec_view_unref(divided->part[i].view);
	free(divided);
	view->device = NULL;
}
