/*-------------------------------------------------------------------------
 *
 * row_fetch.h
 *	  Fetching many rows of a table by their tids.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ROW_FETCH_H
#define GPUVEC_ROW_FETCH_H

#include "postgres.h"

#include "access/htup.h"
#include "storage/itemptr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct RowFetch RowFetch;

extern RowFetch *RowFetchBegin(Relation rel, Snapshot snapshot, uint64 nrows);
extern void RowFetchAheadPage(const RowFetch *fetch, ItemPointer tid);
extern void RowFetchAheadTuple(const RowFetch *fetch, ItemPointer tid);
extern HeapTuple RowFetchGet(RowFetch *fetch, ItemPointer tid);
extern void RowFetchRelease(RowFetch *fetch);
extern void RowFetchEnd(RowFetch *fetch);

#endif							/* GPUVEC_ROW_FETCH_H */
