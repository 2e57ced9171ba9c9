/*-------------------------------------------------------------------------
 *
 * update_pages.c
 *	  Taking the pages of a load or refresh.
 *
 * Pages arrive in ascending order.  The rows of each page go to the mirror's
 * kind, except for a page whose fingerprint shows that its rows are unchanged
 * (VACUUM, hint bits and deletions change a page's LSN, but no row).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/store/mirror_kind.h"

bool
gpuvec_update_bad_pages(gpuvec_error *error, const char *what)
{
	return gpuvec_fail(error, GPUVEC_PROTOCOL_VIOLATION, what, NULL,
					   "invalid pages in a message to the gpuvec engine");
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
		size = kind->take_row(update, gpuvec_tid(page->block, line), row, end, lasts, error);
		if (size == 0)
			return false;
		row += size;
		last_line = line;
	}
	return row == end || gpuvec_update_bad_pages(error, "A page is longer than its rows.");
}

gpuvec_sent_page *
gpuvec_update_add_page(gpuvec_update *update, gpuvec_error *error)
{
	if (update->npages == update->room_pages)
	{
		uint64_t	room = update->room_pages ? update->room_pages * 2 : 256;
		gpuvec_sent_page *pages = realloc(update->pages, room * sizeof(*pages));

		if (pages == NULL)
		{
			gpuvec_fail_memory(error, room * sizeof(*pages));
			return NULL;
		}
		update->pages = pages;
		update->room_pages = room;
	}
	memset(&update->pages[update->npages], 0, sizeof(gpuvec_sent_page));
	return &update->pages[update->npages++];
}

/* Take one page.  Returns its bytes, or 0 on failure. */
static size_t
take_page(gpuvec_update *update, const char *from, const char *end, bool lasts,
		  gpuvec_error *error)
{
	const gpuvec_mirror *mirror = update->mirror;
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
	if (update->npages > 0 && page.block <= update->pages[update->npages - 1].block)
		return gpuvec_update_bad_pages(error, "Pages are not in order.");
	mine = gpuvec_update_add_page(update, error);
	if (mine == NULL)
		return 0;
	mine->block = page.block;
	mine->state.lsn = page.lsn;
	mine->state.rows = gpuvec_fingerprint_of(rows, page.bytes);
	if (!update->load && page.block < mirror->nblocks &&
		gpuvec_fingerprint_equal(mine->state.rows, mirror->pages[page.block].rows))
		mine->same = true;
	else
	{
		mine->nrows = page.nrows;
		if (!take_rows(update, &page, rows, rows + page.bytes, lasts, error))
			return 0;
	}
	return sizeof(page) + page.bytes;
}

bool
gpuvec_update_charge(gpuvec_update *update, gpuvec_error *error)
{
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

	while (at < end)
	{
		size_t		size = take_page(update, at, end, lasts, error);

		if (size == 0)
			return false;
		at += size;
	}
	pthread_mutex_lock(&update->store->mutex);
	update->mirror->pages_done = (uint32_t) update->npages;
	pthread_mutex_unlock(&update->store->mutex);
	return gpuvec_update_charge(update, error);
}
