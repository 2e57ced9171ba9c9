/*-------------------------------------------------------------------------
 *
 * lists_search.c
 *	  Search by inverted lists: which lists a query reads, and counting them.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists_search.h"

/* Hits that a byte counter can hold */
#define BYTE_LISTS		255

/* Bytes of a list that are fetched ahead */
#define AHEAD_BYTES		256

/* Make a thread's memory fit queries of so many ids, in segments with rows so long */
bool
lists_scratch_fit(lists_scratch *scratch, uint32_t room, bool wide)
{
	if (scratch->counters.low == NULL)
		scratch->counters.low = aligned_alloc(64, GPUVEC_SEGMENT_ROWS);
	if (wide && scratch->counters.high == NULL)
		scratch->counters.high = aligned_alloc(64, GPUVEC_SEGMENT_ROWS);
	if (scratch->room < room)
	{
		for (int i = 0; i < 2; i++)
		{
			lists_task *task = &scratch->tasks[i];

			free(task->lists);
			free(task->bitmaps);
			task->lists = malloc(room * sizeof(id_list));
			task->bitmaps = malloc(room * sizeof(uint8_t *));
		}
		scratch->room = room;
	}
	for (int i = 0; i < 2; i++)
		if (scratch->tasks[i].lists == NULL || scratch->tasks[i].bitmaps == NULL)
		{
			scratch->room = 0;
			return room == 0;
		}
	return scratch->counters.low != NULL && (!wide || scratch->counters.high != NULL);
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
	free(scratch->counters.high);
}

/*
 * Offer the rows that were put aside.  Rows of one length follow one another by
 * tid, so when one of them is not wanted, those of its length that follow are not
 * either unless they have more common ids.
 */
void
lists_offer(lists_task *task)
{
	const gpuvec_segment *segment = task->entry->segment;

	for (uint32_t i = 0; i < task->ntaken; i++)
	{
		uint32_t	row = task->taken[i].row;
		uint32_t	common = task->taken[i].common;
		uint32_t	len;

		if (row >= segment->nrows)
			break;
		len = segment->len[row];
		if ((len == task->tied_len && common <= task->tied_common) ||
			!gpuvec_entry_live(task->entry, row))
			continue;
		if (!best_offer(task->best, common, len, segment->tid[row]))
		{
			task->tied_len = len;
			task->tied_common = common;
		}
	}
	task->ntaken = 0;
}

/* Can any row of the entry qualify? */
static inline bool
entry_wanted(const cpu_query *query, const gpuvec_segment *segment)
{
	uint32_t	qlen = query->query->len;
	uint32_t	most = qlen < segment->maxlen ? qlen : segment->maxlen;

	return gpuvec_need(query->measure, qlen, segment->minlen, bound_score(query)) <= most;
}

/* Find what the query reads, and have it fetched */
static void
find_lists(lists_task *task, const cpu_lists *lists)
{
	const gpuvec_topk_query *query = task->best->shared->query;
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
		task->lists[nlists++] = (id_list) {rows, n};
		for (uint32_t ahead = 0; ahead < AHEAD_BYTES && ahead < n * sizeof(uint16_t); ahead += 64)
			__builtin_prefetch((const char *) rows + ahead);
	}
	task->nlists = nlists;
	task->nbitmaps = nbitmaps;
}

/* Count the rows of some lists */
static void
count_lists(uint8_t *counters, const id_list *lists, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		const uint16_t *row = lists[i].rows;
		const uint16_t *end = row + lists[i].n;

		for (; row + 4 <= end; row += 4)
		{
			counters[row[0]]++;
			counters[row[1]]++;
			counters[row[2]]++;
			counters[row[3]]++;
		}
		for (; row < end; row++)
			counters[*row]++;
	}
}

/* Count the lists of a task: 255 at a time, so that bytes suffice */
static void
search_entry(lists_task *task, lists_scratch *scratch, lists_select select)
{
	size_t		nrows = task->entry->segment->nrows;
	size_t		size = (nrows + 511) / 512 * 512;

	memset(scratch->counters.low, 0, size);
	count_lists(scratch->counters.low, task->lists, task->nlists);
	task->tied_len = UINT32_MAX;
	select(task, &scratch->counters);
}

/* The next task of a part from (*entry, *query) on; false: none */
static bool
next_task(cpu_part *part, uint32_t *entry, uint32_t *query, lists_task *task)
{
	for (; *entry < part->end_entry; ++*entry, *query = 0)
	{
		const gpuvec_view_entry *e = &part->view->entries[part->order[*entry]];

		for (; *query < part->nqueries; ++*query)
		{
			const cpu_query *q = part->queries[*query];
			const int  *canceled = q->query->canceled;

			if (!entry_wanted(q, e->segment) ||
				(canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED)))
				continue;
			task->entry = e;
			task->best = &part->best[*query];
			task->lists_of = e->segment->device;
			find_lists(task, task->lists_of);
			++*query;
			return true;
		}
	}
	return false;
}

/* Search all segments of a part for all its queries */
bool
lists_search(cpu_part *part, lists_scratch *scratch, lists_select select)
{
	uint32_t	entry = part->first_entry;
	uint32_t	query = 0;
	bool		more;
	int			at = 0;

	uint32_t	room = 0;

	for (uint32_t q = 0; q < part->nqueries; q++)
		if (part->queries[q]->query->len > room)
			room = part->queries[q]->query->len;
	if (!lists_scratch_fit(scratch, room, false))
		return false;
	more = next_task(part, &entry, &query, &scratch->tasks[at]);
	while (more)
	{
		more = next_task(part, &entry, &query, &scratch->tasks[1 - at]);
		search_entry(&scratch->tasks[at], scratch, select);
		at = 1 - at;
	}
	return true;
}
