/*-------------------------------------------------------------------------
 *
 * test_hooks.h
 *	  What tests may change that nobody else may.
 *
 * All of it is there only if the library is built with GPUVEC_TEST_HOOKS;
 * otherwise the settings are constants.  See also link/faults.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TEST_HOOKS_H
#define GPUVEC_TEST_HOOKS_H

#include "postgres.h"

/* Values of gpuvec.freshness: how changes of a table are found out */
typedef enum GpuvecFreshness
{
	GPUVEC_FRESHNESS_AUTO,
	GPUVEC_FRESHNESS_WAL,		/* by WAL, however long, or fail */
	GPUVEC_FRESHNESS_SWEEP		/* by the LSNs of all pages */
} GpuvecFreshness;

/*
 * Values of gpuvec.shared_memory: what is wrong with the shared memory, for
 * this session (link/shared.c)
 */
typedef enum GpuvecSharedMemory
{
	GPUVEC_SHARED_MEMORY_AUTO,
	GPUVEC_SHARED_MEMORY_FULL,	/* nothing is left of the server's own, for
								 * all sessions */
	GPUVEC_SHARED_MEMORY_UNATTACHED,	/* dynamic shared memory is not to be
										 * had */
	GPUVEC_SHARED_MEMORY_OLD	/* it is of another version of the library */
} GpuvecSharedMemory;

/* How long the engine may give no sign of life */
#define GPUVEC_ENGINE_PATIENCE_MS	5000

#ifdef GPUVEC_TEST_HOOKS

extern int	gpuvec_freshness_choice;	/* GpuvecFreshness */
extern int	gpuvec_shared_memory_choice;	/* GpuvecSharedMemory */
extern int	gpuvec_engine_patience; /* ms */

/* Define these settings, when the library is loaded */
extern void GpuvecDefineTestSettings(void);

/*
 * Points at which a test can stop a session.  The session that has set
 * gpuvec.injection_point to the name waits there for the advisory lock
 * (GPUVEC_INJECTION_LOCK, 0), which another session of the test holds.
 */
#define GPUVEC_INJECTION_LOCK	71866
extern void GpuvecInjection(const char *name);
#define GPUVEC_INJECTION(name) GpuvecInjection(name)

#else

#define gpuvec_freshness_choice GPUVEC_FRESHNESS_AUTO
#define gpuvec_shared_memory_choice GPUVEC_SHARED_MEMORY_AUTO
#define gpuvec_engine_patience	GPUVEC_ENGINE_PATIENCE_MS
#define GpuvecDefineTestSettings() ((void) 0)
#define GPUVEC_INJECTION(name) ((void) 0)

#endif

#endif							/* GPUVEC_TEST_HOOKS_H */
