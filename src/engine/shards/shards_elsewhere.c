/*-------------------------------------------------------------------------
 *
 * shards_elsewhere.c
 *	  The rows of a device that has no memory to search them, on other
 *	  devices.
 *
 * What lies on a device can be read, even if there is no memory for a search:
 * other programs may use a GPU.  Its segments are copied to other devices, or
 * to the host's memory, that search them in its place.  Segments keep these
 * copies, as long as nothing else needs the memory, so the next search begins
 * at once.  It asks the device again first: so this ends by itself.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/shards/shards.h"

/* Entries that go to one device */
typedef struct device_share
{
	uint32_t	n;
	gpuvec_view_entry *entries; /* with references */
} device_share;

static void
free_shares(device_share *shares, int n)
{
	for (int i = 0; i < n; i++)
	{
		for (uint32_t e = 0; e < shares[i].n; e++)
		{
			gpuvec_segment_unref(shares[i].entries[e].segment);
			gpuvec_livemap_unref(shares[i].entries[e].live);
		}
		free(shares[i].entries);
	}
}

/* Copy an entry to one of the devices, beginning with `first` */
static bool
place_entry(shards_backend *shards, const gpuvec_view_entry *entry, uint64_t lacking, int first,
			device_share *shares)
{
	for (int i = 0; i < shards->n; i++)
	{
		int			child = i < shards->ndevices ? (first + i) % shards->ndevices : i;
		device_share *to = &shares[child];

		if (lacking >> child & 1 || !shards_copy_entry(shards, entry, child, &to->entries[to->n]))
			continue;
		to->n++;
		return true;
	}
	return false;
}

/* Copy all entries of a view */
static bool
place_entries(shards_backend *shards, const gpuvec_view *view, uint64_t lacking, device_share *shares)
{
	for (int i = 0; i < shards->n; i++)
	{
		shares[i].entries = calloc(view->nentries + 1, sizeof(gpuvec_view_entry));
		if (shares[i].entries == NULL)
			return false;
	}
	for (uint32_t e = 0; e < view->nentries; e++)
		if (!place_entry(shards, &view->entries[e], lacking, (int) (e % (uint32_t) shards->ndevices),
						 shares))
			return false;
	return true;
}

/* The view of one device's share; NULL on failure */
static gpuvec_view *
view_of(shards_backend *shards, device_share *mine, int child)
{
	gpuvec_backend *backend = shards->children[child].backend;
	gpuvec_error error;
	gpuvec_view *view = gpuvec_view_new(mine->entries, mine->n, &error);

	if (view == NULL)
		return NULL;
	mine->n = 0;				/* the view has taken over the references */
	if (backend->adopt_view(backend, view, &error))
		return view;
	gpuvec_view_unref(view);
	return NULL;
}

/* The device that has the view of no rows: the first one with memory; or -1 */
static int
place_empty(const shards_backend *shards, uint64_t lacking)
{
	for (int i = 0; i < shards->n; i++)
		if ((lacking >> i & 1) == 0)
			return i;
	return -1;
}

/*
 * Make the views.  If a device has no memory for one, it is added to those
 * that lack memory.
 */
static bool
make_views(shards_backend *shards, const gpuvec_view *view, uint64_t *lacking, gpuvec_view **views)
{
	device_share shares[GPUVEC_MAX_DEVICES] = {{0}};
	int			empty = view->nentries == 0 ? place_empty(shards, *lacking) : -1;
	bool		ok = place_entries(shards, view, *lacking, shares) &&
		(view->nentries > 0 || empty >= 0);

	for (int i = 0; ok && i < shards->n; i++)
	{
		if (shares[i].n == 0 && i != empty)
			continue;
		views[i] = view_of(shards, &shares[i], i);
		ok = views[i] != NULL;
		if (!ok)
			*lacking |= UINT64_C(1) << i;
	}
	free_shares(shares, shards->n);
	return ok;
}

bool
shards_elsewhere(shards_backend *shards, const gpuvec_view *view, uint64_t *lacking,
				 gpuvec_view **views)
{
	for (;;)
	{
		uint64_t	before = *lacking;

		memset(views, 0, (size_t) shards->n * sizeof(*views));
		if (make_views(shards, view, lacking, views))
			return true;
		for (int i = 0; i < shards->n; i++)
			gpuvec_view_unref(views[i]);
		if (*lacking == before)
			return false;
	}
}
