/*-------------------------------------------------------------------------
 *
 * ahead.h
 *	  The answer to a search that did not wait for a refresh.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_AHEAD_H
#define GPUVEC_AHEAD_H

#include "mirror/mirror.h"

typedef struct MirrorAhead MirrorAhead;

/* For one query of a search; both stay as long as the MirrorAhead */
extern MirrorAhead *MirrorAheadBegin(const MirrorSearch *search, const MirrorQuery *query);
extern void MirrorAheadEnd(MirrorAhead *ahead);

/* Take the rows of a page (a gpuvec_page) that was read again; pages come in ascending order */
extern void MirrorAheadPage(MirrorAhead *ahead, const char *data);

/*
 * Make the answer of what the engine gave when it was asked for so many rows of the mirror as
 * it was, and the pages; the relation has nblocks now.  hits[] has room for as many as asked.
 * False: it cannot be told, the engine has to be asked again.
 */
extern bool MirrorAheadMerge(MirrorAhead *ahead, BlockNumber nblocks, const MirrorHit *given,
							 uint32 ngiven, uint32 asked, MirrorHit *hits, uint32 *nhits);

#endif							/* GPUVEC_AHEAD_H */
