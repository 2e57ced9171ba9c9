/*-------------------------------------------------------------------------
 *
 * cpu_nearest.c
 *	  The nearest vectors, by brute force, with vectors in the host's memory.
 *
 * The slots are cut into slices, and each slice is scored, block by block,
 * against all queries.  Each thread keeps the best slots of each query in a
 * heap.  In the end the heaps are merged.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "engine/cpu/cpu_vectors.h"
#include "engine/embedding/pool_simd.h"
#include "engine/slot_bags.h"

/*
 * Slots of a block: their vectors stay in the cache while all queries are
 * scored
 */
#define BLOCK_BYTES		((size_t) 128 * 1024)
#define MAX_BLOCK		1024

/* Size of a slice: (width + 1) * (nqueries + 1) * slots */
#define SLICE_WORK		((uint64_t) 4 * 1024 * 1024)

/* Queries whose heaps a thread merges at a time */
#define QUERIES_AT_ONCE	32

/* A slot that was scored */
typedef struct slot_score
{
	double		score;
	uint32_t	slot;
} slot_score;

/* The k best slots so far: a heap, the worst one at the root */
typedef struct slot_heap
{
	slot_score *rows;			/* [search->k] */
	uint32_t	n;
} slot_heap;

/* A search that is being served */
typedef struct nearest_run
{
	const cpu_bank *bank;
	gpuvec_slot_search *search;
	gpuvec_near_scores_function *near_scores;
	uint64_t	slice_slots;
	uint64_t	nslices;
	int			threads;
	slot_heap  *heaps;			/* [threads][nqueries] */
	float	   *scratch;		/* [threads][width] */
} nearest_run;

/* ---- heaps ---- */

/* True if a comes before b in the order of nearest.h */
static inline bool
is_nearer(const gpuvec_slot_names *names, const slot_score *a, const slot_score *b)
{
	size_t		i = (size_t) a->slot * names->step;
	size_t		j = (size_t) b->slot * names->step;

	if (a->score != b->score)
		return a->score > b->score;
	if (names->keys[i] != names->keys[j])
		return names->keys[i] < names->keys[j];
	return names->tids[i] < names->tids[j];
}

/* Put a row in the place of the root, and move it down to its place */
static void
replace_root(const gpuvec_slot_names *names, slot_heap *heap, slot_score row)
{
	uint64_t	i = 0;

	for (;;)
	{
		uint64_t	child = 2 * i + 1;

		if (child >= heap->n)
			break;
		if (child + 1 < heap->n && is_nearer(names, &heap->rows[child], &heap->rows[child + 1]))
			child++;
		if (!is_nearer(names, &row, &heap->rows[child]))
			break;
		heap->rows[i] = heap->rows[child];
		i = child;
	}
	heap->rows[i] = row;
}

/* Add a row to a heap that is not full */
static void
add_row(const gpuvec_slot_names *names, slot_heap *heap, slot_score row)
{
	uint64_t	i = heap->n++;

	while (i > 0 && is_nearer(names, &heap->rows[(i - 1) / 2], &row))
	{
		heap->rows[i] = heap->rows[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap->rows[i] = row;
}

/* True if a row may be among the best k so far */
static inline bool
may_enter(const gpuvec_slot_search *search, const slot_heap *heap, const slot_score *row)
{
	return heap->n < search->k || is_nearer(&search->names, row, &heap->rows[0]);
}

/* Add a row that may enter */
static void
enter(const gpuvec_slot_search *search, slot_heap *heap, slot_score row)
{
	if (heap->n < search->k)
		add_row(&search->names, heap, row);
	else
		replace_root(&search->names, heap, row);
}

/* ---- searching ---- */

/* Offer the slots of a block, which are scored, to a query's heap */
static void
offer_block(const gpuvec_slot_search *search, slot_heap *heap, uint32_t query,
			const double *scores, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
	{
		slot_score	row = {scores[i], first + i};

		if (isnan(row.score) || (heap->n == search->k && row.score < heap->rows[0].score) ||
			!search->live[row.slot] || !may_enter(search, heap, &row))
			continue;
		if (search->wanted == NULL || search->wanted(search->wanted_arg, query, row.slot))
			enter(search, heap, row);
	}
}

/* Score a block of slots against all queries */
static void
score_block(const nearest_run *n, int thread, uint32_t first, uint32_t count)
{
	const gpuvec_slot_search *search = n->search;
	const cpu_bank *bank = n->bank;
	slot_heap  *heaps = n->heaps + (size_t) thread * search->nqueries;
	double		scores[MAX_BLOCK];

	for (uint32_t i = 0; i < search->nqueries; i++)
	{
		n->near_scores(scores, search->metric, search->queries + (size_t) i * bank->width,
					   search->squares[i], bank->elements + first * bank->vector_bytes, count,
					   bank->width, bank->storage, n->scratch + (size_t) thread * bank->width);
		offer_block(search, &heaps[i], i, scores, first, count);
	}
}

/* Task: score the slots of a slice against all queries */
static void
score_slice(void *task, uint64_t slice, int thread)
{
	const nearest_run *n = task;
	size_t		row_bytes = n->bank->vector_bytes + 1;
	uint32_t	block = row_bytes > BLOCK_BYTES ? 1 : (uint32_t) (BLOCK_BYTES / row_bytes);
	uint64_t	end = (slice + 1) * n->slice_slots;

	if (gpuvec_bags_canceled(n->search->canceled))
		return;
	if (block > MAX_BLOCK)
		block = MAX_BLOCK;
	if (end > n->search->nlive)
		end = n->search->nlive;
	for (uint64_t slot = slice * n->slice_slots; slot < end; slot += block)
		score_block(n, thread, (uint32_t) slot, end - slot < block ? (uint32_t) (end - slot) : block);
}

/* Merge a query's heaps of all threads into the first one, and answer it */
static void
answer_query(const nearest_run *n, uint32_t query)
{
	gpuvec_slot_search *search = n->search;
	slot_heap  *heap = &n->heaps[query];
	uint64_t	at = (uint64_t) query * search->k;

	for (int thread = 1; thread < n->threads; thread++)
	{
		const slot_heap *from = &n->heaps[(size_t) thread * search->nqueries + query];

		for (uint32_t j = 0; j < from->n; j++)
			if (may_enter(search, heap, &from->rows[j]))
				enter(search, heap, from->rows[j]);
	}
	search->counts[query] = heap->n;
	for (uint32_t j = 0; j < heap->n; j++)
	{
		search->slots[at + j] = heap->rows[j].slot;
		search->scores[at + j] = heap->rows[j].score;
	}
}

/* Task: answer some queries */
static void
answer_slice(void *task, uint64_t slice, int thread)
{
	const nearest_run *n = task;
	uint64_t	end = (slice + 1) * QUERIES_AT_ONCE;

	for (uint64_t i = slice * QUERIES_AT_ONCE; i < end && i < n->search->nqueries; i++)
		answer_query(n, (uint32_t) i);
}

/* Allocate the heaps of all threads */
static bool
make_heaps(nearest_run *n, gpuvec_error *error)
{
	size_t		count = (size_t) n->threads * n->search->nqueries;
	size_t		bytes = count * (sizeof(slot_heap) + n->search->k * sizeof(slot_score));

	n->heaps = malloc(bytes + 1);
	n->scratch = malloc(((size_t) n->threads * n->bank->width + 1) * sizeof(float));
	if (n->heaps == NULL || n->scratch == NULL)
		return gpuvec_fail_memory(error, bytes);
	for (size_t i = 0; i < count; i++)
	{
		n->heaps[i].rows = (slot_score *) (n->heaps + count) + i * n->search->k;
		n->heaps[i].n = 0;
	}
	return true;
}

bool
cpu_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_slot_search *search,
			gpuvec_error *error)
{
	nearest_run n = {
		.bank = (const cpu_bank *) bank, .search = search,
		.near_scores = gpuvec_best_near_scores()
	};
	uint64_t	slot_work = ((uint64_t) n.bank->width + 1) * (search->nqueries + (uint64_t) 1);
	uint64_t	slots = SLICE_WORK / slot_work + 1;
	bool		ok;

	n.slice_slots = slots < search->nlive ? slots : search->nlive;
	n.nslices = n.slice_slots > 0 ? (search->nlive + n.slice_slots - 1) / n.slice_slots : 0;
	n.threads = n.nslices > 1 && search->pool ? gpuvec_thread_pool_threads(search->pool) : 1;
	ok = make_heaps(&n, error);
	if (ok)
	{
		cpu_run(search->pool, score_slice, &n, n.nslices);
		cpu_run(search->pool, answer_slice, &n,
				((uint64_t) search->nqueries + QUERIES_AT_ONCE - 1) / QUERIES_AT_ONCE);
	}
	free(n.heaps);
	free(n.scratch);
	return ok;
}
