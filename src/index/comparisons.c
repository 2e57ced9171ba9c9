/*-------------------------------------------------------------------------
 *
 * comparisons.c
 *	  Finds index conditions in comparisons of similarities and distances.
 *
 * People write jaccard_similarity(tokens, q) >= 0.5 and tokens <%> q < 0.5.
 * The planner looks for an index where an operator of a condition has the
 * column on one side.  Here it is inside of a function on that side, and no
 * support function is asked.  So after the planner has made the paths of a
 * table, they are made once more, with the search key that such a condition
 * implies beside it (comparison_keys.c).  The key is there only while paths
 * are made.  What an index path has found by it, the executor filters by the
 * condition as it was written, which stays where it was.  So no row is wrong,
 * whatever the key lets through.
 *
 * A path whose parameters come from another table keeps a list of conditions
 * that it enforces.  From these the new ones are taken out again, or they
 * would be evaluated for each row.
 *
 * The planner assumes that a third of all rows satisfy a comparison of a
 * function, as it knows no better.  It gets the selectivity of the new
 * condition instead.
 *
 * Security barriers.  The planner searches an index for a condition that came
 * from outside of a barrier only if that is leakproof: it must not show
 * values of rows that the barrier hides, in an error for instance.  The
 * functions of scores and distances are (idset_measure.c has no errors that
 * depend on sets).  <<->> is not, for it has errors for bad measures and NaN,
 * which may be values of a hidden row.  But those that are made here have
 * good ones.  And where the right side is known when the statement is
 * planned, and good, a condition tokens <<->> threshold is taken as leakproof,
 * whether it was written so, or made of a comparison with functions that are
 * not: the executor evaluates these where it would without an index.  One by
 * Jaccard's measure of vectors is never good: it may fail.  Nor is one of
 * arrays: making a set calls functions of the elements' type.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "index/comparison_keys.h"
#include "index/index_am.h"
#include "index/ranges.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"

/* Conditions of a table, each with the one that it was made from */
typedef struct Made
{
	List	   *made;			/* of RestrictInfo */
	List	   *from;
} Made;

static set_rel_pathlist_hook_type previous_hook = NULL;

/* ---- the conditions of a table ---- */

/* True if a condition was made already, for another index */
static bool
is_made(const Made *made, const Node *clause)
{
	ListCell   *cell;

	foreach(cell, made->made)
		if (equal(((const RestrictInfo *) lfirst(cell))->clause, clause))
		return true;
	return false;
}

/* Make the conditions for an index from a list of conditions */
static void
make_conditions(GpuvecSearched *searched, List *restrictions, Made *made)
{
	ListCell   *cell;

	foreach(cell, restrictions)
	{
		RestrictInfo *from = lfirst(cell);
		bool		good = !from->leakproof && from->security_level > 0 &&
			GpuvecIsGoodThreshold(searched, (OpExpr *) from->clause);
		RestrictInfo *to;
		Node	   *clause;

		searched->found = false;
		clause = good ? (Node *) from->clause : GpuvecConditionOf(searched, (Node *) from->clause);
		if (from->pseudoconstant || !(good || searched->found) || is_made(made, clause))
			continue;
		to = GpuvecRestrictionLike(searched->root, (Expr *) clause, from);
		to->leakproof = from->leakproof || GpuvecIsGoodThreshold(searched, (OpExpr *) clause);
		made->made = lappend(made->made, to);
		made->from = lappend(made->from, from);
	}
}

/* Multiply the number of rows of all paths of a table, and of its parents */
static void
scale_rows(PlannerInfo *root, RelOptInfo *rel, double before)
{
	double		difference = rel->rows - before;
	double		factor = rel->rows / Max(before, 1.0);
	ListCell   *cell;

	foreach(cell, rel->pathlist)
		((Path *) lfirst(cell))->rows = clamp_row_est(((Path *) lfirst(cell))->rows * factor);
	foreach(cell, rel->partial_pathlist)
		((Path *) lfirst(cell))->rows = clamp_row_est(((Path *) lfirst(cell))->rows * factor);
	foreach(cell, rel->ppilist)
		((ParamPathInfo *) lfirst(cell))->ppi_rows = clamp_row_est(((ParamPathInfo *) lfirst(cell))->ppi_rows * factor);
	while (rel->reloptkind == RELOPT_OTHER_MEMBER_REL && root->append_rel_array != NULL &&
		   root->append_rel_array[rel->relid] != NULL)
	{
		rel = root->simple_rel_array[root->append_rel_array[rel->relid]->parent_relid];
		rel->rows = Max(rel->rows + difference, 1.0);
	}
}

/* Give the conditions of a table the selectivities of those made from them */
static void
estimate_rows(PlannerInfo *root, RelOptInfo *rel, const Made *made)
{
	double		before = rel->rows;
	ListCell   *to;
	ListCell   *from;

	forboth(to, made->made, from, made->from)
		((RestrictInfo *) lfirst(from))->norm_selec =
		clause_selectivity(root, lfirst(to), 0, JOIN_INNER, NULL);
	set_baserel_size_estimates(root, rel);
	if (rel->rows != before)
		scale_rows(root, rel, before);
}

/* Take conditions out of what paths with parameters enforce */
static void
forget_conditions(RelOptInfo *rel, const List *made)
{
	ListCell   *cell;
	ListCell   *to;

	foreach(cell, rel->ppilist)
	{
		ParamPathInfo *info = lfirst(cell);

		foreach(to, made)
		{
			if (!list_member_ptr(info->ppi_clauses, lfirst(to)))
				continue;
			info->ppi_clauses = list_delete_ptr(list_copy(info->ppi_clauses), lfirst(to));
			GpuvecForgetSerial(info, (RestrictInfo *) lfirst(to));
		}
	}
}

/*
 * Make paths of indexes as if the query were sorted by a distance.  Those
 * that are have the query's own first sort key.
 */
static void
make_ordered_paths(PlannerInfo *root, RelOptInfo *rel, PathKey *order)
{
	List	   *keys = root->query_pathkeys;
	List	   *first = list_length(keys) == 1 ? keys : list_make1(linitial(keys));
	List	   *before = rel->pathlist;
	List	   *made;
	ListCell   *cell;

	rel->pathlist = NIL;
	root->query_pathkeys = list_make1(order);
	create_index_paths(root, rel);
	root->query_pathkeys = keys;
	made = rel->pathlist;
	rel->pathlist = before;
	foreach(cell, made)
	{
		Path	   *path = lfirst(cell);

		if (path->pathkeys != NIL && linitial(path->pathkeys) == order)
			path->pathkeys = first;
		add_path(rel, path);
	}
}

/*
 * Make the paths of a table's indexes once more, with these conditions, and
 * with an order if there is one; and those of nodes above them
 */
static void
make_paths(PlannerInfo *root, RelOptInfo *rel, const Made *own, const Made *joins, PathKey *order)
{
	List	   *restrictions = rel->baserestrictinfo;
	List	   *joininfo = rel->joininfo;
	List	   *before = NIL;
	ListCell   *cell;
	ListCell   *saved;

	rel->baserestrictinfo = list_concat(list_copy(restrictions), own->made);
	rel->joininfo = list_concat(list_copy(joininfo), joins->made);
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);

		before = lappend(before, index->indrestrictinfo);
		index->indrestrictinfo = list_concat(list_copy(index->indrestrictinfo), own->made);
	}
	if (order != NULL)
		make_ordered_paths(root, rel, order);
	else
		create_index_paths(root, rel);
	RangesAddPath(root, rel);
	forboth(cell, rel->indexlist, saved, before)
		((IndexOptInfo *) lfirst(cell))->indrestrictinfo = lfirst(saved);
	rel->baserestrictinfo = restrictions;
	rel->joininfo = joininfo;
	forget_conditions(rel, joins->made);
}

/* set_rel_pathlist_hook: add the paths of a table */
static void
add_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	Made		own = {0};
	Made		joins = {0};
	PathKey    *order;
	ListCell   *cell;

	if (previous_hook)
		previous_hook(root, rel, rti, rte);
	if ((rel->reloptkind != RELOPT_BASEREL && rel->reloptkind != RELOPT_OTHER_MEMBER_REL) ||
		rte->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL || IS_DUMMY_REL(rel))
		return;
	foreach(cell, rel->indexlist)
	{
		GpuvecSearched	searched;

		if (!GpuvecFindSearched(root, lfirst(cell), &searched))
			continue;
		make_conditions(&searched, rel->baserestrictinfo, &own);
		make_conditions(&searched, rel->joininfo, &joins);
	}
	if (own.made != NIL)
		estimate_rows(root, rel, &own);
	order = GpuvecFindOrder(root, rel);
	if (own.made != NIL || joins.made != NIL || order != NULL)
		make_paths(root, rel, &own, &joins, order);
	else
		RangesAddPath(root, rel);
}

/* Called once, when the library is loaded */
void
GpuvecComparisonsInit(void)
{
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_paths;
}
