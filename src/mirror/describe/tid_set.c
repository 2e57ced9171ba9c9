/*-------------------------------------------------------------------------
 *
 * tid_set.c
 *	  The rows that a search is restricted to, by their tids.
 *
 * The set is an ascending array of distinct numbers, block first.  Rows are
 * fetched in this order, each page once.  A binary search tells whether a row
 * that the engine found is in the set.  With the millions of tids that a
 * session can hold, it takes some 20 steps, and the engine returns few rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "mirror/describe/mirror.h"
#include "storage/itemptr.h"

/* qsort comparator */
static int
compare_tids(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	GPUVEC_LOOK();
	return x < y ? -1 : x > y;
}

/*
 * Sort the tids and drop duplicates, unless they are in order already, as
 * from a scan of the table
 */
static void
sort_tids(MirrorTidSet *set)
{
	uint64		kept = 0;
	bool		sorted = true;

	for (uint64 i = 1; i < set->n && sorted; i++)
		sorted = set->tids[i - 1] < set->tids[i];
	if (sorted)
		return;
	qsort(set->tids, set->n, sizeof(uint64), compare_tids);
	for (uint64 i = 0; i < set->n; i++)
		if (kept == 0 || set->tids[i] != set->tids[kept - 1])
			set->tids[kept++] = set->tids[i];
	set->n = kept;
}

/*
 * The set of the elements of a tid[], without NULLs and tids that no row can
 * have
 */
MirrorTidSet *
MirrorTidSetMake(ArrayType *array)
{
	MirrorTidSet *set = palloc0(sizeof(MirrorTidSet));
	Datum	   *values;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT,
					  &values, &nulls, &n);
	set->tids = palloc_array(uint64, Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		ItemPointer tid;

		GPUVEC_STEP(i);
		if (nulls[i])
			continue;
		tid = (ItemPointer) DatumGetPointer(values[i]);
		if (ItemPointerIsValid(tid))
			set->tids[set->n++] = gpuvec_tid(ItemPointerGetBlockNumber(tid),
											 ItemPointerGetOffsetNumber(tid));
	}
	pfree(values);
	pfree(nulls);
	sort_tids(set);
	return set;
}

/* Position of the first tid that is not before this one */
static uint64
lower_bound(const MirrorTidSet *set, uint64 tid)
{
	uint64		first = 0;
	uint64		n = set->n;

	while (n > 0)
	{
		uint64		half = n / 2;

		if (set->tids[first + half] < tid)
		{
			first += half + 1;
			n -= half + 1;
		}
		else
			n = half;
	}
	return first;
}

/* True if a row is in the set */
bool
MirrorTidSetHas(const MirrorTidSet *set, BlockNumber block, OffsetNumber line)
{
	uint64		tid = gpuvec_tid(block, line);
	uint64		position = lower_bound(set, tid);

	return position < set->n && set->tids[position] == tid;
}

/* True if a row of a page is in the set */
bool
MirrorTidSetHasBlock(const MirrorTidSet *set, BlockNumber block)
{
	uint64		position = lower_bound(set, gpuvec_tid(block, 0));

	return position < set->n && gpuvec_tid_block(set->tids[position]) == block;
}
