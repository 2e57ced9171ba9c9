/*-------------------------------------------------------------------------
 *
 * index_paths.h
 *	  Scans of our indexes that nodes of ours stand above.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INDEX_PATHS_H
#define GPUVEC_INDEX_PATHS_H

#include "nodes/pathnodes.h"

/* True if a node can stand above a scan */
typedef bool (*IndexPathTest) (const IndexPath *path, void *arg);

/*
 * The cheapest scan, by its search keys and without an order, of an index of
 * ours of a table that passes a test.  NULL: there is none.
 */
extern IndexPath *IndexPathFind(PlannerInfo *root, const RelOptInfo *rel, IndexPathTest passes,
								void *arg);

/*
 * What such a scan costs before it has its first row; the rest of it is for
 * the rows that it finds
 */
extern Cost IndexPathBegin(const RelOptInfo *rel, const IndexPath *path);

#endif							/* GPUVEC_INDEX_PATHS_H */
