/*-------------------------------------------------------------------------
 *
 * feed_queue.h
 *	  Rows that wait in this session to be handed over.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEED_QUEUE_H
#define GPUVEC_FEED_QUEUE_H

#include "postgres.h"

#include "core/protocol_mirrors.h"
#include "utils/rel.h"

/* Register the callbacks, when the library is loaded */
extern void FeedQueueInit(void);

/*
 * Let a record wait, which concerns a line pointer where this transaction has
 * just inserted a row.  Does not fail.
 */
extern void FeedQueueAdd(Relation index, const gpuvec_feed_record *record, const void *values,
						 const void *filter_keys);

/* Hand over all records that wait.  Does not fail. */
extern void FeedQueueFlush(void);

#endif							/* GPUVEC_FEED_QUEUE_H */
