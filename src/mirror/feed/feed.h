/*-------------------------------------------------------------------------
 *
 * feed.h
 *	  Feeds: what an index tells a mirror of changes of its table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEED_H
#define GPUVEC_FEED_H

#include "postgres.h"

#include "core/protocol_mirrors.h"
#include "mirror/describe/mirror.h"
#include "mirror/feed/feed_ring.h"
#include "storage/block.h"
#include "storage/itemptr.h"
#include "storage/off.h"
#include "utils/rel.h"

/* Ask for the shared memory of feeds */
extern void FeedInit(void);

/*
 * For changes of the table.  None of these fails, or waits for the engine.
 *
 * FeedTaken	true if some mirror follows the index.  If not, the other
 *				functions do nothing.
 * FeedRow		hands over a row with a new root, which this transaction has
 *				just inserted; its value may be a null.  filter_keys[] are
 *				those of the index's filter columns.  `values`: its column has
 *				vectors.  Neither the value nor filter keys need be aligned.
 *				The row may wait in this session (feed_queue.c).
 * FeedGone		the rows of these roots of a page are about to be reused
 * FeedMark		a page has to be read
 * FeedMarkAll	all pages have to be checked
 * FeedMoved	a row goes to the index: counts that, if this transaction has
 *				given the index another file, which no mirror follows yet
 */
extern bool FeedTaken(Relation index);
extern void FeedRow(Relation index, ItemPointer root, bool values, const gpuvec_sparse *value,
					const void *filter_keys, uint32 nfilter_keys);
extern void FeedGone(Relation index, BlockNumber block, const OffsetNumber *roots, int n);
extern void FeedMark(Relation index, BlockNumber block);
extern void FeedMarkAll(Relation index);
extern void FeedMoved(Relation index);

/*
 * What FeedMoved() has counted.  If it has not changed since an index was
 * looked at, rows that a snapshot sees now went to the file of then.
 */
extern uint64 FeedMoves(void);

/* A file of an index of this database */
typedef struct FeedIndex
{
	Oid			index;
	Oid			relfilenumber;
} FeedIndex;

extern FeedIndex FeedIndexOf(Relation index);

/* Append records to the feeds of an index, at once */
extern void FeedAppend(const FeedIndex *index, const FeedBatch *batch);

/*
 * For a search, after its snapshot was taken: sets in *need the feed of the
 * target's index, and the number that a mirror must have applied.  Without a
 * feed, *need stays as it is.
 */
extern void FeedRead(const MirrorTarget *target, gpuvec_freshness *need);

/*
 * Hints.  FeedApplied: a number that the feed's mirror is likely to have
 * applied; 0 if nothing is known.  FeedNoteState() notes what the engine
 * told.  FeedComing: will the feeder have all records applied, in a moment,
 * or as soon as the engine has applied many that it keeps?
 */
typedef enum FeedPace
{
	FEED_STUCK,					/* no */
	FEED_COMING,
	FEED_CATCHING_UP
} FeedPace;

/* How long it pays to wait for rows that the engine keeps, before pages */
#define FEED_KEPT_PATIENCE_MS	500

extern uint64 FeedApplied(uint64 feed);
extern FeedPace FeedComing(uint64 feed);
extern void FeedNoteState(const gpuvec_state *state);

/* Records of a feed, in the form of GPUVEC_MSG_ROWS */
typedef struct FeedRows
{
	uint64		from;			/* records with the numbers from + 1 .. to */
	uint64		to;
	uint32		nrows;			/* line pointers that they concern */
	Size		bytes;
	char	   *data;			/* palloc'd */
} FeedRows;

/*
 * Copy the records with the numbers from + 1 .. to of a feed.  If they take
 * more than `most` bytes, rows->to is less, and may be `from`.  False: they
 * are not all there any more, or not all are rows; then nothing is allocated.
 */
extern bool FeedCopyRows(uint64 feed, uint64 from, uint64 to, Size most, FeedRows *rows);

/*
 * The pages that the records with the numbers in (applied, need->applied]
 * concern, palloc'd, in any order, perhaps repeated.  False: they are not
 * known one by one.
 */
extern bool FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n);

/* What slot n has, for the worker that applies rows, and for views */
typedef struct FeedSlotInfo
{
	gpuvec_mirror_key key;		/* of the mirror */
	uint64		feed;			/* 0: the slot is free */
	uint64		number;			/* of the last record */
	uint64		applied;		/* as FeedApplied() */
	uint64		lost;			/* records that were overwritten before they
								 * were applied, since the slot was taken */
} FeedSlotInfo;

/* Slots with large rings, and all */
#define FEED_LARGE_SLOTS	16
#define FEED_SLOTS			128

/* Slots that were ever taken: those before this number */
extern int	FeedSlotsTaken(void);

extern void FeedSlotRead(int n, FeedSlotInfo *info);

/*
 * For the worker.  FeedRowsSince: all records behind this number are rows,
 * and at hand.  FeedNoteKept: the engine keeps the records with the numbers
 * from + 1 .. to; 0, 0: none.
 */
extern uint64 FeedRowsSince(uint64 feed);
extern void FeedNoteKept(uint64 feed, uint64 from, uint64 to);

#endif							/* GPUVEC_FEED_H */
