/*-------------------------------------------------------------------------
 *
 * search_request.c
 *	  A search of sets as it goes to the engine, and its answer.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "mirror/ask/candidates.h"
#include "mirror/ask/search_request.h"
#include "mirror/ask/visible_pages.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/usage.h"

/* Searches for at most this many rows are timed for the planner */
#define TIMED_ROWS			1024

/*
 * Estimates how many of the engine's rows have n among them that the search
 * is restricted to.  Adds two standard deviations, so that one round trip
 * mostly suffices.
 */
double
MirrorRowsToLookAt(const MirrorSearch *search, uint64 n)
{
	return (n + 2 * sqrt((double) n)) / search->share + 2;
}

/*
 * Number of rows to ask for to see the end of an open group: one more than
 * the page can have behind the last row, so that one round trip suffices.
 */
static uint32
rows_to_close(const MirrorQuery *query, uint32 queries)
{
	OffsetNumber last = mirror_line_offset(gpuvec_tid_line(query->after_tid));
	uint32		rows = last < MaxHeapTuplesPerPage ? MaxHeapTuplesPerPage - last + 1 : 1;

	return Max(Min(rows, MIRROR_ANSWER_HITS / queries), 1);
}

/*
 * Number of rows to ask for, for one of `queries` queries that need some.  It
 * is a little more than what is missing, so that a few invisible rows cost no
 * second round trip.  A restricted search asks for more each time (`page`
 * grows) until it is abandoned, since its rows may be rare among the best.
 */
static uint32
rows_to_ask(const MirrorSearch *search, const MirrorQuery *query, uint32 page, uint32 queries)
{
	uint64		missing;

	if (MirrorGroupOpen(search, query))
		return rows_to_close(query, queries);
	if (search->among)
	{
		double		rows = page;

		if (search->k != UINT64_MAX)
			rows = MirrorRowsToLookAt(search, search->k - Min(query->nhits, search->k)) *
				(page / MIRROR_FIRST_ALL_ROWS);
		rows = Min(rows, search->max_looked - query->looked);
		rows = Min(rows, MIRROR_ANSWER_HITS / queries);
		return Max(Min(rows, GPUVEC_MAX_K), 1);
	}
	if (search->unordered && !query->has_after)
		return GPUVEC_ALL_ROWS;
	if (search->k == UINT64_MAX)
		return page;
	missing = search->k - Min(query->nhits, search->k);
	if (missing <= GPUVEC_FAST_K)
		return Min(missing + missing / 16 + 2, Max(GPUVEC_FAST_K, missing));
	return Min(missing, GPUVEC_MAX_K);
}

/*
 * The least score that rows of a query need.  False: any score will do.  By a
 * measure of vectors the engine ranks all rows.  Those with a score above the
 * floor are asked for, unless min_score says otherwise.
 */
static bool
least_score(const MirrorSearch *search, const MirrorQuery *query, double *least)
{
	bool		ranked = search->scoring.sparse != 0 && !search->has_min_score;
	/* every score is above the least number: a mask of rows may do */
	bool		above = query->has_above && query->above > -INFINITY;

	*least = ranked ? nextafter(search->floor, INFINITY) : -INFINITY;
	if (search->has_min_score)
		*least = search->min_score;
	if (above)
		*least = Max(*least, nextafter(query->above, INFINITY));
	/* the open group has this score; other rows are not wanted */
	if (MirrorGroupOpen(search, query))
		*least = query->after_score;
	return ranked || search->has_min_score || above || MirrorGroupOpen(search, query);
}

/* Places of a query's ids in request->ids */
static uint32
id_places(const MirrorQuery *query)
{
	return query->vector.ids.wide ? query->vector.ids.n * 2 : query->vector.ids.n;
}

/* A query's values in request->values */
static uint32
value_places(const MirrorSearch *search, const MirrorQuery *query)
{
	return search->scoring.sparse ? query->vector.ids.n : 0;
}

/* Bytes of a query's filter in a request */
static Size
filter_bytes(const MirrorQuery *query)
{
	return query->filter == NULL ? 0 : query->filter->n * sizeof(gpuvec_condition) +
		query->filter->nvalues * sizeof(uint64);
}

/* Add a query's filter to a request */
static void
fill_filter(MirrorSearchRequest *request, const MirrorQuery *query, gpuvec_query *wire)
{
	const gpuvec_filter *filter = query->filter;
	char	   *to = request->filters + request->head.filter_bytes;

	wire->nconditions = filter->n;
	wire->nvalues = filter->nvalues;
	memcpy(to, filter->conditions, filter->n * sizeof(gpuvec_condition));
	if (filter->nvalues > 0)
		memcpy(to + filter->n * sizeof(gpuvec_condition), filter->values,
			   filter->nvalues * sizeof(uint64));
	request->head.filter_bytes += filter_bytes(query);
	if (query->disjoint)
		wire->flags |= GPUVEC_QUERY_DISJOINT;
}

/* Add a query's ids, and their values, to a request */
static void
fill_ids(MirrorSearchRequest *request, const MirrorSearch *search, const MirrorQuery *query)
{
	uint32		nvalues = value_places(search, query);

	if (query->vector.ids.n > 0)
		memcpy(request->ids + request->nids, query->vector.ids.ids, id_places(query) * sizeof(uint16));
	for (uint32 i = 0; i < nvalues; i++)
		request->values[request->nvalues + i] = gpuvec_sparse_value(&query->vector, i);
	request->nids += id_places(query);
	request->nvalues += nvalues;
}

/* Add one query to a request of `queries` queries */
static void
fill_query(MirrorSearchRequest *request, const MirrorSearch *search, MirrorQuery *query,
		   uint32 page, uint32 queries)
{
	gpuvec_query *wire = &request->queries[request->n];
	double		least;

	wire->len = query->vector.ids.n;
	wire->form = (query->vector.ids.wide ? GPUVEC_FORM_WIDE : 0) |
		(search->scoring.sparse ? GPUVEC_FORM_VALUES : 0);
	wire->k = rows_to_ask(search, query, page, queries);
	if (least_score(search, query, &least))
	{
		wire->flags |= GPUVEC_QUERY_MIN_SCORE;
		wire->min_score = least;
	}
	if (query->has_after)
	{
		wire->flags |= GPUVEC_QUERY_AFTER;
		wire->after_score = query->after_score;
		wire->after_tid = query->after_tid;
	}
	if (filter_bytes(query) > 0)
		fill_filter(request, query, wire);
	request->questions[request->n].search = search;
	request->questions[request->n].query = query;
	request->questions[request->n].sent = wire;
	fill_ids(request, search, query);
	request->whose[request->n++] = query;
}

/* Describe the request and its answer for MirrorAsk() */
static void
make_wire(MirrorSearchRequest *request, const MirrorSearch *search)
{
	MirrorRequest *wire = &request->wire;
	const gpuvec_query *query = &request->queries[0];

	StaticAssertStmt(offsetof(MirrorSearchRequest, weights) ==
					 offsetof(MirrorSearchRequest, head) + sizeof(gpuvec_search),
					 "weights lie behind the head");
	memset(wire, 0, sizeof(*wire));
	wire->type = GPUVEC_MSG_SEARCH;
	wire->npieces = 6;
	wire->pieces[0].data = &request->head;
	wire->pieces[0].size = sizeof(request->head) +
		(search->scoring.measure == GPUVEC_TVERSKY ? sizeof(request->weights) : 0);
	wire->pieces[1].data = request->queries;
	wire->pieces[1].size = request->n * sizeof(gpuvec_query);
	wire->pieces[2].data = request->filters;
	wire->pieces[2].size = request->head.filter_bytes;
	wire->pieces[3].data = request->head.counted_bytes > 0 ? search->counts->map : NULL;
	wire->pieces[3].size = request->head.counted_bytes;
	wire->pieces[4].data = request->values;
	wire->pieces[4].size = request->nvalues * sizeof(float);
	wire->pieces[5].data = request->ids;
	wire->pieces[5].size = request->nids * sizeof(uint16);
	wire->need = &request->head.need;
	wire->patience_us = &request->head.patience_us;
	wire->answer_type = GPUVEC_MSG_RESULT;
	wire->answer_head = sizeof(gpuvec_result);
	wire->answer_state = offsetof(gpuvec_result, state);
	wire->context = search->context;
	wire->along = true;

	/*
	 * A single query that does not resume may go ahead of a refresh, if its
	 * answer fits a socket's buffer.  Then the engine can go on to the
	 * refresh behind it.
	 */
	wire->ahead = request->n == 1 && query->k <= GPUVEC_FAST_K &&
		(query->flags & GPUVEC_QUERY_AFTER) == 0;
	wire->questions = request->questions;
	wire->nquestions = request->n;
	/* timed are one round trip and one ranking of all rows by a set */
	wire->timed = request->n == 1 && !search->scoring.sparse && query->flags == 0 && query->nconditions == 0 &&
		query->k <= TIMED_ROWS;
}

uint32
MirrorSearchGroup(const MirrorSearch *search, uint32 first, uint64 rows)
{
	uint64		most = Max(MIRROR_ANSWER_HITS / rows, 1);
	uint32		last = first;
	Size		bytes = 0;

	while (last < search->nqueries && last - first < most)
	{
		const MirrorQuery *query = &search->queries[last];

		bytes += id_places(query) * sizeof(uint16) + value_places(search, query) * sizeof(float) +
			filter_bytes(query);
		if (last > first && bytes > MIRROR_REQUEST_BYTES)
			break;
		last++;
	}
	return last;
}

void
MirrorSearchQueries(MirrorSearchRequest *request, MirrorSearch *search, uint32 first, uint32 last,
					uint32 page)
{
	uint64		nids = 0;
	uint64		nvalues = 0;
	Size		filters = 0;
	uint32		open = 0;

	for (uint32 i = first; i < last; i++)
	{
		nids += id_places(&search->queries[i]);
		nvalues += value_places(search, &search->queries[i]);
		filters += filter_bytes(&search->queries[i]);
		if (!search->queries[i].done)
			open++;
	}
	request->n = 0;
	request->nids = 0;
	request->nvalues = 0;
	memset(&request->head, 0, sizeof(request->head));
	request->filters = filters > 0 ? MemoryContextAllocHuge(CurrentMemoryContext, filters) : NULL;
	request->queries = palloc0_array(gpuvec_query, open);
	request->whose = palloc_array(MirrorQuery *, open);
	request->questions = palloc_array(MirrorQuestion, open);
	request->ids = MemoryContextAllocHuge(CurrentMemoryContext, (nids + 1) * sizeof(uint16));
	request->values = nvalues > 0 ? MemoryContextAllocHuge(CurrentMemoryContext, nvalues * sizeof(float)) : NULL;
	for (uint32 i = first; i < last; i++)
		if (!search->queries[i].done)
			fill_query(request, search, &search->queries[i], page, open);
	request->head.nqueries = request->n;
	request->head.nids = request->nids;
}

/* Give all queries a flag */
static void
add_flag(MirrorSearchRequest *request, uint32 flag)
{
	for (uint32 i = 0; i < request->n; i++)
		request->queries[i].flags |= flag;
}

/* Make the request */
static void
make_request(MirrorSearchRequest *request, const MirrorConversation *conversation, MirrorSearch *search,
			 uint32 first, uint32 last, uint32 page)
{
	const gpuvec_tversky *tversky = &search->scoring.tversky;

	MirrorSearchQueries(request, search, first, last, page);
	for (uint32 i = 0; i < request->n; i++)
		request->questions[i].nfilters = conversation->target->key.nfilters;
	request->head.key = conversation->target->key;
	/* rows may be laid over hits only */
	if (search->unordered && search->roots && (request->n == 1 || search->overlaps) &&
		conversation->tail == NULL && request->queries[0].k == GPUVEC_ALL_ROWS)
		add_flag(request, GPUVEC_QUERY_PAGES);
	if (search->counts != NULL && (request->queries[0].flags & GPUVEC_QUERY_PAGES) != 0)
	{
		add_flag(request, GPUVEC_QUERY_COUNT);
		request->head.counted_bytes = search->counts->bytes;
		if (search->grouping != NULL)
			request->head.grouping = *search->grouping;
	}
	request->head.known = conversation->known;
	request->head.xmin = MirrorSnapshotXmin(conversation->snapshot);
	request->head.measure = gpuvec_wire_measure(search->scoring);
	request->weights.alpha = gpuvec_given_weight(tversky, tversky->alpha);
	request->weights.beta = gpuvec_given_weight(tversky, tversky->beta);
	request->head.method = gpuvec_method_choice;
	make_wire(request, search);
}

/*
 * Count what an answer has taken, for EXPLAIN.  With a filter only rows that
 * pass it are ranked.
 */
static void
count_usage(const MirrorSearchRequest *request, const MirrorSearchAnswer *answer)
{
	MirrorUsed.requests++;
	MirrorUsed.engine_us += answer->head.engine_us;
	MirrorUsageWays(answer->head.ways);
	for (uint32 i = 0; i < request->n; i++)
	{
		uint64		passed = MirrorSearchAnswerPassed(answer, i) & ~GPUVEC_DISJOINT_TOO;

		if (filter_bytes(request->whose[i]) == 0 || passed > answer->head.state.nrows)
		{
			MirrorUsed.rows += answer->head.state.nrows;
			continue;
		}
		MirrorUsed.rows += passed;
		MirrorUsed.filtered++;
		MirrorUsed.passed += passed;
	}
}

bool
MirrorSearchAsk(MirrorConversation *conversation, MirrorSearch *search, uint32 first, uint32 last,
				uint32 page, MirrorSearchRequest *request, MirrorSearchAnswer *answer)
{
	make_request(request, conversation, search, first, last, page);
	if (!MirrorAsk(conversation, &request->wire, &answer->reply))
		return false;
	MirrorSearchAnswerRead(answer);
	search->engine_us += answer->head.engine_us;
	count_usage(request, answer);
	if (request->wire.trip_us > 0)
		CostsNoteTrip(&conversation->target->key, request->wire.trip_us, answer->head.engine_us);
	return true;
}
