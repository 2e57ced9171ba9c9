/*-------------------------------------------------------------------------
 *
 * keyed.c
 *	  Rows that search keys find, in order of a distance.
 *
 * A scan with both search keys and an order ranks all rows, and the executor drops
 * those that do not satisfy the keys.  That is best while such rows are many: a few
 * batches have enough of them.  Where they are few, the scan would go through most of
 * the table.  So when the next batch would be longer than the list of all rows that the
 * keys find (search.c), these are fetched and sorted instead, and the scan goes on with
 * those behind the last row that it returned.
 *
 * Fetching gives for each root what the executor will find there: the version that the
 * snapshot sees, if there is one.  Its set is that of the root in the mirror, as all
 * versions of a HOT chain have the same.  So its distance is the one that it had in the
 * ranking, and each row comes once, whenever the scan changes over.  The list is a
 * superset of the rows that satisfy the keys, also of those that the engine does not
 * rank, so nothing is left to come after it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "idset/idset.h"
#include "index/index.h"
#include "mirror/page_reader.h"
#include "miscadmin.h"
#include "search/search.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static int
compare_keyed(const void *a, const void *b)
{
	const KeyedRow *x = a;
	const KeyedRow *y = b;

	if (x->ranks != y->ranks)
		return x->ranks ? -1 : 1;
	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->root < y->root ? -1 : x->root > y->root;
}

static int
compare_roots(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/* The row of a root, with its distance; false: the snapshot sees none, or one without a set */
static bool
fetch_row(IndexScanDesc scan, struct IndexFetchTableData *fetch, RowForm *form, TupleTableSlot *slot,
		  gpuvec_measure measure, IdSet *query, int64 root, KeyedRow *row)
{
	ItemPointerData tid;
	bool		again = false;
	bool		isnull;
	bool		member;
	Datum		datum;
	IdSet	   *set;
	uint32		common;

	ItemPointerSet(&tid, tid_number_block(root), tid_number_line(root));
	if (!table_index_fetch_tuple(fetch, &tid, scan->xs_snapshot, slot, &again, NULL))
		return false;
	datum = GpuvecIndexedSet(scan, form, slot, &member, &isnull);
	if (!member || isnull)
		return false;
	set = DatumGetIdSetP(datum);
	common = idset_intersection_count(idset_ids(query), idset_count(query), idset_ids(set),
									  idset_count(set));
	row->root = root;
	row->ranks = common > 0 || gpuvec_ranks_disjoint(measure);
	row->distance = row->ranks ?
		GpuvecRankDistance(measure, gpuvec_score(measure, common, idset_count(query), idset_count(set))) :
		gpuvec_distance(measure, common, idset_count(query), idset_count(set));
	return true;
}

/*
 * Fetch and sort the rows that were found; returns how many.  They are fetched in the order
 * of the table, so found's roots are in that order afterwards.  *rows is allocated in the
 * current memory context.
 */
uint64
GpuvecFetchFound(IndexScanDesc scan, GpuvecFound *found, gpuvec_measure measure, IdSet *query,
				 KeyedRow **rows)
{
	Relation	heap = scan->heapRelation;
	TupleTableSlot *slot = table_slot_create(heap, NULL);
	struct IndexFetchTableData *fetch = table_index_fetch_begin(heap);
	MemoryContext context = CurrentMemoryContext;
	MemoryContext row_context = AllocSetContextCreate(context, "gpuvec row", ALLOCSET_DEFAULT_SIZES);
	MirrorTarget target;
	RowForm    *form = NULL;
	uint64		n = 0;

	MirrorDescribeIndex(heap, scan->indexRelation, &target);
	if (target.key.index != 0)
		form = RowFormBegin(heap, scan->indexRelation);
	*rows = MemoryContextAllocHuge(context, (found->n + 1) * sizeof(KeyedRow));
	qsort(found->roots, found->n, sizeof(int64), compare_roots);
	MemoryContextSwitchTo(row_context);
	for (uint64 i = 0; i < found->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		/* search.c may have found a root twice */
		if (i > 0 && found->roots[i] == found->roots[i - 1])
			continue;
		n += fetch_row(scan, fetch, form, slot, measure, query, found->roots[i], &(*rows)[n]);
		ExecClearTuple(slot);
		MemoryContextReset(row_context);
	}
	MemoryContextSwitchTo(context);
	if (form)
		RowFormEnd(form);
	table_index_fetch_end(fetch);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(row_context);
	qsort(*rows, n, sizeof(KeyedRow), compare_keyed);
	return n;
}
