/*-------------------------------------------------------------------------
 *
 * weighted.h
 *	  The weighted matrix of users and items, as products need it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WEIGHTED_H
#define GPUVEC_WEIGHTED_H

#include "core/weighting.h"
#include "engine/als/interactions.h"
#include "engine/thread_pool.h"

typedef struct gpuvec_weighted
{
	gpuvec_weighting weighting;
	double		k1;
	double		b;
	gpuvec_side_rows rows[2];	/* of gpuvec_als_side; that of users has no
								 * entries */
	uint32_t   *items;			/* [items]: the item of each column */
	uint32_t   *column_of;		/* [items]: the column of each item */
	uint32_t   *columns;		/* [entries]: users' rows, ascending */
	double	   *weights;		/* [entries] */
	double	   *idf;			/* [users] */
	double	   *lengths;		/* [items]: of bm25 */
	double	   *squares;		/* [items]: sums of squared weights */
	double	   *scales;			/* [items], by columns: 1 / sqrt(squares); 1
								 * if nothing is divided */
	uint64_t   *work;			/* [items + 1]: products before each item */
} gpuvec_weighted;

/*
 * Sort interactions and weigh them.  On failure, gpuvec_weighted_free() is
 * still due.
 */
extern bool gpuvec_weighted_make(gpuvec_weighted *matrix, gpuvec_interactions *in,
								 gpuvec_thread_pool *pool, const int *canceled,
								 gpuvec_error *error);
extern void gpuvec_weighted_free(gpuvec_als_memory *memory, gpuvec_weighted *matrix);

/* The weight of a pair, as in weights[] */
static inline double
gpuvec_weighted_pair(const gpuvec_weighted *matrix, uint32_t item, const gpuvec_als_entry *entry)
{
	return gpuvec_pair_weight(matrix->weighting, matrix->k1, entry->confidence,
							  matrix->idf[entry->other], matrix->lengths[item]);
}

#endif							/* GPUVEC_WEIGHTED_H */
