/*-------------------------------------------------------------------------
 *
 * equal_filters.h
 *	  The different filters of a batch of queries.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EQUAL_FILTERS_H
#define GPUVEC_EQUAL_FILTERS_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/backend.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Filters that were found to differ, in a hash table with linear probing */
typedef struct gpuvec_equal_filters
{
	uint32_t	n;
	uint32_t	mask;			/* slots - 1; at most every other one is used */
	uint32_t   *slots;			/* number of a filter + 1, or 0 */
	const gpuvec_filter **filters;	/* [n] */
} gpuvec_equal_filters;

/* Make room for the filters of n queries; false if out of memory */
extern bool gpuvec_equal_filters_init(gpuvec_equal_filters *equal, uint32_t n);
extern void gpuvec_equal_filters_free(gpuvec_equal_filters *equal);

/*
 * Filters are the same if they have the same conditions, with the same values
 * and in the same order; these have the same hash
 */
extern bool gpuvec_same_filter(const gpuvec_filter *a, const gpuvec_filter *b);
extern uint64_t gpuvec_filter_hash(const gpuvec_filter *filter);

/*
 * The number of a filter: that of an equal one, or the next.  It has to stay
 * valid.
 */
extern uint32_t gpuvec_equal_filter(gpuvec_equal_filters *equal, const gpuvec_filter *filter);

/*
 * How many of n queries, from the first on, have at most `most` different
 * filters; at least one.  Without memory to find out, it says one.
 */
extern uint32_t gpuvec_queries_with(const gpuvec_topk_query *queries, uint32_t n, size_t most);

/* True if a filter asks for rows whose sets are null */
extern bool gpuvec_wants_null_sets(const gpuvec_filter *filter);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_EQUAL_FILTERS_H */
