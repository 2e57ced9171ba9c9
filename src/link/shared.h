/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  The shared memory of the extension.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SHARED_H
#define GPUVEC_SHARED_H

#include "postgres.h"

#include "lib/ilist.h"
#include "storage/spin.h"

/*
 * Change this when GpuvecShared or an area, or the meaning of anything in
 * them, changes
 */
#define GPUVEC_SHARED_VERSION	4

/*
 * The state in shared memory, about 9 MB with all areas; see shared.c.  A
 * crash restart loses it.  `incarnation` is random, so nothing that outlived
 * the shared memory is trusted: facts about WAL positions and page LSNs do
 * not survive a crash.
 */
typedef struct GpuvecShared
{
	slock_t		mutex;			/* protects all members but incarnation */
	uint8		incarnation[16];
	int			supervisor_pid; /* 0: none */
	bool		listening;		/* the supervisor's socket exists */
	int64		starting;		/* when a session began to start a supervisor,
								 * of gpuvec_clock_us(); 0: none does */
	int			engine_pid;		/* 0: none */
	uint32		starts;			/* number of engines started so far */
	char		last_error[256];	/* why the engine is not running, or "" */
	bool		without;		/* sessions must do without the engine:
								 * `last_error` says why */
	bool		engine_ready;	/* it accepts connections */
	int			silent_pid;		/* pid of the last engine that was silent for
								 * too long; 0: none */

	/* supervisors in a row that ended with an error or did not begin */
	int			failed_supervisors;
	int64		next_supervisor;	/* start none before this */
	uint32		arrivals;		/* number of supervisors that have begun */
} GpuvecShared;

/*
 * A module's area of the shared memory, with its own locks.  Areas lie behind
 * GpuvecShared, in the order of GpuvecSharedAsk(), each aligned for any type.
 */
typedef struct GpuvecSharedArea
{
	Size		size;			/* in bytes */
	Size		rough;			/* bytes at its end that are not zeroed before
								 * init() */
	void		(*init) (void *area);	/* initializes the area, which is
										 * zeroed before */

	/* set by GpuvecSharedAsk() */
	Size		offset;
	slist_node	node;
} GpuvecSharedArea;

/* Ask for an area, when the library is loaded; *area must live as long */
extern void GpuvecSharedAsk(GpuvecSharedArea *area);

/* The address of an area; NULL if state is NULL */
extern void *GpuvecSharedFind(GpuvecShared *state, const GpuvecSharedArea *area);

/*
 * Have the server make the shared memory at its start.  Call this when the
 * library is preloaded, after the last GpuvecSharedAsk().
 */
extern void GpuvecSharedPreload(void);

extern GpuvecShared *GpuvecSharedState(void);
extern GpuvecShared *GpuvecSharedMake(const char **reason);
extern GpuvecShared *GpuvecSharedToMark(void);
extern uint64 GpuvecSharedUnmarked(void);
extern const char *GpuvecSharedLastError(void);

#endif							/* GPUVEC_SHARED_H */
