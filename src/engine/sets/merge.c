/*-------------------------------------------------------------------------
 *
 * merge.c
 *	  Merging the segments of a mirror in the background.
 *
 * A refresh puts new rows into a small segment of their own and buries those
 * that they replace, so that the search behind it need not wait for more.
 * What that leaves is mended here, by a thread of low priority: small
 * segments are merged as in a log-structured tree (O'Neil et al. 1996), and
 * when dead rows, or segments, or rows that came since the last sort get
 * many, all rows are sorted anew.
 *
 * Segments are added at the end of a view.  Those that are merged are the
 * largest set of last ones of which none has more than a part of all rows: so
 * with each merge a row comes into a segment that is several times as large,
 * and is moved O(log n) times.
 *
 * A merge changes no row, only where rows are.  It takes the view as it finds
 * it, and builds segments of the rows that are live there.  Meanwhile
 * refreshes may publish other views, with new segments and more dead rows.
 * So at the end it looks at the latest view, replaces there the segments that
 * were merged, and buries in the new ones what has died since; that takes
 * little time, and if yet another view was published or is being made
 * meanwhile, it is done again.  A segment that is not there any more has died
 * as a whole: what an update did with its rows is in other segments.
 *
 * A search most likely follows a refresh at once, and a refresh often
 * another: the thread waits for a moment before it begins.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/fault.h"
#include "engine/sets/draft.h"
#include "engine/sets/sets_mirror.h"

/* How much less than others' counts the time of the thread */
#define MERGER_NICE		10

/* Microseconds until what is due is begun, and between tries to publish it */
#define START_NAP_US	10000
#define PUBLISH_NAP_US	500

/* A merged segment has at least GROWTH times the rows of any of its parts */
#define GROWTH			4

/* All rows are sorted anew when more than 3 of 10 are dead ... */
#define MANY_DEAD(dead, all)	((dead) * 10 > (all) * 3)
/* ... or when there are this many segments more than needed */
#define SPARE_SEGMENTS		48

/* Free memory goes back to the system after merges of more rows than this */
#define TRIM_ROWS			100000

struct gpuvec_merger
{
	pthread_cond_t work;		/* with the store's mutex */
	int			wake;			/* atomic: work has been found for it since it
								 * was last woken */
	gpuvec_thread_pool *pool;	/* of the thread alone */
};

/* A merge on its way */
typedef struct merge_run
{
	gpuvec_store *store;
	gpuvec_sets_mirror *mirror; /* with a reference */
	gpuvec_view *before;		/* as it was found */
	uint32_t	first;			/* entries of it from here on are merged */
	uint64_t	added_rows;		/* mirror->added_rows, at the beginning */
	gpuvec_segment **segments;	/* that replace them */
	uint32_t	nsegments;
} merge_run;

/*
 * From which entry on are segments to be merged?  view->nentries: none are;
 * 0: all
 */
static uint32_t
choose_entries(const gpuvec_view *view, uint64_t sorted_rows, uint64_t added_rows)
{
	uint32_t	first = view->nentries;
	uint64_t	rows = 0;
	uint64_t	sum = 0;
	uint64_t	most = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		rows += view->entries[i].segment->nrows;
	if (first == 0 || MANY_DEAD(rows - view->nrows, rows) ||
		view->nentries > view->nrows / GPUVEC_SEGMENT_ROWS + 1 + SPARE_SEGMENTS ||
		(added_rows > GPUVEC_SEGMENT_ROWS && added_rows > sorted_rows / 2))
		return 0;
	for (uint32_t i = view->nentries; i > 0; i--)
	{
		uint64_t	live = gpuvec_entry_rows(&view->entries[i - 1]);

		sum += live;
		if (sum > GPUVEC_SEGMENT_ROWS)
			break;
		if (live > most)
			most = live;
		if (most * GROWTH <= sum)
			first = i - 1;
	}
	return first;
}

/*
 * Is this segment one of those that are merged?  Returns its entry in
 * `before`, or -1.
 */
static int64_t
source_of(const merge_run *m, const gpuvec_segment *segment)
{
	for (uint32_t i = m->first; i < m->before->nentries; i++)
		if (m->before->entries[i].segment == segment)
			return i;
	return -1;
}

/* Bury a row by its tid, in the one of the entries that has it */
static bool
bury_tid(gpuvec_view_entry *entries, uint32_t n, uint64_t tid, gpuvec_error *error)
{
	for (uint32_t i = 0; i < n; i++)
	{
		const gpuvec_segment *segment = entries[i].segment;
		uint32_t	at = gpuvec_segment_find(segment, tid);

		if (at < segment->nrows && segment->tid[segment->by_tid[at]] == tid)
			return gpuvec_entry_bury(&entries[i], segment->by_tid[at], error);
	}
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					   "a row is missing among those that were merged");
}

/*
 * Bury in the new entries what has died in an old one; now == NULL: all has
 */
static bool
bury_died(const gpuvec_view_entry *before, const gpuvec_view_entry *now,
		  gpuvec_view_entry *entries, uint32_t n, gpuvec_error *error)
{
	const gpuvec_segment *segment = before->segment;

	if (now != NULL && now->live == before->live)
		return true;
	for (uint32_t row = 0; row < segment->nrows; row++)
		if (gpuvec_entry_live(before, row) && (now == NULL || !gpuvec_entry_live(now, row)) &&
			!bury_tid(entries, n, segment->tid[row], error))
			return false;
	return true;
}

/* The entry of a view with this segment, or NULL */
static const gpuvec_view_entry *
entry_of(const gpuvec_view *view, const gpuvec_segment *segment)
{
	for (uint32_t i = 0; i < view->nentries; i++)
		if (view->entries[i].segment == segment)
			return &view->entries[i];
	return NULL;
}

/*
 * Draft what the latest view is to become: the entries that were not merged,
 * with the new ones among them where the others were.
 */
static bool
draft_view(const merge_run *m, const gpuvec_view *now, gpuvec_draft *draft, gpuvec_error *error)
{
	uint32_t	next = 0;
	uint32_t	merged;

	while (next < now->nentries && next < m->first && source_of(m, now->entries[next].segment) < 0)
		next++;
	for (uint32_t i = 0; i < next; i++)
		if (!gpuvec_draft_add_entry(draft, &now->entries[i], error))
			return false;
	merged = draft->n;
	for (uint32_t i = 0; i < m->nsegments; i++)
		if (!gpuvec_draft_add(draft, gpuvec_segment_ref(m->segments[i]), NULL, error))
			return false;
	for (uint32_t i = m->first; i < m->before->nentries; i++)
		if (!bury_died(&m->before->entries[i], entry_of(now, m->before->entries[i].segment),
					   draft->entries + merged, m->nsegments, error))
			return false;
	for (uint32_t i = next; i < now->nentries; i++)
		if (source_of(m, now->entries[i].segment) < 0 &&
			!gpuvec_draft_add_entry(draft, &now->entries[i], error))
			return false;
	gpuvec_draft_drop_dead(draft);
	return true;
}

/* The new view; NULL on failure */
static gpuvec_view *
make_view(const merge_run *m, const gpuvec_view *now, gpuvec_error *error)
{
	gpuvec_draft draft = {.backend = m->mirror->base.device->backend, .pool = m->store->merger->pool};
	gpuvec_view *view = NULL;

	if (draft_view(m, now, &draft, error))
		view = gpuvec_draft_finish(&draft, error);
	gpuvec_draft_free(&draft);
	return view;
}

/*
 * Replace `now` by the new view, unless it has been replaced already or is
 * about to be.  The caller holds the mutex.
 */
static bool
replace_view(merge_run *m, const gpuvec_view *now, gpuvec_view *view)
{
	gpuvec_sets_mirror *mirror = m->mirror;

	if (!mirror->base.listed || mirror->view != now || mirror->base.committing)
		return false;
	gpuvec_sets_set_view(mirror, view);
	if (m->first == 0)
	{
		mirror->sorted_rows = view->nrows;
		mirror->added_rows -= m->added_rows < mirror->added_rows ? m->added_rows : mirror->added_rows;
	}
	mirror->base.background = 0;
	gpuvec_store_settle(&mirror->base);
	return true;
}

/* Publish what was merged */
static bool
publish(merge_run *m, gpuvec_error *error)
{
	bool		done = false;

	while (!done)
	{
		gpuvec_view *now = NULL;
		gpuvec_view *view;

		pthread_mutex_lock(&m->store->mutex);
		if (m->mirror->base.listed)
			now = gpuvec_view_ref(m->mirror->view);
		pthread_mutex_unlock(&m->store->mutex);
		if (now == NULL)
			return true;
		view = make_view(m, now, error);
		if (view != NULL)
		{
			pthread_mutex_lock(&m->store->mutex);
			done = replace_view(m, now, view);
			pthread_mutex_unlock(&m->store->mutex);
		}

		/*
		 * the reference of the mirror, or that of the view that was not
		 * published
		 */
		gpuvec_view_unref(done ? now : view);
		gpuvec_view_unref(now);
		if (view == NULL)
			return false;
		if (!done)
			usleep(PUBLISH_NAP_US);
	}
	return true;
}

/*
 * Keep the charge at what is built and staged; called while segments are
 * built
 */
static bool
charge_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	merge_run  *m = arg;
	size_t		bytes = built + (m->mirror->base.device->backend->on_device ? 0 : staged);

	/* what is not built yet will follow */
	return bytes <= m->mirror->base.background ||
		gpuvec_store_charge(m->store, &m->mirror->base, &m->mirror->base.background, bytes, false,
							error);
}

/* Stage the rows, and build the new segments */
static bool
build(merge_run *m, gpuvec_error *error)
{
	gpuvec_backend *backend = m->mirror->base.device->backend;
	gpuvec_draft draft = {.backend = backend, .pool = m->store->merger->pool};
	gpuvec_stage *stage = gpuvec_stage_new();
	gpuvec_draft_size size;
	bool		ok = stage != NULL || gpuvec_fail_memory(error, 0);

	for (uint32_t i = m->first; ok && i < m->before->nentries; i++)
		ok = gpuvec_draft_add_entry(&draft, &m->before->entries[i], error);
	size = gpuvec_draft_measure(&draft, 0);
	ok = ok && gpuvec_store_charge(m->store, &m->mirror->base, &m->mirror->base.background,
								   size.bytes, false, error) &&
		gpuvec_draft_unbuild(&draft, 0, stage, error);
	gpuvec_draft_free(&draft);
	if (ok && size.live > 0)
	{
		gpuvec_stage_target target = {
			.pool = m->store->merger->pool, .backend = backend,
			.nblocks = UINT32_MAX, .nrows = size.live,
			.shares = m->first == 0 ? gpuvec_thread_pool_threads(m->store->pool) : 1,
			.progress = charge_progress, .arg = m
		};

		ok = gpuvec_stage_build(stage, &target, &m->segments, &m->nsegments, error);
	}
	gpuvec_stage_free(stage);
	return ok;
}

/* Begin a merge of a mirror, if one is due.  The caller holds the mutex. */
static bool
begin(merge_run *m, gpuvec_sets_mirror *mirror)
{
	uint32_t	first;

	mirror->merge_due = false;
	if (mirror->view == NULL)
		return false;
	first = choose_entries(mirror->view, mirror->sorted_rows, mirror->added_rows);
	if (first == mirror->view->nentries)
		return false;
	m->mirror = mirror;
	mirror->base.refs++;
	m->before = gpuvec_view_ref(mirror->view);
	m->first = first;
	m->added_rows = mirror->added_rows;
	return true;
}

/* Let go of what a merge holds */
static void
end(merge_run *m)
{
	uint64_t	rows = 0;
	gpuvec_error error;

	(void) gpuvec_store_charge(m->store, &m->mirror->base, &m->mirror->base.background, 0, false,
							   &error);
	for (uint32_t i = 0; i < m->nsegments; i++)
	{
		rows += m->segments[i]->nrows;
		gpuvec_segment_unref(m->segments[i]);
	}
	free(m->segments);
	gpuvec_view_unref(m->before);
	gpuvec_store_release(m->store, &m->mirror->base);
	if (rows > TRIM_ROWS)
		malloc_trim(0);
}

/*
 * Merge what is due in one mirror.  Without memory nothing is, and it is due
 * again after the next refresh.
 */
static void
run(merge_run *m)
{
	gpuvec_error error;
	bool		ok = build(m, &error);

	gpuvec_fault_sleep("slow-merge", NULL);
	if (ok && publish(m, &error))
	{
		/* another one may be due */
		pthread_mutex_lock(&m->store->mutex);
		m->mirror->merge_due = true;
		pthread_mutex_unlock(&m->store->mutex);
	}
	end(m);
}

/* A mirror in which a merge is due; the caller holds the mutex */
static gpuvec_sets_mirror *
next_due(gpuvec_store *store)
{
	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
	{
		gpuvec_sets_mirror *sets = gpuvec_sets_of(mirror);

		if (sets && sets->merge_due)
			return sets;
	}
	return NULL;
}

/* The thread: looks for what is due */
static void *
merger_thread(void *arg)
{
	gpuvec_store *store = arg;

	/* on Linux this is the thread's own; failing is harmless */
	(void) setpriority(PRIO_PROCESS, 0, MERGER_NICE);
	pthread_mutex_lock(&store->mutex);
	for (;;)
	{
		gpuvec_sets_mirror *mirror;

		if (next_due(store) == NULL)
		{
			pthread_cond_wait(&store->merger->work, &store->mutex);
			pthread_mutex_unlock(&store->mutex);
			usleep(START_NAP_US);
			pthread_mutex_lock(&store->mutex);
		}
		while ((mirror = next_due(store)) != NULL)
		{
			merge_run	m = {.store = store};

			if (!begin(&m, mirror))
				continue;
			pthread_mutex_unlock(&store->mutex);
			run(&m);
			pthread_mutex_lock(&store->mutex);
		}
	}
	return NULL;
}

bool
gpuvec_merger_start(gpuvec_store *store)
{
	pthread_t	thread;
	sigset_t	all;
	sigset_t	old;
	int			rc;

	store->merger = calloc(1, sizeof(*store->merger));
	if (store->merger == NULL)
		return false;
	pthread_cond_init(&store->merger->work, NULL);
	store->merger->pool = gpuvec_thread_pool_new(1);
	if (store->merger->pool == NULL)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, NULL, merger_thread, store);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc == 0 && pthread_detach(thread) == 0;
}

void
gpuvec_merger_look(gpuvec_store *store, gpuvec_sets_mirror *mirror)
{
	if (mirror->merge_due ||
		choose_entries(mirror->view, mirror->sorted_rows,
					   mirror->added_rows) == mirror->view->nentries)
		return;
	mirror->merge_due = true;
	__atomic_store_n(&store->merger->wake, 1, __ATOMIC_RELAXED);
}

void
gpuvec_merger_wake(gpuvec_store *store)
{
	if (__atomic_exchange_n(&store->merger->wake, 0, __ATOMIC_RELAXED))
		pthread_cond_signal(&store->merger->work);
}
