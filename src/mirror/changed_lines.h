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

#include "storage/block.h"
#include "storage/off.h"

/*
 * Of each page that was changed: an entry for the page as a whole; or an
 * entry for each line pointer that may have another row, and one that says no
 * more than that the page was changed.
 */
typedef struct ChangedLines
{
	bool		by_line;		/* wanted; else each page is one as a whole */
	uint64	   *entries;		/* block << 16 | offset number; ascending and
								 * distinct when sorted */
	uint32		n;
	uint32		room;
	uint32		npages;			/* when sorted: number of pages, */
	uint32		nwhole;			/* and of those as a whole */
} ChangedLines;

/* In place of an offset number: the page as a whole, or no line pointer */
#define CHANGED_WHOLE	((OffsetNumber) 0xFFFF)
#define CHANGED_NO_LINE	InvalidOffsetNumber

static inline uint64
changed_entry(BlockNumber block, OffsetNumber line)
{
	return (uint64) block << 16 | line;
}

static inline BlockNumber
changed_block(uint64 entry)
{
	return (BlockNumber) (entry >> 16);
}

static inline OffsetNumber
changed_line(uint64 entry)
{
	return (OffsetNumber) (entry & 0xFFFF);
}

/* Note a line pointer, or CHANGED_NO_LINE; or a page as a whole */
extern void NoteChangedLine(ChangedLines *lines, BlockNumber block, OffsetNumber line);
extern void NoteChangedPage(ChangedLines *lines, BlockNumber block);

/* Sort the entries; a page as a whole keeps no other entry */
extern void SortChangedLines(ChangedLines *lines);

/* True if a line pointer is among sorted entries, or its page as a whole is */
extern bool HasChangedLine(const ChangedLines *lines, BlockNumber block, OffsetNumber line);

extern void FreeChangedLines(ChangedLines *lines);

#endif							/* GPUVEC_CHANGED_LINES_H */
