/*-------------------------------------------------------------------------
 *
 * feed.h
 *	  What an index tells of changes of its table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEED_H
#define GPUVEC_FEED_H

#include "postgres.h"

#include "core/protocol.h"
#include "datatype/timestamp.h"
#include "storage/block.h"
#include "storage/spin.h"
#include "utils/rel.h"

#define FEED_SLOTS		16
#define FEED_MARKS		256
#define FEED_BUILD_BYTES 16

/* What a feed is of */
typedef struct FeedKey
{
	Oid			database;
	Oid			index;
	Oid			relfilenumber;	/* of the index */
} FeedKey;

/* One feed, in shared memory: see feed.c */
typedef struct FeedSlot
{
	slock_t		mutex;			/* protects all below */
	FeedKey		key;
	uint8		build[FEED_BUILD_BYTES];	/* of the index's metapage */
	uint64		feed;			/* its number; 0: the slot is free */
	uint64		unmarked;		/* changes that were not marked before it was taken */
	uint64		number;			/* of the last mark */
	uint64		swept;			/* of the last mark that stands for all pages */
	bool		read;			/* has the number been read since that mark? */
	TimestampTz used;			/* when it was last read */
	BlockNumber blocks[FEED_MARKS]; /* of mark n at n % FEED_MARKS */
} FeedSlot;

typedef struct FeedTable
{
	slock_t		mutex;			/* protects feeds, and taking slots */
	uint64		feeds;			/* last number that a feed got */
	FeedSlot	slots[FEED_SLOTS];
} FeedTable;

extern void FeedTableInit(FeedTable *table);

/* For whoever changes the table: an inserted row's page, or all pages */
extern void FeedMark(Relation index, BlockNumber block);
extern void FeedMarkAll(Relation index);

/*
 * For whoever searches, after the snapshot was taken: how far a mirror that is fed by
 * this index has to be.  Without a feed, *need stays as it is.
 */
extern void FeedRead(Relation index, const uint8 *build, gpuvec_freshness *need);

/*
 * The pages with marks in (applied, need->applied], in any order and palloc'd; false if
 * they are not known one by one.
 */
extern bool FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n);

#endif							/* GPUVEC_FEED_H */
