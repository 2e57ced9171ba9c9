/*-------------------------------------------------------------------------
 *
 * autoprewarm.h
 *	  Loading mirrors again after a restart.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_AUTOPREWARM_H
#define GPUVEC_AUTOPREWARM_H

#include "postgres.h"

/* autoprewarm.c: the leader */
extern void AutoprewarmRegister(void);
extern PGDLLEXPORT void gpuvec_autoprewarm_main(Datum arg);

/* autoprewarm_load.c: what it starts for each database */
extern PGDLLEXPORT void gpuvec_autoprewarm_load(Datum arg);

/* Do something, and log an error that it raises.  False: there was one. */
extern bool AutoprewarmTry(void (*work) (void *arg), void *arg, const char *what);

#endif							/* GPUVEC_AUTOPREWARM_H */
