/*-------------------------------------------------------------------------
 *
 * neighbors.c
 *	  The nearest items of each item, by the users that both have.
 *
 * Rows of the product (product.c) are independent of each other.  They are
 * computed a batch at a time, when the session asks for them, so neither the
 * engine nor the session ever holds all of them.  A batch ends after
 * BATCH_ROWS neighbors, or after BATCH_WORK products, so that a session sees
 * its progress.  Threads take parts of about PART_WORK products; the most
 * popular items may be a part each.
 *
 * There is a pool of threads for each call: it would keep the engine's from
 * searches.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/neighbors/neighbors.h"
#include "engine/neighbors/product.h"

#define BATCH_ROWS		65536
#define BATCH_WORK		(UINT64_C(1) << 30)
#define PART_WORK		(UINT64_C(1) << 20)

struct gpuvec_neighbors
{
	gpuvec_als_memory memory;
	gpuvec_thread_pool *pool;
	gpuvec_interactions in;
	gpuvec_weighted matrix;
	uint32_t	k;				/* at most; less if there are fewer items */
	uint32_t	done;			/* items */
	gpuvec_product_scratch *scratch;	/* [threads], or NULL */
	gpuvec_neighbor *rows;		/* [batch * k] */
	uint32_t   *counts;			/* [batch]: neighbors of each item */
	uint32_t	batch;			/* most items of a batch */
};

gpuvec_neighbors *
gpuvec_neighbors_new(gpuvec_store *store, int threads, const gpuvec_neighbors_options *options,
					 gpuvec_error *error)
{
	gpuvec_neighbors *neighbors = calloc(1, sizeof(*neighbors));

	if (neighbors == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*neighbors));
		return NULL;
	}
	neighbors->memory.store = store;
	neighbors->k = options->k;
	neighbors->matrix.weighting = options->weighting;
	neighbors->matrix.k1 = options->k1;
	neighbors->matrix.b = options->b;
	gpuvec_interactions_init(&neighbors->in, &neighbors->memory);
	neighbors->pool = gpuvec_thread_pool_new(threads);
	if (neighbors->pool == NULL)
	{
		gpuvec_neighbors_free(neighbors);
		/* more often than threads, their memory is lacking */
		gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL, NULL,
					"could not start the threads that look for neighbors");
		return NULL;
	}
	return neighbors;
}

void
gpuvec_neighbors_free(gpuvec_neighbors *neighbors)
{
	gpuvec_als_memory *memory = &neighbors->memory;
	int			threads = neighbors->scratch ? gpuvec_thread_pool_threads(neighbors->pool) : 0;

	for (int i = 0; i < threads; i++)
		gpuvec_product_scratch_free(memory, &neighbors->scratch[i]);
	if (neighbors->pool)
		gpuvec_thread_pool_free(neighbors->pool);
	gpuvec_interactions_free(&neighbors->in);
	gpuvec_weighted_free(memory, &neighbors->matrix);
	gpuvec_als_free(memory, neighbors->scratch);
	gpuvec_als_free(memory, neighbors->rows);
	gpuvec_als_free(memory, neighbors->counts);
	free(neighbors);
}

bool
gpuvec_neighbors_add(gpuvec_neighbors *neighbors, uint64_t n, const int64_t *users,
					 const int64_t *items, const float *weights, gpuvec_error *error)
{
	return gpuvec_interactions_add(&neighbors->in, n, users, items, weights, error);
}

/* Memory of a batch */
static bool
new_batch(gpuvec_neighbors *neighbors, gpuvec_error *error)
{
	uint32_t	items = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n;

	if (neighbors->k >= items)
		neighbors->k = items > 1 ? items - 1 : 1;
	neighbors->batch = neighbors->k < BATCH_ROWS ? BATCH_ROWS / neighbors->k : 1;
	neighbors->rows = gpuvec_als_new(&neighbors->memory, (uint64_t) neighbors->batch * neighbors->k,
									 sizeof(gpuvec_neighbor), error);
	if (neighbors->rows)
		neighbors->counts = gpuvec_als_new(&neighbors->memory, neighbors->batch, sizeof(uint32_t),
										   error);
	return neighbors->counts != NULL;
}

/* Memory of the threads */
static bool
new_scratch(gpuvec_neighbors *neighbors, gpuvec_error *error)
{
	int			threads = gpuvec_thread_pool_threads(neighbors->pool);
	uint32_t	items = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n;

	neighbors->scratch = gpuvec_als_new(&neighbors->memory, (uint64_t) threads,
										sizeof(*neighbors->scratch), error);
	if (neighbors->scratch == NULL)
		return false;
	memset(neighbors->scratch, 0, (size_t) threads * sizeof(*neighbors->scratch));
	for (int i = 0; i < threads; i++)
		if (!gpuvec_product_scratch_new(&neighbors->memory, items, neighbors->k,
										&neighbors->scratch[i], error))
			return false;
	return true;
}

bool
gpuvec_neighbors_prepare(gpuvec_neighbors *neighbors, gpuvec_error *error)
{
	return gpuvec_weighted_make(&neighbors->matrix, &neighbors->in, error) &&
		new_batch(neighbors, error) && new_scratch(neighbors, error);
}

/* ---- a batch ---- */

typedef struct batch_task
{
	gpuvec_neighbors *neighbors;
	const int  *canceled;
	uint32_t	first;			/* the batch: from this item ... */
	uint32_t	end;			/* ... to this one */
} batch_task;

/* The first item from `from` on with at least so much work before it */
static uint32_t
first_item(const gpuvec_neighbors *neighbors, uint32_t from, uint64_t work)
{
	uint32_t	low = from;
	uint32_t	high = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (neighbors->matrix.work[middle] < work)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Where the batch that begins with `first` ends */
static uint32_t
batch_end(const gpuvec_neighbors *neighbors, uint32_t first)
{
	uint32_t	items = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n;
	uint32_t	end = first_item(neighbors, first, neighbors->matrix.work[first] + BATCH_WORK);

	if (end > items)
		end = items;
	return end - first < neighbors->batch ? end : first + neighbors->batch;
}

/* The first item of a part, or of the one behind the last */
static uint32_t
part_first(const batch_task *task, uint64_t part)
{
	uint64_t	work = task->neighbors->matrix.work[task->first] + part * PART_WORK;
	uint32_t	item = first_item(task->neighbors, task->first, work);

	return item < task->end ? item : task->end;
}

/* Find the neighbors of one item */
static void
find_neighbors(const batch_task *task, uint32_t item, gpuvec_product_scratch *scratch)
{
	gpuvec_neighbors *neighbors = task->neighbors;
	const int64_t *keys = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].keys;
	gpuvec_neighbor *rows = neighbors->rows + (size_t) (item - task->first) * neighbors->k;
	uint32_t	n = gpuvec_product_row(&neighbors->matrix, item, neighbors->k, task->canceled, scratch);

	neighbors->counts[item - task->first] = n;
	for (uint32_t i = 0; i < n; i++)
	{
		rows[i].item = keys[item];
		rows[i].neighbor = keys[scratch->best[i].item];
		rows[i].score = scratch->best[i].score;
	}
}

static void
batch_part(void *arg, uint64_t part, int thread)
{
	batch_task *task = arg;
	uint32_t	end = part_first(task, part + 1);

	for (uint32_t item = part_first(task, part); item < end; item++)
		find_neighbors(task, item, &task->neighbors->scratch[thread]);
}

/* Close the gaps behind items with fewer than k neighbors */
static uint64_t
close_gaps(gpuvec_neighbors *neighbors, uint32_t items)
{
	uint64_t	n = 0;

	for (uint32_t i = 0; i < items; i++)
	{
		memmove(neighbors->rows + n, neighbors->rows + (size_t) i * neighbors->k,
				neighbors->counts[i] * sizeof(gpuvec_neighbor));
		n += neighbors->counts[i];
	}
	return n;
}

uint64_t
gpuvec_neighbors_next(gpuvec_neighbors *neighbors, const int *canceled,
					  const gpuvec_neighbor **rows)
{
	batch_task	task = {.neighbors = neighbors, .canceled = canceled, .first = neighbors->done};
	const uint64_t *work = neighbors->matrix.work;

	*rows = neighbors->rows;
	if (task.first == neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n)
		return 0;
	task.end = batch_end(neighbors, task.first);
	gpuvec_thread_pool_run(neighbors->pool, batch_part, &task,
						   (work[task.end] - work[task.first]) / PART_WORK + 1);
	neighbors->done = task.end;
	return close_gaps(neighbors, task.end - task.first);
}

uint32_t
gpuvec_neighbors_done(const gpuvec_neighbors *neighbors)
{
	return neighbors->done;
}

uint32_t
gpuvec_neighbors_rows(const gpuvec_neighbors *neighbors, gpuvec_als_side side)
{
	return neighbors->matrix.rows[side].n;
}

uint64_t
gpuvec_neighbors_entries(const gpuvec_neighbors *neighbors)
{
	const gpuvec_side_rows *users = &neighbors->matrix.rows[GPUVEC_ALS_USERS];

	return users->n ? users->matrix.starts[users->n] : 0;
}
