/*-------------------------------------------------------------------------
 *
 * filters.c
 *	  The filters of a search: which rows pass, and which are gathered.
 *
 * Equal filters of a batch are evaluated once.  Each has, for each segment, a
 * mask of the rows that pass (filter_codes.c).  A query then goes one of
 * three ways in each segment:
 *
 *	- No row passes: nothing to do.
 *	- Few pass: they are gathered.  Each is counted by its ids in its tile,
 *	  which are 16 bytes in every 512, so a cache miss for each 8 ids.
 *	- Many pass: scans and lists search the segment as ever, and leave out
 *	  the rows that are not in the mask.
 *
 * Rows that are gathered come before scans and lists, as those that share
 * cold numbers do (cold_rows.c), and are left out where those have them.  A
 * bound is the key of the k-th best row of some that pass, whoever found
 * them, so it holds for all.
 *
 * If all rows that pass were gathered, those without a common id can rank,
 * too: their score is that of no common id.  By a measure of sparse vectors
 * rows of any score rank then.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/cpu/filters.h"
#include "engine/cpu/scan_lone.h"
#include "engine/cpu/sparse_rows.h"
#include "engine/equal_filters.h"

/* So few rows in all segments are gathered, whatever that costs */
#define FEW_ROWS		1024

/* Bytes of masks that are kept for the next search, at most */
#define KEPT_BYTES		((size_t) 16 * 1024 * 1024)

/* Slices for each thread, so that threads finish at about the same time */
#define SLICES_PER_THREAD	4

/*
 * True if a query needs a mask.  Without a filter, rows with null sets are
 * left out because they share no id, unless such rows rank.
 */
static bool
needs_mask(const cpu_filters *f, const cpu_query *query)
{
	if (query->query->filter.n > 0)
		return true;
	if (!query->scoring.sparse && !gpuvec_ranks_disjoint(query->scoring.measure))
		return false;
	for (uint32_t i = 0; i < f->view->nentries; i++)
		if (f->view->entries[i].segment->null_sets)
			return true;
	return false;
}

/* Give each query its filter.  False: out of memory. */
static bool
find_filters(cpu_filters *f)
{
	gpuvec_equal_filters equal;
	bool		ok = gpuvec_equal_filters_init(&equal, f->nqueries);

	f->filters = calloc(f->nqueries, sizeof(cpu_filter));
	ok = ok && f->filters != NULL;
	for (uint32_t i = 0; ok && i < f->nqueries; i++)
		if (needs_mask(f, &f->queries[i]))
			f->queries[i].filter =
				&f->filters[gpuvec_equal_filter(&equal, &f->queries[i].query->filter)];
	for (uint32_t i = 0; ok && i < equal.n; i++)
	{
		f->filters[i].filter = *equal.filters[i];
		f->filters[i].wants_null_sets = gpuvec_wants_null_sets(equal.filters[i]);
	}
	f->n = ok ? equal.n : 0;
	gpuvec_equal_filters_free(&equal);
	return ok;
}

/* ---- rows that pass ---- */

/* Evaluate a filter in an entry; called by a thread of the pool */
static void
evaluate_entry(void *task, uint64_t number, int thread)
{
	cpu_filters *f = task;
	cpu_filter *filter = &f->filters[number / f->view->nentries];
	uint32_t	entry = (uint32_t) (number % f->view->nentries);

	(void) thread;
	if (!filter_entry(filter, &f->view->entries[entry], f->simd,
					  f->masks + (filter - f->filters) * f->nmasks + f->first_word[entry],
					  &filter->passing[entry]))
		__atomic_store_n(&f->failed, 1, __ATOMIC_RELAXED);
}

/* Make room for all masks; that of the last search if it is large enough */
static bool
make_room(cpu_filters *f, cpu_backend *cpu)
{
	size_t		words;

	f->first_word = malloc(f->view->nentries * sizeof(size_t));
	if (f->first_word == NULL)
		return false;
	for (uint32_t e = 0; e < f->view->nentries; e++)
	{
		f->first_word[e] = f->nmasks;
		f->nmasks += mask_words(f->view->entries[e].segment->nrows);
	}
	words = f->nmasks * f->n;
	if (words > cpu->nmasks)
	{
		free(cpu->masks);
		cpu->masks = aligned_alloc(MASK_ROWS / 8, words * sizeof(uint64_t));
		cpu->nmasks = cpu->masks ? words : 0;
	}
	f->masks = cpu->masks;
	return f->masks != NULL;
}

/* Evaluate all filters.  False: out of memory. */
static bool
evaluate(cpu_filters *f, gpuvec_thread_pool *pool)
{
	uint32_t	nentries = f->view->nentries;

	for (uint32_t i = 0; i < f->n; i++)
	{
		f->filters[i].passing = calloc(nentries, sizeof(cpu_passing));
		if (f->filters[i].passing == NULL)
			return false;
	}
	gpuvec_thread_pool_run(pool, evaluate_entry, f, (uint64_t) f->n * nentries);
	for (uint32_t i = 0; i < f->n; i++)
		for (uint32_t e = 0; e < nentries; e++)
		{
			f->filters[i].npassed += f->filters[i].passing[e].npassed;
			f->filters[i].nrows += f->filters[i].passing[e].nrows;
		}
	return !f->failed;
}

/*
 * Choose the ways of a query, where done[] says of each entry whether scans
 * and lists leave it out.  Returns true if they leave out all.  Notes whether
 * rows are gathered.
 */
static bool
choose_gathered(const cpu_filters *f, cpu_backend *cpu, gpuvec_method method,
				const cpu_query *query, uint8_t *done)
{
	const cpu_filter *filter = query->filter;
	bool		few = filter->nrows <= FEW_ROWS;
	bool		all = true;

	for (uint32_t e = 0; e < f->view->nentries; e++)
	{
		const gpuvec_segment *segment = f->view->entries[e].segment;
		uint32_t	nrows = filter->passing[e].nrows;

		/* rows that are all taken are not even read */
		if (few || nrows == 0 || query_takes_all(query) ||
			gathering_costs_less(cpu, segment, method, query, f->nqueries,
								 f->n == 1 ? nrows : segment->nrows, nrows))
			done[e] = nrows > 0 ? ENTRY_GATHERED : ENTRY_EMPTY;
		all &= done[e] != ENTRY_SEARCHED;
		if (done[e] == ENTRY_GATHERED)
			((gpuvec_topk_query *) query->query)->ways |= gpuvec_way_bit(GPUVEC_WAY_GATHERED);
	}
	return all;
}

/* Tell the queries what passes, and choose their ways */
static void
choose_ways(cpu_filters *f, cpu_backend *cpu, gpuvec_method method)
{
	for (uint32_t i = 0; i < f->nqueries; i++)
	{
		cpu_query  *query = &f->queries[i];
		gpuvec_topk_query *answer = (gpuvec_topk_query *) query->query;
		uint8_t    *done = f->done + (size_t) i * f->view->nentries;

		if (query->filter == NULL)
			continue;
		query->done = done;
		if (choose_gathered(f, cpu, method, query, done) && answer->disjoint &&
			answer->filter.n > 0)
			query->ranks_disjoint = answer->ranked_disjoint = true;
		if (answer->filter.n > 0)
			answer->passed = query->filter->npassed;
	}
}

bool
filters_begin(cpu_filters *f, cpu_backend *cpu, gpuvec_method method)
{
	bool		any = false;

	for (uint32_t i = 0; i < f->nqueries && !any; i++)
		any = needs_mask(f, &f->queries[i]);
	if (!any)
		return true;
	f->cpu = cpu;
	f->simd = cpu->simd;
	f->done = calloc((size_t) f->nqueries * f->view->nentries, 1);
	if (f->done == NULL || !find_filters(f) || !make_room(f, cpu) ||
		!evaluate(f, cpu->pool))
		return false;
	choose_ways(f, cpu, method);
	return true;
}

/* ---- rows that are gathered ---- */

/* A query whose rows are gathered, and what rows of a length need */
typedef struct gathering
{
	lone_scan	scan;
	sparse_scratch *sparse;		/* in place of the scan's bitmap, by measures
								 * of sparse vectors; else NULL */
	uint64_t	bound;			/* the query's bound, and */
	uint32_t	len;			/* the length, of which `wanted` is known */
	bool		wanted;
} gathering;

/*
 * True if a row of this length may have enough common ids.  A need of 1 says
 * nothing of rows that rank without any.  By measures of sparse vectors, a
 * length says nothing.
 */
static inline bool
length_wanted(gathering *g, uint32_t len)
{
	const cpu_query *query = g->scan.query;
	uint64_t	bound = __atomic_load_n(query->bound, __ATOMIC_RELAXED);
	uint32_t	qlen = gpuvec_query_len(query->query);

	if (g->sparse)
		return true;
	if (len != g->len || bound != g->bound)
	{
		uint32_t	need = gpuvec_need_with(query->scoring, qlen, len, bound_score(query));

		g->len = len;
		g->bound = bound;
		g->wanted = need <= 1 || need <= (qlen < len ? qlen : len);
	}
	return g->wanted;
}

/* Offer a row, counted by its ids */
static inline void
gather_row(const gathering *g, const gpuvec_view_entry *entry, uint32_t row)
{
	const lone_scan *scan = &g->scan;
	const gpuvec_segment *segment = entry->segment;
	gpuvec_shared shared = {
		.a = gpuvec_query_len(scan->query->query), .b = segment->len[row]
	};
	sparse_cold none = {NULL, 0};

	if (g->sparse)
	{
		sparse_offer(g->sparse, scan->best, entry, row, none);
		return;
	}
	shared.common = lone_count(scan->bitmap, segment, row, gpuvec_hot_len(segment, row));
	best_offer(scan->best, &shared, entry, row);
}

/* Fetch what gather_row will read of a row */
static inline void
fetch_row(const gpuvec_segment *segment, uint32_t row)
{
	const uint16_t *ids = row_ids(segment, row);
	uint32_t	len = gpuvec_hot_len(segment, row);

	__builtin_prefetch(&segment->tid[row]);
	for (uint32_t i = 0; i < len; i += GPUVEC_CHUNK_IDS)
		__builtin_prefetch(ids + i / GPUVEC_CHUNK_IDS * CHUNK_VALUES);
}

/* Gather the rows of an entry; each is fetched before the one before it */
static void
gather_entry(gathering *g, const gpuvec_view_entry *entry, const uint64_t *mask)
{
	const gpuvec_segment *segment = entry->segment;
	uint32_t	before = UINT32_MAX;

	for (uint32_t w = 0; w < mask_words(segment->nrows); w++)
		for (uint64_t bits = mask[w]; bits != 0; bits &= bits - 1)
		{
			uint32_t	row = w * 64 + (uint32_t) __builtin_ctzll(bits);

			if (!length_wanted(g, segment->len[row]))
				continue;
			fetch_row(segment, row);
			if (before != UINT32_MAX)
				gather_row(g, entry, before);
			before = row;
		}
	if (before != UINT32_MAX)
		gather_row(g, entry, before);
}

static bool
is_canceled(const gpuvec_topk_query *query)
{
	return query->canceled && __atomic_load_n(query->canceled, __ATOMIC_RELAXED);
}

/* True if a segment has rows of the query's length: often the best ones */
static bool
is_near(const cpu_query *query, const gpuvec_segment *segment)
{
	uint32_t	qlen = gpuvec_query_len(query->query);

	return segment->minlen <= qlen && qlen <= segment->maxlen;
}

/* Gather a query's rows of some entries, the near ones or the others */
static void
gather_entries(const cpu_filters *f, gathering *g, uint32_t first, bool near)
{
	const cpu_query *query = g->scan.query;

	for (uint32_t e = first; e < f->view->nentries; e += f->splits)
	{
		const gpuvec_segment *segment = f->view->entries[e].segment;

		if (query->done[e] != ENTRY_GATHERED || is_near(query, segment) != near ||
			is_canceled(query->query))
			continue;
		if (query_takes_all(query))
			best_take_rows(g->scan.best, &f->view->entries[e], query->filter->passing[e].mask);
		else
			gather_entry(g, &f->view->entries[e], query->filter->passing[e].mask);
	}
}

/* Fill the tables in which rows' ids are looked up.  False: out of memory. */
static bool
set_query(gathering *g, cpu_backend *cpu, int thread, const cpu_query *query)
{
	if (!query->scoring.sparse)
	{
		lone_set_query(&g->scan, query->query);
		return true;
	}
	g->sparse = sparse_scratch_of(cpu, thread);
	if (g->sparse)
		sparse_begin(g->sparse, query);
	return g->sparse != NULL;
}

/* Gather a query's rows of some entries; called by a thread of the pool */
static void
gather_slice(void *task, uint64_t number, int thread)
{
	cpu_filters *f = task;
	cpu_query  *query = &f->queries[number % f->nqueries];
	best_rows  *best = &f->gathered[number];
	gathering  *g;

	best->query = query;
	if (query->done == NULL)
		return;
	g = calloc(1, sizeof(*g));
	if (g == NULL || !set_query(g, f->cpu, thread, query))
	{
		best->failed = true;
		free(g);
		return;
	}
	g->scan.query = query;
	g->scan.best = best;
	g->len = UINT32_MAX;
	gather_entries(f, g, (uint32_t) (number / f->nqueries), true);
	gather_entries(f, g, (uint32_t) (number / f->nqueries), false);
	if (g->sparse)
		sparse_end(g->sparse);
	free(g);
}

bool
filters_gather(cpu_filters *f, cpu_backend *cpu)
{
	uint32_t	threads = (uint32_t) gpuvec_thread_pool_threads(cpu->pool);
	uint64_t	n;

	if (f->done == NULL)
		return true;
	f->splits = threads > 1 ? (threads * SLICES_PER_THREAD + f->nqueries - 1) / f->nqueries : 1;
	if (f->splits > f->view->nentries)
		f->splits = f->view->nentries;
	n = (uint64_t) f->splits * f->nqueries;
	f->gathered = calloc(n, sizeof(best_rows));
	if (f->gathered == NULL)
		return false;
	gpuvec_thread_pool_run(cpu->pool, gather_slice, f, n);
	for (uint64_t i = 0; i < n; i++)
		if (f->gathered[i].failed)
			return false;
	return true;
}

void
filters_free(cpu_filters *f, cpu_backend *cpu)
{
	for (uint32_t i = 0; i < f->n; i++)
		free(f->filters[i].passing);
	if (cpu->nmasks * sizeof(uint64_t) > KEPT_BYTES)
	{
		free(cpu->masks);
		cpu->masks = NULL;
		cpu->nmasks = 0;
	}
	free(f->first_word);
	for (uint64_t i = 0; f->gathered && i < (uint64_t) f->splits * f->nqueries; i++)
		free(f->gathered[i].rows);
	free(f->filters);
	free(f->gathered);
	free(f->done);
}
