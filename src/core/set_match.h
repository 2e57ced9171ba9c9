/*-------------------------------------------------------------------------
 *
 * set_match.h
 *	  A condition of a filter on sets: a boolean expression of ids.
 *
 * It is n values of the filter (core/filter.h): first nids ids, ascending and
 * distinct, then steps in postfix notation.  A step takes truth values from
 * a stack, and puts one there; one is left in the end.
 *
 *		0 .. nids - 1	the set has this one of the ids
 *		SET_AND			both of two values
 *		SET_OR			one of two, or both
 *		SET_NOT			not a value
 *		SET_ONLY		the set has no ids but these
 *
 * Which of the ids a set has are the bits of a word, and so is the stack, the
 * top of which is bit 0.
 *
 * A null set matches nothing.  The empty set has none of the ids.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SET_MATCH_H
#define GPUVEC_SET_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/filter.h"
#include "core/ids.h"

/* Most ids, values on the stack, and steps */
#define GPUVEC_MOST_MATCH_IDS	64
#define GPUVEC_MOST_MATCH_DEPTH	64
#define GPUVEC_MOST_MATCH_STEPS	1024

#define GPUVEC_SET_AND			(GPUVEC_MOST_MATCH_IDS + 0)
#define GPUVEC_SET_OR			(GPUVEC_MOST_MATCH_IDS + 1)
#define GPUVEC_SET_NOT			(GPUVEC_MOST_MATCH_IDS + 2)
#define GPUVEC_SET_ONLY			(GPUVEC_MOST_MATCH_IDS + 3)

/*
 * How many values a step takes from the stack: 0, 1 or 2; -1: it is none, with
 * nids ids
 */
static inline int
gpuvec_step_takes(uint64_t step, uint64_t nids)
{
	switch (step)
	{
		case GPUVEC_SET_AND:
		case GPUVEC_SET_OR:
			return 2;
		case GPUVEC_SET_NOT:
			return 1;
		case GPUVEC_SET_ONLY:
			return 0;
		default:
			return step < nids ? 0 : -1;
	}
}

/* True if these are ids of a condition */
static inline bool
gpuvec_match_ids_valid(const uint64_t *ids, uint64_t nids)
{
	for (uint64_t i = 0; i < nids; i++)
		if (ids[i] > UINT32_MAX || (i > 0 && ids[i] <= ids[i - 1]))
			return false;
	return true;
}

/* True if n values are such a condition with nids ids */
static inline bool
gpuvec_match_valid(const uint64_t *values, uint64_t n, uint64_t nids)
{
	int			depth = 0;

	if (nids > GPUVEC_MOST_MATCH_IDS || nids > n || n - nids > GPUVEC_MOST_MATCH_STEPS ||
		!gpuvec_match_ids_valid(values, nids))
		return false;
	for (uint64_t i = nids; i < n; i++)
	{
		int			takes = gpuvec_step_takes(values[i], nids);

		if (takes < 0 || depth < takes)
			return false;
		depth += 1 - takes;
		if (depth > GPUVEC_MOST_MATCH_DEPTH)
			return false;
	}
	return depth == 1;
}

/*
 * True if a set matches that has the ids whose bits are set in `has`, and
 * others if `more`
 */
static inline GPUVEC_HD bool
gpuvec_set_matches(const uint64_t *steps, uint32_t nsteps, uint64_t has, bool more)
{
	uint64_t	stack = 0;

	for (uint32_t i = 0; i < nsteps; i++)
		switch (steps[i])
		{
			case GPUVEC_SET_AND:
				stack = stack >> 1 & (stack | ~UINT64_C(1));
				break;
			case GPUVEC_SET_OR:
				stack = stack >> 1 | (stack & 1);
				break;
			case GPUVEC_SET_NOT:
				stack ^= 1;
				break;
			case GPUVEC_SET_ONLY:
				stack = stack << 1 | !more;
				break;
			default:
				stack = stack << 1 | (has >> steps[i] & 1);
		}
	return stack & 1;
}

/* The number of an id among n others, which ascend; n if it is none of them */
static inline uint64_t
gpuvec_match_number(const uint64_t *ids, uint64_t n, uint32_t id)
{
	uint64_t	at = gpuvec_first_key(ids, (uint32_t) n, id);

	return at < n && ids[at] == id ? at : n;
}

/* True if a set with these ids matches a filter's expression, if it has one */
static inline bool
gpuvec_ids_match(const gpuvec_filter *filter, gpuvec_id_span set)
{
	const gpuvec_condition *match = gpuvec_filter_match(filter);
	const uint64_t *ids;
	uint64_t	has = 0;
	bool		more = false;

	if (match == NULL)
		return true;
	ids = filter->values + match->first;
	for (uint32_t i = 0; i < set.n; i++)
	{
		uint64_t	at = gpuvec_match_number(ids, match->low, set.wide ? ((const uint32_t *) set.ids)[i] :
											 ((const uint16_t *) set.ids)[i]);

		if (at < match->low)
			has |= UINT64_C(1) << at;
		else
			more = true;
	}
	return gpuvec_set_matches(ids + match->low, match->n - (uint32_t) match->low, has, more);
}

#endif							/* GPUVEC_SET_MATCH_H */
