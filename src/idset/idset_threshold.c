/*-------------------------------------------------------------------------
 *
 * idset_threshold.c
 *	  Threshold search: tokens <<->> idset_threshold(query, min_score,
 *	  measure).
 *
 * The operator is true if the score is at least min_score.  The score is that
 * of the measure's SQL function: one C function computes both, and float8
 * compares them.  The right side is a composite value, so that a plain ROW()
 * works, and an index scan can read the whole search from it.
 *
 * A statement usually has one right side for all rows.  fn_extra caches the
 * last right side, parsed; it is used again if the next value has the same
 * bytes.  To compare a few hundred bytes costs little beside counting common
 * ids.  And it needs no proof that the expression is constant: in PL/pgSQL, a
 * parameter may change between calls of the same expression.
 *
 * A set that cannot reach min_score because of its length is not detoasted.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "idset/idset_condition.h"
#include "idset/idset_threshold.h"
#include "idset/kept_argument.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(idset_threshold);
PG_FUNCTION_INFO_V1(idset_reaching);
PG_FUNCTION_INFO_V1(idset_within);
PG_FUNCTION_INFO_V1(idset_reaches_threshold);

/* Columns of the type idset_threshold */
enum
{
	THRESHOLD_QUERY,
	THRESHOLD_MIN_SCORE,
	THRESHOLD_MEASURE,
	THRESHOLD_COLUMNS
};

/* Types of these columns: the query may be a set or a vector */
static const Oid threshold_types[THRESHOLD_COLUMNS] = {InvalidOid, FLOAT8OID, TEXTOID};

/* The type that a constructor returns, which has n columns */
static TupleDesc
result_desc(FunctionCallInfo fcinfo, int n)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != n)
		elog(ERROR, "return type must have %d columns", n);
	return BlessTupleDesc(desc);
}

Datum
threshold_reaching(FunctionCallInfo fcinfo, Datum query, double min_score)
{
	Datum		values[] = {query, Float8GetDatum(min_score), PG_GETARG_DATUM(2)};
	bool		nulls[THRESHOLD_COLUMNS] = {false};

	return HeapTupleGetDatum(heap_form_tuple(result_desc(fcinfo, THRESHOLD_COLUMNS), values, nulls));
}

Datum
threshold_row(FunctionCallInfo fcinfo)
{
	int			n = PG_NARGS();
	Datum	   *values = palloc_array(Datum, n);
	bool	   *nulls = palloc_array(bool, n);

	for (int i = 0; i < n; i++)
	{
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = PG_ARGISNULL(i);
	}
	return HeapTupleGetDatum(heap_form_tuple(result_desc(fcinfo, n), values, nulls));
}

/* Constructor, also of idvec_threshold */
Datum
idset_threshold(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(threshold_row(fcinfo));
}

/* The same for a score that nothing reaches if it is NaN: then null */
Datum
idset_reaching(PG_FUNCTION_ARGS)
{
	if (isnan(PG_GETARG_FLOAT8(1)))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(threshold_reaching(fcinfo, PG_GETARG_DATUM(0), PG_GETARG_FLOAT8(1)));
}

double
idset_threshold_within(double distance, const text *measure)
{
	gpuvec_scoring scoring;

	idset_measure_by_name(text_to_cstring(measure), &scoring);
	return isnan(distance) ? -get_float8_infinity() :
		idset_least_score(scoring.measure, distance);
}

/* The threshold that sets reach which are at most this far from the query */
Datum
idset_within(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(threshold_reaching(fcinfo, PG_GETARG_DATUM(0),
									   idset_threshold_within(PG_GETARG_FLOAT8(1),
															  PG_GETARG_TEXT_PP(2))));
}

void
threshold_deform(HeapTupleHeader value, const Oid *types, int n, Datum *values, bool *nulls)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(value),
											  HeapTupleHeaderGetTypMod(value));
	HeapTupleData tuple;
	bool		fits = desc->natts == n;

	for (int i = 0; fits && i < n; i++)
		fits = !OidIsValid(types[i]) || TupleDescAttr(desc, i)->atttypid == types[i];
	if (!fits)
		elog(ERROR, "type %s has been altered", format_type_be(HeapTupleHeaderGetTypeId(value)));
	tuple.t_len = HeapTupleHeaderGetDatumLength(value);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = value;
	heap_deform_tuple(&tuple, desc, values, nulls);
	ReleaseTupleDesc(desc);
}

bool
threshold_parts(HeapTupleHeader value, bool raise, ThresholdParts *parts)
{
	Datum		values[THRESHOLD_COLUMNS];
	bool		nulls[THRESHOLD_COLUMNS];

	memset(parts, 0, sizeof(*parts));
	threshold_deform(value, threshold_types, THRESHOLD_COLUMNS, values, nulls);
	if (!nulls[THRESHOLD_MEASURE])
		parts->measure = TextDatumGetCString(values[THRESHOLD_MEASURE]);
	parts->isnull = nulls[THRESHOLD_QUERY] || nulls[THRESHOLD_MIN_SCORE];
	if (parts->isnull)
		return true;
	parts->query = values[THRESHOLD_QUERY];
	parts->min_score = DatumGetFloat8(values[THRESHOLD_MIN_SCORE]);
	if (!isnan(parts->min_score))
		return true;
	if (raise)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("min_score must be a number")));
	return false;
}

bool
threshold_measure(const char *name, bool raise, gpuvec_scoring *scoring)
{
	if (!raise)
		return idset_find_measure(name, scoring);
	idset_measure_by_name(name, scoring);
	return true;
}

/* Parse a value.  If a part is invalid: an error if `raise`, else false. */
bool
idset_threshold_parse(HeapTupleHeader value, IdSetThreshold *result, bool raise)
{
	ThresholdParts parts;

	memset(result, 0, sizeof(*result));
	if (!threshold_parts(value, raise, &parts))
		return false;
	if (parts.measure != NULL && !threshold_measure(parts.measure, raise, &result->scoring))
		return false;
	if (parts.isnull)
		return true;
	result->min_score = parts.min_score;
	result->query = DatumGetIdSetP(parts.query);
	return true;
}

/* Parse the right side of the operator */
static void *
parse_right_side(FunctionCallInfo fcinfo, struct varlena *value)
{
	IdSetThreshold *threshold = palloc_object(IdSetThreshold);

	idset_threshold_parse((HeapTupleHeader) value, threshold, true);
	return threshold;
}

const IdSetThreshold *
idset_threshold_argument(FunctionCallInfo fcinfo)
{
	return kept_argument(fcinfo, 1, parse_right_side);
}

/* Number of ids of a set, without detoasting it */
static uint32
length_of(Datum set)
{
	return idset_bytes_count(toast_raw_datum_size(set) - VARHDRSZ);
}

/* <<->> operator */
Datum
idset_reaches_threshold(PG_FUNCTION_ARGS)
{
	const IdSetThreshold *threshold = idset_threshold_argument(fcinfo);
	IdSet	   *set;
	bool		result;

	if (threshold->query == NULL)
		PG_RETURN_NULL();
	if (!idset_threshold_possible(threshold, length_of(PG_GETARG_DATUM(0))))
		PG_RETURN_BOOL(false);
	set = PG_GETARG_IDSET_P(0);
	result = idset_threshold_reached(threshold, set);
	PG_FREE_IF_COPY(set, 0);
	PG_RETURN_BOOL(result);
}
