/*-------------------------------------------------------------------------
 *
 * sparse_scan_avx2.c
 *	  The sums of floats of a tile's rows: compiled with AVX2 enabled.
 *
 *-------------------------------------------------------------------------
 */
#define SPARSE_SUMS		sparse_sums_avx2
#define VECTOR_BYTES	32

#include "engine/cpu/sparse_scan.inc"
