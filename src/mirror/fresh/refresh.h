/*-------------------------------------------------------------------------
 *
 * refresh.h
 *	  Loads mirrors, and keeps them fresh.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_REFRESH_H
#define GPUVEC_REFRESH_H

#include "link/wait_events.h"
#include "mirror/describe/mirror.h"
#include "mirror/feed/feed.h"

/*
 * load.c.  A function that returns a bool returns false if the connection was
 * lost, or the engine refused (GpuvecLinkRefusal() tells which).
 */

/* The WAL position up to which changes may have been made by now */
extern XLogRecPtr MirrorPosition(void);

/* Ask the engine for the state of a mirror */
extern bool MirrorState(const gpuvec_mirror_key *key, gpuvec_state *state);

/*
 * Load the whole relation.  The caller holds the mirror's lock, or the mirror
 * is private.  Sets *state to the mirror's state afterwards: LOADING if
 * nothing was done, as another session's load or refresh is unfinished.
 */
extern bool MirrorLoad(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
					   gpuvec_state *state);

/* Have the engine drop a private mirror */
extern void MirrorDropPrivate(const MirrorTarget *target);

/* refresh_turn.c */

/* Sleep for some milliseconds, or until the latch is set */
extern void MirrorNap(long ms, GpuvecWait wait);

/*
 * This process takes over no load that makes no step, but gives way: for
 * work that can wait
 */
extern bool MirrorGivesWay;

/*
 * refresh_rows.c
 *
 * Send records of a feed to the engine.  Sets *state to the mirror's state;
 * the mirror may be absent, or another session may be changing it (LOADING).
 * With `keep`, the engine keeps what the mirror cannot apply yet.
 */
extern bool MirrorSendRows(const gpuvec_mirror_key *key, uint64 feed, const FeedRows *rows,
						   bool keep, gpuvec_state *state);

/*
 * refresh.c
 *
 * Make sure that a mirror is as fresh as `need`, which the caller read after
 * its snapshot was taken.  `known` is the state that the engine told last, or
 * NULL.  A refresh that is based on `known` is not made if the mirror has
 * another state by now.  Sets *state to the mirror's state.
 */
extern bool MirrorEnsure(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
						 const gpuvec_state *known, gpuvec_state *state);

/* Load a private mirror */
extern bool MirrorLoadPrivate(MirrorTarget *target, Snapshot snapshot,
							  const gpuvec_freshness *need, gpuvec_state *state);

/*
 * The same as MirrorEnsure(), step by step, for a caller that has a request
 * for the engine meanwhile.  MirrorRefreshDo() takes the mirror's lock, calls
 * work(refresh, arg), and returns what it returns.  Nothing goes to the
 * client meanwhile, and an error releases the lock.  For `work`:
 *
 *	MirrorRefreshNext		does all that needs no help of the caller; READ: a
 *							refresh of a few pages is left to be made
 *	MirrorRefreshYields		true if the request may be sent before the pages
 *	MirrorRefreshPage		reads the next page; NULL: there is none
 *	MirrorRefreshPublish	sends the end of the refresh, without waiting; the
 *							request may be sent behind it
 *	MirrorRefreshAnswer		reads the answer to the refresh; or
 *	MirrorRefreshLeave		leaves it for later, after the answer to a request
 *							that went ahead was read
 *	MirrorRefreshEnd		releases the lock; always to be called
 *
 * After READ the caller has to read all pages and publish them.  Then it may
 * call MirrorRefreshNext again, unless it left the answer.
 */
typedef struct MirrorRefresh MirrorRefresh;

typedef enum MirrorRefreshStep
{
	MIRROR_REFRESH_FAILED,		/* the connection was lost, or the engine
								 * refused */
	MIRROR_REFRESH_FRESH,		/* the mirror is as fresh as needed */
	MIRROR_REFRESH_READ			/* pages have to be read and published */
} MirrorRefreshStep;

/* `need` and `known` must stay valid until MirrorRefreshEnd() */
extern bool MirrorRefreshDo(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
							const gpuvec_state *known,
							bool (*work) (MirrorRefresh *refresh, void *arg), void *arg);
extern MirrorRefreshStep MirrorRefreshNext(MirrorRefresh *refresh);
extern bool MirrorRefreshYields(MirrorRefresh *refresh);

/*
 * Returns a gpuvec_page, valid until the next call.  MirrorRefreshPages()
 * reads all pages that are left.
 */
extern const char *MirrorRefreshPage(MirrorRefresh *refresh);
extern bool MirrorRefreshPages(MirrorRefresh *refresh);
extern bool MirrorRefreshPublish(MirrorRefresh *refresh);
extern bool MirrorRefreshAnswer(MirrorRefresh *refresh);
extern bool MirrorRefreshLeave(MirrorRefresh *refresh);

/* Number of blocks of the relation, as the engine is told */
extern BlockNumber MirrorRefreshBlocks(const MirrorRefresh *refresh);

/* `request`: the number of the request that was sent meanwhile, or 0 */
extern void MirrorRefreshEnd(MirrorRefresh *refresh, uint64 request);

#endif							/* GPUVEC_REFRESH_H */
