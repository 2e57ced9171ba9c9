/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What a scan costs.
 *
 * The engine ranks all rows at once, at far less than an operator call each, before
 * the first one comes; then rows come one by one, from all over the table.  An ordered
 * scan returns all rows, whatever else is asked of them.  A scan without an order has
 * them all found before the first one comes: then the engine sorts, sends, and has to be
 * asked for more, and the session checks the rows, which is what a search of a large part
 * of the table mostly costs.  Planning never asks the engine.
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

/*
 * ... and for one that it finds for a search key.  Measured: 0.5 microseconds, up to 1.4
 * for half of a table; a sequential scan that calls an operator of sets takes about 4.7
 * for a unit of cost, so that 40 calls (0.1 units) are 0.5.
 */
#define FIND_OPERATORS	40.0

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
	if (path->indexorderbys == NIL)
		*startup_cost += *selectivity * rows * FIND_OPERATORS * cpu_operator_cost;
	/* the last rows have no common id: they are found by a scan, and sorted */
	*total_cost = *startup_cost + *selectivity * rows * (cpu_index_tuple_cost + 2 * cpu_operator_cost);
}
