/*-------------------------------------------------------------------------
 *
 * engine_process.h
 *	  The engine's process, for src/link only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENGINE_PROCESS_H
#define GPUVEC_ENGINE_PROCESS_H

#include "postgres.h"

#include <sys/types.h>

#include "datatype/timestamp.h"

/* Delays after failed starts: an engine that was ready has started well */
#define FIRST_DELAY_MS		500
#define LONGEST_DELAY_MS	60000

/*
 * Ends of a running engine within a minute, after which it is started on the
 * CPU
 */
#define CUDA_CRASHES		5

/* How often to look after everything */
#define LOOK_MS				1000

/* What the supervisor knows, in its own process */
typedef struct Supervisor
{
	/* the socket */
	int			listen_fd;		/* -1: it could not be opened yet */
	ino_t		socket_inode;	/* of the socket's file */
	int			listen_failures;	/* in a row */
	TimestampTz next_listen;	/* not before this */
	bool		cannot_accept;	/* connections; do not try before the next
								 * look */

	/* the engine */
	int			liveness_fd;	/* our end; -1: no engine */
	int			log_fd;			/* our, reading end; -1: no engine */
	pid_t		engine;			/* 0: none */
	bool		ready;			/* it has said so */
	bool		heard;			/* it has given a sign of life */
	bool		silent;			/* it has been given up */
	long		silence_ms;		/* since its last sign, as far as we were
								 * there */
	TimestampTz last_look;		/* for signs */
	bool		no_exec;		/* the program cannot be executed */
	int			failures;		/* failed starts in a row */
	TimestampTz crash[CUDA_CRASHES];	/* last ends of running engines, a
										 * ring */
	int			ncrashes;
	TimestampTz next_start;		/* not before this */
	bool		on_cpu;			/* CUDA failed too often */
	char		line[2048];		/* unfinished line of the engine's log */
	Size		line_len;
	char	   *settings;		/* the engine's arguments in one string */
} Supervisor;

/* supervisor.c */
extern Supervisor supervisor;

/* Tell sessions what the engine is up to */
extern void SupervisorPublishEngine(void);

/* Note that an engine was started */
extern void SupervisorPublishStart(void);

/* Note for sessions why there is no engine ("" when there is one) */
extern void SupervisorPublishTrouble(const char *trouble);

/* Close a descriptor, if it is open; it is -1 then */
extern void SupervisorCloseFd(int *fd);

/* engine_process.c */

/* All settings of the engine, palloc'd, to notice when one changes */
extern char *EngineSettings(void);

/*
 * Start the engine; if something cannot be had for it, it is tried again
 * later
 */
extern void EngineStart(void);

/*
 * Stop the engine: ask, wait, insist.  One that cannot even be killed (it
 * waits in the kernel) is not waited for: it ends when it can.
 */
extern void EngineStop(void);

/* Relay what the engine wrote.  False at the end of the file. */
extern bool EngineRelayLog(void);

/*
 * Look for signs of life.  Time in which we did not run ourselves (all were
 * stopped, or the machine was asleep) does not count, nor does time in which
 * somebody debugs the engine.
 */
extern void EngineWatch(void);

/* Has the engine exited?  Then collect it. */
extern void EngineCheck(void);

#endif							/* GPUVEC_ENGINE_PROCESS_H */
