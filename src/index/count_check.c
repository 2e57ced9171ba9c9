/*-------------------------------------------------------------------------
 *
 * count_check.c
 *	  Whether two sets of groups are of equal rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/key_hash.h"
#include "index/count.h"

void
CountCheckBegin(CountCheck *check)
{
	memset(check, 0, sizeof(*check));
	memset(check->low, 0xFF, sizeof(check->low));
}

/* Add the rows of a group */
void
CountCheckAdd(CountCheck *check, const gpuvec_grouping *grouping, const uint64 *group)
{
	int			nkeys = grouping->nkeys;
	const uint64 *keys = group + GPUVEC_GROUP_KEYS;
	uint64		hash = group[GPUVEC_GROUP_NULLS] & ((UINT64CONST(1) << nkeys) - 1);

	for (int i = 0; i < nkeys; i++)
		hash = gpuvec_hash_key((int64) (hash ^ keys[i]));
	check->rows += group[GPUVEC_GROUP_ROWS];
	check->hash += hash * group[GPUVEC_GROUP_ROWS];
	for (int i = 0; i < grouping->nvalues; i++)
	{
		const uint64 *range = keys + nkeys + 2 * i;

		if (group[GPUVEC_GROUP_NULLS] >> (nkeys + i) & 1)
			continue;
		check->low[i] = Min(check->low[i], range[0]);
		check->high[i] = Max(check->high[i], range[1]);
	}
}
