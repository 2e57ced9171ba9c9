/*-------------------------------------------------------------------------
 *
 * page_rows.h
 *	  The rows of a page that was copied, as the engine takes them.
 *
 * For page_reader.c.  Each function appends what it reads to `out`.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_ROWS_H
#define GPUVEC_PAGE_ROWS_H

#include "postgres.h"

#include "mirror/pages/page_reader.h"
#include "storage/bufpage.h"

/* The tuple at a line pointer of a page */
static inline void
PageTupleAt(PageReader *reader, Page page, BlockNumber block, OffsetNumber line,
			HeapTuple tuple)
{
	ItemId		item = PageGetItemId(page, line);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(reader->rel);
	ItemPointerSet(&tuple->t_self, block, line);
}

/* The rows of the copied page; returns their number */
extern uint32 PageRowsOfTuples(PageReader *reader, BlockNumber block, StringInfo out);

/* The rows that the index keeps for the page; returns their number */
extern uint32 PageRowsOfEntries(PageReader *reader, BlockNumber block, StringInfo out);

/*
 * The row of a tuple under this line.  False: it was left out, as it has no
 * key or no value, or has lost its value.
 */
extern bool PageRowOfTuple(PageReader *reader, StringInfo out, uint16 line, HeapTuple tuple);

/*
 * This row, and these filter keys of filter columns.  Neither need be
 * aligned.
 */
extern void PageRowOfValue(PageReader *reader, StringInfo out, uint16 line,
						   const gpuvec_sparse *value, const void *filter_keys);

#endif							/* GPUVEC_PAGE_ROWS_H */
