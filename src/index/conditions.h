/*-------------------------------------------------------------------------
 *
 * conditions.h
 *	  Search keys of an index scan as conditions of a filter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CONDITIONS_H
#define GPUVEC_CONDITIONS_H

#include "postgres.h"

#include "access/genam.h"
#include "core/filter.h"
#include "mirror/describe/filter_key.h"

/*
 * A comparison of a column whose keys are rounded.  A row that passes
 * satisfies it unless its key is the one of the value, or has its upper half.
 */
typedef struct GpuvecRounded
{
	uint32		condition;		/* its number in the filter */
	uint64		low;			/* keys of which rows have to be looked at */
	uint64		high;
	ScanKeyData others;			/* the search key of the rows that have such
								 * keys, or for which it is wrong */
} GpuvecRounded;

#define GPUVEC_MOST_ROUNDED	2

typedef struct GpuvecConditions
{
	gpuvec_filter filter;		/* rows that satisfy the keys pass it */
	bool		nothing;		/* no row satisfies the keys */
	bool		exact;			/* all rows that pass satisfy them ... */
	int			set_keys;		/* ... but for so many, of the first column */
	bool		exact_but_rounded;	/* .. and but for rounded[] */
	int			nrounded;
	GpuvecRounded rounded[GPUVEC_MOST_ROUNDED]; /* of one column */
} GpuvecConditions;

/*
 * Make the conditions of a scan's keys, and of nmore others, in the current
 * memory context
 */
extern void GpuvecMakeConditions(IndexScanDesc scan, ScanKey more, int nmore,
								 GpuvecConditions *conditions);

/*
 * The same filter without rows that have to be looked at, by their rounded
 * keys; NULL: these are all
 */
extern const gpuvec_filter *GpuvecFilterSure(const GpuvecConditions *conditions);

/* The same filter with the condition that the set is null */
extern const gpuvec_filter *GpuvecFilterNulls(const gpuvec_filter *filter);

#endif							/* GPUVEC_CONDITIONS_H */
