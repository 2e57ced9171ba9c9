/*-------------------------------------------------------------------------
 *
 * range_paths.c
 *	  Plans nodes with rows in the order of a filter column (ranges.c).
 *
 *		SELECT ... FROM docs WHERE tags && q ORDER BY created DESC LIMIT 20
 *
 * The path stands above a sort of a bitmap scan of one of our indexes.  It is
 * as good as its first range is small: so there is none where most rows are
 * wanted, nor where the index has no keys in the order of the first sort key,
 * or no statistics tell where a range could end.
 *
 * enable_incremental_sort = off turns it off, as it sorts range by range.
 *
 * Not with volatile functions, which would be called for rows that are
 * dropped, nor with subqueries, which may have some.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/genam.h"
#include "index/custom_node.h"
#include "index/index_am.h"
#include "index/index_paths.h"
#include "index/ranges.h"
#include "index/thresholds.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

/*
 * The first range should have MORE_ROWS times the rows that are wanted, and
 * SOME_ROWS more: few enough to sort, and mostly enough.  There are no ranges
 * where that is MOST_ROWS of all or more.
 */
#define MORE_ROWS		2
#define SOME_ROWS		16
#define MOST_ROWS		0.5

/* Ranges of a query that wants all rows */
#define COSTLY_RANGES	4

/* Rows that are wanted if the planner does not know */
#define UNKNOWN_WANTED	100

/* Of a path, but not of a plan: the expression that the column is of */
#define PRIVATE_EXPR	4

static Plan *plan_ranges(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
						 List *clauses, List *custom_plans);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec ranges",
	.PlanCustomPath = plan_ranges,
};

/* A column of an index that rows are to be in the order of */
typedef struct Sought
{
	PlannerInfo *root;
	const PathKey *key;			/* the first sort key */
	Node	   *expr;			/* .. of this table */
	int			column;			/* of the index that was found, from 1 on */
} Sought;

/* How many rows of a table are wanted; 0: all */
static double
rows_wanted(PlannerInfo *root, const RelOptInfo *rel)
{
	if (root->limit_tuples > 0)
		return root->limit_tuples;
	if (root->tuple_fraction >= 1)
		return root->tuple_fraction;
	if (root->tuple_fraction <= 0)
		return 0;
	return Min(root->tuple_fraction * rel->rows, UNKNOWN_WANTED);
}

/* True if keys of a column are in the order that a sort key asks for */
static bool
has_order(const IndexOptInfo *index, const FilterColumn *filter, int column, const PathKey *key)
{
	FilterOrder order = FilterKinds[filter->kind].order;
	Oid			type = index->opcintype[column];
	Oid			operator = get_opfamily_member(index->opfamily[column], type, type,
											   GPUVEC_FILTER_AT_LEAST);

	return (order == FILTER_BY_KEY || (order == FILTER_BY_PREFIX && filter->prefix)) &&
		OidIsValid(operator) &&
		get_op_opfamily_strategy(operator, key->pk_opfamily) == BTGreaterEqualStrategyNumber &&
		index->indexcollations[column] == key->pk_eclass->ec_collation;
}

/*
 * What a table is to be sorted by for a sort key; NULL: nothing, or one of
 * several columns that are equal
 */
static Node *
find_member(const PathKey *key, const RelOptInfo *rel)
{
	Node	   *found = NULL;
	ListCell   *cell;

	foreach(cell, GpuvecMembers(key->pk_eclass, rel))
	{
		const EquivalenceMember *member = lfirst(cell);

		if (!bms_equal(member->em_relids, rel->relids))
			continue;
		if (found != NULL)
			return NULL;
		found = (Node *) member->em_expr;
	}
	return found;
}

/*
 * IndexTest: the sort key is a column of the index, of which there are
 * statistics.  Notes which.
 */
static bool
finds_column(IndexOptInfo *index, void *arg)
{
	Sought	   *sought = arg;
	Relation	rel = index_open(index->indexoid, NoLock);
	FilterColumns filters;
	bool		found = false;

	FilterDescribe(rel->rd_indextuple, &filters);
	for (int i = 1; i <= filters.n && !found; i++)
	{
		sought->column = i + 1;
		found = has_order(index, &filters.columns[i - 1], i, sought->key) &&
			match_index_to_operand(sought->expr, i, index) &&
			ThresholdsHave(rel, i + 1, &filters.columns[i - 1]);
	}
	index_close(rel, NoLock);
	return found && GpuvecHasMirror(sought->root, index);
}

/* The sort keys that can be computed of a table's rows, the first ones */
static List *
keys_of(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *keys = NIL;
	ListCell   *i;
	ListCell   *j;

	foreach(i, root->query_pathkeys)
	{
		PathKey    *key = lfirst(i);
		bool		found = false;

		foreach(j, GpuvecMembers(key->pk_eclass, rel))
			found |= bms_equal(((EquivalenceMember *) lfirst(j))->em_relids, rel->relids);
		if (!found || key->pk_eclass->ec_has_volatile)
			break;
		keys = lappend(keys, key);
	}
	return keys;
}

/* Let a path cost what its first range does, and then what all of them do */
static void
set_costs(CustomPath *path, const RelOptInfo *rel, const IndexPath *index, const Path *scan,
		  double first)
{
	Cost		begin = IndexPathBegin(rel, index);
	double		rows = first * scan->rows;
	Cost		found = Max(scan->total_cost - begin, 0);

	path->path.startup_cost = begin + first * found + rows * log2(rows + 2) * 2 * cpu_operator_cost;
	path->path.total_cost = Max(path->path.total_cost, path->path.startup_cost) +
		COSTLY_RANGES * begin;
}

/* True if a function may have to be called once for each row */
static bool
has_volatile(const RelOptInfo *rel)
{
	Node	   *targets = (Node *) rel->reltarget->exprs;
	Node	   *conditions = (Node *) extract_actual_clauses(rel->baserestrictinfo, false);

	return contain_volatile_functions(targets) || contain_subplans(targets) ||
		contain_volatile_functions(conditions) || contain_subplans(conditions);
}

static Node *
make_float(double number)
{
	return (Node *) makeFloat(psprintf("%.17g", number));
}

void
RangesAddPath(PlannerInfo *root, RelOptInfo *rel)
{
	double		wanted = rows_wanted(root, rel);
	List	   *keys = wanted > 0 ? keys_of(root, rel) : NIL;
	double		rows = MORE_ROWS * wanted + SOME_ROWS;
	double		first = rows / Max(rel->rows, 1);
	Sought		sought;
	IndexPath  *index;
	Path	   *scan;
	Path	   *sort;
	CustomPath *path;

	if (!enable_incremental_sort || keys == NIL || first >= MOST_ROWS)
		return;
	sought.root = root;
	sought.key = linitial(keys);
	sought.expr = find_member(sought.key, rel);
	if (sought.expr == NULL)
		return;
	index = IndexPathFind(root, rel, finds_column, &sought, NULL);
	/* which column it was, of several indexes */
	if (index == NULL || !finds_column(index->indexinfo, &sought) || has_volatile(rel))
		return;
	scan = (Path *) create_bitmap_heap_path(root, rel, (Path *) index, NULL, 1.0, 0);
	sort = (Path *) create_sort_path(root, rel, scan, keys, -1);
	path = (CustomPath *) CustomNodePath(sort, &path_methods);
	path->path.parallel_safe = false;
	path->custom_private = list_make4(make_float(first),
									  make_float(first * index->indexselectivity * rel->tuples),
									  makeInteger(!GpuvecIsNotNull(root, rel, sought.expr)),
									  makeInteger(sought.column));
	path->custom_private = lappend(path->custom_private, sought.expr);
	set_costs(path, rel, index, scan, first);
	add_path(rel, &path->path);
}

/* An expression below changes of its type that change nothing else */
static Node *
without_casts(Node *node)
{
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	return node;
}

/*
 * PlanCustomPath.  If the sort has chosen another column, which the query says
 * is equal, there are no ranges.
 */
static Plan *
plan_ranges(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist, List *clauses,
			List *custom_plans)
{
	Sort	   *sort = linitial(custom_plans);
	CustomScan *plan = (CustomScan *) CustomNodePlan(path, tlist, &sort->plan, &RangesScanMethods);
	const TargetEntry *sorted = get_tle_by_resno(sort->plan.targetlist, sort->sortColIdx[0]);
	bool		same = equal(without_casts((Node *) sorted->expr),
							 without_casts(list_nth(path->custom_private, PRIVATE_EXPR)));

	plan->custom_private = list_make4(list_nth(path->custom_private, RANGES_FIRST),
									  list_nth(path->custom_private, RANGES_ROWS),
									  list_nth(path->custom_private, RANGES_NULLS),
									  same ? list_nth(path->custom_private, RANGES_COLUMN) : (void *) makeInteger(0));
	return &plan->scan.plan;
}
