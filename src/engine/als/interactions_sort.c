/*-------------------------------------------------------------------------
 *
 * interactions_sort.c
 *	  Sorts interactions into a sparse matrix by users and one by items.
 *
 * All cores sort.  Interactions are dealt out to users, in any order, and each
 * user's are sorted by items and weights.  When repeated pairs have become
 * one, the entries of users are dealt out to items: each core takes a range
 * of users, and knows from counts of all ranges where in an item's row its
 * entries begin.
 *
 * Users and items that have no pair left are left out.
 *
 * Folding in needs the matrix by users only.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/als/interactions.h"
#include "engine/als/interactions_sort.h"

static int
compare_keys(const void *a, const void *b)
{
	int64_t		x = ((const numbered_key *) a)->key;
	int64_t		y = ((const numbered_key *) b)->key;

	return x < y ? -1 : x > y;
}

/*
 * Set rows->keys to all keys, ascending.  Returns the row of each number, or
 * NULL.
 */
static uint32_t *
order_keys(const gpuvec_key_numbers *numbers, gpuvec_side_rows *rows, gpuvec_error *error)
{
	gpuvec_als_memory *memory = numbers->memory;
	numbered_key *sorted = gpuvec_als_new(memory, numbers->n, sizeof(*sorted), error);
	uint32_t   *row_of = sorted ? gpuvec_als_new(memory, numbers->n, sizeof(*row_of), error) : NULL;

	rows->keys = row_of ? gpuvec_als_new(memory, numbers->n, sizeof(int64_t), error) : NULL;
	if (rows->keys == NULL)
	{
		gpuvec_als_free(memory, sorted);
		gpuvec_als_free(memory, row_of);
		return NULL;
	}
	rows->n = numbers->n;
	for (uint32_t i = 0; i < numbers->n; i++)
		sorted[i] = (numbered_key)
	{
		numbers->keys[i], i
	};
	qsort(sorted, numbers->n, sizeof(*sorted), compare_keys);
	for (uint32_t i = 0; i < numbers->n; i++)
	{
		rows->keys[i] = sorted[i].key;
		row_of[sorted[i].number] = i;
	}
	gpuvec_als_free(memory, sorted);
	return row_of;
}

/* Make an empty matrix with room for entries; starts are zero */
static bool
new_matrix(gpuvec_als_memory *memory, gpuvec_als_matrix *matrix, uint32_t nrows, uint64_t nentries,
		   gpuvec_error *error)
{
	matrix->nrows = nrows;
	matrix->starts = gpuvec_als_new(memory, (uint64_t) nrows + 1, sizeof(uint64_t), error);
	matrix->entries = matrix->starts ?
		gpuvec_als_new(memory, nentries, sizeof(gpuvec_als_entry), error) : NULL;
	if (matrix->entries == NULL)
		return false;
	memset(matrix->starts, 0, ((size_t) nrows + 1) * sizeof(uint64_t));
	return true;
}

/* Leave out users without entries */
static void
drop_users(gpuvec_side_rows *users)
{
	uint32_t	kept = 0;

	for (uint32_t row = 0; row < users->n; row++)
	{
		if (users->matrix.starts[row] == users->matrix.starts[row + 1])
			continue;
		users->keys[kept] = users->keys[row];
		users->matrix.starts[kept++] = users->matrix.starts[row];
	}
	users->matrix.starts[kept] = users->matrix.starts[users->n];
	users->n = users->matrix.nrows = kept;
}

typedef struct item_task
{
	gpuvec_als_matrix *users;
	uint32_t   *number;			/* of each item */
} item_task;

/* The entries of a slice: from the result to *end */
static uint64_t
part_entries(const gpuvec_als_matrix *matrix, uint64_t slice, uint64_t *end)
{
	uint64_t	n = matrix->starts[matrix->nrows];

	*end = (slice + 1) * SLICE_ENTRIES < n ? (slice + 1) * SLICE_ENTRIES : n;
	return slice * SLICE_ENTRIES;
}

static void
mark_slice(void *arg, uint64_t slice, int thread)
{
	item_task  *task = arg;
	uint64_t	end;

	(void) thread;
	for (uint64_t i = part_entries(task->users, slice, &end); i < end; i++)
		__atomic_store_n(&task->number[task->users->entries[i].other], 1, __ATOMIC_RELAXED);
}

static void
renumber_slice(void *arg, uint64_t slice, int thread)
{
	item_task  *task = arg;
	uint64_t	end;

	(void) thread;
	for (uint64_t i = part_entries(task->users, slice, &end); i < end; i++)
		task->users->entries[i].other = task->number[task->users->entries[i].other];
}

/*
 * Leave out items without entries.  number[] has room for the new number of
 * each item.  False if it was canceled.
 */
static bool
drop_items(gpuvec_side_rows *rows, const sorter_threads *threads, uint32_t *number)
{
	gpuvec_side_rows *items = &rows[GPUVEC_ALS_ITEMS];
	gpuvec_als_matrix *users = &rows[GPUVEC_ALS_USERS].matrix;
	item_task	task = {users, number};
	uint64_t	nslices = users->starts[users->nrows] / SLICE_ENTRIES + 1;
	uint32_t	kept = 0;

	memset(number, 0, items->n * sizeof(*number));
	if (!gpuvec_als_run_slices(threads, mark_slice, &task, nslices))
		return false;
	for (uint32_t item = 0; item < items->n; item++)
	{
		if (number[item] == 0)
			continue;
		items->keys[kept] = items->keys[item];
		number[item] = kept++;
	}
	if (kept < items->n && !gpuvec_als_run_slices(threads, renumber_slice, &task, nslices))
		return false;
	items->n = kept;
	return true;
}

/* Sort the interactions, given the row of each number */
static bool
sort_triples(gpuvec_interactions *in, const sorter_threads *threads, double alpha, uint32_t **row_of,
			 gpuvec_side_rows *rows, gpuvec_error *error)
{
	gpuvec_side_rows *users = &rows[GPUVEC_ALS_USERS];
	gpuvec_side_rows *items = &rows[GPUVEC_ALS_ITEMS];

	if (!new_matrix(in->memory, &users->matrix, users->n, in->ntriples, error) ||
		!gpuvec_als_deal(in, threads, row_of, &users->matrix, error))
		return false;
	gpuvec_interactions_free_triples(in);
	/* rows of numbers are not needed any more, but have the right size */
	if (!gpuvec_als_unite_pairs(rows, threads, alpha, in->known_items, row_of[GPUVEC_ALS_USERS], error))
		return false;
	drop_users(users);
	if (in->known_items)
		return new_matrix(in->memory, &items->matrix, items->n, 0, error);
	return drop_items(rows, threads, row_of[GPUVEC_ALS_ITEMS]) &&
		new_matrix(in->memory, &items->matrix, items->n, users->matrix.starts[users->n], error) &&
		gpuvec_als_transpose(in->memory, threads, &users->matrix, &items->matrix, error);
}

bool
gpuvec_interactions_sort(gpuvec_interactions *in, gpuvec_thread_pool *pool, double alpha,
						 const int *canceled, gpuvec_side_rows *rows, gpuvec_error *error)
{
	const sorter_threads threads = {pool, canceled};
	uint32_t   *row_of[2] = {NULL, NULL};
	bool		ok = true;

	memset(rows, 0, 2 * sizeof(*rows));
	for (int side = 0; ok && side < 2; side++)
	{
		row_of[side] = order_keys(&in->numbers[side], &rows[side], error);
		ok = row_of[side] != NULL;
		if (ok)
			gpuvec_key_numbers_free(&in->numbers[side]);
	}
	ok = ok && sort_triples(in, &threads, alpha, row_of, rows, error);
	if (!ok && gpuvec_als_canceled(canceled))
		gpuvec_als_fail_canceled(error);
	for (int side = 0; side < 2; side++)
	{
		gpuvec_als_free(in->memory, row_of[side]);
		if (!ok)
			gpuvec_side_rows_free(in->memory, &rows[side]);
	}
	return ok;
}
