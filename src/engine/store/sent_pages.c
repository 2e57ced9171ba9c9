/*-------------------------------------------------------------------------
 *
 * sent_pages.c
 *	  The pages that an update was sent, and what else it holds until it ends.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/store/mirror_kind.h"

/* What no page has: coefficients of fingerprints are below 2^61 */
const gpuvec_page_state gpuvec_page_not_read = {
	.lsn = GPUVEC_NO_LSN, .rows = {{UINT64_MAX, UINT64_MAX}}
};

bool
gpuvec_update_bad_pages(gpuvec_error *error, const char *what)
{
	return gpuvec_fail(error, GPUVEC_PROTOCOL_VIOLATION, what, NULL,
					   "invalid pages in a message to the gpuvec engine");
}

gpuvec_sent_page *
gpuvec_update_add_page(gpuvec_update *update, gpuvec_error *error)
{
	if (update->npages == update->pages_capacity)
	{
		uint64_t	capacity = update->pages_capacity ? update->pages_capacity * 2 : 256;
		gpuvec_sent_page *pages = realloc(update->pages, capacity * sizeof(*pages));

		if (pages == NULL)
		{
			gpuvec_fail_memory(error, capacity * sizeof(*pages));
			return NULL;
		}
		update->pages = pages;
		update->pages_capacity = capacity;
	}
	memset(&update->pages[update->npages], 0, sizeof(gpuvec_sent_page));
	return &update->pages[update->npages++];
}

void
gpuvec_update_drop_rows(gpuvec_update *update)
{
	update->mirror->kind->end(update);
	gpuvec_page_numbers_unref(update->numbers);
	free(update->pages);
	free(update->lines);
	free(update->fed);
}
