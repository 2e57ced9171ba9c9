/*-------------------------------------------------------------------------
 *
 * part_nearest.c
 *	  The nearest vectors, with vectors on several devices.
 *
 * With copies, any child can answer any query.  If the bank is spread, each
 * child finds the k best of its slots for all queries.  The k best of these
 * are the answer.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "engine/parts/part_bank.h"

/* Queries that one task merges */
#define QUERIES_AT_ONCE	16

/* A search, and those of the children */
typedef struct near_search
{
	part_bank  *bank;
	gpuvec_slot_search *search;
	gpuvec_slot_search mine[GPUVEC_MAX_CHILDREN];	/* k = 0: there is none */
	int			failed;			/* atomic: no memory to merge */
} near_search;

/* ---- copies ---- */

/* Let a child answer the queries from `first` on */
static bool
answer_queries(const near_search *s, uint32_t i, uint32_t first, uint32_t end, gpuvec_error *error)
{
	gpuvec_vectors *child = s->bank->parts->children[i].vectors;
	gpuvec_slot_search mine = *s->search;

	if (first >= end)
		return true;
	mine.queries += (size_t) first * s->bank->width;
	mine.squares += first;
	mine.nqueries = end - first;
	mine.slots += (size_t) first * mine.k;
	mine.scores += (size_t) first * mine.k;
	mine.counts += first;
	return child->nearest(child, s->bank->children[i].bank, &mine, error);
}

/* Let a child answer its share of the queries */
static bool
answer_share(void *arg, uint32_t i, gpuvec_error *error)
{
	const near_search *s = arg;
	uint64_t	n = s->search->nqueries;
	uint32_t	nchildren = s->bank->parts->n;

	return answer_queries(s, i, (uint32_t) (n * i / nchildren),
						  (uint32_t) (n * (i + 1) / nchildren), error);
}

/* Search copies */
static bool
search_copies(near_search *s, gpuvec_error *error)
{
	part_vectors *parts = s->bank->parts;
	uint32_t	i;
	bool		ok;

	if (parts->n > 1 && s->search->nqueries >= parts->policy.split_queries)
		return gpuvec_part_ask(parts, answer_share, s, true, error);
	i = gpuvec_part_take(parts);
	ok = answer_queries(s, i, 0, s->search->nqueries, error);
	gpuvec_part_give(parts, i);
	return ok;
}

/* ---- a spread bank ---- */

/*
 * Let the children's flags of live slots be those of this search.  All
 * searches at a time have the same version.
 */
static bool
spread_live(near_search *s, gpuvec_error *error)
{
	part_bank  *bank = s->bank;
	const part_vectors *parts = bank->parts;
	bool		ok = true;

	pthread_mutex_lock(&bank->mutex);
	for (uint32_t i = 0; ok && bank->live_version != s->search->version && i < parts->n; i++)
	{
		uint32_t	n = part_slots(parts, i, s->search->nlive);
		uint8_t    *live = realloc(bank->children[i].live, n + (size_t) 1);

		ok = live || gpuvec_fail_memory(error, n);
		bank->children[i].live = live ? live : bank->children[i].live;
		for (uint32_t j = 0; ok && j < n; j++)
			live[j] = s->search->live[j * parts->n + i];
	}
	bank->live_version = ok ? s->search->version : 0;
	pthread_mutex_unlock(&bank->mutex);
	return ok;
}

/* Let a child find the best of its slots */
static bool
search_child(void *arg, uint32_t i, gpuvec_error *error)
{
	near_search *s = arg;
	gpuvec_vectors *child = s->bank->parts->children[i].vectors;
	gpuvec_slot_search *mine = &s->mine[i];
	uint64_t	room;

	*mine = *s->search;
	mine->live = s->bank->children[i].live;
	mine->nlive = part_slots(s->bank->parts, i, s->search->nlive);
	mine->k = mine->nlive < mine->k ? mine->nlive : mine->k;
	room = (uint64_t) mine->k * mine->nqueries;
	mine->slots = malloc(room * sizeof(uint32_t) + 1);
	mine->scores = malloc(room * sizeof(double) + 1);
	mine->counts = calloc(mine->nqueries + (size_t) 1, sizeof(uint32_t));
	if (!mine->slots || !mine->scores || !mine->counts)
		return gpuvec_fail_memory(error, room * sizeof(double));
	return mine->k == 0 || child->nearest(child, s->bank->children[i].bank, mine, error);
}

/* A row that a child has found */
typedef struct found_row
{
	gpuvec_near near;
	uint32_t	slot;
} found_row;

/* qsort comparator: better rows first */
static int
compare_found(const void *a, const void *b)
{
	const found_row *x = a;
	const found_row *y = b;

	return gpuvec_nearer(&x->near, &y->near) ? -1 : gpuvec_nearer(&y->near, &x->near);
}

/* Merge the answers to a query; `rows` has room for all */
static void
merge_query(const near_search *s, uint32_t query, found_row *rows)
{
	const part_bank *bank = s->bank;
	const gpuvec_slot_search *search = s->search;
	uint64_t	at = (uint64_t) query * search->k;
	uint32_t	n = 0;

	for (uint32_t i = 0; i < bank->parts->n; i++)
	{
		const gpuvec_slot_search *mine = &s->mine[i];

		for (uint32_t j = 0; j < mine->counts[query]; j++)
		{
			uint64_t	from = (uint64_t) query * mine->k + j;
			uint32_t	slot = mine->slots[from] * bank->parts->n + i;

			rows[n].near.score = mine->scores[from];
			rows[n].near.key = bank->keys[slot];
			rows[n].near.tid = bank->tids[slot];
			rows[n++].slot = slot;
		}
	}
	qsort(rows, n, sizeof(*rows), compare_found);
	search->counts[query] = n < search->k ? n : search->k;
	for (uint32_t j = 0; j < search->counts[query]; j++)
	{
		search->slots[at + j] = rows[j].slot;
		search->scores[at + j] = rows[j].near.score;
	}
}

/* Task: merge the answers to some queries */
static void
merge_part(void *task, uint64_t part, int thread)
{
	near_search *s = task;
	uint64_t	first = part * QUERIES_AT_ONCE;
	found_row  *rows = malloc((size_t) s->search->k * s->bank->parts->n * sizeof(*rows));

	(void) thread;
	if (rows == NULL)
		__atomic_store_n(&s->failed, true, __ATOMIC_RELAXED);
	for (uint64_t i = first; rows && i < first + QUERIES_AT_ONCE && i < s->search->nqueries; i++)
		merge_query(s, (uint32_t) i, rows);
	free(rows);
}

/* Merge the answers to all queries */
static bool
merge_queries(near_search *s, gpuvec_error *error)
{
	uint64_t	nparts = (s->search->nqueries + (uint64_t) QUERIES_AT_ONCE - 1) / QUERIES_AT_ONCE;

	if (gpuvec_bags_canceled(s->search->canceled))
		return true;
	if (nparts == 1)
		merge_part(s, 0, 0);
	else
		gpuvec_thread_pool_run(s->bank->parts->summing, merge_part, s, nparts);
	return !s->failed || gpuvec_fail_memory(error, (size_t) s->search->k * sizeof(found_row));
}

/* Search a spread bank */
static bool
search_spread(near_search *s, gpuvec_error *error)
{
	part_vectors *parts = s->bank->parts;
	bool		ok = spread_live(s, error) && gpuvec_part_ask(parts, search_child, s, true, error) &&
		merge_queries(s, error);

	for (uint32_t i = 0; i < parts->n; i++)
	{
		free(s->mine[i].slots);
		free(s->mine[i].scores);
		free(s->mine[i].counts);
	}
	return ok;
}

bool
gpuvec_part_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
					gpuvec_slot_search *search, gpuvec_error *error)
{
	near_search s = {.bank = part_bank_of(device_bank), .search = search};

	(void) vectors;
	return s.bank->copies ? search_copies(&s, error) : search_spread(&s, error);
}
