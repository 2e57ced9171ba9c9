/*-------------------------------------------------------------------------
 *
 * entry_page.h
 *	  Layout of an index's pages on disk; see entries.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENTRY_PAGE_H
#define GPUVEC_ENTRY_PAGE_H

#include "postgres.h"

#include "entries/entries.h"
#include "storage/bufpage.h"
#include "storage/off.h"

#define META_BLOCK		0
#define META_MAGIC		0x47505649	/* "GPVI" */

/* Versions of the layout; an index on a column alone has only a metapage */
#define META_VERSION_COLUMN	1
#define META_VERSION_KEPT	2
#define META_VERSION_FILTER_KEYS	3	/* kept, with filter columns */

/* Contents of the metapage */
typedef struct MetaPage
{
	uint32		magic;
	uint32		version;
	uint8		build[ENTRY_BUILD_BYTES];
	BlockNumber slots[FLEXIBLE_ARRAY_MEMBER];	/* first level of the
												 * directory; not of
												 * META_VERSION_COLUMN */
} MetaPage;

#define meta_of(page)	((MetaPage *) PageGetContents(page))

/*
 * Number of slots of a directory page and of the metapage.  A slot is the
 * block number of a page, or 0 if it is empty.
 */
#define DIRECTORY_SLOTS \
	((uint32) ((BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - MAXALIGN(sizeof(EntrySpecial))) / \
			   sizeof(BlockNumber)))
#define META_SLOTS \
	((uint32) ((BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - offsetof(MetaPage, slots)) / \
			   sizeof(BlockNumber)))

typedef enum EntryPageKind
{
	PAGE_DIRECTORY = 1,
	PAGE_BUCKET
} EntryPageKind;

/* At the end of each page but the metapage */
typedef struct EntrySpecial
{
	uint16		kind;			/* EntryPageKind */
	uint16		padding;
	uint32		bucket;
	BlockNumber next;			/* next page of the bucket, or
								 * InvalidBlockNumber */

	/*
	 * On a bucket's first page: the page to try first for an insertion. Pages
	 * before it are full, or have room that VACUUM has not noted yet.
	 */
	BlockNumber insert;
} EntrySpecial;

#define special_of(page) ((EntrySpecial *) PageGetSpecialPointer(page))

/*
 * An item of a bucket's page.  Followed by the filter keys and the ids of an
 * entry, or by a chunk of them if they do not fit a page.
 */
typedef struct EntryItem
{
	ItemPointerData root;
	uint16		chunk;			/* number of the chunk, from 0, and flags */
} EntryItem;

#define ENTRY_CHUNK_NULL		0x8000	/* the value is null: no ids */
#define ENTRY_CHUNK_LAST		0x4000	/* the last chunk */
#define ENTRY_CHUNK_NUMBER	0x3FFF

/* Most bytes in one chunk: they fit an empty page; even */
#define ENTRY_CHUNK_BYTES \
	(MAXALIGN_DOWN(BLCKSZ - MAXALIGN(SizeOfPageHeaderData + sizeof(ItemIdData)) - \
				   MAXALIGN(sizeof(EntrySpecial))) - sizeof(EntryItem))

/* Set what an entry has of its value, which has filter keys and ids */
extern void EntrySetValue(IndexEntry *entry, const char *value, Size bytes, uint32 nfilter_keys);

/* In a batch (entries.h), before each item; both are MAXALIGNed */
typedef union EntrySize
{
	struct
	{
		uint16		bytes;		/* of the item */
		uint16		row;		/* as given to EntryBatchAdd() */
		SubTransactionId writer;	/* the subtransaction that added the item */
	}			of;
	char		align[MAXIMUM_ALIGNOF];
} EntrySize;

/* A position in a batch that is being written */
typedef struct EntryBatchCursor
{
	const EntryBatch *batch;
	Size		next;			/* offset of the next item */
} EntryBatchCursor;

/*
 * The next item and its size, or NULL.  Does not advance: the writer moves
 * cursor->next.
 */
extern EntryItem *EntryBatchNext(EntryBatchCursor *cursor, Size *size);

#endif							/* GPUVEC_ENTRY_PAGE_H */
