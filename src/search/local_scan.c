/*-------------------------------------------------------------------------
 *
 * local_scan.c
 *	  Searching without an engine: a scan in this session.
 *
 * The answer of last resort (no engine can run) and the first choice for what
 * has no mirror (other table access methods, small tables that would have to
 * be loaded for one call).  It ranks with the same C function, so the answer
 * is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "idset/idset.h"
#include "miscadmin.h"
#include "search/set_search.h"
#include "storage/predicate.h"

/* Is a better than b in the order of results? */
static bool
better(const MirrorHit *a, const MirrorHit *b)
{
	return MirrorCompareHits(a, b) < 0;
}

/* Let the hit at `i` of a heap (worst at the root) sink to its place */
static void
sift_down(MirrorHit *heap, uint64 n, uint64 i)
{
	MirrorHit	hit = heap[i];

	for (;;)
	{
		uint64		child = 2 * i + 1;

		if (child >= n)
			break;
		if (child + 1 < n && better(&heap[child], &heap[child + 1]))
			child++;
		if (!better(&hit, &heap[child]))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = hit;
}

/* Let the last hit of a heap rise to its place */
static void
sift_up(MirrorHit *heap, uint64 i)
{
	MirrorHit	hit = heap[i];

	while (i > 0 && better(&heap[(i - 1) / 2], &hit))
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = hit;
}

/* Offer a row to a query */
static void
offer(MirrorSearch *search, MirrorQuery *query, const MirrorHit *hit)
{
	if (query->nhits == search->k)
	{
		if (!better(hit, &query->hits[0]))
			return;
		query->hits[0] = *hit;
		sift_down(query->hits, query->nhits, 0);
		return;
	}
	if (query->nhits == query->maxhits)
	{
		uint64		room = query->maxhits ? query->maxhits * 2 : 128;

		query->hits = query->hits == NULL ?
			MemoryContextAllocHuge(search->context, room * sizeof(MirrorHit)) :
			repalloc_huge(query->hits, room * sizeof(MirrorHit));
		query->maxhits = room;
	}
	query->hits[query->nhits] = *hit;
	sift_up(query->hits, query->nhits++);
}

/* Rank one row for all queries */
static void
rank_row(MirrorSearch *search, IdSet *set, ItemPointer tid)
{
	uint32		len = idset_count(set);

	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];
		MirrorHit	hit;
		uint32		common;

		if (query->skip)
			continue;
		common = idset_intersection_count(query->ids, query->len, idset_ids(set), len);
		if (!MirrorRank(search, query, gpuvec_tid(ItemPointerGetBlockNumber(tid),
												  mirror_line(ItemPointerGetOffsetNumber(tid), true)),
						common, len, false, &hit))
			continue;
		offer(search, query, &hit);
	}
}

/* qsort comparator */
static int
compare_hits(const void *a, const void *b)
{
	return MirrorCompareHits(a, b);
}

/* Forget what queries have found so far */
static void
reset_hits(MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		search->queries[i].hits = NULL;
		search->queries[i].nhits = search->queries[i].maxhits = 0;
	}
}

/* Rank the row in the slot; what that allocates goes with the context */
static void
rank_slot(MirrorTarget *target, MirrorSearch *search, TupleTableSlot *slot, MemoryContext row)
{
	MemoryContext old = MemoryContextSwitchTo(row);
	bool		isnull;
	Datum		datum = slot_getattr(slot, target->attnum, &isnull);

	if (!isnull)
		rank_row(search, DatumGetIdSetP(datum), &slot->tts_tid);
	MemoryContextSwitchTo(old);
	MemoryContextReset(row);
}

/* Bring what queries have found into its order */
static void
sort_hits(MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];

		if (query->nhits > 1)
			qsort(query->hits, query->nhits, sizeof(MirrorHit), compare_hits);
	}
}

/* The k best rows of a relation for all queries */
void
LocalTopK(MirrorTarget *target, MirrorSearch *search)
{
	TupleTableSlot *slot = table_slot_create(target->rel, NULL);
	TableScanDesc scan = table_beginscan(target->rel, search->snapshot, 0, NULL);
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);

	reset_hits(search);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		rank_slot(target, search, slot, row);
	}
	MemoryContextDelete(row);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	sort_hits(search);
}

/*
 * The same among the rows that the search is restricted to.  They are fetched
 * one by one, in the order of the table; of tids that name no row the table
 * access method knows those behind the end, and fetching finds nothing under
 * the others.
 *
 * The predicate lock is that of all searches.  Locks on the rows that are
 * found would not notice a row that is put in the place of another tid.
 */
void
LocalTopKAmong(MirrorTarget *target, MirrorSearch *search)
{
	const MirrorTidSet *among = search->among;
	TupleTableSlot *slot = table_slot_create(target->rel, NULL);
	TableScanDesc scan = table_beginscan_tid(target->rel, search->snapshot);
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);

	PredicateLockRelation(target->rel, search->snapshot);
	reset_hits(search);
	for (uint64 i = 0; i < among->n; i++)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSet(&tid, gpuvec_tid_block(among->tids[i]), gpuvec_tid_line(among->tids[i]));
		if (!table_tuple_tid_valid(scan, &tid) ||
			!table_tuple_fetch_row_version(target->rel, &tid, search->snapshot, slot))
			continue;
		rank_slot(target, search, slot, row);
		ExecClearTuple(slot);
	}
	MemoryContextDelete(row);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	sort_hits(search);
}
