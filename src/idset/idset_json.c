/*-------------------------------------------------------------------------
 *
 * idset_json.c
 *	  Casts between sets and JSON, and of arrays to other forms of sets.
 *
 * A set in JSON is an array of numbers.  JSON does not tell integers from
 * other numbers, so 3.0 and 3e0 are the id 3.  Anything but a whole number is
 * error 22P02; a number out of the range of ids is error 22003.
 *
 * An array of integers with two dimensions is an array of sets, one for each
 * row.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

PG_FUNCTION_INFO_V1(json_to_idset);
PG_FUNCTION_INFO_V1(jsonb_to_idset);
PG_FUNCTION_INFO_V1(idset_to_jsonb);
PG_FUNCTION_INFO_V1(idset_to_int2_array);
PG_FUNCTION_INFO_V1(int4_rows_to_idsets);
PG_FUNCTION_INFO_V1(int8_rows_to_idsets);

/* ---- JSON ---- */

/* Report JSON that is no set */
static void
json_error(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("cannot convert JSON to idset"),
			 errdetail("%s", detail),
			 errhint("A set is an array of whole numbers, like [3,17,50000].")));
}

/* What kind of element of an array is no number? */
static const char *
kind_of_value(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return "null";
		case jbvString:
			return "a string";
		case jbvBool:
			return "a boolean";
		default:
			return "an array or an object";
	}
}

/* Element number n of an array as an id */
static uint32
id_of_value(const JsonbValue *value, int n)
{
	char	   *digits;
	char	   *end;
	int64		number;

	if (value->type != jbvNumeric)
		json_error(psprintf("Element %d is %s.", n, kind_of_value(value)));
	digits = numeric_normalize(value->val.numeric);
	if (strchr(digits, '.') != NULL)
		json_error(psprintf("Element %d is not a whole number: %s.", n, digits));
	errno = 0;
	number = strtoll(digits, &end, 10);
	if (errno == ERANGE)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %s is out of range for type idset", digits),
				 errdetail("Ids are 0 to " UINT64_FORMAT ".", IDSET_MAX_ID)));
	pfree(digits);
	return idset_check_id(number);
}

/* The set of the elements of an array */
static IdSet *
set_from_jsonb(Jsonb *jsonb)
{
	JsonbIterator *iterator;
	JsonbValue	value;
	uint32	   *ids;
	uint32		n = 0;

	if (!JB_ROOT_IS_ARRAY(jsonb) || JB_ROOT_IS_SCALAR(jsonb))
		json_error(JB_ROOT_IS_OBJECT(jsonb) ? "It is an object." : "It is a single value.");
	ids = palloc_array(uint32, Max(JB_ROOT_COUNT(jsonb), 1));
	iterator = JsonbIteratorInit(&jsonb->root);
	JsonbIteratorNext(&iterator, &value, true); /* the beginning of the array */
	while (JsonbIteratorNext(&iterator, &value, true) == WJB_ELEM)
	{
		GPUVEC_LOOK();
		ids[n] = id_of_value(&value, n + 1);
		n++;
	}
	return idset_from_ids(ids, n);
}

/* Cast of jsonb to idset */
Datum
jsonb_to_idset(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(set_from_jsonb(PG_GETARG_JSONB_P(0)));
}

/* Cast of json to idset */
Datum
json_to_idset(PG_FUNCTION_ARGS)
{
	char	   *json = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Datum		jsonb = DirectFunctionCall1(jsonb_in, CStringGetDatum(json));

	PG_RETURN_IDSET_P(set_from_jsonb(DatumGetJsonbP(jsonb)));
}

/* Cast of idset to jsonb */
Datum
idset_to_jsonb(PG_FUNCTION_ARGS)
{
	char	   *out = DatumGetCString(DirectFunctionCall1(idset_out, PG_GETARG_DATUM(0)));

	out[0] = '[';
	out[strlen(out) - 1] = ']';

	return DirectFunctionCall1(jsonb_in, CStringGetDatum(out));
}

/* ---- arrays ---- */

/* Cast of idset to int2[] */
Datum
idset_to_int2_array(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	Datum	   *values = palloc_array(Datum, Max(n, 1));

	if (n == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(INT2OID));
	if (idset_id(set, n - 1) > PG_INT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %u is out of range for type smallint", idset_id(set, n - 1)),
				 errhint("Cast the set to bigint[].")));
	for (uint32 i = 0; i < n; i++)
		values[i] = Int16GetDatum((int16) idset_id(set, i));
	PG_RETURN_ARRAYTYPE_P(construct_array(values, n, INT2OID, sizeof(int16), true,
										  TYPALIGN_SHORT));
}

/* Raise an error unless an array has rows of integers */
static void
check_rows(ArrayType *array)
{
	if (ARR_NDIM(array) != 2 && ARR_NDIM(array) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("cannot convert an array of %d dimensions to idset[]", ARR_NDIM(array)),
				 errdetail("Each row of an array of two dimensions is a set."),
				 errhint("Cast an array of one dimension to idset.")));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("cannot convert an array with null elements to idset[]"),
				 errhint("Write sets of several lengths as ARRAY['{1,2}','{3}']::idset[].")));
}

/* A set of n integers, each of `width` bytes */
static IdSet *
set_of_row(const char *row, int n, int width)
{
	uint32	   *ids = palloc_array(uint32, Max(n, 1));
	IdSet	   *set;

	for (int i = 0; i < n; i++, row += width)
	{
		GPUVEC_STEP(i);
		ids[i] = idset_check_id(width == sizeof(int32) ?
								*(const int32 *) row : *(const int64 *) row);
	}
	set = idset_from_ids(ids, n);
	pfree(ids);
	return set;
}

/* Cast of an array of two dimensions to idset[] */
static Datum
sets_of_rows(FunctionCallInfo fcinfo, int width)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(0);
	Oid			type = get_element_type(get_func_rettype(fcinfo->flinfo->fn_oid));
	Datum	   *sets;
	int			rows;
	int			columns;

	check_rows(array);
	if (ARR_NDIM(array) == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(type));
	rows = ARR_DIMS(array)[0];
	columns = ARR_DIMS(array)[1];
	sets = palloc_array(Datum, rows);
	for (int row = 0; row < rows; row++)
		sets[row] = PointerGetDatum(set_of_row(ARR_DATA_PTR(array) + (Size) row * columns * width,
											   columns, width));
	PG_RETURN_ARRAYTYPE_P(construct_array(sets, rows, type, -1, false, TYPALIGN_INT));
}

/* Cast of int4[][] to idset[] */
Datum
int4_rows_to_idsets(PG_FUNCTION_ARGS)
{
	return sets_of_rows(fcinfo, sizeof(int32));
}

/* Cast of int8[][] to idset[] */
Datum
int8_rows_to_idsets(PG_FUNCTION_ARGS)
{
	return sets_of_rows(fcinfo, sizeof(int64));
}
