/*-------------------------------------------------------------------------
 *
 * scan_batch_portable.c
 *	  The scan for batches of 64 queries, in portable C.
 *
 *-------------------------------------------------------------------------
 */
#define SCAN_BATCH		scan_batch_portable
#define VECTOR_BYTES	8

#include "engine/cpu/scan_batch.inc"
