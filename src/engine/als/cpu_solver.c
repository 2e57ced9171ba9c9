/*-------------------------------------------------------------------------
 *
 * cpu_solver.c
 *	  Iterations of a training on threads of the CPU.
 *
 * Threads take slices of about SLICE_ENTRIES entries.  Rows are independent of
 * each other, so the result does not depend on who solves them.
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
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/als/als_math.h"
#include "engine/als/als_memory.h"
#include "engine/als/cpu_solver.h"
#include "engine/als/exact.h"

#define SLICE_ENTRIES	16384
#define CHUNK_ROWS		2048
#define ROUND_BYTES		((size_t) 32 * 1024 * 1024)

/* Rows after which the engine's progress is reported: some slices take long */
#define REPORT_ROWS		64

typedef struct cpu_solver
{
	gpuvec_als_solver base;
	const gpuvec_als_problem *problem;
	gpuvec_als_memory *memory;
	gpuvec_thread_pool *pool;
	const gpuvec_als_math *math;
	float	   *gram;			/* [stride * stride], + regularization I */
	double	   *sum;			/* [stride * stride]: without it */
	float	   *chunks;			/* [round * stride * stride] */
	uint32_t	round;			/* chunks of a round */
	bool		gram_of_items;	/* gram is that of the items' factors */
	float	   *scratch;		/* for each thread GPUVEC_ALS_SCRATCH vectors */
	double	   *losses;			/* [slices of users] */
} cpu_solver;

/* Number of slices of the rows of a matrix */
static uint64_t
count_slices(const gpuvec_als_matrix *matrix)
{
	return matrix->starts[matrix->nrows] / SLICE_ENTRIES + 1;
}

/* ---- the Gram matrix ---- */

typedef struct gram_task
{
	cpu_solver *solver;
	const float *factors;
	uint32_t	n;				/* rows */
	uint32_t	first;			/* the round's first chunk */
} gram_task;

static void
gram_slice(void *arg, uint64_t slice, int thread)
{
	gram_task  *task = arg;
	cpu_solver *solver = task->solver;
	uint32_t	stride = solver->problem->stride;
	uint64_t	first = (task->first + slice) * CHUNK_ROWS;
	uint64_t	n = task->n - first < CHUNK_ROWS ? task->n - first : CHUNK_ROWS;

	(void) thread;
	solver->math->gram(task->factors + first * stride, (uint32_t) n, stride,
					   solver->chunks + slice * stride * stride);
}

/* Make the rest of the Gram matrix from what gram() has computed */
static void
finish_gram(cpu_solver *solver)
{
	uint32_t	stride = solver->problem->stride;

	for (uint32_t i = 0; i < stride; i++)
		for (uint32_t j = i; j < stride; j++)
		{
			double		sum = solver->sum[(size_t) i * stride + j];

			/* so that the padding stays zero */
			if (i == j && i < solver->problem->nfactors)
				sum += solver->problem->regularization;
			solver->gram[(size_t) i * stride + j] = (float) sum;
			solver->gram[(size_t) j * stride + i] = (float) sum;
		}
}

/* Add a chunk to the sum, as far as gram() computes it */
static void
add_chunk(cpu_solver *solver, uint32_t chunk)
{
	uint32_t	stride = solver->problem->stride;
	const float *from = solver->chunks + (size_t) chunk * stride * stride;

	for (uint32_t i = 0; i < stride; i++)
		for (uint32_t j = i / GPUVEC_ALS_LANES * GPUVEC_ALS_LANES; j < stride; j++)
			solver->sum[(size_t) i * stride + j] += from[(size_t) i * stride + j];
}

/* The Gram matrix of a side's factors */
static void
make_gram(cpu_solver *solver, gpuvec_als_side side)
{
	gram_task	task = {solver, solver->problem->factors[side], solver->problem->matrices[side]->nrows, 0};
	uint64_t	square = (uint64_t) solver->problem->stride * solver->problem->stride;
	uint32_t	nchunks = (uint32_t) (((uint64_t) task.n + CHUNK_ROWS - 1) / CHUNK_ROWS);

	if (side == GPUVEC_ALS_ITEMS && solver->gram_of_items)
		return;
	memset(solver->sum, 0, square * sizeof(double));
	for (; task.first < nchunks; task.first += solver->round)
	{
		uint32_t	n = nchunks - task.first < solver->round ? nchunks - task.first : solver->round;

		gpuvec_thread_pool_run(solver->pool, gram_slice, &task, n);
		for (uint32_t chunk = 0; chunk < n; chunk++)
			add_chunk(solver, chunk);
	}
	finish_gram(solver);
	solver->gram_of_items = side == GPUVEC_ALS_ITEMS;
}

/* The sum of x.x over the rows whose Gram matrix was made last */
static double
trace(const cpu_solver *solver)
{
	double		sum = 0;

	for (uint32_t i = 0; i < solver->problem->nfactors; i++)
		sum += solver->sum[(size_t) i * solver->problem->stride + i];
	return sum;
}

/* ---- iterations ---- */

typedef struct half_task
{
	cpu_solver *solver;
	gpuvec_als_half half;
	const int  *canceled;
	double	   *exact;			/* for each thread, for exact solutions */
} half_task;

static half_task
make_task(cpu_solver *solver, gpuvec_als_side side, const int *canceled)
{
	half_task	task = {.solver = solver, .canceled = canceled};

	task.half.matrix = solver->problem->matrices[side];
	task.half.fixed = solver->problem->factors[!side];
	task.half.solved = solver->problem->factors[side];
	task.half.gram = solver->gram;
	task.half.stride = solver->problem->stride;
	task.half.cg_steps = solver->problem->cg_steps;
	return task;
}

static bool
is_canceled(const half_task *task)
{
	return gpuvec_als_canceled(task->canceled);
}

/* True if the next row may be done: reports progress, heeds cancellation */
static bool
go_on(const half_task *task, uint32_t row)
{
	if (row % REPORT_ROWS == 0)
		gpuvec_progress_made();
	return !is_canceled(task);
}

/* The rows of a slice: from the result to *end */
static uint32_t
slice_rows(const half_task *task, uint64_t slice, uint32_t *end)
{
	*end = gpuvec_als_first_row(task->half.matrix, (slice + 1) * SLICE_ENTRIES);
	return gpuvec_als_first_row(task->half.matrix, slice * SLICE_ENTRIES);
}

static float *
thread_scratch(const half_task *task, int thread)
{
	return task->solver->scratch + (size_t) thread * GPUVEC_ALS_SCRATCH * task->half.stride;
}

static void
solve_slice(void *arg, uint64_t slice, int thread)
{
	half_task  *task = arg;
	uint32_t	end;

	for (uint32_t row = slice_rows(task, slice, &end); row < end && go_on(task, row); row++)
		task->solver->math->solve(&task->half, row, thread_scratch(task, thread));
}

static void
loss_slice(void *arg, uint64_t slice, int thread)
{
	half_task  *task = arg;
	double		sum = 0;
	uint32_t	end;

	for (uint32_t row = slice_rows(task, slice, &end); row < end && go_on(task, row); row++)
		sum += task->solver->math->loss(&task->half, row, thread_scratch(task, thread));
	task->solver->losses[slice] = sum;
}

static bool
cpu_solve(gpuvec_als_solver *base, gpuvec_als_side side, const int *canceled, gpuvec_error *error)
{
	cpu_solver *solver = (cpu_solver *) base;
	half_task	task = make_task(solver, side, canceled);

	(void) error;
	make_gram(solver, !side);
	gpuvec_thread_pool_run(solver->pool, solve_slice, &task, count_slices(task.half.matrix));
	if (side == GPUVEC_ALS_ITEMS)
		solver->gram_of_items = false;
	return true;
}

static bool
cpu_loss(gpuvec_als_solver *base, const int *canceled, double *loss, gpuvec_error *error)
{
	cpu_solver *solver = (cpu_solver *) base;
	half_task	task = make_task(solver, GPUVEC_ALS_USERS, canceled);
	uint64_t	nslices = count_slices(task.half.matrix);

	(void) error;
	make_gram(solver, GPUVEC_ALS_ITEMS);
	gpuvec_thread_pool_run(solver->pool, loss_slice, &task, nslices);
	*loss = solver->problem->regularization * trace(solver);
	for (uint64_t i = 0; i < nslices; i++)
		*loss += solver->losses[i];
	return true;
}

/* ---- exact solutions ---- */

static void
exact_slice(void *arg, uint64_t slice, int thread)
{
	half_task  *task = arg;
	cpu_solver *solver = task->solver;
	uint32_t	factors = solver->problem->nfactors;
	double	   *scratch = task->exact + thread * gpuvec_exact_scratch(factors);
	uint32_t	end;

	for (uint32_t row = slice_rows(task, slice, &end); row < end && go_on(task, row); row++)
	{
		gpuvec_solve_exactly(&task->half, solver->sum, solver->problem->regularization, factors,
							 row, scratch);
		gpuvec_progress_made();
	}
}

static bool
cpu_exact(gpuvec_als_solver *base, gpuvec_als_side side, const int *canceled, gpuvec_error *error)
{
	cpu_solver *solver = (cpu_solver *) base;
	half_task	task = make_task(solver, side, canceled);

	task.exact = gpuvec_als_new(solver->memory, gpuvec_thread_pool_threads(solver->pool),
								gpuvec_exact_scratch(solver->problem->nfactors) * sizeof(double),
								error);
	if (task.exact == NULL)
		return false;
	make_gram(solver, !side);
	gpuvec_thread_pool_run(solver->pool, exact_slice, &task, count_slices(task.half.matrix));
	gpuvec_als_free(solver->memory, task.exact);
	if (side == GPUVEC_ALS_ITEMS)
		solver->gram_of_items = false;
	return true;
}

/* ---- the solver ---- */

/* Memory that iterations need */
static bool
new_work(cpu_solver *solver, gpuvec_error *error)
{
	gpuvec_als_memory *memory = solver->memory;
	const gpuvec_als_problem *problem = solver->problem;
	uint64_t	square = (uint64_t) problem->stride * problem->stride;
	int			threads = gpuvec_thread_pool_threads(solver->pool);

	solver->round = (uint32_t) (ROUND_BYTES / (square * sizeof(float)));
	if (solver->round > 64)
		solver->round = 64;
	solver->gram = gpuvec_als_new(memory, square, sizeof(float), error);
	if (solver->gram)
		solver->sum = gpuvec_als_new(memory, square, sizeof(double), error);
	if (solver->sum)
		solver->chunks = gpuvec_als_new(memory, square * solver->round, sizeof(float), error);
	if (solver->chunks)
		solver->scratch = gpuvec_als_new(memory, (uint64_t) threads * GPUVEC_ALS_SCRATCH,
										 problem->stride * sizeof(float), error);
	if (solver->scratch)
		solver->losses = gpuvec_als_new(memory, count_slices(problem->matrices[GPUVEC_ALS_USERS]),
										sizeof(double), error);
	return solver->losses != NULL;
}

static void
cpu_close(gpuvec_als_solver *base)
{
	cpu_solver *solver = (cpu_solver *) base;

	gpuvec_als_free(solver->memory, solver->gram);
	gpuvec_als_free(solver->memory, solver->sum);
	gpuvec_als_free(solver->memory, solver->chunks);
	gpuvec_als_free(solver->memory, solver->scratch);
	gpuvec_als_free(solver->memory, solver->losses);
	free(solver);
}

static bool
cpu_put(gpuvec_als_solver *base, gpuvec_als_side side, gpuvec_error *error)
{
	(void) error;
	if (side == GPUVEC_ALS_ITEMS)
		((cpu_solver *) base)->gram_of_items = false;
	return true;
}

/* It works on the problem's factors themselves */
static bool
cpu_get(gpuvec_als_solver *base, gpuvec_als_side side, gpuvec_error *error)
{
	(void) base;
	(void) side;
	(void) error;
	return true;
}

static gpuvec_als_solver *
trainer_solver(gpuvec_trainer *trainer, const gpuvec_als_problem *problem, gpuvec_error *error)
{
	static const gpuvec_als_solver functions = {
		cpu_close, cpu_put, cpu_get, cpu_solve, cpu_loss, cpu_exact
	};
	cpu_solver *solver = calloc(1, sizeof(*solver));

	if (solver == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*solver));
		return NULL;
	}
	solver->base = functions;
	solver->memory = problem->memory;
	solver->pool = problem->pool;
	solver->problem = problem;
	solver->math = gpuvec_als_best_math();
	if (!new_work(solver, error))
	{
		cpu_close(&solver->base);
		return NULL;
	}
	return &solver->base;
}

static size_t
trainer_bytes(gpuvec_trainer *trainer, const gpuvec_als_problem *problem)
{
	return 0;
}

static void
trainer_close(gpuvec_trainer *trainer)
{
}

gpuvec_trainer gpuvec_cpu_trainer = {trainer_close, trainer_bytes, trainer_solver};
