/*-------------------------------------------------------------------------
 *
 * idset_estimate.c
 *	  Estimates how many sets of a column satisfy && @> <@ and <<->>, from the
 *	  column's statistics.
 *
 * Three kinds of statistics are used together (idset_typanalyze.c).
 *
 * The most common sets (MCV): the operator is evaluated for each, so their
 * part of the estimate is exact for the sample.
 *
 * All other rows: a model.  Each id is in a set independently of the others,
 * with the frequency that ANALYZE found, and more often in a long set than in
 * a short one.  With f the frequency of an id, a set of b ids lacks it with
 * probability (1 - f)^(b / mean).  The estimate is the mean over some lengths
 * b from the histogram of lengths.
 *
 * Overlap is the probability that not all ids of the query are lacking.
 * Containment is the product over the ids of the query.  For a threshold, the
 * length b gives the exact number of common ids needed.  The probability of
 * at least this number is computed id by id for the MODEL_IDS most common ids
 * of the query, with a normal approximation for the sum of the others.
 *
 * Ids of real sets are not independent, so the model can be far off for
 * queries of many ids.  The bounds of the histogram of sets are a fair sample
 * of the rows that are not among the most common sets.  If k of its n sets
 * satisfy the operator, the model's estimate is moved into the range that k
 * of n allows.  The histogram is ignored if the table has sets of over 1 kB,
 * because it leaves them out.
 *
 * Estimates must not reveal values of rows that the user may not read.  So
 * callers load statistics only after the server's
 * statistic_proc_security_check(): the user may read the column in all rows,
 * or the operator's function is leakproof.
 *
 *-------------------------------------------------------------------------
 */
#include "idset/idset_estimate.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"

/* Ids of a threshold's query that are modeled one by one */
#define MODEL_IDS				64

/*
 * The histogram of sets is used from MIN_HISTOGRAM bounds on.  ANALYZE leaves
 * sets of over MAX_HISTOGRAM_BYTES out of it.
 */
#define MIN_HISTOGRAM			10
#define MAX_HISTOGRAM_BYTES		1024

/*
 * The ids of a query, as the model sees them.  The frequency of an id is the
 * fraction of sets that have it.
 */
typedef struct IdSetModel
{
	const IdSetStats *stats;
	uint32		nids;			/* number of ids of the query */
	double	   *lacking;		/* [nids] log of (1 - frequency) */
	double		expected;		/* sum of the frequencies */
	double		rarest;			/* lowest frequency, 1 without ids */
	double		commonest;		/* highest frequency, 0 without ids */
} IdSetModel;

/* ---- statistics ---- */

/* The i-th of the ids that are listed, ascending */
static inline int64
listed_id(const IdSetStats *stats, int i)
{
	Datum		value = stats->elements.values[i];

	return stats->elements.valuetype == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
}

/*
 * The frequency of an id; half of the bound for unlisted ids if it is not
 * listed
 */
static double
id_fraction(const IdSetStats *stats, uint32 id)
{
	const AttStatsSlot *elements = &stats->elements;
	int			low = 0;
	int			high = elements->nvalues;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (listed_id(stats, middle) < id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < elements->nvalues && listed_id(stats, low) == id)
		return elements->numbers[low];
	return elements->numbers[elements->nvalues] / 2;
}

/* Load some lengths of sets; each stands for the same number of rows */
static void
load_lengths(IdSetStats *stats)
{
	int			n = stats->dechist.nnumbers - 1;

	if (n < 1)
	{
		/* the mean length is the sum of the frequencies */
		for (int i = 0; i < stats->elements.nvalues; i++)
			stats->mean += stats->elements.numbers[i];
		stats->lengths[stats->nlengths++] = stats->mean;
		return;
	}
	stats->mean = stats->dechist.numbers[n];
	stats->nlengths = Min(n, IDSET_MODEL_LENGTHS);
	for (int i = 0; i < stats->nlengths; i++)
		stats->lengths[i] = stats->dechist.numbers[(int) ((i + 0.5) * n / stats->nlengths)];
}

/* Load the statistics of the model, if they are complete */
static void
load_model(IdSetStats *stats, HeapTuple tuple)
{
	if (!get_attstatsslot(&stats->elements, tuple, STATISTIC_KIND_MCELEM, InvalidOid,
						  ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS))
		return;
	if ((stats->elements.valuetype != INT4OID && stats->elements.valuetype != INT8OID) ||
		stats->elements.nnumbers != stats->elements.nvalues + 3)
	{
		free_attstatsslot(&stats->elements);
		memset(&stats->elements, 0, sizeof(AttStatsSlot));
		return;
	}
	get_attstatsslot(&stats->dechist, tuple, STATISTIC_KIND_DECHIST, InvalidOid,
					 ATTSTATSSLOT_NUMBERS);
	load_lengths(stats);
	if (stats->dechist.nnumbers > 1)
		stats->longest = stats->dechist.numbers[stats->dechist.nnumbers - 2];
}

void
idset_load_stats(IdSetStats *stats, VariableStatData *variable)
{
	HeapTuple	tuple = variable->statsTuple;

	memset(stats, 0, sizeof(*stats));
	stats->notnull = 1 - ((Form_pg_statistic) GETSTRUCT(tuple))->stanullfrac;
	stats->longest = GPUVEC_MAX_IDS;
	load_model(stats, tuple);
	get_attstatsslot(&stats->common, tuple, STATISTIC_KIND_MCV, InvalidOid,
					 ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS);
	get_attstatsslot(&stats->histogram, tuple, STATISTIC_KIND_HISTOGRAM, InvalidOid,
					 ATTSTATSSLOT_VALUES);
}

void
idset_free_stats(IdSetStats *stats)
{
	free_attstatsslot(&stats->elements);
	free_attstatsslot(&stats->dechist);
	free_attstatsslot(&stats->common);
	free_attstatsslot(&stats->histogram);
}

/* ---- the model ---- */

/* Look up the frequencies of a query's ids */
static void
load_query(IdSetModel *model, const IdSetStats *stats, const IdSet *query)
{
	memset(model, 0, sizeof(*model));
	model->stats = stats;
	model->nids = idset_count(query);
	model->rarest = 1;
	model->lacking = palloc_array(double, Max(model->nids, 1));
	for (uint32 i = 0; i < model->nids; i++)
	{
		double		fraction = id_fraction(stats, idset_id(query, i));

		model->expected += fraction;
		model->rarest = Min(model->rarest, fraction);
		model->commonest = Max(model->commonest, fraction);
		model->lacking[i] = log1p(-Min(fraction, 0.9999));
	}
}

/* The probability that a set of this length has id i of the query */
static inline double
id_probability(const IdSetModel *model, uint32 i, double length)
{
	return -expm1(model->lacking[i] * length / model->stats->mean);
}

/* ... that it has any id of the query */
static double
model_overlaps(const IdSetModel *model, double length)
{
	double		lacking = 0;

	for (uint32 i = 0; i < model->nids; i++)
		lacking += model->lacking[i];
	return -expm1(lacking * length / model->stats->mean);
}

/* ... that it has all ids of the query */
static double
model_contains(const IdSetModel *model, double length)
{
	double		probability = model->nids <= length ? 1 : 0;

	for (uint32 i = 0; i < model->nids && probability > 1e-12; i++)
		probability *= id_probability(model, i, length);
	return probability;
}

/*
 * ... that it has no other ids: its ids are drawn one after another from all
 * ids there are, and each must be an id of the query
 */
static double
model_contained(const IdSetModel *model, double length)
{
	double		listed = 0;
	double		others;
	double		universe;
	double		probability = length <= model->nids ? 1 : 0;

	for (int i = 0; i < model->stats->elements.nvalues; i++)
		listed += model->stats->elements.numbers[i];
	others = Max(model->stats->mean - listed, 0) / Max(model->stats->elements.numbers[model->stats->elements.nvalues] / 2, 1e-9);
	universe = Max(model->stats->elements.nvalues + others, Max(length, (double) model->nids));
	for (double drawn = 0; drawn < length && probability > 1e-12; drawn++)
		probability *= Min(1, model->expected / model->stats->mean *
						   (1 - drawn / model->nids) / (1 - drawn / universe));
	return probability;
}

/*
 * The least number of common ids with which a set of b ids reaches the
 * threshold
 */
static uint32
least_common(const IdSetThreshold *threshold, uint32 a, uint32 b)
{
	uint32		low = 0;
	uint32		high = Min(a, b) + 1;

	while (low < high)
	{
		gpuvec_shared middle = {(low + high) / 2, a, b};

		if (gpuvec_score_with(threshold->scoring, middle) < threshold->min_score)
			low = middle.common + 1;
		else
			high = middle.common;
	}
	return low;
}

/*
 * The probability that an integer is at least n, approximated by the normal
 * distribution
 */
static double
normal_tail(double mean, double variance, double n)
{
	if (variance <= 0)
		return mean >= n - 0.5;
	return 0.5 * erfc((n - 0.5 - mean) / sqrt(2 * variance));
}

/*
 * ... that it has at least `need` ids of the query, whose ids are sorted by
 * frequency, highest first
 */
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

/* qsort comparator: highest frequency first */
static int
compare_lacking(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* The model's estimate for sets of one length */
static double
model_selectivity(const IdSetModel *model, const IdSetQuestion *question, double length)
{
	switch (question->predicate)
	{
		case OVERLAPS:
			return model_overlaps(model, length);
		case CONTAINS:
			return model_contains(model, length);
		case CONTAINED:
			return model_contained(model, length);
		case REACHES:
			return model_reaches(model, &question->threshold, length);
	}
	return 0;
}

/*
 * The model's estimate for all sets: the mean over at most `lengths` lengths
 */
static double
model_mean(IdSetModel *model, const IdSetQuestion *question, int lengths)
{
	const IdSetStats *stats = model->stats;
	int			n = Min(stats->nlengths, lengths);
	double		sum = 0;

	qsort(model->lacking, model->nids, sizeof(double), compare_lacking);
	for (int i = 0; i < n; i++)
		sum += model_selectivity(model, question,
								 stats->lengths[(int) ((i + 0.5) * stats->nlengths / n)]);
	return sum / n;
}

/*
 * Bounds that hold however ids depend on each other: a set that has all ids
 * of the query has the rarest one, and a set that has the most common one has
 * any of them.  For a query of one id the bounds are equal.
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

/* ---- sets that statistics have ---- */

/* True if a set satisfies the predicate */
static bool
satisfies(const IdSetQuestion *question, Datum value)
{
	const IdSet *query = question->threshold.query;
	IdSet	   *set = DatumGetIdSetP(value);
	uint32		a = idset_count(query);
	uint32		b = idset_count(set);
	bool		result = false;

	if (question->predicate == REACHES)
		result = idset_threshold_reached(&question->threshold, set);
	else
	{
		uint32		common = idset_common(query, set);

		switch (question->predicate)
		{
			case OVERLAPS:
				result = common > 0;
				break;
			case CONTAINS:
				result = common == a;
				break;
			default:
				result = common == b;
				break;
		}
	}
	if ((Pointer) set != DatumGetPointer(value))
		pfree(set);
	return result;
}

/*
 * The fraction of rows that have one of the most common sets which satisfy
 * the predicate; *all: the fraction that has any of the most common sets
 */
static double
common_selectivity(const IdSetStats *stats, const IdSetQuestion *question, double *all)
{
	double		result = 0;

	*all = 0;
	for (int i = 0; i < Min(stats->common.nvalues, stats->common.nnumbers); i++)
	{
		*all += stats->common.numbers[i];
		if (satisfies(question, stats->common.values[i]))
			result += stats->common.numbers[i];
	}
	return result;
}

/*
 * True if some sets of the column are wide.  A column in which so few are
 * that the statistics show none of them counts as narrow.
 */
static bool
column_is_wide(const IdSetStats *stats)
{
	int			n = stats->elements.nvalues;

	if (n > 0 && listed_id(stats, n - 1) > IDSET_MAX_NARROW_ID)
		return true;
	for (int i = 0; i < stats->histogram.nvalues; i++)
		if (idset_is_wide(DatumGetIdSetP(stats->histogram.values[i])))
			return true;
	return false;
}

/* True if the bounds of the histogram are a fair sample of the sets */
static bool
histogram_is_sample(const IdSetStats *stats)
{
	Size		n = (Size) stats->longest;

	if (stats->histogram.nvalues < MIN_HISTOGRAM ||
		VARHDRSZ + n * sizeof(uint16) > MAX_HISTOGRAM_BYTES)
		return false;
	return VARHDRSZ + n * sizeof(uint32) < MAX_HISTOGRAM_BYTES || !column_is_wide(stats);
}

/*
 * Move an estimate into the range that the sets of the histogram allow.  At
 * most `sample` of them are looked at.
 */
static double
adjust_by_histogram(double selectivity, const IdSetStats *stats, const IdSetQuestion *question,
					int sample)
{
	int			nvalues = stats->histogram.nvalues - 2;
	int			n = Min(nvalues, sample);
	double		k = 0;
	double		error;

	if (!histogram_is_sample(stats))
		return selectivity;
	/* the first and the last bound are extremes, not a fair sample */
	for (int i = 0; i < n; i++)
		k += satisfies(question, stats->histogram.values[1 + (int64) i * nvalues / n]);
	error = 2 * sqrt(k + 1);	/* two standard deviations */
	return Min(Max(selectivity, (k - error) / n), (k + error + 1) / n);
}

double
idset_estimate(const IdSetStats *stats, const IdSetQuestion *question, int lengths, int sample,
			   double fallback)
{
	double		others = fallback;
	double		least = 0;
	double		most = 1;
	double		common;
	double		ncommon;

	if (stats->elements.nvalues > 0)
	{
		IdSetModel	model;

		load_query(&model, stats, question->threshold.query);
		others = model_mean(&model, question, lengths);
		certain_bounds(&model, question->predicate, &least, &most);
		pfree(model.lacking);
		if (least == most)
			return least * stats->notnull;
	}
	common = common_selectivity(stats, question, &ncommon);
	others = adjust_by_histogram(others, stats, question, sample);
	common += others * Max(stats->notnull - ncommon, 0);
	return Min(Max(common, least * stats->notnull), most * stats->notnull);
}

/* ---- typical sets ---- */

/* Set *id to the next lower id that is not listed; false if there is none */
static bool
unlisted_id(const IdSetStats *stats, int64 *id)
{
	int			i = stats->elements.nvalues - 1;

	while (i >= 0 && listed_id(stats, i) >= *id)
		i--;
	for (--*id; i >= 0 && listed_id(stats, i) == *id; i--)
		--* id;
	return *id >= 0;
}

/*
 * A set of n ids, typical by the model.  All occurrences of ids in the column
 * are laid out in a row, unlisted ids last; the set takes ids at even steps,
 * the first at `phase` of a step (0 to 1).
 */
static IdSet *
modelled_set(const IdSetStats *stats, uint32 n, double phase)
{
	uint32	   *ids = palloc_array(uint32, n);
	uint32		found = 0;
	double		step = stats->mean / n;
	double		next = phase * step;
	double		sum = 0;
	int64		unlisted = IDSET_MAX_NARROW_ID + 1;

	for (int i = 0; i < stats->elements.nvalues && found < n; i++)
	{
		sum += stats->elements.numbers[i];
		if (sum <= next)
			continue;
		ids[found++] = (uint32) listed_id(stats, i);
		/* move on to the next id: an id is in a set only once */
		next += step * ceil((sum - next) / step);
	}
	while (next < stats->mean && found < n && unlisted_id(stats, &unlisted))
	{
		ids[found++] = (uint32) unlisted;
		next += step;
	}
	return idset_from_ids(ids, found);
}

/*
 * Take up to n sets from the statistics, at even steps through the sets that
 * are not empty.  Returns their number.
 */
static int
sampled_sets(const IdSetStats *stats, IdSet **sets, int n)
{
	const AttStatsSlot *slot = histogram_is_sample(stats) ? &stats->histogram : &stats->common;
	IdSet	  **all = palloc_array(IdSet *, Max(slot->nvalues, 1));
	int			nall = 0;

	for (int i = 0; i < slot->nvalues; i++)
	{
		all[nall] = DatumGetIdSetP(slot->values[i]);
		if (idset_count(all[nall]) > 0)
			nall++;
	}
	n = Min(n, nall);
	for (int i = 0; i < n; i++)
		sets[i] = all[(int) ((i + 0.5) * nall / n)];
	pfree(all);
	return n;
}

int
idset_typical_sets(const IdSetStats *stats, bool single_ids, IdSet **sets, int n)
{
	int			nsampled = single_ids ? 0 : sampled_sets(stats, sets, n);

	if (nsampled > 0)
		return nsampled;
	if (stats->elements.nvalues == 0)
		return 0;
	for (int i = 0; i < n; i++)
	{
		int			rank = (int) ((i + 0.5) * stats->nlengths / n);
		uint32		length = single_ids ? 1 : (uint32) rint(stats->lengths[rank]);

		sets[i] = modelled_set(stats, Max(length, 1), (i + 0.5) / n);
	}
	return n;
}
