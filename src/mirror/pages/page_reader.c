/*-------------------------------------------------------------------------
 *
 * page_reader.c
 *	  Reads heap pages into the form that the engine takes.
 *
 * Loads and refreshes use the same reader.  Under one share lock it finds the
 * dead tuples, copies the page and takes its LSN.  Everything else
 * (deforming, detoasting) works on the copy, after the lock was released.
 * Hence content and LSN belong together: a later change of the page has a
 * later LSN, and the next check sees it.
 *
 * Of a page of a plain mirror the reader also tells the newest transaction
 * that has inserted rows, if all have been committed and none has been deleted
 * (visibility.c).  It does not of a page with the server's mark all-visible:
 * on a standby the mark may be wrong, and the visibility map has such pages
 * anyway.
 *
 * What rows a page has is in page_rows.c.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "core/protocol_mirrors.h"
#include "entries/entries.h"
#include "mirror/pages/changed_lines.h"
#include "mirror/pages/page_reader.h"
#include "mirror/pages/page_rows.h"
#include "miscadmin.h"

/*
 * Tables larger than 1 / BULK_READ_FRACTION of the buffer pool are read
 * through a ring buffer
 */
#define BULK_READ_FRACTION	4

/*
 * A page is read as a whole if more than 1 / MANY_LINES of its line pointers
 * have to be read
 */
#define MANY_LINES			2

PageReader *
PageReaderBegin(const MirrorTarget *target, Snapshot snapshot)
{
	PageReader *reader = palloc0(sizeof(PageReader));
	Relation	rel = target->rel;

	reader->target = target;
	reader->rel = rel;
	reader->attnum = target->attnum;
	reader->rooted = target->key.rooted;
	reader->snapshot = snapshot;
	reader->horizon = GpuvecOldestXmin(rel);
	if (RelationGetNumberOfBlocks(rel) > (BlockNumber) (NBuffers / BULK_READ_FRACTION))
		reader->strategy = GetAccessStrategy(BAS_BULKREAD);
	reader->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec page",
											ALLOCSET_DEFAULT_SIZES);
	reader->page = palloc(BLCKSZ);
	reader->dead = palloc(sizeof(bool) * (MaxOffsetNumber + 1));
	if (target->key.index != 0)
		reader->entries = EntryReaderBegin(target->index);
	return reader;
}

void
PageReaderEnd(PageReader *reader)
{
	if (reader->entries)
		EntryReaderEnd(reader->entries);
	MemoryContextDelete(reader->context);
	if (reader->strategy)
		FreeAccessStrategy(reader->strategy);
	pfree(reader->page);
	pfree(reader->dead);
	pfree(reader);
}

/* Pin and share-lock a page */
static Buffer
lock_page(PageReader *reader, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(reader->rel, MAIN_FORKNUM, block,
											RBM_NORMAL, reader->strategy);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	return buffer;
}

XLogRecPtr
PageReaderLSN(PageReader *reader, BlockNumber block)
{
	Buffer		buffer;
	XLogRecPtr	lsn;

	if (reader->entries)
		return EntryReaderVersion(reader->entries, entry_bucket(block));
	buffer = lock_page(reader, block);
	lsn = BufferGetLSNAtomic(buffer);
	UnlockReleaseBuffer(buffer);
	return lsn;
}

/*
 * Prefetch a page into the CPU's cache.  Its tuples are visited from the end
 * of the page backwards, and otherwise each visit waits for memory.  For a
 * page that was just written, that is most of the work.
 */
static void
prefetch_page(Page page)
{
#ifdef __GNUC__
	for (int offset = 0; offset < BLCKSZ; offset += PG_CACHE_LINE_SIZE / 2)
		__builtin_prefetch((char *) page + offset);
#endif
}

/* What is known of a tuple, whatever the snapshot */
typedef enum TupleState
{
	TUPLE_DEAD,					/* dead to everyone */
	TUPLE_UNSETTLED,			/* not committed, or deleted by somebody */
	TUPLE_LIVE					/* committed, and not deleted */
} TupleState;

/* A transaction, and the state of its tuples that nobody has deleted */
typedef struct Inserter
{
	TransactionId xid;
	TupleState	state;
} Inserter;

/*
 * Find out about a tuple of the page.  Usually one transaction has inserted
 * most of a page, so it need not be looked up for each row.
 */
static TupleState
tuple_state(PageReader *reader, HeapTuple tuple, Buffer buffer, Inserter *inserter)
{
	HeapTupleHeader header = tuple->t_data;
	bool		kept = (header->t_infomask & (HEAP_XMAX_INVALID | HEAP_MOVED)) == HEAP_XMAX_INVALID;
	HTSV_Result result;
	TupleState	state;

	if (kept && HeapTupleHeaderXminCommitted(header))
		return TUPLE_LIVE;
	if (kept && TransactionIdEquals(HeapTupleHeaderGetRawXmin(header), inserter->xid))
		return inserter->state;
	result = HeapTupleSatisfiesVacuum(tuple, reader->horizon, buffer);
	if (result == HEAPTUPLE_DEAD)
		return TUPLE_DEAD;
	state = result == HEAPTUPLE_LIVE ? TUPLE_LIVE : TUPLE_UNSETTLED;
	if (kept)
		*inserter = (Inserter)
	{
		HeapTupleHeaderGetRawXmin(header), state
	};
	return state;
}

/* True if the newest transaction of a page is told: see PageReader */
static bool
tells_newest(const PageReader *reader)
{
	return !reader->rooted && reader->target->mode == MIRROR_SHARED;
}

/*
 * Note which tuples of a page are dead to everyone, and the newest transaction
 * of the others.  A page that is marked all-visible has no dead tuples (or, on
 * a standby, some that do no harm).
 */
static void
judge_tuples(PageReader *reader, BlockNumber block, Page page, Buffer buffer)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	Inserter	inserter = {InvalidTransactionId};
	bool		settled = tells_newest(reader);
	TransactionId newest = FrozenTransactionId;

	memset(reader->dead, 0, sizeof(bool) * (last + 1));
	reader->newest = InvalidTransactionId;
	if (PageIsNew(page) || PageIsAllVisible(page))
		return;
	for (OffsetNumber line = FirstOffsetNumber; line <= last; line++)
	{
		HeapTupleData tuple;
		TupleState	state;

		if (!ItemIdIsNormal(PageGetItemId(page, line)))
			continue;
		PageTupleAt(reader, page, block, line, &tuple);
		state = tuple_state(reader, &tuple, buffer, &inserter);
		reader->dead[line] = state == TUPLE_DEAD;
		settled &= state != TUPLE_UNSETTLED;
		if (state == TUPLE_LIVE && TransactionIdFollows(HeapTupleHeaderGetXmin(tuple.t_data), newest))
			newest = HeapTupleHeaderGetXmin(tuple.t_data);
	}
	if (settled)
		reader->newest = newest;
}

/* Copy a page, judge its tuples, and return its LSN */
static XLogRecPtr
copy_page(PageReader *reader, BlockNumber block)
{
	Buffer		buffer = lock_page(reader, block);
	Page		page = BufferGetPage(buffer);
	XLogRecPtr	lsn;

	prefetch_page(page);
	judge_tuples(reader, block, page, buffer);
	memcpy(reader->page, page, BLCKSZ);
	lsn = BufferGetLSNAtomic(buffer);
	UnlockReleaseBuffer(buffer);
	GPUVEC_INJECTION("page-after-copy");
	return lsn;
}

/*
 * True if the tuple of an item can be copied to this place in reader->page.
 * The tuples of a page always can, unless the page is corrupt: they overlap.
 */
static bool
has_room(const PageReader *reader, const char *to, ItemId item)
{
	return MAXALIGN(ItemIdGetLength(item)) <= (Size) (reader->page + BLCKSZ - to);
}

/*
 * Copy a tuple of a page and set *copy, unless it is dead to everyone.
 * Returns where the next copy goes.
 */
static char *
copy_tuple(PageReader *reader, Buffer buffer, BlockNumber block, OffsetNumber line,
		   Inserter *inserter, HeapTuple copy, char *to)
{
	Page		page = BufferGetPage(buffer);
	HeapTupleData tuple;

	PageTupleAt(reader, page, block, line, &tuple);
	if (tuple_state(reader, &tuple, buffer, inserter) == TUPLE_DEAD)
		return to;
	*copy = tuple;
	copy->t_data = memcpy(to, tuple.t_data, tuple.t_len);
	return to + MAXALIGN(tuple.t_len);
}

/*
 * Copy the tuples at those line pointers of a page that have to be read.
 * copies[i].t_data is NULL if entry i has none.  False: these are many of the
 * page's line pointers, and it is to be read as a whole.
 */
static bool
copy_lines(PageReader *reader, BlockNumber block, const ChangedLine *entries, uint32 n,
		   uint32 nread, HeapTupleData *copies)
{
	Buffer		buffer = lock_page(reader, block);
	Page		page = BufferGetPage(buffer);
	OffsetNumber last = PageIsNew(page) ? 0 : PageGetMaxOffsetNumber(page);
	Inserter	inserter = {InvalidTransactionId};
	char	   *to = reader->page;
	bool		few = nread <= last / MANY_LINES;

	for (uint32 i = 0; i < n && few; i++)
	{
		OffsetNumber line = changed_line(&entries[i]);

		if (!changed_is_read(&entries[i]) || line > last ||
			!ItemIdIsNormal(PageGetItemId(page, line)))
			continue;
		few = has_room(reader, to, PageGetItemId(page, line));
		if (few)
			to = copy_tuple(reader, buffer, block, line, &inserter, &copies[i], to);
	}
	UnlockReleaseBuffer(buffer);
	GPUVEC_INJECTION("page-after-copy");
	return few;
}

void
PageReaderRead(PageReader *reader, BlockNumber block, StringInfo out)
{
	MemoryContext old = MemoryContextSwitchTo(reader->context);
	int			start = out->len;
	gpuvec_page head;

	memset(&head, 0, sizeof(head));
	head.block = block;
	head.lsn = reader->entries ? PageReaderLSN(reader, block) : copy_page(reader, block);
	appendBinaryStringInfo(out, (char *) &head, sizeof(head));
	head.nrows = reader->entries ? PageRowsOfEntries(reader, block, out) :
		PageRowsOfTuples(reader, block, out);
	head.newest = reader->entries == NULL ? MirrorFullXid(reader->newest) : 0;
	head.bytes = out->len - start - sizeof(head);
	memcpy(out->data + start, &head, sizeof(head));
	MemoryContextSwitchTo(old);
	MemoryContextReset(reader->context);
}

/* Append the lines of a partial page, the even one of each line pointer */
static void
append_lines(const ChangedLine *entries, uint32 n, gpuvec_page *head, StringInfo out)
{
	uint16		lines[MaxOffsetNumber + 2];

	for (uint32 i = 0; i < n; i++)
		if (changed_line(&entries[i]) != CHANGED_NO_LINE)
			lines[head->nlines++] = mirror_line(changed_line(&entries[i]), false);
	lines[head->nlines] = 0;
	appendBinaryStringInfo(out, (char *) lines, gpuvec_lines_bytes(head->nlines));
}

/* Append the row of an entry, if it has one; returns their number */
static uint32
append_line(PageReader *reader, const ChangedLines *lines, const ChangedLine *entry,
			HeapTuple tuple, StringInfo out)
{
	uint16		line = mirror_line(changed_line(entry), true);
	gpuvec_sparse row = changed_value(lines, entry);

	if (row.ids.ids == NULL)
		return tuple->t_data != NULL && PageRowOfTuple(reader, out, line, tuple);
	PageRowOfValue(reader, out, line, &row, NULL);
	return 1;
}

/* A page of which nothing has to be read takes no look at it */
void
PageReaderReadLines(PageReader *reader, BlockNumber block, const ChangedLines *lines,
					const ChangedLine *entries, uint32 n, StringInfo out)
{
	MemoryContext old = MemoryContextSwitchTo(reader->context);
	HeapTupleData *copies = palloc0_array(HeapTupleData, n);
	gpuvec_page head = {.block = block, .partial = true};
	int			start = out->len;
	uint32		nread = 0;

	for (uint32 i = 0; i < n; i++)
		nread += changed_is_read(&entries[i]);
	if (nread == 0 || copy_lines(reader, block, entries, n, nread, copies))
	{
		appendBinaryStringInfo(out, (char *) &head, sizeof(head));
		for (uint32 i = 0; i < n; i++)
			head.nrows += append_line(reader, lines, &entries[i], &copies[i], out);
		append_lines(entries, n, &head, out);
		head.bytes = out->len - start - sizeof(head);
		memcpy(out->data + start, &head, sizeof(head));
	}
	else
		PageReaderRead(reader, block, out);
	MemoryContextSwitchTo(old);
	MemoryContextReset(reader->context);
}
