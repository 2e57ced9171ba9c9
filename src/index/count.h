/*-------------------------------------------------------------------------
 *
 * count.h
 *	  A node that counts rows without looking at most of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COUNT_H
#define GPUVEC_COUNT_H

#include "mirror/describe/filter_key.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* What a column of the node's rows is */
typedef enum CountOutput
{
	COUNT_KEY,					/* a column that rows are grouped by */
	COUNT_ROWS,					/* how many rows a group has */
	COUNT_LEAST,				/* the least value of a column, */
	COUNT_GREATEST				/* and the greatest one */
} CountOutput;

/*
 * count_paths.c.  Add the paths of such a node to those of a query that counts
 * the rows of a table, if there can be one.
 *
 * The node's custom_private is three lists of integers: the CountOutput of
 * each column, the number of its column in the third list (0 of COUNT_ROWS),
 * and places of columns in the targets of the scan, those of keys first.
 */
extern void CountAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output);

/*
 * count.c.  The filter column of an index that is a column of the table, from
 * 1 on, if groups can be made by it or, as_value, if it can have a least and a
 * greatest value; else 0.
 */
extern int	CountColumn(const FilterColumns *filters, AttrNumber attnum, bool as_value);

extern const CustomScanMethods CountScanMethods;

/* Called once, when the library is loaded */
extern void CountInit(void);

#endif							/* GPUVEC_COUNT_H */
