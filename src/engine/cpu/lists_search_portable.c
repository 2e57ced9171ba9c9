/*-------------------------------------------------------------------------
 *
 * lists_search_portable.c
 *	  Search by inverted lists, 64 rows at a time.
 *
 *-------------------------------------------------------------------------
 */
#define LISTS_SELECT	lists_select_portable
#define VECTOR_BYTES	8

#include "engine/cpu/lists_search.inc"
