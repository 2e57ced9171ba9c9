/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The life of a session: the handshake, then one request after another.
 *
 * A session's thread reads a frame, performs the request, and answers
 * (answer.c).
 *
 * Whatever a frame contains, the worst outcome is that the connection is
 * closed.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/host_memory.h"
#include "engine/log.h"
#include "engine/serve/session.h"
#include "engine/thread_pool.h"

/* Larger buffers are freed after each request */
#define KEEP_BYTES		((size_t) 1024 * 1024)

/* Microseconds to poll for a message that will come soon, before sleeping */
#define HURRY_US		50

/* Handler of each type of message */
static gpuvec_request_handler *const handlers[] = {
	[GPUVEC_MSG_STAT] = gpuvec_serve_stat,
	[GPUVEC_MSG_SEARCH] = gpuvec_serve_search,
	[GPUVEC_MSG_SEARCH_PARTITIONS] = gpuvec_serve_search_partitions,
	[GPUVEC_MSG_EMBEDDING] = gpuvec_serve_pooling,
	[GPUVEC_MSG_NEAREST] = gpuvec_serve_nearest,
	[GPUVEC_MSG_GRAM] = gpuvec_serve_gram,
	[GPUVEC_MSG_LOAD_BEGIN] = gpuvec_serve_load_begin,
	[GPUVEC_MSG_LOAD_JOIN] = gpuvec_serve_load_join,
	[GPUVEC_MSG_LOAD_LEAVE] = gpuvec_serve_load_leave,
	[GPUVEC_MSG_REFRESH_BEGIN] = gpuvec_serve_refresh_begin,
	[GPUVEC_MSG_PAGES] = gpuvec_serve_pages,
	[GPUVEC_MSG_COMMIT] = gpuvec_serve_commit,
	[GPUVEC_MSG_REFRESH_PAGES] = gpuvec_serve_refresh_pages,
	[GPUVEC_MSG_REFRESH] = gpuvec_serve_refresh,
	[GPUVEC_MSG_ROWS] = gpuvec_serve_rows,
	[GPUVEC_MSG_ALS_BEGIN] = gpuvec_serve_als_begin,
	[GPUVEC_MSG_ALS_ADD] = gpuvec_serve_als_add,
	[GPUVEC_MSG_ALS_PREPARE] = gpuvec_serve_als_prepare,
	[GPUVEC_MSG_ALS_SET] = gpuvec_serve_als_set,
	[GPUVEC_MSG_ALS_RUN] = gpuvec_serve_als_run,
	[GPUVEC_MSG_ALS_GET] = gpuvec_serve_als_get,
	[GPUVEC_MSG_ALS_END] = gpuvec_serve_als_end,
	[GPUVEC_MSG_ALS_LIST] = gpuvec_serve_als_list,
	[GPUVEC_MSG_NEIGHBORS_BEGIN] = gpuvec_serve_neighbors_begin,
	[GPUVEC_MSG_NEIGHBORS] = gpuvec_serve_neighbors,
	[GPUVEC_MSG_OUST] = gpuvec_serve_oust,
	[GPUVEC_MSG_DROP] = gpuvec_serve_drop,
	[GPUVEC_MSG_LIST] = gpuvec_serve_list,
	[GPUVEC_MSG_ENGINE] = gpuvec_serve_engine,
	[GPUVEC_MSG_DEVICES] = gpuvec_serve_devices,
	[GPUVEC_MSG_PLACES] = gpuvec_serve_places
};

#define N_HANDLERS		(sizeof(handlers) / sizeof(handlers[0]))

/* Answer that the engine does not serve this session; returns false */
static bool
refuse(gpuvec_session *s, const gpuvec_frame *frame, const char *sqlstate, const char *detail,
	   const char *hint, const char *message, bool retry)
{
	gpuvec_error error;

	gpuvec_fail(&error, sqlstate, detail, hint, "%s", message);
	gpuvec_send_error(s->fd, frame->request, &error, retry);
	return false;
}

/* Sessions show the message alone when they warn, so it has all */
static bool
refuse_version(gpuvec_session *s, const gpuvec_frame *frame, long library, long engine)
{
	char		message[128];

	snprintf(message, sizeof(message),
			 "the gpuvec engine is %s than the library: it speaks protocol version %ld, the library %ld",
			 engine < library ? "older" : "newer", engine, library);
	return refuse(s, frame, GPUVEC_PROTOCOL_VIOLATION, NULL,
				  "Install both of one version, and restart the server.", message, false);
}

/*
 * Read the first frame, HELLO, take a seat, and answer.  False if refused.
 */
static bool
greet(gpuvec_session *s)
{
	gpuvec_frame frame;
	gpuvec_hello hello;
	gpuvec_welcome welcome;
	long		version = GPUVEC_PROTOCOL_VERSION;
	char		detail[128];

	if (!gpuvec_read_bytes(&s->reader, &frame, sizeof(frame)) || frame.type != GPUVEC_MSG_HELLO ||
		frame.length != sizeof(hello) || !gpuvec_read_bytes(&s->reader, &hello, sizeof(hello)) ||
		hello.magic != GPUVEC_PROTOCOL_MAGIC)
		return false;
	gpuvec_fault_stick("no-greeting");
	gpuvec_fault_sleep("late-greeting", NULL);
	(void) gpuvec_fault("protocol-version", &version);
	if (hello.version != (uint32_t) version)
		return refuse_version(s, &frame, hello.version, version);
	if (memcmp(hello.incarnation, s->server->options->incarnation, sizeof(hello.incarnation)) != 0)
		return refuse(s, &frame, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					  "the gpuvec engine belongs to another start of the server", true);
	if (gpuvec_server_stopping())
		return refuse(s, &frame, GPUVEC_SYSTEM_ERROR, NULL, NULL, gpuvec_stopping_message, true);
	s->seated = gpuvec_seat_take(&s->seat, s->fd, s->server->options->max_sessions);
	if (!s->seated)
	{
		snprintf(detail, sizeof(detail),
				 "all %d connections that gpuvec.max_sessions allows are in use",
				 s->server->options->max_sessions);
		return refuse(s, &frame, GPUVEC_TOO_MANY_SESSIONS, NULL, "Increase gpuvec.max_sessions.",
					  detail, false);
	}
	memset(&welcome, 0, sizeof(welcome));
	welcome.version = GPUVEC_PROTOCOL_VERSION;
	welcome.pid = (uint32_t) getpid();
	welcome.number = s->server->number;
	s->hello = hello;
	snprintf(welcome.backend, sizeof(welcome.backend), "%s",
			 s->server->store.devices[0].backend->name);
	return gpuvec_send_struct(s->fd, frame.request, GPUVEC_MSG_WELCOME, &welcome, sizeof(welcome));
}

/* Return what the last request has taken */
static void
give_back(gpuvec_session *s)
{
	if (s->charged > 0)
		gpuvec_store_unreserve(&s->server->store, s->charged);
	s->taken = s->charged = 0;
}

/* Make the buffer large enough for a request.  False on lack of memory. */
static bool
reserve_buffer(gpuvec_session *s, size_t size)
{
	if (size <= s->capacity)
		return true;
	free(s->buffer);
	s->buffer = gpuvec_memory_new(size);
	s->capacity = s->buffer ? size : 0;
	return s->buffer != NULL;
}

/* Free a buffer of more than KEEP_BYTES */
static void
trim_buffer(gpuvec_session *s)
{
	if (s->capacity <= KEEP_BYTES)
		return;
	free(s->buffer);
	s->buffer = NULL;
	s->capacity = 0;
}

/*
 * Poll briefly for the next message, which the session is preparing: going to
 * sleep and being woken would take longer, for both processes
 */
static void
await_message(gpuvec_session *s)
{
	int64_t		end = gpuvec_clock_us() + HURRY_US;

	if (gpuvec_cores() == 1)
		return;
	while (!gpuvec_can_read(&s->reader) && gpuvec_clock_us() < end)
		 /* again */ ;
}

/*
 * Read a request.  On lack of memory, skips its data, leaves request->data
 * NULL, and sets *error.  False at the end of the connection.
 */
static bool
read_request(gpuvec_session *s, gpuvec_request *request, uint16_t *type, gpuvec_error *error)
{
	gpuvec_frame frame;

	if (s->hurried)
		await_message(s);
	s->hurried = false;
	if (!gpuvec_read_bytes(&s->reader, &frame, sizeof(frame)) || !gpuvec_seat_talk(&s->seat))
		return false;
	*type = frame.type;
	request->number = frame.request;
	request->length = frame.length;
	request->data = NULL;
	if (frame.length > GPUVEC_MAX_FRAME)
		return gpuvec_answer_violation(s, request, "The message is too long.");
	gpuvec_fail_memory(error, frame.length);
	if (!gpuvec_session_take(s, frame.length, error) ||
		!reserve_buffer(s, (size_t) frame.length + 1))
		return gpuvec_skip_bytes(&s->reader, frame.length);
	request->data = s->buffer;
	return gpuvec_read_bytes(&s->reader, s->buffer, frame.length);
}

/*
 * Answer that there is no memory for a request.  Any error about pages ends
 * the connection.
 */
static bool
answer_no_memory(gpuvec_session *s, const gpuvec_request *request, uint16_t type,
				 const gpuvec_error *error)
{
	if (s->update)
		gpuvec_update_failed(s->update, error);
	return gpuvec_answer_error(s, request, error) && type != GPUVEC_MSG_PAGES &&
		type != GPUVEC_MSG_REFRESH_PAGES;
}

/* Perform a request.  False ends the connection. */
static bool
dispatch(gpuvec_session *s, const gpuvec_request *request, uint16_t type)
{
	if (type >= N_HANDLERS || handlers[type] == NULL)
		return gpuvec_answer_violation(s, request, "The type of the message is unknown.");
	return handlers[type] (s, request);
}

/* Read and answer requests until the connection ends */
static void
serve(gpuvec_session *s)
{
	gpuvec_request request;
	gpuvec_error error;
	uint16_t	type;
	bool		ok = true;

	while (ok)
	{
		gpuvec_seat_idle(&s->seat, s->update || s->parted || s->has_private || s->job);
		if (!read_request(s, &request, &type, &error))
			break;
		gpuvec_seat_work(&s->seat);
		ok = request.data ? dispatch(s, &request, type) :
			answer_no_memory(s, &request, type, &error);
		trim_buffer(s);
		give_back(s);
	}
	give_back(s);
}

void
gpuvec_session_run(gpuvec_server *server, int fd)
{
	gpuvec_session s = {.server = server, .fd = fd, .reader.fd = fd};

	if (greet(&s))
		serve(&s);
	if (s.seated)
		gpuvec_seat_leave(&s.seat);
	if (s.update)
		gpuvec_update_end(s.update);
	gpuvec_session_end_job(&s);
	gpuvec_store_drop_private(&server->store, &s);
	free(s.buffer);
	free(s.map);
	close(fd);
}
