/*-------------------------------------------------------------------------
 *
 * changed_lines.c
 *	  Lists of line pointers and pages of a relation that were changed.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/protocol_mirrors.h"
#include "mirror/pages/changed_lines.h"

/* More bytes of rows than this are not kept: pages are read instead */
#define MOST_ROWS		(16 * 1024 * 1024)

static void
add_entry(ChangedLines *lines, uint64 place, uint32 value)
{
	ChangedLine *entry;

	if (lines->n == lines->capacity)
	{
		lines->capacity = Max(lines->capacity * 2, 64);
		lines->entries = lines->entries ?
			repalloc_huge(lines->entries, lines->capacity * sizeof(ChangedLine)) :
			palloc_array(ChangedLine, lines->capacity);
	}
	entry = &lines->entries[lines->n];
	entry->place = place;
	entry->nth = lines->n++;
	entry->value = value;
}

/* Changes of a page often come together, so the last entry is compared */
void
NoteChangedLine(ChangedLines *lines, BlockNumber block, OffsetNumber line)
{
	uint64		place = changed_place(block, lines->by_line ? line : CHANGED_WHOLE);
	const ChangedLine *last = lines->n > 0 ? &lines->entries[lines->n - 1] : NULL;

	if (last == NULL || last->place != place || last->value != CHANGED_READ)
		add_entry(lines, place, CHANGED_READ);
}

void
NoteGoneLine(ChangedLines *lines, BlockNumber block, OffsetNumber line)
{
	add_entry(lines, changed_place(block, line), CHANGED_GONE);
}

void
NoteLineValue(ChangedLines *lines, BlockNumber block, OffsetNumber line,
			  const gpuvec_sparse *value)
{
	ChangedRow	row = {value->ids.n, RowForm(lines->values, value)};
	int			bytes = (int) gpuvec_form_bytes(row.form, row.n);

	if (lines->rows.data == NULL)
		initStringInfo(&lines->rows);
	if (lines->rows.len + bytes > MOST_ROWS)
	{
		NoteChangedLine(lines, block, line);
		return;
	}
	add_entry(lines, changed_place(block, line), lines->rows.len);
	appendBinaryStringInfo(&lines->rows, (const char *) &row, sizeof(row));
	enlargeStringInfo(&lines->rows, bytes);
	RowWrite(lines->rows.data + lines->rows.len, row.form, value);
	lines->rows.len += bytes;
}

void
NoteChangedPage(ChangedLines *lines, BlockNumber block)
{
	NoteChangedLine(lines, block, CHANGED_WHOLE);
}

/* Order by place; of one place, in the order in which they were noted */
static int
compare_entries(const void *a, const void *b)
{
	const ChangedLine *x = a;
	const ChangedLine *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/*
 * Keep the last entry of each line pointer, and of a page as a whole only
 * that.  The entries are in order, in which such a one comes last.
 */
static void
drop_covered(ChangedLines *lines)
{
	ChangedLine *entries = lines->entries;
	uint32		n = 0;
	uint32		first = 0;		/* of the page's entries that were kept */

	for (uint32 i = 0; i < lines->n; i++)
	{
		ChangedLine entry = entries[i];

		if (n == 0 || changed_block(&entry) != changed_block(&entries[n - 1]))
			first = n;
		if (changed_line(&entry) == CHANGED_WHOLE)
			n = first;
		else if (n > first && entries[n - 1].place == entry.place)
			n--;
		entries[n++] = entry;
	}
	lines->n = n;
	lines->nwhole = 0;
	for (uint32 i = 0; i < n; i++)
		lines->nwhole += changed_line(&entries[i]) == CHANGED_WHOLE;
}

void
SortChangedLines(ChangedLines *lines)
{
	if (lines->n > 1)
		qsort(lines->entries, lines->n, sizeof(ChangedLine), compare_entries);
	drop_covered(lines);
}

/* bsearch comparator of a place and an entry */
static int
compare_place(const void *place, const void *entry)
{
	uint64		x = *(const uint64 *) place;
	uint64		y = ((const ChangedLine *) entry)->place;

	return x < y ? -1 : x > y;
}

static bool
has_place(const ChangedLines *lines, uint64 place)
{
	return bsearch(&place, lines->entries, lines->n, sizeof(ChangedLine), compare_place) != NULL;
}

bool
HasChangedLine(const ChangedLines *lines, BlockNumber block, OffsetNumber line)
{
	return lines->n > 0 && (has_place(lines, changed_place(block, line)) ||
							has_place(lines, changed_place(block, CHANGED_WHOLE)));
}

void
FreeChangedLines(ChangedLines *lines)
{
	if (lines->entries)
		pfree(lines->entries);
	if (lines->rows.data)
		pfree(lines->rows.data);
	lines->entries = NULL;
	lines->rows.data = NULL;
}
