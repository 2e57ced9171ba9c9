/*-------------------------------------------------------------------------
 *
 * known_items.h
 *	  The items that each user has interacted with, for many users.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KNOWN_ITEMS_H
#define GPUVEC_KNOWN_ITEMS_H

#include "recommend/recommend.h"

/*
 * Users are dealt out to KNOWN_BUCKETS buckets.  It is fast to ask for the
 * users of one bucket after those of another.
 */
#define KNOWN_BUCKETS		64

typedef struct KnownItems KnownItems;

/* The bucket of a user */
extern int	KnownItemsBucket(int64 user);

/*
 * Read the interactions of these users (int8[]; 0: all) into the current
 * memory context; *rows is how many had both keys
 */
extern KnownItems *KnownItemsRead(const AlsInteractions *interactions, Datum users, uint64 *rows);

/*
 * The items of a user, ascending; an item may come several times.  They live
 * until a user of another bucket is asked for.
 */
extern const int64 *KnownItemsOf(KnownItems *known, int64 user, uint64 *n);

/* Release what is held beside memory */
extern void KnownItemsEnd(KnownItems *known);

#endif							/* GPUVEC_KNOWN_ITEMS_H */
