/*-------------------------------------------------------------------------
 *
 * wait_events.h
 *	  What pg_stat_activity shows as the wait_event of processes that wait.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WAIT_EVENTS_H
#define GPUVEC_WAIT_EVENTS_H

#include "postgres.h"

/* In the order of their names in wait_events.c */
typedef enum GpuvecWait
{
	GPUVEC_WAIT_ENGINE,			/* the engine's next message, or that it takes
								 * ours */
	GPUVEC_WAIT_ENGINE_START,	/* that the engine accepts connections */
	GPUVEC_WAIT_REFRESH,		/* that another process brings the same mirror
								 * up to date */
	GPUVEC_WAIT_SERVERS,		/* answers of other servers */
	GPUVEC_WAIT_WORKERS,		/* parallel workers */
	GPUVEC_WAIT_AUTOPREWARM,	/* autoprewarm has nothing to do */
	GPUVEC_WAIT_FEEDER,			/* the feeder has nothing to do */
	GPUVEC_WAIT_SUPERVISOR,		/* the supervisor has nothing to do */
	GPUVEC_WAITS
} GpuvecWait;

/*
 * The argument of WaitLatch() and its like.  Raises no errors.  Before
 * PostgreSQL 17, all waits are called "Extension".
 */
extern uint32 GpuvecWaitEvent(GpuvecWait wait);

#endif							/* GPUVEC_WAIT_EVENTS_H */
