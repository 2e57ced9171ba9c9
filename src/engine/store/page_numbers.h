/*-------------------------------------------------------------------------
 *
 * page_numbers.h
 *	  For each page of a relation the number of the refresh that last read it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_NUMBERS_H
#define GPUVEC_PAGE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Pages whose numbers stand together */
#define GPUVEC_NUMBERS_PAGES	512

/*
 * The numbers of some consecutive pages; shared by tables in which they are
 * the same
 */
typedef struct gpuvec_numbers_part
{
	int			refs;			/* changed by __atomic builtins only */
	uint64_t	refresh[GPUVEC_NUMBERS_PAGES];
} gpuvec_numbers_part;

/*
 * A table of them.  Immutable once it is published: a search keeps the table
 * of the view that it searches.
 */
typedef struct gpuvec_page_numbers
{
	int			refs;			/* changed by __atomic builtins only */
	uint32_t	nblocks;
	gpuvec_numbers_part *parts[];
} gpuvec_page_numbers;

/*
 * A new table for nblocks pages, with the parts of an older one (which may be
 * NULL).  NULL on lack of memory.
 */
extern gpuvec_page_numbers *gpuvec_page_numbers_new(const gpuvec_page_numbers *old,
													uint32_t nblocks);

/*
 * Have the number of a page in a part of the table's own, so that it can be
 * set.  Has to be done for every page that the older table does not have.
 * False on lack of memory.
 */
extern bool gpuvec_page_numbers_own(gpuvec_page_numbers *numbers, uint32_t block);

extern gpuvec_page_numbers *gpuvec_page_numbers_ref(gpuvec_page_numbers *numbers);
extern void gpuvec_page_numbers_unref(gpuvec_page_numbers *numbers);

/* Set the number of a page that the table has for its own */
static inline void
gpuvec_page_numbers_set(gpuvec_page_numbers *numbers, uint32_t block, uint64_t refresh)
{
	numbers->parts[block / GPUVEC_NUMBERS_PAGES]->refresh[block % GPUVEC_NUMBERS_PAGES] = refresh;
}

/* Where the number of a page below nblocks is */
static inline const uint64_t *
gpuvec_page_numbers_at(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return &numbers->parts[block / GPUVEC_NUMBERS_PAGES]->refresh[block % GPUVEC_NUMBERS_PAGES];
}

/* The number of a page below nblocks */
static inline uint64_t
gpuvec_page_numbers_get(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return *gpuvec_page_numbers_at(numbers, block);
}

#endif							/* GPUVEC_PAGE_NUMBERS_H */
