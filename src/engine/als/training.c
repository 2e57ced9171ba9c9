/*-------------------------------------------------------------------------
 *
 * training.c
 *	  A training: the interactions, the factors of both sides, iterations.
 *
 * An iteration solves for all users and then for all items, and measures the
 * loss.  Threads take parts of about PART_ENTRIES entries.  Rows are
 * independent of each other, so the result does not depend on who solves
 * them.
 *
 * The Gram matrix G is the sum of y y' over all rows of a side.  Chunks of
 * CHUNK_ROWS rows are added up in float32, and chunks in float64 in their
 * order, so that it does not depend on the number of threads, and rounding
 * errors do not grow with the number of rows.  A round of chunks is as large
 * as ROUND_BYTES allow.
 *
 * The loss needs the Gram matrix of the items' new factors.  The next
 * iteration begins with the same one, so it is kept.
 *
 * A training has a pool of its own: it would keep the engine's from searches
 * for as long as half an iteration takes.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/als/als_math.h"
#include "engine/als/exact.h"
#include "engine/als/training.h"

#define PART_ENTRIES	16384
#define CHUNK_ROWS		2048
#define ROUND_BYTES		((size_t) 32 * 1024 * 1024)

/* Rows after which the engine's progress is reported: some parts take long */
#define REPORT_ROWS		64

/* Rows for which one part computes initial factors */
#define INITIAL_ROWS	1024

struct gpuvec_training
{
	gpuvec_als_memory memory;
	gpuvec_training_options options;
	gpuvec_thread_pool *pool;
	const gpuvec_als_math *math;
	gpuvec_interactions in;
	gpuvec_side_rows rows[2];	/* of gpuvec_als_side */
	float	   *factors[2];		/* [rows[side].n * stride] */
	uint32_t	known_room;		/* items that factors[] has room for, while
								 * those for fold_in come */
	uint32_t	stride;			/* floats of a factor, with padding */
	float	   *gram;			/* [stride * stride], + regularization I */
	double	   *sum;			/* [stride * stride]: without it */
	float	   *chunks;			/* [round * stride * stride] */
	uint32_t	round;			/* chunks of a round */
	bool		gram_of_items;	/* gram is that of the items' factors */
	float	   *scratch;		/* for each thread GPUVEC_ALS_SCRATCH vectors */
	double	   *losses;			/* [parts of users] */
	double		confidence;		/* sum of c over all pairs */
};

gpuvec_training *
gpuvec_training_new(gpuvec_store *store, int threads, const gpuvec_training_options *options,
					gpuvec_error *error)
{
	gpuvec_training *training = calloc(1, sizeof(*training));

	if (training == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*training));
		return NULL;
	}
	training->memory.store = store;
	training->options = *options;
	training->math = gpuvec_als_best_math();
	training->stride = (options->factors + GPUVEC_ALS_LANES - 1) / GPUVEC_ALS_LANES * GPUVEC_ALS_LANES;
	gpuvec_interactions_init(&training->in, &training->memory);
	training->in.known_items = options->fold_in;
	training->pool = gpuvec_thread_pool_new(threads);
	if (training->pool == NULL)
	{
		gpuvec_training_free(training);
		/* more often than threads, their memory is lacking */
		gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL, NULL,
					"could not start the threads of a training");
		return NULL;
	}
	return training;
}

void
gpuvec_training_free(gpuvec_training *training)
{
	gpuvec_als_memory *memory = &training->memory;

	if (training->pool)
		gpuvec_thread_pool_free(training->pool);
	gpuvec_interactions_free(&training->in);
	for (int side = 0; side < 2; side++)
	{
		gpuvec_side_rows_free(memory, &training->rows[side]);
		gpuvec_als_free(memory, training->factors[side]);
	}
	gpuvec_als_free(memory, training->gram);
	gpuvec_als_free(memory, training->sum);
	gpuvec_als_free(memory, training->chunks);
	gpuvec_als_free(memory, training->scratch);
	gpuvec_als_free(memory, training->losses);
	free(training);
}

bool
gpuvec_training_add(gpuvec_training *training, uint64_t n, const int64_t *users,
					const int64_t *items, const float *weights, gpuvec_error *error)
{
	return gpuvec_interactions_add(&training->in, n, users, items, weights, error);
}

uint32_t
gpuvec_training_rows(const gpuvec_training *training, gpuvec_als_side side)
{
	return training->rows[side].n;
}

const int64_t *
gpuvec_training_keys(const gpuvec_training *training, gpuvec_als_side side)
{
	return training->rows[side].keys;
}

uint64_t
gpuvec_training_entries(const gpuvec_training *training)
{
	const gpuvec_side_rows *users = &training->rows[GPUVEC_ALS_USERS];

	return users->n ? users->matrix.starts[users->n] : 0;
}

/* ---- the first factors ---- */

typedef struct initial_task
{
	gpuvec_training *training;
	gpuvec_als_side side;
} initial_task;

static void
initial_part(void *arg, uint64_t part, int thread)
{
	initial_task *task = arg;
	const gpuvec_training *training = task->training;
	const gpuvec_side_rows *rows = &training->rows[task->side];
	uint64_t	end = (part + 1) * INITIAL_ROWS;

	(void) thread;
	for (uint64_t row = part * INITIAL_ROWS; row < end && row < rows->n; row++)
	{
		float	   *factor = training->factors[task->side] + row * training->stride;

		for (uint32_t i = 0; i < training->options.factors; i++)
			factor[i] = gpuvec_als_initial(training->options.seed, task->side, rows->keys[row], i,
										   training->options.factors);
		for (uint32_t i = training->options.factors; i < training->stride; i++)
			factor[i] = 0;
	}
}

static bool
new_factors(gpuvec_training *training, gpuvec_als_side side, gpuvec_error *error)
{
	uint32_t	n = training->rows[side].n;
	initial_task task = {training, side};

	training->factors[side] = gpuvec_als_new(&training->memory, (uint64_t) n * training->stride,
											 sizeof(float), error);
	if (training->factors[side] == NULL)
		return false;
	gpuvec_thread_pool_run(training->pool, initial_part, &task,
						   ((uint64_t) n + INITIAL_ROWS - 1) / INITIAL_ROWS);
	return true;
}

static void
set_factor(gpuvec_training *training, gpuvec_als_side side, uint32_t row, const float *elements)
{
	memcpy(training->factors[side] + (size_t) row * training->stride, elements,
		   training->options.factors * sizeof(float));
}

/* Make room for twice as many items that come for fold_in */
static bool
grow_known(gpuvec_training *training, gpuvec_error *error)
{
	uint32_t	n = training->in.numbers[GPUVEC_ALS_ITEMS].n;
	uint32_t	room = training->known_room ? training->known_room * 2 : INITIAL_ROWS;
	size_t		bytes = training->stride * sizeof(float);
	float	   *more = gpuvec_als_new(&training->memory, room, bytes, error);

	if (more == NULL)
		return false;
	if (n > 0)
		memcpy(more, training->factors[GPUVEC_ALS_ITEMS], n * bytes);
	gpuvec_als_free(&training->memory, training->factors[GPUVEC_ALS_ITEMS]);
	training->factors[GPUVEC_ALS_ITEMS] = more;
	training->known_room = room;
	return true;
}

/*
 * Add an item for fold_in.  Items come in the order of their keys, so that
 * their numbers are those of their rows.
 */
static bool
add_known(gpuvec_training *training, int64_t key, const float *elements, gpuvec_error *error)
{
	gpuvec_key_numbers *numbers = &training->in.numbers[GPUVEC_ALS_ITEMS];
	uint32_t	number = numbers->n;

	if (number > 0 && key <= numbers->keys[number - 1])
		return gpuvec_fail(error, GPUVEC_PROTOCOL_VIOLATION, NULL, NULL,
						   "items of a fold-in must come in the order of their keys");
	if (number == training->known_room && !grow_known(training, error))
		return false;
	if (gpuvec_key_number_add(numbers, key, error) == GPUVEC_NO_NUMBER)
		return false;
	memset(training->factors[GPUVEC_ALS_ITEMS] + (size_t) number * training->stride, 0,
		   training->stride * sizeof(float));
	set_factor(training, GPUVEC_ALS_ITEMS, number, elements);
	return true;
}

bool
gpuvec_training_set(gpuvec_training *training, gpuvec_als_side side, uint64_t n,
					const int64_t *keys, const float *elements, gpuvec_error *error)
{
	for (uint64_t i = 0; i < n; i++)
	{
		const float *factor = elements + i * training->options.factors;
		uint32_t	row;

		if (training->options.fold_in)
		{
			if (!add_known(training, keys[i], factor, error))
				return false;
			continue;
		}
		row = gpuvec_als_find_row(&training->rows[side], keys[i]);
		if (row != GPUVEC_NO_NUMBER)
			set_factor(training, side, row, factor);
	}
	training->gram_of_items = false;
	return true;
}

/* ---- preparing ---- */

/* Number of parts of the rows of a matrix */
static uint64_t
count_parts(const gpuvec_als_matrix *matrix)
{
	return matrix->starts[matrix->nrows] / PART_ENTRIES + 1;
}

/* The first row that begins at an entry or behind it */
static uint32_t
first_row(const gpuvec_als_matrix *matrix, uint64_t entry)
{
	uint32_t	low = 0;
	uint32_t	high = matrix->nrows;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (matrix->starts[middle] < entry)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The sum of c over all pairs: the loss is divided by it */
static double
sum_confidence(const gpuvec_training *training)
{
	const gpuvec_als_matrix *users = &training->rows[GPUVEC_ALS_USERS].matrix;
	uint64_t	n = users->starts[users->nrows];
	double		sum = (double) training->rows[GPUVEC_ALS_USERS].n *
		training->rows[GPUVEC_ALS_ITEMS].n - (double) n;

	for (uint64_t i = 0; i < n; i++)
		sum += fabs((double) users->entries[i].confidence);
	return sum;
}

/* Memory that iterations need */
static bool
new_work(gpuvec_training *training, gpuvec_error *error)
{
	gpuvec_als_memory *memory = &training->memory;
	uint64_t	square = (uint64_t) training->stride * training->stride;
	int			threads = gpuvec_thread_pool_threads(training->pool);

	training->round = (uint32_t) (ROUND_BYTES / (square * sizeof(float)));
	if (training->round > 64)
		training->round = 64;
	training->gram = gpuvec_als_new(memory, square, sizeof(float), error);
	if (training->gram)
		training->sum = gpuvec_als_new(memory, square, sizeof(double), error);
	if (training->sum)
		training->chunks = gpuvec_als_new(memory, square * training->round, sizeof(float), error);
	if (training->chunks)
		training->scratch = gpuvec_als_new(memory, (uint64_t) threads * GPUVEC_ALS_SCRATCH,
										   training->stride * sizeof(float), error);
	if (training->scratch)
		training->losses = gpuvec_als_new(memory, count_parts(&training->rows[GPUVEC_ALS_USERS].matrix),
										  sizeof(double), error);
	return training->losses != NULL;
}

bool
gpuvec_training_prepare(gpuvec_training *training, gpuvec_error *error)
{
	if (!gpuvec_interactions_sort(&training->in, training->options.alpha, training->rows, error) ||
		!new_factors(training, GPUVEC_ALS_USERS, error) ||
		(!training->options.fold_in && !new_factors(training, GPUVEC_ALS_ITEMS, error)) ||
		!new_work(training, error))
		return false;
	training->confidence = sum_confidence(training);
	return true;
}

/* ---- the Gram matrix ---- */

typedef struct gram_task
{
	gpuvec_training *training;
	const float *factors;
	uint32_t	n;				/* rows */
	uint32_t	first;			/* the round's first chunk */
} gram_task;

static void
gram_part(void *arg, uint64_t part, int thread)
{
	gram_task  *task = arg;
	gpuvec_training *training = task->training;
	uint32_t	stride = training->stride;
	uint64_t	first = (task->first + part) * CHUNK_ROWS;
	uint64_t	n = task->n - first < CHUNK_ROWS ? task->n - first : CHUNK_ROWS;

	(void) thread;
	training->math->gram(task->factors + first * stride, (uint32_t) n, stride,
						 training->chunks + part * stride * stride);
}

/* Make the rest of the Gram matrix from what gram() has computed */
static void
finish_gram(gpuvec_training *training)
{
	uint32_t	stride = training->stride;

	for (uint32_t i = 0; i < stride; i++)
		for (uint32_t j = i; j < stride; j++)
		{
			double		sum = training->sum[(size_t) i * stride + j];

			/* so that the padding stays zero */
			if (i == j && i < training->options.factors)
				sum += training->options.regularization;
			training->gram[(size_t) i * stride + j] = (float) sum;
			training->gram[(size_t) j * stride + i] = (float) sum;
		}
}

/* Add a chunk to the sum, as far as gram() computes it */
static void
add_chunk(gpuvec_training *training, uint32_t chunk)
{
	uint32_t	stride = training->stride;
	const float *from = training->chunks + (size_t) chunk * stride * stride;

	for (uint32_t i = 0; i < stride; i++)
		for (uint32_t j = i / GPUVEC_ALS_LANES * GPUVEC_ALS_LANES; j < stride; j++)
			training->sum[(size_t) i * stride + j] += from[(size_t) i * stride + j];
}

/* The Gram matrix of a side's factors */
static void
make_gram(gpuvec_training *training, gpuvec_als_side side)
{
	gram_task	task = {training, training->factors[side], training->rows[side].n, 0};
	uint64_t	square = (uint64_t) training->stride * training->stride;
	uint32_t	nchunks = (uint32_t) (((uint64_t) task.n + CHUNK_ROWS - 1) / CHUNK_ROWS);

	if (side == GPUVEC_ALS_ITEMS && training->gram_of_items)
		return;
	memset(training->sum, 0, square * sizeof(double));
	for (; task.first < nchunks; task.first += training->round)
	{
		uint32_t	n = nchunks - task.first < training->round ? nchunks - task.first : training->round;

		gpuvec_thread_pool_run(training->pool, gram_part, &task, n);
		for (uint32_t chunk = 0; chunk < n; chunk++)
			add_chunk(training, chunk);
	}
	finish_gram(training);
	training->gram_of_items = side == GPUVEC_ALS_ITEMS;
}

/* The sum of x.x over the rows whose Gram matrix was made last */
static double
trace(const gpuvec_training *training)
{
	double		sum = 0;

	for (uint32_t i = 0; i < training->options.factors; i++)
		sum += training->sum[(size_t) i * training->stride + i];
	return sum;
}

/* ---- iterations ---- */

typedef struct half_task
{
	gpuvec_training *training;
	gpuvec_als_half half;
	const int  *canceled;
	double	   *exact;			/* for each thread, for exact solutions */
} half_task;

static half_task
make_task(gpuvec_training *training, gpuvec_als_side side, const int *canceled)
{
	half_task	task = {.training = training, .canceled = canceled};

	task.half.matrix = &training->rows[side].matrix;
	task.half.fixed = training->factors[!side];
	task.half.solved = training->factors[side];
	task.half.gram = training->gram;
	task.half.stride = training->stride;
	task.half.cg_steps = training->options.cg_steps;
	return task;
}

static bool
is_canceled(const half_task *task)
{
	return task->canceled && __atomic_load_n(task->canceled, __ATOMIC_RELAXED);
}

/* True if the next row may be done: reports progress, heeds cancellation */
static bool
go_on(const half_task *task, uint32_t row)
{
	if (row % REPORT_ROWS == 0)
		gpuvec_progress_made();
	return !is_canceled(task);
}

/* The rows of a part: from the result to *end */
static uint32_t
part_rows(const half_task *task, uint64_t part, uint32_t *end)
{
	*end = first_row(task->half.matrix, (part + 1) * PART_ENTRIES);
	return first_row(task->half.matrix, part * PART_ENTRIES);
}

static float *
thread_scratch(const half_task *task, int thread)
{
	return task->training->scratch + (size_t) thread * GPUVEC_ALS_SCRATCH * task->half.stride;
}

static void
solve_part(void *arg, uint64_t part, int thread)
{
	half_task  *task = arg;
	uint32_t	end;

	for (uint32_t row = part_rows(task, part, &end); row < end && go_on(task, row); row++)
		task->training->math->solve(&task->half, row, thread_scratch(task, thread));
}

static void
loss_part(void *arg, uint64_t part, int thread)
{
	half_task  *task = arg;
	double		sum = 0;
	uint32_t	end;

	for (uint32_t row = part_rows(task, part, &end); row < end && go_on(task, row); row++)
		sum += task->training->math->loss(&task->half, row, thread_scratch(task, thread));
	task->training->losses[part] = sum;
}

/* Solve for all rows of a side */
static void
solve_side(gpuvec_training *training, gpuvec_als_side side, const int *canceled)
{
	half_task	task = make_task(training, side, canceled);

	make_gram(training, !side);
	gpuvec_thread_pool_run(training->pool, solve_part, &task, count_parts(task.half.matrix));
}

/* The loss with the present factors */
static double
measure_loss(gpuvec_training *training, const int *canceled)
{
	half_task	task = make_task(training, GPUVEC_ALS_USERS, canceled);
	uint64_t	nparts = count_parts(task.half.matrix);
	double		sum;

	make_gram(training, GPUVEC_ALS_ITEMS);
	gpuvec_thread_pool_run(training->pool, loss_part, &task, nparts);
	sum = training->options.regularization * trace(training);
	for (uint64_t i = 0; i < nparts; i++)
		sum += training->losses[i];
	return sum / training->confidence;
}

bool
gpuvec_training_iterate(gpuvec_training *training, const int *canceled, double *loss,
						gpuvec_error *error)
{
	solve_side(training, GPUVEC_ALS_USERS, canceled);
	solve_side(training, GPUVEC_ALS_ITEMS, canceled);
	training->gram_of_items = false;
	*loss = measure_loss(training, canceled);
	if (isfinite(*loss) || (canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED)))
		return true;
	return gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, "The loss is not a finite number any more.",
					   "Try a larger regularization, or a smaller alpha.",
					   "training does not converge");
}

/* ---- exact solutions ---- */

static void
exact_part(void *arg, uint64_t part, int thread)
{
	half_task  *task = arg;
	gpuvec_training *training = task->training;
	uint32_t	factors = training->options.factors;
	double	   *scratch = task->exact + thread * gpuvec_exact_scratch(factors);
	uint32_t	end;

	for (uint32_t row = part_rows(task, part, &end); row < end && go_on(task, row); row++)
	{
		gpuvec_solve_exactly(&task->half, training->sum, training->options.regularization, factors,
							 row, scratch);
		gpuvec_progress_made();
	}
}

bool
gpuvec_training_fold_in(gpuvec_training *training, const int *canceled, gpuvec_error *error)
{
	half_task	task = make_task(training, GPUVEC_ALS_USERS, canceled);

	task.exact = gpuvec_als_new(&training->memory, gpuvec_thread_pool_threads(training->pool),
								gpuvec_exact_scratch(training->options.factors) * sizeof(double),
								error);
	if (task.exact == NULL)
		return false;
	make_gram(training, GPUVEC_ALS_ITEMS);
	gpuvec_thread_pool_run(training->pool, exact_part, &task, count_parts(task.half.matrix));
	gpuvec_als_free(&training->memory, task.exact);
	return true;
}

void
gpuvec_training_copy(const gpuvec_training *training, gpuvec_als_side side, uint32_t first,
					 uint32_t n, float *out)
{
	for (uint32_t i = 0; i < n; i++)
		memcpy(out + (size_t) i * training->options.factors,
			   training->factors[side] + (size_t) (first + i) * training->stride,
			   training->options.factors * sizeof(float));
}
