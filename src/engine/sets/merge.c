/*-------------------------------------------------------------------------
 *
 * merge.c
 *	  Merging the segments of a mirror in the background.
 *
 * A refresh puts new rows into a small segment of their own, and buries the
 * rows that they replace, so that the search that needs it waits as little as
 * possible.  Two threads, the mergers, tidy up later.  One
 * merges small segments, which come often and are merged quickly.  The other
 * one rebuilds large segments, which takes long; the first one does not wait
 * for it.  merge_choose.c says what they merge.
 *
 * A merge changes no row, only where rows are stored.  It takes entries of
 * the current view, its sources, and builds segments of the rows that are
 * live there.  No other merge takes these sources until it ends.  Meanwhile
 * refreshes, and the other merger, may publish other views, with other
 * segments and more dead rows.  So at the end the merge catches up with the
 * latest view: it buries in the new segments the rows that have died in the
 * sources since.  Then it replaces the sources by the new segments in that
 * view, and publishes it.  If a source is no longer in the latest view, all
 * its rows are dead: an update has put those that live into other segments.
 *
 * Each merge catches up from where it was last, so a second attempt has
 * little left to do.  It is needed if meanwhile another view was published or
 * is about to be.  After TRIES attempts the merge keeps updates from
 * publishing until it is done, or a flood of them would never let it.
 *
 * A merge holds references to its sources only, never to a view: the segments
 * that others replace meanwhile are freed at once.
 *
 * After a refresh a search usually follows at once, and often another
 * refresh.  So a merger waits for START_NAP_US before it begins.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/fault.h"
#include "engine/sets/draft.h"
#include "engine/sets/sets_mirror.h"

/*
 * Niceness of the merger of large segments.  The one of small segments has
 * little to do, and must keep pace on a busy machine.
 */
#define LARGE_NICE		5

/* Microseconds before a merge begins */
#define START_NAP_US	10000

/* Attempts to publish before updates are kept out */
#define TRIES			3

/*
 * After merges of more than TRIM_ROWS rows, free memory is returned to the
 * system
 */
#define TRIM_ROWS			100000

/*
 * An update that finds the mergers behind naps for up to PATIENCE_US, in
 * steps of PATIENCE_NAP_US
 */
#define PATIENCE_US		3000
#define PATIENCE_NAP_US	500

/* A merger: a thread, and what wakes it */
typedef struct merger
{
	gpuvec_store *store;
	gpuvec_merge_level level;
	uint64_t	looks;			/* at mirrors */
	pthread_cond_t work;		/* used with the store's mutex */
	int			wake;			/* atomic: work was found since the thread was
								 * last woken */
	gpuvec_thread_pool *pool;	/* a pool of one thread, the merger itself */
} merger;

struct gpuvec_merger
{
	merger		levels[GPUVEC_MERGE_LEVELS];
};

/* A merge that is running */
typedef struct merge_run
{
	merger	   *merger;
	gpuvec_store *store;
	gpuvec_sets_mirror *mirror; /* with a reference */
	gpuvec_draft sources;		/* the entries that are merged, as they were
								 * in the view that was looked at last */
	gpuvec_draft merged;		/* the entries that replace them, without the
								 * rows that have died in that view */
	bool		all;			/* all rows are sorted */
	bool		fewer;			/* gpuvec_merge_choice.fewer */
} merge_run;

/* Bytes charged for a running merge */
static size_t *
charge_of(const merge_run *m)
{
	return &m->mirror->base.background[m->merger->level];
}

/* Bury a row in the entry that has it */
static bool
bury_row(gpuvec_draft *merged, uint64_t tid, uint32_t len, gpuvec_error *error)
{
	for (uint32_t i = 0; i < merged->n; i++)
	{
		const gpuvec_segment *segment = merged->entries[i].segment;
		uint32_t	at;

		if (len < segment->minlen || len > segment->maxlen)
			continue;
		at = gpuvec_segment_find(segment, tid);
		if (at < segment->nrows && segment->tid[segment->by_tid[at]] == tid)
			return gpuvec_entry_bury(&merged->entries[i], segment->by_tid[at], error);
	}
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					   "a row is missing among those that were merged");
}

/* The live rows among the 32 from `row` on, as bits; NULL: none */
static uint32_t
live_word(const gpuvec_view_entry *entry, uint32_t row)
{
	if (entry == NULL)
		return 0;
	return entry->live ? entry->live->bits[row / 32] : UINT32_MAX;
}

/*
 * Bury in the new entries those rows of a source that have died since.
 * before: the source as it was; now: its entry in the latest view; NULL: all
 * of its rows have died.
 */
static bool
bury_died(const gpuvec_view_entry *before, const gpuvec_view_entry *now, gpuvec_draft *merged,
		  gpuvec_error *error)
{
	const gpuvec_segment *segment = before->segment;

	if (now != NULL && now->live == before->live)
		return true;
	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		if (row % 32 == 0 && live_word(before, row) == live_word(now, row))
		{
			row += 31;
			continue;
		}
		if (gpuvec_entry_live(before, row) && (now == NULL || !gpuvec_entry_live(now, row)) &&
			!bury_row(merged, segment->tid[row], segment->len[row], error))
			return false;
	}
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
 * Catch up with a view: bury what has died in the sources, and keep these as
 * they are there.  A source that is gone is kept without live rows.
 */
static bool
catch_up(merge_run *m, const gpuvec_view *now, gpuvec_error *error)
{
	for (uint32_t i = 0; i < m->sources.n; i++)
	{
		gpuvec_view_entry *source = &m->sources.entries[i];
		const gpuvec_view_entry *latest = entry_of(now, source->segment);
		gpuvec_livemap *live;

		if (!bury_died(source, latest, &m->merged, error))
			return false;
		live = latest ? gpuvec_livemap_ref(latest->live) :
			gpuvec_livemap_none(source->segment->nrows, error);
		if (latest == NULL && live == NULL)
			return false;
		gpuvec_livemap_unref(source->live);
		source->live = live;
	}
	return true;
}

/*
 * Draft the new view: the latest view, with the new segments in the place of
 * the sources
 */
static bool
draft_view(const merge_run *m, const gpuvec_view *now, gpuvec_draft *draft, gpuvec_error *error)
{
	for (uint32_t i = 0; i < now->nentries; i++)
		if (!gpuvec_draft_has(&m->sources, now->entries[i].segment) &&
			!gpuvec_draft_add_entry(draft, &now->entries[i], error))
			return false;
	for (uint32_t i = 0; i < m->merged.n; i++)
		if (!gpuvec_draft_add_entry(draft, &m->merged.entries[i], error))
			return false;
	gpuvec_draft_drop_dead(draft);
	return true;
}

/* Make the new view from the latest one; NULL on failure */
static gpuvec_view *
make_view(merge_run *m, const gpuvec_view *now, gpuvec_error *error)
{
	gpuvec_draft draft = {.backend = m->merged.backend, .pool = m->merger->pool};
	gpuvec_view *view = NULL;

	if (catch_up(m, now, error) && draft_view(m, now, &draft, error))
		view = gpuvec_draft_finish(&draft, error);
	gpuvec_draft_free(&draft);
	if (view)
		gpuvec_sets_copy(m->store, m->mirror, view, charge_of(m));
	return view;
}

/*
 * The latest view, with a reference, or NULL if the mirror was dropped.  If
 * `claim`, no other thread may publish one from now on.
 */
static gpuvec_view *
latest_view(const merge_run *m, bool claim)
{
	gpuvec_mirror *mirror = &m->mirror->base;
	gpuvec_view *now = NULL;

	pthread_mutex_lock(&m->store->mutex);
	if (claim)
		gpuvec_store_claim(m->store, mirror);
	if (mirror->listed)
		now = gpuvec_view_ref(m->mirror->view);
	else if (claim)
		gpuvec_store_unclaim(m->store, mirror);
	pthread_mutex_unlock(&m->store->mutex);
	return now;
}

/*
 * Replace the view `now` by the new view.  False if the mirror has another
 * view, or an update is about to publish one, or the mirror was dropped.  The
 * caller holds the mutex.
 */
static bool
replace_view(const merge_run *m, const gpuvec_view *now, gpuvec_view *view, bool claimed)
{
	gpuvec_sets_mirror *mirror = m->mirror;

	if (!mirror->base.listed || mirror->view != now || (mirror->base.committing && !claimed))
		return false;
	gpuvec_sets_set_view(m->store, mirror, view);
	if (m->all)
		mirror->sorted_rows = view->nrows;
	*charge_of(m) = 0;
	gpuvec_store_settle(&mirror->base);
	return true;
}

/*
 * Try to publish the merged segments.  False on failure.  Sets *done if they
 * are published, or the mirror was dropped.
 */
static bool
try_publish(merge_run *m, bool claim, bool *done, gpuvec_error *error)
{
	gpuvec_view *now = latest_view(m, claim);
	gpuvec_view *view;

	*done = now == NULL;
	if (*done)
		return true;
	view = make_view(m, now, error);
	gpuvec_fault_sleep("slow-publish", NULL);
	pthread_mutex_lock(&m->store->mutex);
	if (view != NULL)
		*done = replace_view(m, now, view, claim);
	if (claim)
		gpuvec_store_unclaim(m->store, &m->mirror->base);
	pthread_mutex_unlock(&m->store->mutex);

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

	for (int tries = 0; !done; tries++)
		if (!try_publish(m, tries >= TRIES, &done, error))
			return false;
	return true;
}

/*
 * Adjust the charge to what is built and staged; called while segments are
 * built
 */
static bool
charge_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	merge_run  *m = arg;
	size_t		bytes = built + (m->merged.backend->on_device ? 0 : staged);

	/* all is charged already, as old segments: charge only more than that */
	return bytes <= *charge_of(m) ||
		gpuvec_store_charge(m->store, &m->mirror->base, charge_of(m), bytes, false, error);
}

/* Are all sources sorted segments? */
static bool
all_sorted(const merge_run *m)
{
	for (uint32_t i = 0; i < m->sources.n; i++)
		if (!m->sources.entries[i].segment->sorted)
			return false;
	return true;
}

/*
 * Threads that will share a search by the new segments: as many as there are
 * sources, unless these are too many
 */
static int
choose_shares(const merge_run *m)
{
	int			threads = gpuvec_thread_pool_threads(m->store->pool);

	if (m->merger->level == GPUVEC_MERGE_SMALL || m->fewer)
		return 1;
	return m->all || m->sources.n > (uint32_t) threads ? threads : (int) m->sources.n;
}

/* Build the segments of the staged rows */
static bool
build_staged(merge_run *m, gpuvec_stage *stage, gpuvec_error *error)
{
	gpuvec_stage_target target = {
		.pool = m->merger->pool, .backend = m->merged.backend,
		.nblocks = UINT32_MAX, .nrows = gpuvec_stage_rows(stage), .shares = choose_shares(m),
		.sorted = m->all || all_sorted(m), .progress = charge_progress, .arg = m
	};

	return target.nrows == 0 || gpuvec_draft_build(&m->merged, stage, &target, error);
}

/*
 * Have large segments finished before they replace others that are, or a
 * search would take longer in the meantime
 */
static void
finish(const merge_run *m)
{
	gpuvec_backend *backend = m->merged.backend;

	for (uint32_t i = 0; i < m->merged.n; i++)
		if (m->merger->level == GPUVEC_MERGE_LARGE && backend->finish_segment)
			backend->finish_segment(backend, m->merged.entries[i].segment);
}

/* Stage the rows, and build the new segments */
static bool
build(merge_run *m, gpuvec_error *error)
{
	gpuvec_draft draft = {.backend = m->merged.backend, .pool = m->merger->pool};
	gpuvec_stage *stage = gpuvec_stage_new(gpuvec_sets_row_kind(&m->mirror->base.key));
	bool		ok = stage != NULL || gpuvec_fail_memory(error, 0);

	for (uint32_t i = 0; ok && i < m->sources.n; i++)
		ok = gpuvec_draft_add_entry(&draft, &m->sources.entries[i], error);
	ok = ok && gpuvec_store_charge(m->store, &m->mirror->base, charge_of(m),
								   gpuvec_draft_measure(&draft, 0).bytes, false, error) &&
		gpuvec_draft_unbuild(&draft, 0, NULL, stage, error) && build_staged(m, stage, error);
	gpuvec_draft_free(&draft);
	gpuvec_stage_free(stage);
	if (ok)
		finish(m);
	return ok;
}

/* What the other merger is merging of a mirror, or NULL */
static const gpuvec_draft *
busy_with(const merge_run *m)
{
	const merge_run *other = m->mirror->merging[1 - m->merger->level];

	return other ? &other->sources : NULL;
}

/* What choices depend on; the caller holds the mutex */
static gpuvec_merge_state
state_of(const gpuvec_store *store, const gpuvec_sets_mirror *mirror)
{
	gpuvec_merge_state state = {
		.view = mirror->view, .sorted_rows = mirror->sorted_rows,
		.threads = gpuvec_thread_pool_threads(store->pool), .most = UINT32_MAX
	};

	return state;
}

/*
 * Choose the sources of a merge.  False if none is due, or out of memory.
 * The caller holds the mutex.
 */
static bool
choose_sources(merge_run *m)
{
	const gpuvec_view *view = m->mirror->view;
	gpuvec_merge_state state = state_of(m->store, m->mirror);
	gpuvec_merge_choice choice = {.entries = malloc((view->nentries + 1) * sizeof(uint32_t))};
	gpuvec_error error;
	bool		ok = choice.entries != NULL;

	state.busy = busy_with(m);
	if (m->merger->level == GPUVEC_MERGE_LARGE)
		state.most = m->mirror->most_merged;
	if (ok)
		gpuvec_merge_choose(m->merger->level, &state, &choice);
	m->all = choice.all;
	m->fewer = choice.fewer;
	for (uint32_t i = 0; ok && i < choice.n; i++)
		ok = gpuvec_draft_add_entry(&m->sources, &view->entries[choice.entries[i]], &error);
	free(choice.entries);
	return ok && m->sources.n > 0;
}

/*
 * Begin a merge of a mirror.  False if none is due.  The caller holds the
 * mutex.
 */
static bool
begin(merge_run *m, gpuvec_sets_mirror *mirror)
{
	mirror->merge_due[m->merger->level] = false;
	mirror->looked_at[m->merger->level] = ++m->merger->looks;
	if (mirror->view == NULL)
		return false;
	m->mirror = mirror;
	m->sources.backend = m->merged.backend = mirror->base.device->backend;
	m->sources.pool = m->merged.pool = m->merger->pool;
	if (!choose_sources(m))
	{
		gpuvec_draft_free(&m->sources);
		return false;
	}
	mirror->base.refs++;
	mirror->merging[m->merger->level] = m;
	return true;
}

/* Set the most large segments of a merge; updates read it with no mutex */
static void
set_most(gpuvec_sets_mirror *mirror, uint32_t most)
{
	__atomic_store_n(&mirror->most_merged, most, __ATOMIC_RELAXED);
}

/*
 * Note how a merge went.  After a success another one may be due, of either
 * merger.  If one of large segments has failed, the next one takes half as
 * many.
 */
static void
note_end(merge_run *m, bool ok)
{
	gpuvec_sets_mirror *mirror = m->mirror;

	mirror->merging[m->merger->level] = NULL;
	if (ok && mirror->view != NULL)
		gpuvec_merger_look(m->store, mirror);
	if (m->merger->level == GPUVEC_MERGE_SMALL)
		return;
	if (!ok)
		set_most(mirror, m->sources.n / 2);
	else if (mirror->most_merged < UINT32_MAX / 2)
		set_most(mirror, mirror->most_merged * 2 + 1);
}

/* Return free memory to the system */
static void
trim(gpuvec_backend *backend)
{
	malloc_trim(0);
	if (backend->trim)
		backend->trim(backend);
}

/* End a merge: drop its charge and its references */
static void
end(merge_run *m, bool ok)
{
	uint64_t	rows = gpuvec_draft_measure(&m->merged, 0).rows;
	gpuvec_error error;

	pthread_mutex_lock(&m->store->mutex);
	note_end(m, ok);
	pthread_mutex_unlock(&m->store->mutex);
	gpuvec_merger_wake(m->store);
	(void) gpuvec_store_charge(m->store, &m->mirror->base, charge_of(m), 0, false, &error);
	gpuvec_draft_free(&m->sources);
	gpuvec_draft_free(&m->merged);
	gpuvec_store_release(m->store, &m->mirror->base);
	if (rows > TRIM_ROWS)
		trim(m->merged.backend);
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
	if (m->merger->level == GPUVEC_MERGE_LARGE)
		gpuvec_fault_sleep("slow-sort", NULL);
	end(m, ok && publish(m, &error));
}

/*
 * A mirror in which a merge may be due, or NULL: the one that has waited
 * longest, as there may always be work in some.  The caller holds the mutex.
 */
static gpuvec_sets_mirror *
next_due(const merger *level)
{
	gpuvec_sets_mirror *next = NULL;

	for (gpuvec_mirror *mirror = level->store->mirrors; mirror; mirror = mirror->next)
	{
		gpuvec_sets_mirror *sets = gpuvec_sets_of(mirror);

		if (sets && sets->merge_due[level->level] &&
			(next == NULL || sets->looked_at[level->level] < next->looked_at[level->level]))
			next = sets;
	}
	return next;
}

/* A merger's thread: runs the merges that are due */
static void *
merger_thread(void *arg)
{
	merger	   *level = arg;
	gpuvec_store *store = level->store;

	/* on Linux, niceness is per thread; a failure is harmless */
	if (level->level == GPUVEC_MERGE_LARGE)
		(void) setpriority(PRIO_PROCESS, 0, LARGE_NICE);
	pthread_mutex_lock(&store->mutex);
	for (;;)
	{
		gpuvec_sets_mirror *mirror;

		if (next_due(level) == NULL)
		{
			pthread_cond_wait(&level->work, &store->mutex);
			pthread_mutex_unlock(&store->mutex);
			usleep(START_NAP_US);
			pthread_mutex_lock(&store->mutex);
		}
		while ((mirror = next_due(level)) != NULL)
		{
			merge_run	m = {.merger = level, .store = store};

			if (!begin(&m, mirror))
				continue;
			pthread_mutex_unlock(&store->mutex);
			run(&m);
			pthread_mutex_lock(&store->mutex);
		}
	}
	return NULL;
}

/* Start a merger */
static bool
start_level(merger *level)
{
	pthread_cond_init(&level->work, NULL);
	level->pool = gpuvec_thread_pool_new(1);
	return level->pool != NULL && gpuvec_thread_start(merger_thread, level);
}

bool
gpuvec_merger_start(gpuvec_store *store)
{
	store->merger = calloc(1, sizeof(*store->merger));
	if (store->merger == NULL)
		return false;
	for (int i = 0; i < GPUVEC_MERGE_LEVELS; i++)
	{
		store->merger->levels[i].store = store;
		store->merger->levels[i].level = (gpuvec_merge_level) i;
		if (!start_level(&store->merger->levels[i]))
			return false;
	}
	return true;
}

void
gpuvec_merger_look(gpuvec_store *store, gpuvec_sets_mirror *mirror)
{
	gpuvec_merge_state state = state_of(store, mirror);

	for (int i = 0; i < GPUVEC_MERGE_LEVELS; i++)
	{
		if (mirror->merge_due[i] || !gpuvec_merge_due((gpuvec_merge_level) i, &state))
			continue;
		mirror->merge_due[i] = true;
		__atomic_store_n(&store->merger->levels[i].wake, 1, __ATOMIC_RELAXED);
	}
}

void
gpuvec_merger_wake(gpuvec_store *store)
{
	for (int i = 0; i < GPUVEC_MERGE_LEVELS; i++)
		if (__atomic_exchange_n(&store->merger->levels[i].wake, 0, __ATOMIC_RELAXED))
			pthread_cond_signal(&store->merger->levels[i].work);
}

void
gpuvec_merger_let_work(gpuvec_store *store, gpuvec_sets_mirror *mirror)
{
	for (int us = 0; us < PATIENCE_US; us += PATIENCE_NAP_US)
	{
		gpuvec_merge_state state;
		bool		behind;

		pthread_mutex_lock(&store->mutex);
		state = state_of(store, mirror);
		behind = mirror->view != NULL && mirror->most_merged > 0 && gpuvec_merge_behind(&state);
		pthread_mutex_unlock(&store->mutex);
		if (!behind)
			break;
		gpuvec_merger_wake(store);
		usleep(PATIENCE_NAP_US);
	}
}
