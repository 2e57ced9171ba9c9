/*-------------------------------------------------------------------------
 *
 * idset_condition.h
 *	  Other spellings of conditions that an index can search for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_CONDITION_H
#define GPUVEC_IDSET_CONDITION_H

#include "gpuvec.h"

#include "core/measure.h"
#include "fmgr.h"

/* What is ordered as a distance operator of an index orders */
typedef enum IdSetSorts
{
	IDSET_SORTS_NOTHING,
	IDSET_SORTS_DISTANCES,		/* distances of the measure, not its scores */
	IDSET_SORTS_ROWS,			/* all rows, if the first set is the query */
	IDSET_SORTS_ALL
} IdSetSorts;

/*
 * What is known of a measure, beside its name, its score and its bounds
 * (core/measure.h).  A field that is left out is the careful choice, except
 * `counts`.
 */
typedef struct IdSetMeasure
{
	PGFunction	score;			/* SQL functions of two sets: the score, ... */
	PGFunction	distances[2];	/* ... and what is less for similar sets */
	bool		counts;			/* a score is a number of ids, and its
								 * distance the negated one; others are at
								 * most 1, and their distances 1 - score */
	bool		divided;		/* score and distance are one division each,
								 * of numbers of ids */
	bool		weighted;		/* functions have weights as third and fourth
								 * argument */
	bool		symmetric;		/* both sets count alike */
	const char *turned;			/* otherwise the measure if the second set is
								 * the query; NULL: none */
	IdSetSorts	sorts;			/* by the operator of this measure: */
	gpuvec_measure sorts_like;
} IdSetMeasure;

extern const IdSetMeasure idset_measures[]; /* [GPUVEC_N_MEASURES + 1] */
extern const char *const idset_measure_names[]; /* [GPUVEC_N_MEASURES] */

/*
 * A function of two sets, vectors, or values that sets are made of: a score or
 * a distance
 */
typedef struct IdSetScored
{
	uint32		sparse;			/* a measure of vectors, as in gpuvec_scoring;
								 * 0: of sets, ... */
	gpuvec_measure measure;		/* ... this one, if the first argument is the
								 * query */
	bool		distance;		/* the less, the more similar */
	bool		negated;		/* a distance is a negated score, not 1 - score */
	Oid			made;			/* the sets are made of arguments of this type
								 * (ANYARRAYOID: any arrays); or InvalidOid */
	double		least;			/* no score, or distance, is less, */
	double		most;			/* ... or more */
} IdSetScored;

/* What a C function returns; false if it is none of ours */
typedef bool (*IdSetFindScored) (PGFunction function, IdSetScored *scored);

/* The same of functions of sets, and of values that sets are made of */
extern bool idset_scored(PGFunction function, IdSetScored *scored);
extern bool idset_made_scored(PGFunction function, IdSetScored *scored);

/* The score, or the distance, of a measure of sets */
extern IdSetScored idset_scored_by(gpuvec_measure measure, bool distance);

/*
 * A score that all sets reach, or vectors, that are at most this far from the
 * query.  Some that are a little farther may reach it.
 */
extern double idset_score_within(bool negated, double distance);

/*
 * The same of sets, by the distance of this measure.  No others reach it if
 * this decides.
 */
extern double idset_least_score(gpuvec_measure measure, double distance);
extern bool idset_least_score_decides(gpuvec_measure measure);

/*
 * A function of a schema whose arguments have these types and whose function
 * has this address; InvalidOid if there is none
 */
extern Oid	idset_own_function(Oid schema, const char *name, const Oid *types, int n,
							   PGFunction function);

/* Functions that conditions are made of: see idset_condition.c */
extern Datum idset_reaching(PG_FUNCTION_ARGS);
extern Datum idset_within(PG_FUNCTION_ARGS);
extern Datum idset_array_within(PG_FUNCTION_ARGS);
extern Datum idset_jsonb_within(PG_FUNCTION_ARGS);
extern Datum idset_trgm_within(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDSET_CONDITION_H */
