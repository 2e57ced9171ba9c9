/*-------------------------------------------------------------------------
 *
 * attempt.h
 *	  Work that may fail for want of memory, without an end of the statement.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ATTEMPT_H
#define GPUVEC_ATTEMPT_H

#include "postgres.h"

/*
 * Call work().  False: it has raised an error, whose text is in `message`, of
 * `size` bytes, unless that is NULL.  A cancel is raised again.  What work()
 * attaches belongs to no statement.
 */
extern bool GpuvecAttempt(void (*work) (void), char *message, Size size);

#endif							/* GPUVEC_ATTEMPT_H */
