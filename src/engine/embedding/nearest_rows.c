/*-------------------------------------------------------------------------
 *
 * nearest_rows.c
 *	  Find the rows whose vectors are nearest to queries, by brute force.
 *
 * The table is cut into parts, and each part is scored, block by block,
 * against all queries.  Each thread keeps the best rows of each query in a
 * heap.  In the end the heaps are merged.  Only for rows that are good enough
 * it is checked whether the session's snapshot sees them.  Rows that the
 * session has to decide about count as seen.  If any of them is among the
 * best, the answer is to ask the session about them.
 *
 * If vectors are on a device, the device finds the best of all live rows, and
 * some to spare.  Rows that are excluded or not seen are dropped here.  If
 * too few are left, the device is asked for more.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/embedding_query.h"
#include "engine/embedding/pool_simd.h"
#include "engine/fault.h"

/*
 * Rows of a block: their vectors stay in the cache while all queries are
 * scored
 */
#define BLOCK_BYTES		((size_t) 128 * 1024)
#define MAX_BLOCK		1024

/* Size of a part: (width + 1) * (nqueries + 1) * slots */
#define PART_WORK		((uint64_t) 4 * 1024 * 1024)

/* Spare rows beyond the best k, and most rows in all heaps together */
#define SPARE_ROWS(k)	((k) / 4 + 8)
#define HEAP_ROWS		((uint64_t) 16 * 1024 * 1024)

/* If a device's rows were not enough, ask for this many times as many */
#define MORE_ROWS		4

/* A search that is being served */
typedef struct nearest_run
{
	const gpuvec_embedding_table *table;
	const gpuvec_nearest_query *q;
	const gpuvec_bank *bank;
	uint64_t	k;				/* rows that a heap holds: the request's k,
								 * and some to spare */
	uint32_t	part_slots;
	double	   *squares;		/* [nqueries]: scalar product of each query
								 * with itself */
	float	   *scratch;		/* [threads][width] */
	gpuvec_near_scores_function *near_scores;
	gpuvec_near_heap *heaps;	/* [threads][nqueries] */
} nearest_run;

/* True if the key is excluded */
static bool
excluded(const gpuvec_nearest_query *q, int64_t key)
{
	uint64_t	low = 0;
	uint64_t	high = q->head.nexcluded;

	while (low < high)
	{
		uint64_t	middle = (low + high) / 2;

		if (q->excluded[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < q->head.nexcluded && q->excluded[low] == key;
}

/* Offer the rows of a block, which are scored, to a query's heap */
static void
offer_block(const nearest_run *n, gpuvec_near_heap *heap, const double *scores, uint32_t first,
			uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
	{
		const gpuvec_vector_info *row = &n->bank->rows[first + i];
		gpuvec_near near;

		if (gpuvec_near_hopeless(heap, scores[i]) || !n->bank->live[first + i])
			continue;
		near.score = scores[i];
		near.key = row->key;
		near.tid = row->tid;
		if (heap->n == heap->k && !gpuvec_nearer(&near, &heap->rows[0]))
			continue;
		if (!excluded(n->q, row->key) &&
			gpuvec_embedding_sees(n->table, &n->q->sight, row->tid) != GPUVEC_UNSEEN)
			gpuvec_near_offer(heap, &near);
	}
}

/* Task: score the rows of a part against all queries */
static void
score_part(void *task, uint64_t part, int thread)
{
	nearest_run *n = task;
	const gpuvec_nearest_head *head = &n->q->head;
	gpuvec_near_heap *heaps = n->heaps + (size_t) thread * head->nqueries;
	size_t		row_bytes = gpuvec_vector_bytes(n->table, n->bank) + 1;
	uint32_t	block = row_bytes > BLOCK_BYTES ? 1 : (uint32_t) (BLOCK_BYTES / row_bytes);
	uint64_t	end = (part + 1) * n->part_slots;
	double		scores[MAX_BLOCK];
	float	   *scratch = n->scratch + (size_t) thread * head->width;

	if (n->q->canceled && __atomic_load_n(n->q->canceled, __ATOMIC_RELAXED))
		return;
	if (block > MAX_BLOCK)
		block = MAX_BLOCK;
	if (end > n->bank->nlive)
		end = n->bank->nlive;
	for (uint64_t slot = part * n->part_slots; slot < end; slot += block)
	{
		uint32_t	count = end - slot < block ? (uint32_t) (end - slot) : block;

		for (uint32_t i = 0; i < head->nqueries; i++)
		{
			n->near_scores(scores, (gpuvec_metric) head->metric,
						   n->q->queries + (size_t) i * head->width, n->squares[i],
						   n->bank->elements + slot * gpuvec_vector_bytes(n->table, n->bank), count,
						   head->width, n->table->storage, scratch);
			offer_block(n, &heaps[i], scores, (uint32_t) slot, count);
		}
	}
}

/* The bank of usable vectors as wide as the queries, or NULL */
static const gpuvec_bank *
bank_of_width(const gpuvec_embedding_table *table, uint32_t width)
{
	for (uint32_t i = 0; i < table->nbanks; i++)
		if (table->banks[i]->width == width && table->banks[i]->kind == GPUVEC_VECTOR_GOOD)
			return table->banks[i];
	return NULL;
}

/*
 * Choose the size of the heaps.  Spare rows grow with the verdicts, so each
 * round of a search asks for at least twice as many rows as the rounds
 * before.  Rows that are not seen thus take few rounds.
 */
static void
choose_k(nearest_run *n, int threads)
{
	uint64_t	most = HEAP_ROWS / ((uint64_t) threads * (n->q->head.nqueries + (uint64_t) 1));
	uint64_t	spare = SPARE_ROWS((uint64_t) n->q->head.k) + n->q->head.nverdicts;
	long		limit = (long) most;

	if (gpuvec_fault("near-spare", &limit) && (uint64_t) limit < most)
		most = limit;
	n->k = n->q->head.k + (spare < most ? spare : most) + 1;
	if (n->k > n->bank->nlive)
		n->k = n->bank->nlive > 0 ? n->bank->nlive : 1;
}

/* Allocate the heaps of all threads */
static bool
make_heaps(nearest_run *n, int threads, gpuvec_error *error)
{
	size_t		count = (size_t) threads * n->q->head.nqueries;
	size_t		bytes;

	choose_k(n, threads);
	bytes = count * (sizeof(gpuvec_near_heap) + n->k * sizeof(gpuvec_near));
	n->heaps = malloc(bytes + 1);
	n->squares = malloc((n->q->head.nqueries + (size_t) 1) * sizeof(double));
	n->scratch = malloc(((size_t) threads * n->q->head.width + 1) * sizeof(float));
	if (n->heaps == NULL || n->squares == NULL || n->scratch == NULL)
		return gpuvec_fail_memory(error, bytes);
	memset(n->heaps, 0, count * sizeof(gpuvec_near_heap));
	for (size_t i = 0; i < count; i++)
	{
		n->heaps[i].rows = (gpuvec_near *) (n->heaps + count) + i * n->k;
		n->heaps[i].k = n->k;
	}
	for (uint32_t i = 0; i < n->q->head.nqueries; i++)
	{
		const float *query = n->q->queries + (size_t) i * n->q->head.width;

		n->squares[i] = gpuvec_product(query, query, n->q->head.width);
	}
	return true;
}

/* Merge the heaps of all threads into those of the first, best rows first */
static void
merge_heaps(nearest_run *n, int threads)
{
	uint32_t	nqueries = n->q->head.nqueries;

	for (uint32_t i = 0; i < nqueries; i++)
	{
		for (int thread = 1; thread < threads; thread++)
		{
			const gpuvec_near_heap *from = &n->heaps[(size_t) thread * nqueries + i];

			for (uint64_t j = 0; j < from->n; j++)
				gpuvec_near_offer(&n->heaps[i], &from->rows[j]);
		}
		gpuvec_near_sort(&n->heaps[i]);
	}
}

/* Number of rows in a query's answer */
static uint64_t
rows_wanted(const nearest_run *n, uint32_t query)
{
	return n->heaps[query].n < n->q->head.k ? n->heaps[query].n : n->q->head.k;
}

/*
 * If undecided rows are among the best, answer with their tids, and with
 * those of undecided spare rows, which may take their places.  *done: there
 * is an answer.
 */
static bool
answer_undecided(nearest_run *n, gpuvec_nearest_query *q, bool *done, gpuvec_error *error)
{
	uint64_t	count = 0;
	uint64_t	room = 0;
	uint64_t   *tids;

	*done = false;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		room += n->heaps[i].n;
	tids = malloc((room + 1) * sizeof(*tids));
	if (tids == NULL)
		return gpuvec_fail_memory(error, room * sizeof(*tids));
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		for (uint64_t j = 0; j < n->heaps[i].n; j++)
			if (gpuvec_embedding_sees(n->table, &q->sight,
									  n->heaps[i].rows[j].tid) == GPUVEC_UNDECIDED)
			{
				tids[count++] = n->heaps[i].rows[j].tid;
				*done |= j < q->head.k;
			}
	if (!*done)
	{
		free(tids);
		return true;
	}
	q->answer.status = GPUVEC_EMBEDDING_UNDECIDED;
	q->answer.count = gpuvec_distinct_tids(tids, count);
	q->body = tids;
	q->body_size = q->answer.count * sizeof(*tids);
	return true;
}

static bool
answer_rows(nearest_run *n, gpuvec_nearest_query *q, gpuvec_error *error)
{
	gpuvec_near *rows;
	uint64_t	total = 0;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
		total += rows_wanted(n, i);
	rows = malloc((total + 1) * sizeof(*rows));
	if (rows == NULL)
		return gpuvec_fail_memory(error, total * sizeof(*rows));
	q->body = rows;
	q->body_size = total * sizeof(*rows);
	q->answer.count = total;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		q->counts[i] = (uint32_t) rows_wanted(n, i);
		memcpy(rows, n->heaps[i].rows, q->counts[i] * sizeof(*rows));
		rows += q->counts[i];
	}
	return true;
}

/*
 * Offer the rows that a device has found to the queries from `first` on.
 * *more: too few rows are left for some query, and the device may have more.
 */
static void
offer_found(nearest_run *n, uint32_t first, const gpuvec_slot_search *found, bool *more)
{
	const gpuvec_nearest_query *q = n->q;

	*more = false;
	for (uint32_t i = 0; i < found->nqueries; i++)
	{
		gpuvec_near_heap *heap = &n->heaps[first + i];
		uint64_t	at = (uint64_t) i * found->k;

		heap->n = 0;
		for (uint64_t j = at; j < at + found->counts[i]; j++)
		{
			const gpuvec_vector_info *row = &n->bank->rows[found->slots[j]];
			gpuvec_near near = {.score = found->scores[j], .key = row->key, .tid = row->tid};

			if (!excluded(q, row->key) &&
				gpuvec_embedding_sees(n->table, &q->sight, row->tid) != GPUVEC_UNSEEN)
				gpuvec_near_offer(heap, &near);
		}
		*more |= heap->n < q->head.k && found->counts[i] == found->k && found->k < n->bank->nlive;
	}
}

/* Let the device find the k best rows of nqueries queries, and offer them */
static bool
ask_device(nearest_run *n, uint32_t first, uint32_t nqueries, uint32_t k, bool *more,
		   gpuvec_error *error)
{
	const gpuvec_nearest_query *q = n->q;
	gpuvec_vectors *vectors = n->table->vectors;
	uint64_t	room = (uint64_t) k * nqueries;
	gpuvec_slot_search found = {
		.metric = (gpuvec_metric) q->head.metric,
		.queries = q->queries + (size_t) first * q->head.width, .squares = n->squares + first,
		.nqueries = nqueries, .k = k, .live = n->bank->live, .nlive = n->bank->nlive,
		.version = n->table->version, .canceled = q->canceled,
		.slots = malloc(room * sizeof(uint32_t) + 1), .scores = malloc(room * sizeof(double) + 1),
		.counts = calloc(nqueries + (size_t) 1, sizeof(uint32_t))
	};
	bool		ok = found.slots && found.scores && found.counts;

	*more = false;
	if (!ok)
		gpuvec_fail_memory(error, room * sizeof(double));
	else
		ok = vectors->nearest(vectors, n->bank->device, &found, error);
	if (ok && !(q->canceled && __atomic_load_n(q->canceled, __ATOMIC_RELAXED)))
		offer_found(n, first, &found, more);
	free(found.slots);
	free(found.scores);
	free(found.counts);
	return ok;
}

/*
 * Search on the device, a group of queries at a time, with the heaps of one
 * thread.  If too many rows of a query were dropped, the group is asked again
 * for MORE_ROWS times as many rows, or as many of its queries as then fit.
 */
static bool
search_device(nearest_run *n, gpuvec_error *error)
{
	/* rows that are excluded or not seen are dropped */
	uint64_t	start = n->k + n->q->head.nexcluded + n->q->head.nverdicts;
	uint64_t	k = start;

	for (uint32_t first = 0; n->bank->nlive > 0 && first < n->q->head.nqueries;)
	{
		uint32_t	left = n->q->head.nqueries - first;
		uint64_t	fit;
		uint32_t	count;
		bool		more;

		if (k > n->bank->nlive)
			k = n->bank->nlive;
		fit = gpuvec_embedding_policy.device_rows / k;
		fit = fit > 0 ? fit : 1;
		count = left < fit ? left : (uint32_t) fit;
		if (!ask_device(n, first, count, (uint32_t) k, &more, error))
			return false;
		first += more ? 0 : count;
		k = more ? k * MORE_ROWS : start;
	}
	return true;
}

/* Search.  The caller holds the table's lock, and there is a bank. */
static bool
search(nearest_run *n, gpuvec_thread_pool *pool, gpuvec_nearest_query *q, gpuvec_error *error)
{
	uint64_t	slot_work = ((uint64_t) q->head.width + 1) * (q->head.nqueries + (uint64_t) 1);
	uint64_t	slots = PART_WORK / slot_work + 1;
	uint64_t	nparts;
	int			threads;
	bool		done;

	n->part_slots = (uint32_t) (slots < n->bank->nlive ? slots : n->bank->nlive);
	nparts = n->part_slots > 0 ? (n->bank->nlive + (uint64_t) n->part_slots - 1) / n->part_slots : 0;
	threads = nparts > 1 && n->bank->device == NULL ? gpuvec_thread_pool_threads(pool) : 1;
	if (!make_heaps(n, threads, error))
		return false;
	if (n->bank->device)
	{
		if (!search_device(n, error))
			return false;
	}
	else if (nparts == 1)
		score_part(n, 0, 0);
	else if (nparts > 1)
		gpuvec_thread_pool_run(pool, score_part, n, nparts);
	merge_heaps(n, threads);
	return answer_undecided(n, q, &done, error) && (done || answer_rows(n, q, error));
}

/* The variant for this machine's best instruction set */
static gpuvec_near_scores_function *
choose_function(void)
{
	switch (gpuvec_embedding_best_simd())
	{
		case GPUVEC_EMBEDDING_AVX512:
			return gpuvec_near_scores_avx512;
		case GPUVEC_EMBEDDING_AVX2:
			return gpuvec_near_scores_avx2;
		default:
			return gpuvec_near_scores_portable;
	}
}

bool
gpuvec_nearest_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, gpuvec_nearest_query *q,
				   gpuvec_error *error)
{
	nearest_run n = {
		.table = table, .q = q, .near_scores = choose_function()
	};
	bool		ok = true;

	q->counts = calloc(q->head.nqueries + (size_t) 2, sizeof(uint32_t));
	if (q->counts == NULL)
		return gpuvec_fail_memory(error, q->head.nqueries * sizeof(uint32_t));
	pthread_rwlock_rdlock(&table->lock);
	q->answer.state = table->state;
	q->answer.status = GPUVEC_EMBEDDING_STALE;
	if (table->state.state == GPUVEC_READY && table->state.checked >= q->head.position)
	{
		q->answer.status = GPUVEC_EMBEDDING_DONE;
		q->answer.width = q->head.width;
		n.bank = bank_of_width(table, q->head.width);
		ok = n.bank == NULL || search(&n, pool, q, error);
	}
	pthread_rwlock_unlock(&table->lock);
	free(n.heaps);
	free(n.squares);
	free(n.scratch);
	return ok;
}
