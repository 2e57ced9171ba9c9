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

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "storage/spin.h"

/*
 * To be changed with GpuvecShared or a part, or what anything in them means
 */
#define GPUVEC_SHARED_VERSION	1

/*
 * State in shared memory, some 35 kB with all parts: see shared.c.  It is
 * made by whoever comes first, and lost in a crash restart: `incarnation` is
 * random, so that nothing that outlived the shared memory is ever trusted
 * (facts about WAL positions and page LSNs do not survive a crash).
 */
typedef struct GpuvecShared
{
	slock_t		mutex;			/* protects all below but incarnation */
	uint8		incarnation[16];
	int			supervisor_pid; /* 0: none */
	bool		listening;		/* the supervisor's socket exists */
	TimestampTz starting;		/* a session is starting a supervisor; 0: none */
	int			engine_pid;		/* 0: none */
	uint32		starts;			/* engines started in this incarnation */
	char		trouble[256];	/* why the engine is not running, or "" */
	bool		without;		/* sessions are to do without, for `trouble` */
	bool		engine_ready;	/* it accepts connections */
	int			silent_pid;		/* the last engine that gave no sign of life;
								 * 0: none */

	/* supervisors that ended with an error, or did not begin, in a row */
	int			failed_supervisors;
	TimestampTz next_supervisor;	/* none is started before this */
	uint32		arrivals;		/* supervisors that have begun */
} GpuvecShared;

/*
 * What a module keeps there, with locks of its own.  Parts lie behind
 * GpuvecShared, in the order in which they were asked for; each is aligned
 * for any type.
 */
typedef struct GpuvecSharedPart
{
	Size		size;			/* in bytes */
	void		(*init) (void *part);	/* fills it; all bytes are 0 before */

	/* set by GpuvecSharedAsk() */
	Size		offset;
	slist_node	node;
} GpuvecSharedPart;

/* Ask for a part, when the library is loaded; *part must stay */
extern void GpuvecSharedAsk(GpuvecSharedPart *part);

/* Where a part is; NULL if the state is */
extern void *GpuvecSharedFind(GpuvecShared *state, const GpuvecSharedPart *part);

/*
 * The library is preloaded, all parts have been asked for: make it with the
 * server
 */
extern void GpuvecSharedPreload(void);

extern GpuvecShared *GpuvecSharedState(void);
extern GpuvecShared *GpuvecSharedMake(const char **reason);
extern GpuvecShared *GpuvecSharedToMark(void);
extern uint64 GpuvecSharedUnmarked(void);
extern const char *GpuvecSharedTrouble(void);

#endif							/* GPUVEC_SHARED_H */
