/*-------------------------------------------------------------------------
 *
 * feed_slot.c
 *	  The slot that is the feed of a target: reads its number, or takes one.
 *
 * A feed counts only from a complete load or refresh that began after its
 * slot was taken: what was inserted before was on the pages when they were
 * read.  Insertions look for the slot without a lock, after they have changed
 * the page.  An insertion that does not find the slot has changed its page
 * before the reader of that page took the page's lock: had it been after, the
 * slot would have been there.  VACUUM looks once, when bulk deletion begins.
 * By then the row versions that it removes are gone from their pages, or are
 * dead to everyone: who reads the pages later leaves them out.
 *
 * A slot that was given to another index comes back as another feed.  In
 * recovery nothing is inserted into the index, so there are no feeds; the
 * first search after a promotion takes a slot.  A crash restart loses all
 * feeds, together with the engine.
 *
 * A session that changes the table may be unable to use the shared memory,
 * for want of memory, or because its library is of another version.  Then it
 * does not hand over, but counts that it did not (shared.c).  A slot
 * remembers that count from when the slot was taken.  When the count has
 * moved, the slot does not count any more, and comes back as another feed,
 * too.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/shared.h"
#include "mirror/describe/mirror.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "mirror/feed/feed_ring.h"
#include "mirror/feed/feed_table.h"
#include "mirror/feed/feeder_state.h"
#include "miscadmin.h"
#include "storage/lwlock.h"

/* The index that is the target's feed */
static FeedIndex
index_of(const MirrorTarget *target)
{
	FeedIndex	result = {.index = target->followed, .relfilenumber = target->followed_file};

	return result;
}

/*
 * True if a slot is of this build of the index, and was told of all changes
 * since it was taken
 */
static bool
slot_counts(FeedTable *table, int i, const MirrorTarget *target)
{
	const FeedSlot *slot = FeedSlotAt(table, i);
	FeedIndex	index = index_of(target);

	return FeedIsOwner(&table->owners[i], &index) &&
		memcmp(slot->build, target->build, FEED_BUILD_BYTES) == 0 &&
		slot->unmarked == GpuvecSharedUnmarked();
}

/*
 * Read the number of a slot.  False: it is not the target's, or does not
 * count.
 */
static bool
read_number(FeedTable *table, int i, const MirrorTarget *target, gpuvec_freshness *need)
{
	FeedOwner  *owner = &table->owners[i];
	uint64		feed = pg_atomic_read_u64(&owner->feed);
	uint64		number;

	pg_read_barrier();
	if (!slot_counts(table, i, target))
		return false;
	number = pg_atomic_read_u64(&FeedSlotAt(table, i)->ring.number);
	pg_read_barrier();
	if (pg_atomic_read_u64(&owner->feed) != feed)
		return false;
	need->feed = feed;
	need->applied = number;
	return true;
}

/* Read the number of the target's slot.  False: it has none that counts. */
static bool
read_slot(FeedTable *table, const MirrorTarget *target, int64 now, gpuvec_freshness *need)
{
	static uint32 last = 0;
	uint32		taken = pg_atomic_read_u32(&table->taken);
	uint32		slot = last < taken ? last : 0;

	for (uint32 n = taken; n > 0; n--, slot = FeedNextSlot(slot, taken))
	{
		pg_atomic_uint64 *used = &FeedSlotAt(table, slot)->used;

		if (!read_number(table, slot, target, need))
			continue;
		/* other sessions read what is beside it */
		if ((int64) pg_atomic_read_u64(used) != now)
			pg_atomic_write_u64(used, now);
		last = slot;
		return true;
	}
	return false;
}

/*
 * True if a slot is that of the target's index, perhaps of a file that this
 * had before: an index that is often built anew takes no more slots
 */
static bool
is_of_index(const FeedOwner *owner, const MirrorTarget *target)
{
	return owner->index == target->followed && owner->database == MyDatabaseId;
}

/*
 * Number of the slot that an index may take: its own that does not count, a
 * free one, or an idle one.  -1: there is none.
 */
static int
choose_slot(FeedTable *table, const MirrorTarget *target, int64 now)
{
	int			oldest = 0;

	for (int i = 0; i < FEED_SLOTS; i++)
	{
		if (pg_atomic_read_u64(&table->owners[i].feed) == 0 || is_of_index(&table->owners[i], target))
			return i;
		if (pg_atomic_read_u64(&FeedSlotAt(table, i)->used) < pg_atomic_read_u64(&FeedSlotAt(table, oldest)->used))
			oldest = i;
	}
	if (now - (int64) pg_atomic_read_u64(&FeedSlotAt(table, oldest)->used) >
		INT64CONST(1000) * gpuvec_feed_idle)
		return oldest;
	return -1;
}

/* Bytes of the ring of a slot that is taken now */
static uint32
ring_room(void)
{
	if (gpuvec_feed_ring_bytes == 0)
		return FEED_RING_BYTES;
	return Max(gpuvec_feed_ring_bytes & ~7, FEED_RING_LEAST);
}

/* Give a slot to the target's index, as a new feed */
static void
give_slot(FeedTable *table, int i, const MirrorTarget *target, int64 now)
{
	FeedOwner  *owner = &table->owners[i];
	FeedSlot   *slot = FeedSlotAt(table, i);

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	pg_atomic_write_u64(&owner->feed, 0);
	pg_write_barrier();
	owner->database = MyDatabaseId;
	owner->index = target->followed;
	owner->relfilenumber = target->followed_file;
	slot->mirror = target->key;
	slot->unmarked = GpuvecSharedUnmarked();
	memcpy(slot->build, target->build, FEED_BUILD_BYTES);
	pg_atomic_write_u64(&slot->used, now);
	pg_atomic_write_u64(&slot->kept_from, 0);
	pg_atomic_write_u64(&slot->kept, 0);
	FeedRingReset(&slot->ring, ring_room());
	if (pg_atomic_read_u32(&table->taken) <= (uint32) i)
		pg_atomic_write_u32(&table->taken, i + 1);
	pg_write_barrier();
	pg_atomic_write_u64(&owner->feed, ++table->feeds);
	LWLockRelease(&slot->lock);
}

/*
 * Take a slot for an index, unless it has one that counts, or none is
 * available
 */
static void
take_slot(FeedTable *table, const MirrorTarget *target, int64 now)
{
	int			i;

	LWLockAcquire(&table->lock, LW_EXCLUSIVE);
	i = choose_slot(table, target, now);
	if (i >= 0 && !slot_counts(table, i, target))
		give_slot(table, i, target, now);
	LWLockRelease(&table->lock);
}

void
FeedRead(const MirrorTarget *target, gpuvec_freshness *need)
{
	FeedTable  *table = FeedTableIn(GpuvecSharedState());
	int64		now = gpuvec_clock_coarse_us();

	/* our snapshot sees our own rows */
	FeedQueueFlush();
	if (table == NULL || RecoveryInProgress())
		return;
	/* a look without a lock: mostly all slots are in use, or one is ours */
	if (!read_slot(table, target, now, need) && choose_slot(table, target, now) >= 0)
	{
		take_slot(table, target, now);
		(void) read_slot(table, target, now, need);
	}
	if (need->feed != 0)
		FeederStart();
}
