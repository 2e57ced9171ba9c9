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

/* Pages of a part */
#define GPUVEC_NUMBERS_PAGES	512

/*
 * In place of a number: since the page was read, some of its lines have been
 * read again, so that no refresh has read all of what the mirror holds of it
 */
#define GPUVEC_UNPROVEN		UINT64_MAX

/*
 * In place of a number: the page was all-visible when it was last read, and
 * has been read as a whole.  Its rows need no other proof.
 */
#define GPUVEC_ALL_VISIBLE	(UINT64_MAX - 1)

/*
 * The numbers of GPUVEC_NUMBERS_PAGES consecutive pages, shared by tables in
 * which they are equal
 */
typedef struct gpuvec_numbers_part
{
	int			refs;			/* changed by __atomic builtins only */
	uint64_t	refresh[GPUVEC_NUMBERS_PAGES];
} gpuvec_numbers_part;

/*
 * A table of page numbers.  Immutable once published: a search keeps the
 * table of the view that it searches.
 */
typedef struct gpuvec_page_numbers
{
	int			refs;			/* changed by __atomic builtins only */
	uint32_t	nblocks;
	bool		unproven;		/* some page may have GPUVEC_UNPROVEN */
	bool		visible;		/* some page may have GPUVEC_ALL_VISIBLE */
	gpuvec_numbers_part *parts[];
} gpuvec_page_numbers;

/*
 * Make a table for nblocks pages that shares the parts of an older one (which
 * may be NULL).  NULL on lack of memory.
 */
extern gpuvec_page_numbers *gpuvec_page_numbers_new(const gpuvec_page_numbers *old,
													uint32_t nblocks);

/*
 * Make the part that holds a page's number private to this table, so that the
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
	numbers->parts[block / GPUVEC_NUMBERS_PAGES]->refresh[block % GPUVEC_NUMBERS_PAGES] = refresh;
}

/* Pointer to the number of a page; block < nblocks */
static inline const uint64_t *
gpuvec_page_numbers_at(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return &numbers->parts[block / GPUVEC_NUMBERS_PAGES]->refresh[block % GPUVEC_NUMBERS_PAGES];
}

/* The number of a page; block < nblocks */
static inline uint64_t
gpuvec_page_numbers_get(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return *gpuvec_page_numbers_at(numbers, block);
}

/* True if the page was all-visible when it was last read */
static inline bool
gpuvec_page_numbers_visible(const gpuvec_page_numbers *numbers, uint32_t block)
{
	return numbers->visible && block < numbers->nblocks &&
		gpuvec_page_numbers_get(numbers, block) == GPUVEC_ALL_VISIBLE;
}

#endif							/* GPUVEC_PAGE_NUMBERS_H */
