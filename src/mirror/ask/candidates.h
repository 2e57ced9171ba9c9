/*-------------------------------------------------------------------------
 *
 * candidates.h
 *	  Which of the engine's hits does a search return?
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CANDIDATES_H
#define GPUVEC_CANDIDATES_H

#include "mirror/describe/mirror.h"

/*
 * A group is the rows of a rooted mirror that have the same score and are on
 * the same page.  The engine returns them in the order of their roots, which
 * may not be the order of the tids to be returned.  So a query that has its k
 * rows may need the rest of the last row's group.  Returns true if so: the
 * group is open.
 */
static inline bool
MirrorGroupOpen(const MirrorSearch *search, const MirrorQuery *query)
{
	return query->has_after && query->nhits >= search->k;
}

/*
 * Take those of n hits that count, and set query->done, or where the next
 * request goes on.  `asked` is the number of rows that the engine was asked
 * for.  The first hits of a query are not copied (query->hits == hits): then
 * the answer has to be kept.
 */
extern void MirrorTakeHits(const MirrorTarget *target, MirrorSearch *search, MirrorQuery *query,
						   MirrorVisibility *visibility, MirrorHit *hits, uint32 n, uint32 asked);

/*
 * The same for a mirror that was ranked together with others: there is no
 * request for more.  Of n hits those above the query's bound count.  `cut`: a
 * row of the mirror, behind which others are missing, or NULL.  Rows behind it
 * do not count, nor do those of its group.
 */
extern void MirrorTakePartition(const MirrorTarget *target, MirrorSearch *search, MirrorQuery *query,
								MirrorVisibility *visibility, MirrorHit *hits, uint32 n,
								const MirrorHit *cut);

#endif							/* GPUVEC_CANDIDATES_H */
