/*-------------------------------------------------------------------------
 *
 * entries.c
 *	  Stores what an index with an expression or a predicate knows of each
 *	  row.
 *
 * Whoever writes a row computes the index's expression and predicate for it,
 * as for any index.  The result is stored here.  Readers never compute it
 * again: they choose the search_path and the temporary objects of their own
 * sessions, so they could get another result.
 *
 * An entry is the tid of the root line pointer of a HOT chain and the value,
 * or null.  A mirror reads the entries of one heap block at a time, so
 * entries are arranged by heap block.  The entries of ENTRY_BUCKET_BLOCKS
 * heap blocks are a bucket: a chain of pages.  A directory of three levels
 * has the first page of each bucket.  The metapage is its first level:
 *
 *		metapage -> directory page -> directory page -> bucket page -> ...
 *
 * Pages are added, never removed or moved, and an entry stays on its page
 * until it is deleted.  So a reader that locks one page at a time misses no
 * entry that was there when the reader began, and a filled slot of the
 * directory is valid for as long as the file lives.
 *
 * New pages go to the end of a bucket's chain.  A bucket's first page tells
 * which page to try first for an insertion.  VACUUM sets it back to a page
 * where it has made room.
 *
 * An index with filter columns has filter keys in each entry, before the ids
 * (core/filter.h).  The keys in them were made when the row was written.
 *
 * A value that does not fit a page is cut into chunks; each chunk is an item.
 * If an insertion fails halfway, its transaction fails, too.  So readers skip
 * entries whose chunks are not complete.
 *
 * Lock order of writers.  In a bucket: a page, then the next page or a new
 * page, then the first page.  In the directory: a page, then a new page.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/generic_xlog.h"
#include "access/htup_details.h"
#include "access/itup.h"
#include "access/xloginsert.h"
#include "catalog/pg_index.h"
#include "commands/vacuum.h"
#include "core/filter.h"
#include "entries/entries.h"
#include "entries/entry_page.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"

/*
 * After an insertion that went this many pages along the chain, the bucket's
 * first page is told where to insert next
 */
#define FAR_STEPS	4

/* Levels of the directory, the metapage included */
#define LEVELS	3

/* Cached in rd_amcache */
typedef struct EntriesCache
{
	uint8		build[ENTRY_BUILD_BYTES];
	uint32		version;		/* META_VERSION_... */
	uint32		bucket;			/* the bucket that was looked up last ... */
	BlockNumber head;			/* ... and its first page; InvalidBlockNumber:
								 * none was looked up */
} EntriesCache;

bool
EntriesKept(Relation index)
{
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
		if (index->rd_index->indkey.values[i] == 0)
			return true;
	if (EntriesMakeSets(index))
		return true;
	return !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

uint32
EntriesFilterKeys(Relation index)
{
	return gpuvec_filter_keys(index->rd_index->indnkeyatts - 1);
}

/* The version of the layout that an index must have */
static uint32
meta_version(Relation index)
{
	if (!EntriesKept(index))
		return META_VERSION_COLUMN;
	return EntriesFilterKeys(index) > 0 ? META_VERSION_FILTER_KEYS : META_VERSION_KEPT;
}

void		(*EntriesWriteWaiting) (void) = NULL;

void
EntriesForget(Relation index)
{
	if (index->rd_amcache != NULL)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;
}

/*
 * The cached data of an index, read from the metapage if need be.  NULL: the
 * index has no metapage of this version of the library.
 */
static EntriesCache *
cache_of(Relation index)
{
	EntriesCache *cache;
	Buffer		buffer;
	MetaPage   *meta;
	bool		ours;

	if (index->rd_amcache != NULL)
		return index->rd_amcache;
	cache = MemoryContextAllocZero(index->rd_indexcxt, sizeof(EntriesCache));
	buffer = ReadBuffer(index, META_BLOCK);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	meta = meta_of(BufferGetPage(buffer));
	ours = meta->magic == META_MAGIC;
	cache->version = meta->version;
	memcpy(cache->build, meta->build, sizeof(cache->build));
	cache->head = InvalidBlockNumber;
	UnlockReleaseBuffer(buffer);
	if (!ours || cache->version != meta_version(index))
	{
		pfree(cache);
		return NULL;
	}
	index->rd_amcache = cache;
	return cache;
}

bool
EntriesBuildId(Relation index, uint8 *build)
{
	const EntriesCache *cache = cache_of(index);

	if (cache != NULL)
		memcpy(build, cache->build, ENTRY_BUILD_BYTES);
	return cache != NULL;
}

/* A change of one or more pages; one WAL record has the whole change */
typedef struct PageChange
{
	GenericXLogState *wal;		/* NULL: not logged */
} PageChange;

static void
change_begin(PageChange *change, Relation index, bool logged)
{
	change->wal = logged ? GenericXLogStart(index) : NULL;
}

/*
 * The page of an exclusively locked buffer, to be changed.  `whole`: a new
 * page.
 */
static Page
change_page(PageChange *change, Buffer buffer, bool whole)
{
	if (change->wal != NULL)
		return GenericXLogRegisterBuffer(change->wal, buffer, whole ? GENERIC_XLOG_FULL_IMAGE : 0);
	MarkBufferDirty(buffer);
	return BufferGetPage(buffer);
}

static void
change_end(PageChange *change)
{
	if (change->wal != NULL)
		GenericXLogFinish(change->wal);
}

/* Add a page to the index; returns its buffer, exclusively locked */
static Buffer
new_buffer(Relation index)
{
	bool		local = RELATION_IS_LOCAL(index);
	Buffer		buffer;

	if (!local)
		LockRelationForExtension(index, ExclusiveLock);
	buffer = ReadBuffer(index, P_NEW);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (!local)
		UnlockRelationForExtension(index, ExclusiveLock);
	return buffer;
}

/* Initialize a page of a bucket or of the directory */
static void
init_page(Page page, EntryPageKind kind, uint32 bucket)
{
	EntrySpecial *special;

	PageInit(page, BLCKSZ, sizeof(EntrySpecial));
	special = special_of(page);
	special->kind = kind;
	special->bucket = bucket;
	special->next = special->insert = InvalidBlockNumber;
	if (kind == PAGE_DIRECTORY)
		((PageHeader) page)->pd_lower = (char *) ((BlockNumber *) PageGetContents(page) +
												  DIRECTORY_SLOTS) - (char *) page;
}

/* Initialize the metapage */
static void
init_meta(Page page, uint32 version, const uint8 *build)
{
	MetaPage   *meta;
	char	   *end;

	PageInit(page, BLCKSZ, 0);
	meta = meta_of(page);
	meta->magic = META_MAGIC;
	meta->version = version;
	memcpy(meta->build, build, sizeof(meta->build));
	end = (char *) meta->slots;
	if (version != META_VERSION_COLUMN)
		end += META_SLOTS * sizeof(BlockNumber);
	((PageHeader) page)->pd_lower = end - (char *) page;
}

void
EntriesCreate(Relation index, ForkNumber fork)
{
	Buffer		buffer = ReadBufferExtended(index, fork, P_NEW, RBM_NORMAL, NULL);
	uint8		build[ENTRY_BUILD_BYTES];

	Assert(BufferGetBlockNumber(buffer) == META_BLOCK);
	if (!pg_strong_random(build, sizeof(build)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	START_CRIT_SECTION();
	init_meta(BufferGetPage(buffer), meta_version(index), build);
	MarkBufferDirty(buffer);

	/*
	 * an unlogged index writes no WAL, but its init fork must survive a crash
	 */
	if (RelationNeedsWAL(index) || fork == INIT_FORKNUM)
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

void
EntriesLogBuild(Relation index)
{
	if (RelationNeedsWAL(index) && RelationGetNumberOfBlocks(index) > 1)
		log_newpage_range(index, MAIN_FORKNUM, 0, RelationGetNumberOfBlocks(index), true);
}

/* The slots of the metapage or of another directory page */
static BlockNumber *
slots_of(Page page, BlockNumber block)
{
	return block == META_BLOCK ? meta_of(page)->slots : (BlockNumber *) PageGetContents(page);
}

/* Read a slot of a directory page; InvalidBlockNumber if it is empty */
static BlockNumber
read_slot(Relation index, BlockNumber parent, uint32 slot)
{
	Buffer		buffer = ReadBuffer(index, parent);
	BlockNumber child;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	child = slots_of(BufferGetPage(buffer), parent)[slot];
	UnlockReleaseBuffer(buffer);
	return child == 0 ? InvalidBlockNumber : child;
}

/*
 * Fill a slot with a new page, unless another backend has.  Returns the page
 * in the slot.
 */
static BlockNumber
fill_slot(Relation index, BlockNumber parent, uint32 slot, EntryPageKind kind, uint32 bucket,
		  bool logged)
{
	Buffer		buffer = ReadBuffer(index, parent);
	Buffer		added;
	PageChange	change;
	BlockNumber child;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	child = slots_of(BufferGetPage(buffer), parent)[slot];
	if (child == 0)
	{
		added = new_buffer(index);
		child = BufferGetBlockNumber(added);
		change_begin(&change, index, logged);
		slots_of(change_page(&change, buffer, false), parent)[slot] = child;
		init_page(change_page(&change, added, true), kind, bucket);
		change_end(&change);
		UnlockReleaseBuffer(added);
	}
	UnlockReleaseBuffer(buffer);
	return child;
}

/* slots[level]: the slot of a bucket on each level of the directory */
static void
find_slots(uint32 bucket, uint32 *slots)
{
	slots[2] = bucket % DIRECTORY_SLOTS;
	slots[1] = bucket / DIRECTORY_SLOTS % DIRECTORY_SLOTS;
	slots[0] = bucket / DIRECTORY_SLOTS / DIRECTORY_SLOTS;
	if (slots[0] >= META_SLOTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the table is too large for an index of access method \"%s\" with an expression or predicate",
						"gpuvec")));
}

BlockNumber
EntriesHead(Relation index, uint32 bucket)
{
	BlockNumber block = META_BLOCK;
	uint32		slots[LEVELS];

	find_slots(bucket, slots);
	for (int level = 0; level < LEVELS && block != InvalidBlockNumber; level++)
		block = read_slot(index, block, slots[level]);
	return block;
}

/* The first page of a bucket, made if there is none */
static BlockNumber
make_head(Relation index, EntriesCache *cache, uint32 bucket, bool logged)
{
	BlockNumber block = META_BLOCK;
	uint32		slots[LEVELS];

	if (cache->head != InvalidBlockNumber && cache->bucket == bucket)
		return cache->head;
	find_slots(bucket, slots);
	for (int level = 0; level < LEVELS; level++)
	{
		BlockNumber child = read_slot(index, block, slots[level]);

		if (child == InvalidBlockNumber)
			child = fill_slot(index, block, slots[level],
							  level == LEVELS - 1 ? PAGE_BUCKET : PAGE_DIRECTORY, bucket, logged);
		block = child;
	}
	cache->bucket = bucket;
	cache->head = block;
	return block;
}

/* The page of a bucket to try first for an insertion */
static BlockNumber
insertion_page(Relation index, BlockNumber head)
{
	Buffer		buffer = ReadBuffer(index, head);
	BlockNumber block;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	block = special_of(BufferGetPage(buffer))->insert;
	UnlockReleaseBuffer(buffer);
	return block == InvalidBlockNumber ? head : block;
}

/*
 * True if an item fits a page.  Items without ids are smaller than any index
 * tuple, but PageIndexMultiDelete() handles at most MaxIndexTuplesPerPage
 * items.
 */
static bool
fits_page(Page page, Size size)
{
	return PageGetFreeSpace(page) >= MAXALIGN(size) &&
		PageGetMaxOffsetNumber(page) < MaxIndexTuplesPerPage;
}

/*
 * Put items on a page until it is full.  Returns true if all items are
 * written.
 */
static bool
fill_page(Relation index, Page page, EntryBatchCursor *cursor)
{
	EntryItem  *item;
	Size		size;

	while ((item = EntryBatchNext(cursor, &size)) != NULL)
	{
		if (!fits_page(page, size))
			return false;
		if (PageAddItem(page, GpuvecItem(item), size, InvalidOffsetNumber, false, false) == InvalidOffsetNumber)
			elog(ERROR, "could not add an entry to index \"%s\"", RelationGetRelationName(index));
		cursor->next += sizeof(EntrySize) + MAXALIGN(size);
	}
	return true;
}

/*
 * Put items on a page of a bucket, or with `append` on a new page behind it.
 * With `remember`, the bucket's first page notes which page that was.
 */
static void
add_to_page(Relation index, Buffer buffer, BlockNumber head, bool remember, bool append,
			EntryBatchCursor *cursor, bool logged)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	Buffer		first = InvalidBuffer;
	Buffer		added = InvalidBuffer;
	PageChange	change;
	Page		page;
	Page		to;

	if (append)
		added = new_buffer(index);
	if (remember && block != head)
	{
		first = ReadBuffer(index, head);
		LockBuffer(first, BUFFER_LOCK_EXCLUSIVE);
	}
	change_begin(&change, index, logged);
	page = to = change_page(&change, buffer, false);
	if (append)
	{
		to = change_page(&change, added, true);
		init_page(to, PAGE_BUCKET, special_of(page)->bucket);
		special_of(page)->next = block = BufferGetBlockNumber(added);
	}
	(void) fill_page(index, to, cursor);
	if (remember)
		special_of(BufferIsValid(first) ? change_page(&change, first, false) : page)->insert = block;
	change_end(&change);
	if (BufferIsValid(first))
		UnlockReleaseBuffer(first);
	if (BufferIsValid(added))
		UnlockReleaseBuffer(added);
}

/*
 * Write items of a batch, at least one, to the first page of the bucket with
 * room for the next item, which has `size` bytes
 */
static void
write_items(Relation index, BlockNumber head, EntryBatchCursor *cursor, Size size, bool logged)
{
	BlockNumber block = insertion_page(index, head);

	for (int steps = 0;; steps++)
	{
		Buffer		buffer = ReadBuffer(index, block);
		BlockNumber next;
		bool		fits;

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		fits = fits_page(BufferGetPage(buffer), size);
		next = special_of(BufferGetPage(buffer))->next;
		if (fits || next == InvalidBlockNumber)
		{
			add_to_page(index, buffer, head, steps >= FAR_STEPS, !fits, cursor, logged);
			UnlockReleaseBuffer(buffer);
			return;
		}
		UnlockReleaseBuffer(buffer);
		block = next;
	}
}

void
EntriesWrite(Relation index, uint32 bucket, const EntryBatch *batch, bool building)
{
	EntryBatchCursor cursor = {.batch = batch};
	EntriesCache *cache = cache_of(index);
	bool		logged = !building && RelationNeedsWAL(index);
	Size		size;

	if (cache == NULL)
		return;					/* of another version: scans raise the error */
	while (EntryBatchNext(&cursor, &size) != NULL)
		write_items(index, make_head(index, cache, bucket, logged), &cursor, size, logged);
}

/*
 * Note on a bucket's first page that this page of the bucket has room again
 */
static void
note_room(Relation index, uint32 bucket, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(index, EntriesHead(index, bucket));
	EntrySpecial *special;
	PageChange	change;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	special = special_of(BufferGetPage(buffer));
	/* block numbers ascend along a chain */
	if (special->insert != InvalidBlockNumber && special->insert > block)
	{
		change_begin(&change, index, RelationNeedsWAL(index));
		special_of(change_page(&change, buffer, false))->insert = block;
		change_end(&change);
	}
	UnlockReleaseBuffer(buffer);
}

/* Dead items of a page; entries count by their first chunks */
typedef struct DeadItems
{
	OffsetNumber offsets[MaxIndexTuplesPerPage];	/* [nitems] */
	int			nitems;
	ItemPointerData roots[MaxIndexTuplesPerPage];	/* [nroots], of entries */
	int			nroots;
} DeadItems;

/* Find the dead items of a page, and count entries */
static void
find_dead(Page page, bool (*dead) (ItemPointer root, void *arg), void *arg, DeadItems *items,
		  EntriesVacuum *result)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		EntryItem  *item = (EntryItem *) PageGetItem(page, PageGetItemId(page, offset));
		bool		first = (item->chunk & ENTRY_CHUNK_NUMBER) == 0;

		if (dead(&item->root, arg))
		{
			items->offsets[items->nitems++] = offset;
			if (first)
				items->roots[items->nroots++] = item->root;
		}
		else
			result->kept += first;
	}
	result->removed += items->nroots;
}

/* Remove the dead entries of one page */
static void
vacuum_page(Relation index, BlockNumber block, bool (*dead) (ItemPointer root, void *arg), void *arg,
			void (*removed) (Relation index, ItemPointerData *roots, int n),
			BufferAccessStrategy strategy, EntriesVacuum *result)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	DeadItems	items;
	PageChange	change;
	Page		page;
	uint32		bucket = 0;

	items.nitems = items.nroots = 0;
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buffer);
	/* a crash may leave a new page that was never initialized */
	if (!PageIsNew(page) && special_of(page)->kind == PAGE_BUCKET)
		find_dead(page, dead, arg, &items, result);
	if (items.nitems > 0)
	{
		bucket = special_of(page)->bucket;
		change_begin(&change, index, RelationNeedsWAL(index));
		PageIndexMultiDelete(change_page(&change, buffer, false), items.offsets, items.nitems);
		change_end(&change);
	}
	UnlockReleaseBuffer(buffer);
	if (items.nitems > 0)
		note_room(index, bucket, block);
	if (items.nroots > 0)
		removed(index, items.roots, items.nroots);
}

void
EntriesRemove(Relation index, bool (*dead) (ItemPointer root, void *arg), void *arg,
			  void (*removed) (Relation index, ItemPointerData *roots, int n),
			  BufferAccessStrategy strategy, EntriesVacuum *result)
{
	BlockNumber block = META_BLOCK + 1;

	memset(result, 0, sizeof(*result));
	if (cache_of(index) == NULL)
		return;
	/* entries inserted from here on are not of dead rows */
	result->pages = RelationGetNumberOfBlocks(index);
	for (; block < result->pages; block++)
	{
		GpuvecVacuumDelayPoint();
		vacuum_page(index, block, dead, arg, removed, strategy, result);
	}
}

bool
EntriesPageBucket(Relation index, BlockNumber block, uint32 *bucket)
{
	Buffer		buffer;
	Page		page;
	bool		has_entries = false;

	if (block == META_BLOCK || block >= RelationGetNumberOfBlocks(index))
		return false;
	buffer = ReadBuffer(index, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page) && special_of(page)->kind == PAGE_BUCKET)
	{
		*bucket = special_of(page)->bucket;
		has_entries = true;
	}
	UnlockReleaseBuffer(buffer);
	return has_entries;
}
