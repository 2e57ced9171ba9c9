/*-------------------------------------------------------------------------
 *
 * answer_pages.c
 *	  Rows of an answer by pages.
 *
 * A search for roots in any order needs neither scores nor the numbers of
 * refreshes: the executor looks at the rows.  So the engine leaves them out,
 * and puts the rows of a page together.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/search_request.h"
#include "mirror/describe/mirror.h"
#include "miscadmin.h"

static void
refuse_pages(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("invalid message from the gpuvec engine")));
}

void
MirrorPagesTids(const MirrorPages *pages, uint64 *tids)
{
	const char *at = pages->data;
	const char *end = at + pages->bytes;
	uint64		left = pages->nrows;

	while (at < end)
	{
		gpuvec_page_rows page;
		const char *lines = at + sizeof(page);

		if (end - at < (ptrdiff_t) sizeof(page))
			refuse_pages();
		memcpy(&page, at, sizeof(page));
		if (page.n > left || page.n > GPUVEC_MAX_LINE ||
			gpuvec_page_rows_bytes(page.n) > (Size) (end - at))
			refuse_pages();
		for (uint32 i = 0; i < page.n; i++)
		{
			uint16		line;

			memcpy(&line, lines + i * sizeof(line), sizeof(line));
			*tids++ = gpuvec_tid(page.block, line);
		}
		left -= page.n;
		at += gpuvec_page_rows_bytes(page.n);
	}
	if (left > 0)
		refuse_pages();
}

/* Verify the rows that the snapshot sees: they reach the least score */
static void
verify_pages(const MirrorPages *pages, MirrorVisibility *visibility, const MirrorQuery *query,
			 const MirrorSearch *search)
{
	uint64	   *tids = MemoryContextAllocHuge(CurrentMemoryContext, pages->nrows * sizeof(uint64));

	MirrorPagesTids(pages, tids);
	for (uint64 i = 0; i < pages->nrows; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MirrorVerifyRow(visibility, tids[i], query, search);
	}
	pfree(tids);
}

void
MirrorTakePages(const MirrorSearchRequest *request, const MirrorSearchAnswer *answer,
				const MirrorSearch *search, MirrorVisibility *visibility)
{
	MirrorQuery *query = request->whose[0];

	/* a row takes more than two bytes */
	if ((request->n != 1 && !search->overlaps) || (request->queries[0].flags & GPUVEC_QUERY_PAGES) == 0 ||
		answer->head.nhits > answer->head.page_bytes / sizeof(uint16))
		refuse_pages();
	query->pages.data = (const char *) answer->hits;
	query->pages.bytes = answer->head.page_bytes;
	query->pages.nrows = answer->head.nhits;
	query->done = true;
	if (gpuvec_verify && request->n == 1)
		verify_pages(&query->pages, visibility, query, search);
}
