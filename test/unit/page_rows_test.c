/*-------------------------------------------------------------------------
 *
 * page_rows_test.c
 *	  Test of rows that are written down by pages: for tables of all sizes,
 *	  what is written is sorted by page, and has just the rows.
 *
 *-------------------------------------------------------------------------
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bounds.h"
#include "core/protocol_sets.h"
#include "engine/serve/page_rows.h"
#include "unit_test.h"

#define MOST_TIDS	3000

static int
compare_tids(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/*
 * Read what was written down, at most MOST_TIDS tids; returns their number.
 * 0: it is no list of ascending pages.
 */
static uint64_t
read_pages(const char *pages, uint64_t bytes, uint64_t *tids)
{
	const char *end = pages + bytes;
	int64_t		last = -1;
	uint64_t	n = 0;

	while (pages < end)
	{
		gpuvec_page_rows page;

		memcpy(&page, pages, sizeof(page));
		if ((int64_t) page.block <= last || page.n == 0 || page.n > MOST_TIDS - n ||
			gpuvec_page_rows_bytes(page.n) > (size_t) (end - pages))
			return 0;
		last = page.block;
		for (uint32_t i = 0; i < page.n; i++)
		{
			uint16_t	line;

			memcpy(&line, pages + sizeof(page) + i * sizeof(line), sizeof(line));
			tids[n++] = gpuvec_tid(page.block, line);
		}
		pages += gpuvec_page_rows_bytes(page.n);
	}
	return n;
}

/* n rows of pages up to `last`, which has one, some of a page together */
static void
check_rows(uint32_t last, uint64_t n)
{
	uint64_t   *tids = malloc(n * sizeof(uint64_t));
	uint64_t   *expected = malloc(n * sizeof(uint64_t));
	uint64_t   *found = malloc(MOST_TIDS * sizeof(uint64_t));
	uint64_t	bytes;
	char	   *pages;

	for (uint64_t i = 0; i < n; i++)
	{
		uint32_t	block = i == n / 2 ? last : (uint32_t) random_below((uint64_t) last + 1);

		if (i > 0 && i != n / 2 && random_below(3) == 0)
			block = gpuvec_tid_block(tids[i - 1]);
		tids[i] = expected[i] = gpuvec_tid(block, (uint16_t) (i + 1));
	}
	qsort(expected, n, sizeof(uint64_t), compare_tids);
	pages = gpuvec_page_rows_new(tids, n, &bytes);
	check(pages != NULL, "rows are written down");
	check(pages && read_pages(pages, bytes, found) == n, "pages are ascending, and have all rows");
	qsort(found, n, sizeof(uint64_t), compare_tids);
	check(memcmp(found, expected, n * sizeof(uint64_t)) == 0, "the rows are those that were given");
	free(pages);
	free(found);
	free(expected);
	free(tids);
}

int
main(void)
{
	/* a page number of each number of bytes */
	static const uint32_t lasts[] = {0, 1, 255, 256, 65535, 65536, (1 << 24) - 1, 1 << 24, UINT32_MAX - 1};
	static const uint64_t numbers[] = {1, 2, 48, 49, 50, 300, MOST_TIDS};

	/* what never ends has failed */
	alarm(60);
	for (size_t i = 0; i < sizeof(lasts) / sizeof(lasts[0]); i++)
		for (size_t j = 0; j < sizeof(numbers) / sizeof(numbers[0]); j++)
			check_rows(lasts[i], numbers[j]);
	return report_checks();
}
