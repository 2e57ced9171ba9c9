/*-------------------------------------------------------------------------
 *
 * orders.c
 *	  Finds orders of distances in what a query is sorted by.
 *
 * People write ORDER BY 1 - (tokens <%> q) DESC, or ORDER BY
 * jaccard_similarity(tokens, q) DESC.  The planner looks for an index where
 * what is sorted by is an operator with the column on one side, ascending.  So
 * comparisons.c makes the paths of indexes once more, as if the query were
 * sorted by a distance that is found here, and then says of those that have
 * this order that they have the one that was asked for.  The executor computes
 * what was written where the query wants it.  This needs that rows in the
 * order of the distance, nulls last, are in the order that was asked for.
 *
 * Values.  The value must be made of the distance, or of a score, by steps of
 * which each never falls or never rises (idset_spelling.c).  Then rows whose
 * distance is less never come after others, whatever the steps round.  Rows
 * whose values are equal may come in any order.  Of scores only those can be
 * used that grow whenever the distance falls, or stay.  An index returns rows
 * by descending score of its measure, so these are its own score, for
 * Braun-Blanquet, Jaccard, intersection and Hamming; Dice, which grows with
 * Jaccard (equal fractions of one are equal fractions of the other, and each
 * is rounded once); and the containment of the query, the number of common
 * ids over a constant.  Not cosine: where two scores have one distance, as 1 -
 * score is rounded, the index returns the rows in the order of their tids.  So
 * of measures of vectors only the inner product, whose distance is the negated
 * score.
 *
 * Other scores.  Those of sets that none of these distances orders, cosine's
 * among them, are ordered by tokens <&> idset_ranking(q, 'overlap'), made here
 * with the measure's name.  That is the negated score, and the one function of
 * core/measure.h that computes it also computes what was written: nothing is
 * rounded in one and not in the other.  If the query is the second argument,
 * containment is tversky(0, 1), i / b by one division of exact numbers too,
 * and tversky has its weights exchanged: they are multiplied, and two products
 * added, as before, in either order.  The name has a weight by the shortest
 * decimal that reads as the same float8.  Weights must be known, and good.
 *
 * Nulls.  The index returns null sets last.  DESC has nulls first, unless it
 * says NULLS LAST.  So the column must be known not to be null: by its
 * definition, or by a condition; or coalesce() has a value for null that no
 * set has a worse one than.  If the query is null, all rows are equal.
 *
 * Row numbers.  A subquery with row_number() OVER (ORDER BY distance), of
 * which few rows are wanted, ends early (from 15 on), but its costs are those
 * of all rows.  So a sort looks cheaper than an index scan.  The cost of such
 * a node that reads an ordered scan of ours is lowered to what it reads.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "idset/idset_spelling.h"
#include "idvec/idvec_condition.h"
#include "index/count.h"
#include "index/index_am.h"
#include "index/merge.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* Fraction of the rows that a limit stands for which is not known yet */
#define UNKNOWN_LIMIT	0.1

static create_upper_paths_hook_type previous_hook = NULL;

/* ---- orders ---- */

/* True if a column of a table is NOT NULL */
static bool
has_not_null(PlannerInfo *root, RelOptInfo *rel, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM,
										ObjectIdGetDatum(planner_rt_fetch(rel->relid, root)->relid),
										Int16GetDatum(attnum));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull && GpuvecNotNullHolds(rel, attnum);
	ReleaseSysCache(tuple);
	return result;
}

bool
GpuvecIsNotNull(PlannerInfo *root, RelOptInfo *rel, Node *column)
{
	List	   *vars = find_nonnullable_vars((Node *) extract_actual_clauses(rel->baserestrictinfo, false));

	while (IsA(column, RelabelType))
		column = (Node *) ((RelabelType *) column)->arg;
	if (!IsA(column, Var))
		return false;
	return GpuvecIsNonnullable(vars, (Var *) column) ||
		has_not_null(root, rel, ((Var *) column)->varattno);
}

/*
 * The measure whose distance falls when a value made of this score grows, or
 * stays, and the other way round for one made of a distance.  False: none.
 */
static bool
sorting_measure(const IdSetScored *scored, bool query_first, gpuvec_scoring *measure)
{
	memset(measure, 0, sizeof(*measure));
	measure->sparse = scored->sparse;
	if (scored->sparse)
		return scored->distance || !GpuvecDistanceRounds(measure);
	measure->measure = idset_measures[scored->measure].sorts_like;
	switch (idset_measures[scored->measure].sorts)
	{
		case IDSET_SORTS_NOTHING:
			break;
		case IDSET_SORTS_DISTANCES:
			return scored->distance;
		case IDSET_SORTS_ROWS:
			return query_first;
		case IDSET_SORTS_ALL:
			return true;
	}
	return false;
}

/*
 * The operator of an index for the distance of a measure from a query of this
 * type; or InvalidOid
 */
static Oid
distance_operator(const IndexOptInfo *index, const gpuvec_scoring *measure, Oid type)
{
	for (StrategyNumber strategy = GPUVEC_FIRST_DISTANCE; strategy <= GPUVEC_LAST_DISTANCE; strategy++)
	{
		gpuvec_scoring scoring;

		if (GpuvecStrategyScoring(strategy, measure->sparse != 0, &scoring) &&
			scoring.measure == measure->measure && scoring.sparse == measure->sparse)
			return get_opfamily_member(index->opfamily[0], index->opcintype[0], type, strategy);
	}
	return InvalidOid;
}

/*
 * The distance from an index's column by the measure of a score, as it is:
 * <&>.  NULL: there is none.
 */
static Expr *
negative_score(PlannerInfo *root, const IndexOptInfo *index, const IdSetSpelling *spelling, int column)
{
	Oid			types[] = {index->opcintype[0], TEXTOID};
	const IdSetScored *scored = &spelling->scored;
	const char *measure;
	Node	   *text;
	Node	   *ranking;
	Oid			type;
	Oid			operator;
	Oid			function;

	if (scored->sparse || scored->distance)
		return NULL;
	measure = idset_spelling_measure(spelling, column == 0);
	operator = GpuvecFindOperator(index, GPUVEC_RANKS, &type);
	if (measure == NULL || !OidIsValid(operator))
		return NULL;
	function = idset_own_function(get_func_namespace(get_opcode(operator)), "idset_ranking", types,
								  lengthof(types), idset_ranking);
	if (!OidIsValid(function) || get_func_rettype(function) != type)
		return NULL;
	text = (Node *) makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1, CStringGetTextDatum(measure),
							  false, false);
	ranking = (Node *) makeFuncExpr(function, type, list_make2(spelling->sets[1 - column], text), InvalidOid,
								 DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
	return make_opclause(operator, FLOAT8OID, false, (Expr *) spelling->sets[column],
						 (Expr *) eval_const_expressions(root, ranking), InvalidOid, InvalidOid);
}

/* The distance whose order is that of a sort key's expression; or NULL */
static Expr *
distance_of(PlannerInfo *root, IndexOptInfo *index, const PathKey *key, Node *expr)
{
	IdSetSpelling spelling;
	gpuvec_scoring measure;
	Oid			operator;
	int			column;

	if (!idset_spelling(expr, idvec_scored, &spelling) || !spelling.keeps_order ||
		idset_spelling_rises(&spelling) == GpuvecIsAscending(key))
		return NULL;
	column = match_index_to_operand(spelling.sets[0], 0, index) ? 0 : 1;
	if (!match_index_to_operand(spelling.sets[column], 0, index))
		return NULL;
	if (spelling.has_fallback ? !spelling.fallback_last :
		key->pk_nulls_first && !GpuvecIsNotNull(root, index->rel, spelling.sets[column]))
		return NULL;
	if (!sorting_measure(&spelling.scored, column == 1, &measure))
		return negative_score(root, index, &spelling, column);
	operator = distance_operator(index, &measure, OidIsValid(spelling.scored.made) ? index->opcintype[0] :
								 exprType(spelling.sets[1 - column]));
	if (!OidIsValid(operator))
		return NULL;
	return make_opclause(operator, FLOAT8OID, false, (Expr *) spelling.sets[column],
						 (Expr *) spelling.sets[1 - column], InvalidOid, spelling.collation);
}

/* A sort key like this one, but of a distance, ascending, nulls last */
static PathKey *
key_of(const PathKey *key, const EquivalenceMember *like, Expr *distance)
{
	EquivalenceClass *class = makeNode(EquivalenceClass);
	EquivalenceMember *member = makeNode(EquivalenceMember);
	PathKey    *made = makeNode(PathKey);

	*member = *like;
	member->em_expr = distance;
	member->em_datatype = FLOAT8OID;
	*class = *key->pk_eclass;
	class->ec_members = list_make1(member);
	GpuvecForgetChildren(class);
	*made = *key;
	made->pk_eclass = class;
	GpuvecSetAscending(made);
	made->pk_nulls_first = false;
	return made;
}

PathKey *
GpuvecFindOrder(PlannerInfo *root, RelOptInfo *rel)
{
	List	   *keys = root->query_pathkeys;
	const PathKey *key = keys == NIL ? NULL : linitial(keys);
	ListCell   *i;
	ListCell   *j;

	if (key == NULL || (list_length(keys) > 1 && !GPUVEC_ORDERS_BY_FIRST) ||
		key->pk_opfamily != FLOAT_BTREE_FAMILY || key->pk_eclass->ec_has_volatile)
		return NULL;
	foreach(i, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(i);

		if (!GpuvecIsOurIndex(index))
			continue;
		foreach(j, GpuvecMembers(key->pk_eclass, rel))
		{
			const EquivalenceMember *member = lfirst(j);
			Expr	   *distance = NULL;

			if (bms_equal(member->em_relids, rel->relids))
				distance = distance_of(root, index, key, (Node *) member->em_expr);
			if (distance != NULL)
				return key_of(key, member, distance);
		}
	}
	return NULL;
}

/* ---- row numbers ---- */

/* True for a path of our indexes that has rows in the order of distances */
static bool
is_ordered(const Path *path)
{
	ListCell   *cell;

	if (IsA(path, ProjectionPath))
		path = ((const ProjectionPath *) path)->subpath;
	if (IsA(path, IndexPath))
		return ((const IndexPath *) path)->indexorderbys != NIL &&
			GpuvecIsOurIndex(((const IndexPath *) path)->indexinfo);
	if (!IsA(path, MergeAppendPath))
		return false;
	foreach(cell, ((const MergeAppendPath *) path)->subpaths)
		if (!is_ordered(lfirst(cell)))
		return false;
	return true;
}

/*
 * How many rows are read until a condition on their number or rank ends it;
 * -1 if there is no such condition, 0 if that is not known
 */
static double
most_wanted(const List *conditions)
{
	ListCell   *cell;

	foreach(cell, conditions)
	{
		List	   *args = ((OpExpr *) lfirst(cell))->args;
		bool		turned = !IsA(linitial(args), WindowFunc);
		const		WindowFunc *function = list_nth(args, turned ? 1 : 0);
		const Const *most = list_nth(args, turned ? 0 : 1);

		if (!IsA(function, WindowFunc) || !GpuvecNumbersRows(function->winfnoid))
			continue;
		if (!IsA(most, Const) || most->constisnull)
			return 0;
		if (most->consttype == INT8OID)
			return Max(DatumGetInt64(most->constvalue), 0) + 1.0;
		if (most->consttype == INT4OID)
			return Max(DatumGetInt32(most->constvalue), 0) + 1.0;
	}
	return -1;
}

/*
 * A window like another one, but over an ordered scan, of which it reads
 * `most` rows; 0: it is not known how many
 */
static Path *
early_window(const WindowAggPath *like, Path *ordered, double most)
{
	WindowAggPath *path = palloc_object(WindowAggPath);
	Cost		startup = Max(like->path.startup_cost - like->subpath->startup_cost, 0);
	Cost		total = Max(like->path.total_cost - like->subpath->total_cost, 0);
	double		fraction = most > 0 ? most / Max(ordered->rows, 1) : UNKNOWN_LIMIT;

	*path = *like;
	path->subpath = ordered;
	path->path.parallel_safe &= ordered->parallel_safe;
	path->path.pathkeys = ordered->pathkeys;
	path->path.startup_cost = ordered->startup_cost + startup;
	path->path.total_cost = path->path.startup_cost +
		Max(ordered->total_cost + total - path->path.startup_cost, 0) * Min(fraction, 1);
	GpuvecSetDisabled(&path->path, ordered);
	return (Path *) path;
}

/* Add the paths of a window that ends early, over ordered scans of ours */
static void
add_early_windows(PlannerInfo *root, const RelOptInfo *input, RelOptInfo *output)
{
	const WindowAggPath *like = NULL;
	double		most;
	ListCell   *cell;

	foreach(cell, output->pathlist)
		if (IsA(lfirst(cell), WindowAggPath))
		like = lfirst(cell);
	if (like == NULL || !GpuvecEndsEarly(like))
		return;
	most = most_wanted(GpuvecRunCondition(like));
	if (most < 0)
		return;
	foreach(cell, input->pathlist)
	{
		Path	   *path = lfirst(cell);

		if (is_ordered(path) && pathkeys_contained_in(root->window_pathkeys, path->pathkeys))
			add_path(output, early_window(like, path, most));
	}
}

/* create_upper_paths_hook */
static void
upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output,
			void *extra)
{
	if (previous_hook)
		previous_hook(root, stage, input, output, extra);
	if (stage == UPPERREL_GROUP_AGG)
		CountAddPaths(root, input, output);
	if (stage == UPPERREL_WINDOW && list_length(root->parse->windowClause) == 1)
		add_early_windows(root, input, output);
	if (stage == UPPERREL_ORDERED && !root->parse->hasTargetSRFs)
		MergeAddPaths(root, input, output);
	if (stage == UPPERREL_FINAL)
		MergePutInto(root, output);
}

/* Called once, when the library is loaded */
void
GpuvecOrdersInit(void)
{
	previous_hook = create_upper_paths_hook;
	create_upper_paths_hook = upper_paths;
}
