/*-------------------------------------------------------------------------
 *
 * refresh.c
 *	  Keeps a mirror fresh: reads the changed pages again.
 *
 * A mirror is fresh for a snapshot if it holds every change that the snapshot
 * can see.  Each heap change reserves its WAL record before its transaction
 * commits.  So the WAL insert position, read after the snapshot was taken, is
 * beyond every such record.  The engine remembers the position up to which a
 * mirror was checked.  If that is not behind ours, nothing has to be done.
 * Otherwise the changed pages (stale_pages.c) are read again.
 *
 * The order of steps makes it exact:
 *
 *	 1. the snapshot is taken; WAL may be read ahead;
 *	 2. the position P is read, then the last number of the mirror's feed,
 *		then the WAL up to P or beyond;
 *	 3. the number of blocks is read, then pages and their LSNs, each under
 *		the page's share lock: a change under way holds the exclusive lock, so
 *		we wait for it;
 *	 4. the engine publishes all pages in one step, with checked = P.
 *
 * The number comes behind P because of records that the mirror gets later,
 * without their pages.  A page may be newer than such a record: the record's
 * line pointer was gone and has another row since.  Then the record would
 * bring the older row back.  If the newer row is from before P, the record
 * was handed over before the number was read, and is not applied.  So all
 * changes up to P stay.  The engine keeps no feed if a refresh names none.
 *
 * Its steps are in refresh_turn.c (who makes it), refresh_rows.c (rows that an
 * index has handed over) and refresh_pages.c (pages that are read).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/engine_link.h"
#include "link/quiet.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/refreshing.h"
#include "mirror/feed/feed.h"
#include "mirror/fresh/refresh_steps.h"
#include "mirror/fresh/stale_pages.h"
#include "mirror/pages/page_stream.h"
#include "storage/bufmgr.h"
#include "storage/condition_variable.h"
#include "storage/proc.h"

/*
 * Attempts with a list of pages.  Rows that keep coming may change the mirror
 * each time before the list is made.  LSNs can be compared whatever its state
 * is.
 */
#define LISTED_ATTEMPTS		10

/*
 * An attempt to load or refresh the mirror, which began at `began`, has
 * failed.  If the engine refused the attempt, and not the `request` that was
 * sent meanwhile (0: none), no session has to try again soon.
 */
static void
note_failure(const MirrorTarget *target, int64 began, uint64 request)
{
	const GpuvecRefusal *refusal = GpuvecLinkRefusal();

	if (refusal != NULL && (request == 0 || refusal->request != request))
		MirrorNoteRefusal(target, began);
}

/* Called by GpuvecQuietly() */
static bool
work_quietly(void *arg)
{
	MirrorRefresh *refresh = arg;

	/* do not wait for others if the attempt will be refused */
	if (MirrorMayTry(refresh->target, &refresh->claim))
		RefreshTakeTurn(refresh);
	else
		refresh->failed = true;
	return refresh->work(refresh, refresh->arg);
}

/*
 * An error has cut off the work.  The lock and the engine must not have to
 * wait until its transaction is aborted: the client gets the error first.
 */
static void
release(void *arg)
{
	MirrorRefresh *refresh = arg;

	/* as an abort does before it releases locks */
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	LockErrorCleanup();
	GpuvecLinkAbandon();
	RefreshUnlock(refresh);
	RefreshingGiveUp();
}

bool
MirrorRefreshDo(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				const gpuvec_state *known, bool (*work) (MirrorRefresh *refresh, void *arg),
				void *arg)
{
	MirrorRefresh *refresh = palloc0(sizeof(MirrorRefresh));
	bool		ok;

	refresh->target = target;
	refresh->snapshot = snapshot;
	refresh->need = need;
	refresh->ours = *need;
	refresh->known = known;
	refresh->work = work;
	refresh->arg = arg;
	ok = GpuvecQuietly(work_quietly, release, refresh);
	pfree(refresh);
	return ok;
}

void
MirrorRefreshEnd(MirrorRefresh *refresh, uint64 request)
{
	const MirrorTarget *target = refresh->target;

	if (refresh->refused)
		note_failure(target, refresh->began, request);
	RefreshDropPages(refresh);
	if (refresh->done)
	{
		RefreshingNoteState(&target->key, &refresh->state);
		FeedNoteState(&refresh->state);
	}
	RefreshUnlock(refresh);
	RefreshingEnd();
	if (refresh->done && refresh->claim != 0)
		CostsForgetRefusal(&target->key);
}

/*
 * Bring the mirror, which is READY, up to date: by rows of its feed, or by
 * the pages that were changed since it was checked.  If these are listed and
 * few, sets *few: the caller reads them.  Otherwise reads and publishes them.
 */
static bool
refresh_ready(MirrorRefresh *refresh, bool *few)
{
	MirrorTarget *target = refresh->target;
	StalePages *stale = &refresh->stale;
	bool		done;

	if (!RefreshBringRows(refresh, &done))
		return false;
	if (done)
		return true;
	refresh->block = 0;
	refresh->position = StalePagesFind(target, RefreshFeedSuffices(refresh) ? &refresh->ours : NULL,
									   &refresh->state, stale) ? refresh->ours.position : 0;
	if (refresh->attempts > LISTED_ATTEMPTS)
		stale->listed = false;
	stale->nblocks = RelationGetNumberOfBlocks(target->rel);
	stale->nknown = refresh->state.nblocks;
	*few = StalePagesFew(stale);
	if (!*few)
		return RefreshReadMany(refresh);
	refresh->chunk.key = target->key;
	refresh->chunk.known = refresh->state.refresh;
	PageStreamBegin(&refresh->stream, &refresh->chunk);
	return true;
}

/* Find the mirror's state; at the first call it may be known */
static bool
find_state(MirrorRefresh *refresh)
{
	const gpuvec_state *known = refresh->known;

	refresh->known = NULL;
	if (known == NULL || known->state != GPUVEC_READY)
		return MirrorState(&refresh->target->key, &refresh->state);
	refresh->state = *known;
	return true;
}

/*
 * Read the position that the mirror will be checked to, and behind it the
 * number of its feed, whether or not we need that
 */
static void
read_positions(MirrorRefresh *refresh)
{
	gpuvec_freshness *ours = &refresh->ours;

	memset(ours, 0, sizeof(*ours));
	ours->position = MirrorPosition();
	GPUVEC_INJECTION("refresh-before-number");
	if (refresh->target->fed)
		FeedRead(refresh->target, ours);
}

/* Load or refresh once.  *few: the caller has to read and publish pages. */
static bool
attempt(MirrorRefresh *refresh, bool *few)
{
	gpuvec_state *state = &refresh->state;
	bool		ok = true;

	*few = false;
	RefreshDropPages(refresh);
	if (state->state == GPUVEC_READY)
		StalePagesReadAhead(refresh->target, state, &refresh->stale);
	read_positions(refresh);
	RefreshingAnnounce(&refresh->ours);
	if (state->state == GPUVEC_READY)
		ok = refresh_ready(refresh, few);
	else if (state->state == GPUVEC_ABSENT)
		ok = MirrorLoad(refresh->target, refresh->snapshot, &refresh->ours, state);
	return ok || RefreshFail(refresh);
}

MirrorRefreshStep
MirrorRefreshNext(MirrorRefresh *refresh)
{
	gpuvec_state *state = &refresh->state;

	if (refresh->covered)
	{
		*state = refresh->later;
		return MIRROR_REFRESH_FRESH;
	}
	refresh->done = false;
	while (!refresh->failed)
	{
		bool		again = refresh->attempts++ > 0;
		bool		few;

		if (again && state->state == GPUVEC_LOADING &&
			!RefreshNapBusy(refresh, refresh->attempts - 2))
			break;
		/* an attempt may have made the mirror fresh enough */
		if (!(again && gpuvec_fresh(state, refresh->need)) && !find_state(refresh))
			break;
		refresh->done = gpuvec_fresh(state, refresh->need);
		if (refresh->done)
			return MIRROR_REFRESH_FRESH;
		if (!MirrorMayTry(refresh->target, &refresh->claim))
			break;
		if (attempt(refresh, &few) && few)
			return MIRROR_REFRESH_READ;
	}
	refresh->failed = true;
	return MIRROR_REFRESH_FAILED;
}

/* Load or refresh in all steps; `arg`: the state to set */
static bool
ensure(MirrorRefresh *refresh, void *arg)
{
	gpuvec_state *state = arg;
	MirrorRefreshStep step;

	while ((step = MirrorRefreshNext(refresh)) == MIRROR_REFRESH_READ)
		(void) (MirrorRefreshPages(refresh) && MirrorRefreshPublish(refresh) &&
				MirrorRefreshAnswer(refresh));
	*state = refresh->state;
	MirrorRefreshEnd(refresh, 0);
	return step == MIRROR_REFRESH_FRESH;
}

bool
MirrorEnsure(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
			 const gpuvec_state *known, gpuvec_state *state)
{
	return MirrorRefreshDo(target, snapshot, need, known, ensure, state);
}

bool
MirrorLoadPrivate(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				  gpuvec_state *state)
{
	int64		began = gpuvec_clock_us();
	int64		claim = 0;
	bool		ok;

	if (!MirrorMayTry(target, &claim))
		return false;
	ok = MirrorLoad(target, snapshot, need, state);
	if (!ok)
		note_failure(target, began, 0);
	else if (claim != 0)
		CostsForgetRefusal(&target->key);
	return ok;
}
