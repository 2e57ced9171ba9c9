/*-------------------------------------------------------------------------
 *
 * serve_search.c
 *	  Searches of sets.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/set_match.h"
#include "engine/fault.h"
#include "engine/host_memory.h"
#include "engine/serve/page_rows.h"
#include "engine/serve/search_run.h"

#define ALL_FLAGS \
	(GPUVEC_QUERY_MIN_SCORE | GPUVEC_QUERY_AFTER | GPUVEC_QUERY_DISJOINT | GPUVEC_QUERY_PAGES | \
	 GPUVEC_QUERY_COUNT)
#define ALL_FORMS \
	(uint32_t) (GPUVEC_FORM_WIDE | GPUVEC_FORM_VALUES)

/* Microseconds that a search waits at most for its mirror */
#define MOST_PATIENCE_US	1000000

/* True if n values are ascending and distinct */
static bool
values_valid(const uint64_t *values, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (values[i - 1] >= values[i])
			return false;
	return true;
}

/* Check a condition of a search in a mirror with nfilters filter columns */
static bool
condition_valid(const gpuvec_filter *filter, const gpuvec_condition *c, uint32_t nfilters)
{
	bool		of_set = c->kind == GPUVEC_IS_NULL || c->kind == GPUVEC_IS_NOT_NULL;

	if (c->column > nfilters || c->kind < GPUVEC_KEY_BETWEEN || c->kind > GPUVEC_LAST_CONDITION)
		return false;
	if (c->kind == GPUVEC_SET_MATCHES ? c->column > 0 : c->column == 0 && !of_set)
		return false;
	if (c->kind != GPUVEC_KEY_ANY && c->kind != GPUVEC_SET_MATCHES)
		return c->n == 0;
	if (c->first > filter->nvalues || c->n > filter->nvalues - c->first)
		return false;
	return c->kind == GPUVEC_KEY_ANY ? values_valid(filter->values + c->first, c->n) :
		gpuvec_match_valid(filter->values + c->first, c->n, c->low) && gpuvec_filter_match(filter) == c;
}

/*
 * Check a query's filter, which begins at `from` and has at most `left`
 * bytes.  Returns its bytes, or SIZE_MAX if it is invalid.
 */
static size_t
parse_filter(const gpuvec_query *wire, const char *from, uint64_t left, uint32_t nfilters,
			 gpuvec_filter *filter)
{
	size_t		conditions = wire->nconditions * sizeof(gpuvec_condition);
	size_t		bytes = conditions + wire->nvalues * sizeof(uint64_t);

	if (wire->nconditions > GPUVEC_MAX_CONDITIONS || wire->nvalues > GPUVEC_MAX_FILTER_VALUES ||
		bytes > left)
		return SIZE_MAX;
	filter->n = wire->nconditions;
	filter->nvalues = wire->nvalues;
	filter->conditions = (const gpuvec_condition *) from;
	filter->values = (const uint64_t *) (from + conditions);
	for (uint32_t i = 0; i < filter->n; i++)
		if (!condition_valid(filter, &filter->conditions[i], nfilters))
			return SIZE_MAX;
	return bytes;
}

/*
 * True if a query asks for a number of rows, by hits, or for all from the
 * first one
 */
static bool
k_valid(const gpuvec_query *wire)
{
	if ((wire->flags & GPUVEC_QUERY_COUNT) != 0 && (wire->flags & GPUVEC_QUERY_PAGES) == 0)
		return false;
	if (wire->k == GPUVEC_ALL_ROWS)
		return (wire->flags & GPUVEC_QUERY_AFTER) == 0;
	return wire->k >= 1 && wire->k <= GPUVEC_MAX_K && (wire->flags & GPUVEC_QUERY_PAGES) == 0;
}

/*
 * True if weights are what the measure takes: finite and not 0, and positive
 * for jaccard
 */
static bool
weights_valid(const gpuvec_scoring *scoring, const float *weights, uint32_t n)
{
	bool		positive = gpuvec_scoring_sparse(*scoring) == GPUVEC_SPARSE_JACCARD;

	for (uint32_t i = 0; i < n; i++)
		if (!isfinite(weights[i]) || weights[i] == 0 || (positive && weights[i] < 0))
			return false;
	return true;
}

/* Give a query its weights, one for each of its ids; false: invalid */
static bool
parse_weights(const gpuvec_scoring *scoring, gpuvec_id_span ids, const float *weights,
			  gpuvec_topk_query *query)
{
	gpuvec_sparse vector = {ids, weights, false};

	if (!weights_valid(scoring, weights, ids.n))
		return false;
	query->weights = weights;
	query->square = gpuvec_sparse_own(GPUVEC_SPARSE_COSINE, &vector);
	query->own = gpuvec_sparse_own(gpuvec_scoring_sparse(*scoring), &vector);
	return true;
}

/* Check a query and copy it; false if it is invalid */
static bool
parse_query(const gpuvec_query *wire, const float *weights, const uint16_t *ids, search_run *q,
			gpuvec_topk_query *query)
{
	gpuvec_id_span span = {ids, wire->len, (wire->form & GPUVEC_FORM_WIDE) != 0};

	if (!k_valid(wire) || wire->len > GPUVEC_MAX_IDS ||
		(wire->flags & ~(uint32_t) ALL_FLAGS) != 0 ||
		isnan(wire->min_score) || isnan(wire->after_score) || (wire->form & ~ALL_FORMS) != 0 ||
		((wire->form & GPUVEC_FORM_VALUES) != 0) != (q->scoring.sparse != 0) ||
		!gpuvec_sets_ids_valid(span))
		return false;
	memset(query, 0, sizeof(*query));
	if (q->scoring.sparse && !parse_weights(&q->scoring, span, weights, query))
		return false;
	query->ids = ids;
	query->len = wire->len;
	query->k = wire->k;
	query->unordered = wire->k == GPUVEC_ALL_ROWS;
	query->has_min_score = (wire->flags & GPUVEC_QUERY_MIN_SCORE) != 0;
	query->min_score = wire->min_score;
	query->has_after = (wire->flags & GPUVEC_QUERY_AFTER) != 0;
	query->after_score = wire->after_score;
	query->after_tid = wire->after_tid;
	query->disjoint = (wire->flags & GPUVEC_QUERY_DISJOINT) != 0;
	query->canceled = &q->canceled;
	return true;
}

/* Places of a query's ids in gpuvec_search.ids */
static inline uint64_t
query_places(const gpuvec_query *wire)
{
	return (uint64_t) wire->len * (wire->form & GPUVEC_FORM_WIDE ? 2 : 1);
}

/* Values of a query */
static inline uint64_t
query_values(const gpuvec_query *wire)
{
	return wire->form & GPUVEC_FORM_VALUES ? wire->len : 0;
}

size_t
gpuvec_search_values_bytes(const gpuvec_query *wire, uint32_t n)
{
	uint64_t	values = 0;

	for (uint32_t i = 0; i < n; i++)
		values += query_values(&wire[i]);
	return values * sizeof(float);
}

size_t
gpuvec_search_scoring_parse(search_run *q, const char *from, size_t left, gpuvec_error *error)
{
	gpuvec_search_weights weights;
	bool		ok = true;

	if (q->head.measure >= GPUVEC_WIRE_SPARSE)
	{
		q->scoring = gpuvec_sparse_scoring((gpuvec_sparse_measure) (q->head.measure - GPUVEC_WIRE_SPARSE));
		return 0;
	}
	q->scoring.measure = (gpuvec_measure) q->head.measure;
	if (q->scoring.measure != GPUVEC_TVERSKY)
		return 0;
	if (left < sizeof(weights))
		ok = gpuvec_violation(error, "SEARCH is cut off.");
	else
		memcpy(&weights, from, sizeof(weights));
	if (ok && !gpuvec_tversky_valid(weights.alpha, weights.beta))
		ok = gpuvec_violation(error, "The weights are invalid.");
	if (!ok)
		return SIZE_MAX;
	q->scoring.tversky = gpuvec_make_tversky(weights.alpha, weights.beta);
	return sizeof(weights);
}

/*
 * Parse what comes before the queries of a search; returns its bytes, or 0 on
 * failure
 */
static size_t
parse_head(search_run *q, const gpuvec_request *request, gpuvec_error *error)
{
	gpuvec_search *head = &q->head;
	size_t		weights;

	if (request->length < sizeof(*head))
		return gpuvec_violation(error, "SEARCH is cut off.");
	memcpy(head, request->data, sizeof(*head));
	if (head->measure >= GPUVEC_N_WIRE_MEASURES)
		return gpuvec_violation(error, "The measure is unknown.");
	if (head->method >= GPUVEC_N_METHODS)
		return gpuvec_violation(error, "The method is unknown.");
	if (!gpuvec_sets_key_valid(&head->key))
		return gpuvec_violation(error, "The mirror has too many filter columns, or an unknown form.");
	weights = gpuvec_search_scoring_parse(q, request->data + sizeof(*head),
										  request->length - sizeof(*head), error);
	return weights == SIZE_MAX ? 0 : sizeof(*head) + weights;
}

bool
gpuvec_search_queries_parse(search_run *q, const float *values, gpuvec_error *error)
{
	uint64_t	left = q->head.nids;
	const uint16_t *ids = (const uint16_t *)
		((const char *) values + gpuvec_search_values_bytes(q->wire, q->head.nqueries));

	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		uint64_t	places = query_places(&q->wire[i]);

		if (places > left || !parse_query(&q->wire[i], values, ids, q, &q->queries[i]))
			return gpuvec_violation(error, "A query is invalid.");
		values += query_values(&q->wire[i]);
		ids += places;
		left -= places;
	}
	return left == 0 || gpuvec_violation(error, "There are more ids than queries have.");
}

/* Parse the queries' filters, which have head->filter_bytes in all */
static bool
parse_filters(search_run *q, const char *from, gpuvec_error *error)
{
	uint64_t	left = q->head.filter_bytes;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		size_t		bytes = parse_filter(&q->wire[i], from, left, q->head.key.nfilters,
										 &q->queries[i].filter);

		if (bytes == SIZE_MAX)
			return gpuvec_violation(error, "A filter is invalid.");
		q->filtered |= q->queries[i].filter.n > 0;
		from += bytes;
		left -= bytes;
	}
	return left == 0 || gpuvec_violation(error, "There are more conditions than queries have.");
}

/* True if rows of some pages are counted */
static bool
counts(const search_run *q)
{
	return q->head.nqueries == 1 && (q->wire[0].flags & GPUVEC_QUERY_COUNT) != 0;
}

/* True if the rows that are counted are to be put into groups */
static bool
groups(const search_run *q)
{
	return q->head.grouping.nkeys > 0 || q->head.grouping.nvalues > 0;
}

/* Parse the bits of pages whose rows are counted */
static bool
parse_counted(search_run *q, const char *from, gpuvec_error *error)
{
	if (groups(q) && (!counts(q) || !gpuvec_grouping_valid(&q->head.grouping, q->head.key.nfilters)))
		return gpuvec_violation(error, "The grouping is invalid.");
	if (counts(q))
	{
		q->queries[0].grouping = groups(q) ? &q->head.grouping : NULL;
		q->queries[0].counts.bits = (const uint8_t *) from;
		q->queries[0].counts.bytes = q->head.counted_bytes;
		return true;
	}
	if (gpuvec_search_overlaps(q))
		return gpuvec_overlaps_parse(q, (const uint8_t *) from, error);
	return q->head.counted_bytes == 0 ||
		gpuvec_violation(error, "There are pages, but no query that counts.");
}

/*
 * Parse a search.  The queries point to ids, filters and pages in the
 * request's data.  The caller frees q->queries, on failure too.
 */
static bool
parse_search(search_run *q, const gpuvec_request *request, gpuvec_error *error)
{
	const gpuvec_search *head = &q->head;
	size_t		begin = parse_head(q, request, error);
	const gpuvec_query *wire = (const gpuvec_query *) (request->data + begin);
	const char *filters;
	const char *pages;

	if (begin == 0)
		return false;
	/* values follow filters and pages, so these keep them aligned */
	if (head->nqueries > GPUVEC_MAX_QUERIES || head->filter_bytes > request->length ||
		head->filter_bytes % sizeof(uint64_t) != 0 || head->counted_bytes > request->length ||
		head->counted_bytes % sizeof(uint64_t) != 0 ||
		head->nids > (uint64_t) GPUVEC_MAX_QUERIES * GPUVEC_MAX_IDS * 2 ||
		request->length - begin < head->nqueries * sizeof(gpuvec_query) ||
		request->length - begin != head->nqueries * sizeof(gpuvec_query) + head->filter_bytes +
		head->counted_bytes + gpuvec_search_values_bytes(wire, head->nqueries) + head->nids * sizeof(uint16_t))
		return gpuvec_violation(error, "SEARCH has the wrong length.");
	q->queries = malloc((head->nqueries + (size_t) 1) * sizeof(*q->queries));
	if (q->queries == NULL)
		return gpuvec_fail_memory(error, request->length);
	q->wire = wire;
	filters = (const char *) (wire + head->nqueries);
	pages = filters + head->filter_bytes;
	return gpuvec_search_queries_parse(q, (const float *) (pages + head->counted_bytes), error) &&
		parse_filters(q, filters, error) && parse_counted(q, pages, error);
}

/* Most hits that a query can have */
static uint64_t
most_hits(const search_run *q, const gpuvec_topk_query *query)
{
	uint64_t	nrows = q->mirror.view->nrows;

	/* the backend allocates them */
	if (query->unordered)
		return 0;
	return query->k < nrows ? query->k : nrows;
}

/*
 * Queries for all rows are answered in order, the first rows only, if the
 * backend knows no other way, or if all rows may not fit a frame.  Otherwise
 * the session says whether it needs no more than tids.  Some backends know no
 * other way but to count.
 */
static void
choose_order(search_run *q)
{
	const gpuvec_backend *backend = q->mirror.device->backend;
	bool		takes = (counts(q) ? backend->takes_counts : backend->takes_unordered) &&
		q->head.nqueries == 1 && q->mirror.view->nrows < GPUVEC_MAX_FRAME / sizeof(gpuvec_hit) - 64;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
		if (q->queries[i].unordered && !takes)
		{
			q->queries[i].unordered = false;
			q->queries[i].k = GPUVEC_FIRST_ROWS;
		}
	q->queries[0].bare = takes && (q->wire[0].flags & GPUVEC_QUERY_PAGES) != 0;
}

/* The order of results */
static int
compare_matches(const void *a, const void *b)
{
	const gpuvec_match *x = a;
	const gpuvec_match *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* As many rows as may be followed by others have to be in order */
static void
sort_first_rows(const search_run *q)
{
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		if (q->queries[i].unordered && !q->queries[i].bare && q->queries[i].nmatches == GPUVEC_FIRST_ROWS)
			qsort(q->queries[i].matches, GPUVEC_FIRST_ROWS, sizeof(gpuvec_match), compare_matches);
}

/*
 * Allocate the matches of all queries.  Fails if they may not fit a frame.
 */
static bool
allocate_matches(search_run *q, gpuvec_error *error)
{
	uint64_t	total = 0;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
		total += most_hits(q, &q->queries[i]);
	if (total > (GPUVEC_MAX_FRAME - sizeof(gpuvec_result)) / sizeof(gpuvec_hit) -
		2 * (uint64_t) q->head.nqueries)
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
		if (!q->queries[i].unordered)
			q->queries[i].matches = q->matches + total;
		total += most_hits(q, &q->queries[i]);
	}
	return true;
}

/*
 * A hit tells whether its page was read by a later refresh than the session
 * knows, and whether the session's xmin proves it, according to the version of
 * the mirror that was searched
 */
gpuvec_hit
gpuvec_search_hit(const gpuvec_sets_reader *mirror, uint64_t known, uint64_t xmin,
				  const gpuvec_match *match, uint64_t tid)
{
	const gpuvec_page_numbers *numbers = mirror->numbers;
	uint32_t	block = gpuvec_tid_block(tid);
	bool		proven = gpuvec_page_numbers_sees(numbers, block, xmin);
	bool		newer = !proven &&
		(known < mirror->state.refresh || numbers->unproven || numbers->newest != 0) &&
		(known == 0 || block >= numbers->nblocks ||
		 gpuvec_page_numbers_get(numbers, block) > known);
	gpuvec_hit	hit;

	hit.score = match->score;
	hit.place = gpuvec_hit_place(tid, match->common, newer) |
		(proven ? GPUVEC_HIT_PROVEN : 0);
	return hit;
}

/* Convert matches to hits */
static void
make_hits(const search_run *q, gpuvec_hit *hits)
{
	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		const gpuvec_topk_query *query = &q->queries[i];

		for (uint32_t j = 0; j < query->nmatches; j++)
			*hits++ = gpuvec_search_hit(&q->mirror, q->head.known, q->head.xmin,
										&query->matches[j], query->matches[j].tid);
	}
}

/* Write down how many rows pass the queries' filters */
static void
make_passed(const search_run *q, uint64_t *passed)
{
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		passed[i] = q->queries[i].passed |
			(q->queries[i].ranked_disjoint ? GPUVEC_DISJOINT_TOO : 0);
}

/* Send the answer to a search */
static bool
answer_search(gpuvec_session *s, const gpuvec_request *request, const search_run *q,
			  int64_t started)
{
	gpuvec_result result = {.state = q->mirror.state};
	uint32_t	nqueries = q->mirror.view ? q->head.nqueries : 0;
	bool		bare = nqueries > 0 && q->queries[0].bare && q->queries[0].nmatches > 0;
	const gpuvec_groups *found = nqueries > 0 ? q->queries[0].groups : NULL;
	size_t		counts_size = (nqueries + (size_t) 1) / 2 * 2 * sizeof(uint32_t);
	size_t		heads_size;
	size_t		hits_size;
	char	   *body;
	char	   *pages = NULL;
	struct iovec pieces[4] = {{&result, sizeof(result)}};
	gpuvec_error error;
	bool		ok;

	result.nqueries = nqueries;
	for (uint32_t i = 0; i < nqueries; i++)
	{
		result.nhits += q->queries[i].nmatches;
		result.counted += q->queries[i].counted;
		gpuvec_count_ways(q->queries[i].ways, result.ways);
	}
	result.npassed = q->filtered ? nqueries : 0;
	heads_size = counts_size + result.npassed * sizeof(uint64_t);
	hits_size = bare ? 0 : result.nhits * sizeof(gpuvec_hit);
	result.group_bytes = found ? gpuvec_groups_bytes(found) : 0;
	if (!gpuvec_session_take(s, heads_size + result.nhits * sizeof(gpuvec_hit) + result.group_bytes, &error))
		return gpuvec_answer_error(s, request, &error);
	body = malloc(heads_size + hits_size + 1);
	if (bare)
		pages = gpuvec_page_rows_new(q->queries[0].tids, q->queries[0].nmatches,
									 &result.page_bytes);
	if (body == NULL || (bare && pages == NULL))
	{
		free(body);
		free(pages);
		gpuvec_fail_memory(&error, heads_size + result.nhits * sizeof(gpuvec_hit));
		return gpuvec_answer_error(s, request, &error);
	}
	memset(body, 0, counts_size);
	for (uint32_t i = 0; i < nqueries; i++)
		((uint32_t *) body)[i] = q->queries[i].nmatches;
	if (result.npassed > 0)
		make_passed(q, (uint64_t *) (body + counts_size));
	if (hits_size > 0)
		make_hits(q, (gpuvec_hit *) (body + heads_size));
	result.engine_us = (uint32_t) (gpuvec_clock_us() - started);
	result.nqueries += gpuvec_fault_due("another-query") && nqueries % 2 == 1;
	pieces[1] = (struct iovec) {body, heads_size + hits_size};
	pieces[2] = (struct iovec) {found ? found->words : NULL, result.group_bytes};
	pieces[3] = (struct iovec) {pages, result.page_bytes};
	ok = gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_RESULT, pieces, 4);
	free(pages);
	free(body);
	return ok;
}

void
gpuvec_search_faults(const search_run *q)
{
	gpuvec_fault_crash("crash-on-search");
	gpuvec_fault_sleep("slow-search", &q->canceled);
	gpuvec_fault_stick("stuck-search");
}

/* Run a search of an open mirror */
static bool
run_search(search_run *q, gpuvec_error *error)
{
	gpuvec_search_faults(q);
	gpuvec_scheduler_count(q->mirror.device->scheduler);
	if (gpuvec_search_overlaps(q))
		return gpuvec_overlaps_run(q, error);
	choose_order(q);
	if (counts(q) && !q->queries[0].bare)
	{
		q->queries[0].counted = GPUVEC_NOT_COUNTED;
		return true;
	}
	if (!allocate_matches(q, error) || !gpuvec_search_number(q, error) ||
		!gpuvec_scheduler_topk(q->mirror.device->scheduler, q->mirror.view, &q->scoring,
							   (gpuvec_method) q->head.method, q->queries,
							   q->head.nqueries, error))
		return false;
	sort_first_rows(q);
	return gpuvec_search_groups(q, error);
}

/* Free what a search has allocated */
static void
free_run(search_run *q)
{
	for (uint32_t i = 0; q->queries && i < q->head.nqueries; i++)
		gpuvec_free_unordered(&q->queries[i]);
	free(q->overlaps.pairs);
	free(q->overlaps.tids);
	free(q->matches);
	free(q->numbers);
	free(q->values);
	free(q->hot);
	free(q->places);
	free(q->queries);
}

/* Open the mirror; wait until it is fresh if the session has the patience */
static void
open_mirror(gpuvec_session *s, search_run *q)
{
	gpuvec_sets_need need = {
		.fresh = q->head.need, .patience_us = q->head.patience_us, .canceled = &q->canceled
	};
	long		ms = MOST_PATIENCE_US / 1000;

	(void) gpuvec_fault("patience", &ms);
	if (need.patience_us > (uint32_t) ms * 1000)
		need.patience_us = (uint32_t) ms * 1000;
	gpuvec_sets_open(&s->server->store, &q->head.key, s, &need, q->head.nqueries, &q->mirror);
}

bool
gpuvec_serve_search(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	search_run	q = {.canceled = 0};
	gpuvec_error error;
	bool		ok;

	if (!parse_search(&q, request, &error))
	{
		free(q.queries);
		return gpuvec_answer_error(s, request, &error);
	}
	gpuvec_hangup_watch(s->fd, &q.canceled);
	open_mirror(s, &q);
	ok = q.mirror.view == NULL || q.head.nqueries == 0 || run_search(&q, &error);
	gpuvec_hangup_unwatch(s->fd);
	if (q.canceled && (ok || !error.fatal))
		ok = gpuvec_answer_canceled(s, request);
	else if (!ok)
		ok = gpuvec_answer_error(s, request, &error);
	else
		ok = gpuvec_search_overlaps(&q) && q.mirror.view ? gpuvec_overlaps_answer(s, request, &q, started) :
			answer_search(s, request, &q, started);
	gpuvec_sets_close(&q.mirror);
	free_run(&q);
	gpuvec_memory_prepare();
	return ok;
}
