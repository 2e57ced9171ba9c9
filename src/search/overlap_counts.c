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

#include "core/hash_secret.h"
#include "idset/idset.h"
#include "search/set_search.h"
#include "utils/memutils.h"

/* Ids that a new table has room for */
#define FIRST_IDS		1024

/* The sets of an id */
typedef struct IdSets
{
	uint32		id;
	char		status;			/* of simplehash.h */
	uint32		n;
	uint64		first;			/* in members[] */
} IdSets;

#define SH_PREFIX		id_sets
#define SH_ELEMENT_TYPE IdSets
#define SH_KEY_TYPE		uint32
#define SH_KEY			id
#define SH_HASH_KEY(table, key) gpuvec_secret_id_hash(key)
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct OverlapCounts
{
	uint32		n;				/* sets */
	uint64	   *pairs;
	id_sets_hash *ids;
	uint16	   *members;		/* sets of all ids, id by id */
	uint64		nrows;			/* that were counted */
	uint64	   *seen;			/* [n] the last row that matched, from 1 */
	uint16	   *matched;		/* [n] sets that a row matches */
};

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

/* Count the sets of each id; returns the sum */
static uint64
count_members(OverlapCounts *counts, const gpuvec_id_span *sets)
{
	uint64		total = 0;

	for (uint32 i = 0; i < counts->n; i++)
		for (uint32 j = 0; j < sets[i].n; j++)
		{
			bool		found;
			IdSets	   *id = id_sets_insert(counts->ids, id_at(sets[i], j), &found);

			GPUVEC_STEP(j);
			id->n = found ? id->n + 1 : 1;
			total++;
		}
	return total;
}

/* Give each id its place in members[], of which first is the end */
static void
place_members(OverlapCounts *counts)
{
	id_sets_iterator iterator;
	uint64		total = 0;
	IdSets	   *id;

	id_sets_start_iterate(counts->ids, &iterator);
	while ((id = id_sets_iterate(counts->ids, &iterator)) != NULL)
		id->first = total += id->n;
}

OverlapCounts *
OverlapCountsMake(const gpuvec_id_span *sets, uint32 n)
{
	OverlapCounts *counts = palloc0_object(OverlapCounts);

	counts->n = n;
	counts->pairs = allocate(gpuvec_overlap_pairs(n), sizeof(uint64));
	counts->seen = allocate(n, sizeof(uint64));
	counts->matched = allocate(n, sizeof(uint16));
	gpuvec_hash_secret_draw();
	counts->ids = id_sets_create(CurrentMemoryContext, FIRST_IDS, NULL);
	counts->members = allocate(count_members(counts, sets), sizeof(uint16));
	place_members(counts);
	for (uint32 i = n; i-- > 0;)
		for (uint32 j = 0; j < sets[i].n; j++)
		{
			GPUVEC_STEP(j);
			counts->members[--id_sets_lookup(counts->ids, id_at(sets[i], j))->first] = (uint16) i;
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
		const IdSets *id = id_sets_lookup(counts->ids, id_at(row, i));

		for (uint32 j = 0; id != NULL && j < id->n; j++)
		{
			uint16		set = counts->members[id->first + j];

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
