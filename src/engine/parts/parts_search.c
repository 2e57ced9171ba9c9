/*-------------------------------------------------------------------------
 *
 * parts_search.c
 *	  Asking all devices that have a part of a view, and merging what they
 *	  find.
 *
 * Each device gets the queries as they are, and finds the k best rows of its
 * part.  The k best of all rows are among these: a row that k others of its
 * own part precede is behind these in all parts, too.  Rows of equal score
 * come in the order of their tids, wherever they lie.  So the answer is that
 * of one device.
 *
 * A device lets rows without a common id rank where it has counted all rows
 * that pass the filter.  Either these rows rank in all parts, or in none: if
 * some device did not count so, those that others found are left out.  They
 * come last in each part, so all other rows among the k best are there.
 *
 * Queries are divided among the same threads for the merge.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/fault.h"
#include "engine/parts/parts.h"

/* Bytes for rows of a device that are kept for the next search, at most */
#define KEPT_BYTES		((size_t) 16 * 1024 * 1024)

/* What one device is asked */
typedef struct part_search
{
	parts_child *child;
	int			number;			/* of the child */
	const gpuvec_view *view;
	gpuvec_topk_query *queries; /* [nqueries]; rows are in child->matches,
								 * unless they are unordered */
	bool		ok;
	gpuvec_error error;
} part_search;

typedef struct parts_search
{
	parts_backend *backend;
	gpuvec_measure measure;
	gpuvec_method method;
	gpuvec_topk_query *queries; /* [nqueries] of the caller */
	uint32_t	nqueries;
	int			n;
	part_search *parts;			/* [n] */
	uint32_t	slice;			/* queries that a thread merges at a time */
	int			failed;			/* atomic: out of memory in the merge */
} parts_search;

/* True if a test wants the searches of a device to fail */
static bool
fails_in_test(int child, gpuvec_error *error)
{
	long		number = 0;

	if (gpuvec_fault("part-search", &number) && number == child)
		return !gpuvec_fail_memory(error, 0);
	if (!gpuvec_fault("part-lost", &number) || number != child)
		return false;
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "device %d was lost", child);
	error->fatal = true;
	return true;
}

/* Search a part on its device, and note what it took */
static bool
search_child(parts_backend *parts, int number, const gpuvec_view *view, gpuvec_measure measure,
			 gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			 gpuvec_error *error)
{
	parts_child *child = &parts->children[number];
	uint64_t	start = gpuvec_clock_ns();
	bool		ok = !fails_in_test(number, error) &&
		child->backend->topk(child->backend, view, measure, method, queries, nqueries, error);

	__atomic_add_fetch(&child->searches, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->queries, nqueries, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->errors, !ok, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->busy_ns, gpuvec_clock_ns() - start, __ATOMIC_RELAXED);
	return ok;
}

/* Ask a device; called by a thread of the pool */
static void
ask_part(void *task, uint64_t number, int thread)
{
	parts_search *s = task;
	part_search *part = &s->parts[number];

	(void) thread;
	part->ok = search_child(s->backend, part->number, part->view, s->measure, s->method,
							part->queries, s->nqueries, &part->error);
}

/* Most rows that a query can have in a part; 0 if the device allocates them */
static uint64_t
most_rows(const gpuvec_topk_query *query, const gpuvec_view *view)
{
	if (query->unordered)
		return 0;
	return query->k < view->nrows ? query->k : view->nrows;
}

/*
 * Make room for rows that a device finds; fresh memory would cost page
 * faults, so some is kept
 */
static bool
make_room(parts_child *child, uint64_t n)
{
	if (n <= child->room)
		return true;
	free(child->matches);
	child->matches = malloc(n * sizeof(gpuvec_match));
	child->room = child->matches ? n : 0;
	return child->matches != NULL;
}

/* Copy the queries for a device, with room for its rows */
static bool
copy_queries(const parts_search *s, part_search *part)
{
	uint64_t	total = 0;

	for (uint32_t i = 0; i < s->nqueries; i++)
		total += most_rows(&s->queries[i], part->view);
	part->queries = malloc(s->nqueries * sizeof(*part->queries));
	if (part->queries == NULL || !make_room(part->child, total + 1))
	{
		free(part->queries);
		part->queries = NULL;
		return false;
	}
	memcpy(part->queries, s->queries, s->nqueries * sizeof(*part->queries));
	total = 0;
	for (uint32_t i = 0; i < s->nqueries; i++)
	{
		part->queries[i].matches = s->queries[i].unordered ? NULL : part->child->matches + total;
		part->queries[i].tids = NULL;
		/* which rows share no id must be seen */
		part->queries[i].bare &= !s->queries[i].disjoint;
		total += most_rows(&s->queries[i], part->view);
	}
	return true;
}

/* Free the rows of a query that is unordered; the answer has none then */
static void
free_rows(gpuvec_topk_query *query)
{
	free(query->matches);
	free(query->tids);
	query->matches = NULL;
	query->tids = NULL;
}

static void
free_parts(parts_search *s)
{
	for (int p = 0; s->parts && p < s->n; p++)
	{
		part_search *part = &s->parts[p];

		for (uint32_t i = 0; part->queries && i < s->nqueries; i++)
			if (part->queries[i].unordered)
				free_rows(&part->queries[i]);
		free(part->queries);
		if (part->child && part->child->room * sizeof(gpuvec_match) > KEPT_BYTES)
		{
			free(part->child->matches);
			part->child->matches = NULL;
			part->child->room = 0;
		}
	}
	free(s->parts);
}

/* ---- merging ---- */

/* The order of results */
static inline bool
comes_before(const gpuvec_match *a, const gpuvec_match *b)
{
	return a->score != b->score ? a->score > b->score : a->tid < b->tid;
}

/* Leave out the rows of an answer that share no id */
static void
leave_out_disjoint(gpuvec_topk_query *answer)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < answer->nmatches; i++)
		if (answer->matches[i].common > 0)
			answer->matches[n++] = answer->matches[i];
	answer->nmatches = n;
}

/*
 * What all parts say of a query beside its rows.  Rows without a common id
 * rank in all parts or in none.
 */
static void
unite(const parts_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];

	query->ranked_disjoint = s->n > 0;
	query->ways = 0;
	query->passed = query->filter.n > 0 ? 0 : GPUVEC_NOT_COUNTED;
	for (int p = 0; p < s->n; p++)
	{
		query->ranked_disjoint &= s->parts[p].queries[number].ranked_disjoint;
		query->ways |= s->parts[p].queries[number].ways;
		if (query->filter.n > 0)
			query->passed += s->parts[p].queries[number].passed;
	}
	for (int p = 0; p < s->n && !gpuvec_ranks_disjoint(s->measure); p++)
		if (s->parts[p].queries[number].ranked_disjoint && !query->ranked_disjoint)
			leave_out_disjoint(&s->parts[p].queries[number]);
}

/* Take the k first rows of all parts */
static void
merge_ordered(const parts_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];
	uint32_t	next[GPUVEC_MAX_DEVICES] = {0};

	for (query->nmatches = 0; query->nmatches < query->k; query->nmatches++)
	{
		const gpuvec_match *first = NULL;
		int			from = 0;

		for (int p = 0; p < s->n; p++)
		{
			const gpuvec_topk_query *found = &s->parts[p].queries[number];

			if (next[p] < found->nmatches &&
				(first == NULL || comes_before(&found->matches[next[p]], first)))
			{
				first = &found->matches[next[p]];
				from = p;
			}
		}
		if (first == NULL)
			break;
		query->matches[query->nmatches] = *first;
		next[from]++;
	}
}

/* Append the tids of a part's rows to a bare answer */
static void
append_tids(gpuvec_topk_query *query, const gpuvec_topk_query *found)
{
	for (uint32_t i = 0; i < found->nmatches; i++)
		query->tids[query->nmatches++] = found->bare ? found->tids[i] : found->matches[i].tid;
}

static void
append_matches(gpuvec_topk_query *query, const gpuvec_topk_query *found)
{
	if (found->nmatches > 0)
		memcpy(query->matches + query->nmatches, found->matches,
			   found->nmatches * sizeof(gpuvec_match));
	query->nmatches += found->nmatches;
}

/* Take all rows of all parts, in any order.  False: out of memory. */
static bool
join_unordered(const parts_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];
	uint64_t	total = 0;

	for (int p = 0; p < s->n; p++)
		total += s->parts[p].queries[number].nmatches;
	query->nmatches = 0;
	if (total == 0)
		return true;
	if (query->bare)
		query->tids = malloc(total * sizeof(uint64_t));
	else
		query->matches = malloc(total * sizeof(gpuvec_match));
	if (query->tids == NULL && query->matches == NULL)
		return false;
	for (int p = 0; p < s->n; p++)
	{
		const gpuvec_topk_query *found = &s->parts[p].queries[number];

		if (query->bare)
			append_tids(query, found);
		else
			append_matches(query, found);
	}
	return true;
}

/* Merge answers of a slice of the queries; called by a thread of the pool */
static void
merge_slice(void *task, uint64_t number, int thread)
{
	parts_search *s = task;
	uint64_t	end = (number + 1) * s->slice;

	(void) thread;
	for (uint64_t i = number * s->slice; i < end && i < s->nqueries; i++)
	{
		unite(s, (uint32_t) i);
		if (!s->queries[i].unordered)
			merge_ordered(s, (uint32_t) i);
		else if (!join_unordered(s, (uint32_t) i))
			__atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
	}
}

/* ---- the search ---- */

/* Begin with no rows, also after a batch that has failed */
static void
empty_answers(gpuvec_topk_query *queries, uint32_t nqueries)
{
	for (uint32_t i = 0; i < nqueries; i++)
	{
		queries[i].nmatches = 0;
		if (queries[i].unordered)
			free_rows(&queries[i]);
	}
}

/* The first error of a device, one that ends the engine before others */
static bool
fail(const parts_search *s, gpuvec_error *error)
{
	const part_search *worst = NULL;

	for (int p = 0; p < s->n; p++)
		if (!s->parts[p].ok && (worst == NULL || (s->parts[p].error.fatal && !worst->error.fatal)))
			worst = &s->parts[p];
	if (worst)
		*error = worst->error;
	return worst == NULL;
}

/* Ask the devices, and merge their answers */
static bool
search_parts(parts_search *s, const parts_view *divided, gpuvec_error *error)
{
	s->n = divided->n;
	s->parts = calloc((size_t) s->n, sizeof(*s->parts));
	if (s->parts == NULL)
		return gpuvec_fail_memory(error, (size_t) s->n * sizeof(*s->parts));
	for (int p = 0; p < s->n; p++)
	{
		s->parts[p].number = divided->part[p].child;
		s->parts[p].child = &s->backend->children[s->parts[p].number];
		s->parts[p].view = divided->part[p].view;
		if (!copy_queries(s, &s->parts[p]))
			return gpuvec_fail_memory(error, 0);
	}
	gpuvec_thread_pool_run(s->backend->pool, ask_part, s, (uint64_t) s->n);
	if (!fail(s, error))
		return false;
	s->slice = (s->nqueries + (uint32_t) s->n - 1) / (uint32_t) s->n;
	gpuvec_thread_pool_run(s->backend->pool, merge_slice, s, (s->nqueries + s->slice - 1) / s->slice);
	if (!s->failed)
		return true;
	empty_answers(s->queries, s->nqueries);
	return gpuvec_fail_memory(error, 0);
}

/* Search a view by its parts */
static bool
search_divided(parts_backend *parts, const parts_view *divided, gpuvec_measure measure,
			   gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			   gpuvec_error *error)
{
	parts_search s = {
		.backend = parts, .measure = measure, .method = method, .queries = queries,
		.nqueries = nqueries
	};
	bool		ok;

	if (divided->n == 1)
		return search_child(parts, divided->part[0].child, divided->part[0].view, measure, method,
							queries, nqueries, error);
	ok = search_parts(&s, divided, error);
	free_parts(&s);
	return ok;
}

bool
parts_topk(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_measure measure,
		   gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
		   gpuvec_error *error)
{
	parts_backend *parts = (parts_backend *) backend;
	parts_view	divided;
	bool		ok;

	empty_answers(queries, nqueries);
	if (nqueries == 0)
		return true;
	if (view->device)
		return search_divided(parts, view->device, measure, method, queries, nqueries, error);

	/* a view of several mirrors */
	if (!parts_divide(parts, view, &divided, error))
		return false;
	ok = search_divided(parts, &divided, measure, method, queries, nqueries, error);
	for (int i = 0; i < divided.n; i++)
		free(divided.part[i].view);
	return ok;
}
