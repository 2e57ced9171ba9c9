/*-------------------------------------------------------------------------
 *
 * refresh_steps.h
 *	  The steps of a refresh, for the files that make it up.
 *
 * Others include refresh.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_REFRESH_STEPS_H
#define GPUVEC_REFRESH_STEPS_H

#include "mirror/fresh/refresh.h"
#include "mirror/fresh/stale_pages.h"
#include "mirror/pages/page_stream.h"
#include "storage/lock.h"

struct MirrorRefresh
{
	MirrorTarget *target;
	Snapshot	snapshot;
	const gpuvec_freshness *need;
	gpuvec_freshness ours;		/* how fresh we make it: at least as `need` */
	const gpuvec_state *known;	/* the mirror's state at first, or NULL */
	gpuvec_state later;			/* what others have told since, or ABSENT */
	gpuvec_state state;			/* the mirror's state, as far as we know */

	/* what is done under the lock */
	bool		(*work) (MirrorRefresh *refresh, void *arg);
	void	   *arg;

	bool		covered;		/* another session's refresh is enough */
	bool		locked;
	LOCKTAG		tag;
	int64		began;			/* when the lock was taken */
	int64		claim;			/* of CostsMayTry(), or 0 */
	int			attempts;
	uint64		moves;			/* while another's work is in the way */

	bool		failed;			/* the connection was lost, or the engine
								 * refused */
	bool		refused;		/* a step failed; a refusal may concern other
								 * sessions */
	bool		yields;			/* a request was sent ahead */
	bool		done;			/* the mirror is as fresh as needed */

	/* the refresh under way */
	XLogRecPtr	position;
	StalePages	stale;
	BlockNumber block;			/* next block to look at; Invalid: none is
								 * left */
	PageReader *reader;			/* NULL before the first page and after the
								 * last */
	PageStream	stream;
	gpuvec_refresh_chunk chunk;
	uint64		number;			/* of the request that publishes the pages */
};

/* Note that a step has failed; returns false */
static inline bool
RefreshFail(MirrorRefresh *refresh)
{
	refresh->failed = refresh->refused = true;
	return false;
}

/*
 * True if what a feed has handed over makes the mirror as fresh as needed: it
 * is the caller's feed, and still that of the index
 */
static inline bool
RefreshFeedSuffices(const MirrorRefresh *refresh)
{
	return refresh->need->feed != 0 && refresh->need->feed == refresh->ours.feed;
}

/*
 * refresh_turn.c
 *
 * RefreshTakeTurn		waits until it is our turn to refresh the mirror, or
 *						another session's refresh is enough (`covered`)
 * RefreshUnlock		releases the mirror's lock, if we have it
 * RefreshSomebodyWaits	true if another session waits for the mirror's lock,
 *						or our refresh
 * RefreshNapBusy		waits for a moment while another session's work is in
 *						the way; false: gave up
 */
extern void RefreshTakeTurn(MirrorRefresh *refresh);
extern void RefreshUnlock(MirrorRefresh *refresh);
extern bool RefreshSomebodyWaits(const MirrorRefresh *refresh);
extern bool RefreshNapBusy(MirrorRefresh *refresh, int attempt);

/*
 * refresh_rows.c: brings the mirror up to date by rows of its feed.  *done is
 * false if pages have to be read.
 */
extern bool RefreshBringRows(MirrorRefresh *refresh, bool *done);

/*
 * refresh_pages.c
 *
 * RefreshReadMany	reads many stale pages again, and publishes them
 * RefreshDropPages	frees what the refresh of a few pages has allocated
 */
extern bool RefreshReadMany(MirrorRefresh *refresh);
extern void RefreshDropPages(MirrorRefresh *refresh);

#endif							/* GPUVEC_REFRESH_STEPS_H */
