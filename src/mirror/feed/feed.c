/*-------------------------------------------------------------------------
 *
 * feed.c
 *	  Feeds: what an index tells a mirror of changes of its table.
 *
 * A rooted mirror (mirror.h) has to follow two kinds of changes only: new
 * roots, and the reuse of their line pointers.  The index hears of both.  A
 * row with a new root is inserted into the index, after the page was changed
 * and before the commit.  And VACUUM calls for bulk deletion before it makes
 * any line pointer reusable that an index may name.  So an index can be the
 * feed of a mirror.  It has a slot in shared memory, to which an insertion
 * hands its row over, and bulk deletion the line pointers that will be
 * reused.  A row that is too long, or that the index does not hand over in
 * the order of its line pointer's history, is a mark instead: its page has to
 * be read.
 *
 * What is handed over are records, numbered, in a ring (feed_ring.c).  A
 * mirror knows its feed, and the number up to which it has applied the
 * records.  Both live in the engine, and die with the mirror.  A search reads
 * the last number after it has taken its snapshot.  Every change that the
 * snapshot sees was handed over before its commit, so a mirror that has
 * applied that number has the change.
 *
 * The records of one line pointer are in the order in which things happened
 * to it: another row gets it only after VACUUM has handed it over as gone.
 * So the last record of a line pointer says what is there, and rows of
 * transactions that failed stay until VACUUM comes.  Nobody sees them.
 *
 * feed_table.c has the slots, feed_slot.c says which one counts, and
 * feed_records.c reads what was handed over.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/describe/mirror.h"
#include "mirror/describe/row_value.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "mirror/feed/feed_ring.h"

/* Append a record at once */
static void
append(Relation index, const gpuvec_feed_record *record, const void *values)
{
	FeedIndex	key = FeedIndexOf(index);
	FeedBatch	batch;

	batch.n = batch.bytes = 0;
	(void) FeedBatchAdd(&batch, record, values);
	FeedAppend(&key, &batch);
}

void
FeedMark(Relation index, BlockNumber block)
{
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_PAGE, .block = block};

	append(index, &record, NULL);
}

void
FeedMarkAll(Relation index)
{
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_ALL, .block = InvalidBlockNumber};

	append(index, &record, NULL);
}

/*
 * Hand over that a root has no set, whatever the mirror has under it.  (With
 * filter columns a mirror has such rows.)
 */
static void
feed_no_set(Relation index, ItemPointer root)
{
	uint16		line = mirror_line(ItemPointerGetOffsetNumber(root), false);
	gpuvec_feed_record record = {
		.kind = GPUVEC_FEED_GONE,
		.block = ItemPointerGetBlockNumber(root),
		.len = 1
	};

	FeedQueueAdd(index, &record, &line, NULL);
}

void
FeedRow(Relation index, ItemPointer root, bool values, const gpuvec_sparse *value,
		const void *filter_keys, uint32 nfilter_keys)
{
	uint32		form = RowForm(values, value);
	gpuvec_feed_record record = {
		.kind = GPUVEC_FEED_ROW,
		.line = mirror_line(ItemPointerGetOffsetNumber(root), false),
		.block = ItemPointerGetBlockNumber(root),
		.len = gpuvec_feed_record_len(form, value->ids.n),
		.form = (uint16) form,
		.nfilter_keys = nfilter_keys
	};
	char		row[FEED_MOST_BYTES + sizeof(uint32)];	/* padding of ids */

	if (value->ids.ids == NULL && nfilter_keys == 0)
		feed_no_set(index, root);
	else if (record.len * sizeof(uint16) > FEED_MOST_BYTES)
		FeedMark(index, record.block);
	else
	{
		RowWrite(row, form, value);
		FeedQueueAdd(index, &record, row, filter_keys);
	}
}

void
FeedGone(Relation index, BlockNumber block, const OffsetNumber *roots, int n)
{
	uint16		lines[FEED_MOST_BYTES / sizeof(uint16)];
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_GONE, .block = block};

	for (int done = 0; done < n; done += record.len)
	{
		record.len = Min(n - done, (int) lengthof(lines));
		for (uint32 i = 0; i < record.len; i++)
			lines[i] = mirror_line(roots[done + i], false);
		append(index, &record, lines);
	}
}
