/*-------------------------------------------------------------------------
 *
 * serve_admin.c
 *	  Requests about resident mirrors and the engine.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/serve/session.h"

bool
gpuvec_serve_stat(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_mirror_key key;
	gpuvec_state state;

	if (request->length != sizeof(key))
		return gpuvec_answer_violation(s, request, "STAT has the wrong length.");
	memcpy(&key, request->data, sizeof(key));
	gpuvec_store_stat(&s->server->store, &key, s, &state);
	return gpuvec_answer(s, request, GPUVEC_MSG_STATE, &state, sizeof(state));
}

bool
gpuvec_serve_drop(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_drop drop;
	uint64_t	n;

	if (request->length != sizeof(drop))
		return gpuvec_answer_violation(s, request, "DROP has the wrong length.");
	memcpy(&drop, request->data, sizeof(drop));
	n = gpuvec_store_drop(&s->server->store, &drop, s);
	if (drop.private_id != 0)
		s->has_private = false;
	return gpuvec_answer(s, request, GPUVEC_MSG_COUNT, &n, sizeof(n));
}

/* Answer with n structs, and free them; NULL: out of memory if n > 0 */
static bool
answer_list(gpuvec_session *s, const gpuvec_request *request, gpuvec_message type, void *list,
			size_t n, size_t size)
{
	gpuvec_error error;
	bool		ok;

	if (list == NULL && n > 0)
	{
		gpuvec_fail_memory(&error, n * size);
		return gpuvec_answer_error(s, request, &error);
	}
	ok = gpuvec_answer(s, request, type, list, n * size);
	free(list);
	return ok;
}

bool
gpuvec_serve_list(gpuvec_session *s, const gpuvec_request *request)
{
	size_t		n;
	void	   *list = gpuvec_store_list(&s->server->store, &n);

	return answer_list(s, request, GPUVEC_MSG_MIRRORS, list, n, sizeof(gpuvec_mirror_info));
}

bool
gpuvec_serve_devices(gpuvec_session *s, const gpuvec_request *request)
{
	size_t		n;
	void	   *list = gpuvec_store_devices(&s->server->store, &n);

	return answer_list(s, request, GPUVEC_MSG_DEVICES_INFO, list, n, sizeof(gpuvec_device_info));
}

bool
gpuvec_serve_places(gpuvec_session *s, const gpuvec_request *request)
{
	size_t		n;
	void	   *list = gpuvec_store_places(&s->server->store, &n);

	return answer_list(s, request, GPUVEC_MSG_PLACES_INFO, list, n, sizeof(gpuvec_place_info));
}

bool
gpuvec_serve_engine(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_engine_info info;

	gpuvec_store_engine_info(&s->server->store, &info);
	info.connections = __atomic_load_n(&s->server->sessions, __ATOMIC_RELAXED);
	return gpuvec_answer(s, request, GPUVEC_MSG_ENGINE_INFO, &info, sizeof(info));
}
