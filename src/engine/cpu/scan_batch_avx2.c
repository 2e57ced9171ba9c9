/*-------------------------------------------------------------------------
 *
 * scan_batch_avx2.c
 *	  The scan for batches of 256 queries: compiled with AVX2 enabled.
 *
 *-------------------------------------------------------------------------
 */
#define SCAN_BATCH		scan_batch_avx2
#define VECTOR_BYTES	32

#include "engine/cpu/scan_batch.inc"
