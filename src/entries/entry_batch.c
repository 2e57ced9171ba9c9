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

/* Make room for an item of `size` bytes; returns where it goes */
static char *
item_room(EntryBatch *batch, MemoryContext context, Size size)
{
	if (batch->used + size > batch->capacity)
	{
		Size		capacity = Max(batch->capacity * 2, batch->used + size);

		/* if this fails, the batch stays as it was */
		batch->data = batch->data ? repalloc(batch->data, capacity) : MemoryContextAlloc(context, capacity);
		batch->capacity = capacity;
	}
	return batch->data + batch->used;
}

/* Copy n bytes of filter keys and ids, which are one behind the other */
static void
copy_value(const EntryValue *value, Size from, Size n, char *to)
{
	Size		filter_keys = value->nfilter_keys * sizeof(uint64);
	Size		of_filter_keys = from < filter_keys ? Min(filter_keys - from, n) : 0;

	if (of_filter_keys > 0)
		memcpy(to, (const char *) value->filter_keys + from, of_filter_keys);
	if (n > of_filter_keys)
		memcpy(to + of_filter_keys, VARDATA_ANY(value->set) + (from + of_filter_keys - filter_keys), n - of_filter_keys);
}

/* Append an item with `bytes` bytes of a value */
static void
append_item(EntryBatch *batch, MemoryContext context, const EntryItem *item,
			const EntryValue *value, Size from, Size bytes, uint16 row)
{
	Size		size = sizeof(EntrySize) + MAXALIGN(sizeof(EntryItem) + bytes);
	char	   *to = item_room(batch, context, size);

	((EntrySize *) to)->of.bytes = sizeof(EntryItem) + bytes;
	((EntrySize *) to)->of.row = row;
	((EntrySize *) to)->of.writer = GetCurrentSubTransactionId();
	memcpy(to + sizeof(EntrySize), item, sizeof(EntryItem));
	copy_value(value, from, bytes, to + sizeof(EntrySize) + sizeof(EntryItem));
	batch->used += size;
}

void
EntryBatchAdd(EntryBatch *batch, MemoryContext context, ItemPointer root, const EntryValue *value,
			  uint16 row)
{
	Size		left = value->nfilter_keys * sizeof(uint64);
	Size		from = 0;
	uint16		chunk = 0;

	if (value->set != NULL)
		left += VARSIZE_ANY_EXHDR(value->set);
	batch->nfilter_keys = value->nfilter_keys;
	do
	{
		Size		bytes = Min(left, ENTRY_CHUNK_BYTES);
		EntryItem	item = {.root = *root};

		left -= bytes;
		item.chunk = chunk++ | (value->set == NULL ? ENTRY_CHUNK_NULL : 0) |
			(left == 0 ? ENTRY_CHUNK_LAST : 0);
		append_item(batch, context, &item, value, from, bytes, row);
		from += bytes;
	} while (left > 0);
}

void
EntrySetValue(IndexEntry *entry, const char *value, Size bytes, uint32 nfilter_keys)
{
	Size		filter_keys = nfilter_keys * sizeof(uint64);

	entry->whole = bytes >= filter_keys;
	entry->filter_keys = nfilter_keys > 0 && entry->whole ? value : NULL;
	entry->ids = entry->isnull || !entry->whole ? NULL : value + filter_keys;
	entry->bytes = entry->whole ? bytes - filter_keys : 0;
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

/* An entry in several chunks counts once, by its first chunk */
bool
EntryBatchEntry(const EntryBatch *batch, Size *offset, IndexEntry *entry)
{
	while (*offset < batch->used)
	{
		Size		size;
		const EntryItem *item = batch_item(batch, offset, &size);
		bool		whole = (item->chunk & ENTRY_CHUNK_LAST) != 0;

		if (!ItemPointerIsValid(&item->root) || (item->chunk & ENTRY_CHUNK_NUMBER) != 0)
			continue;
		entry->root = item->root;
		entry->isnull = (item->chunk & ENTRY_CHUNK_NULL) != 0;
		EntrySetValue(entry, (const char *) (item + 1), size - sizeof(EntryItem), batch->nfilter_keys);
		entry->whole &= whole;
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
