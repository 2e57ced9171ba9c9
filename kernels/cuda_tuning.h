/*-------------------------------------------------------------------------
 *
 * cuda_tuning.h
 *	  Hooks for tests and measurements of the CUDA backend.  The engine has no
 *	  use for them: the defaults are right.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_TUNING_H
#define GPUVEC_CUDA_TUNING_H

#include <stdint.h>

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0 means the default throughout */
struct gpuvec_cuda_tuning
{
	uint32_t	candidates;		/* capacity for one query and round */
	uint32_t	retry_candidates;	/* the same after an overflow */
	uint32_t	entry_bits;		/* 8, 16 or 32 queries in a batch */
	uint32_t	planes;			/* 8 or 17; 8 only if counts stay below 256 */
	uint32_t	growth;			/* rows of a round : rows of all before */
	uint32_t	first_rows;		/* rows of the first round */
	uint32_t	item_tiles;		/* tiles of a work item */
	uint32_t	grab;			/* tiles that a warp takes at a time */
	uint32_t	chunk_queries;	/* queries that are worked on together */
};

/* What the last topk did */
struct gpuvec_cuda_stats
{
	uint32_t	chunks;
	uint32_t	rounds;			/* retries included */
	uint32_t	overflows;		/* queries that had to be repeated */
	uint32_t	retries;		/* rounds of repeated queries that overflowed */
	uint32_t	entry_bits;		/* of the last chunk */
	uint32_t	planes;
};

extern void gpuvec_cuda_tune(gpuvec_backend *backend,
							 const struct gpuvec_cuda_tuning *tuning);
extern struct gpuvec_cuda_stats gpuvec_cuda_last(gpuvec_backend *backend);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_CUDA_TUNING_H */
