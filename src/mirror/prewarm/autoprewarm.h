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

/* autoprewarm.c: the leader, which keeps the list of mirrors */
extern void AutoprewarmRegister(void);
extern PGDLLEXPORT void gpuvec_autoprewarm_main(Datum arg);

/* autoprewarm_load.c: the worker that the leader starts for a database */
extern PGDLLEXPORT void gpuvec_autoprewarm_load(Datum arg);

/*
 * Call work(arg), and log an error that it raises, after `what`. False: it
 * raised one.
 */
extern bool AutoprewarmTry(void (*work) (void *arg), void *arg, const char *what);

#endif							/* GPUVEC_AUTOPREWARM_H */
