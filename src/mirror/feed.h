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

#include "core/protocol.h"
#include "storage/block.h"
#include "utils/rel.h"

/* Ask for the shared memory of feeds */
extern void FeedInit(void);

/* For changes of the table: mark an inserted row's page, or all pages */
extern void FeedMark(Relation index, BlockNumber block);
extern void FeedMarkAll(Relation index);

/*
 * For a search, after its snapshot was taken: sets in *need the feed of this
 * index, and the number that a mirror must have applied.  Without a feed,
 * *need stays as it is.
 */
extern void FeedRead(Relation index, const uint8 *build, gpuvec_freshness *need);

/*
 * The pages of the marks in (applied, need->applied], palloc'd, in any order.
 * False: they are not known one by one.
 */
extern bool FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n);

#endif							/* GPUVEC_FEED_H */
