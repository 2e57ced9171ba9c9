/*-------------------------------------------------------------------------
 *
 * count_fetched.c
 *	  Rows that a node that counts has to look at, and the ids of their sets.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "index/count.h"

bool
CountNextToFetch(CountToFetch *fetch, long pages, GpuvecFound *some)
{
	const int64 *roots = fetch->found.roots;
	uint64		at = fetch->next;
	long		n = 0;

	for (; at < fetch->found.n; at++)
	{
		if (at == fetch->next || tid_number_block(roots[at]) != tid_number_block(roots[at - 1]))
			n++;
		if (n > pages)
			break;
	}
	*some = fetch->found;
	some->roots += fetch->next;
	some->n = at - fetch->next;
	fetch->next = at;
	return some->n > 0;
}

void
CountForgetIds(CountRowIds *ids)
{
	if (ids->copied)
		pfree(ids->set);
	memset(ids, 0, sizeof(*ids));
}

/* The row stays where it is until the scan is asked for another one */
void
CountBeginIds(CountRowIds *ids, TupleTableSlot *row)
{
	bool		isnull;
	Datum		value = slot_getattr(row, 1, &isnull);

	CountForgetIds(ids);
	if (isnull)
		return;
	ids->set = DatumGetIdSetP(value);
	ids->copied = (Pointer) ids->set != DatumGetPointer(value);
}

bool
CountNextId(CountRowIds *ids, uint64 *id)
{
	if (ids->set == NULL || ids->next == idset_count(ids->set))
		return false;
	*id = idset_id(ids->set, ids->next++);
	return true;
}
