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
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "entries/entries.h"
#include "mirror/feed.h"
#include "mirror/known.h"
#include "mirror/refresh.h"
#include "mirror/stale_pages.h"
#include "miscadmin.h"

/*
 * If more pages are stale, the session asks first whether the refresh will be
 * made
 */
#define FEW_PAGES			128

/*
 * Find the pages of the table whose rows the WAL between two positions has
 * changed.  If an index keeps the rows, the WAL names pages of the index:
 * each stands for all pages of its bucket.
 */
static WalResult
changed_pages(MirrorTarget *target, XLogRecPtr from, XLogRecPtr to, ChangedPages *pages)
{
	ChangedPages of_index = {0};
	WalResult	result;

	if (target->key.index == 0)
		return WalChanges(target->rel, from, to, pages);
	result = WalChanges(target->index, from, to, &of_index);
	SortChangedPages(&of_index);
	for (uint32 i = 0; result != WAL_UNKNOWN && i < of_index.n; i++)
	{
		uint32		bucket;

		if (!EntriesPageBucket(target->index, of_index.blocks[i], &bucket))
			continue;
		for (BlockNumber j = 0; j < ENTRY_BUCKET_BLOCKS; j++)
			NoteChangedPage(pages, bucket * ENTRY_BUCKET_BLOCKS + j);
	}
	if (of_index.blocks)
		pfree(of_index.blocks);
	SortChangedPages(pages);
	return result;
}

bool
StalePagesFind(MirrorTarget *target, const gpuvec_freshness *need, const gpuvec_state *state,
			   StalePages *stale)
{
	XLogRecPtr	position;

	memset(stale, 0, sizeof(*stale));
	if (need != NULL && need->feed != 0 && need->feed == state->feed)
		stale->listed = FeedTake(state->applied, need, &stale->pages.blocks, &stale->pages.n);
	if (stale->listed)
	{
		SortChangedPages(&stale->pages);
		return false;
	}
	memset(&stale->pages, 0, sizeof(stale->pages));
	position = MirrorPosition();
	GPUVEC_INJECTION("refresh-after-position");
	stale->listed = changed_pages(target, MirrorKnownUntil(target, state->checked), position,
								  &stale->pages) != WAL_UNKNOWN;
	return true;
}

bool
StalePagesFew(const StalePages *stale)
{
	return stale->listed && stale->pages.n <= FEW_PAGES &&
		(stale->nblocks <= stale->nknown || stale->nblocks - stale->nknown <= FEW_PAGES);
}

/* The next page to look at from `block` on: the next listed one, or any */
static BlockNumber
next_block(StalePages *stale, BlockNumber block)
{
	if (!stale->listed || block >= stale->nknown)
		return block;
	while (stale->next < stale->pages.n && stale->pages.blocks[stale->next] < block)
		stale->next++;
	return stale->next < stale->pages.n ?
		Min(stale->pages.blocks[stale->next], stale->nknown) : stale->nknown;
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
		if (is_stale(stale, reader, block))
			return block;
	}
	return InvalidBlockNumber;
}

void
StalePagesFree(StalePages *stale)
{
	if (stale->pages.blocks)
		pfree(stale->pages.blocks);
	stale->pages.blocks = NULL;
}
