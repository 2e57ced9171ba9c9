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
 * Matrices are stored by rows, of which only the part from the diagonal on is
 * used.  So all inner loops go along rows, and compilers make vectors of them.
 * Loops begin where a vector does, some elements before the diagonal:
 * what they compute there is never used, and costs less than an incomplete
 * vector.  Four products are added to an element at a time, one after another:
 * loading and storing elements takes longer than adding to them.
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

#include "core/als.h"

/* The first part of the diagonal to add, and the factor of later ones */
#define GPUVEC_FIRST_SHIFT		1e-12
#define GPUVEC_NEXT_SHIFT		100

/* A larger one does not help: the matrix has elements that are no numbers */
#define GPUVEC_LAST_SHIFT		1e6

/* Products that are added to an element at a time */
#define GPUVEC_ALS_AT_ONCE		4

/* Elements of a vector of the machine that this is compiled for */
#if defined(__AVX512F__)
#define GPUVEC_ALS_VECTOR		8
#elif defined(__AVX2__)
#define GPUVEC_ALS_VECTOR		4
#else
#define GPUVEC_ALS_VECTOR		1
#endif

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

/* Where the loop along row j begins */
static inline uint32_t
gpuvec_als_row_begin(uint32_t j)
{
	return j / GPUVEC_ALS_VECTOR * GPUVEC_ALS_VECTOR;
}

/*
 * to[i] += f[0] * y[0][i], then f[1] * y[1][i], and so on, for i = begin ..
 * n - 1.  There are 1 to GPUVEC_ALS_AT_ONCE products; to[] is none of y[].
 */
static inline void
gpuvec_als_add(double *restrict to, const double *f, const double *const *y, uint32_t count,
			   uint32_t begin, uint32_t n)
{
	if (count == GPUVEC_ALS_AT_ONCE)
	{
		const double *y0 = y[0];
		const double *y1 = y[1];
		const double *y2 = y[2];
		const double *y3 = y[3];

		for (uint32_t i = begin; i < n; i++)
		{
			double		sum = to[i];

			sum += f[0] * y0[i];
			sum += f[1] * y1[i];
			sum += f[2] * y2[i];
			sum += f[3] * y3[i];
			to[i] = sum;
		}
		return;
	}
	for (uint32_t t = 0; t < count; t++)
		for (uint32_t i = begin; i < n; i++)
			to[i] += f[t] * y[t][i];
}

/* Add some terms to the system, at most GPUVEC_ALS_AT_ONCE */
static inline void
gpuvec_als_add_terms(const gpuvec_als_term *terms, uint32_t count, uint32_t n, double *a, double *b)
{
	double		factors[GPUVEC_ALS_AT_ONCE][GPUVEC_ALS_MAX_FACTORS];
	const double *y[GPUVEC_ALS_AT_ONCE];
	double		excess[GPUVEC_ALS_AT_ONCE];

	for (uint32_t t = 0; t < count; t++)
	{
		double		c = terms[t].confidence;

		excess[t] = fabs(c) - 1;
		y[t] = factors[t];
		for (uint32_t i = 0; i < n; i++)
			factors[t][i] = terms[t].factor[i];
		for (uint32_t i = 0; c > 0 && i < n; i++)
			b[i] += c * factors[t][i];
	}
	for (uint32_t j = 0; j < n; j++)
	{
		double		f[GPUVEC_ALS_AT_ONCE];

		for (uint32_t t = 0; t < count; t++)
			f[t] = excess[t] * factors[t][j];
		gpuvec_als_add(a + (size_t) j * n, f, y, count, gpuvec_als_row_begin(j), n);
	}
}

/* a[factors * factors] = the matrix, b[factors] = the right side */
static inline void
gpuvec_als_make(const gpuvec_als_system *system, double shift, double *a, double *b)
{
	uint32_t	n = system->factors;

	memset(b, 0, n * sizeof(double));
	for (uint32_t j = 0; j < n; j++)
	{
		for (uint32_t i = gpuvec_als_row_begin(j); i < j; i++)
			a[(size_t) j * n + i] = 0;
		memcpy(a + (size_t) j * n + j, system->gram + (size_t) j * system->stride + j,
			   (n - j) * sizeof(double));
		a[(size_t) j * n + j] += system->regularization + shift;
	}
	for (uint64_t e = 0; e < system->nterms; e += GPUVEC_ALS_AT_ONCE)
	{
		gpuvec_als_term terms[GPUVEC_ALS_AT_ONCE];
		uint32_t	count = 0;

		for (; count < GPUVEC_ALS_AT_ONCE && e + count < system->nterms; count++)
			terms[count] = system->term(system->arg, e + count);
		gpuvec_als_add_terms(terms, count, n, a, b);
	}
}

/*
 * Replace rows k .. end - 1 of a, at most GPUVEC_ALS_AT_ONCE, from which the
 * rows before have been subtracted, by those of the triangular matrix; false:
 * a is singular
 */
static inline bool
gpuvec_als_decompose_rows(double *a, uint32_t n, uint32_t k, uint32_t end, double least)
{
	for (; k < end; k++)
	{
		double	   *row = a + (size_t) k * n;
		double		root = sqrt(row[k]);

		if (!(row[k] > least))
			return false;
		row[k] = root;
		for (uint32_t i = k + 1; i < n; i++)
			row[i] /= root;
		for (uint32_t j = k + 1; j < end; j++)
		{
			double		f = -row[j];
			const double *y = row;

			gpuvec_als_add(a + (size_t) j * n, &f, &y, 1, j, n);
		}
	}
	return true;
}

/* Replace a by U, where a = U' U; false: it is singular */
static inline bool
gpuvec_als_decompose(double *a, uint32_t n, double least)
{
	for (uint32_t k = 0; k < n; k += GPUVEC_ALS_AT_ONCE)
	{
		uint32_t	end = n - k < GPUVEC_ALS_AT_ONCE ? n : k + GPUVEC_ALS_AT_ONCE;
		const double *y[GPUVEC_ALS_AT_ONCE];

		if (!gpuvec_als_decompose_rows(a, n, k, end, least))
			return false;
		for (uint32_t t = k; t < end; t++)
			y[t - k] = a + (size_t) t * n;
		for (uint32_t j = end; j < n; j++)
		{
			double		f[GPUVEC_ALS_AT_ONCE];

			for (uint32_t t = 0; t < end - k; t++)
				f[t] = -y[t][j];
			gpuvec_als_add(a + (size_t) j * n, f, y, end - k, gpuvec_als_row_begin(j), n);
		}
	}
	return true;
}

/* b = the solution of U' U x = b */
static inline void
gpuvec_als_substitute(const double *restrict u, uint32_t n, double *restrict b)
{
	for (uint32_t k = 0; k < n; k++)
	{
		const double *row = u + (size_t) k * n;
		double		x = b[k] / row[k];

		b[k] = x;
		for (uint32_t i = k + 1; i < n; i++)
			b[i] -= row[i] * x;
	}
	for (uint32_t i = n; i-- > 0;)
	{
		double		x = b[i] / u[(size_t) i * n + i];

		b[i] = x;
		for (uint32_t k = 0; k < i; k++)
			b[k] -= u[(size_t) k * n + i] * x;
	}
}

/*
 * Make and decompose the system: a[factors * factors] = U, b[factors] = the
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
