/*-------------------------------------------------------------------------
 *
 * search.c
 *	  Rows that satisfy a search key, by the mirror.
 *
 * Each of the searches is a bound of some measure:
 *
 *		tokens && q		at least one common id: intersection >= 1
 *		tokens @> q		all of q's ids are common: containment >= 1
 *		tokens = q		the larger set has no more ids than are common:
 *						braun_blanquet >= 1
 *
 * so the engine returns the rows (and no others, but the executor checks each once
 * more).  An empty q has no common ids with any row; then, or without a mirror, every
 * row may satisfy the key.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "idset/idset.h"
#include "index/index.h"
#include "mirror/mirror.h"
#include "miscadmin.h"
#include "search/search.h"
#include "utils/rel.h"

static gpuvec_measure
key_measure(StrategyNumber strategy)
{
	switch (strategy)
	{
		case GPUVEC_OVERLAPS:
			return GPUVEC_INTERSECTION;
		case GPUVEC_CONTAINS:
			return GPUVEC_CONTAINMENT;
		default:
			return GPUVEC_BRAUN_BLANQUET;
	}
}

/* Describe the mirror of an index that is scanned */
void
GpuvecDescribe(IndexScanDesc scan, MirrorTarget *target)
{
	MirrorDescribeIndex(GpuvecScanHeap(scan), scan->indexRelation, target);
	target->fed = target->mode == MIRROR_SHARED &&
		GpuvecBuildId(scan->indexRelation, target->build);
}

/* Find the rows; roots[] is allocated in the context, and not NULL even if n is 0 */
void
GpuvecFind(IndexScanDesc scan, ScanKey key, MemoryContext context, GpuvecFound *found)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	MirrorSearch search = {0};
	MirrorQuery query = {0};
	MirrorTarget target;
	const char *reason = NULL;
	IdSet	   *set;

	memset(found, 0, sizeof(*found));
	if (key->sk_flags & SK_ISNULL)
	{
		found->roots = palloc(sizeof(int64));
		MemoryContextSwitchTo(old);
		return;
	}
	set = DatumGetIdSetP(key->sk_argument);
	GpuvecDescribe(scan, &target);
	search.measure = key_measure(key->sk_strategy);
	search.k = UINT64_MAX;
	search.roots = true;
	search.has_min_score = true;
	search.min_score = 1.0;
	search.queries = &query;
	search.nqueries = 1;
	search.snapshot = scan->xs_snapshot;
	search.context = context;
	query.ids = idset_ids(set);
	query.len = idset_count(set);
	if (query.len == 0 || target.mode != MIRROR_SHARED)
		found->all = true;
	else if (!MirrorTopK(&target, &search, &reason))
	{
		SearchWarnNoEngine(reason);
		found->all = true;
	}
	if (!found->all)
	{
		found->roots = MemoryContextAllocHuge(context, (query.nhits + 1) * sizeof(int64));
		for (uint64 i = 0; i < query.nhits; i++)
		{
			uint64		place = query.hits[i].place;

			found->roots[found->n++] = hit_root(place);
		}
	}
	MemoryContextSwitchTo(old);
}
