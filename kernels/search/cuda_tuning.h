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
	uint32_t	list_rows;		/* rows from which on a segment has lists */
	uint32_t	list_shift;		/* 12 or 16: force the blocks of lists */
	uint32_t	list_part;		/* ids in more than 1 / list_part of the rows are common */
	uint32_t	sample;			/* blocks of a query's sample; ~0: none */
	uint32_t	near;			/* one in so many blocks is counted before the others */
	uint32_t	sample_rows;	/* rows of a sampled block, at least */
	uint32_t	item_queries;	/* queries of a work item with lists */
	uint32_t	few;			/* up to so many queries, bitmaps are not staged */
	uint32_t	lone;			/* up to so many, a block of rows has a thread block */
};

/* What the last topk did */
struct gpuvec_cuda_stats
{
	uint32_t	chunks;
	uint32_t	rounds;			/* retries included */
	uint32_t	overflows;		/* queries that had to be repeated */
	uint32_t	retries;		/* rounds of repeated queries that overflowed */
	uint32_t	list_chunks;	/* chunks that were counted by lists */
	uint32_t	lone_chunks;	/* whose queries were parameters of a kernel */
	uint32_t	own_rounds;		/* rounds in which each query had blocks of its own */
	uint32_t	plain_rounds;	/* rounds that counted bytes, .. */
	uint32_t	plain_lone_rounds;	/* .. for queries that were alone */
	uint32_t	direct_overflows;	/* of overflows: told by the last kernel itself */
	uint32_t	stopped_chunks; /* that nobody wanted any more while they ran */
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
