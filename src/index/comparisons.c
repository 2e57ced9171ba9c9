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
 * all rows for which the comparison is (idset_condition.c says why).  Such a
 * condition is there only while paths are made.  What an index path has found
 * by it, the executor filters by the condition as it was written, which stays
 * where it was.  So no row is wrong, whatever the new condition lets through.
 * Conditions that are combined by OR and AND are taken apart.
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
 * planned, and good, a condition tokens <<->> threshold is searched for as
 * well: with its own words, and taken as leakproof.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "idset/idset_condition.h"
#include "idset/idset_threshold.h"
#include "index/index_am.h"
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
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* The operator family of float4 and float8; server headers do not name it */
#define FLOAT_BTREE_FAMILY	1970

/* An index, and what its conditions are made of */
typedef struct Searched
{
	PlannerInfo *root;
	IndexOptInfo *index;
	Oid			operator;		/* <<->> */
	Oid			type;			/* idset_threshold */
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
 * Find the operator <<->> of an index.  False: it is not one of ours, or has
 * no such operator.
 */
static bool
find_operator(PlannerInfo *root, IndexOptInfo *index, Searched *searched)
{
	CatCList   *list;

	memset(searched, 0, sizeof(*searched));
	searched->root = root;
	searched->index = index;
	if ((void *) index->amcostestimate != (void *) gpuvec_costestimate)
		return false;
	list = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(index->opfamily[0]));
	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_amop amop = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);

		if (amop->amopstrategy == GPUVEC_REACHES && amop->amoplefttype == index->opcintype[0])
		{
			searched->operator = amop->amopopr;
			searched->type = amop->amoprighttype;
		}
	}
	ReleaseCatCacheList(list);
	return OidIsValid(searched->operator);
}

/* The function of a call or an operator with at least two arguments */
static Oid
called_function(Node *node, List **args)
{
	if (IsA(node, FuncExpr))
	{
		*args = ((FuncExpr *) node)->args;
		return list_length(*args) >= 2 ? ((FuncExpr *) node)->funcid : InvalidOid;
	}
	if (!IsA(node, OpExpr))
		return InvalidOid;
	*args = ((OpExpr *) node)->args;
	set_opfuncid((OpExpr *) node);
	return list_length(*args) == 2 ? ((OpExpr *) node)->opfuncid : InvalidOid;
}

/*
 * The name of the measure of a call; NULL if it is not known.  If the weights
 * are bad, the executor reports it.
 */
static const char *
measure_name(const IdSetScored *scored, List *args, bool turned)
{
	char		shortest[2][DOUBLE_SHORTEST_DECIMAL_LEN];
	const Const *alpha;
	const Const *beta;

	if (!scored->weighted)
		return turned ? scored->turned : scored->name;
	alpha = list_nth(args, turned ? 3 : 2);
	beta = list_nth(args, turned ? 2 : 3);
	if (!IsA(alpha, Const) || !IsA(beta, Const) || alpha->constisnull || beta->constisnull ||
		!gpuvec_weights_valid(DatumGetFloat8(alpha->constvalue), DatumGetFloat8(beta->constvalue)))
		return NULL;
	double_to_shortest_decimal_buf(DatumGetFloat8(alpha->constvalue), shortest[0]);
	double_to_shortest_decimal_buf(DatumGetFloat8(beta->constvalue), shortest[1]);
	return psprintf("tversky(%s, %s)", shortest[0], shortest[1]);
}

/*
 * The threshold that sets reach for which the score of a query, or the
 * distance, is at least `limit`, or at most; NULL if it cannot be made
 */
static Node *
make_threshold(const Searched *searched, const IdSetScored *scored, const char *measure,
			   Node *query, Node *limit)
{
	Oid			types[] = {searched->index->opcintype[0], FLOAT8OID, TEXTOID};
	Oid			schema = get_func_namespace(get_opcode(searched->operator));
	const char *name = scored->distance ? "idset_within" : "idset_reaching";
	PGFunction	address = scored->distance ? idset_within : idset_reaching;
	Const	   *text = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
								 CStringGetTextDatum(measure), false, false);
	Oid			function;

	/* a known score, which estimates see */
	if (scored->distance && IsA(limit, Const) && !((Const *) limit)->constisnull &&
		!isnan(DatumGetFloat8(((Const *) limit)->constvalue)))
	{
		double		score = idset_score_within(scored->measure,
											   DatumGetFloat8(((Const *) limit)->constvalue));

		limit = (Node *) makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8),
								   Float8GetDatum(score), false, FLOAT8PASSBYVAL);
		name = "idset_reaching";
		address = idset_reaching;
	}
	function = idset_own_function(schema, name, types, lengthof(types), address);
	if (!OidIsValid(function))
		return NULL;
	return eval_const_expressions(searched->root,
								  (Node *) makeFuncExpr(function, searched->type,
														list_make3(query, limit, text), InvalidOid,
														DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL));
}

/* True if a comparison says that sets are similar: a score >= limit */
static bool
asks_for_similar(Oid operator, bool turned, bool distance)
{
	int			strategy = get_op_opfamily_strategy(operator, FLOAT_BTREE_FAMILY);

	if (strategy == 0)
		strategy = get_op_opfamily_strategy(operator, INTEGER_BTREE_FAM_OID);
	if (strategy == BTEqualStrategyNumber)
		return true;
	if (turned != distance)
		return strategy == BTLessStrategyNumber || strategy == BTLessEqualStrategyNumber;
	return strategy == BTGreaterStrategyNumber || strategy == BTGreaterEqualStrategyNumber;
}

/*
 * The condition that a comparison of a call with a limit implies; NULL if the
 * index has none
 */
static Node *
condition_of_call(const Searched *searched, Node *call, Node *limit, Oid comparison, bool turned)
{
	IndexOptInfo *index = searched->index;
	List	   *args;
	Oid			function = called_function(call, &args);
	const IdSetScored *scored = OidIsValid(function) ? idset_scored(function) : NULL;
	const char *measure;
	Node	   *threshold;
	int			column;

	if (scored == NULL || !asks_for_similar(comparison, turned, scored->distance))
		return NULL;
	column = match_index_to_operand(linitial(args), 0, index) ? 0 : 1;
	measure = measure_name(scored, args, column == 0);
	if (measure == NULL || !match_index_to_operand(list_nth(args, column), 0, index) ||
		!GpuvecIsIndexConstant(searched->root, list_nth(args, 1 - column), index) ||
		!GpuvecIsIndexConstant(searched->root, limit, index))
		return NULL;
	limit = coerce_to_target_type(NULL, limit, exprType(limit), FLOAT8OID, -1, COERCION_EXPLICIT,
								  COERCE_EXPLICIT_CAST, -1);
	if (limit == NULL)
		return NULL;
	threshold = make_threshold(searched, scored, measure, list_nth(args, 1 - column),
							   eval_const_expressions(searched->root, limit));
	if (threshold == NULL)
		return NULL;
	return (Node *) make_opclause(searched->operator, BOOLOID, false, list_nth(args, column),
								  (Expr *) threshold, InvalidOid, InvalidOid);
}

/*
 * The condition with comparisons replaced by what they imply, where there is
 * anything to replace.  Nothing is replaced in what is negated.
 */
static Node *
condition_of(Searched *searched, Node *clause)
{
	Node	   *made = NULL;
	List	   *args;
	ListCell   *cell;

	if (is_orclause(clause) || is_andclause(clause))
	{
		args = NIL;
		foreach(cell, ((BoolExpr *) clause)->args)
			args = lappend(args, condition_of(searched, lfirst(cell)));
		return (Node *) makeBoolExpr(((BoolExpr *) clause)->boolop, args, -1);
	}
	if (!is_opclause(clause) || list_length(((OpExpr *) clause)->args) != 2)
		return clause;
	args = ((OpExpr *) clause)->args;
	made = condition_of_call(searched, linitial(args), lsecond(args), ((OpExpr *) clause)->opno, false);
	if (made == NULL)
		made = condition_of_call(searched, lsecond(args), linitial(args), ((OpExpr *) clause)->opno, true);
	searched->found |= made != NULL;
	return made != NULL ? made : clause;
}

/* True for column <<->> threshold, where the threshold is known and good */
static bool
is_good_threshold(const Searched *searched, const OpExpr *clause)
{
	const Const *value;
	IdSetThreshold threshold;

	if (!is_opclause(clause) || clause->opno != searched->operator)
		return false;
	value = lsecond(clause->args);
	return IsA(value, Const) && !value->constisnull &&
		!contain_leaked_vars(linitial(clause->args)) &&
		idset_threshold_parse(DatumGetHeapTupleHeader(value->constvalue), &threshold, false);
}

/* ---- the conditions of a table ---- */

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
		if (from->pseudoconstant || !(good || searched->found))
			continue;
		to = GpuvecRestrictionLike(searched->root, (Expr *) clause, from);
		to->leakproof = from->leakproof || good;
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

/* Make the paths of a table's indexes once more, with these conditions */
static void
make_paths(PlannerInfo *root, RelOptInfo *rel, const Made *own, const Made *joins)
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
	create_index_paths(root, rel);
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
	if (own.made != NIL || joins.made != NIL)
		make_paths(root, rel, &own, &joins);
}

/* Called once, when the library is loaded */
void
GpuvecComparisonsInit(void)
{
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_paths;
}
