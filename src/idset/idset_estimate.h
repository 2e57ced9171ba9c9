/*-------------------------------------------------------------------------
 *
 * idset_estimate.h
 *	  How many sets of a column satisfy && @> <@ and <<->>, from its
 *	  statistics.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_ESTIMATE_H
#define GPUVEC_IDSET_ESTIMATE_H

#include "gpuvec.h"

#include "idset/idset_threshold.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

/* Lengths that the model looks at */
#define IDSET_MODEL_LENGTHS		32

/* What is asked of a set */
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
	IdSetThreshold threshold;	/* of the others only the query */
} IdSetQuestion;

/* What the statistics say of a column */
typedef struct IdSetStats
{
	double		notnull;		/* fraction of the rows */
	AttStatsSlot elements;		/* MCELEM; no values: there is no model */
	AttStatsSlot dechist;		/* DECHIST; no numbers: none */
	AttStatsSlot common;		/* MCV; no values: none */
	AttStatsSlot histogram;		/* the same of the HISTOGRAM */
	double		mean;			/* length of sets, > 0 */
	double		longest;		/* length of one */
	int			nlengths;
	double		lengths[IDSET_MODEL_LENGTHS];
} IdSetStats;

/*
 * Load the statistics of a column that has some, which the caller may know
 * of.
 */
extern void idset_load_stats(IdSetStats *stats, VariableStatData *variable);
extern void idset_free_stats(IdSetStats *stats);

/*
 * The fraction of rows that satisfy a question, by so many lengths and so
 * many sets of the histogram at most.  Without a model, `fallback` stands for
 * what it would say.
 */
extern double idset_estimate(const IdSetStats *stats, const IdSetQuestion *question,
							 int lengths, int sample, double fallback);

/*
 * Up to n sets like those of the column, or of one of their ids each; returns
 * how many
 */
extern int	idset_typical_sets(const IdSetStats *stats, bool single_ids, IdSet **sets, int n);

#endif							/* GPUVEC_IDSET_ESTIMATE_H */
