/*-------------------------------------------------------------------------
 *
 * als_backend.h
 *	  Interface to what trains factors: threads of the CPU (als/cpu_solver.c),
 *	  or a GPU (kernels/als/).
 *
 * A solver belongs to one training.  It works on the factors of both sides,
 * which it may keep in memory of its own: put and get copy them.  One thread
 * at a time uses a solver.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_BACKEND_H
#define GPUVEC_ALS_BACKEND_H

#include "core/als.h"
#include "engine/engine_error.h"
#include "engine/thread_pool.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* A pair, in a row of a matrix */
typedef struct gpuvec_als_entry
{
	uint32_t	other;			/* row number of the other side */
	float		confidence;		/* negative: a dislike */
} gpuvec_als_entry;

/* The pairs of each row, by ascending numbers of the other side */
typedef struct gpuvec_als_matrix
{
	uint32_t	nrows;
	uint64_t   *starts;			/* [nrows + 1]: where rows begin in entries */
	gpuvec_als_entry *entries;	/* [starts[nrows]] */
} gpuvec_als_matrix;

/* The first row that begins at an entry or behind it */
static inline uint32_t
gpuvec_als_first_row(const gpuvec_als_matrix *matrix, uint64_t entry)
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

/* True if a request was canceled; `canceled` may be NULL */
static inline bool
gpuvec_als_canceled(const int *canceled)
{
	return canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED);
}

/* engine/als/als_memory.h */
struct gpuvec_als_memory;

/*
 * What is to be solved.  Both arrays have an element for each
 * gpuvec_als_side.  All of it stays where it is while there is a solver.
 */
typedef struct gpuvec_als_problem
{
	const gpuvec_als_matrix *matrices[2];
	float	   *factors[2];		/* [rows * stride], padded with zeros */
	uint32_t	nfactors;		/* elements of a factor */
	uint32_t	stride;			/* floats from one factor to the next */
	uint32_t	cg_steps;
	double		regularization;
	gpuvec_thread_pool *pool;	/* of a solver on the host, and ... */
	struct gpuvec_als_memory *memory;	/* ... where it charges memory */
} gpuvec_als_problem;

typedef struct gpuvec_als_solver gpuvec_als_solver;

/*
 * Functions that return bool fill *error if they return false.  Where
 * `canceled` is not NULL and becomes nonzero (it is read atomically), they
 * return true early, and the factors are of no use any more.
 */
struct gpuvec_als_solver
{
	/* Free it, but not the problem */
	void		(*close) (gpuvec_als_solver *solver);

	/* The problem's factors of a side have changed: take them over */
	bool		(*put) (gpuvec_als_solver *solver, gpuvec_als_side side, gpuvec_error *error);

	/* Bring the problem's factors of a side up to date */
	bool		(*get) (gpuvec_als_solver *solver, gpuvec_als_side side, gpuvec_error *error);

	/* Some steps of conjugate gradient for all rows of a side */
	bool		(*solve) (gpuvec_als_solver *solver, gpuvec_als_side side, const int *canceled,
						  gpuvec_error *error);

	/* The loss before it is divided by the sum of all confidences */
	bool		(*loss) (gpuvec_als_solver *solver, const int *canceled, double *loss,
						 gpuvec_error *error);

	/*
	 * Solve for all rows of a side exactly; NULL: only a solver on the host
	 * does
	 */
	bool		(*exact) (gpuvec_als_solver *solver, gpuvec_als_side side, const int *canceled,
						  gpuvec_error *error);
};

/* What trains: a device, or the threads of a training */
typedef struct gpuvec_trainer gpuvec_trainer;

struct gpuvec_trainer
{
	/* Free it; all solvers have been closed */
	void		(*close) (gpuvec_trainer *trainer);

	/*
	 * Device memory that a solver takes, in bytes; 0: it works on the host,
	 * with the factors of the problem themselves
	 */
	size_t		(*bytes) (gpuvec_trainer *trainer, const gpuvec_als_problem *problem);

	/* Make a solver and put the factors of both sides */
	gpuvec_als_solver *(*solver) (gpuvec_trainer *trainer, const gpuvec_als_problem *problem,
								  gpuvec_error *error);
};

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_ALS_BACKEND_H */
