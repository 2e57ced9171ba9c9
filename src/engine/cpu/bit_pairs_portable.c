/*-------------------------------------------------------------------------
 *
 * bit_pairs_portable.c
 *	  Bits that pairs of vectors have in common, in portable C.
 *
 *-------------------------------------------------------------------------
 */
#define BIT_PAIRS	bit_pairs_portable
#define LANES		1

#include "engine/cpu/bit_pairs.inc"
