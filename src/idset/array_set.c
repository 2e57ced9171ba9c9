/*-------------------------------------------------------------------------
 *
 * array_set.c
 *	  Sets of the elements of arrays, and distances and thresholds of arrays,
 *	  which are those of their sets.
 *
 * An element of type int2 or int4 is the id with its 32 bits, so different
 * elements have different ids.  One of another type is the low half of what
 * the extended hash function of the type returns with seed 0, under the
 * array's collation: equal elements have one id, and so may others, by chance
 * (text_hash.c).  Null elements are left out.  An array of any dimensions is
 * the list of its elements.
 *
 * An index of arrays (operator class array_ops) has these sets.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset_condition.h"
#include "idset/idset_threshold.h"
#include "idset/kept_argument.h"
#include "idset/text_ids.h"
#include "utils/float.h"

/* The set of an array's elements, palloc'd; an error if they are too many */
static IdSet *
set_of_array(ArrayType *array, Oid collation)
{
	TextIds		ids;

	text_ids_init(&ids);
	text_add_elements(&ids, array, collation, true);
	return text_ids_finish(&ids);
}

/* The same; NULL if they are too many */
static IdSet *
try_array(ArrayType *array, Oid collation)
{
	TextIds		ids;

	text_ids_init(&ids);
	ids.lenient = true;
	text_add_elements(&ids, array, collation, true);
	return text_ids_finish(&ids);
}

/* idset_of_array(anyarray) */
PG_FUNCTION_INFO_V1(idset_of_array);
Datum
idset_of_array(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(set_of_array(PG_GETARG_ARRAYTYPE_P(0), PG_GET_COLLATION()));
}

/*
 * gpuvec_array_query(internal, int2, oid): the set of an array on the right
 * side of an operator (ENTRY_QUERY_PROC).  The server's operators take more
 * elements than a set.
 */
PG_FUNCTION_INFO_V1(gpuvec_array_query);
Datum
gpuvec_array_query(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(try_array(PG_GETARG_ARRAYTYPE_P(0), PG_GET_COLLATION()));
}

/* The set of an array that is kept (kept_argument.h) */
static void *
make_set(FunctionCallInfo fcinfo, struct varlena *value)
{
	return set_of_array((ArrayType *) value, PG_GET_COLLATION());
}

/*
 * The set of an argument, an array.  That of a constant or a parameter is kept
 * from one row to the next.
 */
static IdSet *
set_of_argument(FunctionCallInfo fcinfo, int argument)
{
	if (get_fn_expr_arg_stable(fcinfo->flinfo, argument))
		return kept_argument(fcinfo, argument, make_set);
	return set_of_array(PG_GETARG_ARRAYTYPE_P(argument), PG_GET_COLLATION());
}

/*
 * array_..._distance(anyarray, anyarray): the distance of the sets of both.
 * own_... is its address as this library has it: another library may have a
 * function of the name.
 */
#define ARRAY_DISTANCE(distance) \
extern Datum idset_##distance(PG_FUNCTION_ARGS); \
PG_FUNCTION_INFO_V1(array_##distance); \
Datum \
array_##distance(PG_FUNCTION_ARGS) \
{ \
	IdSet	   *a = set_of_argument(fcinfo, 0); \
	IdSet	   *b = set_of_argument(fcinfo, 1); \
 \
	return DirectFunctionCall2(idset_##distance, PointerGetDatum(a), PointerGetDatum(b)); \
} \
static Datum own_array_##distance(PG_FUNCTION_ARGS) __attribute__((alias("array_" #distance)))

ARRAY_DISTANCE(braun_blanquet_distance);
ARRAY_DISTANCE(jaccard_distance);
ARRAY_DISTANCE(negative_intersection);
ARRAY_DISTANCE(hamming_distance);

bool
idset_array_scored(PGFunction function, IdSetScored *scored)
{
	static const struct
	{
		PGFunction	function;
		gpuvec_measure measure;
	}			distances[] = {
		{own_array_braun_blanquet_distance, GPUVEC_BRAUN_BLANQUET},
		{own_array_jaccard_distance, GPUVEC_JACCARD},
		{own_array_negative_intersection, GPUVEC_INTERSECTION},
		{own_array_hamming_distance, GPUVEC_HAMMING}
	};

	for (int i = 0; i < lengthof(distances); i++)
	{
		if (function != distances[i].function)
			continue;
		*scored = idset_scored_by(distances[i].measure, true);
		scored->made = ANYARRAYOID;
		return true;
	}
	return false;
}

/* ---- thresholds ---- */

/*
 * The threshold that sets of arrays reach which are at most this far from an
 * array.  The planner makes it of a comparison that may never be evaluated, so
 * an array that no set is made of is no error here: all arrays reach the
 * threshold, and the comparison fails for the first one.
 */
PG_FUNCTION_INFO_V1(idset_array_within);
Datum
idset_array_within(PG_FUNCTION_ARGS)
{
	IdSet	   *query = try_array(PG_GETARG_ARRAYTYPE_P(0), PG_GET_COLLATION());
	double		min_score = idset_threshold_within(PG_GETARG_FLOAT8(1), PG_GETARG_TEXT_PP(2));

	if (query == NULL)
	{
		query = idset_alloc(0);
		min_score = -get_float8_infinity();
	}
	PG_RETURN_DATUM(threshold_reaching(fcinfo, PointerGetDatum(query), min_score));
}

/* <<~>> operator */
PG_FUNCTION_INFO_V1(array_reaches_threshold);
Datum
array_reaches_threshold(PG_FUNCTION_ARGS)
{
	const IdSetThreshold *threshold = idset_threshold_argument(fcinfo);
	IdSet	   *set;
	bool		result;

	if (threshold->query == NULL)
		PG_RETURN_NULL();
	set = set_of_array(PG_GETARG_ARRAYTYPE_P(0), PG_GET_COLLATION());
	result = idset_threshold_reached(threshold, set);
	pfree(set);
	PG_RETURN_BOOL(result);
}
