/*-------------------------------------------------------------------------
 *
 * serve_partitions.c
 *	  Searches of several mirrors at once, such as those of partitions.
 *
 * Mirrors that are fresh enough are the partitions of the search.  While it
 * runs, and in the rows that it has found, a row's tid has the number of its
 * partition in its upper bits.  So rows rank by (score descending, partition,
 * tid) wherever they rank by (score descending, tid).
 *
 * They are searched (partitions_search.c).  Then the rows are written down in
 * their order, each with the number of its partition.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/host_memory.h"
#include "engine/serve/partitions_run.h"

#define TID_MASK	(gpuvec_partition_tid(1) - 1)

/* Check what a search of partitions cannot have */
static bool
queries_fit(const search_run *q)
{
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		if (q->wire[i].nconditions > 0 || q->wire[i].nvalues > 0 ||
			q->wire[i].k == GPUVEC_ALL_ROWS || (q->wire[i].flags & ~(uint32_t) GPUVEC_QUERY_MIN_SCORE) != 0)
			return false;
	return true;
}

/* Check the keys of the mirrors: all have values, or none has */
static bool
keys_fit(const partitions_run *run)
{
	for (uint32_t i = 0; i < run->head.npartitions; i++)
		if (!gpuvec_sets_key_valid(&run->wire[i].key) ||
			run->wire[i].key.values != run->wire[0].key.values)
			return false;
	return true;
}

/* Parse the numbers at the head of the request */
static bool
parse_head(partitions_run *run, const gpuvec_request *request, gpuvec_error *error)
{
	gpuvec_search_partitions *head = &run->head;

	if (request->length < sizeof(*head))
		return gpuvec_violation(error, "SEARCH_PARTS is cut off.");
	memcpy(head, request->data, sizeof(*head));
	if (head->measure >= GPUVEC_N_WIRE_MEASURES)
		return gpuvec_violation(error, "The measure is unknown.");
	if (head->method >= GPUVEC_N_METHODS)
		return gpuvec_violation(error, "The method is unknown.");
	if (head->npartitions == 0 || head->npartitions > GPUVEC_MAX_PARTITIONS ||
		head->nqueries > GPUVEC_MAX_QUERIES ||
		head->nids > (uint64_t) GPUVEC_MAX_QUERIES * GPUVEC_MAX_IDS * 2)
		return gpuvec_violation(error, "SEARCH_PARTS is invalid.");
	run->q.head.measure = head->measure;
	run->q.head.method = head->method;
	run->q.head.nqueries = head->nqueries;
	run->q.head.nids = head->nids;
	return true;
}

/*
 * Parse a search of partitions.  The queries point to ids in the request's
 * data.
 */
static bool
parse_partitions(partitions_run *run, const gpuvec_request *request, gpuvec_error *error)
{
	search_run *q = &run->q;
	size_t		at = sizeof(run->head);
	size_t		weights;
	size_t		queries;

	if (!parse_head(run, request, error))
		return false;
	weights = gpuvec_search_scoring_parse(q, request->data + at, request->length - at, error);
	if (weights == SIZE_MAX)
		return false;
	at += weights;
	queries = at + run->head.npartitions * sizeof(gpuvec_search_partition);
	run->wire = (const gpuvec_search_partition *) (request->data + at);
	q->wire = (const gpuvec_query *) (request->data + queries);
	if (request->length < queries + run->head.nqueries * sizeof(gpuvec_query) ||
		request->length != queries + run->head.nqueries * sizeof(gpuvec_query) +
		gpuvec_search_values_bytes(q->wire, run->head.nqueries) + run->head.nids * sizeof(uint16_t))
		return gpuvec_violation(error, "SEARCH_PARTS has the wrong length.");
	if (!queries_fit(q) || !keys_fit(run))
		return gpuvec_violation(error, "SEARCH_PARTS is invalid.");
	q->queries = calloc((size_t) run->head.nqueries * 2 + 1, sizeof(*q->queries));
	run->found = calloc(run->head.nqueries + (size_t) 1, sizeof(*run->found));
	run->mirrors = calloc(run->head.npartitions, sizeof(*run->mirrors));
	run->covered = calloc(run->head.npartitions, sizeof(*run->covered));
	if (q->queries == NULL || run->found == NULL || run->mirrors == NULL || run->covered == NULL)
		return gpuvec_fail_memory(error, request->length);
	run->plain = q->queries + run->head.nqueries;
	if (!gpuvec_search_queries_parse(q, (const float *) (q->wire + run->head.nqueries), error))
		return false;
	memcpy(run->plain, q->queries, run->head.nqueries * sizeof(*q->queries));
	return true;
}

/* Open the mirrors that are fresh enough */
static void
open_partitions(gpuvec_session *s, partitions_run *run)
{
	for (uint32_t i = 0; i < run->head.npartitions; i++)
	{
		gpuvec_sets_need need = {.fresh = run->wire[i].need, .canceled = &run->q.canceled};

		gpuvec_sets_open(&s->server->store, &run->wire[i].key, s, &need, run->head.nqueries,
						 &run->mirrors[i]);
		if (run->mirrors[i].view)
			run->nopen++;
	}
}

/* Where the parts of an answer lie, and its bytes */
typedef struct answer_layout
{
	size_t		counts;
	size_t		hits;
	size_t		whose;
	size_t		bytes;
} answer_layout;

static answer_layout
lay_out_answer(const partitions_run *run)
{
	answer_layout at = {.counts = run->head.npartitions * sizeof(gpuvec_result)};
	size_t		n = 0;

	for (uint32_t i = 0; i < run->head.nqueries; i++)
		n += run->found[i].n;
	at.hits = at.counts + (run->head.nqueries + (size_t) 1) / 2 * 2 * sizeof(uint32_t);
	at.whose = at.hits + n * sizeof(gpuvec_hit);
	at.bytes = at.whose + n * sizeof(uint16_t);
	return at;
}

/* Write down the rows of all queries */
static void
write_rows(const partitions_run *run, char *body, const answer_layout *at)
{
	gpuvec_result *results = (gpuvec_result *) body;
	uint32_t   *counts = (uint32_t *) (body + at->counts);
	gpuvec_hit *hit = (gpuvec_hit *) (body + at->hits);
	uint16_t   *whose = (uint16_t *) (body + at->whose);

	for (uint32_t i = 0; i < run->head.nqueries; i++)
	{
		counts[i] = run->found[i].n;
		for (uint32_t j = 0; j < run->found[i].n; j++)
		{
			const gpuvec_match *row = &run->found[i].rows[j];
			uint32_t	partition = (uint32_t) (row->tid >> GPUVEC_PARTITION_SHIFT);

			*hit++ = gpuvec_search_hit(&run->mirrors[partition], run->wire[partition].known, run->head.xmin,
									   row, row->tid & TID_MASK);
			*whose++ = (uint16_t) partition;
			results[partition].nhits++;
		}
	}
}

/* Send the answer */
static bool
answer_partitions(gpuvec_session *s, const gpuvec_request *request, const partitions_run *run,
				  int64_t started)
{
	answer_layout at = lay_out_answer(run);
	gpuvec_result *results = NULL;
	struct iovec piece = {NULL, at.bytes};
	gpuvec_error error;
	bool		ok;

	gpuvec_fail_memory(&error, at.bytes);
	if (gpuvec_session_take(s, at.bytes, &error))
		piece.iov_base = results = calloc(1, at.bytes);
	if (results == NULL)
		return gpuvec_answer_error(s, request, &error);
	for (uint32_t i = 0; i < run->head.npartitions; i++)
	{
		results[i].state = run->mirrors[i].state;
		results[i].nqueries = run->mirrors[i].view ? run->head.nqueries : 0;
		results[i].nqueries += gpuvec_fault_due("another-query") && results[i].nqueries % 2 == 1;
	}
	write_rows(run, piece.iov_base, &at);
	for (uint32_t i = 0; i < run->head.nqueries; i++)
		gpuvec_count_ways(run->found[i].ways, results->ways);
	results->engine_us = (uint32_t) (gpuvec_clock_us() - started);
	ok = gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_PARTITIONS_RESULT, &piece, 1);
	free(results);
	return ok;
}

/* Free what a search has allocated, and close its mirrors */
static void
free_partitions(partitions_run *run)
{
	for (uint32_t i = 0; run->mirrors && i < run->head.npartitions; i++)
		gpuvec_sets_close(&run->mirrors[i]);
	gpuvec_compound_rows_unref(&run->compound);
	gpuvec_view_unref(run->joint);
	free(run->covered);
	free(run->mirrors);
	free(run->q.queries);
	free(run->found);
	free(run->rows);
	free(run->some);
}

bool
gpuvec_serve_search_partitions(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	partitions_run run = {.nopen = 0};
	gpuvec_error error;
	bool		ok = parse_partitions(&run, request, &error);

	if (!ok)
	{
		free_partitions(&run);
		return gpuvec_answer_error(s, request, &error);
	}
	gpuvec_hangup_watch(s->fd, &run.q.canceled);
	open_partitions(s, &run);
	ok = run.nopen == 0 || run.head.nqueries == 0 || gpuvec_partitions_search(s, &run, &error);
	gpuvec_hangup_unwatch(s->fd);
	if (run.q.canceled && (ok || !error.fatal))
		ok = gpuvec_answer_canceled(s, request);
	else
		ok = ok ? answer_partitions(s, request, &run, started) : gpuvec_answer_error(s, request, &error);
	free_partitions(&run);
	gpuvec_memory_prepare();
	return ok;
}
