/*-------------------------------------------------------------------------
 *
 * als_avx2.c
 *	  Inner loops of training for processors with AVX2.
 *
 *-------------------------------------------------------------------------
 */
#define WIDTH	8
#define MATH	gpuvec_als_math_avx2

#include "engine/als/als_math.inc"
