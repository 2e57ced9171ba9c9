/*-------------------------------------------------------------------------
 *
 * server_client.h
 *	  Starts an engine and talks to it, for tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_CLIENT_H
#define SERVER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/measure.h"
#include "core/method.h"
#include "core/protocol_monitor.h"

/* A running engine */
typedef struct engine
{
	pid_t		pid;
	char		socket[108];
	int			liveness_fd;	/* our end */
	int			log_fd;			/* our, reading end of its standard error */
} engine;

/* A growing buffer */
typedef struct buffer
{
	char	   *data;
	size_t		length;
	size_t		capacity;
} buffer;

/* A connection, and the last answer it got */
typedef struct client
{
	int			fd;
	uint64_t	request;		/* number of the last one sent */
	gpuvec_frame frame;
	char	   *data;			/* of the answer, NUL-terminated */
	size_t		capacity;
} client;

/* Counting checks: a failed one is printed with its place */
extern int	checks_passed;
extern int	checks_failed;
extern bool check_at(bool ok, const char *what, const char *file, int line);
#define check(ok, what) check_at((ok), (what), __FILE__, __LINE__)

extern const char *engine_program;
extern char scratch[64];		/* directory for sockets */

/*
 * Start an engine with --socket and further arguments (NULL at the end), with
 * an optional fault, and wait until it listens.
 */
extern engine engine_start(const char *fault, const char *const *arguments);
extern int	engine_wait(engine *e, int patience_ms);	/* its wait status, or -1 */
extern void engine_stop(engine *e);		/* SIGTERM, and checks that it ends well */
extern bool engine_alive(const engine *e);
extern void engine_relay_log(engine *e, bool print);

extern void buffer_add(buffer *b, const void *data, size_t size);

extern bool client_connect(client *c, const engine *e);	/* no HELLO yet */
extern bool client_hello(client *c, uint32_t version, uint8_t incarnation);
extern client client_open(const engine *e);				/* checks that it is welcome */
extern void client_close(client *c);

/* Send bytes as they are; false if the engine has closed the connection */
extern bool client_send_raw(client *c, const void *data, size_t size);
extern bool client_send(client *c, gpuvec_message type, const void *data, size_t size);

/* Read an answer; false at the end of the connection (or after 20 s) */
extern bool client_read(client *c);

/* Send and read; true if the answer is of the wanted type */
extern bool client_call(client *c, gpuvec_message type, const void *data, size_t size,
						gpuvec_message answer);

/* Is the last answer an error with this SQLSTATE? */
extern bool client_failed_with(const client *c, const char *sqlstate);
extern const char *client_error_text(const client *c, int which);	/* 0 message, 1 detail, 2 hint */
extern bool client_error_retry(const client *c);
extern bool client_error_fallback(const client *c);

extern gpuvec_state client_state(const client *c);
extern gpuvec_engine_info client_engine_info(client *c);

/* The LIST entry of a key; false if there is none */
extern bool client_mirror_info(client *c, const gpuvec_mirror_key *key, gpuvec_mirror_info *info);

/* closefrom(), which the C library has since 2022 only */
extern void close_files_from(int first);

extern double seconds(void);

/* How long to wait for what must come, in seconds: PG_TEST_TIMEOUT_DEFAULT */
extern double patience(void);

/* True if the CPU is to be several devices: SERVER_TEST_PARTS */
extern bool several_devices(void);

#endif							/* SERVER_CLIENT_H */
