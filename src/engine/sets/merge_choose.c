/*-------------------------------------------------------------------------
 *
 * merge_choose.c
 *	  Which segments of a view are merged.
 *
 * Segments are of two sorts.  A sorted one (segment->sorted) comes from many
 * rows that were sorted at once: it has a narrow range of lengths, so that a
 * search can pass over most of it.  All others are unsorted: they come from
 * an update, or from a merge of those.
 *
 * The merger of small segments takes unsorted ones of less than a third of a
 * full segment, as a log-structured merge tree does (O'Neil et al. 1996).  In
 * the order of their sizes, it merges the longest run from the smallest on of
 * which none has more than 1/GROWTH of the rows of the run.  So each merge
 * moves a row into a segment several times as large, and a row is moved O(log
 * n) times.  If there are more than MOST_SMALL small segments, it merges the
 * smallest of them in any case.
 *
 * The merger of large segments has four rules, in this order.
 *
 *	1. The mirror has twice as many rows as when all were sorted: sort all.
 *	2. There are many large unsorted segments: sort these together.  They
 *	   become sorted segments beside the older ones.
 *	3. A segment has more than a quarter of dead rows: rebuild it.  With it
 *	   go segments next to it in the order of lengths, if they too have dead
 *	   rows or are not full, up to GROUP of them.  So ranges stay narrow, and
 *	   segments full.
 *	4. There are many more sorted segments than needed: merge the neighbours
 *	   that have the fewest rows.
 *
 * Rules 2 to 4 work on a part of the mirror.  So a merge takes little memory
 * beside the mirror, and as long as rows are replaced at a rate that the
 * mergers can bear, all rows are never sorted at once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/sets/merge_choose.h"

/* A run of small segments has GROWTH times the rows of each, or more */
#define GROWTH			3

/* Small segments beyond MOST_SMALL are merged down to FEWER_SMALL */
#define MOST_SMALL		10
#define FEWER_SMALL		7

/*
 * Unsorted rows are sorted when they fill WIDE_FRACTION of a mirror, but at
 * least LEAST_WIDE and at most MOST_WIDE full segments
 */
#define WIDE_FRACTION(full)	((full) / 8)
#define LEAST_WIDE		4
#define MOST_WIDE		16

/*
 * More than a quarter of dead rows are garbage; an eighth is enough to be
 * rebuilt beside garbage
 */
#define GARBAGE(dead, all)			((dead) * 4 > (all))
#define SOME_GARBAGE(dead, all)		((dead) * 8 > (all))

/* Sorted segments that are rebuilt together, at most */
#define GROUP			4

/* There may be 1/8 more sorted segments than needed, and SPARE_SORTED */
#define SPARE_SORTED	6

/*
 * The mergers are behind if more than 4 of 10 rows are dead, or with SPARE
 * segments beyond those needed; few rows do not count
 */
#define BEHIND_DEAD(dead, all)		((dead) * 10 > (all) * 4)
#define SPARE			48
#define FEW_ROWS		(gpuvec_full_segment() / 4)

/* What a choice looks at of an entry */
typedef struct candidate
{
	uint32_t	entry;
	uint32_t	rows;			/* all, dead ones included */
	uint32_t	live;
	uint32_t	minlen;
	uint32_t	maxlen;
} candidate;

bool
gpuvec_draft_has(const gpuvec_draft *draft, const gpuvec_segment *segment)
{
	for (uint32_t i = 0; i < draft->n; i++)
		if (draft->entries[i].segment == segment)
			return true;
	return false;
}

/* Is this an entry for the merger of small segments? */
static bool
is_small(const gpuvec_view_entry *entry)
{
	return !entry->segment->sorted && gpuvec_entry_rows(entry) < gpuvec_full_segment() / 3;
}

/* Dead rows of an entry */
static uint64_t
dead_rows(const gpuvec_view_entry *entry)
{
	return entry->segment->nrows - gpuvec_entry_rows(entry);
}

/* The sorts of entries that rules take */
typedef enum entry_sort
{
	SMALL, LARGE_UNSORTED, SORTED
} entry_sort;

static entry_sort
sort_of(const gpuvec_view_entry *entry)
{
	return entry->segment->sorted ? SORTED : is_small(entry) ? SMALL : LARGE_UNSORTED;
}

/*
 * Collect the entries of a sort that are free.  malloc'd; NULL if out of
 * memory.
 */
static candidate *
collect(const gpuvec_merge_state *state, entry_sort sort, uint32_t *n)
{
	candidate  *list = malloc((state->view->nentries + 1) * sizeof(*list));

	*n = 0;
	for (uint32_t i = 0; list && i < state->view->nentries; i++)
	{
		const gpuvec_view_entry *entry = &state->view->entries[i];
		const gpuvec_segment *segment = entry->segment;
		candidate	c = {.entry = i, .rows = segment->nrows};

		if (sort_of(entry) != sort || (state->busy && gpuvec_draft_has(state->busy, segment)))
			continue;
		c.live = gpuvec_entry_rows(entry);
		c.minlen = segment->minlen;
		c.maxlen = segment->maxlen;
		list[(*n)++] = c;
	}
	return list;
}

/* Should this segment be rebuilt, whatever is beside it? */
static bool
is_garbage(const candidate *c)
{
	return GARBAGE((uint64_t) c->rows - c->live, c->rows);
}

static int
compare_live(const void *a, const void *b)
{
	const candidate *x = a;
	const candidate *y = b;

	return x->live < y->live ? -1 : x->live > y->live;
}

/* By the middle of the range of lengths: neighbours have similar rows */
static int
compare_lengths(const void *a, const void *b)
{
	const candidate *x = a;
	const candidate *y = b;
	uint64_t	middle = (uint64_t) x->minlen + x->maxlen;
	uint64_t	other = (uint64_t) y->minlen + y->maxlen;

	return middle < other ? -1 : middle > other;
}

/* Choose list[first .. last - 1] */
static void
take(gpuvec_merge_choice *choice, const candidate *list, uint32_t first, uint32_t last)
{
	for (uint32_t i = first; i < last; i++)
		choice->entries[choice->n++] = list[i].entry;
}

/* The longest run of small segments, ascending by size, that grows enough */
static uint32_t
growing_run(const candidate *list, uint32_t n)
{
	uint32_t	run = 0;
	uint64_t	sum = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		sum += list[i].live;
		if (sum > gpuvec_full_segment())
			break;
		if ((uint64_t) list[i].live * GROWTH <= sum)
			run = i + 1;
	}
	return run;
}

/* Choose small segments to merge, or one to rebuild without its dead rows */
static void
choose_small(const gpuvec_merge_state *state, gpuvec_merge_choice *choice)
{
	uint32_t	n;
	candidate  *list = collect(state, SMALL, &n);
	uint32_t	run;

	if (list == NULL)
		return;
	qsort(list, n, sizeof(*list), compare_live);
	run = growing_run(list, n);
	if (n > MOST_SMALL && run < n - FEWER_SMALL)
		run = n - FEWER_SMALL;
	if (run > 1)
		take(choice, list, 0, run);
	for (uint32_t i = 0; i < n && choice->n == 0; i++)
		if (is_garbage(&list[i]))
			take(choice, list, i, i + 1);
	free(list);
}

/* Unsorted rows that are sorted when there are as many: in full segments */
static uint64_t
wide_segments(const gpuvec_view *view)
{
	uint64_t	part = WIDE_FRACTION(view->nrows / gpuvec_full_segment());

	return part < LEAST_WIDE ? LEAST_WIDE : part < MOST_WIDE ? part : MOST_WIDE;
}

/* Should large unsorted segments be sorted? */
static bool
many_wide(const gpuvec_view *view, uint64_t n, uint64_t rows)
{
	uint64_t	enough = wide_segments(view);

	return rows >= enough * gpuvec_full_segment() || n >= 2 * enough;
}

/* Has the mirror grown enough to sort all rows? */
static bool
has_doubled(const gpuvec_view *view, uint64_t sorted_rows)
{
	return view->nrows > 2 * sorted_rows && view->nrows > LEAST_WIDE * gpuvec_full_segment();
}

/* Are there more sorted segments than there should be? */
static bool
many_sorted(const gpuvec_merge_state *state, uint64_t n, uint64_t rows)
{
	uint64_t	needed = gpuvec_segments_needed(state->view->backend, rows, state->threads);

	return n > needed + needed / 8 + SPARE_SORTED;
}

/* Rule 1: choose all entries but small ones */
static void
choose_all(const gpuvec_merge_state *state, gpuvec_merge_choice *choice)
{
	if (!has_doubled(state->view, state->sorted_rows) || state->view->nentries > state->most)
		return;
	for (uint32_t i = 0; i < state->view->nentries; i++)
		if (!is_small(&state->view->entries[i]))
			choice->entries[choice->n++] = i;
	choice->all = choice->n > 0;
}

/*
 * Rules 2 and 3 for unsorted segments: choose the large ones if they are
 * many, or those with garbage
 */
static void
choose_wide(const gpuvec_merge_state *state, gpuvec_merge_choice *choice)
{
	uint32_t	n;
	candidate  *list = collect(state, LARGE_UNSORTED, &n);
	uint64_t	live = 0;
	uint32_t	most = state->most < 2 * MOST_WIDE ? state->most : 2 * MOST_WIDE;

	if (list == NULL)
		return;
	for (uint32_t i = 0; i < n; i++)
		live += list[i].live;
	if (many_wide(state->view, n, live))
		take(choice, list, 0, n < most ? n : most);
	for (uint32_t i = 0; i < n && choice->n == 0; i++)
		if (is_garbage(&list[i]))
			take(choice, list, i, i + 1);
	free(list);
}

/* May this segment be rebuilt beside its neighbour? */
static bool
worth_rebuilding(const candidate *c)
{
	return SOME_GARBAGE((uint64_t) c->rows - c->live, c->rows) ||
		c->live < gpuvec_full_segment() / 2;
}

/*
 * Choose the segment at `worst` and its neighbours, on both sides, as long as
 * they are worth rebuilding
 */
static void
take_group(const candidate *list, uint32_t n, uint32_t worst, uint32_t most,
		   gpuvec_merge_choice *choice)
{
	uint32_t	first = worst;
	uint32_t	last = worst + 1;
	bool		grown = true;

	while (grown && last - first < most)
	{
		grown = false;
		if (last < n && worth_rebuilding(&list[last]))
		{
			last++;
			grown = true;
		}
		if (first > 0 && last - first < most && worth_rebuilding(&list[first - 1]))
		{
			first--;
			grown = true;
		}
	}
	take(choice, list, first, last);
}

/*
 * The candidate with the largest share of dead rows, if it is garbage; else n
 */
static uint32_t
worst_garbage(const candidate *list, uint32_t n)
{
	uint32_t	worst = n;

	for (uint32_t i = 0; i < n; i++)
	{
		const candidate *c = &list[i];

		if (is_garbage(c) &&
			(worst == n || (uint64_t) c->live * list[worst].rows < (uint64_t) list[worst].live * c->rows))
			worst = i;
	}
	return worst;
}

/* Choose the two neighbours with the fewest rows that fit into a segment */
static void
take_fewest(const candidate *list, uint32_t n, gpuvec_merge_choice *choice)
{
	uint64_t	fewest = (uint64_t) gpuvec_full_segment() + 1;
	uint32_t	best = 0;

	for (uint32_t i = 1; i < n; i++)
	{
		uint64_t	rows = (uint64_t) list[i - 1].live + list[i].live;

		if (rows < fewest)
		{
			fewest = rows;
			best = i;
		}
	}
	if (best > 0)
		take(choice, list, best - 1, best + 1);
	choice->fewer = true;
}

/* Rules 3 and 4 for sorted segments */
static void
choose_sorted(const gpuvec_merge_state *state, gpuvec_merge_choice *choice)
{
	uint32_t	n;
	candidate  *list = collect(state, SORTED, &n);
	uint32_t	worst;
	uint64_t	live = 0;

	if (list == NULL)
		return;
	qsort(list, n, sizeof(*list), compare_lengths);
	for (uint32_t i = 0; i < n; i++)
		live += list[i].live;
	worst = worst_garbage(list, n);
	if (worst < n)
		take_group(list, n, worst, state->most < GROUP ? state->most : GROUP, choice);
	else if (many_sorted(state, n, live))
		take_fewest(list, n, choice);
	free(list);
}

void
gpuvec_merge_choose(gpuvec_merge_level level, const gpuvec_merge_state *state,
					gpuvec_merge_choice *choice)
{
	choice->n = 0;
	choice->all = choice->fewer = false;
	if (level == GPUVEC_MERGE_SMALL)
		choose_small(state, choice);
	else
	{
		choose_all(state, choice);
		if (choice->n == 0)
			choose_wide(state, choice);
		if (choice->n == 0)
			choose_sorted(state, choice);
	}
}

bool
gpuvec_merge_due(gpuvec_merge_level level, const gpuvec_merge_state *state)
{
	const gpuvec_view *view = state->view;
	uint64_t	n[3] = {0};
	uint64_t	rows[3] = {0};
	bool		garbage[3] = {0};

	for (uint32_t i = 0; i < view->nentries; i++)
	{
		const gpuvec_view_entry *entry = &view->entries[i];
		entry_sort	sort = sort_of(entry);

		n[sort]++;
		rows[sort] += gpuvec_entry_rows(entry);
		garbage[sort] |= GARBAGE(dead_rows(entry), entry->segment->nrows);
	}
	if (level == GPUVEC_MERGE_SMALL)
		return n[SMALL] > 1 || garbage[SMALL];
	return has_doubled(view, state->sorted_rows) || garbage[LARGE_UNSORTED] || garbage[SORTED] ||
		many_wide(view, n[LARGE_UNSORTED], rows[LARGE_UNSORTED]) ||
		many_sorted(state, n[SORTED], rows[SORTED]);
}

bool
gpuvec_merge_behind(const gpuvec_merge_state *state)
{
	const gpuvec_view *view = state->view;
	uint64_t	needed = gpuvec_segments_needed(view->backend, view->nrows, state->threads);
	uint64_t	rows = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		rows += view->entries[i].segment->nrows;
	return rows > FEW_ROWS &&
		(BEHIND_DEAD(rows - view->nrows, rows) || view->nentries > needed + SPARE);
}
