/*-------------------------------------------------------------------------
 *
 * refresh.c
 *	  Keeping a mirror fresh: the pages that were changed.
 *
 * A mirror is fresh for a snapshot if it holds every change that the snapshot
 * can see.  Each heap change reserves its WAL record before its transaction
 * commits, so the WAL insert position, read after the snapshot was taken, is
 * beyond every such record.  The engine remembers the position up to which a
 * mirror was checked.  If that is not behind ours, nothing has to be done.
 * Otherwise the pages that were changed (stale_pages.c) are read again.
 *
 * The order of steps makes it right:
 *
 *	 1. the snapshot exists;
 *	 2. the position P is read, and the WAL up to it;
 *	 3. the number of blocks is read, then pages and their LSNs, each under
 *		its share lock: a change that is under way holds the exclusive lock,
 *		so we wait for it;
 *	 4. the engine publishes all pages in one step, with checked = P.
 *
 * One session at a time loads or refreshes a mirror, under a heavyweight lock
 * (so the deadlock detector sees who waits for whom).  A session that had to
 * wait uses the other's work only if that was checked to at least its own
 * position, which it read after its snapshot.  The processes of a parallel
 * query do not wait for each other's locks.  Then the engine, too, lets only
 * one at a time load or refresh, and says so to the others, who try again.
 *
 * A search has a request for the engine while pages are read: it may be sent
 * ahead of the refresh, or together with its end.  So a refresh of a few
 * pages is made in steps by whoever needs it (conversation.c), who asks for
 * the pages one by one and sends the request where it suits.  This file knows
 * nothing of requests, but that one may be under way.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "link/engine_link.h"
#include "mirror/facts.h"
#include "mirror/known.h"
#include "mirror/page_stream.h"
#include "mirror/refresh.h"
#include "mirror/stale_pages.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

/* The mirror of a refresh whose answer comes late */
static gpuvec_mirror_key late_key;

/* How often to try while others' unfinished work is in the way: 10 s */
#define BUSY_ATTEMPTS		500
#define BUSY_NAP_MS			20

struct MirrorRefresh
{
	MirrorTarget *target;
	Snapshot	snapshot;
	const gpuvec_freshness *need;
	const gpuvec_state *known;	/* to begin with, or NULL */
	gpuvec_state state;			/* what the mirror is, as far as we know */

	bool		locked;
	LOCKTAG		tag;
	TimestampTz began;			/* when we had the lock */
	TimestampTz claim;			/* of the right to try in spite of a refusal,
								 * or 0 */
	int			attempts;

	bool		failed;			/* the connection was lost, or the engine
								 * refused */
	bool		refused;		/* ... to load or refresh: that may concern
								 * others */
	bool		yields;			/* a request went ahead */
	bool		done;			/* the mirror is what was asked for */

	/* the refresh that is being made */
	XLogRecPtr	position;
	StalePages	stale;
	BlockNumber block;			/* the next one to look at; Invalid: all were */
	PageReader *reader;			/* NULL: before the first page and after the
								 * last */
	PageStream	stream;
	gpuvec_refresh_part part;
	uint64		number;			/* of the request that ends it */
};

/* The lock of whoever loads or refreshes a mirror */
static void
mirror_lock_tag(const gpuvec_mirror_key *key, LOCKTAG *tag)
{
	memset(tag, 0, sizeof(*tag));
	tag->locktag_field1 = key->database;
	tag->locktag_field2 = key->relation;
	tag->locktag_field3 = hash_bytes((const unsigned char *) key, sizeof(*key));
	tag->locktag_field4 = (uint16) key->attnum;
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

/* Does somebody wait for the mirror's lock, which we hold? */
static bool
somebody_waits(const MirrorRefresh *refresh)
{
	return LockHasWaiters(&refresh->tag, ExclusiveLock, false);
}

/* A step has failed; returns false */
static bool
fail(MirrorRefresh *refresh)
{
	refresh->failed = refresh->refused = true;
	return false;
}

/*
 * An attempt to load or refresh the mirror, which began then, has failed.  If
 * the engine refused it, and not the `request` that was sent meanwhile (0:
 * none), nobody has to try again soon.
 */
static void
note_failure(const MirrorTarget *target, TimestampTz began, uint64 request)
{
	const GpuvecRefusal *refusal = GpuvecLinkRefusal();

	if (refusal != NULL && (request == 0 || refusal->request != request))
		MirrorNoteRefusal(target, began);
}

/*
 * A session that was loading or refreshing may have gone without the engine's
 * knowing yet, or while the engine was publishing what it had sent: it holds
 * no lock any more, but its work is still there.  Wait for a moment, or as
 * long as it takes if it may be a process of the same parallel query.  False:
 * that was too long.
 */
static bool
busy_nap(const MirrorTarget *target, int attempt)
{
	if (attempt >= BUSY_ATTEMPTS && MyProc->lockGroupLeader == NULL)
	{
		MirrorRefuseBusy(target);
		return false;
	}
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 BUSY_NAP_MS, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

MirrorRefresh *
MirrorRefreshBegin(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				   const gpuvec_state *known)
{
	MirrorRefresh *refresh = palloc0(sizeof(MirrorRefresh));

	refresh->target = target;
	refresh->snapshot = snapshot;
	refresh->need = need;
	refresh->known = known;
	/* nobody waits for what will be refused */
	if (!MirrorMayTry(target, &refresh->claim))
	{
		refresh->failed = true;
		return refresh;
	}
	mirror_lock_tag(&target->key, &refresh->tag);
	if (LockAcquire(&refresh->tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		(void) LockAcquire(&refresh->tag, ExclusiveLock, false, false);
		refresh->known = NULL;	/* somebody has refreshed it */
	}
	refresh->locked = true;
	refresh->began = GetCurrentTimestamp();
	return refresh;
}

/* Free what the refresh of some pages has allocated */
static void
drop_pages(MirrorRefresh *refresh)
{
	if (refresh->reader)
		PageReaderEnd(refresh->reader);
	refresh->reader = NULL;
	if (refresh->stream.out.data)
		pfree(refresh->stream.out.data);
	refresh->stream.out.data = NULL;
	StalePagesFree(&refresh->stale);
}

void
MirrorRefreshEnd(MirrorRefresh *refresh, uint64 request)
{
	const MirrorTarget *target = refresh->target;

	if (refresh->refused)
		note_failure(target, refresh->began, request);
	drop_pages(refresh);
	if (refresh->locked)
		LockRelease(&refresh->tag, ExclusiveLock, false);
	if (refresh->done && refresh->claim != 0)
		FactsForgetRefusal(&target->key);
	pfree(refresh);
}

/* Pages that were read before are sent when they make a frame */
const char *
MirrorRefreshPage(MirrorRefresh *refresh)
{
	StringInfo	out = &refresh->stream.out;
	int			start;

	if (refresh->failed || refresh->block == InvalidBlockNumber)
		return NULL;
	if (refresh->reader == NULL)
	{
		/* a part without pages wakes the engine meanwhile */
		if (refresh->stream.part && !refresh->yields && !PageStreamSend(&refresh->stream, true))
		{
			(void) fail(refresh);
			return NULL;
		}
		refresh->reader = PageReaderBegin(refresh->target, refresh->snapshot);
	}
	refresh->block = StalePagesNext(&refresh->stale, refresh->reader, refresh->block);
	if (refresh->block == InvalidBlockNumber)
	{
		PageReaderEnd(refresh->reader);
		refresh->reader = NULL;
		return NULL;
	}
	if (!PageStreamSend(&refresh->stream, false))
	{
		(void) fail(refresh);
		return NULL;
	}
	start = out->len;
	PageReaderRead(refresh->reader, refresh->block++, out);
	return out->data + start;
}

bool
MirrorRefreshPages(MirrorRefresh *refresh)
{
	while (MirrorRefreshPage(refresh) != NULL)
		 /* it is in the stream */ ;
	return !refresh->failed;
}

/*
 * A request may go ahead, so that the engine works on it while we read.  That
 * leaves the refresh to be made when we are gone, so it is not for those who
 * would be in the way of others: the processes of a parallel query, who do
 * not wait for the lock, and whoever has somebody waiting for it already.
 */
bool
MirrorRefreshYields(MirrorRefresh *refresh)
{
	if (IsInParallelMode() || somebody_waits(refresh))
		return false;
	PageStreamLarge(&refresh->stream);
	refresh->yields = true;
	return true;
}

bool
MirrorRefreshPublish(MirrorRefresh *refresh)
{
	const gpuvec_freshness *need = refresh->need;
	gpuvec_refresh_once head = {.key = refresh->part.key, .known = refresh->part.known};
	StringInfo	out = &refresh->stream.out;
	GpuvecPiece pieces[2] = {{&head, sizeof(head)}, {out->data, out->len}};

	if (refresh->failed)
		return false;
	head.commit.position = refresh->position;
	head.commit.feed = need->feed;
	head.commit.applied = need->applied;
	head.commit.nblocks = refresh->stale.nblocks;
	GPUVEC_INJECTION("refresh-before-commit");
	refresh->number = GpuvecLinkBegin(GPUVEC_MSG_REFRESH, pieces, 2);
	return refresh->number != 0 || fail(refresh);
}

bool
MirrorRefreshAnswer(MirrorRefresh *refresh)
{
	GpuvecReply reply;

	if (!GpuvecLinkAnswer(refresh->number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), &reply))
		return fail(refresh);
	memcpy(&refresh->state, reply.data, sizeof(gpuvec_state));
	pfree(reply.data);
	refresh->done = true;
	return true;
}

/*
 * The answer to a refresh that came late.  If the engine let another
 * session's come first, it does not tell what the mirror is like.
 */
static void
take_late_state(const char *data)
{
	gpuvec_state state;

	memcpy(&state, data, sizeof(state));
	if (state.state == GPUVEC_READY)
		MirrorRemember(&late_key, &state);
	else
		MirrorForget(&late_key);
}

/* Nobody waits for the answer, unless others wait for the mirror's lock */
bool
MirrorRefreshLeave(MirrorRefresh *refresh)
{
	late_key = refresh->target->key;
	GpuvecLinkLeave(refresh->number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), take_late_state);
	return !somebody_waits(refresh) || GpuvecLinkSettle() || fail(refresh);
}

BlockNumber
MirrorRefreshBlocks(const MirrorRefresh *refresh)
{
	return refresh->stale.nblocks;
}

/*
 * Begin a refresh: with the remembered LSNs of all pages, or without, of a
 * mirror in this state.  Sets state to what the mirror is; *begun: has it
 * begun?  It has not if another session's load or refresh is unfinished (then
 * it is LOADING), or if the mirror is gone or another one made it what it is.
 */
static bool
begin_refresh(MirrorTarget *target, bool lsns, gpuvec_state *state, GpuvecReply *reply,
			  bool *begun)
{
	gpuvec_refresh request = {.key = target->key, .lsns = lsns, .known = state->refresh};
	GpuvecPiece piece = {&request, sizeof(request)};

	if (!GpuvecLinkCall(GPUVEC_MSG_REFRESH_BEGIN, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), reply))
		return false;
	memcpy(state, reply->data, sizeof(*state));
	*begun = state->state == GPUVEC_READY && (lsns || state->refresh == request.known);
	if (*begun)
	{
		if (reply->length != sizeof(*state) + (lsns ? (Size) state->nblocks * sizeof(uint64) : 0))
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		GpuvecLinkExpectMore();
	}
	return true;
}

/* Read many stale pages again, and publish them */
static bool
refresh_many(MirrorRefresh *refresh)
{
	MirrorTarget *target = refresh->target;
	StalePages *stale = &refresh->stale;
	GpuvecReply reply;
	bool		begun;
	bool		ok;

	if (!begin_refresh(target, !stale->listed, &refresh->state, &reply, &begun))
		return false;
	if (!begun)
	{
		pfree(reply.data);
		return true;
	}
	stale->lsns = reply.data + sizeof(gpuvec_state);
	stale->nknown = refresh->state.nblocks;
	/* the mirror may know pages that were not there when we counted */
	stale->nblocks = RelationGetNumberOfBlocks(target->rel);
	PageStreamBegin(&refresh->stream, NULL);
	ok = MirrorRefreshPages(refresh) && PageStreamSend(&refresh->stream, true);
	pfree(reply.data);
	if (ok)
		GPUVEC_INJECTION("refresh-before-commit");
	return ok && PageStreamCommit(refresh->position, refresh->need, stale->nblocks,
								  &refresh->state);
}

/*
 * Find out what was changed since the mirror, which is READY, was checked.
 * Few pages, which need not be asked about first, are for the caller to have
 * read (*few); others are read and published.
 */
static bool
refresh_ready(MirrorRefresh *refresh, bool *few)
{
	MirrorTarget *target = refresh->target;
	StalePages *stale = &refresh->stale;

	refresh->block = 0;
	refresh->position = StalePagesFind(target, refresh->need, &refresh->state, stale);
	stale->nblocks = RelationGetNumberOfBlocks(target->rel);
	stale->nknown = refresh->state.nblocks;
	*few = StalePagesFew(stale);
	if (!*few)
		return refresh_many(refresh);
	refresh->part.key = target->key;
	refresh->part.known = refresh->state.refresh;
	PageStreamBegin(&refresh->stream, &refresh->part);
	return true;
}

/* What is the mirror now?  First of all it may be known. */
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

/* Load or refresh once; *few: up to where the caller has to go on */
static bool
attempt(MirrorRefresh *refresh, bool *few)
{
	gpuvec_state *state = &refresh->state;
	bool		ok = true;

	*few = false;
	drop_pages(refresh);
	if (state->state == GPUVEC_READY)
		ok = refresh_ready(refresh, few);
	else if (state->state == GPUVEC_ABSENT)
		ok = MirrorLoad(refresh->target, refresh->snapshot, refresh->need, state);
	return ok || fail(refresh);
}

MirrorRefreshStep
MirrorRefreshNext(MirrorRefresh *refresh)
{
	gpuvec_state *state = &refresh->state;

	refresh->done = false;
	while (!refresh->failed)
	{
		bool		again = refresh->attempts++ > 0;
		bool		few;

		if (again && state->state == GPUVEC_LOADING &&
			!busy_nap(refresh->target, refresh->attempts - 2))
			break;
		/* what an attempt has made of the mirror may do */
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

bool
MirrorEnsure(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
			 const gpuvec_state *known, gpuvec_state *state)
{
	MirrorRefresh *refresh = MirrorRefreshBegin(target, snapshot, need, known);
	MirrorRefreshStep step;

	while ((step = MirrorRefreshNext(refresh)) == MIRROR_REFRESH_READ)
		(void) (MirrorRefreshPages(refresh) && MirrorRefreshPublish(refresh) &&
				MirrorRefreshAnswer(refresh));
	*state = refresh->state;
	MirrorRefreshEnd(refresh, 0);
	return step == MIRROR_REFRESH_FRESH;
}

bool
MirrorLoadPrivate(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				  gpuvec_state *state)
{
	TimestampTz began = GetCurrentTimestamp();
	TimestampTz claim = 0;
	bool		ok;

	if (!MirrorMayTry(target, &claim))
		return false;
	ok = MirrorLoad(target, snapshot, need, state);
	if (!ok)
		note_failure(target, began, 0);
	else if (claim != 0)
		FactsForgetRefusal(&target->key);
	return ok;
}
