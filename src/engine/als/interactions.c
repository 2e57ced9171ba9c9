/*-------------------------------------------------------------------------
 *
 * interactions.c
 *	  Interactions of users and items, collected as they come.
 *
 * The result depends on the interactions only, not on the order in which they
 * come: rows have the order of their keys, entries that of the other side's
 * keys, and the weights of a pair that comes several times are added in
 * float64, ascending.  So training gives the same bits, however a table's
 * rows lie in its pages.
 *
 * Sorting is in interactions_sort.c, interactions_deal.c and
 * interactions_pairs.c.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/als/interactions.h"
#include "engine/als/interactions_sort.h"

/*
 * Interactions whose numbers are looked up together, and those that a thread
 * takes of them at a time
 */
#define CALL_ROWS		32768
#define LOOK_UP_ROWS	2048

bool
gpuvec_als_fail_canceled(gpuvec_error *error)
{
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "the request was canceled");
}

void
gpuvec_interactions_init(gpuvec_interactions *in, gpuvec_als_memory *memory)
{
	memset(in, 0, sizeof(*in));
	in->memory = in->numbers[0].memory = in->numbers[1].memory = memory;
}

/* Free the interactions, but not the keys */
void
gpuvec_interactions_free_triples(gpuvec_interactions *in)
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
	gpuvec_interactions_free_triples(in);
	gpuvec_key_numbers_free(&in->numbers[GPUVEC_ALS_USERS]);
	gpuvec_key_numbers_free(&in->numbers[GPUVEC_ALS_ITEMS]);
}

/* Room for n more interactions, at most CALL_ROWS; NULL: there is no memory */
static gpuvec_triple *
make_room(gpuvec_interactions *in, uint64_t n, gpuvec_error *error)
{
	gpuvec_triple_block *block = in->blocks;

	if (block == NULL || block->n + n > GPUVEC_BLOCK_TRIPLES)
	{
		block = gpuvec_als_new(in->memory, 1, sizeof(*block), error);
		if (block == NULL)
			return NULL;
		block->next = in->blocks;
		block->n = 0;
		in->blocks = block;
	}
	return &block->triples[block->n];
}

/* Interactions that come, and where they go */
typedef struct number_task
{
	const gpuvec_interactions *in;
	const int64_t *keys[2];		/* of gpuvec_als_side */
	const float *weights;
	uint64_t	n;
	gpuvec_triple *triples;		/* [n] */
	bool		lacking[CALL_ROWS / LOOK_UP_ROWS];	/* keys of a slice have no
													 * numbers yet */
} number_task;

/* The interactions of a slice: from the result to *end */
static uint64_t
look_up_rows(const number_task *task, uint64_t slice, uint64_t *end)
{
	*end = (slice + 1) * LOOK_UP_ROWS < task->n ? (slice + 1) * LOOK_UP_ROWS : task->n;
	return slice * LOOK_UP_ROWS;
}

/*
 * Write down interactions, with the numbers that keys have; called by a
 * thread of the pool.  Rows often lie in the order of one side's keys, so the
 * key before is looked at first.
 */
static void
look_up_slice(void *arg, uint64_t slice, int thread)
{
	number_task *task = arg;
	uint64_t	end;
	uint64_t	first = look_up_rows(task, slice, &end);
	uint32_t	lacking = 0;

	(void) thread;
	for (uint64_t i = first; i < end; i++)
	{
		gpuvec_triple *triple = &task->triples[i];

		for (int side = 0; side < 2; side++)
		{
			const int64_t *key = &task->keys[side][i];

			triple->number[side] = i > first && key[0] == key[-1] ? triple[-1].number[side] :
				gpuvec_key_number(&task->in->numbers[side], key[0]);
			lacking += triple->number[side] == GPUVEC_NO_NUMBER;
		}
		triple->weight = task->weights[i];
	}
	task->lacking[slice] = lacking > 0;
}

/*
 * The number of a key that has `number`, or lacks one and gets it; *last is
 * the last key of this side that did.  GPUVEC_NO_NUMBER: there is no memory.
 */
static uint32_t
number_key(gpuvec_key_numbers *numbers, uint32_t number, int64_t key, numbered_key *last,
		   gpuvec_error *error)
{
	if (number != GPUVEC_NO_NUMBER)
		return number;
	if (last->number == GPUVEC_NO_NUMBER || last->key != key)
	{
		last->key = key;
		last->number = gpuvec_key_number_add(numbers, key, error);
	}
	return last->number;
}

/*
 * Move the interactions of a slice to *to, which is at most where they are,
 * and *to behind them.  Keys get the numbers that they lack.
 */
static bool
keep_slice(gpuvec_interactions *in, const number_task *task, uint64_t slice, gpuvec_triple **to,
		   gpuvec_error *error)
{
	numbered_key last[2] = {{0, GPUVEC_NO_NUMBER}, {0, GPUVEC_NO_NUMBER}};
	uint64_t	end;
	uint64_t	from = look_up_rows(task, slice, &end);

	if (!task->lacking[slice])
	{
		if (*to != &task->triples[from])
			memmove(*to, &task->triples[from], (end - from) * sizeof(**to));
		*to += end - from;
		return true;
	}
	for (; from < end; from++)
	{
		const gpuvec_triple *triple = &task->triples[from];

		if (triple->number[GPUVEC_ALS_ITEMS] == GPUVEC_NO_NUMBER && in->known_items)
			continue;
		for (int side = 0; side < 2; side++)
		{
			uint32_t	number = number_key(&in->numbers[side], triple->number[side],
											task->keys[side][from], &last[side], error);

			if (number == GPUVEC_NO_NUMBER)
				return false;
			(*to)->number[side] = number;
		}
		(*to)++->weight = triple->weight;
	}
	return true;
}

/* Add at most CALL_ROWS interactions */
static bool
add_some(gpuvec_interactions *in, gpuvec_thread_pool *pool, number_task *task, gpuvec_error *error)
{
	uint64_t	nslices = (task->n + LOOK_UP_ROWS - 1) / LOOK_UP_ROWS;
	gpuvec_triple *to = make_room(in, task->n, error);

	if (to == NULL)
		return false;
	task->triples = to;
	gpuvec_thread_pool_run(pool, look_up_slice, task, nslices);
	for (uint64_t slice = 0; slice < nslices; slice++)
		if (!keep_slice(in, task, slice, &to, error))
			return false;
	in->blocks->n += (uint32_t) (to - task->triples);
	in->ntriples += (uint64_t) (to - task->triples);
	return true;
}

/*
 * Most keys have come before, so all threads look up their numbers, and write
 * the interactions where they stay.  Only slices with other keys are gone
 * through once more, by one thread.
 */
bool
gpuvec_interactions_add(gpuvec_interactions *in, gpuvec_thread_pool *pool, uint64_t n,
						const int64_t *users, const int64_t *items, const float *weights,
						gpuvec_error *error)
{
	for (uint64_t at = 0; at < n; at += CALL_ROWS)
	{
		number_task task = {
			.in = in, .keys = {users + at, items + at}, .weights = weights + at,
			.n = n - at < CALL_ROWS ? n - at : CALL_ROWS
		};

		if (!add_some(in, pool, &task, error))
			return false;
	}
	return true;
}

/* A task whose slices are left out once it is canceled */
typedef struct cancelable_task
{
	gpuvec_slice slice;
	void	   *task;
	const int  *canceled;
} cancelable_task;

static void
cancelable_slice(void *arg, uint64_t slice, int thread)
{
	cancelable_task *task = arg;

	if (!gpuvec_als_canceled(task->canceled))
		task->slice(task->task, slice, thread);
}

/* Run all slices of a task; false if it was canceled: some were left out */
bool
gpuvec_als_run_slices(const sorter_threads *threads, gpuvec_slice slice, void *task, uint64_t nslices)
{
	cancelable_task cancelable = {slice, task, threads->canceled};

	gpuvec_thread_pool_run(threads->pool, cancelable_slice, &cancelable, nslices);
	return !gpuvec_als_canceled(threads->canceled);
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
