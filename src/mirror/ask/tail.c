/*-------------------------------------------------------------------------
 *
 * tail.c
 *	  Rows that the session has, and that the mirror lacks.
 *
 * A search does not wait until the engine has them.  The engine searches the
 * mirror as it is, and the session lays these rows, the tail, over its answer
 * (overlay.c has the proof).  They are of one of two kinds.
 *
 * Rows that were handed over.  An index hands over its table's new rows
 * (feed.c).  The engine applies them in batches, a little later.  A search
 * copies the rows that the engine may lack from shared memory, before it
 * asks.
 *
 * Let N be the number that the session has read after its snapshot, and A the
 * number that the mirror had applied when the engine searched it, as the
 * answer tells.  The mirror with the records A + 1 .. N applied is fresh for
 * the snapshot.  The tail has the records from + 1 .. N, copied before the
 * request, where `from` is at most A.  (The request says so: the engine does
 * not search a mirror that has applied less.)  Of the records of one line
 * pointer the last one counts, as in the engine; and only those behind A,
 * though applying a record twice would do no harm.
 *
 * It costs little to rank a few hundred rows, but that is done for each
 * query.  So a tail is limited by gpuvec.ahead_rows, and by TAIL_WORK rows of
 * all queries together.  Behind that a search waits until the engine has
 * applied the rows.
 *
 * Pages that were read again.  When a mirror is a few pages behind, a search
 * is sent to the engine at once.  Meanwhile the session reads the changed
 * pages, ranks their rows, and sends the pages.  The tail is what was read of
 * them: rows of pages, or of lines of pages.  They replace all rows of these,
 * and rows of pages that do not exist any more are gone.
 *
 * That answer must be of the mirror as the session knew it.  So its refresh
 * number must be the one that the session knew when it looked for changed
 * pages.  (A merge in the background changes no rows.)  This answer does not
 * depend on whether the refresh is published in the end.  The next answer
 * does: so the next request names how fresh the mirror must be, as this one
 * would have.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "common/hashfn.h"
#include "mirror/ask/search_answer.h"
#include "mirror/ask/tail.h"
#include "mirror/describe/row_value.h"
#include "mirror/feed/feed.h"
#include "mirror/pages/changed_lines.h"

/* Most rows to rank, for all queries of a search together */
#define TAIL_WORK		65536

/* Most bytes of a tail */
#define TAIL_BYTES		((Size) 256 * 1024)

/* About the number of rows of the few pages that are read again */
#define PAGES_ROWS		128

/* The last record of a line pointer */
typedef struct TailRow
{
	uint64		tid;			/* with an even line */
	uint64		number;			/* of the record */
	gpuvec_sparse row;			/* ids NULL: it is gone */
	const void *filter_keys;	/* of its filter columns, or NULL */
	char		status;			/* of simplehash.h */
} TailRow;

#define SH_PREFIX		tailrows
#define SH_ELEMENT_TYPE	TailRow
#define SH_KEY_TYPE		uint64
#define SH_KEY			tid
#define SH_HASH_KEY(table, key) murmurhash32((uint32) ((key) >> 16) * 31 + (uint32) (key))
#define SH_EQUAL(table, a, b)	((a) == (b))
#define SH_SCOPE		static inline
#define SH_DEFINE
#define SH_DECLARE
#include "lib/simplehash.h"

struct MirrorTail
{
	/* records of a feed */
	FeedRows	rows;
	uint64		feed;
	tailrows_hash *last;		/* by tid: the last record of each line
								 * pointer */

	/* pages that were read again */
	Overlay    *ranked;			/* their rows; NULL: the tail is of a feed */
	ChangedLines read;			/* what was read of them, ascending */
	BlockNumber nblocks;		/* of the relation */
	uint64		refresh;		/* number of the mirror that lacks them */
	uint32		nfilters;		/* filter columns of the mirror */
};

/* Note a record of a line pointer, which replaces earlier ones */
static void
note_row(MirrorTail *tail, uint64 tid, uint64 number, gpuvec_sparse row, const void *filter_keys)
{
	bool		found;
	TailRow    *noted = tailrows_insert(tail->last, tid, &found);

	noted->number = number;
	noted->row = row;
	noted->filter_keys = filter_keys;
}

/* The row of a record, whose values lie at `values` */
static gpuvec_sparse
record_row(const gpuvec_feed_record *record, const void *values)
{
	return RowOfMessage(record->form, values, gpuvec_feed_record_ids(record, values).n);
}

/* The filter keys of a record, or NULL */
static const void *
record_filter_keys(const gpuvec_feed_record *record, const char *at)
{
	return record->nfilter_keys == 0 ? NULL : at + gpuvec_feed_record_bytes(record->len, 0);
}

/* Note all records */
static void
note_records(MirrorTail *tail)
{
	const char *at = tail->rows.data;

	for (uint64 number = tail->rows.from + 1; number <= tail->rows.to; number++)
	{
		gpuvec_feed_record record;
		const uint16 *values = (const uint16 *) (at + sizeof(record));

		memcpy(&record, at, sizeof(record));
		if (record.kind == GPUVEC_FEED_ROW)
			note_row(tail, gpuvec_tid(record.block, record.line), number,
					 record_row(&record, values), record_filter_keys(&record, at));
		else
			for (uint32 i = 0; i < record.len; i++)
				note_row(tail, gpuvec_tid(record.block, values[i]), number, RowOfNull(), NULL);
		at += gpuvec_feed_record_bytes(record.len, record.nfilter_keys);
	}
}

MirrorTail *
MirrorTailTake(const gpuvec_freshness *need, uint64 from, uint32 queries)
{
	uint64		most = Min(gpuvec_ahead_rows, TAIL_WORK / Max(queries, 1));
	MirrorTail *tail;
	FeedRows	rows;

	/* a record concerns one row at least */
	if (from >= need->applied || need->applied - from > most ||
		!FeedCopyRows(need->feed, from, need->applied, TAIL_BYTES, &rows))
		return NULL;
	if (rows.to != need->applied || rows.nrows > most)
	{
		pfree(rows.data);
		return NULL;
	}
	tail = palloc0(sizeof(MirrorTail));
	tail->rows = rows;
	tail->feed = need->feed;
	tail->last = tailrows_create(CurrentMemoryContext, rows.nrows, NULL);
	note_records(tail);
	return tail;
}

MirrorTail *
MirrorTailOfPages(const MirrorQuestion *question, uint64 refresh, BlockNumber nblocks)
{
	MirrorTail *tail = palloc0(sizeof(MirrorTail));

	tail->ranked = OverlayBegin(question, PAGES_ROWS);
	tail->read.by_line = true;
	tail->nblocks = nblocks;
	tail->refresh = refresh;
	tail->nfilters = question->nfilters;
	return tail;
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
MirrorTailPage(MirrorTail *tail, const char *data)
{
	gpuvec_page page;
	const char *at = data + sizeof(page);

	memcpy(&page, data, sizeof(page));
	note_read(&tail->read, &page, at + page.bytes - gpuvec_lines_bytes(page.nlines));
	for (uint32 i = 0; i < page.nrows; i++)
	{
		gpuvec_row	head;
		gpuvec_sparse row;

		memcpy(&head, at, sizeof(head));
		row = RowOfMessage(head.form, at + sizeof(head), head.len);
		at += gpuvec_row_bytes(head.form, head.len);
		OverlayRow(tail->ranked, gpuvec_tid(page.block, head.line), &row,
				   tail->nfilters > 0 ? at : NULL);
		at += gpuvec_filter_bytes(tail->nfilters);
	}
}

void
MirrorTailFree(MirrorTail *tail)
{
	if (tail->ranked != NULL)
	{
		FreeChangedLines(&tail->read);
		OverlayEnd(tail->ranked);
	}
	else
	{
		tailrows_destroy(tail->last);
		pfree(tail->rows.data);
	}
	pfree(tail);
}

uint64
MirrorTailFrom(const MirrorTail *tail)
{
	return tail->rows.from;
}

/* What the mirror lacks: of a feed, the tail behind what it has applied */
typedef struct Lacking
{
	const MirrorTail *tail;
	uint64		applied;
} Lacking;

/* True if a row was read again, or its page is no more */
static bool
was_read_again(const MirrorTail *tail, const MirrorHit *hit)
{
	BlockNumber block = gpuvec_hit_block(hit->place);

	return block >= tail->nblocks ||
		HasChangedLine(&tail->read, block, mirror_line_offset(gpuvec_hit_line(hit->place)));
}

/* True if the tail has something later of this row's line pointer */
static bool
is_replaced(const MirrorHit *hit, const void *arg)
{
	const Lacking *lacking = arg;
	uint64		tid = gpuvec_hit_tid(hit->place) & ~(uint64) mirror_line(0, true);
	TailRow    *row;

	if (lacking->tail->ranked != NULL)
		return was_read_again(lacking->tail, hit);
	row = tailrows_lookup(lacking->tail->last, tid);
	return row != NULL && row->number > lacking->applied;
}

/*
 * Other rows that were given of partial pages are not proven any more: they
 * count as newer
 */
static void
mark_newer(const MirrorTail *tail, GpuvecReply *reply)
{
	MirrorSearchAnswer answer = {.reply = *reply};
	MirrorHit  *hits;

	MirrorSearchAnswerRead(&answer);
	hits = (MirrorHit *) answer.hits;
	for (uint64 i = 0; i < answer.head.nhits; i++)
		if (HasChangedLine(&tail->read, gpuvec_hit_block(hits[i].place), CHANGED_NO_LINE))
			hits[i].place = gpuvec_hit_place(gpuvec_hit_tid(hits[i].place),
											 gpuvec_hit_common(hits[i].place), true);
}

/* Rank the rows of a feed that the mirror lacks */
static Overlay *
rank_rows(const Lacking *lacking, const MirrorQuestion *question)
{
	Overlay    *overlay = OverlayBegin(question, lacking->tail->last->members);
	tailrows_iterator i;
	TailRow    *row;

	tailrows_start_iterate(lacking->tail->last, &i);
	while ((row = tailrows_iterate(lacking->tail->last, &i)) != NULL)
		if (row->row.ids.ids != NULL && row->number > lacking->applied)
			OverlayRow(overlay, row->tid, &row->row, row->filter_keys);
	return overlay;
}

/* True if a mirror in this state and the tail are what the search needs */
static bool
completes(const MirrorTail *tail, const gpuvec_state *state)
{
	if (state->state != GPUVEC_READY)
		return false;
	if (tail->ranked != NULL)
		return state->refresh == tail->refresh;
	return state->feed == tail->feed && state->applied >= tail->rows.from;
}

bool
MirrorTailMerge(const MirrorTail *tail, const gpuvec_state *state,
				const MirrorQuestion *questions, uint32 n, MemoryContext context,
				GpuvecReply *reply)
{
	Lacking		lacking = {.tail = tail, .applied = state->applied};
	Overlay   **overlays;
	bool		known;

	if (!completes(tail, state))
		return false;
	if (tail->ranked != NULL)
	{
		Overlay    *ranked = tail->ranked;

		mark_newer(tail, reply);
		return OverlayMerge(&ranked, 1, is_replaced, &lacking, context, reply);
	}
	overlays = palloc_array(Overlay *, n);
	for (uint32 i = 0; i < n; i++)
		overlays[i] = rank_rows(&lacking, &questions[i]);
	known = OverlayMerge(overlays, n, is_replaced, &lacking, context, reply);
	for (uint32 i = 0; i < n; i++)
		OverlayEnd(overlays[i]);
	pfree(overlays);
	return known;
}
