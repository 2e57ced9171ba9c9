/*-------------------------------------------------------------------------
 *
 * count_rows.c
 *	  Counts the rows that a query finds, without looking at most of them.
 *
 * The engine counts those of pages all of whose rows everybody sees, as
 * visible_pages.c proves, and puts them into groups if that is asked.  It
 * returns the others, whose HOT chains are fetched.  All of this is one
 * request: another one might find another mirror.
 *
 * If a page was changed meanwhile, so that the proof does not hold, the rows
 * are counted again.  Beside writers that change many pages, none of a few
 * attempts may succeed.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "link/engine_link.h"
#include "mirror/ask/visible_pages.h"
#include "mirror/feed/feed.h"
#include "utils/memutils.h"

#define COUNT_ATTEMPTS	4

/* The rows of which only the roots are known, allocated in `context` */
static uint64 *
read_roots(const MirrorSearch *search, MemoryContext context)
{
	const MirrorPages *pages = &search->queries[0].pages;
	uint64	   *roots;

	if (pages->data == NULL)
		return NULL;
	roots = MemoryContextAllocHuge(context, pages->nrows * sizeof(uint64));
	MirrorPagesTids(pages, roots);
	return roots;
}

/* Count those of these rows that the snapshot sees */
static uint64
count_fetched(MirrorTarget *target, const MirrorSearch *search)
{
	uint64	   *roots = read_roots(search, CurrentMemoryContext);
	MirrorVisibility *visibility;
	uint64		n;

	if (roots == NULL)
		return 0;
	visibility = MirrorVisibilityBegin(target, search->snapshot);
	n = MirrorCountVisible(visibility, roots, search->queries[0].pages.nrows);
	MirrorVisibilityEnd(visibility);
	pfree(roots);
	return n;
}

/*
 * Take the groups or pairs, and the rows that are in none, to `context`.  One
 * query is a pair of its own.
 */
static void
take_groups(const MirrorSearch *search, MemoryContext context, MirrorCount *count)
{
	const MirrorQuery *query = &search->queries[0];
	Size		bytes = query->ngroups * sizeof(uint64);

	if (search->grouping != NULL)
		bytes *= gpuvec_group_words(search->grouping);
	if (search->overlaps && search->nqueries == 1)
	{
		count->groups = MemoryContextAlloc(context, sizeof(uint64));
		count->groups[0] = count->seen;
	}
	else if (bytes > 0)
	{
		count->groups = MemoryContextAllocHuge(context, bytes);
		memcpy(count->groups, query->groups, bytes);
	}
	count->ngroups = query->ngroups;
	count->roots = read_roots(search, context);
	count->nroots = count->roots != NULL ? query->pages.nrows : 0;
}

/*
 * True if the mirror follows a feed, or will.  Feeds are in shared memory,
 * which is there once an engine is.
 */
static bool
has_feed(const MirrorTarget *target, const char **reason)
{
	gpuvec_freshness need = {0};

	if (target->mode != MIRROR_SHARED || !target->key.rooted || !target->fed ||
		GpuvecLinkOpen(true, reason) != GPUVEC_LINK_READY)
		return false;
	/* it is there, so whatever else is missing is no reason to warn */
	*reason = NULL;
	FeedRead(target, &need);
	return need.feed != 0;
}

bool
MirrorEstimateRows(MirrorTarget *target, MirrorSearch *search, MirrorCount *count,
				   const char **reason)
{
	MirrorVisiblePages pages = {.all = true};
	bool		counted;

	*reason = NULL;
	memset(count, 0, sizeof(*count));
	if (target->mode != MIRROR_SHARED || !target->key.rooted)
		return false;
	search->counts = &pages;
	counted = MirrorTopK(target, search, reason) && search->queries[0].counted != GPUVEC_NOT_COUNTED;
	search->counts = NULL;
	if (counted)
	{
		count->seen = search->queries[0].counted;
		take_groups(search, CurrentMemoryContext, count);
	}
	VisiblePagesFree(&pages);
	return counted;
}

bool
MirrorCountRows(MirrorTarget *target, MirrorSearch *search, MirrorCount *count,
				const char **reason)
{
	MemoryContext context;
	MemoryContext old;
	bool		ok = true;
	bool		counted = false;

	*reason = NULL;
	memset(count, 0, sizeof(*count));
	if (IsolationIsSerializable() || !has_feed(target, reason))
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec count", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	search->context = context;
	for (int attempt = 0; attempt < COUNT_ATTEMPTS && ok && !counted; attempt++)
	{
		MirrorVisiblePages pages = {0};

		MemoryContextReset(context);
		search->counts = &pages;
		ok = MirrorTopK(target, search, reason) && search->queries[0].counted != GPUVEC_NOT_COUNTED;
		GPUVEC_INJECTION("count-answered");
		counted = ok && VisiblePagesHold(&pages, target);
		if (counted)
		{
			count->seen = search->queries[0].counted;
			if (search->grouping != NULL || search->overlaps)
				take_groups(search, old, count);
			else
				count->fetched = count_fetched(target, search);
		}
	}
	search->counts = NULL;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return counted;
}
