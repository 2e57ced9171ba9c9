/*-------------------------------------------------------------------------
 *
 * entry_page.h
 *	  How pages of an index lie on disk; see entries.c.
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

/* An index on a column alone has nothing but a metapage */
#define META_VERSION_COLUMN	1
#define META_VERSION_KEPT	2

/* Contents of the metapage */
typedef struct MetaPage
{
	uint32		magic;
	uint32		version;
	uint8		build[ENTRY_BUILD_BYTES];
	BlockNumber slots[FLEXIBLE_ARRAY_MEMBER];	/* META_VERSION_KEPT */
} MetaPage;

#define meta_of(page)	((MetaPage *) PageGetContents(page))

/* Slots of a directory page, and of the metapage; 0: nothing there yet */
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
	BlockNumber next;			/* of the bucket, or InvalidBlockNumber */

	/*
	 * On the first page of a bucket: where to try to insert.  Pages before
	 * that are full, or have room that VACUUM has not told of yet.
	 */
	BlockNumber insert;
} EntrySpecial;

#define special_of(page) ((EntrySpecial *) PageGetSpecialPointer(page))

/*
 * An item of a bucket's page, followed by ids: all of an entry's, or, if they
 * do not fit a page, a part of them.
 */
typedef struct EntryItem
{
	ItemPointerData root;
	uint16		part;			/* its number, and flags */
} EntryItem;

#define ENTRY_PART_NULL		0x8000	/* the value is null: no ids */
#define ENTRY_PART_LAST		0x4000	/* no more parts */
#define ENTRY_PART_NUMBER	0x3FFF

/* Bytes of ids that fit a page of their own; even */
#define ENTRY_PART_BYTES \
	(MAXALIGN_DOWN(BLCKSZ - MAXALIGN(SizeOfPageHeaderData + sizeof(ItemIdData)) - \
				   MAXALIGN(sizeof(EntrySpecial))) - sizeof(EntryItem))

/* In a batch (entries.h), what is before each item; all is MAXALIGNed */
typedef union EntrySize
{
	struct
	{
		uint16		bytes;		/* of the item */
		uint16		row;		/* see EntryBatchAdd() */
		SubTransactionId writer;	/* that added it */
	}			of;
	char		align[MAXIMUM_ALIGNOF];
} EntrySize;

/* A batch that is being written */
typedef struct EntryBatchCursor
{
	const EntryBatch *batch;
	Size		next;			/* where the next item is */
} EntryBatchCursor;

/*
 * The next item, and its bytes, or NULL; it stays the next one until the
 * cursor is moved
 */
extern EntryItem *EntryBatchNext(EntryBatchCursor *cursor, Size *size);

#endif							/* GPUVEC_ENTRY_PAGE_H */
