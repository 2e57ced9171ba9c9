/*-------------------------------------------------------------------------
 *
 * bit_pairs_avx2.c
 *	  Bits that pairs of vectors have in common, by the processor's population
 *	  count, which comes with AVX2.
 *
 *-------------------------------------------------------------------------
 */
#define BIT_PAIRS	bit_pairs_avx2
#define LANES		1

#include "engine/cpu/bit_pairs.inc"
