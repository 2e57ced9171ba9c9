/*-------------------------------------------------------------------------
 *
 * root.c
 *	  From a row version to the root of its HOT chain.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "index/index.h"
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
 * The root of the chain that a visible row version belongs to.  The page may have
 * been looked at before that version came, then it is read once more.
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
