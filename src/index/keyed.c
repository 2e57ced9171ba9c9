/*-------------------------------------------------------------------------
 *
 * keyed.c
 *	  Rows that the search keys find, in the order of a distance.
 *
 * A scan with both search keys and an order ranks all rows, and the executor
 * drops those that do not satisfy the keys.  That is best while many rows
 * satisfy them: a few batches have enough.  Where they are few, the scan
 * would go through most of the table.  So when the next batch would be longer
 * than the list of all rows that the keys find (key_search.c), the scan
 * changes over.  It fetches and sorts the rows of the list, and goes on
 * behind the last row that it returned.
 *
 * Fetching gives for each root what the executor will find there: the version
 * that the snapshot sees, if there is one.  If the index keeps its rows,
 * fetching gives the entry of the root, and the executor finds out whether it
 * is visible.  The set is that of the root in the mirror, as all versions of
 * a HOT chain have the same set (in recovery, it is the version's own).  So a
 * row has the distance that it had in the ranking, and comes once, whenever
 * the scan changes over.  The list is a superset of the rows that satisfy the
 * keys, including those that the engine does not rank.  So nothing is left to
 * come after it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "entries/entries.h"
#include "index/knn_scan.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

int
GpuvecCompareKeyed(const void *a, const void *b)
{
	const KeyedRow *x = a;
	const KeyedRow *y = b;

	if (x->ranks != y->ranks)
		return x->ranks ? -1 : 1;
	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->root < y->root ? -1 : x->root > y->root;
}

int
GpuvecCompareRoots(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/* Where the values of roots are read */
typedef struct ValueSource
{
	IndexScanDesc scan;
	bool		values;			/* they are vectors */
	EntryReader *entries;		/* rows that the index keeps; NULL: the
								 * table's are read */
	struct IndexFetchTableData *fetch;
	TupleTableSlot *slot;
} ValueSource;

/*
 * Find the value of a root.  False: the snapshot sees no row there, or it is
 * null.
 */
static bool
find_value(ValueSource *source, int64 root, gpuvec_sparse *value)
{
	ItemPointerData tid;
	bool		again = false;
	bool		isnull;
	Datum		datum;

	ItemPointerSet(&tid, tid_number_block(root), tid_number_line(root));
	if (source->entries)
	{
		const IndexEntry *entry = EntryReaderFind(source->entries, &tid);

		if (entry == NULL || entry->isnull)
			return false;
		*value = RowOfPayload(source->values, entry->ids, entry->bytes);
		return true;
	}
	if (!table_index_fetch_tuple(source->fetch, &tid, source->scan->xs_snapshot, source->slot, &again,
								 NULL))
		return false;
	datum = slot_getattr(source->slot, source->scan->indexRelation->rd_index->indkey.values[0], &isnull);
	if (isnull)
		return false;
	*value = RowOfDatum(source->values, datum);
	return true;
}

void
GpuvecPlaceRow(const GpuvecOrder *order, const gpuvec_sparse *value, KeyedRow *row)
{
	uint32		common = idset_span_common(order->vector.ids, value->ids);

	row->distance = GpuvecRankDistance(order, idvec_score(&order->scoring, &order->vector, value, common));
	row->ranks = GpuvecRanks(order, row->distance, common);
}

/* Make the row of a root, with its distance.  False: there is none. */
static bool
make_row(ValueSource *source, const GpuvecOrder *order, int64 root, KeyedRow *row)
{
	gpuvec_sparse value;

	if (!find_value(source, root, &value))
		return false;
	row->root = root;
	GpuvecPlaceRow(order, &value, row);
	return true;
}

/*
 * Fetch and sort the rows that were found; returns their number.  They are
 * fetched in the order of the table, so found->roots is sorted afterwards.
 * *rows is allocated in the current memory context.
 */
uint64
GpuvecFetchFound(IndexScanDesc scan, GpuvecFound *found, const GpuvecOrder *order, KeyedRow **rows)
{
	Relation	heap = scan->heapRelation;
	ValueSource source = {
		.scan = scan, .values = GpuvecHasValues(scan->indexRelation), .fetch = GpuvecBeginFetch(heap), .slot = table_slot_create(heap, NULL)
	};
	MemoryContext context = CurrentMemoryContext;
	MemoryContext row_context = AllocSetContextCreate(context, "gpuvec row", ALLOCSET_DEFAULT_SIZES);
	uint64		n = 0;

	if (EntriesKept(scan->indexRelation))
		source.entries = EntryReaderBegin(scan->indexRelation);
	*rows = MemoryContextAllocHuge(context, (found->n + 1) * sizeof(KeyedRow));
	qsort(found->roots, found->n, sizeof(int64), GpuvecCompareRoots);
	MemoryContextSwitchTo(row_context);
	for (uint64 i = 0; i < found->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		/* key_search.c may have found a root twice */
		if (i > 0 && found->roots[i] == found->roots[i - 1])
			continue;
		n += make_row(&source, order, found->roots[i], &(*rows)[n]);
		ExecClearTuple(source.slot);
		MemoryContextReset(row_context);
	}
	MemoryContextSwitchTo(context);
	if (source.entries)
		EntryReaderEnd(source.entries);
	table_index_fetch_end(source.fetch);
	ExecDropSingleTupleTableSlot(source.slot);
	MemoryContextDelete(row_context);
	qsort(*rows, n, sizeof(KeyedRow), GpuvecCompareKeyed);
	return n;
}

bool
KnnComesNext(const KnnState *state, const KeyedRow *row)
{
	if (!state->returned || !row->ranks)
		return true;
	return row->distance != state->last.distance ? row->distance > state->last.distance :
		row->root > state->last.root;
}
