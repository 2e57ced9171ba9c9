/*-------------------------------------------------------------------------
 *
 * weighted.c
 *	  The weighted matrix of users and items, as products need it.
 *
 * Items have columns: the item that most users have is column 0, and so on.
 * Sums of products are kept by columns, so those that change most often are
 * next to each other and stay in the fastest cache.  Users' rows have their
 * weights by ascending columns; they are written column by column, so no row
 * is sorted.  Each thread writes those of some users: in an item's row they
 * are next to each other.
 *
 * Items' rows keep the weights of the table: of these a product needs one for
 * each user of an item, and computes it again.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/neighbors/weighted.h"

/* Slices of the users, and of the items, that threads take */
#define SLICES	64

static uint64_t
row_length(const gpuvec_als_matrix *matrix, uint32_t row)
{
	return matrix->starts[row + 1] - matrix->starts[row];
}

/* Fail if a weighting that takes no negative weights finds one */
static bool
check_signs(const gpuvec_weighted *matrix, gpuvec_error *error)
{
	const gpuvec_side_rows *items = &matrix->rows[GPUVEC_ALS_ITEMS];

	if (!gpuvec_weighting_positive(matrix->weighting))
		return true;
	for (uint32_t item = 0; item < items->n; item++)
		for (uint64_t i = items->matrix.starts[item]; i < items->matrix.starts[item + 1]; i++)
			if (items->matrix.entries[i].confidence < 0)
				return gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, NULL,
								   "The weightings cosine and none take negative weights.",
								   "weight of user %" PRId64 " and item %" PRId64 " is negative",
								   matrix->rows[GPUVEC_ALS_USERS].keys[items->matrix.entries[i].other],
								   items->keys[item]);
	return true;
}

/* An item, to be sorted by how many users it has */
typedef struct counted_item
{
	uint64_t	n;
	uint32_t	item;
} counted_item;

/* Most users first */
static int
compare_counts(const void *a, const void *b)
{
	const counted_item *x = a;
	const counted_item *y = b;

	if (x->n != y->n)
		return x->n > y->n ? -1 : 1;
	return x->item < y->item ? -1 : 1;
}

/* Set items[] and column_of[] */
static bool
choose_columns(gpuvec_weighted *matrix, gpuvec_als_memory *memory, gpuvec_error *error)
{
	const gpuvec_side_rows *items = &matrix->rows[GPUVEC_ALS_ITEMS];
	counted_item *counts = gpuvec_als_new(memory, items->n, sizeof(*counts), error);

	if (counts)
		matrix->items = gpuvec_als_new(memory, items->n, sizeof(uint32_t), error);
	if (matrix->items)
		matrix->column_of = gpuvec_als_new(memory, items->n, sizeof(uint32_t), error);
	if (matrix->column_of == NULL)
	{
		gpuvec_als_free(memory, counts);
		return false;
	}
	for (uint32_t item = 0; item < items->n; item++)
		counts[item] = (counted_item)
	{
		row_length(&items->matrix, item), item
	};
	qsort(counts, items->n, sizeof(*counts), compare_counts);
	for (uint32_t column = 0; column < items->n; column++)
	{
		matrix->items[column] = counts[column].item;
		matrix->column_of[counts[column].item] = column;
	}
	gpuvec_als_free(memory, counts);
	return true;
}

/* Set idf[] */
static bool
measure_users(gpuvec_weighted *matrix, gpuvec_als_memory *memory, gpuvec_error *error)
{
	const gpuvec_side_rows *users = &matrix->rows[GPUVEC_ALS_USERS];

	matrix->idf = gpuvec_als_new(memory, users->n, sizeof(double), error);
	if (matrix->idf == NULL)
		return false;
	for (uint32_t user = 0; user < users->n; user++)
		matrix->idf[user] = gpuvec_idf(matrix->rows[GPUVEC_ALS_ITEMS].n, row_length(&users->matrix, user));
	return true;
}

/* The sum of an item's weights in the table */
static double
sum_item(const gpuvec_als_matrix *items, uint32_t item)
{
	double		sum = 0;

	for (uint64_t i = items->starts[item]; i < items->starts[item + 1]; i++)
		sum += items->entries[i].confidence;
	return sum;
}

/* Set lengths[] */
static bool
measure_items(gpuvec_weighted *matrix, gpuvec_als_memory *memory, gpuvec_error *error)
{
	const gpuvec_als_matrix *items = &matrix->rows[GPUVEC_ALS_ITEMS].matrix;
	double		mean = 0;

	matrix->lengths = gpuvec_als_new(memory, items->nrows, sizeof(double), error);
	if (matrix->lengths == NULL)
		return false;
	for (uint32_t item = 0; item < items->nrows; item++)
		mean += matrix->lengths[item] = sum_item(items, item);
	mean /= items->nrows;
	for (uint32_t item = 0; item < items->nrows; item++)
		matrix->lengths[item] = gpuvec_bm25_length(matrix->b, matrix->lengths[item], mean);
	return true;
}

/* The first entry from low to high whose other side is `other` or later */
static uint64_t
find_entry(const gpuvec_als_matrix *matrix, uint64_t low, uint64_t high, uint32_t other)
{
	while (low < high)
	{
		uint64_t	middle = low + (high - low) / 2;

		if (matrix->entries[middle].other < other)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

typedef struct weighing_task
{
	gpuvec_weighted *matrix;
	uint64_t   *ends;			/* [users]: where rows have been written to */
} weighing_task;

/*
 * Write the column of an item into the rows of those of its users that are
 * from first to the one before last
 */
static void
write_column(weighing_task *task, uint32_t column, uint32_t first, uint32_t last)
{
	gpuvec_weighted *matrix = task->matrix;
	uint32_t	item = matrix->items[column];
	const gpuvec_als_matrix *items = &matrix->rows[GPUVEC_ALS_ITEMS].matrix;
	uint64_t	end = items->starts[item + 1];
	uint64_t	i = find_entry(items, items->starts[item], end, first);

	for (; i < end && items->entries[i].other < last; i++)
	{
		uint64_t	to = task->ends[items->entries[i].other]++;

		matrix->columns[to] = column;
		matrix->weights[to] = gpuvec_weighted_pair(matrix, item, &items->entries[i]);
	}
}

/* The first user, or item, of a slice of n */
static uint32_t
slice_first(uint32_t n, uint64_t slice)
{
	return (uint32_t) (n * slice / SLICES);
}

/* Write the rows of a slice of the users */
static void
write_slice(void *arg, uint64_t slice, int thread)
{
	weighing_task *task = arg;
	uint32_t	users = task->matrix->rows[GPUVEC_ALS_USERS].n;

	(void) thread;
	for (uint32_t column = 0; column < task->matrix->rows[GPUVEC_ALS_ITEMS].n; column++)
		write_column(task, column, slice_first(users, slice), slice_first(users, slice + 1));
}

/* Set columns[] and weights[] */
static bool
write_users(gpuvec_weighted *matrix, gpuvec_als_memory *memory, gpuvec_thread_pool *pool,
			gpuvec_error *error)
{
	const gpuvec_als_matrix *users = &matrix->rows[GPUVEC_ALS_USERS].matrix;
	uint64_t	n = users->starts[users->nrows];
	weighing_task task = {matrix, gpuvec_als_new(memory, users->nrows, sizeof(uint64_t), error)};

	if (task.ends)
		matrix->columns = gpuvec_als_new(memory, n, sizeof(uint32_t), error);
	if (matrix->columns)
		matrix->weights = gpuvec_als_new(memory, n, sizeof(double), error);
	if (matrix->weights)
	{
		memcpy(task.ends, users->starts, users->nrows * sizeof(uint64_t));
		gpuvec_thread_pool_run(pool, write_slice, &task, SLICES);
	}
	gpuvec_als_free(memory, task.ends);
	return matrix->weights != NULL;
}

/* The sum of the squares of an item's weights */
static double
sum_squares(const gpuvec_weighted *matrix, uint32_t item)
{
	const gpuvec_als_matrix *items = &matrix->rows[GPUVEC_ALS_ITEMS].matrix;
	double		sum = 0;

	for (uint64_t i = items->starts[item]; i < items->starts[item + 1]; i++)
	{
		double		weight = gpuvec_weighted_pair(matrix, item, &items->entries[i]);

		sum += weight * weight;
	}
	return sum;
}

/* Number of products that an item's row needs */
static uint64_t
count_work(const gpuvec_weighted *matrix, uint32_t item)
{
	const gpuvec_als_matrix *items = &matrix->rows[GPUVEC_ALS_ITEMS].matrix;
	uint64_t	work = 0;

	for (uint64_t i = items->starts[item]; i < items->starts[item + 1]; i++)
		work += row_length(&matrix->rows[GPUVEC_ALS_USERS].matrix, items->entries[i].other);
	return work;
}

/* The sums of a slice of the items; work[] is that of each item */
static void
sum_slice(void *arg, uint64_t slice, int thread)
{
	gpuvec_weighted *matrix = ((weighing_task *) arg)->matrix;
	uint32_t	n = matrix->rows[GPUVEC_ALS_ITEMS].n;

	(void) thread;
	for (uint32_t item = slice_first(n, slice); item < slice_first(n, slice + 1); item++)
	{
		matrix->squares[item] = sum_squares(matrix, item);
		matrix->work[item + 1] = count_work(matrix, item);
	}
}

/* Set scales[] */
static void
set_scales(gpuvec_weighted *matrix)
{
	bool		divides = gpuvec_weighting_divides(matrix->weighting);

	for (uint32_t column = 0; column < matrix->rows[GPUVEC_ALS_ITEMS].n; column++)
	{
		double		squares = matrix->squares[matrix->items[column]];

		matrix->scales[column] = !divides ? 1 : squares > 0 ? 1 / sqrt(squares) : 0;
	}
}

/* Set squares[], scales[] and work[] */
static bool
sum_up(gpuvec_weighted *matrix, gpuvec_als_memory *memory, gpuvec_thread_pool *pool,
	   gpuvec_error *error)
{
	uint32_t	n = matrix->rows[GPUVEC_ALS_ITEMS].n;
	weighing_task task = {.matrix = matrix};

	matrix->squares = gpuvec_als_new(memory, n, sizeof(double), error);
	if (matrix->squares)
		matrix->scales = gpuvec_als_new(memory, n, sizeof(double), error);
	if (matrix->scales)
		matrix->work = gpuvec_als_new(memory, (uint64_t) n + 1, sizeof(uint64_t), error);
	if (matrix->work == NULL)
		return false;
	gpuvec_thread_pool_run(pool, sum_slice, &task, SLICES);
	matrix->work[0] = 0;
	for (uint32_t item = 0; item < n; item++)
		matrix->work[item + 1] += matrix->work[item];
	set_scales(matrix);
	return true;
}

bool
gpuvec_weighted_make(gpuvec_weighted *matrix, gpuvec_interactions *in, gpuvec_thread_pool *pool,
					 const int *canceled, gpuvec_error *error)
{
	gpuvec_als_memory *memory = in->memory;
	gpuvec_als_matrix *users = &matrix->rows[GPUVEC_ALS_USERS].matrix;

	if (!gpuvec_interactions_sort(in, pool, 1, canceled, matrix->rows, error))
		return false;
	/* they are written anew, with the weights of the weighting */
	gpuvec_als_free(memory, users->entries);
	users->entries = NULL;
	return check_signs(matrix, error) && choose_columns(matrix, memory, error) &&
		measure_users(matrix, memory, error) && measure_items(matrix, memory, error) &&
		(!gpuvec_als_canceled(canceled) || gpuvec_als_fail_canceled(error)) &&
		write_users(matrix, memory, pool, error) &&
		(!gpuvec_als_canceled(canceled) || gpuvec_als_fail_canceled(error)) &&
		sum_up(matrix, memory, pool, error);
}

void
gpuvec_weighted_free(gpuvec_als_memory *memory, gpuvec_weighted *matrix)
{
	for (int side = 0; side < 2; side++)
		gpuvec_side_rows_free(memory, &matrix->rows[side]);
	gpuvec_als_free(memory, matrix->items);
	gpuvec_als_free(memory, matrix->column_of);
	gpuvec_als_free(memory, matrix->columns);
	gpuvec_als_free(memory, matrix->weights);
	gpuvec_als_free(memory, matrix->idf);
	gpuvec_als_free(memory, matrix->lengths);
	gpuvec_als_free(memory, matrix->squares);
	gpuvec_als_free(memory, matrix->scales);
	gpuvec_als_free(memory, matrix->work);
}
