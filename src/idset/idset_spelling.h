/*-------------------------------------------------------------------------
 *
 * idset_spelling.h
 *	  Arithmetic that is written around a score or a distance.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_SPELLING_H
#define GPUVEC_IDSET_SPELLING_H

#include "gpuvec.h"

#include "fmgr.h"
#include "idset/idset_condition.h"
#include "nodes/primnodes.h"

/*
 * An expression of a score or a distance x.  Its value is scale * x + shift,
 * and at most `error` more or less.
 */
typedef struct IdSetSpelling
{
	IdSetScored scored;
	Node	   *sets[2];		/* the arguments */
	Oid			collation;		/* of the call: that of arrays' elements */
	Node	   *weights[2];		/* of a measure that has them */
	double		scale;
	double		shift;
	double		error;
	double		most;			/* no value is farther from 0 */
	bool		keeps_order;	/* it never falls, or never rises, when x
								 * grows */
	bool		has_fallback;	/* of a null set the value is: */
	double		fallback;		/* ... this, */
	double		fallback_error; /* ... or at most so much more or less; */
	bool		fallback_last;	/* no set's value is worse */
} IdSetSpelling;

/*
 * Take an expression apart; false if it is no score that is found, or nothing
 * is known
 */
extern bool idset_spelling(Node *node, IdSetFindScored find, IdSetSpelling *spelling);

/*
 * The name of the measure of a score or a distance of sets, whose query is the
 * second argument if it is `turned`.  NULL: it has none, or weights that are
 * not known; if they are bad, the executor reports it.
 */
extern const char *idset_spelling_measure(const IdSetSpelling *spelling, bool turned);

/* True if a larger value says that sets are more similar */
static inline bool
idset_spelling_rises(const IdSetSpelling *spelling)
{
	return (spelling->scale > 0) != spelling->scored.distance;
}

/* True if the value is that of the score or the distance, to the bit */
static inline bool
idset_spelling_is_plain(const IdSetSpelling *spelling)
{
	return spelling->scale == 1 && spelling->shift == 0 && spelling->error == 0;
}

/*
 * True if a null set is known not to satisfy a comparison of the value with
 * a constant.  `strategy` is that of a btree.
 */
extern bool idset_spelling_null_fails(const IdSetSpelling *spelling, int strategy,
									  const Node *bound);

/*
 * What to add to the score, or the distance, that a bound is solved for, so
 * that no set is lost by rounding
 */
extern double idset_spelling_slack(const IdSetSpelling *spelling);

/* Functions that conditions are made of */
extern Datum idset_limit(PG_FUNCTION_ARGS);
extern Datum idset_limit_numeric(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDSET_SPELLING_H */
