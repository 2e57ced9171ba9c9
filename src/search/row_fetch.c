/*-------------------------------------------------------------------------
 *
 * row_fetch.c
 *	  Many rows of a table by their tids, which are all over it.
 *
 * A row that lies in the buffer pool is reached by a chain of memory accesses
 * of which each tells the address of the next: bucket and entry of the buffer
 * table, the buffer's descriptor, the page's header, the line pointer, the
 * tuple.  In a large pool each misses the processor's caches, and often its
 * TLB, so a row takes longer to wait for than to copy.  The chain is cut in
 * two places:
 *
 *	 1. Hints.  Which buffer holds which block of the table is found out for
 *	 all blocks
 *		together, by one pass over the descriptors, which lie one behind the
 *		other.  That
 *		saves the buffer table; ReadRecentBuffer() checks the hint when it
 *		pins the buffer.
 *	 2. Requests ahead.  With a hint the addresses of descriptor, page header
 *	 and line
 *		pointer are known long before the row's turn, and a few rows later
 *		(when the line
 *		pointer has come) that of the tuple as well.  The caller names the
 *		rows that will
 *		follow, the caches are asked for the lines, and waiting times overlap.
 *
 * Neither decides anything.  Hints are read without locks, and a line pointer
 * is looked at ahead without a pin, so what is found may be wrong or torn:
 * then the caches are asked for lines of no use.  The row itself is fetched
 * as heap_fetch() does it: the page pinned and share-locked, visibility,
 * predicate lock and serialization conflicts by the server's functions.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "search/row_fetch.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"

/*
 * A pass over the descriptors pays if there is one row for so many buffers: a
 * descriptor takes 2 to 4 ns, a row without a hint 500 ns and more than one
 * with it.
 */
#define HINT_BUFFERS_PER_ROW	128

#define CACHE_LINE		64
#define TUPLE_LINES		4		/* of a tuple that are asked for ahead, at
								 * most */

struct RowFetch
{
	Relation	rel;
	Snapshot	snapshot;

	/*
	 * block & mask: a buffer that held such a block, 0 for none; NULL: no
	 * hints
	 */
	Buffer	   *hints;
	uint32		mask;

	/* the row that was asked for last */
	HeapTupleData tuple;
	Buffer		buffer;
	TupleTableSlot *slot;		/* tables that are no heaps; else NULL */
};

/* Note for each buffer with a block of the table that it is there */
static void
collect_hints(RowFetch *fetch)
{
	uint32		n = Min((uint32) NBuffers, RelationGetNumberOfBlocks(fetch->rel));

	n = pg_nextpower2_32(Max(n, 1));
	fetch->mask = n - 1;
	fetch->hints = MemoryContextAllocExtended(CurrentMemoryContext, n * sizeof(Buffer),
											  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < NBuffers; i++)
	{
		const BufferDesc *desc = GetBufferDescriptor(i);

		if (GpuvecBufferTagMatches(&desc->tag, fetch->rel))
			fetch->hints[desc->tag.blockNum & fetch->mask] = i + 1;
	}
}

/* Prepare to fetch some number of rows of a table */
RowFetch *
RowFetchBegin(Relation rel, Snapshot snapshot, uint64 nrows)
{
	RowFetch   *fetch = palloc0_object(RowFetch);

	fetch->rel = rel;
	fetch->snapshot = snapshot;
	fetch->buffer = InvalidBuffer;
	if (rel->rd_tableam != GetHeapamTableAmRoutine())
		fetch->slot = table_slot_create(rel, NULL);
	else if (!RelationUsesLocalBuffers(rel) && nrows >= (uint64) NBuffers / HINT_BUFFERS_PER_ROW)
		collect_hints(fetch);
	return fetch;
}

void
RowFetchEnd(RowFetch *fetch)
{
	if (fetch->slot)
		ExecDropSingleTupleTableSlot(fetch->slot);
	if (fetch->hints)
		pfree(fetch->hints);
	pfree(fetch);
}

/* The buffer that may hold a block, or InvalidBuffer */
static inline Buffer
hint_of(const RowFetch *fetch, BlockNumber block)
{
	return fetch->hints ? fetch->hints[block & fetch->mask] : InvalidBuffer;
}

/*
 * This row will be fetched: ask for the descriptor and for the page's first
 * steps
 */
void
RowFetchAheadPage(const RowFetch *fetch, ItemPointer tid)
{
	Buffer		buffer = hint_of(fetch, ItemPointerGetBlockNumber(tid));
	Page		page;

	if (buffer == InvalidBuffer)
		return;
	page = BufferGetPage(buffer);
	__builtin_prefetch(GetBufferDescriptor(buffer - 1), 1);
	__builtin_prefetch(page);
	__builtin_prefetch(PageGetItemId(page, ItemPointerGetOffsetNumber(tid)));
}

/* The same, nearer to its turn: ask for the tuple */
void
RowFetchAheadTuple(const RowFetch *fetch, ItemPointer tid)
{
	Buffer		buffer = hint_of(fetch, ItemPointerGetBlockNumber(tid));
	ItemIdData	item;
	uint32		start;
	uint32		end;

	if (buffer == InvalidBuffer)
		return;
	item = *PageGetItemId(BufferGetPage(buffer), ItemPointerGetOffsetNumber(tid));
	start = ItemIdGetOffset(&item) & ~(CACHE_LINE - 1);
	end = Min(ItemIdGetOffset(&item) + ItemIdGetLength(&item), BLCKSZ);
	end = Min(end, start + TUPLE_LINES * CACHE_LINE);
	for (; start < end; start += CACHE_LINE)
		__builtin_prefetch(BufferGetPage(buffer) + start);
}

/*
 * Pin a buffer if it holds the block, without a search in the buffer table.
 * Until 15 that did not count as use of the buffer; one whose uses are all
 * forgotten is left to ReadBuffer(), which counts.
 */
static bool
pin_hint(RowFetch *fetch, BlockNumber block, Buffer buffer)
{
	Relation	rel = fetch->rel;
	bool		pinned = false;

	if (buffer == InvalidBuffer)
		return false;
#if PG_VERSION_NUM >= 160000
	pinned = ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, buffer);
#elif PG_VERSION_NUM >= 140000
	pinned = BUF_STATE_GET_USAGECOUNT(pg_atomic_read_u32(&GetBufferDescriptor(buffer - 1)->state)) > 0 &&
		ReadRecentBuffer(rel->rd_node, MAIN_FORKNUM, block, buffer);
#endif
	if (pinned)
	{
		pgstat_count_buffer_read(rel);
		pgstat_count_buffer_hit(rel);
	}
	return pinned;
}

/* Pin the page of a block */
static Buffer
pin_page(RowFetch *fetch, BlockNumber block)
{
	Buffer		buffer = hint_of(fetch, block);

	if (pin_hint(fetch, block, buffer))
		return buffer;
	buffer = ReadBuffer(fetch->rel, block);
	if (fetch->hints)
		fetch->hints[block & fetch->mask] = buffer;
	return buffer;
}

/*
 * Does the line pointer of the page, which is locked, hold a row that the
 * snapshot sees?
 */
static bool
look_at_tuple(RowFetch *fetch, ItemPointer tid)
{
	Page		page = BufferGetPage(fetch->buffer);
	OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
	HeapTuple	tuple = &fetch->tuple;
	ItemId		item;
	bool		visible;

	GpuvecTestForOldSnapshot(fetch->snapshot, fetch->rel, page);
	if (offset < FirstOffsetNumber || offset > PageGetMaxOffsetNumber(page))
		return false;
	item = PageGetItemId(page, offset);
	if (!ItemIdIsNormal(item))
		return false;
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	tuple->t_self = *tid;
	tuple->t_tableOid = RelationGetRelid(fetch->rel);

	visible = HeapTupleSatisfiesVisibility(tuple, fetch->snapshot, fetch->buffer);
	if (visible)
		PredicateLockTID(fetch->rel, tid, fetch->snapshot,
						 HeapTupleHeaderGetXmin(tuple->t_data));
	HeapCheckForSerializableConflictOut(visible, fetch->rel, tuple, fetch->buffer,
										fetch->snapshot);
	return visible;
}

/*
 * The row at a tid, or NULL if the snapshot sees none there.  It stays where
 * it is, in the pinned page, until it is released.
 */
HeapTuple
RowFetchGet(RowFetch *fetch, ItemPointer tid)
{
	bool		visible;

	if (fetch->slot)
	{
		bool		should_free;

		if (!table_tuple_fetch_row_version(fetch->rel, tid, fetch->snapshot, fetch->slot))
			return NULL;
		return ExecFetchSlotHeapTuple(fetch->slot, false, &should_free);
	}

	fetch->buffer = pin_page(fetch, ItemPointerGetBlockNumber(tid));
	LockBuffer(fetch->buffer, BUFFER_LOCK_SHARE);
	visible = look_at_tuple(fetch, tid);
	LockBuffer(fetch->buffer, BUFFER_LOCK_UNLOCK);
	if (visible)
		return &fetch->tuple;
	RowFetchRelease(fetch);
	return NULL;
}

/* Done with the row */
void
RowFetchRelease(RowFetch *fetch)
{
	if (fetch->slot)
		ExecClearTuple(fetch->slot);
	if (BufferIsValid(fetch->buffer))
		ReleaseBuffer(fetch->buffer);
	fetch->buffer = InvalidBuffer;
}
