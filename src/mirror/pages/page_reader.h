/*-------------------------------------------------------------------------
 *
 * page_reader.h
 *	  Reads heap pages into the form that the engine takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_READER_H
#define GPUVEC_PAGE_READER_H

#include "postgres.h"

#include "access/htup.h"
#include "entries/entries.h"
#include "lib/stringinfo.h"
#include "mirror/describe/mirror.h"
#include "mirror/pages/changed_lines.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct PageReader
{
	const MirrorTarget *target;
	Relation	rel;
	AttrNumber	attnum;
	bool		rooted;			/* one row for each HOT chain, see mirror.h */
	EntryReader *entries;		/* reads the rows that an index keeps; NULL:
								 * reads the column */
	Snapshot	snapshot;		/* of the search that caused the reading */
	TransactionId horizon;		/* rows deleted before it are dead to all */
	BufferAccessStrategy strategy;
	MemoryContext context;		/* reset after each page */
	char	   *page;			/* private copy of the page */
	bool	   *dead;			/* [line pointer], dead to everyone */
	TransactionId newest;		/* of the page's tuples, if all others have
								 * been committed and not deleted; invalid:
								 * not so, or not told */
} PageReader;

extern PageReader *PageReaderBegin(const MirrorTarget *target, Snapshot snapshot);
extern void PageReaderEnd(PageReader *reader);

/* Append one gpuvec_page with all its rows to `out` */
extern void PageReaderRead(PageReader *reader, BlockNumber block, StringInfo out);

/*
 * The same with the rows of some line pointers only, of a plain mirror: those
 * of entries[n], which are some of `lines`.  Reads all of the page if many of
 * them have to be read.
 */
extern void PageReaderReadLines(PageReader *reader, BlockNumber block, const ChangedLines *lines,
								const ChangedLine *entries, uint32 n, StringInfo out);

/*
 * What the mirror keeps as the LSN of a page: the LSN of the page, read under
 * its lock; or the version of the entries that an index keeps for the page.
 */
extern XLogRecPtr PageReaderLSN(PageReader *reader, BlockNumber block);

#endif							/* GPUVEC_PAGE_READER_H */
