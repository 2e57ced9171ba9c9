/*-------------------------------------------------------------------------
 *
 * idset_query_plan.c
 *	  What the planner asks about set @@ query: how many sets match, and
 *	  whether an index can find them.
 *
 * Estimate.  The ids of an AND are one set that is contained, those of an OR
 * one set that overlaps; idset_estimate.c knows how many sets do.  Operands
 * of an operator count as independent of each other.
 *
 * Index.  What matches a query often has to have certain ids.  If it has to
 * have all of some ids, it contains them; if it has to have one of some, it
 * overlaps them:
 *
 *		1 & 2 & !3		@> {1,2}
 *		1 & (2 | 3)		@> {1}
 *		1 | (2 & !3)	&& {1,2}
 *		!1				nothing
 *
 * An index on the column that finds such sets finds all that can match, and
 * the executor evaluates the query for these.  It need not if the query says
 * no more than that, as one that has no operator but AND, or but OR.  Who only
 * counts rows has the engine evaluate others (index/count.c).  The query must
 * be known when the statement is planned.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <limits.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "idset/idset_estimate.h"
#include "idset/idset_query.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"

PG_FUNCTION_INFO_V1(idset_querysel);
PG_FUNCTION_INFO_V1(idset_query_support);

/* Selectivity of an unknown query, and of one id without statistics */
#define DEFAULT_QUERY_SEL	0.005

/* Operator classes for sets have no higher strategy numbers */
#define MOST_STRATEGIES		64

/* ---- selectivity ---- */

static double expression_selectivity(const IdSetQueryItem *item, const IdSetStats *stats);

/* The fraction of non-null sets that contain, or overlap, some ids */
static double
ids_selectivity(uint32 *ids, uint32 n, IdSetPredicate predicate, const IdSetStats *stats)
{
	IdSetQuestion question = {.predicate = predicate};

	if (stats == NULL || stats->notnull <= 0)
		return DEFAULT_QUERY_SEL;
	question.threshold.query = idset_from_ids(ids, Min(n, GPUVEC_MAX_IDS));
	return Min(idset_estimate(stats, &question, IDSET_MODEL_LENGTHS, INT_MAX, DEFAULT_QUERY_SEL) /
			   stats->notnull, 1);
}

/* The number of operands that are ids */
static uint32
count_ids(const IdSetQueryItem *item)
{
	uint32		n = 0;

	for (const IdSetQueryItem *op = idset_query_first(item); op < idset_query_end(item);
		 op = idset_query_next(op))
		n += op->kind == QUERY_ID;
	return n;
}

/*
 * The fraction for which all operands hold, or with any: at least one.  In a
 * deep expression each level keeps its ids, so there is room for no others.
 */
static double
operands_selectivity(const IdSetQueryItem *item, bool any, const IdSetStats *stats)
{
	uint32	   *ids = palloc_array(uint32, Max(count_ids(item), 1));
	uint32		n = 0;
	double		result = 1;

	for (const IdSetQueryItem *op = idset_query_first(item); op < idset_query_end(item);
		 op = idset_query_next(op))
	{
		double		operand;

		if (op->kind == QUERY_ID)
		{
			ids[n++] = op->value;
			continue;
		}
		operand = expression_selectivity(op, stats);
		result *= any ? 1 - operand : operand;
	}
	if (n > 0)
	{
		double		with_ids = ids_selectivity(ids, n, any ? OVERLAPS : CONTAINS, stats);

		result *= any ? 1 - with_ids : with_ids;
	}
	pfree(ids);
	return any ? 1 - result : result;
}

/* The fraction of non-null sets for which an expression holds */
static double
expression_selectivity(const IdSetQueryItem *item, const IdSetStats *stats)
{
	uint32		id = item->value;

	CHECK_FOR_INTERRUPTS();
	check_stack_depth();
	switch (item->kind)
	{
		case QUERY_ID:
			return ids_selectivity(&id, 1, CONTAINS, stats);
		case QUERY_NOT:
			return 1 - expression_selectivity(idset_query_first(item), stats);
		default:
			return operands_selectivity(item, item->kind == QUERY_OR, stats);
	}
}

/* The same of a column, nulls included; with statistics if there are any */
static double
query_selectivity(Datum value, VariableStatData *variable, Oid function)
{
	const IdSetQuery *query = DatumGetIdSetQueryP(value);
	IdSetStats	stats;
	double		result;

	if (!HeapTupleIsValid(variable->statsTuple) ||
		!statistic_proc_security_check(variable, function))
		return expression_selectivity(query->items, NULL);
	idset_load_stats(&stats, variable);
	result = expression_selectivity(query->items, &stats) * stats.notnull;
	idset_free_stats(&stats);
	return result;
}

/*
 * True if this is the function of one of our operators.  *query_arg is which
 * of its arguments is the query.
 */
static bool
matches_queries(Oid function, int *query_arg)
{
	FmgrInfo	info;

	fmgr_info(function, &info);
	*query_arg = info.fn_addr == idset_matches_query ? 1 : 0;
	return info.fn_addr == idset_matches_query || info.fn_addr == idset_query_matches;
}

/* RESTRICT of @@ and ~~ */
Datum
idset_querysel(PG_FUNCTION_ARGS)
{
	PlannerInfo *root = (PlannerInfo *) PG_GETARG_POINTER(0);
	Oid			function = get_opcode(PG_GETARG_OID(1));
	double		selectivity = DEFAULT_QUERY_SEL;
	VariableStatData variable;
	Node	   *other;
	bool		on_left;
	int			query_arg;

	if (!matches_queries(function, &query_arg) ||
		!get_restriction_variable(root, (List *) PG_GETARG_POINTER(2), PG_GETARG_INT32(3),
								  &variable, &other, &on_left))
		PG_RETURN_FLOAT8(selectivity);
	if (IsA(other, Const) && on_left == (query_arg == 1))
		selectivity = ((Const *) other)->constisnull ? 0 :
			query_selectivity(((Const *) other)->constvalue, &variable, function);
	ReleaseVariableStats(variable);
	CLAMP_PROBABILITY(selectivity);
	PG_RETURN_FLOAT8(selectivity);
}

/* ---- index conditions ---- */

/* What a set has to have in order to match */
typedef struct Requirement
{
	bool		any;			/* one of the ids, else all */
	bool		exact;			/* a set that has them matches */
	uint32		n;				/* 0: nothing is required */
	uint32	   *ids;
} Requirement;

static Requirement required(const IdSetQueryItem *item, bool negated);

/* Append ids to a requirement */
static void
require_ids(Requirement *requirement, const uint32 *ids, uint32 n)
{
	requirement->ids = requirement->ids == NULL ? palloc_array(uint32, n) :
		repalloc(requirement->ids, (requirement->n + n) * sizeof(uint32));
	memcpy(requirement->ids + requirement->n, ids, n * sizeof(uint32));
	requirement->n += n;
}

/* Free the ids: a deep expression would keep a copy for each level */
static void
forget_ids(Requirement *requirement)
{
	if (requirement->ids != NULL)
		pfree(requirement->ids);
	requirement->ids = NULL;
}

/*
 * What is required if all operands have to hold: the ids that all operands
 * require, or else the shortest list of which one is required
 */
static Requirement
required_by_all(const IdSetQueryItem *item, bool negated)
{
	Requirement all = {.exact = true};
	Requirement any = {0};

	for (const IdSetQueryItem *op = idset_query_first(item); op < idset_query_end(item);
		 op = idset_query_next(op))
	{
		Requirement operand = required(op, negated);

		/* some of several ids are not told apart from others */
		all.exact &= operand.exact && !operand.any;
		if (operand.n == 0)
			continue;
		if (operand.any && (any.n == 0 || operand.n < any.n))
		{
			forget_ids(&any);
			any = operand;
			any.exact = false;
			continue;
		}
		if (!operand.any)
			require_ids(&all, operand.ids, operand.n);
		forget_ids(&operand);
	}
	if (all.n > 0)
		forget_ids(&any);
	return all.n > 0 ? all : any;
}

/* What is required if one operand has to hold: an id that one requires */
static Requirement
required_by_any(const IdSetQueryItem *item, bool negated)
{
	Requirement result = {.any = true, .exact = true};
	Requirement nothing = {0};

	for (const IdSetQueryItem *op = idset_query_first(item); op < idset_query_end(item);
		 op = idset_query_next(op))
	{
		Requirement operand = required(op, negated);

		if (operand.n == 0)
		{
			forget_ids(&result);
			return nothing;
		}
		result.exact &= operand.exact && (operand.any || operand.n == 1);
		require_ids(&result, operand.ids, operand.any ? operand.n : 1);
		forget_ids(&operand);
	}
	return result;
}

/* What a set must have so that an expression holds, or does not */
static Requirement
required(const IdSetQueryItem *item, bool negated)
{
	Requirement result = {0};

	check_stack_depth();
	switch (item->kind)
	{
		case QUERY_ID:
			result.exact = !negated;
			if (!negated)
				require_ids(&result, &item->value, 1);
			return result;
		case QUERY_NOT:
			return required(idset_query_first(item), !negated);
		default:
			if ((item->kind == QUERY_AND) != negated)
				return required_by_all(item, negated);
			return required_by_any(item, negated);
	}
}

/*
 * The operator of a family whose function has this address, between two
 * values of a type; InvalidOid if there is none
 */
static Oid
family_operator(Oid family, Oid type, PGFunction function)
{
	for (int16 strategy = 1; strategy <= MOST_STRATEGIES; strategy++)
	{
		Oid			operator = get_opfamily_member(family, type, type, strategy);
		FmgrInfo	info;

		if (!OidIsValid(operator))
			continue;
		fmgr_info(get_opcode(operator), &info);
		if (info.fn_addr == function)
			return operator;
	}
	return InvalidOid;
}

/*
 * The condition column @> ids, or column && ids; NULL if the index has none
 */
static Expr *
index_condition(SupportRequestIndexCondition *request, Node *column, Requirement *requirement)
{
	Oid			type = getBaseType(exprType(column));
	Oid			operator = family_operator(request->opfamily, type,
										   requirement->any ? idset_overlaps : idset_contains);
	Const	   *set;

	if (!OidIsValid(operator))
		return NULL;
	set = makeConst(type, -1, InvalidOid, -1,
					PointerGetDatum(idset_from_ids(requirement->ids, requirement->n)),
					false, false);
	return make_opclause(operator, BOOLOID, false, (Expr *) column, (Expr *) set, InvalidOid,
						 request->indexcollation);
}

/* The conditions that an index can search for; NIL if there are none */
static List *
index_conditions(SupportRequestIndexCondition *request)
{
	List	   *args = is_opclause(request->node) ? ((OpExpr *) request->node)->args :
		is_funcclause(request->node) ? ((FuncExpr *) request->node)->args : NIL;
	Requirement requirement;
	Const	   *query;
	Expr	   *condition;

	if (list_length(args) != 2 || !IsA(list_nth(args, 1 - request->indexarg), Const))
		return NIL;
	query = list_nth(args, 1 - request->indexarg);
	if (query->constisnull)
		return NIL;
	requirement = required(DatumGetIdSetQueryP(query->constvalue)->items, false);
	if (requirement.n == 0 || requirement.n > GPUVEC_MAX_IDS)
		return NIL;
	condition = index_condition(request, list_nth(args, request->indexarg), &requirement);
	request->lossy = !requirement.exact;
	return condition == NULL ? NIL : list_make1(condition);
}

const IdSetQuery *
idset_query_of(const Node *clause, const Node **set)
{
	List	   *args = is_opclause(clause) ? ((const OpExpr *) clause)->args :
		is_funcclause(clause) ? ((const FuncExpr *) clause)->args : NIL;
	Oid			function;
	const IdSetQuery *query;
	const Const *constant;
	Requirement requirement;
	int			query_arg;

	if (list_length(args) != 2)
		return NULL;
	function = is_opclause(clause) ? get_opcode(((const OpExpr *) clause)->opno) :
		((const FuncExpr *) clause)->funcid;
	if (!matches_queries(function, &query_arg))
		return NULL;
	*set = list_nth(args, 1 - query_arg);
	constant = list_nth(args, query_arg);
	if (!IsA(constant, Const) || constant->constisnull)
		return NULL;
	query = DatumGetIdSetQueryP(constant->constvalue);
	requirement = required(query->items, false);
	return requirement.n > 0 && requirement.exact ? NULL : query;
}

/* Planner support function of the functions of @@ and ~~ */
Datum
idset_query_support(PG_FUNCTION_ARGS)
{
	Node	   *raw = (Node *) PG_GETARG_POINTER(0);

	if (IsA(raw, SupportRequestIndexCondition))
	{
		SupportRequestIndexCondition *request = (SupportRequestIndexCondition *) raw;
		int			query_arg;

		/* the column is a set, not a query */
		if (matches_queries(request->funcid, &query_arg) && request->indexarg == 1 - query_arg)
			PG_RETURN_POINTER(index_conditions(request));
	}
	PG_RETURN_POINTER(NULL);
}
