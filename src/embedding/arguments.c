/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  Arguments and results of the functions over embedding tables.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "embedding/embedding_table.h"
#include "search/set_search.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* Positions of the first arguments, the same in all functions */
enum
{
	ARG_RELATION,
	ARG_KEY_COLUMN,
	ARG_COLUMN
};

/* Positions of further arguments, in functions of gradients */
enum
{
	ARG_GRADIENT = EMBEDDING_ARG_KEYS + 1,
	ARG_GRADIENT_OFFSETS,
	ARG_GRADIENT_HOTNESS
};

/* The table that the first three arguments name */
EmbeddingTable *
EmbeddingTableArguments(FunctionCallInfo fcinfo, Snapshot snapshot)
{
	SearchRequireArgument(fcinfo, ARG_RELATION, "relation");
	SearchRequireArgument(fcinfo, ARG_KEY_COLUMN, "key column");
	SearchRequireArgument(fcinfo, ARG_COLUMN, "column");
	return EmbeddingOpen(PG_GETARG_OID(ARG_RELATION), NameStr(*PG_GETARG_NAME(ARG_KEY_COLUMN)),
						 NameStr(*PG_GETARG_NAME(ARG_COLUMN)), snapshot);
}

/* An array argument, which must have at most one dimension */
static ArrayType *
plain_array(FunctionCallInfo fcinfo, int argument, const char *name)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(argument);

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array", name),
				 errdetail("The array has %d dimensions.", ARR_NDIM(array))));
	return array;
}

/*
 * The elements of an int8[] argument.  A null element is an error if `nulls`
 * is NULL; otherwise its value is 0, and it is marked in *nulls.  *nulls is
 * NULL if no element is null.
 */
const int64 *
EmbeddingKeysArgument(FunctionCallInfo fcinfo, int argument, const char *name, bool **nulls,
					  uint64 *n)
{
	ArrayType  *array = plain_array(fcinfo, argument, name);
	int			count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	const int64 *values = (const int64 *) ARR_DATA_PTR(array);
	uint8	   *bitmap = ARR_NULLBITMAP(array);
	bool	   *is_null;
	int64	   *keys;

	*n = count;
	if (nulls)
		*nulls = NULL;
	if (!array_contains_nulls(array))
		return values;
	if (nulls == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not contain nulls", name)));
	is_null = palloc_array(bool, count);
	keys = MemoryContextAllocHuge(CurrentMemoryContext, (Size) count * sizeof(int64));
	for (int i = 0; i < count; i++)
	{
		GPUVEC_STEP(i);
		is_null[i] = (bitmap[i / 8] & (1 << (i % 8))) == 0;
		keys[i] = is_null[i] ? 0 : *values++;
	}
	*nulls = is_null;
	return keys;
}

/*
 * The keys of an int8[] argument, ascending and distinct, without nulls;
 * NULL, and *n is 0, if it is null
 */
const int64 *
EmbeddingSortedKeysArgument(FunctionCallInfo fcinfo, int argument, const char *name, uint64 *n)
{
	bool	   *nulls;
	const int64 *keys;
	int64	   *sorted;
	uint64		nkeys;
	uint64		nsorted = 0;

	*n = 0;
	if (PG_ARGISNULL(argument))
		return NULL;
	keys = EmbeddingKeysArgument(fcinfo, argument, name, &nulls, &nkeys);
	sorted = MemoryContextAllocHuge(CurrentMemoryContext, (nkeys + 1) * sizeof(int64));
	for (uint64 i = 0; i < nkeys; i++)
	{
		GPUVEC_STEP(i);
		if (nulls == NULL || !nulls[i])
			sorted[nsorted++] = keys[i];
	}
	EmbeddingSortKeys(sorted, nsorted);
	for (uint64 i = 0; i < nsorted; i++)
	{
		GPUVEC_STEP(i);
		if (i == 0 || sorted[i] != sorted[i - 1])
			sorted[(*n)++] = sorted[i];
	}
	return sorted;
}

/* The weights of n keys, as float32; NULL if the argument is null */
const float *
EmbeddingWeightsArgument(FunctionCallInfo fcinfo, int argument, uint64 n)
{
	ArrayType  *array;
	const double *values;
	float	   *weights;

	if (PG_ARGISNULL(argument))
		return NULL;
	array = plain_array(fcinfo, argument, "weights");
	values = EmbeddingFloatsArgument(fcinfo, argument, "weights", &array);
	if (ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) != n)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("there must be as many weights as keys"),
				 errdetail("There are %d weights and " UINT64_FORMAT " keys.",
						   ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)), n)));
	weights = MemoryContextAllocHuge(CurrentMemoryContext, (n + 1) * sizeof(float));
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		weights[i] = (float) values[i];
	}
	return weights;
}

/* The elements of a float8[] argument, which must not be or contain nulls */
const double *
EmbeddingFloatsArgument(FunctionCallInfo fcinfo, int argument, const char *name, ArrayType **array)
{
	SearchRequireArgument(fcinfo, argument, name);
	*array = PG_GETARG_ARRAYTYPE_P(argument);
	if (array_contains_nulls(*array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not contain nulls", name)));
	return (const double *) ARR_DATA_PTR(*array);
}

/* Read a gradient, an array of any number of dimensions, as float32 */
void
EmbeddingGradientArgument(FunctionCallInfo fcinfo, int argument, const char *name,
						  EmbeddingBags *bags)
{
	ArrayType  *array;
	const double *values;
	float	   *gradient;

	values = EmbeddingFloatsArgument(fcinfo, argument, name, &array);
	bags->ngradient = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	gradient = MemoryContextAllocHuge(CurrentMemoryContext, (bags->ngradient + 1) * sizeof(float));
	for (uint64 i = 0; i < bags->ngradient; i++)
	{
		GPUVEC_STEP(i);
		gradient[i] = (float) values[i];
	}
	bags->gradient = gradient;
}

/* Read offsets: where each bag begins, and last the number of keys */
static void
take_offsets(FunctionCallInfo fcinfo, int argument, EmbeddingBags *bags)
{
	uint64		n;
	const int64 *offsets = EmbeddingKeysArgument(fcinfo, argument, "offsets", NULL, &n);

	if (n == 0 || offsets[0] != 0 || offsets[n - 1] != (int64) bags->nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("offsets must begin with 0 and end with the number of keys"),
				 errhint("Bag i has the keys from offsets[i] + 1 to offsets[i + 1].")));
	for (uint64 i = 1; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (offsets[i - 1] > offsets[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("offsets must be sorted in ascending order")));
	}
	bags->nbags = n - 1;
	bags->offsets = (const uint64 *) offsets;
}

/* Read hotness: the number of keys of each bag */
static void
take_hotness(FunctionCallInfo fcinfo, int argument, EmbeddingBags *bags)
{
	int64		hotness = PG_GETARG_INT64(argument);
	uint64	   *offsets;

	if (hotness < 1 || bags->nkeys % hotness != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of keys must be a multiple of hotness"),
				 errdetail("There are " UINT64_FORMAT " keys, and hotness is " INT64_FORMAT ".",
						   bags->nkeys, hotness)));
	bags->nbags = bags->nkeys / hotness;
	offsets = MemoryContextAllocHuge(CurrentMemoryContext, (bags->nbags + 1) * sizeof(uint64));
	for (uint64 bag = 0; bag <= bags->nbags; bag++)
	{
		GPUVEC_STEP(bag);
		offsets[bag] = bag * hotness;
	}
	bags->offsets = offsets;
}

/* Read how the keys of a batch form bags: offsets or hotness */
void
EmbeddingBagsArguments(FunctionCallInfo fcinfo, int offsets_argument, int hotness_argument,
					   EmbeddingBags *bags)
{
	if (PG_ARGISNULL(offsets_argument) == PG_ARGISNULL(hotness_argument))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("either offsets or hotness must be given")));
	if (PG_ARGISNULL(offsets_argument))
		take_hotness(fcinfo, hotness_argument, bags);
	else
		take_offsets(fcinfo, offsets_argument, bags);
}

/* Read the number of bags of a sample */
int64
EmbeddingSlotsArgument(FunctionCallInfo fcinfo, int argument, uint64 nbags)
{
	int64		slots;

	SearchRequireArgument(fcinfo, argument, "slots");
	slots = PG_GETARG_INT64(argument);
	if (slots < 1 || nbags % slots != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of bags must be a multiple of slots"),
				 errdetail("There are " UINT64_FORMAT " bags, and slots is " INT64_FORMAT ".",
						   nbags, slots)));
	return slots;
}

/* The position of a name in a list, or -1 */
static int
find_name(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

gpuvec_pool_mode
EmbeddingModeArgument(FunctionCallInfo fcinfo, int argument)
{
	static const char *const names[] = GPUVEC_POOL_MODE_NAMES;
	char	   *name;
	int			mode;

	SearchRequireArgument(fcinfo, argument, "mode");
	name = text_to_cstring(PG_GETARG_TEXT_PP(argument));
	mode = find_name(name, names, GPUVEC_N_POOL_MODES);
	if (mode < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown mode \"%s\"", name),
				 errhint("Available modes are sum, mean and concat.")));
	return (gpuvec_pool_mode) mode;
}

gpuvec_missing
EmbeddingMissingArgument(FunctionCallInfo fcinfo, int argument)
{
	static const char *const names[] = GPUVEC_MISSING_NAMES;
	char	   *name;
	int			missing;

	SearchRequireArgument(fcinfo, argument, "missing");
	name = text_to_cstring(PG_GETARG_TEXT_PP(argument));
	missing = find_name(name, names, GPUVEC_N_MISSING);
	if (missing < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown treatment of missing keys \"%s\"", name),
				 errhint("Available are zero, skip and error.")));
	return (gpuvec_missing) missing;
}

/*
 * Read the arguments of a gradient.  False if the keys are null.  With
 * `batch` there are offsets and hotness.  *next is the position of the
 * argument after mode, weights and missing.
 */
bool
EmbeddingGradientArguments(FunctionCallInfo fcinfo, bool batch, EmbeddingBags *bags, int *next)
{
	int			mode = batch ? ARG_GRADIENT_HOTNESS + 1 : ARG_GRADIENT + 1;
	uint64	   *offsets;

	*next = mode + 3;
	if (PG_ARGISNULL(EMBEDDING_ARG_KEYS))
		return false;
	bags->mode = EmbeddingModeArgument(fcinfo, mode);
	bags->missing = EmbeddingMissingArgument(fcinfo, mode + 2);
	bags->keys = EmbeddingKeysArgument(fcinfo, EMBEDDING_ARG_KEYS, "keys", NULL, &bags->nkeys);
	bags->weights = EmbeddingWeightsArgument(fcinfo, mode + 1, bags->nkeys);
	EmbeddingGradientArgument(fcinfo, ARG_GRADIENT, "upstream gradient", bags);
	if (batch)
	{
		EmbeddingBagsArguments(fcinfo, ARG_GRADIENT_OFFSETS, ARG_GRADIENT_HOTNESS, bags);
		return true;
	}
	offsets = palloc_array(uint64, 2);
	offsets[0] = 0;
	offsets[1] = bags->nkeys;
	bags->offsets = offsets;
	bags->nbags = 1;
	return true;
}

/* Bytes of a real[] of n > 0 elements */
static Size
array_size(uint64 n)
{
	Size		size = ARR_OVERHEAD_NONULLS(1) + n * sizeof(float);

	if (size > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("array size exceeds the maximum allowed (%d)", (int) MaxAllocSize)));
	return size;
}

/* Make a real[] of n elements in `size` bytes of memory */
static Datum
fill_array(ArrayType *array, Size size, const float *elements, uint64 n)
{
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = 0;
	array->elemtype = FLOAT4OID;
	ARR_DIMS(array)[0] = (int) n;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), elements, n * sizeof(float));
	return PointerGetDatum(array);
}

/* A real[] of n elements */
Datum
EmbeddingArray(const float *elements, uint64 n)
{
	Size		size;

	if (n == 0)
		return PointerGetDatum(construct_empty_array(FLOAT4OID));
	size = array_size(n);
	return fill_array(palloc(size), size, elements, n);
}

/*
 * Make a real[] of n elements in place of the previous one.  The current
 * memory context must be the same in all calls with this room.
 */
Datum
EmbeddingNextArray(EmbeddingArrayBuffer *buffer, const float *elements, uint64 n)
{
	Size		size;

	if (n == 0)
	{
		if (buffer->empty == NULL)
			buffer->empty = construct_empty_array(FLOAT4OID);
		return PointerGetDatum(buffer->empty);
	}
	size = array_size(n);
	if (size > buffer->size)
	{
		if (buffer->array)
			pfree(buffer->array);
		buffer->array = palloc(size);
		buffer->size = size;
	}
	return fill_array(buffer->array, size, elements, n);
}
