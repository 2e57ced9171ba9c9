/*-------------------------------------------------------------------------
 *
 * interactions.c
 *	  Interactions of users and items: collected as they come, then sorted
 *	  into a sparse matrix by users and one by items.
 *
 * The result depends on the interactions only, not on the order in which they
 * come: rows have the order of their keys, entries that of the other side's
 * keys, and the weights of a pair that comes several times are added in
 * float64, ascending.  So training gives the same bits, however a table's
 * rows lie in its pages.
 *
 * Sorting is by counting.  Interactions are dealt out to items, and then,
 * item by item, to users, so that the entries of each user are in the order
 * of items.  When repeated pairs have become one, the entries of users are
 * dealt out to items once more.
 *
 * A pair whose weights add up to zero is left out like a weight of zero, and
 * so are users and items that have no pair left.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/als/interactions.h"
#include "engine/thread_pool.h"

/* Rows after which the engine's progress is reported */
#define REPORT_ROWS		4096

void
gpuvec_interactions_init(gpuvec_interactions *in, gpuvec_als_memory *memory)
{
	memset(in, 0, sizeof(*in));
	in->memory = in->numbers[0].memory = in->numbers[1].memory = memory;
}

/* Free the interactions, but not the keys */
static void
free_blocks(gpuvec_interactions *in)
{
	while (in->blocks)
	{
		gpuvec_triple_block *block = in->blocks;

		in->blocks = block->next;
		gpuvec_als_free(in->memory, block);
	}
	in->ntriples = 0;
}

void
gpuvec_interactions_free(gpuvec_interactions *in)
{
	free_blocks(in);
	gpuvec_key_numbers_free(&in->numbers[GPUVEC_ALS_USERS]);
	gpuvec_key_numbers_free(&in->numbers[GPUVEC_ALS_ITEMS]);
}

/* Room for one more interaction, or NULL */
static gpuvec_triple *
next_triple(gpuvec_interactions *in, gpuvec_error *error)
{
	gpuvec_triple_block *block = in->blocks;

	if (block == NULL || block->n == GPUVEC_BLOCK_TRIPLES)
	{
		block = gpuvec_als_new(in->memory, 1, sizeof(*block), error);
		if (block == NULL)
			return NULL;
		block->next = in->blocks;
		block->n = 0;
		in->blocks = block;
	}
	in->ntriples++;
	return &block->triples[block->n++];
}

bool
gpuvec_interactions_add(gpuvec_interactions *in, uint64_t n, const int64_t *users,
						const int64_t *items, const float *weights, gpuvec_error *error)
{
	for (uint64_t i = 0; i < n; i++)
	{
		gpuvec_triple triple = {.weight = weights[i]};
		gpuvec_triple *to;

		triple.number[GPUVEC_ALS_ITEMS] = in->known_items ?
			gpuvec_key_number(&in->numbers[GPUVEC_ALS_ITEMS], items[i]) :
			gpuvec_key_number_add(&in->numbers[GPUVEC_ALS_ITEMS], items[i], error);
		if (triple.number[GPUVEC_ALS_ITEMS] == GPUVEC_NO_NUMBER && in->known_items)
			continue;
		triple.number[GPUVEC_ALS_USERS] =
			gpuvec_key_number_add(&in->numbers[GPUVEC_ALS_USERS], users[i], error);
		if (triple.number[GPUVEC_ALS_ITEMS] == GPUVEC_NO_NUMBER ||
			triple.number[GPUVEC_ALS_USERS] == GPUVEC_NO_NUMBER)
			return false;
		to = next_triple(in, error);
		if (to == NULL)
			return false;
		*to = triple;
	}
	return true;
}

/* A key and its number */
typedef struct numbered_key
{
	int64_t		key;
	uint32_t	number;
} numbered_key;

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

static void
free_matrix(gpuvec_als_memory *memory, gpuvec_als_matrix *matrix)
{
	gpuvec_als_free(memory, matrix->starts);
	gpuvec_als_free(memory, matrix->entries);
	memset(matrix, 0, sizeof(*matrix));
}

void
gpuvec_side_rows_free(gpuvec_als_memory *memory, gpuvec_side_rows *rows)
{
	gpuvec_als_free(memory, rows->keys);
	free_matrix(memory, &rows->matrix);
	memset(rows, 0, sizeof(*rows));
}

/*
 * Turn the lengths of rows, in starts[row + 1], into their starts, shifted by
 * one: starts[row + 1] is where row begins.  Whoever adds entries advances
 * it, so that at the end it is where the next row begins.
 */
static void
begin_filling(gpuvec_als_matrix *matrix)
{
	uint64_t	start = 0;

	for (uint32_t row = 0; row < matrix->nrows; row++)
	{
		uint64_t	length = matrix->starts[row + 1];

		matrix->starts[row + 1] = start;
		start += length;
	}
}

static void
add_entry(gpuvec_als_matrix *matrix, uint32_t row, uint32_t other, float confidence)
{
	gpuvec_als_entry *entry = &matrix->entries[matrix->starts[row + 1]++];

	entry->other = other;
	entry->confidence = confidence;
}

/* Deal out the interactions to items, in any order */
static void
deal_triples(const gpuvec_interactions *in, uint32_t *const *row_of, gpuvec_als_matrix *items)
{
	for (const gpuvec_triple_block *block = in->blocks; block; block = block->next)
		for (uint32_t i = 0; i < block->n; i++)
			items->starts[row_of[GPUVEC_ALS_ITEMS][block->triples[i].number[GPUVEC_ALS_ITEMS]] + 1]++;
	begin_filling(items);
	for (const gpuvec_triple_block *block = in->blocks; block; block = block->next)
	{
		gpuvec_progress_made();
		for (uint32_t i = 0; i < block->n; i++)
		{
			const gpuvec_triple *triple = &block->triples[i];

			add_entry(items, row_of[GPUVEC_ALS_ITEMS][triple->number[GPUVEC_ALS_ITEMS]],
					  row_of[GPUVEC_ALS_USERS][triple->number[GPUVEC_ALS_USERS]], triple->weight);
		}
	}
}

/* Transpose a matrix into one whose starts are zero */
static void
transpose(const gpuvec_als_matrix *from, gpuvec_als_matrix *to)
{
	for (uint64_t i = 0; i < from->starts[from->nrows]; i++)
		to->starts[from->entries[i].other + 1]++;
	begin_filling(to);
	for (uint32_t row = 0; row < from->nrows; row++)
	{
		if (row % REPORT_ROWS == 0)
			gpuvec_progress_made();
		for (uint64_t i = from->starts[row]; i < from->starts[row + 1]; i++)
			add_entry(to, from->entries[i].other, row, from->entries[i].confidence);
	}
}

static int
compare_weights(const void *a, const void *b)
{
	float		x = ((const gpuvec_als_entry *) a)->confidence;
	float		y = ((const gpuvec_als_entry *) b)->confidence;

	return x < y ? -1 : x > y;
}

/* The sum of the weights of n entries of the same pair; sorts them */
static double
sum_weights(gpuvec_als_entry *entries, uint64_t n)
{
	double		sum = 0;

	if (n > 1)
		qsort(entries, n, sizeof(*entries), compare_weights);
	for (uint64_t i = 0; i < n; i++)
		sum += entries[i].confidence;
	return sum;
}

/* Report that the confidence of a pair is too large */
static bool
fail_confidence(const gpuvec_side_rows *rows, uint32_t user, uint32_t item, double confidence,
				gpuvec_error *error)
{
	gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, NULL, "Make weights or alpha smaller.",
				"weight of user %" PRId64 " and item %" PRId64 " is too large",
				rows[GPUVEC_ALS_USERS].keys[user], rows[GPUVEC_ALS_ITEMS].keys[item]);
	snprintf(error->detail, sizeof(error->detail),
			 "The sum of the pair's weights times alpha is %g; it must be between %g and %g.",
			 confidence, -GPUVEC_ALS_MAX_CONFIDENCE, GPUVEC_ALS_MAX_CONFIDENCE);
	return false;
}

/*
 * Make each pair of the users' matrix one entry, and weights confidences.
 * Pairs that add up to zero are left out.
 */
static bool
unite_pairs(gpuvec_side_rows *rows, double alpha, gpuvec_error *error)
{
	gpuvec_als_matrix *users = &rows[GPUVEC_ALS_USERS].matrix;
	uint64_t	from = 0;
	uint64_t	to = 0;

	for (uint32_t row = 0; row < users->nrows; row++)
	{
		uint64_t	end = users->starts[row + 1];

		if (row % REPORT_ROWS == 0)
			gpuvec_progress_made();
		users->starts[row] = to;
		while (from < end)
		{
			gpuvec_als_entry *first = &users->entries[from];
			uint32_t	other = first->other;
			double		confidence;

			while (from < end && users->entries[from].other == other)
				from++;
			confidence = alpha * sum_weights(first, (uint64_t) (&users->entries[from] - first));
			if (!(fabs(confidence) <= GPUVEC_ALS_MAX_CONFIDENCE))
				return fail_confidence(rows, row, other, confidence, error);
			users->entries[to].other = other;
			users->entries[to].confidence = (float) confidence;
			to += users->entries[to].confidence != 0;
		}
	}
	users->starts[users->nrows] = to;
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

/*
 * Leave out items without entries.  number[] has room for the new number of
 * each item.
 */
static void
drop_items(gpuvec_side_rows *rows, uint32_t *number)
{
	gpuvec_side_rows *items = &rows[GPUVEC_ALS_ITEMS];
	gpuvec_als_matrix *users = &rows[GPUVEC_ALS_USERS].matrix;
	uint32_t	kept = 0;

	memset(number, 0, items->n * sizeof(*number));
	for (uint64_t i = 0; i < users->starts[users->nrows]; i++)
		number[users->entries[i].other] = 1;
	for (uint32_t item = 0; item < items->n; item++)
	{
		if (number[item] == 0)
			continue;
		items->keys[kept] = items->keys[item];
		number[item] = kept++;
	}
	for (uint64_t i = 0; i < users->starts[users->nrows]; i++)
		users->entries[i].other = number[users->entries[i].other];
	items->n = items->matrix.nrows = kept;
}

/* Sort the interactions, given the row of each number */
static bool
sort_triples(gpuvec_interactions *in, double alpha, uint32_t **row_of, gpuvec_side_rows *rows,
			 gpuvec_error *error)
{
	gpuvec_side_rows *users = &rows[GPUVEC_ALS_USERS];
	gpuvec_side_rows *items = &rows[GPUVEC_ALS_ITEMS];
	uint64_t	n = in->ntriples;

	if (!new_matrix(in->memory, &items->matrix, items->n, n, error))
		return false;
	deal_triples(in, row_of, &items->matrix);
	free_blocks(in);
	if (!new_matrix(in->memory, &users->matrix, users->n, n, error))
		return false;
	transpose(&items->matrix, &users->matrix);
	if (!unite_pairs(rows, alpha, error))
		return false;
	drop_users(users);
	if (!in->known_items)
		drop_items(rows, row_of[GPUVEC_ALS_ITEMS]);
	memset(items->matrix.starts, 0, ((size_t) items->n + 1) * sizeof(uint64_t));
	transpose(&users->matrix, &items->matrix);
	return true;
}

bool
gpuvec_interactions_sort(gpuvec_interactions *in, double alpha, gpuvec_side_rows *rows,
						 gpuvec_error *error)
{
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
	ok = ok && sort_triples(in, alpha, row_of, rows, error);
	for (int side = 0; side < 2; side++)
	{
		gpuvec_als_free(in->memory, row_of[side]);
		if (!ok)
			gpuvec_side_rows_free(in->memory, &rows[side]);
	}
	return ok;
}

uint32_t
gpuvec_als_find_row(const gpuvec_side_rows *rows, int64_t key)
{
	uint32_t	low = 0;
	uint32_t	high = rows->n;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (rows->keys[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < rows->n && rows->keys[low] == key ? low : GPUVEC_NO_NUMBER;
}
