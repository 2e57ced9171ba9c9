/*-------------------------------------------------------------------------
 *
 * filter_mask_avx512.c
 *	  Masks of rows by codes, with AVX-512.
 *
 *-------------------------------------------------------------------------
 */
#define MASK_BY_RANGES	mask_by_ranges_avx512
#define MASK_COUNT		mask_count_avx512
#define VECTOR_BYTES	64

#include "engine/cpu/filter_mask.inc"
