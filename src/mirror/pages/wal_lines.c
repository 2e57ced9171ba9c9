/*-------------------------------------------------------------------------
 *
 * wal_lines.c
 *	  Which line pointers of a heap page a WAL record has changed, and what
 *	  they have.
 *
 * A refresh looks for what has changed on a page.  Beside many writers most
 * of its rows are what they were, so it looks at the changed line pointers
 * only.  The mirror of a plain column (mirror.h) has a row for each tuple.
 * Such a row changes only if its line pointer gets a tuple or loses it:
 *
 *	- An insertion or an update puts a tuple under a line pointer, which the
 *	  record names.  Usually the record has the tuple as well.  The line
 *	  pointer has to be read from the page if there is an image of the page
 *	  instead, if the record has only the difference to the old tuple, or if
 *	  the value is out of line.
 *	- Pruning takes tuples away.  The record names their line pointers.
 *	- A deletion or the old side of an update leaves the tuple where it is.
 *	  The mirror keeps its row, and each search asks the snapshot.  The page
 *	  is noted, without a line pointer.
 *	- A lock, or the end of a speculative insertion, changes no row, and not
 *	  who sees it: the page may stay all-visible, and VACUUM then does not
 *	  come to it.  Nothing is noted, so that its rows stay proven (below).
 *	- All else, VACUUM's work above all, stands for the page as a whole, and
 *	  so does an insertion into a page that was made new.
 *
 * A line pointer that is read has what the page has by then, after all these
 * records.  Of any other one the last record that names it tells what it had
 * at their end.
 *
 * A tuple of a record may be of a transaction that was rolled back.  Such
 * rows are in a mirror at any time; pruning and VACUUM take them.  Values are
 * taken as they are on pages: nothing is evaluated.
 *
 * What such a refresh has read proves nothing with the visibility map
 * (GPUVEC_UNPROVEN).  A record that sets a bit of the map stands for the page
 * as a whole: it is read, and proven again.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/detoast.h"
#include "access/heapam_xlog.h"
#include "access/htup_details.h"
#include "access/rmgr.h"
#include "access/xlogreader.h"
#include "mirror/describe/row_value.h"
#include "mirror/pages/wal_lines.h"

/* The new tuple of an update is in block reference 0, the old one in 1 */
#define NEW_TUPLE	0

/* A tuple of a record: parts of its header, and what follows that */
typedef struct RecordTuple
{
	uint16		infomask2;
	uint16		infomask;
	uint8		hoff;
	const char *data;
	Size		bytes;
} RecordTuple;

/* Note the value of a tuple; or the line pointer, if it is out of line */
static void
note_value(ChangedLines *lines, BlockNumber block, OffsetNumber line, HeapTuple tuple)
{
	bool		isnull;
	Datum		datum = heap_getattr(tuple, lines->attnum, lines->desc, &isnull);
	struct varlena *value = (struct varlena *) DatumGetPointer(datum);
	struct varlena *plain = value;
	gpuvec_sparse row;

	if (isnull)
	{
		NoteGoneLine(lines, block, line);
		return;
	}
	if (VARATT_IS_EXTERNAL(value))
	{
		NoteChangedLine(lines, block, line);
		return;
	}
	if (VARATT_IS_COMPRESSED(value))
		plain = detoast_attr(value);
	row = RowOfPayload(lines->values, VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain));
	NoteLineValue(lines, block, line, &row);
	if (plain != value)
		pfree(plain);
}

/* Note the tuple that a line pointer has got */
static void
note_tuple(ChangedLines *lines, BlockNumber block, OffsetNumber line, const RecordTuple *from)
{
	union
	{
		HeapTupleHeaderData header;
		char		data[MaxHeapTupleSize];
	}			buffer;
	HeapTupleData tuple = {.t_data = &buffer.header};

	if (lines->attnum == InvalidAttrNumber ||
		from->bytes > MaxHeapTupleSize - SizeofHeapTupleHeader)
	{
		NoteChangedLine(lines, block, line);
		return;
	}
	memset(&buffer.header, 0, SizeofHeapTupleHeader);
	memcpy(buffer.data + SizeofHeapTupleHeader, from->data, from->bytes);
	buffer.header.t_infomask2 = from->infomask2;
	buffer.header.t_infomask = from->infomask;
	buffer.header.t_hoff = from->hoff;
	tuple.t_len = SizeofHeapTupleHeader + from->bytes;
	note_value(lines, block, line, &tuple);
}

/*
 * Note a line pointer with its tuple, which fills the data of the record's
 * block reference NEW_TUPLE.  There are none beside an image of the page.
 */
static void
note_new(XLogReaderState *record, BlockNumber block, OffsetNumber line, ChangedLines *lines)
{
	Size		bytes;
	char	   *data = XLogRecGetBlockData(record, NEW_TUPLE, &bytes);
	xl_heap_header header;
	RecordTuple tuple;

	if (data == NULL || bytes < SizeOfHeapHeader)
	{
		NoteChangedLine(lines, block, line);
		return;
	}
	memcpy(&header, data, SizeOfHeapHeader);
	tuple = (RecordTuple)
	{
		header.t_infomask2, header.t_infomask, header.t_hoff,
			data + SizeOfHeapHeader, bytes - SizeOfHeapHeader
	};
	note_tuple(lines, block, line, &tuple);
}

/* Note an insertion */
static void
note_insert(XLogReaderState *record, BlockNumber block, ChangedLines *lines)
{
	const		xl_heap_insert *insert = (xl_heap_insert *) XLogRecGetData(record);

	if (XLogRecGetInfo(record) & XLOG_HEAP_INIT_PAGE)
		NoteChangedPage(lines, block);
	else
		note_new(record, block, insert->offnum, lines);
}

/* Note one side of an update */
static void
note_update(XLogReaderState *record, int id, BlockNumber block, ChangedLines *lines)
{
	const		xl_heap_update *update = (xl_heap_update *) XLogRecGetData(record);

	if (id != NEW_TUPLE)
		NoteChangedLine(lines, block, CHANGED_NO_LINE);
	else if (XLogRecGetInfo(record) & XLOG_HEAP_INIT_PAGE)
		NoteChangedPage(lines, block);
	else if (update->flags & (XLH_UPDATE_PREFIX_FROM_OLD | XLH_UPDATE_SUFFIX_FROM_OLD))
		NoteChangedLine(lines, block, update->new_offnum);
	else
		note_new(record, block, update->new_offnum, lines);
}

/* Note the tuple of one of several insertions; returns the end of it */
static char *
note_one_of(char *data, BlockNumber block, OffsetNumber line, ChangedLines *lines)
{
	xl_multi_insert_tuple header;
	RecordTuple tuple;

	data = (char *) SHORTALIGN(data);
	memcpy(&header, data, SizeOfMultiInsertTuple);
	tuple = (RecordTuple)
	{
		header.t_infomask2, header.t_infomask, header.t_hoff,
			data + SizeOfMultiInsertTuple, header.datalen
	};
	note_tuple(lines, block, line, &tuple);
	return data + SizeOfMultiInsertTuple + header.datalen;
}

/* Note several insertions, unless the page is new */
static void
note_multi_insert(XLogReaderState *record, BlockNumber block, ChangedLines *lines)
{
	const		xl_heap_multi_insert *insert = (xl_heap_multi_insert *) XLogRecGetData(record);
	Size		bytes;
	char	   *data = XLogRecGetBlockData(record, NEW_TUPLE, &bytes);

	if (XLogRecGetInfo(record) & XLOG_HEAP_INIT_PAGE)
	{
		NoteChangedPage(lines, block);
		return;
	}
	for (int i = 0; i < insert->ntuples; i++)
	{
		if (data == NULL)
			NoteChangedLine(lines, block, insert->offsets[i]);
		else
			data = note_one_of(data, block, insert->offsets[i], lines);
	}
}

#if PG_VERSION_NUM >= 140000
static void
note_lines(ChangedLines *lines, BlockNumber block, const OffsetNumber *offsets, int n)
{
	for (int i = 0; i < n; i++)
		NoteGoneLine(lines, block, offsets[i]);
}

/* Note line pointers that became redirects; `pairs` has their targets, too */
static void
note_redirected(ChangedLines *lines, BlockNumber block, const OffsetNumber *pairs, int n)
{
	for (int i = 0; i < n; i++)
		NoteGoneLine(lines, block, pairs[2 * i]);
}
#endif

#if PG_VERSION_NUM >= 170000
#define HEAP2_PRUNE		XLOG_HEAP2_PRUNE_ON_ACCESS

/* Note the line pointers that were pruned; `data` is of the page */
static void
note_pruned(XLogReaderState *record, char *data, Size bytes, BlockNumber block,
			ChangedLines *lines)
{
	xl_heap_prune prune;
	int			nplans;
	int			nredirected;
	int			ndead;
	int			nunused;
	xlhp_freeze_plan *plans;
	OffsetNumber *frozen;
	OffsetNumber *redirected;
	OffsetNumber *dead;
	OffsetNumber *unused;

	memcpy(&prune, XLogRecGetData(record), SizeOfHeapPrune);
	heap_xlog_deserialize_prune_and_freeze(data, prune.flags, &nplans, &plans, &frozen,
										   &nredirected, &redirected, &ndead, &dead,
										   &nunused, &unused);
	note_redirected(lines, block, redirected, nredirected);
	note_lines(lines, block, dead, ndead);
	note_lines(lines, block, unused, nunused);
}
#elif PG_VERSION_NUM >= 140000
#define HEAP2_PRUNE		XLOG_HEAP2_PRUNE

/*
 * Note the line pointers that were pruned: pairs of redirected ones and their
 * targets, dead ones, and unused ones to the end
 */
static void
note_pruned(XLogReaderState *record, char *data, Size bytes, BlockNumber block,
			ChangedLines *lines)
{
	const		xl_heap_prune *prune = (xl_heap_prune *) XLogRecGetData(record);
	const OffsetNumber *offsets = (OffsetNumber *) data;
	int			n = bytes / sizeof(OffsetNumber);

	note_redirected(lines, block, offsets, prune->nredirected);
	note_lines(lines, block, offsets + 2 * prune->nredirected, n - 2 * prune->nredirected);
}
#endif

#ifdef HEAP2_PRUNE
/* Does a record of pruning set bits of the visibility map?  From 19 it may. */
static bool
prune_sets_map(XLogReaderState *record)
{
#if PG_VERSION_NUM >= 190000
	xl_heap_prune prune;

	memcpy(&prune, XLogRecGetData(record), SizeOfHeapPrune);
	return prune.flags & (XLHP_VM_ALL_VISIBLE | XLHP_VM_ALL_FROZEN);
#else
	(void) record;
	return false;
#endif
}

/*
 * A record of pruning: its page is noted as a whole if it has no list, or
 * sets bits of the map
 */
static void
note_prune(XLogReaderState *record, int id, BlockNumber block, ChangedLines *lines)
{
	Size		bytes;
	char	   *data = XLogRecGetBlockData(record, id, &bytes);

	/* there is none beside an image of the page */
	if (data != NULL && !prune_sets_map(record))
	{
		NoteChangedLine(lines, block, CHANGED_NO_LINE);
		note_pruned(record, data, bytes, block, lines);
		return;
	}
	NoteChangedPage(lines, block);
}
#endif

/* A record of the resource manager "Heap" */
static void
note_heap(XLogReaderState *record, int id, BlockNumber block, ChangedLines *lines)
{
	switch (XLogRecGetInfo(record) & XLOG_HEAP_OPMASK)
	{
		case XLOG_HEAP_INSERT:
			note_insert(record, block, lines);
			break;
		case XLOG_HEAP_UPDATE:
		case XLOG_HEAP_HOT_UPDATE:
			note_update(record, id, block, lines);
			break;
		case XLOG_HEAP_DELETE:
			NoteChangedLine(lines, block, CHANGED_NO_LINE);
			break;
		case XLOG_HEAP_LOCK:
		case XLOG_HEAP_CONFIRM:
			break;
		default:
			NoteChangedPage(lines, block);
	}
}

/* A record of the resource manager "Heap2" */
static void
note_heap2(XLogReaderState *record, int id, BlockNumber block, ChangedLines *lines)
{
	switch (XLogRecGetInfo(record) & XLOG_HEAP_OPMASK)
	{
		case XLOG_HEAP2_MULTI_INSERT:
			note_multi_insert(record, block, lines);
			break;
		case XLOG_HEAP2_LOCK_UPDATED:
			break;
#ifdef HEAP2_PRUNE
		case HEAP2_PRUNE:
			note_prune(record, id, block, lines);
			break;
#endif
		default:
			NoteChangedPage(lines, block);
	}
}

void
WalNoteLines(XLogReaderState *record, int id, BlockNumber block, ChangedLines *lines)
{
	if (lines->by_line && XLogRecGetRmid(record) == RM_HEAP_ID)
		note_heap(record, id, block, lines);
	else if (lines->by_line && XLogRecGetRmid(record) == RM_HEAP2_ID)
		note_heap2(record, id, block, lines);
	else
		NoteChangedPage(lines, block);
}
