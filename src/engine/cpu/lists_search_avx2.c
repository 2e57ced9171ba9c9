/*-------------------------------------------------------------------------
 *
 * lists_search_avx2.c
 *	  Search by inverted lists, 256 rows at a time.
 *
 *-------------------------------------------------------------------------
 */
#define LISTS_SELECT	lists_select_avx2
#define VECTOR_BYTES	32

#include "engine/cpu/lists_search.inc"
