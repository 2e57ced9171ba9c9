/*-------------------------------------------------------------------------
 *
 * merge.c
 *	  Merging the segments of a mirror in the background.
 *
 * A refresh puts new rows into a small segment of their own, and buries the
 * rows that they replace, so that the search that needs it waits as little as
 * possible.  A thread of low priority, the merger, tidies up later.  It
 * merges small segments as in a log-structured merge tree (O'Neil et al.
 * 1996).  When there are many dead rows, many rows that came since the last
 * sort, or many segments that are too large for that, it sorts all rows anew.
 *
 * New segments are added at the end of a view.  A merge takes the largest set
 * of last segments of which none has more than a quarter of the rows of the
 * set.  So each merge moves a row into a segment several times as large, and
 * a row is moved O(log n) times.
 *
 * A merge changes no row, only where rows are stored.  It takes the current
 * view and builds segments of the rows that are live there.  Meanwhile
 * refreshes may publish other views, with new segments and more dead rows.
 * So at the end it takes the latest view, replaces the merged segments in
 * it, and buries in the new segments the rows that have died since.  That
 * takes little time.  It is repeated if meanwhile another view was published
 * or is about to be.  If a merged segment is no longer in the latest view,
 * all its rows are dead: an update has put those that live into other
 * segments.
 *
 * Rows of a feed may be applied more often than a view can be made.  So after
 * some attempts the merger becomes the mirror's updater for the last one.
 * Meanwhile no rows are applied, and a refresh waits as it does for rows.
 *
 * After a refresh a search usually follows at once, and often another
 * refresh.  So the thread waits for START_NAP_US before it begins.
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

/* Niceness of the merger's thread */
#define MERGER_NICE		10

/* Microseconds before a merge begins, and between attempts to publish it */
#define START_NAP_US	10000
#define PUBLISH_NAP_US	500

/* Attempts to publish while rows may be applied */
#define FREE_ATTEMPTS	3

/* Microseconds after which the merger looks again whether it may publish */
#define HOLD_PATIENCE_US	100000

/* All rows are sorted anew if more than 3 of 10 are dead ... */
#define MANY_DEAD(dead, all)	((dead) * 10 > (all) * 3)
/*
 * ... or if merging small segments leaves more than SPARE_SEGMENTS beyond
 * those needed
 */
#define SPARE_SEGMENTS		48

/*
 * After merges of more than TRIM_ROWS rows, free memory is returned to the
 * system
 */
#define TRIM_ROWS			100000

struct gpuvec_merger
{
	pthread_cond_t work;		/* used with the store's mutex */
	int			wake;			/* atomic: work was found since the thread was
								 * last woken */
	gpuvec_thread_pool *pool;	/* a pool of one thread, the merger itself */
};

/* A merge that is running */
typedef struct merge_run
{
	gpuvec_store *store;
	gpuvec_sets_mirror *mirror; /* with a reference */
	gpuvec_view *before;		/* the view at the beginning */
	uint32_t	first;			/* entries of `before` from this one on are
								 * merged */
	uint64_t	added_rows;		/* mirror->added_rows, at the beginning */
	gpuvec_segment **segments;	/* [nsegments] segments that replace them */
	uint32_t	nsegments;
} merge_run;

/*
 * Returns the entry from which on segments are merged.  view->nentries: none;
 * 0: all.
 */
static uint32_t
choose_entries(const gpuvec_view *view, uint64_t sorted_rows, uint64_t added_rows)
{
	uint32_t	n = view->nentries;
	uint64_t	rows = 0;
	uint32_t	first;

	for (uint32_t i = 0; i < view->nentries; i++)
		rows += view->entries[i].segment->nrows;
	if (n == 0 || MANY_DEAD(rows - view->nrows, rows) ||
		(added_rows > GPUVEC_SEGMENT_ROWS && added_rows > sorted_rows / 2))
		return 0;
	first = gpuvec_entries_to_merge(view->entries, n, 0, GPUVEC_SEGMENT_ROWS);
	return first > view->nrows / GPUVEC_SEGMENT_ROWS + 1 + SPARE_SEGMENTS ? 0 : first;
}

/* The entry of a segment in m->before, if it is merged; else -1 */
static int64_t
source_of(const merge_run *m, const gpuvec_segment *segment)
{
	for (uint32_t i = m->first; i < m->before->nentries; i++)
		if (m->before->entries[i].segment == segment)
			return i;
	return -1;
}

/* Bury a row by its tid, in the entry that has it */
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
 * Bury in the new entries those rows of an old entry that have died since.
 * now: that entry in the latest view; NULL: all of its rows have died.
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
 * Draft the new view: the latest view, with the new segments in the place of
 * the merged ones
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

/* Make the new view from the latest one; NULL on failure */
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
 * Replace the view `now` by the new view.  False if the mirror has another
 * view, or an update is about to publish one, or the mirror was dropped.  The
 * caller holds the mutex.
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

/*
 * Keep rows from being applied: become the mirror's updater, when no rows are
 * being applied.  False if a load or refresh is under way, which keeps them
 * away as well.
 */
static bool
hold_rows(merge_run *m)
{
	gpuvec_mirror *mirror = &m->mirror->base;
	bool		held;

	pthread_mutex_lock(&m->store->mutex);
	while (mirror->applying)
	{
		struct timespec deadline = gpuvec_deadline(HOLD_PATIENCE_US);

		mirror->wanted = true;
		(void) gpuvec_store_wait(m->store, &deadline);
	}
	held = mirror->updater == NULL;
	if (held)
	{
		mirror->updater = m;
		mirror->applying = true;
		mirror->wanted = false;
	}
	pthread_mutex_unlock(&m->store->mutex);
	return held;
}

static void
let_rows(merge_run *m)
{
	gpuvec_mirror *mirror = &m->mirror->base;

	pthread_mutex_lock(&m->store->mutex);
	mirror->updater = NULL;
	mirror->applying = false;
	gpuvec_store_changed(m->store);
	pthread_mutex_unlock(&m->store->mutex);
}

/*
 * Try to publish the merged segments.  *done is set if they are published, or
 * if the mirror was dropped.
 */
static bool
try_publish(merge_run *m, bool *done, gpuvec_error *error)
{
	gpuvec_view *now = NULL;
	gpuvec_view *view;

	pthread_mutex_lock(&m->store->mutex);
	if (m->mirror->base.listed)
		now = gpuvec_view_ref(m->mirror->view);
	pthread_mutex_unlock(&m->store->mutex);
	*done = now == NULL;
	if (now == NULL)
		return true;
	view = make_view(m, now, error);
	if (view != NULL)
	{
		pthread_mutex_lock(&m->store->mutex);
		*done = replace_view(m, now, view);
		pthread_mutex_unlock(&m->store->mutex);
	}

	/*
	 * if published, the reference that the mirror had to the old view; else
	 * the view that was not published
	 */
	gpuvec_view_unref(*done ? now : view);
	gpuvec_view_unref(now);
	return view != NULL;
}

/* Publish the merged segments.  True also if the mirror was dropped. */
static bool
publish(merge_run *m, gpuvec_error *error)
{
	bool		done = false;
	bool		ok = true;

	for (int attempt = 0; ok && !done; attempt++)
	{
		bool		held = attempt >= FREE_ATTEMPTS && hold_rows(m);

		if (attempt > 0 && !held)
			usleep(PUBLISH_NAP_US);
		ok = try_publish(m, &done, error);
		if (held)
			let_rows(m);
	}
	return ok;
}

/*
 * Adjust the charge to what is built and staged; called while segments are
 * built
 */
static bool
charge_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	merge_run  *m = arg;
	size_t		bytes = built + (m->mirror->base.device->backend->on_device ? 0 : staged);

	/* all is charged already, as old segments: charge only more than that */
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

/*
 * Begin a merge of a mirror.  False if none is due.  The caller holds the
 * mutex.
 */
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

/* End a merge: drop its charge and its references */
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
 * Run a merge.  On lack of memory nothing changes; the merge is due again
 * after the next refresh.
 */
static void
run(merge_run *m)
{
	gpuvec_error error;
	bool		ok = build(m, &error);

	gpuvec_fault_sleep("slow-merge", NULL);
	if (ok && publish(m, &error))
	{
		/* another merge may be due */
		pthread_mutex_lock(&m->store->mutex);
		m->mirror->merge_due = true;
		pthread_mutex_unlock(&m->store->mutex);
	}
	end(m);
}

/*
 * A mirror in which a merge may be due, or NULL; the caller holds the mutex
 */
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

/* The merger's thread: runs the merges that are due */
static void *
merger_thread(void *arg)
{
	gpuvec_store *store = arg;

	/* on Linux, niceness is per thread; a failure is harmless */
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
