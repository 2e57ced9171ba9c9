/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What an ordered scan costs.
 *
 * The engine ranks all rows at once, at far less than an operator call each, before
 * the first one comes; then rows come one by one, from all over the table.  An ordered
 * scan returns all rows, whatever else is asked of them.  Planning never asks the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "index/index.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/selfuncs.h"

/* A trip to the engine, in units of random_page_cost */
#define TRIP_PAGES		2.0

/* Operator calls for a row that the engine ranks */
#define RANK_OPERATORS	0.002

void
gpuvec_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
					Cost *startup_cost, Cost *total_cost, Selectivity *selectivity,
					double *correlation, double *pages)
{
	double		rows = Max(path->indexinfo->rel->tuples, 1.0);

	*correlation = 0.0;
	*pages = 1.0;
	*selectivity = 1.0;
	if (path->indexclauses != NIL && path->indexorderbys == NIL)
		*selectivity = clauselist_selectivity(root, get_quals_from_indexclauses(path->indexclauses),
											  path->indexinfo->rel->relid, JOIN_INNER, NULL);
	else if (path->indexorderbys == NIL)
	{
		/* all rows, in no order */
		*startup_cost = *total_cost = disable_cost;
		return;
	}
	*startup_cost = TRIP_PAGES * random_page_cost + rows * RANK_OPERATORS * cpu_operator_cost;
	/* the last rows have no common id: they are found by a scan, and sorted */
	*total_cost = *startup_cost + *selectivity * rows * (cpu_index_tuple_cost + 2 * cpu_operator_cost);
}
