/*-------------------------------------------------------------------------
 *
 * serve_overlaps.c
 *	  Searches that count the rows of pairs of queries.
 *
 * Such a request is a search of several queries that count
 * (GPUVEC_QUERY_COUNT).  serve_search.c parses it and opens the mirror.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "core/clock.h"
#include "engine/host_memory.h"
#include "engine/serve/page_rows.h"
#include "engine/serve/search_run.h"

bool
gpuvec_search_overlaps(const search_run *q)
{
	return q->head.nqueries > 1 && (q->wire[0].flags & GPUVEC_QUERY_COUNT) != 0;
}

/* True if a query says nothing but that rows share an id with it */
static bool
is_plain(const search_run *q, uint32_t i)
{
	return q->wire[i].flags == (GPUVEC_QUERY_PAGES | GPUVEC_QUERY_COUNT) && q->wire[i].nconditions == 0;
}

bool
gpuvec_overlaps_parse(search_run *q, const uint8_t *pages, gpuvec_error *error)
{
	bool		ok = q->head.nqueries <= GPUVEC_MOST_OVERLAPS && !q->scoring.sparse &&
		q->scoring.measure == GPUVEC_INTERSECTION;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
		ok = ok && is_plain(q, i);
	q->overlaps.queries = q->queries;
	q->overlaps.n = q->head.nqueries;
	q->overlaps.counts.bits = pages;
	q->overlaps.counts.bytes = q->head.counted_bytes;
	q->overlaps.canceled = &q->canceled;
	return ok || gpuvec_violation(error, "Pairs of such queries are not counted.");
}

bool
gpuvec_overlaps_run(search_run *q, gpuvec_error *error)
{
	uint64_t	npairs = gpuvec_overlap_pairs(q->overlaps.n);

	if (q->mirror.device->backend->overlaps == NULL)
		return true;
	q->overlaps.pairs = calloc(npairs, sizeof(uint64_t));
	if (q->overlaps.pairs == NULL)
		return gpuvec_fail_memory(error, npairs * sizeof(uint64_t));
	return gpuvec_search_number(q, error) &&
		gpuvec_scheduler_overlaps(q->mirror.device->scheduler, q->mirror.view, &q->overlaps, error);
}

/* Send an answer whose parts are known */
static bool
send_answer(gpuvec_session *s, const gpuvec_request *request, const search_run *q,
			gpuvec_result *result, char *pages)
{
	size_t		counts_size = (result->nqueries + (size_t) 1) / 2 * 2 * sizeof(uint32_t);
	char	   *counts = calloc(1, counts_size);
	struct iovec pieces[4] = {
		{result, sizeof(*result)}, {counts, counts_size},
		{q->overlaps.pairs, result->group_bytes}, {pages, result->page_bytes}
	};
	gpuvec_error error;
	bool		ok;

	if (counts == NULL)
	{
		gpuvec_fail_memory(&error, counts_size);
		return gpuvec_answer_error(s, request, &error);
	}
	/* that of the first query; the others have none of their own */
	*(uint32_t *) counts = (uint32_t) result->nhits;
	ok = gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_RESULT, pieces, 4);
	free(counts);
	return ok;
}

bool
gpuvec_overlaps_answer(gpuvec_session *s, const gpuvec_request *request, search_run *q,
					   int64_t started)
{
	gpuvec_result result = {.state = q->mirror.state, .nqueries = q->overlaps.n};
	char	   *pages = NULL;
	gpuvec_error error;
	bool		ok;

	result.counted = GPUVEC_NOT_COUNTED;
	if (q->overlaps.pairs != NULL &&
		q->overlaps.ntids < GPUVEC_MAX_FRAME / sizeof(gpuvec_hit) - gpuvec_overlap_pairs(GPUVEC_MOST_OVERLAPS))
	{
		result.counted = 0;
		result.nhits = q->overlaps.ntids;
		result.group_bytes = gpuvec_overlap_pairs(q->overlaps.n) * sizeof(uint64_t);
	}
	if (!gpuvec_session_take(s, result.nhits * sizeof(gpuvec_hit) + result.group_bytes, &error))
		return gpuvec_answer_error(s, request, &error);
	if (result.nhits > 0)
	{
		pages = gpuvec_page_rows_new(q->overlaps.tids, result.nhits, &result.page_bytes);
		if (pages == NULL)
		{
			gpuvec_fail_memory(&error, result.nhits * sizeof(gpuvec_hit));
			return gpuvec_answer_error(s, request, &error);
		}
	}
	result.engine_us = (uint32_t) (gpuvec_clock_us() - started);
	ok = send_answer(s, request, q, &result, pages);
	free(pages);
	return ok;
}
