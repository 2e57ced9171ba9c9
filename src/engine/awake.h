/*-------------------------------------------------------------------------
 *
 * awake.h
 *	  Waiting for a session's next message without sleeping.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_AWAKE_H
#define GPUVEC_AWAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/scheduler.h"

/* What is known of when a session's next message comes; zeroed at first */
typedef struct gpuvec_awake
{
	bool		soon;			/* it is being made */
	const gpuvec_scheduler *scheduler;	/* that made the last answer; or NULL */
	int64_t		answered;		/* when that was sent */
	bool		brisk;			/* the last message after an answer came soon */
} gpuvec_awake;

/* Microseconds since some moment */
extern int64_t gpuvec_stopwatch(void);

/* A search by this scheduler was answered */
extern void gpuvec_awake_answered(gpuvec_awake *awake, const gpuvec_scheduler *scheduler);

/* Wait until the socket has something to be read, but no longer than pays */
extern void gpuvec_awake_wait(gpuvec_awake *awake, int fd);

/* A message has come */
extern void gpuvec_awake_came(gpuvec_awake *awake);

#endif							/* GPUVEC_AWAKE_H */
