/*-------------------------------------------------------------------------
 *
 * session.h
 *	  A session, as its request handlers see it.
 *
 * session.c			the handshake, reading requests, the table of handlers
 * answer.c				answers, and memory that is charged for them
 * serve_search.c		searches of sets (search_run.h)
 * serve_partitions.c		searches of several mirrors at once
 * serve_embedding.c	requests to embedding tables
 * serve_update.c		loads and refreshes
 * serve_rows.c			rows of a feed
 * serve_als.c			training, and neighbors of items
 * serve_admin.c		listing and dropping mirrors
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SESSION_H
#define GPUVEC_SESSION_H

#include "engine/serve/frames.h"
#include "engine/serve/server.h"
#include "engine/store/mirror_update.h"

/* A session's training: serve_als.c */
typedef struct gpuvec_job gpuvec_job;

typedef struct gpuvec_session
{
	gpuvec_server *server;
	int			fd;
	gpuvec_reader reader;		/* reads from fd */
	gpuvec_hello hello;
	gpuvec_seat seat;			/* valid if seated */
	bool		seated;
	bool		has_private;	/* the session may have private mirrors */
	gpuvec_update *update;		/* load or refresh under way */
	bool		parted;			/* REFRESH_PAGES have come, but not yet their
								 * REFRESH */
	gpuvec_state found;			/* with parted: the mirror's state when the
								 * first of them came.  If update is NULL, the
								 * refresh is not made. */
	gpuvec_job *job;			/* training under way, or NULL */
	bool		hurried;		/* the next message comes soon */
	char	   *buffer;			/* holds the current request */
	size_t		capacity;
	size_t		taken;			/* bytes of the current request and its answer */
	size_t		charged;		/* of them, those in the budget */
	uint8_t    *map;			/* visibility map that the session asked to
								 * keep, or NULL */
	size_t		map_bytes;
} gpuvec_session;

/* A request; data is in the session's buffer */
typedef struct gpuvec_request
{
	uint64_t	number;
	const char *data;
	size_t		length;
} gpuvec_request;

/*
 * Performs a request of one type, and answers it.  False ends the connection.
 */
typedef bool gpuvec_request_handler (gpuvec_session *s, const gpuvec_request *request);

/* serve_search.c */
extern gpuvec_request_handler gpuvec_serve_search;

/* serve_partitions.c */
extern gpuvec_request_handler gpuvec_serve_search_partitions;

/* serve_embedding.c */
extern gpuvec_request_handler gpuvec_serve_pooling;
extern gpuvec_request_handler gpuvec_serve_nearest;
extern gpuvec_request_handler gpuvec_serve_gram;

/* serve_update.c */
extern gpuvec_request_handler gpuvec_serve_load_begin;
extern gpuvec_request_handler gpuvec_serve_load_join;
extern gpuvec_request_handler gpuvec_serve_load_leave;
extern gpuvec_request_handler gpuvec_serve_refresh_begin;
extern gpuvec_request_handler gpuvec_serve_pages;
extern gpuvec_request_handler gpuvec_serve_commit;
extern gpuvec_request_handler gpuvec_serve_refresh_pages;
extern gpuvec_request_handler gpuvec_serve_refresh;
extern gpuvec_request_handler gpuvec_serve_oust;

/* serve_rows.c */
extern gpuvec_request_handler gpuvec_serve_rows;

/* serve_als.c; end_job: end the session's training, if any */
extern gpuvec_request_handler gpuvec_serve_als_begin;
extern gpuvec_request_handler gpuvec_serve_als_add;
extern gpuvec_request_handler gpuvec_serve_als_prepare;
extern gpuvec_request_handler gpuvec_serve_als_set;
extern gpuvec_request_handler gpuvec_serve_als_run;
extern gpuvec_request_handler gpuvec_serve_als_get;
extern gpuvec_request_handler gpuvec_serve_als_end;
extern gpuvec_request_handler gpuvec_serve_als_list;
extern gpuvec_request_handler gpuvec_serve_neighbors_begin;
extern gpuvec_request_handler gpuvec_serve_neighbors;
extern void gpuvec_session_end_job(gpuvec_session *s);

/* serve_admin.c */
extern gpuvec_request_handler gpuvec_serve_stat;
extern gpuvec_request_handler gpuvec_serve_drop;
extern gpuvec_request_handler gpuvec_serve_list;
extern gpuvec_request_handler gpuvec_serve_engine;
extern gpuvec_request_handler gpuvec_serve_devices;
extern gpuvec_request_handler gpuvec_serve_places;

/* answer.c */

/* Told to sessions while the engine stops */
extern const char gpuvec_stopping_message[];

/* Answer with a struct */
extern bool gpuvec_answer(gpuvec_session *s, const gpuvec_request *request, gpuvec_message type,
						  const void *data, size_t size);

/*
 * Answer with an error.  False, which ends the connection, if it is a
 * protocol violation.  Exits the process if it is fatal.
 */
extern bool gpuvec_answer_error(gpuvec_session *s, const gpuvec_request *request,
								const gpuvec_error *error);

/*
 * A request violates the protocol: fill *error, or answer so.  Both return
 * false.
 */
extern bool gpuvec_violation(gpuvec_error *error, const char *what);
extern bool gpuvec_answer_violation(gpuvec_session *s, const gpuvec_request *request,
									const char *what);

/*
 * A request was canceled: its connection is closed, or the engine is about to
 * exit.  Returns false.
 */
extern bool gpuvec_answer_canceled(gpuvec_session *s, const gpuvec_request *request);

/*
 * Count memory of the current request or its answer, until the next request
 * is read.  What is more than each session has free is charged to the budget
 * of host memory, for which mirrors may have to go.  False with *error if
 * there is no room.
 */
extern bool gpuvec_session_take(gpuvec_session *s, size_t bytes, gpuvec_error *error);

#endif							/* GPUVEC_SESSION_H */
