/*-------------------------------------------------------------------------
 *
 * filter_mask_avx2.c
 *	  Masks of rows by codes, with AVX2.
 *
 *-------------------------------------------------------------------------
 */
#define MASK_BY_RANGES	mask_by_ranges_avx2
#define MASK_COUNT		mask_count_avx2
#define VECTOR_BYTES	32

#include "engine/cpu/filter_mask.inc"
