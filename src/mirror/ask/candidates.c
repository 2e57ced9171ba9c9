/*-------------------------------------------------------------------------
 *
 * candidates.c
 *	  Which of the engine's hits does a search return?
 *
 * The engine returns candidates in order.  Candidates are dropped that the
 * snapshot does not see, or that are not among the rows that the search is
 * restricted to.  If fewer than k are left, the engine is asked for the rows
 * behind the last candidate.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/candidates.h"
#include "miscadmin.h"

/* Make room for n more hits of a query */
static void
reserve_hits(MirrorSearch *search, MirrorQuery *query, uint64 n)
{
	uint64		capacity = query->nhits + n;

	if (capacity <= query->maxhits)
		return;
	if (query->maxhits == 0)
	{
		MirrorHit  *mine = MemoryContextAllocHuge(search->context, capacity * sizeof(MirrorHit));

		if (query->nhits > 0)
			memcpy(mine, query->hits, query->nhits * sizeof(MirrorHit));
		query->hits = mine;
	}
	else
	{
		capacity = Max(capacity, query->maxhits * 2);
		query->hits = repalloc_huge(query->hits, capacity * sizeof(MirrorHit));
	}
	query->maxhits = capacity;
}

/*
 * True if two rows of a rooted mirror are in the same group (candidates.h)
 */
static bool
same_group(const MirrorHit *a, const MirrorHit *b)
{
	return a->score == b->score && gpuvec_hit_block(a->place) == gpuvec_hit_block(b->place);
}

/* qsort comparator: the upper bits of a place are the tid */
static int
compare_places(const void *a, const void *b)
{
	uint64		x = ((const MirrorHit *) a)->place;
	uint64		y = ((const MirrorHit *) b)->place;

	return x < y ? -1 : x > y;
}

/* Sort the rows of each group by their tids, and keep the first k */
static void
sort_groups(MirrorSearch *search, MirrorQuery *query)
{
	uint64		first = 0;

	for (uint64 i = 1; i <= query->nhits; i++)
	{
		if (i < query->nhits && same_group(&query->hits[i], &query->hits[first]))
			continue;
		if (i - first > 1)
			qsort(query->hits + first, i - first, sizeof(MirrorHit), compare_places);
		first = i;
	}
	query->nhits = Min(query->nhits, search->k);
}

/*
 * A query has its k rows, and the last answer ended within the group of the
 * k-th row.  True if the rows of the group that were not returned come behind
 * the k-th row anyway.
 *
 * Their roots come behind the last root that was returned.  If the k-th row
 * does not, then every row before it that the snapshot sees was returned, or
 * is not the root of its chain.  The page tells whether it has such a row.
 */
static bool
rest_is_behind(const MirrorSearch *search, MirrorQuery *query, MirrorVisibility *visibility)
{
	uint64		first = search->k - 1;
	uint64		kth;
	OffsetNumber line;

	while (first > 0 && same_group(&query->hits[first - 1], &query->hits[search->k - 1]))
		first--;
	qsort(query->hits + first, query->nhits - first, sizeof(MirrorHit), compare_places);
	kth = query->hits[search->k - 1].place;
	line = mirror_line_offset(gpuvec_hit_line(kth));
	return line <= mirror_line_offset(gpuvec_tid_line(query->after_tid)) &&
		!MirrorPageHasMember(visibility, gpuvec_hit_block(kth), line);
}

/*
 * True if a row is one of those that the search is restricted to.  The hit
 * has the row's own tid, not its root's.
 */
static bool
is_among(const MirrorTidSet *among, const MirrorHit *hit)
{
	return MirrorTidSetHas(among, gpuvec_hit_block(hit->place),
						   mirror_line_offset(gpuvec_hit_line(hit->place)));
}

/*
 * True if this row is to be returned: it is visible, and the search is not
 * restricted to other rows.  Few rows are among those that a search is
 * restricted to, so they are looked up before anything is fetched.  If the
 * HOT chain may have another member than its root, only the page is looked up
 * first: the visible member is known after it was fetched.  (If the root is
 * the last member that is not dead, no snapshot for which the mirror is fresh
 * can see another one.)
 */
static bool
wanted(const MirrorSearch *search, MirrorVisibility *visibility, MirrorHit *hit,
	   const MirrorQuery *query)
{
	const MirrorTidSet *among = search->among;

	if (among == NULL)
		return MirrorVisible(visibility, hit, query, search);
	if (MirrorVisibilityKnowsRoot(visibility, hit))
		return is_among(among, hit) &&
			MirrorVisible(visibility, hit, query, search);
	return MirrorTidSetHasBlock(among, gpuvec_hit_block(hit->place)) &&
		MirrorVisible(visibility, hit, query, search) && is_among(among, hit);
}

/* Of a restricted search few hits count: these are copied from the answer */
void
MirrorTakeHits(const MirrorTarget *target, MirrorSearch *search, MirrorQuery *query,
			   MirrorVisibility *visibility, MirrorHit *hits, uint32 n, uint32 asked)
{
	bool		groups = target->key.rooted && !search->roots;
	bool		full = query->nhits >= search->k && !groups;

	if (search->among)
		 /* each hit reserves its own room */ ;
	else if (query->nhits == 0)
	{
		query->hits = hits;
		query->maxhits = 0;
	}
	else
		reserve_hits(search, query, n);
	for (uint32 i = 0; i < n && !full; i++)
	{
		MirrorHit	hit = hits[i];

		if (groups && query->nhits >= search->k &&
			!same_group(&hit, &query->hits[query->nhits - 1]))
		{
			full = true;
			break;
		}
		query->after_score = hit.score;
		query->after_tid = mirror_behind(hit.place);
		query->looked++;
		if (search->roots)
		{
			MirrorHit	seen = hit;

			/* the executor checks visibility; this verifies the score */
			if (gpuvec_verify)
				(void) MirrorVisible(visibility, &seen, query, search);
			query->hits[query->nhits++] = hit;
		}
		else if (wanted(search, visibility, &hit, query))
		{
			if (search->among)
				reserve_hits(search, query, 1);
			query->hits[query->nhits++] = hit;
		}
		full = query->nhits >= search->k && !groups;
		CHECK_FOR_INTERRUPTS();
	}
	if (groups && !full && n == asked && query->nhits >= search->k)
		full = rest_is_behind(search, query, visibility);
	query->done = n < asked || full;
	if (!query->done && search->among && query->looked >= search->max_looked)
		query->done = query->abandoned = true;
	query->has_after = !query->done;
	if (query->done && groups)
		sort_groups(search, query);
}

/* True if a row is not before the cut of a mirror: see MirrorTakePartition */
static bool
is_behind(const MirrorHit *hit, const MirrorHit *cut, bool groups)
{
	if (groups && same_group(hit, cut))
		return true;
	return hit->score < cut->score ||
		(hit->score == cut->score && gpuvec_hit_tid(hit->place) > gpuvec_hit_tid(cut->place));
}

void
MirrorTakePartition(const MirrorTarget *target, MirrorSearch *search, MirrorQuery *query,
					MirrorVisibility *visibility, MirrorHit *hits, uint32 n, const MirrorHit *cut)
{
	bool		groups = target->key.rooted && !search->roots;

	while (cut != NULL && n > 0 && is_behind(&hits[n - 1], cut, groups))
		n--;
	while (query->has_above && n > 0 && hits[n - 1].score <= query->above)
		n--;
	query->hits = hits;
	query->nhits = query->maxhits = 0;
	for (uint32 i = 0; i < n && (groups || query->nhits < search->k); i++)
	{
		MirrorHit	hit = hits[i];
		bool		visible = search->roots;

		/* the executor checks the visibility of roots; this verifies scores */
		if (!search->roots || gpuvec_verify)
			visible |= MirrorVisible(visibility, &hit, query, search);
		if (visible)
			query->hits[query->nhits++] = search->roots ? hits[i] : hit;
		CHECK_FOR_INTERRUPTS();
	}
	if (groups)
		sort_groups(search, query);
}
