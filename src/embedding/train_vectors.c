/*-------------------------------------------------------------------------
 *
 * train_vectors.c
 *	  What the statements of a training compute of each row.
 *
 * New vectors, rows of gradients, and steps of an optimizer: functions of SQL
 * that the statements of train.c call.
 *
 * Arithmetic is in float64; each result is rounded to float32.
 *
 * What is not finite is never stored: one such element makes all scores of
 * its vector NaN, and each later step keeps it.  So gradients, vectors,
 * states and results are checked, and an error takes the whole step back.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "core/pooling_grad.h"
#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "search/set_function.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_initial_vector);
PG_FUNCTION_INFO_V1(gpuvec_gradient_rows);
PG_FUNCTION_INFO_V1(gpuvec_vector_axpy);
PG_FUNCTION_INFO_V1(gpuvec_vector_square);
PG_FUNCTION_INFO_V1(gpuvec_sgd_step);
PG_FUNCTION_INFO_V1(gpuvec_adagrad_step);
PG_FUNCTION_INFO_V1(gpuvec_adam_step);

/* Fail unless all elements of something of a key, if it has it, are finite */
static void
require_finite(const float *elements, int n, int64 key, const char *what, const char *hint)
{
	for (int i = 0; elements != NULL && i < n; i++)
		if (!isfinite(elements[i]))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("%s of key " INT64_FORMAT " is not finite", what, key),
					 errdetail("Element %d is %s.", i + 1,
							   isnan(elements[i]) ? "NaN" : "infinite, or too large for type real"),
					 errhint("%s", hint)));
}

/* The vector that a step begins with, and the optimizer's state for it */
static void
require_begun(const float *x, const float *m, const float *v, int n, int64 key)
{
	require_finite(x, n, key, "vector", "A step would keep that: store another vector first.");
	require_finite(m, n, key, "state", "Try smaller gradients, or delete the state of this key.");
	require_finite(v, n, key, "state", "Try smaller gradients, or delete the state of this key.");
}

/* The vector that a step has made for a key, or an error */
static Datum
stepped(const float *elements, int n, int64 key)
{
	require_finite(elements, n, key, "new vector",
				   "Try a smaller learning rate, smaller gradients, or an epsilon above 0.");
	return EmbeddingArray(elements, n);
}

/* Distributions of the elements of new vectors */
typedef enum Initializer
{
	INITIAL_ZEROS,
	INITIAL_UNIFORM,
	INITIAL_NORMAL
} Initializer;

/*
 * An almost normally distributed value is the sum of this many uniform values
 * in [0, 1), less the mean; its variance is then 1
 */
#define NORMAL_SUMMANDS		12

static Initializer
parse_initializer(const char *name)
{
	static const char *const names[] = {"zeros", "uniform", "normal"};

	for (int i = 0; i < lengthof(names); i++)
		if (strcmp(name, names[i]) == 0)
			return (Initializer) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown initializer \"%s\"", name),
			 errhint("Available initializers are zeros, uniform and normal.")));
	return INITIAL_ZEROS;
}

/* A pseudo-random number in [0, 1); equal arguments give equal numbers */
static double
random_at(int64 seed, int64 key, uint64 number)
{
	uint64		h = gpuvec_hash_key(seed ^ INT64CONST(0x5851F42D4C957F2D));

	h = gpuvec_hash_key((int64) (h ^ (uint64) key) + INT64CONST(0x14057B7EF767814F));
	h = gpuvec_hash_key((int64) (h + number * UINT64CONST(0x9E3779B97F4A7C15)));
	return (double) (h >> 11) / 9007199254740992.0;
}

/* Element i of the new vector of a key */
static float
initial_element(Initializer initializer, double scale, int64 seed, int64 key, uint64 i)
{
	double		sum = -NORMAL_SUMMANDS / 2;

	switch (initializer)
	{
		case INITIAL_UNIFORM:
			return (float) ((2 * random_at(seed, key, i) - 1) * scale);
		case INITIAL_NORMAL:
			for (int j = 0; j < NORMAL_SUMMANDS; j++)
				sum += random_at(seed, key, i * NORMAL_SUMMANDS + j);
			return (float) (sum * scale);
		default:
			return 0;
	}
}

/* gpuvec_initial_vector(key, width, initializer, scale, seed) */
Datum
gpuvec_initial_vector(PG_FUNCTION_ARGS)
{
	int64		key = PG_GETARG_INT64(0);
	int32		width = PG_GETARG_INT32(1);
	Initializer initializer = parse_initializer(text_to_cstring(PG_GETARG_TEXT_PP(2)));
	double		scale = PG_GETARG_FLOAT8(3);
	int64		seed = PG_GETARG_INT64(4);
	float	   *elements;

	if (width < 1 || width > GPUVEC_MAX_WIDTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("width must be between 1 and %d", GPUVEC_MAX_WIDTH)));
	elements = palloc_array(float, width);
	for (int32 i = 0; i < width; i++)
		elements[i] = initial_element(initializer, scale, seed, key, i);
	require_finite(elements, width, key, "initial vector", "Try a smaller scale.");
	return EmbeddingArray(elements, width);
}

/*
 * gpuvec_gradient_rows(keys, gradients): one row for each distinct key,
 * ascending, with the sum of its gradients.  `gradients` is one array of the
 * gradients of all keys, in the order of keys.
 */
Datum
gpuvec_gradient_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	EmbeddingBags bags = {0};
	gpuvec_upstream up = {0};
	gpuvec_share *shares;
	float	   *sum;
	float	   *scratch;
	uint32		width;

	GpuvecMaterializedSRF(fcinfo);
	bags.keys = EmbeddingKeysArgument(fcinfo, 0, "keys", NULL, &bags.nkeys);
	EmbeddingGradientArgument(fcinfo, 1, "gradients", &bags);
	if (bags.nkeys == 0 ? bags.ngradient > 0 : bags.ngradient % bags.nkeys != 0)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("gradients must have the same number of elements for each key"),
				 errdetail("There are " UINT64_FORMAT " elements and " UINT64_FORMAT " keys.",
						   bags.ngradient, bags.nkeys)));
	if (bags.nkeys == 0)
		return (Datum) 0;
	if (bags.ngradient / bags.nkeys > GPUVEC_MAX_WIDTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gradients cannot have more than %d elements", GPUVEC_MAX_WIDTH)));
	width = (uint32) (bags.ngradient / bags.nkeys);
	sum = palloc_array(float, width + 1);
	scratch = palloc_array(float, (width + 1) * GPUVEC_SCRATCH_VECTORS);
	up.gradient = bags.gradient;
	up.width = width;
	shares = MemoryContextAllocHuge(CurrentMemoryContext, bags.nkeys * sizeof(gpuvec_share));
	for (uint64 i = 0; i < bags.nkeys; i++)
	{
		GPUVEC_STEP(i);
		shares[i].key = bags.keys[i];
		shares[i].row = i;
		shares[i].factor = 1;
	}
	shares = gpuvec_sort_shares(shares, MemoryContextAllocHuge(CurrentMemoryContext,
															   bags.nkeys * sizeof(gpuvec_share)),
								bags.nkeys);
	for (uint64 i = 0; i < bags.nkeys;)
	{
		uint64		first = i;
		Datum		values[2];
		bool		nulls[2] = {false, false};

		CHECK_FOR_INTERRUPTS();
		while (i < bags.nkeys && shares[i].key == shares[first].key)
		{
			GPUVEC_STEP(i);
			i++;
		}
		gpuvec_sum_shares(sum, shares + first, i - first, &up, scratch);
		require_finite(sum, width, shares[first].key, "gradient",
					   "Leave such gradients out, or clip them.");
		values[0] = Int64GetDatum(shares[first].key);
		values[1] = EmbeddingArray(sum, width);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		pfree(DatumGetPointer(values[1]));
	}
	return (Datum) 0;
}

/*
 * The elements of a real[] argument, which must have *n elements.  If *n is
 * -1, any number will do, and *n is set to it.  `key` is the position of the
 * key that an error names, or -1.
 */
static const float *
vector_argument(FunctionCallInfo fcinfo, int argument, int *n, int key)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(argument);
	int			count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	if (ARR_NDIM(array) > 1 || array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("vectors must have one dimension and no null elements")));
	if (*n >= 0 && *n != count)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("vector and gradient have different numbers of elements"),
				 key < 0 ? errdetail("One has %d, the other %d.", *n, count) :
				 errdetail("The vector with key " INT64_FORMAT " has %d, its gradient or state %d.",
						   PG_GETARG_INT64(key), *n, count)));
	*n = count;
	return (const float *) ARR_DATA_PTR(array);
}

/* gpuvec_vector_axpy(a, x, y): a x + y */
Datum
gpuvec_vector_axpy(PG_FUNCTION_ARGS)
{
	double		a = PG_GETARG_FLOAT8(0);
	int			n = -1;
	const float *x = vector_argument(fcinfo, 1, &n, -1);
	const float *y = vector_argument(fcinfo, 2, &n, -1);
	float	   *out = palloc_array(float, n + 1);

	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		out[i] = (float) (a * x[i] + y[i]);
	}
	return EmbeddingArray(out, n);
}

/* gpuvec_vector_square(a, x): a times the square of each element of x */
Datum
gpuvec_vector_square(PG_FUNCTION_ARGS)
{
	double		a = PG_GETARG_FLOAT8(0);
	int			n = -1;
	const float *x = vector_argument(fcinfo, 1, &n, -1);
	float	   *out = palloc_array(float, n + 1);

	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		out[i] = (float) (a * x[i] * x[i]);
	}
	return EmbeddingArray(out, n);
}

/* gpuvec_sgd_step(x, gradient, learning_rate, key): the new x */
Datum
gpuvec_sgd_step(PG_FUNCTION_ARGS)
{
	int			n = -1;
	const float *x = vector_argument(fcinfo, 0, &n, 3);
	const float *g = vector_argument(fcinfo, 1, &n, 3);
	double		rate = PG_GETARG_FLOAT8(2);
	int64		key = PG_GETARG_INT64(3);
	float	   *out = palloc_array(float, n + 1);

	require_begun(x, NULL, NULL, n, key);
	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		out[i] = (float) (x[i] - rate * g[i]);
	}
	return stepped(out, n, key);
}

/*
 * Fail unless the state belongs to this optimizer and is complete.  Only
 * Adam's state has an m.  m and v are the positions of these arguments.
 */
static void
require_state(FunctionCallInfo fcinfo, const char *optimizer, bool has_m, int m, int v)
{
	if (PG_ARGISNULL(m) == has_m && !PG_ARGISNULL(v))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the state table belongs to another optimizer than \"%s\"", optimizer),
				 errdetail("Its column \"m\" is %s.", has_m ? "null" : "not null"),
				 errhint("Each optimizer needs a state table of its own.")));
	for (int i = 0; i < PG_NARGS(); i++)
		if (PG_ARGISNULL(i) && i != m)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("the state of optimizer \"%s\" is incomplete", optimizer),
					 errhint("Only the optimizer should change its state table.")));
}

/*
 * gpuvec_adagrad_step(x, gradient, m, sum of squares, learning_rate, epsilon,
 * key): the new x; m must be null
 */
Datum
gpuvec_adagrad_step(PG_FUNCTION_ARGS)
{
	int			n = -1;
	const float *x;
	const float *g;
	const float *v;
	double		rate;
	double		epsilon;
	float	   *out;

	require_state(fcinfo, "adagrad", false, 2, 3);
	x = vector_argument(fcinfo, 0, &n, 6);
	g = vector_argument(fcinfo, 1, &n, 6);
	v = vector_argument(fcinfo, 3, &n, 6);
	rate = PG_GETARG_FLOAT8(4);
	epsilon = PG_GETARG_FLOAT8(5);
	require_begun(x, NULL, v, n, PG_GETARG_INT64(6));
	out = palloc_array(float, n + 1);
	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		out[i] = (float) (x[i] - rate * g[i] / (sqrt(v[i]) + epsilon));
	}
	return stepped(out, n, PG_GETARG_INT64(6));
}

/*
 * gpuvec_adam_step(x, m, v, step, learning_rate, beta1, beta2, epsilon, key):
 * the new x
 */
Datum
gpuvec_adam_step(PG_FUNCTION_ARGS)
{
	int			n = -1;
	const float *x;
	const float *m;
	const float *v;
	double		step;
	double		rate;
	double		first;
	double		second;
	double		epsilon;
	float	   *out;

	require_state(fcinfo, "adam", true, 1, 2);
	x = vector_argument(fcinfo, 0, &n, 8);
	m = vector_argument(fcinfo, 1, &n, 8);
	v = vector_argument(fcinfo, 2, &n, 8);
	step = (double) PG_GETARG_INT64(3);
	rate = PG_GETARG_FLOAT8(4);
	first = 1 - pow(PG_GETARG_FLOAT8(5), step);
	second = 1 - pow(PG_GETARG_FLOAT8(6), step);
	epsilon = PG_GETARG_FLOAT8(7);
	require_begun(x, m, v, n, PG_GETARG_INT64(8));
	out = palloc_array(float, n + 1);
	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		out[i] = (float) (x[i] - rate * (m[i] / first) / (sqrt(v[i] / second) + epsilon));
	}
	return stepped(out, n, PG_GETARG_INT64(8));
}
