/*-------------------------------------------------------------------------
 *
 * changed_lines.h
 *	  Lists of line pointers and pages of a relation that were changed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CHANGED_LINES_H
#define GPUVEC_CHANGED_LINES_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "core/sparse.h"
#include "lib/stringinfo.h"
#include "mirror/describe/row_value.h"
#include "storage/block.h"
#include "storage/off.h"

/*
 * Of each page that was changed: an entry for the page as a whole; or an
 * entry for each line pointer that may have another row, and one that says no
 * more than that the page was changed.
 */
typedef struct ChangedLine
{
	uint64		place;			/* block << 16 | offset number */
	uint32		nth;			/* in the order in which they were noted */
	uint32		value;			/* where the row is in `rows`, or: */
} ChangedLine;

#define CHANGED_READ	((uint32) 0xFFFFFFFF)	/* read it from the page */
#define CHANGED_GONE	((uint32) 0xFFFFFFFE)	/* there is none */

typedef struct ChangedLines
{
	bool		by_line;		/* wanted; else each page is one as a whole */
	AttrNumber	attnum;			/* take values of this column, if they are at
								 * hand; or InvalidAttrNumber */
	bool		values;			/* it has vectors */
	TupleDesc	desc;			/* of its relation */
	ChangedLine *entries;		/* ascending and distinct when sorted */
	uint32		n;
	uint32		capacity;
	uint32		nwhole;			/* when sorted: number of pages as a whole */
	StringInfoData rows;		/* of each row a ChangedRow, and what
								 * RowWrite() writes */
} ChangedLines;

/* What comes before the ids of a row */
typedef struct ChangedRow
{
	uint32		n;				/* ids */
	uint32		form;			/* GPUVEC_FORM_... */
} ChangedRow;

/* In place of an offset number: the page as a whole, or no line pointer */
#define CHANGED_WHOLE	((OffsetNumber) 0xFFFF)
#define CHANGED_NO_LINE	InvalidOffsetNumber

static inline uint64
changed_place(BlockNumber block, OffsetNumber line)
{
	return (uint64) block << 16 | line;
}

static inline BlockNumber
changed_block(const ChangedLine *entry)
{
	return (BlockNumber) (entry->place >> 16);
}

static inline OffsetNumber
changed_line(const ChangedLine *entry)
{
	return (OffsetNumber) (entry->place & 0xFFFF);
}

/* True if an entry's line pointer has to be read from the page */
static inline bool
changed_is_read(const ChangedLine *entry)
{
	return entry->value == CHANGED_READ && changed_line(entry) != CHANGED_NO_LINE;
}

/* The row of an entry, if there is one, or a null */
static inline gpuvec_sparse
changed_value(const ChangedLines *lines, const ChangedLine *entry)
{
	const char *data = lines->rows.data + entry->value;
	ChangedRow	row;

	if (entry->value >= CHANGED_GONE)
		return RowOfNull();
	memcpy(&row, data, sizeof(row));
	return RowOfMessage(row.form, data + sizeof(row), row.n);
}

/*
 * Note a line pointer that has to be read, or CHANGED_NO_LINE; one that has
 * no row; one with this row, which need not be aligned; or a page as a
 * whole.  Of what is noted of one line pointer the last counts.
 */
extern void NoteChangedLine(ChangedLines *lines, BlockNumber block, OffsetNumber line);
extern void NoteGoneLine(ChangedLines *lines, BlockNumber block, OffsetNumber line);
extern void NoteLineValue(ChangedLines *lines, BlockNumber block, OffsetNumber line,
						  const gpuvec_sparse *value);
extern void NoteChangedPage(ChangedLines *lines, BlockNumber block);

/*
 * Sort the entries: one for each line pointer, and a page as a whole keeps no
 * other
 */
extern void SortChangedLines(ChangedLines *lines);

/* True if a line pointer, or its page as a whole, is among sorted entries */
extern bool HasChangedLine(const ChangedLines *lines, BlockNumber block, OffsetNumber line);

extern void FreeChangedLines(ChangedLines *lines);

#endif							/* GPUVEC_CHANGED_LINES_H */
