/*-------------------------------------------------------------------------
 *
 * idvec_cast.c
 *	  Conversions of sparse vectors: sets, arrays, JSON.
 *
 * In JSON a vector is an object whose keys are ids: {"3":0.5}.  Nothing is
 * dropped but values that are 0: a key that is no id, or a value that is no
 * number, is error 22P02, and one that is out of range error 22003.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "funcapi.h"
#include "idvec/idvec.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

PG_FUNCTION_INFO_V1(idset_to_idvec);
PG_FUNCTION_INFO_V1(idvec_to_idset);
PG_FUNCTION_INFO_V1(arrays_to_idvec);
PG_FUNCTION_INFO_V1(idvec_values);
PG_FUNCTION_INFO_V1(idvec_each);
PG_FUNCTION_INFO_V1(jsonb_to_idvec);
PG_FUNCTION_INFO_V1(json_to_idvec);
PG_FUNCTION_INFO_V1(idvec_to_jsonb);
PG_FUNCTION_INFO_V1(idvec_to_json);

/* ---- sets ---- */

/* Cast of idset to idvec: all values are 1 */
Datum
idset_to_idvec(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	IdValue    *pairs = palloc_array(IdValue, Max(n, 1));

	for (uint32 i = 0; i < n; i++)
	{
		pairs[i].id = idset_id(set, i);
		pairs[i].value = 1;
	}
	PG_RETURN_IDVEC_P(idvec_from_sorted(pairs, n));
}

/* Cast of idvec to idset: the ids, without their values */
Datum
idvec_to_idset(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));
	uint32	   *ids = palloc_array(uint32, Max(vector.ids.n, 1));

	for (uint32 i = 0; i < vector.ids.n; i++)
		ids[i] = gpuvec_sparse_id(&vector, i);
	PG_RETURN_IDSET_P(idset_from_sorted(ids, vector.ids.n));
}

/* ---- arrays ---- */

/* Raise an error unless an array is a list without nulls */
static int
check_list(ArrayType *array, const char *what)
{
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s of a vector must be an array of one dimension, not %d", what, ARR_NDIM(array))));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s of a vector must not be null", what)));
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

/* idvec(int8[], float4[]): ids and their values, in any order */
Datum
arrays_to_idvec(PG_FUNCTION_ARGS)
{
	ArrayType  *ids = PG_GETARG_ARRAYTYPE_P(0);
	ArrayType  *values = PG_GETARG_ARRAYTYPE_P(1);
	int			n = check_list(ids, "ids");
	int			nvalues = check_list(values, "values");
	IdValue    *pairs;

	if (n != nvalues)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("a vector must have as many values as ids"),
				 errdetail("There are %d ids and %d values.", n, nvalues)));
	pairs = MemoryContextAllocHuge(CurrentMemoryContext, (Size) Max(n, 1) * sizeof(IdValue));
	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		pairs[i].id = idvec_check_id(((const int64 *) ARR_DATA_PTR(ids))[i]);
		pairs[i].value = idvec_check_value(((const float4 *) ARR_DATA_PTR(values))[i]);
	}
	PG_RETURN_IDVEC_P(idvec_from_pairs_safe(pairs, n, NULL));
}

/* idvec_values(idvec): the values, ascending by id */
Datum
idvec_values(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));
	Datum	   *values = palloc_array(Datum, Max(vector.ids.n, 1));

	if (vector.ids.n == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(FLOAT4OID));
	for (uint32 i = 0; i < vector.ids.n; i++)
		values[i] = Float4GetDatum(gpuvec_sparse_value(&vector, i));
	PG_RETURN_ARRAYTYPE_P(construct_array(values, vector.ids.n, FLOAT4OID, sizeof(float4), true,
										  TYPALIGN_INT));
}

/* idvec_each(idvec): a row for each id, ascending, with its value */
Datum
idvec_each(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	gpuvec_sparse vector;
	uint32		i;
	Datum		values[2];
	bool		nulls[2] = {false, false};

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		TupleDesc	desc;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		call->tuple_desc = BlessTupleDesc(desc);
		call->user_fctx = PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(0));
		call->max_calls = idvec_count(call->user_fctx);
		MemoryContextSwitchTo(old);
	}
	call = SRF_PERCALL_SETUP();
	if (call->call_cntr >= call->max_calls)
		SRF_RETURN_DONE(call);
	vector = idvec_sparse(call->user_fctx);
	i = (uint32) call->call_cntr;
	values[0] = Int64GetDatum((int64) gpuvec_sparse_id(&vector, i));
	values[1] = Float4GetDatum(gpuvec_sparse_value(&vector, i));
	SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values, nulls)));
}

/* ---- JSON ---- */

/* Report JSON that is no vector */
static void
json_error(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("cannot convert JSON to idvec"),
			 errdetail("%s", detail),
			 errhint("A vector is an object of ids and their values, like {\"3\":0.5}.")));
}

/* The id that a key names */
static uint32
id_of_key(const JsonbValue *key)
{
	char	   *text = pnstrdup(key->val.string.val, key->val.string.len);
	Size		digits = strspn(text, "0123456789");
	uint32		id;

	if (digits == 0 || text[digits] != '\0')
		json_error(psprintf("Key \"%s\" is not a whole number.", text));
	if (digits - strspn(text, "0") > 18)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %s is out of range for type %s", text, "idvec"),
				 errdetail("The least is 0, the greatest " UINT64_FORMAT ".", IDSET_MAX_ID)));
	id = idvec_check_id(strtoll(text, NULL, 10));
	pfree(text);
	return id;
}

/* The value of an id */
static float4
value_of_json(const JsonbValue *value, uint32 id)
{
	if (value->type != jbvNumeric)
		json_error(psprintf("The value of id %u is not a number.", id));
	return DatumGetFloat4(DirectFunctionCall1(numeric_float4, NumericGetDatum(value->val.numeric)));
}

/* The vector of an object */
static IdVec *
vector_from_jsonb(Jsonb *jsonb)
{
	JsonbIterator *iterator;
	JsonbValue	value;
	JsonbIteratorToken token;
	IdValue    *pairs;
	uint32		n = 0;

	if (!JB_ROOT_IS_OBJECT(jsonb))
		json_error(JB_ROOT_IS_SCALAR(jsonb) ? "It is a single value." : "It is an array.");
	pairs = palloc_array(IdValue, Max(JB_ROOT_COUNT(jsonb), 1));
	iterator = JsonbIteratorInit(&jsonb->root);
	JsonbIteratorNext(&iterator, &value, true); /* the beginning of the object */
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_END_OBJECT)
	{
		GPUVEC_LOOK();
		if (token == WJB_KEY)
			pairs[n].id = id_of_key(&value);
		else
		{
			pairs[n].value = value_of_json(&value, pairs[n].id);
			n++;
		}
	}
	return idvec_from_pairs_safe(pairs, n, NULL);
}

/* Cast of jsonb to idvec */
Datum
jsonb_to_idvec(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDVEC_P(vector_from_jsonb(PG_GETARG_JSONB_P(0)));
}

/*
 * Cast of json to idvec, by way of jsonb, which keeps the last one of equal
 * keys
 */
Datum
json_to_idvec(PG_FUNCTION_ARGS)
{
	char	   *json = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Datum		jsonb = DirectFunctionCall1(jsonb_in, CStringGetDatum(json));

	PG_RETURN_IDVEC_P(vector_from_jsonb(DatumGetJsonbP(jsonb)));
}

/* A vector as JSON */
static char *
json_of_vector(const IdVec *vector)
{
	gpuvec_sparse sparse = idvec_sparse(vector);
	char	   *json = palloc((Size) sparse.ids.n * (14 + FLOAT_SHORTEST_DECIMAL_LEN) + 3);
	char	   *p = json;

	*p++ = '{';
	for (uint32 i = 0; i < sparse.ids.n; i++)
	{
		if (i > 0)
			*p++ = ',';
		*p++ = '"';
		p += pg_ultoa_n(gpuvec_sparse_id(&sparse, i), p);
		*p++ = '"';
		*p++ = ':';
		p += float_to_shortest_decimal_bufn(gpuvec_sparse_value(&sparse, i), p);
	}
	*p++ = '}';
	*p = '\0';
	return json;
}

/* Cast of idvec to json */
Datum
idvec_to_json(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(json_of_vector(PG_GETARG_IDVEC_P(0))));
}

/* Cast of idvec to jsonb */
Datum
idvec_to_jsonb(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json_of_vector(PG_GETARG_IDVEC_P(0))));
}
