/*-------------------------------------------------------------------------
 *
 * bit_pairs_avx512.c
 *	  Bits that pairs of vectors have in common, with AVX-512.
 *
 *-------------------------------------------------------------------------
 */
#define BIT_PAIRS	bit_pairs_avx512
#define LANES		8

#include "engine/cpu/bit_pairs.inc"
