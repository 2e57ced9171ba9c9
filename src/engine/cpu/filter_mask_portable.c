/*-------------------------------------------------------------------------
 *
 * filter_mask_portable.c
 *	  Masks of rows by codes, in portable C.
 *
 *-------------------------------------------------------------------------
 */
#define MASK_BY_RANGES	mask_by_ranges_portable
#define MASK_COUNT		mask_count_portable
#define VECTOR_BYTES	8

#include "engine/cpu/filter_mask.inc"
