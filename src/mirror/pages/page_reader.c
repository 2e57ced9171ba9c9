/*-------------------------------------------------------------------------
 *
 * page_reader.c
 *	  Reads heap pages into the form that the engine takes.
 *
 * A mirror holds row versions, not the rows of one snapshot: every version
 * that is not dead to everyone, under its own tid.  A rooted mirror
 * (mirror.h) holds one version for each HOT chain, under the tid of the root:
 * the last member that is not dead to everyone.  All members have the same
 * set, and the same values of filter columns.  Or the chain is a broken one,
 * from before the index: then every snapshot that may use the index sees only
 * the last member.
 *
 * The rows of an index with an expression or a predicate are not computed
 * here.  They are read from the index, which keeps them (entries.c) under the
 * tids of the roots.  The version of those entries then takes the place of
 * the page's LSN.
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
 * Detoasting may come too late: a tuple that died, or whose insertion failed,
 * after the page was copied can lose its TOAST chunks.  So fetch_chunks()
 * reads chunks itself, and reports missing ones instead of raising an error.
 * Chunks disappear only when no snapshot, old ones included, can see the
 * tuple, so leaving such a tuple out is exact.  If the searching snapshot
 * does see it, the table is corrupt.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/toast_internals.h"
#include "core/protocol_mirrors.h"
#include "entries/entries.h"
#include "executor/tuptable.h"
#include "mirror/pages/changed_lines.h"
#include "mirror/pages/page_reader.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

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

/* The tuple at a line pointer of a page */
static void
tuple_at(PageReader *reader, Page page, BlockNumber block, OffsetNumber line,
		 HeapTuple tuple)
{
	ItemId		item = PageGetItemId(page, line);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(reader->rel);
	ItemPointerSet(&tuple->t_self, block, line);
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
		*inserter = (Inserter) {HeapTupleHeaderGetRawXmin(header), state};
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
		tuple_at(reader, page, block, line, &tuple);
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

	tuple_at(reader, page, block, line, &tuple);
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

/*
 * Read the chunks of an out-of-line value.  NULL if a chunk is missing, or
 * not as the pointer says.
 */
static struct varlena *
fetch_chunks(struct varatt_external *pointer)
{
	int32		size = GpuvecExternalSize(*pointer);
	bool		compressed = VARATT_EXTERNAL_IS_COMPRESSED(*pointer);
	struct varlena *value = palloc(size + VARHDRSZ);
	Relation	toastrel = table_open(pointer->va_toastrelid, AccessShareLock);
	Relation   *indexes;
	int			nindexes;
	int			valid = toast_open_indexes(toastrel, AccessShareLock, &indexes, &nindexes);
	SnapshotData snapshot;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int32		next = 0;
	int32		seen = 0;

	GpuvecInitToastSnapshot(&snapshot);
	ScanKeyInit(&key, (AttrNumber) 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(pointer->va_valueid));
	scan = systable_beginscan_ordered(toastrel, indexes[valid], &snapshot, 1, &key);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		TupleDesc	desc = RelationGetDescr(toastrel);
		bool		isnull;
		int32		seq = DatumGetInt32(fastgetattr(tuple, 2, desc, &isnull));
		struct varlena *chunk = (struct varlena *)
			DatumGetPointer(fastgetattr(tuple, 3, desc, &isnull));
		int32		len;

		if (VARATT_IS_EXTENDED(chunk) && !VARATT_IS_SHORT(chunk))
			break;
		len = VARSIZE_ANY_EXHDR(chunk);
		if (seq != next || len > size - seen)
			break;
		memcpy((char *) value + VARHDRSZ + seen, VARDATA_ANY(chunk), len);
		seen += len;
		next++;
	}
	systable_endscan_ordered(scan);
	toast_close_indexes(indexes, nindexes, AccessShareLock);
	table_close(toastrel, AccessShareLock);

	if (seen != size)
		return NULL;
	if (compressed)
		SET_VARSIZE_COMPRESSED(value, size + VARHDRSZ);
	else
		SET_VARSIZE(value, size + VARHDRSZ);
	return value;
}

/* True if the searching snapshot sees this row */
static bool
row_visible(PageReader *reader, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(reader->rel, NULL);
	bool		visible = table_tuple_fetch_row_version(reader->rel, tid, reader->snapshot, slot);

	ExecDropSingleTupleTableSlot(slot);
	return visible;
}

/*
 * The detoasted form of a value from the copied page.  NULL: the row may be
 * left out.
 */
static struct varlena *
plain_value(PageReader *reader, struct varlena *value, ItemPointer tid)
{
	if (VARATT_IS_EXTERNAL_ONDISK(value))
	{
		struct varatt_external pointer;

		VARATT_EXTERNAL_GET_POINTER(pointer, value);
		value = fetch_chunks(&pointer);
		if (value == NULL)
		{
			if (row_visible(reader, tid))
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("missing chunk of a value of relation \"%s\"",
								RelationGetRelationName(reader->rel)),
						 errdetail("The row is at (%u,%u).", ItemPointerGetBlockNumber(tid),
								   ItemPointerGetOffsetNumber(tid))));
			return NULL;
		}
	}
	if (VARATT_IS_EXTENDED(value) && !VARATT_IS_SHORT(value))
		value = detoast_attr(value);
	return value;
}

/*
 * Append one row, with these words of filter columns.  Neither they nor ids
 * need be aligned.
 */
static void
append_row(PageReader *reader, StringInfo out, uint16 line, gpuvec_id_span set, const void *words)
{
	gpuvec_row	row = {.line = line, .wide = set.wide, .len = set.n};
	uint32		bytes = (uint32) gpuvec_id_span_bytes(set);
	uint32		size = set.wide ? gpuvec_wide_row_bytes(row.len) : gpuvec_row_bytes(row.len);
	uint32		words_size = gpuvec_filter_bytes(reader->target->key.nfilters);
	char	   *to;

	enlargeStringInfo(out, size + words_size);
	to = out->data + out->len;
	if (words_size > 0)
		memcpy(to + size, words, words_size);
	memcpy(to, &row, sizeof(row));
	if (bytes > 0)
		memcpy(to + sizeof(row), set.ids, bytes);
	memset(to + sizeof(row) + bytes, 0, size - sizeof(row) - bytes);
	out->len += size + words_size;
}

/* Append one row of an embedding table */
static void
append_vector(PageReader *reader, StringInfo out, uint16 line, int64 key,
			  struct varlena *value)
{
	gpuvec_storage storage = (gpuvec_storage) reader->target->key.storage;
	gpuvec_vector_row row = {.line = line, .key = key};
	MirrorVector vector;
	uint32		bytes;
	char	   *to;

	MirrorDecodeVector(value, reader->target->vector_type, &vector);
	row.kind = vector.kind;
	row.width = vector.width;
	bytes = gpuvec_vector_row_bytes(row.width, storage);
	enlargeStringInfo(out, bytes);
	memcpy(out->data + out->len, &row, sizeof(row));
	to = out->data + out->len + sizeof(row);
	if (storage == GPUVEC_FLOAT16)
	{
		memset(to + bytes - sizeof(row) - Min(bytes - sizeof(row), 4), 0, Min(bytes - sizeof(row), 4));
		for (uint32 i = 0; i < row.width; i++)
		{
			uint16		half = gpuvec_float_to_half(vector.elements[i]);

			memcpy(to + i * sizeof(half), &half, sizeof(half));
		}
	}
	else if (row.width > 0)
		memcpy(to, vector.elements, row.width * sizeof(float));
	out->len += bytes;
}

/*
 * The member that stands for the HOT chain of a root: the last one that is
 * not dead.  Invalid if there is none.
 */
static OffsetNumber
chain_member(PageReader *reader, OffsetNumber root)
{
	Page		page = reader->page;
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	ItemId		item = PageGetItemId(page, root);
	bool		first = !ItemIdIsRedirected(item);
	OffsetNumber line = first ? root : ItemIdGetRedirect(item);
	OffsetNumber member = InvalidOffsetNumber;
	TransactionId updater = InvalidTransactionId;

	for (OffsetNumber n = 0; n < last && OffsetNumberIsValid(line) && line <= last; n++)
	{
		HeapTupleHeader tuple;

		item = PageGetItemId(page, line);
		if (!ItemIdIsNormal(item))
			break;
		tuple = (HeapTupleHeader) PageGetItem(page, item);
		if (HeapTupleHeaderIsHeapOnly(tuple) == first ||
			(TransactionIdIsValid(updater) &&
			 !TransactionIdEquals(updater, HeapTupleHeaderGetXmin(tuple))))
			break;
		if (!reader->dead[line])
			member = line;
		if (!HeapTupleHeaderIsHotUpdated(tuple))
			break;
		updater = HeapTupleHeaderGetUpdateXid(tuple);
		line = ItemPointerGetOffsetNumber(&tuple->t_ctid);
		first = false;
	}
	return member;
}

/*
 * The tuple that a line pointer stands for; invalid if there is none.  Sets
 * *engine_line to the engine's `line` of it (mirror_line()).
 */
static OffsetNumber
row_at(PageReader *reader, OffsetNumber line, uint16 *engine_line)
{
	ItemId		item = PageGetItemId(reader->page, line);
	OffsetNumber member;

	if (!reader->rooted)
	{
		*engine_line = mirror_line(line, true);
		return ItemIdIsNormal(item) && !reader->dead[line] ? line : InvalidOffsetNumber;
	}
	if (ItemIdIsNormal(item) &&
		HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(reader->page, item)))
		return InvalidOffsetNumber;
	if (!ItemIdIsNormal(item) && !ItemIdIsRedirected(item))
		return InvalidOffsetNumber;
	member = chain_member(reader, line);
	*engine_line = mirror_line(line, member == line);
	return member;
}

/*
 * A column of a tuple, detoasted if it is of variable length.  False: the row
 * may be left out, as it has lost its value.
 */
static bool
tuple_value(PageReader *reader, HeapTuple tuple, AttrNumber attnum, Datum *value, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(reader->rel);

	*value = heap_getattr(tuple, attnum, desc, isnull);
	if (*isnull || TupleDescAttr(desc, attnum - 1)->attlen != -1)
		return true;
	*value = PointerGetDatum(plain_value(reader, (struct varlena *) DatumGetPointer(*value),
										 &tuple->t_self));
	return DatumGetPointer(*value) != NULL;
}

/*
 * The words of a tuple's filter columns.  False: the row may be left out.
 */
static bool
tuple_words(PageReader *reader, HeapTuple tuple, bool set_null, uint64 *words)
{
	const FilterColumns *filters = &reader->target->filters;
	Datum		values[GPUVEC_MAX_FILTERS + 1];
	bool		isnull[GPUVEC_MAX_FILTERS + 1] = {set_null};

	for (int i = 0; i < filters->n; i++)
		if (!tuple_value(reader, tuple, filters->columns[i].attnum, &values[i + 1], &isnull[i + 1]))
			return false;
	FilterWords(filters, values, isnull, words);
	return true;
}

/*
 * Append the row of a tuple under this line.  False: it was left out, as it
 * has no key or no value, or has lost its value.  A mirror with filter
 * columns has rows without a value, too.
 */
static bool
append_tuple(PageReader *reader, StringInfo out, uint16 line, HeapTuple tuple)
{
	const MirrorTarget *target = reader->target;
	uint64		words[GPUVEC_MAX_FILTERS + 1];
	struct varlena *set;
	bool		no_key = false;
	bool		isnull;
	Datum		key = 0;
	Datum		value;

	if (target->key_attnum != InvalidAttrNumber)
		key = heap_getattr(tuple, target->key_attnum, RelationGetDescr(reader->rel), &no_key);
	if (no_key || !tuple_value(reader, tuple, reader->attnum, &value, &isnull) ||
		(isnull && target->filters.n == 0) ||
		(target->filters.n > 0 && !tuple_words(reader, tuple, isnull, words)))
		return false;
	set = (struct varlena *) DatumGetPointer(value);
	if (target->key_attnum != InvalidAttrNumber)
		append_vector(reader, out, line, MirrorKey(key, target->key_type), set);
	else if (isnull)
		append_row(reader, out, line, idset_span_of_bytes(NULL, 0), words);
	else
		append_row(reader, out, line, idset_span_of_bytes(VARDATA_ANY(set), VARSIZE_ANY_EXHDR(set)), words);
	return true;
}

/* Append the rows of the copied page; returns their number */
static uint32
append_tuples(PageReader *reader, BlockNumber block, StringInfo out)
{
	OffsetNumber last = PageIsNew(reader->page) ? 0 : PageGetMaxOffsetNumber(reader->page);
	uint32		nrows = 0;

	for (OffsetNumber line = FirstOffsetNumber; line <= last; line++)
	{
		uint16		engine_line;
		OffsetNumber offset = row_at(reader, line, &engine_line);
		HeapTupleData tuple;

		if (!OffsetNumberIsValid(offset))
			continue;
		tuple_at(reader, reader->page, block, offset, &tuple);
		nrows += append_tuple(reader, out, engine_line, &tuple);
	}
	return nrows;
}

/* Append the rows that the index keeps for the page; returns their number */
static uint32
append_entries(PageReader *reader, BlockNumber block, StringInfo out)
{
	uint32		n;
	const IndexEntry *entries = EntryReaderBlock(reader->entries, block, &n);
	uint32		nrows = 0;

	for (uint32 i = 0; i < n; i++)
	{
		OffsetNumber root = ItemPointerGetOffsetNumber(&entries[i].root);

		if (entries[i].isnull && entries[i].words == NULL)
			continue;
		append_row(reader, out, mirror_line(root, false),
				   idset_span_of_bytes(entries[i].ids, entries[i].bytes), entries[i].words);
		nrows++;
	}
	GPUVEC_INJECTION("page-after-copy");
	return nrows;
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
	head.nrows = reader->entries ? append_entries(reader, block, out) :
		append_tuples(reader, block, out);
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
	gpuvec_id_span set = changed_value(lines, entry);

	if (set.ids == NULL)
		return tuple->t_data != NULL && append_tuple(reader, out, line, tuple);
	append_row(reader, out, line, set, NULL);
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
