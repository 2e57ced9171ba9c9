/*-------------------------------------------------------------------------
 *
 * local_rows.c
 *	  Scan the rows of an embedding table without the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "embedding/embedding_table.h"
#include "miscadmin.h"
#include "storage/itemptr.h"
#include "utils/memutils.h"

/* Read a row as it is stored.  False if it has no key or no vector. */
static bool
read_row(const MirrorTarget *target, TupleTableSlot *slot, EmbeddingRow *row)
{
	bool		null_key;
	bool		null_vector;
	Datum		key = slot_getattr(slot, target->key_attnum, &null_key);
	Datum		value = slot_getattr(slot, target->attnum, &null_vector);

	if (null_key || null_vector)
		return false;
	row->key = MirrorKey(key, target->key_type);
	row->tid = gpuvec_tid(ItemPointerGetBlockNumber(&slot->tts_tid),
						  mirror_line(ItemPointerGetOffsetNumber(&slot->tts_tid), true));
	row->value = (struct varlena *) DatumGetPointer(value);
	return true;
}

/*
 * Call take() with each row of a relation that the snapshot sees and that has
 * a key and a vector, until take() returns false.  take() runs in a memory
 * context that is reset after each row.  With `first`, the scan begins at the
 * first page and does not join other scans.
 */
void
EmbeddingScan(MirrorTarget *target, Snapshot snapshot, bool first,
			  bool (*take) (void *arg, const EmbeddingRow *row), void *arg)
{
	TupleTableSlot *slot = table_slot_create(target->rel, NULL);
	TableScanDesc scan = table_beginscan_strat(target->rel, snapshot, 0, NULL, true, !first);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		more = true;

	while (more && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		EmbeddingRow row;

		CHECK_FOR_INTERRUPTS();
		if (read_row(target, slot, &row))
			more = take(arg, &row);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}
