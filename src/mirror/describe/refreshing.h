/*-------------------------------------------------------------------------
 *
 * refreshing.h
 *	  What sessions tell each other about the refreshes of a mirror.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_REFRESHING_H
#define GPUVEC_REFRESHING_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "core/protocol_mirrors.h"

/* Ask for the shared memory of this module */
extern void RefreshingInit(void);

/* A mirror, as the sessions that searched it have described it */
typedef struct RefreshingNotes
{
	gpuvec_state state;			/* the last state that the engine of this
								 * connection has told; ABSENT: not known */
	XLogRecPtr	from;			/* the WAL in (from, until] has no change of
								 * the relation */
	XLogRecPtr	until;
	XLogRecPtr	changed_from;	/* the WAL in (changed_from, changed] has one */
	XLogRecPtr	changed;
} RefreshingNotes;

/* Copy what is known of a mirror.  False: nothing is. */
extern bool RefreshingLook(const gpuvec_mirror_key *key, RefreshingNotes *notes);

/* Tell the others the state that the engine of this connection has told */
extern void RefreshingNoteState(const gpuvec_mirror_key *key, const gpuvec_state *state);

/*
 * Tell the others whether the WAL in (from, to] has a change of the relation.
 * "Unchanged" must be true, for others rely on it.
 */
extern void RefreshingNoteWal(const gpuvec_mirror_key *key, XLogRecPtr from, XLogRecPtr to,
							  bool changed);

/*
 * For a session whose mirror is behind `need`.  `known` is the state that the
 * session knows, or NULL.  Waits for a refresh that covers `need`, or until
 * it is this session's turn to make one.
 *
 *	COVERED		*state is a later state than `known`, and as fresh as needed
 *	LEAD		this session makes the next refresh: RefreshingEnd() follows
 *	NONE		there is no place for the mirror, or the wait was too long
 *
 * After LEAD and NONE, *state is a later state than `known`, or ABSENT.
 * *waited: another session's refresh was under way.
 */
typedef enum RefreshingTurn
{
	REFRESHING_COVERED,
	REFRESHING_LEAD,
	REFRESHING_NONE
} RefreshingTurn;

extern RefreshingTurn RefreshingJoin(const gpuvec_mirror_key *key, const gpuvec_freshness *need,
									 const gpuvec_state *known, gpuvec_state *state,
									 bool *waited);

/*
 * For the session that makes a refresh.
 *
 * RefreshingLead		takes the lead from whoever has it; for the holder of
 *						the mirror's lock
 * RefreshingAnnounce	the refresh will cover this; called before pages are
 *						looked for
 * RefreshingWanted		true if another session waits for the refresh
 * RefreshingCrowded	true if others have asked for refreshes lately
 * RefreshingEnd		gives up the lead, if this session has it, and wakes
 *						those who wait; called after RefreshingNoteState()
 */
extern void RefreshingLead(const gpuvec_mirror_key *key);
extern void RefreshingAnnounce(const gpuvec_freshness *covers);
extern bool RefreshingWanted(void);
extern bool RefreshingCrowded(void);
extern void RefreshingEnd(void);

/* Give up the lead after an error; nobody has to wait for that any more */
extern void RefreshingGiveUp(void);

/*
 * Who loads or refreshes a mirror, and whether that goes on.
 *
 * RefreshingMove		the work goes on: called at each page, each record of
 *						WAL, and while the engine works; by the session that
 *						leads, and by workers after RefreshingHelp
 * RefreshingTermNow	*term is the number of the mirror's lock, and *moves
 *						how often anybody has called RefreshingMove.  False:
 *						there is no place for the mirror.
 * RefreshingOvertake	the mirror has another lock from now on, as the holder
 *						of the lock of this term makes no step.  False:
 *						somebody else was faster.
 */
extern void RefreshingMove(void);
extern void RefreshingHelp(const gpuvec_mirror_key *key);
extern bool RefreshingTermNow(const gpuvec_mirror_key *key, uint32 *term, uint64 *moves);
extern bool RefreshingOvertake(const gpuvec_mirror_key *key, uint32 term);

#endif							/* GPUVEC_REFRESHING_H */
