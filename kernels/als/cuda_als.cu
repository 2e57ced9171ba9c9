/*-------------------------------------------------------------------------
 *
 * cuda_als.cu
 *	  Training on a GPU: memory, and the order of kernels.
 *
 * All rows of a side take each step of conjugate gradient together.  Half an
 * iteration is
 *
 *		the Gram matrix of the other side, G
 *		begin:	q = X G; sums over pairs with x; r = p = b - A x
 *		step:	q = P G; sums over pairs with p; x, r and p of the next step
 *
 * The sums over pairs are nearly all of the work.  Those of the beginning
 * need x.y of all pairs, and so does the loss.  So the loss after an
 * iteration is measured by the beginning of the next one, which the next call
 * then finds done.
 *
 * A solver has one allocation on the device, and a stream.  Steps are queued
 * without waiting, as many as take some tenths of a second, and then waited
 * for.  Between such rounds of steps the training can be canceled, and the
 * engine sees that it gets on.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdio.h>
#include <vector>

#include "engine/thread_pool.h"
#include "kernels/als/als_kernels.h"
#include "kernels/als/cuda_als.h"
#include "kernels/device/arena.h"

namespace gpuvec
{

static const char *const training = "train on the GPU";

struct cuda_trainer : gpuvec_trainer
{
	struct cuda_device &device;
	struct training_policy policy;

	cuda_trainer(struct cuda_device &d, const struct training_policy &p)
		: gpuvec_trainer(), device(d), policy(p)
	{
	}
};

/* All arrays of a solver on the device */
struct solver_memory
{
	struct als_side_rows sides[2];
	struct als_vectors v;
	float *chunks;
	double *partials;
	double *loss;
};

struct cuda_solver : gpuvec_als_solver
{
	struct cuda_device &device;
	const struct training_policy policy;
	const gpuvec_als_problem *problem;
	const uint32_t stride;
	unique_stream stream;
	unique_memory memory;
	unique_pinned loss_value; /* a double */
	struct solver_memory m = {};
	bool grams[2] = {}; /* gram and sum of a side are those of its factors */
	bool begun = false; /* conjugate gradient of the users has begun */

	cuda_solver(struct cuda_trainer &trainer, const gpuvec_als_problem *p)
		: gpuvec_als_solver(), device(trainer.device), policy(trainer.policy), problem(p),
		  stride(als_stride(p->nfactors))
	{
	}
};

uint32_t
als_stride(uint32_t nfactors)
{
	static const uint32_t strides[] = {16, 32, 64, 128, 256, 384, 512, 768};

	for (uint32_t stride : strides)
		if (nfactors <= stride)
			return stride;
	return GPUVEC_ALS_MAX_FACTORS;
}

/* ---- memory ---- */

/* Pieces of a row of n entries */
static uint64_t
row_pieces(uint64_t n, uint32_t piece_pairs)
{
	return divide_up(n, piece_pairs);
}

static uint64_t
count_pieces(const gpuvec_als_matrix *matrix, uint32_t piece_pairs)
{
	uint64_t n = 0;

	for (uint32_t row = 0; row < matrix->nrows; row++)
		n += row_pieces(matrix->starts[row + 1] - matrix->starts[row], piece_pairs);
	return n;
}

static void
take_side(struct arena &arena, struct als_side_rows &side, const gpuvec_als_matrix *matrix,
		  uint64_t npieces, uint32_t stride)
{
	uint64_t square = (uint64_t) stride * stride;

	side.nrows = matrix->nrows;
	side.npieces = (uint32_t) npieces;
	side.nentries = matrix->starts[matrix->nrows];
	side.pieces = arena.take<struct als_piece>(npieces);
	side.first_pieces = arena.take<uint32_t>((uint64_t) matrix->nrows + 1);
	side.entries = arena.take<gpuvec_als_entry>(side.nentries);
	side.factors = arena.take<float>(matrix->nrows * (uint64_t) stride);
	side.gram = arena.take<float>(square);
	side.sum = arena.take<double>(square);
}

/* Cut an allocation, or only add up how many bytes it takes */
static struct solver_memory
take_memory(struct arena &arena, const gpuvec_als_problem *problem,
			const struct training_policy &policy)
{
	struct solver_memory m = {};
	uint32_t stride = als_stride(problem->nfactors);
	uint64_t rows = 0;
	uint64_t pieces = 0;

	for (int side = 0; side < 2; side++)
	{
		const gpuvec_als_matrix *matrix = problem->matrices[side];
		uint64_t npieces = count_pieces(matrix, policy.piece_pairs);

		take_side(arena, m.sides[side], matrix, npieces, stride);
		rows = std::max(rows, (uint64_t) matrix->nrows);
		pieces = std::max(pieces, npieces);
	}
	m.v.r = arena.take<float>(rows * stride);
	m.v.p = arena.take<float>(rows * stride);
	m.v.q = arena.take<float>(rows * stride);
	m.v.sums = arena.take<float>(pieces * stride);
	m.v.rights = arena.take<float>(pieces * stride);
	m.v.losses = arena.take<double>(pieces);
	m.v.squares = arena.take<float>(rows);
	m.v.least = arena.take<float>(rows);
	m.v.done = arena.take<uint32_t>(rows);
	m.chunks = arena.take<float>(als_gram_scratch(stride));
	m.partials = arena.take<double>(LOSS_BLOCKS);
	m.loss = arena.take<double>(1);
	return m;
}

static size_t
trainer_bytes(gpuvec_trainer *trainer, const gpuvec_als_problem *problem)
{
	struct arena arena = {NULL, 0};

	take_memory(arena, problem, static_cast<struct cuda_trainer *>(trainer)->policy);
	return arena.used;
}

/* ---- the matrices ---- */

/* Cut the rows of a matrix into pieces */
static void
cut_rows(const gpuvec_als_matrix *matrix, uint32_t piece_pairs,
		 std::vector<struct als_piece> &pieces, std::vector<uint32_t> &first_pieces)
{
	for (uint32_t row = 0; row < matrix->nrows; row++)
	{
		uint64_t end = matrix->starts[row + 1];

		first_pieces.push_back((uint32_t) pieces.size());
		for (uint64_t first = matrix->starts[row]; first < end; first += piece_pairs)
			pieces.push_back(
				{first, row, (uint32_t) std::min(end - first, (uint64_t) piece_pairs)});
	}
	first_pieces.push_back((uint32_t) pieces.size());
}

static cudaError_t
copy_to_device(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
	return bytes ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream) : cudaSuccess;
}

/* Copy the matrix of a side to the device */
static bool
put_matrix(struct cuda_solver &s, int side, gpuvec_error *error)
try
{
	const gpuvec_als_matrix *matrix = s.problem->matrices[side];
	const struct als_side_rows &to = s.m.sides[side];
	cudaStream_t stream = s.stream.get();
	std::vector<struct als_piece> pieces;
	std::vector<uint32_t> first_pieces;
	cudaError_t rc;

	pieces.reserve(to.npieces);
	first_pieces.reserve((size_t) to.nrows + 1);
	cut_rows(matrix, s.policy.piece_pairs, pieces, first_pieces);
	rc = copy_to_device(to.pieces, pieces.data(), pieces.size() * sizeof(pieces[0]), stream);
	if (rc == cudaSuccess)
		rc = copy_to_device(to.first_pieces, first_pieces.data(),
							first_pieces.size() * sizeof(uint32_t), stream);
	if (rc == cudaSuccess)
		rc = copy_to_device(to.entries, matrix->entries, to.nentries * sizeof(*matrix->entries),
							stream);
	/* the vectors go */
	if (rc == cudaSuccess)
		rc = cudaStreamSynchronize(stream);
	return s.device.check(rc, "copy interactions to the GPU", error);
}
catch (const std::bad_alloc &)
{
	return gpuvec_fail_memory(error, s.m.sides[side].npieces * sizeof(struct als_piece));
}

/* ---- factors ---- */

static bool
solver_put(gpuvec_als_solver *solver, gpuvec_als_side side, gpuvec_error *error)
{
	struct cuda_solver &s = *static_cast<struct cuda_solver *>(solver);
	const struct als_side_rows &to = s.m.sides[side];
	const gpuvec_als_problem *problem = s.problem;
	cudaStream_t stream = s.stream.get();
	size_t width = std::min(problem->stride, s.stride) * sizeof(float);
	cudaError_t rc = cudaSuccess;

	s.grams[side] = false;
	s.begun = false;
	if (!s.device.enter(error))
		return false;
	if (to.nrows > 0)
		rc = cudaMemsetAsync(to.factors, 0, (size_t) to.nrows * s.stride * sizeof(float), stream);
	if (to.nrows > 0 && rc == cudaSuccess)
		rc = cudaMemcpy2DAsync(to.factors, s.stride * sizeof(float), problem->factors[side],
							   problem->stride * sizeof(float), width, to.nrows,
							   cudaMemcpyHostToDevice, stream);
	if (rc == cudaSuccess)
		rc = cudaStreamSynchronize(stream);
	return s.device.check(rc, "copy factors to the GPU", error);
}

static bool
solver_get(gpuvec_als_solver *solver, gpuvec_als_side side, gpuvec_error *error)
{
	struct cuda_solver &s = *static_cast<struct cuda_solver *>(solver);
	const struct als_side_rows &from = s.m.sides[side];
	const gpuvec_als_problem *problem = s.problem;
	size_t width = std::min(problem->stride, s.stride) * sizeof(float);
	cudaError_t rc = cudaSuccess;

	if (!s.device.enter(error))
		return false;
	if (from.nrows > 0)
		rc = cudaMemcpy2DAsync(problem->factors[side], problem->stride * sizeof(float),
							   from.factors, s.stride * sizeof(float), width, from.nrows,
							   cudaMemcpyDeviceToHost, s.stream.get());
	if (rc == cudaSuccess)
		rc = cudaStreamSynchronize(s.stream.get());
	return s.device.check(rc, "copy factors from the GPU", error);
}

/* ---- iterations ---- */

/* Queue the Gram matrix of a side, unless there is one of its factors */
static cudaError_t
queue_gram(struct cuda_solver &s, int side)
{
	if (s.grams[side])
		return cudaSuccess;
	s.grams[side] = true;
	return als_gram_launch(s.m.sides[side], s.m.chunks, s.problem->nfactors,
						   s.problem->regularization, s.stride, s.stream.get());
}

/* Queue the beginning of conjugate gradient for a side */
static cudaError_t
queue_begin(struct cuda_solver &s, int side)
{
	const struct als_side_rows &rows = s.m.sides[side];
	const struct als_side_rows &fixed = s.m.sides[!side];
	cudaStream_t stream = s.stream.get();
	cudaError_t rc = queue_gram(s, !side);

	if (rc == cudaSuccess)
		rc = als_apply_launch(rows.factors, fixed.gram, s.m.v.q, rows.nrows, s.stride, stream);
	if (rc == cudaSuccess)
		rc = als_residual_launch(rows, fixed.factors, s.m.v, s.stride, stream);
	if (rc == cudaSuccess)
		rc = als_begin_launch(rows, s.m.v, s.stride, stream);
	return rc;
}

static cudaError_t
queue_step(struct cuda_solver &s, int side)
{
	const struct als_side_rows &rows = s.m.sides[side];
	const struct als_side_rows &fixed = s.m.sides[!side];
	cudaStream_t stream = s.stream.get();
	cudaError_t rc = als_apply_launch(s.m.v.p, fixed.gram, s.m.v.q, rows.nrows, s.stride, stream);

	if (rc == cudaSuccess)
		rc = als_pairs_launch(rows, fixed.factors, s.m.v, s.stride, stream);
	return rc == cudaSuccess ? als_step_launch(rows, s.m.v, s.stride, stream) : rc;
}

/* A product with the Gram matrix reads shared memory, so much faster */
#define PRODUCTS_PER_FLOAT 16

/* Steps that are queued for a side before they are waited for */
static uint32_t
steps_of_round(const struct cuda_solver &s, int side)
{
	const struct als_side_rows &rows = s.m.sides[side];
	uint64_t vectors = rows.nentries + (uint64_t) rows.nrows * s.stride / PRODUCTS_PER_FLOAT;
	uint64_t steps = s.policy.look_floats / (vectors * s.stride + 1);

	return (uint32_t) std::min(std::max(steps, (uint64_t) 1), (uint64_t) s.problem->cg_steps);
}

/* Queue up to n steps, and wait for all that is queued */
static cudaError_t
run_steps(struct cuda_solver &s, int side, uint32_t n)
{
	cudaError_t rc = cudaSuccess;

	for (uint32_t step = 0; rc == cudaSuccess && step < n; step++)
		rc = queue_step(s, side);
	if (rc == cudaSuccess)
		rc = cudaStreamSynchronize(s.stream.get());
	gpuvec_progress_made();
	return rc;
}

/* All steps of a side, unless they are canceled */
static cudaError_t
run_rounds(struct cuda_solver &s, int side, const int *canceled)
{
	uint32_t left = s.problem->cg_steps;
	uint32_t round = steps_of_round(s, side);
	cudaError_t rc = cudaSuccess;

	while (rc == cudaSuccess && left > 0 &&
		   !(canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED)))
	{
		uint32_t n = std::min(round, left);

		rc = run_steps(s, side, n);
		left -= n;
	}
	return rc;
}

static bool
solver_solve(gpuvec_als_solver *solver, gpuvec_als_side side, const int *canceled,
			 gpuvec_error *error)
{
	struct cuda_solver &s = *static_cast<struct cuda_solver *>(solver);
	cudaError_t rc = cudaSuccess;

	if (!s.device.enter(error))
		return false;
	if (side != GPUVEC_ALS_USERS || !s.begun)
		rc = queue_begin(s, side);
	if (rc == cudaSuccess)
		rc = run_rounds(s, side, canceled);
	s.begun = false;
	s.grams[side] = false;
	return s.device.check(rc, training, error);
}

static bool
solver_loss(gpuvec_als_solver *solver, const int *canceled, double *loss, gpuvec_error *error)
{
	struct cuda_solver &s = *static_cast<struct cuda_solver *>(solver);
	cudaStream_t stream = s.stream.get();
	cudaError_t rc;

	(void) canceled;
	if (!s.device.enter(error))
		return false;
	rc = queue_gram(s, GPUVEC_ALS_USERS);
	if (rc == cudaSuccess)
		rc = queue_begin(s, GPUVEC_ALS_USERS);
	s.begun = rc == cudaSuccess;
	if (rc == cudaSuccess)
		rc = als_loss_launch(s.m.sides, s.m.v, s.m.partials, s.m.loss, s.problem->regularization,
							 s.stride, stream);
	if (rc == cudaSuccess)
		rc = cudaMemcpyAsync(s.loss_value.get(), s.m.loss, sizeof(double), cudaMemcpyDeviceToHost,
							 stream);
	if (rc == cudaSuccess)
		rc = cudaStreamSynchronize(stream);
	if (!s.device.check(rc, training, error))
		return false;
	*loss = *(double *) s.loss_value.get();
	return true;
}

/* ---- solvers ---- */

static void
solver_close(gpuvec_als_solver *solver)
{
	struct cuda_solver *s = static_cast<struct cuda_solver *>(solver);
	struct cuda_device &device = s->device;

	free_and_wait(device, s->memory);
	delete s;
	device.trim();
}

/* Allocate and fill the memory of a solver */
static bool
solver_prepare(struct cuda_solver &s, gpuvec_error *error)
{
	struct arena size = {NULL, 0};

	take_memory(size, s.problem, s.policy);
	if (!s.device.enter(error) || !create_patient_stream(s.device, s.stream, error) ||
		!create_pinned(s.device, s.loss_value, sizeof(double), error) ||
		!allocate(s.device, s.memory, size.used, s.stream.get(), "a training", error))
		return false;
	struct arena arena = {(char *) s.memory.get(), 0};
	s.m = take_memory(arena, s.problem, s.policy);
	return put_matrix(s, GPUVEC_ALS_USERS, error) && put_matrix(s, GPUVEC_ALS_ITEMS, error) &&
		   solver_put(&s, GPUVEC_ALS_USERS, error) && solver_put(&s, GPUVEC_ALS_ITEMS, error);
}

static gpuvec_als_solver *
trainer_solver(gpuvec_trainer *trainer, const gpuvec_als_problem *problem, gpuvec_error *error)
{
	struct cuda_trainer &t = *static_cast<struct cuda_trainer *>(trainer);
	struct cuda_solver *s = new (std::nothrow) cuda_solver(t, problem);

	if (s == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*s));
		return NULL;
	}
	s->close = solver_close;
	s->put = solver_put;
	s->get = solver_get;
	s->solve = solver_solve;
	s->loss = solver_loss;
	if (!solver_prepare(*s, error))
	{
		solver_close(s);
		return NULL;
	}
	return s;
}

/* ---- trainers ---- */

static void
trainer_close(gpuvec_trainer *trainer)
{
	delete static_cast<struct cuda_trainer *>(trainer);
}

gpuvec_trainer *
training_open(struct cuda_device &device, const struct training_policy &policy, gpuvec_error *error)
{
	struct cuda_trainer *trainer = new (std::nothrow) cuda_trainer(device, policy);

	if (trainer == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*trainer));
		return NULL;
	}
	trainer->close = trainer_close;
	trainer->bytes = trainer_bytes;
	trainer->solver = trainer_solver;
	return trainer;
}

void
training_policy_set(gpuvec_trainer *trainer, const struct training_policy &policy)
{
	static_cast<struct cuda_trainer *>(trainer)->policy = policy;
}

} // namespace gpuvec
