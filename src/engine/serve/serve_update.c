/*-------------------------------------------------------------------------
 *
 * serve_update.c
 *	  Requests that load or refresh a mirror.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/fault.h"
#include "engine/serve/session.h"
#include "engine/sets/sets_mirror.h"

/*
 * Begin a load.  If another session is loading or refreshing the mirror, the
 * answer is LOADING, as for a refresh.
 */
bool
gpuvec_serve_load_begin(gpuvec_session *s, const gpuvec_request *request)
{
	const char *files = request->data + sizeof(gpuvec_load);
	gpuvec_error error;
	gpuvec_load load;
	gpuvec_state state;

	if (request->length < sizeof(load) || s->update || s->parted)
		return gpuvec_answer_violation(s, request, "LOAD_BEGIN is out of place.");
	memcpy(&load, request->data, sizeof(load));
	if (load.file_bytes > GPUVEC_MAX_FILE_BYTES ||
		request->length != sizeof(load) + load.file_bytes ||
		(load.file_bytes > 0 && request->data[request->length - 1] != '\0'))
		return gpuvec_answer_violation(s, request, "LOAD_BEGIN has the wrong length.");
	if (gpuvec_is_embedding_key(&load.key) ? load.key.nfilters > 0 || load.key.values > 0 :
		!gpuvec_sets_key_valid(&load.key))
		return gpuvec_answer_violation(s, request, "The mirror has too many filter columns, or an unknown form.");
	if (load.placement >= GPUVEC_N_PLACEMENTS)
		return gpuvec_answer_violation(s, request, "LOAD_BEGIN has an unknown placement.");
	s->update = gpuvec_update_begin(&s->server->store, &load.key, &load, s, &error);
	s->has_private |= load.key.private_id != 0;
	memset(&state, 0, sizeof(state));
	if (s->update == NULL && strcmp(error.sqlstate, GPUVEC_OBJECT_IN_USE) == 0)
		state.state = GPUVEC_LOADING;
	else if (s->update == NULL)
		return gpuvec_answer_error(s, request, &error);
	else
		gpuvec_update_place(s->update, (gpuvec_placement) load.placement);
	if (s->update && load.key.private_id == 0)
		gpuvec_update_files(s->update, files, load.file_bytes);
	return gpuvec_answer(s, request, GPUVEC_MSG_STATE, &state, sizeof(state));
}

/*
 * Join the load of another session.  The answer is ABSENT if there is none.
 */
bool
gpuvec_serve_load_join(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_error error;
	gpuvec_load_join join;
	gpuvec_state state;

	if (request->length != sizeof(join) || s->update || s->parted)
		return gpuvec_answer_violation(s, request, "LOAD_JOIN is out of place.");
	memcpy(&join, request->data, sizeof(join));
	s->update = gpuvec_update_join(&s->server->store, &join, s, &error);
	if (s->update == NULL && error.message[0] != '\0')
		return gpuvec_answer_error(s, request, &error);
	memset(&state, 0, sizeof(state));
	state.state = s->update ? GPUVEC_LOADING : GPUVEC_ABSENT;
	return gpuvec_answer(s, request, GPUVEC_MSG_STATE, &state, sizeof(state));
}

/* Hand the pages over that this session has sent to another one's load */
bool
gpuvec_serve_load_leave(gpuvec_session *s, const gpuvec_request *request)
{
	uint64_t	pages;

	if (request->length != 0 || s->update == NULL || !gpuvec_update_is_slice(s->update))
		return gpuvec_answer_violation(s, request, "LOAD_LEAVE is out of place.");
	gpuvec_update_hand_over(s->update, &pages);
	s->update = NULL;
	return gpuvec_answer(s, request, GPUVEC_MSG_COUNT, &pages, sizeof(pages));
}

/* End the load or refresh under way without publishing it */
static void
end_update(gpuvec_session *s)
{
	gpuvec_update_end(s->update);
	s->update = NULL;
}

/*
 * The LSNs of all pages of the mirror, malloc'd.  NULL, with an error, if
 * they do not fit a frame or memory is lacking.
 */
static uint64_t *
page_lsns(gpuvec_update *update, const gpuvec_state *state, gpuvec_error *error)
{
	if (state->nblocks > (GPUVEC_MAX_FRAME - sizeof(*state)) / sizeof(uint64_t))
	{
		gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
					"the relation is too large for the gpuvec engine");
		return NULL;
	}
	return gpuvec_update_lsns(update, error);
}

/*
 * Begin a refresh, unless the mirror's last refresh is another one than
 * *known (if known is not NULL).  Sets *state to the mirror's state: LOADING
 * if another session is loading or refreshing it.  That session may already
 * be gone, if it canceled its request while the engine was busy with it.
 * ABSENT, if it has just been dropped: the session goes on as with no mirror.
 * s->update is NULL if no refresh was begun.  False on error.
 */
static bool
begin_refresh(gpuvec_session *s, const gpuvec_mirror_key *key, const uint64_t *known,
			  gpuvec_state *state, gpuvec_error *error)
{
	memset(state, 0, sizeof(*state));
	s->update = gpuvec_update_begin(&s->server->store, key, NULL, s, error);
	if (s->update == NULL && strcmp(error->sqlstate, GPUVEC_OBJECT_IN_USE) == 0)
		state->state = GPUVEC_LOADING;
	else if (s->update == NULL && error->message[0] != '\0')
		return false;
	if (s->update)
	{
		gpuvec_fault_sleep("slow-begin", NULL);
		gpuvec_update_state(s->update, state);
		if (state->state != GPUVEC_READY || (known && state->refresh != *known))
			end_update(s);
	}
	return true;
}

/*
 * Begin a refresh.  The answer contains the LSNs of all pages if asked for.
 */
bool
gpuvec_serve_refresh_begin(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_error error;
	gpuvec_refresh refresh;
	gpuvec_state state;
	struct iovec pieces[2] = {{&state, sizeof(state)}, {NULL, 0}};
	bool		ok;

	if (request->length != sizeof(refresh) || s->update || s->parted)
		return gpuvec_answer_violation(s, request, "REFRESH_BEGIN is out of place.");
	memcpy(&refresh, request->data, sizeof(refresh));
	if (refresh.placement >= GPUVEC_N_PLACEMENTS)
		return gpuvec_answer_violation(s, request, "REFRESH_BEGIN has an unknown placement.");
	if (!begin_refresh(s, &refresh.key, refresh.lsns ? NULL : &refresh.known, &state, &error))
		return gpuvec_answer_error(s, request, &error);
	if (s->update)
		gpuvec_update_place(s->update, (gpuvec_placement) refresh.placement);
	if (s->update && refresh.lsns)
	{
		pieces[1].iov_base = page_lsns(s->update, &state, &error);
		pieces[1].iov_len = state.nblocks * sizeof(uint64_t);
		if (pieces[1].iov_base == NULL)
		{
			end_update(s);
			return gpuvec_answer_error(s, request, &error);
		}
	}
	ok = gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_STATE, pieces, 2);
	free(pieces[1].iov_base);
	return ok;
}

bool
gpuvec_serve_pages(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_error error;

	if (s->update == NULL || s->parted)
		return gpuvec_answer_violation(s, request, "PAGES are out of place.");
	if (gpuvec_update_pages(s->update, request->data, request->length, false, &error))
		return true;

	/*
	 * the session is still sending, and could not tell which message an error
	 * answers: end the connection
	 */
	gpuvec_update_failed(s->update, &error);
	gpuvec_answer_error(s, request, &error);
	return false;
}

bool
gpuvec_serve_commit(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_error error;
	gpuvec_commit commit;
	gpuvec_state state;
	gpuvec_update *update = s->update;
	bool		ok;

	if (request->length != sizeof(commit) || update == NULL || s->parted ||
		gpuvec_update_is_slice(update))
		return gpuvec_answer_violation(s, request, "COMMIT is out of place.");
	memcpy(&commit, request->data, sizeof(commit));
	s->update = NULL;
	if (!gpuvec_update_commit(update, &commit, &state, &error))
		return gpuvec_answer_error(s, request, &error);
	ok = gpuvec_answer(s, request, GPUVEC_MSG_STATE, &state, sizeof(state));
	gpuvec_merger_wake(&s->server->store);
	return ok;
}

/* Let the update own the buffer that contains the request, if it needs it */
static bool
give_buffer(gpuvec_session *s, gpuvec_error *error)
{
	bool		ok = gpuvec_update_own(s->update, &s->buffer, s->capacity, error);

	if (s->buffer == NULL)
		s->capacity = 0;
	return ok;
}

/*
 * Take the first pages of a refresh, if the mirror's last refresh is the one
 * that the session knows
 */
bool
gpuvec_serve_refresh_pages(gpuvec_session *s, const gpuvec_request *request)
{
	const char *pages = request->data + sizeof(gpuvec_refresh_chunk);
	gpuvec_error error;
	gpuvec_refresh_chunk chunk;
	bool		ok = true;

	if (request->length < sizeof(chunk) || (s->update && !s->parted))
		return gpuvec_answer_violation(s, request, "REFRESH_PAGES are out of place.");
	memcpy(&chunk, request->data, sizeof(chunk));
	if (!s->parted)
		ok = begin_refresh(s, &chunk.key, &chunk.known, &s->found, &error);
	s->parted = s->hurried = true;
	if (ok && s->update && request->length > sizeof(chunk))
		ok = gpuvec_update_pages(s->update, pages, request->length - sizeof(chunk), true, &error) &&
			give_buffer(s, &error);
	/* as with PAGES, the session is still sending */
	if (!ok)
		gpuvec_answer_error(s, request, &error);
	return ok;
}

/*
 * Take the last pages of a refresh and publish it, if the mirror's last
 * refresh was the one that the session knows.  Answers with the mirror's
 * state.
 */
bool
gpuvec_serve_refresh(gpuvec_session *s, const gpuvec_request *request)
{
	const char *pages = request->data + sizeof(gpuvec_refresh_once);
	gpuvec_error error;
	gpuvec_refresh_once refresh;
	gpuvec_state state;
	gpuvec_update *update;
	bool		ok;

	if (request->length < sizeof(refresh) || (s->update && !s->parted))
		return gpuvec_answer_violation(s, request, "REFRESH is out of place.");
	memcpy(&refresh, request->data, sizeof(refresh));
	if (!s->parted && !begin_refresh(s, &refresh.key, &refresh.known, &s->found, &error))
		return gpuvec_answer_error(s, request, &error);
	state = s->found;
	update = s->update;
	s->update = NULL;
	s->parted = false;
	if (update)
	{
		ok = gpuvec_update_pages(update, pages, request->length - sizeof(refresh), true, &error);
		if (!ok)
			gpuvec_update_end(update);
		else
			ok = gpuvec_update_commit(update, &refresh.commit, &state, &error);
		if (!ok)
			return gpuvec_answer_error(s, request, &error);
	}
	ok = gpuvec_answer(s, request, GPUVEC_MSG_STATE, &state, sizeof(state));
	gpuvec_merger_wake(&s->server->store);
	gpuvec_fault_sleep("slow-after-refresh", NULL);
	return ok;
}

/*
 * Close the connection of a session.  Its thread reads what came before, then
 * the end; an answer that it is sending fails.
 */
static void
hang_up(const void *session)
{
	const gpuvec_session *s = session;

	shutdown(s->fd, SHUT_RDWR);
}

/*
 * Close the connection of the session that loads or refreshes a mirror and
 * makes no step, so that this one may do it
 */
bool
gpuvec_serve_oust(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_mirror_key key;
	uint64_t	n;

	if (request->length != sizeof(key) || s->update || s->parted)
		return gpuvec_answer_violation(s, request, "OUST is out of place.");
	memcpy(&key, request->data, sizeof(key));
	n = gpuvec_update_oust(&s->server->store, &key, s, hang_up);
	return gpuvec_answer(s, request, GPUVEC_MSG_COUNT, &n, sizeof(n));
}
