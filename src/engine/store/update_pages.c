/*-------------------------------------------------------------------------
 *
 * update_pages.c
 *	  Taking the pages of a load or refresh.
 *
 * Pages arrive in ascending order.  The rows of each page go to the mirror's
 * kind, except for a page whose fingerprint shows that its rows are unchanged
 * (VACUUM, hint bits and deletions change a page's LSN, but no row).  It gets
 * the number of this update, or what the session says of its newest
 * transaction, all the same.
 *
 * Of a partial page only some lines were read again.  It gets an LSN and a
 * fingerprint that no page has, like a page of a feed's rows (update_rows.c),
 * and no number proves it (GPUVEC_UNPROVEN).  So whoever compares LSNs reads
 * it, and whoever finds a row of it fetches that row.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/store/joint_load.h"

/* bsearch comparator */
static int
compare_tids(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/* True if a row of a partial page is of one of its lines, which were taken */
static bool
is_listed(const gpuvec_update *update, const gpuvec_page *page, uint16_t line)
{
	uint64_t	tid = gpuvec_tid(page->block, line & ~1);

	return page->nlines > 0 &&
		bsearch(&tid, update->lines + update->nlines - page->nlines, page->nlines,
				sizeof(tid), compare_tids) != NULL;
}

/* Take the rows of a page, which fill [row, end).  lasts: see take_row. */
static bool
take_rows(gpuvec_update *update, const gpuvec_page *page, const char *row, const char *end,
		  bool lasts, gpuvec_error *error)
{
	const gpuvec_mirror_kind *kind = update->mirror->kind;
	uint16_t	last_line = 0;

	for (uint32_t i = 0; i < page->nrows; i++)
	{
		uint16_t	line;
		size_t		size;

		if ((size_t) (end - row) < kind->row_header)
			return gpuvec_update_bad_pages(error, "A row is cut off.");
		memcpy(&line, row, sizeof(line));
		if (line <= last_line || line > GPUVEC_MAX_LINE)
			return gpuvec_update_bad_pages(error, "Line pointers are not in order.");
		if (page->partial && !is_listed(update, page, line))
			return gpuvec_update_bad_pages(error, "A row is of none of the page's lines.");
		size = kind->take_row(update, gpuvec_tid(page->block, line), row, end, lasts, error);
		if (size == 0)
			return false;
		row += size;
		last_line = line;
	}
	return row == end || gpuvec_update_bad_pages(error, "A page is longer than its rows.");
}

/* Make room for n more lines */
static bool
reserve_lines(gpuvec_update *update, uint32_t n, gpuvec_error *error)
{
	uint64_t	capacity = update->lines_capacity ? update->lines_capacity * 2 : 256;
	uint64_t   *lines;

	if (update->nlines + n <= update->lines_capacity)
		return true;
	if (capacity < update->nlines + n)
		capacity = update->nlines + n;
	lines = realloc(update->lines, capacity * sizeof(*lines));
	if (lines == NULL)
		return gpuvec_fail_memory(error, capacity * sizeof(*lines));
	update->lines = lines;
	update->lines_capacity = capacity;
	return true;
}

/* Take the lines of a partial page */
static bool
take_lines(gpuvec_update *update, const gpuvec_page *page, const char *from, gpuvec_error *error)
{
	uint16_t	last = 0;

	if (!reserve_lines(update, page->nlines, error))
		return false;
	for (uint32_t i = 0; i < page->nlines; i++)
	{
		uint16_t	line;

		memcpy(&line, from + i * sizeof(line), sizeof(line));
		if (line <= last || line > GPUVEC_MAX_LINE || line % 2 != 0)
			return gpuvec_update_bad_pages(error, "Lines of a page are not in order.");
		update->lines[update->nlines++] = gpuvec_tid(page->block, line);
		last = line;
	}
	return true;
}

/* Take some lines of a page that the mirror has */
static bool
take_partial(gpuvec_update *update, const gpuvec_page *page, gpuvec_sent_page *mine,
			 const char *rows, bool lasts, gpuvec_error *error)
{
	uint32_t	bytes = gpuvec_lines_bytes(page->nlines);

	if (update->load || !update->mirror->kind->takes_lines ||
		page->block >= update->mirror->nblocks)
		return gpuvec_update_bad_pages(error, "A partial page is out of place.");
	if (page->bytes < bytes)
		return gpuvec_update_bad_pages(error, "A page is cut off.");
	mine->partial = true;
	mine->state = gpuvec_page_not_read;
	mine->nrows = page->nrows;
	return take_lines(update, page, rows + page->bytes - bytes, error) &&
		take_rows(update, page, rows, rows + page->bytes - bytes, lasts, error);
}

/* Take a page with all its rows */
static bool
take_whole(gpuvec_update *update, const gpuvec_page *page, gpuvec_sent_page *mine,
		   const char *rows, bool lasts, gpuvec_error *error)
{
	const gpuvec_mirror *mirror = update->mirror;

	if (page->newest != 0 && mirror->key.rooted)
		return gpuvec_update_bad_pages(error, "Pages of a rooted mirror have no newest transaction.");
	mine->state.lsn = page->lsn;
	mine->state.rows = gpuvec_fingerprint_of(rows, page->bytes);
	mine->newest = page->newest;
	mine->same = !update->load && page->block < mirror->nblocks &&
		gpuvec_fingerprint_equal(mine->state.rows, mirror->pages[page->block].rows);
	if (mine->same)
		return true;
	mine->nrows = page->nrows;
	return take_rows(update, page, rows, rows + page->bytes, lasts, error);
}

/* Take one page.  Returns its bytes, or 0 on failure. */
static size_t
take_page(gpuvec_update *update, const char *from, const char *end, bool lasts,
		  gpuvec_error *error)
{
	const char *rows = from + sizeof(gpuvec_page);
	gpuvec_page page;
	gpuvec_sent_page *mine;

	if ((size_t) (end - from) < sizeof(page))
		return gpuvec_update_bad_pages(error, "A page is cut off.");
	memcpy(&page, from, sizeof(page));
	if ((size_t) (end - rows) < page.bytes || page.bytes % 4 != 0)
		return gpuvec_update_bad_pages(error, "A page is cut off.");
	if (page.block == UINT32_MAX)
		return gpuvec_update_bad_pages(error, "A block number is out of range.");
	if (page.partial > 1 || page.newest > (page.partial ? 0 : GPUVEC_MAX_XID) ||
		page.nlines > (page.partial ? GPUVEC_MAX_LINE : 0))
		return gpuvec_update_bad_pages(error, "A page is neither whole nor partial.");
	if (update->npages > 0 && page.block <= update->pages[update->npages - 1].block)
		return gpuvec_update_bad_pages(error, "Pages are not in order.");
	mine = gpuvec_update_add_page(update, error);
	if (mine == NULL)
		return 0;
	mine->block = page.block;
	if (!(page.partial ? take_partial(update, &page, mine, rows, lasts, error) :
		  take_whole(update, &page, mine, rows, lasts, error)))
		return 0;
	return sizeof(page) + page.bytes;
}

bool
gpuvec_update_charge(gpuvec_update *update, gpuvec_error *error)
{
	if (update->joint)
		return gpuvec_joint_charge(update, error);
	return gpuvec_store_charge(update->store, update->mirror, &update->mirror->updating,
							   update->mirror->kind->bytes_taken(update), true, error);
}

bool
gpuvec_update_own(gpuvec_update *update, char **message, size_t size, gpuvec_error *error)
{
	const gpuvec_mirror_kind *kind = update->mirror->kind;

	return kind->own_message == NULL || kind->own_message(update, message, size, error);
}

bool
gpuvec_update_pages(gpuvec_update *update, const char *frame, size_t length, bool lasts,
					gpuvec_error *error)
{
	const char *at = frame;
	const char *end = frame + length;
	uint64_t	before = update->npages;

	while (at < end)
	{
		size_t		size = take_page(update, at, end, lasts, error);

		if (size == 0)
			return false;
		at += size;
	}
	pthread_mutex_lock(&update->store->mutex);
	update->mirror->pages_done += (uint32_t) (update->npages - before);
	pthread_mutex_unlock(&update->store->mutex);
	return gpuvec_update_charge(update, error);
}
