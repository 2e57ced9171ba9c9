/*-------------------------------------------------------------------------
 *
 * other_rows.c
 *	  Rows that the engine does not return, in the order of a distance.
 *
 * These are rows that do not rank (GpuvecRanks), as those without a common id,
 * and rows whose set is empty or null.  A
 * scan of the table (or of the rows that the index keeps) finds them, and a
 * sort orders them.  If the engine is not available, or cannot go on with a
 * scan, the scan does not end.  Then all rows are found and sorted in this
 * way, except those that were returned already.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "entries/entries.h"
#include "index/knn_scan.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"

/*
 * True if the engine does not return a row with this value, or has not
 * returned it.  Sets *distance then.
 */
static bool
is_other(const KnnState *state, const gpuvec_sparse *value, int64 root, double *distance)
{
	KeyedRow	row = {.root = root};

	GpuvecPlaceRow(&state->order, value, &row);
	row.ranks |= state->disjoint;
	*distance = row.distance;
	return row.ranks ? state->everything && KnnComesNext(state, &row) : true;
}

/* Put a row into the sort if it is one of the other rows */
static void
put_other(KnnState *state, TupleTableSlot *slot, const gpuvec_sparse *value, int64 root)
{
	double		distance = 0;
	bool		isnull = value->ids.ids == NULL || state->order.value == NULL;

	if (!isnull && !is_other(state, value, root, &distance))
		return;
	ExecClearTuple(slot);
	slot->tts_values[0] = Float8GetDatum(distance);
	slot->tts_isnull[0] = isnull;
	slot->tts_values[1] = Int64GetDatum(root);
	slot->tts_isnull[1] = false;
	ExecStoreVirtualTuple(slot);
	tuplesort_puttupleslot(state->sort, slot);
}

/* Put the other rows of the table into the sort */
static void
put_others_of_table(IndexScanDesc scan, KnnState *state, TupleTableSlot *slot)
{
	AttrNumber	attnum = scan->indexRelation->rd_index->indkey.values[0];
	bool		values = GpuvecHasValues(scan->indexRelation);
	TupleTableSlot *in = table_slot_create(scan->heapRelation, NULL);
	TableScanDesc table = GpuvecBeginScan(scan->heapRelation, scan->xs_snapshot);
	MemoryContext row = AllocSetContextCreate(state->context, "gpuvec row", ALLOCSET_DEFAULT_SIZES);

	while (table_scan_getnextslot(table, ForwardScanDirection, in))
	{
		MemoryContext old = MemoryContextSwitchTo(row);
		bool		isnull;
		Datum		datum = slot_getattr(in, attnum, &isnull);
		gpuvec_sparse value = RowOfNull();

		CHECK_FOR_INTERRUPTS();
		if (!isnull)
			value = RowOfDatum(values, datum);
		put_other(state, slot, &value,
				  GpuvecFindRoot(&state->finder, ItemPointerGetBlockNumber(&in->tts_tid),
								 ItemPointerGetOffsetNumber(&in->tts_tid)));
		MemoryContextSwitchTo(old);
		MemoryContextReset(row);
	}
	table_endscan(table);
	ExecDropSingleTupleTableSlot(in);
	MemoryContextDelete(row);
}

/*
 * Put the other rows that the index keeps into the sort.  The executor finds
 * out which of them the snapshot sees.
 */
static void
put_others_of_index(IndexScanDesc scan, KnnState *state, TupleTableSlot *slot)
{
	EntryReader *reader = EntryReaderBegin(scan->indexRelation);
	bool		values = GpuvecHasValues(scan->indexRelation);
	BlockNumber nblocks = RelationGetNumberOfBlocks(scan->heapRelation);

	for (BlockNumber block = 0; block < nblocks; block += ENTRY_BUCKET_BLOCKS)
	{
		uint32		n;
		const IndexEntry *entries = EntryReaderBucket(reader, entry_bucket(block), &n);

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < n; i++)
		{
			gpuvec_sparse value = RowOfNull();

			if (!entries[i].isnull)
				value = RowOfPayload(values, entries[i].ids, entries[i].bytes);
			put_other(state, slot, &value,
					  tid_number(ItemPointerGetBlockNumber(&entries[i].root),
								 ItemPointerGetOffsetNumber(&entries[i].root)));
		}
		if (nblocks - block <= ENTRY_BUCKET_BLOCKS)
			break;
	}
	EntryReaderEnd(reader);
}

void
KnnBeginOthers(IndexScanDesc scan, KnnState *state)
{
	AttrNumber	columns[] = {1, 2};
	Oid			operators[] = {Float8LessOperator, Int8LessOperator};
	Oid			collations[] = {InvalidOid, InvalidOid};
	bool		nulls_first[] = {false, false};
	MemoryContext old = MemoryContextSwitchTo(state->context);
	TupleDesc	desc = CreateTemplateTupleDesc(2);
	TupleTableSlot *slot;

	TupleDescInitEntry(desc, 1, "distance", FLOAT8OID, -1, 0);
	TupleDescInitEntry(desc, 2, "root", INT8OID, -1, 0);
	TupleDescFinalize(desc);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	state->slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	state->sort = tuplesort_begin_heap(desc, 2, columns, operators, collations, nulls_first,
									   work_mem, NULL, GpuvecTuplesortNone);
	if (EntriesKept(scan->indexRelation))
		put_others_of_index(scan, state, slot);
	else
		put_others_of_table(scan, state, slot);
	ExecDropSingleTupleTableSlot(slot);
	tuplesort_performsort(state->sort);
	MemoryContextSwitchTo(old);
}

bool
KnnNextOther(KnnState *state, KnnRow *row)
{
	bool		isnull;

	if (!tuplesort_gettupleslot(state->sort, true, false, state->slot, NULL))
		return false;
	row->root = DatumGetInt64(slot_getattr(state->slot, 2, &isnull));
	row->distance = DatumGetFloat8(slot_getattr(state->slot, 1, &isnull));
	if (isnull)
		row->distance = NAN;
	return true;
}
