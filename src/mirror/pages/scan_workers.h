/*-------------------------------------------------------------------------
 *
 * scan_workers.h
 *	  How many parallel workers read a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SCAN_WORKERS_H
#define GPUVEC_SCAN_WORKERS_H

#include "postgres.h"

#include "storage/block.h"
#include "utils/rel.h"

/*
 * How many workers a scan of a table of `pages` pages should have, as the
 * planner has it
 */
extern int	ScanWorkers(Relation rel, BlockNumber pages);

#endif							/* GPUVEC_SCAN_WORKERS_H */
