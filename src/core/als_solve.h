/*-------------------------------------------------------------------------
 *
 * als_solve.h
 *	  Exact solution of the system of one row (als.h), in float64.
 *
 * The system is symmetric and positive definite, so that it is the product of
 * a triangular matrix with its transpose (Cholesky).  Without regularization
 * it may be singular; then the diagonal is raised by a tiny part of itself,
 * which gives one of the solutions.
 *
 * The session and the engine share these functions, so that both get the same
 * bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_SOLVE_H
#define GPUVEC_ALS_SOLVE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The first part of the diagonal to add, and the factor of later ones */
#define GPUVEC_FIRST_SHIFT		1e-12
#define GPUVEC_NEXT_SHIFT		100

/* A larger one does not help: the matrix has elements that are no numbers */
#define GPUVEC_LAST_SHIFT		1e6

/* A pair of the row: confidence, negative for a dislike, and the factor */
typedef struct gpuvec_als_term
{
	const float *factor;
	float		confidence;
} gpuvec_als_term;

/* The system of a row */
typedef struct gpuvec_als_system
{
	const double *gram;			/* without regularization: its elements from
								 * the diagonal on */
	uint32_t	stride;			/* of gram */
	uint32_t	factors;
	double		regularization;
	uint64_t	nterms;
	gpuvec_als_term (*term) (const void *arg, uint64_t i);
	const void *arg;
} gpuvec_als_system;

/*
 * a[factors * factors] = the lower half of the matrix, b[factors] = the right
 * side
 */
static inline void
gpuvec_als_make(const gpuvec_als_system *system, double shift, double *a, double *b)
{
	uint32_t	n = system->factors;

	memset(b, 0, n * sizeof(double));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j <= i; j++)
			a[(size_t) i * n + j] = system->gram[(size_t) j * system->stride + i] +
				(i == j ? system->regularization + shift : 0);
	for (uint64_t e = 0; e < system->nterms; e++)
	{
		gpuvec_als_term term = system->term(system->arg, e);
		const float *y = term.factor;
		double		c = term.confidence;
		double		excess = fabs(c) - 1;

		for (uint32_t i = 0; i < n; i++)
		{
			double		factor = excess * y[i];

			for (uint32_t j = 0; j <= i; j++)
				a[(size_t) i * n + j] += factor * y[j];
			b[i] += c > 0 ? c * y[i] : 0;
		}
	}
}

/* Replace the lower half of a by L, where a = L L'; false: it is singular */
static inline bool
gpuvec_als_decompose(double *a, uint32_t n, double least)
{
	for (uint32_t i = 0; i < n; i++)
	{
		double	   *row = a + (size_t) i * n;

		for (uint32_t j = 0; j <= i; j++)
		{
			const double *other = a + (size_t) j * n;
			double		sum = row[j];

			for (uint32_t k = 0; k < j; k++)
				sum -= row[k] * other[k];
			if (i == j && !(sum > least))
				return false;
			row[j] = i == j ? sqrt(sum) : sum / other[j];
		}
	}
	return true;
}

/* b = the solution of L L' x = b */
static inline void
gpuvec_als_substitute(const double *l, uint32_t n, double *b)
{
	for (uint32_t i = 0; i < n; i++)
	{
		for (uint32_t k = 0; k < i; k++)
			b[i] -= l[(size_t) i * n + k] * b[k];
		b[i] /= l[(size_t) i * n + i];
	}
	for (uint32_t i = n; i-- > 0;)
	{
		b[i] /= l[(size_t) i * n + i];
		for (uint32_t k = 0; k < i; k++)
			b[k] -= l[(size_t) i * n + k] * b[i];
	}
}

/*
 * Make and decompose the system: a[factors * factors] = L, b[factors] = the
 * right side.  False: the matrix is zero, and so is the solution; or elements
 * of it have overflowed, which GPUVEC_ALS_MAX_ELEMENT prevents.
 */
static inline bool
gpuvec_als_prepare(const gpuvec_als_system *system, double *a, double *b)
{
	uint32_t	n = system->factors;
	double		shift = GPUVEC_FIRST_SHIFT;
	double		largest = 0;

	gpuvec_als_make(system, 0, a, b);
	for (uint32_t i = 0; i < n; i++)
		largest = fmax(largest, a[(size_t) i * n + i]);
	if (!(largest > 0))
		return false;
	while (!gpuvec_als_decompose(a, n, largest * GPUVEC_FIRST_SHIFT / GPUVEC_NEXT_SHIFT))
	{
		if (!(shift <= GPUVEC_LAST_SHIFT))
			return false;
		gpuvec_als_make(system, largest * shift, a, b);
		shift *= GPUVEC_NEXT_SHIFT;
	}
	return true;
}

#endif							/* GPUVEC_ALS_SOLVE_H */
