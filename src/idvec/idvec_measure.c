/*-------------------------------------------------------------------------
 *
 * idvec_measure.c
 *	  SQL functions of the measures of sparse vectors, and distance operators
 *	  (see core/sparse.h).
 *
 * Inner products are of two vectors, or of a set and a vector: a set's values
 * are all 1.  Search functions take measures by their names.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idvec/idvec.h"

PG_FUNCTION_INFO_V1(idvec_inner_product);
PG_FUNCTION_INFO_V1(idvec_cosine_similarity);
PG_FUNCTION_INFO_V1(idvec_jaccard_similarity);
PG_FUNCTION_INFO_V1(idset_inner_product);
PG_FUNCTION_INFO_V1(idvec_negative_inner_product);
PG_FUNCTION_INFO_V1(idvec_cosine_distance);
PG_FUNCTION_INFO_V1(idvec_jaccard_distance);
PG_FUNCTION_INFO_V1(idset_negative_inner_product);
PG_FUNCTION_INFO_V1(negative_inner_product_idset);

/* ---- names ---- */

static const char *const measure_names[] = GPUVEC_SPARSE_MEASURE_NAMES;

/*
 * Names count whatever their case.  Chemists call Jaccard's measure
 * Tanimoto's.
 */
bool
idvec_find_measure(const char *name, gpuvec_sparse_measure *measure)
{
	if (pg_strcasecmp(name, "tanimoto") == 0)
		name = measure_names[GPUVEC_SPARSE_JACCARD];
	for (int i = 0; i < lengthof(measure_names); i++)
		if (pg_strcasecmp(name, measure_names[i]) == 0)
		{
			*measure = (gpuvec_sparse_measure) i;
			return true;
		}
	return false;
}

gpuvec_sparse_measure
idvec_measure_by_name(const char *name)
{
	gpuvec_sparse_measure measure = GPUVEC_SPARSE_INNER_PRODUCT;

	if (!idvec_find_measure(name, &measure))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown similarity measure \"%s\" of vectors", name),
				 errhint("Available measures are %s, %s and %s.", measure_names[0],
						 measure_names[1], measure_names[2])));
	return measure;
}

/* ---- two vectors ---- */

void
idvec_report_negative(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("Jaccard's similarity is not defined for vectors with negative values"),
			 errhint("The operators <#> and <=> take them.")));
}

void
idvec_check_not_negative(const gpuvec_sparse *vector)
{
	if (!idvec_not_negative(vector))
		idvec_report_negative();
}

/* What the arguments share */
static gpuvec_sparse_shared
shared_by_args(FunctionCallInfo fcinfo, gpuvec_sparse_measure measure)
{
	IdVec	   *a = PG_GETARG_IDVEC_P(0);
	IdVec	   *b = PG_GETARG_IDVEC_P(1);
	gpuvec_sparse x = idvec_sparse(a);
	gpuvec_sparse y = idvec_sparse(b);
	gpuvec_sparse_shared shared;

	if (measure == GPUVEC_SPARSE_JACCARD)
	{
		idvec_check_not_negative(&x);
		idvec_check_not_negative(&y);
	}
	shared = idvec_shared(measure, &x, &y);
	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	return shared;
}

static Datum
score_args(FunctionCallInfo fcinfo, gpuvec_sparse_measure measure)
{
	return Float8GetDatum(gpuvec_sparse_score(measure, shared_by_args(fcinfo, measure)));
}

static Datum
distance_args(FunctionCallInfo fcinfo, gpuvec_sparse_measure measure)
{
	return Float8GetDatum(gpuvec_sparse_distance(measure, shared_by_args(fcinfo, measure)));
}

/* idvec_inner_product(idvec, idvec) */
Datum
idvec_inner_product(PG_FUNCTION_ARGS)
{
	return score_args(fcinfo, GPUVEC_SPARSE_INNER_PRODUCT);
}

/* idvec_cosine_similarity(idvec, idvec) */
Datum
idvec_cosine_similarity(PG_FUNCTION_ARGS)
{
	return score_args(fcinfo, GPUVEC_SPARSE_COSINE);
}

/* idvec_jaccard_similarity(idvec, idvec) */
Datum
idvec_jaccard_similarity(PG_FUNCTION_ARGS)
{
	return score_args(fcinfo, GPUVEC_SPARSE_JACCARD);
}

/* <#> operator */
Datum
idvec_negative_inner_product(PG_FUNCTION_ARGS)
{
	return distance_args(fcinfo, GPUVEC_SPARSE_INNER_PRODUCT);
}

/* <=> operator */
Datum
idvec_cosine_distance(PG_FUNCTION_ARGS)
{
	return distance_args(fcinfo, GPUVEC_SPARSE_COSINE);
}

/* <%> operator */
Datum
idvec_jaccard_distance(PG_FUNCTION_ARGS)
{
	return distance_args(fcinfo, GPUVEC_SPARSE_JACCARD);
}

/* ---- a set and a vector ---- */

/* What a set and a vector share, which are these arguments */
static gpuvec_sparse_shared
shared_with_set(FunctionCallInfo fcinfo, int set_arg, int vector_arg)
{
	IdSet	   *set = PG_GETARG_IDSET_P(set_arg);
	IdVec	   *vector = PG_GETARG_IDVEC_P(vector_arg);
	gpuvec_sparse x = idvec_sparse_of_set(set);
	gpuvec_sparse y = idvec_sparse(vector);
	gpuvec_sparse_shared shared = idvec_shared(GPUVEC_SPARSE_INNER_PRODUCT, &x, &y);

	PG_FREE_IF_COPY(set, set_arg);
	PG_FREE_IF_COPY(vector, vector_arg);
	return shared;
}

/* idset_inner_product(idset, idvec) */
Datum
idset_inner_product(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(gpuvec_sparse_score(GPUVEC_SPARSE_INNER_PRODUCT,
										 shared_with_set(fcinfo, 0, 1)));
}

/* <#> operator of a set and a vector */
Datum
idset_negative_inner_product(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(gpuvec_sparse_distance(GPUVEC_SPARSE_INNER_PRODUCT,
											shared_with_set(fcinfo, 0, 1)));
}

/* <#> operator of a vector and a set */
Datum
negative_inner_product_idset(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(gpuvec_sparse_distance(GPUVEC_SPARSE_INNER_PRODUCT,
											shared_with_set(fcinfo, 1, 0)));
}
