/*-------------------------------------------------------------------------
 *
 * entry_reader.c
 *	  Reads the entries of an index, one bucket at a time.
 *
 * Pages are copied one by one, each under its share lock and together with
 * its LSN.  An entry that is added or removed meanwhile may be in the copy or
 * not.  The version of the bucket tells: it is a hash of the LSNs of the very
 * pages that were copied, so it differs from the version that is read after
 * the change.  The highest LSN would not do: a page that was copied early may
 * change before a page that is copied later.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "common/hashfn.h"
#include "entries/entries.h"
#include "entries/entry_page.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

struct EntryReader
{
	Relation	index;
	MemoryContext context;		/* memory of the bucket that was read last */
	bool		valid;			/* a bucket was read */
	uint32		bucket;
	uint64		version;
	IndexEntry *entries;
	uint32		n;
};

/* An item of a copied page: an entry or a chunk of it */
typedef struct Piece
{
	const EntryItem *item;
	Size		bytes;			/* bytes of ids */
	uint32		order;			/* position among all items of the bucket, as
								 * read */
} Piece;

typedef struct Pieces
{
	Piece	   *pieces;
	uint32		n;
	uint32		capacity;
} Pieces;

EntryReader *
EntryReaderBegin(Relation index)
{
	EntryReader *reader = palloc0_object(EntryReader);
	uint8		build[ENTRY_BUILD_BYTES];

	if (!EntriesBuildId(index, build))
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" was built by another version of gpuvec",
						RelationGetRelationName(index)),
				 errhint("REINDEX it.")));
	reader->index = index;
	reader->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec entries",
											ALLOCSET_DEFAULT_SIZES);
	return reader;
}

void
EntryReaderEnd(EntryReader *reader)
{
	MemoryContextDelete(reader->context);
	pfree(reader);
}

/* Append the items of a copied page */
static void
note_items(Pieces *all, Page page)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	if (all->n + last > all->capacity)
	{
		all->capacity = Max(all->capacity * 2, all->n + last);
		all->pieces = all->pieces ? repalloc_huge(all->pieces, all->capacity * sizeof(Piece)) :
			palloc_array(Piece, all->capacity);
	}
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		id = PageGetItemId(page, offset);

		Piece	   *piece = &all->pieces[all->n];

		piece->item = (EntryItem *) PageGetItem(page, id);
		piece->bytes = ItemIdGetLength(id) - sizeof(EntryItem);
		piece->order = all->n++;
	}
}

/* Copy the pages of a bucket, and compute its version */
static void
copy_pages(EntryReader *reader, BlockNumber head, Pieces *all)
{
	BlockNumber block = head;

	while (block != InvalidBlockNumber)
	{
		Buffer		buffer = ReadBuffer(reader->index, block);
		Page		page = palloc(BLCKSZ);

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		memcpy(page, BufferGetPage(buffer), BLCKSZ);
		reader->version = hash_combine64(hash_combine64(reader->version, block),
										 BufferGetLSNAtomic(buffer));
		UnlockReleaseBuffer(buffer);
		note_items(all, page);
		block = special_of(page)->next;
		CHECK_FOR_INTERRUPTS();
	}
	if (reader->version == 0)
		reader->version = 1;
}

/* Compare items by root, then by number of the chunk */
static int
compare_items(const EntryItem *x, const EntryItem *y)
{
	int			order = ItemPointerCompare((ItemPointer) &x->root, (ItemPointer) &y->root);

	if (order != 0)
		return order;
	return (int) (x->chunk & ENTRY_CHUNK_NUMBER) - (int) (y->chunk & ENTRY_CHUNK_NUMBER);
}

/*
 * qsort comparator; of two copies of an item, the one read later comes first
 */
static int
compare_pieces(const void *a, const void *b)
{
	const Piece *x = a;
	const Piece *y = b;
	int			order = compare_items(x->item, y->item);

	return order != 0 ? order : x->order > y->order ? -1 : 1;
}

/*
 * Sort the pieces and drop duplicates.  An item is there twice if an error
 * cut off the writing and it was done again.
 */
static void
sort_pieces(Pieces *all)
{
	uint32		n = 0;

	if (all->n > 1)
		qsort(all->pieces, all->n, sizeof(Piece), compare_pieces);
	for (uint32 i = 0; i < all->n; i++)
		if (n == 0 || compare_items(all->pieces[i].item, all->pieces[n - 1].item) != 0)
			all->pieces[n++] = all->pieces[i];
	all->n = n;
}

/*
 * The number of leading pieces that are a whole entry; 0 if chunks are
 * missing.  *same is the number of leading pieces with the same root.
 */
static uint32
whole_entry(const Piece *pieces, uint32 n, uint32 *same)
{
	uint32		i = 0;

	*same = 1;
	while (*same < n && ItemPointerEquals((ItemPointer) &pieces[*same].item->root,
										  (ItemPointer) &pieces[0].item->root))
		(*same)++;
	for (; i < *same; i++)
	{
		if ((pieces[i].item->chunk & ENTRY_CHUNK_NUMBER) != i)
			return 0;
		if (pieces[i].item->chunk & ENTRY_CHUNK_LAST)
			return i + 1;
	}
	return 0;
}

/* Make an entry of its n chunks */
static void
make_entry(const Piece *pieces, uint32 n, uint32 nfilter_keys, IndexEntry *entry)
{
	Size		bytes = 0;
	const char *value = (const char *) (pieces[0].item + 1);
	char	   *whole = NULL;

	entry->root = pieces[0].item->root;
	entry->isnull = (pieces[0].item->chunk & ENTRY_CHUNK_NULL) != 0;
	for (uint32 i = 0; i < n; i++)
		bytes += pieces[i].bytes;
	if (n > 1)
		value = whole = palloc(bytes);
	for (uint32 i = 0; n > 1 && i < n; i++)
	{
		memcpy(whole, pieces[i].item + 1, pieces[i].bytes);
		whole += pieces[i].bytes;
	}
	EntrySetValue(entry, value, bytes, nfilter_keys);
}

static void
read_bucket(EntryReader *reader, uint32 bucket)
{
	BlockNumber head = EntriesHead(reader->index, bucket);
	MemoryContext old = MemoryContextSwitchTo(reader->context);
	Pieces		all = {0};
	uint32		same;

	reader->valid = false;
	MemoryContextReset(reader->context);
	reader->version = 0;
	reader->n = 0;
	reader->entries = NULL;
	copy_pages(reader, head, &all);
	if (head == InvalidBlockNumber)
		reader->version = 0;
	sort_pieces(&all);
	if (all.n > 0)
		reader->entries = MemoryContextAllocHuge(reader->context, all.n * sizeof(IndexEntry));
	for (uint32 i = 0; i < all.n; i += same)
	{
		uint32		chunks = whole_entry(&all.pieces[i], all.n - i, &same);

		if (chunks > 0)
			make_entry(&all.pieces[i], chunks, EntriesFilterKeys(reader->index), &reader->entries[reader->n++]);
	}
	reader->bucket = bucket;
	reader->valid = true;
	MemoryContextSwitchTo(old);
}

const IndexEntry *
EntryReaderBucket(EntryReader *reader, uint32 bucket, uint32 *n)
{
	if (!reader->valid || reader->bucket != bucket)
		read_bucket(reader, bucket);
	*n = reader->n;
	return reader->entries;
}

uint64
EntryReaderVersion(EntryReader *reader, uint32 bucket)
{
	uint32		n;

	(void) EntryReaderBucket(reader, bucket, &n);
	return reader->version;
}

/*
 * Binary search: the number of the first entry whose root is not before this
 * root
 */
static uint32
lower_bound(const EntryReader *reader, ItemPointer root)
{
	uint32		low = 0;
	uint32		high = reader->n;

	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;

		if (ItemPointerCompare(&reader->entries[middle].root, root) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const IndexEntry *
EntryReaderBlock(EntryReader *reader, BlockNumber heap_block, uint32 *n)
{
	const IndexEntry *entries = EntryReaderBucket(reader, entry_bucket(heap_block), n);
	ItemPointerData root;
	uint32		first;
	uint32		end;

	ItemPointerSet(&root, heap_block, 0);
	first = end = lower_bound(reader, &root);
	while (end < reader->n && ItemPointerGetBlockNumber(&entries[end].root) == heap_block)
		end++;
	*n = end - first;
	return entries + first;
}

const IndexEntry *
EntryReaderFind(EntryReader *reader, ItemPointer root)
{
	uint32		n;
	const IndexEntry *entries = EntryReaderBucket(reader, entry_bucket(ItemPointerGetBlockNumber(root)), &n);
	uint32		found = lower_bound(reader, root);

	if (found == n || !ItemPointerEquals((ItemPointer) &entries[found].root, root))
		return NULL;
	return &entries[found];
}
