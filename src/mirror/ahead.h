/*-------------------------------------------------------------------------
 *
 * ahead.h
 *	  The answer to a search that did not wait for a refresh.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_AHEAD_H
#define GPUVEC_AHEAD_H

#include "link/engine_link.h"
#include "mirror/mirror.h"

/* What may go ahead: one query for its best `asked` rows */
typedef struct MirrorAheadQuestion
{
	const MirrorSearch *search;
	const MirrorQuery *query;
	uint32		asked;
} MirrorAheadQuestion;

typedef struct MirrorAhead MirrorAhead;

/* The question stays until MirrorAheadEnd() */
extern MirrorAhead *MirrorAheadBegin(const MirrorAheadQuestion *question);
extern void MirrorAheadEnd(MirrorAhead *ahead);

/* Take the rows of a gpuvec_page that was read again; pages ascend */
extern void MirrorAheadPage(MirrorAhead *ahead, const char *data);

/*
 * Put in the place of the engine's answer (to a GPUVEC_MSG_SEARCH), which is
 * of the mirror as it was, what it would be after the refresh, allocated in a
 * context.  The relation has nblocks now.  False: that cannot be told, and
 * nothing was changed.
 */
extern bool MirrorAheadMerge(MirrorAhead *ahead, BlockNumber nblocks, MemoryContext context,
							 GpuvecReply *reply);

#endif							/* GPUVEC_AHEAD_H */
