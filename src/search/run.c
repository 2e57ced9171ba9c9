/*-------------------------------------------------------------------------
 *
 * run.c
 *	  Searching all relations of a call and merging the answers.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/link.h"
#include "miscadmin.h"
#include "search/search.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/*
 * A table that has no shared mirror is loaded into the engine for one call only
 * if pages times queries are more than this; below, a scan here is quicker.
 */
#define PRIVATE_MIN_WORK	2000

/* What can be done about a refusal */
static const char *
refusal_hint(const GpuvecRefusal *refusal)
{
	if (refusal->hint[0] != '\0')
		return refusal->hint;
	if (refusal->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
		return "Check gpuvec.device_memory, and what memory is left.";
	return "See the server log for messages of the gpuvec engine.";
}

/* Say once per session that the engine cannot do something */
static void
warn_refusal(const GpuvecRefusal *refusal)
{
	static bool warned = false;

	if (warned)
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("gpuvec searches without its engine"),
			 errdetail("The engine cannot serve this: %s.%s%s", refusal->message,
					   refusal->detail[0] ? " " : "", refusal->detail),
			 errhint("Answers are the same but slow. %s", refusal_hint(refusal))));
}

/* Say once per session that there is no engine, or that it refuses */
void
SearchWarnNoEngine(const char *reason)
{
	static bool warned = false;

	if (GpuvecLinkRefusal() != NULL)
	{
		warn_refusal(GpuvecLinkRefusal());
		return;
	}
	if (warned)
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("gpuvec searches without its engine"),
			 errdetail("The engine cannot be used: %s.", reason),
			 errhint("Answers are the same but slow. See the server log for messages of the gpuvec engine.")));
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
		SearchWarnNoEngine(reason);
	}
	LocalTopK(target, search);
}

/* Merge a query's hits of one more relation into its answer */
static void
merge_hits(SearchAnswer *answer, const MirrorQuery *query, int target, uint64 k)
{
	uint64		total = Min(answer->nhits + query->nhits, k);
	SearchAnswer merged;
	uint64		i = 0;
	uint64		j = 0;

	if (query->nhits == 0)
		return;
	merged.hits = MemoryContextAllocHuge(CurrentMemoryContext, total * sizeof(MirrorHit));
	merged.targets = MemoryContextAllocHuge(CurrentMemoryContext, total * sizeof(int));
	merged.nhits = total;
	for (uint64 n = 0; n < total; n++)
	{
		/* at equal scores the earlier relation comes first, whatever the tids */
		bool		earlier = i < answer->nhits &&
			(j >= query->nhits || answer->hits[i].score >= query->hits[j].score);

		merged.targets[n] = earlier ? answer->targets[i] : target;
		merged.hits[n] = earlier ? answer->hits[i++] : query->hits[j++];
	}
	if (answer->nhits > 0)
	{
		pfree(answer->hits);
		pfree(answer->targets);
	}
	*answer = merged;
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
		search_target(&targets[t], search);
		MemoryContextSwitchTo(old);
		for (uint32 i = 0; i < search->nqueries; i++)
		{
			if (ntargets > 1)
				merge_hits(&answers[i], &search->queries[i], t, search->k);
			else
				answers[i] = (SearchAnswer) {
					.hits = search->queries[i].hits,.nhits = search->queries[i].nhits
				};
		}
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
}
