/*-------------------------------------------------------------------------
 *
 * overlay.h
 *	  An answer of an older copy, with the rows that have changed since.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_OVERLAY_H
#define GPUVEC_OVERLAY_H

#include "link/engine_link.h"
#include "mirror/describe/mirror.h"

/* A query of a search, as it was sent: for its best sent->k rows */
typedef struct MirrorQuestion
{
	const MirrorSearch *search;
	const MirrorQuery *query;
	const gpuvec_query *sent;
	uint32		nfilters;		/* filter columns of the mirror */
} MirrorQuestion;

/* New rows, as one query ranks them */
typedef struct Overlay Overlay;

/*
 * `rows` is about the number of rows to come.  The question must stay valid
 * until OverlayEnd().
 */
extern Overlay *OverlayBegin(const MirrorQuestion *question, uint32 rows);
extern void OverlayEnd(Overlay *overlay);

/*
 * Rank a new row, which is aligned.  The filter keys are those of its filter
 * columns, not aligned; NULL if the mirror has none.
 */
extern void OverlayRow(Overlay *overlay, uint64 tid, const gpuvec_sparse *row,
					   const void *filter_keys);

/* True if this row of the older copy was replaced, or is gone */
typedef bool (*OverlayReplaced) (const MirrorHit *hit, const void *arg);

/*
 * Replace *reply, the answer of the older copy to a GPUVEC_MSG_SEARCH of
 * `n` queries, by the answer with the new rows, allocated in `context`.
 * overlays[] has the new rows of each query.  Returns false, and changes
 * nothing, if that answer is not known.
 */
extern bool OverlayMerge(Overlay **overlays, uint32 n, OverlayReplaced replaced, const void *arg,
						 MemoryContext context, GpuvecReply *reply);

#endif							/* GPUVEC_OVERLAY_H */
