/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The requests of one connection.
 *
 * A session's thread reads a frame, does what it says, and answers.  Whatever a
 * frame contains, the worst that happens is that the connection is closed.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/embedding/embedding_mirror.h"
#include "engine/fault.h"
#include "engine/log.h"
#include "engine/host_memory.h"
#include "engine/server.h"

/* Exit code after an error from which the backend cannot recover */
#define EXIT_BACKEND	4

/* A buffer that is larger is not kept from request to request */
#define KEEP_BYTES		((size_t) 1024 * 1024)

/* How long to wait for a message that will come soon, without sleeping */
#define HURRY_US		50

typedef struct session
{
	gpuvec_server *server;
	int			fd;
	gpuvec_seat seat;			/* if seated */
	bool		seated;
	bool		has_private;	/* it has loaded a private mirror */
	gpuvec_update *update;		/* load or refresh under way */
	bool		parted;			/* pages of a REFRESH have come before it ... */
	gpuvec_state found;			/* ... when the mirror was this; without an update it is not made */
	bool		hurried;		/* the next message comes soon */
	char	   *buffer;			/* of requests */
	size_t		room;
	uint8_t    *map;			/* that the session wanted to be kept */
	size_t		map_bytes;
} session;

/* Read exactly size bytes */
static bool
read_bytes(int fd, void *to, size_t size)
{
	char	   *p = to;

	while (size > 0)
	{
		ssize_t		n = recv(fd, p, size, 0);

		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (n > 0)
		{
			p += n;
			size -= (size_t) n;
		}
	}
	return true;
}

/* Read size bytes that there is no room for */
static bool
skip_bytes(int fd, size_t size)
{
	char		sink[4096];
	bool		ok = true;

	for (; ok && size > 0; size -= size < sizeof(sink) ? size : sizeof(sink))
		ok = read_bytes(fd, sink, size < sizeof(sink) ? size : sizeof(sink));
	return ok;
}

/* Write all pieces; changes iov */
static bool
write_pieces(int fd, struct iovec *iov, int n)
{
	gpuvec_seat_answer();
	while (n > 0)
	{
		struct msghdr message = {.msg_iov = iov,.msg_iovlen = (size_t) n};
		ssize_t		sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return false;
		for (; n > 0 && sent >= (ssize_t) iov->iov_len; iov++, n--)
			sent -= (ssize_t) iov->iov_len;
		if (n > 0 && sent > 0)
		{
			iov->iov_base = (char *) iov->iov_base + sent;
			iov->iov_len -= (size_t) sent;
		}
	}
	return true;
}

/* Send a frame of up to 3 pieces */
static bool
send_frame(int fd, uint64_t request, gpuvec_message type, struct iovec *pieces, int n)
{
	gpuvec_frame frame = {.type = (uint16_t) type,.request = request};
	struct iovec iov[4] = {{&frame, sizeof(frame)}};
	uint64_t	length = 0;

	for (int i = 0; i < n; i++)
	{
		iov[i + 1] = pieces[i];
		length += pieces[i].iov_len;
	}
	if (length > GPUVEC_MAX_FRAME)
	{
		gpuvec_error error;

		gpuvec_fail(&error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
					"the answer of the gpuvec engine is too large");
		return gpuvec_send_error(fd, request, &error, false);
	}
	frame.length = (uint32_t) length;
	return write_pieces(fd, iov, n + 1);
}

/* Send a frame with one struct */
static bool
send_struct(int fd, uint64_t request, gpuvec_message type, const void *data, size_t size)
{
	struct iovec piece = {(void *) data, size};

	return send_frame(fd, request, type, &piece, 1);
}

bool
gpuvec_send_error(int fd, uint64_t request, const gpuvec_error *error, bool retry)
{
	gpuvec_error_head head = {.retry = retry,.fallback = error->fallback && !retry};
	char		text[sizeof(error->message) + sizeof(error->detail) + sizeof(error->hint)];
	size_t		n = 0;
	struct iovec pieces[2];

	memcpy(head.sqlstate, error->sqlstate, sizeof(head.sqlstate));
	n += (size_t) snprintf(text + n, sizeof(text) - n, "%s", error->message) + 1;
	n += (size_t) snprintf(text + n, sizeof(text) - n, "%s", error->detail) + 1;
	n += (size_t) snprintf(text + n, sizeof(text) - n, "%s", error->hint) + 1;
	pieces[0] = (struct iovec) {&head, sizeof(head)};
	pieces[1] = (struct iovec) {text, n};
	return send_frame(fd, request, GPUVEC_MSG_ERROR, pieces, 2);
}

/* Answer with an error, and end the connection if it asks for that */
static bool
answer_error(session *s, uint64_t request, const gpuvec_error *error)
{
	gpuvec_send_error(s->fd, request, error, error->fatal);
	if (error->fatal)
	{
		gpuvec_log("ERROR", "%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
		_exit(EXIT_BACKEND);
	}
	return strcmp(error->sqlstate, GPUVEC_PROTOCOL_VIOLATION) != 0;
}

/* Answer that a frame makes no sense; ends the connection */
static bool
answer_violation(session *s, uint64_t request, const char *what)
{
	gpuvec_error error;

	gpuvec_fail(&error, GPUVEC_PROTOCOL_VIOLATION, what, NULL,
				"invalid message to the gpuvec engine");
	return answer_error(s, request, &error);
}

/* State of a mirror */
static bool
do_stat(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_mirror_key key;
	gpuvec_state state;

	if (length != sizeof(key))
		return answer_violation(s, request, "STAT has the wrong length.");
	memcpy(&key, data, sizeof(key));
	gpuvec_store_stat(&s->server->store, &key, s, &state);
	return send_struct(s->fd, request, GPUVEC_MSG_STATE, &state, sizeof(state));
}

/* Begin a load; or answer, as for a refresh, that another session's is unfinished */
static bool
do_load(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_error error;
	gpuvec_load load;
	gpuvec_state state;

	if (length < sizeof(load) || s->update || s->parted)
		return answer_violation(s, request, "LOAD_BEGIN is out of place.");
	memcpy(&load, data, sizeof(load));
	if (load.file_bytes > GPUVEC_MAX_FILE_BYTES || length != sizeof(load) + load.file_bytes ||
		(load.file_bytes > 0 && data[length - 1] != '\0'))
		return answer_violation(s, request, "LOAD_BEGIN has the wrong length.");
	s->update = gpuvec_update_begin(&s->server->store, &load.key, &load, s, &error);
	s->has_private |= load.key.private_id != 0;
	memset(&state, 0, sizeof(state));
	if (s->update == NULL && strcmp(error.sqlstate, GPUVEC_OBJECT_IN_USE) == 0)
		state.state = GPUVEC_LOADING;
	else if (s->update == NULL)
		return answer_error(s, request, &error);
	else if (load.key.private_id == 0)
		gpuvec_update_files(s->update, data + sizeof(load), load.file_bytes);
	return send_struct(s->fd, request, GPUVEC_MSG_STATE, &state, sizeof(state));
}

/* Forget the load or refresh under way */
static void
abort_update(session *s)
{
	gpuvec_update_abort(s->update);
	s->update = NULL;
}

/* The LSNs of all pages that a refresh knows, as long as they fit a frame; malloc'ed */
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
 * Become the updater of a mirror, unless it is not what the session knows (*known, if it
 * knows anything).  Sets state to what it is: LOADING if another session's load or refresh
 * is unfinished.  That session may be gone, and have canceled its request while we were
 * busy with it.
 */
static bool
begin_refresh(session *s, const gpuvec_mirror_key *key, const uint64_t *known,
			  gpuvec_state *state, gpuvec_error *error)
{
	memset(state, 0, sizeof(*state));
	s->update = gpuvec_update_begin(&s->server->store, key, NULL, s, error);
	if (s->update == NULL && strcmp(error->sqlstate, GPUVEC_OBJECT_IN_USE) == 0)
		state->state = GPUVEC_LOADING;
	else if (s->update == NULL && error->message[0] != '\0')
		return false;
	if (s->update)
		gpuvec_update_state(s->update, state);
	if (s->update && known && state->refresh != *known)
		abort_update(s);
	return true;
}

/* Begin a refresh: answer with the LSNs of all pages if asked */
static bool
do_refresh(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_error error;
	gpuvec_refresh refresh;
	gpuvec_state state;
	uint64_t   *lsns = NULL;
	struct iovec pieces[2];
	bool		ok;

	if (length != sizeof(refresh) || s->update || s->parted)
		return answer_violation(s, request, "REFRESH_BEGIN is out of place.");
	memcpy(&refresh, data, sizeof(refresh));
	if (!begin_refresh(s, &refresh.key, refresh.lsns ? NULL : &refresh.known, &state, &error))
		return answer_error(s, request, &error);
	if (s->update && refresh.lsns)
	{
		lsns = page_lsns(s->update, &state, &error);
		if (lsns == NULL)
		{
			abort_update(s);
			return answer_error(s, request, &error);
		}
	}
	pieces[0] = (struct iovec) {&state, sizeof(state)};
	pieces[1] = (struct iovec) {lsns, lsns ? state.nblocks * sizeof(uint64_t) : 0};
	ok = send_frame(s->fd, request, GPUVEC_MSG_STATE, pieces, 2);
	free(lsns);
	return ok;
}

/* Take pages */
static bool
do_pages(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_error error;

	if (s->update == NULL || s->parted)
		return answer_violation(s, request, "PAGES are out of place.");
	if (gpuvec_update_pages(s->update, data, length, false, &error))
		return true;
	/* the session is sending more, and would not know what the error is about */
	answer_error(s, request, &error);
	return false;
}

/* Publish a load or refresh */
static bool
do_commit(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_error error;
	gpuvec_commit commit;
	gpuvec_state state;
	gpuvec_update *update = s->update;
	bool		ok;

	if (length != sizeof(commit) || update == NULL || s->parted)
		return answer_violation(s, request, "COMMIT is out of place.");
	memcpy(&commit, data, sizeof(commit));
	s->update = NULL;
	if (!gpuvec_update_commit(update, &commit, &state, &error))
		return answer_error(s, request, &error);
	ok = send_struct(s->fd, request, GPUVEC_MSG_STATE, &state, sizeof(state));
	gpuvec_merger_wake(&s->server->store);
	return ok;
}

/* Leave the buffer, with the request in it, to the update, if it needs it */
static bool
give_buffer(session *s, gpuvec_error *error)
{
	bool		ok = gpuvec_update_own(s->update, &s->buffer, s->room, error);

	if (s->buffer == NULL)
		s->room = 0;
	return ok;
}

/* Take the first pages of a refresh, if the mirror is what the session takes it for */
static bool
do_refresh_pages(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_error error;
	gpuvec_refresh_part part;
	bool		ok = true;

	if (length < sizeof(part) || (s->update && !s->parted))
		return answer_violation(s, request, "REFRESH_PAGES are out of place.");
	memcpy(&part, data, sizeof(part));
	if (!s->parted)
		ok = begin_refresh(s, &part.key, &part.known, &s->found, &error);
	s->parted = s->hurried = true;
	if (ok && s->update && length > sizeof(part))
		ok = gpuvec_update_pages(s->update, data + sizeof(part), length - sizeof(part), true, &error) &&
			give_buffer(s, &error);
	/* as with PAGES, the session is sending more */
	if (!ok)
		answer_error(s, request, &error);
	return ok;
}

/*
 * Make a refresh, with its last pages, if the mirror is what the session took it for;
 * answer what it is then.
 */
static bool
do_refresh_once(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_error error;
	gpuvec_refresh_once refresh;
	gpuvec_state state;
	gpuvec_update *update;
	bool		ok;

	if (length < sizeof(refresh) || (s->update && !s->parted))
		return answer_violation(s, request, "REFRESH is out of place.");
	memcpy(&refresh, data, sizeof(refresh));
	if (!s->parted && !begin_refresh(s, &refresh.key, &refresh.known, &s->found, &error))
		return answer_error(s, request, &error);
	state = s->found;
	update = s->update;
	s->update = NULL;
	s->parted = false;
	if (update)
	{
		ok = gpuvec_update_pages(update, data + sizeof(refresh), length - sizeof(refresh),
								 true, &error);
		if (!ok)
			gpuvec_update_abort(update);
		else
			ok = gpuvec_update_commit(update, &refresh.commit, &state, &error);
		if (!ok)
			return answer_error(s, request, &error);
	}
	ok = send_struct(s->fd, request, GPUVEC_MSG_STATE, &state, sizeof(state));
	gpuvec_merger_wake(&s->server->store);
	gpuvec_fault_sleep("slow-after-refresh", NULL);
	return ok;
}

/* Drop mirrors */
static bool
do_drop(session *s, uint64_t request, const char *data, size_t length)
{
	gpuvec_drop drop;
	uint64_t	n;

	if (length != sizeof(drop))
		return answer_violation(s, request, "DROP has the wrong length.");
	memcpy(&drop, data, sizeof(drop));
	n = gpuvec_store_drop(&s->server->store, &drop, s);
	if (drop.private_id != 0)
		s->has_private = false;
	return send_struct(s->fd, request, GPUVEC_MSG_COUNT, &n, sizeof(n));
}

/* List mirrors */
static bool
do_list(session *s, uint64_t request)
{
	size_t		n;
	gpuvec_mirror_info *list = gpuvec_store_list(&s->server->store, &n);
	gpuvec_error error;
	bool		ok;

	if (list == NULL && n > 0)
	{
		gpuvec_fail_memory(&error, n * sizeof(*list));
		return answer_error(s, request, &error);
	}
	ok = send_struct(s->fd, request, GPUVEC_MSG_MIRRORS, list, n * sizeof(*list));
	free(list);
	return ok;
}

/* Describe the engine */
static bool
do_engine(session *s, uint64_t request)
{
	gpuvec_engine_info info;

	gpuvec_store_engine_info(&s->server->store, &info);
	info.connections = __atomic_load_n(&s->server->sessions, __ATOMIC_RELAXED);
	return send_struct(s->fd, request, GPUVEC_MSG_ENGINE_INFO, &info, sizeof(info));
}

/* A search on its way */
typedef struct search
{
	gpuvec_search head;
	gpuvec_topk_query *queries;
	gpuvec_match *matches;
	gpuvec_searchable mirror;
	int			canceled;		/* the connection was closed; set atomically */
} search;

/* Are ids ascending and distinct? */
static bool
ids_valid(const uint16_t *ids, uint32_t len)
{
	for (uint32_t i = 1; i < len; i++)
		if (ids[i - 1] >= ids[i])
			return false;
	return true;
}

/* One query as it came */
static bool
parse_query(const gpuvec_query *wire, const uint16_t *ids, search *q, gpuvec_topk_query *query)
{
	if (wire->k < 1 || wire->k > GPUVEC_MAX_K || wire->len > GPUVEC_MAX_IDS ||
		(wire->flags & ~(GPUVEC_QUERY_MIN_SCORE | GPUVEC_QUERY_AFTER)) != 0 ||
		isnan(wire->min_score) || isnan(wire->after_score) || !ids_valid(ids, wire->len))
		return false;
	memset(query, 0, sizeof(*query));
	query->ids = ids;
	query->len = wire->len;
	query->k = wire->k;
	query->has_min_score = (wire->flags & GPUVEC_QUERY_MIN_SCORE) != 0;
	query->min_score = wire->min_score;
	query->has_after = (wire->flags & GPUVEC_QUERY_AFTER) != 0;
	query->after_score = wire->after_score;
	query->after_tid = wire->after_tid;
	query->canceled = &q->canceled;
	return true;
}

/* What is said of a request for which there is no memory */
static const char no_memory[] = "There is no memory for it.";

/* Answer what parsing a request has found wrong */
static bool
answer_wrong(session *s, uint64_t request, const char *wrong, size_t length)
{
	gpuvec_error error;

	if (wrong != no_memory)
		return answer_violation(s, request, wrong);
	gpuvec_fail_memory(&error, length);
	return answer_error(s, request, &error);
}

/* Take a search apart; ids stay in the frame.  NULL, or what is wrong. */
static const char *
parse_search(search *q, const char *data, size_t length)
{
	const gpuvec_query *wire;
	const uint16_t *ids;
	uint64_t	left;

	if (length < sizeof(q->head))
		return "SEARCH is cut off.";
	memcpy(&q->head, data, sizeof(q->head));
	data += sizeof(q->head);
	length -= sizeof(q->head);
	if (q->head.measure >= GPUVEC_N_MEASURES)
		return "The measure is unknown.";
	if (q->head.method >= GPUVEC_N_METHODS)
		return "The method is unknown.";
	if (q->head.nqueries > GPUVEC_MAX_QUERIES ||
		q->head.nids > (uint64_t) GPUVEC_MAX_QUERIES * GPUVEC_MAX_IDS ||
		length != q->head.nqueries * sizeof(gpuvec_query) + q->head.nids * sizeof(uint16_t))
		return "SEARCH has the wrong length.";
	wire = (const gpuvec_query *) data;
	ids = (const uint16_t *) (wire + q->head.nqueries);
	left = q->head.nids;
	q->queries = malloc((q->head.nqueries + (size_t) 1) * sizeof(*q->queries));
	if (q->queries == NULL)
		return no_memory;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		if (wire[i].len > left || !parse_query(&wire[i], ids, q, &q->queries[i]))
			return "A query is invalid.";
		ids += wire[i].len;
		left -= wire[i].len;
	}
	return left == 0 ? NULL : "There are more ids than queries have.";
}

/* Hits that a query can have at most */
static uint64_t
most_hits(const search *q, const gpuvec_topk_query *query)
{
	uint64_t	nrows = q->mirror.view->nrows;

	return query->k < nrows ? query->k : nrows;
}

/* Room for the answers, if they fit a frame */
static bool
allocate_matches(search *q, gpuvec_error *error)
{
	uint64_t	total = 0;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
		total += most_hits(q, &q->queries[i]);
	if (total > (GPUVEC_MAX_FRAME - sizeof(gpuvec_result)) / sizeof(gpuvec_hit) - q->head.nqueries)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED,
						   "All queries together may have too many rows.",
						   "Ask for fewer rows, or fewer queries at a time.",
						   "the answer of the gpuvec engine would be too large");
	q->matches = malloc((total + 1) * sizeof(gpuvec_match));
	if (q->matches == NULL)
		return gpuvec_fail_memory(error, total * sizeof(gpuvec_match));
	total = 0;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		q->queries[i].matches = q->matches + total;
		total += most_hits(q, &q->queries[i]);
	}
	return true;
}

/*
 * Turn matches into hits: each tells whether its page was read by a later refresh
 * than the session knows of, as of the very version of the mirror that was searched.
 */
static void
make_hits(const search *q, gpuvec_hit *hits)
{
	const gpuvec_page_numbers *numbers = q->mirror.numbers;
	uint64_t	known = q->head.known;
	bool		any_newer = known < q->mirror.state.refresh;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		for (uint32_t j = 0; j < q->queries[i].nmatches; j++)
		{
			const gpuvec_match *match = &q->queries[i].matches[j];
			uint32_t	block = gpuvec_tid_block(match->tid);
			bool		newer = any_newer &&
				(known == 0 || block >= numbers->nblocks || gpuvec_page_numbers_get(numbers, block) > known);

			*hits++ = (gpuvec_hit) {
				.score = match->score,.place = gpuvec_hit_place(match->tid, match->common, newer)
			};
		}
	}
}

/* Microseconds since some moment */
static int64_t
stopwatch(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Send the answer to a search */
static bool
answer_search(session *s, uint64_t request, const search *q, int64_t started)
{
	gpuvec_result result = {.state = q->mirror.state};
	uint32_t	nqueries = q->mirror.view ? q->head.nqueries : 0;
	size_t		counts_size = (nqueries + (size_t) 1) / 2 * 2 * sizeof(uint32_t);
	char	   *body;
	struct iovec pieces[2];
	gpuvec_error error;
	bool		ok;

	result.nqueries = nqueries;
	for (uint32_t i = 0; i < nqueries; i++)
		result.nhits += q->queries[i].nmatches;
	body = malloc(counts_size + result.nhits * sizeof(gpuvec_hit) + 1);
	if (body == NULL)
	{
		gpuvec_fail_memory(&error, counts_size + result.nhits * sizeof(gpuvec_hit));
		return answer_error(s, request, &error);
	}
	memset(body, 0, counts_size);
	for (uint32_t i = 0; i < nqueries; i++)
		((uint32_t *) body)[i] = q->queries[i].nmatches;
	if (nqueries > 0)
		make_hits(q, (gpuvec_hit *) (body + counts_size));
	result.engine_us = (uint32_t) (stopwatch() - started);
	pieces[0] = (struct iovec) {&result, sizeof(result)};
	pieces[1] = (struct iovec) {body, counts_size + result.nhits * sizeof(gpuvec_hit)};
	ok = send_frame(s->fd, request, GPUVEC_MSG_RESULT, pieces, 2);
	free(body);
	return ok;
}

/* Run a search of an open mirror */
static bool
run_search(session *s, search *q, gpuvec_error *error)
{
	bool		ok;

	gpuvec_fault_crash("crash-on-search");
	gpuvec_hangup_watch(s->fd, &q->canceled);
	gpuvec_fault_sleep("slow-search", &q->canceled);
	gpuvec_fault_stick("stuck-search");
	ok = allocate_matches(q, error) &&
		gpuvec_scheduler_topk(q->mirror.place->scheduler, q->mirror.view,
							  (gpuvec_measure) q->head.measure,
							  (gpuvec_method) q->head.method, q->queries,
							  q->head.nqueries, error);
	gpuvec_hangup_unwatch(s->fd);
	return ok;
}

/* A search was canceled: nobody is there, or the engine is about to exit */
static bool
answer_canceled(session *s, uint64_t request)
{
	gpuvec_error error;

	if (gpuvec_server_stopping())
	{
		gpuvec_fail(&error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "the gpuvec engine is shutting down");
		gpuvec_send_error(s->fd, request, &error, true);
	}
	return false;
}

/* Search */
static bool
do_search(session *s, uint64_t request, const char *data, size_t length)
{
	int64_t		started = stopwatch();
	search		q = {.canceled = 0};
	gpuvec_error error;
	const char *wrong = parse_search(&q, data, length);
	bool		ok;

	if (wrong)
	{
		free(q.queries);
		return answer_wrong(s, request, wrong, length);
	}
	gpuvec_store_open_search(&s->server->store, &q.head.key, s, &q.head.need,
							 q.head.nqueries, &q.mirror);
	if (q.mirror.view == NULL || q.head.nqueries == 0 || run_search(s, &q, &error))
		ok = q.canceled ? answer_canceled(s, request) : answer_search(s, request, &q, started);
	else
		ok = q.canceled && !error.fatal ? answer_canceled(s, request) : answer_error(s, request, &error);
	gpuvec_store_close_search(&q.mirror);
	free(q.matches);
	free(q.queries);
	gpuvec_memory_prepare();
	return ok;
}

/* A request of an embedding table, whatever it asks for */
typedef struct embed_request
{
	const gpuvec_mirror_key *key;
	uint64_t	nkeys;			/* that it asks for: how much work it is */
	gpuvec_embedding_answer *answer;
	void	   *query;
	bool		(*run) (gpuvec_embedding_table *table, gpuvec_pool *pool, void *query, gpuvec_error *error);
	int			canceled;
} embed_request;

static bool
run_embed(gpuvec_embedding_table *table, gpuvec_pool *pool, void *query, gpuvec_error *error)
{
	return gpuvec_embedding_run(table, pool, query, error);
}

static bool
run_nearest(gpuvec_embedding_table *table, gpuvec_pool *pool, void *query, gpuvec_error *error)
{
	return gpuvec_nearest_run(table, pool, query, error);
}

/* Serve a request; without its table the answer's state says so */
static bool
serve_embed(session *s, embed_request *r, gpuvec_error *error)
{
	gpuvec_embedding_table *table;
	bool		ok = true;

	gpuvec_fault_crash("crash-on-search");
	table = gpuvec_store_open_embed(&s->server->store, r->key, s, r->nkeys, &r->answer->state);
	if (table)
	{
		gpuvec_hangup_watch(s->fd, &r->canceled);
		gpuvec_fault_sleep("slow-search", &r->canceled);
		gpuvec_fault_stick("stuck-search");
		ok = r->run(table, s->server->store.pool, r->query, error);
		gpuvec_hangup_unwatch(s->fd);
		gpuvec_embedding_unref(table);
	}
	return ok;
}

/* Send the answer, with two arrays, or what went wrong (ok is false) */
static bool
answer_embed(session *s, uint64_t request, const embed_request *r, bool ok, const gpuvec_error *error,
			 struct iovec first, struct iovec second, int64_t started)
{
	struct iovec pieces[3] = {{r->answer, sizeof(*r->answer)}, first, second};

	if (r->canceled && (ok || !error->fatal))
		return answer_canceled(s, request);
	if (!ok)
		return answer_error(s, request, error);
	r->answer->engine_us = (uint32_t) (stopwatch() - started);
	return send_frame(s->fd, request, GPUVEC_MSG_EMBEDDING_ANSWER, pieces, 3);
}

/* Keep a request's visibility map, or use the one that was kept; NULL, or what is wrong */
static const char *
keep_map(session *s, gpuvec_embedding_query *q)
{
	gpuvec_sight *sight = &q->sight;

	if (q->head.flags & GPUVEC_EMBEDDING_KEEP_MAP)
	{
		free(s->map);
		s->map_bytes = 0;
		s->map = malloc(sight->map_bytes + 1);
		if (s->map == NULL)
			return no_memory;
		memcpy(s->map, sight->map, sight->map_bytes);
		s->map_bytes = sight->map_bytes;
	}
	if (q->head.flags & GPUVEC_EMBEDDING_KEPT_MAP)
	{
		if (s->map == NULL)
			return "EMBED uses a map that was not kept.";
		sight->map = s->map;
		sight->map_bytes = s->map_bytes;
	}
	return NULL;
}

/* Gather or pool vectors, or their gradients */
static bool
do_embed(session *s, uint64_t request, const char *data, size_t length)
{
	int64_t		started = stopwatch();
	gpuvec_embedding_query q;
	gpuvec_error error;
	const char *wrong = gpuvec_embedding_parse(&q, data, length);
	embed_request r = {&q.head.key, q.head.nkeys, &q.answer, &q, run_embed, 0};
	size_t		found = 0;
	bool		ok;

	if (wrong == NULL)
		wrong = keep_map(s, &q);
	if (wrong)
		return answer_wrong(s, request, wrong, length);
	q.canceled = &r.canceled;
	ok = serve_embed(s, &r, &error);
	if (q.answer.status == GPUVEC_EMBEDDING_DONE && q.found)
		found = (q.head.nkeys + 7) / 8 * 8;
	ok = answer_embed(s, request, &r, ok, &error, (struct iovec) {q.found, found},
					  (struct iovec) {q.body, q.body_size}, started);
	free(q.found);
	free(q.body);
	return ok;
}

/* Find the nearest rows */
static bool
do_nearest(session *s, uint64_t request, const char *data, size_t length)
{
	int64_t		started = stopwatch();
	gpuvec_nearest_query q;
	gpuvec_error error;
	const char *wrong = gpuvec_nearest_parse(&q, data, length);
	embed_request r = {&q.head.key, q.head.nqueries, &q.answer, &q, run_nearest, 0};
	size_t		counts = 0;
	bool		ok;

	if (wrong)
		return answer_violation(s, request, wrong);
	q.canceled = &r.canceled;
	ok = serve_embed(s, &r, &error);
	if (q.answer.status == GPUVEC_EMBEDDING_DONE)
		counts = (q.head.nqueries + (size_t) 1) / 2 * 2 * sizeof(uint32_t);
	ok = answer_embed(s, request, &r, ok, &error, (struct iovec) {q.counts, counts},
					  (struct iovec) {q.body, q.body_size}, started);
	free(q.counts);
	free(q.body);
	return ok;
}

/* Do what a frame says.  False ends the connection. */
static bool
do_request(session *s, const gpuvec_frame *frame, const char *data)
{
	uint64_t	request = frame->request;
	size_t		length = frame->length;

	switch ((gpuvec_message) frame->type)
	{
		case GPUVEC_MSG_PAGES:
			return do_pages(s, request, data, length);
		case GPUVEC_MSG_STAT:
			return do_stat(s, request, data, length);
		case GPUVEC_MSG_SEARCH:
			return do_search(s, request, data, length);
		case GPUVEC_MSG_EMBEDDING:
			return do_embed(s, request, data, length);
		case GPUVEC_MSG_NEAREST:
			return do_nearest(s, request, data, length);
		case GPUVEC_MSG_LOAD_BEGIN:
			return do_load(s, request, data, length);
		case GPUVEC_MSG_REFRESH_BEGIN:
			return do_refresh(s, request, data, length);
		case GPUVEC_MSG_REFRESH_PAGES:
			return do_refresh_pages(s, request, data, length);
		case GPUVEC_MSG_REFRESH:
			return do_refresh_once(s, request, data, length);
		case GPUVEC_MSG_COMMIT:
			return do_commit(s, request, data, length);
		case GPUVEC_MSG_DROP:
			return do_drop(s, request, data, length);
		case GPUVEC_MSG_LIST:
			return do_list(s, request);
		case GPUVEC_MSG_ENGINE:
			return do_engine(s, request);
		default:
			return answer_violation(s, request, "The type of the message is unknown.");
	}
}

/* Answer that the engine is not for this session */
static bool
refuse(session *s, const gpuvec_frame *frame, const char *sqlstate, const char *detail,
	   const char *hint, const char *message, bool retry)
{
	gpuvec_error error;

	gpuvec_fail(&error, sqlstate, detail, hint, "%s", message);
	gpuvec_send_error(s->fd, frame->request, &error, retry);
	return false;
}

/* The first frame */
static bool
greet(session *s)
{
	gpuvec_frame frame;
	gpuvec_hello hello;
	gpuvec_welcome welcome;
	long		version = GPUVEC_PROTOCOL_VERSION;
	char		detail[128];

	if (!read_bytes(s->fd, &frame, sizeof(frame)) || frame.type != GPUVEC_MSG_HELLO ||
		frame.length != sizeof(hello) || !read_bytes(s->fd, &hello, sizeof(hello)) ||
		hello.magic != GPUVEC_PROTOCOL_MAGIC)
		return false;
	(void) gpuvec_fault("protocol-version", &version);
	if (hello.version != (uint32_t) version)
	{
		snprintf(detail, sizeof(detail), "The session speaks version %u, the engine version %ld.",
				 hello.version, version);
		return refuse(s, &frame, GPUVEC_PROTOCOL_VIOLATION, detail,
					  "Restart the server after installing another version of gpuvec.",
					  "protocol version mismatch between gpuvec and its engine", false);
	}
	if (memcmp(hello.incarnation, s->server->options->incarnation, sizeof(hello.incarnation)) != 0)
		return refuse(s, &frame, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					  "the gpuvec engine belongs to another start of the server", true);
	s->seated = gpuvec_seat_take(&s->seat, s->fd, s->server->options->max_sessions);
	if (!s->seated)
	{
		snprintf(detail, sizeof(detail), "all %d connections that gpuvec.max_sessions allows are in use",
				 s->server->options->max_sessions);
		return refuse(s, &frame, GPUVEC_TOO_MANY_SESSIONS, NULL, "Increase gpuvec.max_sessions.",
					  detail, false);
	}
	memset(&welcome, 0, sizeof(welcome));
	welcome.version = GPUVEC_PROTOCOL_VERSION;
	welcome.pid = (uint32_t) getpid();
	snprintf(welcome.backend, sizeof(welcome.backend), "%s", s->server->store.places[0].backend->name);
	return send_struct(s->fd, frame.request, GPUVEC_MSG_WELCOME, &welcome, sizeof(welcome));
}

/* Room for a request of this size */
static bool
reserve_buffer(session *s, size_t size)
{
	if (size <= s->room)
		return true;
	free(s->buffer);
	s->buffer = gpuvec_memory_new(size);
	s->room = s->buffer ? size : 0;
	return s->buffer != NULL;
}

/* Let go of a buffer that was for one large request */
static void
trim_buffer(session *s)
{
	if (s->room <= KEEP_BYTES)
		return;
	free(s->buffer);
	s->buffer = NULL;
	s->room = 0;
}

/*
 * Wait a moment for the next message, which the session is making just now: to sleep and
 * to be woken takes longer, for both.
 */
static void
await_message(const session *s)
{
	int64_t		end = stopwatch() + HURRY_US;
	char		c;

	if (gpuvec_cores() == 1)
		return;
	while (recv(s->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN && stopwatch() < end)
		 /* again */ ;
}

/*
 * Read a frame; without memory for it there is no buffer.  False at the end
 * of the connection.
 */
static bool
read_frame(session *s, gpuvec_frame *frame)
{
	if (s->hurried)
		await_message(s);
	s->hurried = false;
	if (!read_bytes(s->fd, frame, sizeof(*frame)) || !gpuvec_seat_talk(&s->seat))
		return false;
	if (frame->length > GPUVEC_MAX_FRAME)
		return answer_violation(s, frame->request, "The message is too long.");
	if (!reserve_buffer(s, (size_t) frame->length + 1))
		return skip_bytes(s->fd, frame->length);
	return read_bytes(s->fd, s->buffer, frame->length);
}

/*
 * There is no memory for a request.  As ever, an error about pages ends the
 * connection.
 */
static bool
answer_no_memory(session *s, const gpuvec_frame *frame)
{
	gpuvec_error error;

	gpuvec_fail_memory(&error, frame->length);
	return answer_error(s, frame->request, &error) && frame->type != GPUVEC_MSG_PAGES &&
		frame->type != GPUVEC_MSG_REFRESH_PAGES;
}

/* Read and answer requests until the connection ends */
static void
serve(session *s)
{
	gpuvec_frame frame;
	bool		ok = true;

	while (ok)
	{
		gpuvec_seat_idle(&s->seat, s->update || s->parted || s->has_private);
		if (!read_frame(s, &frame))
			break;
		gpuvec_seat_work(&s->seat);
		ok = s->buffer ? do_request(s, &frame, s->buffer) : answer_no_memory(s, &frame);
		trim_buffer(s);
	}
}

void
gpuvec_session_run(gpuvec_server *server, int fd)
{
	session		s = {.server = server,.fd = fd};

	if (greet(&s))
		serve(&s);
	if (s.seated)
		gpuvec_seat_leave(&s.seat);
	gpuvec_update_abort(s.update);
	gpuvec_store_drop_private(&server->store, &s);
	free(s.buffer);
	free(s.map);
	close(fd);
}
