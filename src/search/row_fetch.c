/*-------------------------------------------------------------------------
 *
 * row_fetch.c
 *	  Fetch many rows of a table by tids that are scattered all over it.
 *
 * A row in the buffer pool is reached by a chain of memory accesses, each of
 * which gives the address of the next: bucket and entry of the buffer table,
 * buffer descriptor, page header, line pointer, tuple.  In a large pool each
 * access misses the processor's caches, and often its TLB.  So waiting for a
 * row takes longer than copying it.  The chain is cut in two places:
 *
 * 1. Hints.  One pass over the buffer descriptors, which are contiguous,
 * finds the buffers of all blocks of the table.  That saves the look-up in
 * the buffer table.  ReadRecentBuffer() checks a hint when it pins the
 * buffer.
 *
 * 2. Prefetches.  A hint gives the addresses of descriptor, page header and
 * line pointer long before the row's turn.  A few rows later the line pointer
 * has arrived, and gives the address of the tuple.  The caller names the rows
 * that follow, their cache lines are prefetched, and the waiting times
 * overlap.
 *
 * Neither affects the result.  Hints are read without locks, and a line
 * pointer is read ahead without a pin.  Such values may be wrong or torn;
 * then useless cache lines are prefetched.  The row itself is fetched as
 * heap_fetch() does: the page is pinned and share-locked; visibility,
 * predicate lock and serialization conflicts are left to the server's
 * functions.
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
 * The pass over the descriptors pays if there is at least one row to fetch
 * per this many buffers.  A descriptor takes 2 to 4 ns; a row takes at least
 * 500 ns longer without a hint.
 */
#define HINT_BUFFERS_PER_ROW	128

#define CACHE_LINE		64
#define TUPLE_LINES		4		/* at most this many cache lines of a tuple
								 * are prefetched */

struct RowFetch
{
	Relation	rel;
	Snapshot	snapshot;

	/*
	 * [mask + 1]: hints[block & mask] is a buffer that held the block when it
	 * was noted, or 0.  NULL: no hints.
	 */
	Buffer	   *hints;
	uint32		mask;

	/* the row returned last */
	HeapTupleData tuple;
	Buffer		buffer;
	TupleTableSlot *slot;		/* for table access methods other than heap;
								 * else NULL */
};

/* Make hints[] from the descriptors of all buffers */
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

/* Prepare to fetch about nrows rows of a table */
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
 * Prefetch for a row that will be fetched: descriptor, page header and line
 * pointer
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

/* Prefetch the row's tuple; called some rows after RowFetchAheadPage() */
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
 * Pin the hinted buffer if it holds the block, without the buffer table.
 * Until PostgreSQL 15, ReadRecentBuffer() does not raise the usage count.  So
 * there a buffer whose usage count is 0 is left to ReadBuffer(), which raises
 * it.
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

/* Pin a block's buffer, and note it as a hint */
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
 * True if the snapshot sees a row at the tid.  Sets fetch->tuple.  The caller
 * holds a share lock on the page.
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
 * The row at a tid, or NULL if the snapshot sees none there.  The row stays
 * valid, in its pinned page, until RowFetchRelease().
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

/* Release the row that RowFetchGet() returned */
void
RowFetchRelease(RowFetch *fetch)
{
	if (fetch->slot)
		ExecClearTuple(fetch->slot);
	if (BufferIsValid(fetch->buffer))
		ReleaseBuffer(fetch->buffer);
	fetch->buffer = InvalidBuffer;
}
