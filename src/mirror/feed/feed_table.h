/*-------------------------------------------------------------------------
 *
 * feed_table.h
 *	  The feeds in shared memory, for the files that make them up.
 *
 * Others include feed.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEED_TABLE_H
#define GPUVEC_FEED_TABLE_H

#include "postgres.h"

#include "link/shared.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_ring.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"

#define FEED_BUILD_BYTES 16

/* The index that a slot belongs to; written by who takes the slot */
typedef struct FeedOwner
{
	Oid			database;
	Oid			index;
	Oid			relfilenumber;	/* of the index */
	pg_atomic_uint64 feed;		/* number of the feed; 0: the slot is free, or
								 * is changing hands */
} FeedOwner;

/* One feed, in shared memory.  The gaps are as in FeedRing. */
typedef struct FeedSlot
{
	LWLock		lock;			/* for appending, and for taking the slot */
	char		gap[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 used;		/* when the number was last read */
	pg_atomic_uint64 kept_from; /* hints of the feeder: the engine keeps the
								 * records with the numbers kept_from + 1 ..
								 * kept */
	pg_atomic_uint64 kept;

	/* as in FeedOwner */
	gpuvec_mirror_key mirror;
	uint8		build[FEED_BUILD_BYTES];	/* build id of the index
											 * (MirrorTarget) */
	uint64		unmarked;		/* count of unmarked changes when the slot was
								 * taken */
	FeedRing	ring;			/* the last one, as its size varies */
} FeedSlot;

/*
 * Owners are apart from the slots: who inserts into an index that no mirror
 * follows reads nothing else
 */
typedef struct FeedTable
{
	FeedOwner	owners[FEED_SLOTS];
	LWLock		lock;			/* for taking slots */
	int			tranche;		/* of the locks */
	uint64		feeds;			/* last number given to a feed */
	pg_atomic_uint64 moves;		/* counted by FeedMoved() */
	pg_atomic_uint32 taken;		/* slots before this number were ever taken:
								 * nobody looks at the others */
	char		slots[FLEXIBLE_ARRAY_MEMBER] pg_attribute_aligned(8);
} FeedTable;

/* Bytes of a slot, large or small, and of the table */
#define feed_slot_bytes(places, room) \
	CACHELINEALIGN(offsetof(FeedSlot, ring) + feed_ring_bytes(places, room))
#define FEED_LARGE_SLOT		feed_slot_bytes(FEED_RING_RECORDS, FEED_RING_BYTES)
#define FEED_SMALL_SLOT		feed_slot_bytes(FEED_SMALL_RECORDS, FEED_SMALL_BYTES)
#define FEED_TABLE_BYTES \
	(offsetof(FeedTable, slots) + FEED_LARGE_SLOTS * FEED_LARGE_SLOT + \
	 (FEED_SLOTS - FEED_LARGE_SLOTS) * FEED_SMALL_SLOT)

/* Slot i: those with large rings come first */
static inline FeedSlot *
FeedSlotAt(FeedTable *table, int i)
{
	Size		small = Max(i - FEED_LARGE_SLOTS, 0);

	return (FeedSlot *) (table->slots + (i - small) * FEED_LARGE_SLOT + small * FEED_SMALL_SLOT);
}

/* The table in the shared state, or NULL */
extern FeedTable *FeedTableIn(GpuvecShared *state);

/*
 * True if the slot of this owner is that of this index.  Without the slot's
 * lock the answer may be out of date.
 */
static inline bool
FeedIsOwner(FeedOwner *owner, const FeedIndex *index)
{
	return owner->index == index->index && owner->relfilenumber == index->relfilenumber &&
		owner->database == MyDatabaseId && pg_atomic_read_u64(&owner->feed) != 0;
}

/*
 * The slot to look at behind another one, of those that were ever taken.  Who
 * looks for a slot begins with the one that the session has found last: the
 * indexes of a table's partitions mostly took theirs one after another.
 */
static inline uint32
FeedNextSlot(uint32 slot, uint32 taken)
{
	return slot + 1 < taken ? slot + 1 : 0;
}

#endif							/* GPUVEC_FEED_TABLE_H */
