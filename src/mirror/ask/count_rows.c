/*-------------------------------------------------------------------------
 *
 * count_rows.c
 *	  Counts the rows that a query finds, without looking at most of them.
 *
 * The engine counts those of pages all of whose rows everybody sees, as
 * visible_pages.c proves.  It returns the others, whose HOT chains are
 * fetched.  All of this is one request: another one might find another mirror.
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

/* Count the rows of which only the roots are known that the snapshot sees */
static uint64
count_fetched(MirrorTarget *target, const MirrorSearch *search)
{
	const MirrorPages *pages = &search->queries[0].pages;
	MirrorVisibility *visibility;
	uint64	   *roots;
	uint64		n;

	if (pages->data == NULL)
		return 0;
	roots = MemoryContextAllocHuge(CurrentMemoryContext, pages->nrows * sizeof(uint64));
	MirrorPagesTids(pages, roots);
	visibility = MirrorVisibilityBegin(target, search->snapshot);
	n = MirrorCountVisible(visibility, roots, pages->nrows);
	MirrorVisibilityEnd(visibility);
	pfree(roots);
	return n;
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
	FeedRead(target, &need);
	return need.feed != 0;
}

bool
MirrorCountRows(MirrorTarget *target, MirrorSearch *search, uint64 *seen, uint64 *fetched,
				const char **reason)
{
	MemoryContext context;
	MemoryContext old;
	bool		ok = true;
	bool		counted = false;

	*reason = NULL;
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
			*seen = search->queries[0].counted;
			*fetched = count_fetched(target, search);
		}
	}
	search->counts = NULL;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return counted;
}
