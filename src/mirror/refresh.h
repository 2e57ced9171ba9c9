/*-------------------------------------------------------------------------
 *
 * refresh.h
 *	  Loading a mirror and keeping it fresh.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_REFRESH_H
#define GPUVEC_REFRESH_H

#include "mirror/mirror.h"

/*
 * load.c.  What returns a bool returns false when the connection was lost, or
 * the engine refused (GpuvecLinkRefusal() tells which).
 */

/* The position up to which changes may have been made by now */
extern XLogRecPtr MirrorPosition(void);

/* Ask the engine for the state of a mirror */
extern bool MirrorState(const gpuvec_mirror_key *key, gpuvec_state *state);

/*
 * Load the whole relation.  The caller holds the mirror's lock, or the mirror
 * is private.  *state is what it is then: LOADING if another session's load
 * or refresh is unfinished, and nothing was done.
 */
extern bool MirrorLoad(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
					   gpuvec_state *state);

/* refresh.c */

/*
 * Make sure that a mirror is as fresh as `need`, which the caller read after
 * its snapshot.  `known`: what it was when the engine last told, or NULL.  A
 * refresh that is based on that is not made if it is not that any more.
 */
extern bool MirrorEnsure(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
						 const gpuvec_state *known, gpuvec_state *state);

/* Load a private mirror */
extern bool MirrorLoadPrivate(MirrorTarget *target, Snapshot snapshot,
							  const gpuvec_freshness *need, gpuvec_state *state);

/*
 * The same as MirrorEnsure(), step by step, for a caller that has a request
 * for the engine to do meanwhile:
 *
 *	MirrorRefreshBegin		takes the mirror's lock
 *	MirrorRefreshNext		does what has to be done, up to where the caller
 *							may go along; READ: a refresh of a few pages
 *	MirrorRefreshYields		may the request be sent now, ahead of the refresh?
 *	MirrorRefreshPage		reads the next page; NULL: that was the last
 *	MirrorRefreshPublish	sends the end of the refresh, without waiting; a
 *							request may be sent behind it
 *	MirrorRefreshAnswer		reads the answer to the refresh; or
 *	MirrorRefreshLeave		leaves it unread, when that to a request that went
 *							ahead has been read
 *	MirrorRefreshEnd		releases the lock
 *
 * READ calls for all pages and the rest; then MirrorRefreshNext may be called
 * again, unless the refresh was left.
 */
typedef struct MirrorRefresh MirrorRefresh;

typedef enum MirrorRefreshStep
{
	MIRROR_REFRESH_FAILED,		/* the connection was lost, or the engine
								 * refused */
	MIRROR_REFRESH_FRESH,		/* the mirror is as fresh as needed */
	MIRROR_REFRESH_READ			/* pages have to be read and published */
} MirrorRefreshStep;

/* `need` and `known` stay until MirrorRefreshEnd() */
extern MirrorRefresh *MirrorRefreshBegin(MirrorTarget *target, Snapshot snapshot,
										 const gpuvec_freshness *need, const gpuvec_state *known);
extern MirrorRefreshStep MirrorRefreshNext(MirrorRefresh *refresh);
extern bool MirrorRefreshYields(MirrorRefresh *refresh);

/*
 * A gpuvec_page, valid until the next call.  MirrorRefreshPages() reads all
 * that are left.
 */
extern const char *MirrorRefreshPage(MirrorRefresh *refresh);
extern bool MirrorRefreshPages(MirrorRefresh *refresh);
extern bool MirrorRefreshPublish(MirrorRefresh *refresh);
extern bool MirrorRefreshAnswer(MirrorRefresh *refresh);
extern bool MirrorRefreshLeave(MirrorRefresh *refresh);

/* Blocks of the relation, as the refresh tells the engine */
extern BlockNumber MirrorRefreshBlocks(const MirrorRefresh *refresh);

/* `request`: the number of the request that was sent meanwhile, or 0 */
extern void MirrorRefreshEnd(MirrorRefresh *refresh, uint64 request);

#endif							/* GPUVEC_REFRESH_H */
