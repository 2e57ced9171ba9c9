/*-------------------------------------------------------------------------
 *
 * product.c
 *	  The product of the weighted matrix of items and users with its
 *	  transpose, row by row, and the k largest elements of each.
 *
 * Threads take slices of about SLICE_WORK products; the most popular items may
 * be a part each.
 *
 * This is Gustavson's algorithm (ACM TOMS 4, 1978): for each user of the item
 * the user's row, times the weight of both, is added to sums, one for each
 * column.  Each sum adds the users in the order of their keys, in float64, so
 * it does not depend on threads, and is the same for (i, j) and (j, i).
 *
 * If an item has few products, the columns that get a sum are noted, and only
 * these are looked at; else all sums are.
 *
 * A heap keeps the k best.  Scores with a division and a square root are
 * computed only for sums that may be good enough: a product with a reciprocal
 * tells, which is off by a few units in the last place.  MARGIN is far more
 * than these, so nothing is left out that belongs to the k best.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/als/als_memory.h"
#include "engine/neighbors/product.h"
#include "engine/neighbors/weighted.h"

#define SLICE_WORK		(UINT64_C(1) << 20)

/* Share of a score by which a cheaper computation of it may be off */
#define MARGIN			1e-13

/* Columns of an item are noted if its products are fewer than this share */
#define FEW				4

/* Sums that are looked at together */
#define BLOCK			16

/* Users after which the engine's progress is reported */
#define REPORT_USERS	1024

/* What a thread works with */
typedef struct product_scratch
{
	double	   *sums;			/* [items], by columns; 0 between rows */
	uint32_t   *columns;		/* [items]: those with a sum, if few */
} product_scratch;

typedef struct cpu_product
{
	gpuvec_device_product base;
	gpuvec_product_problem problem;
	int			threads;
	product_scratch scratch[];	/* [threads] */
} cpu_product;

/* ---- the k best ---- */

/* A row of the product, and the best that was found in it */
typedef struct product_row
{
	const gpuvec_weighted *matrix;
	uint32_t	item;
	uint32_t	k;
	product_scratch *scratch;
	gpuvec_scored_item *best;	/* [k]: a heap, the worst first */
	uint32_t	n;				/* items in the heap */
	double		floor;			/* sum times scale must be greater */
} product_row;

/* True if a comes behind b: of equal scores the smaller key comes first */
static inline bool
is_behind(const gpuvec_scored_item *a, const gpuvec_scored_item *b)
{
	return a->score < b->score || (a->score == b->score && a->item > b->item);
}

/* qsort comparator: the best first */
static int
compare_scores(const void *a, const void *b)
{
	return is_behind(a, b) ? 1 : -1;
}

void
gpuvec_sort_scored(gpuvec_scored_item *items, uint32_t n)
{
	qsort(items, n, sizeof(*items), compare_scores);
}

/* Move the new last element of the heap up to its place */
static void
sift_up(gpuvec_scored_item *heap, uint32_t n)
{
	gpuvec_scored_item moved = heap[n - 1];
	uint32_t	at = n - 1;

	while (at > 0 && is_behind(&moved, &heap[(at - 1) / 2]))
	{
		heap[at] = heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap[at] = moved;
}

/* Replace the root of the heap, and move it down to its place */
static void
replace_root(gpuvec_scored_item *heap, uint32_t n, gpuvec_scored_item moved)
{
	uint32_t	at = 0;

	for (;;)
	{
		uint32_t	child = 2 * at + 1;

		if (child + 1 < n && is_behind(&heap[child + 1], &heap[child]))
			child++;
		if (child >= n || !is_behind(&heap[child], &moved))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moved;
}

/* The worst of k items has changed: what must a scaled sum exceed? */
static void
raise_floor(product_row *row)
{
	const gpuvec_weighted *matrix = row->matrix;
	double		length = gpuvec_weighting_divides(matrix->weighting) ?
		sqrt(matrix->squares[row->item]) : 1;

	row->floor = row->best[0].score * length * (1 - MARGIN);
}

/* A sum that may be good enough */
static void
take_sum(product_row *row, uint32_t column)
{
	const gpuvec_weighted *matrix = row->matrix;
	gpuvec_scored_item *heap = row->best;
	uint32_t	item = matrix->items[column];
	gpuvec_scored_item scored = {
		gpuvec_neighbor_score(matrix->weighting, row->scratch->sums[column],
							  matrix->squares[row->item], matrix->squares[item]), item, 0
	};

	if (row->n < row->k)
	{
		heap[row->n++] = scored;
		sift_up(heap, row->n);
	}
	else if (is_behind(&heap[0], &scored))
		replace_root(heap, row->n, scored);
	else
		return;
	if (row->n == row->k)
		raise_floor(row);
}

static inline bool
is_candidate(const product_row *row, uint32_t column)
{
	return row->scratch->sums[column] * row->matrix->scales[column] > row->floor;
}

/* True if there is a candidate among BLOCK columns */
static inline bool
any_candidate(const double *sums, const double *scales, double floor)
{
	int			n = 0;

	for (int i = 0; i < BLOCK; i++)
		n += sums[i] * scales[i] > floor;
	return n > 0;
}

/* Take the sums of all columns */
static void
take_all(product_row *row)
{
	uint32_t	n = row->matrix->rows[GPUVEC_ALS_ITEMS].n;
	uint32_t	column = 0;

	for (; column + BLOCK <= n; column += BLOCK)
		if (any_candidate(row->scratch->sums + column, row->matrix->scales + column, row->floor))
			for (uint32_t i = column; i < column + BLOCK; i++)
				if (is_candidate(row, i))
					take_sum(row, i);
	for (; column < n; column++)
		if (is_candidate(row, column))
			take_sum(row, column);
}

/* Take the sums of the columns that were noted, some perhaps twice */
static void
take_noted(product_row *row, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	column = row->scratch->columns[i];

		if (is_candidate(row, column))
			take_sum(row, column);
		row->scratch->sums[column] = 0;
	}
}

/* ---- the sums ---- */

/* Add a user's row, times a weight, to the sums */
static inline void
add_user(const gpuvec_weighted *matrix, uint32_t user, double weight, double *restrict sums)
{
	const uint64_t *starts = matrix->rows[GPUVEC_ALS_USERS].matrix.starts;
	const uint32_t *columns = matrix->columns;
	const double *weights = matrix->weights;

	for (uint64_t i = starts[user]; i < starts[user + 1]; i++)
		sums[columns[i]] += weight * weights[i];
}

/*
 * The same, and note columns whose sum was zero behind the n that are there;
 * returns their new number.  A column may be noted more than once, if a sum
 * comes back to zero, but not more often than there are products.
 */
static inline uint32_t
add_and_note(const gpuvec_weighted *matrix, uint32_t user, double weight,
			 product_scratch *scratch, uint32_t n)
{
	const uint64_t *starts = matrix->rows[GPUVEC_ALS_USERS].matrix.starts;

	for (uint64_t i = starts[user]; i < starts[user + 1]; i++)
	{
		uint32_t	column = matrix->columns[i];

		scratch->columns[n] = column;
		n += scratch->sums[column] == 0;
		scratch->sums[column] += weight * matrix->weights[i];
	}
	return n;
}

/* True if a row of products may go on */
static inline bool
go_on(const int *canceled, uint64_t users)
{
	if (users % REPORT_USERS == 0)
		gpuvec_progress_made();
	return canceled == NULL || !__atomic_load_n(canceled, __ATOMIC_RELAXED);
}

/* The sums of an item, in all columns */
static void
add_users(const gpuvec_weighted *matrix, uint32_t item, const int *canceled, double *sums)
{
	const gpuvec_als_matrix *items = &matrix->rows[GPUVEC_ALS_ITEMS].matrix;

	for (uint64_t i = items->starts[item]; i < items->starts[item + 1] && go_on(canceled, i); i++)
		add_user(matrix, items->entries[i].other,
				 gpuvec_weighted_pair(matrix, item, &items->entries[i]), sums);
}

/* The same, with the columns noted; returns their number */
static uint32_t
note_users(const gpuvec_weighted *matrix, uint32_t item, const int *canceled,
		   product_scratch *scratch)
{
	const gpuvec_als_matrix *items = &matrix->rows[GPUVEC_ALS_ITEMS].matrix;
	uint32_t	n = 0;

	for (uint64_t i = items->starts[item]; i < items->starts[item + 1] && go_on(canceled, i); i++)
		n = add_and_note(matrix, items->entries[i].other,
						 gpuvec_weighted_pair(matrix, item, &items->entries[i]), scratch, n);
	return n;
}

/* ---- rows ---- */

/*
 * Find the k best neighbors of an item, best[0 .. result - 1], in any order.
 * If it was canceled, they are of no use.
 */
static uint32_t
find_row(const gpuvec_weighted *matrix, uint32_t item, uint32_t k, const int *canceled,
		 product_scratch *scratch, gpuvec_scored_item *best)
{
	product_row row = {.matrix = matrix, .item = item, .k = k, .scratch = scratch, .best = best};
	uint32_t	items = matrix->rows[GPUVEC_ALS_ITEMS].n;
	uint64_t	work = matrix->work[item + 1] - matrix->work[item];

	if (work < items / FEW)
	{
		uint32_t	n = note_users(matrix, item, canceled, scratch);

		/* an item is no neighbor of itself */
		scratch->sums[matrix->column_of[item]] = 0;
		take_noted(&row, n);
	}
	else
	{
		add_users(matrix, item, canceled, scratch->sums);
		scratch->sums[matrix->column_of[item]] = 0;
		take_all(&row);
		memset(scratch->sums, 0, items * sizeof(double));
	}
	return row.n;
}

/* Items whose neighbors are asked for */
typedef struct rows_task
{
	cpu_product *product;
	const int  *canceled;
	uint32_t	first;			/* from this item ... */
	uint32_t	end;			/* ... to this one */
	gpuvec_scored_item *best;
	uint32_t   *counts;
} rows_task;

/* The first item of a slice, or of the one behind the last */
static uint32_t
slice_first(const rows_task *task, uint64_t slice)
{
	const uint64_t *work = task->product->problem.work;

	return gpuvec_product_item(work, task->first, task->end, work[task->first] + slice * SLICE_WORK);
}

static void
rows_slice(void *arg, uint64_t slice, int thread)
{
	rows_task  *task = arg;
	cpu_product *product = task->product;
	uint32_t	k = product->problem.k;
	uint32_t	end = slice_first(task, slice + 1);

	for (uint32_t item = slice_first(task, slice); item < end; item++)
	{
		size_t		at = item - task->first;

		task->counts[at] = find_row(product->problem.matrix, item, k, task->canceled,
									&product->scratch[thread], task->best + at * k);
	}
}

static bool
product_find(gpuvec_device_product *base, uint32_t first, uint32_t n, const int *canceled,
			 gpuvec_scored_item *best, uint32_t *counts, gpuvec_error *error)
{
	cpu_product *product = (cpu_product *) base;
	rows_task	task = {product, canceled, first, first + n, best, counts};
	uint64_t	work = product->problem.work[first + n] - product->problem.work[first];

	gpuvec_thread_pool_run(product->problem.pool, rows_slice, &task, work / SLICE_WORK + 1);
	return true;
}

/* ---- products ---- */

static size_t
finder_bytes(gpuvec_finder *finder, const gpuvec_product_problem *problem, uint32_t batch)
{
	return 0;
}

static void
product_free(gpuvec_device_product *base)
{
	cpu_product *product = (cpu_product *) base;
	gpuvec_als_memory *memory = product->problem.memory;

	for (int i = 0; i < product->threads; i++)
	{
		gpuvec_als_free(memory, product->scratch[i].sums);
		gpuvec_als_free(memory, product->scratch[i].columns);
	}
	gpuvec_als_free(memory, product);
}

/* Allocate what a thread works with */
static bool
new_scratch(const gpuvec_product_problem *problem, product_scratch *scratch, gpuvec_error *error)
{
	scratch->sums = gpuvec_als_new(problem->memory, problem->nitems, sizeof(double), error);
	if (scratch->sums)
		scratch->columns = gpuvec_als_new(problem->memory, problem->nitems, sizeof(uint32_t), error);
	if (scratch->columns == NULL)
		return false;
	memset(scratch->sums, 0, problem->nitems * sizeof(double));
	return true;
}

static gpuvec_device_product *
finder_open(gpuvec_finder *finder, const gpuvec_product_problem *problem, uint32_t batch,
			gpuvec_error *error)
{
	int			threads = gpuvec_thread_pool_threads(problem->pool);
	size_t		bytes = sizeof(cpu_product) + (size_t) threads * sizeof(product_scratch);
	cpu_product *product = gpuvec_als_new(problem->memory, 1, bytes, error);
	bool		ok = product != NULL;

	if (!ok)
		return NULL;
	memset(product, 0, bytes);
	product->base.finder = finder;
	product->base.slices = 1;
	product->problem = *problem;
	product->threads = threads;
	for (int i = 0; ok && i < threads; i++)
		ok = new_scratch(problem, &product->scratch[i], error);
	if (ok)
		return &product->base;
	product_free(&product->base);
	return NULL;
}

static void
finder_close(gpuvec_finder *finder)
{
}

gpuvec_finder gpuvec_cpu_finder = {
	.on_host = true, .bytes = finder_bytes, .open = finder_open, .find = product_find,
	.free = product_free, .close = finder_close
};
