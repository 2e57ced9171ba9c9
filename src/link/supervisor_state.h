/*-------------------------------------------------------------------------
 *
 * supervisor_state.h
 *	  What the supervisor knows, and what it tells sessions of it, for src/link
 *	  only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SUPERVISOR_STATE_H
#define GPUVEC_SUPERVISOR_STATE_H

#include "postgres.h"

#include <sys/types.h>

/* Delays after failed starts, and after too many ends of a running engine */
#define FIRST_DELAY_MS		500
#define LONGEST_DELAY_MS	60000

/* Number of ends of a running engine to remember: see CRASH_WINDOW_MS */
#define CUDA_CRASHES		5

/* The supervisor checks everything this often */
#define LOOK_MS				1000

/* The supervisor's state, in its own process */
typedef struct Supervisor
{
	/* the socket */
	int			listen_fd;		/* -1: not open */
	ino_t		socket_inode;	/* inode of the socket's file */
	int			listen_failures;	/* failed attempts to open the socket, in
									 * a row */
	int64		next_listen;	/* not before this; all times are of
								 * gpuvec_clock_us() */
	bool		cannot_accept;	/* accept4() failed: do not wait for
								 * connections until the next look */

	/* the engine */
	int			liveness_fd;	/* the supervisor's end; -1: no engine */
	int			log_fd;			/* the reading end; -1: no engine */
	pid_t		engine;			/* 0: none */
	bool		ready;			/* it has logged that it is ready */
	bool		heard;			/* it has given a sign of life */
	bool		silent;			/* it was silent for too long and is being
								 * killed */
	long		silence_ms;		/* since its last sign of life, while the
								 * supervisor ran */
	int64		last_look;		/* when it was last checked for that */
	bool		no_exec;		/* the program cannot be executed */
	int			failures;		/* failed starts in a row */
	int64		crash[CUDA_CRASHES];	/* last ends of running engines, a
										 * ring buffer */
	int			ncrashes;
	int64		next_start;		/* not before this */
	bool		on_cpu;			/* as CUDA has failed too often */
	char		line[2048];		/* unfinished line of the engine's log */
	Size		line_len;
	char	   *settings;		/* EngineSettings() of the running engine */
} Supervisor;

extern Supervisor supervisor;

/* Publish the engine's state for sessions */
extern void SupervisorPublishEngine(void);

/* Publish that an engine was started */
extern void SupervisorPublishStart(void);

/* Publish why there is no engine ("" if there is one) */
extern void SupervisorPublishLastError(const char *last_error);

/* Close a descriptor if it is open, and set it to -1 */
extern void SupervisorCloseFd(int *fd);

/*
 * True if sessions must do without an engine.  Otherwise they wait for the
 * next start.
 */
extern bool SupervisorRefuses(void);

#endif							/* GPUVEC_SUPERVISOR_STATE_H */
