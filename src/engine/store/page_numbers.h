/*-------------------------------------------------------------------------
 *
 * page_numbers.h
 *	  Tables of page numbers: for each page of a relation, the number of the
 *	  refresh that last read it, or what is known of it instead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_NUMBERS_H
#define GPUVEC_PAGE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Pages of a range */
#define GPUVEC_NUMBERS_PAGES	512

/*
 * In place of a number: since the page was read, some of its lines have been
 * read again, so that no refresh has read all of what the mirror holds of it
 */
#define GPUVEC_UNPROVEN		UINT64_MAX

/*
 * In place of a number, with the newest transaction of the page's rows
 * (gpuvec_page.newest): the page was last read as a whole, and all of its rows
 * are seen by snapshots whose xmin is larger
 */
#define GPUVEC_SETTLED		(UINT64_C(1) << 63)

/*
 * The numbers of GPUVEC_NUMBERS_PAGES consecutive pages, shared by tables in
 * which they are equal
 */
typedef struct gpuvec_numbers_range
{
	int			refs;			/* changed by __atomic builtins only */
	uint64_t	refresh[GPUVEC_NUMBERS_PAGES];
} gpuvec_numbers_range;

/*
 * A table of page numbers.  Immutable once published: a search keeps the
 * table of the view that it searches.
 */
typedef struct gpuvec_page_numbers
{
	int			refs;			/* changed by __atomic builtins only */
	uint32_t	nblocks;
	bool		unproven;		/* some page may have GPUVEC_UNPROVEN */
	uint64_t	newest;			/* no smaller than that of any page; 0: no
								 * page has GPUVEC_SETTLED */
	gpuvec_numbers_range *ranges[];
} gpuvec_page_numbers;

/*
 * Make a table for nblocks pages that shares the ranges of an older one (which
 * may be NULL).  NULL on lack of memory.
 */
extern gpuvec_page_numbers *gpuvec_page_numbers_new(const gpuvec_page_numbers *old,
													uint32_t nblocks);

/*
 * Make the range that holds a page's number private to this table, so that the
 * number can be set.  Must be called for every page that the older table does
 * not have.  False on lack of memory.
 */
extern bool gpuvec_page_numbers_own(gpuvec_page_numbers *numbers, uint32_t block);

extern gpuvec_page_numbers *gpuvec_page_numbers_ref(gpuvec_page_numbers *numbers);
extern void gpuvec_page_numbers_unref(gpuvec_page_numbers *numbers);

/* Set the number of a page; needs gpuvec_page_numbers_own first */
static inline void
gpuvec_page_numbers_set(gpuvec_page_numbers *numbers, uint32_t block, uint64_t refresh)
{
	numbers->ranges[block / GPUVEC_NUMBERS_PAGES]->refresh[block % GPUVEC_NUMBERS_PAGES] = refresh;
}

/* Pointer to the number of a page; block < nblocks */
static inline const uint64_t *
gpuvec_page_numbers_at(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return &numbers->ranges[block / GPUVEC_NUMBERS_PAGES]->refresh[block % GPUVEC_NUMBERS_PAGES];
}

/* The number of a page; block < nblocks */
static inline uint64_t
gpuvec_page_numbers_get(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return *gpuvec_page_numbers_at(numbers, block);
}

/* True if snapshots with this xmin see all rows of the page */
static inline bool
gpuvec_page_numbers_sees(const gpuvec_page_numbers *numbers, uint32_t block, uint64_t xmin)
{
	uint64_t	number;

	if (numbers->newest == 0 || block >= numbers->nblocks)
		return false;
	number = gpuvec_page_numbers_get(numbers, block);
	return (number & GPUVEC_SETTLED) && number != GPUVEC_UNPROVEN &&
		(number & ~GPUVEC_SETTLED) < xmin;
}

#endif							/* GPUVEC_PAGE_NUMBERS_H */
