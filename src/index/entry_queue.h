/*-------------------------------------------------------------------------
 *
 * entry_queue.h
 *	  Index entries that wait to be written.
 *
 * Entries wait in this process, so that those of a statement or transaction
 * are written together.  entry_queue.c says when they are written at the
 * latest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENTRY_QUEUE_H
#define GPUVEC_ENTRY_QUEUE_H

#include "postgres.h"

#include "entries/entries.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

/* Register the callbacks and the hook, when the library is loaded */
extern void EntryQueueInit(void);

/*
 * Add the entry of a root to the queue, or write it at once if it cannot
 * wait
 */
extern void EntryQueueAdd(Relation heap, Relation index, ItemPointer root,
						  const EntryValue *value);

/*
 * True if this transaction began a statement that may insert rows
 * speculatively
 */
extern bool EntryQueueSpeculates(void);

/* Write all entries that wait */
extern void EntryQueueFlush(void);

#endif							/* GPUVEC_ENTRY_QUEUE_H */
