/*-------------------------------------------------------------------------
 *
 * scan_batch_avx512.c
 *	  The scan for batches of 512 queries: compiled with AVX-512 enabled.
 *
 *-------------------------------------------------------------------------
 */
#define SCAN_BATCH		scan_batch_avx512
#define VECTOR_BYTES	64

#include "engine/cpu/scan_batch.inc"
