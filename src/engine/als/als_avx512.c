/*-------------------------------------------------------------------------
 *
 * als_avx512.c
 *	  Inner loops of training for processors with AVX-512.
 *
 *-------------------------------------------------------------------------
 */
#define WIDTH	16
#define MATH	gpuvec_als_math_avx512

#include "engine/als/als_math.inc"
