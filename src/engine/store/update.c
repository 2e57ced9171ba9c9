/*-------------------------------------------------------------------------
 *
 * update.c
 *	  Beginning and ending a load or a refresh of a mirror.
 *
 * One session at a time changes a mirror: its updater.  Only the updater
 * changes the mirror's pages and, from the start of the commit, its rows.  So
 * it can read them without the store's mutex until it publishes.  All work
 * that takes time is done without the mutex, and before publishing, which
 * cannot fail.
 *
 * If the updater's session makes no step, the next one may oust it: the engine
 * closes its connection, and the update ends as if the session had gone.  So
 * no page counts that the session sends when it goes on, and there is still
 * one updater at a time.
 *
 * A load or refresh of another session may take long; who comes then is told
 * so.  Rows of a feed (update_rows.c) are applied within one message, and
 * often.  So others wait until that is done: a load, a refresh, or more rows.
 * If a load or refresh waits, rows that come then are told so.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/store/joint_load.h"

/*
 * After updates of more than TRIM_ROWS rows, free memory is returned to the
 * system.  Nobody waits for that (sweep.c).
 */
#define TRIM_ROWS			100000

/* Microseconds that others wait while rows are applied */
#define ROWS_PATIENCE_US	5000000

/* Microseconds to wait for the end of an update whose session was hung up */
#define OUST_PATIENCE_US	5000000

/* End an update that is not part of another one */
static void
end_whole(gpuvec_update *update)
{
	gpuvec_store *store = update->store;
	gpuvec_mirror *mirror = update->mirror;
	const gpuvec_mirror_kind *kind = mirror->kind;
	bool		trim = kind->rows_taken(update) > TRIM_ROWS;
	bool		keeps_room = kind->keeps_room && mirror->numbers != NULL;
	gpuvec_error error;

	/* no part is charged after this */
	gpuvec_joint_close(update);
	/* release the charge before another update can begin */
	if (!keeps_room)
		(void) gpuvec_store_charge(store, mirror, &update->mirror->updating, 0, false, &error);
	gpuvec_update_drop_rows(update);

	pthread_mutex_lock(&store->mutex);
	mirror->updating = 0;
	if (keeps_room)
		gpuvec_store_settle(mirror);
	mirror->updater = NULL;
	mirror->applying = false;
	if (update->committing)
		gpuvec_store_unclaim(store, mirror);
	if (mirror->numbers == NULL)
		gpuvec_store_unlist(store, mirror);
	gpuvec_store_changed(store);
	pthread_mutex_unlock(&store->mutex);
	gpuvec_store_release(store, mirror);
	free(update);
	if (trim)
		__atomic_store_n(&store->trim_due, 1, __ATOMIC_RELAXED);
}

void
gpuvec_update_end(gpuvec_update *update)
{
	if (update->is_slice)
		gpuvec_joint_lose(update);
	else
		end_whole(update);
}

/*
 * Find a mirror, and wait while rows are applied to it.  NULL if it is
 * absent.  The caller holds the mutex.
 */
static gpuvec_mirror *
find_settled(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	struct timespec deadline = gpuvec_deadline(ROWS_PATIENCE_US);
	gpuvec_mirror *mirror = gpuvec_store_find(store, key, session);
	bool		in_time = true;

	while (mirror && mirror->applying && in_time)
	{
		mirror->wanted = true;
		in_time = gpuvec_store_wait(store, &deadline);
		mirror = gpuvec_store_find(store, key, session);
	}
	if (mirror && !in_time)
		mirror->wanted = false;
	return mirror;
}

/* Make this session the updater of a mirror; the caller holds the mutex */
static void
become_updater(gpuvec_mirror *mirror, const void *session)
{
	mirror->refs++;
	mirror->updater = session;
}

/*
 * Make this session the updater of a mirror, which a load adds if it is
 * absent.  NULL on failure.  NULL without an error if the mirror of a refresh
 * is absent.  The caller holds the mutex.
 */
static gpuvec_mirror *
claim_mirror(gpuvec_store *store, const gpuvec_mirror_key *key, const gpuvec_load *load,
			 const void *session, gpuvec_error *error)
{
	gpuvec_mirror *mirror = find_settled(store, key, session);

	if (mirror == NULL)
	{
		mirror = load ? gpuvec_store_add(store, key, session, error) : NULL;
		if (mirror == NULL)
			return NULL;
	}
	else if (mirror->updater != NULL)
	{
		gpuvec_fail(error, GPUVEC_OBJECT_IN_USE, NULL, NULL,
					"the mirror is being loaded or refreshed by another session");
		return NULL;
	}
	become_updater(mirror, session);
	mirror->wanted = false;
	mirror->pages_done = 0;
	mirror->pages_total = load ? load->nblocks : mirror->nblocks;
	mirror->last_use = gpuvec_clock_us();
	return mirror;
}

/*
 * Find a mirror and its state, and wait for our turn while other rows are
 * applied to it.  NULL if there is nothing to apply.  The caller holds the
 * mutex.
 */
static gpuvec_mirror *
find_for_rows(gpuvec_store *store, const gpuvec_rows *rows, const void *session,
			  gpuvec_state *state)
{
	struct timespec deadline = gpuvec_deadline(ROWS_PATIENCE_US);
	bool		in_time = true;

	for (;;)
	{
		gpuvec_mirror *mirror = gpuvec_store_find(store, &rows->key, session);

		gpuvec_store_get_state(mirror, state);
		if (state->state != GPUVEC_READY ||
			(state->feed == rows->feed && state->applied >= rows->to))
			return NULL;
		if (!mirror->applying || mirror->wanted || !in_time)
			return mirror;
		in_time = gpuvec_store_wait(store, &deadline);
	}
}

/*
 * Make this session the updater of a mirror, if rows are to be applied to it.
 * Else NULL, and *state says why.  The caller holds the mutex.
 */
static gpuvec_mirror *
claim_for_rows(gpuvec_store *store, const gpuvec_rows *rows, const void *session,
			   gpuvec_state *state)
{
	gpuvec_mirror *mirror = find_for_rows(store, rows, session, state);

	if (mirror == NULL)
		return NULL;
	if (mirror->updater != NULL || mirror->wanted)
	{
		memset(state, 0, sizeof(*state));
		state->state = GPUVEC_LOADING;
		return NULL;
	}
	if (state->feed != rows->feed || state->applied < rows->from)
		return NULL;
	become_updater(mirror, session);
	mirror->applying = true;
	return mirror;
}

/* Make an update that has no mirror yet; NULL on lack of memory */
static gpuvec_update *
new_update(gpuvec_store *store, const gpuvec_mirror_kind *kind, gpuvec_error *error)
{
	gpuvec_update *update = calloc(1, kind->update_bytes);

	memset(error, 0, sizeof(*error));
	if (update == NULL)
		gpuvec_fail_memory(error, kind->update_bytes);
	else
	{
		update->store = store;
		update->began = gpuvec_clock_ns();
	}
	return update;
}

/*
 * Let the kind begin an update.  Frees it, and returns NULL, if that fails or
 * it has no mirror.
 */
static gpuvec_update *
start_update(gpuvec_update *update, gpuvec_error *error)
{
	if (update->mirror == NULL)
		free(update);
	else if (!update->mirror->kind->begin(update, error))
		gpuvec_update_end(update);
	else
		return update;
	return NULL;
}

gpuvec_update *
gpuvec_update_begin(gpuvec_store *store, const gpuvec_mirror_key *key, const gpuvec_load *load,
					const void *session, gpuvec_error *error)
{
	gpuvec_update *update = new_update(store, gpuvec_kind_of(store, key), error);

	if (update == NULL)
		return NULL;
	update->load = load != NULL;
	pthread_mutex_lock(&store->mutex);
	update->mirror = claim_mirror(store, key, load, session, error);
	pthread_mutex_unlock(&store->mutex);
	update = start_update(update, error);
	if (update && load && load->number != 0 && !gpuvec_joint_open(update, load->number, error))
	{
		gpuvec_update_end(update);
		return NULL;
	}
	return update;
}

gpuvec_update *
gpuvec_update_join(gpuvec_store *store, const gpuvec_load_join *join, const void *session,
				   gpuvec_error *error)
{
	gpuvec_update *update = new_update(store, gpuvec_kind_of(store, &join->key), error);

	if (update == NULL)
		return NULL;
	update->load = update->is_slice = true;
	pthread_mutex_lock(&store->mutex);
	gpuvec_joint_find(update, join, session);
	pthread_mutex_unlock(&store->mutex);
	return start_update(update, error);
}

gpuvec_update *
gpuvec_update_begin_rows(gpuvec_store *store, const gpuvec_rows *rows, const void *session,
						 gpuvec_state *state, gpuvec_error *error)
{
	gpuvec_update *update = new_update(store, gpuvec_kind_of(store, &rows->key), error);

	if (update == NULL)
		return NULL;
	pthread_mutex_lock(&store->mutex);
	update->mirror = claim_for_rows(store, rows, session, state);
	pthread_mutex_unlock(&store->mutex);
	return start_update(update, error);
}

/*
 * A session is not freed before its update has ended, which takes the mutex.
 * Rows of a feed are applied within one message: their session is not hung
 * up.
 */
uint64_t
gpuvec_update_oust(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
				   void (*hang_up) (const void *session))
{
	struct timespec deadline = gpuvec_deadline(OUST_PATIENCE_US);
	gpuvec_mirror *mirror;
	const void *updater;
	uint64_t	n = 0;

	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_find(store, key, session);
	updater = mirror && !mirror->applying ? mirror->updater : NULL;
	if (updater && updater != session)
	{
		n = 1 + gpuvec_joint_hang_up(mirror, hang_up);
		hang_up(updater);
		do
			mirror = gpuvec_store_find(store, key, session);
		while (mirror && mirror->updater == updater && gpuvec_store_wait(store, &deadline));
	}
	pthread_mutex_unlock(&store->mutex);
	return n;
}

void
gpuvec_update_place(gpuvec_update *update, gpuvec_placement placement)
{
	__atomic_store_n(&update->mirror->placement, placement, __ATOMIC_RELAXED);
}

void
gpuvec_update_files(gpuvec_update *update, const char *files, size_t bytes)
{
	gpuvec_sweep_watch(update->store, update->mirror, files, bytes);
}

uint64_t *
gpuvec_update_lsns(gpuvec_update *update, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	uint64_t   *lsns = malloc((mirror->nblocks + (size_t) 1) * sizeof(uint64_t));

	if (lsns == NULL)
	{
		gpuvec_fail_memory(error, mirror->nblocks * sizeof(uint64_t));
		return NULL;
	}
	for (uint32_t block = 0; block < mirror->nblocks; block++)
		lsns[block] = mirror->pages[block].lsn;
	return lsns;
}

void
gpuvec_update_state(gpuvec_update *update, gpuvec_state *state)
{
	pthread_mutex_lock(&update->store->mutex);
	gpuvec_store_get_state(update->mirror, state);
	pthread_mutex_unlock(&update->store->mutex);
}
