/*-------------------------------------------------------------------------
 *
 * local_scan.c
 *	  Search without an engine, by a scan in this session.
 *
 * This is the last resort if no engine can run.  It is the first choice for
 * relations without a mirror: other table access methods, and small tables
 * that would be loaded for one call only.  It ranks with the same C function
 * as the engine, so the answer is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "entries/entries.h"
#include "idset/idset.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "search/set_search.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"

/* True if hit a comes before hit b in the results */
static bool
better(const MirrorHit *a, const MirrorHit *b)
{
	return MirrorCompareHits(a, b) < 0;
}

/* Restore the heap, whose root is the worst hit, from i downwards */
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

/* Restore the heap from its last hit, at i, upwards */
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

/* Add a hit to a query's heap of the k best */
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
		uint64		capacity = query->maxhits ? query->maxhits * 2 : 128;

		query->hits = query->hits == NULL ?
			MemoryContextAllocHuge(search->context, capacity * sizeof(MirrorHit)) :
			repalloc_huge(query->hits, capacity * sizeof(MirrorHit));
		query->maxhits = capacity;
	}
	query->hits[query->nhits] = *hit;
	sift_up(query->hits, query->nhits++);
}

/* Rank one row for all queries; arg is a MirrorSearch */
static void
rank_row(const gpuvec_sparse *row, ItemPointer tid, void *arg)
{
	MirrorSearch *search = arg;

	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];
		MirrorHit	hit;

		if (query->skip)
			continue;
		if (!MirrorRank(search, query, gpuvec_tid(ItemPointerGetBlockNumber(tid),
												  mirror_line(ItemPointerGetOffsetNumber(tid), true)),
						row, idset_span_common(query->vector.ids, row->ids), false, &hit))
			continue;
		offer(search, query, &hit);
	}
}

/* The same, if it is one of search->among */
static void
rank_row_among(const gpuvec_sparse *row, ItemPointer tid, void *arg)
{
	const MirrorSearch *search = arg;

	if (MirrorTidSetHas(search->among, ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid)))
		rank_row(row, tid, arg);
}

/* qsort comparator: best hit first */
static int
compare_hits(const void *a, const void *b)
{
	GPUVEC_LOOK();
	return MirrorCompareHits(a, b);
}

/* Empty the heaps of all queries */
static void
reset_hits(MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		search->queries[i].hits = NULL;
		search->queries[i].nhits = search->queries[i].maxhits = 0;
	}
}

/*
 * Hand over the row in the slot, unless it is null, in the memory context
 * `row`, which is reset
 */
static void
take_slot(const MirrorTarget *target, TupleTableSlot *slot, MemoryContext row, LocalRow take, void *arg)
{
	MemoryContext old = MemoryContextSwitchTo(row);
	bool		isnull;
	Datum		datum = slot_getattr(slot, target->attnum, &isnull);

	if (!isnull)
	{
		gpuvec_sparse value = RowOfDatum(target->key.values, datum);

		take(&value, &slot->tts_tid, arg);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(row);
}

/* Hand over the rows of a column */
static void
scan_table(const MirrorTarget *target, Snapshot snapshot, LocalRow take, void *arg)
{
	TupleTableSlot *slot = table_slot_create(target->rel, NULL);
	TableScanDesc scan = GpuvecBeginScan(target->rel, snapshot);
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		take_slot(target, slot, row, take, arg);
	}
	MemoryContextDelete(row);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Hand over the rows that an index keeps, under the tids of the versions that
 * the snapshot sees
 */
static void
scan_entries(const MirrorTarget *target, Snapshot snapshot, LocalRow take, void *arg)
{
	EntryReader *reader = EntryReaderBegin(target->index);
	IndexFetchTableData *fetch = GpuvecBeginFetch(target->rel);
	TupleTableSlot *slot = table_slot_create(target->rel, NULL);
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);
	BlockNumber nblocks;

	PredicateLockRelation(target->rel, snapshot);
	nblocks = RelationGetNumberOfBlocks(target->rel);
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		uint32		n;
		const IndexEntry *entries = EntryReaderBlock(reader, block, &n);

		for (uint32 i = 0; i < n; i++)
		{
			ItemPointerData tid = entries[i].root;
			bool		again = false;
			gpuvec_sparse value;
			MemoryContext old;

			CHECK_FOR_INTERRUPTS();
			if (entries[i].isnull ||
				!table_index_fetch_tuple(fetch, &tid, snapshot, slot, &again, NULL))
				continue;
			old = MemoryContextSwitchTo(row);
			value = RowOfPayload(target->key.values, entries[i].ids, entries[i].bytes);
			take(&value, &slot->tts_tid, arg);
			MemoryContextSwitchTo(old);
			MemoryContextReset(row);
			ExecClearTuple(slot);
		}
	}
	MemoryContextDelete(row);
	table_index_fetch_end(fetch);
	ExecDropSingleTupleTableSlot(slot);
	EntryReaderEnd(reader);
}

void
LocalScan(const MirrorTarget *target, Snapshot snapshot, LocalRow take, void *arg)
{
	if (target->key.index != 0)
		scan_entries(target, snapshot, take, arg);
	else
		scan_table(target, snapshot, take, arg);
}

/* Sort each query's hits, best first */
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

/* Find the k best rows of a relation, for all queries */
void
LocalTopK(MirrorTarget *target, MirrorSearch *search)
{
	reset_hits(search);
	LocalScan(target, search->snapshot, rank_row, search);
	sort_hits(search);
}

/*
 * Rank the rows in search->among for all queries.  They are fetched one by
 * one, in the order of the table.  Some tids may name no row: the table access
 * method recognizes those beyond the end of the table, and for others the
 * fetch finds nothing.
 *
 * The predicate lock is on the whole relation, as for all searches.  Locks on
 * the fetched rows would not notice a row that is inserted later at another
 * given tid.
 */
static void
fetch_among(MirrorTarget *target, MirrorSearch *search)
{
	const MirrorTidSet *among = search->among;
	TupleTableSlot *slot = table_slot_create(target->rel, NULL);
	TableScanDesc scan = table_beginscan_tid(target->rel, search->snapshot);
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);

	PredicateLockRelation(target->rel, search->snapshot);
	for (uint64 i = 0; i < among->n; i++)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSet(&tid, gpuvec_tid_block(among->tids[i]), gpuvec_tid_line(among->tids[i]));
		if (!table_tuple_tid_valid(scan, &tid) ||
			!table_tuple_fetch_row_version(target->rel, &tid, search->snapshot, slot))
			continue;
		take_slot(target, slot, row, rank_row, search);
		ExecClearTuple(slot);
	}
	MemoryContextDelete(row);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Find the k best of the rows in search->among, for all queries.  An index
 * keeps rows by the roots of their versions, so all of them are looked at.
 */
void
LocalTopKAmong(MirrorTarget *target, MirrorSearch *search)
{
	reset_hits(search);
	if (target->key.index != 0)
		LocalScan(target, search->snapshot, rank_row_among, search);
	else
		fetch_among(target, search);
	sort_hits(search);
}
