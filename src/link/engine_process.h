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

#include "link/supervisor_state.h"

/* All settings of the engine in one palloc'd string, to notice changes */
extern char *EngineSettings(void);

/* Start the engine.  If that fails, the next start is planned. */
extern void EngineStart(void);

/*
 * Stop the engine: SIGTERM, then SIGKILL after EXIT_PATIENCE_MS.  If even
 * SIGKILL does not end it (it waits in the kernel), it is left behind.
 */
extern void EngineStop(void);

/* Copy the engine's log to the server's log.  False at end-of-file. */
extern bool EngineRelayLog(void);

/*
 * Look for signs of life, and kill an engine that is silent for too long.
 * Time in which the supervisor itself did not run (all were stopped, or the
 * machine was asleep) does not count.  Nor does time in which the engine runs
 * under a debugger.
 */
extern void EngineWatch(void);

/* If the engine has exited, collect its status and plan the next start */
extern void EngineCheck(void);

/* Stop the engine, and start it again at once */
extern void EngineRestart(void);

/* The command line of a probe of these devices, a list */
extern char **EngineProbeArguments(char *devices);

/*
 * For the child of a fork: become the engine's program, with these
 * descriptors of the supervisor
 */
extern void EngineExec(char **argv, int liveness_fd, int log_fd, pid_t parent);

#endif							/* GPUVEC_ENGINE_PROCESS_H */
