/*-------------------------------------------------------------------------
 *
 * count_asked.c
 *	  Finds out whether nodes that count rows can return what a query asks for.
 *
 * That is columns to group by, or the ids of a set, and aggregates of rows
 * (count_paths.c).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_aggregate.h"
#include "catalog/pg_type_d.h"
#include "core/grouping.h"
#include "idset/idset.h"
#include "index/count.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

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

/* ---- ids of sets ---- */

/*
 * The column whose ids an expression returns, or NULL; *function is what it
 * calls
 */
static const Var *
unnested(const Node *expr, Oid *function)
{
	const FuncExpr *call = (const FuncExpr *) expr;
	FmgrInfo	info;

	if (!IsA(expr, FuncExpr) || !call->funcretset || list_length(call->args) != 1 ||
		!IsA(linitial(call->args), Var) || call->funcresulttype != INT8OID ||
		!idset_is_type(exprType(linitial(call->args))))
		return NULL;
	fmgr_info(call->funcid, &info);
	if (info.fn_addr != idset_unnest)
		return NULL;
	*function = call->funcid;
	return linitial(call->args);
}

/* The column whose ids a function in FROM returns, and no more; or NULL */
static const Var *
unnested_from(PlannerInfo *root, const RelOptInfo *rel, Oid *function)
{
	const RangeTblEntry *entry = planner_rt_fetch(rel->relid, root);

	if (entry->rtekind != RTE_FUNCTION || entry->funcordinality ||
		list_length(entry->functions) != 1 || rel->baserestrictinfo != NIL)
		return NULL;
	return unnested(((const RangeTblFunction *) linitial(entry->functions))->funcexpr, function);
}

/* True if an expression is a column of the table whose rows are counted */
static bool
is_column(const CountAsked *asked, const Node *expr)
{
	return IsA(expr, Var) && ((const Var *) expr)->varno == (int) asked->table->relid;
}

/*
 * Find the table whose rows a join has, each once for each id of its set.
 * False: it is another join.
 */
static bool
find_joined(PlannerInfo *root, const RelOptInfo *input, CountAsked *asked)
{
	int			relid = -1;

	if (root->join_info_list != NIL || bms_num_members(input->relids) != 2)
		return false;
	while (relid = bms_next_member(input->relids, relid), relid >= 0)
	{
		RelOptInfo *rel = root->simple_rel_array[relid];
		const Var  *column;

		if (rel == NULL || rel->joininfo != NIL || rel->has_eclass_joins)
			return false;
		column = unnested_from(root, rel, &asked->unnest);
		if (column == NULL)
			asked->table = rel;
		else
		{
			asked->ids = rel;
			asked->columns = list_make1((Node *) column);
		}
	}
	return asked->table != NULL && asked->ids != NULL && is_column(asked, linitial(asked->columns));
}

/* Find out whether a key is the ids of a column, which is then in columns */
static bool
is_id(CountAsked *asked, const Node *expr)
{
	const Var  *column;

	if (asked->ids != NULL)
		return IsA(expr, Var) && ((const Var *) expr)->varno == (int) asked->ids->relid &&
			((const Var *) expr)->varattno == 1;
	column = unnested(expr, &asked->unnest);
	if (column != NULL)
		asked->columns = list_make1((Node *) column);
	return column != NULL;
}

/* ---- keys and aggregates ---- */

/* Add a column to what is returned: a key, or an aggregate */
static void
add_output(CountAsked *asked, Expr *expr, Index ref, CountOutput kind, int number)
{
	add_column_to_pathtarget(asked->target, expr, ref);
	asked->kinds = lappend_int(asked->kinds, kind);
	asked->numbers = lappend_int(asked->numbers, number);
}

/* Add what rows are grouped by.  False: they cannot be. */
static bool
add_key(Expr *expr, Index ref, CountAsked *asked)
{
	CountOutput kind = COUNT_KEY;

	if (is_id(asked, (Node *) expr))
		kind = COUNT_ID;
	else if (is_column(asked, (Node *) expr))
		asked->columns = lappend(asked->columns, expr);
	else
		return false;
	add_output(asked, expr, ref, kind, asked->nkeys);
	asked->groups = lappend(asked->groups, expr);
	asked->nkeys++;
	return true;
}

/* The number of a column in columns, those of keys aside; it is added */
static int
value_number(CountAsked *asked, const Var *column)
{
	int			number = asked->nkeys;

	while (number < list_length(asked->columns) && !equal(list_nth(asked->columns, number), column))
		number++;
	if (number == list_length(asked->columns))
		asked->columns = lappend(asked->columns, copyObject((Var *) column));
	return number;
}

/* Add an aggregate.  False: the node does not make it. */
static bool
add_aggregate(const Aggref *agg, CountAsked *asked)
{
	Aggref	   *partial = copyObject((Aggref *) agg);
	bool		greatest;
	const Var  *column;

	mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
	if (counts_rows(agg))
	{
		add_output(asked, (Expr *) partial, 0, COUNT_ROWS, 0);
		return true;
	}
	column = value_of(agg, &greatest);
	if (column == NULL || !is_column(asked, (const Node *) column))
		return false;
	add_output(asked, (Expr *) partial, 0, greatest ? COUNT_GREATEST : COUNT_LEAST,
			   value_number(asked, column));
	return true;
}

/* Read the columns of GROUP BY.  False: not all can be ones. */
static bool
read_groups(PlannerInfo *root, const PathTarget *target, CountAsked *asked)
{
	ListCell   *cell;
	int			i = 0;

	foreach(cell, target->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(target, i++);

		if (ref != 0 && get_sortgroupref_clause_noerr(ref, root->parse->groupClause) != NULL &&
			!add_key(lfirst(cell), ref, asked))
			return false;
	}
	return asked->nkeys == list_length(root->parse->groupClause);
}

/*
 * Read what a query asks for, in its targets and in HAVING.  False: not all of
 * it is a column of GROUP BY or an aggregate that the node makes.
 */
static bool
read_asked(PlannerInfo *root, const PathTarget *target, CountAsked *asked)
{
	int			flags = PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS;
	List	   *nodes = NIL;
	List	   *done = NIL;
	ListCell   *cell;

	asked->target = create_empty_pathtarget();
	if (!read_groups(root, target, asked))
		return false;
	foreach(cell, target->exprs)
	{
		if (!list_member(asked->groups, lfirst(cell)))
			nodes = list_concat(nodes, pull_var_clause(lfirst(cell), flags));
	}
	nodes = list_concat(nodes, pull_var_clause(root->parse->havingQual, flags));
	foreach(cell, nodes)
	{
		if (list_member(done, lfirst(cell)) || list_member(asked->groups, lfirst(cell)))
			continue;
		if (!IsA(lfirst(cell), Aggref) || !is_plain(lfirst(cell)) ||
			!add_aggregate(lfirst(cell), asked))
			return false;
		done = lappend(done, lfirst(cell));
	}
	set_pathtarget_cost_width(root, asked->target);
	/* ids are counted, and nothing else of their rows */
	if (OidIsValid(asked->unnest) && (asked->nkeys != 1 || list_length(asked->columns) != 1))
		return false;
	return done != NIL && list_length(asked->columns) <= GPUVEC_MOST_GROUPED;
}

/* The rows that a query's LIMIT and OFFSET leave, or 0: not known */
static int
most_rows(const Query *parse)
{
	const Const *count = (const Const *) parse->limitCount;
	const Const *offset = (const Const *) parse->limitOffset;
	int64		most;
	int64		skipped = 0;

	if (count == NULL || !IsA(count, Const) || count->constisnull ||
		(offset != NULL && (!IsA(offset, Const) || offset->constisnull)))
		return 0;
	most = DatumGetInt64(count->constvalue);
	if (offset != NULL)
		skipped = Max(DatumGetInt64(offset->constvalue), 0);
	/* the sum of both may not fit */
	if (most <= 0 || most > GPUVEC_MOST_ID_GROUPS || skipped > GPUVEC_MOST_ID_GROUPS - most)
		return 0;
	return (int) (most + skipped);
}

/*
 * Find out how many groups are wanted, those with the most rows: 0 if that is
 * not what the query's order and limit say, or if something comes between
 */
static int
most_groups(PlannerInfo *root, const CountAsked *asked)
{
	const Query *parse = root->parse;
	const SortGroupClause *first;
	const Node *expr;
	ListCell   *cell;

	if (asked->nkeys == 0 || parse->sortClause == NIL || parse->havingQual != NULL ||
		parse->windowClause != NIL || parse->distinctClause != NIL)
		return 0;
	foreach(cell, root->processed_tlist)
	{
		expr = (const Node *) ((const TargetEntry *) lfirst(cell))->expr;
		if (expression_returns_set((Node *) expr) && !list_member(asked->groups, expr))
			return 0;
	}
	first = linitial(parse->sortClause);
	expr = get_sortgroupclause_expr((SortGroupClause *) first, root->processed_tlist);
	if (!IsA(expr, Aggref) || !counts_rows((const Aggref *) expr) ||
		first->sortop != lookup_type_cache(INT8OID, TYPECACHE_GT_OPR)->gt_opr)
		return 0;
	return most_rows(parse);
}

bool
CountReadAsked(PlannerInfo *root, RelOptInfo *input, const PathTarget *target, CountAsked *asked)
{
	const Query *parse = root->parse;

	memset(asked, 0, sizeof(*asked));
	if (!parse->hasAggs || parse->groupingSets != NIL)
		return false;
	if (input->reloptkind == RELOPT_BASEREL)
		asked->table = input;
	else if (input->reloptkind != RELOPT_JOINREL || !find_joined(root, input, asked))
		return false;
	if (IS_DUMMY_REL(asked->table) || !read_asked(root, target, asked))
		return false;
	asked->most = most_groups(root, asked);
	return true;
}
