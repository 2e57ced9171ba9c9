/*-------------------------------------------------------------------------
 *
 * idset.c
 *	  Makes sets, searches them, and counts common ids.
 *
 * Sets are made from ids in any order.  Ids that already ascend are copied.
 * Fewer than LINEAR_IDS other ids are sorted by comparing.  More ids take
 * linear time: if all of them are below 65,536, they are marked in a bitmap,
 * which drops duplicates as well; else they are sorted byte by byte.
 *
 * Common ids of two narrow or two wide sets are counted by a merge that keeps
 * nothing (idset_merge.c).  For a narrow and a wide one there is a merge of
 * their own, without a branch that depends on the ids; if one of them is much
 * shorter, its ids are searched in the longer one.
 *
 * The functions that read ids are written once, for arrays of which the
 * compiler knows whether they are wide, and it makes a loop of each kind.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_merge.h"

/* From this many ids on, sort in linear time */
#define LINEAR_IDS		256

/* Bytes of a set */
#define NARROW_SIZE(n)	(VARHDRSZ + (Size) (n) * sizeof(uint16))
#define WIDE_SIZE(n)	(VARHDRSZ + (Size) (n) * sizeof(uint32) + 1)

/* ---- making sets ---- */

/* A new narrow set of n ids; the caller fills in all of them */
IdSet *
idset_alloc(uint32 n)
{
	IdSet	   *set = palloc(NARROW_SIZE(n));

	SET_VARSIZE(set, NARROW_SIZE(n));
	return set;
}

/* The number as an id; an error if it is out of range */
uint32
idset_check_id(int64 number)
{
	if (number < 0 || number > (int64) IDSET_MAX_ID)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id " INT64_FORMAT " is out of range for type idset", number),
				 errdetail("Ids are 0 to " UINT64_FORMAT ".", IDSET_MAX_ID)));
	return (uint32) number;
}

/* A wide set of n ids, ascending and distinct */
static IdSet *
wide_set(const uint32 *ids, uint32 n)
{
	IdSet	   *set = palloc(WIDE_SIZE(n));

	SET_VARSIZE(set, WIDE_SIZE(n));
	memcpy(set->ids, ids, n * sizeof(uint32));
	((char *) set)[WIDE_SIZE(n) - 1] = 0;
	return set;
}

/* The same of a narrow set */
static IdSet *
narrow_set(const uint32 *ids, uint32 n)
{
	IdSet	   *set = idset_alloc(n);

	for (uint32 i = 0; i < n; i++)
		set->ids[i] = (uint16) ids[i];
	return set;
}

/* A set of n ids that are ascending and distinct; NULL after a soft error */
static IdSet *
set_of_sorted(const uint32 *ids, uint32 n, Node *escontext)
{
	if (n > GPUVEC_MAX_IDS)
	{
		errsave(escontext,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many ids for type idset"),
				 errdetail("A set has at most %d ids, not %u.", GPUVEC_MAX_IDS, n)));
		return NULL;
	}
	if (n > 0 && ids[n - 1] > IDSET_MAX_NARROW_ID)
		return wide_set(ids, n);
	return narrow_set(ids, n);
}

/* A set of n ids that are ascending and distinct */
IdSet *
idset_from_sorted(const uint32 *ids, uint32 n)
{
	return set_of_sorted(ids, n, NULL);
}

/* The set of the n ids whose bits are set */
static IdSet *
set_from_bitmap(const uint64 *bitmap, uint32 n)
{
	IdSet	   *set = idset_alloc(n);
	uint32		count = 0;

	for (int word = 0; word < (IDSET_MAX_NARROW_ID + 1) / 64; word++)
		for (uint64 bits = bitmap[word]; bits != 0; bits &= bits - 1)
			set->ids[count++] = (uint16) (word * 64 + __builtin_ctzll(bits));
	return set;
}

/* Make a set of n narrow ids by marking them in a bitmap */
static IdSet *
from_many_narrow(const uint32 *ids, uint32 n)
{
	uint64	   *bitmap = palloc0((IDSET_MAX_NARROW_ID + 1) / 8);
	uint32		count = 0;
	IdSet	   *set;

	for (uint32 i = 0; i < n; i++)
	{
		uint64		bit = UINT64CONST(1) << (ids[i] % 64);

		GPUVEC_STEP(i);
		count += (bitmap[ids[i] / 64] & bit) == 0;
		bitmap[ids[i] / 64] |= bit;
	}
	set = set_from_bitmap(bitmap, count);
	pfree(bitmap);
	return set;
}

/* qsort comparator */
static int
compare_ids(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* Sort ids[] into out[] by the byte at `shift`; ids with equal bytes stay */
static void
sort_by_byte(const uint32 *ids, uint32 *out, uint32 n, int shift)
{
	uint32		starts[257] = {0};

	for (uint32 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		starts[((ids[i] >> shift) & 0xFF) + 1]++;
	}
	for (int byte = 0; byte < 256; byte++)
		starts[byte + 1] += starts[byte];
	for (uint32 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		out[starts[(ids[i] >> shift) & 0xFF]++] = ids[i];
	}
}

/* Sort ids[], with duplicates or not */
void
idset_sort(uint32 *ids, uint32 n)
{
	uint32	   *other;

	if (n < LINEAR_IDS)
	{
		qsort(ids, n, sizeof(uint32), compare_ids);
		return;
	}
	other = MemoryContextAllocHuge(CurrentMemoryContext, (Size) n * sizeof(uint32));
	sort_by_byte(ids, other, n, 0);
	sort_by_byte(other, ids, n, 8);
	sort_by_byte(ids, other, n, 16);
	sort_by_byte(other, ids, n, 24);
	pfree(other);
}

/* Sort ids[], drop duplicates, and return the number of those left */
uint32
idset_sort_distinct(uint32 *ids, uint32 n)
{
	uint32		count = 0;

	idset_sort(ids, n);
	for (uint32 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (count == 0 || ids[count - 1] != ids[i])
			ids[count++] = ids[i];
	}
	return count;
}

/*
 * A set of n ids in any order, with duplicates or not; may sort ids[].  NULL
 * after a soft error, which goes to `escontext`.
 */
IdSet *
idset_from_ids_safe(uint32 *ids, uint32 n, Node *escontext)
{
	uint32		all = n > 0 ? ids[0] : 0;
	bool		sorted = true;

	for (uint32 start = 1; start < n; start += GPUVEC_STEPS)
	{
		uint32		end = Min(start + GPUVEC_STEPS, n);

		GPUVEC_LOOK();
		for (uint32 i = start; i < end; i++)
		{
			sorted &= ids[i - 1] < ids[i];
			all |= ids[i];
		}
	}
	if (sorted)
		return set_of_sorted(ids, n, escontext);
	if (n >= LINEAR_IDS && all <= IDSET_MAX_NARROW_ID)
		return from_many_narrow(ids, n);
	return set_of_sorted(ids, idset_sort_distinct(ids, n), escontext);
}

/* The same; an error beyond the number of ids that a set may have */
IdSet *
idset_from_ids(uint32 *ids, uint32 n)
{
	return idset_from_ids_safe(ids, n, NULL);
}

/* ---- common ids ---- */

/*
 * Common ids of a narrow and a wide array, the first of which is the shorter
 * one
 */
static pg_attribute_always_inline uint32
count_common(const void *a, bool wide_a, uint32 na, const void *b, bool wide_b, uint32 nb)
{
	uint32		count = 0;
	uint32		i = 0;
	uint32		j = 0;

	if (nb / IDSET_GALLOP_RATIO > na)
	{
		for (; i < na && j < nb; i++)
		{
			uint32		id = idset_id_at(a, wide_a, i);

			j = idset_gallop(b, wide_b, j, nb, id);
			count += j < nb && idset_id_at(b, wide_b, j) == id;
		}
		return count;
	}
	while (i < na && j < nb)
	{
		uint32		x = idset_id_at(a, wide_a, i);
		uint32		y = idset_id_at(b, wide_b, j);

		count += x == y;
		i += x <= y;
		j += y <= x;
	}
	return count;
}

/* The number of common ids */
uint32
idset_span_common(gpuvec_id_span a, gpuvec_id_span b)
{
	if (a.wide == b.wide)
		return a.wide ? idset_merge_wide(a.ids, a.n, b.ids, b.n, MERGE_BOTH, NULL) :
			idset_merge_narrow(a.ids, a.n, b.ids, b.n, MERGE_BOTH, NULL);
	if (a.n > b.n)
		return idset_span_common(b, a);
	if (a.wide)
		return count_common(a.ids, true, a.n, b.ids, false, b.n);
	return count_common(a.ids, false, a.n, b.ids, true, b.n);
}

/* True if the id is in the set.  *position is where it is, or would be. */
bool
idset_find(const IdSet *set, uint32 id, uint32 *position)
{
	gpuvec_id_span span = idset_span(set);
	uint32		low = 0;
	uint32		high = span.n;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (idset_id_at(span.ids, span.wide, middle) < id)
			low = middle + 1;
		else
			high = middle;
	}
	*position = low;
	return low < span.n && idset_id_at(span.ids, span.wide, low) == id;
}
