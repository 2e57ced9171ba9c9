/*-------------------------------------------------------------------------
 *
 * page_rows.c
 *	  The rows of a page that was copied, as the engine takes them.
 *
 * A mirror holds row versions, not the rows of one snapshot: every version
 * that is not dead to everyone, under its own tid.  A rooted mirror
 * (mirror.h) holds one version for each HOT chain, under the tid of the root:
 * the last member that is not dead to everyone.  All members have the same
 * set, and the same values of filter columns.  Or the chain is a broken one,
 * from before the index: then every snapshot that may use the index sees only
 * the last member.
 *
 * The rows of an index with an expression or a predicate are not computed
 * here.  They are read from the index, which keeps them (entries.c) under the
 * tids of the roots.  The version of those entries then takes the place of
 * the page's LSN.
 *
 * Detoasting may come too late: a tuple that died, or whose insertion failed,
 * after the page was copied can lose its TOAST chunks.  So fetch_chunks()
 * reads chunks itself, and reports missing ones instead of raising an error.
 * Chunks disappear only when no snapshot, old ones included, can see the
 * tuple, so leaving such a tuple out is exact.  If the searching snapshot
 * does see it, the table is corrupt.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/toast_internals.h"
#include "core/protocol_mirrors.h"
#include "entries/entries.h"
#include "executor/tuptable.h"
#include "mirror/describe/row_value.h"
#include "mirror/pages/page_reader.h"
#include "mirror/pages/page_rows.h"
#include "utils/fmgroids.h"

/*
 * Read the chunks of an out-of-line value.  NULL if a chunk is missing, or
 * not as the pointer says.
 */
static struct varlena *
fetch_chunks(struct varatt_external *pointer)
{
	int32		size = GpuvecExternalSize(*pointer);
	bool		compressed = VARATT_EXTERNAL_IS_COMPRESSED(*pointer);
	struct varlena *value = palloc(size + VARHDRSZ);
	Relation	toastrel = table_open(pointer->va_toastrelid, AccessShareLock);
	Relation   *indexes;
	int			nindexes;
	int			valid = toast_open_indexes(toastrel, AccessShareLock, &indexes, &nindexes);
	SnapshotData snapshot;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int32		next = 0;
	int32		seen = 0;

	GpuvecInitToastSnapshot(&snapshot);
	ScanKeyInit(&key, (AttrNumber) 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(pointer->va_valueid));
	scan = systable_beginscan_ordered(toastrel, indexes[valid], &snapshot, 1, &key);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		TupleDesc	desc = RelationGetDescr(toastrel);
		bool		isnull;
		int32		seq = DatumGetInt32(fastgetattr(tuple, 2, desc, &isnull));
		struct varlena *chunk = (struct varlena *)
			DatumGetPointer(fastgetattr(tuple, 3, desc, &isnull));
		int32		len;

		if (VARATT_IS_EXTENDED(chunk) && !VARATT_IS_SHORT(chunk))
			break;
		len = VARSIZE_ANY_EXHDR(chunk);
		if (seq != next || len > size - seen)
			break;
		memcpy((char *) value + VARHDRSZ + seen, VARDATA_ANY(chunk), len);
		seen += len;
		next++;
	}
	systable_endscan_ordered(scan);
	toast_close_indexes(indexes, nindexes, AccessShareLock);
	table_close(toastrel, AccessShareLock);

	if (seen != size)
		return NULL;
	if (compressed)
		SET_VARSIZE_COMPRESSED(value, size + VARHDRSZ);
	else
		SET_VARSIZE(value, size + VARHDRSZ);
	return value;
}

/* True if the searching snapshot sees this row */
static bool
row_visible(PageReader *reader, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(reader->rel, NULL);
	bool		visible = table_tuple_fetch_row_version(reader->rel, tid, reader->snapshot, slot);

	ExecDropSingleTupleTableSlot(slot);
	return visible;
}

/*
 * The detoasted form of a value from the copied page.  NULL: the row may be
 * left out.
 */
static struct varlena *
plain_value(PageReader *reader, struct varlena *value, ItemPointer tid)
{
	if (VARATT_IS_EXTERNAL_ONDISK(value))
	{
		struct varatt_external pointer;

		VARATT_EXTERNAL_GET_POINTER(pointer, value);
		value = fetch_chunks(&pointer);
		if (value == NULL)
		{
			if (row_visible(reader, tid))
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("missing chunk of a value of relation \"%s\"",
								RelationGetRelationName(reader->rel)),
						 errdetail("The row is at (%u,%u).", ItemPointerGetBlockNumber(tid),
								   ItemPointerGetOffsetNumber(tid))));
			return NULL;
		}
	}
	if (VARATT_IS_EXTENDED(value) && !VARATT_IS_SHORT(value))
		value = detoast_attr(value);
	return value;
}

void
PageRowOfValue(PageReader *reader, StringInfo out, uint16 line, const gpuvec_sparse *value,
			   const void *filter_keys)
{
	gpuvec_row	row = {.line = line, .form = RowForm(reader->target->key.values, value), .len = value->ids.n};
	uint32		size = gpuvec_row_bytes(row.form, row.len);
	uint32		filter_keys_size = gpuvec_filter_bytes(reader->target->key.nfilters);
	char	   *to;

	enlargeStringInfo(out, size + filter_keys_size);
	to = out->data + out->len;
	if (filter_keys_size > 0)
		memcpy(to + size, filter_keys, filter_keys_size);
	memcpy(to, &row, sizeof(row));
	RowWrite(to + sizeof(row), row.form, value);
	out->len += size + filter_keys_size;
}

/* Append one row of an embedding table */
static void
append_vector(PageReader *reader, StringInfo out, uint16 line, int64 key,
			  struct varlena *value)
{
	gpuvec_storage storage = (gpuvec_storage) reader->target->key.storage;
	gpuvec_vector_row row = {.line = line, .key = key};
	MirrorVector vector;
	uint32		bytes;
	char	   *to;

	MirrorDecodeVector(value, reader->target->vector_type, &vector);
	row.kind = vector.kind;
	row.width = vector.width;
	bytes = gpuvec_vector_row_bytes(row.width, storage);
	enlargeStringInfo(out, bytes);
	memcpy(out->data + out->len, &row, sizeof(row));
	to = out->data + out->len + sizeof(row);
	if (storage == GPUVEC_FLOAT16)
	{
		memset(to + bytes - sizeof(row) - Min(bytes - sizeof(row), 4), 0, Min(bytes - sizeof(row), 4));
		for (uint32 i = 0; i < row.width; i++)
		{
			uint16		half = gpuvec_float_to_half(vector.elements[i]);

			memcpy(to + i * sizeof(half), &half, sizeof(half));
		}
	}
	else if (row.width > 0)
		memcpy(to, vector.elements, row.width * sizeof(float));
	out->len += bytes;
}

/*
 * The member that stands for the HOT chain of a root: the last one that is
 * not dead.  Invalid if there is none.
 */
static OffsetNumber
chain_member(PageReader *reader, OffsetNumber root)
{
	Page		page = reader->page;
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	ItemId		item = PageGetItemId(page, root);
	bool		first = !ItemIdIsRedirected(item);
	OffsetNumber line = first ? root : ItemIdGetRedirect(item);
	OffsetNumber member = InvalidOffsetNumber;
	TransactionId updater = InvalidTransactionId;

	for (OffsetNumber n = 0; n < last && OffsetNumberIsValid(line) && line <= last; n++)
	{
		HeapTupleHeader tuple;

		item = PageGetItemId(page, line);
		if (!ItemIdIsNormal(item))
			break;
		tuple = (HeapTupleHeader) PageGetItem(page, item);
		if (HeapTupleHeaderIsHeapOnly(tuple) == first ||
			(TransactionIdIsValid(updater) &&
			 !TransactionIdEquals(updater, HeapTupleHeaderGetXmin(tuple))))
			break;
		if (!reader->dead[line])
			member = line;
		if (!HeapTupleHeaderIsHotUpdated(tuple))
			break;
		updater = HeapTupleHeaderGetUpdateXid(tuple);
		line = ItemPointerGetOffsetNumber(&tuple->t_ctid);
		first = false;
	}
	return member;
}

/*
 * The tuple that a line pointer stands for; invalid if there is none.  Sets
 * *engine_line to the engine's `line` of it (mirror_line()).
 */
static OffsetNumber
row_at(PageReader *reader, OffsetNumber line, uint16 *engine_line)
{
	ItemId		item = PageGetItemId(reader->page, line);
	OffsetNumber member;

	if (!reader->rooted)
	{
		*engine_line = mirror_line(line, true);
		return ItemIdIsNormal(item) && !reader->dead[line] ? line : InvalidOffsetNumber;
	}
	if (ItemIdIsNormal(item) &&
		HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(reader->page, item)))
		return InvalidOffsetNumber;
	if (!ItemIdIsNormal(item) && !ItemIdIsRedirected(item))
		return InvalidOffsetNumber;
	member = chain_member(reader, line);
	*engine_line = mirror_line(line, member == line);
	return member;
}

/*
 * A column of a tuple, detoasted if it is of variable length.  False: the row
 * may be left out, as it has lost its value.
 */
static bool
tuple_value(PageReader *reader, HeapTuple tuple, AttrNumber attnum, Datum *value, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(reader->rel);

	*value = heap_getattr(tuple, attnum, desc, isnull);
	if (*isnull || TupleDescAttr(desc, attnum - 1)->attlen != -1)
		return true;
	*value = PointerGetDatum(plain_value(reader, (struct varlena *) DatumGetPointer(*value),
										 &tuple->t_self));
	return DatumGetPointer(*value) != NULL;
}

/*
 * The filter keys of a tuple's filter columns.  False: the row may be left
 * out.
 */
static bool
tuple_filter_keys(PageReader *reader, HeapTuple tuple, bool set_null, uint64 *filter_keys)
{
	const FilterColumns *filters = &reader->target->filters;
	Datum		values[GPUVEC_MAX_FILTERS + 1];
	bool		isnull[GPUVEC_MAX_FILTERS + 1] = {set_null};

	for (int i = 0; i < filters->n; i++)
		if (!tuple_value(reader, tuple, filters->columns[i].attnum, &values[i + 1], &isnull[i + 1]))
			return false;
	FilterKeys(filters, values, isnull, filter_keys);
	return true;
}

/*
 * Append the row of a tuple under this line.  False: it was left out, as it
 * has no key or no value, or has lost its value.  A mirror with filter
 * columns has rows without a value, too.
 */
bool
PageRowOfTuple(PageReader *reader, StringInfo out, uint16 line, HeapTuple tuple)
{
	const MirrorTarget *target = reader->target;
	uint64		filter_keys[GPUVEC_MAX_FILTERS + 1];
	gpuvec_sparse row = RowOfNull();
	struct varlena *plain;
	bool		no_key = false;
	bool		isnull;
	Datum		key = 0;
	Datum		value;

	if (target->key_attnum != InvalidAttrNumber)
		key = heap_getattr(tuple, target->key_attnum, RelationGetDescr(reader->rel), &no_key);
	if (no_key || !tuple_value(reader, tuple, reader->attnum, &value, &isnull) ||
		(isnull && target->filters.n == 0) ||
		(target->filters.n > 0 && !tuple_filter_keys(reader, tuple, isnull, filter_keys)))
		return false;
	plain = (struct varlena *) DatumGetPointer(value);
	if (target->key_attnum != InvalidAttrNumber)
	{
		append_vector(reader, out, line, MirrorKey(key, target->key_type), plain);
		return true;
	}
	if (!isnull)
		row = RowOfPayload(target->key.values, VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain));
	PageRowOfValue(reader, out, line, &row, filter_keys);
	return true;
}

/* Append the rows of the copied page; returns their number */
uint32
PageRowsOfTuples(PageReader *reader, BlockNumber block, StringInfo out)
{
	OffsetNumber last = PageIsNew(reader->page) ? 0 : PageGetMaxOffsetNumber(reader->page);
	uint32		nrows = 0;

	for (OffsetNumber line = FirstOffsetNumber; line <= last; line++)
	{
		uint16		engine_line;
		OffsetNumber offset = row_at(reader, line, &engine_line);
		HeapTupleData tuple;

		if (!OffsetNumberIsValid(offset))
			continue;
		PageTupleAt(reader, reader->page, block, offset, &tuple);
		nrows += PageRowOfTuple(reader, out, engine_line, &tuple);
	}
	return nrows;
}

/* Append the rows that the index keeps for the page; returns their number */
uint32
PageRowsOfEntries(PageReader *reader, BlockNumber block, StringInfo out)
{
	uint32		n;
	const IndexEntry *entries = EntryReaderBlock(reader->entries, block, &n);
	uint32		nrows = 0;

	for (uint32 i = 0; i < n; i++)
	{
		OffsetNumber root = ItemPointerGetOffsetNumber(&entries[i].root);
		gpuvec_sparse row = RowOfNull();

		if (entries[i].isnull && entries[i].filter_keys == NULL)
			continue;
		if (!entries[i].isnull)
			row = RowOfPayload(reader->target->key.values, entries[i].ids, entries[i].bytes);
		PageRowOfValue(reader, out, mirror_line(root, false), &row, entries[i].filter_keys);
		nrows++;
	}
	GPUVEC_INJECTION("page-after-copy");
	return nrows;
}
