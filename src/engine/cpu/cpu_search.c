/*-------------------------------------------------------------------------
 *
 * cpu_search.c
 *	  Splitting a search into slices, which threads run, and merging their
 *	  rows.
 *
 * choose.c assigns each segment of the view to a way of searching.  The
 * segments of one way and all queries form a group.  A group's queries are
 * sorted by length and cut into batches.  A slice of the search is one batch
 * and every n-th segment of a group.  In a search by lists, the slices of a
 * batch instead take segments from a shared list, each the next free one.  By
 * measures of sparse vectors, a few segments are cut into parts, so that there
 * is a slice for each thread.
 * Each batch visits the segments whose lengths are closest to its own first,
 * so that good rows are found early.  Each slice keeps its own best rows; all
 * slices share the bound of each query.  At the end, the rows of the slices
 * are merged and sorted.
 *
 * A query with a filter begins with a mask of the rows that pass it
 * (filters.c), one with cold numbers with the rows that share them
 * (cold_rows.c).  Then come the rows that are gathered; slices offer the
 * others.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cold_rows.h"
#include "engine/cpu/filters.h"
#include "engine/cpu/lists_builder.h"
#include "engine/cpu/lists_search.h"
#include "engine/cpu/sparse_rows.h"
#include "engine/equal_filters.h"

/* Slices for each thread, so that threads finish at about the same time */
#define SLICES_PER_THREAD	4

/*
 * Most bytes of the masks of filters at a time: what stays in the caches.  But
 * so many filters have masks at least, as their queries share more than that.
 */
#define MASK_MEMORY		((size_t) 4 * 1024 * 1024)
#define LEAST_FILTERS	16

/* Nanoseconds that it takes to wake a thread, and to wait for it, roughly */
#define WAKE_NS				100000

/* The segments that are searched in one way, with all queries */
typedef struct cpu_group
{
	cpu_way		way;
	uint32_t	nentries;
	uint32_t   *entries;		/* [nentries] entry numbers of the view */
	uint32_t	width;			/* most queries of a batch */
	uint32_t	nbatches;
	uint32_t	nsplits;		/* slices of a batch */
	uint32_t	nparts;			/* of each entry, for slices of their own */
	uint32_t   *order;			/* [nbatches * nparts * nentries] */
	uint32_t   *next;			/* [nbatches] next position in order[] */
	cpu_slice  *slices;			/* [nbatches * nsplits] */
	best_rows  *best;			/* [nsplits * nqueries] */
} cpu_group;

/* A search that is running */
typedef struct cpu_search
{
	cpu_backend *backend;
	const gpuvec_view *view;
	const gpuvec_scoring *scoring;
	uint32_t	nqueries;
	cpu_query  *queries;		/* sorted by length */
	cpu_query **pointers;		/* [nqueries] pointers to queries[] */
	best_rows  *cold;			/* [nqueries] of rows that share cold numbers;
								 * NULL: no query has any */
	cpu_filters filters;
	cpu_group	groups[CPU_N_WAYS];
	int			failed;			/* atomic */
} cpu_search;

static int
compare_queries(const void *a, const void *b)
{
	const gpuvec_topk_query *x = ((const cpu_query *) a)->query;
	const gpuvec_topk_query *y = ((const cpu_query *) b)->query;

	if (gpuvec_query_len(x) != gpuvec_query_len(y))
		return gpuvec_query_len(x) < gpuvec_query_len(y) ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* An entry of a view, and the distance of its lengths from the batch's */
typedef struct near_entry
{
	uint32_t	entry;
	uint32_t	distance;
} near_entry;

static int
compare_near(const void *a, const void *b)
{
	const near_entry *x = a;
	const near_entry *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Sort entries, which often are in order: those of partitions are */
static void
sort_near(near_entry *near, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (compare_near(&near[i - 1], &near[i]) > 0)
		{
			qsort(near, n, sizeof(*near), compare_near);
			return;
		}
}

/* Distance of a length from the range of a segment's lengths */
static uint32_t
length_distance(const gpuvec_segment *segment, uint32_t len)
{
	if (len < segment->minlen)
		return segment->minlen - len;
	return len > segment->maxlen ? len - segment->maxlen : 0;
}

/* Set up the slices of one batch */
static void
make_slices(cpu_search *search, cpu_group *group, uint32_t batch, near_entry *near)
{
	uint32_t	nentries = group->nentries;
	uint32_t	first = batch * group->width;
	uint32_t	n = search->nqueries - first < group->width ?
		search->nqueries - first : group->width;
	uint32_t	middle = gpuvec_query_len(search->queries[first + n / 2].query);
	uint32_t   *order = group->order + (size_t) batch * group->nparts * nentries;
	uint32_t	placed = 0;

	for (uint32_t i = 0; i < nentries; i++)
	{
		uint32_t	entry = group->entries[i];

		near[i].entry = entry;
		near[i].distance = length_distance(search->view->entries[entry].segment, middle);
	}
	sort_near(near, nentries);

	if (group->way == CPU_LISTS)
		for (; placed < nentries; placed++)
			order[placed] = near[placed].entry;
	for (uint32_t split = 0; split < group->nsplits; split++)
	{
		cpu_slice  *slice = &group->slices[batch * group->nsplits + split];

		slice->view = search->view;
		slice->order = order;
		slice->first_entry = placed;
		if (group->way == CPU_LISTS)
			slice->next_entry = &group->next[batch];
		else
			for (uint32_t i = split / group->nparts; i < nentries; i += group->nsplits / group->nparts)
				order[placed++] = near[i].entry;
		slice->end_entry = placed;
		slice->part = split % group->nparts;
		slice->nparts = group->nparts;
		slice->nqueries = n;
		slice->queries = search->pointers + first;
		slice->best = group->best + (size_t) split * search->nqueries + first;
		for (uint32_t q = 0; q < n; q++)
			slice->best[q].query = slice->queries[q];
	}
}

/* Search one slice in the way of its group */
static bool
search_slice(cpu_backend *cpu, cpu_way way, cpu_slice *slice, int thread)
{
	switch (way)
	{
		case CPU_LISTS:
			return lists_search(slice, &cpu->scratch[thread],
								cpu->simd == SIMD_AVX512 ? lists_select_avx512 :
								cpu->simd == SIMD_AVX2 ? lists_select_avx2 : lists_select_portable);
		case CPU_LONE:
			return cpu->simd == SIMD_AVX512 ? scan_lone_avx512(slice) : scan_lone_portable(slice);
		case CPU_BATCH:
			return cpu->simd == SIMD_AVX512 ? scan_batch_avx512(slice) :
				cpu->simd == SIMD_AVX2 ? scan_batch_avx2(slice) : scan_batch_portable(slice);
		case CPU_SPARSE:
			return sparse_scan(slice, sparse_scratch_of(cpu, thread),
							   cpu->simd == SIMD_AVX512 ? sparse_sums_avx512 :
							   cpu->simd == SIMD_AVX2 ? sparse_sums_avx2 : sparse_sums_portable);
	}
	return false;
}

static inline uint64_t
group_slices(const cpu_group *group)
{
	return (uint64_t) group->nbatches * group->nsplits;
}

/* Run one slice; called by a thread of the pool */
static void
run_slice(void *task, uint64_t number, int thread)
{
	cpu_search *search = task;
	cpu_group  *group = search->groups;
	cpu_slice  *slice;
	bool		ok;

	for (; number >= group_slices(group); group++)
		number -= group_slices(group);

	/*
	 * start with the first slice of each batch: it has the closest segments
	 */
	slice = &group->slices[number % group->nbatches * group->nsplits + number / group->nbatches];
	ok = search_slice(search->backend, group->way, slice, thread);
	for (uint32_t q = 0; q < slice->nqueries; q++)
		ok = ok && !slice->best[q].failed;
	if (!ok)
		__atomic_store_n(&search->failed, 1, __ATOMIC_RELAXED);
}

/* The order of results */
static int
compare_best(const void *a, const void *b)
{
	const best_row *x = a;
	const best_row *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Bytes of a row that was found for a query: a best_row, or a tid */
static inline size_t
row_size(const gpuvec_topk_query *query)
{
	return query->bare ? sizeof(uint64_t) : sizeof(best_row);
}

/*
 * Copy the rows of one slice behind n others at `rows`, unless that is NULL;
 * returns their number, and adds those that it has counted
 */
static uint64_t
copy_rows(const best_rows *best, size_t size, char *rows, uint64_t n, uint64_t *counted)
{
	if (rows && best->n > 0)
		memcpy(rows + n * size, best->rows, best->n * size);
	*counted += best->counted;
	return best->n;
}

/*
 * Copy the rows that all slices found for one query to `rows`, unless that is
 * NULL.  Returns their number, and that of rows that were counted.
 */
static uint64_t
gather_rows(const cpu_search *search, uint64_t query, void *rows, uint64_t *counted)
{
	size_t		size = row_size(search->queries[query].query);
	uint64_t	n = 0;

	*counted = 0;
	if (search->cold)
		n += copy_rows(&search->cold[query], size, rows, n, counted);
	for (uint32_t split = 0; search->filters.gathered && split < search->filters.splits; split++)
		n += copy_rows(&search->filters.gathered[(size_t) split * search->nqueries + query],
					   size, rows, n, counted);
	for (int g = 0; g < CPU_N_WAYS; g++)
	{
		const cpu_group *group = &search->groups[g];

		for (uint32_t split = 0; split < group->nsplits; split++)
			n += copy_rows(&group->best[(size_t) split * search->nqueries + query],
						   size, rows, n, counted);
	}
	return n;
}

/* Give a query its rows */
static void
answer_query(gpuvec_topk_query *query, const best_row *rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_match *match = &query->matches[i];

		match->score = gpuvec_key_score(rows[i].key);
		match->tid = rows[i].tid;
		match->common = rows[i].common;
		match->padding = 0;
	}
	query->nmatches = n;
}

/* Give a bare query its n tids */
static void
answer_tids(cpu_search *search, uint64_t number, uint64_t n)
{
	gpuvec_topk_query *query = (gpuvec_topk_query *) search->queries[number].query;

	query->tids = malloc(n * sizeof(uint64_t));
	if (query->tids == NULL)
		__atomic_store_n(&search->failed, 1, __ATOMIC_RELAXED);
	else
		query->nmatches = (uint32_t) gather_rows(search, number, query->tids, &query->counted);
}

/*
 * Merge the rows that the slices found for one query; called by a thread of
 * the pool
 */
static void
merge_query(void *task, uint64_t number, int thread)
{
	cpu_search *search = task;
	gpuvec_topk_query *query = (gpuvec_topk_query *) search->queries[number].query;
	uint64_t	total;
	best_row   *rows;

	(void) thread;
	if (query->canceled && __atomic_load_n(query->canceled, __ATOMIC_RELAXED))
		return;
	total = gather_rows(search, number, NULL, &query->counted);
	if (total == 0)
		return;
	if (query->bare)
	{
		answer_tids(search, number, total);
		return;
	}
	rows = malloc(total * sizeof(best_row));
	if (query->unordered)
		query->matches = malloc(total * sizeof(gpuvec_match));
	if (rows == NULL || query->matches == NULL)
	{
		free(rows);
		__atomic_store_n(&search->failed, 1, __ATOMIC_RELAXED);
		return;
	}
	gather_rows(search, number, rows, &query->counted);
	if (!query->unordered)
		qsort(rows, total, sizeof(best_row), compare_best);
	answer_query(query, rows, total < query->k ? (uint32_t) total : query->k);
	free(rows);
}

/* Copy the queries' conditions, and sort the queries by length */
static void
make_queries(cpu_search *search, gpuvec_topk_query *queries)
{
	for (uint32_t i = 0; i < search->nqueries; i++)
	{
		cpu_query  *mine = &search->queries[i];

		mine->query = &queries[i];
		mine->scoring = *search->scoring;
		mine->ranks_disjoint = !search->scoring->sparse &&
			gpuvec_ranks_disjoint(search->scoring->measure);
		mine->leading_pages = best_leading_pages(&queries[i].counts);
		mine->own_bound = UINT64_MAX;
		mine->has_after = queries[i].has_after;
		if (mine->has_after)
		{
			mine->after_key = gpuvec_score_key(queries[i].after_score + 0.0);
			mine->after_tid = queries[i].after_tid;
		}
	}
	qsort(search->queries, search->nqueries, sizeof(cpu_query), compare_queries);
	for (uint32_t i = 0; i < search->nqueries; i++)
	{
		cpu_query  *mine = &search->queries[i];

		search->pointers[i] = mine;
		mine->bound = mine->query->bound ? mine->query->bound : &mine->own_bound;
	}
}

/*
 * Begin with the least scores as bounds.  A query by a measure of sparse
 * vectors has none if all rows that pass its filter rank.
 */
static void
set_bounds(cpu_search *search)
{
	for (uint32_t i = 0; i < search->nqueries; i++)
	{
		cpu_query  *mine = &search->queries[i];

		/* + 0.0 turns -0 into 0; no score is -0 */
		if (mine->query->has_min_score && !(search->scoring->sparse && mine->ranks_disjoint))
			best_lower_bound(mine, gpuvec_score_key(mine->query->min_score + 0.0));
	}
}

/* Allocate a group's arrays other than entries */
static bool
allocate_group(const cpu_search *search, cpu_group *group)
{
	group->order = calloc((size_t) group->nbatches * group->nparts * group->nentries, sizeof(uint32_t));
	group->next = calloc(group->nbatches, sizeof(uint32_t));
	group->slices = calloc(group_slices(group), sizeof(cpu_slice));
	group->best = calloc((size_t) search->nqueries * group->nsplits, sizeof(best_rows));
	return group->order && group->next && group->slices && group->best;
}

/* Free a search's arrays */
static void
free_search(cpu_search *search)
{
	for (int g = 0; g < CPU_N_WAYS; g++)
	{
		cpu_group  *group = &search->groups[g];

		for (size_t i = 0; group->best && i < (size_t) search->nqueries * group->nsplits; i++)
			free(group->best[i].rows);
		free(group->entries);
		free(group->order);
		free(group->next);
		free(group->slices);
		free(group->best);
	}
	for (uint32_t i = 0; search->cold && i < search->nqueries; i++)
	{
		free(search->cold[i].rows);
		cold_free((cold_rows *) search->queries[i].cold);
	}
	free(search->cold);
	filters_free(&search->filters, search->backend);
	grouped_free(search->queries, search->nqueries);
	free(search->queries);
	free(search->pointers);
}

/*
 * True if waking a thread takes longer than a query whose rows are wanted in
 * any order: those of one id are a few lists, which are not even counted
 */
static bool
is_short(const cpu_search *search, const cpu_group *group)
{
	const gpuvec_topk_query *query = search->queries[0].query;
	double		ns = 0;

	if (search->nqueries > 1 || !query->unordered || group->way != CPU_LISTS)
		return false;
	for (uint32_t i = 0; i < group->nentries && ns < WAKE_NS; i++)
		ns += cpu_all_rows_cost(search->backend, search->view->entries[group->entries[i]].segment,
								query);
	return ns < WAKE_NS;
}

/* Choose the size of batches and the number of slices */
static void
choose_sizes(cpu_search *search, cpu_group *group)
{
	uint32_t	threads = (uint32_t) gpuvec_thread_pool_threads(search->backend->pool);

	group->width = cpu_width(search->backend->simd, group->way, search->nqueries);
	group->nbatches = (search->nqueries + group->width - 1) / group->width;
	group->nsplits = group->nparts = 1;

	/*
	 * slices that take segments from a shared list even out by themselves, so
	 * few are needed
	 */
	if (is_short(search, group))
		return;
	if (threads > 1 && group->way == CPU_LISTS)
		group->nsplits = group->nbatches < threads * SLICES_PER_THREAD ? threads : 1;
	else if (threads > 1)
		group->nsplits = (threads * SLICES_PER_THREAD + group->nbatches - 1) / group->nbatches;
	if (group->way == CPU_SPARSE)
		group->nparts = cpu_parts(search->view, group->entries, group->nentries, group->nsplits);
	if (group->nsplits > group->nentries * group->nparts)
		group->nsplits = group->nentries * group->nparts;
}

/* Make the lists of an entry now; called by a thread of the pool */
static void
require_lists(void *task, uint64_t number, int thread)
{
	cpu_search *search = task;
	cpu_segment *segment = search->view->entries[number].segment->device;

	(void) thread;
	if (segment)
		lists_builder_require(search->backend->builder, segment);
}

/*
 * Find the rows that share cold numbers with a query; called by a thread of
 * the pool
 */
static void
search_cold(void *task, uint64_t number, int thread)
{
	cpu_search *search = task;

	search->cold[number].query = &search->queries[number];
	if (search->queries[number].query->ncold > 0 &&
		!cold_search(search->backend, thread, search->view, &search->queries[number],
					 &search->cold[number]))
		__atomic_store_n(&search->failed, 1, __ATOMIC_RELAXED);
	if (search->queries[number].query->ncold > 0)
		((gpuvec_topk_query *) search->queries[number].query)->ways |=
			gpuvec_way_bit(GPUVEC_WAY_LISTS);
}

/* Begin with cold numbers, if any query has some.  False: out of memory. */
static bool
begin_cold(cpu_search *search)
{
	bool		any = false;

	for (uint32_t i = 0; i < search->nqueries && !any; i++)
		any = search->queries[i].query->ncold > 0;
	if (!any)
		return true;
	search->cold = calloc(search->nqueries, sizeof(best_rows));
	if (search->cold == NULL)
		return false;
	gpuvec_thread_pool_run(search->backend->pool, search_cold, search, search->nqueries);
	return !search->failed;
}

/*
 * True if some query searches an entry by scans or lists.  Notes the way of
 * those that do.
 */
static bool
is_searched(const cpu_search *search, uint32_t entry, cpu_way way)
{
	uint32_t	bit = gpuvec_way_bit(way == CPU_LISTS ? GPUVEC_WAY_LISTS : GPUVEC_WAY_SCAN);
	bool		any = false;

	for (uint32_t i = 0; i < search->nqueries; i++)
	{
		const uint64_t *mask;

		if (!query_searches(&search->queries[i], entry, &mask))
			continue;
		((gpuvec_topk_query *) search->queries[i].query)->ways |= bit;
		any = true;
	}
	return any;
}

/* Assign the view's entries to the groups */
static bool
divide_entries(cpu_search *search, gpuvec_method method)
{
	const gpuvec_view *view = search->view;

	for (int g = 0; g < CPU_N_WAYS; g++)
	{
		search->groups[g].way = (cpu_way) g;
		search->groups[g].entries = malloc(view->nentries * sizeof(uint32_t));
		if (search->groups[g].entries == NULL)
			return false;
	}
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		cpu_way		way = choose_way(search->backend, view->entries[i].segment, method,
									 search->queries, search->nqueries);

		if (is_searched(search, i, way))
			search->groups[way].entries[search->groups[way].nentries++] = i;
	}
	return true;
}

/*
 * Make groups and slices.  Sets the number of slices.  False: out of memory.
 */
static bool
plan_search(cpu_search *search, gpuvec_method method, uint64_t *nslices)
{
	near_entry *near = malloc(search->view->nentries * sizeof(near_entry));
	bool		ok;

	*nslices = 0;

	if (method == GPUVEC_METHOD_INVERTED && !search->scoring->sparse)
		gpuvec_thread_pool_run(search->backend->pool, require_lists, search,
							   search->view->nentries);
	ok = near != NULL && divide_entries(search, method);

	for (int g = 0; ok && g < CPU_N_WAYS; g++)
	{
		cpu_group  *group = &search->groups[g];

		if (group->nentries == 0)
			continue;
		choose_sizes(search, group);
		ok = allocate_group(search, group);
		for (uint32_t batch = 0; ok && batch < group->nbatches; batch++)
			make_slices(search, group, batch, near);
		*nslices += group_slices(group);
	}
	free(near);
	return ok;
}

/* All that comes before the slices run.  False: out of memory. */
static bool
begin_search(cpu_search *search, gpuvec_method method, gpuvec_topk_query *queries,
			 uint64_t *nslices)
{
	search->queries = calloc(search->nqueries, sizeof(cpu_query));
	search->pointers = calloc(search->nqueries, sizeof(cpu_query *));
	if (search->queries == NULL || search->pointers == NULL)
		return false;
	make_queries(search, queries);
	search->filters.view = search->view;
	search->filters.queries = search->queries;
	search->filters.nqueries = search->nqueries;
	if (!filters_begin(&search->filters, search->backend, method))
		return false;
	set_bounds(search);
	return grouped_begin(search->queries, search->nqueries, search->view) && begin_cold(search) && filters_gather(&search->filters, search->backend) &&
		plan_search(search, method, nslices);
}

/* So many filters have masks at a time */
static size_t
filters_at_once(const gpuvec_view *view)
{
	size_t		bytes = 1;

	for (uint32_t i = 0; i < view->nentries; i++)
		bytes += mask_words(view->entries[i].segment->nrows) * sizeof(uint64_t);
	return MASK_MEMORY / bytes > LEAST_FILTERS ? MASK_MEMORY / bytes : LEAST_FILTERS;
}

/* Search for some queries.  False: out of memory. */
static bool
search_some(cpu_search *search, gpuvec_method method, gpuvec_topk_query *queries)
{
	uint64_t	nslices;

	if (!begin_search(search, method, queries, &nslices))
		search->failed = 1;
	else if (nslices > 0)
		gpuvec_thread_pool_run(search->backend->pool, run_slice, search, nslices);
	if (!search->failed)
		gpuvec_thread_pool_run(search->backend->pool, merge_query, search, search->nqueries);
	search->failed = search->failed ||
		!grouped_end(search->queries, search->nqueries, search->backend->pool);
	free_search(search);
	return !search->failed;
}

/* Begin with no rows, also after a batch that has failed */
static void
empty_answer(gpuvec_topk_query *query)
{
	query->nmatches = 0;
	query->counted = 0;
	query->ways = 0;
	query->ranked_disjoint = false;
	query->passed = query->filter.n > 0 ? 0 : GPUVEC_NOT_COUNTED;
	gpuvec_free_unordered(query);
}

bool
cpu_topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
		 gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	size_t		most = filters_at_once(view);
	uint32_t	step;

	for (uint32_t i = 0; i < nqueries; i++)
		empty_answer(&queries[i]);
	if (view->nentries == 0)
		return true;
	for (uint32_t i = 0; i < nqueries; i += step)
	{
		cpu_search	search = {
			.backend = (cpu_backend *) backend, .view = view, .scoring = scoring
		};

		search.nqueries = step = gpuvec_queries_with(queries + i, nqueries - i, most);
		if (!search_some(&search, method, queries + i))
			return gpuvec_fail_memory(error, 0);
	}
	return true;
}
