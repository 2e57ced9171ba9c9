/*-------------------------------------------------------------------------
 *
 * idset_cast.c
 *	  Casts between sets and arrays, and to JSON.
 *
 * An array element out of the range of ids is an error.  It is never dropped
 * or clipped: an assignment cast must not lose data silently.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(int2_array_to_idset);
PG_FUNCTION_INFO_V1(int4_array_to_idset);
PG_FUNCTION_INFO_V1(int8_array_to_idset);
PG_FUNCTION_INFO_V1(idset_to_int4_array);
PG_FUNCTION_INFO_V1(idset_to_int8_array);
PG_FUNCTION_INFO_V1(idset_to_json);

/* The position of the first null element, from 1; there must be one */
static int
first_null(ArrayType *array, int n)
{
	const uint8 *bitmap = ARR_NULLBITMAP(array);
	int			i = 0;

	while (i < n && (bitmap[i / 8] & (1 << (i % 8))) != 0)
	{
		GPUVEC_STEP(i);
		i++;
	}
	return i + 1;
}

/* A set of the elements of an array, each of `width` bytes */
static IdSet *
set_from_array(ArrayType *array, int width)
{
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	const char *data = ARR_DATA_PTR(array);
	uint32	   *ids;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("cannot convert an array of %d dimensions to idset", ARR_NDIM(array)),
				 errdetail("A set has one dimension.")));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("cannot convert an array with null elements to idset"),
				 errdetail("Element %d is null.", first_null(array, n)),
				 errhint("Leave them out with array_remove(array, NULL).")));
	ids = MemoryContextAllocHuge(CurrentMemoryContext, (Size) Max(n, 1) * sizeof(uint32));
	for (int i = 0; i < n; i++, data += width)
	{
		GPUVEC_STEP(i);
		if (width == sizeof(int16))
			ids[i] = idset_check_id(*(const int16 *) data);
		else if (width == sizeof(int32))
			ids[i] = idset_check_id(*(const int32 *) data);
		else
			ids[i] = idset_check_id(*(const int64 *) data);
	}
	return idset_from_ids(ids, n);
}

/* Cast of int2[] to idset */
Datum
int2_array_to_idset(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(set_from_array(PG_GETARG_ARRAYTYPE_P(0), sizeof(int16)));
}

/* Cast of int4[] to idset */
Datum
int4_array_to_idset(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(set_from_array(PG_GETARG_ARRAYTYPE_P(0), sizeof(int32)));
}

/* Cast of int8[] to idset */
Datum
int8_array_to_idset(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(set_from_array(PG_GETARG_ARRAYTYPE_P(0), sizeof(int64)));
}

/* An array of the set's ids, of type int4 or int8 */
static ArrayType *
array_from_set(const IdSet *set, Oid type, int width, bool byval, char align)
{
	uint32		n = idset_count(set);
	Datum	   *values;

	if (n == 0)
		return construct_empty_array(type);
	if (type == INT4OID && idset_id(set, n - 1) > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %u is out of range for type integer", idset_id(set, n - 1)),
				 errhint("Cast the set to bigint[].")));
	values = palloc_array(Datum, n);
	for (uint32 i = 0; i < n; i++)
		values[i] = type == INT4OID ?
			Int32GetDatum((int32) idset_id(set, i)) : Int64GetDatum((int64) idset_id(set, i));
	return construct_array(values, n, type, width, byval, align);
}

/* Cast of idset to int4[] */
Datum
idset_to_int4_array(PG_FUNCTION_ARGS)
{
	PG_RETURN_ARRAYTYPE_P(array_from_set(PG_GETARG_IDSET_P(0), INT4OID, sizeof(int32), true,
										 TYPALIGN_INT));
}

/* Cast of idset to int8[] */
Datum
idset_to_int8_array(PG_FUNCTION_ARGS)
{
	PG_RETURN_ARRAYTYPE_P(array_from_set(PG_GETARG_IDSET_P(0), INT8OID, sizeof(int64),
										 FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Cast of idset to json: the text form with [] for {} */
Datum
idset_to_json(PG_FUNCTION_ARGS)
{
	char	   *out = DatumGetCString(DirectFunctionCall1(idset_out, PG_GETARG_DATUM(0)));
	Size		n = strlen(out);

	out[0] = '[';
	out[n - 1] = ']';

	PG_RETURN_TEXT_P(cstring_to_text_with_len(out, n));
}
