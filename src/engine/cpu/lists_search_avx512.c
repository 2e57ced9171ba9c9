/*-------------------------------------------------------------------------
 *
 * lists_search_avx512.c
 *	  Search by inverted lists, 512 rows at a time.
 *
 *-------------------------------------------------------------------------
 */
#define LISTS_SELECT	lists_select_avx512
#define VECTOR_BYTES	64

#include "engine/cpu/lists_search.inc"
