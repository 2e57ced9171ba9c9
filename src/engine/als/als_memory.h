/*-------------------------------------------------------------------------
 *
 * als_memory.h
 *	  Memory of a training, charged to the engine's budget.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_MEMORY_H
#define GPUVEC_ALS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine_error.h"

/* engine/store/store.h */
struct gpuvec_store;

/* Where a training's memory is charged, and by what */
typedef struct gpuvec_als_memory
{
	struct gpuvec_store *store; /* NULL: nowhere */
	bool		(*reserve) (struct gpuvec_store *store, size_t bytes, gpuvec_error *error);
	void		(*unreserve) (struct gpuvec_store *store, size_t bytes);
} gpuvec_als_memory;

/*
 * Allocate n elements of `size` bytes each, not cleared, aligned to 64 bytes.
 * NULL, with *error, if that does not fit the budget or there is no memory.
 * gpuvec_als_free frees what it returned, or NULL.
 */
extern void *gpuvec_als_new(gpuvec_als_memory *memory, uint64_t n, size_t size,
							gpuvec_error *error);
extern void gpuvec_als_free(gpuvec_als_memory *memory, void *piece);

#endif							/* GPUVEC_ALS_MEMORY_H */
