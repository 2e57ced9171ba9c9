/*-------------------------------------------------------------------------
 *
 * test_hooks.h
 *	  Settings and injection points for tests only.
 *
 * They exist only if the library is built with GPUVEC_TEST_HOOKS.  Otherwise
 * the settings are constants, and injection points do nothing.  See also
 * link/faults.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TEST_HOOKS_H
#define GPUVEC_TEST_HOOKS_H

#include "postgres.h"

/* Values of gpuvec.freshness: how sessions find changes of a table */
typedef enum GpuvecFreshness
{
	GPUVEC_FRESHNESS_AUTO,
	GPUVEC_FRESHNESS_WAL,		/* read the WAL, however long; fail if that is
								 * not possible */
	GPUVEC_FRESHNESS_SWEEP		/* compare the LSNs of all pages */
} GpuvecFreshness;

/*
 * Values of gpuvec.shared_memory: what is wrong with the shared memory, in
 * the session that sets it (link/shared.c)
 */
typedef enum GpuvecSharedMemory
{
	GPUVEC_SHARED_MEMORY_AUTO,
	GPUVEC_SHARED_MEMORY_FULL,	/* the server's own has no byte left, for any
								 * session */
	GPUVEC_SHARED_MEMORY_UNATTACHED,	/* attaching dynamic shared memory
										 * fails */
	GPUVEC_SHARED_MEMORY_OLD	/* another version of the library made it */
} GpuvecSharedMemory;

/* A device that failed is first tried again after this time */
#define GPUVEC_DEVICE_RETRY_MS	60000

/* The engine may give no sign of life for this long */
#define GPUVEC_ENGINE_PATIENCE_MS	5000

/* An engine that is ready may let a session wait this long for its greeting */
#define GPUVEC_GREETING_PATIENCE_MS 10000

/*
 * The slot of a feed that was not read for this long may be given to another
 * index
 */
#define GPUVEC_FEED_IDLE_MS			60000

/*
 * A session waits this long for another one's refresh before it waits for the
 * mirror's lock
 */
#define GPUVEC_REFRESH_PATIENCE_MS	200

/*
 * A load or refresh that makes no step for this long is taken over by another
 * session
 */
#define GPUVEC_LOAD_PATIENCE_MS		5000

/* Fewest bytes of WAL that are read ahead (mirror/fresh/stale_pages.c) */
#define GPUVEC_READ_AHEAD_BYTES		(64 * 1024)

#ifdef GPUVEC_TEST_HOOKS

extern int	gpuvec_freshness_choice;	/* GpuvecFreshness */
extern int	gpuvec_shared_memory_choice;	/* GpuvecSharedMemory */
extern int	gpuvec_engine_patience; /* ms */
extern int	gpuvec_greeting_patience;	/* ms */
extern int	gpuvec_device_retry;	/* ms */
extern bool gpuvec_feeder;		/* sessions start the feeder (feeder.c) */

/*
 * Bytes of the rings of feeds that this session begins
 * (mirror/feed/feed_slot.c); 0: all that there are
 */
extern int	gpuvec_feed_ring_bytes;
extern int	gpuvec_feed_idle;	/* ms */
extern int	gpuvec_refresh_patience;	/* ms */
extern int	gpuvec_load_patience;	/* ms */
extern int	gpuvec_read_ahead_bytes;
extern int	gpuvec_cpu_parts;	/* devices that the CPU pretends to be */

/* Called once, when the library is loaded */
extern void GpuvecDefineTestSettings(void);

/*
 * Points at which a test can stop a session.  A session whose
 * gpuvec.injection_point has this name, or a list with it, waits there for
 * the advisory lock (GPUVEC_INJECTION_LOCK, 0), which another session of the
 * test holds; or, if "/n" follows the name, for (GPUVEC_INJECTION_LOCK, n).
 */
#define GPUVEC_INJECTION_LOCK	71866
extern void GpuvecInjection(const char *name);

/* A look of a long loop (core/step.h): is it the one to be canceled at? */
extern void GpuvecTestLook(void);
#define GPUVEC_INJECTION(name) GpuvecInjection(name)

#else

#define gpuvec_freshness_choice GPUVEC_FRESHNESS_AUTO
#define gpuvec_shared_memory_choice GPUVEC_SHARED_MEMORY_AUTO
#define gpuvec_engine_patience	GPUVEC_ENGINE_PATIENCE_MS
#define gpuvec_greeting_patience	GPUVEC_GREETING_PATIENCE_MS
#define gpuvec_device_retry		GPUVEC_DEVICE_RETRY_MS
#define gpuvec_feeder			true
#define gpuvec_feed_ring_bytes	0
#define gpuvec_feed_idle	GPUVEC_FEED_IDLE_MS
#define gpuvec_refresh_patience	GPUVEC_REFRESH_PATIENCE_MS
#define gpuvec_load_patience	GPUVEC_LOAD_PATIENCE_MS
#define gpuvec_read_ahead_bytes	GPUVEC_READ_AHEAD_BYTES
#define gpuvec_cpu_parts	0
#define GpuvecDefineTestSettings() ((void) 0)
#define GPUVEC_INJECTION(name) ((void) 0)
#define GpuvecTestLook() ((void) 0)

#endif

#endif							/* GPUVEC_TEST_HOOKS_H */
