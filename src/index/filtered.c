/*-------------------------------------------------------------------------
 *
 * filtered.c
 *	  All rows that pass the conditions of a scan, in the order of a distance.
 *
 * The engine finds them by the measure hamming, which ranks all sets.  A score
 * and the number of common ids tell how many ids a row has: so its distance by
 * any measure is known, and no row has to be fetched for it.  With weights it
 * finds them by the distance itself, which ranks all sets, too.  Rows whose
 * sets are null are a second query of the same search, for the same filter and
 * the condition that the set is null.
 *
 * As in the ranking, the set of a root in the mirror is that of all members of
 * its HOT chain that a snapshot may see; in recovery the rows are those that
 * the snapshot sees.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "index/conditions.h"
#include "index/index_am.h"
#include "link/engine_link.h"
#include "utils/memutils.h"

/* The number of ids of a row, by its hamming score */
static uint32
row_length(const gpuvec_hit *hit, uint32 query_length)
{
	return (uint32) (int64) -hit->score + 2 * gpuvec_hit_common(hit->place) - query_length;
}

/* The score of a hit by the measure of an order */
static double
row_score(const gpuvec_hit *hit, const GpuvecOrder *order)
{
	uint32		n = order->vector.ids.n;

	if (order->scoring.sparse)
		return hit->score;
	return gpuvec_score_with(order->scoring,
							 (gpuvec_shared) {gpuvec_hit_common(hit->place), n, row_length(hit, n)});
}

/* Make the row of a hit */
static void
make_row(const gpuvec_hit *hit, const GpuvecOrder *order, KeyedRow *row)
{
	row->root = hit_root(hit);
	row->distance = GpuvecRankDistance(order, row_score(hit, order));
	row->ranks = GpuvecRanks(order, row->distance, gpuvec_hit_common(hit->place));
}

/* Make the row of a hit whose set is null: it comes behind all others */
static void
make_null_row(const gpuvec_hit *hit, KeyedRow *row)
{
	row->root = hit_root(hit);
	row->ranks = false;
	row->distance = INFINITY;
}

/* Replace the tids of row versions from a plain mirror by those of roots */
static void
find_roots(const MirrorTarget *target, KeyedRow *rows, uint64 n)
{
	RootFinder	finder = {.heap = target->rel, .block = InvalidBlockNumber};

	for (uint64 i = 0; i < n && !target->key.rooted; i++)
		rows[i].root = GpuvecVersionRoot(&finder, rows[i].root);
}

/* The order of rows that may come in any */
static GpuvecOrder
any_order(void)
{
	IdSet	   *nothing = idset_alloc(0);
	GpuvecOrder any = {
		.scoring = {GPUVEC_HAMMING},.value = (struct varlena *) nothing,
		.vector = idvec_sparse_of_set(nothing)
	};

	return any;
}

bool
GpuvecFindFiltered(IndexScanDesc scan, const gpuvec_filter *filter, const GpuvecOrder *order,
				   KeyedRow **rows, uint64 *n)
{
	bool		sorts = order != NULL && order->value != NULL;
	GpuvecOrder used = sorts ? *order : any_order();
	MirrorQuery queries[2] = {0};
	MirrorSearch search = {.k = UINT64_MAX, .queries = queries};
	bool		nulls = MirrorWantsNulls(filter);
	MirrorTarget target;
	const char *reason = NULL;

	GpuvecDescribe(scan, &target);
	if (target.mode != MIRROR_SHARED)
		return false;
	/* by weights all rows rank, too, if any score will do */
	search.scoring = used.scoring.sparse ? used.scoring : (gpuvec_scoring) {GPUVEC_HAMMING};
	search.has_min_score = used.scoring.sparse != 0;
	search.min_score = -INFINITY;
	search.nqueries = nulls ? 1 : 2;
	search.roots = target.key.rooted;
	search.snapshot = scan->xs_snapshot;
	search.context = CurrentMemoryContext;
	for (uint32 i = 0; i < search.nqueries; i++)
	{
		queries[i].value = used.value;
		queries[i].vector = used.vector;
		queries[i].filter = i == 0 ? filter : GpuvecFilterNulls(filter);
	}
	if (!MirrorTopK(&target, &search, &reason))
	{
		GpuvecLinkWarn(reason);
		return false;
	}
	*n = 0;
	*rows = MemoryContextAllocHuge(CurrentMemoryContext,
								   (queries[0].nhits + queries[1].nhits + 1) * sizeof(KeyedRow));
	for (uint32 i = 0; i < search.nqueries; i++)
		for (uint64 j = 0; j < queries[i].nhits; j++)
			if (nulls || i == 1)
				make_null_row(&queries[i].hits[j], &(*rows)[(*n)++]);
			else
				make_row(&queries[i].hits[j], &used, &(*rows)[(*n)++]);
	find_roots(&target, *rows, *n);
	if (sorts && *n > 1)
		qsort(*rows, *n, sizeof(KeyedRow), GpuvecCompareKeyed);
	return true;
}
