/*-------------------------------------------------------------------------
 *
 * idset.c
 *	  Makes sets, searches them, and counts common ids.
 *
 * Sets are made from ids in any order.  Ids that already ascend are copied.
 * Fewer than BITMAP_IDS other ids are sorted.  More ids are marked in a
 * bitmap of all 65,536 ids, which takes linear time and drops duplicates.
 *
 * Common ids of two sets of similar length are counted by merging, without a
 * branch that depends on the ids.  If one set is much shorter, each of its
 * ids is searched in the longer set, by a galloping search from the position
 * of the last id.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset.h"

/*
 * From this ratio of lengths on, search the longer array instead of merging
 */
#define GALLOP_RATIO	16

/* From this many ids on, mark ids in a bitmap instead of sorting */
#define BITMAP_IDS		256

/* A new set of n ids; the caller fills in all of them */
IdSet *
idset_alloc(uint32 n)
{
	IdSet	   *set = palloc(IDSET_SIZE(n));

	SET_VARSIZE(set, IDSET_SIZE(n));
	return set;
}

/* The number as an id; an error if it is out of range */
uint16
idset_check_id(int64 number)
{
	if (number < 0 || number > GPUVEC_MAX_ID)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id " INT64_FORMAT " is out of range for type idset", number),
				 errdetail("Ids are 0 to %d.", GPUVEC_MAX_ID)));
	return (uint16) number;
}

/* qsort comparator */
static int
compare_ids(const void *a, const void *b)
{
	return (int) *(const uint16 *) a - (int) *(const uint16 *) b;
}

/* The set of the n ids whose bits are set */
static IdSet *
set_from_bitmap(const uint64 *bitmap, uint32 n)
{
	IdSet	   *set = idset_alloc(n);
	uint32		count = 0;

	for (int word = 0; word < (GPUVEC_MAX_ID + 1) / 64; word++)
		for (uint64 bits = bitmap[word]; bits != 0; bits &= bits - 1)
			set->ids[count++] = (uint16) (word * 64 + __builtin_ctzll(bits));
	return set;
}

/* Make a set of n ids by marking them in a bitmap */
static IdSet *
from_many_ids(const uint16 *ids, uint32 n)
{
	uint64	   *bitmap = palloc0((GPUVEC_MAX_ID + 1) / 8);
	uint32		count = 0;
	IdSet	   *set;

	for (uint32 i = 0; i < n; i++)
	{
		uint64		bit = UINT64CONST(1) << (ids[i] % 64);

		count += (bitmap[ids[i] / 64] & bit) == 0;
		bitmap[ids[i] / 64] |= bit;
	}
	set = set_from_bitmap(bitmap, count);
	pfree(bitmap);
	return set;
}

/* A set of n ids in any order, with duplicates or not; may sort ids[] */
IdSet *
idset_from_ids(uint16 *ids, uint32 n)
{
	IdSet	   *set;
	uint32		count = 0;
	bool		sorted = true;

	for (uint32 i = 1; i < n && sorted; i++)
		sorted = ids[i - 1] < ids[i];
	if (!sorted && n >= BITMAP_IDS)
		return from_many_ids(ids, n);
	if (!sorted)
		qsort(ids, n, sizeof(uint16), compare_ids);
	set = idset_alloc(n);
	for (uint32 i = 0; i < n; i++)
		if (count == 0 || set->ids[count - 1] != ids[i])
			set->ids[count++] = ids[i];
	idset_shrink(set, count);
	return set;
}

/*
 * Galloping search: the first position in ids[from ..  n) whose id is >= `id`
 */
static uint32
gallop(const uint16 *ids, uint32 from, uint32 n, uint16 id)
{
	uint32		step = 1;
	uint32		low = from;
	uint32		high;

	while (low + step < n && ids[low + step] < id)
	{
		low += step;
		step *= 2;
	}
	high = Min(low + step, n);
	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (ids[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The number of common ids of two ascending, distinct arrays */
uint32
idset_intersection_count(const uint16 *a, uint32 na, const uint16 *b, uint32 nb)
{
	uint32		count = 0;
	uint32		i = 0;
	uint32		j = 0;

	if (na > nb)
		return idset_intersection_count(b, nb, a, na);
	if (nb / GALLOP_RATIO > na)
	{
		for (; i < na && j < nb; i++)
		{
			j = gallop(b, j, nb, a[i]);
			count += j < nb && b[j] == a[i];
		}
		return count;
	}
	while (i < na && j < nb)
	{
		uint16		x = a[i];
		uint16		y = b[j];

		count += x == y;
		i += x <= y;
		j += y <= x;
	}
	return count;
}

/* True if the id is in the set.  *position is where it is, or would be. */
bool
idset_find(const IdSet *set, uint16 id, uint32 *position)
{
	uint32		n = idset_count(set);
	uint32		low = 0;
	uint32		high = n;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (set->ids[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	*position = low;
	return low < n && set->ids[low] == id;
}
