/*-------------------------------------------------------------------------
 *
 * wal_lines.c
 *	  Which line pointers of a heap page a WAL record has changed.
 *
 * A refresh reads a changed page again.  Beside many writers most of its rows
 * are what they were, so it is better to read the changed line pointers only.
 * The mirror of a plain column (mirror.h) has a row for each tuple, and such
 * a row changes only if its line pointer gets a tuple or loses it:
 *
 *	- An insertion or an update puts a tuple under a line pointer, which the
 *	  record names.
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
 * The record says only which line pointers to look at.  What they have is
 * read from the page, as it is then.
 *
 * What such a refresh has read proves nothing with the visibility map
 * (GPUVEC_UNPROVEN), so that it does not matter here which records set or
 * clear it.  A record that sets it makes the page one as a whole, which is
 * proven again.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam_xlog.h"
#include "access/rmgr.h"
#include "access/xlogreader.h"
#include "mirror/wal_lines.h"

/* The new tuple of an update is in block reference 0, the old one in 1 */
#define NEW_TUPLE	0

/* Note the line pointers of several insertions, unless the page is new */
static void
note_multi_insert(XLogReaderState *record, BlockNumber block, ChangedLines * lines)
{
	const		xl_heap_multi_insert *insert = (xl_heap_multi_insert *) XLogRecGetData(record);

	if (XLogRecGetInfo(record) & XLOG_HEAP_INIT_PAGE)
		NoteChangedPage(lines, block);
	else
		for (int i = 0; i < insert->ntuples; i++)
			NoteChangedLine(lines, block, insert->offsets[i]);
}

#if PG_VERSION_NUM >= 140000
static void
note_lines(ChangedLines * lines, BlockNumber block, const OffsetNumber *offsets, int n)
{
	for (int i = 0; i < n; i++)
		NoteChangedLine(lines, block, offsets[i]);
}

/* Note line pointers that became redirects; `pairs` has their targets, too */
static void
note_redirected(ChangedLines * lines, BlockNumber block, const OffsetNumber *pairs, int n)
{
	for (int i = 0; i < n; i++)
		NoteChangedLine(lines, block, pairs[2 * i]);
}
#endif

#if PG_VERSION_NUM >= 170000
#define HEAP2_PRUNE		XLOG_HEAP2_PRUNE_ON_ACCESS

/* Note the line pointers that were pruned; `data` is of the page's reference */
static void
note_pruned(XLogReaderState *record, char *data, Size bytes, BlockNumber block,
			ChangedLines * lines)
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
			ChangedLines * lines)
{
	const		xl_heap_prune *prune = (xl_heap_prune *) XLogRecGetData(record);
	const OffsetNumber *offsets = (OffsetNumber *) data;
	int			n = bytes / sizeof(OffsetNumber);

	note_redirected(lines, block, offsets, prune->nredirected);
	note_lines(lines, block, offsets + 2 * prune->nredirected, n - 2 * prune->nredirected);
}
#endif

/* A record of pruning: its page is noted as a whole if it has no list */
static void
note_prune(XLogReaderState *record, int id, BlockNumber block, ChangedLines * lines)
{
#ifdef HEAP2_PRUNE
	Size		bytes;
	char	   *data = XLogRecGetBlockData(record, id, &bytes);

	/* there is none beside an image of the page */
	if (data != NULL)
	{
		NoteChangedLine(lines, block, CHANGED_NO_LINE);
		note_pruned(record, data, bytes, block, lines);
		return;
	}
#endif
	NoteChangedPage(lines, block);
}

/* A record of the resource manager "Heap" */
static void
note_heap(XLogReaderState *record, int id, BlockNumber block, ChangedLines * lines)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	bool		is_new = (info & XLOG_HEAP_INIT_PAGE) != 0;

	switch (info & XLOG_HEAP_OPMASK)
	{
		case XLOG_HEAP_INSERT:
			NoteChangedLine(lines, block, is_new ? CHANGED_WHOLE :
							((xl_heap_insert *) XLogRecGetData(record))->offnum);
			break;
		case XLOG_HEAP_UPDATE:
		case XLOG_HEAP_HOT_UPDATE:
			NoteChangedLine(lines, block, id != NEW_TUPLE ? CHANGED_NO_LINE :
							is_new ? CHANGED_WHOLE :
							((xl_heap_update *) XLogRecGetData(record))->new_offnum);
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
note_heap2(XLogReaderState *record, int id, BlockNumber block, ChangedLines * lines)
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
WalNoteLines(XLogReaderState *record, int id, BlockNumber block, ChangedLines * lines)
{
	if (lines->by_line && XLogRecGetRmid(record) == RM_HEAP_ID)
		note_heap(record, id, block, lines);
	else if (lines->by_line && XLogRecGetRmid(record) == RM_HEAP2_ID)
		note_heap2(record, id, block, lines);
	else
		NoteChangedPage(lines, block);
}
