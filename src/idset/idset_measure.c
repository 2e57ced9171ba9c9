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

const char *const idset_measure_names[] = GPUVEC_MEASURE_NAMES;

/* True if a measure is in the table below: one that is not has no name */
static bool
has_row(int measure)
{
	return idset_measures[measure].score != NULL || idset_measures[measure].distances[0] != NULL;
}

/*
 * Names count whatever their case.  Chemists call Jaccard's measure
 * Tanimoto's.
 */
bool
idset_find_measure(const char *name, gpuvec_scoring *scoring)
{
	if (pg_strcasecmp(name, "tanimoto") == 0)
		name = idset_measure_names[GPUVEC_JACCARD];
	for (int i = 0; i < GPUVEC_N_MEASURES; i++)
	{
		if (has_row(i) && pg_strcasecmp(name, idset_measure_names[i]) == 0)
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

/* All names, as a list that "and" may follow */
static const char *
list_names(void)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < GPUVEC_N_MEASURES; i++)
		if (has_row(i))
			appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", idset_measure_names[i]);
	return list.data;
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
			 errhint("Available measures are %s and tversky(alpha, beta).", list_names())));
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

/*
 * The address of a function as this library has it.  The names are not ours
 * alone, and another library's function of the same name may stand in for
 * one, except under a hidden name.
 */
#define OWN_FUNCTION(name) \
static Datum own_##name(PG_FUNCTION_ARGS) __attribute__((alias(#name)))

#define SCORE_FUNCTION(name, measure) \
PG_FUNCTION_INFO_V1(name); \
Datum \
name(PG_FUNCTION_ARGS) \
{ \
	return score_args(fcinfo, measure); \
} \
OWN_FUNCTION(name);

#define DISTANCE_FUNCTION(name, measure) \
PG_FUNCTION_INFO_V1(name); \
Datum \
name(PG_FUNCTION_ARGS) \
{ \
	return distance_args(fcinfo, measure); \
} \
OWN_FUNCTION(name);

SCORE_FUNCTION(braun_blanquet_similarity, GPUVEC_BRAUN_BLANQUET)
SCORE_FUNCTION(jaccard_similarity, GPUVEC_JACCARD)
SCORE_FUNCTION(cosine_similarity, GPUVEC_COSINE)
SCORE_FUNCTION(dice_similarity, GPUVEC_DICE)
SCORE_FUNCTION(overlap_similarity, GPUVEC_OVERLAP)
SCORE_FUNCTION(containment_similarity, GPUVEC_CONTAINMENT)
SCORE_FUNCTION(kulczynski_similarity, GPUVEC_KULCZYNSKI)

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
	double		alpha = PG_GETARG_FLOAT8(2);
	double		beta = PG_GETARG_FLOAT8(3);

	if (!gpuvec_tversky_valid(alpha, beta))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid weights %g and %g of similarity measure tversky", alpha, beta),
				 errhint("Weights are " WEIGHTS_RULE ".")));
	return Float8GetDatum(gpuvec_tversky_score(gpuvec_make_tversky(alpha, beta),
											   shared_by_args(fcinfo)));
}

OWN_FUNCTION(tversky_similarity);

/* intersection_count(idset, idset): the number of common ids */
PG_FUNCTION_INFO_V1(intersection_count);
Datum
intersection_count(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) shared_by_args(fcinfo).common);
}

OWN_FUNCTION(intersection_count);

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

OWN_FUNCTION(hamming_distance);

const IdSetMeasure idset_measures[] = {
	[GPUVEC_BRAUN_BLANQUET] = {
		own_braun_blanquet_similarity, {own_idset_braun_blanquet_distance}, .divided = true, .symmetric = true,
		.sorts = IDSET_SORTS_ALL, .sorts_like = GPUVEC_BRAUN_BLANQUET
	},
	[GPUVEC_JACCARD] = {
		own_jaccard_similarity, {own_idset_jaccard_distance}, .divided = true, .symmetric = true,
		.sorts = IDSET_SORTS_ALL, .sorts_like = GPUVEC_JACCARD
	},
	/* different scores may have one distance */
	[GPUVEC_COSINE] = {
		own_cosine_similarity, {own_idset_cosine_distance}, .symmetric = true,
		.sorts = IDSET_SORTS_DISTANCES, .sorts_like = GPUVEC_COSINE
	},
	/* grows with Jaccard's */
	[GPUVEC_DICE] = {
		own_dice_similarity, .symmetric = true,
		.sorts = IDSET_SORTS_ALL, .sorts_like = GPUVEC_JACCARD
	},
	[GPUVEC_OVERLAP] = {own_overlap_similarity, .symmetric = true},
	/* of a row in the query it has no name */
	[GPUVEC_CONTAINMENT] = {
		own_containment_similarity, .turned = "tversky(0, 1)",
		.sorts = IDSET_SORTS_ROWS, .sorts_like = GPUVEC_INTERSECTION
	},
	[GPUVEC_INTERSECTION] = {
		own_intersection_count, {own_idset_negative_intersection}, .counts = true, .symmetric = true,
		.sorts = IDSET_SORTS_ALL, .sorts_like = GPUVEC_INTERSECTION
	},
	[GPUVEC_HAMMING] = {
		NULL, {own_hamming_distance, own_idset_hamming_distance}, .counts = true, .symmetric = true,
		.sorts = IDSET_SORTS_ALL, .sorts_like = GPUVEC_HAMMING
	},
	[GPUVEC_KULCZYNSKI] = {own_kulczynski_similarity, .symmetric = true},
	[GPUVEC_TVERSKY] = {own_tversky_similarity, .weighted = true}
};

StaticAssertDecl(lengthof(idset_measures) == GPUVEC_N_MEASURES + 1, "each measure has a row");

/* The largest count or count of differences: two sets of 2^16 ids */
#define MOST_COUNT		131072.0

IdSetScored
idset_scored_by(gpuvec_measure measure, bool distance)
{
	bool		counts = idset_measures[measure].counts;
	IdSetScored scored = {
		.measure = measure,.distance = distance,.negated = counts,.most = counts ? MOST_COUNT : 1
	};

	if (distance && measure == GPUVEC_INTERSECTION)
	{
		scored.least = -MOST_COUNT;
		scored.most = 0;
	}
	return scored;
}

bool
idset_scored(PGFunction function, IdSetScored *scored)
{
	for (int i = 0; i < lengthof(idset_measures); i++)
	{
		const IdSetMeasure *measure = &idset_measures[i];
		bool		distance = function == measure->distances[0] || function == measure->distances[1];

		if (!distance && function != measure->score)
			continue;
		*scored = idset_scored_by((gpuvec_measure) i, distance);
		return true;
	}
	return false;
}
