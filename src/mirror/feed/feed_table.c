/*-------------------------------------------------------------------------
 *
 * feed_table.c
 *	  The slots of feeds in shared memory, and appending to them.
 *
 * A slot has the records of one feed, and an owner: the index that it is of.
 *
 * Locks.  Who appends has the slot's lock, for some 100 ns; so it is waited
 * for without sleeping at first.  Rows are appended together (feed_queue.c).
 * Who takes a slot has the table's lock, then the slot's.  Searches read
 * without a lock.  The number of the feed tells them whether all that they
 * have read is of one feed: it is set to 0 before anything of the slot
 * changes hands, and is never given again.
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
#include "storage/spin.h"

#define TRANCHE_NAME	"gpuvec feed"

/*
 * How often to try for a slot's lock before sleeping.  The n-th pause takes n
 * times as long as the first: all together some microseconds, less than a
 * sleep and a wake-up.
 */
#define LOCK_TRIES		20

/* Initialize the table; its slots are not zeroed */
static void
init_feeds(void *area)
{
	FeedTable  *table = area;

	table->tranche = GpuvecNewTranche(TRANCHE_NAME);
	LWLockInitialize(&table->lock, table->tranche);
	pg_atomic_init_u64(&table->moves, 0);
	pg_atomic_init_u32(&table->taken, 0);
	for (int i = 0; i < FEED_SLOTS; i++)
	{
		FeedSlot   *slot = FeedSlotAt(table, i);

		pg_atomic_init_u64(&table->owners[i].feed, 0);
		pg_atomic_init_u64(&slot->used, 0);
		pg_atomic_init_u64(&slot->kept_from, 0);
		pg_atomic_init_u64(&slot->kept, 0);
		LWLockInitialize(&slot->lock, table->tranche);
		if (i < FEED_LARGE_SLOTS)
			FeedRingInit(&slot->ring, FEED_RING_RECORDS, FEED_RING_BYTES);
		else
			FeedRingInit(&slot->ring, FEED_SMALL_RECORDS, FEED_SMALL_BYTES);
	}
}

static GpuvecSharedArea feeds_area = {
	.size = FEED_TABLE_BYTES,
	.rough = FEED_TABLE_BYTES - offsetof(FeedTable, slots),
	.init = init_feeds
};

void
FeedInit(void)
{
	GpuvecSharedAsk(&feeds_area);
}

/* The table in the shared state, or NULL */
FeedTable *
FeedTableIn(GpuvecShared *state)
{
	static bool registered = false;
	FeedTable  *table = GpuvecSharedFind(state, &feeds_area);

	if (table != NULL && !registered)
	{
		GpuvecRegisterTranche(table->tranche, TRANCHE_NAME);
		registered = true;
	}
	return table;
}

FeedIndex
FeedIndexOf(Relation index)
{
	FeedIndex	result = {.index = RelationGetRelid(index), .relfilenumber = GpuvecRelFile(index)};

	return result;
}

/* Take the lock of a slot, to append */
static void
lock_to_append(LWLock *lock)
{
	for (int i = 0; i < LOCK_TRIES; i++)
	{
		if (LWLockConditionalAcquire(lock, LW_EXCLUSIVE))
			return;
		for (int pause = 0; pause <= i; pause++)
			SPIN_DELAY();
	}
	LWLockAcquire(lock, LW_EXCLUSIVE);
}

/*
 * The next slot of this index, from number *i on, locked.  *i is then behind
 * it.  NULL: there is no other.
 */
static FeedSlot *
lock_slot(FeedTable *table, const FeedIndex *index, int *i)
{
	while (table != NULL && *i < (int) pg_atomic_read_u32(&table->taken))
	{
		FeedOwner  *owner = &table->owners[*i];
		FeedSlot   *slot = FeedSlotAt(table, (*i)++);

		if (FeedIsOwner(owner, index))
		{
			lock_to_append(&slot->lock);
			if (FeedIsOwner(owner, index))
				return slot;
			LWLockRelease(&slot->lock);
		}
	}
	return NULL;
}

/*
 * The first row in each file is enough: until this transaction ends, its lock
 * of the index lets nobody follow it.  Nobody else knows an index that it has
 * made.
 */
void
FeedMoved(Relation index)
{
	static Oid	counted = InvalidOid;	/* a file */
	FeedTable  *table;

	if (GpuvecRelFirstFileSubid(index) == InvalidSubTransactionId ||
		index->rd_createSubid != InvalidSubTransactionId || counted == GpuvecRelFile(index))
		return;
	table = FeedTableIn(GpuvecSharedToMark());
	/* else it counts as a change that is not marked */
	if (table != NULL)
		(void) pg_atomic_fetch_add_u64(&table->moves, 1);
	counted = GpuvecRelFile(index);
}

uint64
FeedMoves(void)
{
	FeedTable  *table = FeedTableIn(GpuvecSharedState());

	return table != NULL ? pg_atomic_read_u64(&table->moves) : 0;
}

bool
FeedTaken(Relation index)
{
	FeedTable  *table = FeedTableIn(GpuvecSharedToMark());
	FeedIndex	key = FeedIndexOf(index);

	for (int i = 0; table != NULL && i < (int) pg_atomic_read_u32(&table->taken); i++)
		if (FeedIsOwner(&table->owners[i], &key))
			return true;
	return false;
}

/* Append records to all slots of an index */
void
FeedAppend(const FeedIndex *index, const FeedBatch *batch)
{
	FeedTable  *table = FeedTableIn(GpuvecSharedToMark());
	FeedSlot   *slot;
	int			i = 0;

	while ((slot = lock_slot(table, index, &i)) != NULL)
	{
		FeedRingAppend(&slot->ring, batch);
		LWLockRelease(&slot->lock);
		FeederWake();
	}
}
