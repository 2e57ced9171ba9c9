/*-------------------------------------------------------------------------
 *
 * feed_records.c
 *	  What a feed has: how far its mirror is, its records, and their pages.
 *
 * A record tells its page as well.  So a mirror may be refreshed by reading
 * the pages of the records that it has not applied.  The ring has the last
 * records only; of older ones it knows the pages for a while, and then that
 * there were some.  A mirror that is behind these, or behind a mark of all
 * pages, takes a refresh by WAL or by page LSNs, as for a table without an
 * index (stale_pages.c).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/shared.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_ring.h"
#include "mirror/feed/feed_table.h"
#include "mirror/feed/feeder_state.h"
#include "storage/lwlock.h"

/* The slot of a feed, or NULL */
static FeedSlot *
slot_of(FeedTable *table, uint64 feed, pg_atomic_uint64 **current)
{
	static uint32 last = 0;
	uint32		taken = table == NULL || feed == 0 ? 0 : pg_atomic_read_u32(&table->taken);
	uint32		slot = last < taken ? last : 0;

	for (uint32 n = taken; n > 0; n--, slot = FeedNextSlot(slot, taken))
	{
		*current = &table->owners[slot].feed;
		if (pg_atomic_read_u64(*current) != feed)
			continue;
		last = slot;
		return FeedSlotAt(table, (int) slot);
	}
	return NULL;
}

uint64
FeedApplied(uint64 feed)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(FeedTableIn(GpuvecSharedState()), feed, &current);

	return slot == NULL ? 0 : Min(pg_atomic_read_u64(&slot->ring.applied),
								  pg_atomic_read_u64(&slot->ring.number));
}

/* All records behind this number are rows, and in the ring */
static uint64
rows_since(FeedRing *ring)
{
	uint64		oldest = pg_atomic_read_u64(&ring->oldest);

	return Max(ring->marked, Max(oldest, 1) - 1);
}

uint64
FeedRowsSince(uint64 feed)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(FeedTableIn(GpuvecSharedState()), feed, &current);

	return slot == NULL ? 0 : rows_since(&slot->ring);
}

FeedPace
FeedComing(uint64 feed)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(FeedTableIn(GpuvecSharedState()), feed, &current);
	uint64		applied;
	uint64		since;

	if (slot == NULL || !FeederRuns())
		return FEED_STUCK;
	applied = pg_atomic_read_u64(&slot->ring.applied);
	since = rows_since(&slot->ring);
	if (applied >= since)
		return FEED_COMING;
	return pg_atomic_read_u64(&slot->kept_from) <= applied &&
		pg_atomic_read_u64(&slot->kept) >= since ? FEED_CATCHING_UP : FEED_STUCK;
}

void
FeedNoteKept(uint64 feed, uint64 from, uint64 to)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(FeedTableIn(GpuvecSharedState()), feed, &current);

	if (slot == NULL)
		return;
	pg_atomic_write_u64(&slot->kept_from, from);
	pg_atomic_write_u64(&slot->kept, to);
}

/* If the slot changes hands meanwhile, a hint is wrong */
void
FeedNoteState(const gpuvec_state *state)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(FeedTableIn(GpuvecSharedState()), state->feed, &current);

	if (slot != NULL)
		FeedRingApplied(&slot->ring, state->applied);
}

/*
 * Copy records while others append.  What was copied is of this feed only if
 * the slot still is, after all was read.
 */
bool
FeedCopyRows(uint64 feed, uint64 from, uint64 to, Size most, FeedRows *rows)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(FeedTableIn(GpuvecSharedState()), feed, &current);
	FeedRingSpan span;
	int64		bytes = -1;

	if (slot == NULL)
		return false;
	pg_read_barrier();
	if (!FeedRingPlan(&slot->ring, from, to, most, &span))
		return false;
	rows->data = palloc(Max(span.bytes, 1));
	if (FeedRingCopy(&slot->ring, &span, rows->data) && pg_atomic_read_u64(current) == feed)
		bytes = FeedRingPack(&span, rows->data, &rows->nrows);
	if (bytes < 0)
	{
		pfree(rows->data);
		return false;
	}
	rows->from = from;
	rows->to = span.to;
	rows->bytes = bytes;
	return true;
}

/*
 * List the pages; the slot is locked, so lack of memory is no error.  Its
 * message would go to the client before the lock is released.
 */
static bool
take_pages(FeedRing *ring, uint64 from, uint64 to, BlockNumber **blocks, uint32 *n)
{
	int64		most = FeedRingPagesMost(ring, from);

	if (most < 0)
		return false;
	*blocks = palloc_extended(most * sizeof(BlockNumber), MCXT_ALLOC_NO_OOM);
	if (*blocks == NULL)
		return false;
	*n = FeedRingPages(ring, from, to, *blocks);
	return true;
}

bool
FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot;
	bool		ok;

	*n = 0;
	*blocks = NULL;
	if (need->applied <= applied)
		return true;
	slot = slot_of(FeedTableIn(GpuvecSharedState()), need->feed, &current);
	if (slot == NULL)
		return false;
	LWLockAcquire(&slot->lock, LW_SHARED);
	ok = pg_atomic_read_u64(current) == need->feed &&
		take_pages(&slot->ring, applied, need->applied, blocks, n);
	LWLockRelease(&slot->lock);
	return ok;
}

int
FeedSlotsTaken(void)
{
	FeedTable  *table = FeedTableIn(GpuvecSharedState());

	return table == NULL ? 0 : (int) pg_atomic_read_u32(&table->taken);
}

void
FeedSlotRead(int n, FeedSlotInfo *info)
{
	FeedTable  *table = FeedTableIn(GpuvecSharedState());
	pg_atomic_uint64 *current;
	FeedSlot   *slot;
	uint64		feed;

	memset(info, 0, sizeof(*info));
	if (table == NULL)
		return;
	current = &table->owners[n].feed;
	slot = FeedSlotAt(table, n);
	feed = pg_atomic_read_u64(current);
	pg_read_barrier();
	info->key = slot->mirror;
	info->number = pg_atomic_read_u64(&slot->ring.number);
	info->applied = Min(pg_atomic_read_u64(&slot->ring.applied), info->number);
	info->lost = slot->ring.lost.count;
	pg_read_barrier();
	info->feed = pg_atomic_read_u64(current) == feed ? feed : 0;
}
