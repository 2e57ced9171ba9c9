/*-------------------------------------------------------------------------
 *
 * lists_search.c
 *	  Search by inverted lists: finding the lists of a query, and counting
 *	  them.
 *
 * A task is a query in one segment.  Its lists are counted in bytes, one for
 * each row.  lists_search.inc adds the bitmaps and selects the rows.  Tasks
 * go segment by segment, so that the queries of a batch find a segment's
 * lists in the cache.  A lone query has to read them from memory, at
 * addresses that no hardware prefetcher predicts.  So the lists of the next
 * task are looked up and prefetched while the current one runs.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists_builder.h"
#include "engine/cpu/lists_search.h"

/* Most lists that a byte can count */
#define BYTE_LISTS		255

/* Bytes of a list to prefetch */
#define AHEAD_BYTES		512

/* Most queries that each find some of their bitmaps in no cache */
#define FEW_QUERIES		32

/* Make room for a task's lists and bitmaps */
static bool
fit_task(lists_task *task, uint32_t capacity)
{
	free(task->lists);
	free(task->bitmaps);
	task->lists = malloc(capacity * sizeof(id_list));
	task->bitmaps = malloc(capacity * sizeof(uint8_t *));
	return task->lists && task->bitmaps;
}

/* Make a thread's memory large enough for queries of `capacity` ids */
static bool
fit_scratch(lists_scratch *scratch, uint32_t capacity)
{
	lists_counters *counters = &scratch->counters;

	if (counters->low == NULL)
		counters->low = aligned_alloc(64, GPUVEC_SEGMENT_ROWS);
	if (capacity > scratch->capacity)
	{
		scratch->capacity = 0;
		if (!fit_task(&scratch->tasks[0], capacity) || !fit_task(&scratch->tasks[1], capacity))
			return false;
		scratch->capacity = capacity;
	}
	return counters->low != NULL;
}

void
lists_scratch_free(lists_scratch *scratch)
{
	for (int i = 0; i < 2; i++)
	{
		free(scratch->tasks[i].lists);
		free(scratch->tasks[i].bitmaps);
	}
	free(scratch->counters.low);
	free(scratch->wide);
}

/*
 * Offer the collected rows to the query's best rows.  Rows of one length are
 * in the order of tid.  So if one of them is not wanted, later rows of its
 * length are wanted only if they have more common ids.
 */
void
lists_offer(lists_task *task)
{
	const gpuvec_segment *segment = task->entry->segment;
	gpuvec_shared shared = {.a = gpuvec_query_len(task->best->query->query)};

	for (uint32_t i = 0; i < task->ntaken; i++)
	{
		uint32_t	row = task->taken[i].row;

		if (row >= segment->nrows)
			break;
		shared.common = task->taken[i].common;
		shared.b = segment->len[row];
		if ((shared.b == task->tied_len && shared.common <= task->tied_common) ||
			!gpuvec_entry_live(task->entry, row))
			continue;
		if (!best_offer(task->best, &shared, task->entry, row))
		{
			task->tied_len = shared.b;
			task->tied_common = shared.common;
		}
	}
	task->ntaken = 0;
}

/* True if some row of the segment may have enough common ids */
static inline bool
entry_wanted(const cpu_query *query, const gpuvec_segment *segment)
{
	uint32_t	qlen = gpuvec_query_len(query->query);
	uint32_t	most = qlen < segment->maxlen ? qlen : segment->maxlen;

	return gpuvec_need_with(query->scoring, qlen, segment->minlen, bound_score(query)) <= most;
}

/* Find the lists and bitmaps that the query reads, and prefetch the lists */
static void
find_lists(lists_task *task, const cpu_lists *lists)
{
	const gpuvec_topk_query *query = task->best->query->query;
	uint32_t	nlists = 0;
	uint32_t	nbitmaps = 0;

	for (uint32_t i = 0; i < query->len; i++)
	{
		uint32_t	id = query->ids[i];
		const uint32_t *start;
		const uint16_t *rows;
		uint32_t	n;

		if (id < lists->first_id || id >= lists->end_id)
			continue;
		start = lists->start + (id - lists->first_id);
		rows = lists->rows + (start[0] & ~LISTS_BITMAP);
		if (start[0] & LISTS_BITMAP)
		{
			task->bitmaps[nbitmaps++] = lists->bitmaps + (size_t) rows[0] * lists->stride;
			continue;
		}
		n = (start[1] & ~LISTS_BITMAP) - start[0];
		if (n == 0)
			continue;
		task->lists[nlists].rows = rows;
		task->lists[nlists++].n = n;
		for (uint32_t ahead = 0; ahead < AHEAD_BYTES && ahead < n * sizeof(uint16_t); ahead += 64)
			__builtin_prefetch((const char *) rows + ahead);
	}
	task->nlists = nlists;
	task->nbitmaps = nbitmaps;
}

/* Add the rows of n lists to the counters */
static void
count_lists(uint8_t *restrict counters, const id_list *lists, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		const uint16_t *row = lists[i].rows;
		const uint16_t *end = row + lists[i].n;

		for (; row + 8 <= end; row += 8)
		{
			uint64_t	four[2];

			memcpy(four, row, sizeof(four));
			for (int j = 0; j < 2; j++)
			{
				counters[four[j] & 0xFFFF]++;
				counters[four[j] >> 16 & 0xFFFF]++;
				counters[four[j] >> 32 & 0xFFFF]++;
				counters[four[j] >> 48]++;
			}
		}
		for (; row < end; row++)
			counters[*row]++;
	}
}

/* Add byte counters to two-byte counters */
static void
add_wide(uint8_t *restrict low, uint8_t *restrict high, const uint8_t *restrict more, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		uint8_t		sum = (uint8_t) (low[i] + more[i]);

		high[i] = (uint8_t) (high[i] + (sum < more[i]));
		low[i] = sum;
	}
}

/*
 * Count the lists of a task if byte counters could overflow.  Counts
 * BYTE_LISTS lists at a time in bytes, and adds these up in two-byte
 * counters.  No row is in more than 65535 lists (lists_build.c).
 */
static bool
count_wide(const lists_task *task, lists_scratch *scratch, size_t size)
{
	uint8_t    *low = scratch->counters.low;
	uint8_t    *high;
	uint8_t    *more;

	if (scratch->wide == NULL)
		scratch->wide = aligned_alloc(64, 2 * GPUVEC_SEGMENT_ROWS);
	if (scratch->wide == NULL)
		return false;
	high = scratch->wide;
	more = high + GPUVEC_SEGMENT_ROWS;
	memset(high, 0, size);
	for (uint32_t first = 0; first < task->nlists; first += BYTE_LISTS)
	{
		uint32_t	left = task->nlists - first;

		memset(more, 0, size);
		count_lists(more, task->lists + first, left < BYTE_LISTS ? left : BYTE_LISTS);
		add_wide(low, high, more, size);
	}
	scratch->counters.high = high;
	return true;
}

/* Offer a row of the only list */
static inline void
take_listed(lists_task *task, uint32_t row)
{
	lists_take(task, row, 1);
	if (task->ntaken >= LISTS_TAKE)
		lists_offer(task);
}

/* Offer the rows of a bitmap; those behind the last row are none */
static void
take_bitmap(lists_task *task, const uint8_t *bitmap)
{
	uint32_t	nrows = task->entry->segment->nrows;

	for (uint32_t first = 0; first < nrows; first += 64)
	{
		uint64_t	bits;

		memcpy(&bits, bitmap + first / 8, sizeof(bits));
		for (; bits != 0; bits &= bits - 1)
			take_listed(task, first + (uint32_t) __builtin_ctzll(bits));
	}
}

/* Take n listed rows */
static void
add_listed(lists_task *task, const uint16_t *rows, uint32_t n)
{
	const gpuvec_view_entry *entry = task->entry;
	best_rows  *best = task->best;
	uint64_t   *tids;
	uint32_t	added = 0;
	uint32_t	counted = 0;

	if (entry->live == NULL && best_counts_all(best, entry))
	{
		best->counted += n;
		for (uint32_t i = 0; best->query->marks && i < n; i++)
			best_mark_row(best, entry, rows[i]);
		return;
	}
	if (!best_make_room(best, n))
		return;
	tids = best->tids + best->n;
	for (uint32_t i = 0; i < n; i++)
	{
		uint64_t	tid = gpuvec_entry_tid(entry, rows[i]);
		uint32_t	live = gpuvec_entry_live(entry, rows[i]);
		uint32_t	counts = live & best_counts_tid(best, tid);

		tids[added] = tid;
		added += live - counts;
		counted += counts;
		if (counts)
			best_mark_row(best, entry, rows[i]);
	}
	best->n += added;
	best->counted += counted;
}

/* Take the rows of all lists and bitmaps of a task that are in its mask */
static void
add_any(lists_task *task, lists_scratch *scratch)
{
	uint32_t	nwords = (task->entry->segment->nrows + 63) / 64;
	uint64_t   *any = (uint64_t *) scratch->counters.low;

	memset(any, 0, nwords * sizeof(uint64_t));
	for (uint32_t i = 0; i < task->nbitmaps; i++)
		for (uint32_t word = 0; word < nwords; word++)
		{
			uint64_t	bits;

			memcpy(&bits, task->bitmaps[i] + word * sizeof(bits), sizeof(bits));
			any[word] |= bits;
		}
	for (uint32_t i = 0; i < task->nlists; i++)
		for (uint32_t j = 0; j < task->lists[i].n; j++)
			any[task->lists[i].rows[j] / 64] |= UINT64_C(1) << (task->lists[i].rows[j] % 64);
	for (uint32_t word = 0; task->mask && word < nwords; word++)
		any[word] &= task->mask[word];
	best_take_rows(task->best, task->entry, any);
}

/*
 * Search the segment of a task whose rows are wanted in any order, without
 * counting their common ids.  False: their number matters, or rows without any
 * are wanted, too.
 */
static bool
search_any(lists_task *task, lists_scratch *scratch)
{
	bool		one = task->mask == NULL && task->nlists + task->nbitmaps <= 1;

	if (!task->best->query->query->unordered || gpuvec_ranks_disjoint(task->best->query->scoring.measure))
		return false;
	if (best_takes_any(task->best))
	{
		if (one && task->nlists > 0)
			add_listed(task, task->lists[0].rows, task->lists[0].n);
		else
			add_any(task, scratch);
		return true;
	}
	if (!one)
		return false;
	task->tied_len = UINT32_MAX;
	for (uint32_t i = 0; task->nlists > 0 && i < task->lists[0].n; i++)
		take_listed(task, task->lists[0].rows[i]);
	if (task->nbitmaps > 0)
		take_bitmap(task, task->bitmaps[0]);
	lists_offer(task);
	return true;
}

/*
 * Fetch the bitmaps of a task while its lists are counted, one after another:
 * a line of each in turn, as they are added up, is a pattern that hardware
 * does not follow, and it begins anew with each segment
 */
static void
fetch_bitmaps(const lists_task *task)
{
	uint32_t	bytes = (task->entry->segment->nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS *
		LISTS_LINE_BYTES;

	for (uint32_t i = 0; i < task->nbitmaps; i++)
		for (uint32_t at = 0; at < bytes; at += LISTS_LINE_BYTES)
			__builtin_prefetch(task->bitmaps[i] + at, 0, 2);
}

/* Search the segment of a task.  False: out of memory. */
static bool
search_entry(lists_task *task, bool few_queries, lists_scratch *scratch, lists_select select)
{
	const gpuvec_segment *segment = task->entry->segment;
	size_t		size = (segment->nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS * LISTS_LINE_ROWS;

	if (search_any(task, scratch))
		return true;
	if (few_queries)
		fetch_bitmaps(task);
	memset(scratch->counters.low, 0, size);
	scratch->counters.high = NULL;
	if (task->nlists <= BYTE_LISTS || segment->maxlen <= UINT8_MAX)
		count_lists(scratch->counters.low, task->lists, task->nlists);
	else if (!count_wide(task, scratch, size))
		return false;
	task->tied_len = UINT32_MAX;
	select(task, &scratch->counters);
	return true;
}

/* The position of a thread in a part */
typedef struct walk
{
	cpu_slice  *slice;
	uint32_t	number;			/* of the current entry in the view */
	const gpuvec_view_entry *entry; /* current entry; NULL: none */
	uint32_t	query;			/* next query */
} walk;

/* Take the slice's next entry; false if there is none */
static bool
next_entry(walk *at)
{
	const cpu_slice *slice = at->slice;
	uint32_t	next = __atomic_fetch_add(slice->next_entry, 1, __ATOMIC_RELAXED);

	if (next >= slice->end_entry)
		return false;
	at->number = slice->order[next];
	at->entry = &slice->view->entries[at->number];
	at->query = 0;
	return true;
}

/* Set up the next task; false if there is none */
static bool
next_task(walk *at, lists_task *task)
{
	const cpu_slice *slice = at->slice;

	while (at->entry || next_entry(at))
	{
		for (; at->query < slice->nqueries; at->query++)
		{
			const cpu_query *q = slice->queries[at->query];
			const int  *canceled = q->query->canceled;

			if (!query_searches(q, at->number, &task->mask) ||
				!entry_wanted(q, at->entry->segment) ||
				(canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED)))
				continue;
			task->entry = at->entry;
			task->best = &slice->best[at->query++];
			task->lists_of = segment_lists(at->entry->segment);
			find_lists(task, task->lists_of);
			return true;
		}
		at->entry = NULL;
	}
	return false;
}

/* Search all segments of a slice for all its queries */
bool
lists_search(cpu_slice *slice, lists_scratch *scratch, lists_select select)
{
	walk		at = {.slice = slice};
	uint32_t	capacity = 1;
	bool		few = slice->nqueries <= FEW_QUERIES;
	int			now = 0;
	bool		more;

	for (uint32_t q = 0; q < slice->nqueries; q++)
		if (slice->queries[q]->query->len > capacity)
			capacity = slice->queries[q]->query->len;
	if (!fit_scratch(scratch, capacity))
		return false;
	more = next_task(&at, &scratch->tasks[now]);
	while (more)
	{
		/* prefetch the next task's lists before searching the current one */
		more = next_task(&at, &scratch->tasks[1 - now]);
		if (!search_entry(&scratch->tasks[now], few, scratch, select))
			return false;
		now = 1 - now;
	}
	return true;
}
