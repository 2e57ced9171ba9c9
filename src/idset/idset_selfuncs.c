/*-------------------------------------------------------------------------
 *
 * idset_selfuncs.c
 *	  How many rows satisfy && @> <@ and <<->>, for the planner.
 *
 * Three kinds of statistics answer together (idset_typanalyze.c):
 *
 * The most common sets are asked one by one; what they say is a count.
 *
 * For all other rows there is a model: each id is in a set independently of the
 * others, with the fraction of sets that ANALYZE found, and more often in a long
 * set than in a short one.  With f the fraction of an id, a set of b ids lacks it
 * with probability (1 - f)^(b / mean), and the answer is the mean over some
 * lengths b of the histogram of lengths.  Overlap is the probability that not all
 * ids of the query are lacking, containment the product over its ids.  For a
 * threshold, the length says how many common ids are needed, exactly, and the
 * probability of so many is computed id by id for the most common ids of the
 * query, with a normal approximation for the sum of the others.
 *
 * Ids of real sets are not independent, so the model can be far off for queries
 * of many ids.  The bounds of the histogram of sets are a fair sample of the rows
 * that are not among the most common sets: if k of its n sets satisfy the
 * operator, the model's answer is moved into the range that k of n allows.  It is
 * not used if the table has sets of over 1 kB, because these are not in it.
 *
 * Without statistics, or if the query is not known in planning, the defaults for
 * arrays apply.  Equality has PostgreSQL's own estimate, from the common sets and
 * the number of distinct ones.
 *
 * Two things an estimate must not do.  Servers before 14.21, 15.16, 16.12,
 * 17.8 and 18.2 let anybody give these functions to an operator of his own, with
 * arguments of any type (CVE-2026-2004 is that of intarray), so they estimate
 * nothing but the extension's operators.  And who may not
 * read all rows of a column gets the defaults: EXPLAIN would tell him how common
 * an id is.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "idset/idset_threshold.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(idset_overlapsel);
PG_FUNCTION_INFO_V1(idset_containsel);
PG_FUNCTION_INFO_V1(idset_containedsel);
PG_FUNCTION_INFO_V1(idset_thresholdsel);

/* Selectivities of which nothing is known, as arrays have them */
#define DEFAULT_OVERLAP_SEL		0.01
#define DEFAULT_CONTAIN_SEL		0.005
#define DEFAULT_THRESHOLD_SEL	0.005

/* Lengths that the model looks at */
#define MODEL_LENGTHS			32

/* Ids of a threshold's query that are counted one by one */
#define MODEL_IDS				64

/* The histogram of sets counts from this size on; wider sets are not in it */
#define MIN_HISTOGRAM			10
#define MAX_HISTOGRAM_BYTES		1024

/* What is asked of a set */
typedef enum IdSetPredicate
{
	OVERLAPS,					/* set && query */
	CONTAINS,					/* set @> query */
	CONTAINED,					/* set <@ query */
	REACHES						/* set <<->> query */
} IdSetPredicate;

typedef struct IdSetQuestion
{
	IdSetPredicate predicate;
	IdSetThreshold threshold;	/* of the others only the query */
} IdSetQuestion;

/* What the model knows of a column, and of the ids of a query */
typedef struct IdSetModel
{
	AttStatsSlot elements;		/* MCELEM */
	AttStatsSlot dechist;		/* DECHIST; no numbers: none */
	double		mean;			/* length of sets, > 0 */
	int			nlengths;
	double		lengths[MODEL_LENGTHS];
	uint32		nids;			/* of the query */
	double	   *lacking;		/* for each: log of the fraction of sets without */
	double		expected;		/* sum of the fractions of sets with them */
	double		rarest;			/* the lowest of these, 1 if there are none */
	double		commonest;		/* and the highest, or 0 */
} IdSetModel;

/* Selectivity of which nothing is known */
static double
default_selectivity(IdSetPredicate predicate)
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

/* The fraction of sets that have an id; half the bound if it is not listed */
static double
id_fraction(const AttStatsSlot *elements, int32 id)
{
	int			low = 0;
	int			high = elements->nvalues;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (DatumGetInt32(elements->values[middle]) < id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < elements->nvalues && DatumGetInt32(elements->values[low]) == id)
		return elements->numbers[low];
	return elements->numbers[elements->nvalues] / 2;
}

/* Some lengths of sets, each for as many rows */
static void
load_lengths(IdSetModel *model)
{
	int			n = model->dechist.nnumbers - 1;

	if (n < 1)
	{
		/* the mean number of ids is the sum of their fractions */
		for (int i = 0; i < model->elements.nvalues; i++)
			model->mean += model->elements.numbers[i];
		model->lengths[model->nlengths++] = model->mean;
		return;
	}
	model->mean = model->dechist.numbers[n];
	model->nlengths = Min(n, MODEL_LENGTHS);
	for (int i = 0; i < model->nlengths; i++)
		model->lengths[i] = model->dechist.numbers[(int) ((i + 0.5) * n / model->nlengths)];
}

/* Load the statistics of a column, if it has them */
static bool
load_model(IdSetModel *model, HeapTuple stats)
{
	memset(model, 0, sizeof(*model));
	if (!get_attstatsslot(&model->elements, stats, STATISTIC_KIND_MCELEM, InvalidOid,
						  ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS))
		return false;
	if (model->elements.valuetype != INT4OID ||
		model->elements.nnumbers != model->elements.nvalues + 3)
	{
		free_attstatsslot(&model->elements);
		return false;
	}
	get_attstatsslot(&model->dechist, stats, STATISTIC_KIND_DECHIST, InvalidOid,
					 ATTSTATSSLOT_NUMBERS);
	load_lengths(model);
	return true;
}

static void
free_model(IdSetModel *model)
{
	free_attstatsslot(&model->elements);
	free_attstatsslot(&model->dechist);
}

/* Look up the ids of a query */
static void
load_query(IdSetModel *model, const IdSet *query)
{
	model->nids = idset_count(query);
	model->rarest = 1;
	model->lacking = palloc_array(double, Max(model->nids, 1));
	for (uint32 i = 0; i < model->nids; i++)
	{
		double		fraction = id_fraction(&model->elements, query->ids[i]);

		model->expected += fraction;
		model->rarest = Min(model->rarest, fraction);
		model->commonest = Max(model->commonest, fraction);
		model->lacking[i] = log1p(-Min(fraction, 0.9999));
	}
}

/* The probability that a set of the given length has an id of the query */
static inline double
id_probability(const IdSetModel *model, uint32 i, double length)
{
	return -expm1(model->lacking[i] * length / model->mean);
}

/* ... that it has any of the ids */
static double
model_overlaps(const IdSetModel *model, double length)
{
	double		lacking = 0;

	for (uint32 i = 0; i < model->nids; i++)
		lacking += model->lacking[i];
	return -expm1(lacking * length / model->mean);
}

/* ... that it has all of the ids */
static double
model_contains(const IdSetModel *model, double length)
{
	double		probability = model->nids <= length ? 1 : 0;

	for (uint32 i = 0; i < model->nids && probability > 1e-12; i++)
		probability *= id_probability(model, i, length);
	return probability;
}

/*
 * ... that it has none but these ids: its ids are drawn one after the other from
 * all there are, and each must be one of the query.
 */
static double
model_contained(const IdSetModel *model, double length)
{
	double		listed = 0;
	double		others;
	double		universe;
	double		probability = length <= model->nids ? 1 : 0;

	for (int i = 0; i < model->elements.nvalues; i++)
		listed += model->elements.numbers[i];
	others = Max(model->mean - listed, 0) / Max(model->elements.numbers[model->elements.nvalues] / 2, 1e-9);
	universe = Max(model->elements.nvalues + others, Max(length, (double) model->nids));
	for (double drawn = 0; drawn < length && probability > 1e-12; drawn++)
		probability *= Min(1, model->expected / model->mean *
						   (1 - drawn / model->nids) / (1 - drawn / universe));
	return probability;
}

/* The least number of common ids with which a set reaches a threshold */
static uint32
least_common(const IdSetThreshold *threshold, uint32 a, uint32 b)
{
	uint32		low = 0;
	uint32		high = Min(a, b) + 1;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (gpuvec_score(threshold->measure, middle, a, b) < threshold->min_score)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Probability that a sum, as good as normally distributed, is at least n */
static double
normal_tail(double mean, double variance, double n)
{
	if (variance <= 0)
		return mean >= n - 0.5;
	return 0.5 * erfc((n - 0.5 - mean) / sqrt(2 * variance));
}

/* ... that it has at least the given number of the ids, the most common ones first */
static double
model_common(const IdSetModel *model, double length, uint32 need)
{
	double		exactly[MODEL_IDS + 1] = {1};
	uint32		n = Min(model->nids, MODEL_IDS);
	double		mean = 0;
	double		variance = 0;
	double		probability = 0;

	for (uint32 i = 0; i < n; i++)
	{
		double		p = id_probability(model, i, length);

		for (uint32 j = i + 1; j > 0; j--)
			exactly[j] = exactly[j] * (1 - p) + exactly[j - 1] * p;
		exactly[0] *= 1 - p;
	}
	for (uint32 i = n; i < model->nids; i++)
	{
		double		p = id_probability(model, i, length);

		mean += p;
		variance += p * (1 - p);
	}
	for (uint32 j = 0; j <= n; j++)
	{
		if (j >= need)
			probability += exactly[j];
		else if (model->nids > n)
			probability += exactly[j] * normal_tail(mean, variance, (double) need - j);
	}
	return probability;
}

/* ... that it reaches the threshold */
static double
model_reaches(const IdSetModel *model, const IdSetThreshold *threshold, double length)
{
	uint32		b = (uint32) rint(length);
	uint32		need = least_common(threshold, model->nids, b);

	if (need == 0)
		return 1;
	if (need > Min(model->nids, b))
		return 0;
	return model_common(model, length, need);
}

/* qsort comparator: the most common ids first */
static int
compare_lacking(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* What the model says */
static double
model_selectivity(IdSetModel *model, const IdSetQuestion *question)
{
	double		sum = 0;

	qsort(model->lacking, model->nids, sizeof(double), compare_lacking);
	for (int i = 0; i < model->nlengths; i++)
	{
		double		length = model->lengths[i];

		switch (question->predicate)
		{
			case OVERLAPS:
				sum += model_overlaps(model, length);
				break;
			case CONTAINS:
				sum += model_contains(model, length);
				break;
			case CONTAINED:
				sum += model_contained(model, length);
				break;
			case REACHES:
				sum += model_reaches(model, &question->threshold, length);
				break;
		}
	}
	return sum / model->nlengths;
}

/*
 * Bounds that hold however ids depend on each other: a set that has all ids has
 * the rarest one, and sets with the most common one have any of them.  For a
 * query of one id they leave nothing open.
 */
static void
certain_bounds(const IdSetModel *model, IdSetPredicate predicate, double *least, double *most)
{
	if (predicate == CONTAINS)
	{
		*least = Max(0, model->expected - model->nids + 1.0);
		*most = model->rarest;
	}
	else if (predicate == OVERLAPS)
	{
		*least = model->commonest;
		*most = Min(1, model->expected);
	}
}

/* Move an estimate into the range that the sets of the histogram allow */
static double
adjust_by_histogram(double selectivity, VariableStatData *variable, FmgrInfo *function,
					Oid collation, Datum constant, bool on_left, double longest)
{
	int			n;
	double		fraction;
	double		k;
	double		error;

	if (IDSET_SIZE((Size) longest) > MAX_HISTOGRAM_BYTES)
		return selectivity;
	fraction = histogram_selectivity(variable, function, collation, constant, on_left,
									 MIN_HISTOGRAM, 1, &n);
	if (fraction < 0)
		return selectivity;
	n -= 2;						/* the first and the last are skipped */
	k = fraction * n;
	error = 2 * sqrt(k + 1);	/* two standard deviations */
	return Min(Max(selectivity, (k - error) / n), (k + error + 1) / n);
}

/* Selectivity of a question to a column whose statistics may be used */
static double
stats_selectivity(VariableStatData *variable, const IdSetQuestion *question,
				  Oid operator, Oid collation, Datum constant, bool on_left)
{
	Form_pg_statistic stats = (Form_pg_statistic) GETSTRUCT(variable->statsTuple);
	double		notnull = 1 - stats->stanullfrac;
	double		others = default_selectivity(question->predicate);
	double		least = 0;
	double		most = 1;
	double		common = 0;
	double		ncommon = 0;
	double		longest = GPUVEC_MAX_ID + 1;
	IdSetModel	model;
	FmgrInfo	function;

	if (load_model(&model, variable->statsTuple))
	{
		load_query(&model, question->threshold.query);
		if (model.dechist.nnumbers > 1)
			longest = model.dechist.numbers[model.dechist.nnumbers - 2];
		others = model_selectivity(&model, question);
		free_model(&model);
		certain_bounds(&model, question->predicate, &least, &most);
		if (least == most)
			return least * notnull;
	}
	fmgr_info(get_opcode(operator), &function);
	common = mcv_selectivity(variable, &function, collation, constant, on_left, &ncommon);
	others = adjust_by_histogram(others, variable, &function, collation, constant,
								 on_left, longest);
	common += others * Max(notnull - ncommon, 0);
	return Min(Max(common, least * notnull), most * notnull);
}

/* An integer column <@ constant set: one of as many values */
static double
integer_selectivity(VariableStatData *variable, Datum constant)
{
	bool		isdefault;
	double		ndistinct = get_variable_numdistinct(variable, &isdefault);

	return idset_count(DatumGetIdSetP(constant)) / Max(ndistinct, 1);
}

/* The set that a constant of type idset or int8 stands for; NULL: of no ids that exist */
static IdSet *
constant_set(Datum constant, Oid type)
{
	IdSet	   *set;
	int64		number;

	if (type != INT8OID)
		return DatumGetIdSetP(constant);
	number = DatumGetInt64(constant);
	if (number < 0 || number > GPUVEC_MAX_ID)
		return NULL;
	set = idset_alloc(1);
	set->ids[0] = (uint16) number;
	return set;
}

/*
 * Is this one of the extension's operators, for this predicate?  The address of
 * its function tells: only superusers can make functions in C.
 */
static bool
is_own_operator(Oid operator, IdSetPredicate predicate)
{
	static const struct
	{
		PGFunction	function;
		IdSetPredicate predicate;
	}			own[] = {
		{idset_overlaps, OVERLAPS},
		{idset_contains, CONTAINS},
		{idset_contains_id, CONTAINS},
		{idset_contained, CONTAINED},
		{idset_id_contained, CONTAINED},
		{idset_reaches_threshold, REACHES}
	};
	Oid			opcode = get_opcode(operator);
	FmgrInfo	function;

	if (!OidIsValid(opcode))
		return false;
	fmgr_info(opcode, &function);
	for (int i = 0; i < lengthof(own); i++)
		if (own[i].function == function.fn_addr && own[i].predicate == predicate)
			return true;
	return false;
}

/* Selectivity of a clause with a constant that is not null */
static double
constant_selectivity(IdSetPredicate predicate, VariableStatData *variable, Oid operator,
					 Oid collation, Datum constant, bool on_left)
{
	IdSetQuestion question = {.predicate = predicate};
	Oid			left;
	Oid			right;

	op_input_types(operator, &left, &right);
	if (predicate == REACHES)
	{
		/* bad ones are for the executor to report */
		if (!on_left || !idset_threshold_parse(DatumGetHeapTupleHeader(constant),
											   &question.threshold, false))
			return DEFAULT_THRESHOLD_SEL;
		if (question.threshold.query == NULL)
			return 0;
	}
	else
	{
		if ((on_left ? left : right) == INT8OID)
			return integer_selectivity(variable, constant);
		question.threshold.query = constant_set(constant, on_left ? right : left);
		if (question.threshold.query == NULL)
			return 0;
		if (!on_left && predicate != OVERLAPS)
			question.predicate = predicate == CONTAINS ? CONTAINED : CONTAINS;
	}
	if (!HeapTupleIsValid(variable->statsTuple) ||
		!statistic_proc_security_check(variable, get_opcode(operator)))
		return default_selectivity(question.predicate);
	return stats_selectivity(variable, &question, operator, collation, constant, on_left);
}

/* All restriction selectivity functions */
static Datum
restriction_selectivity(FunctionCallInfo fcinfo, IdSetPredicate predicate)
{
	PlannerInfo *root = (PlannerInfo *) PG_GETARG_POINTER(0);
	VariableStatData variable;
	Node	   *other;
	bool		on_left;
	double		selectivity = default_selectivity(predicate);

	if (!is_own_operator(PG_GETARG_OID(1), predicate) ||
		!get_restriction_variable(root, (List *) PG_GETARG_POINTER(2), PG_GETARG_INT32(3),
								  &variable, &other, &on_left))
		PG_RETURN_FLOAT8(selectivity);
	if (IsA(other, Const))
		selectivity = ((Const *) other)->constisnull ? 0 :
			constant_selectivity(predicate, &variable, PG_GETARG_OID(1), PG_GET_COLLATION(),
								 ((Const *) other)->constvalue, on_left);
	ReleaseVariableStats(variable);
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
