/*-------------------------------------------------------------------------
 *
 * idset_spelling.c
 *	  Arithmetic that is written around a score or a distance.
 *
 * People write 1 - (tokens <%> q) >= 0.2, or 100 * similarity >= 20, or
 * coalesce(similarity, 0)::real > 0.2.  Such an expression of a score x is
 * taken apart, from the inside: negation, + - * / with a constant, casts to
 * other types of numbers, and coalesce() with a constant.  What is left is
 * scale * x + shift, and how far the value may be from that.
 *
 * The error.  Each step adds to it what its own rounding may be: a relative
 * error, of the largest value that it can have (IdSetScored).  float8 rounds
 * by 2^-53, float4 by 2^-24; a float8 becomes a numeric of 15 digits, a float4
 * one of 6, and a quotient of numerics has 16 digits or more.  ROUNDING is
 * more than that, and also covers that scale, shift and error are computed in
 * float8, and that a constant may be a numeric.  Casts of smaller types to
 * larger ones are exact, and so is multiplication by 1 or -1.
 *
 * The bound.  From value >= bound follows scale * x >= bound - shift - error.
 * So x >= (bound - shift) / scale - error / scale if scale > 0, and x <= ...
 * + ... if it is less.  idset_limit() computes this in float8: three
 * operations, each of which is off by 2^-53 of what stands in them.  It adds
 * 2^-50 of bound and shift (LIMIT_ROUNDING) to the slack.  If nothing was
 * computed but a negation, all is exact, and so is the bound.  Constants are
 * within 1e-100 and 1e100, so nothing overflows.  NaN is more than all
 * numbers: where the scale is negative, no x reaches it.
 *
 * The order.  Each step never falls, or never rises, as rounding keeps the
 * order.  So rows in the order of x are in the order of the value: see
 * index/orders.c.  Only quotients of numerics do not keep it: how many digits
 * they have depends on the operands.
 *
 * Null sets.  Their score is null, but with coalesce() it is a constant, its
 * fallback.  They are not found by a condition on the set, so such a condition
 * is made only if a null set is known not to satisfy the comparison.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/stratnum.h"
#include "access/transam.h"
#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "idset/idset.h"
#include "idset/idset_spelling.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(idset_limit);
PG_FUNCTION_INFO_V1(idset_limit_numeric);

/* Steps around a score that are looked through */
#define MOST_STEPS		16

/* Constants of steps */
#define LEAST_FACTOR	1e-100
#define MOST_CONSTANT	1e100

/* More than relative errors of steps; see above */
#define ROUNDING		0x1p-50
#define ROUNDING_FLOAT4 0x1p-21
#define EXACT_BELOW		0x1p53	/* smaller int8 are float8 exactly */
#define DIGITS_FLOAT8	1e-14
#define DIGITS_FLOAT4	1e-5
#define LIMIT_ROUNDING	0x1p-50

typedef enum StepKind
{
	STEP_CAST,
	STEP_NEGATE,
	STEP_ADD,
	STEP_SUBTRACT,
	STEP_MULTIPLY,
	STEP_DIVIDE
} StepKind;

typedef struct Step
{
	PGFunction	function;
	StepKind	kind;
	double		rounding;
} Step;

/* What a function of the server does with a number */
static const Step steps[] = {
	{dtof, STEP_CAST, ROUNDING_FLOAT4},
	{ftod, STEP_CAST, 0},
	{i4tod, STEP_CAST, 0},
	{i4tof, STEP_CAST, ROUNDING_FLOAT4},
	{i8tod, STEP_CAST, ROUNDING},
	{i8tof, STEP_CAST, ROUNDING_FLOAT4},
	{int48, STEP_CAST, 0},
	{int4_numeric, STEP_CAST, 0},
	{int8_numeric, STEP_CAST, 0},
	{float8_numeric, STEP_CAST, DIGITS_FLOAT8},
	{float4_numeric, STEP_CAST, DIGITS_FLOAT4},
	{numeric_float8, STEP_CAST, ROUNDING},
	{numeric_float4, STEP_CAST, ROUNDING_FLOAT4},
	{float8um, STEP_NEGATE, 0},
	{float4um, STEP_NEGATE, 0},
	{int4um, STEP_NEGATE, 0},
	{int8um, STEP_NEGATE, 0},
	{numeric_uminus, STEP_NEGATE, 0},
	{float8pl, STEP_ADD, ROUNDING},
	{float48pl, STEP_ADD, ROUNDING},
	{float84pl, STEP_ADD, ROUNDING},
	{float4pl, STEP_ADD, ROUNDING_FLOAT4},
	{int4pl, STEP_ADD, ROUNDING},
	{int8pl, STEP_ADD, ROUNDING},
	{int48pl, STEP_ADD, ROUNDING},
	{int84pl, STEP_ADD, ROUNDING},
	{numeric_add, STEP_ADD, ROUNDING},
	{float8mi, STEP_SUBTRACT, ROUNDING},
	{float48mi, STEP_SUBTRACT, ROUNDING},
	{float84mi, STEP_SUBTRACT, ROUNDING},
	{float4mi, STEP_SUBTRACT, ROUNDING_FLOAT4},
	{int4mi, STEP_SUBTRACT, ROUNDING},
	{int8mi, STEP_SUBTRACT, ROUNDING},
	{int48mi, STEP_SUBTRACT, ROUNDING},
	{int84mi, STEP_SUBTRACT, ROUNDING},
	{numeric_sub, STEP_SUBTRACT, ROUNDING},
	{float8mul, STEP_MULTIPLY, ROUNDING},
	{float48mul, STEP_MULTIPLY, ROUNDING},
	{float84mul, STEP_MULTIPLY, ROUNDING},
	{float4mul, STEP_MULTIPLY, ROUNDING_FLOAT4},
	{int4mul, STEP_MULTIPLY, ROUNDING},
	{int8mul, STEP_MULTIPLY, ROUNDING},
	{int48mul, STEP_MULTIPLY, ROUNDING},
	{int84mul, STEP_MULTIPLY, ROUNDING},
	{numeric_mul, STEP_MULTIPLY, ROUNDING},
	{float8div, STEP_DIVIDE, ROUNDING},
	{float48div, STEP_DIVIDE, ROUNDING},
	{float84div, STEP_DIVIDE, ROUNDING},
	{float4div, STEP_DIVIDE, ROUNDING_FLOAT4},
	{numeric_div, STEP_DIVIDE, DIGITS_FLOAT8}
};

/* ---- constants ---- */

/* A numeric, also one that no float8 is as large as */
static double
number_of_numeric(Datum value)
{
	char	   *digits = DatumGetCString(DirectFunctionCall1(numeric_out, value));
	double		number = strtod(digits, NULL);

	pfree(digits);
	return number;
}

/*
 * The number that a constant is, and how far from it the float8 may be; false
 * if it is none, or null
 */
static bool
constant(const Node *node, double *number, double *error)
{
	const Const *value = (const Const *) node;

	*error = 0;
	if (node == NULL || !IsA(node, Const) || value->constisnull)
		return false;
	switch (value->consttype)
	{
		case INT2OID:
			*number = DatumGetInt16(value->constvalue);
			return true;
		case INT4OID:
			*number = DatumGetInt32(value->constvalue);
			return true;
		case INT8OID:
			*number = (double) DatumGetInt64(value->constvalue);
			*error = fabs(*number) < EXACT_BELOW ? 0 : fabs(*number) * ROUNDING;
			return true;
		case FLOAT4OID:
			*number = DatumGetFloat4(value->constvalue);
			return true;
		case FLOAT8OID:
			*number = DatumGetFloat8(value->constvalue);
			return true;
		case NUMERICOID:
			*number = number_of_numeric(value->constvalue);
			*error = isinf(*number) ? 0 : fabs(*number) * ROUNDING + DBL_MIN;
			return true;
		default:
			return false;
	}
}

/* ---- steps ---- */

/* Functions of the server, and their arguments; or InvalidOid */
static Oid
server_function(Node *node, List **args)
{
	Oid			function;

	if (IsA(node, FuncExpr))
	{
		*args = ((FuncExpr *) node)->args;
		function = ((FuncExpr *) node)->funcid;
	}
	else if (IsA(node, OpExpr))
	{
		*args = ((OpExpr *) node)->args;
		set_opfuncid((OpExpr *) node);
		function = ((OpExpr *) node)->opfuncid;
	}
	else
		return InvalidOid;
	return function < FirstGenbkiObjectId ? function : InvalidOid;
}

/* The step that an expression is, or NULL */
static const Step *
find_step(Node *node, List **args)
{
	Oid			function = server_function(node, args);
	FmgrInfo	info;

	if (!OidIsValid(function))
		return NULL;
	fmgr_info(function, &info);
	for (int i = 0; i < lengthof(steps); i++)
		if (info.fn_addr == steps[i].function &&
			list_length(*args) == (steps[i].kind <= STEP_NEGATE ? 1 : 2))
			return &steps[i];
	return NULL;
}

/* A step as the linear function factor * value + term */
static bool
step_function(StepKind kind, bool constant_first, double number, double *factor, double *term)
{
	*factor = 1;
	*term = 0;
	switch (kind)
	{
		case STEP_CAST:
			return true;
		case STEP_NEGATE:
			*factor = -1;
			return true;
		case STEP_ADD:
			*term = number;
			return true;
		case STEP_SUBTRACT:
			*factor = constant_first ? -1 : 1;
			*term = constant_first ? number : -number;
			return true;
		case STEP_MULTIPLY:
			*factor = number;
			return fabs(number) >= LEAST_FACTOR;
		case STEP_DIVIDE:
			if (constant_first || !(fabs(number) >= LEAST_FACTOR))
				return false;
			*factor = 1 / number;
			return true;
	}
	return false;
}

/*
 * Have a step done with what is known so far.  Infinity stays what it is, but
 * for its sign.
 */
static void
apply(IdSetSpelling *spelling, double factor, double term, double rounding)
{
	spelling->scale *= factor;
	spelling->shift = spelling->shift * factor + term;
	spelling->most = spelling->most * fabs(factor) + fabs(term);
	spelling->error = spelling->error * fabs(factor) + spelling->most * rounding;
	spelling->fallback = spelling->fallback * factor + term;
	if (!isinf(spelling->fallback))
		spelling->fallback_error = spelling->fallback_error * fabs(factor) +
			(fabs(spelling->fallback) + fabs(term)) * rounding;
}

static bool take_apart(Node *node, int depth, IdSetFindScored find, IdSetSpelling *spelling);

/* An expression that is a step around another one */
static bool
take_step(const Step *step, List *args, int depth, IdSetFindScored find, IdSetSpelling *spelling)
{
	double		number = 0;
	double		error;
	double		factor;
	double		term;
	bool		first = false;
	bool		exact;
	Node	   *inner = linitial(args);

	if (step->kind > STEP_NEGATE)
	{
		first = constant(linitial(args), &number, &error);
		if (!first && !constant(lsecond(args), &number, &error))
			return false;
		inner = first ? lsecond(args) : inner;
	}
	if (!(fabs(number) <= MOST_CONSTANT) ||
		!step_function(step->kind, first, number, &factor, &term) ||
		!take_apart(inner, depth - 1, find, spelling))
		return false;
	exact = step->kind == STEP_MULTIPLY && fabs(number) == 1;
	apply(spelling, factor, term, exact ? 0 : step->rounding);
	spelling->keeps_order &= step->function != numeric_div;
	return spelling->scale != 0 && isfinite(spelling->scale) && isfinite(spelling->shift) &&
		isfinite(spelling->most);
}

/* The value of the worst score or distance */
static double
worst_value(const IdSetSpelling *spelling)
{
	const IdSetScored *scored = &spelling->scored;

	return spelling->scale * (scored->distance ? scored->most : scored->least) + spelling->shift;
}

/* coalesce(score, constant); with another one inside it never gets there */
static bool
take_coalesce(const CoalesceExpr *coalesce, int depth, IdSetFindScored find,
			  IdSetSpelling *spelling)
{
	double		number;
	double		error;
	double		worst;

	if (list_length(coalesce->args) != 2 || !constant(lsecond(coalesce->args), &number, &error) ||
		!take_apart(linitial(coalesce->args), depth - 1, find, spelling))
		return false;
	if (spelling->has_fallback)
		return true;
	worst = worst_value(spelling);
	spelling->has_fallback = true;
	spelling->fallback = number;
	spelling->fallback_error = error;
	error += spelling->error;
	spelling->fallback_last = idset_spelling_rises(spelling) ? number + error <= worst :
		number - error >= worst;
	return true;
}

/* ---- scores ---- */

/* The function of a call or an operator */
static Oid
called_function(Node *node, List **args)
{
	if (IsA(node, FuncExpr))
	{
		*args = ((FuncExpr *) node)->args;
		return ((FuncExpr *) node)->funcid;
	}
	if (!IsA(node, OpExpr))
		return InvalidOid;
	*args = ((OpExpr *) node)->args;
	set_opfuncid((OpExpr *) node);
	return ((OpExpr *) node)->opfuncid;
}

/* True for a call of one of our functions */
static bool
calls(Node *node, PGFunction function, int nargs, List **args)
{
	Oid			called = called_function(node, args);
	FmgrInfo	info;

	if (!OidIsValid(called) || list_length(*args) != nargs)
		return false;
	fmgr_info(called, &info);
	return info.fn_addr == function;
}

/* What a call is the score of; cardinality(a & b) is one of a and b */
static bool
find_score(Node *node, IdSetFindScored find, IdSetScored *scored, List **args)
{
	FmgrInfo	info;
	Oid			function;

	if (calls(node, idset_cardinality, 1, args))
	{
		*scored = idset_scored_by(GPUVEC_INTERSECTION, false);
		return calls(linitial(*args), idset_intersect, 2, args);
	}
	function = called_function(node, args);
	if (!OidIsValid(function) || list_length(*args) < 2)
		return false;
	fmgr_info(function, &info);
	return find(info.fn_addr, scored);
}

static bool
take_score(Node *node, IdSetFindScored find, IdSetSpelling *spelling)
{
	List	   *args;
	IdSetScored scored;

	if (!find_score(node, find, &scored, &args))
		return false;
	memset(spelling, 0, sizeof(*spelling));
	spelling->scored = scored;
	spelling->sets[0] = linitial(args);
	spelling->sets[1] = lsecond(args);
	spelling->collation = exprInputCollation(node);
	if (!scored.sparse && idset_measures[scored.measure].weighted)
	{
		spelling->weights[0] = lthird(args);
		spelling->weights[1] = lfourth(args);
	}
	spelling->scale = 1;
	spelling->keeps_order = true;
	spelling->most = Max(-scored.least, scored.most);
	return true;
}

const char *
idset_spelling_measure(const IdSetSpelling *spelling, bool turned)
{
	const IdSetMeasure *measure = &idset_measures[spelling->scored.measure];
	const Const *alpha = (const Const *) spelling->weights[turned ? 1 : 0];
	const Const *beta = (const Const *) spelling->weights[turned ? 0 : 1];
	char		shortest[2][DOUBLE_SHORTEST_DECIMAL_LEN];

	if (!measure->weighted)
		return turned && !measure->symmetric ? measure->turned :
			idset_measure_names[spelling->scored.measure];
	if (!IsA(alpha, Const) || !IsA(beta, Const) || alpha->constisnull || beta->constisnull ||
		!gpuvec_tversky_valid(DatumGetFloat8(alpha->constvalue), DatumGetFloat8(beta->constvalue)))
		return NULL;
	double_to_shortest_decimal_buf(DatumGetFloat8(alpha->constvalue), shortest[0]);
	double_to_shortest_decimal_buf(DatumGetFloat8(beta->constvalue), shortest[1]);
	return psprintf("tversky(%s, %s)", shortest[0], shortest[1]);
}

/* The same as idset_spelling(), for an expression of at most `depth` steps */
static bool
take_apart(Node *node, int depth, IdSetFindScored find, IdSetSpelling *spelling)
{
	const Step *step;
	List	   *args;

	while (node != NULL && IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (node == NULL || depth == 0)
		return false;
	if (IsA(node, CoalesceExpr))
		return take_coalesce((CoalesceExpr *) node, depth, find, spelling);
	step = find_step(node, &args);
	return step != NULL ? take_step(step, args, depth, find, spelling) :
		take_score(node, find, spelling);
}

bool
idset_spelling(Node *node, IdSetFindScored find, IdSetSpelling *spelling)
{
	return take_apart(node, MOST_STEPS, find, spelling);
}

/* ---- bounds ---- */

bool
idset_spelling_null_fails(const IdSetSpelling *spelling, int strategy, const Node *bound)
{
	double		limit;
	double		error;
	double		above;

	if (!constant(bound, &limit, &error))
		return false;
	error += spelling->fallback_error;
	above = spelling->fallback - limit;
	switch (strategy)
	{
		case BTLessStrategyNumber:
			return above >= error;
		case BTLessEqualStrategyNumber:
			return above > error;
		case BTEqualStrategyNumber:
			return fabs(above) > error;
		case BTGreaterEqualStrategyNumber:
			return above < -error;
		case BTGreaterStrategyNumber:
			return above <= -error;
		default:
			return false;
	}
}

double
idset_spelling_slack(const IdSetSpelling *spelling)
{
	double		slack = spelling->error / fabs(spelling->scale);

	return spelling->scored.distance ? slack : -slack;
}

/* Solve scale * x + shift = bound, and add the slack; see above */
static double
solve(double bound, double scale, double shift, double slack)
{
	double		x = (bound - shift) / scale;

	if (isnan(bound) && scale < 0)
		return -get_float8_infinity();
	if (isnan(x) || isinf(x) || slack == 0)
		return x;
	return x + slack + copysign((fabs(bound) + fabs(shift)) / fabs(scale) * LIMIT_ROUNDING, slack);
}

Datum
idset_limit(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(solve(PG_GETARG_FLOAT8(0), PG_GETARG_FLOAT8(1), PG_GETARG_FLOAT8(2),
						   PG_GETARG_FLOAT8(3)));
}

Datum
idset_limit_numeric(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(solve(number_of_numeric(PG_GETARG_DATUM(0)), PG_GETARG_FLOAT8(1),
						   PG_GETARG_FLOAT8(2), PG_GETARG_FLOAT8(3)));
}
