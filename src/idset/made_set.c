/*-------------------------------------------------------------------------
 *
 * made_set.c
 *	  Distances, thresholds and rankings of values that sets are made of,
 *	  arrays, jsonb and texts: they are those of the sets.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset_condition.h"
#include "idset/idset_ranking.h"
#include "idset/idset_threshold.h"
#include "idset/kept_argument.h"
#include "idset/made_set.h"
#include "utils/float.h"

/* ---- what all kinds of values share ---- */

/*
 * The set of an argument.  That of a constant or a parameter is kept from one
 * row to the next.
 */
static IdSet *
set_of_argument(FunctionCallInfo fcinfo, int argument, KeptMaker make)
{
	if (get_fn_expr_arg_stable(fcinfo->flinfo, argument))
		return kept_argument(fcinfo, argument, make);
	return make(fcinfo, PG_GETARG_VARLENA_P(argument));
}

/*
 * The threshold that sets reach which are at most this far from that of a
 * query.  The planner makes it of a comparison that may never be evaluated, so
 * a query that no set is made of is no error here: all values reach the
 * threshold, and the comparison fails for the first one.
 */
static Datum
within(FunctionCallInfo fcinfo, IdSetMaker make)
{
	IdSet	   *query = make(PG_GETARG_VARLENA_P(0), PG_GET_COLLATION(), true);
	double		min_score = idset_threshold_within(PG_GETARG_FLOAT8(1), PG_GETARG_TEXT_PP(2));

	if (query == NULL)
	{
		query = idset_alloc(0);
		min_score = -get_float8_infinity();
	}
	return threshold_reaching(fcinfo, PointerGetDatum(query), min_score);
}

/* <<~>> and <<%~>> operators */
static Datum
reaches(FunctionCallInfo fcinfo, IdSetMaker make)
{
	const IdSetThreshold *threshold = idset_threshold_argument(fcinfo);
	IdSet	   *set;
	bool		result;

	if (threshold->query == NULL)
		PG_RETURN_NULL();
	set = make(PG_GETARG_VARLENA_P(0), PG_GET_COLLATION(), false);
	result = idset_threshold_reached(threshold, set);
	pfree(set);
	PG_RETURN_BOOL(result);
}

/* <&~> and <&%~> operators */
static Datum
negative_score(FunctionCallInfo fcinfo, IdSetMaker make)
{
	const IdSetRanking *ranking = idset_ranking_argument(fcinfo);
	IdSet	   *set;
	double		result;

	if (ranking->query == NULL)
		PG_RETURN_NULL();
	set = make(PG_GETARG_VARLENA_P(0), PG_GET_COLLATION(), false);
	result = idset_ranking_distance(ranking, set);
	pfree(set);
	PG_RETURN_FLOAT8(result);
}

/* ---- SQL functions ---- */

/*
 * Of a kind of values: the maker of sets that are kept (kept_argument.h),
 * idset_..._within(query, distance, measure), ..._reaches_threshold(value,
 * threshold), ..._negative_score(value, ranking)
 */
#define MADE_OPERATORS(kind) \
static void * \
keep_##kind(FunctionCallInfo fcinfo, struct varlena *value) \
{ \
	return idset_make_of_##kind(value, PG_GET_COLLATION(), false); \
} \
PG_FUNCTION_INFO_V1(idset_##kind##_within); \
Datum \
idset_##kind##_within(PG_FUNCTION_ARGS) \
{ \
	return within(fcinfo, idset_make_of_##kind); \
} \
PG_FUNCTION_INFO_V1(kind##_reaches_threshold); \
Datum \
kind##_reaches_threshold(PG_FUNCTION_ARGS) \
{ \
	return reaches(fcinfo, idset_make_of_##kind); \
} \
PG_FUNCTION_INFO_V1(kind##_negative_score); \
Datum \
kind##_negative_score(PG_FUNCTION_ARGS) \
{ \
	return negative_score(fcinfo, idset_make_of_##kind); \
} \
extern Datum kind##_negative_score(PG_FUNCTION_ARGS)

/*
 * ..._distance(value, value): the distance of the sets of both.  own_... is
 * its address as this library has it: another library may have a function of
 * the name.
 */
#define MADE_DISTANCE(kind, distance) \
extern Datum idset_##distance(PG_FUNCTION_ARGS); \
PG_FUNCTION_INFO_V1(kind##_##distance); \
Datum \
kind##_##distance(PG_FUNCTION_ARGS) \
{ \
	IdSet	   *a = set_of_argument(fcinfo, 0, keep_##kind); \
	IdSet	   *b = set_of_argument(fcinfo, 1, keep_##kind); \
 \
	return DirectFunctionCall2(idset_##distance, PointerGetDatum(a), PointerGetDatum(b)); \
} \
static Datum own_##kind##_##distance(PG_FUNCTION_ARGS) \
	__attribute__((alias(#kind "_" #distance)))

MADE_OPERATORS(array);
MADE_DISTANCE(array, braun_blanquet_distance);
MADE_DISTANCE(array, jaccard_distance);
MADE_DISTANCE(array, negative_intersection);
MADE_DISTANCE(array, hamming_distance);

MADE_OPERATORS(jsonb);
MADE_DISTANCE(jsonb, braun_blanquet_distance);
MADE_DISTANCE(jsonb, jaccard_distance);
MADE_DISTANCE(jsonb, negative_intersection);
MADE_DISTANCE(jsonb, hamming_distance);

MADE_OPERATORS(trgm);
MADE_DISTANCE(trgm, jaccard_distance);

bool
idset_made_scored(PGFunction function, IdSetScored *scored)
{
	static const struct
	{
		PGFunction	function;
		Oid			made;
		gpuvec_measure measure;
	}			distances[] = {
		{own_array_braun_blanquet_distance, ANYARRAYOID, GPUVEC_BRAUN_BLANQUET},
		{own_array_jaccard_distance, ANYARRAYOID, GPUVEC_JACCARD},
		{own_array_negative_intersection, ANYARRAYOID, GPUVEC_INTERSECTION},
		{own_array_hamming_distance, ANYARRAYOID, GPUVEC_HAMMING},
		{own_jsonb_braun_blanquet_distance, JSONBOID, GPUVEC_BRAUN_BLANQUET},
		{own_jsonb_jaccard_distance, JSONBOID, GPUVEC_JACCARD},
		{own_jsonb_negative_intersection, JSONBOID, GPUVEC_INTERSECTION},
		{own_jsonb_hamming_distance, JSONBOID, GPUVEC_HAMMING},
		{own_trgm_jaccard_distance, TEXTOID, GPUVEC_JACCARD}
	};

	for (int i = 0; i < lengthof(distances); i++)
	{
		if (function != distances[i].function)
			continue;
		*scored = idset_scored_by(distances[i].measure, true);
		scored->made = distances[i].made;
		return true;
	}
	return false;
}
