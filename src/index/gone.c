/*-------------------------------------------------------------------------
 *
 * gone.c
 *	  Hands over the line pointers that VACUUM is about to make reusable.
 *
 * Before VACUUM makes a line pointer reusable that indexes may name, it calls
 * each index for bulk deletion, and tells by a callback whether it will reuse
 * a given one.  An index that keeps its rows asks about each entry, and hands
 * over what it has removed.
 *
 * An index on a column has no entries to ask about, and the engine's copy may
 * be older than the table.  So we ask about the line pointers of the table's
 * pages, but not of all pages.  A line pointer that VACUUM will reuse is
 * either dead, or has a row version that is dead to everyone (before
 * PostgreSQL 14, if it died while VACUUM was on the page).  VACUUM has found
 * it so before it called us, on a page that it has left without its bit in
 * the visibility map: neither the one nor the other is visible to all.
 * Nobody else removes a dead line pointer or such a row version's line
 * pointer, and nobody but VACUUM sets the bit, for want of which index-only
 * scans fetch the row.  There is one VACUUM of a table at a time.  So until
 * we return, each of these line pointers is on a page without its bit.
 *
 * Of such a page we need not ask about unused line pointers, nor about those
 * that lead to another one: VACUUM has left them as they are.  Nor about
 * members of HOT chains, which indexes do not name.
 *
 * This reads pages that VACUUM has just read, where the table has changed.
 * Nothing is read if no mirror follows the index.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "catalog/index.h"
#include "commands/vacuum.h"
#include "index/index_am.h"
#include "mirror/feed/feed.h"
#include "storage/bufmgr.h"

static int
compare_roots(const void *a, const void *b)
{
	return ItemPointerCompare((ItemPointer) a, (ItemPointer) b);
}

/* Hand over the roots of entries that were removed, page by page */
void
GpuvecHandOverRemoved(Relation index, ItemPointerData *roots, int n)
{
	OffsetNumber lines[MaxIndexTuplesPerPage];
	int			nlines = 0;

	if (!FeedTaken(index))
		return;
	qsort(roots, n, sizeof(ItemPointerData), compare_roots);
	for (int i = 0; i < n; i++)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&roots[i]);

		lines[nlines++] = ItemPointerGetOffsetNumber(&roots[i]);
		if (i + 1 < n && ItemPointerGetBlockNumber(&roots[i + 1]) == block)
			continue;
		FeedGone(index, block, lines, nlines);
		nlines = 0;
	}
}

/* True if VACUUM may be about to make a line pointer reusable */
static bool
may_be_reaped(Page page, OffsetNumber line)
{
	ItemId		item = PageGetItemId(page, line);

	return ItemIdIsDead(item) ||
		(ItemIdIsNormal(item) &&
		 !HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, item)));
}

/* The line pointers of a page that may be reaped; returns their number */
static int
find_lines(Relation heap, BlockNumber block, BufferAccessStrategy strategy, OffsetNumber *lines)
{
	Buffer		buffer = ReadBufferExtended(heap, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	Page		page = BufferGetPage(buffer);
	OffsetNumber last;
	int			n = 0;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	last = PageIsNew(page) ? 0 : Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	for (OffsetNumber line = FirstOffsetNumber; line <= last; line++)
		if (may_be_reaped(page, line))
			lines[n++] = line;
	UnlockReleaseBuffer(buffer);
	return n;
}

/* Hand over the line pointers of a page that VACUUM will reuse */
static void
hand_over_page(IndexVacuumInfo *info, Relation heap, BlockNumber block,
			   IndexBulkDeleteCallback callback, void *callback_state)
{
	OffsetNumber lines[MaxHeapTuplesPerPage];
	int			n = find_lines(heap, block, info->strategy, lines);
	int			ngone = 0;

	for (int i = 0; i < n; i++)
	{
		ItemPointerData tid;

		ItemPointerSet(&tid, block, lines[i]);
		if (callback(&tid, callback_state))
			lines[ngone++] = lines[i];
	}
	if (ngone > 0)
		FeedGone(info->index, block, lines, ngone);
}

/* The same for all pages of the table that may have any */
static void
hand_over_pages(IndexVacuumInfo *info, Relation heap, IndexBulkDeleteCallback callback,
				void *callback_state)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(heap);
	Buffer		map = InvalidBuffer;

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		if (visibilitymap_get_status(heap, block, &map) & VISIBILITYMAP_ALL_VISIBLE)
			continue;
		GpuvecVacuumDelayPoint();
		hand_over_page(info, heap, block, callback, callback_state);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
}

/*
 * CREATE INDEX CONCURRENTLY also calls for bulk deletion, to learn what the
 * index has.  Its callback must not be asked about rows that the index does
 * not name; nor may VACUUM's about another access method's tids.
 */
void
GpuvecHandOverReaped(IndexVacuumInfo *info, IndexBulkDeleteCallback callback, void *callback_state)
{
	Relation	heap = table_open(IndexGetRelation(RelationGetRelid(info->index), false), NoLock);

	if (info->index->rd_index->indisvalid && heap->rd_tableam == GetHeapamTableAmRoutine())
		hand_over_pages(info, heap, callback, callback_state);
	else
		FeedMarkAll(info->index);
	table_close(heap, NoLock);
}
