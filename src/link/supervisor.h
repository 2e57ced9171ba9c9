/*-------------------------------------------------------------------------
 *
 * supervisor.h
 *	  The background worker that keeps the engine running.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SUPERVISOR_H
#define GPUVEC_SUPERVISOR_H

#include "postgres.h"

/* Path of the engine's socket, relative to the data directory */
#define GPUVEC_SOCKET_PATH	"pg_stat_tmp/gpuvec.sock"

/* start_supervisor.c */
extern void GpuvecRegisterSupervisor(void);
extern bool GpuvecStartSupervisor(const char **reason);
extern void GpuvecNoteSupervisorFailure(const char *why);

/* supervisor.c */
extern PGDLLEXPORT void gpuvec_supervisor_main(Datum arg);

#endif							/* GPUVEC_SUPERVISOR_H */
