/*-------------------------------------------------------------------------
 *
 * sets_mirror.c
 *	  Mirrors that hold sets: their views, copies of these on several
 *	  devices, and opening a view for a search.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/sets/compound.h"
#include "engine/sets/sets_mirror.h"

void
gpuvec_sets_set_view(gpuvec_store *store, gpuvec_sets_mirror *mirror, gpuvec_view *view)
{
	if (mirror->view && mirror->view != view)
		gpuvec_joints_forget(store, mirror->view);
	if (view->costs == NULL)
		view->costs = gpuvec_method_costs_ref(mirror->costs);
	mirror->view = view;
	mirror->base.nsegments = view->nentries;
	mirror->base.nrows = view->nrows;
	mirror->base.nids = view->nids;
}

/*
 * Copies come last: if there is no room for them at once, the view does
 * without, and those that its segments have had are freed
 */
void
gpuvec_sets_copy(gpuvec_store *store, gpuvec_sets_mirror *mirror, gpuvec_view *view,
				 size_t *charged)
{
	gpuvec_backend *backend = mirror->base.device->backend;
	const gpuvec_copier *copier = backend->copier;
	bool		wanted;
	size_t		bytes;

	if (copier == NULL)
		return;
	wanted = copier->wanted(backend, view, __atomic_load_n(&mirror->base.placement, __ATOMIC_RELAXED),
							&bytes);
	if (wanted && copier->has_copies(backend, view))
		return;
	if (wanted && gpuvec_store_charge_spare(store, &mirror->base, charged, *charged + bytes))
		copier->copy(backend, view);
	else
		copier->free_copies(copier->take(backend, view, NULL));
}

/*
 * Find a mirror.  If it is ready, wait until it is as fresh as needed, for as
 * long as that is wanted.  Sets *state.  The caller holds the mutex.
 */
static gpuvec_mirror *
find_fresh(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
		   const gpuvec_sets_need *need, gpuvec_state *state)
{
	struct timespec deadline = gpuvec_deadline(need->patience_us);
	bool		in_time = need->patience_us > 0;

	for (;;)
	{
		gpuvec_mirror *mirror = gpuvec_store_find(store, key, session);

		gpuvec_store_get_state(mirror, state);
		if (!in_time || state->state != GPUVEC_READY || gpuvec_fresh(state, &need->fresh) ||
			__atomic_load_n(need->canceled, __ATOMIC_RELAXED))
			return mirror;
		in_time = gpuvec_store_wait(store, &deadline);
	}
}

void
gpuvec_sets_open(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
				 const gpuvec_sets_need *need, uint32_t nqueries, gpuvec_sets_reader *reader)
{
	gpuvec_mirror *mirror;
	gpuvec_sets_mirror *sets;

	memset(reader, 0, sizeof(*reader));
	pthread_mutex_lock(&store->mutex);
	mirror = find_fresh(store, key, session, need, &reader->state);
	sets = gpuvec_sets_of(mirror);
	if (sets && gpuvec_fresh(&reader->state, &need->fresh))
	{
		reader->device = mirror->device;
		reader->view = gpuvec_view_ref(sets->view);
		reader->id_numbers = gpuvec_id_numbers_ref(sets->id_numbers);
		reader->numbers = gpuvec_page_numbers_ref(mirror->numbers);
		gpuvec_store_use(mirror, nqueries);
	}
	pthread_mutex_unlock(&store->mutex);
}

void
gpuvec_sets_close(gpuvec_sets_reader *reader)
{
	gpuvec_view_unref(reader->view);
	gpuvec_id_numbers_unref(reader->id_numbers);
	gpuvec_page_numbers_unref(reader->numbers);
	reader->view = NULL;
	reader->id_numbers = NULL;
	reader->numbers = NULL;
}
