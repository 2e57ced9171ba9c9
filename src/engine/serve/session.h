/*-------------------------------------------------------------------------
 *
 * session.h
 *	  A session, as those see it that serve its requests.
 *
 * session.c			the handshake, reading requests, a table of who serves
 * them serve_search.c		searches of sets serve_embedding.c	requests of
 * embedding tables serve_update.c		loads and refreshes serve_admin.c
 * what is resident, dropping it
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SESSION_H
#define GPUVEC_SESSION_H

#include "engine/serve/frames.h"
#include "engine/serve/server.h"
#include "engine/store/mirror_update.h"

typedef struct gpuvec_session
{
	gpuvec_server *server;
	int			fd;
	gpuvec_seat seat;			/* if seated */
	bool		seated;
	bool		has_private;	/* it has loaded a private mirror */
	gpuvec_update *update;		/* load or refresh under way */
	bool		parted;			/* pages of a REFRESH have come before it ... */
	gpuvec_state found;			/* ... when the mirror was this; without an
								 * update it is not made */
	bool		hurried;		/* the next message comes soon */
	char	   *buffer;			/* of requests */
	size_t		room;
	uint8_t    *map;			/* that the session wanted to be kept */
	size_t		map_bytes;
} gpuvec_session;

/* A request; data is in the session's buffer */
typedef struct gpuvec_request
{
	uint64_t	number;
	const char *data;
	size_t		length;
} gpuvec_request;

/* Serves a request of one type, and answers.  False ends the connection. */
typedef bool gpuvec_request_handler (gpuvec_session *s, const gpuvec_request *request);

/* serve_search.c */
extern gpuvec_request_handler gpuvec_serve_search;

/* serve_embedding.c */
extern gpuvec_request_handler gpuvec_serve_pooling;
extern gpuvec_request_handler gpuvec_serve_nearest;

/* serve_update.c */
extern gpuvec_request_handler gpuvec_serve_load_begin;
extern gpuvec_request_handler gpuvec_serve_refresh_begin;
extern gpuvec_request_handler gpuvec_serve_pages;
extern gpuvec_request_handler gpuvec_serve_commit;
extern gpuvec_request_handler gpuvec_serve_refresh_pages;
extern gpuvec_request_handler gpuvec_serve_refresh;

/* serve_admin.c */
extern gpuvec_request_handler gpuvec_serve_stat;
extern gpuvec_request_handler gpuvec_serve_drop;
extern gpuvec_request_handler gpuvec_serve_list;
extern gpuvec_request_handler gpuvec_serve_engine;

/* Answer with a struct */
extern bool gpuvec_answer(gpuvec_session *s, const gpuvec_request *request, gpuvec_message type,
						  const void *data, size_t size);

/*
 * Answer with an error; false, which ends the connection, if the request made
 * no sense
 */
extern bool gpuvec_answer_error(gpuvec_session *s, const gpuvec_request *request,
								const gpuvec_error *error);

/* A request makes no sense: fill *error, or answer so; both return false */
extern bool gpuvec_violation(gpuvec_error *error, const char *what);
extern bool gpuvec_answer_violation(gpuvec_session *s, const gpuvec_request *request,
									const char *what);

/*
 * A request was canceled: nobody is there, or the engine is about to exit;
 * returns false
 */
extern bool gpuvec_answer_canceled(gpuvec_session *s, const gpuvec_request *request);

/* Microseconds since some moment */
extern int64_t gpuvec_stopwatch(void);

#endif							/* GPUVEC_SESSION_H */
