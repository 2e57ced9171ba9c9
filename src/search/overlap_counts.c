/*-------------------------------------------------------------------------
 *
 * overlap_counts.c
 *	  Numbers of rows that match sets, and pairs of sets, row by row.
 *
 * A hash table has the sets of each id.  So a row takes a look-up for each of
 * its ids, and an addition for each pair of the sets that it matches.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/key_hash.h"
#include "idset/idset.h"
#include "search/set_search.h"
#include "utils/memutils.h"

/* The sets of an id; n is 0 in a free slot */
typedef struct IdSets
{
	uint32		id;
	uint32		n;
	uint64		first;			/* in members[] */
} IdSets;

struct OverlapCounts
{
	uint32		n;				/* sets */
	uint64	   *pairs;
	IdSets	   *slots;			/* [mask + 1] with linear probing; at most
								 * every other one is used */
	uint64		mask;
	uint16	   *members;		/* sets of all ids, id by id */
	uint64		nrows;			/* that were counted */
	uint64	   *seen;			/* [n] the last row that matched a set, from 1 */
	uint16	   *matched;		/* [n] sets that a row matches */
};

/* The slot of an id, or the free one where it would be */
static inline IdSets *
find_slot(const OverlapCounts *counts, uint32 id)
{
	uint64		at = gpuvec_hash_key(id) & counts->mask;

	while (counts->slots[at].n > 0 && counts->slots[at].id != id)
		at = (at + 1) & counts->mask;
	return &counts->slots[at];
}

static inline uint32
id_at(gpuvec_id_span span, uint32 i)
{
	return idset_id_at(span.ids, span.wide, i);
}

static void *
allocate(uint64 n, Size size)
{
	return MemoryContextAllocExtended(CurrentMemoryContext, (n + 1) * size,
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* Give each id its place in members[], of which it is the end */
static void
place_members(OverlapCounts *counts)
{
	uint64		total = 0;

	for (uint64 i = 0; i <= counts->mask; i++)
	{
		GPUVEC_STEP(i);
		total += counts->slots[i].n;
		counts->slots[i].first = total;
	}
	counts->members = allocate(total, sizeof(uint16));
}

OverlapCounts *
OverlapCountsMake(const gpuvec_id_span *sets, uint32 n)
{
	OverlapCounts *counts = palloc0_object(OverlapCounts);
	uint64		total = 0;

	for (uint32 i = 0; i < n; i++)
		total += sets[i].n;
	counts->n = n;
	counts->pairs = allocate(gpuvec_overlap_pairs(n), sizeof(uint64));
	counts->seen = allocate(n, sizeof(uint64));
	counts->matched = allocate(n, sizeof(uint16));
	while (counts->mask < 2 * total)
		counts->mask = counts->mask * 2 + 1;
	counts->slots = allocate(counts->mask, sizeof(IdSets));
	for (uint32 i = 0; i < n; i++)
		for (uint32 j = 0; j < sets[i].n; j++)
		{
			IdSets	   *slot = find_slot(counts, id_at(sets[i], j));

			GPUVEC_STEP(j);
			slot->id = id_at(sets[i], j);
			slot->n++;
		}
	place_members(counts);
	for (uint32 i = n; i-- > 0;)
		for (uint32 j = 0; j < sets[i].n; j++)
		{
			GPUVEC_STEP(j);
			counts->members[--find_slot(counts, id_at(sets[i], j))->first] = (uint16) i;
		}
	return counts;
}

/* List the sets that a row matches; returns their number */
static uint32
list_matched(OverlapCounts *counts, gpuvec_id_span row)
{
	uint32		n = 0;

	counts->nrows++;
	for (uint32 i = 0; i < row.n; i++)
	{
		const IdSets *slot = find_slot(counts, id_at(row, i));

		for (uint32 j = 0; j < slot->n; j++)
		{
			uint16		set = counts->members[slot->first + j];

			if (counts->seen[set] == counts->nrows)
				continue;
			counts->seen[set] = counts->nrows;
			counts->matched[n++] = set;
		}
	}
	return n;
}

void
OverlapCountsAdd(void *arg, const gpuvec_sparse *row)
{
	OverlapCounts *counts = arg;
	uint32		n = list_matched(counts, row->ids);

	for (uint32 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		for (uint32 j = 0; j <= i; j++)
		{
			uint32		a = Min(counts->matched[i], counts->matched[j]);
			uint32		b = Max(counts->matched[i], counts->matched[j]);

			counts->pairs[gpuvec_overlap_pair(counts->n, a) + b - a]++;
		}
	}
}

uint64 *
OverlapCountsPairs(OverlapCounts *counts)
{
	return counts->pairs;
}
