/*-------------------------------------------------------------------------
 *
 * tail.h
 *	  Rows that were handed over, and that the engine has not applied yet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TAIL_H
#define GPUVEC_TAIL_H

#include "mirror/ask/overlay.h"

typedef struct MirrorTail MirrorTail;

/*
 * The rows of need->feed behind number `from`, for a search of `queries`
 * queries; palloc'd.  NULL: they are too many for such a search to rank, or
 * not all there any more.
 */
extern MirrorTail *MirrorTailTake(const gpuvec_freshness *need, uint64 from, uint32 queries);
extern void MirrorTailFree(MirrorTail *tail);

/* What a mirror must have applied, for the tail to complete its answers */
extern uint64 MirrorTailFrom(const MirrorTail *tail);

/*
 * Replace *reply, an answer of the mirror in this state to n queries, by the
 * answer with the tail, allocated in `context`.  Returns false, and changes
 * nothing, if that is not known: the state may be older than the tail.
 */
extern bool MirrorTailMerge(const MirrorTail *tail, const gpuvec_state *state,
							const MirrorQuestion *questions, uint32 n, MemoryContext context,
							GpuvecReply *reply);

#endif							/* GPUVEC_TAIL_H */
