/*-------------------------------------------------------------------------
 *
 * gpuvec.h
 *	  The extension's settings and entry points.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_H
#define GPUVEC_H

#include "postgres.h"

#include "compat.h"

/* Values of gpuvec.engine */
typedef enum GpuvecEngineKind
{
	GPUVEC_ENGINE_AUTO,
	GPUVEC_ENGINE_CUDA,
	GPUVEC_ENGINE_CPU
} GpuvecEngineKind;

/* Settings (gpuvec.c) */
extern int	gpuvec_engine;			/* GpuvecEngineKind */
extern char *gpuvec_devices;
extern int	gpuvec_device_memory;	/* MB, 0 = choose */
extern int	gpuvec_cpu_threads;		/* 0 = all cores */
extern int	gpuvec_max_sessions;
extern char *gpuvec_engine_program; /* "" = bindir/gpuvec-engine */
extern bool gpuvec_verify;
extern int	gpuvec_method_choice;	/* gpuvec_method */
extern int	gpuvec_vector_storage;	/* gpuvec_storage */
extern bool gpuvec_autoprewarm;

#ifdef GPUVEC_TEST_HOOKS
extern char *gpuvec_injection_point;

/* How changes of a table are found out */
typedef enum GpuvecFreshness
{
	GPUVEC_FRESHNESS_AUTO,
	GPUVEC_FRESHNESS_WAL,		/* by WAL, however long, or fail */
	GPUVEC_FRESHNESS_SWEEP		/* by the LSNs of all pages */
} GpuvecFreshness;

extern int	gpuvec_freshness_choice;
extern int	gpuvec_engine_patience; /* ms without a sign of life */

/* What is wrong with the shared memory, for this session (shared.c) */
typedef enum GpuvecSharedMemory
{
	GPUVEC_SHARED_MEMORY_AUTO,
	GPUVEC_SHARED_MEMORY_FULL,	/* nothing is left of the server's own, for all sessions */
	GPUVEC_SHARED_MEMORY_UNATTACHED,	/* dynamic shared memory is not to be had */
	GPUVEC_SHARED_MEMORY_OLD	/* it is of another version of the library */
} GpuvecSharedMemory;

extern int	gpuvec_shared_memory_choice;

/*
 * Places where a test can stop a session.  The session that has set
 * gpuvec.injection_point to the name waits there for the advisory lock
 * (GPUVEC_INJECTION_LOCK, 0), which another session of the test holds.
 */
#define GPUVEC_INJECTION_LOCK	71866
extern void gpuvec_injection(const char *name);
#define GPUVEC_INJECTION(name) gpuvec_injection(name)
#else
#define GPUVEC_INJECTION(name) ((void) 0)
#endif

#endif							/* GPUVEC_H */
