/*-------------------------------------------------------------------------
 *
 * idset_selfuncs.c
 *	  Selectivity functions of the operators && @> <@ and <<->>.
 *
 * If the query is known at planning time, the column's statistics tell how
 * many sets satisfy the operator (idset_estimate.c).
 *
 * A query is unknown if it is a parameter of a generic plan or comes from
 * another table.  An unknown query is assumed to be like the sets of the
 * column.  The selectivities of TYPICAL_SETS sets of the column are
 * estimated, and the result is their geometric mean.
 *
 * The arithmetic mean would be wrong: the few sets that find many rows would
 * outweigh all others.  Under a LIMIT, the cost of a sequential scan is
 * inverse to the number of rows found.  If many rows are found, an index scan
 * costs little more than the sequential scan.  So the many queries that find
 * few rows matter.
 *
 * The known fields of a threshold are used; only a missing score or measure is
 * assumed.  The assumed score is that of a set of the same length with half
 * of the ids.  A missing single id is assumed to be like the ids of the
 * column, a common id with higher probability.
 *
 * Without statistics the defaults of arrays apply.  Equality uses
 * PostgreSQL's own estimate, from the most common sets and the number of
 * distinct sets.
 *
 * A user may name these functions as estimators of an operator on any types.
 * So they answer only for operators whose function is one of ours, which have
 * the expected types.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <limits.h>
#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "idset/idset_condition.h"
#include "idset/idset_estimate.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(idset_overlapsel);
PG_FUNCTION_INFO_V1(idset_containsel);
PG_FUNCTION_INFO_V1(idset_containedsel);
PG_FUNCTION_INFO_V1(idset_thresholdsel);

/* Default selectivities, as for arrays */
#define DEFAULT_OVERLAP_SEL		0.01
#define DEFAULT_CONTAIN_SEL		0.005
#define DEFAULT_THRESHOLD_SEL	0.005

/*
 * Typical sets that stand for an unknown query, and for each set the number
 * of lengths and of histogram sets that idset_estimate() uses
 */
#define TYPICAL_SETS			6
#define TYPICAL_LENGTHS			4
#define TYPICAL_SAMPLE			50

/*
 * Selectivities of unknown queries to cache: planning asks for the same ones
 * repeatedly
 */
#define REMEMBERED				8

/* Lowest selectivity where the number of rows is unknown */
#define LEAST_SEL				1e-6

/* The clause to estimate: column OPERATOR other, or other OPERATOR column */
typedef struct IdSetClause
{
	IdSetQuestion question;
	Oid			function;		/* OID of the operator's function */
	Oid			type;			/* type of the other side */
	VariableStatData variable;
	Node	   *other;
	bool		on_left;		/* the column is on the left */
} IdSetClause;

/*
 * Everything that the selectivity of an unknown query depends on; compared as
 * bytes
 */
typedef struct TypicalKey
{
	double		min_score;
	double		rows;
	Oid			relation;		/* starelid of the statistics row */
	TransactionId xmin;
	ItemPointerData tid;
	AttrNumber	attnum;
	int			predicate;
	int			measure;
	gpuvec_tversky tversky;
	bool		inherited;
	bool		single_id;
	bool		has_score;
} TypicalKey;

/* Default selectivity */
double
idset_default_selectivity(IdSetPredicate predicate)
{
	switch (predicate)
	{
		case OVERLAPS:
			return DEFAULT_OVERLAP_SEL;
		case REACHES:
			return DEFAULT_THRESHOLD_SEL;
		default:
			return DEFAULT_CONTAIN_SEL;
	}
}

/* True if an operator with this function has this predicate's meaning */
bool
idset_function_fits(Oid function, IdSetPredicate predicate)
{
	FmgrInfo	info;

	fmgr_info(function, &info);
	switch (predicate)
	{
		case OVERLAPS:
			return info.fn_addr == idset_overlaps;
		case CONTAINS:
			return info.fn_addr == idset_contains || info.fn_addr == idset_contains_id;
		case CONTAINED:
			return info.fn_addr == idset_contained || info.fn_addr == idset_id_contained;
		case REACHES:
			return info.fn_addr == idset_reaches_threshold;
	}
	return false;
}

/*
 * True if the column has statistics and the user may see all its rows.
 * Otherwise EXPLAIN would tell how common an id is among rows that row-level
 * security hides.  The server's own estimators tell that of leakproof
 * operators; these do not.
 */
static bool
has_statistics(IdSetClause *clause)
{
	return HeapTupleIsValid(clause->variable.statsTuple) && clause->variable.acl_ok;
}

/* Selectivity with a known query */
static double
known_selectivity(IdSetClause *clause)
{
	double		fallback = idset_default_selectivity(clause->question.predicate);
	double		result;
	IdSetStats	stats;

	if (!has_statistics(clause))
		return fallback;
	idset_load_stats(&stats, &clause->variable);
	result = idset_estimate(&stats, &clause->question, IDSET_MODEL_LENGTHS, INT_MAX, fallback);
	idset_free_stats(&stats);
	return result;
}

/* The score of a set as long as the query that has half of its ids */
static double
half_score(const IdSetThreshold *threshold, const IdSet *query)
{
	uint32		n = idset_count(query);
	gpuvec_shared half = {(n + 1) / 2, n, n};

	return gpuvec_score_with(threshold->scoring, half);
}

/*
 * Selectivity with an unknown query, from statistics: the mean over typical
 * sets
 */
static double
mean_of_sets(const IdSetClause *clause, const IdSetStats *stats, bool has_score)
{
	IdSetQuestion question = clause->question;
	double		fallback = idset_default_selectivity(question.predicate);
	double		rows = clause->variable.rel->tuples;
	double		least = rows >= 1 ? 1 / rows : LEAST_SEL;
	double		sum = 0;
	IdSet	   *sets[TYPICAL_SETS];
	int			n = idset_typical_sets(stats, clause->type == INT8OID, sets, TYPICAL_SETS);

	for (int i = 0; i < n; i++)
	{
		question.threshold.query = sets[i];
		if (!has_score)
			question.threshold.min_score = half_score(&question.threshold, sets[i]);
		sum += log(Max(idset_estimate(stats, &question, TYPICAL_LENGTHS, TYPICAL_SAMPLE, fallback),
					   least));
	}
	return n > 0 ? exp(sum / n) : fallback;
}

/* The same; loads the statistics */
static double
typical_mean(IdSetClause *clause, bool has_score)
{
	IdSetStats	stats;
	double		result;

	idset_load_stats(&stats, &clause->variable);
	result = mean_of_sets(clause, &stats, has_score);
	idset_free_stats(&stats);
	return result;
}

/*
 * The cache key of a clause.  xmin and tid tell versions of the statistics
 * apart.
 */
static void
make_typical_key(TypicalKey *key, const IdSetClause *clause, bool has_score)
{
	HeapTuple	tuple = clause->variable.statsTuple;
	Form_pg_statistic stats = (Form_pg_statistic) GETSTRUCT(tuple);

	memset(key, 0, sizeof(*key));
	key->relation = stats->starelid;
	key->attnum = stats->staattnum;
	key->inherited = stats->stainherit;
	key->tid = tuple->t_self;
	key->xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	key->predicate = clause->question.predicate;
	key->single_id = clause->type == INT8OID;
	key->measure = clause->question.threshold.scoring.measure;
	key->tversky = clause->question.threshold.scoring.tversky;
	key->has_score = has_score;
	key->min_score = clause->question.threshold.min_score;
	key->rows = clause->variable.rel->tuples;
}

/*
 * Selectivity with an unknown query.  has_score is false if the least score
 * of a threshold is unknown, too.  Cached, because a join asks for each of
 * its paths.
 */
static double
typical_selectivity(IdSetClause *clause, bool has_score)
{
	static struct
	{
		TypicalKey	key;
		double		selectivity;
	}			remembered[REMEMBERED];
	static int	next = 0;
	TypicalKey	key;

	if (!has_statistics(clause))
		return idset_default_selectivity(clause->question.predicate);

	/*
	 * statistics of expressions (CREATE STATISTICS) have no tid to tell them
	 * apart
	 */
	if (!ItemPointerIsValid(&clause->variable.statsTuple->t_self))
		return typical_mean(clause, has_score);
	make_typical_key(&key, clause, has_score);
	for (int i = 0; i < REMEMBERED; i++)
		if (memcmp(&remembered[i].key, &key, sizeof(key)) == 0)
			return remembered[i].selectivity;

	next = (next + 1) % REMEMBERED;
	memset(&remembered[next].key, 0, sizeof(key));	/* in case of an error
													 * below */
	remembered[next].selectivity = typical_mean(clause, has_score);
	memcpy(&remembered[next].key, &key, sizeof(key));
	return remembered[next].selectivity;
}

/*
 * The arguments of a threshold that is a row constructor or a call of
 * idset_threshold() or idset_reaching(); otherwise NIL
 */
List *
idset_fields_of_threshold(Node *node)
{
	FmgrInfo	info;

	if (IsA(node, RowExpr))
		return ((RowExpr *) node)->args;
	if (!IsA(node, FuncExpr))
		return NIL;
	fmgr_info(((FuncExpr *) node)->funcid, &info);
	return info.fn_addr == idset_threshold || info.fn_addr == idset_reaching ?
		((FuncExpr *) node)->args : NIL;
}

/* Selectivity of a threshold that is not a constant; some fields may be */
static double
partial_selectivity(IdSetClause *clause)
{
	IdSetThreshold *threshold = &clause->question.threshold;
	List	   *fields = idset_fields_of_threshold(clause->other);
	Const	   *known[3] = {NULL};

	for (int i = 0; i < lengthof(known) && i < list_length(fields); i++)
		if (IsA(list_nth(fields, i), Const))
			known[i] = list_nth(fields, i);
	if ((known[0] && known[0]->constisnull) || (known[1] && known[1]->constisnull))
		return 0;
	/* bad ones are for the executor to report */
	if (known[2] && !known[2]->constisnull &&
		!idset_find_measure(TextDatumGetCString(known[2]->constvalue), &threshold->scoring))
		return DEFAULT_THRESHOLD_SEL;
	if (known[1])
		threshold->min_score = DatumGetFloat8(known[1]->constvalue);
	if (isnan(threshold->min_score))
		return DEFAULT_THRESHOLD_SEL;
	if (known[0] == NULL)
		return typical_selectivity(clause, known[1] != NULL);
	threshold->query = DatumGetIdSetP(known[0]->constvalue);
	if (known[1] == NULL)
		threshold->min_score = half_score(threshold, threshold->query);
	return known_selectivity(clause);
}

/* Selectivity of a threshold */
static double
threshold_selectivity(IdSetClause *clause)
{
	IdSetThreshold *threshold = &clause->question.threshold;

	if (!clause->on_left)
		return DEFAULT_THRESHOLD_SEL;
	if (!IsA(clause->other, Const))
		return partial_selectivity(clause);
	/* bad ones are for the executor to report */
	if (!idset_threshold_parse(DatumGetHeapTupleHeader(((Const *) clause->other)->constvalue),
							   threshold, false))
		return DEFAULT_THRESHOLD_SEL;
	return threshold->query == NULL ? 0 : known_selectivity(clause);
}

/* Selectivity of integer column <@ set: each id is one distinct value */
static double
integer_selectivity(IdSetClause *clause)
{
	bool		isdefault;
	double		ndistinct = get_variable_numdistinct(&clause->variable, &isdefault);

	if (!IsA(clause->other, Const))
		return idset_default_selectivity(clause->question.predicate);
	return idset_count(DatumGetIdSetP(((Const *) clause->other)->constvalue)) / Max(ndistinct, 1);
}

/* A constant of type idset or int8 as a set; NULL if no set has the int8 */
static IdSet *
constant_set(Datum constant, Oid type)
{
	int64		number;
	uint32		id;

	if (type != INT8OID)
		return DatumGetIdSetP(constant);
	number = DatumGetInt64(constant);
	if (number < 0 || number > (int64) IDSET_MAX_ID)
		return NULL;
	id = (uint32) number;
	return idset_from_sorted(&id, 1);
}

/* Selectivity of && @> <@ with a set or an id */
static double
set_selectivity(IdSetClause *clause)
{
	IdSetQuestion *question = &clause->question;

	if (!clause->on_left && question->predicate != OVERLAPS)
		question->predicate = question->predicate == CONTAINS ? CONTAINED : CONTAINS;
	if (!IsA(clause->other, Const))
		return typical_selectivity(clause, true);
	question->threshold.query = constant_set(((Const *) clause->other)->constvalue, clause->type);
	return question->threshold.query == NULL ? 0 : known_selectivity(clause);
}

/* Common to all restriction selectivity functions */
static Datum
restriction_selectivity(FunctionCallInfo fcinfo, IdSetPredicate predicate)
{
	PlannerInfo *root = (PlannerInfo *) PG_GETARG_POINTER(0);
	Oid			operator = PG_GETARG_OID(1);
	IdSetClause clause = {.question.predicate = predicate, .function = get_opcode(operator)};
	double		selectivity = idset_default_selectivity(predicate);
	Oid			left;
	Oid			right;

	if (!idset_function_fits(clause.function, predicate) ||
		!get_restriction_variable(root, (List *) PG_GETARG_POINTER(2), PG_GETARG_INT32(3),
								  &clause.variable, &clause.other, &clause.on_left))
		PG_RETURN_FLOAT8(selectivity);
	op_input_types(operator, &left, &right);
	clause.type = clause.on_left ? right : left;
	if (IsA(clause.other, Const) && ((Const *) clause.other)->constisnull)
		selectivity = 0;
	else if (predicate == REACHES)
		selectivity = threshold_selectivity(&clause);
	else if ((clause.on_left ? left : right) == INT8OID)
		selectivity = integer_selectivity(&clause);
	else
		selectivity = set_selectivity(&clause);
	ReleaseVariableStats(clause.variable);
	CLAMP_PROBABILITY(selectivity);
	PG_RETURN_FLOAT8(selectivity);
}

/* RESTRICT of && */
Datum
idset_overlapsel(PG_FUNCTION_ARGS)
{
	return restriction_selectivity(fcinfo, OVERLAPS);
}

/* RESTRICT of @> */
Datum
idset_containsel(PG_FUNCTION_ARGS)
{
	return restriction_selectivity(fcinfo, CONTAINS);
}

/* RESTRICT of <@ */
Datum
idset_containedsel(PG_FUNCTION_ARGS)
{
	return restriction_selectivity(fcinfo, CONTAINED);
}

/* RESTRICT of <<->> */
Datum
idset_thresholdsel(PG_FUNCTION_ARGS)
{
	return restriction_selectivity(fcinfo, REACHES);
}
