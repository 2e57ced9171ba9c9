/*-------------------------------------------------------------------------
 *
 * count_paths.c
 *	  Plans nodes that count rows without looking at most of them (count.c).
 *
 *		SELECT brand, count(*), min(price) FROM shop
 *		WHERE tags && '{...}' AND price < 10 GROUP BY brand
 *
 * The node returns what a partial aggregate returns in a parallel query, and
 * the server's own node above it combines that: a group may come in parts.
 * HAVING and expressions are evaluated there.
 *
 * The planner considers the node only where the search keys decide: each
 * condition, those of security barriers too, is a key of the index that needs
 * no second look at the row, but for rows whose keys are rounded.  Groups are
 * made by filter columns of the index whose keys are exact.  The executor
 * knows that better than the planner, which only has to be right about costs:
 * where it is wrong, the scan is run.
 *
 * The aggregates are count(*), and min and max of filter columns.
 *
 * As with an index-only scan, enable_indexonlyscan = off turns it off.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_aggregate.h"
#include "index/count.h"
#include "index/index_paths.h"
#include "index/knn_scan.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* Operator calls that take as long as counting a row in the engine */
#define COUNT_OPERATORS 1.0

/* What is asked for: what the rows of the node consist of */
typedef struct Asked
{
	PathTarget *target;			/* of the node: keys, partial aggregates */
	List	   *kinds;			/* of these: CountOutput */
	List	   *numbers;		/* of the column that each is of, in places */
	List	   *places;			/* columns in the targets of the scan: those of
								 * keys, then those of values */
	int			nkeys;
	List	   *groups;			/* expressions of GROUP BY */
} Asked;

static Plan *plan_count(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
						List *clauses, List *custom_plans);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec count",
	.PlanCustomPath = plan_count,
};

/* ---- what is asked for ---- */

/* True for an aggregate of this query, of all rows in any order */
static bool
is_plain(const Aggref *agg)
{
	return agg->aggfilter == NULL && agg->aggdistinct == NIL && agg->aggorder == NIL &&
		agg->agglevelsup == 0;
}

/* True for count(*), and for count of a constant */
static bool
counts_rows(const Aggref *agg)
{
	if (agg->aggfnoid == F_COUNT_)
		return true;
	if (agg->aggfnoid == F_COUNT_ANY)
	{
		const TargetEntry *entry = linitial(agg->args);

		return IsA(entry->expr, Const) && !((const Const *) entry->expr)->constisnull;
	}
	return false;
}

/*
 * The column that an aggregate is the least or the greatest value of, or NULL;
 * *greatest says which
 */
static const Var *
value_of(const Aggref *agg, bool *greatest)
{
	const Var  *column;
	const TypeCacheEntry *type;
	HeapTuple	tuple;
	Oid			operator;

	if (agg->aggfnoid >= FirstNormalObjectId || list_length(agg->args) != 1 ||
		!IsA(((const TargetEntry *) linitial(agg->args))->expr, Var))
		return NULL;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(agg->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		return NULL;
	operator = ((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop;
	ReleaseSysCache(tuple);
	column = (const Var *) ((const TargetEntry *) linitial(agg->args))->expr;
	type = lookup_type_cache(column->vartype, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	/* it has an operator only if it is the first value in that order */
	*greatest = operator == type->gt_opr;
	return OidIsValid(operator) && (*greatest || operator == type->lt_opr) ? column : NULL;
}

/* The place of a column in the targets of a table's scan, or -1 */
static int
place_of(const RelOptInfo *input, const Node *column)
{
	ListCell   *cell;
	int			place = 0;

	foreach(cell, input->reltarget->exprs)
	{
		if (equal(lfirst(cell), column))
			return place;
		place++;
	}
	return -1;
}

/* Add a column to what is returned: a key, or an aggregate */
static void
add_output(Asked *asked, Expr *expr, Index ref, CountOutput kind, int number)
{
	add_column_to_pathtarget(asked->target, expr, ref);
	asked->kinds = lappend_int(asked->kinds, kind);
	asked->numbers = lappend_int(asked->numbers, number);
}

/* Add a column that rows are grouped by.  False: it cannot be one. */
static bool
add_key(const RelOptInfo *input, Expr *expr, Index ref, Asked *asked)
{
	int			place = IsA(expr, Var) ? place_of(input, (Node *) expr) : -1;

	if (place < 0)
		return false;
	add_output(asked, expr, ref, COUNT_KEY, asked->nkeys);
	asked->places = lappend_int(asked->places, place);
	asked->groups = lappend(asked->groups, expr);
	asked->nkeys++;
	return true;
}

/* Add an aggregate.  False: the node does not make it. */
static bool
add_aggregate(const RelOptInfo *input, const Aggref *agg, Asked *asked)
{
	Aggref	   *partial = copyObject((Aggref *) agg);
	bool		greatest;
	const Var  *column;
	int			number = asked->nkeys;
	int			place;

	mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
	if (counts_rows(agg))
	{
		add_output(asked, (Expr *) partial, 0, COUNT_ROWS, 0);
		return true;
	}
	column = value_of(agg, &greatest);
	place = column != NULL ? place_of(input, (const Node *) column) : -1;
	if (place < 0)
		return false;
	while (number < list_length(asked->places) && list_nth_int(asked->places, number) != place)
		number++;
	if (number == list_length(asked->places))
		asked->places = lappend_int(asked->places, place);
	add_output(asked, (Expr *) partial, 0, greatest ? COUNT_GREATEST : COUNT_LEAST, number);
	return true;
}

/* Read the columns of GROUP BY.  False: not all can be ones. */
static bool
read_groups(PlannerInfo *root, const RelOptInfo *input, const PathTarget *target, Asked *asked)
{
	ListCell   *cell;
	int			i = 0;

	foreach(cell, target->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(target, i++);

		if (ref != 0 && get_sortgroupref_clause_noerr(ref, root->parse->groupClause) != NULL &&
			!add_key(input, lfirst(cell), ref, asked))
			return false;
	}
	return asked->nkeys == list_length(root->parse->groupClause);
}

/*
 * Read what a query asks for, in its targets and in HAVING.  False: not all of
 * it is a column of GROUP BY or an aggregate that the node makes.
 */
static bool
read_asked(PlannerInfo *root, const RelOptInfo *input, const PathTarget *target, Asked *asked)
{
	int			flags = PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS;
	List	   *nodes = list_concat(pull_var_clause((Node *) target->exprs, flags),
									pull_var_clause(root->parse->havingQual, flags));
	List	   *done = NIL;
	ListCell   *cell;

	asked->target = create_empty_pathtarget();
	if (!read_groups(root, input, target, asked))
		return false;
	foreach(cell, nodes)
	{
		if (list_member(done, lfirst(cell)) || list_member(asked->groups, lfirst(cell)))
			continue;
		if (!IsA(lfirst(cell), Aggref) || !is_plain(lfirst(cell)) ||
			!add_aggregate(input, lfirst(cell), asked))
			return false;
		done = lappend(done, lfirst(cell));
	}
	set_pathtarget_cost_width(root, asked->target);
	return done != NIL && list_length(asked->places) <= GPUVEC_MOST_GROUPED;
}

/* ---- scans that can be counted ---- */

/* Search keys of a path that have been looked at */
typedef struct KeysSeen
{
	int			of_set;			/* those of the first column */
	int			rounded;		/* those of a column whose keys are rounded */
	int			rounded_column;
} KeysSeen;

/*
 * True if the executor need only look at few of the rows that a comparison of
 * a filter column finds: at none, or at those whose rounded keys are equal
 */
static bool
is_comparison_decided(const IndexOptInfo *index, const FilterColumn *filter, int column,
					  Oid operator, KeysSeen *seen)
{
	FilterOrder order = FilterKinds[filter->kind].order;

	if (FilterKinds[filter->kind].exact)
		return true;
	if ((order != FILTER_BY_KEY && !(order == FILTER_BY_PREFIX && filter->prefix)) ||
		get_op_opfamily_strategy(operator, index->opfamily[column]) == GPUVEC_FILTER_EQUAL ||
		(seen->rounded > 0 && seen->rounded_column != column) || seen->rounded == GPUVEC_MOST_ROUNDED)
		return false;
	seen->rounded++;
	seen->rounded_column = column;
	return true;
}

/* True if the executor need look at few of the rows that a condition finds */
static bool
is_decided(const IndexOptInfo *index, const FilterColumns *filters, const IndexClause *clause,
		   KeysSeen *seen)
{
	int			column = clause->indexcol;
	const RestrictInfo *rinfo;
	const OpExpr *comparison;

	if (clause->lossy || list_length(clause->indexquals) != 1 || column > filters->n)
		return false;
	rinfo = linitial(clause->indexquals);
	if (IsA(rinfo->clause, NullTest))
		return filters->n > 0;
	if (IsA(rinfo->clause, ScalarArrayOpExpr))
		return column > 0 && FilterKinds[filters->columns[column - 1].kind].exact;
	if (!IsA(rinfo->clause, OpExpr))
		return false;
	comparison = (const OpExpr *) rinfo->clause;
	if (column > 0)
		return is_comparison_decided(index, &filters->columns[column - 1], column, comparison->opno,
									 seen);
	seen->of_set++;
	return get_op_opfamily_strategy(comparison->opno, index->opfamily[0]) != GPUVEC_CONTAINED;
}

/* The clause of a path that a condition became, or NULL */
static const IndexClause *
clause_of(const IndexPath *path, const RestrictInfo *rinfo)
{
	ListCell   *cell;

	foreach(cell, path->indexclauses)
		if (((const IndexClause *) lfirst(cell))->rinfo == rinfo)
		return lfirst(cell);
	return NULL;
}

/* IndexPathTest: all conditions of a table are search keys that decide */
static bool
decides(const IndexPath *path)
{
	const IndexOptInfo *index = path->indexinfo;
	Relation	rel = index_open(index->indexoid, NoLock);
	FilterColumns filters;
	KeysSeen	seen = {0};
	ListCell   *cell;

	FilterDescribe(rel->rd_indextuple, &filters);
	index_close(rel, NoLock);
	foreach(cell, index->indrestrictinfo)
	{
		const RestrictInfo *rinfo = lfirst(cell);
		const IndexClause *clause = rinfo->pseudoconstant ? NULL : clause_of(path, rinfo);

		if (clause == NULL || !is_decided(index, &filters, clause, &seen))
			return false;
	}
	return seen.of_set <= 1;
}

/* The argument of has_columns() */
typedef struct GroupTest
{
	const RelOptInfo *rel;
	const Asked *asked;
} GroupTest;

/* IndexTest: an index has all columns that are asked for, with exact keys */
static bool
has_columns(IndexOptInfo *index, void *arg)
{
	const GroupTest *test = arg;
	Relation	rel = index_open(index->indexoid, NoLock);
	FilterColumns filters;
	ListCell   *cell;
	int			i = 0;

	FilterDescribe(rel->rd_indextuple, &filters);
	index_close(rel, NoLock);
	foreach(cell, test->asked->places)
	{
		const Var  *column = list_nth(test->rel->reltarget->exprs, lfirst_int(cell));

		if (!IsA(column, Var) ||
			CountColumn(&filters, column->varattno, i++ >= test->asked->nkeys) == 0)
			return false;
	}
	return true;
}

/* The scans of a table, or of its partitions, and all of them together */
typedef struct Scans
{
	List	   *paths;
	Cost		cost;			/* of counting */
	double		found;			/* rows */
	double		unseen;			/* of these: those to look at */
} Scans;

/*
 * Add what it costs to count the rows of a scan, and to look at those that the
 * visibility map does not prove
 */
static void
add_cost(const RelOptInfo *rel, const IndexPath *index, const Path *scan, const Asked *asked,
		 Scans *scans)
{
	double		found = index->indexselectivity * rel->tuples;
	Cost		begin = IndexPathBegin(rel, index);
	double		unseen = 1 - Min(Max(rel->allvisfrac, 0), 1);
	double		operators = COUNT_OPERATORS * (1 + list_length(asked->places));

	scans->cost += begin + found * operators * cpu_operator_cost +
		unseen * Max(scan->total_cost - begin, 0);
	scans->found += found;
	scans->unseen += found * unseen;
}

/*
 * Add the scans of a table to scans, those of its partitions in its place.
 * False: one cannot be counted.
 */
static bool
add_scans(PlannerInfo *root, RelOptInfo *rel, const Asked *asked, Scans *scans)
{
	GroupTest	test = {rel, asked};
	const RangeTblEntry *entry = planner_rt_fetch(rel->relid, root);
	IndexPath  *index;
	Path	   *scan;

	if (IS_DUMMY_REL(rel))
		return true;
	if (entry->rtekind != RTE_RELATION || entry->tablesample != NULL)
		return false;
	if (entry->inh)
	{
		if (!IS_PARTITIONED_REL(rel))
			return false;
		for (int i = 0; i < rel->nparts; i++)
			if (rel->part_rels[i] != NULL && !add_scans(root, rel->part_rels[i], asked, scans))
				return false;
		return true;
	}
	index = IndexPathFind(root, rel, asked->places != NIL ? has_columns : NULL, &test, decides);
	if (index == NULL)
		return false;
	scan = (Path *) create_bitmap_heap_path(root, rel, (Path *) index, NULL, 1.0, 0);
	scans->paths = lappend(scans->paths, scan);
	add_cost(rel, index, scan, asked, scans);
	return true;
}

/* ---- planning ---- */

/* Make the path of the node */
static Path *
make_path(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output, const Asked *asked,
		  const Scans *scans, double groups)
{
	CustomPath *path = makeNode(CustomPath);

	path->path.pathtype = T_CustomScan;
	path->path.parent = output;
	path->path.pathtarget = asked->target;
	path->path.rows = clamp_row_est(asked->nkeys > 0 ? groups + scans->unseen : 1);
	path->path.startup_cost = scans->cost;
	path->path.total_cost = scans->cost + path->path.rows * cpu_tuple_cost;
#if PG_VERSION_NUM >= 150000
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
#endif
	path->custom_paths = list_make1(list_length(scans->paths) == 1 ? linitial(scans->paths) :
									GpuvecAppendOf(root, input, scans->paths));
	path->custom_private = list_make3(asked->kinds, asked->numbers, asked->places);
	path->methods = &path_methods;
	return &path->path;
}

/*
 * Add the path of an aggregate that combines what the node returns.  From 16
 * on, columns with one value each are not among those to group by.
 */
static void
add_combined(PlannerInfo *root, RelOptInfo *output, Path *path, AggStrategy strategy,
			 double groups)
{
	List	   *clause = GpuvecGroupClause(root);

	if (strategy == AGG_SORTED)
	{
		List	   *tlist = make_tlist_from_pathtarget(path->pathtarget);
		List	   *order = make_pathkeys_for_sortclauses(root, clause, tlist);

		/* columns that have one value each are in order */
		if (order != NIL)
			path = (Path *) create_sort_path(root, output, path, order, -1);
	}
	add_path(output, (Path *) create_agg_path(root, output, path, output->reltarget, strategy,
											  AGGSPLIT_FINAL_DESERIAL, clause,
											  (List *) root->parse->havingQual, NULL, groups));
}

void
CountAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output)
{
	const Query *parse = root->parse;
	Asked		asked = {0};
	Scans		scans = {0};
	double		groups = 1;
	Path	   *path;

	if (!enable_indexonlyscan || input->reloptkind != RELOPT_BASEREL || !parse->hasAggs ||
		parse->groupingSets != NIL || !read_asked(root, input, output->reltarget, &asked) ||
		IS_DUMMY_REL(input) || !add_scans(root, input, &asked, &scans) || scans.paths == NIL)
		return;
	if (asked.nkeys > 0)
		groups = GpuvecEstimateGroups(root, asked.groups, clamp_row_est(scans.found));
	if (groups > GPUVEC_MOST_GROUPS)
		return;
	path = make_path(root, input, output, &asked, &scans, groups);
	if (GpuvecGroupClause(root) != NIL)
		add_combined(root, output, path, AGG_HASHED, groups);
	add_combined(root, output, path, asked.nkeys > 0 ? AGG_SORTED : AGG_PLAIN, groups);
}

/* PlanCustomPath: the node's rows consist of keys and partial aggregates */
static Plan *
plan_count(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist, List *clauses,
		   List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan.targetlist = tlist;
	scan->custom_scan_tlist = copyObject(tlist);
	scan->custom_private = path->custom_private;
	scan->custom_plans = custom_plans;
	scan->flags = path->flags;
	scan->methods = &CountScanMethods;
	return &scan->scan.plan;
}
