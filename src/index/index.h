/*-------------------------------------------------------------------------
 *
 * index.h
 *	  The parts of the index access method.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INDEX_H
#define GPUVEC_INDEX_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "common/measure.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

/* Strategies of the operator class idset_ops: distance operators */
#define GPUVEC_FIRST_DISTANCE	1
#define GPUVEC_LAST_DISTANCE	5

/* The measure whose distance a strategy is */
extern gpuvec_measure GpuvecStrategyMeasure(StrategyNumber strategy);

/* build.c */
extern IndexBuildResult *gpuvec_build(Relation heap, Relation index, IndexInfo *info);
extern void gpuvec_buildempty(Relation index);

/* scan.c */
extern IndexScanDesc gpuvec_beginscan(Relation index, int nkeys, int norderbys);
extern void gpuvec_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
						  int norderbys);
extern bool gpuvec_gettuple(IndexScanDesc scan, ScanDirection direction);
extern void gpuvec_endscan(IndexScanDesc scan);

/* cost.c */
extern void gpuvec_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
								Cost *startup_cost, Cost *total_cost, Selectivity *selectivity,
								double *correlation, double *pages);

#endif							/* GPUVEC_INDEX_H */
