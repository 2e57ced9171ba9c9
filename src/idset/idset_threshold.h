/*-------------------------------------------------------------------------
 *
 * idset_threshold.h
 *	  The right side of the operator <<->>: query, least score, measure.
 *
 * Thresholds of vectors (idvec/idvec_threshold.c) are rows of the same kind.
 * Rankings (idset_ranking.c) are rows of a query and a measure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_THRESHOLD_H
#define GPUVEC_IDSET_THRESHOLD_H

#include "gpuvec.h"

#include "access/htup.h"
#include "core/measure.h"
#include "idset/idset.h"

typedef struct IdSetThreshold
{
	IdSet	   *query;			/* NULL: the query or min_score is null, so
								 * the operator returns null */
	double		min_score;		/* never NaN */
	gpuvec_scoring scoring;
} IdSetThreshold;

/*
 * Find a measure by name, "jaccard" or "tversky(0.7, 0.3)"; false if there is
 * none.  Other measures than tversky leave scoring->tversky alone.
 */
extern bool idset_find_measure(const char *name, gpuvec_scoring *scoring);

/* The same; an error if there is none */
extern void idset_measure_by_name(const char *name, gpuvec_scoring *scoring);

/*
 * Parse a value of type idset_threshold, in the current memory context.  The
 * query may point into the value.  If a part is invalid: an error if `raise`,
 * else false.
 */
extern bool idset_threshold_parse(HeapTupleHeader value, IdSetThreshold *result, bool raise);

/* The parts of a threshold, of sets or of vectors */
typedef struct ThresholdParts
{
	bool		isnull;			/* the query or min_score is null */
	Datum		query;
	double		min_score;
	const char *measure;		/* palloc'd; NULL: the default */
} ThresholdParts;

/*
 * Take a threshold apart.  False: min_score is not a number, and is not to
 * `raise` an error.
 */
extern bool threshold_parts(HeapTupleHeader value, bool raise, ThresholdParts *parts);

/*
 * For rows of other kinds, too: take a row apart whose columns have these
 * types (InvalidOid: any); the result of a function that makes a row of its
 * arguments; find a measure by name: if there is none, an error if `raise`,
 * else false
 */
extern void threshold_deform(HeapTupleHeader value, const Oid *types, int n, Datum *values,
							 bool *nulls);
extern Datum threshold_row(FunctionCallInfo fcinfo);
extern bool threshold_measure(const char *name, bool raise, gpuvec_scoring *scoring);

/*
 * The result of a function (query, number, measure) that returns a threshold:
 * with this query and score
 */
extern Datum threshold_reaching(FunctionCallInfo fcinfo, Datum query, double min_score);

/*
 * The least score of sets that are at most this far by a measure; all
 * distances are less than NaN
 */
extern double idset_threshold_within(double distance, const text *measure);

/*
 * The right side of a call of <<->>, <<~>> or <<%~>>, its argument 1.  It is
 * parsed once for the calls with the same value that follow.
 */
extern const IdSetThreshold *idset_threshold_argument(FunctionCallInfo fcinfo);

/* True if a set of `len` ids can reach the least score */
static inline bool
idset_threshold_possible(const IdSetThreshold *threshold, uint32 len)
{
	uint32		a = idset_count(threshold->query);
	gpuvec_shared most = {Min(a, len), a, len};

	/* scores never fall when the number of common ids grows */
	return gpuvec_score_with(threshold->scoring, most) >= threshold->min_score;
}

static inline bool
idset_threshold_reached(const IdSetThreshold *threshold, const IdSet *set)
{
	return gpuvec_score_with(threshold->scoring, idset_shared(idset_span(threshold->query), idset_span(set))) >=
		threshold->min_score;
}

#endif							/* GPUVEC_IDSET_THRESHOLD_H */
