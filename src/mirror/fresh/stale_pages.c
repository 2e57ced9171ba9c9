/*-------------------------------------------------------------------------
 *
 * stale_pages.c
 *	  Finds the pages of a relation that a refresh has to read again.
 *
 * The WAL between the position that the mirror was checked to and the current
 * position names the changed pages (wal.c).  A rooted mirror may have a feed
 * instead (feed.c).  If the WAL is long or gone, the LSN of every page is
 * compared with the LSN that was remembered when the page was last read.  Any
 * difference counts, as LSNs may step back, and a page may have none.
 *
 * Of a page of a plain mirror the WAL tells which line pointers to read.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "entries/entries.h"
#include "mirror/describe/refreshing.h"
#include "mirror/feed/feed.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/refresh.h"
#include "mirror/fresh/stale_pages.h"
#include "mirror/pages/wal.h"
#include "miscadmin.h"

/*
 * If more pages are stale, the session asks first whether the refresh will be
 * made.  Reading a page is as much work as reading PAGE_LINES line pointers.
 */
#define FEW_PAGES			128
#define PAGE_LINES			32

/* While WAL is read ahead, more comes.  Most passes: */
#define AHEAD_PASSES		3

/* True if the mirror takes lines: each tuple of a page is a row of its own */
static bool
takes_lines(const MirrorTarget *target)
{
	return !target->key.rooted && target->key.index == 0 &&
		target->key_attnum == InvalidAttrNumber;
}

/* Read what the WAL between two positions has changed of the table itself */
static WalResult
read_changes(MirrorTarget *target, XLogRecPtr from, XLogRecPtr to, ChangedLines *lines)
{
	lines->by_line = takes_lines(target);
	/* records' values would lack the words of filter columns */
	lines->attnum = target->key.nfilters == 0 ? target->attnum : InvalidAttrNumber;
	lines->values = target->key.values;
	lines->desc = RelationGetDescr(target->rel);
	return WalChanges(target->rel, from, to, lines);
}

/*
 * Find what the WAL between two positions has changed of the table's rows.
 * If an index keeps the rows, the WAL names pages of the index: each stands
 * for all pages of its bucket.
 */
static WalResult
changed_lines(MirrorTarget *target, XLogRecPtr from, XLogRecPtr to, ChangedLines *lines)
{
	ChangedLines of_index = {0};
	WalResult	result;

	if (target->key.index == 0)
	{
		result = read_changes(target, from, to, lines);
		SortChangedLines(lines);
		return result;
	}
	result = WalChanges(target->index, from, to, &of_index);
	SortChangedLines(&of_index);
	for (uint32 i = 0; result != WAL_UNKNOWN && i < of_index.n; i++)
	{
		uint32		bucket;

		if (!EntriesPageBucket(target->index, changed_block(&of_index.entries[i]), &bucket))
			continue;
		for (BlockNumber j = 0; j < ENTRY_BUCKET_BLOCKS; j++)
			NoteChangedPage(lines, bucket * ENTRY_BUCKET_BLOCKS + j);
	}
	FreeChangedLines(&of_index);
	SortChangedLines(lines);
	return result;
}

/* List the pages that the feed names; false: it cannot tell */
static bool
list_fed(uint64 applied, const gpuvec_freshness *need, ChangedLines *lines)
{
	BlockNumber *blocks;
	uint32		n;

	if (!FeedTake(applied, need, &blocks, &n))
		return false;
	for (uint32 i = 0; i < n; i++)
		NoteChangedPage(lines, blocks[i]);
	if (blocks)
		pfree(blocks);
	SortChangedLines(lines);
	return true;
}

void
StalePagesReadAhead(MirrorTarget *target, const gpuvec_state *state, StalePages *stale)
{
	XLogRecPtr	from = MirrorKnownUntil(target, state->checked);

	for (int pass = 0; pass < AHEAD_PASSES && !target->fed && target->key.index == 0; pass++)
	{
		XLogRecPtr	to = MirrorPosition();

		if (to < from + gpuvec_read_ahead_bytes)
			return;
		if (read_changes(target, from, to, &stale->lines) == WAL_UNKNOWN)
		{
			StalePagesFree(stale);
			return;
		}
		stale->read_until = from = to;
		GPUVEC_INJECTION("refresh-read-ahead");
	}
}

bool
StalePagesFind(MirrorTarget *target, const gpuvec_freshness *need, const gpuvec_state *state,
			   StalePages *stale)
{
	XLogRecPtr	from = MirrorKnownUntil(target, state->checked);
	XLogRecPtr	position;

	if (need != NULL && need->feed != 0 && need->feed == state->feed)
		stale->listed = list_fed(state->applied, need, &stale->lines);
	if (stale->listed)
		return false;
	position = MirrorPosition();
	GPUVEC_INJECTION("refresh-after-position");
	stale->listed = changed_lines(target, Max(from, stale->read_until), position,
								  &stale->lines) != WAL_UNKNOWN;
	return true;
}

bool
StalePagesFew(const StalePages *stale)
{
	const ChangedLines *lines = &stale->lines;

	return stale->listed &&
		(uint64) lines->nwhole * PAGE_LINES + lines->n <= FEW_PAGES * PAGE_LINES &&
		(stale->nblocks <= stale->nknown || stale->nblocks - stale->nknown <= FEW_PAGES);
}

/* The next page to look at from `block` on: the next listed one, or any */
static BlockNumber
next_block(StalePages *stale, BlockNumber block)
{
	const ChangedLines *lines = &stale->lines;

	if (!stale->listed || block >= stale->nknown)
		return block;
	while (stale->next < lines->n && changed_block(&lines->entries[stale->next]) < block)
		stale->next++;
	return stale->next < lines->n ?
		Min(changed_block(&lines->entries[stale->next]), stale->nknown) : stale->nknown;
}

/* True if a page that next_block() returned has to be read again */
static bool
is_stale(const StalePages *stale, PageReader *reader, BlockNumber block)
{
	uint64		known;

	if (stale->listed || block >= stale->nknown)
		return true;
	memcpy(&known, stale->lsns + (Size) block * sizeof(uint64), sizeof(known));
	return PageReaderLSN(reader, block) != known;
}

BlockNumber
StalePagesNext(StalePages *stale, PageReader *reader, BlockNumber block)
{
	for (block = next_block(stale, block); block < stale->nblocks;
		 block = next_block(stale, block + 1))
	{
		CHECK_FOR_INTERRUPTS();
		RefreshingMove();
		if (is_stale(stale, reader, block))
			return block;
	}
	return InvalidBlockNumber;
}

bool
StalePagesLines(const StalePages *stale, BlockNumber block, const ChangedLine **entries, uint32 *n)
{
	const ChangedLines *lines = &stale->lines;

	*entries = lines->entries + stale->next;
	*n = 0;
	if (!stale->listed || block >= stale->nknown || changed_line(*entries) == CHANGED_WHOLE)
		return false;
	while (stale->next + *n < lines->n && changed_block(*entries + *n) == block)
		(*n)++;
	return true;
}

void
StalePagesFree(StalePages *stale)
{
	FreeChangedLines(&stale->lines);
	memset(stale, 0, sizeof(*stale));
}
