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
 * or, by the ids of sets,
 *
 *		SELECT id, count(*) FROM shop, unnest(tags) id
 *		WHERE tags && '{...}' GROUP BY id ORDER BY count(*) DESC LIMIT 10
 *
 * which may as well have unnest(tags) in the list of SELECT.
 *
 * The planner considers the node only where the search keys decide: each
 * condition, those of security barriers too, is a key of the index that needs
 * no second look at the row, but for rows whose keys are rounded; or a boolean
 * query of ids, set @@ query.  Groups are made by filter columns of the index
 * whose keys are exact.  The executor knows that better than the planner,
 * which only has to be right about costs: where it is wrong, the scan is run.
 *
 * The aggregates are count(*), and min and max of filter columns.
 *
 * Of groups in descending order of their numbers of rows, with a limit, the
 * engine returns no more than may be wanted.
 *
 * As with an index-only scan, enable_indexonlyscan = off turns it off.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "entries/entries.h"
#include "index/comparison_keys.h"
#include "index/count.h"
#include "index/index_paths.h"
#include "index/knn_scan.h"
#include "index/set_match.h"
#include "optimizer/appendinfo.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

/* Operator calls that take as long as counting a row in the engine */
#define COUNT_OPERATORS 1.0

/* Ids that rows have, and different ones, if we do not know better */
#define DEFAULT_ROW_IDS	10
#define DEFAULT_IDS		10000

static Plan *plan_count(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
						List *clauses, List *custom_plans);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec count",
	.PlanCustomPath = plan_count,
};

/* ---- scans that can be counted ---- */

/* Search keys of a path that have been looked at */
typedef struct KeysSeen
{
	bool		makes;			/* sets are made of the first column: they
								 * decide thresholds only */
	int			of_set;			/* those of the first column, and .. */
	bool		several;		/* .. a bound does not say all of them; then
								 * as */
	GpuvecMatch match;			/* an expression, as far as they are known */
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

/* Add a condition on the set, of which `key` has what it is */
static void
see_key(ScanKeyData *key, const List *args, KeysSeen *seen)
{
	const Const *value = lsecond(args);

	seen->of_set++;
	seen->match.failed |= key->sk_strategy == GPUVEC_EQUALS || key->sk_strategy == GPUVEC_REACHES;
	seen->several |= key->sk_strategy == GPUVEC_CONTAINED ||
		((key->sk_flags & SK_SEARCHARRAY) != 0 && key->sk_strategy != GPUVEC_OVERLAPS);
	if (!IsA(value, Const) || value->constisnull)
		return;
	key->sk_argument = value->constvalue;
	GpuvecMatchAddKey(&seen->match, key);
}

/*
 * The same of a query that search keys do not say all of.  False: the
 * condition is another one.
 */
static bool
see_query(const IndexOptInfo *index, const RestrictInfo *rinfo, KeysSeen *seen)
{
	const IdSetQuery *query = GpuvecMatchedQuery((const Node *) rinfo->clause, index->indexkeys[0]);

	if (query == NULL)
		return false;
	seen->several = true;
	GpuvecMatchAddQuery(&seen->match, query);
	return true;
}

/* The same of a condition of any form.  False: it is not a key. */
static bool
see_set(const IndexOptInfo *index, const IndexClause *clause, KeysSeen *seen)
{
	const Node *condition = (const Node *) ((const RestrictInfo *) linitial(clause->indexquals))->clause;
	const ScalarArrayOpExpr *array = (const ScalarArrayOpExpr *) condition;
	const OpExpr *comparison = (const OpExpr *) condition;
	bool		is_array = IsA(condition, ScalarArrayOpExpr);
	ScanKeyData key = {.sk_flags = is_array ? SK_SEARCHARRAY : 0};
	int			strategy;
	Oid			left;

	if (clause->lossy)
		return !seen->makes && see_query(index, clause->rinfo, seen);
	if (!is_array && !IsA(condition, OpExpr))
		return false;
	get_op_opfamily_properties(is_array ? array->opno : comparison->opno, index->opfamily[0], false,
							   &strategy, &left, &key.sk_subtype);
	key.sk_strategy = (StrategyNumber) strategy;
	if (seen->makes && strategy != GPUVEC_REACHES)
		return false;
	see_key(&key, is_array ? array->args : comparison->args, seen);
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

	if (list_length(clause->indexquals) != 1 || column > filters->n)
		return false;
	rinfo = linitial(clause->indexquals);
	if (IsA(rinfo->clause, NullTest))
		return !clause->lossy && filters->n > 0;
	if (column == 0)
		return see_set(index, clause, seen);
	if (clause->lossy)
		return false;
	if (IsA(rinfo->clause, ScalarArrayOpExpr))
		return FilterKinds[filters->columns[column - 1].kind].exact;
	if (!IsA(rinfo->clause, OpExpr))
		return false;
	comparison = (const OpExpr *) rinfo->clause;
	return is_comparison_decided(index, &filters->columns[column - 1], column, comparison->opno,
								 seen);
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

/* Look at all conditions of a table.  False: one is no key that decides. */
static bool
see_conditions(const IndexPath *path, KeysSeen *seen)
{
	const IndexOptInfo *index = path->indexinfo;
	Relation	rel = index_open(index->indexoid, NoLock);
	FilterColumns filters;
	ListCell   *cell;

	memset(seen, 0, sizeof(*seen));
	seen->makes = EntriesMakeSets(rel);
	FilterDescribe(rel->rd_indextuple, &filters);
	index_close(rel, NoLock);
	foreach(cell, index->indrestrictinfo)
	{
		const RestrictInfo *rinfo = lfirst(cell);
		const IndexClause *clause = clause_of(path, rinfo);

		if (rinfo->pseudoconstant ||
			(clause == NULL ? !see_query(index, rinfo, seen) :
			 !is_decided(index, &filters, clause, seen)))
			return false;
	}
	seen->several |= seen->of_set > 1;
	return !seen->several || GpuvecMatchFits(&seen->match);
}

/* IndexPathTest: all conditions of a table are search keys that decide */
static bool
decides(const IndexPath *path)
{
	KeysSeen	seen;

	return see_conditions(path, &seen);
}

/* True if a bound does not say all of the conditions */
static bool
is_several(const IndexPath *path)
{
	KeysSeen	seen;

	return see_conditions(path, &seen) && seen.several;
}

/*
 * Let the indexes of a table have search keys in place of the comparisons that
 * they say all of.  Returns what they had.
 */
static List *
exchange_conditions(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *before = NIL;
	ListCell   *cell;

	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);

		before = lappend(before, index->indrestrictinfo);
		index->indrestrictinfo = GpuvecSameConditions(root, index);
	}
	return before;
}

/* Undo this */
static void
restore_conditions(const RelOptInfo *rel, const List *before)
{
	const ListCell *cell;
	const ListCell *had;

	forboth(cell, rel->indexlist, had, before)
		((IndexOptInfo *) lfirst(cell))->indrestrictinfo = lfirst(had);
}

/* The argument of has_columns() */
typedef struct GroupTest
{
	const CountAsked *asked;
	const List *columns;		/* of asked, as the table at hand has them */
} GroupTest;

/* IndexTest: an index has all columns that are asked for, with exact keys */
static bool
has_columns(IndexOptInfo *index, void *arg)
{
	const GroupTest *test = arg;
	Relation	rel = index_open(index->indexoid, NoLock);
	FilterColumns filters;
	const Var  *column;
	ListCell   *cell;
	int			i = 0;

	FilterDescribe(rel->rd_indextuple, &filters);
	index_close(rel, NoLock);
	if (OidIsValid(test->asked->unnest))
	{
		column = linitial(test->columns);
		return IsA(column, Var) && index->indexkeys[0] == column->varattno;
	}
	foreach(cell, test->columns)
	{
		column = lfirst(cell);
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
add_cost(PlannerInfo *root, const RelOptInfo *rel, const IndexPath *index, const Path *scan,
		 const CountAsked *asked, bool several, Scans *scans)
{
	double		found = index->indexselectivity * rel->tuples;
	Cost		begin = IndexPathBegin(rel, index);
	double		unseen = 1 - Min(Max(rel->allvisfrac, 0), 1);
	double		operators = COUNT_OPERATORS * (1 + list_length(asked->columns));

	if (several)
		scans->cost += GpuvecReadCost(root, index->indexinfo);
	scans->cost += begin + found * operators * cpu_operator_cost +
		unseen * Max(scan->total_cost - begin, 0);
	scans->found += found;
	scans->unseen += found * unseen;
}

/* The target of a scan of these columns */
static PathTarget *
columns_target(PlannerInfo *root, const List *columns)
{
	PathTarget *target = create_empty_pathtarget();
	ListCell   *cell;

	foreach(cell, columns)
		add_column_to_pathtarget(target, lfirst(cell), 0);
	return set_pathtarget_cost_width(root, target);
}

/* The same columns of a partition */
static List *
columns_of_child(PlannerInfo *root, const RelOptInfo *child, const List *columns)
{
	int			n;
	AppendRelInfo **infos = find_appinfos_by_relids(root, child->relids, &n);

	return (List *) adjust_appendrel_attrs(root, (Node *) columns, n, infos);
}

/*
 * Add the scans of a table to scans, those of its partitions in its place.
 * False: one cannot be counted.
 */
static bool
add_scans(PlannerInfo *root, RelOptInfo *rel, const CountAsked *asked, List *columns, Scans *scans)
{
	GroupTest	test = {asked, columns};
	const RangeTblEntry *entry = planner_rt_fetch(rel->relid, root);
	List	   *written;
	IndexPath  *index;
	bool		several;
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
		{
			RelOptInfo *child = rel->part_rels[i];

			if (child != NULL &&
				!add_scans(root, child, asked, columns_of_child(root, child, columns), scans))
				return false;
		}
		return true;
	}
	written = exchange_conditions(root, rel);
	index = IndexPathFind(root, rel, columns != NIL ? has_columns : NULL, &test, decides);
	several = index != NULL && is_several(index);
	restore_conditions(rel, written);
	if (index == NULL)
		return false;
	scan = (Path *) create_bitmap_heap_path(root, rel, (Path *) index, NULL, 1.0, 0);
	scan->pathtarget = columns_target(root, columns);
	scans->paths = lappend(scans->paths, scan);
	add_cost(root, rel, index, scan, asked, several, scans);
	return true;
}

/* ---- planning ---- */

/* The scans' paths as one, with the columns of the table */
static Path *
join_scans(PlannerInfo *root, const CountAsked *asked, const Scans *scans)
{
	Path	   *append;

	if (list_length(scans->paths) == 1)
		return linitial(scans->paths);
	append = (Path *) GpuvecAppendOf(root, asked->table, scans->paths);
	append->pathtarget = columns_target(root, asked->columns);
	return append;
}

/* Make the path of the node */
static Path *
make_path(PlannerInfo *root, RelOptInfo *output, const CountAsked *asked, const Scans *scans,
		  double groups)
{
	CustomPath *path = makeNode(CustomPath);
	double		unseen = scans->unseen * (OidIsValid(asked->unnest) ? DEFAULT_ROW_IDS : 1);

	path->path.pathtype = T_CustomScan;
	path->path.parent = output;
	path->path.pathtarget = asked->target;
	path->path.rows = clamp_row_est(asked->nkeys > 0 ? groups + unseen : 1);
	path->path.startup_cost = scans->cost;
	path->path.total_cost = scans->cost + path->path.rows * cpu_tuple_cost;
#if PG_VERSION_NUM >= 150000
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
#endif
	path->custom_paths = list_make1(join_scans(root, asked, scans));
	path->custom_private = list_make4(asked->kinds, asked->numbers,
									  list_make2_int(list_length(asked->columns), asked->most),
									  list_make1_oid(asked->unnest));
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

/* How many groups the engine will return, roughly */
static double
estimate_groups(PlannerInfo *root, const CountAsked *asked, const Scans *scans)
{
	double		found = clamp_row_est(scans->found);
	double		groups = 1;

	if (OidIsValid(asked->unnest))
		groups = Min(found * DEFAULT_ROW_IDS, DEFAULT_IDS);
	else if (asked->nkeys > 0)
		groups = GpuvecEstimateGroups(root, asked->groups, found);
	return asked->most > 0 ? Min(groups, asked->most) : groups;
}

void
CountAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output)
{
	CountAsked	asked;
	Scans		scans = {0};
	double		groups;
	Path	   *path;

	if (!enable_indexonlyscan || !CountReadAsked(root, input, output->reltarget, &asked) ||
		!add_scans(root, asked.table, &asked, asked.columns, &scans) || scans.paths == NIL)
		return;
	/* the groups of several scans are added up above */
	if (list_length(scans.paths) > 1)
		asked.most = 0;
	groups = estimate_groups(root, &asked, &scans);
	if (groups > GPUVEC_MOST_GROUPS)
		return;
	path = make_path(root, output, &asked, &scans, groups);
	if (GpuvecGroupClause(root) != NIL)
		add_combined(root, output, path, AGG_HASHED, groups);
	add_combined(root, output, path, asked.nkeys > 0 ? AGG_SORTED : AGG_PLAIN, groups);
}

/*
 * Have the filters of scans checked only on rows that the index does not
 * prove.  Search keys say all that conditions do (decides()), but the planner
 * makes filters of those whose search keys have another operator.  Queries of
 * which search keys say less stay filters: the node reads them there.
 */
static void
move_filters(Plan *plan)
{
	const Node *set;
	ListCell   *cell;

	if (IsA(plan, BitmapHeapScan))
	{
		BitmapHeapScan *scan = (BitmapHeapScan *) plan;

		List	   *stay = NIL;

		foreach(cell, plan->qual)
		{
			if (idset_query_of(lfirst(cell), &set) != NULL)
				stay = lappend(stay, lfirst(cell));
			else
				scan->bitmapqualorig = lappend(scan->bitmapqualorig, lfirst(cell));
		}
		plan->qual = stay;
	}
	if (IsA(plan, Append))
	{
		foreach(cell, ((Append *) plan)->appendplans)
			move_filters(lfirst(cell));
	}
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
	move_filters(linitial(custom_plans));
	scan->custom_plans = custom_plans;
	scan->flags = path->flags;
	scan->methods = &CountScanMethods;
	return &scan->scan.plan;
}
