/*-------------------------------------------------------------------------
 *
 * feeder_state.h
 *	  What sessions and the feeder, which applies rows of feeds to mirrors,
 *	  tell each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEEDER_STATE_H
#define GPUVEC_FEEDER_STATE_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* Ask for the shared memory of the feeder */
extern void FeederInit(void);

/*
 * For a search that uses a feed: start the feeder, unless it runs or was
 * tried a moment ago.  Does not wait for it, and does nothing if no worker
 * slot is free.  Cheap if it runs.
 */
extern void FeederStart(void);

/*
 * For a writer, after it has appended to a feed: wake the feeder if it
 * sleeps.  Never fails; a read of a flag if the feeder is awake.
 */
extern void FeederWake(void);

/* True if the feeder runs and the engine answers it */
extern bool FeederRuns(void);

/*
 * When the feeder first saw the record that is now the oldest of those that
 * the feed of a slot has and its mirror has not applied.  False: it has seen
 * none, or there is no feeder.
 */
extern bool FeederOldest(int slot, uint64 feed, int64 *since);

/* For the feeder itself */
extern bool FeederArrive(void);
extern void FeederLeave(bool failed);
extern void FeederNoteAsleep(bool asleep);
extern void FeederNoteWorks(bool works);
extern void FeederNoteOldest(int slot, uint64 feed, int64 since);
extern int64 FeederLastUse(void);

#endif							/* GPUVEC_FEEDER_STATE_H */
