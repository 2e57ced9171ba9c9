/*-------------------------------------------------------------------------
 *
 * entry_queue.h
 *	  Entries that wait to be written to the index.
 *
 * They wait in this process, so that those of a statement or transaction are
 * written together; they are at the latest when it commits, and before any
 * query of it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENTRY_QUEUE_H
#define GPUVEC_ENTRY_QUEUE_H

#include "postgres.h"

#include "storage/itemptr.h"
#include "utils/rel.h"

/* Have the callbacks and hooks called, when the library is loaded */
extern void EntryQueueInit(void);

/*
 * Let the entry of a root wait, or write it at once if it cannot; `value` is
 * a set, not toasted, or NULL for a null value
 */
extern void EntryQueueAdd(Relation heap, Relation index, ItemPointer root, struct varlena *value);

/* Write what waits */
extern void EntryQueueFlush(void);

#endif							/* GPUVEC_ENTRY_QUEUE_H */
