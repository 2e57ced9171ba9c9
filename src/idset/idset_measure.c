/*-------------------------------------------------------------------------
 *
 * idset_measure.c
 *	  SQL functions of the similarity measures, and distance operators (see
 *	  core/measure.h).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/measure.h"
#include "idset/idset.h"
#include "idset/idset_threshold.h"

/* Find a measure by name; false if there is none */
bool
idset_find_measure(const char *name, gpuvec_measure *measure)
{
	static const char *const names[] = GPUVEC_MEASURE_NAMES;

	for (int i = 0; i < GPUVEC_N_MEASURES; i++)
	{
		if (strcmp(name, names[i]) == 0)
		{
			*measure = (gpuvec_measure) i;
			return true;
		}
	}
	return false;
}

/* Find a measure by name; an error if there is none */
gpuvec_measure
idset_measure_by_name(const char *name)
{
	gpuvec_measure measure = GPUVEC_BRAUN_BLANQUET;

	if (!idset_find_measure(name, &measure))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown similarity measure \"%s\"", name),
				 errhint("Available measures are braun_blanquet, jaccard, cosine, dice, overlap, containment, intersection and hamming.")));
	return measure;
}

/* The lengths of both arguments and the number of their common ids */
static void
count_args(FunctionCallInfo fcinfo, uint32 *common, uint32 *a, uint32 *b)
{
	IdSet	   *x = PG_GETARG_IDSET_P(0);
	IdSet	   *y = PG_GETARG_IDSET_P(1);

	*a = idset_count(x);
	*b = idset_count(y);
	*common = idset_common(x, y);
	PG_FREE_IF_COPY(x, 0);
	PG_FREE_IF_COPY(y, 1);
}

/* Score of the second argument; the first is the query */
static Datum
score_args(FunctionCallInfo fcinfo, gpuvec_measure measure)
{
	uint32		common;
	uint32		a;
	uint32		b;

	count_args(fcinfo, &common, &a, &b);
	return Float8GetDatum(gpuvec_score(measure, common, a, b));
}

/* Distance between the arguments */
static Datum
distance_args(FunctionCallInfo fcinfo, gpuvec_measure measure)
{
	uint32		common;
	uint32		a;
	uint32		b;

	count_args(fcinfo, &common, &a, &b);
	return Float8GetDatum(gpuvec_distance(measure, common, a, b));
}

#define SCORE_FUNCTION(name, measure) \
PG_FUNCTION_INFO_V1(name); \
Datum \
name(PG_FUNCTION_ARGS) \
{ \
	return score_args(fcinfo, measure); \
}

#define DISTANCE_FUNCTION(name, measure) \
PG_FUNCTION_INFO_V1(name); \
Datum \
name(PG_FUNCTION_ARGS) \
{ \
	return distance_args(fcinfo, measure); \
}

SCORE_FUNCTION(braun_blanquet_similarity, GPUVEC_BRAUN_BLANQUET)
SCORE_FUNCTION(jaccard_similarity, GPUVEC_JACCARD)
SCORE_FUNCTION(cosine_similarity, GPUVEC_COSINE)
SCORE_FUNCTION(dice_similarity, GPUVEC_DICE)
SCORE_FUNCTION(overlap_similarity, GPUVEC_OVERLAP)
SCORE_FUNCTION(containment_similarity, GPUVEC_CONTAINMENT)

DISTANCE_FUNCTION(idset_braun_blanquet_distance, GPUVEC_BRAUN_BLANQUET)
DISTANCE_FUNCTION(idset_jaccard_distance, GPUVEC_JACCARD)
DISTANCE_FUNCTION(idset_cosine_distance, GPUVEC_COSINE)
DISTANCE_FUNCTION(idset_negative_intersection, GPUVEC_INTERSECTION)
DISTANCE_FUNCTION(idset_hamming_distance, GPUVEC_HAMMING)

/* intersection_count(idset, idset): the number of common ids */
PG_FUNCTION_INFO_V1(intersection_count);
Datum
intersection_count(PG_FUNCTION_ARGS)
{
	uint32		common;
	uint32		a;
	uint32		b;

	count_args(fcinfo, &common, &a, &b);
	PG_RETURN_INT32((int32) common);
}

/*
 * hamming_distance(idset, idset): the number of ids in exactly one of the
 * sets
 */
PG_FUNCTION_INFO_V1(hamming_distance);
Datum
hamming_distance(PG_FUNCTION_ARGS)
{
	uint32		common;
	uint32		a;
	uint32		b;

	count_args(fcinfo, &common, &a, &b);
	PG_RETURN_INT32((int32) (a + b - 2 * common));
}
