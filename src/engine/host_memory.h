/*-------------------------------------------------------------------------
 *
 * host_memory.h
 *	  Allocation of large pieces of host memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_HOST_MEMORY_H
#define GPUVEC_HOST_MEMORY_H

#include <stddef.h>

/* Bytes of a huge page; pieces of this size and more use huge pages */
#define GPUVEC_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * Allocate memory, not cleared, which the caller frees with free().  NULL if
 * out of memory.
 */
extern void *gpuvec_memory_new(size_t size);

/*
 * The same, on a path where latency matters: may return the piece kept ready
 */
extern void *gpuvec_memory_soon(size_t size);

/*
 * Prepare the piece that the next gpuvec_memory_soon will probably want.
 * Call it when nobody waits.
 */
extern void gpuvec_memory_prepare(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_HOST_MEMORY_H */
