/*-------------------------------------------------------------------------
 *
 * search_mirror.c
 *	  Searches a column of sets through its mirror.
 *
 * A search is a conversation (conversation.c) of as many requests as it takes
 * until each query has its k visible rows.  search_request.c makes the
 * requests; candidates.c decides which hits count.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/candidates.h"
#include "mirror/ask/search_request.h"
#include "mirror/ask/visible_pages.h"

/* How the number of rows to ask for grows, if there is no k */
#define ALL_ROWS_GROWTH		4

/* Note what an answer says of a query's filter */
static void
note_passed(MirrorQuery *query, uint64 passed)
{
	bool		disjoint = (passed & GPUVEC_DISJOINT_TOO) != 0;

	query->passed = passed & ~GPUVEC_DISJOINT_TOO;
	query->lost_disjoint |= query->has_disjoint && !disjoint;
	query->has_disjoint = disjoint;
}

/* Take what the engine has counted, and its groups */
static void
take_counted(MirrorSearch *search, MirrorQuery *query, const MirrorSearchAnswer *answer)
{
	Size		bytes = search->grouping == NULL ? 0 :
		gpuvec_group_words(search->grouping) * sizeof(uint64);

	if (answer->head.group_bytes > 0 && (bytes == 0 || answer->head.group_bytes % bytes != 0))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	search->counts->state = answer->head.state;
	query->counted = answer->head.counted;
	query->groups = answer->groups;
	query->ngroups = bytes == 0 ? 0 : answer->head.group_bytes / bytes;
	query->done = query->counted == GPUVEC_NOT_COUNTED;
}

/*
 * Take the rows of all pairs of several queries.  The rows that were not
 * counted are those of the first query; they stay in the answer.
 */
static void
take_overlaps(MirrorSearch *search, const MirrorSearchRequest *request,
			  const MirrorSearchAnswer *answer, MirrorVisibility *visibility)
{
	MirrorQuery *first = request->whose[0];
	bool		counted = answer->head.counted != GPUVEC_NOT_COUNTED;
	uint64		npairs = counted ? gpuvec_overlap_pairs(request->n) : 0;

	if (answer->head.group_bytes != npairs * sizeof(uint64) ||
		(answer->head.nhits > 0) != (answer->head.page_bytes > 0))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	search->counts->state = answer->head.state;
	first->counted = answer->head.counted;
	first->groups = answer->groups;
	first->ngroups = npairs;
	if (answer->head.page_bytes > 0)
		MirrorTakePages(request, answer, search, visibility);
	for (uint32 i = 0; i < request->n; i++)
		request->whose[i]->done = true;
}

/*
 * Take an answer.  True if a query needs more rows.  Sets *keep if hits were
 * left in the answer.
 */
static bool
take_answer(const MirrorConversation *conversation, MirrorSearch *search,
			const MirrorSearchRequest *request, const MirrorSearchAnswer *answer, bool *keep)
{
	MirrorHit  *hits = answer->hits;
	uint64		left = answer->head.nhits;
	bool		more = false;

	if (answer->head.nqueries != request->n ||
		(request->head.filter_bytes > 0) != (answer->head.npassed > 0))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	if (search->overlaps && request->n > 1)
	{
		take_overlaps(search, request, answer, conversation->visibility);
		*keep = true;
		return false;
	}
	for (uint32 i = 0; i < request->n; i++)
	{
		MirrorQuery *query = request->whose[i];
		uint32		n = MirrorSearchAnswerHits(answer, i);

		if (n > left)
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		left -= n;
		note_passed(query, MirrorSearchAnswerPassed(answer, i));
		if (search->counts != NULL)
		{
			take_counted(search, query, answer);
			*keep = query->ngroups > 0;
			if (query->done)
				break;
		}
		if (answer->head.page_bytes > 0)
		{
			MirrorTakePages(request, answer, search, conversation->visibility);
			*keep = true;
			break;
		}
		MirrorTakeHits(conversation->target, search, query, conversation->visibility, hits, n,
					   MirrorRowsAsked(&request->queries[i], n));
		*keep |= query->hits == hits && n > 0;
		hits += n;
		more |= !query->done;
	}
	return more;
}

/* True if one of the queries [first, last) needs rows */
static bool
needs_rows(const MirrorSearch *search, uint32 first, uint32 last)
{
	for (uint32 i = first; i < last; i++)
		if (!search->queries[i].done)
			return true;
	return false;
}

/*
 * Search queries [first, last).  False: the connection was lost, or the
 * engine refused.
 */
static bool
search_group(MirrorConversation *conversation, MirrorSearch *search, uint32 first, uint32 last)
{
	uint32		page = MIRROR_FIRST_ALL_ROWS;
	bool		more = needs_rows(search, first, last);

	while (more)
	{
		MirrorSearchRequest request;
		MirrorSearchAnswer answer;
		bool		keep = false;

		if (!MirrorSearchAsk(conversation, search, first, last, page, &request, &answer))
			return false;
		GPUVEC_INJECTION("ask-before-fetch");
		more = take_answer(conversation, search, &request, &answer, &keep);
		if (!keep)
			pfree(answer.reply.data);
		pfree(request.queries);
		pfree(request.whose);
		pfree(request.questions);
		pfree(request.ids);
		if (request.filters)
			pfree(request.filters);
		if (request.values)
			pfree(request.values);
		page = Min(page * ALL_ROWS_GROWTH, GPUVEC_MAX_K);
	}
	return true;
}

/* Search all queries, in groups */
static bool
search_queries(MirrorConversation *conversation, MirrorSearch *search)
{
	uint64		rows = search->k == UINT64_MAX ? MIRROR_FIRST_ALL_ROWS :
		search->among ? Min(MirrorRowsToLookAt(search, search->k), GPUVEC_MAX_K) :
		Min(search->k, GPUVEC_MAX_K);
	uint32		last;
	bool		ok = true;

	for (uint32 first = 0; ok && first < search->nqueries; first = last)
	{
		last = search->overlaps ? search->nqueries : MirrorSearchGroup(search, first, rows);
		ok = search_group(conversation, search, first, last);
	}
	return ok;
}

void
MirrorSearchReset(MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];

		query->nhits = query->maxhits = 0;
		query->hits = NULL;
		query->pages.data = NULL;
		query->counted = 0;
		query->groups = NULL;
		query->ngroups = 0;
		query->abandoned = false;
		query->passed = GPUVEC_NOT_COUNTED;
		query->has_disjoint = query->lost_disjoint = false;
		query->done = query->skip;
		query->looked = 0;
		query->has_after = query->resumes;
		query->after_score = query->resume_score;
		query->after_tid = query->resume_tid;
	}
}

/*
 * If the engine dies meanwhile, the mirror is loaded into the next engine and
 * searched once more
 */
bool
MirrorTopK(MirrorTarget *target, MirrorSearch *search, const char **reason)
{
	MirrorConversation conversation = {0};

	conversation.target = target;
	conversation.snapshot = search->snapshot;
	conversation.roots = search->roots;
	conversation.queries = search->nqueries;
	conversation.counts = search->counts;
	/* a map saves nothing if no row is fetched, or every row */
	conversation.use_map = !search->roots && !gpuvec_verify;
	conversation.rows = (double) Min(search->k, MIRROR_FIRST_ALL_ROWS) * search->nqueries;

	while (MirrorConversationBegin(&conversation, reason))
	{
		MirrorSearchReset(search);
		if (MirrorConversationEnd(&conversation, search_queries(&conversation, search), reason))
			return true;
	}
	return false;
}
