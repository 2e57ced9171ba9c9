/*-------------------------------------------------------------------------
 *
 * entry_batch.c
 *	  Batches: entries in memory that are to be written together.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "entries/entries.h"
#include "entries/entry_page.h"

/* Append an item and a copy of its ids */
static void
append_item(EntryBatch *batch, MemoryContext context, const EntryItem *item, const char *ids,
			Size bytes, uint16 row)
{
	Size		size = sizeof(EntrySize) + MAXALIGN(sizeof(EntryItem) + bytes);
	char	   *to;

	if (batch->used + size > batch->room)
	{
		Size		room = Max(batch->room * 2, batch->used + size);

		/* if this fails, the batch stays as it was */
		batch->data = batch->data ? repalloc(batch->data, room) : MemoryContextAlloc(context, room);
		batch->room = room;
	}
	to = batch->data + batch->used;
	((EntrySize *) to)->of.bytes = sizeof(EntryItem) + bytes;
	((EntrySize *) to)->of.row = row;
	((EntrySize *) to)->of.writer = GetCurrentSubTransactionId();
	memcpy(to + sizeof(EntrySize), item, sizeof(EntryItem));
	if (bytes > 0)
		memcpy(to + sizeof(EntrySize) + sizeof(EntryItem), ids, bytes);
	batch->used += size;
}

void
EntryBatchAdd(EntryBatch *batch, MemoryContext context, ItemPointer root, struct varlena *value,
			  uint16 row)
{
	Size		left = value == NULL ? 0 : VARSIZE_ANY_EXHDR(value);
	const char *from = value == NULL ? NULL : VARDATA_ANY(value);
	uint16		part = 0;

	do
	{
		Size		bytes = Min(left, ENTRY_PART_BYTES);
		EntryItem	item = {.root = *root};

		left -= bytes;
		item.part = part++ | (value == NULL ? ENTRY_PART_NULL : 0) | (left == 0 ? ENTRY_PART_LAST : 0);
		append_item(batch, context, &item, from, bytes, row);
		from += bytes;
	} while (left > 0);
}

/*
 * The item at an offset of a batch, and its size.  Moves *offset to the next
 * item.
 */
static EntryItem *
batch_item(const EntryBatch *batch, Size *offset, Size *size)
{
	char	   *at = batch->data + *offset;

	*size = ((EntrySize *) at)->of.bytes;
	*offset += sizeof(EntrySize) + MAXALIGN(*size);
	return (EntryItem *) (at + sizeof(EntrySize));
}

void
EntryBatchFilter(EntryBatch *batch, bool (*wanted) (ItemPointer root, uint16 row, void *arg),
				 void *arg)
{
	Size		offset = 0;

	while (offset < batch->used)
	{
		uint16		row = ((EntrySize *) (batch->data + offset))->of.row;
		Size		size;
		EntryItem  *item = batch_item(batch, &offset, &size);

		if (!wanted(&item->root, row, arg))
			ItemPointerSetInvalid(&item->root);
	}
}

/* An entry in several parts counts once, by its first part */
bool
EntryBatchEntry(const EntryBatch *batch, Size *offset, IndexEntry *entry)
{
	while (*offset < batch->used)
	{
		Size		size;
		const EntryItem *item = batch_item(batch, offset, &size);
		bool		whole = (item->part & ENTRY_PART_LAST) != 0;

		if (!ItemPointerIsValid(&item->root) || (item->part & ENTRY_PART_NUMBER) != 0)
			continue;
		entry->root = item->root;
		entry->isnull = (item->part & ENTRY_PART_NULL) != 0;
		entry->ids = whole && !entry->isnull ? item + 1 : NULL;
		entry->bytes = size - sizeof(EntryItem);
		return true;
	}
	return false;
}

void
EntryBatchCut(EntryBatch *batch, SubTransactionId failed)
{
	Size		offset = 0;

	while (offset < batch->used)
	{
		Size		behind = offset;
		Size		size;

		/* later subtransactions have greater numbers */
		if (((EntrySize *) (batch->data + offset))->of.writer >= failed)
			batch->used = offset;
		else
		{
			(void) batch_item(batch, &behind, &size);
			offset = behind;
		}
	}
}

EntryItem *
EntryBatchNext(EntryBatchCursor *cursor, Size *size)
{
	while (cursor->next < cursor->batch->used)
	{
		Size		behind = cursor->next;
		EntryItem  *item = batch_item(cursor->batch, &behind, size);

		if (ItemPointerIsValid(&item->root))
			return item;
		cursor->next = behind;
	}
	return NULL;
}
