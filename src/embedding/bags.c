/*-------------------------------------------------------------------------
 *
 * bags.c
 *	  The aggregates gpuvec_bags_agg and gpuvec_weighted_bags_agg: make one
 *	  batch of many bags of keys.
 *
 * Functions over a batch take the keys of all bags in one array, and offsets.
 * SQL has no aggregate that joins arrays of different lengths, nor one that
 * adds up their lengths.  These aggregates do both.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(gpuvec_bags_agg_transfn);
PG_FUNCTION_INFO_V1(gpuvec_bags_agg_finalfn);

/* A growing array of elements of 8 bytes */
typedef struct Elements
{
	char	   *bytes;
	Size		n;
	Size		capacity;
} Elements;

#define ELEMENT_BYTES	sizeof(int64)

/* The state of a group: the batch so far */
typedef struct BagsState
{
	MemoryContext context;
	bool		weighted;
	Elements	keys;
	Elements	weights;
	Elements	offsets;		/* one more than there are bags */
} BagsState;

/* Positions of arguments, after the state */
enum
{
	ARG_KEYS = 1,
	ARG_WEIGHTS
};

static void
append(BagsState *state, Elements *elements, const void *from, Size n)
{
	Size		capacity = Max(elements->capacity, 64);

	/* the result must fit an SQL array */
	if (elements->n + n > (MaxAllocSize - ARR_OVERHEAD_NONULLS(1)) / ELEMENT_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("array size exceeds the maximum allowed (%d)", (int) MaxAllocSize)));
	while (capacity < elements->n + n)
		capacity *= 2;
	if (elements->bytes == NULL)
		elements->bytes = MemoryContextAllocHuge(state->context, capacity * ELEMENT_BYTES);
	else if (capacity > elements->capacity)
		elements->bytes = repalloc_huge(elements->bytes, capacity * ELEMENT_BYTES);
	elements->capacity = capacity;
	if (n > 0)
		memcpy(elements->bytes + elements->n * ELEMENT_BYTES, from, n * ELEMENT_BYTES);
	elements->n += n;
}

/*
 * Append the elements of an array argument, if not null; returns their number
 */
static Size
append_argument(FunctionCallInfo fcinfo, int argument, const char *name, BagsState *state,
				Elements *elements)
{
	ArrayType  *array;
	Size		n;

	if (PG_ARGISNULL(argument))
		return 0;
	array = PG_GETARG_ARRAYTYPE_P(argument);
	n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array", name),
				 errdetail("The array has %d dimensions.", ARR_NDIM(array))));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not contain nulls", name)));
	append(state, elements, ARR_DATA_PTR(array), n);
	return n;
}

/* Append an offset: the number of keys so far */
static void
append_offset(BagsState *state)
{
	int64		offset = (int64) state->keys.n;

	append(state, &state->offsets, &offset, 1);
}

/* A state without bags */
static BagsState *
new_state(FunctionCallInfo fcinfo, MemoryContext context)
{
	BagsState  *state = MemoryContextAllocZero(context, sizeof(BagsState));

	state->context = context;
	state->weighted = PG_NARGS() > ARG_WEIGHTS;
	append_offset(state);
	return state;
}

/* Transition function: add a bag */
Datum
gpuvec_bags_agg_transfn(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	BagsState  *state;
	Size		nkeys;
	Size		nweights;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "gpuvec_bags_agg_transfn called in non-aggregate context");
	state = PG_ARGISNULL(0) ? new_state(fcinfo, context) : (BagsState *) PG_GETARG_POINTER(0);
	nkeys = append_argument(fcinfo, ARG_KEYS, "keys", state, &state->keys);
	if (state->weighted)
	{
		nweights = append_argument(fcinfo, ARG_WEIGHTS, "weights", state, &state->weights);
		if (nweights != nkeys)
			ereport(ERROR,
					(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
					 errmsg("there must be as many weights as keys"),
					 errdetail("There are %zu weights and %zu keys.", nweights, nkeys)));
	}
	append_offset(state);
	PG_RETURN_POINTER(state);
}

/* Make an SQL array of elements */
static Datum
make_array(const Elements *elements, Oid type)
{
	Size		size = ARR_OVERHEAD_NONULLS(1) + elements->n * ELEMENT_BYTES;
	ArrayType  *array;

	if (elements->n == 0)
		return PointerGetDatum(construct_empty_array(type));
	array = palloc(size);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = 0;
	array->elemtype = type;
	ARR_DIMS(array)[0] = (int) elements->n;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), elements->bytes, elements->n * ELEMENT_BYTES);
	return PointerGetDatum(array);
}

/* Final function: a row of keys, offsets and weights */
Datum
gpuvec_bags_agg_finalfn(PG_FUNCTION_ARGS)
{
	BagsState  *state;
	TupleDesc	desc;
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	state = (BagsState *) PG_GETARG_POINTER(0);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != 3)
		elog(ERROR, "return type must be gpuvec_bags");
	values[0] = make_array(&state->keys, INT8OID);
	values[1] = make_array(&state->offsets, INT8OID);
	values[2] = (Datum) 0;
	nulls[2] = !state->weighted;
	if (state->weighted)
		values[2] = make_array(&state->weights, FLOAT8OID);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
