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

/* Can a node stand above the scans of an index of ours, or above a scan? */
typedef bool (*IndexTest) (IndexOptInfo *index, void *arg);
typedef bool (*IndexPathTest) (const IndexPath *path);

/*
 * The cheapest scan of a table by search keys of an index of ours, and without
 * an order.  Index and scan pass tests, which may be NULL.  NULL: there is
 * none.
 */
extern IndexPath *IndexPathFind(PlannerInfo *root, const RelOptInfo *rel, IndexTest takes, void *arg,
								IndexPathTest passes);

/*
 * What such a scan costs before it has its first row; the rest of it is for
 * the rows that it finds
 */
extern Cost IndexPathBegin(const RelOptInfo *rel, const IndexPath *path);

#endif							/* GPUVEC_INDEX_PATHS_H */
