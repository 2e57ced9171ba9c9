/*-------------------------------------------------------------------------
 *
 * sparse_scan_portable.c
 *	  The sums of floats of a tile's rows, in portable C.
 *
 *-------------------------------------------------------------------------
 */
#define SPARSE_SUMS		sparse_sums_portable
#define VECTOR_BYTES	0

#include "engine/cpu/sparse_scan.inc"
