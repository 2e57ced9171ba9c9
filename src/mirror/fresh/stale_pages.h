/*-------------------------------------------------------------------------
 *
 * stale_pages.h
 *	  Finds the pages of a relation that a refresh has to read again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STALE_PAGES_H
#define GPUVEC_STALE_PAGES_H

#include "mirror/describe/mirror.h"
#include "mirror/pages/changed_lines.h"
#include "mirror/pages/page_reader.h"

/*
 * The pages to read again.  Of the `nknown` pages that the mirror knows,
 * these are the listed pages, or those whose LSN is not the remembered one.
 * To them come all pages behind.
 */
typedef struct StalePages
{
	bool		listed;			/* the pages are listed; else LSNs have to
								 * tell */
	ChangedLines lines;			/* if listed: what was changed, sorted */
	XLogRecPtr	read_until;		/* lines has what the WAL up to here has
								 * changed; 0: nothing was read ahead */
	const char *lsns;			/* if not: uint64 [nknown], the caller's */
	BlockNumber nknown;
	BlockNumber nblocks;		/* current number of blocks of the relation */
	uint32		next;			/* next entry of lines */
} StalePages;

/*
 * Read the WAL that is there, if it is long.  So what StalePagesFind() has
 * left to read is short, and the position that the refresh is to cover can be
 * read late.
 */
extern void StalePagesReadAhead(MirrorTarget *target, const gpuvec_state *state,
								StalePages *stale);

/*
 * Find what was changed since the mirror had this state: by the feed, if the
 * mirror and `need` (may be NULL) have the same one, else by WAL.  If neither
 * can tell, stale->listed is false, and LSNs have to tell.  True if all
 * changes up to the current WAL position are covered; false with a feed.  The
 * caller sets nknown, nblocks and lsns.
 */
extern bool StalePagesFind(MirrorTarget *target, const gpuvec_freshness *need,
						   const gpuvec_state *state, StalePages *stale);

/* True if the pages are listed and few */
extern bool StalePagesFew(const StalePages *stale);

/*
 * The first page from `block` on that has to be read again, or
 * InvalidBlockNumber.  `block` must ascend from call to call.
 */
extern BlockNumber StalePagesNext(StalePages *stale, PageReader *reader, BlockNumber block);

/*
 * True if only some line pointers of a page that StalePagesNext() returned
 * have changed: those of entries[n], of which one may be CHANGED_NO_LINE
 */
extern bool StalePagesLines(const StalePages *stale, BlockNumber block,
							const ChangedLine **entries, uint32 *n);

extern void StalePagesFree(StalePages *stale);

#endif							/* GPUVEC_STALE_PAGES_H */
