/*-------------------------------------------------------------------------
 *
 * stale_pages.h
 *	  Which pages of a relation does a refresh have to read again?
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STALE_PAGES_H
#define GPUVEC_STALE_PAGES_H

#include "mirror/mirror.h"
#include "mirror/page_reader.h"
#include "mirror/wal.h"

/*
 * Of `nknown` pages that the mirror knows, those that are listed, or those
 * whose LSN is another one than that remembered; and all pages behind.
 */
typedef struct StalePages
{
	bool		listed;
	ChangedPages pages;			/* listed: these, ascending */
	const char *lsns;			/* not listed: uint64 [nknown], the caller's */
	BlockNumber nknown;
	BlockNumber nblocks;		/* that the relation has now */
	uint32		next;			/* of pages */
} StalePages;

/*
 * Find out what was changed in a mirror of this state: by its feed, if that
 * is the one that counts, else by WAL.  Neither may know; then stale->listed
 * is false, and LSNs have to tell.  Returns the position up to which that
 * covers all changes; with a feed 0.  nknown, nblocks and lsns are left to be
 * set.
 */
extern XLogRecPtr StalePagesFind(MirrorTarget *target, const gpuvec_freshness *need,
								 const gpuvec_state *state, StalePages *stale);

/* Are the pages listed, and few? */
extern bool StalePagesFew(const StalePages *stale);

/*
 * The first page to be read again from `block` on, or InvalidBlockNumber.
 * Blocks must ascend.
 */
extern BlockNumber StalePagesNext(StalePages *stale, PageReader *reader, BlockNumber block);

extern void StalePagesFree(StalePages *stale);

#endif							/* GPUVEC_STALE_PAGES_H */
