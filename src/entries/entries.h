/*-------------------------------------------------------------------------
 *
 * entries.h
 *	  Stores what an index with an expression or a predicate knows of each
 *	  row.
 *
 * See entries.c for the layout.  This folder knows nothing of mirrors.  The
 * index access method writes entries (index/entry_queue.c); mirrors and scans
 * read them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENTRIES_H
#define GPUVEC_ENTRIES_H

#include "postgres.h"

#include "access/skey.h"
#include "storage/block.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

/*
 * Bytes of a build id, a random number: every build of an index has its own
 */
#define ENTRY_BUILD_BYTES	16

/* Heap blocks of one bucket: their entries share one chain of index pages */
#define ENTRY_BUCKET_BLOCKS	16

#define entry_bucket(heap_block)	((uint32) ((heap_block) / ENTRY_BUCKET_BLOCKS))

/*
 * An entry: a HOT chain, and the index's value for its row.  If the index has
 * filter columns, the entry has filter keys for them (core/filter.h).
 */
typedef struct IndexEntry
{
	ItemPointerData root;
	bool		isnull;
	bool		whole;			/* ids and filter keys are set */
	const void *filter_keys;	/* EntriesFilterKeys() times uint64, not
								 * aligned; NULL if there are none */
	const void *ids;			/* [bytes] the set's payload (idset.h); NULL
								 * if isnull */
	uint32		bytes;
} IndexEntry;

/*
 * Support functions of an operator class whose index keeps a set of each value
 * of the first column.  Others have none.  One makes the set of a value.  The
 * other makes that of the right side of an operator: its arguments are the
 * value (internal), the strategy (int2) and the type of the right side (oid;
 * 0 or a pseudotype if it is that of the column).  It returns the address of
 * an idset, palloc'd (internal); null: the operator may be true for any row.
 */
#define ENTRY_SET_PROC		1
#define ENTRY_QUERY_PROC	2

/*
 * entry_value.c.  Does a family's operator class for a type make sets of its
 * values?  Does an index make sets of the values of its first column?
 * What it keeps of a value: such a set, or the value itself, not toasted;
 * palloc'd, or the value.  The same of a row; errors name the index.  The set
 * of the right side of a key, which may be an element of the key's array, as
 * ENTRY_QUERY_PROC makes it.
 */
extern bool EntriesClassMakesSets(Oid family, Oid type);
extern bool EntriesMakeSets(Relation index);
extern struct varlena *EntriesValue(Relation index, Datum value);
extern struct varlena *EntriesRowValue(Relation index, Datum value);
extern struct varlena *EntriesQuery(Relation index, const ScanKeyData *key, Datum value);

/*
 * True if the index keeps entries: it has an expression or a predicate, or
 * makes sets of the values of its first column
 */
extern bool EntriesKept(Relation index);

/* Filter keys of each entry: one for the set and for each filter column */
extern uint32 EntriesFilterKeys(Relation index);

/*
 * Write the metapage of a new, empty index, with a new build id.  `fork` is
 * the main fork, or the init fork, which is always WAL-logged.
 */
extern void EntriesCreate(Relation index, ForkNumber fork);

/* Log a whole index that was built without WAL */
extern void EntriesLogBuild(Relation index);

/* The index's build id; false: no metapage of this version of the library */
extern bool EntriesBuildId(Relation index, uint8 *build);

/* Drop the cache in rd_amcache, before the index's file is written anew */
extern void EntriesForget(Relation index);

/*
 * entry_batch.c: entries of one bucket that are to be written together.  Zero
 * it before use.
 */
typedef struct EntryBatch
{
	char	   *data;			/* [used] items (entry_page.h), each with an
								 * EntrySize before it */
	Size		used;
	Size		capacity;
	uint32		nfilter_keys;	/* of each entry */
} EntryBatch;

/* What is known of a row that is inserted */
typedef struct EntryValue
{
	struct varlena *set;		/* not toasted, or NULL for a null value */
	const uint64 *filter_keys;	/* [nfilter_keys], or NULL if there are none */
	uint32		nfilter_keys;	/* the same for all entries of a batch */
} EntryValue;

/*
 * Append an entry.  Memory comes from `context`.  `row` is the caller's
 * number for the row, or 0; EntryBatchFilter() gives it back.
 */
extern void EntryBatchAdd(EntryBatch *batch, MemoryContext context, ItemPointer root,
						  const EntryValue *value, uint16 row);

/*
 * Remove the entries from a batch for which wanted(root, row, arg) is false
 */
extern void EntryBatchFilter(EntryBatch *batch,
							 bool (*wanted) (ItemPointer root, uint16 row, void *arg), void *arg);

/*
 * The next entry of a batch; *offset is 0 at first.  If it does not fit a
 * page of the index, ids and filter keys are not told: entry->whole is false.
 * False: there is none.
 */
extern bool EntryBatchEntry(const EntryBatch *batch, Size *offset, IndexEntry *entry);

/*
 * Remove the entries that a failed subtransaction and its own subtransactions
 * have added: all entries from its first entry on
 */
extern void EntryBatchCut(EntryBatch *batch, SubTransactionId failed);

/*
 * Write a batch to a bucket.  No WAL is written while the index is being
 * built.
 */
extern void EntriesWrite(Relation index, uint32 bucket, const EntryBatch *batch, bool building);

/*
 * Writes the entries that wait in this process.  Set by the access method,
 * which has them (index/entry_queue.c), when the library is loaded.
 */
extern void (*EntriesWriteWaiting) (void);

/* Counts of a bulk deletion */
typedef struct EntriesVacuum
{
	double		kept;			/* remaining entries */
	double		removed;
	BlockNumber pages;			/* pages of the index */
} EntriesVacuum;

/*
 * Remove the entries for which dead(root, arg) is true.  After they were
 * removed from a page, removed(index, roots, n) has their roots, at most
 * MaxIndexTuplesPerPage, in any order; it may change roots[].
 */
extern void EntriesRemove(Relation index, bool (*dead) (ItemPointer root, void *arg), void *arg,
						  void (*removed) (Relation index, ItemPointerData *roots, int n),
						  BufferAccessStrategy strategy, EntriesVacuum *result);

/* The bucket of a page of the index; false: the page has no entries */
extern bool EntriesPageBucket(Relation index, BlockNumber block, uint32 *bucket);

/* entry_reader.c: reading entries, a bucket at a time */
typedef struct EntryReader EntryReader;

extern EntryReader *EntryReaderBegin(Relation index);
extern void EntryReaderEnd(EntryReader *reader);

/*
 * The entries of a bucket, ascending by root.  They last until another bucket
 * is read.  The bucket is read anew unless it is the last one that was read.
 */
extern const IndexEntry *EntryReaderBucket(EntryReader *reader, uint32 bucket, uint32 *n);

/* The entries of one heap block, ascending by root */
extern const IndexEntry *EntryReaderBlock(EntryReader *reader, BlockNumber heap_block, uint32 *n);

/* The entry of the HOT chain at this root, or NULL */
extern const IndexEntry *EntryReaderFind(EntryReader *reader, ItemPointer root);

/*
 * A number that changes whenever an entry of the bucket is added or removed:
 * a hash of the LSNs of its pages.  0: the bucket has no pages.
 */
extern uint64 EntryReaderVersion(EntryReader *reader, uint32 bucket);

/* For entry_reader.c: the first page of a bucket, or InvalidBlockNumber */
extern BlockNumber EntriesHead(Relation index, uint32 bucket);

#endif							/* GPUVEC_ENTRIES_H */
