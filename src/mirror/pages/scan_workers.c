/*-------------------------------------------------------------------------
 *
 * scan_workers.c
 *	  How many parallel workers read a table.
 *
 * The planner decides by min_parallel_table_scan_size,
 * max_parallel_workers_per_gather and the table's parallel_workers.  Its
 * function wants what only a plan has.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/pages/scan_workers.h"
#include "optimizer/cost.h"
#include "optimizer/paths.h"

int
ScanWorkers(Relation rel, BlockNumber pages)
{
	double		threshold = Max(min_parallel_table_scan_size, 1);
	int			workers = RelationGetParallelWorkers(rel, -1);

	if (workers == -1)
	{
		if (pages < (BlockNumber) min_parallel_table_scan_size)
			return 0;
		workers = 1;
		for (; pages >= threshold * 3; threshold *= 3)
			workers++;
	}
	return Min(workers, max_parallel_workers_per_gather);
}
