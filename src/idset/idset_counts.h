/*-------------------------------------------------------------------------
 *
 * idset_counts.h
 *	  Counts how many sets of a sample have an id.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_COUNTS_H
#define GPUVEC_IDSET_COUNTS_H

#include "gpuvec.h"

#include "idset/idset.h"

typedef struct IdCount
{
	uint32		id;
	uint32		count;
} IdCount;

/* Memory comes from the context in which idset_counts_make() was called */
typedef struct IdCounts
{
	MemoryContext context;
	uint32	   *narrow;			/* [id] of ids up to IDSET_MAX_NARROW_ID */
	uint32	   *fresh;			/* [nfresh] other ids, not counted yet; NULL
								 * until there is one */
	uint32		nfresh;
	IdCount    *wide;			/* [nwide] counts of the others, ascending */
	uint32		nwide;
	bool		dropped;		/* rare ids were given up, for want of room */
} IdCounts;

extern IdCounts *idset_counts_make(void);

/* Count the ids of a set */
extern void idset_counts_add(IdCounts *counts, const IdSet *set);

/*
 * The ids that at least `least` sets have, ascending.  *cut: other ids were
 * met, too.
 */
extern IdCount *idset_counts_list(IdCounts *counts, uint32 least, uint32 *n, bool *cut);

#endif							/* GPUVEC_IDSET_COUNTS_H */
