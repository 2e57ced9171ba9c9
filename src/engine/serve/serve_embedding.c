/*-------------------------------------------------------------------------
 *
 * serve_embedding.c
 *	  Requests to embedding tables.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/embedding/embedding_mirror.h"
#include "engine/embedding/embedding_query.h"
#include "engine/fault.h"
#include "engine/serve/serve_gram.h"
#include "engine/serve/session.h"

/* A request of any type: pooling, nearest rows, the Gram matrix */
typedef struct table_request
{
	const gpuvec_mirror_key *key;
	uint64_t	nkeys;			/* keys or queries of the request, a measure
								 * of its work */
	gpuvec_embedding_answer *answer;
	void	   *query;
	bool		(*run) (gpuvec_embedding_table *table, gpuvec_thread_pool *pool, void *query,
						gpuvec_error *error);
	int			canceled;		/* the connection was closed; atomic */
} table_request;

static bool
run_pooling(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, void *query,
			gpuvec_error *error)
{
	return gpuvec_embedding_run(table, pool, query, error);
}

static bool
run_nearest(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, void *query,
			gpuvec_error *error)
{
	return gpuvec_nearest_run(table, pool, query, error);
}

/*
 * Run a request.  If its mirror is not there or not ready, nothing runs and
 * the answer's state says so.
 */
static bool
run_request(gpuvec_session *s, table_request *r, gpuvec_error *error)
{
	gpuvec_embedding_table *table;
	bool		ok = true;

	gpuvec_fault_crash("crash-on-search");
	table = gpuvec_embedding_open(&s->server->store, r->key, s, r->nkeys, &r->answer->state);
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

/* Send the answer with two arrays or, if ok is false, the error */
static bool
answer_request(gpuvec_session *s, const gpuvec_request *request, const table_request *r, bool ok,
			   const gpuvec_error *error, struct iovec first, struct iovec second,
			   int64_t started)
{
	struct iovec pieces[3] = {{r->answer, sizeof(*r->answer)}, first, second};
	gpuvec_error no_room;

	if (r->canceled && (ok || !error->fatal))
		return gpuvec_answer_canceled(s, request);
	if (!ok)
		return gpuvec_answer_error(s, request, error);
	if (!gpuvec_session_take(s, first.iov_len + second.iov_len, &no_room))
		return gpuvec_answer_error(s, request, &no_room);
	r->answer->engine_us = (uint32_t) (gpuvec_clock_us() - started);
	return gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_EMBEDDING_ANSWER, pieces, 3);
}

/*
 * Keep a request's visibility map in the session, or use the map that was
 * kept
 */
static bool
keep_map(gpuvec_session *s, gpuvec_embedding_query *q, gpuvec_error *error)
{
	gpuvec_visibility *visibility = &q->visibility;

	if (q->head.flags & GPUVEC_EMBEDDING_KEEP_MAP)
	{
		free(s->map);
		s->map_bytes = 0;
		s->map = malloc(visibility->map_bytes + 1);
		if (s->map == NULL)
			return gpuvec_fail_memory(error, visibility->map_bytes);
		memcpy(s->map, visibility->map, visibility->map_bytes);
		s->map_bytes = visibility->map_bytes;
	}
	if (q->head.flags & GPUVEC_EMBEDDING_KEPT_MAP)
	{
		if (s->map == NULL)
			return gpuvec_violation(error, "EMBED uses a map that was not kept.");
		visibility->map = s->map;
		visibility->map_bytes = s->map_bytes;
	}
	return true;
}

bool
gpuvec_serve_pooling(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_embedding_query q;
	gpuvec_error error;
	const char *wrong = gpuvec_embedding_parse(&q, request->data, request->length);
	table_request r = {&q.head.key, q.head.nkeys, &q.answer, &q, run_pooling, 0};
	struct iovec found = {NULL, 0};
	struct iovec body = {NULL, 0};
	bool		ok;

	if (wrong)
		return gpuvec_answer_violation(s, request, wrong);
	if (!keep_map(s, &q, &error))
		return gpuvec_answer_error(s, request, &error);
	q.canceled = &r.canceled;
	ok = run_request(s, &r, &error);
	found.iov_base = q.found;
	if (q.answer.status == GPUVEC_EMBEDDING_DONE && q.found)
		found.iov_len = (q.head.nkeys + 7) / 8 * 8;
	body.iov_base = q.body;
	body.iov_len = q.body_size;
	ok = answer_request(s, request, &r, ok, &error, found, body, started);
	free(q.found);
	free(q.body);
	return ok;
}

bool
gpuvec_serve_nearest(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_nearest_query q;
	gpuvec_error error;
	const char *wrong = gpuvec_nearest_parse(&q, request->data, request->length);
	table_request r = {&q.head.key, q.head.nqueries, &q.answer, &q, run_nearest, 0};
	struct iovec counts = {NULL, 0};
	struct iovec body = {NULL, 0};
	bool		ok;

	if (wrong)
		return gpuvec_answer_violation(s, request, wrong);
	q.canceled = &r.canceled;
	ok = run_request(s, &r, &error);
	counts.iov_base = q.counts;
	if (q.answer.status == GPUVEC_EMBEDDING_DONE)
		counts.iov_len = (q.head.nqueries + (size_t) 1) / 2 * 2 * sizeof(uint32_t);
	body.iov_base = q.body;
	body.iov_len = q.body_size;
	ok = answer_request(s, request, &r, ok, &error, counts, body, started);
	free(q.counts);
	free(q.body);
	return ok;
}

bool
gpuvec_serve_gram(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_gram_query q;
	gpuvec_error error;
	const char *wrong = gpuvec_gram_parse(&q, request->data, request->length);
	table_request r = {&q.head.key, 1, &q.answer, &q, gpuvec_gram_run, 0};
	struct iovec none = {NULL, 0};
	struct iovec body = {NULL, 0};
	bool		ok;

	if (wrong)
		return gpuvec_answer_violation(s, request, wrong);
	q.store = &s->server->store;
	ok = run_request(s, &r, &error);
	body.iov_base = q.body;
	body.iov_len = q.body_size;
	ok = answer_request(s, request, &r, ok, &error, none, body, started);
	free(q.body);
	return ok;
}
