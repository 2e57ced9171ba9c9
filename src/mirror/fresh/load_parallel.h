/*-------------------------------------------------------------------------
 *
 * load_parallel.h
 *	  Reading the pages of a load, by one process or several.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LOAD_PARALLEL_H
#define GPUVEC_LOAD_PARALLEL_H

#include "postgres.h"

#include "mirror/describe/mirror.h"
#include "storage/block.h"

/*
 * How many parallel workers should help to load nblocks pages of a target; 0:
 * this process reads all of them
 */
extern int	LoadWorkers(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks);

/* Read and send all pages of a target, after a load has begun */
extern bool LoadAlone(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks);

/*
 * The same, together with workers, who join the load by its number.  False:
 * the connection was lost, the engine refused, or a worker failed.  The next
 * load is then made without workers.
 */
extern bool LoadParallel(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks,
						 uint64 number, int nworkers);

#endif							/* GPUVEC_LOAD_PARALLEL_H */
