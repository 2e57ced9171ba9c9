/*-------------------------------------------------------------------------
 *
 * ahead.c
 *	  The answer to a search that did not wait for a refresh.
 *
 * When a mirror is a few pages behind, a search is sent to the engine at
 * once, and the engine searches the mirror as it is.  Meanwhile the session
 * reads the changed pages, ranks their rows itself, and sends the pages.
 * This file merges both into the answer that the engine would have given
 * after the refresh.  overlay.c has the proof.  The new rows are those of the
 * pages, or lines of pages, that were read again.  They replace all rows of
 * these, and rows of pages that do not exist any more are gone.
 *
 * The engine's answer must be of the mirror as the session knew it.  So its
 * refresh number must be the one that the session knew when it looked for
 * changed pages.  (A merge in the background changes no rows.)  This answer
 * does not depend on whether the refresh is published in the end.  The next
 * answer does: so the next request names how fresh the mirror must be, as
 * this one would have.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/ahead.h"
#include "mirror/ask/search_request.h"
#include "mirror/pages/changed_lines.h"

/* About the number of rows of the few pages that are read again */
#define AHEAD_ROWS	128

/* Pages that were read again */
struct MirrorAhead
{
	Overlay    *rows;			/* the rows of these pages */
	ChangedLines read;			/* ascending */
	BlockNumber nblocks;		/* of the relation */
	uint32		nfilters;		/* filter columns of the mirror */
};

MirrorAhead *
MirrorAheadBegin(const MirrorQuestion *question)
{
	MirrorAhead *ahead = palloc0(sizeof(MirrorAhead));

	ahead->rows = OverlayBegin(question, AHEAD_ROWS);
	ahead->read.by_line = true;
	ahead->nfilters = question->nfilters;
	return ahead;
}

void
MirrorAheadEnd(MirrorAhead *ahead)
{
	FreeChangedLines(&ahead->read);
	OverlayEnd(ahead->rows);
	pfree(ahead);
}

/* Note what was read of a page, whose lines are there */
static void
note_read(ChangedLines *read, const gpuvec_page *page, const char *lines)
{
	if (!page->partial)
		NoteChangedPage(read, page->block);
	else
		NoteChangedLine(read, page->block, CHANGED_NO_LINE);
	for (uint32 i = 0; i < page->nlines; i++)
	{
		uint16		line;

		memcpy(&line, lines + i * sizeof(line), sizeof(line));
		NoteChangedLine(read, page->block, mirror_line_offset(line));
	}
}

void
MirrorAheadPage(MirrorAhead *ahead, const char *data)
{
	gpuvec_page page;
	const char *at = data + sizeof(page);

	memcpy(&page, data, sizeof(page));
	note_read(&ahead->read, &page, at + page.bytes - gpuvec_lines_bytes(page.nlines));
	for (uint32 i = 0; i < page.nrows; i++)
	{
		gpuvec_row	row;
		IdSpan		set;

		memcpy(&row, at, sizeof(row));
		set.ids = at + sizeof(row);
		set.n = row.len;
		set.wide = row.wide != 0;
		at += row.wide ? gpuvec_wide_row_bytes(row.len) : gpuvec_row_bytes(row.len);
		OverlayRow(ahead->rows, gpuvec_tid(page.block, row.line), set,
				   ahead->nfilters > 0 ? at : NULL);
		at += gpuvec_filter_bytes(ahead->nfilters);
	}
}

/* True if a row was read again, or its page is no more */
static bool
is_replaced(const MirrorHit *hit, const void *arg)
{
	const MirrorAhead *ahead = arg;
	BlockNumber block = gpuvec_hit_block(hit->place);

	return block >= ahead->nblocks ||
		HasChangedLine(&ahead->read, block, mirror_line_offset(gpuvec_hit_line(hit->place)));
}

/*
 * Other rows that were given of partial pages are not proven any more: they
 * count as newer, and not as all-visible
 */
static void
mark_newer(const MirrorAhead *ahead, GpuvecReply *reply)
{
	MirrorSearchAnswer answer = {.reply = *reply};
	MirrorHit  *hits;

	MirrorSearchAnswerRead(&answer);
	hits = (MirrorHit *) answer.hits;
	for (uint64 i = 0; i < answer.head.nhits; i++)
		if (HasChangedLine(&ahead->read, gpuvec_hit_block(hits[i].place), CHANGED_NO_LINE))
			hits[i].place = gpuvec_hit_place(gpuvec_hit_tid(hits[i].place),
											 gpuvec_hit_common(hits[i].place), true);
}

bool
MirrorAheadMerge(MirrorAhead *ahead, BlockNumber nblocks, MemoryContext context,
				 GpuvecReply *reply)
{
	ahead->nblocks = nblocks;
	mark_newer(ahead, reply);
	return OverlayMerge(&ahead->rows, 1, is_replaced, ahead, context, reply);
}
