/*-------------------------------------------------------------------------
 *
 * range_ends.h
 *	  Divides the values of a column into ranges, of which the first ones are
 *	  wanted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RANGE_ENDS_H
#define GPUVEC_RANGE_ENDS_H

#include "index/thresholds.h"

typedef struct RangeEnds
{
	Thresholds	thresholds;
	double		rows;			/* that the index should find in the first
								 * range */
	double		first;			/* .. which is this share of all that are
								 * sought, by an estimate */

	/* the range that is read */
	bool		rest;			/* it has all values behind `last` */
	Datum		end;			/* else those up to this one */
	bool		has_last;
	Datum		last;			/* the end of the range before */
	uint64		most;			/* rows that it may have; 0: any number */

	double		begin;			/* share of values before the first range */
	double		share;			/* .. and in all ranges so far */
	double		wanted;			/* rows that the range should have */
	double		aim;			/* .. and that a part of rows which were
								 * surveyed is chosen by */
	bool		found;			/* rows were returned */
	int			divided;		/* DIVIDE_TRIES */
	double		many;			/* rows behind `last`, up to many_end; 0: that
								 * is not known */
	bool		surveyed;		/* .. as the engine has told last */
	bool		has_first;		/* many_first is set */
	Datum		many_first;		/* the first value of these */
	Datum		many_end;
	bool		many_last;		/* nothing is known to be behind it */

	/*
	 * Set by the caller: tells about how many rows are behind `last`, and up
	 * to `end` unless `rest` is set, and, if there are some, their first and
	 * last values.  False: that cannot be told.
	 */
	bool		(*survey) (void *arg, double *n, Datum *first, Datum *end);
	void	   *survey_arg;
} RangeEnds;

/*
 * Begin with the first range; rows, first and thresholds are set.  The values
 * that are sought have this share of all before them.  Values are palloc'd in
 * the current memory context, and by the other functions.
 */
extern void RangeEndsBegin(RangeEnds *ends, double begin);

/* Go on with the next range: this one had n rows, and some were returned */
extern void RangeEndsNext(RangeEnds *ends, double n, bool returned);

/* Take a part of the range, which has n rows, more than `most` */
extern void RangeEndsDivide(RangeEnds *ends, double n);

#endif							/* GPUVEC_RANGE_ENDS_H */
