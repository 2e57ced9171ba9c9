/*-------------------------------------------------------------------------
 *
 * thresholds.c
 *	  Values of a column that a given share of its values come before.
 *
 * They come from the statistics of ANALYZE: the bounds of the histogram, each
 * with one part of its values before it, and the most common values.  Between
 * two bounds numbers are interpolated.  Rows that came later mostly have later
 * times, so numbers before the first bound are extrapolated.  All of this is
 * an estimate, which may be a bad one.
 *
 * Values are compared by functions of the server for its own types, which have
 * no side effects.  None of them is shown to anybody.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "index/thresholds.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Most bounds of the histogram, and most of the most common values */
#define MOST_BOUNDS		128
#define MOST_COMMON		64

/* The row of pg_statistic for a column of an index; or NULL */
static HeapTuple
statistics_of(Relation index, AttrNumber attnum)
{
	AttrNumber	column = index->rd_index->indkey.values[attnum - 1];

	/* those of an expression are the index's */
	return SearchSysCache3(STATRELATTINH,
						   ObjectIdGetDatum(column != 0 ? index->rd_index->indrelid :
											RelationGetRelid(index)),
						   Int16GetDatum(column != 0 ? column : attnum), BoolGetDatum(false));
}

/* True if the first bound of a histogram has the key of the last one */
static bool
has_one_key(HeapTuple statistics, const FilterColumn *column)
{
	/* of texts that are equal in their first bytes, hashes say nothing */
	int			shift = FilterKinds[column->kind].order == FILTER_BY_PREFIX ? 32 : 0;
	AttStatsSlot slot;
	bool		one;

	if (FilterKinds[column->kind].exact ||
		!get_attstatsslot(&slot, statistics, STATISTIC_KIND_HISTOGRAM, InvalidOid,
						  ATTSTATSSLOT_VALUES))
		return false;
	one = slot.nvalues > 0 && FilterKey(column, slot.values[0]) >> shift ==
		FilterKey(column, slot.values[slot.nvalues - 1]) >> shift;
	free_attstatsslot(&slot);
	return one;
}

bool
ThresholdsHave(Relation index, AttrNumber attnum, const FilterColumn *column)
{
	HeapTuple	statistics = statistics_of(index, attnum);
	bool		have;

	if (!HeapTupleIsValid(statistics))
		return false;
	have = !has_one_key(statistics, column);
	ReleaseSysCache(statistics);
	return have;
}

/* Add a value; its share is that of itself alone until all are there */
static void
add_point(Thresholds *thresholds, const AttStatsSlot *slot, int i, double share, bool common)
{
	Threshold  *point = &thresholds->points[thresholds->n++];
	int16		length;
	bool		byval;

	get_typlenbyval(slot->valuetype, &length, &byval);
	point->value = datumCopy(slot->values[i], byval, length);
	point->share = share;
	point->common = common;
}

/* Add bounds of the histogram, evenly spaced */
static void
add_histogram(HeapTuple statistics, double share, Thresholds *thresholds)
{
	AttStatsSlot slot;
	int			parts;

	if (!get_attstatsslot(&slot, statistics, STATISTIC_KIND_HISTOGRAM, InvalidOid,
						  ATTSTATSSLOT_VALUES))
		return;
	parts = Min(slot.nvalues - 1, MOST_BOUNDS);
	for (int i = 0; i <= parts && parts > 0; i++)
		add_point(thresholds, &slot, (int) ((int64) i * (slot.nvalues - 1) / parts), share / parts,
				  false);
	free_attstatsslot(&slot);
}

/* Add the most common values; returns the share that all of them have */
static double
add_common(HeapTuple statistics, double nonnull, Thresholds *thresholds)
{
	AttStatsSlot slot;
	double		all = 0;

	if (!get_attstatsslot(&slot, statistics, STATISTIC_KIND_MCV, InvalidOid,
						  ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS))
		return 0;
	for (int i = 0; i < Min(slot.nvalues, slot.nnumbers); i++)
	{
		all += slot.numbers[i] / nonnull;
		if (i < MOST_COMMON)
			add_point(thresholds, &slot, i, slot.numbers[i] / nonnull, true);
	}
	free_attstatsslot(&slot);
	return all;
}

/* qsort_arg comparator */
static int
compare_points(const void *a, const void *b, void *order)
{
	return ApplySortComparator(((const Threshold *) a)->value, false,
							   ((const Threshold *) b)->value, false, order);
}

/* Put the values in order, and add up their shares */
static void
add_up(Thresholds *thresholds)
{
	double		sum = 0;
	bool		begun = false;

	qsort_arg(thresholds->points, thresholds->n, sizeof(Threshold), compare_points,
			  thresholds->order);
	for (int i = 0; i < thresholds->n; i++)
	{
		Threshold  *point = &thresholds->points[i];

		/* nothing comes before the first bound */
		if (point->common || begun)
			sum += point->share;
		begun |= !point->common;
		point->share = sum;
	}
}

void
ThresholdsRead(Relation index, AttrNumber attnum, SortSupport order, Thresholds *thresholds)
{
	HeapTuple	statistics = statistics_of(index, attnum);
	double		nonnull;

	memset(thresholds, 0, sizeof(*thresholds));
	thresholds->order = order;
	thresholds->type = index->rd_opcintype[attnum - 1];
	if (!HeapTupleIsValid(statistics))
		return;
	nonnull = 1 - ((Form_pg_statistic) GETSTRUCT(statistics))->stanullfrac;
	if (nonnull > 0)
	{
		double		common;

		thresholds->points = palloc_array(Threshold, MOST_BOUNDS + 1 + MOST_COMMON);
		common = add_common(statistics, nonnull, thresholds);
		add_histogram(statistics, Max(1 - common, 0), thresholds);
	}
	ReleaseSysCache(statistics);
	add_up(thresholds);
}

void
ThresholdsSetNewer(Thresholds *thresholds, double share)
{
	for (int i = 0; i < thresholds->n; i++)
	{
		Threshold  *point = &thresholds->points[i];

		point->share = share + (1 - share) * (point->share - thresholds->newer) / (1 - thresholds->newer);
	}
	thresholds->newer = share;
}

/* ---- interpolation ---- */

/* A value as a number, in the order of values; NaN if it is none */
static double
number_of(Oid type, Datum value)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case DATEOID:
			return DatumGetDateADT(value);
		case INT8OID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return (double) DatumGetInt64(value);
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case FLOAT8OID:
			return DatumGetFloat8(value);
		case NUMERICOID:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
		default:
			return NAN;
	}
}

/* A number as an integer between these two */
static int64
clamp(double number, int64 least, int64 most)
{
	if (!(number > (double) least))
		return least;
	return number < (double) most ? (int64) number : most;
}

/*
 * A finite number as a value.  Infinite dates and times are the least and
 * greatest integers: next to these may be a date that there is not, but it
 * compares as one.
 */
static Datum
value_of(Oid type, double number)
{
	switch (type)
	{
		case INT2OID:
			return Int16GetDatum((int16) clamp(number, PG_INT16_MIN, PG_INT16_MAX));
		case INT4OID:
			return Int32GetDatum((int32) clamp(number, PG_INT32_MIN, PG_INT32_MAX));
		case DATEOID:
			return DateADTGetDatum((DateADT) clamp(number, PG_INT32_MIN, PG_INT32_MAX));
		case FLOAT4OID:
			return Float4GetDatum((float4) number);
		case FLOAT8OID:
			return Float8GetDatum(number);
		case NUMERICOID:
			return DirectFunctionCall1(float8_numeric, Float8GetDatum(number));
		default:
			return Int64GetDatum(clamp(number, PG_INT64_MIN, PG_INT64_MAX));
	}
}

/* It may be behind b */
Datum
ThresholdsBetween(const Thresholds *thresholds, Datum a, Datum b, double part)
{
	Oid			type = thresholds->type;
	double		from = number_of(type, a);
	double		number = from + (number_of(type, b) - from) * part;

	return isfinite(number) ? value_of(type, number) : b;
}

/* At which part of the way from a to b a value is; 0 if that is not known */
static double
part_of(Oid type, Datum a, Datum b, Datum value)
{
	double		from = number_of(type, a);
	double		part = (number_of(type, value) - from) / (number_of(type, b) - from);

	return part >= 0 && part <= 1 ? part : 0;
}

bool
ThresholdsConvert(const Thresholds *thresholds, Oid type, Datum value, Datum *converted)
{
	double		number;

	*converted = value;
	if (!OidIsValid(type) || type == thresholds->type)
		return true;
	number = number_of(type, value);
	if (!isfinite(number))
		return false;
	*converted = value_of(thresholds->type, number);
	return true;
}

/* Where a value would be inserted: behind all that come before it */
static int
place_of(const Thresholds *thresholds, Datum value)
{
	int			i = 0;

	while (i < thresholds->n && ApplySortComparator(thresholds->points[i].value, false, value,
													false, thresholds->order) < 0)
		i++;
	return i;
}

double
ThresholdsShare(const Thresholds *thresholds, Datum value)
{
	int			i = place_of(thresholds, value);
	const Threshold *to = &thresholds->points[i];

	if (i == 0)
		return 0;
	if (i == thresholds->n || to->common)
		return to[-1].share;
	return to[-1].share + (to->share - to[-1].share) *
		part_of(thresholds->type, to[-1].value, to->value, value);
}

bool
ThresholdsValue(const Thresholds *thresholds, double share, Datum *value)
{
	const Threshold *from = thresholds->points;
	const Threshold *to = from + 1;
	const Threshold *end = from + thresholds->n;

	if (thresholds->n == 0 || end[-1].share < share)
		return false;
	while (to < end && to->share < share)
		to++;
	/* before the first value as between it and the next one */
	if (share <= from->share)
	{
		*value = from->value;
		if (to < end && !from->common && !to->common && to->share > from->share)
			*value = ThresholdsBetween(thresholds, to->value, from->value,
							 1 + (from->share - share) / (to->share - from->share));
		return true;
	}
	from = to - 1;
	*value = to->value;
	if (!to->common && to->share > from->share)
		*value = ThresholdsBetween(thresholds, from->value, to->value,
						 (share - from->share) / (to->share - from->share));
	return true;
}
