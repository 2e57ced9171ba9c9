/*-------------------------------------------------------------------------
 *
 * ranges.h
 *	  A node with rows in the order of a filter column, range by range.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RANGES_H
#define GPUVEC_RANGES_H

#include "nodes/pathnodes.h"

/*
 * Add the path of such a node to those of a table, if it can be one.  Called
 * with the conditions that its indexes are searched by.
 */
extern void RangesAddPath(PlannerInfo *root, RelOptInfo *rel);

/* Called once, when the library is loaded */
extern void RangesInit(void);

#endif							/* GPUVEC_RANGES_H */
