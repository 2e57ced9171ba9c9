/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Drops stale mirrors within seconds: those whose table or index is
 *	  gone.
 *
 * Nobody tells the engine that a table was dropped, truncated or rewritten,
 * or an index or a database dropped.  The session that does it may know
 * nothing of mirrors, and on a standby there is no such session.  So a load
 * tells the engine which files its mirror depends on.  One thread checks the
 * files of all mirrors every second.
 *
 *	- If the file of its rows is gone, a mirror is dropped at once. A
 *	  dropped table leaves an empty file for a while, so the file of a mirror
 *	  that has pages must not be empty. (VACUUM may truncate a table to
 *	  nothing; its mirror is soon loaded again.)
 *	- If the file of its index is gone, a mirror is dropped when it has not
 *	  been used for UNUSED_US: another index may need it.
 *	- Several mirrors may have the same file and columns: the catalog has
 *	  changed what the rows mean, or whether the column has an index.
 *	  Sessions use one of them at a time. A mirror that has not been used
 *	  for UNUSED_US is dropped if another of them has been used since.
 *
 * Dropping a mirror is always safe: a session that needs it loads it again.
 *
 * The same thread returns memory to the system that large updates have freed,
 * which takes long enough that a session should not wait for it.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/store/store.h"

/* Milliseconds between two checks */
#define SWEEP_MS		1000

/* A mirror that has not been used for UNUSED_US microseconds is unused */
#define UNUSED_US		5000000

/* A mirror whose files are checked */
typedef struct watched_mirror
{
	gpuvec_mirror *mirror;		/* with a reference */
	bool		has_pages;
	bool		rows_gone;
	bool		index_gone;
} watched_mirror;

/*
 * True if a file does not exist or, if empty_too, is empty.  On any other
 * error it counts as existing.
 */
static bool
is_gone(const char *path, bool empty_too)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return errno == ENOENT || errno == ENOTDIR;
	return empty_too && st.st_size == 0;
}

/* The next path of a mirror's files after `file`, or NULL */
static const char *
next_file(const gpuvec_mirror *mirror, const char *file)
{
	file += strlen(file) + 1;
	return file < mirror->files + mirror->file_bytes ? file : NULL;
}

/*
 * Watch the files of a mirror, which is being loaded: the file of its rows
 * first, then those of the indexes that it needs.  If any file does not
 * exist, the mirror is not watched.
 */
void
gpuvec_sweep_watch(gpuvec_store *store, gpuvec_mirror *mirror, const char *files, size_t bytes)
{
	char	   *copy;

	for (const char *file = files; file < files + bytes; file += strlen(file) + 1)
		if (is_gone(file, false))
			return;
	copy = bytes > 0 ? malloc(bytes) : NULL;
	if (copy == NULL)
		return;
	memcpy(copy, files, bytes);
	pthread_mutex_lock(&store->mutex);
	if (mirror->files == NULL)
	{
		mirror->files = copy;
		mirror->file_bytes = bytes;
		copy = NULL;
	}
	pthread_mutex_unlock(&store->mutex);
	free(copy);
}

/*
 * The *n watched mirrors that have no updater, each with a reference;
 * malloc'd
 */
static watched_mirror *
take_mirrors(gpuvec_store *store, size_t *n)
{
	watched_mirror *list;
	size_t		capacity;

	*n = 0;
	pthread_mutex_lock(&store->mutex);
	capacity = gpuvec_store_mirrors(store);
	list = capacity > 0 ? calloc(capacity, sizeof(*list)) : NULL;
	for (gpuvec_mirror *mirror = store->mirrors; mirror && list; mirror = mirror->next)
	{
		if (mirror->files == NULL || mirror->updater != NULL)
			continue;
		mirror->refs++;
		list[*n].mirror = mirror;
		list[*n].has_pages = mirror->nblocks > 0;
		(*n)++;
	}
	pthread_mutex_unlock(&store->mutex);
	return list;
}

/* Check the files of a mirror */
static void
look(watched_mirror *w)
{
	const char *file = w->mirror->files;

	w->rows_gone = is_gone(file, w->has_pages);
	while ((file = next_file(w->mirror, file)) != NULL)
		w->index_gone |= is_gone(file, true);
}

/* True if the mirror has no updater and was not used for UNUSED_US */
static bool
is_unused(const gpuvec_mirror *mirror)
{
	return mirror->updater == NULL && gpuvec_clock_us() - mirror->last_use > UNUSED_US;
}

/*
 * True if two mirrors have the same columns of the same file, in the same
 * storage; false for private mirrors
 */
static bool
same_columns(const gpuvec_mirror_key *a, const gpuvec_mirror_key *b)
{
	return a->relation == b->relation && a->relfilenumber == b->relfilenumber &&
		a->database == b->database && a->tablespace == b->tablespace &&
		a->attnum == b->attnum && a->key_attnum == b->key_attnum && a->index == b->index &&
		a->storage == b->storage && a->nfilters == b->nfilters && a->values == b->values &&
		a->private_id == 0 && b->private_id == 0;
}

/*
 * True if this mirror is unused and another mirror of the same columns was
 * used later.  The caller holds the mutex.
 */
static bool
is_replaced(const gpuvec_store *store, const gpuvec_mirror *mirror)
{
	if (!is_unused(mirror))
		return false;
	for (const gpuvec_mirror *other = store->mirrors; other; other = other->next)
		if (other != mirror && same_columns(&other->key, &mirror->key) && other->numbers != NULL &&
			other->last_use > mirror->last_use)
			return true;
	return false;
}

/* True if the mirror must be dropped.  The caller holds the mutex. */
static bool
has_to_go(const gpuvec_store *store, const watched_mirror *w)
{
	const gpuvec_mirror *mirror = w->mirror;

	if (!mirror->listed || mirror->updater != NULL)
		return false;
	return w->rows_gone || (w->index_gone && is_unused(mirror)) || is_replaced(store, mirror);
}

/* Check all mirrors once, and drop the stale ones */
static void
sweep(gpuvec_store *store)
{
	size_t		n;
	size_t		ndropped = 0;
	watched_mirror *list = take_mirrors(store, &n);

	for (size_t i = 0; i < n; i++)
		look(&list[i]);
	pthread_mutex_lock(&store->mutex);
	for (size_t i = 0; i < n; i++)
	{
		if (!has_to_go(store, &list[i]))
			continue;
		gpuvec_store_unlist(store, list[i].mirror);
		ndropped++;
	}
	pthread_mutex_unlock(&store->mutex);
	for (size_t i = 0; i < n; i++)
		gpuvec_store_release(store, list[i].mirror);
	free(list);

	/* deleted data should not stay readable in freed memory */
	if (ndropped > 0)
		malloc_trim(0);
}

static void *
sweeper(void *arg)
{
	const struct timespec nap = {.tv_sec = SWEEP_MS / 1000, .tv_nsec = SWEEP_MS % 1000 * 1000000L};
	gpuvec_store *store = arg;
	long		argument = 0;

	(void) argument;
	for (;;)
	{
		nanosleep(&nap, NULL);
		if (!gpuvec_fault("no-sweep", &argument))
			sweep(store);
		if (__atomic_exchange_n(&store->trim_due, 0, __ATOMIC_RELAXED))
			malloc_trim(0);
	}
	return NULL;
}

bool
gpuvec_sweep_start(gpuvec_store *store)
{
	pthread_t	thread;

	return pthread_create(&thread, NULL, sweeper, store) == 0 && pthread_detach(thread) == 0;
}
