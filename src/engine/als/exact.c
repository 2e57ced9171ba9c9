/*-------------------------------------------------------------------------
 *
 * exact.c
 *	  Exact solution of the system of one row of a training.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/als/exact.h"

/* A row of a matrix */
typedef struct matrix_row
{
	const gpuvec_als_half *half;
	const gpuvec_als_entry *entries;
} matrix_row;

size_t
gpuvec_exact_scratch(uint32_t factors)
{
	return ((size_t) factors + 1) * factors;
}

/* gpuvec_als_system.term: entry i of the row */
static gpuvec_als_term
row_term(const void *arg, uint64_t i)
{
	const matrix_row *row = arg;
	gpuvec_als_term term = {
		row->half->fixed + (size_t) row->entries[i].other * row->half->stride,
		row->entries[i].confidence
	};

	return term;
}

/* The variant for this machine's best instruction set */
static gpuvec_exact_prepare *
best_prepare(void)
{
	if (gpuvec_processor_has("avx512f"))
		return gpuvec_exact_prepare_avx512;
	if (gpuvec_processor_has("avx2"))
		return gpuvec_exact_prepare_avx2;
	return gpuvec_exact_prepare_portable;
}

void
gpuvec_solve_exactly(const gpuvec_als_half *half, const double *gram, double regularization,
					 uint32_t factors, uint32_t row, double *scratch)
{
	const gpuvec_als_matrix *matrix = half->matrix;
	matrix_row	terms = {half, matrix->entries + matrix->starts[row]};
	gpuvec_als_system system = {
		.gram = gram, .stride = half->stride, .factors = factors,
		.regularization = regularization, .term = row_term, .arg = &terms,
		.nterms = matrix->starts[row + 1] - matrix->starts[row]
	};
	double	   *b = scratch + (size_t) factors * factors;
	bool		some = best_prepare() (&system, scratch, b);

	if (some)
		gpuvec_als_substitute(scratch, factors, b);
	for (uint32_t i = 0; i < factors; i++)
		half->solved[(size_t) row * half->stride + i] = some ? (float) b[i] : 0;
}
