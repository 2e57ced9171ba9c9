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
#include "idset/idset_condition.h"
#include "idset/idset_threshold.h"
#include "parser/scansup.h"

#define WEIGHTS_RULE	"finite, at least 0, and not both 0"

/* Skip white space, which is the same in every locale */
static const char *
skip_space(const char *p)
{
	while (scanner_isspace(*p))
		p++;
	return p;
}

/* Skip space, a character, and space; NULL if it is not there */
static const char *
skip_char(const char *p, char c)
{
	p = p ? skip_space(p) : NULL;
	return p && *p == c ? skip_space(p + 1) : NULL;
}

/*
 * Read a number as SQL writes it, without "infinity" and the like; NULL if
 * there is none
 */
static const char *
read_weight(const char *p, double *weight)
{
	Size		length = p ? strspn(p, "+-.0123456789eE") : 0;
	char	   *end;

	if (length == 0)
		return NULL;
	*weight = strtod(p, &end) + 0.0;	/* -0 becomes 0 */
	return end == p + length ? end : NULL;
}

/* "tversky", whatever its case; returns what follows, or NULL */
static const char *
tversky_name(const char *name)
{
	static const char tversky[] = "tversky";

	name = skip_space(name);
	return pg_strncasecmp(name, tversky, strlen(tversky)) == 0 ? name + strlen(tversky) : NULL;
}

/* Read "tversky(alpha, beta)"; false if the text is anything else */
static bool
find_tversky(const char *name, gpuvec_tversky *tversky)
{
	const char *p = skip_char(tversky_name(name), '(');
	double		alpha = 0;
	double		beta = 0;

	p = skip_char(read_weight(p, &alpha), ',');
	p = skip_char(read_weight(p, &beta), ')');
	if (p == NULL || *p != '\0' || !gpuvec_tversky_valid(alpha, beta))
		return false;
	*tversky = gpuvec_make_tversky(alpha, beta);
	return true;
}

/*
 * Names count whatever their case.  Chemists call Jaccard's measure
 * Tanimoto's.
 */
bool
idset_find_measure(const char *name, gpuvec_scoring *scoring)
{
	static const char *const names[] = GPUVEC_MEASURE_NAMES;

	if (pg_strcasecmp(name, "tanimoto") == 0)
		name = names[GPUVEC_JACCARD];
	for (int i = 0; i < GPUVEC_N_MEASURES; i++)
	{
		if (pg_strcasecmp(name, names[i]) == 0)
		{
			scoring->measure = (gpuvec_measure) i;
			return true;
		}
	}
	if (!find_tversky(name, &scoring->tversky))
		return false;
	scoring->measure = GPUVEC_TVERSKY;
	return true;
}

void
idset_measure_by_name(const char *name, gpuvec_scoring *scoring)
{
	if (idset_find_measure(name, scoring))
		return;
	if (tversky_name(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid weights of similarity measure \"%s\"", name),
				 errhint("Write tversky(alpha, beta), such as tversky(0.7, 0.3). Weights are " WEIGHTS_RULE ".")));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown similarity measure \"%s\"", name),
			 errhint("Available measures are braun_blanquet, jaccard, cosine, dice, overlap, containment, intersection, hamming and tversky(alpha, beta).")));
}

/* What the arguments share */
static gpuvec_shared
shared_by_args(FunctionCallInfo fcinfo)
{
	IdSet	   *a = PG_GETARG_IDSET_P(0);
	IdSet	   *b = PG_GETARG_IDSET_P(1);
	gpuvec_shared shared = idset_shared(idset_span(a), idset_span(b));

	PG_FREE_IF_COPY(a, 0);
	PG_FREE_IF_COPY(b, 1);
	return shared;
}

/* Score of the second argument; the first is the query */
static Datum
score_args(FunctionCallInfo fcinfo, gpuvec_measure measure)
{
	return Float8GetDatum(gpuvec_score(measure, shared_by_args(fcinfo)));
}

/* Distance between the arguments */
static Datum
distance_args(FunctionCallInfo fcinfo, gpuvec_measure measure)
{
	return Float8GetDatum(gpuvec_distance(measure, shared_by_args(fcinfo)));
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

/* tversky_similarity(query idset, idset, alpha float8, beta float8) */
PG_FUNCTION_INFO_V1(tversky_similarity);
Datum
tversky_similarity(PG_FUNCTION_ARGS)
{
	double		alpha = PG_GETARG_FLOAT8(2) + 0.0;
	double		beta = PG_GETARG_FLOAT8(3) + 0.0;

	if (!gpuvec_tversky_valid(alpha, beta))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid weights %g and %g of similarity measure tversky", alpha, beta),
				 errhint("Weights are " WEIGHTS_RULE ".")));
	return Float8GetDatum(gpuvec_tversky_score(gpuvec_make_tversky(alpha, beta),
											   shared_by_args(fcinfo)));
}

/* intersection_count(idset, idset): the number of common ids */
PG_FUNCTION_INFO_V1(intersection_count);
Datum
intersection_count(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) shared_by_args(fcinfo).common);
}

/*
 * hamming_distance(idset, idset): the number of ids in exactly one of the
 * sets
 */
PG_FUNCTION_INFO_V1(hamming_distance);
Datum
hamming_distance(PG_FUNCTION_ARGS)
{
	gpuvec_shared shared = shared_by_args(fcinfo);

	PG_RETURN_INT32((int32) (shared.a + shared.b - 2 * shared.common));
}

/*
 * The address of a function as this library has it.  The names are not ours
 * alone, and another library's function of the same name may stand in for
 * one, except under a hidden name.
 */
#define OWN_FUNCTION(name) \
static Datum own_##name(PG_FUNCTION_ARGS) __attribute__((alias(#name)))

OWN_FUNCTION(braun_blanquet_similarity);
OWN_FUNCTION(jaccard_similarity);
OWN_FUNCTION(cosine_similarity);
OWN_FUNCTION(dice_similarity);
OWN_FUNCTION(overlap_similarity);
OWN_FUNCTION(containment_similarity);
OWN_FUNCTION(tversky_similarity);
OWN_FUNCTION(intersection_count);
OWN_FUNCTION(hamming_distance);
OWN_FUNCTION(idset_braun_blanquet_distance);
OWN_FUNCTION(idset_jaccard_distance);
OWN_FUNCTION(idset_cosine_distance);
OWN_FUNCTION(idset_negative_intersection);
OWN_FUNCTION(idset_hamming_distance);

#define SCORE(name, measure, text) {own_##name, measure, text, text, false, false}
#define DISTANCE(name, measure, text) {own_##name, measure, text, text, true, false}

/* containment of a row in the query has no name: tversky(0, 1) is the same */
static const IdSetScored scored[] = {
	SCORE(braun_blanquet_similarity, GPUVEC_BRAUN_BLANQUET, "braun_blanquet"),
	SCORE(jaccard_similarity, GPUVEC_JACCARD, "jaccard"),
	SCORE(cosine_similarity, GPUVEC_COSINE, "cosine"),
	SCORE(dice_similarity, GPUVEC_DICE, "dice"),
	SCORE(overlap_similarity, GPUVEC_OVERLAP, "overlap"),
	{own_containment_similarity, GPUVEC_CONTAINMENT, "containment", "tversky(0, 1)", false, false},
	{own_tversky_similarity, GPUVEC_TVERSKY, NULL, NULL, false, true},
	SCORE(intersection_count, GPUVEC_INTERSECTION, "intersection"),
	DISTANCE(hamming_distance, GPUVEC_HAMMING, "hamming"),
	DISTANCE(idset_braun_blanquet_distance, GPUVEC_BRAUN_BLANQUET, "braun_blanquet"),
	DISTANCE(idset_jaccard_distance, GPUVEC_JACCARD, "jaccard"),
	DISTANCE(idset_cosine_distance, GPUVEC_COSINE, "cosine"),
	DISTANCE(idset_negative_intersection, GPUVEC_INTERSECTION, "intersection"),
	DISTANCE(idset_hamming_distance, GPUVEC_HAMMING, "hamming")
};

const IdSetScored *
idset_scored(Oid function)
{
	FmgrInfo	info;

	fmgr_info(function, &info);
	for (int i = 0; i < lengthof(scored); i++)
		if (info.fn_addr == scored[i].function)
			return &scored[i];
	return NULL;
}

const IdSetScored *
idset_scored_common(void)
{
	static const IdSetScored common = SCORE(intersection_count, GPUVEC_INTERSECTION, "intersection");

	return &common;
}
