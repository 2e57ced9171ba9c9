/*-------------------------------------------------------------------------
 *
 * supervisor.h
 *	  The background worker that keeps the engine running, and what it and the
 *	  sessions share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SUPERVISOR_H
#define GPUVEC_SUPERVISOR_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "mirror/facts.h"
#include "mirror/feed.h"
#include "storage/spin.h"

/* Where the engine listens, relative to the data directory */
#define GPUVEC_SOCKET_PATH	"pg_stat_tmp/gpuvec.sock"

/* To be changed with GpuvecShared, or what anything in it means */
#define GPUVEC_SHARED_VERSION	1

/*
 * State in shared memory, some 35 kB: see shared.c.  It is made by whoever
 * comes first, and lost in a crash restart: `incarnation` is random, so that
 * nothing that outlived the shared memory is ever trusted (facts about WAL
 * positions and page LSNs do not survive a crash).
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
	int			silent_pid;		/* the last engine that gave no sign of life; 0: none */

	/* supervisors that ended with an error, or did not begin, in a row */
	int			failed_supervisors;
	TimestampTz next_supervisor;	/* none is started before this */
	uint32		arrivals;		/* supervisors that have begun */

	FeedTable	feeds;			/* these have locks of their own */
	FactsTable	facts;
} GpuvecShared;

extern GpuvecShared *GpuvecSharedState(void);
extern GpuvecShared *GpuvecSharedMake(const char **reason);
extern GpuvecShared *GpuvecSharedToMark(void);
extern uint64 GpuvecSharedUnmarked(void);
extern const char *GpuvecSharedTrouble(void);
extern void GpuvecRegisterSupervisor(void);
extern bool GpuvecStartSupervisor(const char **reason);
extern void GpuvecNoteSupervisorFailure(const char *why);
extern PGDLLEXPORT void gpuvec_supervisor_main(Datum arg);

#endif							/* GPUVEC_SUPERVISOR_H */
