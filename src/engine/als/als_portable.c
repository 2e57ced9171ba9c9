/*-------------------------------------------------------------------------
 *
 * als_portable.c
 *	  Inner loops of training for any processor.
 *
 *-------------------------------------------------------------------------
 */
#define WIDTH	4
#define MATH	gpuvec_als_math_portable

#include "engine/als/als_math.inc"

const gpuvec_als_math *
gpuvec_als_best_math(void)
{
	if (gpuvec_processor_has("avx512f"))
		return &gpuvec_als_math_avx512;
	if (gpuvec_processor_has("avx2"))
		return &gpuvec_als_math_avx2;
	return &gpuvec_als_math_portable;
}
