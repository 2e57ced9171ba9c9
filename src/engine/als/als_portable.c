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
	if (__builtin_cpu_supports("avx512f"))
		return &gpuvec_als_math_avx512;
	if (__builtin_cpu_supports("avx2"))
		return &gpuvec_als_math_avx2;
	return &gpuvec_als_math_portable;
}
