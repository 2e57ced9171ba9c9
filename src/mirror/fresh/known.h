/*-------------------------------------------------------------------------
 *
 * known.h
 *	  What this session knows of mirrors, from the engine's answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KNOWN_H
#define GPUVEC_KNOWN_H

#include "mirror/describe/mirror.h"

/* Remember the state of a mirror that an answer told */
extern void MirrorRemember(const gpuvec_mirror_key *key, const gpuvec_state *state);

/*
 * Forget the state of a mirror.  What the WAL told of its relation stays
 * true.
 */
extern void MirrorForget(const gpuvec_mirror_key *key);

/*
 * The state that the engine of this connection told last, or NULL.  Valid
 * until the next answer.
 */
extern const gpuvec_state *MirrorKnownState(const MirrorTarget *target);

/* The last refresh number that the engine of this connection told, or 0 */
extern uint64 MirrorKnownRefresh(const MirrorTarget *target);

/*
 * The WAL position that the mirror must be checked to for a search that
 * begins now
 */
extern XLogRecPtr MirrorKnownPosition(MirrorTarget *target);

/*
 * The WAL position, at least `checked`, up to which the relation is known to
 * have no change since `checked`
 */
extern XLogRecPtr MirrorKnownUntil(const MirrorTarget *target, XLogRecPtr checked);

/* Count a request.  True: take its time for the planner. */
extern bool MirrorKnownTimed(const MirrorTarget *target);

#endif							/* GPUVEC_KNOWN_H */
