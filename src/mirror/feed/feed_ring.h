/*-------------------------------------------------------------------------
 *
 * feed_ring.h
 *	  The ring of a feed: its last records, in shared memory.
 *
 * See feed_ring.c.  Nothing here allocates memory, raises an error or waits.
 * The caller has the lock of the ring where that is asked for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEED_RING_H
#define GPUVEC_FEED_RING_H

#include "postgres.h"

#include "core/protocol_mirrors.h"
#include "port/atomics.h"
#include "storage/block.h"

/*
 * What a ring has room for: bytes of records, and records.  Most slots have
 * small rings.
 */
#define FEED_RING_BYTES		(1024 * 1024)
#define FEED_RING_RECORDS	8192
#define FEED_SMALL_BYTES	(64 * 1024)
#define FEED_SMALL_RECORDS	512

#define FEED_LOST_BITS		32768

/* Most that is appended at a time */
#define FEED_BATCH_BYTES	8192
#define FEED_BATCH_RECORDS	64

/*
 * A row of more bytes of ids and values is not handed over: its page is.  Two
 * such rows fit the smallest ring, with all filter keys.
 */
#define FEED_MOST_BYTES		3840

/* The least bytes of a ring: room for any two records and what they waste */
#define FEED_RING_LEAST		8192

/* The pages of records that were overwritten before they were applied */
typedef struct FeedLost
{
	uint64		from;			/* bits[] and the ring together have the page
								 * of each record after this one */
	uint64		count;			/* records, since the ring was reset */
	uint32		shift;			/* bit n stands for 2^shift pages */
	uint64		bits[FEED_LOST_BITS / 64];
} FeedLost;

/*
 * In shared memory, followed by uint64 ends[places]: where record n ends, at n
 * % places; BlockNumber blocks[places]: the page of record n, or
 * InvalidBlockNumber; char data[room].  The gap keeps what others write out of
 * the cache line of who appends.
 */
typedef struct FeedRing
{
	pg_atomic_uint64 applied;	/* a hint: mirrors have applied this one */
	char		gap[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 number;	/* of the last record; 0: none */
	pg_atomic_uint64 oldest;	/* number of the oldest record in data[] */
	uint64		swept;			/* number of the last record of kind ALL */
	uint64		marked;			/* number of the last record that is no row */
	uint32		places;			/* even */
	uint32		room;			/* a multiple of 8 */
	uint32		capacity;		/* bytes of data[] in use */
	FeedLost	lost;
	char		memory[FLEXIBLE_ARRAY_MEMBER] pg_attribute_aligned(8);
} FeedRing;

/* Bytes of a ring with these places and this room */
#define feed_ring_bytes(places, room) \
	(offsetof(FeedRing, memory) + (Size) (places) * (sizeof(uint64) + sizeof(BlockNumber)) + (room))

/* Records that are appended together */
typedef struct FeedBatch
{
	uint32		n;
	uint32		bytes;
	char		data[FEED_BATCH_BYTES] pg_attribute_aligned(8);
} FeedBatch;

/*
 * Add a record of at most FEED_MOST_BYTES of values, which need not be
 * aligned, to a batch.  False: it has no room.  A batch begins with n and
 * bytes 0.
 */
extern bool FeedBatchAdd(FeedBatch *batch, const gpuvec_feed_record *record, const void *values);

/* The same with filter keys, which need not be aligned either */
extern bool FeedBatchAddRow(FeedBatch *batch, const gpuvec_feed_record *record,
							const void *values, const void *filter_keys);

/* Set up new memory of feed_ring_bytes(), which need not be zeroed */
extern void FeedRingInit(FeedRing *ring, uint32 places, uint32 room);

/*
 * Forget all records; from now on so many bytes are used, but not more than
 * there is room for.  The caller has the lock, and sees to it that whoever
 * reads without the lock learns of it (feed_slot.c).
 */
extern void FeedRingReset(FeedRing *ring, uint32 capacity);

/* Append records; the caller has the lock */
extern void FeedRingAppend(FeedRing *ring, const FeedBatch *batch);

/* Note that a mirror has applied this number */
extern void FeedRingApplied(FeedRing *ring, uint64 number);

/*
 * Copying without the lock.  FeedRingPlan() finds which records are to be
 * copied, at most `most` bytes of them; false: they are not there any more.
 * FeedRingCopy() copies span.bytes bytes.  They mean something only if it
 * returns true, and if the ring was not reset since before FeedRingPlan().
 * FeedRingPack() then drops what is between the records, and returns the
 * bytes that are left; *rows is the number of line pointers that they
 * concern.  -1: not all of them are rows.
 */
typedef struct FeedRingSpan
{
	uint64		from;			/* records with the numbers from + 1 .. to */
	uint64		to;
	uint64		begin;			/* where the first one begins */
	uint32		bytes;
	uint32		capacity;		/* as the ring's */
} FeedRingSpan;

extern bool FeedRingPlan(FeedRing *ring, uint64 from, uint64 to, Size most, FeedRingSpan *span);
extern bool FeedRingCopy(FeedRing *ring, const FeedRingSpan *span, char *to);
extern int64 FeedRingPack(const FeedRingSpan *span, char *data, uint32 *rows);

/*
 * Pages of the records with the numbers from + 1 .. to; the caller has the
 * lock, perhaps shared.  FeedRingPagesMost() tells how many there may be; -1:
 * they are not known one by one.  FeedRingPages() returns their number.
 */
extern int64 FeedRingPagesMost(FeedRing *ring, uint64 from);
extern uint32 FeedRingPages(FeedRing *ring, uint64 from, uint64 to, BlockNumber *blocks);

#endif							/* GPUVEC_FEED_RING_H */
