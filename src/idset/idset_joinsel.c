/*-------------------------------------------------------------------------
 *
 * idset_joinsel.c
 *	  Join selectivity functions of the operators && @> <@ and <<->>.
 *
 * In a join the query of each row is a set of another table.  JOIN_SETS sets
 * that are typical of that one's column are asked against the statistics of
 * the column (idset_estimate.c), and the selectivity is the mean of the
 * estimates.  It is the arithmetic mean, other than that of an unknown query
 * (idset_selfuncs.c): here all pairs of rows count, and a few sets that have
 * much in common with many others make up most of them.
 *
 * A column without statistics is taken to be like the other one.  A semijoin
 * or an antijoin wants to know how many rows find a partner at all: a set of
 * selectivity s finds none among n rows with probability (1 - s)^n.
 *
 * Without statistics on both sides the defaults of arrays apply.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "idset/idset_condition.h"
#include "idset/idset_estimate.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(idset_overlapjoinsel);
PG_FUNCTION_INFO_V1(idset_containjoinsel);
PG_FUNCTION_INFO_V1(idset_containedjoinsel);
PG_FUNCTION_INFO_V1(idset_thresholdjoinsel);

/*
 * Typical sets of a side, and for each the number of lengths and of histogram
 * sets that idset_estimate() uses
 */
#define JOIN_SETS			24
#define JOIN_LENGTHS		4
#define JOIN_SAMPLE			25

/* A join clause: a column, and where its queries come from */
typedef struct JoinClause
{
	IdSetQuestion question;
	VariableStatData column;
	VariableStatData queries;
	bool		single_ids;		/* the queries are ids */
	bool		semi;			/* wanted are rows that find a partner */
	double		partners;		/* of them, that many */
} JoinClause;

/* True if the statistics of a side may be used */
static bool
is_known(const VariableStatData *side)
{
	return HeapTupleIsValid(side->statsTuple) && side->acl_ok;
}

/*
 * The query of a threshold; sets what is known of its score and measure.
 * NULL: it has no such fields, or bad ones.
 */
static Node *
query_of_threshold(Node *threshold, IdSetThreshold *known)
{
	List	   *fields = idset_fields_of_threshold(threshold);
	const Const *score;
	const Const *measure;

	if (list_length(fields) < 3)
		return NULL;
	score = lsecond(fields);
	measure = lthird(fields);
	if (!IsA(score, Const) || score->constisnull || isnan(DatumGetFloat8(score->constvalue)) ||
		!IsA(measure, Const) || measure->constisnull ||
		!idset_find_measure(TextDatumGetCString(measure->constvalue), &known->scoring))
		return NULL;
	known->min_score = DatumGetFloat8(score->constvalue);
	return linitial(fields);
}

/* The mean over typical sets of the queries' side; negative: there are none */
static double
mean_of_sets(JoinClause *clause, const IdSetStats *stats, const IdSetStats *queries, double fallback)
{
	IdSet	   *sets[JOIN_SETS];
	int			n = idset_typical_sets(queries, clause->single_ids, sets, JOIN_SETS);
	double		sum = 0;

	for (int i = 0; i < n; i++)
	{
		double		selectivity;

		clause->question.threshold.query = sets[i];
		selectivity = idset_estimate(stats, &clause->question, JOIN_LENGTHS, JOIN_SAMPLE, fallback);
		sum += clause->semi ? 1 - pow(1 - Min(selectivity, 1), clause->partners) : selectivity;
	}
	return n > 0 ? queries->notnull * sum / n : -1;
}

/* Selectivity from the statistics of at least one side */
static double
known_selectivity(JoinClause *clause, double fallback)
{
	IdSetStats	stats;
	IdSetStats	queries;
	double		result;

	idset_load_stats(&stats, is_known(&clause->column) ? &clause->column : &clause->queries);
	idset_load_stats(&queries, is_known(&clause->queries) && !clause->single_ids ?
					 &clause->queries : &clause->column);
	result = mean_of_sets(clause, &stats, &queries, fallback);
	idset_free_stats(&stats);
	idset_free_stats(&queries);
	return result < 0 ? fallback : result;
}

/* For a semijoin: note how many rows the inner side has */
static void
look_at_join(JoinClause *clause, const SpecialJoinInfo * join)
{
	const VariableStatData *sides[] = {&clause->column, &clause->queries};

	if (join == NULL || (join->jointype != JOIN_SEMI && join->jointype != JOIN_ANTI))
		return;
	for (int i = 0; i < lengthof(sides); i++)
		if (sides[i]->rel != NULL && bms_is_subset(sides[i]->rel->relids, join->syn_righthand))
		{
			clause->semi = true;
			clause->partners = Max(sides[i]->rel->rows, 1);
		}
}

/* Common to all join selectivity functions */
static Datum
join_selectivity(FunctionCallInfo fcinfo, IdSetPredicate predicate)
{
	PlannerInfo *root = (PlannerInfo *) PG_GETARG_POINTER(0);
	Oid			function = get_opcode(PG_GETARG_OID(1));
	List	   *args = (List *) PG_GETARG_POINTER(2);
	double		result = idset_default_selectivity(predicate);
	JoinClause	clause = {.question.predicate = predicate};
	Node	   *column = linitial(args);
	Node	   *query = lsecond(args);

	if (!idset_function_fits(function, predicate))
		PG_RETURN_FLOAT8(result);
	if (predicate == REACHES)
		query = query_of_threshold(query, &clause.question.threshold);
	else if (exprType(column) == INT8OID)
	{
		column = query;
		query = linitial(args);
		clause.question.predicate = predicate == CONTAINS ? CONTAINED : CONTAINS;
	}
	if (query == NULL)
		PG_RETURN_FLOAT8(result);
	clause.single_ids = exprType(query) == INT8OID;
	examine_variable(root, column, 0, &clause.column);
	examine_variable(root, query, 0, &clause.queries);
	look_at_join(&clause, (SpecialJoinInfo *) PG_GETARG_POINTER(4));
	if (is_known(&clause.column) || (is_known(&clause.queries) && !clause.single_ids))
		result = known_selectivity(&clause, result);
	ReleaseVariableStats(clause.column);
	ReleaseVariableStats(clause.queries);
	CLAMP_PROBABILITY(result);
	PG_RETURN_FLOAT8(result);
}

/* JOIN of && */
Datum
idset_overlapjoinsel(PG_FUNCTION_ARGS)
{
	return join_selectivity(fcinfo, OVERLAPS);
}

/* JOIN of @> */
Datum
idset_containjoinsel(PG_FUNCTION_ARGS)
{
	return join_selectivity(fcinfo, CONTAINS);
}

/* JOIN of <@ */
Datum
idset_containedjoinsel(PG_FUNCTION_ARGS)
{
	return join_selectivity(fcinfo, CONTAINED);
}

/* JOIN of <<->> */
Datum
idset_thresholdjoinsel(PG_FUNCTION_ARGS)
{
	return join_selectivity(fcinfo, REACHES);
}
