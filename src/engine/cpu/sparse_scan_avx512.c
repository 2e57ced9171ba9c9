/*-------------------------------------------------------------------------
 *
 * sparse_scan_avx512.c
 *	  The sums of floats of a tile's rows: compiled with AVX-512 enabled.
 *
 *-------------------------------------------------------------------------
 */
#define SPARSE_SUMS		sparse_sums_avx512
#define VECTOR_BYTES	64

#include "engine/cpu/sparse_scan.inc"
