/*-------------------------------------------------------------------------
 *
 * topk.cu
 *	  The host's side of a search.
 *
 * Queries are sorted by kind, length and largest id, so that the queries of a
 * batch have similar bounds.  They are cut into chunks whose scratch memory
 * fits the limit.  The rounds of a chunk are planned ahead from the number of
 * tiles in each class, and queued without waiting.  A round is:
 *
 *		scan a sample of the tiles, keep candidates within the bound
 *		select the k best of (list so far, candidates): the k-th is the bound
 *
 * Each round is `growth` times larger than all rounds before.  So it yields
 * about growth * k candidates, far fewer than there is room for.  The first
 * round has no bound; it is small enough for the room.
 *
 * A single query spends most of its time waiting for one step after another.
 * So for very few queries, the last kernel writes the results to host memory.
 * If they are counted by lists, the queries reach the device as a parameter
 * of the first kernel.  And each kernel starts while the previous one ends
 * (launch_chained()).
 *
 * By measures of sparse vectors the scan is another one (sparse_scan.cu; of
 * many queries sparse_batch.cu), and scores are other ones (sparse_score.cuh).
 * Neither lists nor bit vectors are used then.
 *
 * Counting by inverted lists (lists.cu) has other rounds: see list_rounds.cu.
 * Counting by bit vectors (dense.cu) has nearly the same: see dense_rounds.cu.
 *
 * If queries have cold numbers, a chunk begins with the rows that share these
 * (cold_rows.cu).  They are selected at once, so that there is a bound for
 * the rounds that follow.
 *
 * A query that counts rows has no bound but its least score, and nothing is
 * selected: it is a chunk of its own (chunk_counts.cu).
 *
 * If queries have filters, their masks are made first (chunk_filters.cu).
 * Queries of which few rows pass have chunks of their own, whose only round
 * counts these rows one by one.
 *
 * The order of rows and ties in the score can defeat the sampling.  Then a
 * query loses candidates, which its counter tells, but the candidates that it
 * kept still give a valid bound.  Such queries are run again with that bound,
 * in few and large rounds that the host watches: a round that overflows is
 * dropped, and repeated with the bound that it gave and half the tiles.  A
 * round of no more rows than there is room for cannot overflow, so this ends.
 * The same goes for queries that share cold numbers with more rows than their
 * tables have room for; they have room for twice as many candidates as rows.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* Up to this number of queries, room for candidates takes little memory */
#define FEW_QUERIES 64

/* Ids of all queries of a chunk, at most */
#define CHUNK_IDS ((uint64_t) 1 << 26)

/* Bit of the kind of queries whose rows are gathered */
#define GATHERED_KIND (1u << 16)

/* The same of queries that count rows */
#define COUNT_KIND (1u << 17)

/* Queries per chunk when queries are run again */
#define RETRY_QUERIES 32

/*
 * The largest class_hi for which the classes below it have at most `tiles`
 * tiles
 */
static uint32_t
classes_within(struct cuda_view *view, uint64_t tiles)
{
	uint32_t lo = 0;
	uint32_t hi = TILE_CLASSES;

	if (tiles >= view->ntiles)
		return hi;
	count_classes(view);
	while (lo < hi)
	{
		uint32_t middle = (lo + hi + 1) / 2;

		if (view->tiles_before[middle] <= tiles)
			lo = middle;
		else
			hi = middle - 1;
	}
	return lo;
}

/*
 * Plan the rounds of a chunk: ends[] gets the end of each round's classes.
 * Returns the number of rounds.
 */
uint32_t
plan_rounds(const struct search *s, const struct chunk *c, uint32_t *ends)
{
	const struct gpuvec_search_policy &policy = s->policy;
	double tiles = s->view->ntiles;
	uint32_t least = c->dense ? policy.dense_first_rows : policy.first_rows;
	double first = std::max(least, policy.first_per_k * c->kmax);
	double growth = c->dense              ? policy.dense_growth
					: c->n > 4 * c->batch ? policy.growth
										  : policy.growth_few;
	uint32_t nrounds;
	uint32_t n = 0;

	if (tiles * 32 <= c->capacity)
	{
		ends[0] = TILE_CLASSES;
		return 1;
	}
	/* where few rows pass filters, more are needed for as many candidates */
	first = std::max(std::min(first, (double) c->capacity) / c->share / 32, 1.0);
	/* as few as keep all warps busy: without bounds, each row is scored */
	if (c->mask != NULL)
		first = std::min(first, std::max(together_tiles(s, c), first / policy.growth));
	first = std::min(first, tiles);
	growth = std::max(std::min(growth, c->capacity / (2.0 * c->kmax)), 2.0);
	nrounds = (uint32_t) ceil(log(tiles / first) / log(growth) - 1e-9);
	nrounds = std::min(std::max(nrounds, 1u), (uint32_t) MAX_ROUNDS - 2);
	growth = pow(tiles / first, 1.0 / nrounds);
	for (uint32_t i = 0; i < nrounds; i++)
	{
		uint32_t end = classes_within(s->view, (uint64_t) (first * pow(growth, i)));

		if (end > (n > 0 ? ends[n - 1] : 0))
			ends[n++] = end;
	}
	if (n == 0 || ends[n - 1] < TILE_CLASSES)
		ends[n++] = TILE_CLASSES;
	return n;
}

/* Queue all rounds of a chunk that is scanned */
static bool
queue_scan_rounds(struct search *s, struct chunk *c)
{
	uint32_t ends[MAX_ROUNDS];
	uint32_t nrounds = plan_rounds(s, c, ends);
	bool fast = c->kmax <= GPUVEC_FAST_K;

	for (uint32_t i = 0; i < nrounds; i++)
		if (!queue_scan(s, c, s->view->ngroups, i > 0 ? ends[i - 1] : 0, ends[i], false) ||
			!queue_select(s, c, fast && i + 1 == nrounds ? SELECT_FINAL : SELECT_ROUND))
			return false;
	return true;
}

/* Queue all rounds of a chunk, after that of rows with cold numbers */
static bool
queue_rounds(struct search *s, struct chunk *c)
{
	if (c->gathered)
		return queue_gather(s, c) &&
			   queue_select(s, c, c->kmax <= GPUVEC_FAST_K ? SELECT_FINAL : SELECT_ROUND);
	return c->lists   ? queue_list_rounds(s, c)
		   : c->dense ? queue_dense_rounds(s, c)
					  : queue_scan_rounds(s, c);
}

/* Take the answers of a chunk, whose rounds are queued; sort unless `fast` */
static bool
end_chunk(struct search *s, struct chunk *c, bool fast)
{
	if (!fast && !queue_sort(s, c))
		return false;
	if (!queue_download(s, c) || !wait_for_device(s, c))
		return false;
	finish_chunk(s, c);
	return clear_stop(s);
}

/* Run a chunk: queue everything, then wait once */
static bool
run_chunk(struct search *s, struct chunk *c)
{
	bool fast = c->kmax <= GPUVEC_FAST_K;

	s->b->stats.chunks++;
	lay_out(s, c);
	note_way(c);
	c->lone = c->lists && c->ncold == 0 && c->nids <= LONE_IDS &&
			  c->n <= std::min(s->policy.lone_queries, (uint32_t) LONE_QUERIES);
	c->direct = fast && c->n <= LONE_QUERIES;
	s->b->stats.lone_chunks += c->lone;
	if (!need_memory(s, s->b->scratch, c->bytes) ||
		(c->direct &&
		 !need_pinned(s, s->b->download, s->b->download_bytes, c->counters - c->results)) ||
		!(c->lone || upload_chunk(s, c)) ||
		(c->ncold > 0 &&
		 (!queue_cold(s, c, 0, TILE_CLASSES) || !queue_select(s, c, SELECT_ROUND))) ||
		!queue_rounds(s, c))
		return false;
	return end_chunk(s, c, fast);
}

/*
 * Find out whether a query of the chunk lost candidates in the round that was
 * queued
 */
static bool
round_overflowed(struct search *s, struct chunk *c, bool *overflowed)
{
	struct search_backend *b = s->b;
	size_t bytes = sizeof(struct query_state) * c->n;
	const struct query_state *states;

	if (!need_pinned(s, b->download, b->download_bytes, bytes) ||
		!s->check(cudaMemcpyAsync(b->download.get(), scratch_at<char>(s, c->states), bytes,
								  cudaMemcpyDeviceToHost, s->stream),
				  "copy results from the GPU") ||
		!wait_for_device(s, c))
		return false;
	states = (const struct query_state *) b->download.get();
	*overflowed = false;
	for (uint32_t i = 0; i < c->n; i++)
	{
		b->stats.cold_full += states[i].cold_full;
		if (states[i].count > c->capacity || states[i].cold_full)
			*overflowed = true;
	}
	return true;
}

/*
 * Run a chunk of queries that overflowed before, by rounds that the host
 * watches, so that they cannot overflow in the end
 */
static bool
run_watched(struct search *s, struct chunk *c)
{
	uint32_t lo = 0;
	uint32_t span = classes_within(s->view, c->capacity / 32);
	bool fast = c->kmax <= GPUVEC_FAST_K;

	lay_out(s, c);
	note_way(c);
	if (!need_memory(s, s->b->scratch, c->bytes) || !upload_chunk(s, c))
		return false;
	while (lo < TILE_CLASSES && !s->stopped)
	{
		uint32_t hi =
			(uint32_t) std::min((uint64_t) lo + std::max(span, 1u), (uint64_t) TILE_CLASSES);
		bool overflowed;

		if ((c->ncold > 0 && !queue_cold(s, c, lo, hi)) ||
			!queue_scan(s, c, s->view->ngroups, lo, hi, false) ||
			!round_overflowed(s, c, &overflowed))
			return false;
		if (overflowed)
		{
			s->b->stats.retries++;
			if (!queue_select(s, c, SELECT_TIGHTEN))
				return false;
			span = (hi - lo) / 2;
			continue;
		}
		if (!queue_select(s, c, fast && hi == TILE_CLASSES ? SELECT_FINAL : SELECT_ROUND))
			return false;
		span = std::min(span * 2, (uint32_t) TILE_CLASSES);
		lo = hi;
	}
	/* a chunk that was stopped has no answers; finish_chunk() sees to it */
	return end_chunk(s, c, fast);
}

/*
 * True if counting by lists pays.
 *
 * A lookup in a list or bitmap serves one query, and a lookup of the scan up
 * to 32.  But lists are read only for ids of the query.  So lists lose only
 * where many segments have none, and where counts need many planes.
 *
 * By measures of sparse vectors there is only the scan: lists have no values.
 *
 * In small blocks they also lose for a medium number of queries: too many for
 * one warp per query and block, too few to pay for staging bitmaps
 * (scan_above, scan_below).  next_chunk() checks this.
 */
bool
lists_pay(const struct search *s, const struct work_query *w)
{
	uint64_t rows = (uint64_t) s->view->ntiles * 32;

	if (s->scoring.sparse || s->method == GPUVEC_METHOD_BITSET || s->view->listed_rows == 0)
		return false;
	if (s->method == GPUVEC_METHOD_INVERTED)
		return true;
	return !(w->kind & 1) && s->view->listed_rows * 2 >= rows;
}

/* The planes that counters need for the largest possible count */
uint32_t
planes_for(const struct search *s, uint32_t len)
{
	uint32_t most = std::min(len, s->view->maxlen);

	return most <= 127 ? 7 : most <= 255 ? 8 : 17;
}

/*
 * Candidates to make room for, for each query of a chunk that is run again
 */
static uint64_t
retry_capacity(const struct search *s, const struct chunk *c)
{
	uint64_t wanted =
		std::max((uint64_t) s->policy.retry_candidates, (uint64_t) s->policy.retry_per_k * c->kmax);
	/* twice as many, and tables of as many slots */
	size_t bytes = sizeof(struct row_key) * (s->view->ncold_segments > 0 ? 4 : 1);

	return std::min(wanted, s->policy.workspace / c->n / bytes);
}

/*
 * Run the queries that overflowed again, by lists.  With the bounds that they
 * have by then, and more room, few overflow once more.
 */
static bool
run_overflowed_by_lists(struct search *s)
{
	uint32_t n = s->noverflowed;
	uint32_t next;

	s->b->stats.overflows += n;
	s->noverflowed = 0;
	std::sort(s->overflowed, s->overflowed + n);
	for (uint32_t from = 0; from < n; from = next)
	{
		const struct work_query *first = &s->work[s->overflowed[from]];
		uint32_t positions[RETRY_QUERIES];
		struct chunk c;

		memset(&c, 0, sizeof(c));
		if (!choose_kernel(s, &c, first->kind & 1 ? 17 : 8))
			return false;
		for (next = from; next < n && c.n < RETRY_QUERIES; next++)
		{
			const struct work_query *w = &s->work[s->overflowed[next]];

			if (w->kind != first->kind)
				break;
			positions[c.n++] = s->overflowed[next];
			c.kmax = std::max(c.kmax, w->k);
			c.list_planes = std::max(c.list_planes, planes_for(s, w->query->len));
		}
		c.work = s->work;
		c.positions = positions;
		c.lists = true;
		c.again = true;
		c.share = 1;
		c.capacity = fit_capacity(s, retry_capacity(s, &c));
		c.slots = c.capacity;
		if (!chunk_canceled(&c) && !run_chunk(s, &c))
			return false;
	}
	return true;
}

/* Run the queries that overflowed again, so that they cannot overflow */
static bool
run_overflowed(struct search *s)
{
	struct search_backend *b = s->b;
	uint32_t n = s->noverflowed;

	b->stats.overflows += n;
	for (uint32_t from = 0; from < n; from += RETRY_QUERIES)
	{
		struct chunk c;
		uint32_t planes = 8;

		memset(&c, 0, sizeof(c));
		c.work = s->work;
		c.positions = s->overflowed + from;
		c.n = std::min(n - from, (uint32_t) RETRY_QUERIES);
		for (uint32_t i = 0; i < c.n; i++)
		{
			const struct work_query *w = chunk_query(&c, i);

			c.kmax = std::max(c.kmax, w->k);
			if (std::min(gpuvec_query_len(w->query), s->view->maxlen) > 255)
				planes = 17;
		}
		if (chunk_canceled(&c))
			continue;
		if (!choose_kernel(s, &c, planes))
			return false;
		count_classes(s->view);
		c.capacity = fit_capacity(
			s, std::max(retry_capacity(s, &c), (uint64_t) s->view->largest_class * 32));
		if (s->view->ncold_segments > 0)
		{
			/*
			 * rows that share cold numbers may be emitted twice; and tables
			 * are at most half full in a round of the rows that were chosen
			 */
			c.capacity *= 2;
			c.slots = c.capacity;
		}
		if (!run_watched(s, &c))
			return false;
	}
	return true;
}

/* Of all rows, those that take part for a query */
static double
share_of_rows(const struct search *s, const struct work_query *w)
{
	return w->filter ? w->filter->nrows / (s->view->ntiles * 32.0) : 1;
}

/* Candidates to make room for, for each query of a chunk with this one */
static uint64_t
wanted_candidates(const struct search *s, const struct chunk *c, const struct work_query *w,
				  uint32_t kmax)
{
	uint64_t least = s->nwork <= FEW_QUERIES ? s->policy.candidates_few : s->policy.candidates;

	if (c->gathered)
		return std::max((uint64_t) c->capacity, (uint64_t) w->filter->nrows);
	return std::max(least, (uint64_t) s->policy.candidates_per_k * kmax);
}

/* Find the chunk that starts at s->work[from] */
static bool
next_chunk(struct search *s, uint32_t from, struct chunk *c)
{
	const struct gpuvec_search_policy &policy = s->policy;
	uint64_t nids = 0;
	uint64_t list_bytes = 0;
	uint64_t cold_bytes = 0;
	uint32_t together;
	uint32_t most;
	uint32_t n = 0;

	memset(c, 0, sizeof(*c));
	c->work = s->work + from;
	if (!choose_kernel(s, c, s->work[from].kind & 1 ? 17 : 8))
		return false;
	c->gathered = s->work[from].filter && s->work[from].filter->gathered;
	c->lists = !c->gathered && lists_pay(s, &s->work[from]);
	together = c->gathered ? 0 : most_together(s);
	most = together > 0 ? std::min(together, policy.chunk_queries) : policy.chunk_queries;
	if (together > 0)
		cold_bytes = sparse_lists_bytes(s);
	for (uint32_t i = from; i < s->nwork && n < most && s->work[i].kind == s->work[from].kind;
		 i++, n++)
	{
		const struct work_query *w = &s->work[i];
		uint32_t kmax = std::max(c->kmax, w->k);
		uint32_t capacity = fit_capacity(s, wanted_candidates(s, c, w, kmax));

		nids += w->query->len;
		cold_bytes += query_cold_bytes(s, w->query) + query_sparse_bytes(s, w->query);
		if (c->lists)
			list_bytes += query_list_bytes(s, w->query->len);
		if (n > 0 && (nids > CHUNK_IDS ||
					  (query_bytes(kmax, capacity) + query_dense_bytes(s, capacity)) * (n + 1) +
							  nids * 2 + list_bytes + cold_bytes >
						  policy.workspace))
			break;
		c->list_planes = std::max(c->list_planes, planes_for(s, w->query->len));
		c->kmax = kmax;
		c->capacity = capacity;
		c->share = std::max(c->share, share_of_rows(s, w));
	}
	if (c->lists && s->method == GPUVEC_METHOD_AUTO && s->view->nblocks[0] > 0 &&
		n > policy.scan_above && n < policy.scan_below)
		c->lists = false;
	choose_dense(s, c, n);

	/* whole batches, unless these are the last queries of the kind */
	if (n > c->batch && from + n < s->nwork && s->work[from + n].kind == s->work[from].kind)
		n -= n % c->batch;
	c->n = n;
	return together == 0 || choose_together(s, c);
}

/* Note what is known of the rows that pass a query's filter */
static void
note_passed(const struct filter_rows *rows, gpuvec_topk_query *q)
{
	bool filtered = q->filter.n > 0;

	q->ways = 0;
	q->passed = !filtered ? GPUVEC_NOT_COUNTED : rows ? rows->npassed : 0;
	/* if there are none, all were counted */
	q->ranked_disjoint = filtered && q->disjoint && (rows == NULL || rows->nrows == 0);
}

/* True if a query can have matches */
static bool
can_match(const struct search *s, const gpuvec_view *view, const gpuvec_topk_query *q,
		  const struct filter_rows *rows)
{
	if (view->nrows == 0 || (q->k == 0 && !q->unordered) || is_canceled(q) ||
		(rows && rows->nrows == 0))
		return false;
	if (q->len + searched_cold(s, q) > 0 || (rows && rows->gathered && q->disjoint))
		return true;
	/* a row without an id of the query has score 0, or is refused */
	if (s->scoring.sparse)
		return !q->has_min_score || q->min_score <= 0 ||
			   gpuvec_scoring_sparse(s->scoring) == GPUVEC_SPARSE_JACCARD;
	return gpuvec_ranks_disjoint(s->scoring.measure);
}

/*
 * True if rows must reach the query's least score.  By measures of sparse
 * vectors it does not hold where those rank that share no id.
 */
static bool
has_least_score(const struct search *s, const struct work_query *w)
{
	bool all = w->filter && w->filter->gathered && w->query->disjoint && w->query->filter.n > 0;

	return w->query->has_min_score && !(s->scoring.sparse && all);
}

/*
 * Take the queries that can have matches, and sort them in the order of work
 */
static void
collect_work(struct search *s, const gpuvec_view *view, gpuvec_topk_query *queries,
			 uint32_t nqueries)
{
	for (uint32_t i = 0; i < nqueries; i++)
	{
		gpuvec_topk_query *q = &queries[i];
		struct work_query *w = &s->work[s->nwork];
		const struct filter_rows *rows = s->filter_of == NULL || s->filter_of[i] == NO_FILTER
											 ? NULL
											 : &s->filters[s->filter_of[i]];

		q->nmatches = 0;
		q->counted = 0;
		note_passed(rows, q);
		if (q->unordered && !q->bare)
		{
			q->counted = GPUVEC_NOT_COUNTED;
			continue;
		}
		if (!can_match(s, view, q, rows))
			continue;
		w->query = q;
		w->filter = rows;
		w->k = (uint32_t) std::min((uint64_t) q->k, rows ? rows->nrows : view->nrows);
		/*
		 * kind: bit 0 is set if counts need many planes; the other bits are
		 * the magnitude of k beyond the fast path
		 */
		w->kind = !s->scoring.sparse && std::min(gpuvec_query_len(q), s->view->maxlen) > 255;
		for (uint32_t k = w->k; k > GPUVEC_FAST_K; k /= 4)
			w->kind += 2;
		if (rows && rows->gathered)
			w->kind |= GATHERED_KIND;
		if (q->bare)
			w->kind = (w->kind & 1) | COUNT_KIND;
		w->order = (uint64_t) w->kind << 40 | (uint64_t) gpuvec_query_len(q) << 16 |
				   (q->len > 0 ? q->ids[q->len - 1] : 0);
		w->bound.hi = has_least_score(s, w) ? gpuvec_score_key(q->min_score + 0.0) : ~UINT64_C(0);
		w->bound.lo = ~UINT64_C(0);
		s->nwork++;
	}
	std::sort(s->work, s->work + s->nwork,
			  [](const struct work_query &a, const struct work_query &b)
			  { return a.order < b.order; });
}

/* Run all chunks, then the queries that overflowed */
static bool
run_search(struct search *s)
{
	uint32_t from = 0;

	while (from < s->nwork)
	{
		struct chunk c;

		if (s->work[from].kind & COUNT_KIND)
		{
			if (!run_count(s, &s->work[from++]))
				return false;
			continue;
		}
		if (!next_chunk(s, from, &c))
			return false;
		from += c.n;
		if (chunk_canceled(&c))
			continue;
		if (!run_chunk(s, &c))
			return false;
	}
	if (s->noverflowed > 0 && lists_pay(s, &s->work[s->overflowed[0]]) &&
		!run_overflowed_by_lists(s))
		return false;
	return run_overflowed(s);
}

/* Search for some queries, whose filters' masks fit into memory */
static bool
search_some(struct search *s, const gpuvec_view *view, gpuvec_topk_query *queries,
			uint32_t nqueries)
{
	bool ok;

	s->nwork = 0;
	s->noverflowed = 0;
	ok = begin_filters(s, queries, nqueries);
	if (ok)
	{
		collect_work(s, view, queries, nqueries);
		ok = run_search(s);
	}
	/* without a chunk nobody has waited, and the view may go */
	if (ok && s->listing)
		ok = wait_for_device(s, NULL);
	free(s->filters);
	free(s->filter_of);
	return ok;
}

/* Search for all queries */
static bool
search_all(struct search *s, const gpuvec_view *view, gpuvec_topk_query *queries, uint32_t nqueries)
{
	size_t most = filters_at_once(s);
	uint32_t n;

	for (uint32_t i = 0; i < nqueries; i += n)
	{
		n = gpuvec_queries_with(queries + i, nqueries - i, most);
		if (!search_some(s, view, queries + i, n))
			return false;
	}
	return true;
}

/* The backend's topk */
bool
topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
	 gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	struct search s = {b, b->policy, b->stream.get()};
	bool ok;

	s.given = view;
	s.view = (struct cuda_view *) view->device;
	s.scoring = *scoring;
	s.method = method == GPUVEC_METHOD_READY_LISTS ? GPUVEC_METHOD_INVERTED : method;
	if (method == GPUVEC_METHOD_DENSE && s.view->dense_rows == 0)
		s.method = GPUVEC_METHOD_AUTO;
	s.error = error;
	memset(&b->stats, 0, sizeof(b->stats));
	/* also after a batch that has failed */
	for (uint32_t i = 0; i < nqueries; i++)
		gpuvec_free_unordered(&queries[i]);
	if (nqueries == 0)
		return true;
	if (!b->device.enter(error))
		return false;
	s.work = (struct work_query *) malloc(sizeof(struct work_query) * nqueries);
	s.overflowed = (uint32_t *) malloc(sizeof(uint32_t) * nqueries);
	if (s.work == NULL || s.overflowed == NULL)
		ok = gpuvec_fail_memory(error, sizeof(struct work_query) * nqueries);
	else
	{
		ok = search_all(&s, view, queries, nqueries);
		if (!ok && !b->device.broken)
			quiet_device(&s);
	}
	free(s.work);
	free(s.overflowed);
	return ok;
}

} // namespace gpuvec
