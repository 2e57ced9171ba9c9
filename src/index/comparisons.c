/*-------------------------------------------------------------------------
 *
 * comparisons.c
 *	  Finds index conditions in comparisons of similarities and distances.
 *
 * People write jaccard_similarity(tokens, q) >= 0.5 and tokens <%> q < 0.5.
 * The planner looks for an index where an operator of a condition has the
 * column on one side.  Here it is inside of a function on that side, and no
 * support function is asked.  So after the planner has made the paths of a
 * table, they are made once more, with another condition beside each of
 * these: tokens <<->> idset_threshold(q, 0.5, 'jaccard'), which is true for
 * all rows for which the comparison is (idset_condition.c says why, and
 * idvec_condition.c of vectors).  Such a condition is there only while paths
 * are made.  What an index path has found by it, the executor filters by the
 * condition as it was written, which stays where it was.  So no row is wrong,
 * whatever the new condition lets through.  Conditions that are combined by OR
 * and AND are taken apart.  There may be arithmetic around the score, as in
 * 1 - (tokens <%> q) >= 0.5: then the limit is solved for the score
 * (idset_spelling.c).
 *
 * Made sets.  An index of arrays has their sets under its collation, and tags
 * <%> q compares those under its own.  The threshold is one of q's set
 * (idset_array_within), and the operator is <<~>>.
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

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "entries/entries.h"
#include "idset/idset_condition.h"
#include "idset/idset_spelling.h"
#include "idset/idset_threshold.h"
#include "idvec/idvec_condition.h"
#include "idvec/idvec_threshold.h"
#include "index/index_am.h"
#include "index/ranges.h"
#include "mirror/describe/row_value.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* That of numeric */
#define NUMERIC_BTREE_FAMILY	1988

/* An index, and what its conditions are made of */
typedef struct Searched
{
	PlannerInfo *root;
	IndexOptInfo *index;
	Oid			operator;		/* <<->>, <<~>> or <<%~>> */
	Oid			type;			/* idset_threshold or idvec_threshold */
	bool		vectors;		/* the latter */
	Oid			made;			/* sets are made of this type; or InvalidOid */
	bool		found;			/* a condition was made */
} Searched;

/* Conditions of a table, each with the one that it was made from */
typedef struct Made
{
	List	   *made;			/* of RestrictInfo */
	List	   *from;
} Made;

static set_rel_pathlist_hook_type previous_hook = NULL;

/* ---- making a condition ---- */

/*
 * Find such an operator of an index.  False: it is not one of ours, or has
 * no such operator.
 */
static bool
find_operator(PlannerInfo *root, IndexOptInfo *index, Searched *searched)
{
	Oid			type = index->opcintype[0];

	memset(searched, 0, sizeof(*searched));
	searched->root = root;
	searched->index = index;
	if (!GpuvecIsOurIndex(index))
		return false;
	searched->operator = GpuvecFindOperator(index, GPUVEC_REACHES, &searched->type);
	searched->vectors = RowTypeHasValues(type);
	if (OidIsValid(get_opfamily_proc(index->opfamily[0], type, type, ENTRY_SET_PROC)))
		searched->made = type;
	return OidIsValid(searched->operator);
}

/* The name of the measure of a call; NULL if it is not known */
static const char *
measure_name(const IdSetSpelling *spelling, bool turned)
{
	if (spelling->scored.sparse)
		return idvec_condition_measure((gpuvec_sparse_measure) (spelling->scored.sparse - 1));
	return idset_spelling_measure(spelling, turned);
}

/*
 * The function that makes the threshold of a distance of values that sets are
 * made of; or InvalidOid
 */
static Oid
made_within(const Searched *searched, Oid schema, const Oid *types, int n)
{
	static const struct
	{
		Oid			type;
		const char *name;
		PGFunction	function;
	}			functions[] = {
		{ANYARRAYOID, "idset_array_within", idset_array_within},
		{JSONBOID, "idset_jsonb_within", idset_jsonb_within},
		{TEXTOID, "idset_trgm_within", idset_trgm_within}
	};

	for (int i = 0; i < lengthof(functions); i++)
		if (functions[i].type == searched->made)
			return idset_own_function(schema, functions[i].name, types, n, functions[i].function);
	return InvalidOid;
}

/*
 * The threshold that sets reach for which the score of a query, or the
 * distance, is at least `limit`, or at most; NULL if it cannot be made
 */
static Node *
make_threshold(const Searched *searched, const IdSetSpelling *spelling, const char *measure,
			   Node *query, Node *limit)
{
	const IdSetScored *scored = &spelling->scored;
	Oid			types[] = {searched->index->opcintype[0], FLOAT8OID, TEXTOID};
	Oid			schema = get_func_namespace(get_opcode(searched->operator));
	bool		within = scored->distance;
	Const	   *text = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
								 CStringGetTextDatum(measure), false, false);
	Oid			function;

	/* a known score, which estimates of sets see */
	if (within && !OidIsValid(searched->made) && IsA(limit, Const) && !((Const *) limit)->constisnull &&
		!isnan(DatumGetFloat8(((Const *) limit)->constvalue)))
	{
		double		score = idset_score_within(scored->negated,
											   DatumGetFloat8(((Const *) limit)->constvalue));

		limit = (Node *) makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8),
								   Float8GetDatum(score), false, FLOAT8PASSBYVAL);
		within = false;
	}
	if (OidIsValid(searched->made))
		function = made_within(searched, schema, types, lengthof(types));
	else if (searched->vectors)
		function = idset_own_function(schema, within ? "idvec_within" : "idvec_reaching", types,
									  lengthof(types), within ? idvec_within : idvec_reaching);
	else
		function = idset_own_function(schema, within ? "idset_within" : "idset_reaching", types,
									  lengthof(types), within ? idset_within : idset_reaching);
	if (!OidIsValid(function))
		return NULL;
	return eval_const_expressions(searched->root,
								  (Node *) makeFuncExpr(function, searched->type,
														list_make3(query, limit, text), InvalidOid,
														OidIsValid(searched->made) ? spelling->collation :
														DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL));
}

/*
 * The strategy of a comparison of numbers, as if the limit were on the right;
 * 0: it is none
 */
static int
comparison_strategy(Oid operator, bool turned)
{
	static const Oid families[] = {FLOAT_BTREE_FAMILY, INTEGER_BTREE_FAM_OID, NUMERIC_BTREE_FAMILY};

	for (int i = 0; i < lengthof(families); i++)
	{
		int			strategy = get_op_opfamily_strategy(operator, families[i]);

		if (strategy != 0)
			return turned ? BTMaxStrategyNumber + 1 - strategy : strategy;
	}
	return 0;
}

/*
 * True if a comparison says that sets are similar, and nothing of those that
 * are null
 */
static bool
asks_for_similar(const IdSetSpelling *spelling, int strategy, const Node *limit)
{
	bool		rises = idset_spelling_rises(spelling);

	if (strategy == 0 || (strategy < BTEqualStrategyNumber && rises) ||
		(strategy > BTEqualStrategyNumber && !rises))
		return false;
	return !spelling->has_fallback || idset_spelling_null_fails(spelling, strategy, limit);
}

/*
 * The limit of the score or the distance itself, if this is one of the
 * spelling; NULL if it cannot be made
 */
static Node *
solve_limit(const Searched *searched, const IdSetSpelling *spelling, Node *limit)
{
	bool		numeric = exprType(limit) == NUMERICOID;
	Oid			types[] = {numeric ? NUMERICOID : FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID};
	double		numbers[] = {spelling->scale, spelling->shift, idset_spelling_slack(spelling)};
	List	   *args;
	Oid			function;

	if (!numeric)
		limit = coerce_to_target_type(NULL, limit, exprType(limit), FLOAT8OID, -1,
									  COERCION_EXPLICIT, COERCE_EXPLICIT_CAST, -1);
	if (limit == NULL || (!numeric && idset_spelling_is_plain(spelling)))
		return limit;
	/* the error would be one of the greatest inner product that can be */
	if (spelling->error > 0 && spelling->scored.sparse ==
		gpuvec_sparse_scoring(GPUVEC_SPARSE_INNER_PRODUCT).sparse)
		return NULL;
	function = idset_own_function(get_func_namespace(get_opcode(searched->operator)), "idset_limit",
								  types, lengthof(types),
								  numeric ? idset_limit_numeric : idset_limit);
	if (!OidIsValid(function))
		return NULL;
	args = list_make1(limit);
	for (int i = 0; i < lengthof(numbers); i++)
		args = lappend(args, makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8),
									   Float8GetDatum(numbers[i]), false, FLOAT8PASSBYVAL));
	return (Node *) makeFuncExpr(function, FLOAT8OID, args, InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

/*
 * A query as one of the column's type, with the same scores; NULL if it cannot
 * be made.  A set is the vector of its ids with the values 1.
 */
static Node *
query_of_type(const Searched *searched, Node *query)
{
	Oid			type = exprType(query);
	Oid			function;

	if (type == searched->index->opcintype[0] || OidIsValid(searched->made))
		return query;
	function = idset_own_function(get_func_namespace(get_opcode(searched->operator)), "idvec",
								  &type, 1, idset_to_idvec);
	if (!searched->vectors || !OidIsValid(function))
		return NULL;
	return (Node *) makeFuncExpr(function, searched->index->opcintype[0], list_make1(query),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/*
 * True if an index has the sets that a score is of.  Those that are made of
 * values depend on the collation.
 */
static bool
has_sets(const Searched *searched, const IdSetSpelling *spelling)
{
	Oid			collation = searched->index->indexcollations[0];

	return spelling->scored.made == searched->made &&
		(!OidIsValid(collation) || !OidIsValid(searched->made) || spelling->collation == collation);
}

/*
 * The condition that a comparison of a score with a limit implies; NULL if
 * the index has none
 */
static Node *
condition_of_score(const Searched *searched, Node *score, Node *limit, int strategy)
{
	IndexOptInfo *index = searched->index;
	IdSetSpelling spelling;
	const char *measure;
	Node	   *query;
	Node	   *threshold;
	int			column;

	if (strategy == 0 || !idset_spelling(score, idvec_scored, &spelling) ||
		!asks_for_similar(&spelling, strategy, limit) || !has_sets(searched, &spelling))
		return NULL;
	column = match_index_to_operand(spelling.sets[0], 0, index) ? 0 : 1;
	measure = measure_name(&spelling, column == 0);
	if (measure == NULL || !match_index_to_operand(spelling.sets[column], 0, index) ||
		!GpuvecIsIndexConstant(searched->root, spelling.sets[1 - column], index) ||
		!GpuvecIsIndexConstant(searched->root, limit, index))
		return NULL;
	query = query_of_type(searched, spelling.sets[1 - column]);
	limit = solve_limit(searched, &spelling, limit);
	if (query == NULL || limit == NULL)
		return NULL;
	threshold = make_threshold(searched, &spelling, measure, query,
							   eval_const_expressions(searched->root, limit));
	if (threshold == NULL)
		return NULL;
	return (Node *) make_opclause(searched->operator, BOOLOID, false,
								  (Expr *) spelling.sets[column], (Expr *) threshold, InvalidOid,
								  spelling.collation);
}

/*
 * What a comparison of rows implies for its first column, if that is a filter
 * column of the index: of (created, id) < (c, i), created <= c; else NULL.
 * Only B-trees search for such a comparison themselves.
 */
static Node *
condition_of_row(const Searched *searched, const RowCompareExpr *row)
{
	IndexOptInfo *index = searched->index;
	Node	   *sides[] = {linitial(row->largs), linitial(row->rargs)};
	Oid			family = linitial_oid(row->opfamilies);
	int			strategy = get_op_opfamily_strategy(linitial_oid(row->opnos), family);

	for (int turned = 0; turned < 2; turned++)
	{
		Node	   *column = sides[turned];
		Node	   *limit = sides[1 - turned];
		bool		less = (strategy < BTEqualStrategyNumber) == (turned == 0);
		Oid			operator = get_opfamily_member(family, exprType(column), exprType(limit),
												   less ? BTLessEqualStrategyNumber : BTGreaterEqualStrategyNumber);

		for (int i = 1; i < index->nkeycolumns && OidIsValid(operator); i++)
			if (match_index_to_operand(column, i, index) && op_in_opfamily(operator, index->opfamily[i]) &&
				GpuvecIsIndexConstant(searched->root, limit, index))
				return (Node *) make_opclause(operator, BOOLOID, false, (Expr *) column, (Expr *) limit,
											  InvalidOid, linitial_oid(row->inputcollids));
	}
	return NULL;
}

/*
 * The condition with comparisons replaced by what they imply, where there is
 * anything to replace.  Nothing is replaced in what is negated.
 */
static Node *
condition_of(Searched *searched, Node *clause)
{
	Node	   *made;
	List	   *args;
	ListCell   *cell;
	Oid			operator;

	if (is_orclause(clause) || is_andclause(clause))
	{
		args = NIL;
		foreach(cell, ((BoolExpr *) clause)->args)
			args = lappend(args, condition_of(searched, lfirst(cell)));
		return (Node *) makeBoolExpr(((BoolExpr *) clause)->boolop, args, -1);
	}
	if (IsA(clause, RowCompareExpr))
	{
		made = condition_of_row(searched, (RowCompareExpr *) clause);
		searched->found |= made != NULL;
		return made != NULL ? made : clause;
	}
	if (!is_opclause(clause) || list_length(((OpExpr *) clause)->args) != 2)
		return clause;
	args = ((OpExpr *) clause)->args;
	operator = ((OpExpr *) clause)->opno;
	made = condition_of_score(searched, linitial(args), lsecond(args),
							  comparison_strategy(operator, false));
	if (made == NULL)
		made = condition_of_score(searched, lsecond(args), linitial(args),
								  comparison_strategy(operator, true));
	searched->found |= made != NULL;
	return made != NULL ? made : clause;
}

/*
 * True for column <<->> threshold, where the threshold is known and good, so
 * that no row makes it fail
 */
static bool
is_good_threshold(const Searched *searched, const OpExpr *clause)
{
	const Const *value;
	IdSetThreshold threshold;
	IdVecThreshold of_vectors;

	if (!is_opclause(clause) || clause->opno != searched->operator || OidIsValid(searched->made))
		return false;
	value = lsecond(clause->args);
	if (!IsA(value, Const) || value->constisnull || contain_leaked_vars(linitial(clause->args)))
		return false;
	if (searched->vectors)
		return idvec_threshold_parse(DatumGetHeapTupleHeader(value->constvalue), &of_vectors, false) &&
			gpuvec_scoring_sparse(of_vectors.scoring) != GPUVEC_SPARSE_JACCARD;
	return idset_threshold_parse(DatumGetHeapTupleHeader(value->constvalue), &threshold, false);
}

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
make_conditions(Searched *searched, List *restrictions, Made *made)
{
	ListCell   *cell;

	foreach(cell, restrictions)
	{
		RestrictInfo *from = lfirst(cell);
		bool		good = !from->leakproof && from->security_level > 0 &&
			is_good_threshold(searched, (OpExpr *) from->clause);
		RestrictInfo *to;
		Node	   *clause;

		searched->found = false;
		clause = good ? (Node *) from->clause : condition_of(searched, (Node *) from->clause);
		if (from->pseudoconstant || !(good || searched->found) || is_made(made, clause))
			continue;
		to = GpuvecRestrictionLike(searched->root, (Expr *) clause, from);
		to->leakproof = from->leakproof || is_good_threshold(searched, (OpExpr *) clause);
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
		Searched	searched;

		if (!find_operator(root, lfirst(cell), &searched))
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
