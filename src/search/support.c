/*-------------------------------------------------------------------------
 *
 * support.c
 *	  Planner support of the search functions: the expected number of rows.
 *
 * With the default of 1,000 rows, the join back to the table by ctid becomes
 * a hash join with a full scan of the table.  With k rows it is a nested loop
 * of TID scans.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "search/set_search.h"
#include "utils/array.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(gpuvec_topk_support);
PG_FUNCTION_INFO_V1(gpuvec_overlaps_support);

/* Assumed where an argument is not known */
#define DEFAULT_K			100
#define DEFAULT_ALL_ROWS	1000
#define DEFAULT_ROWS_OF_SCORE	100
#define DEFAULT_QUERIES		10

/* The value of an argument if the planner knows it, else NULL */
Const *
SearchKnownArgument(PlannerInfo *root, FuncExpr *call, int argument)
{
	Node	   *node;

	if (argument >= list_length(call->args))
		return NULL;
	node = list_nth(call->args, argument);
	if (root != NULL)
		node = estimate_expression_value(root, node);
	return IsA(node, Const) ? (Const *) node : NULL;
}

/* True if a least score is asked for: few rows of most tables have it */
static bool
has_min_score(PlannerInfo *root, FuncExpr *call)
{
	Const	   *min_score = SearchKnownArgument(root, call, 5);

	return min_score == NULL || !min_score->constisnull;
}

/* Expected number of rows of one query */
static double
expected_k(PlannerInfo *root, FuncExpr *call)
{
	Const	   *k = SearchKnownArgument(root, call, 3);

	if (k == NULL)
		return DEFAULT_K;
	if (k->constisnull)
		return has_min_score(root, call) ? DEFAULT_ROWS_OF_SCORE : DEFAULT_ALL_ROWS;
	return Max((double) DatumGetInt64(k->constvalue), 1.0);
}

static double
expected_queries(PlannerInfo *root, FuncExpr *call)
{
	Node	   *node = list_nth(call->args, 2);
	Const	   *queries;

	if (!type_is_array(exprType(node)))
		return 1;
	queries = SearchKnownArgument(root, call, 2);
	if (queries != NULL)
	{
		ArrayType  *array;

		if (queries->constisnull)
			return 1;
		array = DatumGetArrayTypeP(queries->constvalue);
		return Max(ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)), 1);
	}
	if (IsA(node, ArrayExpr))
		return Max(list_length(((ArrayExpr *) node)->elements), 1);
	return DEFAULT_QUERIES;
}

/* Expected number of given rows; infinity if the search is not restricted */
static double
expected_among(PlannerInfo *root, FuncExpr *call)
{
	Const	   *among = SearchKnownArgument(root, call, 6);
	ArrayType  *array;

	if (among == NULL || among->constisnull)
		return get_float8_infinity();
	array = DatumGetArrayTypeP(among->constvalue);
	return Max(ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)), 1);
}

/* The call of a request for its number of rows, else NULL */
static FuncExpr *
requested_call(Node *raw)
{
	Node	   *node = IsA(raw, SupportRequestRows) ? ((SupportRequestRows *) raw)->node : NULL;

	return node != NULL && IsA(node, FuncExpr) ? (FuncExpr *) node : NULL;
}

Datum
gpuvec_topk_support(PG_FUNCTION_ARGS)
{
	SupportRequestRows *request = (SupportRequestRows *) PG_GETARG_POINTER(0);
	FuncExpr   *call = requested_call((Node *) request);

	if (call == NULL)
		PG_RETURN_POINTER(NULL);
	request->rows = Min(expected_k(request->root, call), expected_among(request->root, call)) *
		expected_queries(request->root, call);
	PG_RETURN_POINTER(request);
}

Datum
gpuvec_overlaps_support(PG_FUNCTION_ARGS)
{
	SupportRequestRows *request = (SupportRequestRows *) PG_GETARG_POINTER(0);
	FuncExpr   *call = requested_call((Node *) request);
	double		n;

	if (call == NULL)
		PG_RETURN_POINTER(NULL);
	n = expected_queries(request->root, call);
	request->rows = n * (n + 1) / 2;
	PG_RETURN_POINTER(request);
}
