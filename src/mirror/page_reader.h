/*-------------------------------------------------------------------------
 *
 * page_reader.h
 *	  Reads heap pages into the form in which the engine takes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_READER_H
#define GPUVEC_PAGE_READER_H

#include "postgres.h"

#include "access/htup.h"
#include "lib/stringinfo.h"
#include "mirror/mirror.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct PageReader
{
	const MirrorTarget *target;
	Relation	rel;
	Snapshot	snapshot;		/* of the search that caused the reading */
	TransactionId horizon;		/* what was deleted before is dead to everyone */
	BufferAccessStrategy strategy;
	MemoryContext context;		/* reset after each page */
	char	   *page;			/* private copy of the page */
	bool	   *dead;			/* by line pointer: dead to everyone */
} PageReader;

extern PageReader *PageReaderBegin(const MirrorTarget *target, Snapshot snapshot);
extern void PageReaderEnd(PageReader *reader);

/* Append one gpuvec_page with all its rows to `out` */
extern void PageReaderRead(PageReader *reader, BlockNumber block, StringInfo out);

/* LSN of a page, read under its lock */
extern XLogRecPtr PageReaderLSN(PageReader *reader, BlockNumber block);

#endif							/* GPUVEC_PAGE_READER_H */
