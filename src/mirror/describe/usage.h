/*-------------------------------------------------------------------------
 *
 * usage.h
 *	  What this process has had the engine do, for EXPLAIN ANALYZE.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_USAGE_H
#define GPUVEC_USAGE_H

#include "postgres.h"

#include "core/method.h"

struct ExplainState;

/* Counters that only grow: who wants those of a plan node, subtracts */
typedef struct MirrorUsage
{
	uint64		requests;		/* that the engine has answered */
	uint64		rows;			/* ranked: for each query those of the mirror,
								 * or those that pass its filter */
	uint64		filtered;		/* queries with a filter */
	uint64		passed;			/* rows that pass it */
	uint64		ways[GPUVEC_N_WAYS];	/* queries that were searched so */
	uint64		unproven;		/* rows that had to be looked at, to know
								 * whether they are visible */
	uint64		engine_us;		/* microseconds in the engine */
	uint64		loads;			/* mirrors that were loaded first */
	uint64		waits;			/* requests that had to wait for changes */
} MirrorUsage;

extern MirrorUsage MirrorUsed;

/* True if anything was counted since `before`: all else comes with these */
static inline bool
MirrorUsedSince(const MirrorUsage *before)
{
	return MirrorUsed.requests != before->requests || MirrorUsed.loads != before->loads ||
		MirrorUsed.waits != before->waits;
}

/* Add what was used since `before` to a node's counters */
extern void MirrorUsageAdd(MirrorUsage *used, const MirrorUsage *before);

/* Count the queries of an answer by how the engine has searched */
extern void MirrorUsageWays(const uint32 *ways);

/* Show a node's counters, and what the engine runs on */
extern void MirrorUsageExplain(const MirrorUsage *used, struct ExplainState *es);

#endif							/* GPUVEC_USAGE_H */
