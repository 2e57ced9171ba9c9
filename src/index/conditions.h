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

typedef struct GpuvecConditions
{
	gpuvec_filter filter;		/* rows that satisfy the keys pass it */
	bool		nothing;		/* no row satisfies the keys */
	bool		exact;			/* all rows that pass satisfy them ... */
	int			set_keys;		/* ... but for so many, of the first column */
} GpuvecConditions;

/*
 * Make the conditions of a scan's keys, and of nmore others, in the current
 * memory context
 */
extern void GpuvecMakeConditions(IndexScanDesc scan, ScanKey more, int nmore,
								 GpuvecConditions *conditions);

/* The same filter with the condition that the set is null */
extern const gpuvec_filter *GpuvecFilterNulls(const gpuvec_filter *filter);

#endif							/* GPUVEC_CONDITIONS_H */
