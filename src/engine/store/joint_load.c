/*-------------------------------------------------------------------------
 *
 * joint_load.c
 *	  Loads by several sessions.
 *
 * One session begins a load, and commits it.  Others join it by its number:
 * each sends some of the pages, in ascending order, as a slice of its own with
 * rows of its own, so sessions do not wait for each other.  A slice counts
 * when its session hands it over.  The commit adds the slices to the load.
 * Then each page must have been sent once, by whichever session.  So whatever
 * becomes of a session, its slice is complete or there is no load.
 *
 * The mirror has one updater, who began the load.  A slice touches nothing of
 * the mirror but its charge.  All slices together are charged as one update,
 * under the mutex of the load, until the load is closed.
 *
 * Who ends first does not matter: what they share is freed by the last one.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/store/joint_load.h"

typedef struct gpuvec_joint_load
{
	int			refs;			/* atomic: the load, and its slices */
	uint64_t	number;
	gpuvec_update *sending;		/* slices that were not handed over; guarded
								 * by the store's mutex */
	pthread_mutex_t mutex;		/* guards what follows */
	bool		open;			/* the load has not ended, nor begun to commit */
	gpuvec_update *slices;		/* that were handed over */
	size_t		bytes;			/* of the load and all slices */
	bool		failed;			/* a slice has, or the charge */
	gpuvec_error error;			/* why, if failed */
} gpuvec_joint_load;

static void
joint_unref(gpuvec_joint_load *joint)
{
	if (__atomic_sub_fetch(&joint->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	pthread_mutex_destroy(&joint->mutex);
	free(joint);
}

bool
gpuvec_joint_open(gpuvec_update *update, uint64_t number, gpuvec_error *error)
{
	gpuvec_joint_load *joint;

	if (update->mirror->kind->unite == NULL)
		return true;
	joint = calloc(1, sizeof(*joint));
	if (joint == NULL)
		return gpuvec_fail_memory(error, sizeof(*joint));
	joint->refs = 1;
	joint->number = number;
	joint->open = true;
	pthread_mutex_init(&joint->mutex, NULL);
	update->joint = joint;
	pthread_mutex_lock(&update->store->mutex);
	update->mirror->joint = joint;
	pthread_mutex_unlock(&update->store->mutex);
	return true;
}

void
gpuvec_joint_find(gpuvec_update *slice, const gpuvec_load_join *join, const void *session)
{
	gpuvec_mirror *mirror = gpuvec_store_find(slice->store, &join->key, session);

	if (mirror == NULL || mirror->joint == NULL || mirror->joint->number != join->number)
		return;
	slice->mirror = mirror;
	slice->joint = mirror->joint;
	slice->session = session;
	slice->next = slice->joint->sending;
	slice->joint->sending = slice;
	mirror->refs++;
	__atomic_add_fetch(&mirror->joint->refs, 1, __ATOMIC_RELAXED);
}

uint64_t
gpuvec_joint_hang_up(const gpuvec_mirror *mirror, void (*hang_up) (const void *session))
{
	uint64_t	n = 0;

	if (mirror->joint == NULL)
		return 0;
	for (const gpuvec_update *slice = mirror->joint->sending; slice; slice = slice->next)
	{
		hang_up(slice->session);
		n++;
	}
	return n;
}

/* The session has sent all of its slice, or does not go on */
static void
end_sending(gpuvec_update *slice)
{
	gpuvec_update **link = &slice->joint->sending;

	pthread_mutex_lock(&slice->store->mutex);
	while (*link != slice)
		link = &(*link)->next;
	*link = slice->next;
	pthread_mutex_unlock(&slice->store->mutex);
}

/* Free a slice, which nobody else has */
static void
free_slice(gpuvec_update *slice)
{
	gpuvec_update_drop_rows(slice);
	joint_unref(slice->joint);
	gpuvec_store_release(slice->store, slice->mirror);
	free(slice);
}

/* Note the first failure; the caller holds the mutex */
static void
note_failure(gpuvec_joint_load *joint, const gpuvec_error *error)
{
	if (!joint->failed)
		joint->error = *error;
	joint->failed = true;
}

void
gpuvec_update_failed(gpuvec_update *update, const gpuvec_error *error)
{
	if (!update->is_slice)
		return;
	pthread_mutex_lock(&update->joint->mutex);
	note_failure(update->joint, error);
	pthread_mutex_unlock(&update->joint->mutex);
}

void
gpuvec_joint_lose(gpuvec_update *slice)
{
	end_sending(slice);
	free_slice(slice);
}

bool
gpuvec_update_is_slice(const gpuvec_update *update)
{
	return update->is_slice;
}

void
gpuvec_update_hand_over(gpuvec_update *slice, uint64_t *pages)
{
	gpuvec_joint_load *joint = slice->joint;
	bool		open;

	*pages = slice->npages;
	end_sending(slice);
	pthread_mutex_lock(&joint->mutex);
	open = joint->open;
	if (open)
	{
		slice->next = joint->slices;
		joint->slices = slice;
	}
	pthread_mutex_unlock(&joint->mutex);
	if (!open)
		free_slice(slice);
}

bool
gpuvec_joint_charge(gpuvec_update *update, gpuvec_error *error)
{
	gpuvec_joint_load *joint = update->joint;
	gpuvec_mirror *mirror = update->mirror;
	size_t		taken = mirror->kind->bytes_taken(update);
	bool		ok;

	pthread_mutex_lock(&joint->mutex);
	joint->bytes += taken - update->charged;
	update->charged = taken;
	ok = joint->open && !joint->failed;
	if (ok)
	{
		ok = gpuvec_store_charge(update->store, mirror, &mirror->updating, joint->bytes, true, error);
		if (!ok)
			note_failure(joint, error);
	}
	else if (joint->failed)
		*error = joint->error;
	else
		gpuvec_fail(error, GPUVEC_OBJECT_IN_USE, NULL, NULL, "the load has ended");
	pthread_mutex_unlock(&joint->mutex);
	return ok;
}

/* Close the load; returns its slices */
static gpuvec_update *
close_load(gpuvec_update *update)
{
	gpuvec_joint_load *joint = update->joint;
	gpuvec_update *slices;

	pthread_mutex_lock(&update->store->mutex);
	update->mirror->joint = NULL;
	pthread_mutex_unlock(&update->store->mutex);
	pthread_mutex_lock(&joint->mutex);
	joint->open = false;
	slices = joint->slices;
	joint->slices = NULL;
	pthread_mutex_unlock(&joint->mutex);
	return slices;
}

static void
free_slices(gpuvec_update *slices)
{
	while (slices)
	{
		gpuvec_update *next = slices->next;

		free_slice(slices);
		slices = next;
	}
}

void
gpuvec_joint_close(gpuvec_update *update)
{
	if (update->joint == NULL)
		return;
	free_slices(close_load(update));
	joint_unref(update->joint);
	update->joint = NULL;
}

/* Put the pages of an update into their places, of which none is taken */
static bool
place_pages(const gpuvec_update *update, gpuvec_sent_page *pages, bool *sent, uint32_t nblocks,
			gpuvec_error *error)
{
	for (uint64_t i = 0; i < update->npages; i++)
	{
		uint32_t	block = update->pages[i].block;

		if (block >= nblocks || sent[block])
			return gpuvec_update_bad_pages(error, "A page was sent twice, or is out of range.");
		pages[block] = update->pages[i];
		sent[block] = true;
	}
	return true;
}

/* Put the pages of the load and its slices into one array, in their order */
static bool
unite_pages(gpuvec_update *update, const gpuvec_update *slices, uint32_t nblocks,
			gpuvec_error *error)
{
	size_t		capacity = (size_t) nblocks + 1;
	gpuvec_sent_page *pages = malloc(capacity * sizeof(*pages));
	bool	   *sent = calloc(capacity, sizeof(*sent));
	uint64_t	n = update->npages;
	bool		ok = pages != NULL && sent != NULL;

	if (!ok)
		gpuvec_fail_memory(error, capacity * (sizeof(*pages) + sizeof(*sent)));
	ok = ok && place_pages(update, pages, sent, nblocks, error);
	for (; ok && slices; slices = slices->next)
	{
		ok = place_pages(slices, pages, sent, nblocks, error);
		n += slices->npages;
	}
	ok = ok && (n == nblocks || gpuvec_update_bad_pages(error, "Pages are missing."));
	free(sent);
	if (!ok)
	{
		free(pages);
		return false;
	}
	free(update->pages);
	update->pages = pages;
	update->npages = n;
	update->pages_capacity = capacity;
	return true;
}

/* Add slices to the load, and free them */
static bool
unite(gpuvec_update *update, gpuvec_update *slices, uint32_t nblocks, gpuvec_error *error)
{
	bool		ok = slices == NULL || unite_pages(update, slices, nblocks, error);

	for (gpuvec_update *slice = slices; ok && slice; slice = slice->next)
		ok = update->mirror->kind->unite(update, slice, error);
	free_slices(slices);
	return ok;
}

bool
gpuvec_joint_gather(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_joint_load *joint = update->joint;
	gpuvec_update *slices = close_load(update);
	bool		ok;

	/* nobody changes it any more: slices look whether it is open */
	pthread_mutex_lock(&joint->mutex);
	ok = !joint->failed;
	if (!ok)
		*error = joint->error;
	pthread_mutex_unlock(&joint->mutex);
	joint_unref(joint);
	update->joint = NULL;
	if (!ok)
	{
		free_slices(slices);
		return false;
	}
	return unite(update, slices, nblocks, error);
}
