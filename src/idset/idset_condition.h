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

/* A function of two sets that returns a score or a distance */
typedef struct IdSetScored
{
	PGFunction	function;
	gpuvec_measure measure;		/* if the first argument is the query */
	const char *name;			/* of that measure, as in idset_threshold */
	const char *turned;			/* the measure if the second is the query */
	bool		distance;		/* the less, the more similar */
	bool		weighted;		/* has weights as its third and fourth
								 * argument; name and turned are NULL */
} IdSetScored;

/* What is known of a function; NULL if it is none of ours */
extern const IdSetScored *idset_scored(Oid function);

/* The number of common ids, however it is counted */
extern const IdSetScored *idset_scored_common(void);

/*
 * A score that all sets reach that are at most this far from the query.  Some
 * that are a little farther may reach it.
 */
extern double idset_score_within(gpuvec_measure measure, double distance);

/*
 * A function of a schema whose arguments have these types and whose function
 * has this address; InvalidOid if there is none
 */
extern Oid	idset_own_function(Oid schema, const char *name, const Oid *types, int n,
							   PGFunction function);

/* Functions that conditions are made of: see idset_condition.c */
extern Datum idset_reaching(PG_FUNCTION_ARGS);
extern Datum idset_within(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDSET_CONDITION_H */
