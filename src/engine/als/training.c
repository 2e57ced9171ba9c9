/*-------------------------------------------------------------------------
 *
 * training.c
 *	  A training: the interactions, the factors of both sides, iterations.
 *
 * An iteration solves for all users and then for all items, and measures the
 * loss.  A solver does it (als_backend.h).
 *
 * The factors here are those that users of a training set and copy.  A GPU
 * has its own; each side is copied when it is needed on the other one.
 *
 * A GPU trains if it has room, for which mirrors that nobody uses are
 * evicted.  If it has not, threads of the CPU train.  Folding in is always
 * for them.
 *
 * A training has a pool of its own: it would keep the engine's from searches
 * for as long as half an iteration takes.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/als/als_math.h"
#include "engine/als/cpu_solver.h"
#include "engine/als/interactions.h"
#include "engine/als/training.h"
#include "engine/log.h"
#include "engine/store/store.h"

/* Rows for which one slice computes initial factors */
#define INITIAL_ROWS	1024

struct gpuvec_training
{
	gpuvec_als_memory memory;
	gpuvec_training_options options;
	gpuvec_thread_pool *pool;
	gpuvec_interactions in;
	gpuvec_side_rows rows[2];	/* of gpuvec_als_side */
	gpuvec_als_problem problem; /* with the factors, on the host */
	uint32_t	known_capacity; /* items that there is room for, while those
								 * for fold_in come */
	gpuvec_als_solver *solver;	/* NULL until prepared */
	gpuvec_device *device;		/* charged for the solver, or NULL */
	size_t		device_bytes;	/* that is charged */
	bool		old[2];			/* the solver has newer factors */
	bool		set[2];			/* the solver does not know these yet */
	double		confidence;		/* sum of c over all pairs */
	gpuvec_training_times times;	/* of the last iteration */
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
	training->memory = (gpuvec_als_memory)
	{
		store, gpuvec_store_reserve, gpuvec_store_unreserve
	};
	training->options = *options;
	training->problem.nfactors = options->factors;
	training->problem.stride = (options->factors + GPUVEC_ALS_LANES - 1) / GPUVEC_ALS_LANES * GPUVEC_ALS_LANES;
	training->problem.cg_steps = options->cg_steps;
	training->problem.regularization = options->regularization;
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
	training->problem.pool = training->pool;
	training->problem.memory = &training->memory;
	return training;
}

/* Free the solver and what it is charged */
static void
close_solver(gpuvec_training *training)
{
	if (training->solver)
		training->solver->close(training->solver);
	training->solver = NULL;
	if (training->device)
		gpuvec_store_repay(training->memory.store, training->device, training->device_bytes);
	training->device = NULL;
}

void
gpuvec_training_free(gpuvec_training *training)
{
	gpuvec_als_memory *memory = &training->memory;

	close_solver(training);
	if (training->pool)
		gpuvec_thread_pool_free(training->pool);
	gpuvec_interactions_free(&training->in);
	for (int side = 0; side < 2; side++)
	{
		gpuvec_side_rows_free(memory, &training->rows[side]);
		gpuvec_als_free(memory, training->problem.factors[side]);
	}
	free(training);
}

bool
gpuvec_training_add(gpuvec_training *training, uint64_t n, const int64_t *users,
					const int64_t *items, const float *weights, gpuvec_error *error)
{
	return gpuvec_interactions_add(&training->in, training->pool, n, users, items, weights, error);
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
initial_slice(void *arg, uint64_t slice, int thread)
{
	initial_task *task = arg;
	const gpuvec_training *training = task->training;
	const gpuvec_side_rows *rows = &training->rows[task->side];
	uint64_t	end = (slice + 1) * INITIAL_ROWS;

	(void) thread;
	for (uint64_t row = slice * INITIAL_ROWS; row < end && row < rows->n; row++)
	{
		float	   *factor = training->problem.factors[task->side] + row * training->problem.stride;

		for (uint32_t i = 0; i < training->options.factors; i++)
			factor[i] = gpuvec_als_initial(training->options.seed, task->side, rows->keys[row], i,
										   training->options.factors);
		for (uint32_t i = training->options.factors; i < training->problem.stride; i++)
			factor[i] = 0;
	}
}

static bool
new_factors(gpuvec_training *training, gpuvec_als_side side, gpuvec_error *error)
{
	uint32_t	n = training->rows[side].n;
	initial_task task = {training, side};

	training->problem.factors[side] = gpuvec_als_new(&training->memory, (uint64_t) n * training->problem.stride,
													 sizeof(float), error);
	if (training->problem.factors[side] == NULL)
		return false;
	gpuvec_thread_pool_run(training->pool, initial_slice, &task,
						   ((uint64_t) n + INITIAL_ROWS - 1) / INITIAL_ROWS);
	return true;
}

static void
set_factor(gpuvec_training *training, gpuvec_als_side side, uint32_t row, const float *elements)
{
	memcpy(training->problem.factors[side] + (size_t) row * training->problem.stride, elements,
		   training->options.factors * sizeof(float));
}

/* Make room for twice as many items that come for fold_in */
static bool
grow_known(gpuvec_training *training, gpuvec_error *error)
{
	uint32_t	n = training->in.numbers[GPUVEC_ALS_ITEMS].n;
	uint32_t	capacity = training->known_capacity ? training->known_capacity * 2 : INITIAL_ROWS;
	size_t		bytes = training->problem.stride * sizeof(float);
	float	   *more = gpuvec_als_new(&training->memory, capacity, bytes, error);

	if (more == NULL)
		return false;
	if (n > 0)
		memcpy(more, training->problem.factors[GPUVEC_ALS_ITEMS], n * bytes);
	gpuvec_als_free(&training->memory, training->problem.factors[GPUVEC_ALS_ITEMS]);
	training->problem.factors[GPUVEC_ALS_ITEMS] = more;
	training->known_capacity = capacity;
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
	if (number == training->known_capacity && !grow_known(training, error))
		return false;
	if (gpuvec_key_number_add(numbers, key, error) == GPUVEC_NO_NUMBER)
		return false;
	memset(training->problem.factors[GPUVEC_ALS_ITEMS] + (size_t) number * training->problem.stride, 0,
		   training->problem.stride * sizeof(float));
	set_factor(training, GPUVEC_ALS_ITEMS, number, elements);
	return true;
}

/* Bring the factors of a side up to date */
static bool
get_factors(gpuvec_training *training, gpuvec_als_side side, gpuvec_error *error)
{
	if (training->old[side] && !training->solver->get(training->solver, side, error))
		return false;
	training->old[side] = false;
	return true;
}

bool
gpuvec_training_set(gpuvec_training *training, gpuvec_als_side side, uint64_t n,
					const int64_t *keys, const float *elements, gpuvec_error *error)
{
	if (!get_factors(training, side, error))
		return false;
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
	training->set[side] = true;
	return true;
}

/* ---- preparing ---- */

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

/* What is to train: a GPU that is charged for it, or the CPU */
static gpuvec_trainer *
choose_trainer(gpuvec_training *training)
{
	gpuvec_store *store = training->memory.store;
	gpuvec_trainer *trainer = store ? store->devices[0].backend->trainer : &gpuvec_cpu_trainer;

	training->device_bytes = trainer->bytes(trainer, &training->problem);
	if (training->device_bytes == 0)
		return trainer;
	training->device = gpuvec_store_borrow(store, training->device_bytes);
	if (training->device)
		return training->device->backend->trainer;
	gpuvec_log("LOG", "training on the CPU: no GPU has room for %zu kB",
			   training->device_bytes / 1024);
	return &gpuvec_cpu_trainer;
}

/*
 * Make the solver: of what the options name, or of a GPU that has room, or of
 * the CPU
 */
static bool
new_solver(gpuvec_training *training, gpuvec_error *error)
{
	gpuvec_trainer *trainer = training->options.fold_in ? &gpuvec_cpu_trainer :
		training->options.trainer ? training->options.trainer : choose_trainer(training);

	training->solver = trainer->solver(trainer, &training->problem, error);
	if (training->solver)
		return true;
	if (training->device == NULL || strcmp(error->sqlstate, GPUVEC_OUT_OF_MEMORY) != 0)
		return false;
	gpuvec_log("LOG", "training on the CPU: %s", error->message);
	close_solver(training);
	training->solver = gpuvec_cpu_trainer.solver(&gpuvec_cpu_trainer, &training->problem, error);
	return training->solver != NULL;
}

bool
gpuvec_training_prepare(gpuvec_training *training, const int *canceled, gpuvec_error *error)
{
	if (!gpuvec_interactions_sort(&training->in, training->pool, training->options.alpha,
								  canceled, training->rows, error))
		return false;
	for (int side = 0; side < 2; side++)
		training->problem.matrices[side] = &training->rows[side].matrix;
	if (!new_factors(training, GPUVEC_ALS_USERS, error) ||
		(!training->options.fold_in && !new_factors(training, GPUVEC_ALS_ITEMS, error)) ||
		!new_solver(training, error))
		return false;
	if (gpuvec_als_canceled(canceled))
		return gpuvec_als_fail_canceled(error);
	training->confidence = sum_confidence(training);
	return true;
}

/* ---- iterations ---- */

/* Give the solver the factors that were set */
static bool
put_factors(gpuvec_training *training, gpuvec_error *error)
{
	for (int side = 0; side < 2; side++)
		if (training->set[side])
		{
			if (!training->solver->put(training->solver, (gpuvec_als_side) side, error))
				return false;
			training->set[side] = false;
		}
	return true;
}

/* Seconds since *last, which becomes the present time */
static double
lap(uint64_t *last)
{
	uint64_t	now = gpuvec_clock_ns();
	double		seconds = (double) (now - *last) / 1e9;

	*last = now;
	return seconds;
}

/* Solve for a side, unless it is canceled */
static bool
solve_side(gpuvec_training *training, gpuvec_als_side side, const int *canceled,
		   gpuvec_error *error)
{
	gpuvec_progress_made();
	training->old[side] = true;
	return gpuvec_als_canceled(canceled) ||
		training->solver->solve(training->solver, side, canceled, error);
}

/* Solve for both sides, and measure the loss; keeps the times */
static bool
run_iteration(gpuvec_training *training, const int *canceled, double *loss, gpuvec_error *error)
{
	gpuvec_training_times *times = &training->times;
	uint64_t	last = gpuvec_clock_ns();

	if (!solve_side(training, GPUVEC_ALS_USERS, canceled, error))
		return false;
	times->users = lap(&last);
	if (!solve_side(training, GPUVEC_ALS_ITEMS, canceled, error))
		return false;
	times->items = lap(&last);
	if (!gpuvec_als_canceled(canceled) && !training->solver->loss(training->solver, canceled, loss, error))
		return false;
	times->loss = lap(&last);
	return true;
}

/*
 * The loss of a sum over all pairs.  A solver makes this sum of squares from
 * sums that nearly cancel where the factors fit the pairs, as those of ones
 * alone do.  What is left there are roundings, of either sign.
 */
static double
loss_of_sum(const gpuvec_training *training, double sum)
{
	return (sum < 0 ? 0 : sum) / training->confidence;
}

bool
gpuvec_training_iterate(gpuvec_training *training, const int *canceled, double *loss,
						gpuvec_error *error)
{
	*loss = NAN;
	if (!put_factors(training, error) || !run_iteration(training, canceled, loss, error))
		return false;
	*loss = loss_of_sum(training, *loss);
	if (isfinite(*loss) || gpuvec_als_canceled(canceled))
		return true;
	return gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, "The loss is not a finite number any more.",
					   "Try a larger regularization, or a smaller alpha.",
					   "training does not converge");
}

gpuvec_training_times
gpuvec_training_last_times(const gpuvec_training *training)
{
	return training->times;
}

bool
gpuvec_training_fold_in(gpuvec_training *training, const int *canceled, gpuvec_error *error)
{
	return training->solver->exact(training->solver, GPUVEC_ALS_USERS, canceled, error);
}

bool
gpuvec_training_copy(gpuvec_training *training, gpuvec_als_side side, uint32_t first, uint32_t n,
					 float *out, gpuvec_error *error)
{
	if (!get_factors(training, side, error))
		return false;
	for (uint32_t i = 0; i < n; i++)
		memcpy(out + (size_t) i * training->options.factors,
			   training->problem.factors[side] + (size_t) (first + i) * training->problem.stride,
			   training->options.factors * sizeof(float));
	return true;
}
