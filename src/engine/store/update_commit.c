/*-------------------------------------------------------------------------
 *
 * update_commit.c
 *	  Publishing a load, a refresh, or rows of a feed: the rows, the pages'
 *	  LSNs and numbers, and the state of the mirror change in one step.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/log.h"
#include "engine/store/joint_load.h"

/* Rows of a load that tells the log what it took */
#define LOGGED_ROWS		10000

/* True if every page that the mirror does not have yet was sent */
static bool
pages_complete(const gpuvec_update *update, uint32_t nblocks)
{
	uint32_t	next = update->load ? 0 : update->mirror->nblocks;

	for (uint64_t i = 0; i < update->npages; i++)
		if (update->pages[i].block == next)
			next++;
	return next >= nblocks;
}

uint32_t *
gpuvec_update_replaced(const gpuvec_update *update, uint64_t *n, gpuvec_error *error)
{
	uint32_t   *blocks = malloc((update->npages + 1) * sizeof(uint32_t));

	*n = 0;
	if (blocks == NULL)
	{
		gpuvec_fail_memory(error, update->npages * sizeof(uint32_t));
		return NULL;
	}
	for (uint64_t i = 0; i < update->npages; i++)
		if (!update->pages[i].same && !update->pages[i].partial &&
			update->pages[i].block < update->mirror->nblocks)
			blocks[(*n)++] = update->pages[i].block;
	return blocks;
}

/* Add what other sessions have sent of a load, and charge all of it */
static bool
gather(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	return update->joint == NULL ||
		(gpuvec_joint_gather(update, nblocks, error) && gpuvec_update_charge(update, error));
}

/* Let the kind prepare the new rows, those of pages below nblocks */
static bool
prepare_rows(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	if (gpuvec_fault_due("oom-on-commit"))
		return gpuvec_fail_memory(error, 1);
	return update->mirror->kind->prepare(update, nblocks, error);
}

/*
 * True if this update gives a page another number.  Rows of a feed are not
 * all of their page: unless the page is new, it keeps the number of the
 * refresh that read it.
 */
static bool
numbers_page(const gpuvec_update *update, const gpuvec_sent_page *page)
{
	const gpuvec_mirror *mirror = update->mirror;

	if (page->block >= mirror->nblocks)
		return true;
	return update->fed == NULL &&
		!(page->partial &&
		  gpuvec_page_numbers_get(mirror->numbers, page->block) == GPUVEC_UNPROVEN);
}

/* The number that it gives the page */
static uint64_t
number_of(const gpuvec_update *update, const gpuvec_sent_page *page)
{
	if (page->partial)
		return GPUVEC_UNPROVEN;
	return page->newest ? GPUVEC_SETTLED | page->newest : update->mirror->refresh;
}

/*
 * Make the new table of page numbers; publish_pages() fills in its new
 * entries
 */
static bool
make_numbers(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_page_numbers *old = update->mirror->numbers;

	if (update->fed && nblocks == update->mirror->nblocks)
	{
		update->numbers = gpuvec_page_numbers_ref(old);
		return true;
	}
	update->numbers = gpuvec_page_numbers_new(old, nblocks);
	if (update->numbers == NULL)
		return gpuvec_fail_memory(error, nblocks * sizeof(uint64_t));
	for (uint64_t i = 0; i < update->npages && update->pages[i].block < nblocks; i++)
	{
		const gpuvec_sent_page *page = &update->pages[i];

		update->numbers->unproven |= page->partial;
		if (update->numbers->newest < page->newest)
			update->numbers->newest = page->newest;
		if (numbers_page(update, page) &&
			!gpuvec_page_numbers_own(update->numbers, page->block))
			return gpuvec_fail_memory(error, nblocks * sizeof(uint64_t));
	}
	return true;
}

/*
 * Make room for the state of pages.  Rows of a feed add pages one by one, so
 * there is some to spare: copying the state of all pages each time would take
 * longer than all else.
 */
static bool
reserve_pages(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	size_t		most = (mirror->nblocks > nblocks ? mirror->nblocks : nblocks) + (size_t) 1;
	size_t		capacity = update->fed ? most + most / 8 : most;
	gpuvec_page_state *pages;

	if (most <= mirror->page_capacity && most > mirror->page_capacity / 2)
		return true;
	pages = realloc(mirror->pages, capacity * sizeof(*pages));
	if (pages == NULL)
		return gpuvec_fail_memory(error, capacity * sizeof(*pages));
	mirror->pages = pages;
	mirror->page_capacity = capacity;
	return true;
}

/* The mirror's charge with its new rows, but not less than now */
static size_t
charge_with_rows(gpuvec_update *update, uint32_t nblocks, size_t *charged)
{
	gpuvec_mirror *mirror = update->mirror;
	size_t		bytes = gpuvec_store_bytes(mirror, update, nblocks);

	pthread_mutex_lock(&update->store->mutex);
	bytes += gpuvec_store_background(mirror);
	*charged = mirror->charged;
	pthread_mutex_unlock(&update->store->mutex);
	return bytes > *charged ? bytes : *charged;
}

/* The new rows have no copies on other devices */
static void
drop_copies(gpuvec_update *update)
{
	gpuvec_mirror *mirror = update->mirror;
	gpuvec_copies *copies = mirror->kind->take_copies(mirror, update, NULL);

	if (copies)
		mirror->device->backend->copier->free_copies(copies);
}

/*
 * Charge what the mirror will take with its new rows.  Until they are
 * published, the charge is not lowered.  If that does not fit, they do without
 * copies before anything is evicted.
 */
static bool
charge_rows(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	size_t		charged;
	size_t		bytes = charge_with_rows(update, nblocks, &charged);

	if (gpuvec_store_charge_spare(update->store, mirror, &charged, bytes))
		return true;
	if (mirror->kind->take_copies)
		drop_copies(update);
	bytes = charge_with_rows(update, nblocks, &charged);
	return gpuvec_store_charge(update->store, mirror, &charged, bytes, true, error);
}

/* Count an update of a mirror; rows are those that its pages had */
static void
count_update(const gpuvec_update *update, uint64_t rows)
{
	gpuvec_mirror *mirror = update->mirror;

	if (update->fed)
	{
		mirror->row_updates++;
		mirror->rows_applied += update->fed_rows;
		return;
	}
	if (update->load)
		mirror->loads++;
	else
	{
		mirror->refreshes++;
		mirror->page_rows += rows;
	}
	mirror->last_use = gpuvec_clock_us();
}

/*
 * Publish how fresh the mirror is.  If pages come from behind `checked` and
 * name no number of its feed, records of the feed may be older than they are:
 * the mirror follows the feed no longer.
 */
static void
publish_positions(gpuvec_mirror *mirror, const gpuvec_commit *commit)
{
	bool		later = commit->position > mirror->checked;

	if (later)
		mirror->checked = commit->position;
	if (commit->feed == 0 ? later :
		mirror->feed != commit->feed || mirror->applied < commit->applied)
	{
		mirror->feed = commit->feed;
		mirror->applied = commit->applied;
	}
}

/*
 * Publish the pages and the state of the mirror.  The replaced page numbers
 * are left in the update.  The caller holds the mutex.
 */
static void
publish_pages(gpuvec_update *update, const gpuvec_commit *commit)
{
	gpuvec_mirror *mirror = update->mirror;
	gpuvec_page_numbers *old = mirror->numbers;
	uint64_t	rows = 0;

	mirror->refresh = ++update->store->last_refresh;
	for (uint64_t i = 0; i < update->npages && update->pages[i].block < commit->nblocks; i++)
	{
		const gpuvec_sent_page *page = &update->pages[i];

		mirror->pages[page->block] = page->state;
		if (numbers_page(update, page))
			gpuvec_page_numbers_set(update->numbers, page->block, number_of(update, page));
		rows += page->nrows;
	}
	mirror->numbers = update->numbers;
	mirror->nblocks = commit->nblocks;
	publish_positions(mirror, commit);
	gpuvec_kept_trim(update->store, mirror);
	count_update(update, rows);
	update->numbers = old;
}

/*
 * Publish rows and pages in one step.  What they replace goes to the update.
 */
static void
publish(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_state *state)
{
	gpuvec_mirror *mirror = update->mirror;
	const gpuvec_mirror_kind *kind = mirror->kind;

	if (kind->exchange)
		kind->exchange(update, commit->nblocks);
	pthread_mutex_lock(&update->store->mutex);
	publish_pages(update, commit);
	kind->publish(update);
	mirror->updating = 0;
	gpuvec_store_settle(mirror);
	gpuvec_store_unclaim(update->store, mirror);
	update->committing = false;
	gpuvec_store_get_state(mirror, state);
	gpuvec_store_changed(update->store);
	pthread_mutex_unlock(&update->store->mutex);
	if (kind->published)
		kind->published(update, state);
}

/*
 * Drop a mirror that this update cannot bring up to date; it will be loaded
 * anew
 */
static void
give_up(gpuvec_update *update, gpuvec_state *state)
{
	gpuvec_log("LOG", "dropping the mirror of relation %u of database %u, as %s",
			   update->mirror->key.relation, update->mirror->key.database, update->hopeless);
	pthread_mutex_lock(&update->store->mutex);
	gpuvec_store_unlist(update->store, update->mirror);
	gpuvec_store_get_state(update->mirror, state);
	pthread_mutex_unlock(&update->store->mutex);
}

/* Keep other threads from publishing rows of this mirror */
static void
begin_commit(gpuvec_update *update)
{
	pthread_mutex_lock(&update->store->mutex);
	gpuvec_store_claim(update->store, update->mirror);
	update->committing = true;
	pthread_mutex_unlock(&update->store->mutex);
}

static double
milliseconds(uint64_t from, uint64_t to)
{
	return (double) (to - from) / 1e6;
}

/*
 * Log what the parts of a large load took.  The times are when its pages had
 * come, when their rows were prepared, and when they were published.
 */
static void
log_load(const gpuvec_update *update, uint64_t came, uint64_t prepared, uint64_t published)
{
	const gpuvec_mirror *mirror = update->mirror;
	uint64_t	nrows = mirror->kind->rows_taken(update);

	if (update->load && nrows >= LOGGED_ROWS)
		gpuvec_log("DEBUG", "loaded %llu rows of relation %u of database %u: pages came in %.0f ms, ids were numbered in %.0f, rows were prepared in %.0f, and published in %.0f",
				   (unsigned long long) nrows, mirror->key.relation, mirror->key.database,
				   milliseconds(update->began, came), milliseconds(0, update->numbering),
				   milliseconds(came + update->numbering, prepared), milliseconds(prepared, published));
}

bool
gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_state *state,
					 gpuvec_error *error)
{
	uint64_t	came = gpuvec_clock_ns();
	uint64_t	prepared;
	bool		ok;

	gpuvec_fault_crash("crash-on-commit");
	gpuvec_fault_sleep("slow-commit", NULL);
	ok = gather(update, commit->nblocks, error) &&
		(pages_complete(update, commit->nblocks) ||
		 gpuvec_update_bad_pages(error, "Pages are missing."));
	if (ok)
		begin_commit(update);
	ok = ok && prepare_rows(update, commit->nblocks, error);
	prepared = gpuvec_clock_ns();
	if (ok && update->hopeless)
		give_up(update, state);
	else if (ok)
	{
		ok = make_numbers(update, commit->nblocks, error) &&
			reserve_pages(update, commit->nblocks, error) &&
			charge_rows(update, commit->nblocks, error);
		if (ok)
		{
			publish(update, commit, state);
			log_load(update, came, prepared, gpuvec_clock_ns());
		}
	}
	gpuvec_update_end(update);
	return ok;
}
