/*-------------------------------------------------------------------------
 *
 * wal.h
 *	  Finds the pages of a relation that a range of WAL has changed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WAL_H
#define GPUVEC_WAL_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "storage/block.h"
#include "utils/rel.h"

/* Pages that were changed, ascending and distinct when sorted */
typedef struct ChangedPages
{
	BlockNumber *blocks;
	uint32		n;
	uint32		room;
} ChangedPages;

/* What reading a range of WAL has shown */
typedef enum WalResult
{
	WAL_UNKNOWN,				/* it is gone, or too long to be worth reading */
	WAL_UNCHANGED,				/* no page was changed */
	WAL_CHANGED
} WalResult;

/*
 * Read the WAL between two positions, each of which MirrorPosition() returned
 * at some time.  If `pages` is NULL, reading ends at the first change.
 */
extern WalResult WalChanges(Relation rel, XLogRecPtr from, XLogRecPtr to, ChangedPages *pages);

/*
 * Note a page; sort the pages and drop duplicates; is a page among sorted
 * ones?
 */
extern void NoteChangedPage(ChangedPages *pages, BlockNumber block);
extern void SortChangedPages(ChangedPages *pages);
extern bool HasChangedPage(const ChangedPages *pages, BlockNumber block);

#endif							/* GPUVEC_WAL_H */
