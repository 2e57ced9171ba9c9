/*-------------------------------------------------------------------------
 *
 * exact_portable.c
 *	  Systems of rows are made and decomposed, for any processor.
 *
 *-------------------------------------------------------------------------
 */
#include "core/als_solve.h"
#include "engine/als/exact.h"

bool
gpuvec_exact_prepare_portable(const gpuvec_als_system *system, double *a, double *b)
{
	return gpuvec_als_prepare(system, a, b);
}
