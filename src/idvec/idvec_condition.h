/*-------------------------------------------------------------------------
 *
 * idvec_condition.h
 *	  Other spellings of conditions on vectors that an index can search for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDVEC_CONDITION_H
#define GPUVEC_IDVEC_CONDITION_H

#include "gpuvec.h"

#include "core/sparse.h"
#include "idset/idset_condition.h"

/* What a function of sets or vectors returns; false if it is none of ours */
extern bool idvec_scored(PGFunction function, IdSetScored *scored);

/* The name of a measure in thresholds that conditions are made of */
extern const char *idvec_condition_measure(gpuvec_sparse_measure measure);

/* Functions that conditions are made of: see idvec_condition.c */
extern Datum idvec_reaching(PG_FUNCTION_ARGS);
extern Datum idvec_within(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDVEC_CONDITION_H */
