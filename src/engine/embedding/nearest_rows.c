/*-------------------------------------------------------------------------
 *
 * nearest_rows.c
 *	  Find the rows whose vectors are nearest to queries, by brute force.
 *
 * The backend finds the best slots (embedding_backend.h).
 *
 * Which rows the session sees is resolved before (resolved.c).  If it has to
 * decide about rows, and they are not many more than the queries may find, it
 * is asked about all of them at once, before anything is scored.  Otherwise
 * they count as seen.  If any of them is among the best, the answer is to ask
 * the session about those.
 *
 * On the host, the backend leaves out rows that are excluded or not seen.  A
 * device finds the best of all live rows, and some to spare: as many as may be
 * dropped here, because they are excluded or not seen.  If too few are left,
 * the device is asked for more.  (It has one array of live rows for all
 * requests, so it is not told who sees which.)  All threads go through what
 * was found, each for other queries: sorting ten thousand answers takes longer
 * than a device needs to find them.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "engine/embedding/embedding_query.h"
#include "engine/fault.h"

/* Spare rows beyond the best k, and most rows in all heaps together */
#define SPARE_ROWS(k)	((k) / 4 + 8)
#define HEAP_ROWS		((uint64_t) 16 * 1024 * 1024)

/*
 * The session is asked about all undecided rows at once if there are at most
 * this many for each row that the queries look for, or that was asked about
 * before; and no more than MOST_ASKED, which take 128 MB
 */
#define ASKED_ROWS		16
#define MOST_ASKED		((uint64_t) 16 * 1024 * 1024)

/* If a device's rows were not enough, ask for this many times as many */
#define MORE_ROWS		4

/* Queries whose rows a thread goes through at a time */
#define QUERIES_AT_ONCE	32

/* A search that is being served */
typedef struct nearest_run
{
	const gpuvec_embedding_table *table;
	const gpuvec_nearest_query *q;
	const gpuvec_bank *bank;
	uint32_t	number;			/* of the bank */
	gpuvec_resolved *resolved;	/* which rows the session sees */
	const uint8_t *live;		/* [nlive]: zero for slots to leave out */
	uint64_t	nunseen;		/* rows that are not seen, or more */
	bool		decided;		/* no row of the bank is undecided */
	uint64_t	k;				/* rows that a heap holds: the request's k,
								 * and some to spare */
	double	   *squares;		/* [nqueries]: scalar product of each query
								 * with itself */
	int			threads;		/* of the backend that have heaps */
	gpuvec_near_heap *heaps;	/* [nqueries] */
	int			undecided;		/* atomic: the session has to decide about
								 * some row of a heap */
} nearest_run;

/* True if a key is in an ascending list */
static bool
is_listed(const int64_t *keys, uint64_t n, int64_t key)
{
	uint64_t	low = 0;
	uint64_t	high = n;

	while (low < high)
	{
		uint64_t	middle = (low + high) / 2;

		if (keys[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && keys[low] == key;
}

/* Length of a query's own list of excluded keys */
static uint64_t
list_length(const gpuvec_nearest_query *q, uint32_t query)
{
	return q->offsets ? q->offsets[query + 1] - q->offsets[query] : 0;
}

/* True if the key is excluded for a query */
static bool
excluded(const gpuvec_nearest_query *q, uint32_t query, int64_t key)
{
	return is_listed(q->excluded, q->head.nexcluded, key) ||
		(q->offsets && is_listed(q->listed + q->offsets[query], list_length(q, query), key));
}

/* True if the session has said, in one of few verdicts, not to see a row */
static bool
is_unseen(const nearest_run *n, uint64_t tid)
{
	return n->resolved->nunseen > 0 && n->resolved->banks == NULL &&
		gpuvec_embedding_sees(n->table, &n->q->visibility, tid) == GPUVEC_UNSEEN;
}

/* Find the bank of usable vectors as wide as the queries; false: none */
static bool
find_bank(nearest_run *n, uint32_t width)
{
	const gpuvec_embedding_table *table = n->table;

	for (n->number = 0; n->number < table->nbanks; n->number++)
	{
		n->bank = table->banks[n->number];
		if (n->bank->width == width && n->bank->kind == GPUVEC_VECTOR_GOOD)
			return true;
	}
	return false;
}

/*
 * Choose the size of the heaps.  Spare rows grow with the rows that are not
 * seen, so that these take few rounds.  Once all is decided there is no other
 * round.
 */
static void
choose_k(nearest_run *n)
{
	uint64_t	most = HEAP_ROWS / ((uint64_t) n->threads * (n->q->head.nqueries + (uint64_t) 1));
	uint64_t	spare = n->decided ? 0 : SPARE_ROWS((uint64_t) n->q->head.k) + n->nunseen;
	long		limit = (long) most;

	if (gpuvec_fault("near-spare", &limit) && (uint64_t) limit < most)
		most = limit;
	n->k = n->q->head.k + (spare < most ? spare : most) + 1;
	if (n->k > n->bank->nlive)
		n->k = n->bank->nlive > 0 ? n->bank->nlive : 1;
}

/* Allocate the heaps */
static bool
make_heaps(nearest_run *n, gpuvec_error *error)
{
	size_t		count = n->q->head.nqueries;
	size_t		bytes;

	choose_k(n);
	bytes = count * (sizeof(gpuvec_near_heap) + n->k * sizeof(gpuvec_near));
	n->heaps = malloc(bytes + 1);
	n->squares = malloc((count + 1) * sizeof(double));
	if (n->heaps == NULL || n->squares == NULL)
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

/*
 * Sort the rows of a query, best first, and note whether the session has to
 * decide about any
 */
static void
sort_query(nearest_run *n, uint32_t query)
{
	gpuvec_near_heap *heap = &n->heaps[query];

	gpuvec_near_sort(heap);
	for (uint64_t j = 0; !n->decided && j < heap->n; j++)
		if (gpuvec_embedding_sees(n->table, &n->q->visibility, heap->rows[j].tid) == GPUVEC_UNDECIDED)
		{
			__atomic_store_n(&n->undecided, 1, __ATOMIC_RELAXED);
			break;
		}
}

/* Task: sort the rows of some queries */
static void
sort_slice(void *task, uint64_t slice, int thread)
{
	nearest_run *n = task;
	uint64_t	end = (slice + 1) * QUERIES_AT_ONCE;

	(void) thread;
	for (uint64_t i = slice * QUERIES_AT_ONCE; i < end && i < n->q->head.nqueries; i++)
		sort_query(n, (uint32_t) i);
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
	uint64_t	capacity = 0;
	uint64_t   *tids;

	*done = false;
	if (!n->undecided)
		return true;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		capacity += n->heaps[i].n;
	tids = malloc((capacity + 1) * sizeof(*tids));
	if (tids == NULL)
		return gpuvec_fail_memory(error, capacity * sizeof(*tids));
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		for (uint64_t j = 0; j < n->heaps[i].n; j++)
			if (gpuvec_embedding_sees(n->table, &q->visibility,
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
	q->body = tids;
	if (!gpuvec_distinct_tids(tids, &count, error))
		return false;
	q->answer.status = GPUVEC_EMBEDDING_UNDECIDED;
	q->answer.count = count;
	q->body_size = count * sizeof(*tids);
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

/* Rows that the backend has found for the queries from `first` on */
typedef struct found_rows
{
	const nearest_run *n;
	uint32_t	first;
	const gpuvec_slot_search *found;
	int			more;			/* atomic: too few rows are left for some
								 * query, and the device may have more */
} found_rows;

/* May the row of a slot be in the answer to query first + i? */
static bool
is_wanted(const void *arg, uint32_t i, uint32_t slot)
{
	const found_rows *f = arg;
	const gpuvec_vector_info *row = &f->n->bank->rows[slot];

	return f->n->live[slot] && !excluded(f->n->q, f->first + i, row->key) &&
		!is_unseen(f->n, row->tid);
}

/* Offer the rows of query first + i */
static void
offer_found(found_rows *f, uint32_t i)
{
	const nearest_run *n = f->n;
	const gpuvec_slot_search *found = f->found;
	gpuvec_near_heap *heap = &n->heaps[f->first + i];
	uint64_t	at = (uint64_t) i * found->k;

	heap->n = 0;
	for (uint64_t j = at; j < at + found->counts[i]; j++)
	{
		const gpuvec_vector_info *row = &n->bank->rows[found->slots[j]];
		gpuvec_near near = {.score = found->scores[j], .key = row->key, .tid = row->tid};

		if (!gpuvec_near_hopeless(heap, near.score) &&
			(n->bank->backend->on_host || is_wanted(f, i, found->slots[j])))
			gpuvec_near_offer(heap, &near);
	}
	if (heap->n < n->q->head.k && found->counts[i] == found->k && found->k < n->bank->nlive)
		__atomic_store_n(&f->more, 1, __ATOMIC_RELAXED);
}

/* Task: offer the rows of some queries */
static void
offer_slice(void *task, uint64_t slice, int thread)
{
	found_rows *f = task;
	uint64_t	end = (slice + 1) * QUERIES_AT_ONCE;

	(void) thread;
	for (uint64_t i = slice * QUERIES_AT_ONCE; i < end && i < f->found->nqueries; i++)
		offer_found(f, (uint32_t) i);
}

/* Run a task for nqueries queries, on all threads if they are many */
static void
run_queries(gpuvec_thread_pool *pool, gpuvec_slice slice, void *task, uint32_t nqueries)
{
	if (nqueries > QUERIES_AT_ONCE)
		gpuvec_thread_pool_run(pool, slice, task,
							   ((uint64_t) nqueries + QUERIES_AT_ONCE - 1) / QUERIES_AT_ONCE);
	else
		slice(task, 0, 0);
}

/* Where the keys and tids of a bank's rows are */
static gpuvec_slot_names
names_of(const gpuvec_bank *bank)
{
	_Static_assert(sizeof(*bank->rows) % sizeof(int64_t) == 0, "keys of rows are aligned");

	return (gpuvec_slot_names)
	{
		&bank->rows->key, &bank->rows->tid, sizeof(*bank->rows) / sizeof(int64_t)
	};
}

/*
 * Let the backend find the k best rows of nqueries queries, and offer them.
 * *more: ask for more rows.
 */
static bool
ask_backend(nearest_run *n, gpuvec_thread_pool *pool, uint32_t first, uint32_t nqueries, uint32_t k,
			bool *more, gpuvec_error *error)
{
	const gpuvec_nearest_query *q = n->q;
	gpuvec_vectors *backend = n->bank->backend;
	uint64_t	capacity = (uint64_t) k * nqueries;
	gpuvec_slot_search found = {
		.metric = (gpuvec_metric) q->head.metric,
		.queries = q->queries + (size_t) first * q->head.width, .squares = n->squares + first,
		.nqueries = nqueries, .k = k, .live = n->bank->live, .nlive = n->bank->nlive,
		.version = n->table->version, .canceled = q->canceled, .names = names_of(n->bank),
		.pool = pool, .wanted = is_wanted,
		.slots = malloc(capacity * sizeof(uint32_t) + 1), .scores = malloc(capacity * sizeof(double) + 1),
		.counts = calloc(nqueries + (size_t) 1, sizeof(uint32_t))
	};
	found_rows	offer = {n, first, &found, 0};
	bool		ok = found.slots && found.scores && found.counts;

	found.wanted_arg = &offer;
	if (!ok)
		gpuvec_fail_memory(error, capacity * sizeof(double));
	else
		ok = backend->nearest(backend, n->bank->vectors, &found, error);
	if (ok && !(q->canceled && __atomic_load_n(q->canceled, __ATOMIC_RELAXED)))
		run_queries(pool, offer_slice, &offer, nqueries);
	*more = offer.more != 0;
	free(found.slots);
	free(found.scores);
	free(found.counts);
	return ok;
}

/*
 * How many rows that are not seen may be among the best ones: twice as many as
 * if they were anywhere.  If they are many, rows that are nearest to a query
 * may well be former versions of one row.
 */
static uint64_t
expected_unseen(const nearest_run *n)
{
	uint64_t	seen = n->bank->nlive > n->nunseen ? n->bank->nlive - n->nunseen : 1;
	uint64_t	expected = (uint64_t) ((double) n->k * n->nunseen / seen * 2) + SPARE_ROWS(n->k);

	return expected < n->nunseen ? expected : n->nunseen;
}

/*
 * How many rows of a query may be dropped that the backend has found: those
 * that are excluded or not seen, unless it leaves them out itself
 */
static uint64_t
may_be_dropped(const nearest_run *n, uint32_t query)
{
	return n->bank->backend->on_host ? 0 :
		n->q->head.nexcluded + expected_unseen(n) + list_length(n->q, query);
}

/*
 * Choose a group of queries from `first` on to ask the backend for, `factor`
 * times as many rows as should suffice, and *k: that number.  Returns the
 * number of queries, at least one.
 */
static uint32_t
choose_group(const nearest_run *n, uint32_t first, uint64_t factor, uint32_t *k)
{
	uint32_t	count = 0;

	*k = 0;
	while (first + count < n->q->head.nqueries)
	{
		uint64_t	need = (n->k + may_be_dropped(n, first + count)) * factor;

		if (need < *k)
			need = *k;
		if (need > n->bank->nlive)
			need = n->bank->nlive;
		if (count > 0 && need * (count + UINT64_C(1)) > gpuvec_embedding_policy.device_rows)
			break;
		*k = (uint32_t) need;
		count++;
	}
	return count;
}

/*
 * Search, a group of queries at a time.  If too many rows of a query were
 * dropped, the group is asked again for MORE_ROWS times as many rows, or as
 * many of its queries as then fit.
 */
static bool
search_groups(nearest_run *n, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	uint64_t	factor = 1;

	for (uint32_t first = 0; n->bank->nlive > 0 && first < n->q->head.nqueries;)
	{
		uint32_t	k;
		uint32_t	count = choose_group(n, first, factor, &k);
		bool		more;

		if (!ask_backend(n, pool, first, count, k, &more, error))
			return false;
		first += more ? 0 : count;
		factor = more ? factor * MORE_ROWS : 1;
	}
	return true;
}

/* Resolve which rows the session sees */
static bool
resolve_visibility(nearest_run *n, gpuvec_embedding_table *table, gpuvec_error *error)
{
	const gpuvec_resolved_bank *bank;

	n->resolved = gpuvec_resolve(table, &n->q->visibility, error);
	if (n->resolved == NULL)
		return false;
	bank = n->resolved->banks ? &n->resolved->banks[n->number] : NULL;
	n->live = bank ? bank->slots : n->bank->live;
	n->nunseen = bank ? bank->nunseen : n->resolved->nunseen;
	n->decided = n->resolved->nunproven == 0 || (bank && bank->nundecided == 0);
	return true;
}

/*
 * If that pays, answer with all rows that the session has to decide about.
 * *done: there is an answer.
 */
static bool
ask_first(nearest_run *n, gpuvec_nearest_query *q, bool *done, gpuvec_error *error)
{
	uint64_t	looked_for = q->head.nqueries * (q->head.k + SPARE_ROWS((uint64_t) q->head.k));
	uint64_t	most = ASKED_ROWS * (looked_for + q->head.nverdicts);
	uint64_t   *tids;
	uint64_t	count;
	long		limit = (long) MOST_ASKED;

	*done = false;
	(void) gpuvec_fault("near-asked", &limit);
	if (most > (uint64_t) limit)
		most = (uint64_t) limit;
	if (n->decided ||
		(n->resolved->banks && n->resolved->banks[n->number].nundecided > most))
		return true;
	if (!gpuvec_undecided_rows(n->table, &q->visibility, n->resolved, n->number, most, &tids, &count,
							   error))
		return false;
	n->decided = count == 0;
	if (count == 0 || count > most)
	{
		free(tids);
		return true;
	}
	q->answer.status = GPUVEC_EMBEDDING_UNDECIDED;
	q->answer.count = count;
	q->body = tids;
	q->body_size = count * sizeof(*tids);
	*done = true;
	return true;
}

/* Search.  The caller holds the table's lock, and there is a bank. */
static bool
search(nearest_run *n, gpuvec_thread_pool *pool, gpuvec_nearest_query *q, gpuvec_error *error)
{
	bool		done;

	n->threads = n->bank->backend->on_host ? gpuvec_thread_pool_threads(pool) : 1;
	if (!make_heaps(n, error) || !search_groups(n, pool, error))
		return false;
	run_queries(pool, sort_slice, n, q->head.nqueries);
	return answer_undecided(n, q, &done, error) && (done || answer_rows(n, q, error));
}

/* Ask the session, or search; as search() */
static bool
answer(nearest_run *n, gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
	   gpuvec_nearest_query *q, gpuvec_error *error)
{
	bool		done;

	return resolve_visibility(n, table, error) && ask_first(n, q, &done, error) &&
		(done || search(n, pool, q, error));
}

bool
gpuvec_nearest_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, gpuvec_nearest_query *q,
				   gpuvec_error *error)
{
	nearest_run n = {
		.table = table, .q = q
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
		ok = !find_bank(&n, q->head.width) || answer(&n, table, pool, q, error);
	}
	pthread_rwlock_unlock(&table->lock);
	gpuvec_resolved_unref(n.resolved);
	free(n.heaps);
	free(n.squares);
	return ok;
}
