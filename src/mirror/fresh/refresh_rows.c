/*-------------------------------------------------------------------------
 *
 * refresh_rows.c
 *	  Brings a mirror up to date by rows that an index has handed over.
 *
 * If an index has handed over all rows that the mirror lacks, they are sent,
 * and no page is read (feed.c).  Usually the feeder (feeder.c) sends them, and
 * a refresh only waits for that.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/engine_link.h"
#include "mirror/feed/feed.h"
#include "mirror/fresh/refresh_steps.h"

/*
 * How often to look whether the feeder's rows have been applied, and how long
 * to wait for those that it is about to send
 */
#define ROWS_NAP_MS			2
#define COMING_PATIENCE_MS	20

bool
MirrorSendRows(const gpuvec_mirror_key *key, uint64 feed, const FeedRows *rows,
			   bool keep, gpuvec_state *state)
{
	gpuvec_rows head = {
		.key = *key, .feed = feed, .from = rows->from, .to = rows->to, .keep = keep
	};
	GpuvecPiece pieces[2] = {{&head, sizeof(head)}, {rows->data, rows->bytes}};
	GpuvecReply reply;

	if (!GpuvecLinkCall(GPUVEC_MSG_ROWS, pieces, 2, GPUVEC_MSG_STATE, sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}

/*
 * Send the rows of the feed that the mirror lacks.  *sent is false if they
 * are not all at hand, or if the engine does not take them: pages have to be
 * read.
 */
static bool
refresh_rows(MirrorRefresh *refresh, bool *sent)
{
	const gpuvec_freshness *need = &refresh->ours;
	gpuvec_state *state = &refresh->state;
	FeedRows	rows;
	bool		ok;

	*sent = RefreshFeedSuffices(refresh) && need->feed == state->feed &&
		state->applied < need->applied &&
		FeedCopyRows(need->feed, state->applied, need->applied, MaxAllocSize, &rows);
	if (!*sent)
		return true;
	ok = MirrorSendRows(&refresh->target->key, need->feed, &rows, false, state);
	*sent = state->state != GPUVEC_READY || state->feed != need->feed ||
		state->applied != rows.from;
	pfree(rows.data);
	return ok;
}

/* How long it pays to wait for the feeder's rows, before reading pages */
static int
patience_ms(FeedPace pace)
{
	switch (pace)
	{
		case FEED_COMING:
			return COMING_PATIENCE_MS;
		case FEED_CATCHING_UP:
			return FEED_KEPT_PATIENCE_MS;
		case FEED_STUCK:
			break;
	}
	return 0;
}

/*
 * Bring the mirror up to date by rows of its feed: send them, or wait for
 * those that the feeder has sent.  Pages that are read while rows are applied
 * only hold them up: they take longer, and those who wait for them find the
 * mirror behind again.  *done is false if pages have to be read.
 */
bool
RefreshBringRows(MirrorRefresh *refresh, bool *done)
{
	const gpuvec_freshness *need = refresh->need;
	gpuvec_state *state = &refresh->state;

	for (int ms = 0;; ms += ROWS_NAP_MS)
	{
		if (!refresh_rows(refresh, done))
			return false;
		if (*done || !RefreshFeedSuffices(refresh) || need->feed != state->feed ||
			ms >= patience_ms(FeedComing(need->feed)))
			return true;
		/* what is known of the mirror may be out of date */
		if (ms > 0)
			MirrorNap(ROWS_NAP_MS, GPUVEC_WAIT_REFRESH);
		if (!MirrorState(&refresh->target->key, state))
			return false;
		FeedNoteState(state);
		*done = state->state != GPUVEC_READY || gpuvec_fresh(state, need);
		if (*done)
			return true;
	}
}
