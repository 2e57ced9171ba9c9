/*-------------------------------------------------------------------------
 *
 * run.c
 *	  Search all relations of a call, and merge their answers.
 *
 * One request asks the engine for the best rows of all relations together
 * (search_partitions.c).  Relations whose mirrors are not fresh, or that have
 * none, are searched by themselves.
 *
 * Relations are merged in the order of their oids, which is also the order
 * of rows with equal scores.  So once a query has k rows, a row of a later
 * relation counts only if its score is greater than the k-th.  If a relation
 * has no such row, the engine skips nearly all of its work.  A query whose k
 * rows all have the greatest possible score is done.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "link/engine_link.h"
#include "mirror/ask/search_partitions.h"
#include "miscadmin.h"
#include "search/set_search.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/*
 * A table without a shared mirror is loaded into the engine for one call only
 * if pages * queries reach this; below, a local scan is faster.
 */
#define PRIVATE_MIN_WORK	2000

/*
 * How often all relations are asked by one request.  The second one is for
 * PARTITIONS_GROWTH times as many rows.
 */
#define PARTITIONS_ATTEMPTS		2
#define PARTITIONS_GROWTH		8

/*
 * True if a row of another relation may still count for some query.  If not,
 * the relation is not read, and needs no predicate lock: whatever is written
 * there, the answer is the same.
 */
static bool
any_wants_rows(const MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
		if (!search->queries[i].skip)
			return true;
	return false;
}

/* Search one relation by the cheapest way that is available */
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

/* Make room for n hits in an answer */
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
 * Merge a query's hits in one more relation into its answer.  It goes from
 * the worst hit to the best, so better hits in the answer stay where they
 * are.  Hits beyond the k-th are dropped.
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
		 * equal scores: the earlier relation comes first, whatever the tids
		 */
		bool		earlier = i > 0 && answer->hits[i - 1].score < query->hits[j - 1].score;
		uint64		n = i + j - 1;

		GPUVEC_STEP(n);
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

/* Add a query's hits in one more relation behind those in its answer */
static void
append_hits(SearchAnswer *answer, const MirrorQuery *query, int target)
{
	if (query->nhits == 0)
		return;
	reserve_answer(answer, answer->nhits + query->nhits);
	memcpy(answer->hits + answer->nhits, query->hits, query->nhits * sizeof(MirrorHit));
	for (uint64 i = 0; i < query->nhits; i++)
	{
		GPUVEC_STEP(i);
		answer->targets[answer->nhits + i] = target;
	}
	answer->nhits += query->nhits;
}

/* A hit of an answer that is to be sorted */
typedef struct PlacedHit
{
	double		score;
	uint64		place;			/* in the answer */
} PlacedHit;

/* By score, descending; equal scores stay as they are */
static inline int
compare_placed(const PlacedHit *a, const PlacedHit *b)
{
	GPUVEC_LOOK();
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->place < b->place ? -1 : 1;
}

#if PG_VERSION_NUM >= 140000
#define ST_SORT sort_placed
#define ST_ELEMENT_TYPE PlacedHit
#define ST_COMPARE(a, b) compare_placed(a, b)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"
#else
static int
compare_elements(const void *a, const void *b)
{
	return compare_placed(a, b);
}

static void
sort_placed(PlacedHit *placed, size_t n)
{
	qsort(placed, n, sizeof(PlacedHit), compare_elements);
}
#endif

/* Give an answer the first n of its hits in this order */
static void
reorder_answer(SearchAnswer *answer, const PlacedHit *placed, uint64 n)
{
	SearchAnswer old = *answer;

	answer->maxhits = answer->nhits = 0;
	reserve_answer(answer, n);
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		answer->hits[i] = old.hits[placed[i].place];
		answer->targets[i] = old.targets[placed[i].place];
	}
	answer->nhits = n;
	pfree(old.hits);
	pfree(old.targets);
}

/* Rank the hits that were appended for all relations in turn; keep k */
static void
rank_hits(SearchAnswer *answer, uint64 k)
{
	uint64		n = answer->nhits;
	PlacedHit  *placed;

	if (n == 0)
		return;
	placed = MemoryContextAllocHuge(CurrentMemoryContext, n * sizeof(PlacedHit));
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		placed[i].score = answer->hits[i].score;
		placed[i].place = i;
	}
	sort_placed(placed, n);
	reorder_answer(answer, placed, Min(n, k));
	pfree(placed);
}

/*
 * The best score that a row can have; of inner products there is none.  By
 * jaccard a row with a negative value is an error, wherever it is.
 */
static double
best_score(const MirrorSearch *search, const MirrorQuery *query, bool values)
{
	gpuvec_shared all = {query->vector.ids.n, query->vector.ids.n, query->vector.ids.n};

	if (!search->scoring.sparse)
		return gpuvec_score_with(search->scoring, all);
	switch (gpuvec_scoring_sparse(search->scoring))
	{
		case GPUVEC_SPARSE_COSINE:
			return 1;
		case GPUVEC_SPARSE_JACCARD:
			return values ? INFINITY : 1;
		case GPUVEC_SPARSE_INNER_PRODUCT:
			break;
	}
	return INFINITY;
}

/*
 * Set the score that rows of later relations must exceed; `values` is true if
 * these are vectors
 */
static void
raise_bound(const MirrorSearch *search, MirrorQuery *query, const SearchAnswer *answer, bool values)
{
	if (query->skip || answer->nhits < search->k)
		return;
	query->has_above = true;
	query->above = answer->hits[search->k - 1].score;
	query->skip = query->above >= best_score(search, query, values);
}

static void
forget_hits(MirrorQuery *query)
{
	query->hits = NULL;
	query->nhits = query->maxhits = 0;
}

/* Search one relation, unless the answer of the partitions has its rows */
static void
search_next(MirrorTarget *targets, int number, MirrorSearch *search, MirrorPartitions *partitions)
{
	for (uint32 i = 0; i < search->nqueries; i++)
		forget_hits(&search->queries[i]);
	if (any_wants_rows(search) &&
		(partitions == NULL || !MirrorPartitionsTake(partitions, number, search, NULL, NULL)))
		search_target(&targets[number], search);
}

/*
 * Take the rows of all targets, which `partitions` knows, target by target.
 * These are few more than k rows, with which nothing is searched any more: so
 * they are sorted in the end.
 */
static void
take_all(int ntargets, MirrorSearch *search, MirrorPartitions *partitions, SearchAnswer *answers)
{
	uint32	   *with = palloc_array(uint32, Max(search->nqueries, 1));
	uint32		nwith;

	for (uint32 i = 0; i < search->nqueries; i++)
	{
		forget_hits(&search->queries[i]);
		reserve_answer(&answers[i], MirrorPartitionsHits(partitions, i));
	}
	for (int t = 0; t < ntargets; t++)
	{
		MemoryContext old = MemoryContextSwitchTo(search->context);

		(void) MirrorPartitionsTake(partitions, t, search, with, &nwith);
		MemoryContextSwitchTo(old);
		for (uint32 i = 0; i < nwith; i++)
		{
			append_hits(&answers[with[i]], &search->queries[with[i]], t);
			forget_hits(&search->queries[with[i]]);
		}
		MemoryContextReset(search->context);
	}
	/* those that were complete before are ranked */
	for (uint32 i = 0; i < search->nqueries; i++)
		if (!search->queries[i].skip)
			rank_hits(&answers[i], search->k);
	pfree(with);
}

/* Take the rows of all targets, which are in order, where they lie */
static void
take_in_order(MirrorSearch *search, MirrorPartitions *partitions, SearchAnswer *answers)
{
	uint64		total = 0;
	int		   *targets;

	for (uint32 i = 0; i < search->nqueries; i++)
		total += MirrorPartitionsHits(partitions, i);
	targets = MemoryContextAllocHuge(CurrentMemoryContext, Max(total, 1) * sizeof(int));
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		SearchAnswer *answer = &answers[i];
		MemoryContext old = MemoryContextSwitchTo(search->context);

		if (!search->queries[i].skip)
		{
			answer->nhits = MirrorPartitionsRows(partitions, search, i, &answer->hits, targets);
			answer->nhits = Min(answer->nhits, search->k);
			answer->targets = targets;
			answer->maxhits = 0;
			targets += MirrorPartitionsHits(partitions, i);
		}
		MemoryContextSwitchTo(old);
		MemoryContextReset(search->context);
		forget_hits(&search->queries[i]);
	}
}

/*
 * Search several targets one after another, but those that `partitions` knows,
 * and merge their rows.  True if these lie in the answer of `partitions`.
 */
static bool
search_several(MirrorTarget *targets, int ntargets, MirrorSearch *search, MirrorPartitions *partitions,
			   SearchAnswer *answers)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec relation",
												  ALLOCSET_DEFAULT_SIZES);
	bool		all_known = partitions && MirrorPartitionsAllKnown(partitions);
	bool		in_order = partitions && MirrorPartitionsInOrder(partitions);

	search->context = context;
	if (in_order)
		take_in_order(search, partitions, answers);
	else if (all_known)
		take_all(ntargets, search, partitions, answers);
	for (int t = 0; t < ntargets && !all_known; t++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		search_next(targets, t, search, partitions);
		MemoryContextSwitchTo(old);
		for (uint32 i = 0; i < search->nqueries; i++)
		{
			merge_hits(&answers[i], &search->queries[i], t, search->k);
			raise_bound(search, &search->queries[i], &answers[i], targets[t].key.values);
		}
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return in_order;
}

/* True if a query's answer is known, given the answer of the partitions */
static bool
is_complete(const MirrorPartitions *partitions, const MirrorSearch *search, uint32 query,
			const SearchAnswer *answer)
{
	if (answer->nhits == 0)
		return MirrorPartitionsComplete(partitions, search, query, 0, NULL, 0);
	return MirrorPartitionsComplete(partitions, search, query, answer->nhits,
									&answer->hits[answer->nhits - 1],
									answer->targets[answer->nhits - 1]);
}

/*
 * Let those queries that are not complete begin again, and all others be
 * done.  skips[] has those that never want rows.  True if there are any.
 */
static bool
begin_again(const MirrorPartitions *partitions, const MirrorSearch *search, const bool *skips,
			SearchAnswer *answers)
{
	bool		any = false;

	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];

		query->skip = skips[i] || is_complete(partitions, search, i, &answers[i]);
		if (query->skip)
			continue;
		query->has_above = false;
		answers[i].nhits = 0;
		any = true;
	}
	return any;
}

/*
 * Search several targets for some queries: by one request if possible.  What
 * that does not tell is asked for by a larger one, then target by target.
 */
static void
search_together(MirrorTarget *targets, int ntargets, MirrorSearch *search, SearchAnswer *answers)
{
	bool	   *skips = palloc_array(bool, Max(search->nqueries, 1));
	bool		more = true;

	for (uint32 i = 0; i < search->nqueries; i++)
		skips[i] = search->queries[i].skip;
	for (int attempt = 0; more; attempt++)
	{
		MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec search",
													  ALLOCSET_DEFAULT_SIZES);
		MirrorPartitions *partitions = NULL;
		bool		stays;

		if (attempt < PARTITIONS_ATTEMPTS && search->among == NULL && any_wants_rows(search))
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			search->context = context;
			partitions = MirrorPartitionsSearch(targets, ntargets, search, attempt == 0 ? 1 : PARTITIONS_GROWTH);
			MemoryContextSwitchTo(old);
		}
		stays = search_several(targets, ntargets, search, partitions, answers);
		more = partitions != NULL && begin_again(partitions, search, skips, answers);
		if (partitions)
			MirrorPartitionsEnd(partitions);
		if (!stays)
			MemoryContextDelete(context);
	}
	pfree(skips);
}

/* Search one target: its answers are what it finds, in the current context */
static void
search_alone(MirrorTarget *target, MirrorSearch *search, SearchAnswer *answers)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec search",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	search->context = old;
	search_next(target, 0, search, NULL);
	MemoryContextSwitchTo(old);
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		answers[i].hits = search->queries[i].hits;
		answers[i].nhits = search->queries[i].nhits;
	}
	MemoryContextDelete(context);
}

/*
 * Fail if an answer has a row that the measure refuses: the snapshot sees it.
 * Such a row comes first.
 */
static void
check_not_refused(const MirrorSearch *search, const SearchAnswer *answers)
{
	for (uint32 i = 0; search->scoring.sparse && i < search->nqueries; i++)
		if (answers[i].nhits > 0 && isinf(answers[i].hits[0].score))
			idvec_report_negative();
}

/*
 * Search all targets, which are in ascending order of oid.  Sets answers[i]
 * to the k best rows of all targets for query i, in the order (score
 * descending, oid, tid).  The answers live in the current memory context.
 */
void
SearchRun(MirrorTarget *targets, int ntargets, MirrorSearch *search, SearchAnswer *answers)
{
	uint32		last;

	memset(answers, 0, search->nqueries * sizeof(SearchAnswer));
	if (ntargets == 1)
		search_alone(targets, search, answers);
	for (uint32 first = 0; ntargets > 1 && first < search->nqueries; first = last)
	{
		MirrorSearch some = *search;

		last = MirrorPartitionsGroup(search, first);
		some.queries += first;
		some.nqueries = last - first;
		search_together(targets, ntargets, &some, answers + first);
	}
	check_not_refused(search, answers);
}
