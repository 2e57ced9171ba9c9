/*-------------------------------------------------------------------------
 *
 * known.h
 *	  What this session knows of mirrors, from the engine's answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KNOWN_H
#define GPUVEC_KNOWN_H

#include "mirror/mirror.h"

/* Remember the state of a mirror that an answer told */
extern void MirrorRemember(const gpuvec_mirror_key *key, const gpuvec_state *state);

/*
 * Remember that the state of the mirror is not known.  What the WAL told of
 * its relation stays true.
 */
extern void MirrorForget(const gpuvec_mirror_key *key);

/*
 * The state that this connection's engine told last, or NULL.  Valid until
 * the next answer.
 */
extern const gpuvec_state *MirrorKnownState(const MirrorTarget *target);

/* The number of a refresh that this connection's engine told, or 0 */
extern uint64 MirrorKnownRefresh(const MirrorTarget *target);

/* The position that a search which begins now needs the mirror checked to */
extern XLogRecPtr MirrorKnownPosition(MirrorTarget *target);

/* Count a request; is it one of those whose time the planner is told? */
extern bool MirrorKnownTimed(const MirrorTarget *target);

#endif							/* GPUVEC_KNOWN_H */
