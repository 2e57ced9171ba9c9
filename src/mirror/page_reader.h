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
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "mirror/mirror.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct RowForm RowForm;

typedef struct PageReader
{
	const MirrorTarget *target;
	Relation	rel;
	AttrNumber	attnum;
	bool		rooted;			/* one row for each HOT chain, see mirror.h */
	RowForm    *form;			/* rows are what an index makes of them; NULL: the column */
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

/*
 * A plain value of a tuple of the page that is being read, detoasted; NULL if the row may
 * be left out.
 */
extern struct varlena *PageReaderPlain(PageReader *reader, struct varlena *value, ItemPointer tid);

/* LSN of a page, read under its lock */
extern XLogRecPtr PageReaderLSN(PageReader *reader, BlockNumber block);

/* row_form.c: what an index with an expression or predicate makes of a row */
extern RowForm *RowFormBegin(Relation rel, Relation index);
extern struct varlena *RowFormValue(RowForm *form, PageReader *reader, HeapTuple tuple);
extern struct varlena *RowFormSlotValue(RowForm *form, TupleTableSlot *slot, bool *member);
extern void RowFormEnd(RowForm *form);

#endif							/* GPUVEC_PAGE_READER_H */
