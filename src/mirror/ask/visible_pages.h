/*-------------------------------------------------------------------------
 *
 * visible_pages.h
 *	  Pages of which every row of a rooted mirror is visible.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_VISIBLE_PAGES_H
#define GPUVEC_VISIBLE_PAGES_H

#include "mirror/describe/mirror.h"

struct MirrorVisiblePages
{
	uint8	   *map;			/* palloc'd copy of the visibility map, two
								 * bits for each page; or NULL */
	Size		bytes;
	gpuvec_freshness then;		/* the feed, and the number of its last record
								 * after the map was read */
	bool		all;			/* set by the caller: every page is taken for
								 * one, which proves nothing */
	gpuvec_state state;			/* set by the caller: of the mirror that was
								 * searched */
};

/* True if a page was all-visible when the map was read */
static inline bool
VisiblePagesHave(const MirrorVisiblePages *pages, BlockNumber block)
{
	return block / 4 < pages->bytes && (pages->map[block / 4] >> (block % 4 * 2) & 1) != 0;
}

/*
 * Read the map, after the snapshot was taken and before it is known what the
 * mirror must have applied; again: what was read before is freed.  With `all`,
 * make one that has every page.  Nothing if pages is NULL.
 */
extern void VisiblePagesRead(MirrorVisiblePages *pages, const MirrorTarget *target);

/*
 * After the answer: true if the snapshot sees all rows that it has of these
 * pages.  False: that is not known.
 */
extern bool VisiblePagesHold(const MirrorVisiblePages *pages, const MirrorTarget *target);

extern void VisiblePagesFree(MirrorVisiblePages *pages);

#endif							/* GPUVEC_VISIBLE_PAGES_H */
