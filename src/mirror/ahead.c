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
 * pages that were read again.  They replace all rows of these pages, and
 * rows of pages that do not exist any more are gone.
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

#include "mirror/ahead.h"
#include "mirror/wal.h"

/* About the number of rows of the few pages that are read again */
#define AHEAD_ROWS	128

/* Pages that were read again */
struct MirrorAhead
{
	Overlay    *rows;			/* the rows of these pages */
	ChangedPages read;			/* ascending */
	BlockNumber nblocks;		/* of the relation */
};

MirrorAhead *
MirrorAheadBegin(const MirrorQuestion *question)
{
	MirrorAhead *ahead = palloc0(sizeof(MirrorAhead));

	ahead->rows = OverlayBegin(question, AHEAD_ROWS);
	return ahead;
}

void
MirrorAheadEnd(MirrorAhead *ahead)
{
	if (ahead->read.blocks)
		pfree(ahead->read.blocks);
	OverlayEnd(ahead->rows);
	pfree(ahead);
}

void
MirrorAheadPage(MirrorAhead *ahead, const char *data)
{
	gpuvec_page page;
	const char *at = data + sizeof(page);

	memcpy(&page, data, sizeof(page));
	NoteChangedPage(&ahead->read, page.block);
	for (uint32 i = 0; i < page.nrows; i++)
	{
		gpuvec_row	row;
		IdSpan		set;

		memcpy(&row, at, sizeof(row));
		set.ids = at + sizeof(row);
		set.n = row.len;
		set.wide = row.wide != 0;
		OverlayRow(ahead->rows, gpuvec_tid(page.block, row.line), set);
		at += row.wide ? gpuvec_wide_row_bytes(row.len) : gpuvec_row_bytes(row.len);
	}
}

/* True if a row's page was read again, or is no more */
static bool
is_replaced(const MirrorHit *hit, const void *arg)
{
	const MirrorAhead *ahead = arg;
	BlockNumber block = gpuvec_hit_block(hit->place);

	return block >= ahead->nblocks || HasChangedPage(&ahead->read, block);
}

bool
MirrorAheadMerge(MirrorAhead *ahead, BlockNumber nblocks, MemoryContext context,
				 GpuvecReply *reply)
{
	ahead->nblocks = nblocks;
	return OverlayMerge(&ahead->rows, 1, is_replaced, ahead, context, reply);
}
