/*-------------------------------------------------------------------------
 *
 * sets_kind.c
 *	  The kind of mirrors that hold sets: its functions, for the store.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/sets/compound.h"
#include "engine/sets/sets_mirror.h"

static bool
sets_make(gpuvec_mirror *mirror, gpuvec_error *error)
{
	gpuvec_sets_mirror *sets = (gpuvec_sets_mirror *) mirror;

	sets->most_merged = UINT32_MAX;
	sets->costs = gpuvec_method_costs_new();
	if (sets->costs)
		return true;
	return gpuvec_fail_memory(error, gpuvec_method_costs_bytes());
}

static void
sets_drop(gpuvec_mirror *mirror)
{
	gpuvec_view_unref(((gpuvec_sets_mirror *) mirror)->view);
	gpuvec_id_numbers_unref(((gpuvec_sets_mirror *) mirror)->id_numbers);
	gpuvec_method_costs_unref(((gpuvec_sets_mirror *) mirror)->costs);
}

static bool
sets_on_device(const gpuvec_mirror *mirror)
{
	return mirror->device->backend->on_device;
}

/*
 * Bytes of the view, its segments and the numbers of its ids.  Segments that
 * lie in host memory since devices have no room count as if they were there.
 */
static void
sets_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update, size_t *host, size_t *device)
{
	const gpuvec_view *view = update ? ((const gpuvec_sets_update *) update)->view :
		((const gpuvec_sets_mirror *) mirror)->view;
	gpuvec_id_numbers *numbers = update ? ((const gpuvec_sets_update *) update)->id_numbers :
		((const gpuvec_sets_mirror *) mirror)->id_numbers;

	*host = sizeof(*view) + view->nentries * sizeof(gpuvec_view_entry) + gpuvec_method_costs_bytes();
	if (numbers)
		*host += gpuvec_id_numbers_bytes(numbers);
	*device = 0;
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		const gpuvec_livemap *live = view->entries[i].live;
		size_t		map = live ? sizeof(*live) + live->nwords * sizeof(uint32_t) : 0;

		if (view->backend->on_device)
			*device += gpuvec_segment_charge(view->entries[i].segment) + map;
		if (!view->backend->on_device || view->entries[i].segment->ids == NULL)
			*host += gpuvec_segment_host_bytes(view->entries[i].segment) + map;
	}
}

/* The view of a mirror, or of an update that is prepared; may be NULL */
static gpuvec_view *
view_of(const gpuvec_mirror *mirror, const gpuvec_update *update)
{
	return update ? ((const gpuvec_sets_update *) update)->view :
		((const gpuvec_sets_mirror *) mirror)->view;
}

static size_t
sets_copy_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update)
{
	gpuvec_backend *backend = mirror->device->backend;
	const gpuvec_view *view = view_of(mirror, update);

	return backend->copier && view ? backend->copier->bytes(backend, view, NULL) : 0;
}

static gpuvec_copies *
sets_take_copies(gpuvec_mirror *mirror, gpuvec_update *update, gpuvec_copies *more)
{
	gpuvec_backend *backend = mirror->device->backend;
	gpuvec_view *view = view_of(mirror, update);

	return backend->copier && view ? backend->copier->take(backend, view, more) : more;
}

/* The rows and bytes of copies, which are complete or not there */
static void
add_copies(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_place_info *places)
{
	size_t		bytes[GPUVEC_MAX_DEVICES] = {0};
	uint64_t	replicas = backend->copier->replicas(backend, view, 1);

	backend->copier->bytes(backend, view, bytes);
	for (int i = 0; i < GPUVEC_MAX_DEVICES; i++)
	{
		places[i].bytes += bytes[i];
		if (replicas >> i & 1)
		{
			places[i].rows = view->nrows;
			places[i].segments = view->nentries;
		}
	}
}

/*
 * Each segment lies on one device, with its live map, and may have copies on
 * others
 */
static void
sets_places(const gpuvec_mirror *mirror, gpuvec_place_info *places)
{
	gpuvec_backend *backend = mirror->device->backend;
	const gpuvec_view *view = ((const gpuvec_sets_mirror *) mirror)->view;

	for (uint32_t i = 0; view && i < view->nentries; i++)
	{
		const gpuvec_view_entry *entry = &view->entries[i];
		gpuvec_place_info *place = &places[entry->segment->child];

		place->segments++;
		place->rows += entry->live ? entry->live->nlive : entry->segment->nrows;
		place->bytes += gpuvec_segment_charge(entry->segment);
		if (entry->live)
			place->bytes += sizeof(*entry->live) + entry->live->nwords * sizeof(uint32_t);
	}
	if (view && backend->copier)
		add_copies(backend, view, places);
}

static bool
sets_begin(gpuvec_update *update, gpuvec_error *error)
{
	gpuvec_sets_update *sets = (gpuvec_sets_update *) update;

	gpuvec_merger_let_work(update->store, (gpuvec_sets_mirror *) update->mirror);
	sets->stage = gpuvec_stage_new(gpuvec_sets_row_kind(&update->mirror->key));
	return sets->stage != NULL || gpuvec_fail_memory(error, 0);
}

static void
sets_end(gpuvec_update *update)
{
	gpuvec_sets_update *sets = (gpuvec_sets_update *) update;

	gpuvec_view_unref(sets->view);
	gpuvec_id_numbers_unref(sets->id_numbers);
	gpuvec_stage_free(sets->stage);
	free(sets->packed);
	gpuvec_sets_free_messages(sets);
	free(sets->messages);
}

static uint64_t
sets_rows_taken(const gpuvec_update *update)
{
	const gpuvec_stage *stage = ((const gpuvec_sets_update *) update)->stage;

	return stage ? gpuvec_stage_rows(stage) : 0;
}

/*
 * Publish the update's view, and the numbers of ids that its rows have.  The
 * update keeps the replaced ones.
 */
static void
sets_publish(gpuvec_update *update)
{
	gpuvec_sets_update *sets = (gpuvec_sets_update *) update;
	gpuvec_sets_mirror *mirror = (gpuvec_sets_mirror *) update->mirror;
	gpuvec_view *old = mirror->view;
	gpuvec_id_numbers *old_numbers = mirror->id_numbers;

	gpuvec_sets_set_view(update->store, mirror, sets->view);
	mirror->id_numbers = sets->id_numbers;
	mirror->sorted_rows = sets->sorted_rows;
	gpuvec_merger_look(update->store, mirror);
	sets->view = old;
	sets->id_numbers = old_numbers;
}

const gpuvec_mirror_kind gpuvec_sets_kind = {
	.mirror_bytes = sizeof(gpuvec_sets_mirror),
	.update_bytes = sizeof(gpuvec_sets_update),
	.takes_lines = true,
	.row_header = sizeof(gpuvec_row),
	.make = sets_make,
	.drop = sets_drop,
	.unlisted = gpuvec_compounds_drop,
	.give_way = gpuvec_compounds_give_way,
	.on_device = sets_on_device,
	.bytes = sets_bytes,
	.places = sets_places,
	.copy_bytes = sets_copy_bytes,
	.take_copies = sets_take_copies,
	.begin = sets_begin,
	.end = sets_end,
	.take_row = gpuvec_sets_take_row,
	.take_fed = gpuvec_sets_take_fed,
	.own_message = gpuvec_sets_own_message,
	.rows_taken = sets_rows_taken,
	.bytes_taken = gpuvec_sets_bytes_taken,
	.unite = gpuvec_sets_unite,
	.prepare = gpuvec_sets_prepare,
	.publish = sets_publish
};
