/*-------------------------------------------------------------------------
 *
 * shards_search.c
 *	  Asking all devices that have a shard of a view, and merging what they
 *	  find.
 *
 * Each device gets the queries as they are, and finds the k best rows of its
 * shard.  The k best of all rows are among these: a row that k others of its
 * own shard precede is behind these in all shards, too.  Rows of equal score
 * come in the order of their tids, wherever they lie.  So the answer is that
 * of one device.
 *
 * A device lets rows without a common id rank where it has counted all rows
 * that pass the filter.  Either these rows rank in all shards, or in none: if
 * some device did not count so, those that others found are left out.  They
 * come last in each shard, so all other rows among the k best are there.  By
 * measures of sparse vectors these are rows below the least score.
 *
 * The devices share the bound of each query, where they use it: once one has
 * found k rows, others need none that are worse.  Rows as good as the k-th are
 * kept, since their tids decide.  Rows without a common id, which may be left
 * out later, are no better than any other row, so they bound nothing that
 * counts.
 *
 * Rows of a device that has no memory to search them are searched elsewhere
 * (shards_elsewhere.c).  These are parts of their own, which are asked when
 * all others have answered.
 *
 * A device's thread copies the queries for it.  For the merge they are divided
 * among other threads, since that takes a while for thousands of rows.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/shards/shards.h"

/* Bytes for rows of a device that are kept for the next search, at most */
#define KEPT_BYTES		((size_t) 16 * 1024 * 1024)

/* Rows that a thread merges at a time, or of one query */
#define MERGE_ROWS		2048

/* Shards of a search: one of each device, and some of another's rows */
#define MOST_SHARDS		(2 * GPUVEC_MAX_DEVICES)

/* What one device is asked */
typedef struct shard_search
{
	shards_child *child;
	int			number;			/* of the child */
	const gpuvec_view *view;
	gpuvec_view *moved;			/* the same, with a reference, if its rows are
								 * copies of those that another device could
								 * not search; else NULL */
	gpuvec_match *own;			/* room for rows of such a shard */
	gpuvec_topk_query *queries; /* [nqueries]; rows are in child->matches, or
								 * in own, unless they are unordered */
	bool		unasked;		/* the host has no memory to ask it */
	bool		replaced;		/* by shards on other devices */
	bool		ok;
	gpuvec_error error;
} shard_search;

typedef struct shards_search
{
	shards_backend *backend;
	const gpuvec_scoring *scoring;
	gpuvec_method method;
	gpuvec_topk_query *queries; /* [nqueries] of the caller */
	uint32_t	nqueries;
	bool		unordered;		/* some queries are */
	int			n;
	int			asked;			/* number that were asked before */
	shard_search shards[MOST_SHARDS];	/* [n] */
	uint32_t	slice;			/* queries that a thread merges at a time */
	uint64_t   *bounds;			/* [nqueries] shared by all shards */
	int			failed;			/* atomic: out of memory in the merge */
} shards_search;

/* True if a test wants the searches of a device to fail */
static bool
fails_in_test(int child, gpuvec_error *error)
{
	long		number = 0;

	if (gpuvec_fault("part-search", &number) && (number == child || number < 0))
		return !gpuvec_fail_memory(error, 0);
	if (!gpuvec_fault("part-lost", &number) || number != child)
		return false;
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "device %d was lost", child);
	error->fatal = true;
	return true;
}

bool
shards_search_child(shards_backend *shards, int number, const gpuvec_view *view,
					const gpuvec_scoring *scoring, gpuvec_method method, gpuvec_topk_query *queries,
					uint32_t nqueries, gpuvec_error *error)
{
	shards_child *child = &shards->children[number];
	uint64_t	start;
	bool		ok;

	shards_empty_answers(queries, nqueries);
	pthread_mutex_lock(&child->search);
	start = gpuvec_clock_ns();
	ok = !fails_in_test(number, error) &&
		child->backend->topk(child->backend, view, scoring, method, queries, nqueries, error);
	pthread_mutex_unlock(&child->search);
	if (!ok)
	{
		shards_empty_answers(queries, nqueries);
		(void) shards_failed(number, error);
	}
	__atomic_add_fetch(&child->searches, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->queries, nqueries, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->errors, !ok, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->busy_ns, gpuvec_clock_ns() - start, __ATOMIC_RELAXED);
	return ok;
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
make_room(shards_child *child, uint64_t n)
{
	if (n <= child->capacity)
		return true;
	free(child->matches);
	child->matches = malloc(n * sizeof(gpuvec_match));
	child->capacity = child->matches ? n : 0;
	return child->matches != NULL;
}

/* Room for rows of a shard, or NULL */
static gpuvec_match *
rows_of(shard_search *shard, uint64_t n)
{
	if (shard->moved)
		return shard->own = malloc(n * sizeof(gpuvec_match));
	return make_room(shard->child, n) ? shard->child->matches : NULL;
}

/* Copy the queries for a device, with room for its rows */
static bool
copy_queries(const shards_search *s, shard_search *shard)
{
	gpuvec_match *rows;
	uint64_t	total = 0;

	for (uint32_t i = 0; i < s->nqueries; i++)
		total += most_rows(&s->queries[i], shard->view);
	shard->queries = malloc(s->nqueries * sizeof(*shard->queries));
	rows = shard->queries ? rows_of(shard, total + 1) : NULL;
	if (rows == NULL)
	{
		free(shard->queries);
		shard->queries = NULL;
		return false;
	}
	memcpy(shard->queries, s->queries, s->nqueries * sizeof(*shard->queries));
	total = 0;
	for (uint32_t i = 0; i < s->nqueries; i++)
	{
		shard->queries[i].matches = s->queries[i].unordered ? NULL : rows + total;
		shard->queries[i].tids = NULL;
		shard->queries[i].groups = NULL;
		shard->queries[i].bound = &s->bounds[i];
		/* which rows share no id must be seen */
		shard->queries[i].bare &= !s->queries[i].disjoint;
		if (!shard->queries[i].bare)
		{
			shard->queries[i].counts.bytes = 0;
			shard->queries[i].grouping = NULL;
		}
		total += most_rows(&s->queries[i], shard->view);
	}
	return true;
}

/* Begin with no rows, also after a batch that has failed */
void
shards_empty_answers(gpuvec_topk_query *queries, uint32_t nqueries)
{
	for (uint32_t i = 0; i < nqueries; i++)
	{
		queries[i].nmatches = 0;
		queries[i].counted = 0;
		gpuvec_free_unordered(&queries[i]);
	}
}

/* Ask a device; called by a thread of the pool */
static void
ask_shard(void *task, uint64_t number, int thread)
{
	shards_search *s = task;
	shard_search *shard = &s->shards[s->asked + (int) number];

	(void) thread;
	shard->unasked = !copy_queries(s, shard);
	shard->ok = shard->unasked ?
		gpuvec_fail_memory(&shard->error, s->nqueries * sizeof(*shard->queries)) :
		shards_search_child(s->backend, shard->number, shard->view, s->scoring, s->method,
							shard->queries, s->nqueries, &shard->error);
}

static void
free_shard(const shards_search *s, shard_search *shard)
{
	if (shard->queries && s->unordered)
		shards_empty_answers(shard->queries, s->nqueries);
	free(shard->queries);
	free(shard->own);
	gpuvec_view_unref(shard->moved);
	if (shard->moved == NULL && shard->child->capacity * sizeof(gpuvec_match) > KEPT_BYTES)
	{
		free(shard->child->matches);
		shard->child->matches = NULL;
		shard->child->capacity = 0;
	}
}

static void
free_shards(shards_search *s)
{
	while (s->n > 0)
		free_shard(s, &s->shards[--s->n]);
	free(s->bounds);
}

/* ---- merging ---- */

/* The order of results, without a jump that cannot be foreseen */
static inline bool
comes_before(const gpuvec_match *a, const gpuvec_match *b)
{
	return (a->score > b->score) | ((a->score == b->score) & (a->tid < b->tid));
}

/* True if a row ranks though not all rows that pass do */
static inline bool
ranks(const shards_search *s, const gpuvec_topk_query *answer, const gpuvec_match *row)
{
	if (s->scoring->sparse)
		return !answer->has_min_score || row->score >= answer->min_score;
	return row->common > 0 || gpuvec_ranks_disjoint(s->scoring->measure);
}

/*
 * Leave out the rows of an answer that share no id; by a measure of sparse
 * vectors, those below the least score
 */
static void
leave_out_disjoint(const shards_search *s, gpuvec_topk_query *answer)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < answer->nmatches; i++)
		if (ranks(s, answer, &answer->matches[i]))
			answer->matches[n++] = answer->matches[i];
	answer->nmatches = n;
}

/*
 * Add up the rows that shards counted; if one did not, none are counted.  One
 * that was to show its rows has not put any into groups.
 */
static uint64_t
add_counts(uint64_t sum, const gpuvec_topk_query *query, const gpuvec_topk_query *found)
{
	if (sum == GPUVEC_NOT_COUNTED || found->counted == GPUVEC_NOT_COUNTED ||
		(query->grouping && !found->bare))
		return GPUVEC_NOT_COUNTED;
	return sum + found->counted;
}

/*
 * What all shards say of a query beside its rows.  Rows without a common id
 * rank in all shards or in none.
 */
static void
unite(const shards_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];

	query->ranked_disjoint = s->n > 0;
	query->ways = 0;
	query->counted = 0;
	query->passed = query->filter.n > 0 ? 0 : GPUVEC_NOT_COUNTED;
	for (int p = 0; p < s->n; p++)
	{
		query->ranked_disjoint &= s->shards[p].queries[number].ranked_disjoint;
		query->ways |= s->shards[p].queries[number].ways;
		query->counted = add_counts(query->counted, query, &s->shards[p].queries[number]);
		if (query->filter.n > 0)
			query->passed += s->shards[p].queries[number].passed;
	}
	for (int p = 0; p < s->n && !query->ranked_disjoint; p++)
		if (s->shards[p].queries[number].ranked_disjoint)
			leave_out_disjoint(s, &s->shards[p].queries[number]);
}

/*
 * Unite the groups of counted rows of all shards.  If there are too many, the
 * query is not answered.  False: out of memory.
 */
static bool
unite_groups(const shards_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];

	if (query->counted == GPUVEC_NOT_COUNTED)
		return true;
	for (int p = 0; p < s->n; p++)
		if (!gpuvec_groups_unite(&query->groups, &s->shards[p].queries[number].groups))
			return false;
	if (query->groups && query->groups->too_many)
	{
		gpuvec_groups_free(query->groups);
		query->groups = NULL;
		query->counted = GPUVEC_NOT_COUNTED;
	}
	return true;
}

/* Take the k first rows of all shards */
static void
merge_ordered(const shards_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];
	const gpuvec_match *next[MOST_SHARDS];
	const gpuvec_match *end[MOST_SHARDS];
	int			n = 0;

	for (int p = 0; p < s->n; p++)
	{
		const gpuvec_topk_query *found = &s->shards[p].queries[number];

		if (found->nmatches == 0)
			continue;
		next[n] = found->matches;
		end[n++] = found->matches + found->nmatches;
	}
	for (query->nmatches = 0; n > 0 && query->nmatches < query->k; query->nmatches++)
	{
		int			first = 0;

		for (int p = 1; p < n; p++)
			first = comes_before(next[p], next[first]) ? p : first;
		query->matches[query->nmatches] = *next[first]++;
		if (next[first] == end[first])
		{
			next[first] = next[--n];
			end[first] = end[n];
		}
	}
}

/*
 * Append the tids of a shard's rows to a bare answer.  If the shard was to
 * show its rows, it has not counted any.
 */
static void
append_tids(gpuvec_topk_query *query, const gpuvec_topk_query *found)
{
	for (uint32_t i = 0; i < found->nmatches; i++)
	{
		uint64_t	tid = found->bare ? found->tids[i] : found->matches[i].tid;

		if (!found->bare && gpuvec_page_set_has(&query->counts, gpuvec_tid_block(tid)))
			query->counted++;
		else
			query->tids[query->nmatches++] = tid;
	}
}

static void
append_matches(gpuvec_topk_query *query, const gpuvec_topk_query *found)
{
	if (found->nmatches > 0)
		memcpy(query->matches + query->nmatches, found->matches,
			   found->nmatches * sizeof(gpuvec_match));
	query->nmatches += found->nmatches;
}

/* Take all rows of all shards, in any order.  False: out of memory. */
static bool
join_unordered(const shards_search *s, uint32_t number)
{
	gpuvec_topk_query *query = &s->queries[number];
	uint64_t	total = 0;

	for (int p = 0; p < s->n; p++)
		total += s->shards[p].queries[number].nmatches;
	query->nmatches = 0;
	if (total == 0 || query->counted == GPUVEC_NOT_COUNTED)
		return true;
	if (query->bare)
		query->tids = malloc(total * sizeof(uint64_t));
	else
		query->matches = malloc(total * sizeof(gpuvec_match));
	if (query->tids == NULL && query->matches == NULL)
		return false;
	for (int p = 0; p < s->n; p++)
	{
		const gpuvec_topk_query *found = &s->shards[p].queries[number];

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
	shards_search *s = task;
	uint64_t	end = (number + 1) * s->slice;

	(void) thread;
	for (uint64_t i = number * s->slice; i < end && i < s->nqueries; i++)
	{
		unite(s, (uint32_t) i);
		if (!s->queries[i].unordered)
			merge_ordered(s, (uint32_t) i);
		else if (!unite_groups(s, (uint32_t) i) || !join_unordered(s, (uint32_t) i))
			__atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
	}
}

/* ---- the search ---- */

/* The first error of a device, one that ends the engine before others */
static bool
fail(const shards_search *s, gpuvec_error *error)
{
	const shard_search *worst = NULL;

	for (int p = 0; p < s->n; p++)
		if (!s->shards[p].ok && (worst == NULL || (s->shards[p].error.fatal && !worst->error.fatal)))
			worst = &s->shards[p];
	if (worst)
		*error = worst->error;
	return worst == NULL;
}

/* Add a shard, which is not asked yet; takes over a reference to `moved` */
static bool
add_shard(shards_search *s, int child, const gpuvec_view *view, gpuvec_view *moved)
{
	shard_search *shard = &s->shards[s->n];

	if (s->n == MOST_SHARDS)
	{
		gpuvec_view_unref(moved);
		return false;
	}
	memset(shard, 0, sizeof(*shard));
	shard->number = child;
	shard->child = &s->backend->children[child];
	shard->view = view;
	shard->moved = moved;
	s->n++;
	return true;
}

/* Ask the devices for all shards that were not asked yet */
static void
ask(shards_search *s)
{
	gpuvec_thread_pool_run(s->backend->pool, ask_shard, s, (uint64_t) (s->n - s->asked));
	s->asked = s->n;
}

/* True if the device of a shard lacked memory */
static bool
lacked_memory(const shard_search *shard)
{
	return !shard->ok && !shard->unasked && gpuvec_lacks_memory(&shard->error);
}

/* The devices of shards from `first` on that lacked memory, as bits */
static uint64_t
lack_memory(const shards_search *s, int first)
{
	uint64_t	devices = 0;

	for (int p = first; p < s->n; p++)
		if (lacked_memory(&s->shards[p]))
			devices |= UINT64_C(1) << s->shards[p].number;
	return devices;
}

/* Ask other devices than some for the rows of a shard; false: out of memory */
static bool
ask_others(shards_search *s, const gpuvec_view *view, uint64_t *lacking)
{
	gpuvec_view *views[GPUVEC_MAX_DEVICES];
	bool		ok = true;

	if (!shards_elsewhere(s->backend, view, lacking, views))
		return false;
	for (int i = 0; i < s->backend->n; i++)
	{
		if (ok && views[i])
			ok = add_shard(s, i, views[i], views[i]);
		else
			gpuvec_view_unref(views[i]);
	}
	if (ok)
		ask(s);
	return ok;
}

/*
 * Replace a shard whose device lacked memory by shards on other devices, which
 * have answered.  *lacking are the devices that lacked memory in this search.
 */
static bool
replace_shard(shards_search *s, int number, uint64_t *lacking)
{
	int			n = s->n;

	for (;;)
	{
		bool		ok = ask_others(s, s->shards[number].view, lacking);
		uint64_t	more = ok ? lack_memory(s, n) : 0;

		if (ok && more == 0)
		{
			s->shards[number].replaced = true;
			return true;
		}
		while (s->n > n)
			free_shard(s, &s->shards[--s->n]);
		s->asked = n;
		if (!ok)
			return false;
		*lacking |= more;
	}
}

/* Remove the shards that others replace */
static void
drop_replaced(shards_search *s)
{
	int			n = 0;

	for (int p = 0; p < s->n; p++)
	{
		if (s->shards[p].replaced)
			free_shard(s, &s->shards[p]);
		else
			s->shards[n++] = s->shards[p];
	}
	s->n = n;
}

/*
 * Search rows of devices that lack memory elsewhere.  If that cannot be, their
 * errors are those of the search.
 */
static void
ask_elsewhere(shards_search *s)
{
	uint64_t	lacking = lack_memory(s, 0);
	int			n = s->n;

	for (int p = 0; p < n; p++)
		if (lacked_memory(&s->shards[p]) && !replace_shard(s, p, &lacking))
			return;
	drop_replaced(s);
}

/* How many queries a thread merges at a time */
static uint32_t
choose_slice(const shards_search *s)
{
	uint32_t	k = 1;

	for (uint32_t i = 0; i < s->nqueries; i++)
		k = s->queries[i].k > k ? s->queries[i].k : k;
	return k < MERGE_ROWS ? MERGE_ROWS / k : 1;
}

/* Ask the devices, and merge their answers */
static bool
search_shards(shards_search *s, const shards_view *divided, gpuvec_error *error)
{
	s->bounds = malloc(s->nqueries * sizeof(uint64_t));
	if (s->bounds == NULL)
		return gpuvec_fail_memory(error, s->nqueries * sizeof(uint64_t));
	memset(s->bounds, 0xFF, s->nqueries * sizeof(uint64_t));
	for (uint32_t i = 0; i < s->nqueries; i++)
		s->unordered |= s->queries[i].unordered;
	for (int p = 0; p < divided->n; p++)
		if (!add_shard(s, divided->shard[p].child, divided->shard[p].view, NULL))
			return gpuvec_fail_memory(error, 0);
	ask(s);
	ask_elsewhere(s);
	if (!fail(s, error))
		return false;
	s->slice = choose_slice(s);
	gpuvec_thread_pool_run(s->backend->merge_pool, merge_slice, s,
						   (s->nqueries + s->slice - 1) / s->slice);
	if (!s->failed)
		return true;
	shards_empty_answers(s->queries, s->nqueries);
	return gpuvec_fail_memory(error, 0);
}

bool
shards_search_divided(shards_backend *shards, const shards_view *divided,
					  const gpuvec_scoring *scoring, gpuvec_method method,
					  gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	shards_search *s;
	bool		ok;

	if (divided->n == 1 &&
		shards_search_child(shards, divided->shard[0].child, divided->shard[0].view, scoring, method,
							queries, nqueries, error))
		return true;
	if (divided->n == 1 && !gpuvec_lacks_memory(error))
		return false;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return gpuvec_fail_memory(error, sizeof(*s));
	s->backend = shards;
	s->scoring = scoring;
	s->method = method;
	s->queries = queries;
	s->nqueries = nqueries;
	pthread_mutex_lock(&shards->together);
	ok = search_shards(s, divided, error);
	free_shards(s);
	pthread_mutex_unlock(&shards->together);
	free(s);
	return ok;
}
