/*-------------------------------------------------------------------------
 *
 * cold_rows.c
 *	  Rows that share a cold number with a query.
 *
 * Tiles and inverted lists hold hot numbers only, so scans and lists count
 * the hot numbers that a row shares with the query.  Let C be the live rows
 * that share a cold number with it: the union of its cold postings.  What
 * scans and lists count is all that a row outside C shares, but too little
 * for a row in C.  So a search has two steps:
 *
 *	1. Before all else, the rows of C are found in the postings.  Each is
 *	   counted exactly, its cold numbers by the postings and its hot ones in
 *	   its tile, and offered.
 *	2. Scans and lists offer the other rows.  best_offer() leaves out those of
 *	   C, before they get into a heap, lower a bound or count as candidates.
 *
 * So every row is offered at most once, with its exact count, and with the
 * true lengths of row and query.  All that holds for a search without cold
 * numbers then holds for this one, whatever its conditions are (a least
 * score, only rows behind a position): a heap has the k best of the rows
 * that were offered to it, and a bound is the key of the k-th of k rows that
 * qualify.
 *
 * Rows that do not pass the query's filter are not in C: they take part
 * nowhere.
 *
 * Scans and lists skip rows of which gpuvec_need says that they share too few
 * numbers.  They compare it with the count of hot numbers, which for a row
 * outside C is the whole count, and for a row in C does not matter.
 *
 * Leaving rows of C out afterwards instead, from the k best by hot numbers,
 * would be wrong.  With hot numbers alone, a row of C may seem to come behind
 * the position that it comes before in truth, and take the place of another.
 *
 * By measures of sparse vectors it is the same with sums in place of counts:
 * what scans add up is all that a row outside C shares.  But no count says
 * that a row of C cannot be good enough, so each one is scored.  Its score
 * takes the cold numbers by the places of their ids among the query's.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cold_rows.h"
#include "engine/cpu/scan_lone.h"
#include "engine/cpu/sparse_rows.h"

/* State while the rows of C are found */
typedef struct cold_search_state
{
	const gpuvec_topk_query *query;
	cold_rows  *cold;
	best_rows  *best;
	lone_scan  *scan;			/* the query's hot numbers, as a bitmap; or */
	sparse_scratch *sparse;		/* as tables, by measures of sparse vectors */
	uint32_t   *count;			/* [GPUVEC_SEGMENT_ROWS] cold numbers that
								 * rows share; all 0 between segments */
	uint16_t   *found;			/* [GPUVEC_SEGMENT_ROWS] rows with a count */
	uint32_t	nfound;

	/* by measures of sparse vectors */
	uint64_t   *end;			/* [GPUVEC_SEGMENT_ROWS] where a found row's
								 * ids end */
	sparse_cold_id *ids;		/* [capacity] the found rows' cold numbers,
								 * row by row */
	uint64_t	capacity;
} cold_search_state;

/* Double the room for tids */
static bool
grow(cold_rows *cold)
{
	uint64_t	nslots = cold->slots ? (cold->mask + 1) * 2 : 256;
	uint64_t   *old = cold->slots;
	uint64_t	nold = old ? cold->mask + 1 : 0;

	cold->slots = malloc(nslots * sizeof(uint64_t));
	if (cold->slots == NULL)
	{
		cold->slots = old;
		return false;
	}
	memset(cold->slots, 0xFF, nslots * sizeof(uint64_t));
	cold->mask = nslots - 1;
	for (uint64_t i = 0; i < nold; i++)
		if (old[i] != COLD_FREE)
			cold->slots[cold_slot(cold, old[i])] = old[i];
	free(old);
	return true;
}

/* Add a row; no row comes twice */
static bool
add_tid(cold_rows *cold, uint64_t tid)
{
	if ((cold->slots == NULL || cold->n * 2 > cold->mask) && !grow(cold))
		return false;
	cold->slots[cold_slot(cold, tid)] = tid;
	cold->n++;
	return true;
}

/* Count the cold numbers that the segment's rows share with the query */
static void
count_postings(cold_search_state *s, const gpuvec_segment *segment)
{
	const gpuvec_topk_query *query = s->query;

	s->nfound = 0;
	for (uint32_t i = 0; i < query->ncold; i++)
	{
		gpuvec_cold_run run = gpuvec_segment_find_cold(segment, query->cold[i]);

		for (uint64_t at = run.first; at < run.end; at++)
		{
			uint16_t	row = segment->cold_row[at];

			if (s->count[row]++ == 0)
				s->found[s->nfound++] = row;
		}
	}
}

/*
 * Note the cold numbers that were counted, row by row.  False: out of memory.
 */
static bool
note_ids(cold_search_state *s, const gpuvec_segment *segment)
{
	const gpuvec_topk_query *query = s->query;
	uint64_t	total = 0;

	for (uint32_t i = 0; i < s->nfound; i++)
	{
		s->end[s->found[i]] = total;
		total += s->count[s->found[i]];
	}
	if (total > s->capacity)
	{
		free(s->ids);
		s->ids = malloc(total * sizeof(sparse_cold_id));
		s->capacity = s->ids ? total : 0;
	}
	if (total > 0 && s->ids == NULL)
		return false;
	for (uint32_t i = 0; i < query->ncold; i++)
	{
		gpuvec_cold_run run = gpuvec_segment_find_cold(segment, query->cold[i]);

		for (uint64_t at = run.first; at < run.end; at++)
		{
			sparse_cold_id *id = &s->ids[s->end[segment->cold_row[at]]++];

			id->place = sparse_place(query, query->len + i);
			id->value = segment->sums ? segment->cold_value[at] : 1;
		}
	}
	return true;
}

/*
 * Offer a row that shares `count` cold numbers, unless it cannot be good
 * enough even if it shares all hot ones
 */
static void
offer_row(const cold_search_state *s, const gpuvec_view_entry *entry, uint32_t row, uint32_t count)
{
	const gpuvec_segment *segment = entry->segment;
	gpuvec_shared shared = {count, gpuvec_query_len(s->query), segment->len[row]};
	uint32_t	hot = gpuvec_hot_len(segment, row);
	uint32_t	most = count + (hot < s->query->len ? hot : s->query->len);

	if (s->sparse)
	{
		sparse_cold cold = {s->ids + s->end[row] - count, count};

		sparse_offer(s->sparse, s->best, entry, row, cold);
		return;
	}
	if (most < gpuvec_need_with(s->best->query->scoring, shared.a, shared.b,
								bound_score(s->best->query)))
		return;
	shared.common += lone_count(s->scan->bitmap, segment, row, hot);
	best_offer(s->best, &shared, entry, row);
}

/* Offer and note the rows of C of one segment */
static bool
search_entry(cold_search_state *s, const gpuvec_view_entry *entry, const uint64_t *mask)
{
	const gpuvec_segment *segment = entry->segment;
	bool		ok;

	count_postings(s, segment);
	ok = s->sparse == NULL || note_ids(s, segment);
	for (uint32_t i = 0; i < s->nfound; i++)
	{
		uint32_t	row = s->found[i];

		if (ok && gpuvec_entry_live(entry, row) && mask_has(mask, row))
		{
			offer_row(s, entry, row, s->count[row]);
			ok = add_tid(s->cold, segment->tid[row]);
		}
		s->count[row] = 0;
	}
	return ok;
}

static bool
is_canceled(const gpuvec_topk_query *query)
{
	return query->canceled && __atomic_load_n(query->canceled, __ATOMIC_RELAXED);
}

/*
 * Fill the tables in which hot numbers are looked up.  False: out of memory.
 */
static bool
set_query(cold_search_state *s, cpu_backend *cpu, int thread, const cpu_query *query)
{
	if (!query->scoring.sparse)
	{
		s->scan = calloc(1, sizeof(lone_scan));
		if (s->scan)
			lone_set_query(s->scan, s->query);
		return s->scan != NULL;
	}
	s->end = malloc(GPUVEC_SEGMENT_ROWS * sizeof(uint64_t));
	s->sparse = s->end ? sparse_scratch_of(cpu, thread) : NULL;
	if (s->sparse)
		sparse_begin(s->sparse, query);
	return s->sparse != NULL;
}

bool
cold_search(cpu_backend *cpu, int thread, const gpuvec_view *view, cpu_query *query,
			best_rows *best)
{
	cold_search_state s = {
		.query = query->query, .cold = calloc(1, sizeof(cold_rows)), .best = best,
		.count = calloc(GPUVEC_SEGMENT_ROWS, sizeof(uint32_t)),
		.found = malloc(GPUVEC_SEGMENT_ROWS * sizeof(uint16_t))
	};
	bool		ok = s.cold && s.count && s.found && set_query(&s, cpu, thread, query);

	for (uint32_t i = 0; ok && i < view->nentries && !is_canceled(s.query); i++)
	{
		const uint64_t *mask = query->filter ? query->filter->passing[i].mask : NULL;

		if (view->entries[i].segment->ncold > 0 && (query->filter == NULL || mask != NULL))
			ok = search_entry(&s, &view->entries[i], mask);
	}
	if (s.sparse)
		sparse_end(s.sparse);
	free(s.scan);
	free(s.end);
	free(s.ids);
	free(s.count);
	free(s.found);

	/* not before: the rows of C themselves have to be offered */
	if (ok && s.cold->n > 0)
		query->cold = s.cold;
	else
		cold_free(s.cold);
	return ok && !best->failed;
}

void
cold_free(cold_rows *cold)
{
	if (cold == NULL)
		return;
	free(cold->slots);
	free(cold);
}
