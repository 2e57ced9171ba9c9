/*-------------------------------------------------------------------------
 *
 * neighbors.c
 *	  The nearest items of each item, by the users that both have.
 *
 * Rows of the product are independent of each other.  They are computed a
 * batch at a time, when the session asks for them, so neither the engine nor
 * the session ever holds all of them.  A batch ends after BATCH_ROWS
 * neighbors, or after BATCH_WORK products, so that a session sees its
 * progress.
 *
 * What the backend has finds the k best of each item (neighbors_backend.h): a
 * GPU, if there is one with room, or threads, to the same bits.  Here they are
 * sorted.
 *
 * There is a pool of threads for each call: it would keep the engine's from
 * searches.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/log.h"
#include "engine/neighbors/neighbors.h"
#include "engine/neighbors/product.h"
#include "engine/neighbors/weighted.h"

#define BATCH_ROWS		65536
#define BATCH_WORK		(UINT64_C(1) << 30)

/*
 * The same on a GPU: larger, so that its multiprocessors end together, but
 * searches that come meanwhile wait for all of a batch
 */
#define DEVICE_ROWS		524288
#define DEVICE_WORK		(UINT64_C(1) << 32)

/* Fewer products are computed on the CPU: copying would take longer */
#define LEAST_WORK		(UINT64_C(1) << 24)

/* Items of a batch that a thread sorts the neighbors of at a time */
#define ANSWER_ITEMS	256

struct gpuvec_neighbors
{
	gpuvec_als_memory memory;
	gpuvec_thread_pool *pool;
	gpuvec_interactions in;
	gpuvec_weighted matrix;
	uint32_t	k;				/* at most; less if there are fewer items */
	uint32_t	done;			/* items */
	gpuvec_neighbor *rows;		/* [batch * k] */
	uint32_t   *counts;			/* [batch]: neighbors of each item */
	uint32_t	batch;			/* most items of a batch ... */
	uint64_t	batch_work;		/* ... and about the most products */
	gpuvec_finder *finder;		/* of the options */
	gpuvec_device *device;		/* that is charged, or NULL */
	size_t		charged;
	gpuvec_device_product *product; /* NULL until prepared */
	gpuvec_scored_item *best;	/* [batch * product->slices * k] */
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
	neighbors->memory = (gpuvec_als_memory)
	{
		store, gpuvec_store_reserve, gpuvec_store_unreserve
	};
	neighbors->k = options->k;
	neighbors->finder = options->finder;
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

/* Free the product, and what a GPU is charged for it */
static void
close_product(gpuvec_neighbors *neighbors)
{
	if (neighbors->product)
		neighbors->product->finder->free(neighbors->product);
	if (neighbors->device)
		gpuvec_store_repay(neighbors->memory.store, neighbors->device, neighbors->charged);
	neighbors->product = NULL;
	neighbors->device = NULL;
}

/* Free the memory of a batch */
static void
free_batch(gpuvec_neighbors *neighbors)
{
	gpuvec_als_memory *memory = &neighbors->memory;

	gpuvec_als_free(memory, neighbors->rows);
	gpuvec_als_free(memory, neighbors->counts);
	gpuvec_als_free(memory, neighbors->best);
	neighbors->rows = NULL;
	neighbors->counts = NULL;
	neighbors->best = NULL;
}

void
gpuvec_neighbors_free(gpuvec_neighbors *neighbors)
{
	gpuvec_als_memory *memory = &neighbors->memory;

	close_product(neighbors);
	if (neighbors->pool)
		gpuvec_thread_pool_free(neighbors->pool);
	gpuvec_interactions_free(&neighbors->in);
	gpuvec_weighted_free(memory, &neighbors->matrix);
	free_batch(neighbors);
	free(neighbors);
}

bool
gpuvec_neighbors_add(gpuvec_neighbors *neighbors, uint64_t n, const int64_t *users,
					 const int64_t *items, const float *weights, gpuvec_error *error)
{
	return gpuvec_interactions_add(&neighbors->in, neighbors->pool, n, users, items, weights, error);
}

/* ---- preparing ---- */

/* Most items of a batch, by its number of rows */
static uint32_t
batch_items(const gpuvec_neighbors *neighbors, uint32_t rows)
{
	return neighbors->k < rows ? rows / neighbors->k : 1;
}

/* Memory of a batch */
static bool
new_batch(gpuvec_neighbors *neighbors, gpuvec_error *error)
{
	gpuvec_als_memory *memory = &neighbors->memory;
	uint64_t	capacity = (uint64_t) neighbors->batch * neighbors->k;

	neighbors->rows = gpuvec_als_new(memory, capacity, sizeof(gpuvec_neighbor), error);
	if (neighbors->rows)
		neighbors->counts = gpuvec_als_new(memory, neighbors->batch, sizeof(uint32_t), error);
	if (neighbors->counts)
		neighbors->best = gpuvec_als_new(memory, capacity * neighbors->product->slices,
										 sizeof(gpuvec_scored_item), error);
	return neighbors->best != NULL;
}

/* The problem, without the rows of items */
static gpuvec_product_problem
describe_problem(gpuvec_neighbors *neighbors)
{
	const gpuvec_weighted *matrix = &neighbors->matrix;
	gpuvec_product_problem problem = {
		.weighting = matrix->weighting, .k = neighbors->k,
		.nusers = matrix->rows[GPUVEC_ALS_USERS].n, .nitems = matrix->rows[GPUVEC_ALS_ITEMS].n,
		.columns = matrix->columns, .weights = matrix->weights, .items = matrix->items,
		.squares = matrix->squares, .work = matrix->work,
		.matrix = matrix, .pool = neighbors->pool, .memory = &neighbors->memory
	};

	problem.user_starts = matrix->rows[GPUVEC_ALS_USERS].matrix.starts;
	problem.item_starts = matrix->rows[GPUVEC_ALS_ITEMS].matrix.starts;
	return problem;
}

/* What is to find the neighbors: a GPU that is charged for it, or the CPU */
static gpuvec_finder *
choose_finder(gpuvec_neighbors *neighbors, const gpuvec_product_problem *problem)
{
	gpuvec_store *store = neighbors->memory.store;
	gpuvec_finder *finder = neighbors->finder;

	if (problem->nitems < 2)
		return &gpuvec_cpu_finder;
	if (finder || store == NULL)
		return finder ? finder : &gpuvec_cpu_finder;
	/* all GPUs of a store are served by the same code */
	finder = store->devices[0].backend->finder;
	if (finder->on_host)
		return finder;
	if (problem->work[problem->nitems] < LEAST_WORK)
		return &gpuvec_cpu_finder;
	neighbors->charged = finder->bytes(finder, problem, batch_items(neighbors, DEVICE_ROWS));
	if (neighbors->charged == SIZE_MAX)
		return &gpuvec_cpu_finder;
	neighbors->device = gpuvec_store_borrow(store, neighbors->charged);
	if (neighbors->device)
		return neighbors->device->backend->finder;
	gpuvec_log("LOG", "neighbors of items are found on the CPU: no GPU has room for %zu kB",
			   neighbors->charged / 1024);
	return &gpuvec_cpu_finder;
}

/* Open a problem on a GPU, with the rows of items */
static bool
open_with_items(gpuvec_neighbors *neighbors, gpuvec_finder *finder,
				gpuvec_product_problem *problem, gpuvec_error *error)
{
	gpuvec_als_memory *memory = &neighbors->memory;
	const gpuvec_als_matrix *items = &neighbors->matrix.rows[GPUVEC_ALS_ITEMS].matrix;
	uint64_t	n = items->starts[items->nrows];
	uint32_t   *users = gpuvec_als_new(memory, n, sizeof(uint32_t), error);
	double	   *weights = users ? gpuvec_als_new(memory, n, sizeof(double), error) : NULL;

	for (uint32_t item = 0; weights && item < items->nrows; item++)
		for (uint64_t i = items->starts[item]; i < items->starts[item + 1]; i++)
		{
			users[i] = items->entries[i].other;
			weights[i] = gpuvec_weighted_pair(&neighbors->matrix, item, &items->entries[i]);
		}
	problem->item_users = users;
	problem->item_weights = weights;
	if (weights)
		neighbors->product = finder->open(finder, problem, neighbors->batch, error);
	gpuvec_als_free(memory, users);
	gpuvec_als_free(memory, weights);
	return neighbors->product != NULL;
}

/* Open a problem, with memory for its batches */
static bool
open_product(gpuvec_neighbors *neighbors, gpuvec_finder *finder, gpuvec_product_problem *problem,
			 gpuvec_error *error)
{
	neighbors->batch = batch_items(neighbors, finder->on_host ? BATCH_ROWS : DEVICE_ROWS);
	neighbors->batch_work = finder->on_host ? BATCH_WORK : DEVICE_WORK;
	if (finder->on_host)
		neighbors->product = finder->open(finder, problem, neighbors->batch, error);
	else if (!open_with_items(neighbors, finder, problem, error))
		return false;
	return neighbors->product && new_batch(neighbors, error);
}

/*
 * Open a problem on a GPU, if there is one with room.  If memory or the GPU
 * fails, threads find the neighbors, unless the GPU is unusable.
 */
static bool
begin_product(gpuvec_neighbors *neighbors, gpuvec_error *error)
{
	gpuvec_product_problem problem = describe_problem(neighbors);
	gpuvec_finder *finder = choose_finder(neighbors, &problem);

	if (open_product(neighbors, finder, &problem, error))
		return true;
	if (finder->on_host || (neighbors->product == NULL && error->fatal))
		return false;
	gpuvec_log("LOG", "neighbors of items are found on the CPU: %s", error->message);
	free_batch(neighbors);
	close_product(neighbors);
	return open_product(neighbors, &gpuvec_cpu_finder, &problem, error);
}

bool
gpuvec_neighbors_prepare(gpuvec_neighbors *neighbors, const int *canceled, gpuvec_error *error)
{
	uint32_t	items;

	if (!gpuvec_weighted_make(&neighbors->matrix, &neighbors->in, neighbors->pool, canceled, error))
		return false;
	items = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n;
	if (neighbors->k >= items)
		neighbors->k = items > 1 ? items - 1 : 1;
	return begin_product(neighbors, error);
}

/* ---- a batch ---- */

typedef struct batch_task
{
	gpuvec_neighbors *neighbors;
	uint32_t	first;			/* the batch: from this item ... */
	uint32_t	end;			/* ... to this one */
} batch_task;

/* Where the batch that begins with `first` ends */
static uint32_t
batch_end(const gpuvec_neighbors *neighbors, uint32_t first)
{
	uint32_t	items = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n;
	const uint64_t *work = neighbors->matrix.work;
	uint32_t	end = gpuvec_product_item(work, first, items, work[first] + neighbors->batch_work);

	return end - first < neighbors->batch ? end : first + neighbors->batch;
}

/* Make rows of the neighbors of an item: its n best items, in order */
static void
put_rows(const batch_task *task, uint32_t item, const gpuvec_scored_item *best, uint32_t n)
{
	gpuvec_neighbors *neighbors = task->neighbors;
	const int64_t *keys = neighbors->matrix.rows[GPUVEC_ALS_ITEMS].keys;
	gpuvec_neighbor *rows = neighbors->rows + (size_t) (item - task->first) * neighbors->k;

	neighbors->counts[item - task->first] = n;
	for (uint32_t i = 0; i < n; i++)
	{
		rows[i].item = keys[item];
		rows[i].neighbor = keys[best[i].item];
		rows[i].score = best[i].score;
	}
}

/* Task: sort what was found for some items */
static void
answer_slice(void *arg, uint64_t slice, int thread)
{
	batch_task *task = arg;
	gpuvec_neighbors *neighbors = task->neighbors;
	size_t		capacity = (size_t) neighbors->product->slices * neighbors->k;
	uint64_t	end = task->first + (slice + 1) * ANSWER_ITEMS;

	(void) thread;
	for (uint64_t item = task->first + slice * ANSWER_ITEMS; item < end && item < task->end; item++)
	{
		uint64_t	at = item - task->first;
		uint32_t	n = neighbors->counts[at];

		gpuvec_sort_scored(neighbors->best + at * capacity, n);
		put_rows(task, (uint32_t) item, neighbors->best + at * capacity, n < neighbors->k ? n : neighbors->k);
	}
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

/* Find the neighbors of a batch */
static bool
run_batch(gpuvec_neighbors *neighbors, batch_task *task, const int *canceled, gpuvec_error *error)
{
	uint32_t	n = task->end - task->first;

	if (!neighbors->product->finder->find(neighbors->product, task->first, n, canceled,
										  neighbors->best, neighbors->counts, error))
		return false;
	gpuvec_thread_pool_run(neighbors->pool, answer_slice, task, (n + ANSWER_ITEMS - 1) / ANSWER_ITEMS);
	return true;
}

bool
gpuvec_neighbors_next(gpuvec_neighbors *neighbors, const int *canceled,
					  const gpuvec_neighbor **rows, uint64_t *n, gpuvec_error *error)
{
	batch_task	task = {.neighbors = neighbors, .first = neighbors->done};

	*rows = neighbors->rows;
	*n = 0;
	if (task.first == neighbors->matrix.rows[GPUVEC_ALS_ITEMS].n)
		return true;
	task.end = batch_end(neighbors, task.first);
	if (!run_batch(neighbors, &task, canceled, error))
		return false;
	neighbors->done = task.end;
	*n = close_gaps(neighbors, task.end - task.first);
	return true;
}

uint32_t
gpuvec_neighbors_done(const gpuvec_neighbors *neighbors)
{
	return neighbors->done;
}

bool
gpuvec_neighbors_on_device(const gpuvec_neighbors *neighbors)
{
	return !neighbors->product->finder->on_host;
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
