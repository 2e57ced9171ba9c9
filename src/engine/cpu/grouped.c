/*-------------------------------------------------------------------------
 *
 * grouped.c
 *	  Groups of the rows that a query counts.
 *
 * All ways of searching mark the rows that they count, by a bit for each row.
 * When they are done, the marked rows of each entry of the view are put into
 * bins by their codes (engine/groups.h), and the bins into groups.  Few rows,
 * or rows of too many bins, become groups one by one.  Ids of sets are counted
 * apart (grouped_ids.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"

#define WORD_ROWS		64

/* From so many marked rows of a word on, all are gone through */
#define MANY_ROWS		24

/* Bins that are made for each row, at most */
#define BINS_OF_ROW		8

#define marks_words(nrows)	(((nrows) + WORD_ROWS - 1) / WORD_ROWS)

/* The grouping of a query's rows, by all threads of a pool */
typedef struct group_task
{
	const counted_marks *marks;
	const gpuvec_grouping *grouping;
	gpuvec_groups **groups;		/* [threads]; NULL: a thread has none yet */
	uint32_t  **hot;			/* [threads], by the ids of sets: rows of each
								 * hot number; NULL: as above */
	int			failed;			/* atomic */
} group_task;

/* Without marks.  NULL: out of memory. */
static counted_marks *
new_marks(const gpuvec_view *view)
{
	counted_marks *marks = calloc(1, sizeof(*marks));
	size_t		nwords = 0;

	if (marks == NULL)
		return NULL;
	marks->view = view;
	marks->first_word = malloc((view->nentries + (size_t) 1) * sizeof(size_t));
	for (uint32_t e = 0; marks->first_word && e < view->nentries; e++)
	{
		marks->first_word[e] = nwords;
		nwords += marks_words(view->entries[e].segment->nrows);
	}
	marks->bits = calloc(nwords + 1, sizeof(uint64_t));
	return marks;
}

bool
grouped_begin(cpu_query *queries, uint32_t n, const gpuvec_view *view)
{
	for (uint32_t i = 0; i < n; i++)
	{
		if (queries[i].query->grouping == NULL)
			continue;
		queries[i].marks = new_marks(view);
		if (queries[i].marks == NULL || queries[i].marks->first_word == NULL ||
			queries[i].marks->bits == NULL)
			return false;
	}
	return true;
}

void
grouped_free(cpu_query *queries, uint32_t n)
{
	for (uint32_t i = 0; queries && i < n; i++)
	{
		if (queries[i].marks == NULL)
			continue;
		free(queries[i].marks->first_word);
		free(queries[i].marks->bits);
		free(queries[i].marks);
	}
}

/* List the rows of a word; returns their number */
static uint32_t
list_rows(uint64_t bits, uint32_t first, uint32_t *rows)
{
	uint32_t	n = 0;

	for (; bits != 0; bits &= bits - 1)
		rows[n++] = first + (uint32_t) __builtin_ctzll(bits);
	return n;
}

/* Find the bins of n rows */
static void
find_bins(const gpuvec_grouping *grouping, const gpuvec_filter_column *filters,
		  const uint32_t *rows, uint32_t n, uint32_t *bins)
{
	memset(bins, 0, n * sizeof(*bins));
	for (int i = 0; i < grouping->nkeys; i++)
	{
		const gpuvec_filter_column *column = &filters[grouping->columns[i] - 1];
		uint32_t	ncodes = gpuvec_bin_codes(column);

		for (uint32_t j = 0; j < n; j++)
			bins[j] = bins[j] * ncodes + column->codes[rows[j]];
	}
}

/* Follow the least and the greatest codes of a column in the bins of n rows */
static void
follow_values(const gpuvec_filter_column *column, const uint32_t *rows, const uint32_t *bins,
			  uint32_t n, uint32_t *low, uint32_t *high)
{
	for (uint32_t j = 0; j < n; j++)
	{
		uint32_t	code = column->codes[rows[j]];

		if (code == column->nkeys)
			continue;
		if (code < low[bins[j]])
			low[bins[j]] = code;
		if (code > high[bins[j]])
			high[bins[j]] = code;
	}
}

/*
 * Count the rows of a word in bins that are codes of one column, many of which
 * are marked: without a jump that depends on a mark
 */
static void
count_codes(uint64_t bits, const uint16_t *codes, uint32_t *counts)
{
	for (uint32_t j = 0; j < WORD_ROWS; j++, bits >>= 1)
		counts[codes[j]] += (uint32_t) bits & 1;
}

/* Count the rows of an entry's marks in its bins */
static void
count_entry(const gpuvec_grouping *grouping, const gpuvec_segment *segment, const uint64_t *marks,
			uint32_t *counts, uint32_t nbins)
{
	const gpuvec_filter_column *filters = segment->filters;
	bool		one = grouping->nkeys == 1 && grouping->nvalues == 0;
	uint32_t	rows[WORD_ROWS];
	uint32_t	bins[WORD_ROWS];

	for (uint32_t word = 0; word < marks_words(segment->nrows); word++)
	{
		uint32_t	n;

		if (one && __builtin_popcountll(marks[word]) >= MANY_ROWS)
		{
			count_codes(marks[word], filters[grouping->columns[0] - 1].codes + word * WORD_ROWS, counts);
			continue;
		}
		n = list_rows(marks[word], word * WORD_ROWS, rows);
		find_bins(grouping, filters, rows, n, bins);
		for (uint32_t j = 0; j < n; j++)
			counts[bins[j]]++;
		for (int i = 0; i < grouping->nvalues; i++)
		{
			uint32_t   *low = counts + (1 + 2 * (size_t) i) * nbins;

			follow_values(&filters[grouping->columns[grouping->nkeys + i] - 1], rows, bins, n,
						  low, low + nbins);
		}
	}
}

/* Add an entry's rows to groups, by bins.  False: out of memory. */
static bool
add_by_bins(gpuvec_groups *groups, const gpuvec_segment *segment, const uint64_t *marks,
			uint32_t nbins)
{
	uint32_t   *counts = calloc(gpuvec_bin_words(&groups->grouping, nbins), sizeof(uint32_t));
	bool		ok;

	if (counts == NULL)
		return false;
	for (int i = 0; i < groups->grouping.nvalues; i++)
		memset(counts + (1 + 2 * (size_t) i) * nbins, 0xFF, nbins * sizeof(uint32_t));
	count_entry(&groups->grouping, segment, marks, counts, nbins);
	ok = gpuvec_groups_add_bins(groups, segment->filters, counts, nbins);
	free(counts);
	return ok;
}

/* Add an entry's rows to groups, one by one.  False: out of memory. */
static bool
add_by_rows(gpuvec_groups *groups, const gpuvec_segment *segment, const uint64_t *marks)
{
	for (uint32_t word = 0; word < marks_words(segment->nrows) && !groups->too_many; word++)
		if (!gpuvec_groups_add_rows(groups, segment->filters, word * WORD_ROWS, marks[word]))
			return false;
	return true;
}

/* Add an entry's nrows rows to groups.  False: out of memory. */
static bool
add_by_columns(gpuvec_groups *groups, const gpuvec_segment *segment, const uint64_t *marks,
			   uint64_t nrows)
{
	uint32_t	nbins = gpuvec_group_bins(&groups->grouping, segment->filters);

	return nbins > 0 && nbins <= nrows * BINS_OF_ROW ?
		add_by_bins(groups, segment, marks, nbins) : add_by_rows(groups, segment, marks);
}

/* Group the marked rows of an entry; called by a thread of the pool */
static void
group_entry(void *arg, uint64_t number, int thread)
{
	group_task *task = arg;
	const gpuvec_segment *segment = task->marks->view->entries[number].segment;
	const uint64_t *marks = task->marks->bits + task->marks->first_word[number];
	uint64_t	nrows = 0;
	bool		ok;

	for (uint32_t word = 0; word < marks_words(segment->nrows); word++)
		nrows += (uint64_t) __builtin_popcountll(marks[word]);
	if (nrows == 0)
		return;
	if (task->groups[thread] == NULL)
		task->groups[thread] = gpuvec_groups_new(task->grouping);
	if (task->groups[thread] == NULL)
	{
		__atomic_store_n(&task->failed, 1, __ATOMIC_RELAXED);
		return;
	}
	ok = gpuvec_groups_ids(task->grouping) ?
		grouped_count_ids(segment, marks, &task->hot[thread], task->groups[thread]) :
		add_by_columns(task->groups[thread], segment, marks, nrows);
	if (!ok)
		__atomic_store_n(&task->failed, 1, __ATOMIC_RELAXED);
}

/* Give a query the groups of hot numbers.  False: out of memory. */
static bool
take_hot(gpuvec_topk_query *query, uint32_t **hot, int n)
{
	query->groups = gpuvec_groups_new(query->grouping);
	return query->groups != NULL && grouped_add_hot(hot, n, query->groups);
}

/*
 * Give a query the groups of all threads, or none and no rows if they are too
 * many.  False: out of memory.
 */
static bool
unite_groups(gpuvec_topk_query *query, const group_task *task, int n)
{
	if (gpuvec_groups_ids(query->grouping) && !take_hot(query, task->hot, n))
		return false;
	for (int i = 0; i < n; i++)
		if (!gpuvec_groups_unite(&query->groups, &task->groups[i]))
			return false;
	if (query->groups != NULL && query->groups->too_many)
	{
		gpuvec_free_unordered(query);
		query->nmatches = 0;
		query->counted = GPUVEC_NOT_COUNTED;
	}
	return true;
}

/* Group the rows that one query has counted.  False: out of memory. */
static bool
group_query(const cpu_query *query, gpuvec_thread_pool *pool)
{
	int			n = gpuvec_thread_pool_threads(pool);
	group_task	task = {.marks = query->marks, .grouping = query->query->grouping};
	bool		ok;

	task.groups = calloc((size_t) n, sizeof(*task.groups));
	task.hot = calloc((size_t) n, sizeof(*task.hot));
	ok = task.groups != NULL && task.hot != NULL;
	if (ok)
		gpuvec_thread_pool_run(pool, group_entry, &task, query->marks->view->nentries);
	ok = ok && !task.failed && unite_groups((gpuvec_topk_query *) query->query, &task, n);
	for (int i = 0; i < n; i++)
	{
		if (task.groups != NULL)
			gpuvec_groups_free(task.groups[i]);
		if (task.hot != NULL)
			free(task.hot[i]);
	}
	free(task.groups);
	free(task.hot);
	return ok;
}

bool
grouped_end(const cpu_query *queries, uint32_t n, gpuvec_thread_pool *pool)
{
	for (uint32_t i = 0; i < n; i++)
		if (queries[i].marks != NULL && !group_query(&queries[i], pool))
			return false;
	return true;
}
