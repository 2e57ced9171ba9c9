/*-------------------------------------------------------------------------
 *
 * tail.c
 *	  Rows that were handed over, and that the engine has not applied yet.
 *
 * An index hands over its table's new rows (feed.c).  The engine applies them
 * in batches, a little later.  A search does not wait for that.  It copies
 * the rows that the engine may lack, the tail, from shared memory, asks the
 * engine, and lays the tail over the answer (overlay.c).
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
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "common/hashfn.h"
#include "mirror/ask/tail.h"
#include "mirror/feed/feed.h"

/* Most rows to rank, for all queries of a search together */
#define TAIL_WORK		65536

/* Most bytes of a tail */
#define TAIL_BYTES		((Size) 256 * 1024)

/* The last record of a line pointer */
typedef struct TailRow
{
	uint64		tid;			/* with an even line */
	uint64		number;			/* of the record */
	IdSpan		set;			/* ids NULL: the row is gone */
	const void *words;			/* of its filter columns, or NULL */
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
	FeedRows	rows;
	uint64		feed;
	tailrows_hash *last;		/* by tid: the last record of each line
								 * pointer */
};

/* Note a record of a line pointer, which replaces earlier ones */
static void
note_row(MirrorTail *tail, uint64 tid, uint64 number, IdSpan set, const void *words)
{
	bool		found;
	TailRow    *row = tailrows_insert(tail->last, tid, &found);

	row->number = number;
	row->set = set;
	row->words = words;
}

/* The words of a record, or NULL */
static const void *
record_words(const gpuvec_feed_record *record, const char *at)
{
	return record->nwords == 0 ? NULL : at + gpuvec_feed_record_bytes(record->len, 0);
}

/* The ids of a record of a row */
static IdSpan
record_set(const gpuvec_feed_record *record, const void *values)
{
	IdSpan		set = {values, record->wide ? record->len / 2 : record->len, record->wide != 0};

	return set;
}

/* Note all records */
static void
note_records(MirrorTail *tail)
{
	const char *at = tail->rows.data;
	IdSpan		none = {NULL, 0, false};

	for (uint64 number = tail->rows.from + 1; number <= tail->rows.to; number++)
	{
		gpuvec_feed_record record;
		const uint16 *values = (const uint16 *) (at + sizeof(record));

		memcpy(&record, at, sizeof(record));
		if (record.kind == GPUVEC_FEED_ROW)
			note_row(tail, gpuvec_tid(record.block, record.line), number,
					 record_set(&record, values), record_words(&record, at));
		else
			for (uint32 i = 0; i < record.len; i++)
				note_row(tail, gpuvec_tid(record.block, values[i]), number, none, NULL);
		at += gpuvec_feed_record_bytes(record.len, record.nwords);
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
	tail = palloc(sizeof(MirrorTail));
	tail->rows = rows;
	tail->feed = need->feed;
	tail->last = tailrows_create(CurrentMemoryContext, rows.nrows, NULL);
	note_records(tail);
	return tail;
}

void
MirrorTailFree(MirrorTail *tail)
{
	tailrows_destroy(tail->last);
	pfree(tail->rows.data);
	pfree(tail);
}

uint64
MirrorTailFrom(const MirrorTail *tail)
{
	return tail->rows.from;
}

/* What the mirror lacks: the tail behind the number that it has applied */
typedef struct Lacking
{
	const MirrorTail *tail;
	uint64		applied;
} Lacking;

/* True if the tail has a later record of this row's line pointer */
static bool
is_replaced(const MirrorHit *hit, const void *arg)
{
	const Lacking *lacking = arg;
	uint64		tid = gpuvec_hit_tid(hit->place) & ~(uint64) mirror_line(0, true);
	TailRow    *row = tailrows_lookup(lacking->tail->last, tid);

	return row != NULL && row->number > lacking->applied;
}

/* Rank the rows that the mirror lacks */
static Overlay *
rank_rows(const Lacking *lacking, const MirrorQuestion *question)
{
	Overlay    *overlay = OverlayBegin(question, lacking->tail->last->members);
	tailrows_iterator i;
	TailRow    *row;

	tailrows_start_iterate(lacking->tail->last, &i);
	while ((row = tailrows_iterate(lacking->tail->last, &i)) != NULL)
		if (row->set.ids != NULL && row->number > lacking->applied)
			OverlayRow(overlay, row->tid, row->set, row->words);
	return overlay;
}

bool
MirrorTailMerge(const MirrorTail *tail, const gpuvec_state *state,
				const MirrorQuestion *questions, uint32 n, MemoryContext context,
				GpuvecReply *reply)
{
	Lacking		lacking = {.tail = tail, .applied = state->applied};
	Overlay   **overlays;
	bool		known;

	if (state->state != GPUVEC_READY || state->feed != tail->feed ||
		state->applied < tail->rows.from)
		return false;
	overlays = palloc_array(Overlay *, n);
	for (uint32 i = 0; i < n; i++)
		overlays[i] = rank_rows(&lacking, &questions[i]);
	known = OverlayMerge(overlays, n, is_replaced, &lacking, context, reply);
	for (uint32 i = 0; i < n; i++)
		OverlayEnd(overlays[i]);
	pfree(overlays);
	return known;
}
