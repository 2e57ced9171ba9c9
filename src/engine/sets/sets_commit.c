/*-------------------------------------------------------------------------
 *
 * sets_commit.c
 *	  The view that a load or refresh of sets publishes, or rows of a feed.
 *
 * Small segments are merged, and dead rows removed, in the background
 * (merge.c).  An update does this itself only if the mergers cannot keep
 * pace, and only as far as that takes a few milliseconds, for a search waits
 * for it: with very many segments, it merges the smallest ones; if most rows
 * are dead and few live, it sorts all rows anew.  Before that it has waited a
 * little for the mergers (gpuvec_merger_let_work).  A mirror that has got too
 * many numbers of ids is given up, and loaded anew.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "core/clock.h"
#include "engine/sets/draft.h"
#include "engine/sets/renumber.h"
#include "engine/sets/sets_mirror.h"

/* Most rows are dead if more than 6 of 10 are */
#define TOO_MANY_DEAD(dead, all)	((dead) * 10 > (all) * 6)

/*
 * If there are more than MANY_SEGMENTS segments beyond those needed, the
 * smallest ones are merged
 */
#define MANY_SEGMENTS		64

/* So many numbers of ids cost little, whether rows have these ids or not */
#define FEW_NUMBERS			(1 << 20)

/* Rows that an update merges beside its own, or twice its own */
#define MERGE_ROWS			16384

/*
 * Adjust the charge to what is built and what is still staged; called while
 * segments are built
 */
static bool
charge_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	gpuvec_sets_update *sets = arg;
	bool		on_device = sets->base.mirror->device->backend->on_device;
	size_t		bytes = built;

	if (!on_device)
		bytes += staged + sets->message_bytes + gpuvec_sets_new_numbers_bytes(sets) +
			gpuvec_update_noted_bytes(&sets->base);

	/*
	 * the rows taken are charged already, as segments: charge only more than
	 * that
	 */
	if (on_device && bytes < sets->base.mirror->updating)
		return true;
	return gpuvec_store_charge(sets->base.store, sets->base.mirror, &sets->base.mirror->updating, bytes,
							   true, error);
}

/*
 * Build segments of the staged rows, and add them to the draft.  all: these
 * are all rows of the mirror.
 */
static bool
build_staged(gpuvec_sets_update *sets, uint32_t nblocks, uint64_t nrows, bool all,
			 gpuvec_draft *draft, gpuvec_error *error)
{
	gpuvec_stage_target target = {
		.pool = draft->pool, .backend = draft->backend, .nblocks = nblocks, .nrows = nrows,
		.shares = gpuvec_thread_pool_threads(draft->pool), .sorted = all,
		.progress = charge_progress, .arg = sets
	};

	return nrows == 0 || gpuvec_draft_build(draft, sets->stage, &target, error);
}

/* Bury the rows of replaced pages, and those behind the relation's end */
static bool
bury_pages(gpuvec_sets_update *sets, uint32_t nblocks, gpuvec_draft *draft, bool *buried,
		   gpuvec_error *error)
{
	uint32_t	limit = sets->base.mirror->nblocks;
	uint64_t	n;
	uint32_t   *blocks = gpuvec_update_replaced(&sets->base, &n, error);
	bool		ok;

	if (blocks == NULL)
		return false;
	*buried = false;
	ok = (n == 0 && nblocks >= limit) ||
		gpuvec_draft_bury(draft, blocks, n, nblocks, limit, buried, error);
	free(blocks);
	return ok;
}

/* Bury the rows under the line pointers of a feed's rows */
static bool
bury_fed(gpuvec_sets_update *sets, gpuvec_draft *draft, bool *buried, gpuvec_error *error)
{
	const gpuvec_update *update = &sets->base;
	uint64_t   *tids = malloc((update->nfed + 1) * sizeof(uint64_t));
	uint64_t	n = 0;
	bool		ok;

	if (tids == NULL)
		return gpuvec_fail_memory(error, update->nfed * sizeof(uint64_t));
	for (uint64_t i = 0; i < update->nfed; i++)
		if (gpuvec_tid_block(update->fed[i].tid) < update->mirror->nblocks)
			tids[n++] = update->fed[i].tid;
	ok = gpuvec_draft_bury_lines(draft, tids, n, buried, error);
	free(tids);
	return ok;
}

/* Bury the rows that a refresh replaces: whole pages, and lines of others */
static bool
bury_replaced(gpuvec_sets_update *sets, uint32_t nblocks, gpuvec_draft *draft, bool *buried,
			  gpuvec_error *error)
{
	const gpuvec_update *update = &sets->base;
	bool		buried_pages;

	if (!bury_pages(sets, nblocks, draft, &buried_pages, error))
		return false;
	*buried = false;
	if (update->nlines > 0 &&
		!gpuvec_draft_bury_lines(draft, update->lines, update->nlines, buried, error))
		return false;
	*buried |= buried_pages;
	return true;
}

/* Bury the rows that an update replaces */
static bool
bury_old(gpuvec_sets_update *sets, uint32_t nblocks, gpuvec_draft *draft, bool *buried,
		 gpuvec_error *error)
{
	return sets->base.fed ? bury_fed(sets, draft, buried, error) :
		bury_replaced(sets, nblocks, draft, buried, error);
}

/* Order of entries: those with the most live rows first */
static int
compare_entries(const void *a, const void *b)
{
	uint32_t	x = gpuvec_entry_rows(a);
	uint32_t	y = gpuvec_entry_rows(b);

	return x > y ? -1 : x < y;
}

/*
 * Returns the entry from which on rows are sorted anew, together with `fresh`
 * new rows.  draft->n: none; 0: all.  Puts the entries into the order of
 * their sizes for that: their order in a view means nothing.
 */
static uint32_t
choose_merge(gpuvec_draft *draft, uint64_t fresh)
{
	gpuvec_draft_size all = gpuvec_draft_measure(draft, 0);
	uint64_t	most = MERGE_ROWS + 2 * fresh;
	uint32_t	first = draft->n;
	uint64_t	sum = 0;

	if (TOO_MANY_DEAD(all.rows - all.live, all.rows + fresh) && all.live <= most)
		return 0;
	if (draft->n <= MANY_SEGMENTS + gpuvec_segments_needed(draft->backend, all.live + fresh,
														   gpuvec_thread_pool_threads(draft->pool)))
		return draft->n;
	qsort(draft->entries, draft->n, sizeof(*draft->entries), compare_entries);
	while (first > 0)
	{
		sum += gpuvec_entry_rows(&draft->entries[first - 1]);
		if (sum > most)
			break;
		first--;
	}
	return first;
}

/*
 * Is the mirror hopeless?  It is if most rows are dead, and there was not
 * even memory to rebuild a single segment.
 */
static bool
is_hopeless(const gpuvec_sets_mirror *mirror, const gpuvec_draft *draft)
{
	gpuvec_draft_size all = gpuvec_draft_measure(draft, 0);

	return TOO_MANY_DEAD(all.rows - all.live, all.rows) &&
		__atomic_load_n(&mirror->most_merged, __ATOMIC_RELAXED) == 0;
}

/*
 * Stage the rows of the entries that are to be sorted anew.  The old segments
 * stay in memory, as searches still use them, so this needs more memory.  If
 * there is none, sorting is left to the mergers; *first is then draft->n.
 */
static bool
unbuild(gpuvec_sets_update *sets, gpuvec_draft *draft, uint32_t *first, gpuvec_error *error)
{
	gpuvec_draft_size size = gpuvec_draft_measure(draft, *first);

	if (*first == draft->n)
		return true;
	if (!gpuvec_store_charge(sets->base.store, sets->base.mirror, &sets->base.mirror->updating,
							 sets->base.mirror->updating + size.bytes, false, error))
	{
		*first = draft->n;
		return true;
	}
	if (*first == 0)
		sets->sorted_rows = size.live + gpuvec_stage_rows(sets->stage);
	return gpuvec_draft_unbuild(draft, *first, NULL, sets->stage, error);
}

/* Make the new view of a refresh or of a feed, with `fresh` new rows */
static bool
refresh_view(gpuvec_sets_update *sets, uint32_t nblocks, uint64_t fresh, gpuvec_draft *draft,
			 gpuvec_error *error)
{
	const gpuvec_sets_mirror *mirror = (const gpuvec_sets_mirror *) sets->base.mirror;
	uint64_t	behind = gpuvec_stage_rows(sets->stage) - fresh;
	bool		buried;
	uint32_t	first;

	sets->sorted_rows = mirror->sorted_rows;
	if (!gpuvec_draft_copy(draft, mirror->view, error) ||
		!bury_old(sets, nblocks, draft, &buried, error))
		return false;
	if (!buried && fresh == 0)
	{
		/* no row has changed */
		sets->view = gpuvec_view_ref(mirror->view);
		return true;
	}
	if (is_hopeless(mirror, draft))
	{
		sets->base.hopeless = "there is no memory to rebuild it";
		return true;
	}
	first = choose_merge(draft, fresh);
	if (!unbuild(sets, draft, &first, error) ||
		!build_staged(sets, nblocks, gpuvec_stage_rows(sets->stage) - behind, first == 0, draft,
					  error))
		return false;
	sets->view = gpuvec_draft_finish(draft, error);
	return sets->view != NULL;
}

/* Make the new view of a load, of `fresh` rows */
static bool
load_view(gpuvec_sets_update *sets, uint32_t nblocks, uint64_t fresh, gpuvec_draft *draft,
		  gpuvec_error *error)
{
	sets->sorted_rows = fresh;
	if (!build_staged(sets, nblocks, fresh, true, draft, error))
		return false;
	sets->view = gpuvec_draft_finish(draft, error);
	return sets->view != NULL;
}

/* Charge what numbering ids takes, besides the staged rows */
static bool
charge_numbering(void *arg, size_t bytes, gpuvec_error *error)
{
	gpuvec_update *update = arg;

	return gpuvec_store_charge(update->store, update->mirror, &update->mirror->updating,
							   gpuvec_sets_bytes_taken(update) + bytes, true, error);
}

/*
 * The numbers of ids that the update's rows get; NULL: they keep their ids.
 * Where no row has any yet, the frequent ids are to be hot.
 */
static bool
choose_numbers(gpuvec_sets_update *sets, gpuvec_error *error)
{
	const gpuvec_sets_mirror *mirror = (const gpuvec_sets_mirror *) sets->base.mirror;
	gpuvec_thread_pool *pool = sets->base.store->pool;
	bool		wide = gpuvec_stage_cold(sets->stage) > 0;

	if (!sets->base.load && mirror->id_numbers)
		sets->id_numbers = gpuvec_id_numbers_ref(mirror->id_numbers);
	else if (wide)
		sets->id_numbers = sets->base.load || mirror->view->nrows == 0 ?
			gpuvec_renumber_map(sets->stage, pool, charge_numbering, sets, error) :
			gpuvec_id_numbers_narrow(error);
	return sets->id_numbers || !wide;
}

/*
 * True if most ids that have numbers are in no row any more.  Nothing takes a
 * number away, so with ever new ids the map would outgrow all else.  A mirror
 * that was just loaded has no more numbers than ids, and gets so many new
 * ones before it is loaded again that this pays.
 */
static bool
has_old_numbers(const gpuvec_sets_mirror *mirror)
{
	return mirror->id_numbers &&
		gpuvec_id_numbers_count(mirror->id_numbers) > 2 * mirror->base.nids + FEW_NUMBERS;
}

/*
 * Number the ids of the staged rows.  Numbers that new ids get stay theirs,
 * even if the update fails.
 */
static bool
number_rows(gpuvec_sets_update *sets, gpuvec_error *error)
{
	gpuvec_thread_pool *pool = sets->base.store->pool;
	bool		complete = sets->base.load; /* its map is made of its rows */
	uint64_t	began = gpuvec_clock_ns();
	bool		ok = choose_numbers(sets, error);

	if (ok && sets->id_numbers)
		ok = gpuvec_update_charge(&sets->base, error) &&
			gpuvec_renumber_rows(&sets->stage, sets->id_numbers, complete, pool, error) &&
			gpuvec_update_charge(&sets->base, error);
	sets->base.numbering = gpuvec_clock_ns() - began;
	return ok;
}

bool
gpuvec_sets_prepare(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_sets_update *sets = (gpuvec_sets_update *) update;
	gpuvec_draft draft = {.backend = update->mirror->device->backend, .pool = update->store->pool};
	uint64_t	fresh = gpuvec_stage_rows(sets->stage);
	bool		ok;

	if (!update->load && has_old_numbers((const gpuvec_sets_mirror *) update->mirror))
	{
		update->hopeless = "most ids that it has numbers for are in no row any more";
		return true;
	}
	if (!number_rows(sets, error))
		return false;
	for (uint64_t i = update->npages; i > 0 && update->pages[i - 1].block >= nblocks; i--)
		fresh -= update->pages[i - 1].nrows;
	ok = update->load ? load_view(sets, nblocks, fresh, &draft, error) :
		refresh_view(sets, nblocks, fresh, &draft, error);
	gpuvec_draft_free(&draft);
	/* before anybody can search the view: copies are as fresh as it is */
	if (ok && sets->view)
		gpuvec_sets_copy(update->store, (gpuvec_sets_mirror *) update->mirror, sets->view,
						 &update->mirror->updating);
	return ok;
}
