/*-------------------------------------------------------------------------
 *
 * refresh_pages.c
 *	  Reads changed pages again, and publishes them.
 *
 * WAL records tell more than which pages to read (wal_lines.c): which line
 * pointers of them, and often what these have.  What refresh.c says of pages
 * holds for line pointers.  One that is read is read after the WAL up to P
 * was, and all that changes it later is beyond P.  The row of one that is not
 * read is that of the last record up to P.
 *
 * A search has a request for the engine while pages are read.  The request
 * may be sent ahead of the refresh, or together with its end.  So a refresh
 * of a few pages is driven in steps by its caller (conversation.c), who asks
 * for the pages one by one, and sends the request where it suits.  This file
 * knows only that a request may be under way.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "link/engine_link.h"
#include "mirror/describe/placement.h"
#include "mirror/describe/refreshing.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/refresh_steps.h"
#include "mirror/fresh/stale_pages.h"
#include "mirror/pages/page_stream.h"
#include "storage/bufmgr.h"

/* The mirror of the refresh whose answer was left (MirrorRefreshLeave()) */
static gpuvec_mirror_key late_key;

/* Free what the refresh of a few pages has allocated */
void
RefreshDropPages(MirrorRefresh *refresh)
{
	if (refresh->reader)
		PageReaderEnd(refresh->reader);
	refresh->reader = NULL;
	if (refresh->stream.out.data)
		pfree(refresh->stream.out.data);
	refresh->stream.out.data = NULL;
	StalePagesFree(&refresh->stale);
}

/* Sends the pages that were read before, once they fill a frame */
const char *
MirrorRefreshPage(MirrorRefresh *refresh)
{
	StringInfo	out = &refresh->stream.out;
	const ChangedLine *lines;
	uint32		nlines;
	int			start;

	if (refresh->failed || refresh->block == InvalidBlockNumber)
		return NULL;
	if (refresh->reader == NULL)
	{
		/* a chunk without pages wakes the engine up */
		if (refresh->stream.chunk && !refresh->yields && !PageStreamSend(&refresh->stream, true))
		{
			(void) RefreshFail(refresh);
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
		(void) RefreshFail(refresh);
		return NULL;
	}
	start = out->len;
	if (StalePagesLines(&refresh->stale, refresh->block, &lines, &nlines))
		PageReaderReadLines(refresh->reader, refresh->block, &refresh->stale.lines, lines, nlines,
							out);
	else
		PageReaderRead(refresh->reader, refresh->block, out);
	refresh->block++;
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
 * True if a request may go ahead, so that the engine works on it while we
 * read.  The refresh is then published after the caller has left.  That must
 * not hold up others, so it is not for the processes of a parallel query,
 * which do not wait for the lock, nor for a session whose lock another one is
 * waiting for.
 */
bool
MirrorRefreshYields(MirrorRefresh *refresh)
{
	if (IsInParallelMode() || RefreshingCrowded() || RefreshSomebodyWaits(refresh))
		return false;
	PageStreamLarge(&refresh->stream);
	refresh->yields = true;
	return true;
}

bool
MirrorRefreshPublish(MirrorRefresh *refresh)
{
	const gpuvec_freshness *ours = &refresh->ours;
	gpuvec_refresh_once head = {.key = refresh->chunk.key, .known = refresh->chunk.known};
	StringInfo	out = &refresh->stream.out;
	GpuvecPiece pieces[2] = {{&head, sizeof(head)}, {out->data, out->len}};

	if (refresh->failed)
		return false;
	head.commit.position = refresh->position;
	head.commit.feed = ours->feed;
	head.commit.applied = ours->applied;
	head.commit.nblocks = refresh->stale.nblocks;
	GPUVEC_INJECTION("refresh-before-commit");
	refresh->number = GpuvecLinkBegin(GPUVEC_MSG_REFRESH, pieces, 2);
	return refresh->number != 0 || RefreshFail(refresh);
}

bool
MirrorRefreshAnswer(MirrorRefresh *refresh)
{
	GpuvecReply reply;

	if (!GpuvecLinkAnswer(refresh->number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), &reply))
		return RefreshFail(refresh);
	memcpy(&refresh->state, reply.data, sizeof(gpuvec_state));
	pfree(reply.data);
	refresh->done = true;
	return true;
}

/*
 * Take the answer to a refresh that was left.  If the engine let another
 * session's refresh come first, the answer does not tell the mirror's state.
 */
static bool
take_late_state(char *data, uint32 length)
{
	gpuvec_state state;

	memcpy(&state, data, sizeof(state));
	if (state.state == GPUVEC_READY)
		MirrorRemember(&late_key, &state);
	else
		MirrorForget(&late_key);
	return false;
}

/* Leaves the answer for later, unless others wait for the mirror's lock */
bool
MirrorRefreshLeave(MirrorRefresh *refresh)
{
	late_key = refresh->target->key;
	GpuvecLinkLeave(refresh->number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), take_late_state);
	return !RefreshSomebodyWaits(refresh) || GpuvecLinkSettle() || RefreshFail(refresh);
}

BlockNumber
MirrorRefreshBlocks(const MirrorRefresh *refresh)
{
	return refresh->stale.nblocks;
}

/*
 * Begin a refresh of a mirror that is in *state.  `lsns`: the answer has the
 * remembered LSNs of all pages.  Sets *state to the mirror's current state.
 * *begun is false if another session's load or refresh is unfinished (state
 * LOADING), if the mirror is gone, or, without `lsns`, if another refresh has
 * changed it.
 */
static bool
begin_refresh(MirrorTarget *target, bool lsns, gpuvec_state *state, GpuvecReply *reply,
			  bool *begun)
{
	gpuvec_refresh request = {
		.key = target->key, .lsns = lsns, .placement = MirrorPlacement(target),
		.known = state->refresh
	};
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
bool
RefreshReadMany(MirrorRefresh *refresh)
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
	/* count again: the mirror may know pages that came later */
	stale->nblocks = RelationGetNumberOfBlocks(target->rel);
	PageStreamBegin(&refresh->stream, NULL);
	ok = MirrorRefreshPages(refresh) && PageStreamSend(&refresh->stream, true);
	pfree(reply.data);
	if (ok)
		GPUVEC_INJECTION("refresh-before-commit");
	return ok && PageStreamCommit(refresh->position, &refresh->ours, stale->nblocks,
								  &refresh->state);
}
