/*-------------------------------------------------------------------------
 *
 * idset_merge.h
 *	  Merges two ascending arrays of ids: intersection, union, difference and
 *	  symmetric difference.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_MERGE_H
#define GPUVEC_IDSET_MERGE_H

#include "idset/idset.h"

/* From this ratio of lengths on, search the longer array */
#define IDSET_GALLOP_RATIO	16

/*
 * Galloping search: the first position in ids[from ..  n) whose id is >= `id`
 */
static pg_attribute_always_inline uint32
idset_gallop(const void *ids, bool wide, uint32 from, uint32 n, uint32 id)
{
	uint32		step = 1;
	uint32		low = from;
	uint32		high;

	while (low + step < n && idset_id_at(ids, wide, low + step) < id)
	{
		low += step;
		step *= 2;
	}
	high = Min(low + step, n);
	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (idset_id_at(ids, wide, middle) < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Which ids of two arrays a and b to keep; a sum of these */
#define MERGE_ONLY_A	1
#define MERGE_BOTH		2
#define MERGE_ONLY_B	4

/*
 * An output array has room for this many ids more than idset_merge_capacity()
 * says: ids are written in blocks
 */
#define MERGE_SLACK		8

/* The largest number of ids that a merge can keep */
static inline uint32
idset_merge_capacity(uint32 na, uint32 nb, int keep)
{
	if (keep == MERGE_BOTH)
		return Min(na, nb);
	return ((keep & MERGE_ONLY_B) ? nb : 0) + ((keep & (MERGE_ONLY_A | MERGE_BOTH)) ? na : 0);
}

/*
 * Merge two arrays of ids, each ascending and distinct, into out[].  Returns
 * the number of ids that were kept.  With out == NULL, and keep ==
 * MERGE_BOTH, they are only counted.
 */
extern uint32 idset_merge_narrow(const uint16 *a, uint32 na, const uint16 *b, uint32 nb,
								 int keep, uint16 *out);
extern uint32 idset_merge_wide(const uint32 *a, uint32 na, const uint32 *b, uint32 nb,
							   int keep, uint32 *out);

/*
 * The unit test sets this, to test what processors do that cannot compare
 * blocks of ids
 */
extern bool idset_merge_no_blocks;

/* Ids of a block, and of an entry of the table of positions */
#define MERGE_BLOCK_IDS	8

/* For each byte the positions of its bits that are set, ascending */
typedef const uint16 MergePositions[MERGE_BLOCK_IDS];

/*
 * idset_merge_wide.c: the union or symmetric difference of arrays of at least
 * two blocks each, on a processor with AVX2
 */
extern uint32 idset_merge_network(const uint32 *a, uint32 na, const uint32 *b, uint32 nb,
								  int keep, MergePositions *positions, uint32 *out);

/* A new set of the ids of two sets that a merge keeps */
extern IdSet *idset_merge(const IdSet *a, const IdSet *b, int keep);

#endif							/* GPUVEC_IDSET_MERGE_H */
