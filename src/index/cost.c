/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  Cost estimates of index scans.
 *
 * A scan begins with a round trip to the engine, which ranks all rows, each
 * for far less than an operator call.  Then rows come one by one.  The
 * server's own estimate has pages of the table, read in random order.
 * ORDERED_OPERATORS is added for each row: batches are read in the order of
 * their distances, and the further a scan goes, the more rows the engine has
 * to count exactly.  At the end, a scan of the table finds the rows that do
 * not rank, and a sort orders them.
 *
 * Searches measure a round trip and the ranking of a row.  They leave both in
 * shared memory, with the number of rows of the mirror (costs.c).  The
 * planner reads them there, and never asks the engine or waits for it.  What
 * was not measured is a constant.  The rows ranked are those of the mirror,
 * scaled by the number of pages that the table has got since.  For a table
 * that was never analyzed, and for a partial index, the server knows much
 * less.  (The number of rows returned remains the server's estimate, as it
 * counts in what a LIMIT leaves of a path.)
 *
 * All costs here are in units of cpu_operator_cost, as none of it is I/O:
 * settings such as random_page_cost = 1.1 must not make a round trip look
 * cheaper than sorting 50 rows.  The numbers were measured on the CPU, with
 * rows of about 50 ids.  Of a million rows, in the index's order, 1,000 take
 * 2 ms, 10,000 take 68 ms, 100,000 take 452 ms and all take 3,633 ms.
 * Scanned and sorted, up to 10,000 take 550 ms or more, 100,000 take 955 ms
 * and all take 1,086 ms.  A round trip takes 0.1 ms, and ranking a million
 * rows 0.2 ms more, where the planner's unit of cost is 3 to 6 microseconds.
 * With 200 operators a row, the planner goes from the index to a sort where
 * both are about as fast: at some thousand of 10,000 rows, and at 100,000 and
 * more of a million.  A query without LIMIT sorts.
 *
 * By weights the engine scans the ids of all rows, or of those that pass a
 * filter.  For a million rows of 54 ids that takes 24 ms with two threads of a
 * CPU, a hundred times the 0.2 ms above.
 *
 * To count the rows that match an expression of ids (count.c) takes as long as
 * that without inverted lists, and a tenth with them; the former is charged.
 *
 * For each value of an array that the set is compared with, all rows are
 * ranked once more, in one round trip.
 *
 * A scan without an order has all rows found before it returns the first one.
 * The engine sorts, sends, and has to be asked for more, and the session
 * checks the rows.  For a large part of the table, this is most of the cost
 * of a search.  Measured: 0.5 microseconds a row, up to 1.4 for half of a
 * table.  Rows that satisfy conditions on filter columns are ranked by
 * themselves; evaluating the conditions is less work than ranking, and not
 * counted.
 *
 * A mirror that is not resident has to be loaded, once.  Measured, that takes
 * 1.5 to 5 times as long as a scan of the table for the distances of all
 * rows.  How many searches will use the mirror is not known, so each is
 * charged a fiftieth of such a scan.  If the first search were charged the
 * whole load, no search would ever load a mirror.  So the index still beats a
 * scan and a sort when few rows are wanted.  Only another index that is
 * nearly as good is preferred until the mirror is loaded.
 *
 * A mirror is resident if its costs say so.  If it has no costs although
 * there was room for them, it was not loaded.  But a temporary or unlogged
 * table has no lasting mirror, and the engine may have had no room for a
 * mirror a moment ago.  Then the index scan itself scans and sorts the table,
 * which is never better than the same done by the executor.
 *
 * The server does not know how many rows a partial index has.  Without costs
 * that is estimated from the predicate.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/detoast.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "entries/entries.h"
#include "index/index_am.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

/* Operator calls that take as long as */
#define ORDERED_OPERATORS	200.0	/* getting a row in the order of distances */

/*
 * A load takes as long as LOAD_SCANS scans of the table for distances, and is
 * charged to LOAD_SEARCHES searches
 */
#define LOAD_SCANS			2.0
#define LOAD_SEARCHES		100.0

/*
 * Rows that an ordered scan ranks before it looks for the rows of its keys
 */
#define KEYED_VAIN			(GPUVEC_FIRST_BATCH + GPUVEC_FIRST_BATCH * GPUVEC_BATCH_GROWTH)

/*
 * More than the cost of any disabled path, but finite, as costs are
 * subtracted
 */
#define IMPOSSIBLE_COST			1.0e30
#define IMPOSSIBLE_DISABLED		1000

/* Operator calls of a distance, as in sql/gpuvec--*.sql */
#define DISTANCE_OPERATORS	10.0

/* True if the table's mirrors outlive a statement */
static bool
has_mirrors(PlannerInfo *root, const RelOptInfo *rel)
{
	return get_rel_persistence(planner_rt_fetch(rel->relid, root)->relid) == RELPERSISTENCE_PERMANENT;
}

/*
 * Cost of a scan of the table for the distances of `rows` rows, and of a sort
 * if they are `ordered`
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

/* True if an index makes sets of the values of its first column */
static bool
makes_sets(const IndexOptInfo *info)
{
	return EntriesClassMakesSets(info->opfamily[0], info->opcintype[0]);
}

/* Find the costs of the mirror that an index scan would use */
static CostsKnown
find_costs(PlannerInfo *root, const IndexOptInfo *info, Costs *costs)
{
	Relation	heap = table_open(planner_rt_fetch(info->rel->relid, root)->relid, NoLock);
	bool		own = info->indexprs != NIL || info->indpred != NIL || makes_sets(info);
	CostsKey	key = {
		.database = MyDatabaseId, .relation = RelationGetRelid(heap),
		.relfilenumber = GpuvecRelFile(heap), .index = own ? info->indexoid : InvalidOid,
		.attnum = makes_sets(info) ? 0 : info->indexkeys[0], .rooted = own || !RecoveryInProgress(),
		.nfilters = info->nkeycolumns - 1
	};

	table_close(heap, NoLock);
	return CostsRead(&key, costs);
}

/*
 * Cost of a round trip to the engine, which ranks about `rows` rows for each
 * of several queries, and a share of the load.  weighed: the part of the rows
 * that it ranks by weights.
 */
static Cost
trip_cost(const IndexOptInfo *info, CostsKnown known, const Costs *costs, double rows,
		  double queries, double weighed, double loops)
{
	double		rank = CostsRankOperators(costs) + weighed * CostsWeighOperators(costs);
	Cost		cost = 0;

	if (costs->nblocks > 0)
		rows = (double) costs->rows / costs->nblocks * info->rel->pages;
	if (known == COSTS_NONE || (known == COSTS_KNOWN && !CostsResident(costs)))
		cost = LOAD_SCANS * cost_without_mirror(info->rel, info->rel->tuples, false) /
			(LOAD_SEARCHES * Max(loops, 1.0));
	return cost + (CostsTripOperators() + queries * rows * rank) * cpu_operator_cost;
}

/*
 * Cost until the first row can be returned: of a round trip, or of a scan if
 * there is no mirror
 */
static Cost
begin_cost(PlannerInfo *root, const IndexOptInfo *info, double rows, double queries, bool ordered,
		   double weighed, double loops)
{
	if (has_mirrors(root, info->rel))
	{
		Costs		costs = {0};
		CostsKnown	known = find_costs(root, info, &costs);

		if (!CostsRefused(&costs))
			return trip_cost(info, known, &costs, rows, queries, weighed, loops);
	}
	return cost_without_mirror(info->rel, rows, ordered);
}

bool
GpuvecHasMirror(PlannerInfo *root, const IndexOptInfo *info)
{
	Costs		costs = {0};

	if (!has_mirrors(root, info->rel))
		return false;
	find_costs(root, info, &costs);
	return !CostsRefused(&costs);
}

Cost
GpuvecReadCost(PlannerInfo *root, const IndexOptInfo *info)
{
	Costs		costs = {0};

	find_costs(root, info, &costs);
	return info->rel->tuples * CostsWeighOperators(&costs) * cpu_operator_cost;
}

/*
 * True if the engine finds the rows of an index clause: not what is known of
 * null sets without filter columns
 */
static bool
clause_is_searched(const IndexOptInfo *info, const IndexClause *clause)
{
	return clause->indexcol > 0 || !IsA(clause->rinfo->clause, NullTest) || info->nkeycolumns > 1;
}

/*
 * Number of queries that a clause of the set is searched by.  (From
 * PostgreSQL 18 on a clause with OR may have become a condition with an
 * array.)
 */
static double
clause_queries(PlannerInfo *root, const IndexClause *clause)
{
	double		queries = 1;
	ListCell   *cell;

	foreach(cell, clause->indexquals)
	{
		Node	   *node = (Node *) lfirst_node(RestrictInfo, cell)->clause;

		if (IsA(node, ScalarArrayOpExpr))
			queries = Max(queries, GpuvecArrayLength(root, lsecond(((ScalarArrayOpExpr *) node)->args)));
	}
	return queries;
}

/* Bytes of a pattern that is looked at while a statement is planned */
#define MOST_PATTERN		1000

/*
 * True if a clause is known to say nothing of sets: LIKE or ILIKE with a
 * pattern that no trigram is found in
 */
static bool
says_nothing(const IndexOptInfo *info, const IndexClause *clause)
{
	const OpExpr *comparison = (const OpExpr *) linitial_node(RestrictInfo, clause->indexquals)->clause;
	const Const *pattern;
	int			strategy;
	Datum		set;

	if (clause->indexcol > 0 || !IsA(comparison, OpExpr))
		return false;
	strategy = get_op_opfamily_strategy(comparison->opno, info->opfamily[0]);
	if (strategy != GPUVEC_LIKE && strategy != GPUVEC_ILIKE)
		return false;
	pattern = lsecond(comparison->args);
	if (!IsA(pattern, Const) || pattern->constisnull ||
		toast_raw_datum_size(pattern->constvalue) > MOST_PATTERN)
		return false;
	set = DirectFunctionCall3Coll(gpuvec_trgm_query, info->indexcollations[0], pattern->constvalue,
								  Int16GetDatum(strategy), ObjectIdGetDatum(TEXTOID));
	return DatumGetPointer(set) == NULL;
}

/* What the clauses of a path let the engine do */
typedef struct Clauses
{
	List	   *telling;		/* those that say something, of IndexClause */
	bool		searched;		/* it finds rows by one of them */
	bool		set;			/* one is of the set, and left to the executor
								 * while rows are ranked */
	bool		filter;			/* one is of another column: only rows that
								 * satisfy it are ranked */
	double		queries;		/* that rank rows at once */
} Clauses;

static Clauses
look_at_clauses(PlannerInfo *root, const IndexPath *path)
{
	Clauses		found = {.queries = 1};
	ListCell   *cell;

	foreach(cell, path->indexclauses)
	{
		const IndexClause *clause = lfirst(cell);
		bool		searched = clause_is_searched(path->indexinfo, clause);

		if (says_nothing(path->indexinfo, clause))
			continue;
		found.telling = lappend(found.telling, lfirst(cell));
		found.searched |= searched;
		found.filter |= clause->indexcol > 0;
		if (clause->indexcol > 0 || IsA(clause->rinfo->clause, NullTest))
			continue;
		found.set = true;
		found.queries = Max(found.queries, clause_queries(root, clause));
	}
	return found;
}

/*
 * Operator calls that take as long as getting rows in the order of distances.
 * If only those are ranked that satisfy a condition, the first batch is no
 * more work than finding them.
 */
static double
ordered_operators(double rows, bool filtered)
{
	double		first = filtered ? Min(rows, GPUVEC_FIRST_BATCH) : 0;

	return first * GPUVEC_FOUND_OPERATORS + (rows - first) * ORDERED_OPERATORS;
}

/* True if a path is one that no scan can serve: see gpuvec_rescan() */
static bool
cannot_order(const IndexPath *path)
{
	return list_length(path->indexorderbys) > 1 ||
		(path->indexorderbys != NIL && linitial_int(path->indexorderbycols) != 0);
}

/*
 * Is a path one that no scan can serve?  Scans order by one distance, of the
 * first column.  And they return tids, no values: the planner takes a scan of
 * the index alone for possible where a query needs no column at all.
 */
static bool
cannot_serve(const IndexPath *path)
{
	return cannot_order(path) || path->path.pathtype == T_IndexOnlyScan;
}

/* True if a path ranks rows by weights: the query or the column has vectors */
static bool
ranks_by_weights(const IndexPath *path, bool searched)
{
	const IndexOptInfo *info = path->indexinfo;

	if (path->indexorderbys == NIL)
		return searched && RowTypeHasValues(info->opcintype[0]);
	return linitial_int(path->indexorderbycols) == 0 &&
		(RowTypeHasValues(info->opcintype[0]) ||
		 RowTypeHasValues(exprType(get_rightop((Expr *) linitial(path->indexorderbys)))));
}

/* The part of the rows that are ranked by weights */
static double
weighed_part(const IndexPath *path, const Clauses *found, Selectivity selectivity)
{
	if (!ranks_by_weights(path, found->set))
		return 0;
	return found->filter ? selectivity : 1;
}

/* Any other path has to be taken */
static void
forbid(IndexPath *path, Cost *startup_cost)
{
	*startup_cost += IMPOSSIBLE_COST;
#if PG_VERSION_NUM >= 180000
	path->path.disabled_nodes = IMPOSSIBLE_DISABLED;
#endif
}

void
gpuvec_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
					Cost *startup_cost, Cost *total_cost, Selectivity *selectivity,
					double *correlation, double *pages)
{
	IndexOptInfo *info = path->indexinfo;
	bool		ordered = path->indexorderbys != NIL;
	Clauses		found = look_at_clauses(root, path);
	List	   *predicate = add_predicate_to_index_quals(info, NIL);
	List	   *clauses = add_predicate_to_index_quals(info, get_quals_from_indexclauses(found.telling));
	Selectivity indexed = clauselist_selectivity(root, predicate, info->rel->relid, JOIN_INNER, NULL);
	double		rows = Max(indexed * info->rel->tuples, 1.0);

	*correlation = 0.0;
	*pages = 1.0;
	*startup_cost = 0;
	*selectivity = found.telling == NIL ? indexed :
		clauselist_selectivity(root, clauses, info->rel->relid, JOIN_INNER, NULL);
	if (!found.searched && !ordered)	/* all rows, in no order */
		*startup_cost += disable_cost;
	if (cannot_serve(path))
		forbid(path, startup_cost);
	*startup_cost += begin_cost(root, info, rows, found.queries, ordered,
								weighed_part(path, &found, *selectivity), loop_count);
	rows = *selectivity * info->rel->tuples;
	if (ordered && !found.set)
		ExpectedNote(info->indexoid, path->path.rows, rows, root->limit_tuples);
	if (ordered && found.set)

		/*
		 * rows are ranked in vain before the rows that the keys find are
		 * fetched
		 */
		rows += Min(KEYED_VAIN, indexed * info->rel->tuples - rows);
	if (ordered)
		*total_cost = *startup_cost + ordered_operators(rows, found.filter) * cpu_operator_cost;
	else
		*total_cost = *startup_cost += rows * GPUVEC_FOUND_OPERATORS * cpu_operator_cost;
	*total_cost += rows * cpu_index_tuple_cost;
}
