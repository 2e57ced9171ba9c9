/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What a scan costs.
 *
 * A scan begins with a trip to the engine, which ranks all rows at far less
 * than an operator call each.  Then rows come one by one.  To the server's
 * own estimate, pages of the table in no order, each row adds what it took to
 * rank it: batches are read in the order of their distances, and the further
 * a scan goes, the more of the rows the engine has to count exactly.  At the
 * end a scan of the table finds the rows that do not rank, and a sort orders
 * them.
 *
 * What a trip and ranking a row take is measured by searches, which leave it
 * in shared memory with the rows that the mirror has (facts.c); the planner
 * takes it from there, and never asks the engine or waits for it.  What
 * nobody has measured is a constant. The rows of the mirror, of which there
 * are more or fewer by as much as the table has more or fewer pages
 * meanwhile, are those that are ranked: of a table that was never analysed,
 * and of a partial index, the server knows much less.  (How many of them are
 * returned remains the server's estimate, for it counts in what a LIMIT
 * leaves of a path.)
 *
 * All of it is in units of cpu_operator_cost, for none of it is I/O: settings
 * such as random_page_cost = 1.1 must not make a trip look cheaper than
 * sorting 50 rows. The numbers are measured, on the CPU, with rows of about
 * 50 ids.  Of a million, in the index's order, 1,000 take 2 ms, 10,000 take
 * 68, 100,000 take 452 and all take 3,633; scanned and sorted, 550 ms or
 * more, 955 and 1,086.  A trip takes 0.1 ms, ranking a million rows 0.2 ms
 * more, where the planner's unit of cost is 3 to 6 microseconds.  With 200
 * operators a row the planner goes from the index to a sort where they are
 * about as fast, at some thousand of 10,000 rows and 100,000 and more of a
 * million, and a query without LIMIT sorts.
 *
 * A scan without an order has all rows found before the first one comes: then
 * the engine sorts, sends, and has to be asked for more, and the session
 * checks the rows, which is what a search of a large part of the table mostly
 * costs.  Measured: 0.5 microseconds a row, up to 1.4 for half of a table.
 *
 * A mirror that is not resident has to be loaded, once.  Measured, that takes
 * one and a half to five times as long as a scan of the table for the
 * distances of all rows.  Nobody knows how many searches will make use of it;
 * each is charged a fiftieth of such a scan.  If the first one were charged
 * with all of it, none would ever load a mirror: so, the index still beats a
 * scan and a sort when few rows are wanted, and only another index that is
 * nearly as good is taken instead until something has loaded the mirror.  It
 * is resident if facts say so. If there are none although there was room for
 * them, nobody has loaded it.  But a table that has no lasting mirror, for it
 * is temporary or unlogged, is scanned and sorted by the index scan itself,
 * which is never better than the same done by the executor. The same goes for
 * one whose mirror the engine had no room for a moment ago.
 *
 * The server does not know how many rows a partial index has, which is a
 * single page whatever it stands for: without facts that is estimated from
 * the predicate.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_class.h"
#include "index/index_am.h"
#include "mirror/facts.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

/* Operator calls that take as long as: */
#define ORDERED_OPERATORS	200.0	/* getting a row in order of its distance */
#define FOUND_OPERATORS		60.0	/* getting a row that a search key finds */

/*
 * A load takes as long as so many scans of the table for distances, for so
 * many searches
 */
#define LOAD_SCANS			2.0
#define LOAD_SEARCHES		100.0

/* Rows that an ordered scan ranks before it looks for those of its keys */
#define KEYED_VAIN			(GPUVEC_FIRST_BATCH + GPUVEC_FIRST_BATCH * GPUVEC_BATCH_GROWTH)

/*
 * More than anything that has been disabled costs, though finite, for costs
 * are subtracted
 */
#define IMPOSSIBLE_COST			1.0e30
#define IMPOSSIBLE_DISABLED		1000

/* Operator calls of a distance, as sql/gpuvec--*.sql says */
#define DISTANCE_OPERATORS	10.0

/* Has a table mirrors that outlive a statement? */
static bool
has_mirrors(PlannerInfo *root, const RelOptInfo *rel)
{
	return get_rel_persistence(planner_rt_fetch(rel->relid, root)->relid) == RELPERSISTENCE_PERMANENT;
}

/*
 * A scan of the table for the distances of these rows, and a sort if they are
 * to be in order
 */
static Cost
cost_without_mirror(const RelOptInfo *rel, double rows, bool ordered)
{
	Cost		cost = rel->pages * seq_page_cost + rel->tuples * cpu_tuple_cost +
		rows * DISTANCE_OPERATORS * cpu_operator_cost;

	if (ordered)
		cost += 2.0 * cpu_operator_cost * rows * log2(Max(rows, 2.0));
	return cost;
}

/* Find the facts of the mirror that an index scan would use */
static FactsKnown
find_facts(PlannerInfo *root, const IndexOptInfo *info, Facts *facts)
{
	Relation	heap = table_open(planner_rt_fetch(info->rel->relid, root)->relid, NoLock);
	bool		own = info->indexkeys[0] == 0 || info->indpred != NIL;
	FactsKey	key = {
		.database = MyDatabaseId, .relation = RelationGetRelid(heap),
		.relfilenumber = GpuvecRelFile(heap), .index = own ? info->indexoid : InvalidOid,
		.attnum = info->indexkeys[0], .rooted = own || !RecoveryInProgress()
	};

	table_close(heap, NoLock);
	return FactsRead(&key, facts);
}

/*
 * A trip to the engine, which ranks about so many rows, and what it is
 * charged of a load
 */
static Cost
trip_cost(const IndexOptInfo *info, FactsKnown known, const Facts *facts, double rows,
		  double loops)
{
	Cost		cost = 0;

	if (facts->nblocks > 0)
		rows = (double) facts->rows / facts->nblocks * info->rel->pages;
	if (known == FACTS_NONE || (known == FACTS_KNOWN && !FactsResident(facts)))
		cost = LOAD_SCANS * cost_without_mirror(info->rel, info->rel->tuples, false) /
			(LOAD_SEARCHES * Max(loops, 1.0));
	return cost + (FactsTripOperators() + rows * FactsRankOperators(facts)) * cpu_operator_cost;
}

/*
 * What it takes until the first row can be had: a trip, or where there is no
 * mirror a scan
 */
static Cost
begin_cost(PlannerInfo *root, const IndexOptInfo *info, double rows, bool ordered, double loops)
{
	if (has_mirrors(root, info->rel))
	{
		Facts		facts = {0};
		FactsKnown	known = find_facts(root, info, &facts);

		if (!FactsRefused(&facts))
			return trip_cost(info, known, &facts, rows, loops);
	}
	return cost_without_mirror(info->rel, rows, ordered);
}

void
gpuvec_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
					Cost *startup_cost, Cost *total_cost, Selectivity *selectivity,
					double *correlation, double *pages)
{
	IndexOptInfo *info = path->indexinfo;
	bool		ordered = path->indexorderbys != NIL;
	List	   *predicate = add_predicate_to_index_quals(info, NIL);
	List	   *clauses = add_predicate_to_index_quals(info, get_quals_from_indexclauses(path->indexclauses));
	Selectivity indexed = clauselist_selectivity(root, predicate, info->rel->relid, JOIN_INNER, NULL);
	double		rows = Max(indexed * info->rel->tuples, 1.0);

	*correlation = 0.0;
	*pages = 1.0;
	*startup_cost = 0;
	if (path->indexclauses != NIL)
		*selectivity = clauselist_selectivity(root, clauses, info->rel->relid, JOIN_INNER, NULL);
	else
	{
		*selectivity = indexed;
		if (!ordered)			/* all rows, in no order */
			*startup_cost += disable_cost;
	}
	if (list_length(path->indexorderbys) > 1)
	{
		/* scans have one order: whatever else there is has to be taken */
		*startup_cost += IMPOSSIBLE_COST;
#if PG_VERSION_NUM >= 180000
		path->path.disabled_nodes = IMPOSSIBLE_DISABLED;
#endif
	}
	*startup_cost += begin_cost(root, info, rows, ordered, loop_count);
	rows = *selectivity * info->rel->tuples;
	if (ordered && path->indexclauses != NIL)

		/*
		 * some rows are ranked in vain before those that the keys find are
		 * fetched
		 */
		rows += Min(KEYED_VAIN, indexed * info->rel->tuples - rows);
	if (ordered)
		*total_cost = *startup_cost + rows * ORDERED_OPERATORS * cpu_operator_cost;
	else
		*total_cost = *startup_cost += rows * FOUND_OPERATORS * cpu_operator_cost;
	*total_cost += rows * cpu_index_tuple_cost;
}
