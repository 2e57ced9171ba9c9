/*-------------------------------------------------------------------------
 *
 * ahead.h
 *	  The answer to a search that did not wait for a refresh.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_AHEAD_H
#define GPUVEC_AHEAD_H

#include "mirror/ask/overlay.h"

typedef struct MirrorAhead MirrorAhead;

/* The question must stay valid until MirrorAheadEnd() */
extern MirrorAhead *MirrorAheadBegin(const MirrorQuestion *question);
extern void MirrorAheadEnd(MirrorAhead *ahead);

/* Rank the rows of a gpuvec_page that was read again.  Pages must ascend. */
extern void MirrorAheadPage(MirrorAhead *ahead, const char *data);

/*
 * Replace *reply, the engine's answer to a GPUVEC_MSG_SEARCH of the mirror as
 * it was, by the answer after the refresh, allocated in `context`. `nblocks`
 * is the relation's current number of blocks.  Returns false, and changes
 * nothing, if that answer is not known.
 */
extern bool MirrorAheadMerge(MirrorAhead *ahead, BlockNumber nblocks, MemoryContext context,
							 GpuvecReply *reply);

#endif							/* GPUVEC_AHEAD_H */
