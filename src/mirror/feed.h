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
#include "storage/block.h"
#include "utils/rel.h"

/* Ask for the shared memory of feeds */
extern void FeedInit(void);

/* For whoever changes the table: an inserted row's page, or all pages */
extern void FeedMark(Relation index, BlockNumber block);
extern void FeedMarkAll(Relation index);

/*
 * For whoever searches, after the snapshot was taken: how far a mirror that
 * is fed by this index has to be.  Without a feed, *need stays as it is.
 */
extern void FeedRead(Relation index, const uint8 *build, gpuvec_freshness *need);

/*
 * The pages with marks in (applied, need->applied], in any order and
 * palloc'd; false if they are not known one by one.
 */
extern bool FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n);

#endif							/* GPUVEC_FEED_H */
