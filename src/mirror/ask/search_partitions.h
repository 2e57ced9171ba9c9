/*-------------------------------------------------------------------------
 *
 * search_partitions.h
 *	  The mirrors of several relations, searched by one request.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_PARTITIONS_H
#define GPUVEC_SEARCH_PARTITIONS_H

#include "mirror/describe/mirror.h"

/* An answer of the engine for several of a search's targets */
typedef struct MirrorPartitions MirrorPartitions;

/*
 * Search all targets by one request: for the best rows of all of them, which
 * are in ascending order of oid, `times` as many as are likely to do.  NULL:
 * that is not possible, or does not pay.  All is palloc'd in the current
 * context.
 */
extern MirrorPartitions *MirrorPartitionsSearch(MirrorTarget *targets, int ntargets, MirrorSearch *search,
												uint32 times);

/*
 * True if all targets were part of the request, and their mirrors are fresh;
 * and no rows were laid over their answers
 */
extern bool MirrorPartitionsAllKnown(const MirrorPartitions *partitions);
extern bool MirrorPartitionsInOrder(const MirrorPartitions *partitions);

/*
 * The last row of all, for a query that wants rows: its score, and the target
 * that it is from.  What ranks before it is known of each target whose rows
 * can be taken.  False: all rows are known.
 */
extern bool MirrorPartitionsCut(const MirrorPartitions *partitions, uint32 query, double *score,
								int *target);

/* Hits of a query, of all targets, that the engine has found */
extern uint64 MirrorPartitionsHits(const MirrorPartitions *partitions, uint32 query);

/*
 * Set the hits of queries to those of one target that are above their bounds;
 * for each target once, in ascending order.  Queries for which the target has
 * none stay as they are: of many targets, each has some for few queries.
 * with[*nwith] are the numbers of the others; it has room for all queries, or
 * is NULL.  False: the target was not part of the request, or its mirror is
 * not fresh.
 */
extern bool MirrorPartitionsTake(MirrorPartitions *partitions, int target, MirrorSearch *search,
								 uint32 *with, uint32 *nwith);

/*
 * If the rows are in order: those of a query, which lie in the answer, and the
 * target of each.  There is room for MirrorPartitionsHits() targets.  Returns
 * their number; once for each query.
 */
extern uint64 MirrorPartitionsRows(MirrorPartitions *partitions, MirrorSearch *search, uint32 query,
								   MirrorHit **hits, int *targets);

/*
 * True if a query's best rows of all targets are known: it has n of them, the
 * last of which is this hit of this target
 */
extern bool MirrorPartitionsComplete(const MirrorPartitions *partitions, const MirrorSearch *search,
									 uint32 query, uint64 n, const MirrorHit *last, int target);
extern void MirrorPartitionsEnd(MirrorPartitions *partitions);

/* The end of the queries from `first` on that one request may have */
extern uint32 MirrorPartitionsGroup(const MirrorSearch *search, uint32 first);

#endif							/* GPUVEC_SEARCH_PARTITIONS_H */
