/*-------------------------------------------------------------------------
 *
 * host_memory.h
 *	  Large pieces of memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_HOST_MEMORY_H
#define GPUVEC_HOST_MEMORY_H

#include <stddef.h>

/* Bytes of a huge page, and a size from which pieces are made of them */
#define GPUVEC_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * Memory that is not cleared, to be released by free(); NULL if there is none
 */
extern void *gpuvec_memory_new(size_t size);

/* The same, for somebody who is waited for */
extern void *gpuvec_memory_soon(size_t size);

/*
 * To be called when there is time: makes ready what the next such call will
 * want
 */
extern void gpuvec_memory_prepare(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_HOST_MEMORY_H */
