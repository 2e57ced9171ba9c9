/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Mirrors that are of nothing any more are dropped within seconds.
 *
 * Nobody tells the engine that a table was dropped, truncated or rewritten,
 * or an index or a whole database dropped: the session that does it may know
 * nothing of mirrors, and on a standby there is none.  So a mirror is told,
 * when it is loaded, which files its rows come from, and one thread looks
 * after all of them every second.
 *
 *	- Without the file of its rows a mirror goes at once.  A dropped file
 *	stays
 *	  there empty for a while, so a mirror that has pages must not have an
 *	  empty one.  (VACUUM may cut a table down to nothing; its mirror is soon
 *	  loaded again.)
 *	- Without the file of its index it goes when it has not been used for some
 *	  seconds: another index may serve it.
 *	- Of the same file and columns there may be several mirrors: the catalog
 *	  has changed its mind of what the rows mean, or whether the column has an
 *	  index.  Sessions use one of them at a time.  One that has not been used
 *	  for some seconds goes if another has been used since.
 *
 * To drop a mirror is never wrong: whoever still wants it loads it again.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "engine/fault.h"
#include "engine/store/store.h"

/* How often to look */
#define SWEEP_MS		1000

/* A mirror that was not used for so long is unused, in microseconds */
#define UNUSED_US		5000000

/* A mirror that is looked after */
typedef struct watched_mirror
{
	gpuvec_mirror *mirror;		/* with a reference */
	bool		has_pages;
	bool		rows_gone;
	bool		index_gone;
} watched_mirror;

/* Is a file gone?  Whatever else is wrong with it, it may still be there. */
static bool
is_gone(const char *path, bool empty_too)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return errno == ENOENT || errno == ENOTDIR;
	return empty_too && st.st_size == 0;
}

/* Paths follow one another; the next one, or NULL */
static const char *
next_file(const gpuvec_mirror *mirror, const char *file)
{
	file += strlen(file) + 1;
	return file < mirror->files + mirror->file_bytes ? file : NULL;
}

/*
 * From now on a mirror, which is being loaded, is looked after by these
 * files: of its rows, and of an index that it needs.  Files that are not
 * there cannot be looked after.
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

/* All mirrors that are to be looked after; malloc'd */
static watched_mirror *
take_mirrors(gpuvec_store *store, size_t *n)
{
	watched_mirror *list;
	size_t		room = 0;

	*n = 0;
	pthread_mutex_lock(&store->mutex);
	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		room++;
	list = room > 0 ? calloc(room, sizeof(*list)) : NULL;
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

/* Look at the files of a mirror */
static void
look(watched_mirror *w)
{
	const char *file = w->mirror->files;

	w->rows_gone = is_gone(file, w->has_pages);
	while ((file = next_file(w->mirror, file)) != NULL)
		w->index_gone |= is_gone(file, true);
}

/* Has nobody used the mirror for a while? */
static bool
is_unused(const gpuvec_mirror *mirror)
{
	return mirror->updater == NULL && gpuvec_now() - mirror->last_use > UNUSED_US;
}

/* Are two mirrors of the same columns of the same file, in the same form? */
static bool
same_columns(const gpuvec_mirror_key *a, const gpuvec_mirror_key *b)
{
	return a->relation == b->relation && a->relfilenumber == b->relfilenumber &&
		a->database == b->database && a->tablespace == b->tablespace &&
		a->attnum == b->attnum && a->key_attnum == b->key_attnum && a->index == b->index &&
		a->storage == b->storage && a->private_id == 0 && b->private_id == 0;
}

/*
 * Has another mirror taken the place of this one?  The caller holds the
 * mutex.
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

/* Is a mirror of no use any more?  The caller holds the mutex. */
static bool
has_to_go(const gpuvec_store *store, const watched_mirror *w)
{
	const gpuvec_mirror *mirror = w->mirror;

	if (!mirror->listed || mirror->updater != NULL)
		return false;
	return w->rows_gone || (w->index_gone && is_unused(mirror)) || is_replaced(store, mirror);
}

/* Look at all mirrors once */
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

	/*
	 * what was deleted should not stay readable in memory that is kept for
	 * later
	 */
	if (ndropped > 0)
		malloc_trim(0);
}

/* The thread */
static void *
sweeper(void *arg)
{
	const struct timespec nap = {.tv_sec = SWEEP_MS / 1000, .tv_nsec = SWEEP_MS % 1000 * 1000000L};
	long		argument = 0;

	(void) argument;
	for (;;)
	{
		nanosleep(&nap, NULL);
		if (!gpuvec_fault("no-sweep", &argument))
			sweep(arg);
	}
	return NULL;
}

bool
gpuvec_sweep_start(gpuvec_store *store)
{
	pthread_t	thread;

	return pthread_create(&thread, NULL, sweeper, store) == 0 && pthread_detach(thread) == 0;
}
