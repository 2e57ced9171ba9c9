/*-------------------------------------------------------------------------
 *
 * page_rows.c
 *	  The rows of an answer by pages.
 *
 * Tids come in the order of segments.  A session that makes a bitmap of them
 * wants those of a page together, and the pages in their order, for each
 * change of page is a search in a hash table.  With that a row takes two
 * bytes, and each page eight more.
 *
 * Many tids are dealt out to their pages, by a counter for each page of the
 * table.  Few of a large table are sorted by page, eight bits at a time.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/protocol_sets.h"
#include "engine/serve/page_rows.h"

/* Pages for each tid; if there are more, tids are sorted */
#define SORTED_PAGES	16

/* Most tids sorted by insertion: there are 256 values of a byte */
#define INSERTED		48

/* Sort few tids by page */
static void
sort_few(uint64_t *tids, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
	{
		uint64_t	tid = tids[i];
		uint64_t	at = i;

		for (; at > 0 && tids[at - 1] > tid; at--)
			tids[at] = tids[at - 1];
		tids[at] = tid;
	}
}

/* Sort tids by eight bits of their pages */
static void
sort_by_byte(const uint64_t *tids, uint64_t n, uint32_t shift, uint64_t *sorted)
{
	uint64_t	start[256] = {0};
	uint64_t	before = 0;

	for (uint64_t i = 0; i < n; i++)
		start[(gpuvec_tid_block(tids[i]) >> shift) & 0xFF]++;
	for (uint32_t byte = 0; byte < 256; byte++)
	{
		uint64_t	count = start[byte];

		start[byte] = before;
		before += count;
	}
	for (uint64_t i = 0; i < n; i++)
		sorted[start[(gpuvec_tid_block(tids[i]) >> shift) & 0xFF]++] = tids[i];
}

/*
 * Sort tids of the pages up to `last` by page.  other[] has room for as many.
 * Returns which of both has them.
 */
static uint64_t *
sort_by_page(uint64_t *tids, uint64_t n, uint32_t last, uint64_t *other)
{
	for (uint32_t shift = 0; shift < 32 && last >> shift != 0; shift += 8)
	{
		uint64_t   *sorted = other;

		sort_by_byte(tids, n, shift, sorted);
		other = tids;
		tids = sorted;
	}
	return tids;
}

/* Begin a page of n rows; returns where its lines begin */
static char *
begin_page(char *at, uint32_t block, uint32_t n)
{
	gpuvec_page_rows page = {.block = block, .n = n};

	memcpy(at, &page, sizeof(page));
	/* the padding */
	memset(at + gpuvec_page_rows_bytes(n) - sizeof(uint16_t), 0, sizeof(uint16_t));
	return at + sizeof(page);
}

/* Write a line; returns where the next one goes */
static inline char *
write_line(char *at, uint64_t tid)
{
	uint16_t	line = gpuvec_tid_line(tid);

	memcpy(at, &line, sizeof(line));
	return at + sizeof(line);
}

/* The number of the first tids, of n > 0 ascending ones, that share a page */
static uint32_t
same_page(const uint64_t *tids, uint64_t n)
{
	uint32_t	same = 1;

	while (same < n && gpuvec_tid_block(tids[same]) == gpuvec_tid_block(tids[0]))
		same++;
	return same;
}

/* Write down tids that were sorted */
static char *
write_sorted(const uint64_t *tids, uint64_t n, uint64_t *bytes)
{
	char	   *pages;
	char	   *at;

	*bytes = 0;
	for (uint64_t i = 0, same; i < n; i += same)
	{
		same = same_page(tids + i, n - i);
		*bytes += gpuvec_page_rows_bytes(same);
	}
	at = pages = malloc(*bytes);
	for (uint64_t i = 0, same; pages && i < n; i += same)
	{
		char	   *line;

		same = same_page(tids + i, n - i);
		line = begin_page(at, gpuvec_tid_block(tids[i]), (uint32_t) same);
		for (uint64_t j = 0; j < same; j++)
			line = write_line(line, tids[i + j]);
		at += gpuvec_page_rows_bytes(same);
	}
	return pages;
}

/*
 * Write down tids of the pages up to `last`.  next[] has a counter for each
 * page, 0 at first; later the place of its next line.
 */
static char *
write_dealt(const uint64_t *tids, uint64_t n, uint32_t last, uint32_t *next, uint64_t *bytes)
{
	char	   *pages;
	uint64_t	at = 0;

	*bytes = 0;
	for (uint64_t i = 0; i < n; i++)
		next[gpuvec_tid_block(tids[i])]++;
	for (uint64_t block = 0; block <= last; block++)
		if (next[block] > 0)
			*bytes += gpuvec_page_rows_bytes(next[block]);
	pages = *bytes <= UINT32_MAX ? malloc(*bytes) : NULL;
	for (uint64_t block = 0; pages && block <= last; block++)
	{
		uint32_t	count = next[block];

		if (count == 0)
			continue;
		next[block] = (uint32_t) (begin_page(pages + at, (uint32_t) block, count) - pages);
		at += gpuvec_page_rows_bytes(count);
	}
	for (uint64_t i = 0; pages && i < n; i++)
	{
		uint32_t   *place = &next[gpuvec_tid_block(tids[i])];

		(void) write_line(pages + *place, tids[i]);
		*place += sizeof(uint16_t);
	}
	return pages;
}

char *
gpuvec_page_rows_new(uint64_t *tids, uint64_t n, uint64_t *bytes)
{
	uint32_t	last = 0;
	uint32_t   *next = NULL;
	char	   *pages;

	for (uint64_t i = 0; i < n; i++)
		if (gpuvec_tid_block(tids[i]) > last)
			last = gpuvec_tid_block(tids[i]);
	if (n >= last / SORTED_PAGES)
		next = calloc((uint64_t) last + 1, sizeof(uint32_t));
	if (next == NULL)
	{
		uint64_t   *other = NULL;

		if (n <= INSERTED)
			sort_few(tids, n);
		else if ((other = malloc(n * sizeof(uint64_t))) == NULL)
			return NULL;
		else
			tids = sort_by_page(tids, n, last, other);
		pages = write_sorted(tids, n, bytes);
		free(other);
		return pages;
	}
	pages = write_dealt(tids, n, last, next, bytes);
	free(next);
	return pages;
}
