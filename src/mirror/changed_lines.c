/*-------------------------------------------------------------------------
 *
 * changed_lines.c
 *	  Lists of line pointers and pages of a relation that were changed.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/changed_lines.h"

/* Changes of a page often come together, so the last entry is compared */
void
NoteChangedLine(ChangedLines *lines, BlockNumber block, OffsetNumber line)
{
	uint64		entry = changed_entry(block, lines->by_line ? line : CHANGED_WHOLE);

	if (lines->n > 0 && lines->entries[lines->n - 1] == entry)
		return;
	if (lines->n == lines->room)
	{
		lines->room = Max(lines->room * 2, 64);
		lines->entries = lines->entries ?
			repalloc_huge(lines->entries, lines->room * sizeof(uint64)) :
			palloc_array(uint64, lines->room);
	}
	lines->entries[lines->n++] = entry;
}

void
NoteChangedPage(ChangedLines *lines, BlockNumber block)
{
	NoteChangedLine(lines, block, CHANGED_WHOLE);
}

static int
compare_entries(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* Entries are ascending: drop duplicates, and those of pages as a whole */
static void
drop_covered(ChangedLines *lines)
{
	uint64	   *entries = lines->entries;
	uint32		n = 0;
	uint32		first = 0;		/* of the page's entries that were kept */

	lines->npages = lines->nwhole = 0;
	for (uint32 i = 0; i < lines->n; i++)
	{
		if (n == 0 || changed_block(entries[i]) != changed_block(entries[n - 1]))
		{
			first = n;
			lines->npages++;
		}
		else if (entries[i] == entries[n - 1])
			continue;
		if (changed_line(entries[i]) == CHANGED_WHOLE)
		{
			n = first;
			lines->nwhole++;
		}
		entries[n++] = entries[i];
	}
	lines->n = n;
}

void
SortChangedLines(ChangedLines *lines)
{
	if (lines->n > 1)
		qsort(lines->entries, lines->n, sizeof(uint64), compare_entries);
	drop_covered(lines);
}

static bool
has_entry(const ChangedLines *lines, uint64 entry)
{
	return bsearch(&entry, lines->entries, lines->n, sizeof(entry), compare_entries) != NULL;
}

bool
HasChangedLine(const ChangedLines *lines, BlockNumber block, OffsetNumber line)
{
	return lines->n > 0 && (has_entry(lines, changed_entry(block, line)) ||
							has_entry(lines, changed_entry(block, CHANGED_WHOLE)));
}

void
FreeChangedLines(ChangedLines *lines)
{
	if (lines->entries)
		pfree(lines->entries);
	lines->entries = NULL;
}
