/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  Answers to requests, and the memory that they take.
 *
 * What a frame and its answer take beyond FREE_BYTES is charged to the budget
 * of mirrors: otherwise a few sessions with large requests or answers would
 * take more memory than the engine was given.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/fault.h"
#include "engine/log.h"
#include "engine/serve/session.h"

/* Exit code after an error from which the backend cannot recover */
#define EXIT_BACKEND	4

/* Memory of a request and its answer for which nothing is charged */
#define FREE_BYTES		((size_t) 16 * 1024 * 1024)

const char	gpuvec_stopping_message[] = "the gpuvec engine is shutting down";

bool
gpuvec_answer(gpuvec_session *s, const gpuvec_request *request, gpuvec_message type,
			  const void *data, size_t size)
{
	return gpuvec_send_struct(s->fd, request->number, type, data, size);
}

bool
gpuvec_answer_error(gpuvec_session *s, const gpuvec_request *request, const gpuvec_error *error)
{
	/* who is told to try again must not find this engine */
	if (error->fatal)
	{
		gpuvec_server_stop();
		gpuvec_log("ERROR", "%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
		/* the supervisor starts the next engine without this device */
		if (error->device > 0)
			gpuvec_log("LOG", "failed: device %d", s->server->store.numbers[error->device - 1]);
	}
	gpuvec_send_error(s->fd, request->number, error, error->fatal);
	if (error->fatal)
	{
		gpuvec_fault_sleep("slow-end", NULL);
		_exit(EXIT_BACKEND);
	}
	return strcmp(error->sqlstate, GPUVEC_PROTOCOL_VIOLATION) != 0;
}

bool
gpuvec_violation(gpuvec_error *error, const char *what)
{
	return gpuvec_fail(error, GPUVEC_PROTOCOL_VIOLATION, what, NULL,
					   "invalid message to the gpuvec engine");
}

bool
gpuvec_answer_violation(gpuvec_session *s, const gpuvec_request *request, const char *what)
{
	gpuvec_error error;

	gpuvec_violation(&error, what);
	return gpuvec_answer_error(s, request, &error);
}

bool
gpuvec_answer_canceled(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_error error;

	if (gpuvec_server_stopping())
	{
		gpuvec_fail(&error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "%s", gpuvec_stopping_message);
		gpuvec_send_error(s->fd, request->number, &error, true);
	}
	return false;
}

bool
gpuvec_session_take(gpuvec_session *s, size_t bytes, gpuvec_error *error)
{
	size_t		taken = s->taken + bytes;
	size_t		charge = taken > FREE_BYTES ? taken - FREE_BYTES : 0;

	if (charge > s->charged)
	{
		if (!gpuvec_store_reserve(&s->server->store, charge - s->charged, error))
			return false;
		s->charged = charge;
	}
	s->taken = taken;
	return true;
}
