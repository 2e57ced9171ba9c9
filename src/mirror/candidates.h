/*-------------------------------------------------------------------------
 *
 * candidates.h
 *	  Which of the engine's hits does a search return?
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CANDIDATES_H
#define GPUVEC_CANDIDATES_H

#include "mirror/mirror.h"

/*
 * A group is the rows of a rooted mirror of the same score on the same page.
 * They come in the order of their roots, which may not be that of the tids to
 * be returned.  So a query that has its k rows may need the rest of the last
 * one's group: it is open.
 */
static inline bool
MirrorGroupOpen(const MirrorSearch *search, const MirrorQuery *query)
{
	return query->has_after && query->nhits >= search->k;
}

/*
 * Take those of n hits that count, and note where to go on, or that the query
 * is done.  `asked`: how many rows the engine was asked for.  The first hits
 * of a query stay where they are (query->hits == hits): then the answer has
 * to be kept.
 */
extern void MirrorTakeHits(const MirrorTarget *target, MirrorSearch *search, MirrorQuery *query,
						   MirrorVisibility *visibility, MirrorHit *hits, uint32 n, uint32 asked);

#endif							/* GPUVEC_CANDIDATES_H */
