/*-------------------------------------------------------------------------
 *
 * idvec_threshold.c
 *	  Threshold search: terms <<->> idvec_threshold(query, min_score,
 *	  measure).
 *
 * As of sets (idset/idset_threshold.c).  The score is that of the measure's
 * SQL function.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_threshold.h"
#include "idset/kept_argument.h"
#include "idvec/idvec_threshold.h"

PG_FUNCTION_INFO_V1(idvec_reaches_threshold);

/* Parse a value.  If a part is invalid: an error if `raise`, else false. */
bool
idvec_threshold_parse(HeapTupleHeader value, IdVecThreshold *result, bool raise)
{
	gpuvec_sparse_measure measure = GPUVEC_SPARSE_INNER_PRODUCT;
	ThresholdParts parts;

	memset(result, 0, sizeof(*result));
	if (!threshold_parts(value, raise, &parts))
		return false;
	result->or_error = parts.measure != NULL &&
		pg_strcasecmp(parts.measure, IDVEC_JACCARD_OR_ERROR) == 0;
	if (result->or_error)
		measure = GPUVEC_SPARSE_JACCARD;
	else if (parts.measure != NULL && !idvec_find_measure(parts.measure, &measure))
	{
		if (raise)
			(void) idvec_measure_by_name(parts.measure);
		return false;
	}
	result->scoring = gpuvec_sparse_scoring(measure);
	if (parts.isnull)
		return true;
	result->min_score = parts.min_score;
	result->query = DatumGetIdVecP(parts.query);
	return true;
}

/* Parse the right side of the operator */
static void *
parse_right_side(FunctionCallInfo fcinfo, struct varlena *value)
{
	IdVecThreshold *threshold = palloc_object(IdVecThreshold);

	idvec_threshold_parse((HeapTupleHeader) value, threshold, true);
	return threshold;
}

/* <<->> operator */
Datum
idvec_reaches_threshold(PG_FUNCTION_ARGS)
{
	const IdVecThreshold *threshold = kept_argument(fcinfo, 1, parse_right_side);
	gpuvec_sparse_measure measure = gpuvec_scoring_sparse(threshold->scoring);
	gpuvec_sparse row;
	gpuvec_sparse query;
	IdVec	   *vector;
	bool		result;

	if (threshold->query == NULL)
		PG_RETURN_NULL();
	vector = PG_GETARG_IDVEC_P(0);
	row = idvec_sparse(vector);
	query = idvec_sparse(threshold->query);
	if (idvec_refuses(&threshold->scoring, &row) || idvec_refuses(&threshold->scoring, &query))
	{
		if (!threshold->or_error)
			idvec_report_negative();
		result = true;
	}
	else
		result = gpuvec_sparse_score(measure, idvec_shared(measure, &row, &query)) >=
			threshold->min_score;
	PG_FREE_IF_COPY(vector, 0);
	PG_RETURN_BOOL(result);
}
