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
 * All cores sort.  Interactions are dealt out to users, in any order, and each
 * user's are sorted by items and weights.  When repeated pairs have become
 * one, the entries of users are dealt out to items: each core takes a range
 * of users, and knows from counts of all ranges where in an item's row its
 * entries begin.
 *
 * A pair whose weights add up to zero is left out like a weight of zero, and
 * so are users and items that have no pair left.  But if alpha makes all pairs
 * vanish, that is an error of a training.
 *
 * Folding in needs the matrix by users only.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/als/interactions.h"

/* Entries that a thread takes at a time */
#define PART_ENTRIES	65536

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
	bool		lacking[CALL_ROWS / LOOK_UP_ROWS];	/* keys of a part have no
													 * numbers yet */
} number_task;

/* The interactions of a part: from the result to *end */
static uint64_t
look_up_rows(const number_task *task, uint64_t part, uint64_t *end)
{
	*end = (part + 1) * LOOK_UP_ROWS < task->n ? (part + 1) * LOOK_UP_ROWS : task->n;
	return part * LOOK_UP_ROWS;
}

/*
 * Write down interactions, with the numbers that keys have; called by a
 * thread of the pool.  Rows often lie in the order of one side's keys, so the
 * key before is looked at first.
 */
static void
look_up_part(void *arg, uint64_t part, int thread)
{
	number_task *task = arg;
	uint64_t	end;
	uint64_t	first = look_up_rows(task, part, &end);
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
	task->lacking[part] = lacking > 0;
}

/* A key and its number */
typedef struct numbered_key
{
	int64_t		key;
	uint32_t	number;			/* GPUVEC_NO_NUMBER: none yet */
} numbered_key;

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
 * Move the interactions of a part to *to, which is at most where they are,
 * and *to behind them.  Keys get the numbers that they lack.
 */
static bool
keep_part(gpuvec_interactions *in, const number_task *task, uint64_t part, gpuvec_triple **to,
		  gpuvec_error *error)
{
	numbered_key last[2] = {{0, GPUVEC_NO_NUMBER}, {0, GPUVEC_NO_NUMBER}};
	uint64_t	end;
	uint64_t	from = look_up_rows(task, part, &end);

	if (!task->lacking[part])
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
	uint64_t	nparts = (task->n + LOOK_UP_ROWS - 1) / LOOK_UP_ROWS;
	gpuvec_triple *to = make_room(in, task->n, error);

	if (to == NULL)
		return false;
	task->triples = to;
	gpuvec_thread_pool_run(pool, look_up_part, task, nparts);
	for (uint64_t part = 0; part < nparts; part++)
		if (!keep_part(in, task, part, &to, error))
			return false;
	in->blocks->n += (uint32_t) (to - task->triples);
	in->ntriples += (uint64_t) (to - task->triples);
	return true;
}

/*
 * Most keys have come before, so all threads look up their numbers, and write
 * the interactions where they stay.  Only parts with other keys are gone
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

/* The threads that sort */
typedef struct sorter_threads
{
	gpuvec_thread_pool *pool;
	const int  *canceled;		/* or NULL */
} sorter_threads;

/* A task whose parts are left out once it is canceled */
typedef struct cancelable_task
{
	gpuvec_part part;
	void	   *task;
	const int  *canceled;
} cancelable_task;

static void
cancelable_part(void *arg, uint64_t part, int thread)
{
	cancelable_task *task = arg;

	if (!gpuvec_als_canceled(task->canceled))
		task->part(task->task, part, thread);
}

/* Run all parts of a task; false if it was canceled: some were left out */
static bool
run_parts(const sorter_threads *threads, gpuvec_part part, void *task, uint64_t nparts)
{
	cancelable_task cancelable = {part, task, threads->canceled};

	gpuvec_thread_pool_run(threads->pool, cancelable_part, &cancelable, nparts);
	return !gpuvec_als_canceled(threads->canceled);
}

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

/* ---- dealing out to users ---- */

typedef struct deal_task
{
	gpuvec_triple_block **blocks;	/* a part each */
	uint32_t   *const *row_of;	/* the row of each number, of both sides */
	gpuvec_als_matrix *users;
} deal_task;

static void
count_part(void *arg, uint64_t part, int thread)
{
	deal_task  *task = arg;
	const gpuvec_triple_block *block = task->blocks[part];

	(void) thread;
	for (uint32_t i = 0; i < block->n; i++)
	{
		uint32_t	row = task->row_of[GPUVEC_ALS_USERS][block->triples[i].number[GPUVEC_ALS_USERS]];

		__atomic_fetch_add(&task->users->starts[row + 1], 1, __ATOMIC_RELAXED);
	}
}

static void
deal_part(void *arg, uint64_t part, int thread)
{
	deal_task  *task = arg;
	const gpuvec_triple_block *block = task->blocks[part];

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
static bool
deal_triples(const gpuvec_interactions *in, const sorter_threads *threads, uint32_t *const *row_of,
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
	ok = run_parts(threads, count_part, &task, nblocks);
	if (ok)
	{
		begin_filling(users);
		ok = run_parts(threads, deal_part, &task, nblocks);
	}
	gpuvec_als_free(in->memory, task.blocks);
	return ok;
}

/* ---- making each pair one entry ---- */

/* By items, then by weights */
static int
compare_entries(const void *a, const void *b)
{
	const gpuvec_als_entry *x = a;
	const gpuvec_als_entry *y = b;

	if (x->other != y->other)
		return x->other < y->other ? -1 : 1;
	return x->confidence < y->confidence ? -1 : x->confidence > y->confidence;
}

/* Sort entries, unless they come sorted, as they often do */
static void
sort_entries(gpuvec_als_entry *entries, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
		if (compare_entries(&entries[i - 1], &entries[i]) > 0)
		{
			qsort(entries, n, sizeof(*entries), compare_entries);
			return;
		}
}

/* A pair whose confidence is too large */
typedef struct bad_pair
{
	uint32_t	user;			/* GPUVEC_NO_NUMBER: there is none */
	uint32_t	item;
	double		confidence;
} bad_pair;

typedef struct unite_task
{
	gpuvec_als_matrix *users;
	double		alpha;
	uint32_t   *kept;			/* entries that remain of each row */
	bool		vanished;		/* a confidence was too small for float32 */
	pthread_mutex_t mutex;
	bad_pair	bad;			/* the first one; guarded by the mutex */
} unite_task;

/* Keep the first pair that is bad, whoever finds it when */
static void
keep_bad(unite_task *task, uint32_t user, uint32_t item, double confidence)
{
	pthread_mutex_lock(&task->mutex);
	if (user < task->bad.user)
		task->bad = (bad_pair)
	{
		user, item, confidence
	};
	pthread_mutex_unlock(&task->mutex);
}

/*
 * Make each pair of a row one entry, at the row's beginning, and weights
 * confidences.  Pairs that add up to zero are left out.
 */
static void
unite_row(unite_task *task, uint32_t row)
{
	uint64_t	end = task->users->starts[row + 1];
	uint64_t	from = task->users->starts[row];
	gpuvec_als_entry *entries = task->users->entries;
	gpuvec_als_entry *to = entries + from;

	sort_entries(to, end - from);
	task->kept[row] = 0;
	while (from < end)
	{
		uint32_t	other = entries[from].other;
		double		sum = 0;

		while (from < end && entries[from].other == other)
			sum += entries[from++].confidence;
		sum *= task->alpha;
		if (!(fabs(sum) <= GPUVEC_ALS_MAX_CONFIDENCE))
		{
			keep_bad(task, row, other, sum);
			return;
		}
		to[task->kept[row]].other = other;
		to[task->kept[row]].confidence = (float) sum;
		if ((float) sum != 0)
			task->kept[row]++;
		else if (sum != 0)
			__atomic_store_n(&task->vanished, true, __ATOMIC_RELAXED);
	}
}

static void
unite_part(void *arg, uint64_t part, int thread)
{
	unite_task *task = arg;
	uint32_t	end = gpuvec_als_first_row(task->users, (part + 1) * PART_ENTRIES);

	(void) thread;
	for (uint32_t row = gpuvec_als_first_row(task->users, part * PART_ENTRIES); row < end; row++)
		unite_row(task, row);
}

/* Move the entries that remain together, and set starts accordingly */
static void
close_gaps(gpuvec_als_matrix *matrix, const uint32_t *kept)
{
	uint64_t	to = 0;

	for (uint32_t row = 0; row < matrix->nrows; row++)
	{
		uint64_t	from = matrix->starts[row];

		if (from != to)
			memmove(matrix->entries + to, matrix->entries + from, kept[row] * sizeof(*matrix->entries));
		matrix->starts[row] = to;
		to += kept[row];
	}
	matrix->starts[matrix->nrows] = to;
}

/* Report that the confidence of a pair is too large */
static bool
fail_confidence(const gpuvec_side_rows *rows, double alpha, const bad_pair *bad,
				gpuvec_error *error)
{
	gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, NULL,
				alpha == 1 ? "Make weights smaller." : "Make weights or alpha smaller.",
				"weight of user %" PRId64 " and item %" PRId64 " is too large",
				rows[GPUVEC_ALS_USERS].keys[bad->user], rows[GPUVEC_ALS_ITEMS].keys[bad->item]);
	snprintf(error->detail, sizeof(error->detail),
			 "The sum of the pair's weights%s is %g; it must be between %g and %g.",
			 alpha == 1 ? "" : " times alpha", bad->confidence, -GPUVEC_ALS_MAX_CONFIDENCE, GPUVEC_ALS_MAX_CONFIDENCE);
	return false;
}

/* Report that no pair is left because confidences are too small */
static bool
fail_vanished(double alpha, gpuvec_error *error)
{
	gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, NULL, "Make alpha or weights larger.",
				"weights are too small");
	snprintf(error->detail, sizeof(error->detail),
			 "All weights times alpha, which is %g, are too small for float4.", alpha);
	return false;
}

/*
 * Make each pair of the users' matrix one entry, and weights confidences.
 * kept[] has room for an element for each user.  may_vanish: it is no error
 * if all confidences are too small.
 */
static bool
unite_pairs(gpuvec_side_rows *rows, const sorter_threads *threads, double alpha, bool may_vanish,
			uint32_t *kept, gpuvec_error *error)
{
	gpuvec_als_matrix *users = &rows[GPUVEC_ALS_USERS].matrix;
	unite_task	task = {
		users, alpha, kept, false, PTHREAD_MUTEX_INITIALIZER, {GPUVEC_NO_NUMBER, 0, 0}
	};

	if (!run_parts(threads, unite_part, &task, users->starts[users->nrows] / PART_ENTRIES + 1))
		return false;
	if (task.bad.user != GPUVEC_NO_NUMBER)
		return fail_confidence(rows, alpha, &task.bad, error);
	close_gaps(users, kept);
	if (task.vanished && users->starts[users->nrows] == 0 && !may_vanish)
		return fail_vanished(alpha, error);
	return true;
}

/* ---- dealing out to items ---- */

typedef struct transpose_task
{
	const gpuvec_als_matrix *from;
	gpuvec_als_matrix *to;
	uint64_t	nparts;
	uint64_t   *next;			/* [nparts][to->nrows]: how many entries a
								 * part has for a row; then, where the next
								 * one goes */
} transpose_task;

/* The rows of a part: from the result to *end */
static uint32_t
transposed_rows(const transpose_task *task, uint64_t part, uint32_t *end)
{
	uint64_t	entries = task->from->starts[task->from->nrows] / task->nparts + 1;

	*end = gpuvec_als_first_row(task->from, (part + 1) * entries);
	return gpuvec_als_first_row(task->from, part * entries);
}

static void
count_others_part(void *arg, uint64_t part, int thread)
{
	transpose_task *task = arg;
	uint64_t   *counts = task->next + part * task->to->nrows;
	uint32_t	end;
	uint32_t	first = transposed_rows(task, part, &end);

	(void) thread;
	memset(counts, 0, task->to->nrows * sizeof(*counts));
	for (uint64_t i = task->from->starts[first]; i < task->from->starts[end]; i++)
		counts[task->from->entries[i].other]++;
}

static void
transpose_part(void *arg, uint64_t part, int thread)
{
	transpose_task *task = arg;
	uint64_t   *next = task->next + part * task->to->nrows;
	const gpuvec_als_matrix *from = task->from;
	uint32_t	end;

	(void) thread;
	for (uint32_t row = transposed_rows(task, part, &end); row < end; row++)
		for (uint64_t i = from->starts[row]; i < from->starts[row + 1]; i++)
		{
			gpuvec_als_entry *to = &task->to->entries[next[from->entries[i].other]++];

			to->other = row;
			to->confidence = from->entries[i].confidence;
		}
}

/* Turn counts into where entries go, in the order of parts */
static void
place_parts(const transpose_task *task)
{
	gpuvec_als_matrix *to = task->to;
	uint64_t	start = 0;

	for (uint32_t row = 0; row < to->nrows; row++)
	{
		to->starts[row] = start;
		for (uint64_t part = 0; part < task->nparts; part++)
		{
			uint64_t   *next = &task->next[part * to->nrows + row];
			uint64_t	count = *next;

			*next = start;
			start += count;
		}
	}
	to->starts[to->nrows] = start;
}

/*
 * Transpose a matrix.  The counts of all parts take no more memory than the
 * entries.
 */
static bool
transpose(gpuvec_als_memory *memory, const sorter_threads *threads, const gpuvec_als_matrix *from,
		  gpuvec_als_matrix *to, gpuvec_error *error)
{
	transpose_task task = {from, to, (uint64_t) gpuvec_thread_pool_threads(threads->pool), NULL};
	bool		ok;

	while (task.nparts > 1 && task.nparts * to->nrows > from->starts[from->nrows])
		task.nparts--;
	task.next = gpuvec_als_new(memory, task.nparts * to->nrows, sizeof(*task.next), error);
	if (task.next == NULL)
		return false;
	ok = run_parts(threads, count_others_part, &task, task.nparts);
	if (ok)
	{
		place_parts(&task);
		ok = run_parts(threads, transpose_part, &task, task.nparts);
	}
	gpuvec_als_free(memory, task.next);
	return ok;
}

/* ---- rows without entries ---- */

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

/* The entries of a part: from the result to *end */
static uint64_t
part_entries(const gpuvec_als_matrix *matrix, uint64_t part, uint64_t *end)
{
	uint64_t	n = matrix->starts[matrix->nrows];

	*end = (part + 1) * PART_ENTRIES < n ? (part + 1) * PART_ENTRIES : n;
	return part * PART_ENTRIES;
}

static void
mark_part(void *arg, uint64_t part, int thread)
{
	item_task  *task = arg;
	uint64_t	end;

	(void) thread;
	for (uint64_t i = part_entries(task->users, part, &end); i < end; i++)
		__atomic_store_n(&task->number[task->users->entries[i].other], 1, __ATOMIC_RELAXED);
}

static void
renumber_part(void *arg, uint64_t part, int thread)
{
	item_task  *task = arg;
	uint64_t	end;

	(void) thread;
	for (uint64_t i = part_entries(task->users, part, &end); i < end; i++)
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
	uint64_t	nparts = users->starts[users->nrows] / PART_ENTRIES + 1;
	uint32_t	kept = 0;

	memset(number, 0, items->n * sizeof(*number));
	if (!run_parts(threads, mark_part, &task, nparts))
		return false;
	for (uint32_t item = 0; item < items->n; item++)
	{
		if (number[item] == 0)
			continue;
		items->keys[kept] = items->keys[item];
		number[item] = kept++;
	}
	if (kept < items->n && !run_parts(threads, renumber_part, &task, nparts))
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
		!deal_triples(in, threads, row_of, &users->matrix, error))
		return false;
	free_blocks(in);
	/* rows of numbers are not needed any more, but have the right size */
	if (!unite_pairs(rows, threads, alpha, in->known_items, row_of[GPUVEC_ALS_USERS], error))
		return false;
	drop_users(users);
	if (in->known_items)
		return new_matrix(in->memory, &items->matrix, items->n, 0, error);
	return drop_items(rows, threads, row_of[GPUVEC_ALS_ITEMS]) &&
		new_matrix(in->memory, &items->matrix, items->n, users->matrix.starts[users->n], error) &&
		transpose(in->memory, threads, &users->matrix, &items->matrix, error);
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
