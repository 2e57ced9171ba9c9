/*-------------------------------------------------------------------------
 *
 * visible_pages.c
 *	  Pages of which every row of a rooted mirror is visible.
 *
 * Who only counts rows wants none of them.  A rooted mirror that follows the
 * feed of its index is told neither of deletions nor of HOT updates (F4).  So
 * neither its page numbers nor the rows themselves prove that a row is
 * visible, as they do elsewhere (visibility.c).  But the visibility map, read
 * twice, proves whole pages.  The steps of a search by a snapshot S:
 *
 *	 1. S is taken;
 *	 2. the map is read, then the number of the feed's last record: n;
 *	 3. a mirror that has applied n, of this feed, is searched;
 *	 4. the map is read again, then the number of the last record: m.
 *
 * Let p be a page that is all-visible in both maps, and of which no record
 * n + 1 .. m of the feed tells.  Then the mirror's roots of p are those of the
 * HOT chains of which S sees a row.  Proof, for the time t at which p's bit is
 * read in step 2:
 *
 *	- Everybody sees each tuple that p has at t, and so does S, which was there
 *	  before.  They cannot be removed while S lives.  Rows that come to p later
 *	  are not visible to S.  So S sees the chains that p has at t.
 *	- The mirror has their roots.  They were handed over before they were
 *	  committed, so before t, and the mirror has applied that.
 *	- It has no root that was removed before t.  Such roots were told to the
 *	  feed before VACUUM made their line pointers free, and a page is not
 *	  all-visible before that.
 *	- It has no root of a row that came to p after t.  Who inserts it clears
 *	  p's bit of the map, and then lets others see the page.  In step 4 the bit
 *	  is set again.  VACUUM does not set it while p has a row that is not
 *	  visible to S.  So the row was removed: its transaction was aborted.  The
 *	  record of that is one of those that the mirror has applied, or one of
 *	  n + 1 .. m.
 *
 * The mirror may be newer than the records that it has applied: it may have
 * been read from pages.  So it does not do to look only for records.
 *
 * A deletion or a HOT update clears a bit, too, though the roots stay.  Then
 * nothing is known of the page, and who counts has to begin again.
 *
 * Under SERIALIZABLE this is not enough.  A deletion looks for predicate locks
 * before it clears the bit.  A search whose lock and both maps come between
 * these would not meet it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/visible_pages.h"
#include "mirror/feed/feed.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/* The bits of a byte of the map that say all-visible */
#define VISIBLE_BITS	0x55

void
VisiblePagesRead(MirrorVisiblePages *pages, const MirrorTarget *target)
{
	if (pages == NULL)
		return;
	VisiblePagesFree(pages);
	if (pages->all)
	{
		pages->bytes = MAXALIGN((Size) RelationGetNumberOfBlocks(target->rel) / 4 + 1);
		pages->map = MemoryContextAllocHuge(CurrentMemoryContext, pages->bytes);
		memset(pages->map, VISIBLE_BITS, pages->bytes);
		return;
	}
	pages->map = MirrorReadMap(target->rel, &pages->bytes);
	/* bits are read without a lock */
	pg_memory_barrier();
	FeedRead(target, &pages->then);
}

void
VisiblePagesFree(MirrorVisiblePages *pages)
{
	bool		all = pages->all;

	if (pages->map)
		pfree(pages->map);
	memset(pages, 0, sizeof(*pages));
	pages->all = all;
}

/* True if the map has no page less than it had */
static bool
map_holds(const MirrorVisiblePages *pages, const MirrorTarget *target)
{
	Size		bytes;
	uint8	   *now = MirrorReadMap(target->rel, &bytes);
	uint8		lost = 0;

	for (Size i = 0; i < Min(bytes, pages->bytes); i++)
		lost |= pages->map[i] & ~now[i];
	for (Size i = bytes; i < pages->bytes; i++)
		lost |= pages->map[i];
	if (now)
		pfree(now);
	return (lost & VISIBLE_BITS) == 0;
}

bool
VisiblePagesHold(const MirrorVisiblePages *pages, const MirrorTarget *target)
{
	const gpuvec_freshness *then = &pages->then;
	gpuvec_freshness now = {0};
	BlockNumber *blocks;
	uint32		n;
	bool		holds = true;

	/* a mirror may be fresh by the WAL, too: that does not count here */
	if (then->feed == 0 || pages->state.feed != then->feed || pages->state.applied < then->applied)
		return false;
	pg_memory_barrier();
	if (!map_holds(pages, target))
		return false;
	pg_memory_barrier();
	FeedRead(target, &now);
	if (now.feed != then->feed || !FeedTake(then->applied, &now, &blocks, &n))
		return false;
	for (uint32 i = 0; i < n && holds; i++)
		holds = !VisiblePagesHave(pages, blocks[i]);
	if (blocks)
		pfree(blocks);
	return holds;
}
