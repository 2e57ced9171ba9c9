/*-------------------------------------------------------------------------
 *
 * server.h
 *	  Connections: accepting them, serving them, noticing that they were
 *	  closed.
 *
 * server.c		accepting, one thread for each connection
 * session.c		the life of a session (session.h)
 * frames.c		reading and writing frames
 * seats.c		how many connections there may be, and whether their work
 *				makes progress
 * hangup.c		canceling the requests of closed connections
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SERVER_H
#define GPUVEC_SERVER_H

#include "engine/serve/seats.h"
#include "engine/store/store.h"

typedef struct gpuvec_server
{
	gpuvec_store store;
	const gpuvec_engine_options *options;
	int			listen_fd;
	uint32_t	sessions;		/* open connections; atomic */
	uint64_t	number;			/* random, so that sessions can tell engines
								 * apart; 0: none could be had */
} gpuvec_server;

/* Accept connections until stopped */
extern void gpuvec_server_run(gpuvec_server *server);

/*
 * stopping.c.  stopping: true if the engine is about to exit.  stop: say that
 * it is.
 */
extern bool gpuvec_server_stopping(void);
extern void gpuvec_server_stop(void);

/* Serve one connection until it ends; closes fd */
extern void gpuvec_session_run(gpuvec_server *server, int fd);

/*
 * start: start the thread that watches.  watch: set *canceled to 1, and wake
 * who waits for a change of the store, if the connection is closed while its
 * request runs.  Call unwatch before the next read.
 */
extern bool gpuvec_hangup_start(gpuvec_store *store);
extern void gpuvec_hangup_watch(int fd, int *request_canceled);
extern void gpuvec_hangup_unwatch(int fd);

/*
 * The engine is about to exit: cancel all watched requests.  False if there
 * are none.
 */
extern bool gpuvec_hangup_cancel_all(void);

#endif							/* GPUVEC_SERVER_H */
