/*-------------------------------------------------------------------------
 *
 * best_rows.c
 *	  The bounded heap of a query's best rows; of an unordered one, an array
 *	  of all its rows, or of their tids.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"

/* True if a comes after b in the order of results */
static inline bool
behind(const best_row *a, const best_row *b)
{
	return a->key != b->key ? a->key > b->key : a->tid > b->tid;
}

/* Replace the worst row of a full heap */
static void
replace_worst(best_rows *best, best_row row)
{
	best_row   *rows = best->rows;
	uint32_t	i = 0;

	for (;;)
	{
		uint32_t	child = 2 * i + 1;

		if (child >= best->n)
			break;
		if (child + 1 < best->n && behind(&rows[child + 1], &rows[child]))
			child++;
		if (!behind(&rows[child], &row))
			break;
		rows[i] = rows[child];
		i = child;
	}
	rows[i] = row;
}

/*
 * Make room for n more rows, one unless the query is unordered.  Sets failed
 * on lack of memory.
 */
bool
best_make_room(best_rows *best, uint32_t n)
{
	const gpuvec_topk_query *query = best->query->query;
	uint32_t	capacity = best->capacity == 0 ? 16 : best->capacity * 2;
	best_row   *rows;

	if (n <= best->capacity - best->n)
		return true;
	if (capacity < best->n + n)
		capacity = best->n + n;
	if (capacity > query->k && !query->unordered)
		capacity = query->k;
	rows = realloc(best->rows, capacity * (query->bare ? sizeof(uint64_t) : sizeof(best_row)));
	if (rows == NULL)
	{
		best->failed = true;
		return false;
	}
	best->rows = rows;
	best->capacity = capacity;
	return true;
}

/* Add a row to a heap that is not full */
static void
add_row(best_rows *best, best_row row)
{
	uint32_t	i = best->n;

	if (!best_make_room(best, 1))
		return;
	best->n++;
	while (i > 0 && behind(&row, &best->rows[(i - 1) / 2]))
	{
		best->rows[i] = best->rows[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	best->rows[i] = row;
}

void
best_lower_bound(cpu_query *query, uint64_t key)
{
	uint64_t	old = __atomic_load_n(query->bound, __ATOMIC_RELAXED);

	while (key < old &&
		   !__atomic_compare_exchange_n(query->bound, &old, key, true,
										__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

bool
best_offer_score(best_rows *best, double score, uint32_t common, const gpuvec_view_entry *entry,
				 uint32_t number)
{
	cpu_query  *query = best->query;
	best_row	row = {.key = gpuvec_score_key(score), .common = common};
	uint64_t	tid;

	if (row.key > __atomic_load_n(query->bound, __ATOMIC_RELAXED))
		return false;
	row.tid = tid = gpuvec_entry_tid(entry, number);
	if (query->has_after &&
		(row.key < query->after_key ||
		 (row.key == query->after_key && tid <= query->after_tid)))
		return true;
	if (query->cold && query->cold->slots[cold_slot(query->cold, tid)] == tid)
		return true;
	if (query->query->unordered)
	{
		if (!best_make_room(best, 1))
			return true;
		if (!query->query->bare)
			best->rows[best->n++] = row;
		else if (best_counts_tid(best, tid))
		{
			best->counted++;
			best_mark_row(best, entry, number);
		}
		else
			best->tids[best->n++] = tid;
		return true;
	}
	if (best->n < query->query->k)
		add_row(best, row);
	else if (behind(&best->rows[0], &row))
		replace_worst(best, row);
	else
		return false;
	if (best->n == query->query->k)
		best_lower_bound(query, best->rows[0].key);
	return true;
}

bool
best_offer(best_rows *best, const gpuvec_shared *shared, const gpuvec_view_entry *entry, uint32_t row)
{
	const cpu_query *query = best->query;

	if (shared->common == 0 && !query->ranks_disjoint)
		return false;
	return best_offer_score(best, gpuvec_score_with(query->scoring, *shared), shared->common, entry,
							row);
}

bool
best_takes_any(const best_rows *best)
{
	const cpu_query *query = best->query;
	gpuvec_measure measure = query->scoring.measure;
	gpuvec_shared one = {1, gpuvec_query_len(query->query), 1};

	return (measure == GPUVEC_INTERSECTION || measure == GPUVEC_CONTAINMENT) &&
		query->query->bare && query->cold == NULL &&
		gpuvec_score_key(gpuvec_score(measure, one)) <=
		__atomic_load_n(query->bound, __ATOMIC_RELAXED);
}

bool
query_takes_all(const cpu_query *query)
{
	const gpuvec_topk_query *asked = query->query;

	return asked->bare && asked->ncold == 0 && !query->scoring.sparse && query->ranks_disjoint &&
		(!asked->has_min_score || asked->min_score == -INFINITY);
}

/* Of the bits of eight bytes of a set of pages, those that say which it has */
#define PAGE_BITS	UINT64_C(0x5555555555555555)

uint32_t
best_leading_pages(const gpuvec_page_set *set)
{
	uint64_t	at = 0;
	uint32_t	pages;
	uint64_t	bits;

	for (; at + sizeof(bits) <= set->bytes; at += sizeof(bits))
	{
		memcpy(&bits, set->bits + at, sizeof(bits));
		if ((bits & PAGE_BITS) != PAGE_BITS)
			break;
	}
	pages = (uint32_t) (at * 4);
	while (gpuvec_page_set_has(set, pages))
		pages++;
	return pages;
}

/*
 * Only of the first pages that are all in the set it is known at once that a
 * segment's are
 */
bool
best_counts_all(const best_rows *best, const gpuvec_view_entry *entry)
{
	return gpuvec_tid_block(entry->segment->last_tid) < best->query->leading_pages;
}

/* The rows of a word that are live */
static inline uint64_t
live_rows(const gpuvec_view_entry *entry, uint32_t word, uint64_t rows)
{
	const uint32_t *bits;

	if (entry->live == NULL)
		return rows;
	bits = entry->live->bits + 2 * word;
	return rows & (bits[0] | (2 * word + 1 < entry->live->nwords ? (uint64_t) bits[1] << 32 : 0));
}

void
best_take_rows(best_rows *best, const gpuvec_view_entry *entry, const uint64_t *rows)
{
	uint32_t	nrows = entry->segment->nrows;
	bool		all = best_counts_all(best, entry);

	for (uint32_t word = 0; word < (nrows + 63) / 64; word++)
	{
		uint64_t	bits = live_rows(entry, word, rows[word]);
		uint32_t	left = nrows - word * 64;

		if (left < 64)
			bits &= (UINT64_C(1) << left) - 1;
		if (all)
		{
			best->counted += (uint64_t) __builtin_popcountll(bits);
			best_mark_word(best, entry, word, bits);
		}
		if (all || bits == 0)
			continue;
		if (!best_make_room(best, 64))
			return;
		for (; bits != 0; bits &= bits - 1)
		{
			uint64_t	tid = gpuvec_entry_tid(entry, word * 64 + (uint32_t) __builtin_ctzll(bits));
			uint32_t	counts = best_counts_tid(best, tid);

			best->tids[best->n] = tid;
			best->n += 1 - counts;
			best->counted += counts;
			if (counts)
				best_mark_word(best, entry, word, bits & -bits);
		}
	}
}
