/*-------------------------------------------------------------------------
 *
 * idset_counts.h
 *	  Counts how many rows of a sample have an id; statistics of such columns.
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

/* Count the ids of a row */
extern void idset_counts_add(IdCounts *counts, gpuvec_id_span ids);

/*
 * The ids that at least `least` sets have, ascending.  *cut: other ids were
 * met, too.
 */
extern IdCount *idset_counts_list(IdCounts *counts, uint32 least, uint32 *n, bool *cut);

struct VacAttrStats;

/* The ids of a value that is not toasted; they lie in it */
typedef gpuvec_id_span (*IdsOfValue) (const void *value);

/* Analyze a column whose values have ids: the type's analyze function */
extern bool idset_analyze(struct VacAttrStats *stats, IdsOfValue ids_of);

#endif							/* GPUVEC_IDSET_COUNTS_H */
