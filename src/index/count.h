/*-------------------------------------------------------------------------
 *
 * count.h
 *	  A node that counts rows without looking at most of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COUNT_H
#define GPUVEC_COUNT_H

#include "nodes/pathnodes.h"

/*
 * Add the path of such a node to those of a query that counts the rows of a
 * table, if it can be one
 */
extern void CountAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output);

/* Called once, when the library is loaded */
extern void CountInit(void);

#endif							/* GPUVEC_COUNT_H */
