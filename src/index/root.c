/*-------------------------------------------------------------------------
 *
 * root.c
 *	  Finds the root of a row version's HOT chain.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "index/index_am.h"
#include "storage/bufmgr.h"

/* Note the roots of all row versions of a page */
static void
read_roots(RootFinder *finder, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(finder->heap, block);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	heap_get_root_tuples(BufferGetPage(buffer), finder->roots);
	UnlockReleaseBuffer(buffer);
	finder->block = block;
}

/*
 * The root of the HOT chain that a visible row version belongs to.  If the
 * page was read before that version was inserted, it is read once more.
 */
int64
GpuvecFindRoot(RootFinder *finder, BlockNumber block, OffsetNumber line)
{
	for (int attempt = 0;; attempt++)
	{
		if (block == finder->block && OffsetNumberIsValid(finder->roots[line - 1]))
			return tid_number(block, finder->roots[line - 1]);
		if (attempt > 0)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("row (%u,%u) of relation \"%s\" belongs to no chain of row versions",
							block, line, RelationGetRelationName(finder->heap))));
		read_roots(finder, block);
	}
}

/*
 * True if a row version is a root itself, as most are.  Looks at no other
 * version.
 */
static bool
is_root(Relation heap, BlockNumber block, OffsetNumber line)
{
	Buffer		buffer = ReadBuffer(heap, block);
	Page		page = BufferGetPage(buffer);
	bool		root = false;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (line <= PageGetMaxOffsetNumber(page) && ItemIdIsNormal(PageGetItemId(page, line)))
	{
		ItemId		item = PageGetItemId(page, line);

		root = !HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, item));
	}
	UnlockReleaseBuffer(buffer);
	return root;
}

/* The same for a row version whose page is not likely to be needed again */
int64
GpuvecVersionRoot(RootFinder *finder, int64 version)
{
	BlockNumber block = tid_number_block(version);
	OffsetNumber line = tid_number_line(version);

	if (block != finder->block && is_root(finder->heap, block, line))
		return version;
	return GpuvecFindRoot(finder, block, line);
}
