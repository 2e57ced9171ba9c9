/*-------------------------------------------------------------------------
 *
 * idset_estimate.h
 *	  Estimates how many sets of a column satisfy && @> <@ and <<->>, from the
 *	  column's statistics.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_ESTIMATE_H
#define GPUVEC_IDSET_ESTIMATE_H

#include "gpuvec.h"

#include "idset/idset_threshold.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

/* Largest number of lengths that the model uses */
#define IDSET_MODEL_LENGTHS		32

/* The operator, with the column on its left */
typedef enum IdSetPredicate
{
	OVERLAPS,					/* set && query */
	CONTAINS,					/* set @> query */
	CONTAINED,					/* set <@ query */
	REACHES						/* set <<->> query */
} IdSetPredicate;

typedef struct IdSetQuestion
{
	IdSetPredicate predicate;
	IdSetThreshold threshold;	/* for other predicates than REACHES, only its
								 * query is used */
} IdSetQuestion;

/* The statistics of a column */
typedef struct IdSetStats
{
	double		notnull;		/* fraction of rows */
	AttStatsSlot elements;		/* STATISTIC_KIND_MCELEM; without values there
								 * is no model */
	AttStatsSlot dechist;		/* STATISTIC_KIND_DECHIST, or no numbers */
	AttStatsSlot common;		/* STATISTIC_KIND_MCV, or no values */
	AttStatsSlot histogram;		/* STATISTIC_KIND_HISTOGRAM, or no values */
	double		mean;			/* mean length of a set, > 0 */
	double		longest;		/* length of the longest set */
	int			nlengths;
	double		lengths[IDSET_MODEL_LENGTHS];
} IdSetStats;

/*
 * Load the statistics of a column.  It must have statistics, and
 * statistic_proc_security_check() must have allowed to use them.
 */
extern void idset_load_stats(IdSetStats *stats, VariableStatData *variable);
extern void idset_free_stats(IdSetStats *stats);

/*
 * The fraction of rows that satisfy the predicate.  The model uses at most
 * `lengths` lengths, and at most `sample` sets of the histogram are looked
 * at.  Without a model, `fallback` stands for its estimate.
 */
extern double idset_estimate(const IdSetStats *stats, const IdSetQuestion *question,
							 int lengths, int sample, double fallback);

/*
 * Make up to n sets that are typical of the column, or with single_ids sets
 * of one id each.  Returns their number.
 */
extern int	idset_typical_sets(const IdSetStats *stats, bool single_ids, IdSet **sets, int n);

/*
 * idset_selfuncs.c: the selectivity where nothing is known; true if an
 * operator with this function has this predicate's meaning; the arguments of
 * a threshold that is a row constructor or a call of one of our functions, or
 * NIL
 */
extern double idset_default_selectivity(IdSetPredicate predicate);
extern bool idset_function_fits(Oid function, IdSetPredicate predicate);
extern List *idset_fields_of_threshold(Node *node);

#endif							/* GPUVEC_IDSET_ESTIMATE_H */
