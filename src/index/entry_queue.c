/*-------------------------------------------------------------------------
 *
 * entry_queue.c
 *	  Index entries that wait to be written.
 *
 * A WAL record for each row would make insertions several times slower.  So
 * entries wait in this process, until rows of another bucket follow, or more
 * than QUEUE_BYTES wait.  At the latest they are written
 *
 *	 - before the transaction commits or is prepared: no other session sees
 *	   the rows before that, and each row commits with its entry;
 *	 - before a query of this transaction begins that writes or has parallel
 *	   workers, before each index scan, and before a function searches what
 *	   the index has: these see the rows.
 *
 * A row is handed over to the feed after its entry was written: who reads the
 * page instead finds the entry.
 *
 * While an entry waits, its row may die: its subtransaction fails, or its
 * speculative insertion meets a conflict.  VACUUM then finds no entry of the
 * row, and may give its tid to another row.  So the entries of a
 * subtransaction are dropped when it fails, while it still has its lock on
 * the table.  Other entries are written only if this transaction still has
 * rows at their tids.  After a conflict that may be another row of the same
 * transaction, so rows that were inserted speculatively are recognized by a
 * hash of their contents.  An index that is not valid yet has no queue, as
 * CREATE INDEX CONCURRENTLY adds rows of other transactions.  Nor has an
 * index on a table with another access method than heap.  Nor, from 19 on, one
 * that this transaction has made: REPACK (CONCURRENTLY) adds rows to an index
 * of its own, and gives its file to another index before it commits.
 *
 * If the index is gone when its entries are to be written, or was rebuilt by
 * this transaction, the entries are dropped; the rebuild has them.  But a
 * subtransaction that dropped or rebuilt the index may still fail, and the
 * index comes back: until that is decided, the entries wait.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "entries/entries.h"
#include "executor/executor.h"
#include "index/entry_queue.h"
#include "mirror/describe/row_value.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "nodes/plannodes.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Indexes that can have a queue at a time */
#define QUEUES			16

/* Entries are written when this many bytes wait */
#define QUEUE_BYTES		(64 * 1024)

typedef struct EntryQueue
{
	Oid			index;			/* InvalidOid: the queue is free */
	uint8		build[ENTRY_BUILD_BYTES];	/* build id of the index */
	uint32		bucket;			/* bucket of all entries */
	EntryBatch	batch;
} EntryQueue;

static EntryQueue queues[QUEUES];
static int	nqueues = 0;		/* in use now or before in this transaction */
static bool ending = false;		/* commit has begun: entries are written at
								 * once */
static bool speculating = false;	/* a statement began that may insert
									 * speculatively */
static MemoryContext queue_context = NULL;

static ExecutorStart_hook_type prev_executor_start = NULL;

/* Which line pointers of a heap page are rows of this transaction? */
typedef struct OwnRows
{
	Relation	heap;
	BlockNumber nblocks;		/* of the heap */
	BlockNumber block;			/* the page that own[] is of */
	bool		own[MaxHeapTuplesPerPage + 1];	/* [line pointer] */
} OwnRows;

/* Find the transaction's rows on a page */
static void
find_own_rows(OwnRows *rows, BlockNumber block)
{
	Buffer		buffer;
	Page		page;
	OffsetNumber last;

	memset(rows->own, 0, sizeof(rows->own));
	rows->block = block;
	if (block >= rows->nblocks)
		return;
	buffer = ReadBuffer(rows->heap, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	last = Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	for (OffsetNumber line = FirstOffsetNumber; line <= last; line++)
	{
		ItemId		item = PageGetItemId(page, line);

		rows->own[line] = ItemIdIsNormal(item) &&
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmin((HeapTupleHeader) PageGetItem(page, item)));
	}
	UnlockReleaseBuffer(buffer);
}

/*
 * A hash of the contents of the row at this tid, never 0, to recognize the
 * row by.  Returns 0 if there is no row, or if `speculative` is set and the
 * row was not inserted speculatively.
 */
static uint16
row_number(Relation heap, ItemPointer tid, bool speculative)
{
	Buffer		buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(tid));
	uint16		result = 0;
	Page		page;
	ItemId		item;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	item = PageGetItemId(page, ItemPointerGetOffsetNumber(tid));
	if (ItemIdIsNormal(item))
	{
		HeapTupleHeader tuple = (HeapTupleHeader) PageGetItem(page, item);

		if (!speculative || HeapTupleHeaderIsSpeculative(tuple))
			result = hash_bytes((unsigned char *) tuple + SizeofHeapTupleHeader,
								ItemIdGetLength(item) - SizeofHeapTupleHeader) | 1;
	}
	UnlockReleaseBuffer(buffer);
	return result;
}

/*
 * True if this transaction has a row at this tid, with the row_number() `row`
 * (0: any)
 */
static bool
is_own_row(ItemPointer root, uint16 row, void *arg)
{
	OwnRows    *rows = arg;

	if (ItemPointerGetBlockNumber(root) != rows->block)
		find_own_rows(rows, ItemPointerGetBlockNumber(root));
	return ItemPointerGetOffsetNumber(root) <= MaxHeapTuplesPerPage &&
		rows->own[ItemPointerGetOffsetNumber(root)] &&
		(row == 0 || row_number(rows->heap, root, false) == row);
}

/* Hand over the rows of a batch, whose entries were written, all at once */
static void
hand_over(Relation index, const EntryBatch *batch)
{
	bool		values = RowTypeHasValues(index->rd_opcintype[0]);
	IndexEntry	entry;
	Size		offset = 0;

	while (EntryBatchEntry(batch, &offset, &entry))
	{
		gpuvec_sparse row = RowOfNull();

		if (!entry.whole)
		{
			FeedMark(index, ItemPointerGetBlockNumber(&entry.root));
			continue;
		}
		if (!entry.isnull)
			row = RowOfPayload(values, entry.ids, entry.bytes);
		FeedRow(index, &entry.root, values, &row, entry.filter_keys, batch->nfilter_keys);
	}
	FeedQueueFlush();
}

/* Write the entries that wait for an open index */
static void
write_queue(EntryQueue *queue, Relation index)
{
	OwnRows		rows;

	rows.heap = table_open(index->rd_index->indrelid, NoLock);
	rows.nblocks = RelationGetNumberOfBlocks(rows.heap);
	rows.block = InvalidBlockNumber;
	EntryBatchFilter(&queue->batch, is_own_row, &rows);
	table_close(rows.heap, NoLock);
	EntriesWrite(index, queue->bucket, &queue->batch, false);
	GPUVEC_INJECTION("entries-before-mark");
	if (FeedTaken(index))
		hand_over(index, &queue->batch);
}

/*
 * Write the entries if the index still exists and is of the same build.
 * False: it is not.
 */
static bool
write_if_there(EntryQueue *queue)
{
	uint8		build[ENTRY_BUILD_BYTES];
	Relation	index;
	bool		there;

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(queue->index)))
		return false;
	index = index_open(queue->index, RowExclusiveLock);
	there = EntriesBuildId(index, build) && memcmp(build, queue->build, sizeof(build)) == 0;
	if (there)
		write_queue(queue, index);
	index_close(index, RowExclusiveLock);
	return there;
}

/* Write the entries, or drop them if their index cannot come back */
static void
flush_queue(EntryQueue *queue)
{
	if (queue->batch.used == 0)
		return;
	if (write_if_there(queue) || GetCurrentTransactionNestLevel() == 1)
		queue->batch.used = 0;
}

void
EntryQueueFlush(void)
{
	for (int i = 0; i < nqueues; i++)
		flush_queue(&queues[i]);
}

/* Give up all queues */
static void
drop_queues(void)
{
	memset(queues, 0, nqueues * sizeof(EntryQueue));
	nqueues = 0;
	ending = speculating = false;
	if (queue_context != NULL)
		MemoryContextReset(queue_context);
}

/* The transaction is about to end, or has ended */
static void
queue_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			EntryQueueFlush();
			/* other extensions may still insert rows */
			ending = true;
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			drop_queues();
			break;
		default:
			break;
	}
}

/* A subtransaction fails: drop the entries of its rows */
static void
queue_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
					   void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < nqueues; i++)
		EntryBatchCut(&queues[i].batch, subid);
}

/*
 * Note whether a plan may insert rows speculatively, or one that a CustomScan
 * of an extension wraps
 */
static void
note_conflicts(const Plan *plan)
{
	ListCell   *cell;

	if (plan == NULL)
		return;
	if (IsA(plan, ModifyTable))
		speculating |= ((const ModifyTable *) plan)->onConflictAction != ONCONFLICT_NONE;
	else if (IsA(plan, CustomScan))
	{
		foreach(cell, ((const CustomScan *) plan)->custom_plans)
			note_conflicts(lfirst(cell));
	}
}

/* The same for a statement, with its WITH queries */
static void
note_conflicts_of(const PlannedStmt *statement)
{
	ListCell   *cell;

	note_conflicts(statement->planTree);
	foreach(cell, statement->subplans)
		note_conflicts(lfirst(cell));
}

/*
 * A query begins, perhaps with parallel workers, which do not know the
 * entries and rows that wait in this process.  A query that only reads, in
 * this process, needs no flush here, as its index scans flush.  The function
 * of an index may run such a query for each row.
 */
static void
queue_executor_start(QueryDesc *query, int flags)
{
	if (query->operation != CMD_SELECT || query->plannedstmt->parallelModeNeeded)
		EntryQueueFlush();
	if (query->plannedstmt->parallelModeNeeded)
		FeedQueueFlush();
	note_conflicts_of(query->plannedstmt);
	if (prev_executor_start)
		prev_executor_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

bool
EntryQueueSpeculates(void)
{
	return speculating;
}

void
EntryQueueInit(void)
{
	RegisterXactCallback(queue_xact_callback, NULL);
	RegisterSubXactCallback(queue_subxact_callback, NULL);
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = queue_executor_start;
	EntriesWriteWaiting = EntryQueueFlush;
	/* a statement may have begun before the library was loaded */
	speculating = IsTransactionState();
}

/* The queue of a build of an index.  NULL: all queues are taken. */
static EntryQueue *
queue_of(Oid index, const uint8 *build)
{
	EntryQueue *queue;

	for (int i = 0; i < nqueues; i++)
		if (queues[i].index == index && memcmp(queues[i].build, build, ENTRY_BUILD_BYTES) == 0)
			return &queues[i];
	if (nqueues == QUEUES)
		return NULL;
	queue = &queues[nqueues++];
	queue->index = index;
	memcpy(queue->build, build, ENTRY_BUILD_BYTES);
	return queue;
}

/* Write an entry at once */
static void
write_now(Relation index, ItemPointer root, const EntryValue *value)
{
	EntryBatch	batch = {0};

	EntryBatchAdd(&batch, CurrentMemoryContext, root, value, 0);
	EntriesWrite(index, entry_bucket(ItemPointerGetBlockNumber(root)), &batch, false);
	if (!index->rd_index->indisvalid)
		FeedMark(index, ItemPointerGetBlockNumber(root));
	else if (FeedTaken(index))
		hand_over(index, &batch);
	pfree(batch.data);
}

/* True if the index's file may become that of another index before the end */
static bool
may_be_swapped(Relation index)
{
#if PG_VERSION_NUM >= 190000
	return index->rd_createSubid != InvalidSubTransactionId;
#else
	return false;
#endif
}

void
EntryQueueAdd(Relation heap, Relation index, ItemPointer root, const EntryValue *value)
{
	uint32		bucket = entry_bucket(ItemPointerGetBlockNumber(root));
	uint8		build[ENTRY_BUILD_BYTES];
	EntryQueue *queue;

	if (!EntriesBuildId(index, build))
		return;					/* the index is of another layout: scans
								 * report that */
	queue = queue_of(RelationGetRelid(index), build);
	if (queue == NULL || ending || !index->rd_index->indisvalid || may_be_swapped(index) ||
		heap->rd_tableam != GetHeapamTableAmRoutine())
	{
		write_now(index, root, value);
		return;
	}
	if (queue->bucket != bucket || queue->batch.used > QUEUE_BYTES)
		flush_queue(queue);
	if (queue_context == NULL)
		queue_context = AllocSetContextCreate(TopMemoryContext, "gpuvec entries to write",
											  ALLOCSET_DEFAULT_SIZES);
	queue->bucket = bucket;
	EntryBatchAdd(&queue->batch, queue_context, root, value,
				  speculating ? row_number(heap, root, true) : 0);
}
