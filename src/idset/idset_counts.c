/*-------------------------------------------------------------------------
 *
 * idset_counts.c
 *	  Counts how many sets of a sample have an id.
 *
 * There are 65,536 narrow ids: one counter for each takes 256 kB, and their
 * counts are exact.
 *
 * Of the others there may be any number.  They are collected in an array of
 * FRESH_IDS ids.  Whenever it is full it is sorted, and added to the counts,
 * an array that is sorted as well.  If that has more than KEPT_IDS ids, those
 * with the lowest counts are given up until half of them are left.  An id
 * that was given up and comes again is counted from 0.  So the counts of
 * frequent ids are exact or a little low, and memory stays below 20 MB.
 *
 *-------------------------------------------------------------------------
 */
#include "idset/idset_counts.h"

#define FRESH_IDS		(1 << 18)
#define KEPT_IDS		(1 << 20)

IdCounts *
idset_counts_make(void)
{
	IdCounts   *counts = palloc0_object(IdCounts);

	counts->context = CurrentMemoryContext;
	counts->narrow = palloc0_array(uint32, IDSET_MAX_NARROW_ID + 1);
	return counts;
}

/* Give up the ids with the lowest counts, until half the room is free */
static void
drop_rare(IdCounts *counts)
{
	uint32		n = counts->nwide;

	if (n <= KEPT_IDS)
		return;
	for (uint32 least = 2; n > KEPT_IDS / 2; least++)
	{
		n = 0;
		for (uint32 i = 0; i < counts->nwide; i++)
			if (counts->wide[i].count >= least)
				counts->wide[n++] = counts->wide[i];
		counts->nwide = n;
	}
	counts->dropped = true;
}

/* The number of equal ids at the beginning of a sorted array */
static uint32
run_length(const uint32 *ids, uint32 n)
{
	uint32		length = 1;

	while (length < n && ids[length] == ids[0])
		length++;
	return length;
}

/* Add the collected ids to the counts */
static void
count_fresh(IdCounts *counts)
{
	IdCount    *merged;
	uint32		n = 0;
	uint32		i = 0;

	if (counts->nfresh == 0)
		return;
	merged = MemoryContextAllocHuge(counts->context,
									(counts->nwide + counts->nfresh) * sizeof(IdCount));
	idset_sort(counts->fresh, counts->nfresh);
	for (uint32 j = 0; j < counts->nfresh;)
	{
		uint32		id = counts->fresh[j];
		uint32		length = run_length(counts->fresh + j, counts->nfresh - j);

		while (i < counts->nwide && counts->wide[i].id < id)
			merged[n++] = counts->wide[i++];
		merged[n].id = id;
		merged[n].count = length;
		if (i < counts->nwide && counts->wide[i].id == id)
			merged[n].count += counts->wide[i++].count;
		n++;
		j += length;
	}
	while (i < counts->nwide)
		merged[n++] = counts->wide[i++];
	if (counts->wide)
		pfree(counts->wide);
	counts->wide = merged;
	counts->nwide = n;
	counts->nfresh = 0;
	drop_rare(counts);
}

/* Count n wide ids */
static void
add_wide(IdCounts *counts, const uint32 *ids, uint32 n)
{
	uint32		i = 0;

	if (counts->fresh == NULL)
		counts->fresh = MemoryContextAlloc(counts->context, FRESH_IDS * sizeof(uint32));
	if (counts->nfresh + n > FRESH_IDS)
		count_fresh(counts);
	for (; i < n && ids[i] <= IDSET_MAX_NARROW_ID; i++)
		counts->narrow[ids[i]]++;
	memcpy(counts->fresh + counts->nfresh, ids + i, (n - i) * sizeof(uint32));
	counts->nfresh += n - i;
}

void
idset_counts_add(IdCounts *counts, gpuvec_id_span ids)
{
	if (ids.wide)
	{
		add_wide(counts, ids.ids, ids.n);
		return;
	}
	for (uint32 i = 0; i < ids.n; i++)
		counts->narrow[((const uint16 *) ids.ids)[i]]++;
}

/* List an id if at least `least` sets have it */
static void
list_id(uint32 id, uint32 count, uint32 least, IdCount *list, uint32 *n, bool *cut)
{
	if (count >= least)
	{
		list[*n].id = id;
		list[(*n)++].count = count;
	}
	else if (count > 0)
		*cut = true;
}

IdCount *
idset_counts_list(IdCounts *counts, uint32 least, uint32 *n, bool *cut)
{
	IdCount    *list;

	count_fresh(counts);
	list = palloc_array(IdCount, IDSET_MAX_NARROW_ID + 1 + counts->nwide);
	*n = 0;
	*cut = counts->dropped;
	for (uint32 id = 0; id <= IDSET_MAX_NARROW_ID; id++)
		list_id(id, counts->narrow[id], least, list, n, cut);
	for (uint32 i = 0; i < counts->nwide; i++)
		list_id(counts->wide[i].id, counts->wide[i].count, least, list, n, cut);
	return list;
}
