/*-------------------------------------------------------------------------
 *
 * comparison_keys.c
 *	  Search keys that comparisons of similarities and distances imply.
 *
 * Of jaccard_similarity(tokens, q) >= 0.5 the key is tokens <<->>
 * idset_threshold(q, 0.5, 'jaccard'), which is true for all rows for which the
 * comparison is (idset_condition.c says why, and idvec_condition.c of
 * vectors).  Conditions that are combined by OR and AND are taken apart.
 * There may be arithmetic around the score, as in 1 - (tokens <%> q) >= 0.5:
 * then the limit is solved for the score (idset_spelling.c).
 *
 * Made sets.  An index of arrays has their sets under its collation, and tags
 * <%> q compares those under its own.  The threshold is one of q's set
 * (idset_array_within), and the operator is <<~>>.  Likewise of jsonb and of
 * texts.
 *
 * Counts.  Where a key is true for the rows of the comparison, and no others,
 * rows are counted by it alone (count_paths.c).  So it is where the score, or
 * the distance, is compared as it is: scores are the ones that <<->> has, and
 * of a distance the least score is known (idset_condition.c).  A comparison
 * with < or > is one with the next float8.
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
#include "index/comparison_keys.h"
#include "index/index_am.h"
#include "mirror/describe/row_value.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* That of numeric */
#define NUMERIC_BTREE_FAMILY	1988

bool
GpuvecFindSearched(PlannerInfo *root, IndexOptInfo *index, GpuvecSearched *searched)
{
	Oid			type = index->opcintype[0];

	memset(searched, 0, sizeof(*searched));
	searched->root = root;
	searched->index = index;
	if (!GpuvecIsOurIndex(index))
		return false;
	searched->operator = GpuvecFindOperator(index, GPUVEC_REACHES, &searched->type);
	searched->vectors = RowTypeHasValues(type);
	if (EntriesClassMakesSets(index->opfamily[0], type))
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
made_within(const GpuvecSearched *searched, Oid schema, const Oid *types, int n)
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
make_threshold(const GpuvecSearched *searched, const IdSetSpelling *spelling, const char *measure,
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
		double		distance = DatumGetFloat8(((Const *) limit)->constvalue);
		double		score = scored->sparse ? idset_score_within(scored->negated, distance) :
			idset_least_score(scored->measure, distance);

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
solve_limit(const GpuvecSearched *searched, const IdSetSpelling *spelling, Node *limit)
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
query_of_type(const GpuvecSearched *searched, Node *query)
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
has_sets(const GpuvecSearched *searched, const IdSetSpelling *spelling)
{
	Oid			collation = searched->index->indexcollations[0];

	return spelling->scored.made == searched->made &&
		(!OidIsValid(collation) || !OidIsValid(searched->made) || spelling->collation == collation);
}

/*
 * True if a score reaches a limit, or a distance, just where a comparison is
 * true.  The limit of one with < or > becomes the next number that there is.
 */
static bool
is_exact(const IdSetSpelling *spelling, int strategy, Node **limit)
{
	const IdSetScored *scored = &spelling->scored;
	const Const *number = (const Const *) *limit;
	double		next;

	if (scored->sparse || !idset_spelling_is_plain(spelling) || strategy == BTEqualStrategyNumber ||
		(scored->distance && !idset_least_score_decides(scored->measure)))
		return false;
	if (strategy == BTLessEqualStrategyNumber || strategy == BTGreaterEqualStrategyNumber)
		return true;
	if (!IsA(number, Const) || number->constisnull || isnan(DatumGetFloat8(number->constvalue)))
		return false;
	next = DatumGetFloat8(number->constvalue);
	if (idset_measures[scored->measure].counts)
		next = strategy == BTLessStrategyNumber ? ceil(next) - 1 : floor(next) + 1;
	else
		next = nextafter(next, strategy == BTLessStrategyNumber ? -INFINITY : INFINITY);
	*limit = (Node *) makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8), Float8GetDatum(next), false,
								FLOAT8PASSBYVAL);
	return true;
}

/*
 * The condition that a comparison of a score with a limit implies; NULL if
 * the index has none
 */
static Node *
condition_of_score(GpuvecSearched *searched, Node *score, Node *limit, int strategy)
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
	limit = eval_const_expressions(searched->root, limit);
	searched->exact = is_exact(&spelling, strategy, &limit);
	threshold = make_threshold(searched, &spelling, measure, query, limit);
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
condition_of_row(const GpuvecSearched *searched, const RowCompareExpr *row)
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

/* The condition that a comparison of a score implies; NULL if there is none */
static Node *
condition_of_comparison(GpuvecSearched *searched, const Node *clause)
{
	const OpExpr *comparison = (const OpExpr *) clause;
	Node	   *made;

	if (!is_opclause(clause) || list_length(comparison->args) != 2)
		return NULL;
	made = condition_of_score(searched, linitial(comparison->args), lsecond(comparison->args),
							  comparison_strategy(comparison->opno, false));
	if (made != NULL)
		return made;
	return condition_of_score(searched, lsecond(comparison->args), linitial(comparison->args),
							  comparison_strategy(comparison->opno, true));
}

/* Nothing is replaced in what is negated */
Node *
GpuvecConditionOf(GpuvecSearched *searched, Node *clause)
{
	Node	   *made;
	List	   *args;
	ListCell   *cell;

	if (is_orclause(clause) || is_andclause(clause))
	{
		args = NIL;
		foreach(cell, ((BoolExpr *) clause)->args)
			args = lappend(args, GpuvecConditionOf(searched, lfirst(cell)));
		return (Node *) makeBoolExpr(((BoolExpr *) clause)->boolop, args, -1);
	}
	if (IsA(clause, RowCompareExpr))
		made = condition_of_row(searched, (RowCompareExpr *) clause);
	else
		made = condition_of_comparison(searched, clause);
	searched->found |= made != NULL;
	return made != NULL ? made : clause;
}

bool
GpuvecIsGoodThreshold(const GpuvecSearched *searched, const OpExpr *clause)
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

List *
GpuvecSameConditions(PlannerInfo *root, IndexOptInfo *index)
{
	List	   *same = NIL;
	GpuvecSearched	searched;
	ListCell   *cell;

	if (!GpuvecFindSearched(root, index, &searched))
		return index->indrestrictinfo;
	foreach(cell, index->indrestrictinfo)
	{
		RestrictInfo *from = lfirst(cell);
		Node	   *made = NULL;

		if (!from->pseudoconstant && from->security_level == 0)
			made = condition_of_comparison(&searched, (const Node *) from->clause);
		same = lappend(same, made != NULL && searched.exact ?
					   GpuvecRestrictionLike(root, (Expr *) made, from) : from);
	}
	return same;
}
