/*-------------------------------------------------------------------------
 *
 * ranges.h
 *	  A node with rows in the order of a filter column, range by range.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RANGES_H
#define GPUVEC_RANGES_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* Elements of the custom_private of such a node's path and plan */
#define RANGES_FIRST	0		/* Float: the share of all rows that the first
								 * range should have */
#define RANGES_ROWS		1		/* Float: how many rows the index has there */
#define RANGES_NULLS	2		/* Integer: 0 if no value is null */
#define RANGES_COLUMN	3		/* Integer: the column's number in the index,
								 * from 1 on; 0: the node only hands on the
								 * rows of the sort */

/*
 * range_paths.c.  Add the path of such a node to those of a table, if it can
 * be one.  Called with the conditions that its indexes are searched by.
 */
extern void RangesAddPath(PlannerInfo *root, RelOptInfo *rel);

/* ranges.c */
extern const CustomScanMethods RangesScanMethods;

/* Called once, when the library is loaded */
extern void RangesInit(void);

#endif							/* GPUVEC_RANGES_H */
