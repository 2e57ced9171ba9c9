/*-------------------------------------------------------------------------
 *
 * exact.c
 *	  Exact solution of the system of one row, in float64.
 *
 * The system is symmetric and positive definite, so that it is the product of
 * a triangular matrix with its transpose (Cholesky).  Without regularization
 * it may be singular; then the diagonal is raised by a tiny part of itself,
 * which gives one of the solutions.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <string.h>

#include "engine/als/exact.h"

/* The first part of the diagonal to add, and the factor of later ones */
#define FIRST_SHIFT		1e-12
#define NEXT_SHIFT		100

size_t
gpuvec_exact_scratch(uint32_t factors)
{
	return ((size_t) factors + 1) * factors;
}

/* a = the lower half of the system's matrix, b = its right side */
static void
make_system(const gpuvec_als_half *half, const double *gram, double regularization, uint32_t n,
			uint32_t row, double *a, double *b)
{
	const gpuvec_als_matrix *matrix = half->matrix;

	memset(b, 0, n * sizeof(double));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j <= i; j++)
			a[(size_t) i * n + j] = gram[(size_t) j * half->stride + i] +
				(i == j ? regularization : 0);
	for (uint64_t e = matrix->starts[row]; e < matrix->starts[row + 1]; e++)
	{
		const float *y = half->fixed + (size_t) matrix->entries[e].other * half->stride;
		double		c = matrix->entries[e].confidence;
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
static bool
decompose(double *a, uint32_t n, double least)
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
static void
substitute(const double *l, uint32_t n, double *b)
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

/* The largest element of the diagonal */
static double
largest_diagonal(const double *a, uint32_t n)
{
	double		largest = 0;

	for (uint32_t i = 0; i < n; i++)
		largest = fmax(largest, a[(size_t) i * n + i]);
	return largest;
}

void
gpuvec_solve_exactly(const gpuvec_als_half *half, const double *gram, double regularization,
					 uint32_t factors, uint32_t row, double *scratch)
{
	double	   *a = scratch;
	double	   *b = scratch + (size_t) factors * factors;
	double		shift = FIRST_SHIFT;
	double		largest;

	make_system(half, gram, regularization, factors, row, a, b);
	largest = largest_diagonal(a, factors);
	while (largest > 0 && !decompose(a, factors, largest * FIRST_SHIFT / NEXT_SHIFT))
	{
		make_system(half, gram, regularization + largest * shift, factors, row, a, b);
		shift *= NEXT_SHIFT;
	}
	if (largest > 0)
		substitute(a, factors, b);
	for (uint32_t i = 0; i < factors; i++)
		half->solved[(size_t) row * half->stride + i] = largest > 0 ? (float) b[i] : 0;
}
