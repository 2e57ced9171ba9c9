/*-------------------------------------------------------------------------
 *
 * update_rows.c
 *	  Taking rows of a feed, which come without their pages.
 *
 * A message has records of a feed, in the order in which things happened: a
 * line pointer may get a row, lose it, and get another one.  So the last
 * record of a line pointer counts, and whatever the mirror has under the line
 * pointer is replaced.  Records that the mirror has applied are skipped: what
 * they say may be outdated by now.
 *
 * The update costs what its message has, not what the mirror has.  Its pages
 * were not read, so it knows of them only that they have changed:
 *
 *	- Pages of records get an LSN and a fingerprint that no page has.  With
 *	  the old ones, a page whose rows are again what they were when it was
 *	  last read (a transaction was rolled back, and VACUUM came) would pass
 *	  for unchanged, and the rows of the feed would stay.
 *	- A page that the mirror has keeps its number.  Rows of a feed have even
 *	  lines, so no visibility map proves them, whatever the number says.
 *	- A page behind the last one makes all pages up to it pages of the mirror,
 *	  to be read by whoever reads pages.
 *	- The mirror stays checked up to the position that it had.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/fault.h"
#include "engine/store/mirror_kind.h"

static const uint16_t *
values_of(const gpuvec_feed_record *record)
{
	return (const uint16_t *) (record + 1);
}

static const gpuvec_feed_record *
next_record(const gpuvec_feed_record *record)
{
	return (const gpuvec_feed_record *) ((const char *) record +
										 gpuvec_feed_record_bytes(record->len, record->nfilter_keys));
}

/* Number of line pointers that a record concerns */
static uint32_t
lines_of(const gpuvec_feed_record *record)
{
	return record->kind == GPUVEC_FEED_ROW ? 1 : record->len;
}

/* Add what a record says to the update, which has room for it */
static void
add_record(gpuvec_update *update, const gpuvec_feed_record *record)
{
	bool		row = record->kind == GPUVEC_FEED_ROW;

	for (uint32_t i = 0; i < lines_of(record); i++)
	{
		gpuvec_fed_row *fed = &update->fed[update->nfed++];

		fed->tid = gpuvec_tid(record->block, row ? record->line : values_of(record)[i]);
		fed->record = record;
	}
}

/* Order by tid; of one tid, in the order of the records */
static int
compare_fed(const void *a, const void *b)
{
	const gpuvec_fed_row *x = a;
	const gpuvec_fed_row *y = b;

	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	return x->record < y->record ? -1 : x->record > y->record;
}

/*
 * Sort by tid, and keep the last record of each line pointer.  Rows of a
 * table that only grows come in this order.
 */
static void
keep_last(gpuvec_update *update)
{
	gpuvec_fed_row *fed = update->fed;
	uint64_t	n = 0;
	bool		ascending = true;

	for (uint64_t i = 1; i < update->nfed && ascending; i++)
		ascending = fed[i - 1].tid < fed[i].tid;
	if (ascending)
		return;
	qsort(fed, update->nfed, sizeof(*fed), compare_fed);
	for (uint64_t i = 0; i < update->nfed; i++)
		if (i + 1 == update->nfed || fed[i].tid != fed[i + 1].tid)
			fed[n++] = fed[i];
	update->nfed = n;
}

/* Take the records behind the first `skip` of n */
static bool
take_records(gpuvec_update *update, const gpuvec_feed_record *record, uint64_t n, uint64_t skip,
			 gpuvec_error *error)
{
	const gpuvec_feed_record *first;
	uint64_t	lines = 0;

	for (uint64_t i = 0; i < skip; i++)
		record = next_record(record);
	first = record;
	for (uint64_t i = skip; i < n; i++, record = next_record(record))
		lines += lines_of(record);
	update->fed = malloc((lines + 1) * sizeof(*update->fed));
	if (update->fed == NULL)
		return gpuvec_fail_memory(error, lines * sizeof(*update->fed));
	record = first;
	for (uint64_t i = skip; i < n; i++, record = next_record(record))
		add_record(update, record);
	keep_last(update);
	return true;
}

/* Give the rows to the mirror's kind */
static bool
take_rows(gpuvec_update *update, gpuvec_error *error)
{
	for (uint64_t i = 0; i < update->nfed; i++)
	{
		if (update->fed[i].record->kind != GPUVEC_FEED_ROW)
			continue;
		if (!update->mirror->kind->take_fed(update, &update->fed[i], error))
			return false;
		update->fed_rows++;
	}
	return gpuvec_update_charge(update, error);
}

/* Number of pages of the mirror with these rows */
static uint32_t
pages_with(const gpuvec_update *update)
{
	uint32_t	nblocks = update->mirror->nblocks;
	uint32_t	last = update->nfed > 0 ? gpuvec_tid_block(update->fed[update->nfed - 1].tid) : 0;

	return update->nfed > 0 && last >= nblocks ? last + 1 : nblocks;
}

static bool
add_page(gpuvec_update *update, uint32_t block, gpuvec_error *error)
{
	gpuvec_sent_page *page = gpuvec_update_add_page(update, error);

	if (page == NULL)
		return false;
	page->block = block;
	page->state = gpuvec_page_not_read;
	return true;
}

/* Add the pages of the rows, and all new pages up to nblocks */
static bool
add_pages(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	uint32_t	known = update->mirror->nblocks;
	bool		ok = true;

	for (uint64_t i = 0; ok && i < update->nfed; i++)
	{
		uint32_t	block = gpuvec_tid_block(update->fed[i].tid);

		if (block >= known)
			break;
		if (i == 0 || block != gpuvec_tid_block(update->fed[i - 1].tid))
			ok = add_page(update, block, error);
	}
	for (uint32_t block = known; ok && block < nblocks; block++)
		ok = add_page(update, block, error);
	return ok;
}

/* Apply rows that were taken.  The update is freed. */
static bool
apply(gpuvec_update *update, const gpuvec_rows *rows, gpuvec_state *state, gpuvec_error *error)
{
	gpuvec_commit commit = {
		.feed = rows->feed, .applied = rows->to, .nblocks = pages_with(update)
	};

	if (commit.nblocks - update->mirror->nblocks > update->nfed + GPUVEC_MAX_NEW_PAGES ||
		gpuvec_fault_due("refuse-rows"))
	{
		gpuvec_update_state(update, state);
		gpuvec_update_end(update);
		return true;
	}
	if (add_pages(update, commit.nblocks, error) && take_rows(update, error))
		return gpuvec_update_commit(update, &commit, state, error);
	gpuvec_update_end(update);
	return false;
}

/* Apply records, if the mirror comes to them */
static bool
apply_records(gpuvec_store *store, const gpuvec_rows *rows, const char *records,
			  const void *session, gpuvec_state *state, gpuvec_error *error)
{
	gpuvec_update *update = gpuvec_update_begin_rows(store, rows, session, state, error);

	if (update == NULL)
		return error->message[0] == '\0';
	gpuvec_fault_sleep("slow-rows", NULL);
	if (take_records(update, (const gpuvec_feed_record *) records, rows->to - rows->from,
					 update->mirror->applied - rows->from, error))
		return apply(update, rows, state, error);
	gpuvec_update_end(update);
	return false;
}

/*
 * Apply some of the kept records, if nothing is in the way.  Not all: who
 * sends more of them waits for this, and may lose what comes meanwhile.
 */
static bool
apply_kept(gpuvec_store *store, const gpuvec_rows *rows, const void *session,
		   gpuvec_state *state, gpuvec_error *error)
{
	gpuvec_rows next;
	char	   *records = gpuvec_kept_next(store, rows, session, &next, state, error);
	bool		ok = records == NULL ||
		apply_records(store, &next, records, session, state, error);

	free(records);
	if (!ok || error->message[0] != '\0')
		return false;
	gpuvec_store_stat(store, &rows->key, session, state);
	return true;
}

bool
gpuvec_update_rows(gpuvec_store *store, const gpuvec_rows *rows, const char *records,
				   size_t bytes, const void *session, gpuvec_state *state, gpuvec_error *error)
{
	if (!rows->keep)
		return apply_records(store, rows, records, session, state, error);
	return gpuvec_kept_add(store, rows, records, bytes, session, error) &&
		apply_kept(store, rows, session, state, error);
}
