/*-------------------------------------------------------------------------
 *
 * exact_avx2.c
 *	  Systems of rows are made and decomposed, for processors with AVX2.
 *
 *-------------------------------------------------------------------------
 */
#include "core/als_solve.h"
#include "engine/als/exact.h"

bool
gpuvec_exact_prepare_avx2(const gpuvec_als_system *system, double *a, double *b)
{
	return gpuvec_als_prepare(system, a, b);
}
