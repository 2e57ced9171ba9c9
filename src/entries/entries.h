/*-------------------------------------------------------------------------
 *
 * entries.h
 *	  The rows that an index with an expression or a predicate keeps.
 *
 * See entries.c for the layout.  This folder knows nothing of mirrors: the
 * index access method writes entries (index/entry_queue.c), mirrors and scans
 * read them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENTRIES_H
#define GPUVEC_ENTRIES_H

#include "postgres.h"

#include "storage/block.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

/* Length of a build id in bytes: every build of an index has its own */
#define ENTRY_BUILD_BYTES	16

/* Heap blocks whose entries lie together, in one chain of index pages */
#define ENTRY_BUCKET_BLOCKS	16

#define entry_bucket(heap_block)	((uint32) ((heap_block) / ENTRY_BUCKET_BLOCKS))

/* An entry: the root of a HOT chain, and what the index makes of its rows */
typedef struct IndexEntry
{
	ItemPointerData root;
	bool		isnull;			/* then ids is NULL and len 0 */
	const uint16 *ids;			/* ascending and distinct */
	uint32		len;			/* number of ids */
} IndexEntry;

/* Does an index keep its rows?  Others are on a column alone. */
extern bool EntriesKept(Relation index);

/*
 * Write the metapage of a new, empty index.  `fork` is the main fork, or the
 * init fork, which is always WAL-logged.
 */
extern void EntriesCreate(Relation index, ForkNumber fork);

/* WAL of a whole index that was just built without any */
extern void EntriesLogBuild(Relation index);

/* The build id; false: the index has no metapage, or one of another layout */
extern bool EntriesBuildId(Relation index, uint8 *build);

/* Forget what is cached with the relation, before its file is written anew */
extern void EntriesForget(Relation index);

/*
 * entry_batch.c: entries that are to be written together, all of one bucket;
 * zeroed at first
 */
typedef struct EntryBatch
{
	char	   *data;			/* items (entry_page.h), each behind its size */
	Size		used;
	Size		room;
} EntryBatch;

/*
 * Append the entry of a root.  `value` is a set, not toasted, or NULL for a
 * null value.  Memory is taken from the context.  `row` is a number to tell
 * the row by later, or 0.
 */
extern void EntryBatchAdd(EntryBatch *batch, MemoryContext context, ItemPointer root,
						  struct varlena *value, uint16 row);

/*
 * Leave those entries out of a batch of which wanted(root, row, arg) says no
 */
extern void EntryBatchFilter(EntryBatch *batch,
							 bool (*wanted) (ItemPointer root, uint16 row, void *arg), void *arg);

/*
 * Leave out what a subtransaction that fails has added, with its own
 * subtransactions: all from its first entry on.
 */
extern void EntryBatchCut(EntryBatch *batch, SubTransactionId failed);

/* Write a batch, without WAL if the index is being built */
extern void EntriesWrite(Relation index, uint32 bucket, const EntryBatch *batch, bool building);

/* What a bulk deletion found */
typedef struct EntriesVacuum
{
	double		kept;			/* entries that stay */
	double		removed;
	BlockNumber pages;			/* of the index */
} EntriesVacuum;

/* Remove the entries of which dead(root, arg) is true */
extern void EntriesRemove(Relation index, bool (*dead) (ItemPointer root, void *arg), void *arg,
						  BufferAccessStrategy strategy, EntriesVacuum *result);

/* The bucket of a page of the index; false: the page has no entries */
extern bool EntriesPageBucket(Relation index, BlockNumber block, uint32 *bucket);

/* entry_reader.c: reading entries, a bucket at a time */
typedef struct EntryReader EntryReader;

extern EntryReader *EntryReaderBegin(Relation index);
extern void EntryReaderEnd(EntryReader *reader);

/*
 * The entries of a bucket, ascending by root; they last until another bucket
 * is read.  A bucket is read anew unless it is the one that was read last.
 */
extern const IndexEntry *EntryReaderBucket(EntryReader *reader, uint32 bucket, uint32 *n);

/* The entries of one heap block */
extern const IndexEntry *EntryReaderBlock(EntryReader *reader, BlockNumber heap_block, uint32 *n);

/* The entry of a root, or NULL */
extern const IndexEntry *EntryReaderFind(EntryReader *reader, ItemPointer root);

/*
 * A number that changes whenever an entry of the bucket is added or removed:
 * a hash of the LSNs of its pages, 0 if it has none.
 */
extern uint64 EntryReaderVersion(EntryReader *reader, uint32 bucket);

/* For entry_reader.c: the first page of a bucket, or InvalidBlockNumber */
extern BlockNumber EntriesHead(Relation index, uint32 bucket);

#endif							/* GPUVEC_ENTRIES_H */
