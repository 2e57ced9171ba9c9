/*-------------------------------------------------------------------------
 *
 * thresholds.h
 *	  Values of a column that a given share of its values come before.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_THRESHOLDS_H
#define GPUVEC_THRESHOLDS_H

#include "mirror/describe/filter_key.h"
#include "utils/rel.h"
#include "utils/sortsupport.h"

typedef struct Threshold
{
	Datum		value;
	double		share;			/* of all values: those up to this one, in
								 * order; 0 to 1 */
	bool		common;			/* a most common value: the share of values
								 * between it and the one before is 0 */
} Threshold;

typedef struct Thresholds
{
	SortSupport order;			/* not owned */
	Oid			type;			/* of the values: an operator class's */
	double		newer;			/* the share of rows that came since, whose
								 * values may come before all others; an
								 * estimate */
	int			n;				/* 0: there are no statistics */
	Threshold  *points;			/* [n], in order; palloc'd, as are values */
} Thresholds;

/*
 * True if there are statistics of a column of an index, or of its table's, and
 * its keys tell the first of its values from the last one
 */
extern bool ThresholdsHave(Relation index, AttrNumber attnum, const FilterColumn *column);

/*
 * Read those of a column of an index, by the statistics of its table, in the
 * current memory context
 */
extern void ThresholdsRead(Relation index, AttrNumber attnum, SortSupport order,
						   Thresholds *thresholds);

/*
 * A value of another type that is compared with the column's as one of the
 * column's type, roughly.  False: it cannot be computed.  InvalidOid is the
 * column's type.
 */
extern bool ThresholdsConvert(const Thresholds *thresholds, Oid type, Datum value, Datum *converted);

/* The share of values that come before this one, roughly */
extern double ThresholdsShare(const Thresholds *thresholds, Datum value);

/*
 * A value up to which this share of all comes, roughly, palloc'd if it is by
 * reference.  False: they end before.
 */
extern bool ThresholdsValue(const Thresholds *thresholds, double share, Datum *value);

/*
 * The value at this part of the way from a to b, palloc'd if it is by
 * reference; b if it cannot be computed
 */
extern Datum ThresholdsBetween(const Thresholds *thresholds, Datum a, Datum b, double part);

/* Let rows that come before all others have this share of all from now on */
extern void ThresholdsSetNewer(Thresholds *thresholds, double share);

#endif							/* GPUVEC_THRESHOLDS_H */
