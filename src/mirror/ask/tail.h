/*-------------------------------------------------------------------------
 *
 * tail.h
 *	  Rows that the session has, and that the mirror lacks.
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

/*
 * The rows of pages that are read again while the engine searches the mirror
 * that refresh number `refresh` has made, for a search of one query, which
 * must stay valid.  `nblocks` is the relation's current number of blocks.
 * MirrorTailPage: rank the rows of a gpuvec_page.  Pages must ascend.
 */
extern MirrorTail *MirrorTailOfPages(const MirrorQuestion *question, uint64 refresh,
									 BlockNumber nblocks);
extern void MirrorTailPage(MirrorTail *tail, const char *data);

/*
 * What a mirror must have applied of a feed, for the tail to complete its
 * answers
 */
extern uint64 MirrorTailFrom(const MirrorTail *tail);

/*
 * Replace *reply, an answer of the mirror in this state to n queries, by the
 * answer with the tail, allocated in `context`.  Returns false if that is not
 * known: the state may be older than the tail.
 */
extern bool MirrorTailMerge(const MirrorTail *tail, const gpuvec_state *state,
							const MirrorQuestion *questions, uint32 n, MemoryContext context,
							GpuvecReply *reply);

#endif							/* GPUVEC_TAIL_H */
