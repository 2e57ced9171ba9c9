/*-------------------------------------------------------------------------
 *
 * page_numbers.c
 *	  Tables of page numbers: for each page of a relation, the number of the
 *	  refresh that last read it, GPUVEC_UNPROVEN, or GPUVEC_SETTLED.
 *
 * A refresh publishes a new table, because searches go on with the older one.
 * Tables consist of ranges.  A new table shares those ranges of the older one
 * in which no page was read again.  So a refresh of a few pages is cheap,
 * however large the relation is.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/store/page_numbers.h"

/* Number of ranges of a table */
static inline uint32_t
ranges_of(uint32_t nblocks)
{
	return (uint32_t) (((uint64_t) nblocks + GPUVEC_NUMBERS_PAGES - 1) / GPUVEC_NUMBERS_PAGES);
}

gpuvec_page_numbers *
gpuvec_page_numbers_new(const gpuvec_page_numbers *old, uint32_t nblocks)
{
	uint32_t	nranges = ranges_of(nblocks);
	uint32_t	known = old ? ranges_of(old->nblocks) : 0;
	gpuvec_page_numbers *numbers = calloc(1,
										  sizeof(*numbers) + nranges * sizeof(gpuvec_numbers_range *));

	if (numbers == NULL)
		return NULL;
	numbers->refs = 1;
	numbers->nblocks = nblocks;
	numbers->unproven = old && old->unproven;
	numbers->newest = old ? old->newest : 0;
	for (uint32_t i = 0; i < nranges && i < known; i++)
	{
		numbers->ranges[i] = old->ranges[i];
		__atomic_add_fetch(&numbers->ranges[i]->refs, 1, __ATOMIC_RELAXED);
	}
	return numbers;
}

/* Drop a reference to a range, which may be NULL */
static void
unref_range(gpuvec_numbers_range *range)
{
	if (range && __atomic_sub_fetch(&range->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(range);
}

bool
gpuvec_page_numbers_own(gpuvec_page_numbers *numbers, uint32_t block)
{
	gpuvec_numbers_range **entry = &numbers->ranges[block / GPUVEC_NUMBERS_PAGES];
	gpuvec_numbers_range *range;

	if (*entry && __atomic_load_n(&(*entry)->refs, __ATOMIC_ACQUIRE) == 1)
		return true;
	range = calloc(1, sizeof(*range));
	if (range == NULL)
		return false;
	range->refs = 1;
	if (*entry)
		memcpy(range->refresh, (*entry)->refresh, sizeof(range->refresh));
	unref_range(*entry);
	*entry = range;
	return true;
}

gpuvec_page_numbers *
gpuvec_page_numbers_ref(gpuvec_page_numbers *numbers)
{
	__atomic_add_fetch(&numbers->refs, 1, __ATOMIC_RELAXED);
	return numbers;
}

void
gpuvec_page_numbers_unref(gpuvec_page_numbers *numbers)
{
	if (numbers == NULL || __atomic_sub_fetch(&numbers->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (uint32_t i = 0; i < ranges_of(numbers->nblocks); i++)
		unref_range(numbers->ranges[i]);
	free(numbers);
}
