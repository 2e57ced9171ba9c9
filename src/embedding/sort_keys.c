/*-------------------------------------------------------------------------
 *
 * sort_keys.c
 *	  The order of keys.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"

int
EmbeddingCompareKeys(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	/* the server's qsort() is in place, and may be left at any time */
	GPUVEC_LOOK();
	return x < y ? -1 : x > y;
}

void
EmbeddingSortKeys(int64 *keys, uint64 n)
{
	qsort(keys, n, sizeof(int64), EmbeddingCompareKeys);
}
