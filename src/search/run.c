/*-------------------------------------------------------------------------
 *
 * run.c
 *	  Searching all relations of a call and merging the answers.
 *
 * Relations are searched in the order of their oids, which is also the order
 * of rows of equal score.  So once a query has k rows, only rows of a greater
 * score than the k-th count in the relations that follow: of a relation that
 * has none, the engine skips almost all.  A query that has k rows of the
 * greatest possible score is done.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/engine_link.h"
#include "miscadmin.h"
#include "search/set_search.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/*
 * A table that has no shared mirror is loaded into the engine for one call
 * only if pages times queries are more than this; below, a scan here is
 * quicker.
 */
#define PRIVATE_MIN_WORK	2000

/*
 * Is there a query that rows of a further relation may count for?  If not, it
 * is not even read, so it needs no predicate lock: whatever is written there,
 * the answer is the same.
 */
static bool
any_wants_rows(const MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
		if (!search->queries[i].skip)
			return true;
	return false;
}

/* Search one relation in the way that suits it */
static void
search_target(MirrorTarget *target, MirrorSearch *search)
{
	const char *reason = NULL;

	if (search->among)
	{
		AmongTopK(target, search);
		return;
	}
	if (target->mode == MIRROR_PRIVATE &&
		(uint64) RelationGetNumberOfBlocks(target->rel) * search->nqueries < PRIVATE_MIN_WORK)
	{
		LocalTopK(target, search);
		return;
	}
	if (target->mode != MIRROR_NONE)
	{
		if (MirrorTopK(target, search, &reason))
			return;
		GpuvecLinkWarn(reason);
	}
	LocalTopK(target, search);
}

/* Make room for so many hits in an answer */
static void
reserve_answer(SearchAnswer *answer, uint64 n)
{
	if (n <= answer->maxhits)
		return;
	n = Max(n, answer->maxhits * 2);
	if (answer->maxhits == 0)
	{
		answer->hits = MemoryContextAllocHuge(CurrentMemoryContext, n * sizeof(MirrorHit));
		answer->targets = MemoryContextAllocHuge(CurrentMemoryContext, n * sizeof(int));
	}
	else
	{
		answer->hits = repalloc_huge(answer->hits, n * sizeof(MirrorHit));
		answer->targets = repalloc_huge(answer->targets, n * sizeof(int));
	}
	answer->maxhits = n;
}

/*
 * Merge a query's hits of one more relation into its answer, from the worst
 * on, so that what is better than all of them stays where it is.  What is too
 * much is left out.
 */
static void
merge_hits(SearchAnswer *answer, const MirrorQuery *query, int target, uint64 k)
{
	uint64		total = Min(answer->nhits + query->nhits, k);
	uint64		i = answer->nhits;
	uint64		j = query->nhits;

	if (j == 0)
		return;
	reserve_answer(answer, total);
	while (j > 0)
	{
		/*
		 * at equal scores the earlier relation comes first, whatever the tids
		 */
		bool		earlier = i > 0 && answer->hits[i - 1].score < query->hits[j - 1].score;
		uint64		n = i + j - 1;

		if (n < total)
		{
			answer->hits[n] = earlier ? answer->hits[i - 1] : query->hits[j - 1];
			answer->targets[n] = earlier ? answer->targets[i - 1] : target;
		}
		if (earlier)
			i--;
		else
			j--;
	}
	answer->nhits = total;
}

/* What rows of further relations have to surpass to be among the k best */
static void
raise_bound(const MirrorSearch *search, MirrorQuery *query, const SearchAnswer *answer)
{
	if (query->skip || answer->nhits < search->k)
		return;
	query->has_above = true;
	query->above = answer->hits[search->k - 1].score;
	query->skip = query->above >= gpuvec_score(search->measure, query->len, query->len, query->len);
}

/*
 * Search all targets, which are in ascending order of oid, and give for each
 * query the k best rows of all, ordered by (score descending, oid, tid).  The
 * answers live in the current memory context.
 */
void
SearchRun(MirrorTarget *targets, int ntargets, MirrorSearch *search, SearchAnswer *answers)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec search",
												  ALLOCSET_DEFAULT_SIZES);

	memset(answers, 0, search->nqueries * sizeof(SearchAnswer));
	/* hits of several targets are copied, those of one stay where they are */
	search->context = ntargets > 1 ? context : CurrentMemoryContext;
	for (int t = 0; t < ntargets; t++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		for (uint32 i = 0; i < search->nqueries; i++)
		{
			search->queries[i].hits = NULL;
			search->queries[i].nhits = search->queries[i].maxhits = 0;
		}
		if (any_wants_rows(search))
			search_target(&targets[t], search);
		MemoryContextSwitchTo(old);
		for (uint32 i = 0; i < search->nqueries; i++)
		{
			if (ntargets > 1)
			{
				merge_hits(&answers[i], &search->queries[i], t, search->k);
				raise_bound(search, &search->queries[i], &answers[i]);
			}
			else
			{
				memset(&answers[i], 0, sizeof(answers[i]));
				answers[i].hits = search->queries[i].hits;
				answers[i].nhits = search->queries[i].nhits;
			}
		}
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
}
