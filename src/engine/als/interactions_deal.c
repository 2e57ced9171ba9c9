/*-------------------------------------------------------------------------
 *
 * interactions_deal.c
 *	  Deals interactions out to users, and entries of users to items.
 *
 * Interactions are dealt out to users in any order.  Entries of users are
 * dealt out to items in the order of users: each core takes a range of users,
 * and knows from counts of all ranges where in an item's row its entries
 * begin.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/als/interactions.h"
#include "engine/als/interactions_sort.h"

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

typedef struct deal_task
{
	gpuvec_triple_block **blocks;	/* a slice each */
	uint32_t   *const *row_of;	/* the row of each number, of both sides */
	gpuvec_als_matrix *users;
} deal_task;

static void
count_slice(void *arg, uint64_t slice, int thread)
{
	deal_task  *task = arg;
	const gpuvec_triple_block *block = task->blocks[slice];

	(void) thread;
	for (uint32_t i = 0; i < block->n; i++)
	{
		uint32_t	row = task->row_of[GPUVEC_ALS_USERS][block->triples[i].number[GPUVEC_ALS_USERS]];

		__atomic_fetch_add(&task->users->starts[row + 1], 1, __ATOMIC_RELAXED);
	}
}

static void
deal_slice(void *arg, uint64_t slice, int thread)
{
	deal_task  *task = arg;
	const gpuvec_triple_block *block = task->blocks[slice];

	(void) thread;
	for (uint32_t i = 0; i < block->n; i++)
	{
		const gpuvec_triple *triple = &block->triples[i];
		uint32_t	row = task->row_of[GPUVEC_ALS_USERS][triple->number[GPUVEC_ALS_USERS]];
		uint64_t	at = __atomic_fetch_add(&task->users->starts[row + 1], 1, __ATOMIC_RELAXED);

		task->users->entries[at].other =
			task->row_of[GPUVEC_ALS_ITEMS][triple->number[GPUVEC_ALS_ITEMS]];
		task->users->entries[at].confidence = triple->weight;
	}
}

/* Deal out the interactions to users, in any order */
bool
gpuvec_als_deal(const gpuvec_interactions *in, const sorter_threads *threads, uint32_t *const *row_of,
				gpuvec_als_matrix *users, gpuvec_error *error)
{
	uint64_t	nblocks = 0;
	bool		ok;
	deal_task	task = {NULL, row_of, users};

	for (const gpuvec_triple_block *block = in->blocks; block; block = block->next)
		nblocks++;
	task.blocks = gpuvec_als_new(in->memory, nblocks, sizeof(*task.blocks), error);
	if (task.blocks == NULL)
		return false;
	nblocks = 0;
	for (gpuvec_triple_block *block = in->blocks; block; block = block->next)
		task.blocks[nblocks++] = block;
	ok = gpuvec_als_run_slices(threads, count_slice, &task, nblocks);
	if (ok)
	{
		begin_filling(users);
		ok = gpuvec_als_run_slices(threads, deal_slice, &task, nblocks);
	}
	gpuvec_als_free(in->memory, task.blocks);
	return ok;
}

typedef struct transpose_task
{
	const gpuvec_als_matrix *from;
	gpuvec_als_matrix *to;
	uint64_t	nslices;
	uint64_t   *next;			/* [nslices][to->nrows]: how many entries a
								 * slice has for a row; then, where the next
								 * one goes */
} transpose_task;

/* The rows of a slice: from the result to *end */
static uint32_t
transposed_rows(const transpose_task *task, uint64_t slice, uint32_t *end)
{
	uint64_t	entries = task->from->starts[task->from->nrows] / task->nslices + 1;

	*end = gpuvec_als_first_row(task->from, (slice + 1) * entries);
	return gpuvec_als_first_row(task->from, slice * entries);
}

static void
count_others_slice(void *arg, uint64_t slice, int thread)
{
	transpose_task *task = arg;
	uint64_t   *counts = task->next + slice * task->to->nrows;
	uint32_t	end;
	uint32_t	first = transposed_rows(task, slice, &end);

	(void) thread;
	memset(counts, 0, task->to->nrows * sizeof(*counts));
	for (uint64_t i = task->from->starts[first]; i < task->from->starts[end]; i++)
		counts[task->from->entries[i].other]++;
}

static void
transpose_slice(void *arg, uint64_t slice, int thread)
{
	transpose_task *task = arg;
	uint64_t   *next = task->next + slice * task->to->nrows;
	const gpuvec_als_matrix *from = task->from;
	uint32_t	end;

	(void) thread;
	for (uint32_t row = transposed_rows(task, slice, &end); row < end; row++)
		for (uint64_t i = from->starts[row]; i < from->starts[row + 1]; i++)
		{
			gpuvec_als_entry *to = &task->to->entries[next[from->entries[i].other]++];

			to->other = row;
			to->confidence = from->entries[i].confidence;
		}
}

/* Turn counts into where entries go, in the order of slices */
static void
place_slices(const transpose_task *task)
{
	gpuvec_als_matrix *to = task->to;
	uint64_t	start = 0;

	for (uint32_t row = 0; row < to->nrows; row++)
	{
		to->starts[row] = start;
		for (uint64_t slice = 0; slice < task->nslices; slice++)
		{
			uint64_t   *next = &task->next[slice * to->nrows + row];
			uint64_t	count = *next;

			*next = start;
			start += count;
		}
	}
	to->starts[to->nrows] = start;
}

/*
 * Transpose a matrix.  The counts of all slices take no more memory than the
 * entries.
 */
bool
gpuvec_als_transpose(gpuvec_als_memory *memory, const sorter_threads *threads, const gpuvec_als_matrix *from,
					 gpuvec_als_matrix *to, gpuvec_error *error)
{
	transpose_task task = {from, to, (uint64_t) gpuvec_thread_pool_threads(threads->pool), NULL};
	bool		ok;

	while (task.nslices > 1 && task.nslices * to->nrows > from->starts[from->nrows])
		task.nslices--;
	task.next = gpuvec_als_new(memory, task.nslices * to->nrows, sizeof(*task.next), error);
	if (task.next == NULL)
		return false;
	ok = gpuvec_als_run_slices(threads, count_others_slice, &task, task.nslices);
	if (ok)
	{
		place_slices(&task);
		ok = gpuvec_als_run_slices(threads, transpose_slice, &task, task.nslices);
	}
	gpuvec_als_free(memory, task.next);
	return ok;
}
